"""Does an emitted schedule do what was expected? Judged on a campaign that served it beside the static variants."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from outrider.campaign.stats import Interval
from outrider.decide.errors import DecideError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from outrider.campaign.compare import Point
    from outrider.decide.schedule import Bands
    from outrider.stack import Stack

ProbeVerdict = Literal["verified", "refused", "undecided"]
# A schedule may be this much behind the best static variant before it is not recommended.
TOLERANCE = 0.03
# Lines of an overlay's head that a probe replaces.
_MARKS = ("# Recommended:", "# Probe")


@dataclass(frozen=True, slots=True)
class ProbeLoad:
    """One load of a probe.

    Attributes:
        workload, batch: where.
        k: in force there.
        against: the static variant that was fastest there.
        ratio: speed of the schedule over it on the same prompts.
    """

    workload: str
    batch: int
    k: int
    against: str
    ratio: Interval

    @property
    def verdict(self) -> Literal["holds", "behind", "unclear"]:
        """Within the tolerance; beyond doubt outside it; or outside it with an interval that reaches it."""
        if self.ratio.mid >= 1 - TOLERANCE:
            return "holds"
        return "behind" if self.ratio.high < 1 - TOLERANCE else "unclear"

    @property
    def told(self) -> str:
        """`edit, 4 users, k=0: 0.99x of baseline (0.95-1.03)`."""
        users = f"{self.batch} user{'s' if self.batch > 1 else ''}"
        figures = f"{self.ratio.mid:.2f}x of {self.against} ({self.ratio.low:.2f}-{self.ratio.high:.2f})"
        return f"{self.workload}, {users}, k={self.k}: {figures}"


@dataclass(frozen=True, slots=True)
class Probe:
    """What a probe came to for one schedule.

    Attributes:
        variant, method, bands: the schedule, and what proposes its tokens.
        run: that measured it.
        loads: where the schedule and a static variant were measured.
    """

    variant: str
    method: str
    bands: Bands
    run: str
    loads: tuple[ProbeLoad, ...]

    @property
    def engine_form(self) -> str:
        """The schedule as the engine takes it."""
        return f"num_speculative_tokens_per_batch_size {json.dumps([list(band) for band in self.bands])}"

    @property
    def verdict(self) -> ProbeVerdict:
        """`verified` only if it holds at every load."""
        if not self.loads or all(load.verdict == "unclear" for load in self.loads):
            return "undecided"
        if any(load.verdict == "behind" for load in self.loads):
            return "refused"
        return "verified" if all(load.verdict == "holds" for load in self.loads) else "undecided"

    @property
    def why(self) -> str:
        """One sentence with the figures that decided."""
        if not self.loads:
            return "no load was measured with both the schedule and a static variant"
        worst = min(self.loads, key=lambda load: load.ratio.mid)
        off = [load for load in self.loads if load.verdict != "holds"]
        if not off:
            return (
                f"within {TOLERANCE:.0%} of the best static variant at all {len(self.loads)} loads; worst {worst.told}"
            )
        sure = "beyond doubt " if self.verdict == "refused" else ""
        return (
            f"{sure}more than {TOLERANCE:.0%} behind the best static variant; "
            f"{len(off)} of {len(self.loads)} loads do not hold, worst {worst.told}"
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "variant": self.variant,
            "method": self.method,
            "num_speculative_tokens_per_batch_size": [list(band) for band in self.bands],
            "run": self.run,
            "verdict": self.verdict,
            "why": self.why,
            "loads": [
                {"workload": x.workload, "concurrency": x.batch, "k": x.k, "against": x.against,
                 "ratio": x.ratio.as_dict(), "verdict": x.verdict}
                for x in self.loads
            ],
        }  # fmt: skip


def judge_probe(
    stack: Stack, points: Sequence[Point], ratio: Callable[[Point, Point], Interval | None], run: str
) -> list[Probe]:
    """Every schedule of a stack against the fastest static variant at each load where both were measured.

    Args:
        stack: that was served.
        points: of its campaign.
        ratio: speed of the second point over the first on common prompts; None without any.
        run: the campaign's name.
    """
    specs = {name: variant.speculation for name, variant in stack.variants.items()}
    usable = [p for p in points if p.usable and p.tpot_s]
    found = []
    for name, spec in specs.items():
        if spec is None or not spec.schedule or spec.auto:
            continue
        loads = []
        for own in (p for p in usable if p.variant == name):
            here = [p for p in usable if (p.workload, p.concurrency) == (own.workload, own.concurrency)]
            static = [p for p in here if (other := specs[p.variant]) is None or not (other.schedule or other.auto)]
            best = min(static, key=lambda p: p.tpot_s.mid if p.tpot_s else 0.0, default=None)
            gain = ratio(best, own) if best else None
            if best and gain:
                k = next((b[2] for b in spec.schedule if b[0] <= own.concurrency <= b[1]), own.k)
                loads.append(ProbeLoad(own.workload, own.concurrency, k, best.variant, gain))
        found.append(Probe(name, spec.method, tuple(spec.schedule), run, tuple(loads)))
    return found


def marked(text: str, probes: Sequence[Probe]) -> str:
    """An overlay's text whose head says what its probe came to; what is served does not change, nor its digest."""
    lines = text.splitlines(keepends=True)
    head = [line for line in lines if line.startswith("#") and not line.startswith(_MARKS)]
    marks = []
    for probe in probes:
        marks.append(f"# Probe of {probe.variant} (run {probe.run}): {probe.verdict}: {probe.why}.\n")
        marks += [f"# Probe, {probe.variant}: {load.told}; {load.verdict}.\n" for load in probe.loads]
    return "".join([*head, *marks, *(line for line in lines if not line.startswith("#"))])


def read_probe(file: Path) -> list[Probe]:
    """Read `probe.json` of a probe's run.

    Raises:
        DecideError: it is not there, or not such a file.
    """
    try:
        return [_probe(row) for row in json.loads(file.read_text(encoding="utf-8"))["probes"]]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise DecideError(
            f"{file} is no result of a probe",
            evidence=f"{type(error).__name__}: {error}",
            next_step="`outrider probe OVERLAY.yaml` writes probe.json into its run",
        ) from error


def recommended(method: str, bands: Bands, probes: Sequence[Probe]) -> tuple[bool, str]:
    """Whether a schedule is recommended, and why in one sentence; never before this very schedule was probed."""
    own = [probe for probe in probes if (probe.method, probe.bands) == (method, bands)]
    if not own and probes:
        return False, "another schedule was probed, not this one: run `outrider probe` on the emitted file"
    if not own:
        return False, "not served yet: run `outrider probe` on the emitted file before it carries traffic"
    return own[0].verdict == "verified", f"{own[0].verdict} by run {own[0].run}: {own[0].why}"


def _probe(row: dict[str, Any]) -> Probe:
    loads = [
        ProbeLoad(
            x["workload"], x["concurrency"], x["k"], x["against"],
            Interval(x["ratio"]["low"], x["ratio"]["mid"], x["ratio"]["high"] or float("inf"), x["ratio"]["n"]),
        )
        for x in row["loads"]
    ]  # fmt: skip
    bands = tuple((a, b, c) for a, b, c in row["num_speculative_tokens_per_batch_size"])
    return Probe(row["variant"], row["method"], bands, row["run"], tuple(loads))
