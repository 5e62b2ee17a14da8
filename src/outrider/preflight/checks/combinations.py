"""Settings that exclude each other, or that the engine falls back from.

Sources (vLLM 0.33.0): `config/speculative.py` (`_verify_args`, `__post_init__`), `config/vllm.py`
(`_get_v1_model_runner_unsupported_features` and its V2 sibling), `v1/spec_decode/llm_base_proposer.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.facts.runner import needs_v1, needs_v2
from outrider.preflight.report import Finding, found

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.preflight.checks.case import Case
    from outrider.stack import Speculation


def check_combinations(case: Case) -> list[Finding]:
    """Combinations within the speculative configuration, and of it with the rest of the stack."""
    spec = case.spec
    if spec is None:
        return []
    return [
        *_acceptance(case, spec),
        *_excluded(case, spec),
        *_runner(case),
        *_parallel(case, spec),
        *_lookup(case, spec),
        *_slots(case, spec),
    ]


def _acceptance(case: Case, spec: Speculation) -> Iterable[Finding]:
    options = spec.options
    where = case.place("speculation.options")
    sampling = options.get("rejection_sample_method", "standard")
    given = [name for name in ("synthetic_acceptance_rates", "synthetic_acceptance_length") if name in options]
    if (sampling == "synthetic") != (len(given) == 1):
        yield found("SPEC011", where, f"rejection_sample_method {sampling}, given: {given or 'neither'}")
    if sampling == "synthetic" and case.stack.engine.build == "cpu":
        yield found("SPEC019", where, "rejection_sample_method synthetic, engine.build cpu")
    length = options.get("synthetic_acceptance_length")
    if isinstance(length, int | float) and not isinstance(length, bool) and not 1 <= length <= spec.k + 1:
        yield found("SPEC004", where, f"synthetic_acceptance_length {length}, k {spec.k}: 1 to {spec.k + 1}")
    rates: object = options.get("synthetic_acceptance_rates")
    if isinstance(rates, list | tuple) and len(rates) != spec.k:
        yield found("SPEC004", where, f"{len(rates)} synthetic_acceptance_rates, k {spec.k}")
    if sampling == "fly" and spec.k < 2:
        yield found("SPEC004", where, f"rejection_sample_method fly, k {spec.k}: at least 2")
    window = options.get("fly_window_size")
    if sampling == "fly" and isinstance(window, int) and window >= spec.k:
        yield found("SPEC004", where, f"fly_window_size {window}, k {spec.k}: smaller than k")
    probability = options.get("suffix_decoding_min_token_prob")
    if isinstance(probability, int | float) and not 0 <= probability <= 1:
        yield found("SPEC002", where, f"suffix_decoding_min_token_prob {probability}: 0 to 1")


def _excluded(case: Case, spec: Speculation) -> Iterable[Finding]:
    options, method = spec.options, spec.method
    where = case.place("speculation.options")
    drafts_beside = method == "draft_model" or bool(options.get("parallel_drafting"))
    rules = (
        (options.get("use_heterogeneous_vocab") and method != "draft_model",
         "use_heterogeneous_vocab works with method draft_model only"),
        (options.get("use_heterogeneous_vocab") and options.get("draft_sample_method", "greedy") != "greedy",
         "use_heterogeneous_vocab needs draft_sample_method greedy"),
        (options.get("use_heterogeneous_vocab") and options.get("use_local_argmax_reduction"),
         "use_heterogeneous_vocab and use_local_argmax_reduction"),
        (options.get("disable_padded_drafter_batch") and drafts_beside,
         f"disable_padded_drafter_batch with {method}: draft models and parallel drafting need padding"),
        (options.get("enable_adaptive_verification") and method != "dspark"
         and options.get("use_local_argmax_reduction"),
         "enable_adaptive_verification and use_local_argmax_reduction"),
        (options.get("enable_adaptive_verification") and case.stack.parallel.pipeline > 1,
         "enable_adaptive_verification with pipeline stages"),
        (options.get("dspark_draft_topk") is not None and method != "dspark",
         f"dspark_draft_topk with method {method}"),
        (options.get("xpress_topc") is not None and method != "dflash", f"xpress_topc with method {method}"),
        (options.get("draft_lm_head_quantization") is not None and method not in {"eagle", "eagle3", "mtp"},
         f"draft_lm_head_quantization with method {method}"),
        (options.get("index_share_for_mtp_iteration") is not None and method != "mtp",
         f"index_share_for_mtp_iteration with method {method}"),
        (options.get("parallel_drafting") and method not in {"eagle", "eagle3", "draft_model", "dflash", "dspark"},
         f"parallel_drafting with method {method}"),
    )  # fmt: skip
    for applies, evidence in rules:
        if applies:
            yield found("SPEC013", where, evidence)
    limit = options.get("max_model_len")
    if isinstance(limit, int) and limit > case.stack.target.max_model_len:
        yield found("SPEC013", where, f"max_model_len {limit} above the target's {case.stack.target.max_model_len}")


def _runner(case: Case) -> Iterable[Finding]:
    forced = case.env.get("VLLM_USE_V2_MODEL_RUNNER")
    where = case.place("speculation")
    if case.stack.engine.build != "cuda":
        forced = "0"
    lacking = needs_v2(case.stack, case.name)
    if lacking and case.runner == "v1" and forced is not None:
        yield found("SPEC012", where, f"{lacking} needs the V2 runner, which is ruled out here")
    lacking = needs_v1(case.stack, case.name)
    if lacking and case.runner == "v2":
        yield found("SPEC012", where, f"{lacking} needs the V1 runner, VLLM_USE_V2_MODEL_RUNNER={forced}")


def _parallel(case: Case, spec: Speculation) -> Iterable[Finding]:
    stages = case.stack.parallel.pipeline
    if stages == 1:
        return
    where = f"stack {case.stack.name}, parallel.pipeline"
    if spec.method not in {"ngram", "ngram_gpu", "suffix"}:
        yield found("SPEC014", where, f"{stages} stages, method {spec.method}")
    if case.runner == "v1" and case.flags.get("async-scheduling") is True:
        yield found("SPEC015", where, f"{stages} stages, async-scheduling, runner V1")


def _lookup(case: Case, spec: Speculation) -> Iterable[Finding]:
    tools = case.flags.get("tool-call-parser") or case.flags.get("enable-auto-tool-choice")
    shortest = spec.lookup_min or spec.lookup_max or 5
    if spec.method in {"ngram", "ngram_gpu"} and tools and shortest < 3:
        yield found("SPEC016", case.place("speculation.lookup_min"), f"{shortest}, tool calls are on")
    if spec.method == "suffix":
        yield found("SPEC017", case.place("speculation.method"), "suffix")


def _slots(case: Case, spec: Speculation) -> Iterable[Finding]:
    batched = case.flags.get("max-num-batched-tokens")
    ahead = spec.k + 1 if spec.method == "dflash" else spec.k
    if isinstance(batched, int) and batched <= ahead:
        evidence = f"{batched}, look-ahead {ahead}"
        yield found("SPEC018", f"stack {case.stack.name}, engine.flags.max-num-batched-tokens", evidence)
