"""An untrained head from the recipe and the target's files: proves geometry, layers, mask token and vocabulary.

Nothing is served and nothing is trained, so this runs anywhere that has the target's configuration, tokenizer,
embedding, output projection and final norm, before a machine is rented.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from outrider.train.fit import fit_arguments
from outrider.train.head import build_head
from outrider.train.processes import require_success, run_all

if TYPE_CHECKING:
    from outrider.train.session import Session

STAGE = "dry-run"


def dry_run(session: Session) -> dict[str, Any]:
    """Build the head that training would start from; gives its size.

    Raises:
        TrainError: the recipe does not fit the target, or speculators refuses it.
    """
    session.require_layers()
    out = session.stage_dir(STAGE)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    frequencies, initial = out / "token_freq.pt", out / "initial"
    jobs = [
        session.job(out / "frequencies.log", "no-frequencies", "--out", frequencies),
        session.job(
            out / "dry-run.log",
            "speculators", "train", *fit_arguments(session, out),
            "--data-path", out,  # speculators writes the vocabulary map there
            "--token-freq-path", frequencies,
            "--save-path", initial,
            "--dry-run",
        ),
    ]  # fmt: skip
    for job in jobs:
        require_success(STAGE, [job], run_all([job], session.job_env()))
    return build_head(
        initial,
        out / "head",
        target_name=session.stack.target.model,
        target_config=session.target_config(),
        aux_layers=session.recipe.aux_layers,
        k=session.recipe.k,
    )
