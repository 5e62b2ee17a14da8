"""A repository is looked at by ranged requests; its weights never travel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.unit.preflight import checkpoints as made
from tests.unit.preflight.checkpoints import codes, drafted, zeros
from tests.unit.preflight.hub import Hub, serve

from outrider.errors import ModelError
from outrider.preflight import run_preflight
from outrider.preflight.reading import LocalFiles, RemoteFiles, read_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

TARGET, DRAFTER = "acme/tiny-target", "acme/tiny-drafter"


@pytest.fixture
def repositories(tmp_path: Path) -> dict[str, Path]:
    target = made.llama_target()
    # Large enough that sending them would be seen.
    target.tensors["model.layers.0.zz_padding.weight"] = zeros(1 << 20)
    return {
        TARGET: target.write(tmp_path / "target", shards=4),
        DRAFTER: made.llama_eagle3().write(tmp_path / "drafter"),
    }


def header_end(path: Path) -> int:
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


def test_reads_the_same_as_a_directory(repositories: dict[str, Path]) -> None:
    with serve(Hub(repositories)) as hub, RemoteFiles(TARGET, endpoint=hub.url) as files:
        there = read_checkpoint(files)
    here = read_checkpoint(LocalFiles(repositories[TARGET]))
    assert there.label == f"{TARGET}@main"
    assert (there.config, there.tensors, there.shards, there.tokenizer, there.chat_template, there.faults) == (
        here.config,
        here.tensors,
        here.shards,
        here.tokenizer,
        here.chat_template,
        here.faults,
    )


@pytest.mark.parametrize("redirects", [False, True])
def test_weights_are_never_sent(repositories: dict[str, Path], redirects: bool) -> None:
    with serve(Hub(repositories, redirects=redirects)) as hub, RemoteFiles(TARGET, endpoint=hub.url) as files:
        checkpoint = read_checkpoint(files)
        shards = sorted(repositories[TARGET].glob("*.safetensors"))
        assert checkpoint.faults == ()
        assert len(shards) == 4
        for shard in shards:
            assert hub.sent[TARGET, shard.name] == header_end(shard)


def test_of_a_drafter_only_the_id_tables_are_sent_beside_the_header(repositories: dict[str, Path]) -> None:
    path = repositories[DRAFTER] / "model.safetensors"
    local = read_checkpoint(LocalFiles(repositories[DRAFTER]), tables=True)
    assert local.tensors is not None
    with serve(Hub(repositories)) as hub:
        ranges: list[tuple[int, int]] = []

        class Watched(RemoteFiles):
            def read(self, name: str, start: int, length: int) -> bytes:
                if name == path.name:
                    ranges.append((start, length))
                return super().read(name, start, length)

        with Watched(DRAFTER, endpoint=hub.url) as files:
            there = read_checkpoint(files, tables=True)
    assert there.tables == local.tables
    tables = {(local.tensors[name].start, local.tensors[name].nbytes) for name in ("d2t", "t2d")}
    assert set(ranges) == {(0, 8), (8, header_end(path) - 8)} | tables


def test_large_tables_are_not_read(tmp_path: Path) -> None:
    drafter = made.llama_eagle3()
    drafter.tensors["d2t"] = np.zeros((8 << 20) // 8 + 1, dtype=np.int64)
    assert "d2t" not in read_checkpoint(LocalFiles(drafter.write(tmp_path)), tables=True).tables


def test_server_that_ignores_ranges_is_hung_up_on(repositories: dict[str, Path]) -> None:
    large = repositories[TARGET] / "large.safetensors"
    with large.open("wb") as file:
        file.write(bytes(range(64)))
        # A hole far larger than what sockets buffer, so that the server notices the hang-up before the end.
        file.truncate(1 << 30)
    with serve(Hub(repositories, honours_ranges=False)) as hub:
        with RemoteFiles(TARGET, endpoint=hub.url) as files:
            assert files.read(large.name, 8, 20) == bytes(range(8, 28))
        assert hub.sent[TARGET, large.name] < large.stat().st_size // 4


def test_whole_preflight_of_a_repository(repositories: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    speculation = drafted("eagle3")
    del speculation["drafter"]["revision"]
    stack = made.stack(speculation)
    stack = stack.model_copy(update={"target": stack.target.model_copy(update={"revision": None, "weight_gb": 0.002})})
    with serve(Hub(repositories)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        report = run_preflight(stack, remote=True)
    assert codes(report.findings) == {"DRAFT035"}
    assert [figures.source.split(";")[0] for figures in report.memory] == ["safetensors headers"] * 2


def test_fault_in_a_repository_is_found_without_downloading(
    repositories: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = min(repositories[TARGET].glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-10])
    stack = made.stack()
    stack = stack.model_copy(update={"target": stack.target.model_copy(update={"revision": None, "weight_gb": 0.002})})
    with serve(Hub(repositories)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        report = run_preflight(stack, "baseline", remote=True)
    assert codes(report.findings) == {"FILE004"}


@pytest.mark.parametrize(
    ("repository", "revision", "listing"),
    [("acme/none", "main", None), (TARGET, "0" * 40, None), (TARGET, "main", b"{}"), (TARGET, "main", b"<html>")],
)
def test_repository_that_cannot_be_listed_is_a_finding(
    repositories: dict[str, Path], repository: str, revision: str, listing: bytes | None
) -> None:
    with (
        serve(Hub(repositories, listing=listing)) as hub,
        RemoteFiles(repository, revision, endpoint=hub.url) as files,
    ):
        checkpoint = read_checkpoint(files)
    assert [fault.kind for fault in checkpoint.faults] == ["absent"]


def test_missing_file_names_repository_and_next_step(repositories: dict[str, Path]) -> None:
    with (
        serve(Hub(repositories)) as hub,
        RemoteFiles(TARGET, endpoint=hub.url) as files,
        pytest.raises(ModelError, match="HF_TOKEN"),
    ):
        files.read("nothing.json", 0, 10)


def test_token_is_sent(repositories: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    with serve(Hub(repositories)) as hub, RemoteFiles(TARGET, endpoint=hub.url) as files:
        files.names()
    assert hub.tokens == ["Bearer secret"]


def test_hub_that_is_not_there_is_an_error_with_a_hint(repositories: dict[str, Path]) -> None:
    with serve(Hub(repositories)) as hub:
        gone = hub.url
    with RemoteFiles(TARGET, endpoint=gone, timeout_s=2.0) as files, pytest.raises(ModelError, match="HF_ENDPOINT"):
        files.names()


def test_range_behind_the_end_is_empty(repositories: dict[str, Path]) -> None:
    with serve(Hub(repositories)) as hub, RemoteFiles(TARGET, endpoint=hub.url) as files:
        size = files.size("config.json")
        assert size is not None
        assert files.read("config.json", size + 5, 10) == b""
        assert files.read("config.json", 0, 0) == b""
        assert files.size("nothing") is None
