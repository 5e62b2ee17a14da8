"""A Locust user that streams, for locustfiles of a few lines.

>>> from locust import task
>>> class Chat(StreamUser):
...     @task
...     def ask(self) -> None:
...         self.send()

Importing this module adds `--model`, `--workload`, `--prompts`, `--max-tokens`, `--endpoint` and
`--api-key-file` to Locust's options. Import it in locustfiles only: Locust patches the standard library.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
import locust

from outrider.errors import LoadError
from outrider.load.api_key import read_api_key
from outrider.load.client import Exchange, StreamClient
from outrider.load.locust_rows import fire_rows
from outrider.load.plan import Closed, LoadPlan
from outrider.load.prompts import request_body, workload_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.load.workloads import Prompt

_AFTER_FAILURE_S = 0.2  # a dead server must not be asked as fast as it refuses


@locust.events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def add_options(parser: Any) -> None:
    """Options that the locustfiles share; each has an environment variable as well."""
    group = parser.add_argument_group("Outrider")
    group.add_argument("--model", env_var="OUTRIDER_MODEL", default="", help="served model name")
    group.add_argument("--workload", env_var="OUTRIDER_WORKLOAD", default="chat", help="prompt set")
    group.add_argument("--prompts", env_var="OUTRIDER_PROMPTS", default="", help="JSON lines of prompts, instead")
    group.add_argument("--max-tokens", env_var="OUTRIDER_MAX_TOKENS", type=int, default=256, help="output limit")
    group.add_argument("--stage-seconds", type=float, default=60.0, help="length of a stage of ramp.py and spike.py")
    group.add_argument("--endpoint", env_var="OUTRIDER_ENDPOINT", default="chat", choices=["chat", "completions"])
    group.add_argument("--api-key-file", env_var="OUTRIDER_API_KEY_FILE", default="", help="file with the token")


class StreamUser(locust.User):  # type: ignore[misc]
    """Sends streamed completions and reports each as three rows: whole request (SSE), TTFT, TPOT."""

    abstract = True
    wait_time = locust.constant(0)

    def on_start(self) -> None:
        """All users of a process share one client and one walk through the prompts."""
        if not hasattr(self.environment, "outrider_shared"):
            self.environment.outrider_shared = _share(self.environment, self.host)
        shared: tuple[LoadPlan, StreamClient, Iterator[Prompt]] = self.environment.outrider_shared
        self._plan, self._client, self._walk = shared

    def send(self, name: str | None = None, prompt: Prompt | None = None) -> Exchange:
        """Stream one answer.

        Args:
            name: label of the rows in Locust's statistics; the workload's name by default.
            prompt: what to send; the next of the workload by default.
        """
        prompt = prompt or next(self._walk)
        exchange = Exchange()
        self._client.request(request_body(self._plan, prompt), exchange)
        fire_rows(self.environment.events, name or self._plan.workload or "prompts", exchange)
        if not exchange.outcome.ok:
            gevent.sleep(_AFTER_FAILURE_S)
        return exchange


def _share(environment: Any, host: str | None) -> tuple[LoadPlan, StreamClient, Iterator[Prompt]]:
    options = environment.parsed_options
    if not options.model:
        raise LoadError("the locustfile needs a model", next_step="locust -f ... --model NAME (or OUTRIDER_MODEL)")
    plan = LoadPlan(
        url=host or "",
        model=options.model,
        endpoint=options.endpoint,
        workload=None if options.prompts else options.workload,
        prompts_file=Path(options.prompts) if options.prompts else None,
        api_key_file=Path(options.api_key_file) if options.api_key_file else None,
        arrivals=Closed(concurrency=1),
        requests=1,
        max_tokens=options.max_tokens,
    )
    prompts = workload_of(plan).prompts
    # Workers of a distributed run begin at different prompts, so that none answers from another's cache entry.
    start = 17 * max(getattr(environment.runner, "worker_index", 0), 0) % len(prompts)
    walk = itertools.cycle(prompts[start:] + prompts[:start])
    return plan, StreamClient(plan.url, plan.endpoint, api_key=read_api_key(plan.api_key_file)), walk
