"""From an axis to a stack whose variants are its alternatives, and from the measurement to what is kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import yaml

from outrider.errors import OutriderError
from outrider.stack import Stack
from outrider.stack.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.campaign.compare import Point


class TuneError(OutriderError):
    """An axis that does not exist or has nothing to try on this stack."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What tuning came to.

    Attributes:
        name: alternative to keep; None keeps the stack as it is.
        why: one sentence with the figures.
        wins, loses: places (workload and concurrency) where it is faster or slower beyond doubt.
        evidence: its speedup at every place, with the interval.
    """

    name: str | None
    why: str
    wins: int = 0
    loses: int = 0
    evidence: tuple[str, ...] = ()


@cache
def _axes() -> dict[str, dict[str, dict[str, Any]]]:
    text = resources.files("outrider.tune").joinpath("axes.yaml").read_text(encoding="utf-8")
    table: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(text)
    return table


def alternatives(stack: Stack, axis: str) -> dict[str, dict[str, Any]]:
    """Alternatives of an axis that differ from what the stack has, by name.

    Raises:
        TuneError: no such axis, or nothing to try.
    """
    if axis not in _axes():
        known = ", ".join(_axes())
        raise TuneError(f"there is no axis {axis!r}{did_you_mean(axis, _axes())}", next_step=f"one of: {known}")
    env = {**stack.node.env, **stack.env}
    found = {}
    for name, change in _axes()[axis].items():
        flags, changed = change.get("flags", {}), change.get("env", {})
        same_flags = all(stack.engine.flags.get(flag, False) == value for flag, value in flags.items())
        same_env = all(env.get(key) == value for key, value in changed.items())
        if stack.engine.build in change["for"] and not (same_flags and same_env):
            found[name] = change
    if not found:
        raise TuneError(
            f"axis {axis} has no alternative for {stack.name}",
            evidence=f"engine build {stack.engine.build}; all that apply are in force already",
            next_step="choose another axis, or add one to tune/axes.yaml",
        )
    return found


def tuning_stack(stack: Stack, axis: str) -> Stack:
    """The stack with one variant an alternative, all decoding plainly; `baseline` is the stack as it is.

    Raises:
        TuneError: as `alternatives`.
    """
    base = stack.variants["baseline"].model_dump(mode="json", exclude_defaults=True)
    variants: dict[str, Any] = {"baseline": base | {"description": "as the stack has it"}}
    for name, change in alternatives(stack, axis).items():
        variants[name] = {
            "description": change["why"],
            "flags": base.get("flags", {}) | change.get("flags", {}),
            "env": base.get("env", {}) | change.get("env", {}),
        }
    data = stack.model_dump(mode="json", by_alias=True)
    campaign = data["campaign"] | {"variants": list(variants)}
    return Stack.model_validate(data | {"variants": variants, "campaign": campaign})


def judge(points: Sequence[Point]) -> Kept:
    """Keep the alternative that wins somewhere beyond doubt and loses nowhere, with the highest mean speedup."""
    names = dict.fromkeys(p.variant for p in points if p.variant != "baseline" and p.usable)
    best: tuple[float, Kept] | None = None
    for name in names:
        gains = [p.speedup for p in points if p.variant == name and p.speedup and p.usable]
        wins, loses = sum(g.low > 1 for g in gains), sum(g.high < 1 for g in gains)
        if not wins or loses:
            continue
        mean = sum(g.mid for g in gains) / len(gains)
        why = f"{name}: {mean:.2f}x on average, faster beyond doubt at {wins} of {len(gains)} places, slower at none"
        if best is None or mean > best[0]:
            own = [p for p in points if p.variant == name and p.speedup and p.usable]
            best = mean, Kept(name, why, wins, loses, tuple(_told(p) for p in own))
    if best is not None:
        return best[1]
    return Kept(None, "no alternative is faster beyond doubt without being slower elsewhere: the stack stays as it is")


def _told(point: Point) -> str:
    gain = point.speedup
    users = f"{point.concurrency} user{'s' if point.concurrency > 1 else ''}"
    return f"{point.workload}, {users}: {gain.mid:.2f}x ({gain.low:.2f}-{gain.high:.2f})" if gain else ""


def tuned_stack(stack: Stack, axis: str, kept: Kept, name: str) -> str:
    """The stack with the kept alternative in its own flags and environment, as YAML with its evidence.

    Raises:
        TuneError: nothing was kept.
    """
    if kept.name is None:
        raise TuneError("there is nothing to write", evidence=kept.why)
    change = alternatives(stack, axis)[kept.name]
    data = stack.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    data["engine"] = data["engine"] | {"flags": {**stack.engine.flags, **change.get("flags", {})}}
    data["env"] = {**stack.env, **change.get("env", {})}
    # node.env is laid under env, so a changed variable wins there.
    data = {"schema": 1} | data | {"name": name}
    head = f"# {kept.why} (axis {axis}, stack digest {stack.digest()})\n"
    evidence = head + "".join(f"# {line}\n" for line in kept.evidence)
    text = evidence + yaml.safe_dump(data, sort_keys=False, width=110)
    Stack.model_validate(yaml.safe_load(text))
    return text
