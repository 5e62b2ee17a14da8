"""A bundle of a CUDA stack on a node that has some of it: what is ours wins, what is the node's is seen.

torch, vllm and NVIDIA's library are stand-ins of a few bytes; pip, uv, the installer and the node's Python are real.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from outrider.bundle import contents, node_site
from outrider.bundle.contents import Form, Models
from outrider.bundle.make import Order, make_bundle
from outrider.bundle.parts import write_sums
from outrider.bundle.venv_wheels import Fit
from outrider.images.wheels import WheelSet
from outrider.stack import find_stack

ROOT = Path(__file__).resolve().parents[3]
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
TORCH = (
    "class version: CUDA = cuda = '13.0'\n"
    "class cuda:\n    device_count = staticmethod(lambda: 1)\n    get_device_name = staticmethod('GPU {}'.format)\n"
)


def wheel(directory: Path, name: str, version: str, files: dict[str, str]) -> str:
    """Write a wheel; gives its line of a lock."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = directory / f"{info.removesuffix('.dist-info')}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in files.items():
            archive.writestr(place, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{place},,\n" for place in [*files, f"{info}/RECORD"]))
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def place(site: Path, name: str, version: str, files: dict[str, str]) -> None:
    """Put a package into a site directory as if it were installed."""
    for file, text in (files | {f"{name}-{version}.dist-info/METADATA": f"Name: {name}\nVersion: {version}\n"}).items():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(text)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's Python: a virtual environment with an older torch, a library, `cargo`, and what Outrider imports."""
    venv = tmp_path / "torch env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python3*/site-packages")
    (here,) = [Path(entry) for entry in sys.path if Path(entry).name == "site-packages"][-1:]
    for entry in here.iterdir():
        if (
            not re.match(r"(torch|vllm|nvidia|outrider|__|_outrider|distutils|triton)", entry.name)
            and entry.suffix != ".pth"
        ):
            (site / entry.name).symlink_to(entry)
    place(site, "torch", "1.0", {"torch/__init__.py": "__version__ = '1.0'\n"})
    place(site, "cargo", "1.0", {"cargo/__init__.py": "", "nvidia/cu13/lib/libcublas.so.13": ""})
    place(site, "nvidia_nccl_cu13", "1.0", {"nvidia/nccl/lib/libnccl.so.2": "the node's"})
    return venv / "bin" / "python3"


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installer_wheel: Path) -> Path:
    """A bundle that leaves `cargo` to the node and `ballast` at home."""
    index = tmp_path / "index"
    index.mkdir()
    (index / installer_wheel.name).symlink_to(installer_wheel)
    root = tmp_path / "root"
    (root / "requirements").mkdir(parents=True)
    (root / "patches").mkdir()
    (root / "patches" / "ledger.yaml").write_text("[]\n")
    for name in ("pyproject.toml", "README.md", "LICENSE", "src", "stacks", "ansible", "requirements/installer.lock"):
        (root / name).symlink_to(ROOT / name)
    lines = [
        wheel(index, "torch", "2.0", {"torch/__init__.py": f"__version__ = '2.0'\n{TORCH}"}),
        wheel(index, "vllm", "3.0", {"vllm/__init__.py": ""}),
        wheel(index, "nvidia-nccl-cu13", "2.0", {"nvidia/nccl/lib/libnccl.so.2": "ours"}),
        wheel(index, "cargo", "1.0", {"cargo/__init__.py": ""}),
        wheel(index, "ballast", "1.0", {"ballast/__init__.py": ""}),
    ]
    (root / "requirements" / "serve-venv.lock").write_text("".join(lines))
    (root / "requirements" / "serve-venv.trim").write_text("ballast  # sinks\n")
    monkeypatch.setitem(contents.VENVS, "cuda", {"serve-venv": WheelSet(("requirements/serve-venv.lock",), PYTHON)})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    (tmp_path / "node.txt").write_text("cargo==1.0\ntorch==1.0\nnvidia-nccl-cu13==1.0\n")
    out = tmp_path / "bundle"
    fit = Fit(python=PYTHON, node_packages=tmp_path / "node.txt")
    order = Order(Form.VENV, Models.MANIFEST, 9_000_000, "1", fit)
    make_bundle(find_stack("kimi-shape8-h200"), order, root, out)
    return out


def install(bundle: Path, prefix: Path, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [str(bundle / "install.sh"), str(prefix)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=os.environ | env)


def test_the_engine_is_installed_beside_what_the_node_has(bundle: Path, node: Path, tmp_path: Path) -> None:
    with tarfile.open(
        fileobj=BytesIO(b"".join(p.read_bytes() for p in sorted(bundle.glob("wheels.tar.*"))))
    ) as archive:
        packed = {Path(name).name.partition("-")[0] for name in archive.getnames() if name.endswith(".whl")}
    assert packed == {"torch", "vllm", "nvidia_nccl_cu13", "uv"}
    facts = json.loads((bundle / "bundle.json").read_text())
    assert (facts["provided"], facts["trimmed"]) == ({"cargo": "1.0"}, ["ballast"])

    prefix = tmp_path / "out rider"
    done = install(bundle, prefix, PYTHON=str(node))
    assert done.returncode == 0, done.stdout + done.stderr
    (site,) = prefix.glob("venv/lib/python3*/site-packages")
    assert f"torch 2.0 for CUDA 13.0 in {site / 'torch'}" in done.stdout
    assert "GPUs: GPU 0" in done.stdout
    assert f"vllm 3.0 in {site / 'vllm'}" in done.stdout
    assert "patches in force: none" in done.stdout
    printed = " ".join(done.stdout.split("serve with:")[1].replace("\\", "").split())
    assert f"OUTRIDER_ENGINE_PYTHON={prefix}/bin/engine-python {prefix}/venv/bin/outrider serve" in printed

    look = (
        "import json, os, sys, cargo, torch, subprocess\n"
        "child = subprocess.run([sys.executable, '-c', 'import cargo, os; print(os.environ[\"LD_LIBRARY_PATH\"])'],\n"
        "    capture_output=True, text=True)\n"
        "print(json.dumps([sys.executable, cargo.__file__, torch.__file__, child.stdout.strip().split(':')]))"
    )
    engine = [str(prefix / "bin" / "engine-python"), "-c", look]
    env = {"LD_LIBRARY_PATH": "/before", "PATH": os.environ["PATH"]}
    said = subprocess.run(engine, capture_output=True, text=True, check=True, env=env)
    executable, cargo, torch, libraries = json.loads(said.stdout)
    (theirs,) = node.parent.parent.glob("lib/python3*/site-packages")
    assert executable == str(prefix / "venv" / "bin" / "python")
    assert cargo == str(theirs / "cargo" / "__init__.py")
    assert torch == str(site / "torch" / "__init__.py")
    assert libraries == [
        str(site / "nvidia" / "nccl" / "lib"),
        str(theirs / "nvidia" / "cu13" / "lib"),
        str(theirs / "nvidia" / "nccl" / "lib"),
        "/before",
    ]


def test_a_node_without_what_was_left_to_it_is_refused_before_anything_is_unpacked(
    bundle: Path, node: Path, tmp_path: Path
) -> None:
    (info,) = node.parent.parent.glob("lib/python3*/site-packages/cargo-1.0.dist-info")
    (info / "METADATA").unlink()
    info.rmdir()
    done = install(bundle, tmp_path / "prefix", PYTHON=str(node))
    assert done.returncode == 1
    assert f"{node} does not have cargo, which the bundle leaves to the node" in done.stderr
    assert "next: name another: PYTHON=/path/to/python3" in done.stderr
    assert not (tmp_path / "prefix").exists()


def test_a_node_with_another_python_is_refused_by_name(bundle: Path, node: Path, tmp_path: Path) -> None:
    facts = json.loads((bundle / "bundle.json").read_text())
    (bundle / "bundle.json").write_text(json.dumps(facts | {"python": "3.99"}, indent=2))
    write_sums(bundle)
    named = install(bundle, tmp_path / "prefix", PYTHON=str(node))
    assert f"{node} is Python {PYTHON}; the bundle is for 3.99" in named.stderr
    found = install(bundle, tmp_path / "prefix", PATH=f"{node.parent}:{os.environ['PATH']}")
    assert "error: there is no python3.99" in found.stderr
    assert (named.returncode, found.returncode) == (1, 1)
    assert not (tmp_path / "prefix").exists()


def test_an_environment_is_not_made_from_itself_and_another_version_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "venv").symlink_to(sys.prefix)
    (fault,) = node_site.faults({"python": PYTHON, "provided": {}}, tmp_path)
    assert "deactivate it" in fault
    assert node_site.faults({"python": PYTHON, "provided": {"pytest": "0.1", "pyyaml": ""}}, tmp_path / "x") == []
    assert "note: pytest is " in capsys.readouterr().out
