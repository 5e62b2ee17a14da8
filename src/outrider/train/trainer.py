"""speculators' trainer with what it lacks: a CPU path, a stop at non-finite loss, and a time budget.

Runs in the training interpreter only. It is a subclass that takes the place of `speculators.train.cli.Trainer`;
no file of speculators is edited (`patches/ledger.yaml`, entries speculators-cpu-trainer and speculators-nan).
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

import torch
from speculators.train import trainer as upstream

if TYPE_CHECKING:
    from pathlib import Path

# Steps between two looks at the losses: each look waits for the device.
_LOOK_EVERY = 20


class NonFiniteLossError(RuntimeError):
    """The loss became NaN or infinite; checkpoints written before are good."""


class BudgetSpent(Exception):  # noqa: N818 - not a fault
    """The time budget is used up and the last epoch is saved."""


class _HostStepTimer(upstream._StepTimer):  # type: ignore[misc]  # noqa: SLF001
    """The step timer on a machine where there is no device to wait for."""

    def mark(self, name: str) -> None:
        self.mark_value(name, time.perf_counter())

    def now(self) -> float | None:
        return time.perf_counter() if self.enabled else None


class HeadTrainer(upstream.Trainer):  # type: ignore[misc]
    """Trains on CPU or CUDA; class attributes are set by `worker.py` before speculators builds it."""

    config: upstream.TrainerConfig
    budget_s: float | None = None
    metrics_file: Path | None = None

    def setup_trainer(self) -> None:
        """Put everything on the CPU where there is no accelerator (upstream falls back to the name "cuda")."""
        if torch.accelerator.current_accelerator() is None:
            self.device_type = "cpu"
            self.local_rank = "cpu"
            upstream._StepTimer = _HostStepTimer  # noqa: SLF001
        if self.metrics_file is not None and self.rank == 0:
            # Here, because speculators sets its logging up anew before it builds the trainer.
            upstream.metric_logger.addHandler(MetricLines(self.metrics_file))
        self._started_at = time.monotonic()
        self._share = 0.0
        self._losses: list[torch.Tensor] = []
        super().setup_trainer()

    def setup_model(self) -> None:
        """Watch each loss that the model gives while it trains."""
        super().setup_model()
        self.model.register_forward_hook(self._note_loss)

    def setup_optimizer(self) -> None:
        """Let the learning rate also follow the clock, so that it has decayed when the budget is spent."""
        super().setup_optimizer()
        if self.budget_s is None:
            return
        for scheduler in self.schedulers:
            scheduler.lr_lambdas = [self._by_clock(shape) for shape in scheduler.lr_lambdas]

    def train_epoch(self, epoch: int, **keywords: Any) -> None:
        """One epoch; raises `NonFiniteLossError` before anything is saved of it."""
        super().train_epoch(epoch, **keywords)
        self._look_at_losses()

    def maybe_update_best(self, epoch: int, val_metrics: dict[str, float] | None) -> None:
        """Upstream's bookkeeping, then the end if the budget is spent or `max_steps` reached."""
        super().maybe_update_best(epoch, val_metrics)
        steps = self.config.max_steps
        if self._share >= 1 or (steps is not None and self.global_step >= steps):
            raise BudgetSpent

    def _schedulers_step(self) -> None:
        super()._schedulers_step()
        if self.global_step % _LOOK_EVERY == 0:
            self._look_at_losses()
            self._look_at_clock()
        if self._share >= 1 and self.config.max_steps is None:
            # Ends this epoch after the current step; what follows saves and validates it.
            self.config = self.config._replace(max_steps=self.global_step + 1)

    def _note_loss(self, module: torch.nn.Module, _inputs: object, output: tuple[Any, ...]) -> None:
        if module.training:
            self._losses.append(output[1].detach())

    def _look_at_losses(self) -> None:
        if not self._losses:
            return
        finite = bool(torch.isfinite(torch.stack([loss.float().reshape(()) for loss in self._losses])).all())
        self._losses.clear()
        if not finite:
            message = f"loss is not finite near step {self.global_step}"
            raise NonFiniteLossError(message)

    def _look_at_clock(self) -> None:
        """Share of the budget that is spent; rank 0's clock counts for all, else their learning rates differ."""
        if self.budget_s is None:
            return
        share = torch.tensor((time.monotonic() - self._started_at) / self.budget_s, device=self._device())
        if self.is_distributed:
            torch.distributed.broadcast(share, src=0)
        self._share = float(share)

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _by_clock(self, shape: Any) -> Any:
        def factor(step: int) -> float:
            # Linear decay to zero over the budget; the planned shape is the upper bound (warm-up included).
            return min(float(shape(step)), max(0.0, 1.0 - self._share))

        return factor


class MetricLines(logging.Handler):
    """Writes every metrics record of speculators as one JSON line."""

    def __init__(self, path: Path) -> None:
        super().__init__(level=logging.INFO)
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        """Append one record; values that JSON does not know become text."""
        if isinstance(record.msg, dict):
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"at": time.time(), **record.msg}, default=str) + "\n")
