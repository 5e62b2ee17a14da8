"""Doubt about each place that was not measured: what deciding there by the model alone is expected to lose."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from outrider.decide.next_cell import expected_loss
from outrider.predict.surface import Wanted, predict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outrider.predict.session import Session

Key = TypeVar("Key")


def doubts(session: Session, wanted: Mapping[Key, Sequence[Wanted]]) -> dict[Key, float]:
    """Expected loss by key; of several variants at a place the greatest counts.

    Args:
        session: model fitted to what was measured so far.
        wanted: key to the speculative options at that place; those whose yield under that workload nobody knows are
            worth a measurement before anything else and count as 1.
    """
    known: list[tuple[Key, Wanted]] = []
    found: defaultdict[Key, float] = defaultdict(float)
    for key, options in wanted.items():
        for one in options:
            if not _yield_is_known(session, one):
                found[key] = 1.0
            else:
                known.append((key, one))
    predictions = predict(session.fit, [one for _, one in known], session.draft_bytes, acceptance=session.acceptance)
    for (key, _), prediction in zip(known, predictions, strict=True):
        if prediction.speedup is not None:
            found[key] = max(found[key], expected_loss(prediction.speedup))
    return dict(found)


def _yield_is_known(session: Session, one: Wanted) -> bool:
    if session.given is not None:
        return True
    return any(key[:2] == (one.variant, one.workload) for key in session.fit.yields.pooled)
