"""Chooses k while the engine runs: by measured tokens per step over measured step cost, against k = 0.

After Cascade (arXiv 2506.20675): utility = tokens per step / step-cost ratio; short tests, longer set phases, k = 0
where utility stays below 1, back-off while speculation does not pay. docs/decisions/0002-utility-scheduler.md says
where it differs and why. Pure: no clock, no engine; times come in, the engine's lookup list is what goes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.vllm_ext.acceptance import Acceptance
from outrider.vllm_ext.band import Band, Test, band_edges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.vllm_ext.settings import Settings

# Between two looks at whether another k has become better.
_LOOK = 8
# A k that promises less than this share of the best one's speed is not tried out again soon.
_HOPELESS = 0.9
# A test that promises less than this after so many steps ends there: the rest of it could only cost. Three steps are
# enough for a median without an outlier, and what they show is compared once more when the steps after them are in.
_FAR = 0.75
_EARLY = 3
# Independent observations below which what is known of a longer draft is hearsay from other traffic.
_FAINT = 8.0
_LONGEST_DWELL = 512
# How many times the longest interval a draft length that is dear to try may wait.
_PATIENCE = 8
# Steps elsewhere after which a test is given up: what was measured before it no longer compares.
_STALE = 256


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of the k in force.

    Attributes:
        band: label of the band.
        before, after: k.
        why: for the log.
    """

    band: str
    before: int
    after: int
    why: str


class Controller:
    """Owns the engine's batch-size lookup.

    Args:
        settings: prior, choices and pace.
        lookup: the engine's list, k by batch size from index 1; changed in place.
    """

    def __init__(self, settings: Settings, lookup: list[int]) -> None:
        """Put the prior into the lookup."""
        self.settings = settings
        self.lookup = lookup
        self.acceptance = Acceptance(settings.largest_k, settings.half_life)
        self.bands = [Band(first, last, settings) for first, last in band_edges(settings.prior, len(lookup) - 1)]
        self._by_batch: list[Band] = [self.bands[0]]
        for band in self.bands:
            self._by_batch += [band] * (band.last - band.first + 1)
            self._follow(band)
        self.clean_steps = 0

    def band_of(self, batch: int) -> Band:
        """The band of a batch size."""
        return self._by_batch[batch]

    def utility(self, band: Band, k: int) -> float | None:
        """Tokens per step over step-cost ratio: speed against k = 0; None while either is unknown."""
        tokens, cost = self.acceptance.tokens(k), band.expected_cost(k)
        return None if tokens is None or cost is None else tokens / cost

    def observe(
        self, batch: int, verified_k: int, drafted_k: int, yielded: Sequence[int], seconds: float | None
    ) -> Switch | None:
        """Take in one decode step.

        Args:
            batch: requests in the step.
            verified_k: k of the drafts that it verified.
            drafted_k: k that it drafted for the next step.
            yielded: at index m, how many requests got m tokens; length largest k + 2.
            seconds: from the end of the step before to its own; None where that is not one step's time.
        """
        self.acceptance.observe(batch, verified_k, yielded)
        band = self._by_batch[batch]
        # Only a step that verified and drafted the same k costs what a step at that k costs.
        if seconds is None or verified_k != drafted_k or drafted_k != band.lookup_k:
            return None
        self.clean_steps += 1
        band.steps += 1
        band.since_switch += 1
        away, band.seen_at = self.clean_steps - band.seen_at, self.clean_steps
        if away > _STALE:
            self._come_back(band)
            return None
        band.times[drafted_k].add(seconds)
        if self.settings.hold:
            return None
        if band.test is not None:
            return self._go_on(band, band.test, batch, seconds)
        return self._set_phase(band)

    def _go_on(self, band: Band, test: Test, batch: int, seconds: float) -> Switch | None:
        settings = self.settings
        if not test.settling:
            test.during.append(seconds)
            test.requests += batch
            # A longer draft than the one in force shows acceptance that is not seen otherwise: it has to see enough.
            enough = test.requests >= settings.probe_requests or test.k < band.k
            whole = len(test.during) >= settings.test_steps and (enough or self._is_below(band, test, _HOPELESS))
            if whole or (len(test.during) >= _EARLY and self._is_below(band, test, _FAR)):
                test.settling = True
                self._follow(band)
            return None
        test.after.append(seconds)
        if len(test.after) < settings.settle_steps:
            return None
        band.close_test(test)
        band.test = None
        return self._decide(band, test)

    def _is_below(self, band: Band, test: Test, share: float) -> bool:
        """Whether the tried k, with all the tokens that it may yield, stays below a share of the speed here."""
        tokens, here = self.acceptance.tokens(test.k), self.acceptance.tokens(band.k)
        if tokens is None or here is None:
            return False
        return tokens * (1 + 2 * self.acceptance.doubt(test.k)) < share * here * test.ratio()

    def _set_phase(self, band: Band) -> Switch | None:
        if band.steps % _LOOK == 0 and band.since_switch >= band.dwell and (switch := self._decide(band)):
            return switch
        if band.test is None and (k := self._next_test(band)) is not None:
            self._try(band, k)
        return None

    def _next_test(self, band: Band) -> int | None:
        """The k to try now, if one is due and enough steps of the one in force are at hand."""
        settings = self.settings
        if not band.can_test(settings):
            return None
        if band.k == 0:
            pilot = self._pilot(band)
            return pilot if band.steps >= band.due[pilot] else self._overlooked(band)
        if not band.measured(0) or band.steps >= band.due[0]:
            return 0
        due = [k for k in settings.ks[1:] if band.steps >= band.due[k] and k != band.k]
        for k in sorted(due, key=lambda k: (band.measured(k), band.due[k])):
            # A guess between two measured costs may propose a k, but never rules one out.
            known = band.measured(k) and self.acceptance.evidence(k) >= _FAINT
            promise = self.utility(band, k)
            if not known or promise is None or promise > _HOPELESS * self._best(band)[1]:
                return k
            self._postpone(band, k, self.settings.longest_set)
        return None

    def _pilot(self, band: Band) -> int:
        """What to try from k = 0: the longest draft, which shows all acceptance, unless it was far from paying.

        Then the shortest one, which costs least and shows whether anything has changed.
        """
        settings = self.settings
        promise = self.utility(band, settings.largest_k)
        return settings.largest_k if promise is None or promise > _HOPELESS else settings.ks[1]

    def _overlooked(self, band: Band) -> int | None:
        """A k that would pay if it cost no more than the next shorter one measured; tried once.

        The longest draft and the shortest may both lose where one between them wins.
        """
        for k in self.settings.ks[1:]:
            shorter, tokens = max((other for other in band.cost if other < k), default=0), self.acceptance.tokens(k)
            if band.measured(k) or band.steps < band.due[k] or not shorter or tokens is None:
                continue
            if tokens / band.cost[shorter] > 1 + self.settings.margin:
                return k
        return None

    def _best(self, band: Band) -> tuple[int, float]:
        """The k with the highest utility, and it; the smaller of equals."""
        known = [(utility, -k) for k in self.settings.ks if (utility := self.utility(band, k)) is not None]
        utility, negative = max(known)
        return -negative, utility

    def _decide(self, band: Band, tried: Test | None = None) -> Switch | None:
        """Change k if another one is better beyond doubt and measured; else try it, or leave things as they are."""
        here = self.utility(band, band.k)
        best, utility = self._best(band)
        if here is None or not band.measured(band.k):
            return None
        doubt = 0.5 * self.acceptance.doubt(band.k or best)
        better = best != band.k and utility > here * (1 + self.settings.margin)
        if better and band.measured(best) and utility > here * (1 + self.settings.margin + doubt):
            return self._switch(band, best, here, utility)
        if tried is not None:
            self._postpone(band, tried.k, self._affordable(band, tried))
        # A promise that rests on too little is tried out, once each time something was learnt.
        if better and band.can_test(self.settings) and (not band.measured(best) or (tried and best != tried.k)):
            self._try(band, best)
        return None

    def _switch(self, band: Band, k: int, here: float, utility: float) -> Switch:
        tokens, cost = self.acceptance.tokens(k) or 1.0, band.expected_cost(k) or 1.0
        why = (
            f"utility {utility:.3f} ({tokens:.2f} tokens a step at {cost:.2f} times the step time of k=0) "
            f"against {here:.3f} at k={band.k}"
        )
        switch = Switch(band.label, band.k, k, why)
        restless = band.since_switch < 4 * band.dwell and band.switches > 0
        band.dwell = min(2 * band.dwell, _LONGEST_DWELL) if restless else self.settings.dwell
        band.k, band.since_switch = k, 0
        band.switches += 1
        band.times[k].clear()
        for other in self.settings.ks:
            # Going back and forth between two equals is no news about the others.
            if not restless:
                band.interval[other] = self.settings.first_set
            band.due[other] = band.steps + band.interval[other]
        self._follow(band)
        return switch

    def _try(self, band: Band, k: int) -> None:
        band.test = Test(k, list(band.times[band.k].samples()))
        band.tests += 1
        self._follow(band)

    def _postpone(self, band: Band, k: int, longest: float) -> None:
        """Exponential back-off of a k that did not win, up to the interval at which its tests are affordable.

        One that was far from winning goes there at once.
        """
        here, there = self.utility(band, band.k), self.utility(band, k)
        if here is not None and there is not None and there < _HOPELESS * here:
            band.interval[k] = max(round(longest), self.settings.first_set)
        band.due[k] = band.steps + band.interval[k]
        band.interval[k] = max(min(2 * band.interval[k], round(longest)), self.settings.first_set)

    def _affordable(self, band: Band, test: Test) -> float:
        """Steps between tests like this one that lose no more than the budget."""
        here, there = self.utility(band, band.k), self.utility(band, test.k)
        if here is None or there is None:
            return self.settings.longest_set
        lost = len(test.during) * test.ratio() * (1 - there / here)
        share = self.settings.budget if band.k == 0 else self.settings.budget / (len(self.settings.ks) - 1)
        # Only what has to be seen again and again has a floor; another length of draft may wait for longer.
        floored = band.k == 0 or test.k == 0
        return min(lost / share, self.settings.longest_set * (1 if floored else _PATIENCE))

    def _come_back(self, band: Band) -> None:
        """After a while elsewhere: what was timed no longer compares."""
        for times in band.times.values():
            times.clear()
        if band.test is not None:
            band.test = None
            self._follow(band)

    def _follow(self, band: Band) -> None:
        k = band.lookup_k
        for batch in range(band.first, band.last + 1):
            self.lookup[batch] = k
