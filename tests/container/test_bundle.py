"""A bundle for a node with Docker: cut, damaged, mended, installed into an engine that lacks its images.

The images are small stand-ins under a version of their own; the real ones, 3.7 GB, take the same way in more parts.

"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.container.conftest import ROOT, docker
from tests.container.substitute import base

from outrider.bundle.contents import Form, Models
from outrider.bundle.make import Order, make_bundle
from outrider.images.build import image_tag
from outrider.runtime.docker_engine import DockerEngine, find_compose
from outrider.stack import find_stack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.container, pytest.mark.timeout(600)]

STACK = "smollm2-cpu"
VERSION = "bundle-test"
TAGS = tuple(image_tag(target, VERSION) for target in ("serve-cpu", "load"))


def image_ids() -> dict[str, str]:
    found = docker("image", "ls", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}").stdout
    ids = dict(line.split() for line in found.splitlines())
    return {tag: ids[tag] for tag in TAGS if tag in ids}


def install(bundle: Path, prefix: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([bundle / "install.sh", prefix], capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def bundle(
    docker_engine: DockerEngine, smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, dict[str, str]]]:
    """The bundle, and the images' IDs when it was made; the engine has them no more."""
    directory = tmp_path_factory.mktemp("bundle")
    for number, tag in enumerate(TAGS):
        context = directory / f"context-{number}"
        context.mkdir()
        (context / "Dockerfile").write_text(f"FROM {base()}\nRUN head -c 3000000 /dev/urandom > /content\n")
        docker("build", "--no-cache", "--tag", tag, str(context))
    ids = image_ids()
    order = Order(Form.CONTAINER, Models.FILES, 60 * 10**6, VERSION)
    facts = make_bundle(find_stack(STACK), order, ROOT, directory / "out")
    assert facts["images"] == list(TAGS)
    docker("image", "rm", *TAGS)
    yield directory / "out", ids
    docker("image", "rm", "--force", *TAGS, check=False)


def test_a_damaged_or_absent_part_is_named_and_nothing_is_touched(
    bundle: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    parts, _ = bundle
    part = parts / "images.tar.001"
    whole = part.read_bytes()
    assert len(whole) == 60 * 10**6
    part.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    damaged = install(parts, tmp_path / "node")
    part.rename(parts / "aside")
    absent = install(parts, tmp_path / "node")
    (parts / "aside").unlink()
    part.write_bytes(whole)
    for refused in (damaged, absent):
        assert refused.returncode == 1
        assert "images.tar.001: FAILED" in refused.stdout + refused.stderr
        assert "this bundle is damaged or incomplete" in refused.stderr
    assert image_ids() == {}
    assert not (tmp_path / "node").exists()


def test_the_installer_loads_the_same_images_and_the_project_is_one_that_compose_takes(
    bundle: tuple[Path, dict[str, str]], smollm2_dir: Path, tmp_path: Path
) -> None:
    parts, ids = bundle
    node = tmp_path / "node"
    done = install(parts, node)
    assert done.returncode == 0, done.stdout + done.stderr
    assert image_ids() == ids
    assert (node / "models" / smollm2_dir.name / "model.safetensors").stat().st_size == (
        smollm2_dir / "model.safetensors"
    ).stat().st_size
    assert f"docker compose -f compose/{STACK}.yaml --profile baseline up" in done.stdout
    words = [*find_compose(), "--file", str(node / "compose" / f"{STACK}.yaml"), "--profile", "*", "config"]
    env = {"OUTRIDER_CACHE": str(node), "OUTRIDER_MODELS": f"{node}/models", "OUTRIDER_PROJECT": str(node)}
    config = subprocess.run(
        [*words, "--format", "json"], capture_output=True, text=True, check=True, env=os.environ | env
    )
    services = json.loads(config.stdout)["services"]
    assert {service["image"] for service in services.values()} == set(TAGS)
    for name in ("baseline", "eagle3"):
        sources = [volume["source"] for volume in services[name]["volumes"] if volume["type"] == "bind"]
        assert all((node / source).joinpath("config.json").is_file() for source in sources), sources
