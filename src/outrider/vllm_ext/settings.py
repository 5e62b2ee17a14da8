"""Settings of the utility scheduler: one JSON object in the environment, written by the engine adapter."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "OUTRIDER_UTILITY"


def choices(k: int) -> tuple[int, ...]:
    """What to try below a largest k: every k up to 4, above that its halves, rounded up (5: 0, 1, 2, 3, 5)."""
    if k <= 4:
        return tuple(range(k + 1))
    found = {0, 1}
    while k > 1:
        found.add(k)
        k = (k + 1) // 2
    return tuple(sorted(found))


class SettingsError(ValueError):
    """The settings cannot be used; the engine goes on with its static schedule."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the controller starts from and how far it may go.

    Attributes:
        prior: the emitted schedule, `[first batch, last batch, k]` bands from 1; its k is in force until measured.
        ks: k that may be chosen, ascending, 0 among them.
        hold: measure and export, but never leave the prior (for measuring the controller's own cost).
        test_steps: steps that one k is tried for.
        settle_steps: steps with the k in force after a test, which close the comparison.
        probe_requests: request-steps that a test of a longer draft than the one in force sees at least.
        first_set: steps between two tests at first.
        longest_set: bound of the back-off, and so the floor on how often k = 0 (or, with k = 0 in force,
            speculation) is tried again.
        budget: share of the time that tests of speculation may lose while k = 0 is in force, and all tests together
            otherwise; the back-off ends where it is kept.
        margin: gain in speed below which k stays as it is.
        dwell: steps that a k stays in force at least.
        half_life: request-steps after which an observed acceptance weighs half.
    """

    prior: tuple[tuple[int, int, int], ...]
    ks: tuple[int, ...]
    hold: bool = False
    test_steps: int = 8
    settle_steps: int = 4
    probe_requests: int = 48
    first_set: int = 96
    longest_set: int = 1024
    budget: float = 0.01
    margin: float = 0.015
    dwell: int = 32
    half_life: int = 256

    def __post_init__(self) -> None:
        """Refuse what the engine could not follow."""
        if not self.ks or self.ks[0] != 0 or list(self.ks) != sorted(set(self.ks)) or len(self.ks) < 2:
            raise SettingsError(f"ks {list(self.ks)}: ascending, from 0, and at least one more")
        expected = 1
        for first, last, k in self.prior:
            if first != expected or last < first:
                raise SettingsError(f"prior band [{first}, {last}, {k}]: bands follow each other from batch 1")
            if k not in self.ks:
                raise SettingsError(f"prior band [{first}, {last}, {k}]: k is none of {list(self.ks)}")
            expected = last + 1
        if not self.prior:
            raise SettingsError("prior has no band")
        counts = (self.test_steps, self.settle_steps, self.probe_requests, self.first_set, self.dwell, self.half_life)
        if min(counts) < 1 or self.longest_set < self.first_set or not 0 <= self.margin < 1:
            raise SettingsError("step counts must be positive, longest_set >= first_set, margin in [0, 1)")
        if not 0 < self.budget < 1:
            raise SettingsError(f"budget {self.budget}: a share between 0 and 1")

    @property
    def largest_k(self) -> int:
        """The upper bound of every band, which is the engine's static k."""
        return self.ks[-1]

    def prior_k(self, batch: int) -> int:
        """The prior's k for a batch; beyond its last band, the last one's."""
        return next((k for first, last, k in self.prior if first <= batch <= last), self.prior[-1][2])


def read_settings(env: Mapping[str, str]) -> Settings:
    """Settings from the environment.

    Raises:
        SettingsError: the variable is absent, no JSON object, or holds a field or value that is not known.
    """
    text = env.get(VARIABLE)
    if text is None:
        raise SettingsError(f"{VARIABLE} is not set")
    try:
        raw: Any = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{VARIABLE} is no JSON: {error}") from None
    known = {field.name for field in fields(Settings)}
    if not isinstance(raw, dict) or not {"prior", "ks"} <= raw.keys() or not raw.keys() <= known:
        raise SettingsError(f"{VARIABLE} must be an object with prior and ks, and only fields of {sorted(known)}")
    try:
        prior = tuple((int(first), int(last), int(k)) for first, last, k in raw.pop("prior"))
        ks = tuple(int(k) for k in raw.pop("ks"))
        return Settings(prior=prior, ks=ks, **raw)
    except TypeError as error:
        raise SettingsError(f"{VARIABLE}: {error}") from None
