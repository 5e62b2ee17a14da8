"""`outrider predict run` and `outrider predict validate`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from outrider.predict.documents import run_json, validation_json
from outrider.predict.errors import PredictError
from outrider.predict.holdout import matches
from outrider.predict.observations import read_observations
from outrider.predict.room import fitting
from outrider.predict.session import Session, open_session
from outrider.predict.shares import read_shares
from outrider.predict.surface import Wanted, predict
from outrider.predict.transfer import transfer
from outrider.predict.validate import regions, validate
from outrider.predict.view import fit_text, predictions_table, validation_table, write_plot
from outrider.stack import find_stack

if TYPE_CHECKING:
    from outrider.stack import Stack

_CONTEXTS = (1024, 16384, 65536)

StackArgument = Annotated[str, typer.Argument(help="Name of a shipped stack, or a YAML file.")]
JsonOption = Annotated[str | None, typer.Option("--json", metavar="PATH", help="Write JSON; - is standard output.")]
ConfigOption = Annotated[Path | None, typer.Option(help="config.json of the target, if Outrider does not know it.")]


def predict_run(
    stack: StackArgument,
    cells: Annotated[Path | None, typer.Option(help="cells.jsonl, step-cost lines, or the CSV form.")] = None,
    cells_of: Annotated[
        str | None, typer.Option(help="Stack that the cells belong to, if another: a shape of fewer layers.")
    ] = None,
    profile: Annotated[Path | None, typer.Option(help="Decode profile: step_ms and shares, as JSON.")] = None,
    variants: Annotated[list[str] | None, typer.Option("--variant", help="Only these; may be repeated.")] = None,
    k: Annotated[str | None, typer.Option(help="3, 1..7, or 1,3,5. Default: each variant's own.")] = None,
    acceptance: Annotated[
        str | None, typer.Option(help="al=2.5, rate=0.5, conditional=0.7, or 0.7,0.5,0.35 by position.")
    ] = None,
    contexts: Annotated[
        list[int] | None, typer.Option("--context", min=0, help="Tokens in the cache; may be repeated.")
    ] = None,
    concurrency: Annotated[
        list[int] | None, typer.Option("--concurrency", min=1, help="May be repeated. Default: the stack's.")
    ] = None,
    dcp: Annotated[int | None, typer.Option(min=1, help="Decode context parallelism. Default: the stack's.")] = None,
    config: ConfigOption = None,
    plot: Annotated[Path | None, typer.Option(help="Write a chart of where the time goes (HTML).")] = None,
    json_to: JsonOption = None,
) -> None:
    """Predict step time, rate and speedup, each with an interval, from whatever evidence there is."""
    chosen = find_stack(stack)
    measured = find_stack(cells_of) if cells_of else chosen
    observed = read_observations(cells, measured) if cells else []
    session = open_session(
        chosen,
        observed if measured is chosen else (),
        shares=read_shares(profile) if profile else None,
        acceptance=acceptance,
        config=read_config(config),
    )
    if measured is not chosen:
        session = replace(session, fit=transfer(open_session(measured, observed).fit, session.fit.machine))
    wanted = wanted_places(session, variants or [], k, contexts or [], concurrency or [], dcp)
    inside, outside = fitting(chosen, wanted)
    found = predict(session.fit, inside, session.draft_bytes, acceptance=session.acceptance)
    if json_to:
        _write(json_to, run_json(chosen, session.fit, found))
    if plot:
        write_plot(plot, found, chosen.title)
    if json_to == "-":
        return
    console = Console(highlight=False)
    console.print(predictions_table(found, f"{chosen.name}: predicted"))
    console.print(fit_text(session.fit), soft_wrap=True)
    for text in dict.fromkeys(f"{p.at.variant}: tokens per step {p.yield_source}" for p in found if p.at.k):
        console.print(text)
    if outside:
        console.print(f"{len(outside)} places are left out: their tokens do not fit into the KV cache")
    if far := [p for p in found if p.extrapolated and p.at.k]:
        console.print(
            f"[yellow]{len(far)} of these lie more than an octave outside the measured cells: their intervals are "
            "wider, and a cell there is worth more than any formula[/]"
        )


def predict_validate(
    stack: Annotated[str, typer.Option(help="Name of a shipped stack, or a YAML file.")],
    cells: Annotated[Path, typer.Option(help="Cells to fit to.")],
    holdout: Annotated[str | None, typer.Option(help="Cells kept out of the fit, e.g. 'dcp==4'.")] = None,
    test: Annotated[Path | None, typer.Option(help="Other cells to test on.")] = None,
    test_of: Annotated[
        str | None, typer.Option(help="Stack that these belong to, if another: the same target with other k, say.")
    ] = None,
    config: ConfigOption = None,
    json_to: JsonOption = None,
) -> None:
    """Fit to some cells, predict others, and compare the errors with two predictors that know no physics."""
    if (holdout is None) == (test is None):
        raise typer.BadParameter("give one of --holdout and --test")
    if test_of and test is None:
        raise typer.BadParameter("--test-of says whose cells --test has")
    chosen = find_stack(stack)
    other = find_stack(test_of) if test_of else chosen
    observed = read_observations(cells, chosen)
    if test is not None:
        fitted, tested = observed, read_observations(test, other)
    else:
        held = [matches(holdout or "", cell.columns()) for cell in observed]
        fitted = [cell for cell, out in zip(observed, held, strict=True) if not out]
        tested = [cell for cell, out in zip(observed, held, strict=True) if out]
        if not fitted or not tested:
            raise PredictError(
                f"--holdout {holdout!r} splits nothing",
                evidence=f"{len(tested)} cells held out, {len(fitted)} left to fit",
                next_step="choose a condition that some cells meet and others do not",
            )
    session = open_session(chosen, fitted, config=read_config(config))
    # The tested variants are the other stack's, and so is what their drafters weigh.
    draft_bytes = (session if other is chosen else open_session(other, (), config=read_config(config))).draft_bytes
    found = validate(session.fit, tested, draft_bytes, acceptance=session.acceptance)
    if json_to:
        _write(json_to, validation_json(chosen, session.fit, found))
    if json_to == "-":
        return
    console = Console(highlight=False)
    console.print(validation_table(found))
    console.print(fit_text(session.fit), soft_wrap=True)
    console.print(f"measured speedups inside their 95 % interval: {found.coverage:.0%}")
    for row in regions(found):
        console.print(
            f"  {row['context']}, batch {row['batch']}: {row['n']} cells, mean error {row['mean_error']:.1%}, "
            f"bias {row['bias']:+.1%}"
        )


def wanted_places(
    session: Session, variants: list[str], k: str | None, contexts: list[int], concurrency: list[int], dcp: int | None
) -> list[Wanted]:
    """Every place that is asked for: baseline and each variant and k, by context and concurrency.

    Raises:
        PredictError: a k beyond the drafter, or no variant whose yield is known.
    """
    stack: Stack = session.stack
    names = variants or session.speculating()
    ks = parse_k(k) if k else []
    choices: list[tuple[str, int]] = [("baseline", 0)]
    for name in names:
        spec = stack.variant(name).speculation
        if spec is None:
            continue
        for depth in ks or [spec.k]:
            session.check_k(name, depth)
            choices.append((name, depth))
    limit = stack.target.max_model_len
    lengths = contexts or [length for length in _CONTEXTS if length <= limit] or [limit // 2]
    users = concurrency or list(stack.campaign.concurrency)
    ranks = dcp or session.fit.machine.context_ranks
    return [
        Wanted(name, depth, batch, float(length), ranks)
        for length in lengths
        for batch in users
        for name, depth in choices
    ]


def parse_k(text: str) -> list[int]:
    """`3`, `1..7`, or `1,3,5`.

    Raises:
        PredictError: none of these, or a value outside 1-64.
    """
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split("..", 1))
            found = list(range(first, last + 1))
        else:
            found = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise PredictError(f"--k {text!r} is no number of tokens", next_step="write 3, 1..7 or 1,3,5") from error
    if not found or not all(1 <= value <= 64 for value in found):
        raise PredictError(f"--k {text!r} is out of range", next_step="speculative tokens are 1 to 64")
    return found


def read_config(file: Path | None) -> dict[str, Any] | None:
    """A config.json, if one was given."""
    if file is None:
        return None
    try:
        data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PredictError(f"cannot read {file}", evidence=str(error)) from error
    return data


def _write(place: str, data: dict[str, Any]) -> None:
    text = json.dumps(data, indent=2)
    if place == "-":
        sys.stdout.write(text + "\n")
    else:
        Path(place).write_text(text + "\n", encoding="utf-8")
