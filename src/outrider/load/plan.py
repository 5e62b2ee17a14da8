"""What to load, how, and for how long."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Closed(_Frozen):
    """A fixed number of users, each sending its next request when the previous one ended.

    In `waves` all of them wait for each other before they send again: while a wave decodes, no prompt is worked on, so
    that what is measured is the step of exactly that batch.
    """

    kind: Literal["closed"] = "closed"
    concurrency: int = Field(ge=1)
    waves: bool = False


class Poisson(_Frozen):
    """Open loop: independent arrivals, exponential gaps with mean 1/rate."""

    kind: Literal["poisson"] = "poisson"
    rate: float = Field(gt=0, description="requests per second")


class Constant(_Frozen):
    """Open loop: one arrival every 1/rate seconds."""

    kind: Literal["constant"] = "constant"
    rate: float = Field(gt=0, description="requests per second")


class Gamma(_Frozen):
    """Open loop: gamma-distributed gaps with mean 1/rate.

    `burstiness` is the shape, as in `vllm bench serve`: 1 is Poisson, below 1 bursts, above 1 evens out.
    """

    kind: Literal["gamma"] = "gamma"
    rate: float = Field(gt=0, description="requests per second")
    burstiness: float = Field(gt=0)


class Trace(_Frozen):
    """Open loop: send at recorded times; a file with one offset in seconds a line (or JSON lines with `at_s`)."""

    kind: Literal["trace"] = "trace"
    file: Path


Arrivals = Annotated[Closed | Poisson | Constant | Gamma | Trace, Field(discriminator="kind")]


class Labels(_Frozen):
    """Who is measured: labels of the live metrics, copied into the result."""

    stack: str = ""
    variant: str = ""
    workload: str = ""


class LoadPlan(_Frozen):
    """One load test against one OpenAI-compatible endpoint.

    Attributes:
        url: base URL, with or without `/v1`.
        model: served model name.
        endpoint: which API to stream from; `completions` sends the last user message as the prompt.
        api_key_file: file with a bearer token; the token itself is never part of a plan.
        workload: name of one of Outrider's prompt sets; exactly one of this and `prompts_file`.
        prompts_file: prompts that the user brings (JSON lines; forms in docs/measuring.md).
        prompt_seed: order of the prompts. Give a new one for a fresh run, the same one to pair variants.
        distinct_prompts: only the workload's first so many, asked again and again; None: all of them. With as many
            as the users of a closed loop in waves, every measured wave finds its prompts in the prefix cache.
        arrivals: closed loop at a fixed concurrency, or an open loop.
        requests: measured requests; with `duration_s`, whichever is reached first.
        duration_s: measured requests are those sent within this time; all of them are awaited.
        warmup_requests: requests sent first and not measured; None: as many as the concurrency (closed
            loop), or 2 seconds' worth (open loop).
        max_tokens: output limit; a prompt's own limit, where smaller, wins.
        ignore_eos: run every answer to max_tokens (an extension of vLLM and SGLang).
        extra_body: further fields of every request, e.g. vLLM's `cache_salt`, which keeps a load test from
            finding another one's prompts in the prefix cache.
        temperature, seed: sampling; seed None leaves it to the server.
        usage: `continuous` asks for cumulative usage in every chunk, `final` for servers that refuse that.
        idle_timeout_s: a stream without a byte for so long is counted as stalled. Not a total.
        connect_timeout_s: limit for TCP and TLS set-up.
        engine: adapter whose metrics are read at `metrics_path` around the window; None reads nothing.
        metrics_path: path of the engine's metrics below the server's root.
        speculates: whether drafts are expected; None makes no check.
        expect_prefix_hits: prefix-cache hits are part of the workload (growing conversations).
        labels: stack, variant, workload.
        metrics_port: port of the live Prometheus exporter, loopback only, 0 for any; None exports nothing.
        records_file: spill one JSON line a request here instead of keeping rows in memory (soak runs).
        keep_text: keep a sample of each output in its row.
    """

    url: str
    model: str
    endpoint: Literal["chat", "completions"] = "chat"
    api_key_file: Path | None = None
    workload: str | None = None
    prompts_file: Path | None = None
    prompt_seed: int = 0
    distinct_prompts: int | None = Field(default=None, ge=1)
    arrivals: Arrivals
    requests: int | None = Field(default=None, ge=1)
    duration_s: float | None = Field(default=None, gt=0)
    warmup_requests: int | None = Field(default=None, ge=0)
    max_tokens: int = Field(default=256, ge=1)
    ignore_eos: bool = False
    extra_body: dict[str, Any] = Field(default_factory=dict)
    temperature: float = Field(default=0.0, ge=0)
    seed: int | None = None
    usage: Literal["continuous", "final"] = "continuous"
    idle_timeout_s: float = Field(default=60.0, gt=0)
    connect_timeout_s: float = Field(default=10.0, gt=0)
    engine: str | None = None
    metrics_path: str = "/metrics"
    speculates: bool | None = None
    expect_prefix_hits: bool = False
    labels: Labels = Labels()
    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    records_file: Path | None = None
    keep_text: bool = True

    @field_validator("url")
    @classmethod
    def _http_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{url!r} is not an http:// or https:// URL with a host")
        return url.rstrip("/").removesuffix("/v1")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.workload is None) == (self.prompts_file is None):
            raise ValueError("give exactly one of workload and prompts_file")
        if self.requests is None and self.duration_s is None and self.arrivals.kind != "trace":
            raise ValueError("give requests, duration_s or both")
        if self.distinct_prompts is not None and self.workload is None:
            raise ValueError("distinct_prompts is for Outrider's own workloads; a file has its own number of prompts")
        return self

    @property
    def concurrency(self) -> int | None:
        """Users of the closed loop; None for an open one."""
        return self.arrivals.concurrency if isinstance(self.arrivals, Closed) else None

    @property
    def in_waves(self) -> bool:
        """Users of the closed loop wait for each other."""
        return isinstance(self.arrivals, Closed) and self.arrivals.waves

    @property
    def from_cache(self) -> bool:
        """Measured prompts are those of the warm-up, so that a decoding wave reads no prompt."""
        return self.in_waves and self.distinct_prompts is not None and self.distinct_prompts <= self.warmup

    @property
    def rate(self) -> float | None:
        """Mean arrivals per second of an open loop that has one."""
        return self.arrivals.rate if isinstance(self.arrivals, Poisson | Constant | Gamma) else None

    @property
    def warmup(self) -> int:
        """Requests sent before the measured ones."""
        if self.warmup_requests is not None:
            return self.warmup_requests
        if self.concurrency is not None:
            return self.concurrency
        return round(2 * self.rate) if self.rate is not None else 0
