from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.train.made import make_session

from outrider.train import pipeline
from outrider.train.errors import TrainError
from outrider.train.manifest import read_manifest
from outrider.train.pipeline import Stage

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.train.session import Session


class Killed(BaseException):
    """What a kill looks like from inside: nothing after it runs."""


class Work:
    """Stages that write one file a unit, so that what is done twice can be counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, units: int = 4) -> None:
        self.done: list[str] = []
        self.kill_at: str | None = None
        self._units = units
        stages = (
            Stage("prompts", self._stage("prompts"), (), ("samples",)),
            Stage("regenerate", self._stage("regenerate"), ("prompts",), ("max_tokens",)),
            Stage("fit", self._stage("fit"), ("regenerate",), ("lr", "epochs")),
        )
        monkeypatch.setattr(pipeline, "STAGES", stages)
        monkeypatch.setattr(pipeline, "NAMES", tuple(stage.name for stage in stages))

    def _stage(self, name: str) -> Any:
        def run(_session: Session, out: Path) -> dict[str, Any]:
            for unit in range(self._units):
                file = out / str(unit)
                if file.exists():
                    continue
                if self.kill_at == f"{name}/{unit}":
                    raise Killed
                file.touch()
                self.done.append(f"{name}/{unit}")
            return {"units": len(list(out.glob("[0-9]*")))}

        return run


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return make_session(tmp_path)


def _run(session: Session, **keywords: str) -> list[str]:
    return [
        m.stage for m in pipeline.run(session, until=keywords.pop("until", "fit"), **{"first": "prompts", **keywords})
    ]


@pytest.mark.parametrize("at", [f"{stage}/{unit}" for stage in ("prompts", "regenerate", "fit") for unit in (0, 2)])
def test_a_run_killed_anywhere_resumes_and_does_nothing_twice(work: Work, session: Session, at: str) -> None:
    work.kill_at = at
    with pytest.raises(Killed):
        _run(session)
    work.kill_at = None
    assert _run(session) == ["prompts", "regenerate", "fit"]
    assert len(work.done) == len(set(work.done)) == 12


def test_a_finished_run_does_nothing(work: Work, session: Session) -> None:
    _run(session)
    work.done.clear()
    assert _run(session) == ["prompts", "regenerate", "fit"]
    assert work.done == []


def test_changed_settings_redo_the_stage_and_what_reads_it(work: Work, session: Session) -> None:
    _run(session)
    work.done.clear()
    _run(replace(session, recipe=session.recipe.with_flags(max_tokens=99)))
    assert {unit.split("/")[0] for unit in work.done} == {"regenerate", "fit"}


def test_a_changed_target_redoes_everything(work: Work, session: Session) -> None:
    _run(session)
    work.done.clear()
    (session.model_dir / "tokenizer.json").write_text("another tokenizer", encoding="utf-8")
    _run(session)
    assert len(work.done) == 12


def test_a_changed_corpus_redoes_everything(work: Work, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(session)
    work.done.clear()
    monkeypatch.setattr(pipeline, "corpus_digest", lambda: "another")
    _run(session)
    assert len(work.done) == 12


def test_until_stops_there(work: Work, session: Session) -> None:
    assert _run(session, until="regenerate") == ["prompts", "regenerate"]
    assert not session.stage_dir("fit").exists()


def test_from_refuses_when_an_earlier_stage_is_missing(work: Work, session: Session) -> None:
    with pytest.raises(TrainError, match="stage prompts has not finished"):
        _run(session, first="fit")


def test_the_manifest_says_what_went_in_and_what_came_out(work: Work, session: Session) -> None:
    _run(session)
    manifest = read_manifest(session.stage_dir("fit"))
    assert manifest is not None
    assert manifest.settings == {"lr": session.recipe.lr, "epochs": session.recipe.epochs}
    regenerate = read_manifest(session.stage_dir("regenerate"))
    assert regenerate is not None
    assert manifest.inputs == {"regenerate": regenerate.key}
    assert manifest.counts == {"units": 4}
    assert manifest.seconds >= 0
