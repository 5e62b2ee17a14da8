"""What lies in the state directory: the bounded log, the record, the lock."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import RuntimeStateError
from outrider.runtime.lock import locked
from outrider.runtime.log import BoundedLog, LogFollower, read_lines, split_lines
from outrider.runtime.process_group import ProcessRef
from outrider.runtime.record import Record, entry, read_record, write_record

RECORD = Record(
    name="small/baseline",
    run_id="r",
    boot_id="b",
    supervisor=ProcessRef(10, 100),
    engine=ProcessRef(11, 101),
    argv=("python", "-m", "engine"),
    host="127.0.0.1",
    port=8000,
    grace_s=20.0,
    labels={"stack": "abc"},
)


@given(st.lists(st.text("ab", max_size=30), max_size=200), st.integers(1, 64))
def test_a_log_is_bounded_keeps_its_start_and_end_and_cuts_no_line(texts: list[str], piece: int) -> None:
    segment = 256
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "engine.log"
        log = BoundedLog(path, segment)
        lines = [f"{i}:{text}" for i, text in enumerate(texts)]
        data = "".join(f"{line}\n" for line in lines).encode()
        for i in range(0, len(data), piece):
            log.write(data[i : i + piece])
        log.close()
        kept = read_lines(path)
        sizes = [file.stat().st_size for file in Path(directory).iterdir()]
    assert len(sizes) <= 3
    assert all(size <= segment + piece + 40 for size in sizes)
    assert kept[:1] == lines[:1]
    assert kept[-1:] == lines[-1:]
    assert set(kept) <= set(lines)
    if len(data) <= segment:
        assert kept == lines


def test_a_full_disk_does_not_end_the_writer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "engine.log").symlink_to("/dev/full")
    log = BoundedLog(tmp_path / "engine.log")
    log.write(b"lost\n")
    log.write(b"lost too\n")
    assert capsys.readouterr().err.count("No space left") == 1


def test_a_new_log_does_not_show_the_run_before(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    old = BoundedLog(path, 16)
    for i in range(20):
        old.write(f"old line {i}\n".encode())
    old.close()
    assert len(list(tmp_path.iterdir())) == 3
    new = BoundedLog(path, 16)
    new.write(b"new\n")
    assert read_lines(path) == ["new"]
    new.close()


def test_the_last_lines_are_read_across_files(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "engine.log", 20)
    for i in range(3):
        log.write(f"line number {i}\n".encode())
    assert read_lines(tmp_path / "engine.log", 2) == ["line number 1", "line number 2"]
    assert read_lines(tmp_path / "engine.log", 0) == []
    assert read_lines(tmp_path / "absent.log") == []


def test_states_of_a_progress_bar_are_lines_and_other_separators_are_not() -> None:
    assert split_lines("0%\r50%\r100%\r\nnext\u2028same\n\n") == ["0%", "50%", "100%", "next\u2028same"]


def test_a_follower_gives_each_line_once_and_follows_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    follower = LogFollower(path)
    assert follower.new_lines() == []
    log = BoundedLog(path, 30)
    log.write(b"first\nsec")
    assert follower.new_lines() == ["first"]
    log.write(b"ond\n")
    assert follower.new_lines() == ["second"]
    log.write(b"a line that needs the next file\n")
    log.write(b"third\n")
    assert follower.new_lines()[-1] == "third"
    assert follower.new_lines() == []


def test_a_record_is_read_back_as_written_and_leaves_no_draft(tmp_path: Path) -> None:
    write_record(tmp_path / "record.json", RECORD)
    changed = replace(RECORD, ready_at=1.5, exit_code=-9)
    write_record(tmp_path / "record.json", changed)
    assert read_record(tmp_path / "record.json") == changed
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]
    assert read_record(tmp_path / "absent.json") is None


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_record(tmp_path / "record.json", RECORD)
    (tmp_path / f".record.json.{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_record(tmp_path / "record.json", replace(RECORD, port=1))
    assert read_record(tmp_path / "record.json") == RECORD


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "x"', '{"engine": {"pid": 1}}'])
def test_a_record_that_is_none_is_an_error_with_a_way_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(RuntimeStateError, match="delete"):
        read_record(tmp_path / "record.json")


def test_a_state_directory_that_cannot_be_made_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in the way")
    with pytest.raises(RuntimeStateError, match="OUTRIDER_STATE"):
        entry(tmp_path / "state", "small/baseline").create()


def test_only_its_owner_may_look_into_a_run_s_directory(tmp_path: Path) -> None:
    files = entry(tmp_path, "small/baseline")
    files.create()
    assert files.directory.stat().st_mode & 0o777 == 0o700


def test_a_lock_is_held_against_another_process_and_dies_with_it(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from outrider.runtime.lock import locked\n"
        "with locked(Path(sys.argv[1]), 'small/baseline'): print('held', flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", script, str(tmp_path / "lock")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(RuntimeStateError, match=f"pid {holder.pid}"),
            locked(tmp_path / "lock", "small/baseline"),
        ):
            pass
        holder.kill()
    with locked(tmp_path / "lock", "small/baseline"):
        pass


def test_a_forked_child_does_not_keep_a_released_lock(tmp_path: Path) -> None:
    with locked(tmp_path / "lock", "small/baseline"):
        held, release = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(release)
            os.read(held, 1)
            os._exit(0)
    try:
        with locked(tmp_path / "lock", "small/baseline"):
            pass
    finally:
        os.close(release)
        os.close(held)
        os.waitpid(child, 0)
