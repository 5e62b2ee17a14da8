from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.predict.made import centre, flagship, made_cells

from outrider.predict.errors import PredictError
from outrider.predict.model import drafted_k, step_s
from outrider.predict.observations import Observation
from outrider.predict.places import Places
from outrider.predict.session import open_session
from outrider.predict.shares import Shares, read_shares
from outrider.predict.surface import Prediction, Wanted, predict
from outrider.predict.traffic import machine_of
from outrider.predict.yields import pooled_yields
from outrider.stack import find_stack, stack_from_text
from outrider.stack.loader import stacks_dir

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.predict.session import Session

STACK = flagship()
TRUTH = replace(centre(machine_of(STACK)), expert_stream=0.5, hop=1.3, link=1.2, kv_stream=0.9)
GRID = [(b, c, k) for b in (1, 4, 16, 64) for c in (256.0, 16384.0) for k in (0, 3)]
PROFILE = Shares(0.0121, 0.515, 0.153, 0.134, 0.111)


def ask(session: Session, *wanted: Wanted) -> list[Prediction]:
    return predict(session.fit, wanted, session.draft_bytes, acceptance=session.acceptance)


def width(session: Session, wanted: Wanted = Wanted("eagle3", 3, 8, 4096)) -> float:  # noqa: B008
    gain = ask(session, wanted)[0].speedup
    assert gain is not None
    return gain.relative_half_width


def test_a_fit_finds_speedups_that_it_was_not_shown() -> None:
    session = open_session(STACK, made_cells(STACK, TRUTH, GRID, noise=0.02))
    held = [(8, 4096.0, 0), (8, 4096.0, 3), (32, 8192.0, 0), (32, 8192.0, 3)]
    for plain, fast in zip(*[iter(made_cells(STACK, TRUTH, held))] * 2, strict=True):
        found = ask(session, Wanted("eagle3", 3, fast.batch, fast.context))[0].speedup
        assert found is not None
        assert found.mid == pytest.approx(fast.rate / plain.rate, rel=0.06)
        assert not found.excludes(fast.rate / plain.rate)


def test_each_kind_of_evidence_narrows_the_interval() -> None:
    cells = made_cells(STACK, TRUTH, GRID, noise=0.02)
    plain = [c for c in cells if not c.k]
    widths = [
        width(open_session(STACK, acceptance="al=2.2")),
        width(open_session(STACK, shares=PROFILE, acceptance="al=2.2")),
        width(open_session(STACK, plain, acceptance="al=2.2")),
        width(open_session(STACK, cells)),
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < widths[0] / 2


def test_one_cell_is_taken_and_leaves_the_interval_wide() -> None:
    one = width(open_session(STACK, made_cells(STACK, TRUTH, GRID[:1]), acceptance="al=2.2"))
    assert one > 1.5 * width(open_session(STACK, made_cells(STACK, TRUTH, GRID, noise=0.02)))


def test_intervals_widen_outside_the_cells_and_say_so() -> None:
    session = open_session(STACK, made_cells(STACK, TRUTH, [p for p in GRID if p[0] <= 16 and p[1] < 1000], noise=0.02))
    near, far = ask(session, Wanted("eagle3", 3, 4, 256), Wanted("eagle3", 3, 128, 65536))
    assert not near.extrapolated
    assert far.extrapolated
    assert far.octaves_outside > 5
    assert near.speedup is not None
    assert far.speedup is not None
    assert far.speedup.relative_half_width > 1.5 * near.speedup.relative_half_width


def test_the_same_cells_give_the_same_answer() -> None:
    cells = made_cells(STACK, TRUTH, GRID, noise=0.02)
    first, second = (ask(open_session(STACK, cells, draws=8), Wanted("eagle3", 3, 8, 4096)) for _ in range(2))
    assert first == second


def test_break_even_tokens_are_the_step_cost_ratio() -> None:
    session = open_session(STACK, acceptance="al=2.2")
    found = ask(session, Wanted("eagle3", 3, 8, 4096))[0]
    assert found.speedup is not None
    assert found.step_cost_ratio is not None
    assert found.tokens_per_step / found.step_cost_ratio.mid == pytest.approx(found.speedup.mid)


def test_uncounted_tokens_are_asked_for() -> None:
    cells = [replace(c, tokens_per_step=None) if c.k else c for c in made_cells(STACK, TRUTH, GRID)]
    with pytest.raises(PredictError, match="how many tokens a step"):
        open_session(STACK, cells)


def test_a_variant_without_any_known_yield_is_refused() -> None:
    with pytest.raises(PredictError, match="--acceptance"):
        ask(open_session(STACK, draws=0), Wanted("ngram", 3, 1, 256))


def test_more_tokens_than_a_block_drafter_proposes_are_refused() -> None:
    with pytest.raises(PredictError, match="at most 7"):
        open_session(STACK, draws=0).check_k("dflash", 8)


def test_yields_reach_other_k_by_constant_conditional_acceptance() -> None:
    session = open_session(STACK, made_cells(STACK, TRUTH, GRID))
    one, five = ask(session, Wanted("eagle3", 1, 4, 256), Wanted("eagle3", 5, 4, 256))
    assert 1 < one.tokens_per_step < 2.2 < five.tokens_per_step < 6


def test_a_profile_is_met_part_by_part() -> None:
    session = open_session(STACK, shares=PROFILE, draws=0)
    parts = ask(session, Wanted("baseline", 0, 1, 512))[0]
    assert parts.step_s.mid == pytest.approx(0.0121, rel=0.03)
    assert parts.parts_s["allreduce"] / parts.step_s.mid == pytest.approx(0.515, abs=0.05)
    assert parts.parts_s["experts"] / parts.step_s.mid == pytest.approx(0.111, abs=0.03)


@pytest.mark.parametrize(
    "text",
    ['{"step_ms": 12.1}', '{"step_ms": 12.1, "shares": {"allreduce": 51.5}}', "{", '{"step_ms": -1, "shares": {}}'],
)
def test_what_is_no_profile_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "profile.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PredictError):
        read_shares(file)


def test_a_profile_is_read(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    shares = {"allreduce": 0.515, "attention": 0.153, "other_gemm": 0.134, "moe_gemm": 0.111}
    file.write_text(json.dumps({"step_ms": 12.1, "shares": shares}), encoding="utf-8")
    assert replace(read_shares(file), source="profile") == PROFILE


def test_forcing_one_protocol_leaves_one_link() -> None:
    text = (stacks_dir() / "kimi-k2.5-rtx6000x8.yaml").read_text(encoding="utf-8")
    free = stack_from_text(text.replace("    NCCL_PROTO: LL\n", ""))
    assert len(machine_of(STACK).links) == 1
    assert len(machine_of(free).links) == 2


def looked_up(share: float, load: int = 4, *, positions: tuple[float, ...] = (0.8, 0.7, 0.6)) -> Observation:
    """A cell of a look-up that found something at a share of the steps."""
    tokens = 1 + share * sum(positions)
    return Observation("made", "ngram", "edit", 3, load, 512.0, 1, 40.0, tokens, positions, drafted=share)


def test_a_look_up_yields_what_its_steps_yield_not_what_its_drafts_do() -> None:
    acceptance = pooled_yields([looked_up(0.4)]).acceptance("ngram", "edit")
    assert acceptance is not None
    assert acceptance.tokens(3) == pytest.approx(1 + 0.4 * 2.1)
    drafter = pooled_yields([replace(looked_up(1.0), variant="eagle3")]).acceptance("eagle3", "edit")
    assert drafter is not None
    assert drafter.tokens(3) == pytest.approx(3.1)


def test_a_step_costs_by_the_share_that_drafts() -> None:
    cpu = find_stack("smollm2-cpu")
    plain = Observation("made", "baseline", "edit", 0, 4, 512.0, 1, 40.0, 1.0)
    costs = []
    for share in (0.1, 0.5, 1.0):
        session = open_session(cpu, [plain, looked_up(share)], draws=0)
        at = Places.of([(4, 512.0, drafted_k(3, session.fit.yields.share("ngram", "edit")), 1, 0.0)])
        costs.append(float(step_s(session.fit.machine, at, centre(session.fit.machine))[0]))
    base = float(step_s(session.fit.machine, Places.of([(4, 512.0, 0, 1, 0.0)]), centre(session.fit.machine))[0])
    assert base < costs[0] < costs[1] < costs[2]
    # What grows is the tokens that are verified; the look-up itself runs at every step.
    assert (costs[1] - costs[0]) / (costs[2] - costs[1]) == pytest.approx(0.4 / 0.5, rel=0.02)


def test_a_workload_that_was_not_measured_takes_the_mean_share() -> None:
    yields = pooled_yields([looked_up(0.4), replace(looked_up(0.1), workload="chat")])
    assert yields.share("ngram", "chat") == pytest.approx(0.1)
    assert yields.share("ngram", "code") == pytest.approx(0.25)
    assert yields.share("eagle3", "chat") == 1.0
