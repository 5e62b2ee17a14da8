"""The belief over a grid: conditioning is exact, pairing cancels a slow block, and evidence travels where it should."""

from __future__ import annotations

import math

import numpy as np
import pytest

from outrider.decide.belief import Belief, Seen
from outrider.decide.information import Doubt, best_actions, contests_of
from outrider.predict.session import open_session, reported
from outrider.predict.surface import Wanted
from outrider.stack import find_stack

STACK = find_stack("smollm2-cpu")
SITES = [
    Wanted(name, 3 if name != "baseline" else 0, load, 128.0, 1, workload)
    for workload in ("edit", "chat")
    for load in (1, 4)
    for name in ("baseline", "ngram", "eagle3")
]
INDEX = {(s.variant, s.workload, s.batch): i for i, s in enumerate(SITES)}


@pytest.fixture(scope="module")
def prior() -> Belief:
    session = open_session(STACK, draws=0)
    return Belief.prior(session.fit.machine, SITES, session.draft_bytes, lambda s: reported(STACK, s.variant))


def seen(variant: str, workload: str, load: int, tpot_s: float, tokens: float | None = None, block: int = 0) -> Seen:
    return Seen(INDEX[variant, workload, load], (workload, load, block), tpot_s, tokens)


def gain(belief: Belief, variant: str, workload: str, load: int) -> tuple[float, float]:
    mean, cov = belief.gains([INDEX["baseline", workload, load]], [INDEX[variant, workload, load]])
    return math.exp(float(mean[0])), math.sqrt(float(cov[0, 0]))


def test_the_prior_is_a_covariance(prior: Belief) -> None:
    assert np.allclose(prior.cov, prior.cov.T)
    assert np.linalg.eigvalsh(prior.cov).min() > -1e-9


def test_a_block_that_is_twice_as_slow_says_the_same_about_speedups(prior: Belief) -> None:
    quick = prior.given([seen("baseline", "edit", 1, 0.02), seen("eagle3", "edit", 1, 0.0125, 2.4)])
    slow = prior.given([seen("baseline", "edit", 1, 0.04), seen("eagle3", "edit", 1, 0.025, 2.4)])
    assert gain(quick, "eagle3", "edit", 1)[0] == pytest.approx(1.6, rel=0.05)
    assert gain(slow, "eagle3", "edit", 1)[0] == pytest.approx(1.6, rel=0.08)


def test_acceptance_carries_over_to_another_load_and_cost_to_another_workload(prior: Belief) -> None:
    some = prior.given([
        seen("baseline", "edit", 1, 0.018), seen("ngram", "edit", 1, 0.0112, 2.0),
        seen("baseline", "chat", 4, 0.020), seen("ngram", "chat", 4, 0.0215, 1.12),
    ])  # fmt: skip
    for place in (("edit", 4), ("chat", 1)):
        before, after = gain(prior, "ngram", *place), gain(some, "ngram", *place)
        assert after[1] < 0.6 * before[1]
    assert gain(some, "ngram", "edit", 4)[0] > gain(some, "ngram", "chat", 1)[0]


def test_what_a_measurement_would_leave_is_what_it_leaves(prior: Belief) -> None:
    cells = [(INDEX["baseline", "chat", 1], ("chat", 1, 0)), (INDEX["eagle3", "chat", 1], ("chat", 1, 0))]
    expected, moves = prior.after(cells)
    assert np.allclose(prior.cov - moves @ moves.T, expected.cov)
    shown = prior.given([seen("baseline", "chat", 1, 0.018), seen("eagle3", "chat", 1, 0.0125, 2.2)])
    same_noise = gain(expected, "eagle3", "chat", 1)[1]
    assert gain(shown, "eagle3", "chat", 1)[1] == pytest.approx(same_noise, rel=0.5)


def test_a_lucky_prompt_set_raises_count_and_speed_together(prior: Belief) -> None:
    # Twice the tokens a step at half the time per token: the same step, so the step's cost must not move.
    step = INDEX["eagle3", "chat", 1]
    usual = prior.given([seen("eagle3", "chat", 1, 0.02, 2.0)])
    lucky = prior.given([seen("eagle3", "chat", 1, 0.016, 2.5)])
    assert lucky.mean[step] == pytest.approx(usual.mean[step], abs=0.02)


def test_doubt_is_where_the_interval_straddles_parity(prior: Belief) -> None:
    known = prior.given([
        seen("baseline", "edit", 1, 0.018), seen("ngram", "edit", 1, 0.009, 2.2),
        seen("eagle3", "edit", 1, 0.018, 2.4),
        seen("baseline", "chat", 1, 0.018), seen("ngram", "chat", 1, 0.018, 1.1),
        seen("eagle3", "chat", 1, 0.0178, 2.2),
    ])  # fmt: skip
    losses = Doubt(known).expected_losses()
    by_place = {key[:2]: loss for key, loss in losses.items()}  # type: ignore[index]
    assert by_place["edit", 1] < 0.001 < by_place["chat", 1]
    assert [c.plain for c in contests_of(known)] == [INDEX["baseline", w, c] for w in ("edit", "chat") for c in (1, 4)]


def test_actions_keep_within_the_cells_that_are_left(prior: Belief) -> None:
    pair = tuple((INDEX[v, "edit", 1], 0) for v in ("baseline", "ngram"))
    trio = tuple((INDEX[v, "chat", 1], 0) for v in ("baseline", "ngram", "eagle3"))
    assert best_actions(prior, [pair, trio], most_cells=2, least=0.0) == [pair]
    assert best_actions(prior, [pair, trio], most_cells=1, least=0.0) == []
    assert set(best_actions(prior, [pair, trio], most_cells=5, rounds=4, least=0.0)) == {pair, trio}
    assert best_actions(prior, [pair], most_cells=5, least=100.0) == []
