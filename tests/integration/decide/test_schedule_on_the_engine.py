"""An emitted schedule on the real CPU engine: it switches off where it says so, and does not collapse around K=0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outrider.campaign.compare import ratio_of
from outrider.campaign.plan import CampaignPlan
from outrider.campaign.run import Watcher, run_campaign
from outrider.campaign.store import RunStore
from outrider.decide.dynamic_cost import dynamic_cost
from outrider.decide.overlay import overlay_text, write_overlay
from outrider.decide.probe import judge_probe, recommended
from outrider.predict.observations import read_observations
from outrider.runtime.local import LocalRuntime
from outrider.stack import find_stack, load_stack

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.quiet, pytest.mark.timeout(900)]


class Quiet(Watcher):
    """Shows nothing."""


def test_a_schedule_switches_at_its_edge_and_keeps_up_with_static_variants(own_dirs: Path, smollm2_dir: Path) -> None:
    text = overlay_text(find_stack("smollm2-cpu"), "tuned", {"dynamic": ("ngram", ((1, 1, 3), (2, 32, 0)), "")}, [])
    stack = load_stack(write_overlay(own_dirs / "tuned.yaml", text))
    plan = CampaignPlan.for_stack(
        stack, variants=["baseline", "ngram", "dynamic"], workloads=["edit"], concurrency=[1, 4], repeats=1, requests=6,
        max_tokens=48,
    )  # fmt: skip
    store = RunStore(own_dirs / "run")

    outcome = run_campaign(stack, plan, store, LocalRuntime(own_dirs / "state"), Quiet())

    assert outcome.failed == ()
    cells = {(cell.variant, cell.concurrency): cell for cell in store.cells()}
    speculating, off = cells["dynamic", 1].tokens_per_step, cells["dynamic", 4].tokens_per_step
    assert speculating is not None
    assert off is not None
    assert speculating > 1.2
    # Requests that are alone at the very beginning or end of the window still draft.
    assert off < 1.1
    observed = read_observations(store.cells_file, stack)
    requests = store.requests()
    probe = judge_probe(stack, store.points(), lambda a, b: ratio_of(requests, a, b), "run")[0]
    assert {load.batch: load.k for load in probe.loads} == {1: 3, 4: 0}
    assert probe.verdict in {"verified", "refused", "undecided"}
    assert all(load.ratio.low <= load.ratio.mid <= load.ratio.high for load in probe.loads)
    # Two shared cores are noisy; a collapse around K=0 was a factor of several (vllm 49548).
    plain = cells["baseline", 4].load
    dynamic = cells["dynamic", 4].load
    assert plain is not None
    assert dynamic is not None
    assert plain.tpot_s.mean is not None
    assert dynamic.tpot_s.mean is not None
    assert dynamic.tpot_s.mean < 2 * plain.tpot_s.mean
    assert dynamic_cost(observed).pairs == 2
    assert recommended(probe.method, probe.bands, [probe])[0] == (probe.verdict == "verified")
