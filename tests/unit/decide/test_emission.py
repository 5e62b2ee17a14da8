"""Gates, the overlay, the probe, and the command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.decide.test_places import BAND, PLAIN, option
from tests.unit.predict.made import FLAGSHIP, PUBLIC, flagship
from typer.testing import CliRunner

from outrider.cli import app
from outrider.decide.errors import DecideError
from outrider.decide.gates import gate_tree
from outrider.decide.overlay import overlay_text, probe_loads, write_overlay
from outrider.decide.places import choose_place
from outrider.decide.slo import Slo
from outrider.decide.training_cost import TrainingCost, training_cost
from outrider.engine import adapter
from outrider.preflight.run import run_preflight
from outrider.stack import find_stack, load_stack, stack_from_text

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.decide.options import Option

BANDS = ((1, 16, 3), (17, 32, 0))
COST = TrainingCost(900.0, 100.0, fits=True, sentence="900 GPU-hours")


def tree(*options: Option) -> dict[str, str]:
    stack = find_stack("smollm2-cpu")
    gates = gate_tree(stack, [choose_place(BAND, 4, [PLAIN, *options], Slo())], COST)
    assert all(gate.why for gate in gates)
    return {gate.name: gate.verdict for gate in gates}


def test_without_evidence_every_gate_asks_for_it() -> None:
    assert tree() == {"ngram": "measure", "existing drafter": "measure", "train": "measure"}


def test_a_gain_opens_a_gate_and_a_loss_everywhere_closes_it() -> None:
    found = tree(option("ngram", 25, (0.7, 0.8, 0.9)), option("eagle3", 15, (1.1, 1.3, 1.5)))
    assert found == {"ngram": "no-go", "existing drafter": "go", "train": "no-go"}


def test_training_is_a_go_where_a_better_drafter_would_turn_losses() -> None:
    assert tree(option("eagle3", 25, (0.7, 0.8, 0.9)))["train"] == "go"


def test_the_train_gate_carries_its_cost() -> None:
    cost = training_cost(flagship())
    assert cost is not None
    assert "recipe" in cost.sentence
    assert "GPU-hours" in cost.sentence
    unplanned = training_cost(flagship().model_copy(update={"training": None}))
    assert unplanned is not None
    assert "600k samples" in unplanned.sentence
    small = training_cost(find_stack("smollm2-cpu"))
    assert small is not None
    assert small.gpu_hours < cost.gpu_hours / 5


def emitted(tmp_path: Path, stack: str = "smollm2-cpu", source: str = "eagle3") -> Path:
    text = overlay_text(find_stack(stack), "tuned", {"dynamic": (source, BANDS, "made")}, ["because"])
    return write_overlay(tmp_path / "tuned.yaml", text)


def test_an_overlay_is_a_stack_that_renders_the_engine_s_own_schedule(tmp_path: Path) -> None:
    stack = load_stack(emitted(tmp_path))
    launch = adapter("vllm").launch(stack, "dynamic", host="h", port=1, model_dir=tmp_path, drafter_dir=tmp_path)
    config = json.loads(launch.argv[launch.argv.index("--speculative-config") + 1])
    assert config["num_speculative_tokens_per_batch_size"] == [[1, 16, 3], [17, 32, 0]]
    assert config["num_speculative_tokens"] == 3
    assert config["method"] == "eagle3"


@pytest.mark.parametrize(
    ("stack", "source"), [("smollm2-cpu", "eagle3"), ("smollm2-cpu", "ngram"), (FLAGSHIP, "eagle3")]
)
def test_preflight_finds_no_error_in_an_overlay(tmp_path: Path, stack: str, source: str) -> None:
    bands = BANDS if stack == "smollm2-cpu" else ((1, 16, 3), (17, 128, 0))
    text = overlay_text(find_stack(stack), "tuned", {"dynamic": (source, bands, "made")}, [])
    found = run_preflight(stack_from_text(text, "tuned.yaml"), "dynamic").findings
    assert [f.code for f in found if f.severity == "error" and f.code.startswith("SPEC")] == []
    assert "SPEC009" not in {f.code for f in found}


def test_an_overlay_keeps_the_variants_and_asks_for_its_own_probe(tmp_path: Path) -> None:
    before, after = find_stack("smollm2-cpu"), load_stack(emitted(tmp_path))
    assert {name: after.variants[name] for name in before.variants} == dict(before.variants)
    assert after.campaign.variants == ("baseline", "eagle3", "dynamic")
    assert after.campaign.concurrency == (1, 4, 16, 17, 23, 32)
    assert "&" not in (tmp_path / "tuned.yaml").read_text(encoding="utf-8")


def test_a_schedule_is_held_against_every_static_k_of_its_drafter() -> None:
    text = overlay_text(find_stack("smollm2-h200"), "tuned", {"dynamic": ("eagle3-k3", BANDS, "made")}, [])
    chosen = stack_from_text(text, "tuned.yaml").campaign.variants
    assert chosen == ("baseline", "eagle3-k1", "eagle3-k3", "eagle3-k5", "dynamic")


def test_probe_loads_stay_within_the_engine_s_batch() -> None:
    assert probe_loads([((1, 8, 2), (9, 500, 0))], find_stack("smollm2-cpu")) == [1, 3, 8, 9, 17, 32]


def test_what_cannot_be_emitted_is_refused(tmp_path: Path) -> None:
    stack = find_stack("smollm2-cpu")
    with pytest.raises(DecideError, match="serve baseline"):
        overlay_text(stack, "tuned", {"dynamic": ("eagle3", ((1, 32, 0),), "")}, [])
    with pytest.raises(DecideError, match="no k to schedule"):
        overlay_text(stack, "tuned", {"dynamic": ("baseline", BANDS, "")}, [])
    with pytest.raises(DecideError, match="bears its name"):
        write_overlay(tmp_path / "other.yaml", "name: tuned\n")


def command(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["decide", *words])
    told = "" if result.exception is None or isinstance(result.exception, SystemExit) else str(result.exception)
    return result.exit_code, result.output + told


def test_decide_prints_json_and_emits_a_stack_that_loads(tmp_path: Path) -> None:
    file = tmp_path / "tuned.yaml"
    code, out = command(FLAGSHIP, "--cells", str(PUBLIC), "--json", str(tmp_path / "d.json"), "--emit", str(file))
    assert code == 0, out
    data = json.loads((tmp_path / "d.json").read_text(encoding="utf-8"))
    assert {g["name"] for g in data["gates"]} == {"ngram", "existing drafter", "train"}
    assert "not served yet" in data["recommendation"]
    schedule = next(s for s in data["schedules"] if s["variant"] == "dynamic")
    assert schedule["band"] == data["default_band"]
    dynamic = load_stack(file).variants["dynamic"].speculation
    assert dynamic is not None
    assert dynamic.schedule is not None
    assert [list(b) for b in dynamic.schedule] == schedule["num_speculative_tokens_per_batch_size"]


def test_decide_follows_measured_losses_under_context_parallelism(tmp_path: Path) -> None:
    code, out = command(FLAGSHIP, "--cells", str(PUBLIC), "--dcp", "4", "--k", "3", "--context", "131072",
                        "--concurrency", "4", "--json", "-")  # fmt: skip
    assert code == 0
    choice = json.loads(out[out.index("{") :])["choices"][0]
    assert choice["variant"] == "baseline"
    losing = next(o for o in choice["options"] if o["k"] == 3)
    assert losing["source"] == "measured"
    assert losing["break_even_tokens_per_step"]["mid"] == pytest.approx(2.69, abs=0.03)


def test_a_band_that_does_not_fit_the_cache_is_told() -> None:
    code, out = command(FLAGSHIP, "--context", "131072", "--concurrency", "128")
    assert code == 1
    assert "KV cache" in out


def test_an_unknown_workload_is_refused() -> None:
    code, out = command(FLAGSHIP, "--cells", str(PUBLIC), "--workload", "poems")
    assert code == 1
    assert "poems" in out
