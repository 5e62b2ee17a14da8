"""Reads a Chrome trace as torch's profiler writes it (plain or gzip)."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from outrider.profile.errors import ProfileError
from outrider.profile.tables import step_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Categories of work on a GPU (torch 2.x, kineto).
_ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})


@dataclass(frozen=True, slots=True)
class Span:
    """One kernel or operator; times in microseconds."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Trace:
    """The work of one process.

    Attributes:
        device: `gpu` if kernels were recorded, else `cpu`.
        spans: kernels, or operators of the busiest thread, by start.
        steps: markers of the engine's steps, on a GPU as the profiler lays them over its kernels.
        source: the file's name.
        n_steps: how many steps these are; the profiler may lay several spans over one step.
    """

    device: Literal["gpu", "cpu"]
    spans: tuple[Span, ...]
    steps: tuple[Span, ...]
    source: str
    n_steps: int = 0


def read_trace(file: Path) -> Trace:
    """Read a trace file.

    Raises:
        ProfileError: not a trace, or one without any timed work.
    """
    try:
        raw = file.read_bytes()
        data = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        events = data["traceEvents"] if isinstance(data, dict) else data
        timed = [e for e in events if e.get("ph") == "X" and float(e.get("dur", 0)) > 0]
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProfileError(
            f"{file} is no profiler trace",
            evidence=f"{type(error).__name__}: {error}",
            next_step="give the .pt.trace.json(.gz) that the engine wrote between /start_profile and /stop_profile",
        ) from error
    kernels = [_span(e) for e in timed if e.get("cat") in _ON_GPU]
    spans = kernels or _busiest_thread(timed)
    if not spans:
        raise ProfileError(
            f"{file} holds no kernel and no operator",
            evidence=f"{len(events)} events",
            next_step="profile while requests are decoded",
        )
    ordered = tuple(sorted(spans, key=lambda s: (s.start, -s.end)))
    steps, count = _steps(timed, on_gpu=bool(kernels))
    return Trace("gpu" if kernels else "cpu", ordered, steps, file.name, count)


def _busiest_thread(events: Iterable[dict[str, Any]]) -> list[Span]:
    threads: dict[object, list[Span]] = {}
    for event in events:
        if event.get("cat") == "cpu_op":
            threads.setdefault((event.get("pid"), event.get("tid")), []).append(_span(event))
    return max(threads.values(), key=lambda own: sum(s.end - s.start for s in own), default=[])


def _steps(events: Iterable[dict[str, Any]], *, on_gpu: bool) -> tuple[tuple[Span, ...], int]:
    """Markers of the first kind that occurs, and of how many steps they are.

    On a GPU the profiler's copies of a marker bound the kernels. It makes one wherever work of a step begins anew (of
    one step of two tensor-parallel ranks, replayed as a graph: eight), so steps are counted where they were marked.
    """
    marks = [e for e in events if str(e.get("cat", "")).endswith("user_annotation")]
    copies = [e for e in marks if e["cat"] == "gpu_user_annotation"] if on_gpu else []
    for pattern in step_patterns():
        found, marked = ([e for e in kind if re.search(pattern, str(e["name"]))] for kind in (copies or marks, marks))
        if found:
            own = [e for e in marked if e["cat"] == "user_annotation"]
            return tuple(sorted(map(_span, found), key=lambda s: s.start)), len(own) or len(found)
    return (), 0


def _span(event: dict[str, Any]) -> Span:
    start = float(event["ts"])
    return Span(str(event.get("name", "")), start, start + float(event["dur"]))
