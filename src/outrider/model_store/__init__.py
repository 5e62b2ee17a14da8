"""Where a stack's weights lie on this machine, made ready and checked before any engine starts."""

from outrider.model_store.locate import Located, cache_root, drafter_faults, expected, locate, prepare

__all__ = ["Located", "cache_root", "drafter_faults", "expected", "locate", "prepare"]
