"""Findings about the target."""

from outrider.preflight.catalogue.kind import Kind

TARGET = (
    Kind(
        "TARGET001",
        "error",
        "architecture unknown to the pinned engine",
        "The engine looks `architectures[0]` up in its model registry. The support table was read from the source "
        "of the pinned version.",
        "Pin an engine version that serves this architecture.",
    ),
    Kind(
        "TARGET002",
        "error",
        "config lacks or misstates a dimension",
        "A dimension that the engine needs is absent, zero, negative or no integer. Multimodal configs keep them "
        "in `text_config`; both places were looked at.",
        "Correct config.json from the model's repository.",
    ),
    Kind(
        "TARGET003",
        "error",
        "quantisation not readable by the engine",
        "`quantization_config.quant_method` is no method of the pinned engine.",
        "Use a checkpoint in a format that the engine reads, or another engine version.",
    ),
    Kind(
        "TARGET004",
        "error",
        "quantisation not supported by this GPU generation",
        "Each quantisation method states the lowest compute capability that its kernels run on.",
        "Use another format of the weights, or newer GPUs.",
    ),
    Kind(
        "TARGET005",
        "advisory",
        "multi-token-prediction layers declared but absent",
        "The config declares MTP layers that the checkpoint does not hold. The target serves, but method `mtp` "
        "would draft from uninitialised weights.",
        "Do not use method mtp with this checkpoint.",
    ),
    Kind(
        "TARGET006",
        "error",
        "tensors missing",
        "Layers or embeddings that the config announces have no tensor in any shard.",
        "Fetch the checkpoint again; index and shards must come from one revision.",
    ),
    Kind(
        "TARGET007",
        "error",
        "embedding does not have the config's vocabulary size",
        "Rows of the embedding differ from `vocab_size`: loading fails, or ids read past the table.",
        "Correct `vocab_size`, or use the checkpoint that belongs to this config.",
    ),
    Kind(
        "TARGET008",
        "error",
        "tokenizer missing or unreadable",
        "Without tokenizer files the engine dies after loading; with damaged ones it dies or encodes wrongly.",
        "Fetch tokenizer.json (or the tiktoken / sentencepiece model) again.",
    ),
    Kind(
        "TARGET009",
        "error",
        "tokenizer has ids outside the vocabulary",
        "The tokenizer can produce an id that the embedding has no row for: an out-of-bounds read on the GPU.",
        "Use tokenizer and weights of the same revision.",
    ),
    Kind(
        "TARGET010",
        "advisory",
        "no chat template",
        "Chat requests are refused, because the engine cannot turn messages into a prompt.",
        "Add chat_template.jinja beside the weights, or flag chat-template.",
    ),
    Kind(
        "TARGET011",
        "advisory",
        "end-of-sequence ids disagree and are not all honoured",
        "The engine stops at the tokenizer's eos token and at those of generation_config.json. An eos id that "
        "stands only in config.json is ignored, and answers run on to their length limit.",
        "Add the id to `eos_token_id` in generation_config.json.",
    ),
    Kind(
        "TARGET012",
        "info",
        "end-of-sequence ids differ; the union is used",
        "config.json, generation_config.json and the tokenizer name different ids; the engine stops at each of "
        "the latter two.",
        "Nothing, if all of them are meant to end an answer.",
    ),
    Kind(
        "TARGET013",
        "error",
        "parser unknown to the engine",
        "tool-call-parser and reasoning-parser name entries of the engine's registries; an unknown one ends the "
        "start-up.",
        "Use a name that the pinned version has.",
    ),
    Kind(
        "TARGET014",
        "error",
        "not divisible by the tensor-parallel size",
        "Attention heads are dealt out evenly over tensor-parallel ranks.",
        "Choose `parallel.tensor` among the divisors of the number of heads.",
    ),
    Kind(
        "TARGET015",
        "error",
        "served length above the model's limit",
        "The engine refuses a max_model_len that exceeds what the config's positions allow.",
        "Lower `target.max_model_len`.",
    ),
    Kind(
        "TARGET016",
        "error",
        "architecture cannot be split over pipeline stages",
        "The model class does not implement the engine's pipeline interface.",
        "Set `parallel.pipeline: 1` and use tensor parallelism.",
    ),
    Kind(
        "TARGET017",
        "info",
        "engine version without a support table",
        "Architectures, parsers, quantisation and SpeculativeConfig could not be compared with the pinned version.",
        "Extract its table: python -m outrider.preflight.engine_tables.extract WHEEL VERSION --write",
    ),
    Kind(
        "TARGET018",
        "error",
        "KV cache dtype unknown to the engine",
        "`memory.kv_cache_dtype` is none of the pinned version's values.",
        "Use one of the values that the evidence lists.",
    ),
    Kind(
        "TARGET019",
        "error",
        "attention backend unknown to the engine",
        "The attention-backend flag names none of the pinned version's backends; the start-up ends there.",
        "Use one of the engine's names, or leave the choice to it.",
    ),
    Kind(
        "TARGET020",
        "error",
        "flag unknown to the engine",
        "The engine's command line does not have it in the pinned version: it prints its usage and ends. Flags come "
        "and go between versions, and copied commands keep the old ones.",
        "Correct or remove the flag in the stack; the evidence names the nearest one.",
    ),
    Kind(
        "TARGET021",
        "error",
        "development endpoints are open",
        "With VLLM_SERVER_DEV_MODE=1 the engine also answers /collective_rpc, /sleep, /server_info and others, by "
        "which whoever reaches its port calls methods of its workers, puts it to sleep or reads its settings. The API "
        "key does not guard them.",
        "Take the variable out of the stack; benchmarks that need it set it themselves, on loopback.",
    ),
)
