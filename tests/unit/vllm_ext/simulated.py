"""An engine that is only a clock: known costs and acceptance by k, steps with noise, and the outliers of real ones."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from outrider.vllm_ext.controller import Controller, Switch
from outrider.vllm_ext.settings import Settings


@dataclass
class Traffic:
    """What the engine sees: step-cost ratio by k, conditional acceptance, requests in a step."""

    cost: dict[int, float]
    acceptance: float
    batch: int = 1

    def tokens(self, k: int) -> float:
        return sum(self.acceptance**i for i in range(k + 1))

    def speed(self, k: int) -> float:
        return self.tokens(k) / self.cost[k]

    @property
    def best(self) -> float:
        return max(map(self.speed, self.cost))


@dataclass
class Engine:
    """Runs steps through a controller as the engine would, k following the lookup one step later.

    With a `stride` only one in so many is taken in while nothing is tried, as by the hook.
    """

    settings: Settings
    seed: int = 0
    largest_batch: int = 32
    noise: float = 0.05
    outliers: float = 0.01
    stride: int = 1
    switches: list[Switch] = field(default_factory=list)
    ks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.lookup = [0] + [self.settings.prior_k(b) for b in range(1, self.largest_batch + 1)]
        self.controller = Controller(self.settings, self.lookup)
        self._drafted = -1
        self._steps = 0

    def run(self, traffic: Traffic, steps: int) -> float:
        """Speed over the steps against k = 0 without noise: request-steps' tokens per unit of k = 0 step time."""
        tokens = seconds = 0.0
        for _ in range(steps):
            verified, k = self._drafted, self.lookup[traffic.batch]
            self._drafted = k
            self.ks.append(k)
            yielded = [0] * (self.settings.largest_k + 2)
            for _ in range(traffic.batch):
                m = 1
                while m <= max(verified, 0) and self.random.random() < traffic.acceptance:
                    m += 1
                yielded[m] += 1
            took = 0.020 * traffic.cost[k] * self.random.lognormvariate(0.0, self.noise)
            seen = took * (10.0 if self.random.random() < self.outliers else 1.0)
            self._steps += 1
            testing = self.controller.band_of(traffic.batch).test is not None
            if verified >= 0 and (testing or self._steps % self.stride == 0):
                switch = self.controller.observe(traffic.batch, verified, k, yielded, seen)
                if switch is not None:
                    self.switches.append(switch)
            tokens += sum(m * count for m, count in enumerate(yielded)) / traffic.batch
            seconds += took
        return tokens * 0.020 / seconds


def settings(prior: int = 3, **changes: object) -> Settings:
    return Settings(prior=((1, 32, prior),), ks=(0, 1, 2, 3), **changes)  # type: ignore[arg-type]
