"""The load process's own view as Prometheus metrics, live: what the users see, beside what the engine says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from outrider.errors import LoadError
from outrider.load.timing import repetition
from outrider.load.validity import REPETITIVE

if TYPE_CHECKING:
    from outrider.load.client import Exchange, Meter
    from outrider.load.plan import LoadPlan

PREFIX = "outrider_client_"
LABELS = ("stack", "variant", "workload", "concurrency")
# Bounds in seconds. TPOT: 1 ms to 1 s, each about 1.25 times the one before, so that a 10 % gain shows.
TPOT_BOUNDS = (
    *(0.001, 0.00125, 0.0016, 0.002, 0.0025, 0.0032, 0.004, 0.005, 0.0063, 0.008),
    *(0.01, 0.0125, 0.016, 0.02, 0.025, 0.032, 0.04, 0.05, 0.063, 0.08),
    *(0.1, 0.125, 0.16, 0.2, 0.25, 0.32, 0.4, 0.5, 0.63, 0.8, 1.0),
)
LATENCY_BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 60, 120, 300)


class Exporter:
    """Metrics of one load test in a registry of its own.

    Args:
        plan: gives the labels.
        meter: live counts of the client.
    """

    def __init__(self, plan: LoadPlan, meter: Meter) -> None:
        self.registry = CollectorRegistry()
        values = (*plan.labels.model_dump().values(), str(plan.concurrency or 0))
        self._meter = meter
        self._tokens = 0

        def metric(kind: Any, name: str, text: str, **options: Any) -> Any:
            family = kind(f"{PREFIX}{name}", text, LABELS, registry=self.registry, **options)
            return family.labels(*values)

        self._ttft = metric(Histogram, "ttft_seconds", "Request sent to first token.", buckets=LATENCY_BOUNDS)
        self._tpot = metric(Histogram, "tpot_seconds", "Time per output token.", buckets=TPOT_BOUNDS)
        self._icl = metric(Histogram, "icl_seconds", "Time between chunks of a stream.", buckets=TPOT_BOUNDS)
        self._e2e = metric(Histogram, "e2e_seconds", "Request sent to end of response.", buckets=LATENCY_BOUNDS)
        self._requests = metric(Counter, "requests_total", "Requests that ended, cancelled ones left out.")
        self._failed = metric(Counter, "failed_requests_total", "Requests that did not end well.")
        self._output = metric(Counter, "output_tokens_total", "Output tokens received.")
        metric(Gauge, "in_flight", "Requests under way.").set_function(lambda: meter.in_flight)
        self._repetitive = metric(Counter, "repetitive_requests_total", "Outputs that say the same over and over.")
        self._lag = metric(Gauge, "event_loop_lag_seconds", "How late the client's event loop last was.")

    def serve(self, port: int) -> int:
        """Answer scrapes on loopback, on any free port for 0; gives the port, raises LoadError if it is taken."""
        try:
            server, _thread = start_http_server(port, addr="127.0.0.1", registry=self.registry)
        except OSError as error:
            raise LoadError(
                f"port {port} for the live metrics cannot be used: {error.strerror}",
                next_step="choose another --metrics-port",
            ) from error
        return int(server.server_port)

    def observe(self, exchange: Exchange) -> None:
        """Take in a finished request."""
        if exchange.outcome == "cancelled":
            return
        self._requests.inc()
        if not exchange.outcome.ok:
            self._failed.inc()
            return
        clock = exchange.reader.clock
        for histogram, value in (
            (self._ttft, exchange.ttft_s),
            (self._tpot, clock.tpot_s),
            (self._e2e, exchange.e2e_s),
        ):
            if value is not None:
                histogram.observe(value)
        seen = repetition(exchange.reader.text)
        if seen is not None and seen.unique_bigrams < REPETITIVE:
            self._repetitive.inc()
        for gap in clock.gaps_s:
            self._icl.observe(gap)

    def refresh(self, lag_s: float) -> None:
        """Bring the live counters up to date."""
        tokens = self._meter.tokens
        self._output.inc(tokens - self._tokens)
        self._tokens = tokens
        self._lag.set(lag_s)
