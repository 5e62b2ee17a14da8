"""Findings about an engine that runs (--running)."""

from outrider.preflight.catalogue.kind import Kind

RUNNING = (
    Kind(
        "RUN001",
        "error",
        "the engine cannot be read back",
        "The URL does not answer, or answers with something else than the engine's API and metrics.",
        "Check that the variant is up and that the URL is its base, without /v1.",
    ),
    Kind(
        "RUN002",
        "error",
        "another model is served",
        "/v1/models does not list the stack's served name.",
        "Stop the other server, or correct the URL.",
    ),
    Kind(
        "RUN003",
        "error",
        "another length is served",
        "The engine lowered or was given another max_model_len.",
        "Look for 'reducing max_model_len' in the log; a drafter's limit causes it.",
    ),
    Kind(
        "RUN004",
        "error",
        "speculation is not in force",
        "The variant speculates but the engine does not publish speculation counters or runs another method; or "
        "the other way round.",
        "Compare the running command with `outrider render STACK VARIANT`.",
    ),
    Kind(
        "RUN005",
        "advisory",
        "another attention backend than expected",
        "The engine chose another backend than the stack asks for or the GPU was expected to use.",
        "Name the backend in flags if the choice matters; compare its speed.",
    ),
    Kind(
        "RUN006",
        "advisory",
        "no CUDA graphs",
        "The engine runs eagerly although the stack does not ask for that: decode steps cost several times more.",
        "Look for the reason in the log; compilation mode 0 together with a k schedule causes it.",
    ),
    Kind(
        "RUN007",
        "advisory",
        "KV cache differs from the estimate",
        "The cache holds over 20 % fewer or more tokens than estimated.",
        "Another process may hold memory; correct the estimate's inputs in the stack.",
    ),
    Kind(
        "RUN008",
        "error",
        "drafter's layers are not those of its config",
        "The engine logged other auxiliary layers than the drafter's config states.",
        "See DRAFT004 and DRAFT007.",
    ),
    Kind(
        "RUN009",
        "info",
        "not read back",
        "No start-up log was given, or it does not say.",
        "Give the log with --log.",
    ),
    Kind(
        "RUN010",
        "advisory",
        "another model runner than expected",
        "Acceptance and cost do not compare across model runners.",
        "Force one with VLLM_USE_V2_MODEL_RUNNER for all variants.",
    ),
    Kind(
        "RUN011",
        "advisory",
        "acceptance is next to nothing",
        "The engine has drafted enough to tell, and the target keeps less than 5 % of it.",
        "See DRAFT004, DRAFT007, DRAFT008, DRAFT011 and DRAFT032 for the silent causes.",
    ),
    Kind(
        "RUN012",
        "advisory",
        "another engine version than pinned",
        "The support tables and figures of this report hold for the pinned version.",
        "Start the pinned version, or pin the running one.",
    ),
)
