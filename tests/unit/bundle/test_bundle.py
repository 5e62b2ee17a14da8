"""Bundles: cut, listed, installed; a damaged part is named before anything is touched."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.bundle import make
from outrider.bundle.contents import Form, Models, contents
from outrider.bundle.errors import BundleError
from outrider.bundle.make import Order, make_bundle
from outrider.bundle.parts import split, write_sums
from outrider.bundle.streams import saved_images, tarred
from outrider.bundle.venv_wheels import Wheelhouse
from outrider.images.wheels import WheelSet
from outrider.stack import find_stack

ROOT = Path(__file__).resolve().parents[3]
STACK = find_stack("smollm2-cpu")


@settings(deadline=None)  # it writes files
@given(data=st.binary(max_size=300), size=st.integers(1, 120))
def test_parts_put_together_are_the_whole_and_none_is_too_large(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, size: int
) -> None:
    directory = tmp_path_factory.mktemp("parts")
    parts = split(io.BytesIO(data), directory, "x", size)
    assert b"".join(part.read_bytes() for part in sorted(parts)) == data
    assert all(0 < part.stat().st_size <= size for part in parts)
    assert len(parts) == -(-len(data) // size)


def test_a_tar_is_the_same_each_time_and_readable_by_all(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "weights").write_bytes(b"w")
    (tmp_path / "a" / "weights").chmod(0o600)
    (tmp_path / "a" / "__pycache__").mkdir()

    def made() -> bytes:
        with tarred({"models/a": tmp_path / "a"}) as source:
            return source.read()

    first = made()
    os.utime(tmp_path / "a" / "weights", (1, 1))
    assert made() == first
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        assert archive.getnames() == ["models/a", "models/a/weights"]
        assert stat.S_IMODE(archive.getmember("models/a/weights").mode) == 0o644


def test_a_file_that_vanishes_while_it_is_bundled_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be bundled"), tarred({"x": tmp_path / "none"}) as source:
        source.read()


def test_an_image_that_is_not_here_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BundleError, match="no docker command"), saved_images(["x"]):
        pass
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'No such image: x' >&2\nexit 1\n")
    docker.chmod(0o755)
    with pytest.raises(BundleError, match="cannot be saved") as caught, saved_images(["x"]) as source:
        source.read()
    assert "No such image: x" in caught.value.evidence


def test_the_plan_holds_every_drafter_and_the_form_decides_what_runs_it() -> None:
    flagship = find_stack("kimi-k2.5-rtx6000x8")
    plan = contents(flagship, Form.CONTAINER, "1")
    assert plan.images == ("outrider/serve:1", "outrider/load:1")
    assert [m.repository for m in plan.models] == [
        "moonshotai/Kimi-K2.5",
        "lightseekorg/kimi-k2.5-eagle3-mla",
        "AQ-MedAI/Kimi-K2-Instruct-eagle3",
        "z-lab/Kimi-K2.5-DFlash",
    ]
    assert plan.models[0].revision == flagship.target.revision
    venv = contents(STACK, Form.VENV, "1")
    assert (venv.images, sorted(venv.wheels)) == ((), ["load", "serve-cpu"])


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installer_wheel: Path) -> Path:
    """A venv bundle with a package of a few bytes in place of the real wheels, in parts of 2 MB."""
    wheel = tmp_path / "wheel"
    wheel.mkdir()
    source = tmp_path / "source" / "cannon"
    source.mkdir(parents=True)
    (source.parent / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "cannon"\nversion = "1.0"\n'
    )
    (source / "__init__.py").write_text("SHOTS = 3\n")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(wheel)]
    subprocess.run([*build, str(source.parent)], check=True)
    (built,) = wheel.glob("*.whl")
    digest = hashlib.sha256(built.read_bytes()).hexdigest()
    (tmp_path / "cannon.lock").write_text(f"cannon==1.0 --hash=sha256:{digest}\n")

    plan = contents(STACK, Form.VENV, "1")
    own = {"cannon": WheelSet(("cannon.lock",), f"{sys.version_info[0]}.{sys.version_info[1]}")}
    monkeypatch.setattr(make, "contents", lambda *_: type(plan)(plan.form, (), own, plan.models))
    monkeypatch.setattr(
        make,
        "gather_venv",
        lambda *_: Wheelhouse(
            {
                f"wheels/{built.name}": built,
                "wheels/locks/cannon.lock": tmp_path / "cannon.lock",
                f"installer/{installer_wheel.name}": installer_wheel,
            }
        ),
    )
    out = tmp_path / "bundle"
    make_bundle(STACK, Order(Form.VENV, Models.MANIFEST, 2_000_000, "1"), ROOT, out)
    return out


def install(bundle: Path, prefix: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([bundle / "install.sh", prefix], capture_output=True, text=True, check=False)


def test_the_installer_verifies_before_it_touches_anything_and_names_the_damage(bundle: Path, tmp_path: Path) -> None:
    part = bundle / "project.tar.000"
    data = bytearray(part.read_bytes())
    data[100] ^= 1
    part.write_bytes(bytes(data))
    done = install(bundle, tmp_path / "prefix")
    assert done.returncode == 1
    assert "project.tar.000" in done.stdout + done.stderr
    assert "damaged or incomplete" in done.stderr
    assert not (tmp_path / "prefix").exists()


def test_a_missing_part_is_named(bundle: Path, tmp_path: Path) -> None:
    (bundle / "wheels.tar.000").unlink()
    done = install(bundle, tmp_path / "prefix")
    assert done.returncode == 1
    assert "wheels.tar.000" in done.stdout + done.stderr


def test_what_is_unpacked_is_what_was_bundled(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A package that the caller's environment has does not count as installed.
    (tmp_path / "elsewhere" / "cannon-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "elsewhere" / "cannon-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: cannon\nVersion: 1.0\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    assert max(f.stat().st_size for f in bundle.glob("*.tar.*")) <= 2_000_000
    assert json.loads((bundle / "bundle.json").read_text())["stack_digest"] == STACK.digest()
    done = install(bundle, tmp_path / "prefix")
    # What Outrider imports is not among these wheels: the installer gets as far as that.
    assert "outrider does not start" in done.stderr
    prefix = tmp_path / "prefix"
    assert (prefix / "stacks" / "smollm2-cpu.yaml").read_text() == (ROOT / "stacks" / "smollm2-cpu.yaml").read_text()
    assert (prefix / "patches" / "ledger.yaml").is_file()
    said = subprocess.run(
        [prefix / "venv" / "bin" / "python", "-I", "-c", "import cannon; print(cannon.SHOTS)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.stdout.strip() == "3"
    rows = json.loads((prefix / "models.json").read_text())
    assert [row["repository"] for row in rows] == [STACK.target.model, "models/smollm2-135m-eagle3"]
    assert rows[1]["files"]["model.safetensors"]["size"] == 19735928


def test_weights_that_are_not_here_stop_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTRIDER_MODELS", raising=False)
    order = Order(Form.CONTAINER, Models.FILES, 10**9, "1")
    with pytest.raises(BundleError, match=r"weights of moonshotai/Kimi-K2\.5 are not here"):
        make_bundle(find_stack("kimi-k2.5-rtx6000x8"), order, ROOT, tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(BundleError, match="not empty"):
        make_bundle(STACK, order, ROOT, tmp_path / "full")


def test_the_list_is_what_sha256sum_reads(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    write_sums(tmp_path)
    check = ["sha256sum", "--check", "SHA256SUMS"]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["b: OK", "deep/a: OK"]
