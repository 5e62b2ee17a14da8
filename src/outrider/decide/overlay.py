"""The stack with the emitted schedule as variants of its own; `serve` and `preflight` take the file as it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import yaml

from outrider.decide.errors import DecideError
from outrider.stack import stack_from_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from outrider.decide.schedule import Bands
    from outrider.stack import Stack
    from outrider.stack.schema import Speculation


class _Plain(yaml.SafeDumper):
    """Writes every value out: anchors would hide what a variant is."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def overlay_text(
    stack: Stack,
    name: str,
    schedules: Mapping[str, tuple[str, Bands, str]],
    evidence: Sequence[str],
    *,
    workload: str = "",
) -> str:
    """The stack as YAML with one more variant a schedule, and its probe as the campaign.

    Args:
        stack: what is laid over.
        name: of the new stack, which is also its file's stem.
        schedules: new variant to (variant whose drafter it uses, bands, description).
        evidence: lines that say what the schedules rest on; written as comments.
        workload: whose acceptance they follow, which the probe therefore asks for; empty for the stack's.

    Raises:
        DecideError: a variant of that name exists, or the one to build on does not speculate.
        StackError: the result is no valid stack.
    """
    data: dict[str, Any] = stack.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)
    data = {"schema": 1} | data | {"name": name}
    probes: list[str] = ["baseline"]
    for variant, (source, bands, description) in schedules.items():
        if variant in stack.variants and stack.variants[variant].speculation is None:
            raise DecideError(f"variant {variant} exists and does not speculate", next_step="rename it")
        spec = stack.variant(source).speculation
        if spec is None:
            raise DecideError(f"variant {source} does not speculate: it has no k to schedule")
        largest = max(band[2] for band in bands)
        if largest == 0:
            raise DecideError(
                f"the schedule for {source} is off at every batch size",
                next_step="serve baseline: a drafter that is never asked costs memory only",
            )
        base = data["variants"][source]
        own = {k: v for k, v in base.items() if k not in {"speculation", "description"}}
        speculation = base["speculation"] | {"k": largest, "schedule": [list(band) for band in bands]}
        data["variants"][variant] = {"description": description} | own | {"speculation": speculation}
        probes += [*_static_like(stack, spec), variant]
    data["campaign"] = (
        data.get("campaign", {})
        | {
            "variants": list(dict.fromkeys(probes)),
            "concurrency": probe_loads([bands for _, bands, _ in schedules.values()], stack),
        }
        | ({"workloads": [workload]} if workload else {})
    )
    comments = "".join(f"# {line}\n" for line in evidence)
    text = comments + yaml.dump(data, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=110)
    stack_from_text(text, f"{name}.yaml")
    return text


def _static_like(stack: Stack, spec: Speculation) -> list[str]:
    """Variants that propose as the schedule does with a k that stays: the best of them is what it is held against."""
    return [
        name
        for name, other in stack.variants.items()
        if (own := other.speculation)
        and (own.method, own.drafter) == (spec.method, spec.drafter)
        and not own.schedule
        and not own.auto
    ]


def probe_loads(schedules: Sequence[Bands], stack: Stack) -> list[int]:
    """Loads that test a schedule: the middle of each band and both sides of each edge."""
    most = stack.memory.max_num_seqs or max(stack.campaign.concurrency)
    loads = set()
    for bands in schedules:
        for first, last, _ in bands:
            loads |= {first, min(last, most), round((first * min(last, most)) ** 0.5)}
    return sorted(load for load in loads if 1 <= load <= most)


def write_overlay(file: Path, text: str) -> Path:
    """Write the file, atomically.

    Raises:
        DecideError: the file's stem is not the stack's name, so that it would not load.
    """
    name = yaml.safe_load(text)["name"]
    if file.stem != name or file.suffix != ".yaml":
        raise DecideError(f"a stack's file bears its name: {file.name} would hold {name!r}", next_step=f"{name}.yaml")
    scratch = file.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(file)
    return file
