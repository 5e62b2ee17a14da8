"""`outrider watch`: the dashboards' figures in a terminal, straight from the engines. Works over SSH."""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import httpx
import typer
from rich.console import Console
from rich.live import Live as Screen

from outrider.engine import adapter, adapters
from outrider.errors import EngineError, OutriderError
from outrider.observe.live import Live, live, restarted
from outrider.observe.recorded import BASELINE, read_cells, record
from outrider.observe.watch_view import view
from outrider.runtime import discovery
from outrider.stack import find_stack
from outrider.state import results_dir, targets_dir

if TYPE_CHECKING:
    from outrider.engine import EngineAdapter, EngineScrape

_WINDOW_S = 15.0  # figures are over this long: requests must end in it
_TIMEOUT_S = 5.0
_HISTORY = 60


def watch_command(
    urls: Annotated[
        list[str] | None, typer.Argument(help="Engines; default: all that `outrider serve` has started.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="vllm or sglang; default: what its metrics look like.")] = None,
    run: Annotated[Path | None, typer.Option(help="Run whose baseline is the reference; default: the latest.")] = None,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between readings.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look for one window, print, and end.")] = False,
    window: Annotated[float, typer.Option(min=0.5, help="Seconds that the figures are over.")] = _WINDOW_S,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="PATH", help="With --once: write JSON; - is standard output.")
    ] = None,
) -> None:
    """Show live whether speculation pays: acceptance, speedup against the recorded baseline, break-even."""
    if json_to is not None and not once:
        raise typer.BadParameter("--json belongs to --once")
    watched = [Watched(found, adapter(engine) if engine else None, run) for found in urls or published()]
    if not watched:
        raise OutriderError(
            "there is no engine to watch",
            evidence=f"no target in {targets_dir()}",
            next_step="outrider serve STACK VARIANT, or name a URL",
        )
    for one in watched:
        one.read(window)
    if once:
        deadline = time.monotonic() + window
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(interval, left))
            for one in watched:
                one.read(window)
        _print([one.now() for one in watched], json_to)
        return
    console = Console(highlight=False)
    with Screen(view([one.now() for one in watched], {}), console=console, auto_refresh=False, screen=False) as screen:
        while True:
            time.sleep(interval)
            for one in watched:
                one.read(window)
            shown = [one.now() for one in watched]
            for one, figures in zip(watched, shown, strict=True):
                one.remember(figures)
            screen.update(view(shown, {one.url: tuple(one.history) for one in watched}), refresh=True)


def published() -> list[str]:
    """URLs of the engines that service discovery knows."""
    found: list[str] = []
    for file in sorted(targets_dir().glob(f"{discovery.ENGINE}-*.json")):
        for group in json.loads(file.read_text(encoding="utf-8")):
            found += [f"http://{address}" for address in group["targets"]]
    return found


@dataclass(slots=True)
class Watched:
    """One engine with its last scrapes.

    Attributes:
        url: of its API.
        engine: its adapter; None finds out.
        run: directory of the run whose baseline is the reference; None takes the stack's latest.
        history: speedups so far, or tokens per second where there is no baseline.
    """

    url: str
    engine: EngineAdapter | None = None
    run: Path | None = None
    history: deque[float] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    _scrapes: deque[tuple[float, EngineScrape]] = field(default_factory=deque)
    _answers: bool = False
    _reference: dict[str, float] | None = None

    def read(self, window_s: float) -> None:
        """Scrape once; scrapes older than the window are let go, but for the one at its beginning."""
        base = self.url.rstrip("/").removesuffix("/v1")
        try:
            answer = httpx.get(f"{base}/metrics", timeout=_TIMEOUT_S)
            answer.raise_for_status()
            scrape = self._parse(answer.text)
        except httpx.HTTPError:
            self._answers = False
            return
        at = time.monotonic()
        self._answers = True
        if self._scrapes and restarted(scrape, self._scrapes[-1][1]):
            self._scrapes.clear()
        self._scrapes.append((at, scrape))
        while len(self._scrapes) > 2 and at - self._scrapes[1][0] >= window_s:
            self._scrapes.popleft()

    def now(self) -> Live:
        """Figures over the scrapes at hand."""
        labels = discovery.labels_of(self.url)
        who = (labels.get("stack", "?"), labels.get("variant", "?"), self.url)
        if not self._answers:
            return Live(*who, "no answer")
        (start, before), (end, last) = self._scrapes[0], self._scrapes[-1]
        busy = [scrape.running for _, scrape in self._scrapes if scrape.running]
        return live(
            who, before, last, max(end - start, 1e-9),
            mean_running=sum(busy) / len(busy) if busy else None,
            baseline_tpot_s=self._baseline(who[0]),
        )  # fmt: skip

    def remember(self, figures: Live) -> None:
        """Keep what the small curve shows."""
        value = figures.speedup if figures.speedup is not None else figures.tokens_s
        self.history.append(value or 0.0)

    def _parse(self, text: str) -> EngineScrape:
        if self.engine is not None:
            return self.engine.read_metrics(text)
        faults: list[str] = []
        for candidate in adapters():
            try:
                scrape = candidate.read_metrics(text)
            except EngineError as error:
                faults.append(error.cause)
                continue
            self.engine = candidate
            return scrape
        raise EngineError(f"{self.url} is no engine that Outrider knows", evidence="; ".join(faults))

    def _baseline(self, stack: str) -> dict[str, float]:
        """Recorded TPOT of baseline by band: the mean over workloads."""
        if self._reference is None:
            self._reference = reference(stack, self.run)
        return self._reference


def reference(stack: str, run: Path | None) -> dict[str, float]:
    """Baseline's recorded TPOT by concurrency band, in seconds; empty without a run of this stack."""
    if stack == "?":
        return {}
    chosen = find_stack(stack)
    files = [run / "cells.jsonl"] if run else list(results_dir().glob("*/cells.jsonl"))
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        found: dict[str, list[float]] = {}
        for place, figures in record(chosen, read_cells(file, chosen)).places.items():
            if place.variant == BASELINE and figures.tpot_s:
                found.setdefault(place.band, []).append(figures.tpot_s)
        if found:
            return {band: sum(values) / len(values) for band, values in found.items()}
    return {}


def _print(figures: list[Live], json_to: str | None) -> None:
    text = json.dumps([asdict(one) | {"verdict": one.verdict} for one in figures], indent=2) + "\n"
    if json_to == "-":
        typer.echo(text, nl=False)
        return
    if json_to is not None:
        Path(json_to).write_text(text, encoding="utf-8")
    Console(highlight=False).print(view(figures, {}))
