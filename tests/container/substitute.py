"""A stand-in for the official CUDA image: its layout, and of its engine only the files that the ledger guards.

Python's own site directory below /usr/local, a distribution `vllm` of the pinned version, root as user, `vllm serve`
as entry point. It cannot serve; it shows that the Dockerfile's `serve` target builds over that layout.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from tests.container.conftest import ROOT, docker

from outrider.patches.ledger import load_ledger
from outrider.stack import find_stack

if TYPE_CHECKING:
    from collections.abc import Iterable

# What vLLM depends on, and our own build step with it.
ENGINE_BRINGS = (
    "annotated-types", "pydantic", "pydantic-core", "PyYAML", "typing-extensions", "typing-inspection",
)  # fmt: skip
TAG = "outrider-test/vllm-openai:substitute"
DOCKERFILE = """\
ARG BASE
FROM ${BASE}
COPY site /tmp/site
RUN python3 -m venv /tmp/pip && cp -r /tmp/pip/lib/python3*/site-packages/pip* /tmp/site/ \
 && python3 -c "import shutil, site; shutil.copytree('/tmp/site', site.getsitepackages()[0], dirs_exist_ok=True)" \
 && rm -rf /tmp/pip /tmp/site
ENTRYPOINT ["vllm", "serve"]
"""


def base() -> str:
    """The base that the images of this checkout were built on."""
    return os.environ.get("OUTRIDER_TEST_BASE", "python:3.11-slim-bookworm")


def build_substitute(directory: Path, *, spoil: bool = False) -> str:
    """Build it; `spoil` changes a guarded place, as another release would. Gives the tag."""
    version = find_stack("kimi-k2.5-rtx6000x8").engine.version
    site = directory / "site"
    for name in guarded_files():
        target = site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(engine_root() / name, target)
        if spoil:
            target.write_text(target.read_text().replace("extra_kargs = {}", "extra_kargs = {'new': 1}"))
    for distribution in ENGINE_BRINGS:
        _copy_distribution(distribution, site)
    (site / "vllm" / "__init__.py").touch()
    info = site / f"vllm-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    (info / "top_level.txt").write_text("vllm\n")
    (info / "RECORD").write_text("vllm/__init__.py,,\n")
    (directory / "Dockerfile").write_text(DOCKERFILE)
    docker("build", "--tag", TAG, "--build-arg", f"BASE={base()}", str(directory))
    return TAG


def _copy_distribution(name: str, site: Path) -> None:
    """Copy an installed package as it lies here; the base has the same Python."""
    for file in metadata.files(name) or ():
        if file.suffix != ".pyc" and ".." not in file.parts:
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file.locate(), target)


def guarded_files() -> Iterable[str]:
    """Files of vLLM that the ledger edits."""
    for entry in load_ledger(ROOT / "patches").entries:
        if entry.kind == "patch" and entry.package == "vllm":
            yield from (guard.file for guard in entry.guards)


def engine_root() -> Path:
    """Where the embedded engine's package lies, whose guarded places are those of the pinned release."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent.parent
