"""Time shares of a step: every moment of the window is counted once, and what was not recognised is said."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.profile.errors import ProfileError
from outrider.profile.tables import UNKNOWN, classes, classify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.profile.trace import Span, Trace

GAPS = "launch"


@dataclass(frozen=True, slots=True)
class StepShares:
    """Where the time went.

    Attributes:
        step_s: seconds of one step; None if the trace has no step markers and none were counted by hand.
        steps: how many the window holds; None likewise.
        shares: class to share of the window; they add up to 1. `launch` is time in which nothing ran, `unknown` work
            that no name table recognises.
        unknown_names: the largest unrecognised names with their shares, for mending the tables.
        source: the trace.
    """

    step_s: float | None
    steps: int | None
    shares: dict[str, float]
    unknown_names: tuple[tuple[str, float], ...]
    source: str

    def as_dict(self, *, batch: int, context_tokens: int) -> dict[str, Any]:
        """JSON form; `outrider predict run --profile` reads it."""
        return {
            "step_ms": None if self.step_s is None else self.step_s * 1000,
            "steps": self.steps,
            "shares": self.shares,
            "unknown_names": [{"name": name, "share": share} for name, share in self.unknown_names],
            "batch": batch,
            "context_tokens": context_tokens,
            "source": self.source,
        }


def shares_of(trace: Trace, *, steps: int | None = None) -> StepShares:
    """Shares of a trace.

    On a GPU, kernels that overlap on several streams share their moment: it belongs to the one that began first. On
    a CPU an operator's own time counts, without the operators that it calls.

    Args:
        trace: what was recorded.
        steps: steps in it, where it has no markers.

    Raises:
        ProfileError: no step, or a window of no length.
    """
    if steps is not None and steps < 1:
        raise ProfileError(f"a trace cannot hold {steps} steps")
    begin = min(s.start for s in trace.spans)
    end = max(s.end for s in trace.spans)
    if trace.steps:
        # The pauses between steps count: a user waits through them. Those before the first one do not.
        begin, end = min(s.start for s in trace.steps), max(end, *(s.end for s in trace.steps))
    window = end - begin
    inside = [s for s in trace.spans if s.start >= begin]
    own = _exclusive(inside) if trace.device == "gpu" else _self_times(inside)
    if window <= 0 or not own:
        raise ProfileError("the trace shows no work inside its steps", evidence=trace.source)
    sums: dict[str, float] = dict.fromkeys((*classes(), UNKNOWN), 0.0)
    names: defaultdict[str, float] = defaultdict(float)
    for name, duration in own:
        group = classify(name)
        sums[group] += duration
        if group == UNKNOWN:
            names[name] += duration
    busy = sum(sums.values())
    window = max(window, busy)
    shares = {group: value / window for group, value in sums.items()} | {GAPS: (window - busy) / window}
    largest = sorted(names.items(), key=lambda item: -item[1])[:5]
    count = steps or trace.n_steps or None
    return StepShares(
        step_s=window / count / 1e6 if count else None,
        steps=count,
        shares=shares,
        unknown_names=tuple((name, value / window) for name, value in largest),
        source=trace.source,
    )


def _exclusive(spans: Sequence[Span]) -> list[tuple[str, float]]:
    found, cursor = [], float("-inf")
    for span in spans:
        start = max(span.start, cursor)
        if span.end > start:
            found.append((span.name, span.end - start))
            cursor = span.end
    return found


def _self_times(spans: Sequence[Span]) -> list[tuple[str, float]]:
    """Time of each operator less that of the operators inside it; spans of one thread nest."""
    own = [span.end - span.start for span in spans]
    open_spans: list[int] = []
    for index, span in enumerate(spans):
        while open_spans and spans[open_spans[-1]].end <= span.start:
            open_spans.pop()
        if open_spans:
            own[open_spans[-1]] -= min(span.end, spans[open_spans[-1]].end) - span.start
        open_spans.append(index)
    return [(span.name, max(0.0, value)) for span, value in zip(spans, own, strict=True)]
