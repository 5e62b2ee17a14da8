"""Which wheels of a lock a bundle carries, by what the node has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.version import Version

from outrider.bundle.contents import VENVS, Form, contents
from outrider.bundle.errors import BundleError
from outrider.bundle.node_packages import (
    BOUND,
    read_lock_entries,
    read_node_packages,
    read_trim,
    select,
    wheels_of,
)
from outrider.bundle.venv_wheels import Fit, require_fit
from outrider.images.lock import read_lock
from outrider.stack import find_stack

ROOT = Path(__file__).resolve().parents[3]
REQUIREMENTS = ROOT / "requirements"
LOCK = read_lock_entries((REQUIREMENTS / "serve-venv.lock").read_text())
PINS = {entry.name: entry.version for entry in LOCK}


@pytest.mark.parametrize(
    ("name", "pinned", "there", "carried"),
    [
        ("aiohttp", "3.14.5", None, False),  # a name alone is believed
        ("aiohttp", "3.14.5", "3.14.5", False),
        ("aiohttp", "3.14.5", "3.15.0", False),
        ("aiohttp", "3.14.5", "3.9.10", True),  # older, though it sorts after as text
        ("torch", "2.14.0", None, True),  # what the engine is bound to
        ("torch", "2.14.0", "2.15.0", True),
        ("torch", "2.14.0", "2.14.0+cu130", False),
        ("nvidia-nccl-cu13", "2.30.7", "2.28.9", True),
        ("nvidia-cudnn-cu13", "9.24.0.43", "9.15.1.9", False),  # one interface within a major release
        ("nvidia-cublas", "13.1.1.3", "12.8.4.1", True),
        ("nvidia-ml-py", "13.615.71", "13.580.82", True),  # no library of CUDA's
    ],
)
def test_the_node_provides_what_is_new_enough_there(name: str, pinned: str, there: str | None, carried: bool) -> None:
    (entry,) = read_lock_entries(f"{name}=={pinned} \\\n    --hash=sha256:{'0' * 64}\n")
    chosen = select([entry], {name: Version(there) if there else None}, frozenset())
    assert [e.name for e in chosen.carried] == ([name] if carried else [])
    assert chosen.provided == ({} if carried else {name: there or ""})


def test_what_is_trimmed_is_left_out_unless_the_node_has_it() -> None:
    entries = read_lock_entries("a==1 \\\n    --hash=sha256:0\nb==1 \\\n    --hash=sha256:0\nc==1\n")
    chosen = select(entries, {"b": None}, frozenset({"a", "b"}))
    assert [entry.text for entry in chosen.carried] == ["c==1\n"]
    assert (chosen.trimmed, chosen.provided) == (("a",), {"b": ""})
    assert select(entries, {}, frozenset()).carried == entries


def test_a_package_list_is_read_in_each_form_that_pip_prints(tmp_path: Path) -> None:
    listed = tmp_path / "node.txt"
    listed.write_text(
        "Jinja2==3.1.6\n# a comment\n\nzope.interface\ntorch==2.11.0+cu130\n-e git+x#egg=y\nown @ file:///x\n"
    )
    assert read_node_packages(listed) == {
        "jinja2": Version("3.1.6"),
        "zope-interface": None,
        "torch": Version("2.11.0+cu130"),
        "own": None,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [("Package Version\n", "node.txt:1: Package Version"), ("x==what\n", "x==what"), ("\n", "node.txt")],
)
def test_a_package_list_in_another_form_is_refused_by_its_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "node.txt").write_text(text)
    with pytest.raises(BundleError) as caught:
        read_node_packages(tmp_path / "node.txt")
    assert said in caught.value.evidence
    with pytest.raises(BundleError, match="cannot be read"):
        read_node_packages(tmp_path / "none")


def test_only_the_wheels_of_the_lock_are_taken(tmp_path: Path) -> None:
    (tmp_path / "a_b-1.0-py3-none-any.whl").touch()
    (tmp_path / "a_b-0.9-py3-none-any.whl").touch()
    assert [p.name for p in wheels_of(read_lock_entries("a-b==1.0\n"), tmp_path)] == ["a_b-1.0-py3-none-any.whl"]
    with pytest.raises(BundleError) as caught:
        wheels_of(read_lock_entries("c==2\n"), tmp_path)
    assert "c 2" in caught.value.evidence


def test_what_cannot_be_made_is_refused(tmp_path: Path) -> None:
    cuda = contents(find_stack("kimi-shape8-h200"), Form.VENV, "1")
    cpu = contents(find_stack("smollm2-cpu"), Form.VENV, "1")
    images = contents(find_stack("kimi-shape8-h200"), Form.CONTAINER, "1")
    assert require_fit(cuda, Fit(python="3.12", trim=True), ROOT) == {}
    with pytest.raises(BundleError, match=r"no venv bundle of this stack for Python 3\.11") as caught:
        require_fit(cuda, Fit(python="3.11"), ROOT)
    assert "3.12" in caught.value.next_step
    for plan, fit in ((cpu, Fit(trim=True)), (images, Fit(node_packages=tmp_path / "x"))):
        with pytest.raises(BundleError, match="only a venv bundle of a CUDA engine"):
            require_fit(plan, fit, ROOT)
    with pytest.raises(BundleError, match="no venv bundle"):
        require_fit(images, Fit(python="3.12"), ROOT)


def test_the_lock_is_the_engine_of_the_images_and_the_load_generator_of_the_tests() -> None:
    assert VENVS["cuda"]["serve-venv"].locks == ("requirements/serve-venv.lock",)
    assert read_lock(ROOT / "images.lock").images["SERVE_BASE"].tag.endswith(f":v{PINS['vllm']}")
    load = {entry.name: entry.version for entry in read_lock_entries((REQUIREMENTS / "load.lock").read_text())}
    assert load.items() <= PINS.items()
    for lock in ("serve-venv.lock", "installer.lock"):
        text = (REQUIREMENTS / lock).read_text()
        assert all("--hash=sha256:" in entry.text for entry in read_lock_entries(text))
        assert "://" not in text


def test_trimmed_and_bound_packages_are_the_locks_and_each_has_its_reason() -> None:
    text = (REQUIREMENTS / "serve-venv.trim").read_text()
    trimmed = read_trim(text)
    assert trimmed <= PINS.keys()
    assert PINS.keys() - trimmed >= BOUND
    assert all(re.fullmatch(r"[\w-]+  # \S.*", line) for line in text.splitlines()[2:])
