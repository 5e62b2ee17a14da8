"""`outrider load` and `outrider verify-client`, to be registered by the command line.

Exit codes: 0 fine, 1 failed or invalid, 3 done with advisory findings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from outrider.load.plan import LoadPlan
from outrider.load.result import LoadOutcome, LoadResult, RequestRecord
from outrider.load.run import run_load
from outrider.load.summary import print_summary, progress_line
from outrider.load.verify import verify
from outrider.runtime import discovery

Url = Annotated[str, typer.Argument(help="Base URL of an OpenAI-compatible server, with or without /v1.")]
Model = Annotated[str, typer.Option(help="Served model name.")]
Key = Annotated[Path | None, typer.Option(help="File that holds the bearer token.", exists=True, dir_okay=False)]
Endpoint = Annotated[str, typer.Option(help="chat or completions.")]
Workload = Annotated[str | None, typer.Option(help="One of Outrider's prompt sets (default: chat).")]
Prompts = Annotated[Path | None, typer.Option(help="Your prompts, JSON lines.", exists=True, dir_okay=False)]
Json = Annotated[Path | None, typer.Option("--json", help="Write the result here; - is standard output.")]
MaxTokens = Annotated[int, typer.Option(min=1, help="Output limit of a request.")]


def load_command(
    url: Url,
    model: Model,
    *,
    api_key_file: Key = None,
    endpoint: Endpoint = "chat",
    workload: Workload = None,
    prompts: Prompts = None,
    prompt_seed: Annotated[int, typer.Option(help="Order of the prompts.")] = 0,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Closed loop: users.")] = None,
    rate: Annotated[float | None, typer.Option(help="Open loop: requests per second.")] = None,
    arrivals: Annotated[str, typer.Option(help="Open loop: poisson, constant or gamma.")] = "poisson",
    burstiness: Annotated[float, typer.Option(help="Shape of gamma arrivals; below 1 bursts.")] = 1.0,
    trace: Annotated[Path | None, typer.Option(help="Open loop: send at these times.", exists=True)] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Measured requests.")] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds in which measured requests are sent.")] = None,
    warmup: Annotated[int | None, typer.Option(min=0, help="Requests sent first, not measured.")] = None,
    max_tokens: MaxTokens = 256,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Run to the limit (vLLM, SGLang).")] = False,
    temperature: Annotated[float, typer.Option(min=0.0)] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Sampling seed, sent with each request.")] = None,
    usage: Annotated[str, typer.Option(help="continuous, or final where the server refuses that.")] = "continuous",
    idle_timeout: Annotated[float, typer.Option(help="Seconds without a byte after which a stream stalled.")] = 60.0,
    engine: Annotated[str | None, typer.Option(help="Read this engine's metrics, e.g. vllm.")] = None,
    metrics_path: Annotated[str, typer.Option(help="Path of these metrics.")] = "/metrics",
    speculates: Annotated[bool | None, typer.Option(help="Drafts are expected, or not.")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Export live metrics on this loopback port; 0: any.")] = None,
    records: Annotated[Path | None, typer.Option(help="Write one row a request: .parquet or .jsonl.")] = None,
    json_path: Json = None,
) -> None:
    """Load an OpenAI-compatible endpoint and measure TTFT, TPOT, inter-chunk and end-to-end latency."""
    spill = records if records is not None and records.suffix != ".parquet" else None
    plan = make_plan(
        url=url,
        model=model,
        endpoint=endpoint,
        api_key_file=api_key_file,
        workload=workload or (None if prompts else "chat"),
        prompts_file=prompts,
        prompt_seed=prompt_seed,
        arrivals=arrivals_of(concurrency, rate, arrivals, burstiness, trace),
        requests=requests if requests or duration or trace else 4 * (concurrency or 8),
        duration_s=duration,
        warmup_requests=warmup,
        max_tokens=max_tokens,
        ignore_eos=ignore_eos,
        temperature=temperature,
        seed=seed,
        usage=usage,
        idle_timeout_s=idle_timeout,
        engine=engine,
        metrics_path=metrics_path,
        speculates=speculates,
        metrics_port=metrics_port,
        records_file=spill,
        labels=_labels(url, workload or ("prompts" if prompts else "chat")),
    )
    notes = Console(stderr=True)
    outcome = _watched(plan, notes)
    if records is not None and spill is None:
        write_parquet(outcome.records, records)
    emit(outcome.result.model_dump(mode="json"), json_path)
    print_summary(outcome.result, notes if is_stdout(json_path) else Console())
    raise typer.Exit(exit_code(outcome.result))


def _labels(url: str, workload: str) -> dict[str, str]:
    """Stack and variant of the engine that `outrider serve` published at this URL, so that both meet on a panel."""
    known = discovery.labels_of(url)
    return {name: known[name] for name in ("stack", "variant") if name in known} | {"workload": workload}


def _watched(plan: LoadPlan, notes: Console) -> LoadOutcome:
    if not notes.is_terminal:
        return run_load(plan)
    with notes.status("starting") as status:
        return run_load(plan, on_progress=lambda progress: status.update(progress_line(progress)))


def verify_client_command(
    url: Url,
    model: Model,
    *,
    endpoint: Endpoint = "chat",
    workload: Workload = "chat",
    concurrency: Annotated[int, typer.Option(min=1)] = 4,
    requests: Annotated[int, typer.Option(min=1)] = 32,
    max_tokens: MaxTokens = 64,
    json_path: Json = None,
) -> None:
    """Measure one endpoint with Outrider's client and with `vllm bench serve`, and print both."""
    plan = make_plan(
        url=url,
        model=model,
        endpoint=endpoint,
        workload=workload,
        arrivals={"kind": "closed", "concurrency": concurrency},
        requests=requests,
        max_tokens=max_tokens,
        ignore_eos=True,
    )
    notes = Console(stderr=True)
    with notes.status("running both clients"):
        both = verify(plan)
    emit(both, json_path)
    table = Table("figure", "outrider", "vllm bench serve", "difference", box=None)
    for name, ours in both["outrider"].items():
        theirs, difference = both["vllm_bench"].get(name), both["difference"].get(name)
        table.add_row(name, _number(ours), _number(theirs), "-" if difference is None else f"{difference:+.1%}")
    (notes if is_stdout(json_path) else Console()).print(table)


def arrivals_of(
    concurrency: int | None, rate: float | None, kind: str, burstiness: float, trace: Path | None
) -> dict[str, Any]:
    """Arrivals from the options that give them; exactly one of concurrency, rate and trace."""
    given = [value for value in (concurrency, rate, trace) if value is not None]
    if len(given) != 1:
        raise typer.BadParameter("give exactly one of --concurrency, --rate and --trace")
    if concurrency is not None:
        return {"kind": "closed", "concurrency": concurrency}
    if trace is not None:
        return {"kind": "trace", "file": trace}
    return {"kind": kind, "rate": rate} | ({"burstiness": burstiness} if kind == "gamma" else {})


def make_plan(**fields: Any) -> LoadPlan:
    """A plan, or a message about the option that does not fit."""
    try:
        return LoadPlan(**fields)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, e['loc'])) or 'plan'}: {e['msg']}" for e in error.errors()]
        raise typer.BadParameter("; ".join(faults)) from error


def is_stdout(path: Path | None) -> bool:
    """`--json -`."""
    return path is not None and str(path) == "-"


def emit(data: dict[str, Any], path: Path | None) -> None:
    """Write data where `--json` says."""
    if path is None:
        return
    text = orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()
    if is_stdout(path):
        typer.echo(text)
    else:
        path.write_text(text + "\n", encoding="utf-8")


def exit_code(result: LoadResult) -> int:
    """0 fine, 1 not a measurement, 3 with findings to read."""
    return {"ok": 0, "invalid": 1, "flagged": 3}[result.status]


def write_parquet(records: list[RequestRecord], path: Path) -> None:
    """One row a request."""
    import polars as pl  # noqa: PLC0415 - slow to import, rarely asked for

    rows = [{name: getattr(record, name) for name in RequestRecord.__slots__} for record in records]
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:d}" if isinstance(value, int) else f"{value:.5f}"
