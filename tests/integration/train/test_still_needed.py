"""Each entry of the patch ledger answers a fault that the pinned release still has; when one here fails, drop it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from vllm.distributed.kv_transfer.kv_connector.v1 import example_hidden_states_connector as upstream

from outrider.patches.ledger import default_directory, load_ledger
from outrider.patches.state import State, check

pytestmark = pytest.mark.train

SCRIPT = Path(__file__).with_name("upstream_faults.py")
FAULTS = {
    "speculators-converter-fields": ("converter drops nested layers", "converter falls to 4096"),
    "speculators-cpu-trainer": ("trainer falls to cuda", "step timer needs a device"),
    "speculators-nan-and-budget": ("max_steps does not end the run",),
    "speculators-cpu-kernels": ("fused losses need triton", "flex has no CPU backward"),
    "speculators-served-alias": ("alias is no tokenizer",),
    "speculators-trust-remote-code": ("custom code is refused",),
    "speculators-half-prepared": ("half a dataset counts as done",),
}


@pytest.fixture(scope="module")
def found(train_python: str) -> dict[str, bool]:
    done = subprocess.run(
        [train_python, str(SCRIPT)],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    loaded: dict[str, bool] = json.loads(done.stdout.splitlines()[-1])
    return loaded


@pytest.mark.parametrize("entry", FAULTS)
def test_the_pinned_speculators_still_has_the_fault(found: dict[str, bool], entry: str) -> None:
    assert all(found[fault] for fault in FAULTS[entry]), f"drop {entry} from patches/ledger.yaml"


def test_the_pinned_vllms_example_connector_still_needs_cuda() -> None:
    connector = object.__new__(upstream.ExampleHiddenStatesConnector)
    connector._copy_stream = None
    assert not torch.cuda.is_available(), "this suite is for machines without CUDA"
    with pytest.raises((RuntimeError, AssertionError)):
        connector._get_copy_stream()


def test_every_speculators_entry_is_tested_here() -> None:
    entries = load_ledger(default_directory()).entries
    assert {e.id for e in entries if e.package == "speculators"} == set(FAULTS)


def test_the_guards_hold_in_the_training_interpreter(train_python: str) -> None:
    found = check(load_ledger(default_directory()), [train_python])
    assert {s.entry.id: s.evidence for s in found if s.state is State.DRIFTED} == {}
    assert {s.entry.id for s in found if s.state is State.HOLDS} >= set(FAULTS)
