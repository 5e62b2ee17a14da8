"""The stages of a training run in order, each resumed or skipped by its manifest."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.train import answer, card, check, export, extract, fit
from outrider.train.corpus import corpus_digest
from outrider.train.errors import TrainError
from outrider.train.manifest import Manifest, begin, finish, key_of, note_spent, read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from outrider.train.session import Session


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the pipeline.

    Attributes:
        name: also its directory.
        run: does the work in that directory; gives counts for the manifest.
        reads: stages whose output it reads.
        settings: fields of the recipe that change its result.
    """

    name: str
    run: Callable[[Session, Path], dict[str, Any]]
    reads: tuple[str, ...]
    settings: tuple[str, ...]


STAGES = (
    Stage("prompts", answer.make_prompts, (), ("samples", "check_samples", "seed")),
    Stage("regenerate", answer.regenerate, ("prompts",), ("max_tokens", "temperatures", "seed", "clients")),
    Stage("prepare", answer.prepare, ("regenerate",), ("seq_len", "draft_vocab_size", "seed")),
    Stage("extract", extract.extract, ("prepare",), ("aux_layers", "text_only", "online")),
    Stage(
        "fit",
        fit.fit,
        ("prepare", "extract"),
        (
            "aux_layers",
            "draft_vocab_size",
            "draft_config",
            "mask_token_id",
            "k",
            "seq_len",
            "pack",
            "epochs",
            "lr",
            "validation_share",
            "seed",
        ),
    ),
    Stage("check", check.check, ("fit", "extract"), ("k", "seed")),
    Stage("export", export.export, ("fit", "check"), ("floor",)),
    Stage("card", card.write_card, ("check", "export"), ()),
)
NAMES = tuple(stage.name for stage in STAGES)


def run(session: Session, *, until: str = NAMES[-1], first: str = NAMES[0]) -> list[Manifest]:
    """Run the stages from `first` to `until`; finished ones are skipped, interrupted ones resumed.

    Raises:
        TrainError: a stage failed, or one before `first` has not finished.
    """
    done: dict[str, Manifest] = {}
    chosen = NAMES[NAMES.index(first) : NAMES.index(until) + 1]
    for stage in STAGES[: NAMES.index(until) + 1]:
        directory = session.stage_dir(stage.name)
        settings = {name: session.recipe.as_dict()[name] for name in stage.settings}
        inputs = {name: done[name].key for name in stage.reads} or {
            "target": session.target_identity(),
            "corpus": corpus_digest(),
        }
        key = key_of(stage.name, settings, inputs)
        manifest = read_manifest(directory) if directory.exists() else None
        if manifest is None or manifest.key != key:
            if stage.name not in chosen:
                raise TrainError(
                    f"stage {stage.name} has not finished with these settings",
                    evidence=str(directory),
                    next_step=f"start at it: --from {stage.name}",
                )
            manifest = _perform(session, stage, directory, key, settings, inputs)
        else:
            session.say(f"{stage.name}: done before, skipped")
        done[stage.name] = manifest
    return list(done.values())


def _perform(
    session: Session, stage: Stage, directory: Path, key: str, settings: dict[str, Any], inputs: dict[str, str]
) -> Manifest:
    session.say(f"{stage.name}: start")
    spent, started = begin(directory, key), time.monotonic()
    try:
        counts = stage.run(session, directory)
    finally:
        spent += time.monotonic() - started
        note_spent(directory, key, spent)
    manifest = Manifest(stage.name, key, settings, inputs, session.versions, counts, round(spent, 1))
    finish(directory, manifest)
    session.say(f"{stage.name}: {spent:.0f} s, {counts}")
    return manifest


def summary(manifests: Sequence[Manifest]) -> dict[str, Any]:
    """Stage to seconds and counts, for `--json`."""
    return {m.stage: {"seconds": m.seconds, "counts": m.counts, "key": m.key} for m in manifests}
