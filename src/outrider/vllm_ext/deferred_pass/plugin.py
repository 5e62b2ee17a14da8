"""The entry point: puts passes off in a worker whose drafter it knows, of the V1 or of the V2 model runner."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.vllm_ext.deferred_pass.v1 import DeferredPasses
    from outrider.vllm_ext.deferred_pass.v2 import SpeculatorPasses

VARIABLE = "OUTRIDER_DEFERRED_PASS"
# Name of the entry point, for VLLM_PLUGINS.
PLUGIN = "outrider_deferred_pass"
# Passes put off at most, by the engine's build. On a GPU, starting kernels is what costs: at the flagship's widths one
# takes an H200 1.6 to 3 ms, whether of 128 or of 256 rows (docs/evidence/h200-kimi-k0). CPUs calculate. What is kept is
# one row a request and step.
STEPS = {"cpu": 16, "cuda": 64}
# Rows of one pass at most, by device. From some 200 rows on a GPU calculates longer than it reads weights, but kernels
# are started once all the same; a trained head was as good after passes of 1,024 rows. On CPUs longer ones only delay a
# step.
ROWS = {"cpu": 256, "cuda": 1024}

# Below the engine's own logger, so that its handlers and levels hold.
_LOG = logging.getLogger("vllm.outrider_deferred_pass")
_MARK = "_outrider_deferred_pass"
# Drafters that read the target's hidden states and keep a cache of their own, one entry a token.
METHODS = frozenset({"eagle", "eagle3"})


class DeferredPassError(ValueError):
    """The setting cannot be used."""


def register() -> None:
    """Entry point of `vllm.general_plugins`; without OUTRIDER_DEFERRED_PASS it does nothing.

    The engine calls it in each of its processes, and may do so more than once.

    Raises:
        DeferredPassError: the variable is no number of steps.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return
    if not text.isdigit() or int(text) < 1:
        raise DeferredPassError(f"{VARIABLE} {text!r}: a whole number of steps from 1")
    from vllm.v1.worker.gpu_worker import Worker  # noqa: PLC0415 - only an engine that is asked for it needs it here

    if getattr(Worker.load_model, _MARK, False):
        return
    engine_load = Worker.load_model

    def load_model(worker: Any, *args: Any, **kwargs: Any) -> None:
        engine_load(worker, *args, **kwargs)
        attach(worker, int(text))

    # What another plugin marked on the method stays visible.
    for name, value in (vars(engine_load) | {_MARK: True}).items():
        setattr(load_model, name, value)
    Worker.load_model = load_model


def attach(worker: Any, most_steps: int) -> bool:
    """Put passes off in a worker whose drafter allows it; whether it does. Else the engine goes on in its own way."""
    if hasattr(worker, "outrider_deferred_passes"):
        return True
    runner = worker.model_runner
    # The V2 model runner has a speculator where the V1 has a drafter.
    drafter = getattr(runner, "speculator", None) or getattr(runner, "drafter", None)
    if why := _obstacle(runner, drafter):
        _LOG.warning("deferred pass: off, %s; k = 0 costs a pass of the drafter a step", why)
        return False
    assert drafter is not None
    engine_propose, engine_execute = drafter.propose, runner.execute_model
    passes = _passes(runner, drafter, most_steps)

    def off() -> None:
        drafter.propose, runner.execute_model = engine_propose, engine_execute
        passes.forget()
        _LOG.exception("deferred pass: off after an error; k = 0 costs a pass of the drafter a step")

    def propose(*inputs: Any, **more: Any) -> Any:
        try:
            return passes(*inputs, **more)
        except Exception:  # noqa: BLE001 - whatever it is, the engine has a way of its own
            off()
            return engine_propose(*inputs, **more)

    def execute_model(scheduled: Any, *inputs: Any, **more: Any) -> Any:
        try:
            if not more.get("dummy_run"):
                passes.before_step(scheduled.num_scheduled_tokens)
        except Exception:  # noqa: BLE001 - as above
            off()
        return engine_execute(scheduled, *inputs, **more)

    drafter.propose, runner.execute_model = propose, execute_model
    worker.outrider_deferred_passes = passes
    _LOG.info("deferred pass: while k is 0, up to %d passes of the drafter become one", most_steps)
    return True


def _passes(runner: Any, drafter: Any, most_steps: int) -> DeferredPasses | SpeculatorPasses:
    # torch and the engine are imported here: a process without a model has no need of them.
    from outrider.vllm_ext.deferred_pass.v1 import DeferredPasses  # noqa: PLC0415
    from outrider.vllm_ext.deferred_pass.v2 import SpeculatorPasses  # noqa: PLC0415

    most_tokens = min(ROWS.get(runner.device.type, ROWS["cpu"]), drafter.max_num_tokens)
    if _is_v1(drafter):
        ids = lambda: runner.input_batch.req_ids  # noqa: E731 - read anew at each step
        return DeferredPasses(drafter.propose, ids, most_steps=most_steps, most_tokens=most_tokens)
    from vllm.v1.worker.workspace import use_workspace_lane  # noqa: PLC0415

    return SpeculatorPasses(
        drafter,
        drafter.propose,
        lambda: use_workspace_lane(runner._draft_workspace_lane),  # noqa: SLF001 - as around the engine's own pass
        most_steps=most_steps,
        most_tokens=most_tokens,
    )


def _is_v1(drafter: Any) -> bool:
    return hasattr(drafter, "set_inputs_first_pass")


def _obstacle(runner: Any, drafter: Any) -> str | None:
    """Why passes cannot be put off here; None if they can."""
    if drafter is None or not (_is_v1(drafter) or hasattr(drafter, "_build_uniform_attn_metadata")):
        return "this model runner has no drafter that it knows"
    parallel = runner.parallel_config
    found = [
        (drafter.method not in METHODS, f"method {drafter.method} is none of {', '.join(sorted(METHODS))}"),
        (_keeps_another_cache(drafter), "its drafter keeps its cache in another way"),
        (parallel.data_parallel_size > 1, "data parallel ranks run their passes together"),
        (parallel.prefill_context_parallel_size > 1, "prompts are split over ranks"),
        (parallel.enable_eplb, "experts are moved between ranks"),
        (runner.vllm_config.kv_transfer_config is not None, "caches are handed to another engine as they are"),
    ]
    return next((why for stands, why in found if stands), None)


def _keeps_another_cache(drafter: Any) -> bool:
    if not _is_v1(drafter):
        return not drafter.advance_draft_positions
    unlike = drafter.needs_extra_input_slots or drafter.constant_draft_positions or drafter.uses_mrope
    return bool(unlike or drafter.supports_mm_inputs or not drafter.pass_hidden_states_to_model)
