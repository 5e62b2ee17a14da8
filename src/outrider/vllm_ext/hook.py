"""Between the engine's steps and the controller: which steps count, how long they took, and what a fault does.

Steps are timed from the end of one to the end of the next, because with asynchronous scheduling the next step is
scheduled, and on a GPU running, before the output of the one before is read. That is a step's own time only while
decode steps follow each other; a step with a prefill in it, the first one after it and anything after a pause do not
count. What a step really drafted is read from the engine's own output, never from what was asked for.

Where steps are so short that the controller would take more than its share of them, only one in a few is taken in
(`pace.py`), tests excepted: those last a few steps each.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from outrider.vllm_ext.controller import Controller
from outrider.vllm_ext.pace import Pace
from outrider.vllm_ext.settings import SettingsError
from outrider.vllm_ext.snapshot import snapshot

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Container, Iterable

    from outrider.vllm_ext.settings import Settings
    from outrider.vllm_ext.state_file import StateFile

_EXPORT_EVERY_S = 1.0


class Hook:
    """Feeds a controller from the engine's step outputs; never raises.

    Attributes:
        fault: why the static schedule is in force instead; None while the controller works.
        pace: which steps are taken in, and the CPU seconds spent here.
        other_steps: steps that did not count.
    """

    def __init__(
        self,
        lookup: list[int] | None,
        settings: Callable[[], Settings],
        state: StateFile,
        log: logging.Logger,
        *,
        engine_k: int,
        clock: Callable[[], float] = time.perf_counter,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        """Take over the engine's lookup; on any fault it is left, or put back, as the static schedule.

        Args:
            lookup: the engine's k by batch size; None where the engine runs without one.
            settings: reads the settings.
            state: where the figures are exported to.
            log: the engine's.
            engine_k: the engine's static k, the bound of every choice.
            clock: seconds.
            spent: CPU seconds of this thread, for the overhead.
        """
        self._log, self._state, self._clock, self._spent = log, state, clock, spent
        self._lookup, self._static = lookup, list(lookup or ())
        self.controller: Controller | None = None
        self.fault: str | None = None
        self.pace, self.other_steps = Pace(), 0
        self._ended_at, self._exported_at = 0.0, 0.0
        self._decoded, self._drafted = False, -1
        self._yielded: list[int] = []
        try:
            self._take_over(lookup, settings(), engine_k)
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
            self._fall_back(error)
        self._export(self._clock())

    def step(self, scheduled: Any, output: Any, live: Container[str]) -> None:
        """Take in one step, before the engine digests it.

        Args:
            scheduled: the engine's SchedulerOutput.
            output: its ModelRunnerOutput.
            live: ids of requests that are not finished.
        """
        if self.fault is not None:
            return
        pace = self.pace
        due = pace.begin()
        now, before = self._clock(), self._spent() if pace.weight else 0.0
        try:
            whole = self._step(now, scheduled, output, live, due=due)
            if pace.weight:
                pace.spent(self._spent() - before, whole=whole)
            if now - self._exported_at >= _EXPORT_EVERY_S:
                self._export(now)
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
            self._fall_back(error)
            with contextlib.suppress(Exception):  # the export may be what fails
                self._export(now)

    def close(self) -> None:
        """Take the exported figures away."""
        self._state.remove()

    def _take_over(self, lookup: list[int] | None, settings: Settings, engine_k: int) -> None:
        if lookup is None:
            raise SettingsError("the engine runs without a k by batch size (data parallel ranks, or no schedule)")
        if settings.largest_k != engine_k:
            raise SettingsError(f"ks end at {settings.largest_k}, the engine drafts up to {engine_k}")
        self._yielded = [0] * (settings.largest_k + 2)
        self._static[1:] = [settings.prior_k(batch) for batch in range(1, len(lookup))]
        self.controller = Controller(settings, lookup)

    def _step(self, now: float, scheduled: Any, output: Any, live: Container[str], *, due: bool) -> bool:
        """Follow a step, and take it in if it is due or a test goes on; whether it was taken in."""
        batch = len(scheduled.num_scheduled_tokens)
        drafted = scheduled.num_spec_tokens_to_schedule
        verified = self._drafted
        decodes = (
            batch > 0
            and verified >= 0
            and not scheduled.scheduled_new_reqs
            and scheduled.total_num_scheduled_tokens <= batch * (1 + verified)
        )
        seconds = now - self._ended_at if self._decoded and decodes else None
        self._ended_at, self._decoded = now, decodes
        # 0.33's V2 runner leaves drafts out where no request can use them; the step after verifies none.
        self._drafted = -1 if getattr(scheduled, "skip_drafts", False) else drafted
        if not decodes or self.controller is None:
            self.other_steps += 1
            return False
        if seconds is not None:
            self.pace.stepped(seconds)
        if not due and self.controller.band_of(batch).test is None:
            self.pace.followed += 1
            return False
        yielded = self._yielded
        for m in range(len(yielded)):
            yielded[m] = 0
        most = len(yielded) - 1
        for m in _lengths(output, live):
            yielded[m if m < most else most] += 1  # noqa: FURB136 - calling min for each request doubles the cost
        switch = self.controller.observe(batch, verified, drafted, yielded, seconds)
        if switch is not None:
            self._log.info("utility: batch %s: k %d -> %d: %s", switch.band, switch.before, switch.after, switch.why)
            self._export(now)
        return True

    def _fall_back(self, error: Exception) -> None:
        self.fault = f"{type(error).__name__}: {error}"
        if self._lookup is not None:
            self._lookup[:] = self._static
        self._log.error("utility: off, the static schedule is in force: %s", self.fault)

    def _export(self, now: float) -> None:
        before = self._spent()
        self._exported_at = now
        self.pace.choose()
        self._state.write(snapshot(self.controller, self.pace, fault=self.fault, other_steps=self.other_steps))
        self.pace.total_s += self._spent() - before


def _lengths(output: Any, live: Container[str]) -> Iterable[int]:
    """Tokens that each request got which is not finished. Large batches spend most of the hook's time here."""
    sampled, index_of = output.sampled_token_ids, output.req_id_to_index
    if len(sampled) == len(index_of) and all(map(live.__contains__, index_of)):
        return map(len, sampled)
    return [len(sampled[index]) for request, index in index_of.items() if request in live]
