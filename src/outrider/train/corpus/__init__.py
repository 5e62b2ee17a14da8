"""Prompts to train a head on: families of templates, with whole families held out for `check`."""

from outrider.train.corpus.draw import CorpusPrompt, corpus_digest, generate, write_jsonl

__all__ = ["CorpusPrompt", "corpus_digest", "generate", "write_jsonl"]
