"""How long do the rules take with 10 variants and 15 days of series, and how long does a scrape of our exporter?

    python benchmarks/observe/rules.py [--days 15] [--variants 10] [--minutes 3]

A real Prometheus is given the past as blocks (`promtool tsdb create-blocks-from`, a sample in ten minutes),
then scrapes ten live expositions every 5 s and evaluates the committed rules every 15 s; its own metrics say how long.
Ends with code 1 if a promised number is missed: 50 ms for all rules, 5 ms a scrape, 200 series a variant.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import httpx
import yaml

from outrider.engine import adapter
from outrider.observe.exporter import CellsExporter, families, objectives, render
from outrider.observe.recorded import record
from outrider.observe.rules import groups
from outrider.runtime.discovery import Target, publish
from outrider.runtime.ports import free_port
from outrider.stack import find_stack

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tests.unit.campaign.made import cell  # noqa: E402 - a cell with known figures, as the tests make them

if TYPE_CHECKING:
    from outrider.campaign.cell import Cell

SCRAPE = (ROOT / "tests" / "fixtures" / "metrics" / "vllm-0.33.0-eagle3.txt").read_text()
STEP_S = 600
STACK = "kimi-k2.5-rtx6000x8"
RULES_MS, SCRAPE_MS, SERIES = 50.0, 5.0, 200


def exposition(growth: float) -> list[str]:
    """Sample lines of one engine; counters and histograms `growth` times as large."""
    gauges = set(re.findall(r"^# TYPE (\S+) gauge$", SCRAPE, flags=re.MULTILINE))
    lines = []
    for line in SCRAPE.splitlines():
        if not line or line.startswith("#"):
            continue
        series, _, value = line.rpartition(" ")
        grows = re.split(r"[{ ]", series, maxsplit=1)[0] not in gauges
        lines.append(f"{series} {float(value) * (growth if grows else 1)}")
    return lines


def labelled(line: str, labels: str) -> str:
    """A sample line with more labels."""
    series, _, value = line.rpartition(" ")
    name, brace, rest = series.partition("{")
    return f"{name}{{{labels},{rest} {value}" if brace else f"{name}{{{labels}}} {value}"


def past(room: Path, variants: int, days: int, now: float) -> int:
    """Write the past of every series that rules ask for as blocks; gives the number of samples."""
    file, samples = room / "past.om", 0
    start = now - days * 86400
    asked_for = adapter("vllm").metric_names()
    template = [line for line in exposition(1.0) if re.split(r"[{ ]", line, maxsplit=1)[0] in asked_for]
    with file.open("w") as out:
        for variant in range(variants):
            labels = f'job="engine",stack="{STACK}",variant="v{variant}",instance="127.0.0.1:{9000 + variant}"'
            for line in template:
                series, _, value = labelled(line, labels).rpartition(" ")
                for step in range(days * 86400 // STEP_S):
                    out.write(f"{series} {float(value) * (1 + step):g} {start + STEP_S * step:.0f}\n")
                    samples += 1
        out.write("# EOF\n")
    done = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=81h", "--quiet",
         "openmetrics", str(file), str(room / "data")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr[-400:])
    file.unlink()
    return samples


def serve(variant: int) -> int:
    """An exposition that grows with every scrape; gives its port."""
    seen = 0

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal seen
            seen += 1
            body = ("\n".join(exposition(1 + seen / 100 + variant)) + "\n").encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def cells(variants: int) -> list[Cell]:
    """A full grid of the stack: 4 workloads x 8 concurrencies x 2 repeats for every variant."""
    names = ["baseline", *(f"v{n}" for n in range(variants - 1))]
    return [
        cell(name, workload, 1 << power, repeat, tpot_s=0.02, al=None if name == "baseline" else 1.5)
        for name in names
        for workload in ("chat", "code", "extraction", "reasoning")
        for power in range(8)
        for repeat in range(2)
    ]


def measure_exporter(variants: int) -> tuple[float, float, float]:
    """Median and largest milliseconds of a scrape over HTTP, and series a variant."""
    stack = find_stack(STACK)
    exporter = CellsExporter(stack, list, 0.05)
    made = record(stack, cells(variants))
    predicted = {place: figures.tpot_s or 0.0 for place, figures in made.places.items()}
    exporter.page = render(families([record(stack, cells(variants), predicted)], objectives(stack, 0.05)))
    port = exporter.serve(0)
    times = []
    for _ in range(200):
        began = time.perf_counter()
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        times.append((time.perf_counter() - began) * 1e3)
    series = sum(1 for line in text.splitlines() if line and not line.startswith("#"))
    return statistics.median(times), statistics.quantiles(times, n=100)[98], series / variants


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=15)
    parser.add_argument("--variants", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=3.0)
    asked = parser.parse_args()
    median, worst, series = measure_exporter(asked.variants)
    print(f"exporter: scrape {median:.2f} ms (median), {worst:.2f} ms (p99), {series:.0f} series a variant")
    with tempfile.TemporaryDirectory() as name:
        durations, samples, head = measure_rules(Path(name), asked)
    rules = sum(len(each) for each in groups().values())
    print(f"rules: {rules} over {samples / 1e6:.1f} million samples of the past and {head:.0f} live series")
    low, mid, high = min(durations), statistics.median(durations), max(durations)
    print(f"one evaluation of all: {low:.1f} ms (smallest), {mid:.1f} ms (median), {high:.1f} ms (largest)")
    good = statistics.median(durations) < RULES_MS and median < SCRAPE_MS and series < SERIES
    return 0 if good else 1


def measure_rules(room: Path, asked: argparse.Namespace) -> tuple[list[float], int, float]:
    """Milliseconds of each evaluation of all groups, samples of the past, live series."""
    samples = past(room, asked.variants, asked.days, time.time() - 3 * 3600)
    targets = room / "targets"
    for variant in range(asked.variants):
        labels = {"stack": STACK, "variant": f"v{variant}"}
        publish(Target(f"engine-v{variant}", f"127.0.0.1:{serve(variant)}", labels), targets)
    exporter = CellsExporter(find_stack(STACK), list, 0.05)
    stack = find_stack(STACK)
    exporter.page = render(families([record(stack, cells(asked.variants))], objectives(stack, 0.05)))
    publish(Target("outrider", f"127.0.0.1:{exporter.serve(0)}"), targets)
    port = free_port(9400)
    text = (ROOT / "prometheus" / "prometheus.yml").read_text().replace("/etc/prometheus/targets", str(targets))
    config = yaml.safe_load(text.replace("rules/*.yml", str(ROOT / "prometheus" / "rules" / "*.yml")))
    (room / "prometheus.yml").write_text(yaml.safe_dump(config))
    process = subprocess.Popen(
        ["prometheus", f"--config.file={room / 'prometheus.yml'}", f"--storage.tsdb.path={room / 'data'}",
         "--storage.tsdb.retention.time=60d", f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    durations: list[float] = []
    head = 0.0
    try:
        deadline, last = time.monotonic() + 60 * asked.minutes, ""
        while time.monotonic() < deadline:
            time.sleep(5)
            try:
                page = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text
            except httpx.HTTPError:
                continue
            found = re.findall(r"^prometheus_rule_group_last_duration_seconds\{.*\} (\S+)$", page, flags=re.MULTILINE)
            stamp = "".join(
                re.findall(r"^prometheus_rule_group_last_evaluation_timestamp_seconds.* (\S+)$", page, re.MULTILINE)
            )
            [head] = [float(v) for v in re.findall(r"^prometheus_tsdb_head_series (\S+)$", page, flags=re.MULTILINE)]
            if found and stamp != last:
                durations.append(sum(map(float, found)) * 1e3)
                last = stamp
    finally:
        process.terminate()
        process.wait()
    return durations[4:], samples, head  # rates fill within the first minute


if __name__ == "__main__":
    sys.exit(main())
