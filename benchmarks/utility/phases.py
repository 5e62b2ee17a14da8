"""Does choosing k at run time keep up with the best static k in each phase of changing traffic, and beat each over all?

    python benchmarks/utility/phases.py [--stack smollm2-h200] [--phase-seconds 10] [--side-by-side] [--out FILE]

Serves a stack's target one variant after the other on this machine: plainly, with each static k, and with the variant
that chooses k (which starts from its stack's schedule, or its k). Each is taken through the same phases of traffic with
the same prompts. The one that chooses keeps what it learnt from phase to phase, as in service, and learns inside the
measured time. Needs a quiet machine: two cores are one engine's worth.

On a machine whose speed drifts, `--side-by-side` keeps all variants up, one of them loaded at a time, and takes each
phase through all of them before the next one: what is compared is then measured within a minute or two. It needs room
for all of them, and the variant that chooses goes into a further round with what it knows.

A target of dummy weights accepts nothing by itself. Where the stack's variants accept synthetically, a phase may say
what: `random-64@8~0.55/0.3/0.17`, the share of drafts accepted up to each position.

Each phase of each variant is one line of the file, written when it ends. A run that was stopped goes on with the
variant that it was at (side by side: with the round); ask for more `--rounds` to repeat a finished one. Ends with 0 if
every promise is kept, with 1 if one is missed or a variant failed, with 2 if it was called wrongly.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from targets import Outcome, doubts, learning
from traffic import Pace, Phase, accept, run_phase, utility_state

from outrider.campaign.engines import Engines
from outrider.engine.vllm_workers import ASKABLE
from outrider.errors import OutriderError, StackError
from outrider.predict.acceptance import Acceptance
from outrider.runtime.local import LocalRuntime
from outrider.stack import Stack, find_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from outrider.campaign.engines import Served
    from outrider.runtime.base import Progress
    from outrider.stack.schema import Variant

SCHEMA = 1
BASELINE = "baseline"
PHASES = ("extraction@1", "chat@8", "code@32", "long-1k@32")
MANY = "chat@128"  # where the stack takes so many
# On CPUs 32 prompts of 1,024 tokens at once are a minute of prefill, in which hardly a step is one that counts.
LONG_ON_CPUS = "long-1k@2"
Row = dict[str, Any]


def choose_phases(stack: Stack, asked: Sequence[str]) -> list[Phase]:
    """The phases asked for, else those of the promise, with 128 users as well where the stack takes them.

    Raises:
        ValueError: a phase is wrong, or has more users than the stack's largest batch, or only some say what is
            accepted.
    """
    most = stack.memory.max_num_seqs or 0
    last = LONG_ON_CPUS if stack.engine.build == "cpu" else PHASES[-1]
    usual = [*PHASES[:-1], *([MANY] if most >= Phase.parse(MANY).users else []), last]
    phases = [Phase.parse(text) for text in asked or usual]
    if large := [str(phase) for phase in phases if phase.users > most]:
        raise ValueError(f"{', '.join(large)}: stack {stack.name} takes {most} users (memory.max_num_seqs)")
    silent = [str(phase) for phase in phases if not phase.rates]
    if 0 < len(silent) < len(phases):
        raise ValueError(f"{', '.join(silent)}: say for every phase what is accepted, or for none")
    return phases


def with_arms(stack: Stack, auto: str, ks: Sequence[int], *, told: bool = False) -> Stack:
    """The stack with what is compared and nothing else: baseline, `k1`, `k3`, ..., and the variant that chooses.

    The latter may choose every k that stands beside it as a static one. Where phases say what is accepted, engines can
    be `told`.

    Raises:
        StackError: the variant is not there, or does not choose, or cannot be told what to accept.
    """
    chooser = stack.variant(auto)
    spec = chooser.speculation
    if spec is None or not spec.auto:
        raise StackError(f"variant {auto} of stack {stack.name} has no `auto: true`", next_step="name one that has")

    if told and "synthetic_acceptance_rates" not in spec.options:
        raise StackError(f"variant {auto} accepts what its target does", next_step="leave rates out of the phases")
    env = {**chooser.env, **(ASKABLE if told else {})}

    def at(k: int, **more: Any) -> Variant:
        changes = {"k": k, "options": told_to_accept(spec.options, k), **more}
        return chooser.model_copy(update={"env": env, "speculation": spec.model_copy(update=changes)})

    static = {f"k{k}": at(k, auto=False, schedule=None) for k in ks}
    largest, most = max(ks), stack.memory.max_num_seqs or 1
    chooses = at(largest, schedule=spec.schedule or ((1, most, min(spec.k, largest)),))
    return stack.model_copy(update={"variants": {BASELINE: stack.variant(BASELINE), **static, auto: chooses}})


def told_to_accept(options: Mapping[str, Any], k: int) -> dict[str, Any]:
    """Options at another k: synthetic acceptance keeps each position's rate, and further ones follow the last.

    Raises:
        StackError: a length is given, which the engine lays on the first positions, so that it means another drafter
            at each k.
    """
    if "synthetic_acceptance_length" in options:
        raise StackError(
            "synthetic_acceptance_length means another drafter at each k",
            next_step="give the variant synthetic_acceptance_rates, one for each position",
        )
    if "synthetic_acceptance_rates" not in options:
        return dict(options)
    known = Acceptance.of_positions(options["synthetic_acceptance_rates"], "synthetic_acceptance_rates")
    rates = [round(known.tokens(n + 1) - known.tokens(n), 4) for n in range(k)]
    return {**options, "synthetic_acceptance_rates": rates}


class Store:
    """The file of rows: a header that says what was asked, then one line a phase and variant."""

    def __init__(self, path: Path, header: Row) -> None:
        """Take up what stands there.

        Raises:
            OutriderError: it is of another plan, or no such file.
        """
        self._path, self._header = path, header
        self.rows: list[Row] = []
        if not path.exists():
            return
        first, rest = _lines(path)
        if differing := [name for name in header if first.get(name) != header[name]]:
            raise OutriderError(
                f"{path} was measured otherwise, and cannot be gone on with",
                evidence="; ".join(f"{name}: {first.get(name)}, now {header[name]}" for name in differing),
                next_step="repeat it as it was, or name another --out",
            )
        self.rows = rest

    def whole(self, number: int, arm: str) -> bool:
        """Whether a variant went through all phases of a round."""
        done = [row["phase"] for row in self.rows if (row["round"], row["arm"]) == (number, arm)]
        return done == self._header["phases"]

    def begin(self, number: int, arm: str) -> None:
        """Forget the phases of a variant that was stopped half way: one that chooses would begin as another."""
        self.rows = [row for row in self.rows if (row["round"], row["arm"]) != (number, arm)]
        partial = self._path.with_name(self._path.name + ".partial")
        partial.write_text("".join(json.dumps(line) + "\n" for line in [self._header, *self.rows]), encoding="utf-8")
        partial.replace(self._path)

    def add(self, row: Row) -> None:
        """Keep a row, on disk before anything else happens."""
        self.rows.append(row)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _lines(path: Path) -> tuple[Row, list[Row]]:
    """Header and rows; a line that was being written when the run was killed is left out."""
    error = ""
    try:
        first, *rest = map(json.loads, path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines())
        if isinstance(first, dict) and "schema" in first:
            return first, rest
    except ValueError as fault:
        error = f": {fault}"
    raise OutriderError(f"{path} is no file of this benchmark{error}", next_step="name another --out")


class Clock:
    """Says how far it is, and how long the rest will take by what came before."""

    def __init__(self, starts: int, phases: int, phase_s: float) -> None:
        """So much is left to do; a phase takes a little more than its measured time."""
        self._starts, self._phases = starts, phases
        self._start_s, self._phase_s = 30.0, phase_s + 2.0

    def started(self, seconds: float) -> None:
        """An engine is up."""
        self._starts -= 1
        self._start_s = seconds

    def measured(self, seconds: float) -> None:
        """A phase has ended."""
        self._phases -= 1
        self._phase_s = seconds

    def __str__(self) -> str:
        left = self._starts * self._start_s + self._phases * self._phase_s
        return f"about {left / 60:.1f} min left" if left >= 60 else f"about {left:.0f} s left"


def say(text: str) -> None:
    """Progress goes beside the result, not into it."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def every_tenth() -> Callable[[str, Progress], None]:
    """Reports an engine's start in steps of 10 %."""
    last: dict[str, int] = {}

    def show(arm: str, progress: Progress) -> None:
        tenth = int((progress.share or 0.0) * 10)
        if tenth > last.get(arm, 0):
            last[arm] = tenth
            say(f"{arm}: starting, {tenth * 10} %")

    return show


class Run:
    """One measurement: what is compared, on which traffic, and where it is kept."""

    def __init__(self, stack: Stack, store: Store, phases: Sequence[Phase], pace: Pace, log: Path) -> None:
        """Nothing is started yet; `log` takes the lines in which the variant that chooses says why."""
        self._stack, self._store, self._phases, self._pace, self._log = stack, store, phases, pace, log
        self._arms = list(stack.variants)
        self._clock = Clock(0, 0, pace.seconds)

    def one_after_the_other(self, rounds: int) -> list[str]:
        """Fill the store; returns why variants failed. Every second round goes through the variants backwards."""
        order = [(number, arm) for number in range(rounds) for arm in self._arms_of(number)]
        todo = [one for one in order if not self._store.whole(*one)]
        self._clock = Clock(len(todo), len(todo) * len(self._phases), self._pace.seconds)
        failed = list[str]()
        with self._engines(side_by_side=False) as engines:
            for number, arm in todo:
                say(f"round {number + 1} of {rounds}, {arm}: {self._clock}")
                self._store.begin(number, arm)
                try:
                    served = self._serve(engines, arm)
                    with self._keeping_reasons(served, number):
                        for index in range(len(self._phases)):
                            self._take(served, number, index)
                except OutriderError as error:
                    say(str(error))
                    failed.append(f"{arm}: {error.cause}")
                engines.stop_all()
        return failed

    def side_by_side(self, rounds: int) -> list[str]:
        """Likewise with all variants up; the first error ends it."""
        todo = [number for number in range(rounds) if not all(self._store.whole(number, arm) for arm in self._arms)]
        self._clock = Clock(len(self._arms), len(todo) * len(self._arms) * len(self._phases), self._pace.seconds)
        try:
            with self._engines(side_by_side=True) as engines:
                served = {arm: self._serve(engines, arm) for arm in (self._arms if todo else ())}
                for number in todo:
                    say(f"round {number + 1} of {rounds}: {self._clock}")
                    for arm in self._arms:
                        self._store.begin(number, arm)
                    with ExitStack() as reasons:
                        for one in served.values():
                            reasons.enter_context(self._keeping_reasons(one, number))
                        for index in range(len(self._phases)):
                            for arm in self._arms_of(number + index):
                                self._take(served[arm], number, index)
        except OutriderError as error:
            say(str(error))
            return [error.cause]
        return []

    def _arms_of(self, number: int) -> list[str]:
        return self._arms[::-1] if number % 2 else self._arms

    @contextmanager
    def _engines(self, *, side_by_side: bool) -> Iterator[Engines]:
        with (
            tempfile.TemporaryDirectory() as state,
            Engines(
                self._stack, LocalRuntime(Path(state)), side_by_side=side_by_side, on_progress=every_tenth()
            ) as engines,
        ):
            yield engines

    def _serve(self, engines: Engines, arm: str) -> Served:
        began = time.monotonic()
        served = engines.get(arm)
        self._clock.started(time.monotonic() - began)
        return served

    def _chooses(self, arm: str) -> bool:
        spec = self._stack.variant(arm).speculation
        return spec is not None and spec.auto

    def _take(self, served: Served, number: int, index: int) -> None:
        """Load an engine with a phase and keep what came out."""
        began, phase, arm, url = time.monotonic(), self._phases[index], served.variant, served.running.url
        facts = {
            name: getattr(served.facts, name) for name in ("version", "model_runner", "graph_mode", "attention_backend")
        }
        spec = self._stack.variant(arm).speculation
        if phase.rates and spec is not None:
            accept(url, phase, spec.k)
        # Other salts in other rounds: an engine that stays up would find the prompts of the round before in its cache.
        row = run_phase(self._stack, url, phase, self._pace, seed=index, salt=str(number))
        row = {"round": number, "arm": arm, **row, "engine": facts}
        if self._chooses(arm):
            row["utility"] = utility_state(url)
        self._store.add(row)
        self._clock.measured(time.monotonic() - began)
        say(f"{arm}, {phase}: TPOT {row['tpot_s'] * 1e3:.2f} ms over {row['requests']} requests, {self._clock}")

    @contextmanager
    def _keeping_reasons(self, served: Served, number: int) -> Iterator[None]:
        """Append what the variant that chooses logged meanwhile, however that ended."""
        before = len(_reasons(served)) if self._chooses(served.variant) else 0
        try:
            yield
        finally:
            if self._chooses(served.variant):
                with self._log.open("a", encoding="utf-8") as file:
                    file.writelines(f"round {number}: {line}\n" for line in _reasons(served)[before:])


def _reasons(served: Served) -> list[str]:
    return [line for line in served.running.log_lines() if "utility:" in line]


def report(rows: Sequence[Row], static: Sequence[str], auto: str) -> bool:
    """Print what came out; whether every promise is kept."""
    outcome = Outcome(rows, static, auto)
    print("Output tokens a second of all users while they decode; ratios with their 95 % interval over prompts.\n")
    print("\n".join([*outcome.table(), "", *learning(rows), ""]))
    verdicts = outcome.verdicts()
    print("\n".join(map(str, verdicts)))
    print(outcome.ceiling())
    for doubt in [*outcome.thin(), *doubts(rows)]:
        print(f"Doubt: {doubt}")
    return all(verdict.reached for verdict in verdicts)


def arguments() -> argparse.ArgumentParser:
    """Options; defaults that are not shown depend on the stack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", default="smollm2-cpu", help="name or file")
    parser.add_argument("--auto", default="eagle3-auto", help="its variant that chooses k")
    parser.add_argument("--static-k", type=int, nargs="+", default=[1, 3, 5], help="fixed k that stand beside it")
    usual = " ".join(PHASES)
    parser.add_argument("--phases", nargs="+", default=[], help=f"WORKLOAD@USERS[~RATES] ...; {usual} and more")
    parser.add_argument("--phase-seconds", type=float, default=10.0, help="measured time of a phase")
    parser.add_argument("--side-by-side", action="store_true", help="all variants up, one loaded at a time")
    parser.add_argument("--rounds", type=int, default=1, help="how often all of it is done")
    parser.add_argument("--max-tokens", type=int, help="of an answer; 512 on a GPU, 128 on CPUs")
    parser.add_argument("--stream-interval", type=int, help="tokens a chunk; 16 on a GPU, 1 on CPUs")
    parser.add_argument(
        "--out", type=Path, default=Path("phases.jsonl"), help="rows; what stands there is gone on with"
    )
    parser.add_argument("--report", action="store_true", help="measure nothing, print what --out holds")
    return parser


def main() -> None:
    """Measure what is not there yet, and print."""
    parser = arguments()
    asked = parser.parse_args()
    if asked.phase_seconds <= 0 or asked.rounds < 1 or min(asked.static_k) < 1:
        parser.error("--phase-seconds, --rounds and --static-k must be positive")
    try:
        stack = find_stack(asked.stack)
        phases = choose_phases(stack, asked.phases)
        gpu = stack.engine.build == "cuda"
        pace = Pace(
            asked.phase_seconds, asked.max_tokens or (512 if gpu else 128), asked.stream_interval or (16 if gpu else 1)
        )
        compared = with_arms(stack, asked.auto, sorted(set(asked.static_k)), told=bool(phases[0].rates))
        arms = list(compared.variants)
        header = {
            "schema": SCHEMA, "stack": stack.name, "stack_digest": compared.digest(), "arms": arms,
            "phases": [str(phase) for phase in phases], "phase_seconds": pace.seconds, "max_tokens": pace.max_tokens,
            "stream_interval": pace.stream_interval,
        } | ({"side_by_side": True} if asked.side_by_side else {})  # fmt: skip
        store = Store(asked.out, header)
    except ValueError as error:
        parser.error(str(error))
    except OutriderError as error:
        say(str(error))
        sys.exit(2)
    log = asked.out.with_suffix(".log")
    run, failed = Run(compared, store, phases, pace, log), list[str]()
    if not asked.report:
        failed = run.side_by_side(asked.rounds) if asked.side_by_side else run.one_after_the_other(asked.rounds)
    rounds = {n for n in {row["round"] for row in store.rows} if all(store.whole(n, arm) for arm in arms)}
    if not rounds:
        say(f"no round is whole yet: {'; '.join(failed) or 'go on with the same command'}")
        sys.exit(1)
    try:
        kept = report([row for row in store.rows if row["round"] in rounds], arms[:-1], arms[-1])
    except ValueError as error:
        say(str(error))
        sys.exit(1)
    sys.exit(0 if kept and not failed else 1)


if __name__ == "__main__":
    main()
