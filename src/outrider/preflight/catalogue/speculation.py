"""Findings about the engine's SpeculativeConfig."""

from outrider.preflight.catalogue.kind import Kind

SPECULATION = (
    Kind(
        "SPEC001",
        "error",
        "field unknown to the pinned engine",
        "SpeculativeConfig forbids unknown fields: the start ends there. Names changed between versions, and "
        "copied commands carry old ones.",
        "Use the name that the evidence gives, or remove the field.",
    ),
    Kind(
        "SPEC002",
        "error",
        "value not allowed",
        "The field exists, but not with this value in the pinned version.",
        "Use one of the values that the evidence lists.",
    ),
    Kind(
        "SPEC003",
        "error",
        "method unknown to the pinned engine",
        "The method came with a later version, or was dropped.",
        "Pin a version that has it, or use another method.",
    ),
    Kind(
        "SPEC004",
        "error",
        "k outside what the method allows",
        "Lists of rates must have k entries, FLy needs k >= 2, acceptance lengths lie in [1, k+1].",
        "Correct k or the other value.",
    ),
    Kind(
        "SPEC005",
        "error",
        "k schedule is malformed",
        "Bands are [first, last, k], inclusive, from batch 1 on, ascending, without overlap, k >= 0.",
        "Write the schedule in `speculation.schedule`.",
    ),
    Kind(
        "SPEC006",
        "advisory",
        "k schedule is ignored with data parallelism",
        "Data-parallel ranks could choose different k and block each other, so the engine falls back to static k.",
        "Set `parallel.data: 1`, or drop the schedule.",
    ),
    Kind(
        "SPEC007",
        "advisory",
        "k schedule is ignored for this method",
        "The V1 runner follows a schedule for ngram, eagle, eagle3, mtp, draft_model and dflash only.",
        "Drop the schedule, or use the V2 runner where it has the method.",
    ),
    Kind(
        "SPEC008",
        "advisory",
        "k schedule costs full CUDA graphs",
        "The V1 runner falls back to piecewise graphs when k may change; decode steps get slower.",
        "Compare with static k, or use the V2 runner for all variants.",
    ),
    Kind(
        "SPEC009",
        "advisory",
        "k schedule leaves batches out",
        "Batches between bands, or above the last one, take the k of the band before.",
        "Close the gap, and end the schedule at `memory.max_num_seqs`.",
    ),
    Kind(
        "SPEC010",
        "error",
        "option doubles what Outrider writes",
        "The same field would be written twice, and the option would win silently.",
        "Remove the option and set the field of `speculation` that the evidence names.",
    ),
    Kind(
        "SPEC011",
        "error",
        "synthetic acceptance is incomplete",
        "`rejection_sample_method: synthetic` needs exactly one of synthetic_acceptance_rates and "
        "synthetic_acceptance_length; without it neither is allowed.",
        "Give exactly one of them, or none.",
    ),
    Kind(
        "SPEC012",
        "error",
        "refused on this model runner",
        "The variant needs a model runner that the environment rules out.",
        "Change VLLM_USE_V2_MODEL_RUNNER, for all variants alike.",
    ),
    Kind(
        "SPEC013",
        "error",
        "combination refused by the engine",
        "Two settings exclude each other; the engine checks this while it builds its configuration.",
        "Drop one of the two.",
    ),
    Kind(
        "SPEC014",
        "advisory",
        "pipeline stages and speculation",
        "The drafter runs on the last stage only and cannot share the target's embedding; auxiliary hidden states "
        "have to travel between stages, which few target classes support.",
        "Prefer tensor parallelism for variants that speculate.",
    ),
    Kind(
        "SPEC015",
        "error",
        "structured output with pipeline stages and asynchronous scheduling",
        "On the V1 runner this combination gives wrong output; the engine refuses it (vllm 45014).",
        "Set flag async-scheduling: false, or use one pipeline stage.",
    ),
    Kind(
        "SPEC016",
        "advisory",
        "short n-grams with tool calls",
        "Matches of two tokens corrupted tool calls under n-gram speculation (vllm 40875, 35800).",
        "Set `lookup_min: 3` or more.",
    ),
    Kind(
        "SPEC017",
        "advisory",
        "suffix decoding needs a package that the engine does not bring",
        "Method suffix imports arctic-inference at start-up, and fails without it.",
        "Install arctic-inference 0.1.1 in the engine's environment.",
    ),
    Kind(
        "SPEC018",
        "error",
        "more speculative tokens than a step may schedule",
        "max_num_batched_tokens must exceed the look-ahead of one request.",
        "Raise flag max-num-batched-tokens, or lower k.",
    ),
    Kind(
        "SPEC019",
        "error",
        "synthetic acceptance does not work on the CPU build",
        "The CPU engine's rejection sampler has no synthetic mode (seen with 0.32.0).",
        "Measure step cost with synthetic acceptance on a GPU.",
    ),
    Kind(
        "SPEC020",
        "error",
        "the variant's engine cannot start it",
        "The adapter of that engine refuses a method, a flag or an option that the variant asks for.",
        "Change what the evidence names, or serve the variant on the stack's own engine.",
    ),
    Kind(
        "SPEC021",
        "error",
        "the pinned engine's scheduler is not the one that `auto` was written for",
        "With `auto` a scheduler of Outrider's takes the place of the engine's, whose interface is not public. It was "
        "read in the versions that have a table; in another one it would at best fall back to static k.",
        "Pin a version whose table names all of it, or use a variant with static k or a schedule.",
    ),
    Kind(
        "SPEC022",
        "error",
        "k cannot be chosen at run time here",
        "Data-parallel ranks with different k block each other, some methods draft the same number at every step, and "
        "a k by batch size needs to know the largest batch.",
        "Mend what the evidence names, or use a variant with static k.",
    ),
    Kind(
        "SPEC023",
        "advisory",
        "several API servers do not show the metrics of `auto`",
        "With more than one server the engine answers /metrics from a directory that all of them write to; what one "
        "process collects at a scrape is not in it. k is chosen all the same.",
        "Set flag api-server-count: 1, or follow the engine's log, which has a line at each change of k.",
    ),
)
