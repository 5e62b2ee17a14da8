"""What `benchmarks/utility/phases.py` compares, keeps on disk and promises."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from outrider.engine import adapter
from outrider.errors import OutriderError, StackError
from outrider.stack import find_stack, list_stacks
from outrider.vllm_ext.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

SCRIPTS = Path(__file__).resolve().parents[3] / "benchmarks" / "utility"
BASELINE, STATIC, AUTO = "baseline", ["baseline", "k1", "k3"], "eagle3-auto"


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    """The scripts, which import each other as scripts do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        import phases  # noqa: PLC0415
        import targets  # noqa: PLC0415
        import traffic  # noqa: PLC0415

        made = {"phases": phases, "targets": targets, "traffic": traffic}
        yield made
        for name in made:
            sys.modules.pop(name)


def row(arm: str, phase: str, tpot_ms: dict[str, float], users: int = 8, **more: Any) -> dict[str, Any]:
    return {
        "round": 0, "arm": arm, "phase": phase, "users": users, "status": "ok", "findings": [],
        "mean_running": float(users), "engine": {"version": "0.33.0", "model_runner": "v2"},
        "tpot_by_prompt": {prompt: [3, ms / 1e3] for prompt, ms in tpot_ms.items()},
    } | more  # fmt: skip


def rows(speeds: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Rows of ten prompts each; `speeds` is phase -> variant -> speed against baseline's 10 ms a token."""
    prompts = [f"p{i}" for i in range(10)]
    return [
        row(arm, phase, {p: (10 + i) / speed for i, p in enumerate(prompts)})
        for phase, own in speeds.items()
        for arm, speed in own.items()
    ]


def test_a_variant_that_follows_the_traffic_keeps_all_three_promises(scripts: dict[str, ModuleType]) -> None:
    measured = rows(
        {
            "extraction@1": {"baseline": 1, "k1": 1.3, "k3": 1.6, AUTO: 1.57},
            "chat@32": {"baseline": 1, "k1": 1.05, "k3": 0.8, AUTO: 1.03},
        }
    )
    outcome = scripts["targets"].Outcome(measured, STATIC, AUTO)

    assert [v.reached for v in outcome.verdicts()] == [True, True, True]
    assert outcome.ratio("chat@32", "k1").value == pytest.approx(1.03 / 1.05)
    # Equal times of baseline in each phase: k1 takes (1/1.3 + 1/1.05) / 2 of them, k3 (1/1.6 + 1/0.8) / 2.
    assert outcome.best_single == "k1"
    assert outcome.whole["k1"] == pytest.approx(2 / (1 / 1.3 + 1 / 1.05))
    assert outcome.over_single().value == pytest.approx((1 / 1.3 + 1 / 1.05) / (1 / 1.57 + 1 / 1.03))
    assert "1.091 times k1" in outcome.ceiling()


@pytest.mark.parametrize(
    ("extraction", "chat", "missed", "where"),
    [
        ({"k1": 1.3, "k3": 1.6, AUTO: 1.5}, {"k1": 1.02, "k3": 0.8, AUTO: 1.04}, 0, "extraction@1"),
        # k1 alone is nearly as good over all.
        ({"k1": 1.5, "k3": 1.6, AUTO: 1.53}, {"k1": 1.0, "k3": 0.8, AUTO: 1.0}, 1, ""),
        ({"k1": 1.3, "k3": 1.6, AUTO: 1.6}, {"k1": 1.02, "k3": 0.8, AUTO: 0.97}, 2, "chat@32"),
    ],
)
def test_each_promise_can_be_missed_and_says_where(
    scripts: dict[str, ModuleType], extraction: dict[str, float], chat: dict[str, float], missed: int, where: str
) -> None:
    speeds = {"extraction@1": {"baseline": 1} | extraction, "chat@32": {"baseline": 1} | chat}
    verdicts = scripts["targets"].Outcome(rows(speeds), STATIC, AUTO).verdicts()

    assert [v.reached for v in verdicts] == [i != missed for i in range(3)]
    assert str(verdicts[missed]).startswith("FAIL")
    assert verdicts[missed].where == where


def test_variants_are_compared_on_the_prompts_that_all_of_them_answered(scripts: dict[str, ModuleType]) -> None:
    measured = [
        row("baseline", "chat@8", {"a": 10}),
        row("k1", "chat@8", {"a": 8, "easy": 1}),
        row(AUTO, "chat@8", {"a": 8, "easy": 1, "hard": 90}),
    ]
    outcome = scripts["targets"].Outcome(measured, ["baseline", "k1"], AUTO)
    assert outcome.speed["chat@8"] == pytest.approx({"baseline": 800, "k1": 1000, AUTO: 1000})

    with pytest.raises(ValueError, match=r"chat@8: no prompt was answered by every variant"):
        scripts["targets"].Outcome([row("baseline", "chat@8", {"b": 9}), *measured[1:]], ["baseline", "k1"], AUTO)


def test_a_phase_that_rests_on_few_prompts_says_so(scripts: dict[str, ModuleType]) -> None:
    few = [row(arm, "chat@8", {"a": 10, "b": 10}) for arm in ("baseline", AUTO)]
    many = rows({"code@8": {"baseline": 1, AUTO: 1}})
    outcome = scripts["targets"].Outcome([*few, *many], ["baseline"], AUTO)
    assert outcome.thin() == ["chat@8: 2 prompts in common, give it more seconds"]


def test_what_makes_figures_doubtful_is_said(scripts: dict[str, ModuleType]) -> None:
    measured = [
        row("baseline", "chat@8", {"a": 10}, engine={"version": "0.33.0", "model_runner": "v1"}),
        row("k1", "chat@8", {"a": 10}, mean_running=3.0),
        row("k3", "chat@8", {"a": 10}, status="flagged", findings=["client_lag"]),
        row(AUTO, "chat@8", {"a": 10}, utility={"fault": 1, "exported": 1}),
    ]
    assert scripts["targets"].doubts(measured) == [
        "k1, chat@8, round 0: 3.0 of 8 users in the batch on average",
        "k3, chat@8, round 0: flagged (client_lag)",
        f"{AUTO}, chat@8, round 0: the controller has given up; the engine's log says why",
        f"variants differ in model_runner: baseline v1, k1 v2, k3 v2, {AUTO} v2",
    ]


@pytest.mark.parametrize("file", list_stacks(), ids=lambda file: file.stem)
def test_every_stack_can_be_compared_and_the_one_that_chooses_may_choose_what_stands_beside_it(
    scripts: dict[str, ModuleType], file: Path
) -> None:
    stack = find_stack(file.stem)
    compared = scripts["phases"].with_arms(stack, AUTO, [1, 3, 5])
    assert list(compared.variants) == ["baseline", "k1", "k3", "k5", AUTO]

    def launch(variant: str) -> Any:
        made = adapter("vllm").launch(compared, variant, host="h", port=1, model_dir=None, drafter_dir=None)
        return made, json.loads(made.argv[made.argv.index("--speculative-config") + 1])

    for k in (1, 3, 5):
        _, config = launch(f"k{k}")
        assert config["num_speculative_tokens"] == k
        assert "num_speculative_tokens_per_batch_size" not in config
    made, config = launch(AUTO)
    assert config["num_speculative_tokens"] == 5
    assert (
        {0, 1, 3, 5}
        <= set(read_settings(made.env).ks)
        == {k for _, _, k in config["num_speculative_tokens_per_batch_size"]}
    )


def test_a_variant_that_does_not_choose_is_refused(scripts: dict[str, ModuleType]) -> None:
    with pytest.raises(StackError, match="has no `auto: true`"):
        scripts["phases"].with_arms(find_stack("smollm2-cpu"), "eagle3", [1])


def test_synthetic_acceptance_is_that_of_one_drafter_at_every_k(scripts: dict[str, ModuleType]) -> None:
    told = scripts["phases"].told_to_accept
    rates = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.6, 0.3, 0.15]}
    assert told(rates, 1)["synthetic_acceptance_rates"] == [0.6]
    # The last position's share of the one before it goes on.
    assert told(rates, 5) == rates | {"synthetic_acceptance_rates": [0.6, 0.3, 0.15, 0.075, 0.0375]}
    assert told({"draft_sample_method": "greedy"}, 5) == {"draft_sample_method": "greedy"}
    with pytest.raises(StackError, match="another drafter at each k"):
        told({"synthetic_acceptance_length": 2.4}, 1)


def test_phases_follow_the_stack_and_wrong_ones_are_refused(scripts: dict[str, ModuleType]) -> None:
    def chosen(stack: str, *asked: str) -> list[str]:
        return [str(phase) for phase in scripts["phases"].choose_phases(find_stack(stack), asked)]

    assert chosen("smollm2-cpu") == ["extraction@1", "chat@8", "code@32", "long-1k@2"]
    assert chosen("smollm2-h200") == ["extraction@1", "chat@8", "code@32", "chat@128", "long-1k@32"]
    for asked, cause in (("chat@0", "WORKLOAD@USERS"), ("caht@8", "no workload 'caht'"), ("chat@64", "takes 32 users")):
        with pytest.raises(ValueError, match=cause):
            chosen("smollm2-cpu", asked)
    told = ["random-64@8~0.5/0.25", "chat@1~1.0"]
    assert chosen("smollm2-cpu", *told) == told
    with pytest.raises(ValueError, match=r"chat@1: say for every phase what is accepted, or for none"):
        chosen("smollm2-cpu", told[0], "chat@1")
    with pytest.raises(ValueError, match=r"'0.5,0.25': rates are numbers"):
        chosen("smollm2-cpu", "chat@8~0.5,0.25")
    with pytest.raises(OutriderError, match="acceptance"):
        chosen("smollm2-cpu", "chat@8~0.5/0.75")


def test_engines_are_told_what_each_phase_accepts(
    scripts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases, traffic = scripts["phases"], scripts["traffic"]
    fakes, told = Fakes(phases, monkeypatch), list[tuple[str, str, int]]()
    monkeypatch.setattr(phases, "accept", lambda url, phase, k: told.append((url, str(phase), k)))
    stack = phases.with_arms(find_stack("kimi-shape8-h200"), AUTO, [1, 3], told=True)
    wanted = [traffic.Phase.parse("random-64@1~0.8/0.6/0.5"), traffic.Phase.parse("random-64@8~0.3/0.1/0.05")]
    store = phases.Store(tmp_path / "p.jsonl", {"schema": 1, "phases": [str(phase) for phase in wanted]})
    assert phases.Run(stack, store, wanted, traffic.Pace(1.0, 8, 1), tmp_path / "p.log").one_after_the_other(1) == []
    assert told == [(arm, str(phase), k) for arm, k in (("k1", 1), ("k3", 3), (AUTO, 3)) for phase in wanted]
    assert len(fakes.order) == 8

    for variant in stack.variants:
        made = adapter("vllm").launch(stack, variant, host="h", port=1, model_dir=None, drafter_dir=None)
        assert ("VLLM_SERVER_DEV_MODE" in made.env) == ("--worker-extension-cls" in made.argv) == (variant != BASELINE)
    with pytest.raises(StackError, match="accepts what its target does"):
        phases.with_arms(find_stack("smollm2-cpu"), AUTO, [1], told=True)


def test_what_an_engine_is_told_reaches_each_of_its_positions(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic, sent = scripts["traffic"], list[Any]()
    answer = SimpleNamespace(is_error=False)
    monkeypatch.setattr(traffic.httpx, "post", lambda url, json, **_: sent.append((url, json)) or answer)
    traffic.accept("http://e", traffic.Phase.parse("chat@1~0.8/0.4"), 3)
    traffic.accept("http://e", traffic.Phase.parse("chat@1~0.8/0.4"), 1)
    assert sent == [
        ("http://e/collective_rpc", {"method": "accept_synthetically", "args": [text]})
        for text in ("[0.8, 0.4, 0.2]", "[0.8]")
    ]


class Fakes:
    """Engines and traffic that only write down in which order they were asked."""

    def __init__(self, phases: ModuleType, monkeypatch: pytest.MonkeyPatch, failing: str = "") -> None:
        self.order: list[str] = []
        self.started: list[str] = []
        self.failing = failing
        monkeypatch.setattr(phases, "Engines", lambda *_, **__: self)
        monkeypatch.setattr(phases, "run_phase", self.run_phase)
        monkeypatch.setattr(phases, "utility_state", lambda _url: {})

    def __enter__(self) -> Fakes:
        return self

    def __exit__(self, *_: object) -> None:
        self.started.append("all stopped")

    def get(self, arm: str) -> SimpleNamespace:
        self.started.append(arm)
        running = SimpleNamespace(url=arm, log_lines=lambda: ["utility: a reason", "something else"])
        facts = SimpleNamespace(version="", model_runner="", graph_mode="", attention_backend="")
        return SimpleNamespace(variant=arm, running=running, facts=facts)

    def stop_all(self) -> None:
        self.started.append("stopped")

    def run_phase(self, _stack: Any, url: str, phase: Any, _pace: Any, *, seed: int, salt: str) -> dict[str, Any]:
        step = f"{salt}:{phase}:{url}"
        if step == self.failing:
            raise OutriderError("the engine died")
        self.order.append(step)
        return {"phase": str(phase), "tpot_s": 0.01 + seed, "requests": 8}


@pytest.fixture
def prepared(scripts: dict[str, ModuleType], tmp_path: Path) -> Any:
    """A run over two phases with baseline, one static k and the variant that chooses; and its store."""
    phases, traffic = scripts["phases"], scripts["traffic"]
    stack = phases.with_arms(find_stack("smollm2-cpu"), AUTO, [3])
    wanted = [traffic.Phase("chat", 1), traffic.Phase("code", 2)]

    def make() -> tuple[Any, Any]:
        store = phases.Store(tmp_path / "p.jsonl", {"schema": 1, "phases": [str(phase) for phase in wanted]})
        return phases.Run(stack, store, wanted, traffic.Pace(1.0, 8, 1), tmp_path / "p.log"), store

    return make


def test_side_by_side_each_phase_is_taken_by_all_before_the_next(
    scripts: dict[str, ModuleType], prepared: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fakes = Fakes(scripts["phases"], monkeypatch)
    run, store = prepared()
    assert run.side_by_side(2) == []
    forth, back = ["baseline", "k3", AUTO], [AUTO, "k3", "baseline"]
    expected = [(0, "chat@1", forth), (0, "code@2", back), (1, "chat@1", back), (1, "code@2", forth)]
    assert fakes.order == [f"{number}:{phase}:{arm}" for number, phase, arms in expected for arm in arms]
    assert fakes.started == [*forth, "all stopped"]
    assert all(store.whole(number, arm) for number in (0, 1) for arm in forth)
    assert (tmp_path / "p.log").read_text() == ""

    again, _ = prepared()
    assert again.side_by_side(2) == []
    assert len(fakes.order) == 12, "nothing was left to do"


def test_side_by_side_a_round_that_was_broken_off_is_done_again_whole(
    scripts: dict[str, ModuleType], prepared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes = Fakes(scripts["phases"], monkeypatch, failing="0:code@2:k3")
    assert prepared()[0].side_by_side(1) == ["the engine died"]
    assert len(fakes.order) == 4
    fakes.failing = ""
    run, store = prepared()
    assert run.side_by_side(1) == []
    assert len(fakes.order) == 4 + 6
    assert len(store.rows) == 6


def test_one_after_the_other_a_variant_that_fails_leaves_the_others_theirs(
    scripts: dict[str, ModuleType], prepared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes = Fakes(scripts["phases"], monkeypatch, failing="0:chat@1:k3")
    run, store = prepared()
    assert run.one_after_the_other(1) == ["k3: the engine died"]
    assert fakes.order == [f"0:{phase}:{arm}" for arm in ("baseline", AUTO) for phase in ("chat@1", "code@2")]
    assert fakes.started == ["baseline", "stopped", "k3", "stopped", AUTO, "stopped", "all stopped"]
    assert not store.whole(0, "k3")


def test_a_stopped_run_goes_on_with_the_variant_that_it_was_at(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    header = {"schema": 1, "stack": "s", "phases": ["a@1", "b@1"]}
    path = tmp_path / "phases.jsonl"
    store = scripts["phases"].Store(path, header)
    for arm, phases in (("baseline", ["a@1", "b@1"]), ("k1", ["a@1"])):
        store.begin(0, arm)
        for phase in phases:
            store.add(row(arm, phase, {"p": 1.0}))
    with path.open("a") as file:
        file.write('{"round": 0, "arm": "k1", "pha')  # killed while it wrote

    again = scripts["phases"].Store(path, header)
    assert again.whole(0, "baseline")
    assert not again.whole(0, "k1")
    again.begin(0, "k1")
    assert [(r["arm"], r["phase"]) for r in scripts["phases"].Store(path, header).rows] == [
        ("baseline", "a@1"),
        ("baseline", "b@1"),
    ]
    with pytest.raises(OutriderError, match="was measured otherwise") as caught:
        scripts["phases"].Store(path, header | {"phases": ["a@1"]})
    assert "phases: ['a@1', 'b@1'], now ['a@1']" in caught.value.evidence


@pytest.mark.parametrize("text", ["my notes\n", "", "[1]\n", '{"a": 1}\n'])
def test_a_file_of_something_else_is_refused(scripts: dict[str, ModuleType], tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(OutriderError, match="no file of this benchmark"):
        scripts["phases"].Store(path, {"schema": 1})
    assert path.read_text() == text
