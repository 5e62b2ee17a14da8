"""Alerts: when somebody should look, and at which page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from outrider.load.exporter import PREFIX as CLIENT
from outrider.load.validity import FAILED_SHARE, LAG_S, LAG_SHARE_OF_MEAN
from outrider.observe import node_metrics as node
from outrider.observe import series as s
from outrider.observe.promql import where

RUNBOOKS = "docs/runbooks"
_LOSING = 0.97  # a speedup within 3 % of 1 is noise of the recorded baseline
_BUDGET = 0.05  # share of requests that may be slower than the objective
_BURN = 6  # times as fast as the budget allows: a day's budget in four hours
_HIGH_ACCEPTANCE, _MANY_LOOPS = 0.9, 0.3


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert.

    Attributes:
        name: as Alertmanager shows it; its runbook page has the same name.
        expr: PromQL.
        hold: how long it must hold.
        severity: `page`: users are hurt now; `ticket`: somebody should look today; `info`: for who is measuring.
        summary: one line.
        description: what it means; may hold Prometheus' templates.
        needs_gpu: its metrics come from DCGM only.
    """

    name: str
    expr: str
    hold: str
    severity: Literal["page", "ticket", "info"]
    summary: str
    description: str
    needs_gpu: bool = False

    @property
    def runbook(self) -> str:
        """The page, relative to the project."""
        return f"{RUNBOOKS}/{self.name}.md"

    def to_json(self) -> dict[str, Any]:
        """As a rule file says it."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.hold,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "description": self.description, "runbook": self.runbook},
        }


_WHO = "{{ $labels.stack }}/{{ $labels.variant }}"


def alerts() -> list[Alert]:
    """All alerts."""
    return [*_speculation(), *_serving(), *_scraping(), *_gpus()]


def _speculation() -> list[Alert]:
    looping = f"{s.REPETITIVE_SHARE} > {_MANY_LOOPS}"
    drafting = f"{s.rate_of('drafts')} > 0"
    return [
        Alert(
            "AcceptanceUnderFloor",
            f"{s.AL} < on ({s.BY}) {s.ACCEPTANCE_FLOOR}",
            "5m",
            "ticket",
            f"{_WHO}: the drafter is accepted less than it should be",
            "Acceptance length is {{ $value | printf \"%.2f\" }}, below half of the smallest gain that the drafter's "
            "authors publish. Wrong auxiliary layers, another tokenizer or another revision look like this.",
        ),
        Alert(
            "AcceptanceSuspiciouslyHigh",
            where(f"{s.ACCEPTED_SHARE} > {_HIGH_ACCEPTANCE}", looping),
            "2m",
            "ticket",
            f"{_WHO}: nearly every draft is accepted, and outputs repeat themselves",
            "{{ $value | humanizePercentage }} of the drafted tokens are accepted while outputs loop. A looping answer "
            "is easy to guess: the gain that is shown now is none for real traffic.",
        ),
        Alert(
            "SpeculationLosing",
            where(f"{s.SPEEDUP} < {_LOSING}", drafting),
            "10m",
            "ticket",
            f"{_WHO}: speculation is slower than plain decoding",
            "Live time per output token is {{ $value | printf \"%.2f\" }} times as good as the recorded baseline's at "
            "the same concurrency. Serving baseline, or a smaller k at this load, would be faster.",
        ),
        Alert(
            "UtilityFault",
            f"max by ({s.BY}) ({s.UTILITY_FAULT}) == 1",
            "30s",
            "ticket",
            f"{_WHO}: k no longer follows the traffic",
            "The controller that chooses k has given up after a fault of its own. Users are served as before, with the "
            "schedule that the engine was started with; answers are the same.",
        ),
    ]  # fmt: skip


def _serving() -> list[Alert]:
    bad = _BURN * _BUDGET
    long_ago = where(f'{s.SLO_MISS}{{window="5m"}} > {bad:g}', f'{s.SLO_MISS}{{window="{s.SLOW_WINDOW}"}} > {bad:g}')
    return [
        Alert(
            "TpotObjectiveBurning",
            long_ago,
            "2m",
            "page",
            f"{_WHO}: users wait longer for tokens than was promised",
            "{{ $value | humanizePercentage }} of the requests of the last five minutes were slower than the objective,"
            " and the last hour looks no better.",
        ),
        Alert(
            "KvCacheFull",
            where(f"{s.KV_USAGE} > 0.95", f"{s.WAITING} > 0"),
            "2m",
            "ticket",
            f"{_WHO}: requests wait because the KV cache is full",
            "{{ $value | humanizePercentage }} of the KV cache is in use and requests are queued.",
        ),
        Alert(
            "Preempting",
            f"{s.rate_of('preemptions')} > 0",
            "5m",
            "ticket",
            f"{_WHO}: running requests are thrown out and computed again",
            '{{ $value | printf "%.2f" }} preemptions a second: each repeats its prefill, and its tokens stall.',
        ),
        Alert(
            "EngineDown",
            f'{node.UP}{{job="engine"}} == 0',
            "30s",
            "page",
            f"{_WHO}: the engine does not answer",
            "{{ $labels.instance }} was started by `outrider serve`, not stopped, and has not answered for 30 seconds.",
        ),
        Alert(
            "EngineRestarting",
            f"changes({s.START_TIME}[15m]) >= 2",
            "0m",
            "page",
            f"{_WHO}: the engine keeps restarting",
            "It was started {{ $value }} times within 15 minutes without being served anew by hand that often.",
        ),
    ]  # fmt: skip


def _scraping() -> list[Alert]:
    silent = f'{node.UP}{{job="engine"}} == 1 unless on ({s.BY}) {s.RUNNING}'
    lag = f"{CLIENT}event_loop_lag_seconds"
    much = f"({LAG_SHARE_OF_MEAN} * {s.mean_of('client', 'ttft')})"
    late = f"{lag} > {LAG_S} and {lag} > on ({s.BY}) group_left () {much}"
    return [
        Alert(
            "ScrapeBroken",
            f'{silent}\nor {node.UP}{{job="outrider"}} == 0\nor {s.UTILITY_EXPORTED} == 0',
            "2m",
            "ticket",
            "{{ $labels.job }} {{ $labels.instance }}: nothing that Outrider knows is scraped",
            "The target is there, but the figures that panels and alerts rest on are not: metrics are off, were "
            "renamed by another engine version, the exporter of recorded cells has ended, or an engine that chooses k "
            "cannot write down what it does.",
        ),
        Alert(
            "ClientInvalid",
            f"{s.FAILED_SHARE} > {FAILED_SHARE}\nor max by ({s.BY}) ({late})",
            "30s",
            "info",
            f"{_WHO}: this load test is no measurement",
            "Requests fail, or the client's own event loop is so late that time to first token contains it.",
        ),
    ]


def _gpus() -> list[Alert]:
    xid, ecc = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
    return [
        Alert(
            "GpuErrors",
            f"(changes({xid}[15m]) > 0 and {xid} > 0) or increase({ecc}[15m]) > 0",
            "0m",
            "page",
            "GPU {{ $labels.gpu }}: the driver reports an error",
            "An XID error or a double-bit memory error within 15 minutes: the engine on this GPU is not to be trusted.",
            needs_gpu=True,
        ),
        Alert(
            "PcieReplays",
            "rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[5m]) > 0.1",
            "5m",
            "ticket",
            "GPU {{ $labels.gpu }}: PCIe packets are sent again",
            '{{ $value | printf "%.2f" }} replays a second: peer-to-peer traffic over this link is slow or corrupt.',
            needs_gpu=True,
        ),
    ]  # fmt: skip
