"""The entry point: puts `DeferredPasses` before the proposer of a worker that has one it knows."""

from __future__ import annotations

import logging
import os
from typing import Any

VARIABLE = "OUTRIDER_DEFERRED_PASS"
# Name of the entry point, for VLLM_PLUGINS.
PLUGIN = "outrider_deferred_pass"
# Passes put off at most. One over 16 tokens of a request costs little more than one over 1 where starting kernels and
# reading weights is what costs; what is kept is 16 rows a request.
STEPS = 16
# Rows of one pass at most: some 200 rows are where a GPU's arithmetic takes as long as reading the weights, and beyond
# that a longer pass is a longer wait and no gain.
ROWS = 256

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
    """Put passes off in a worker whose proposer allows it; whether it does. Else the engine goes on in its own way."""
    if hasattr(worker, "outrider_deferred_passes"):
        return True
    runner = worker.model_runner
    proposer = getattr(runner, "drafter", None)
    if why := _obstacle(runner, proposer):
        _LOG.warning("deferred pass: off, %s; k = 0 costs a pass of the drafter a step", why)
        return False
    # torch and the engine are imported here: a process without a model has no need of them.
    from outrider.vllm_ext.deferred_pass.passes import DeferredPasses  # noqa: PLC0415

    assert proposer is not None
    engine_propose = proposer.propose
    passes = DeferredPasses(
        engine_propose,
        lambda: runner.input_batch.req_ids,
        most_steps=most_steps,
        most_tokens=min(ROWS, proposer.max_num_tokens),
    )

    def propose(**inputs: Any) -> Any:
        try:
            return passes(**inputs)
        except Exception:  # noqa: BLE001 - whatever it is, the engine has a way of its own
            proposer.propose = engine_propose
            passes.forget()
            _LOG.exception("deferred pass: off after an error; k = 0 costs a pass of the drafter a step")
            return engine_propose(**inputs)

    proposer.propose = propose
    worker.outrider_deferred_passes = passes
    _LOG.info("deferred pass: while k is 0, up to %d passes of the drafter become one", most_steps)
    return True


def _obstacle(runner: Any, proposer: Any) -> str | None:
    """Why passes cannot be put off here; None if they can."""
    if proposer is None or not hasattr(proposer, "set_inputs_first_pass"):
        return "this model runner has no proposer that it knows"
    if proposer.method not in METHODS or not proposer.pass_hidden_states_to_model:
        return f"method {proposer.method} is none of {', '.join(sorted(METHODS))}"
    if proposer.needs_extra_input_slots or proposer.constant_draft_positions or proposer.uses_mrope:
        return "its drafter keeps its cache in another way"
    if proposer.supports_mm_inputs:
        return "its drafter takes images"
    if runner.parallel_config.data_parallel_size > 1:
        return "data parallel ranks run their passes together"
    return None
