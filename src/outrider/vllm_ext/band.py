"""One band of batch sizes: which k is in force, what steps cost at each k, and when the next test is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.vllm_ext.step_time import Recent, typical

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.vllm_ext.settings import Settings

# Weight of a new comparison against what was known of a k's cost.
_FRESH = 0.5


def band_edges(prior: Sequence[tuple[int, int, int]], largest_batch: int) -> list[tuple[int, int]]:
    """Bands of half an octave, cut where the prior changes k: `[(first batch, last batch)]` without gaps from 1."""
    starts = {1} | {first for first, _, _ in prior if first <= largest_batch}
    edge = 1
    while edge <= largest_batch:
        starts |= {edge + 1, edge + edge // 2 + 1}
        edge *= 2
    ordered = sorted(start for start in starts if start <= largest_batch)
    return list(zip(ordered, [start - 1 for start in ordered[1:]] + [largest_batch], strict=True))


class Test:
    """A k that is tried out, between steps at the k in force before and after it."""

    __slots__ = ("after", "before", "during", "k", "requests", "settling")
    __test__ = False  # no test of ours, for pytest

    def __init__(self, k: int, before: list[float]) -> None:
        """Begin trying `k`; `before` are the last step times at the k in force, in seconds."""
        self.k = k
        self.before = before
        self.during: list[float] = []
        self.after: list[float] = []
        self.requests = 0
        self.settling = False

    def ratio(self) -> float:
        """Step time at the tried k over that at the k in force."""
        return typical(self.during) / typical([*self.before, *self.after])


class Band:
    """Estimates and counters of a band; the policy is the controller's.

    Attributes:
        first, last: its batch sizes.
        k: in force.
        test: what is being tried out; None while the k in force is only used.
        steps: clean steps seen.
        seen_at: the controller's count of clean steps when this band was last in use.
        since_switch: clean steps since k changed.
        dwell: clean steps that k stays at least; grows when it changes often.
        times: last step times by k.
        cost: step-cost ratio of a k against k = 0, where measured.
        due: value of `steps` at which a k is tried next.
        interval: steps until the try after that.
        switches, tests: how often.
    """

    __slots__ = (
        "cost", "due", "dwell", "first", "interval", "k", "last", "seen_at", "since_switch", "steps", "switches",
        "test", "tests", "times",
    )  # fmt: skip

    def __init__(self, first: int, last: int, settings: Settings) -> None:
        """A band that has seen nothing."""
        self.first, self.last = first, last
        self.k = settings.prior_k(first)
        self.test: Test | None = None
        self.steps = self.seen_at = self.since_switch = self.switches = self.tests = 0
        self.dwell = settings.dwell
        self.times = {k: Recent(settings.test_steps) for k in settings.ks}
        self.cost: dict[int, float] = {0: 1.0}
        # k = 0 is what everything is measured against, so it comes first, as soon as there is something to compare.
        self.due = {k: settings.test_steps if k == 0 else 2 * settings.test_steps for k in settings.ks}
        self.interval = dict.fromkeys(settings.ks, settings.first_set)

    @property
    def label(self) -> str:
        """Its batch sizes as a metric label: `8` or `7-8`."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @property
    def lookup_k(self) -> int:
        """The k that the engine shall draft now: the tried one during a test, else the one in force."""
        return self.test.k if self.test is not None and not self.test.settling else self.k

    def measured(self, k: int) -> bool:
        """Whether the cost of k is known from a comparison here (of k = 0: whether that of any other is)."""
        return k in self.cost if k else len(self.cost) > 1

    def can_test(self, settings: Settings) -> bool:
        """Whether enough steps at the k in force are at hand to compare with."""
        return len(self.times[self.k]) >= settings.test_steps

    def expected_cost(self, k: int) -> float | None:
        """Step-cost ratio of k; between two measured ones it is taken to be linear, beyond them unknown."""
        if k in self.cost:
            return self.cost[k]
        below = max(other for other in self.cost if other < k)
        above = min((other for other in self.cost if other > k), default=None)
        if above is None:
            return None
        share = (k - below) / (above - below)
        return self.cost[below] + share * (self.cost[above] - self.cost[below])

    def close_test(self, test: Test) -> None:
        """Take the comparison in as costs against k = 0."""
        ratio = test.ratio()
        if test.k == 0:
            self._learn(self.k, 1.0 / ratio)
        elif self.k == 0:
            self._learn(test.k, ratio)
        else:
            self._learn(test.k, ratio * self.cost.get(self.k, 1.0))

    def _learn(self, k: int, cost: float) -> None:
        known = self.cost.get(k)
        self.cost[k] = cost if known is None else known + _FRESH * (cost - known)
