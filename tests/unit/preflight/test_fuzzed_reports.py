"""No config, however malformed, makes preflight crash: the whole run ends in a report."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.preflight import checkpoints as made
from tests.unit.preflight.checkpoints import drafted
from tests.unit.preflight.test_files import FIELDS, JSON

from outrider.preflight import run_preflight

CHANGES = st.dictionaries(FIELDS, JSON, max_size=4)
MAKERS = st.sampled_from(
    [
        (made.llama_target, made.llama_eagle3, "eagle3"),
        (made.mla_target, made.mla_eagle3, "eagle3"),
        (made.llama_target, made.speculators_eagle3, "eagle3"),
        (made.llama_target, made.dflash, "dflash"),
        (made.llama_target, made.draft_model, "draft_model"),
    ]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MAKERS, CHANGES, CHANGES)
def test_any_pair_of_configs_gives_a_report(makers: Any, of_target: dict[str, Any], of_drafter: dict[str, Any]) -> None:
    make_target, make_drafter, method = makers
    target, drafter = make_target(), make_drafter()
    target.config |= of_target
    drafter.config |= of_drafter
    with tempfile.TemporaryDirectory() as scratch:
        report = run_preflight(
            made.stack(drafted(method)),
            model_dir=target.write(Path(scratch) / "target"),
            drafter_dir=drafter.write(Path(scratch) / "drafter"),
        )
    assert report.exit_code in {0, 1, 3}
    assert report.model_dump_json(by_alias=True)
