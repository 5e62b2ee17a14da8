"""The engine's scheduler with a controller over its k by batch size: `--scheduler-cls` names `UtilityScheduler`.

Lossless: it changes how many tokens are drafted, never which are accepted. What it relies on in the engine is guarded
in patches/ledger.yaml, entry utility-scheduler.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from outrider.vllm_ext.hook import Hook
from outrider.vllm_ext.settings import read_settings
from outrider.vllm_ext.state_file import StateFile, state_path

# Below the engine's own logger, so that its handlers and levels hold.
_LOG = logging.getLogger("vllm.outrider_utility")


class _Utility:
    """Laid over either of the engine's schedulers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.utility = Hook(
            self.dynamic_sd_lookup,  # type: ignore[attr-defined]
            lambda: read_settings(os.environ),
            StateFile(state_path(), _LOG),
            _LOG,
            engine_k=self.num_spec_tokens,  # type: ignore[attr-defined]
        )

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """The engine's own, after the controller has seen the step."""
        self.utility.step(scheduler_output, model_runner_output, self.requests)  # type: ignore[attr-defined]
        return super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]

    def shutdown(self) -> None:
        """The engine's own; exported figures go first."""
        self.utility.close()
        super().shutdown()  # type: ignore[misc]


class SyncUtilityScheduler(_Utility, Scheduler):  # type: ignore[misc]
    """For engines that schedule a step after the one before has ended."""


class AsyncUtilityScheduler(_Utility, AsyncScheduler):  # type: ignore[misc]
    """For engines that schedule ahead."""


class UtilityScheduler:
    """Makes whichever of the two the engine's configuration needs; it is asked for by one name."""

    def __new__(cls, vllm_config: Any, **kwargs: Any) -> Any:  # noqa: D102
        ahead = vllm_config.scheduler_config.async_scheduling
        chosen = AsyncUtilityScheduler if ahead else SyncUtilityScheduler
        return chosen(vllm_config=vllm_config, **kwargs)
