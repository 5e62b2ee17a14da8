"""The entry point: puts the budget between the routers of a worker's model and its expert kernels.

One method of the engine is replaced, `Worker.load_model`; the rest is done on the loaded model and on the one worker
that loaded it. Only the target is touched: a drafter's model is the runner's own and is not looked at.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from outrider.vllm_ext.expert_budget.settings import VARIABLE, read_settings

if TYPE_CHECKING:
    from outrider.vllm_ext.expert_budget.settings import Settings
    from outrider.vllm_ext.expert_budget.state import Budget

# Below the engine's own logger, so that its handlers and levels hold.
_LOG = logging.getLogger("vllm.outrider_expert_budget")
_MARK = "_outrider_expert_budget"


def register() -> None:
    """Entry point of `vllm.general_plugins`; without OUTRIDER_EXPERT_BUDGET it does nothing.

    The engine calls it in each of its processes, and may do so more than once.

    Raises:
        SettingsError: the settings cannot be used.
    """
    settings = read_settings(os.environ)
    if settings is None:
        return
    from vllm.v1.worker.gpu_worker import Worker  # noqa: PLC0415 - only an engine that has a budget needs it here

    if getattr(Worker.load_model, _MARK, False):
        return
    engine_load = Worker.load_model

    def load_model(worker: Any, *args: Any, **kwargs: Any) -> None:
        _part_from_cached_code(worker.vllm_config, settings)
        engine_load(worker, *args, **kwargs)
        attach(worker, settings)

    setattr(load_model, _MARK, True)
    Worker.load_model = load_model


def attach(worker: Any, settings: Settings) -> Budget:
    """Wrap the routers of a worker's loaded model, and have every step say whether the budget holds in it.

    Args:
        worker: the engine's Worker, model loaded.
        settings: the budget.

    Raises:
        BudgetError: a layer's router would not be consulted, or cannot be followed, or there is no MoE layer.
        SettingsError: B is below top_k.
    """
    # The engine and torch are imported here: a process without a model has no need of them.
    from outrider.vllm_ext.expert_budget.layers import BudgetError  # noqa: PLC0415
    from outrider.vllm_ext.expert_budget.steps import Steps  # noqa: PLC0415
    from outrider.vllm_ext.expert_budget.wrap import wrap_model  # noqa: PLC0415

    compiled = int(worker.vllm_config.compilation_config.mode or 0) != 0
    if compiled and worker.device.type != "cuda":
        raise BudgetError(
            "expert budget: without CUDA the engine traces MoE layers into compiled code, which a budget cannot reach; "
            "serve with --enforce-eager"
        )
    budget = wrap_model(worker.model_runner.get_model(), settings, worker.device)
    first = budget.layers[0]
    _LOG.info(
        "expert budget: %d MoE layers of %d experts, top_k %d: %s on decode and verify steps; prefill as ever. LOSSY",
        len(budget.layers),
        first.experts,
        first.per_token,
        settings.describe(),
    )
    steps, engine_step, engine_warm_up = Steps(), worker.execute_model, worker.compile_or_warm_up_model
    checked = _Checked(budget)

    def execute_model(scheduled: Any) -> Any:
        budget.serving = True
        bound = budget.set_step(steps.decoding(scheduled))
        output = engine_step(scheduled)
        if scheduled.total_num_scheduled_tokens:
            checked.once()
            checked.report(bound)
        return output

    def compile_or_warm_up_model() -> Any:
        result = engine_warm_up()
        if any(layer.consulted for layer in budget.layers):
            checked.once()
        return result

    worker.execute_model, worker.compile_or_warm_up_model = execute_model, compile_or_warm_up_model
    worker.outrider_expert_budget = budget
    return budget


class _Checked:
    """Looks once whether every wrapped router was asked, and now and then logs how many experts were read."""

    def __init__(self, budget: Budget) -> None:
        self._budget, self._done, self._bounded = budget, False, 0

    def once(self) -> None:
        if self._done:
            return
        self._done = True
        if silent := [layer.name for layer in self._budget.layers if not layer.consulted]:
            from outrider.vllm_ext.expert_budget.layers import BudgetError  # noqa: PLC0415

            raise BudgetError(
                f"expert budget: the engine ran a step without asking the routers of {', '.join(silent)}; "
                f"it would serve without a budget. Unset {VARIABLE}, or find what routes there"
            )

    def report(self, bound: int | None) -> None:
        every = self._budget.settings.report_every
        if bound is None or not every:
            return
        self._bounded += 1
        if self._bounded % every:
            return
        counts = self._budget.counts()
        chosen, read = [row[1] for row in counts], [row[2] for row in counts]
        _LOG.info(
            "expert budget: bounded step %d, B=%d: read %.1f experts a layer, at most %d; chosen were %.1f, at most %d",
            self._bounded,
            bound,
            sum(read) / len(read),
            max(read),
            sum(chosen) / len(chosen),
            max(chosen),
        )


def _part_from_cached_code(vllm_config: Any, settings: Settings) -> None:
    """Keep compiled code of engines with and without a budget apart; the engine's key covers this field."""
    extra: Any = vllm_config.additional_config
    if isinstance(extra, dict):
        extra[_MARK] = settings.describe()
