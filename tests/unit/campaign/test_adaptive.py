"""Which cells an adaptive campaign measures, and what it says about those that it leaves out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.campaign.made import cell

from outrider.campaign.plan import CampaignPlan
from outrider.decide.adaptive import AdaptiveCampaign, read_verdicts, verdicts_json
from outrider.decide.errors import DecideError
from outrider.stack import find_stack

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.campaign.cell import Cell, CellKey

# Speedups by variant, workload and load: look-up pays where text repeats, the drafter while few are served.
GAINS = {
    ("ngram", "edit", 1): 1.60, ("ngram", "edit", 4): 1.50, ("ngram", "chat", 1): 0.95, ("ngram", "chat", 4): 0.93,
    ("eagle3", "edit", 1): 1.35, ("eagle3", "edit", 4): 1.10, ("eagle3", "chat", 1): 1.40, ("eagle3", "chat", 4): 0.94,
}  # fmt: skip
BEST = {("edit", 1): "ngram", ("edit", 4): "ngram", ("chat", 1): "eagle3", ("chat", 4): "baseline"}
YIELDS = {("ngram", "edit"): 2.0, ("ngram", "chat"): 1.12, ("eagle3", "edit"): 2.35, ("eagle3", "chat"): 2.15}
# The machine's own speed by repeat: a block is slow or fast as a whole.
SPEED = {0: 1.0, 1: 1.3}


def plan(**changes: object) -> CampaignPlan:
    return CampaignPlan.for_stack(find_stack("smollm2-cpu")).model_copy(update=changes)


def measure(key: CellKey, *, broken: bool = False) -> Cell:
    """The cell that an engine of these gains gives."""
    base = 0.018 * key.concurrency**0.1 * SPEED[key.repeat]
    gain = GAINS.get((key.variant, key.workload, key.concurrency), 1.0)
    made = cell(key.variant, key.workload, key.concurrency, key.repeat, tpot_s=base / gain,
                error="the engine died" if broken else None)  # fmt: skip
    tokens = YIELDS.get((key.variant, key.workload), 1.0)
    return made if broken else made.model_copy(update={"tokens_per_step": tokens})


def run(campaign: AdaptiveCampaign, *, broken: bool = False) -> list[Cell]:
    cells: list[Cell] = []
    while keys := campaign.choose(cells):
        assert not {c.key for c in cells} & set(keys)
        cells += [measure(key, broken=broken) for key in keys]
    return cells


@pytest.mark.parametrize("side_by_side", [True, False])
def test_two_fifths_of_the_default_grid_decide_every_place(side_by_side: bool) -> None:
    campaign = AdaptiveCampaign(find_stack("smollm2-cpu"), plan(co_resident=side_by_side), share=0.4)
    cells = run(campaign)
    assert len(cells) <= 0.4 * len(plan(co_resident=side_by_side).cells())
    assert {(v.workload, v.concurrency): v.variant for v in campaign.verdicts(cells)} == BEST


def test_no_speculative_cell_is_measured_without_its_plain_partner() -> None:
    cells = run(AdaptiveCampaign(find_stack("smollm2-cpu"), plan(), share=0.6))
    plain = {(c.workload, c.concurrency, c.repeat) for c in cells if c.variant == "baseline"}
    assert {(c.workload, c.concurrency, c.repeat) for c in cells} == plain


def test_a_second_repeat_goes_where_the_first_left_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GAINS, ("eagle3", "chat", 4), 1.01)
    cells = run(AdaptiveCampaign(find_stack("smollm2-cpu"), plan(), share=1.0))
    again = {(c.workload, c.concurrency) for c in cells if c.repeat == 1}
    assert ("chat", 4) in again
    assert ("chat", 1) not in again
    assert len(cells) < 24


def test_a_place_that_was_not_measured_is_told_so_with_a_wider_interval() -> None:
    campaign = AdaptiveCampaign(find_stack("smollm2-cpu"), plan(), share=0.4)
    cells = [measure(k) for k in plan().cells() if not k.repeat and (k.workload, k.concurrency) != ("edit", 1)]
    verdicts = {(v.workload, v.concurrency): v for v in campaign.verdicts(cells)}
    blind, seen = verdicts["edit", 1], verdicts["edit", 4]
    assert blind.measured == ()
    assert blind.variant == "ngram"
    assert "not measured here" in blind.told
    widths = [v.speedups["ngram"].high / v.speedups["ngram"].low for v in (blind, seen)]
    assert widths[0] > widths[1]
    assert 1.3 < blind.speedups["ngram"].mid < 1.9


def test_an_engine_that_always_dies_ends_it() -> None:
    cells = run(AdaptiveCampaign(find_stack("smollm2-cpu"), plan(), share=0.4), broken=True)
    assert len(cells) == len({c.key for c in cells}) <= 9


def test_the_same_cells_lead_to_the_same_next_ones() -> None:
    campaign = AdaptiveCampaign(find_stack("smollm2-cpu"), plan(), share=0.5)
    first = campaign.choose([])
    assert first == campaign.choose([])
    assert {key.repeat for key in first} == {0}


def test_verdicts_are_read_back_as_they_were(tmp_path: Path) -> None:
    campaign = AdaptiveCampaign(find_stack("smollm2-cpu"), plan(), share=0.4)
    verdicts = campaign.verdicts([measure(key) for key in campaign.choose([])])
    file = tmp_path / "adaptive.json"
    assert read_verdicts(file) == []
    file.write_text(json.dumps(verdicts_json(verdicts)), encoding="utf-8")
    assert read_verdicts(file) == verdicts
    file.write_text("{}x", encoding="utf-8")
    with pytest.raises(DecideError, match="no verdicts"):
        read_verdicts(file)


@pytest.mark.parametrize("share", [0.4, 0.25])
def test_the_replay_of_the_public_cells_decides_as_the_whole_grid(share: float) -> None:
    from benchmarks.adaptive.replay import replay  # noqa: PLC0415 - a script of the tree, not a package
    from tests.unit.predict.made import PUBLIC, flagship  # noqa: PLC0415

    from outrider.predict.observations import read_observations  # noqa: PLC0415

    found = replay(flagship(), read_observations(PUBLIC, flagship()), share)
    assert found["share"] <= share
    assert found["same"] >= (1.0 if share == 0.4 else 0.9)
    assert found["regret"] <= 0.005
