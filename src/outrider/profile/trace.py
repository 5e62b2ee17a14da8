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
        steps: markers of the engine's steps.
        source: the file's name.
    """

    device: Literal["gpu", "cpu"]
    spans: tuple[Span, ...]
    steps: tuple[Span, ...]
    source: str


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
    return Trace("gpu" if kernels else "cpu", ordered, _steps(timed, on_gpu=bool(kernels)), file.name)


def _busiest_thread(events: Iterable[dict[str, Any]]) -> list[Span]:
    threads: dict[object, list[Span]] = {}
    for event in events:
        if event.get("cat") == "cpu_op":
            threads.setdefault((event.get("pid"), event.get("tid")), []).append(_span(event))
    return max(threads.values(), key=lambda own: sum(s.end - s.start for s in own), default=[])


def _steps(events: Iterable[dict[str, Any]], *, on_gpu: bool) -> tuple[Span, ...]:
    """Markers of the first kind that occurs; on a GPU its own copy of a marker, which bounds the kernels."""
    marks = [e for e in events if str(e.get("cat", "")).endswith("user_annotation")]
    if on_gpu and any(e["cat"] == "gpu_user_annotation" for e in marks):
        marks = [e for e in marks if e["cat"] == "gpu_user_annotation"]
    for pattern in step_patterns():
        found = [_span(e) for e in marks if re.search(pattern, str(e["name"]))]
        if found:
            return tuple(sorted(found, key=lambda s: s.start))
    return ()


def _span(event: dict[str, Any]) -> Span:
    start = float(event["ts"])
    return Span(str(event.get("name", "")), start, start + float(event["dur"]))
