"""Safetensors headers: no malformed file crashes the reader or makes it read more than the header."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from outrider.preflight.reading import HeaderError, LocalFiles, TensorInfo, parse_header, read_header
from outrider.preflight.reading.headers import DTYPE_BITS, LENGTH_BYTES, MAX_HEADER_BYTES

if TYPE_CHECKING:
    from pathlib import Path


class Recorded:
    """Files in memory that remember how far each was read."""

    label = "memory"

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.furthest = 0

    def names(self) -> frozenset[str]:
        return frozenset({"model.safetensors"})

    def size(self, name: str) -> int | None:
        return len(self.content)

    def read(self, name: str, start: int, length: int) -> bytes:
        part = self.content[start : start + length]
        self.furthest = max(self.furthest, start + len(part))
        return part


def file_of(header: object, data: bytes = b"") -> bytes:
    raw = json.dumps(header).encode()
    return len(raw).to_bytes(LENGTH_BYTES, "little") + raw + data


def entry(dtype: object = "F16", shape: object = (2, 3), offsets: object = (0, 12)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def announced(content: bytes) -> int:
    return LENGTH_BYTES + min(int.from_bytes(content[:LENGTH_BYTES], "little"), len(content))


def refuse_or_read(content: bytes) -> None:
    """Whatever the bytes are: a header or a HeaderError, and never a byte behind the header."""
    files = Recorded(content)
    try:
        header = read_header(files, "model.safetensors")
    except HeaderError:
        pass
    else:
        assert all(tensor.nbytes >= 0 for tensor in header.tensors.values())
    assert files.furthest <= announced(content)


def test_reads_what_the_library_writes() -> None:
    content = save({"a": np.zeros((2, 3), np.float16), "b": np.zeros(5, np.int64)}, {"format": "pt"})
    header = read_header(Recorded(content), "model.safetensors")
    assert header.size == len(content)
    assert header.metadata == {"format": "pt"}
    assert {name: (t.dtype, t.shape, t.nbytes) for name, t in header.tensors.items()} == {
        "a": ("F16", (2, 3), 12),
        "b": ("I64", (5,), 40),
    }


def test_never_reads_weights(tmp_path: Path) -> None:
    content = save({"w": np.full(1000, 7, np.uint8)})
    files = Recorded(content)
    read_header(files, "model.safetensors")
    assert files.furthest == len(content) - 1000


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "shorter than a header"),
        (b"\x10\0\0", "shorter than a header"),
        ((0).to_bytes(8, "little"), "out of range"),
        ((MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{}", "out of range"),
        ((2**64 - 1).to_bytes(8, "little") + b"{}", "out of range"),
        ((500).to_bytes(8, "little") + b"{}", "longer than the file"),
        ((2).to_bytes(8, "little") + b"[]", "no JSON object"),
        ((4).to_bytes(8, "little") + b'{"a"', "not JSON"),
        ((4).to_bytes(8, "little") + b"\xff\xfe\xfd\xfc", "not JSON"),
        (file_of({"__metadata__": {"a": 1}}), "no map of texts"),
        (file_of({"a": 3}), "no JSON object"),
        (file_of({"a": entry(dtype="F17")}), "unknown dtype"),
        (file_of({"a": entry(dtype=["F16"])}), "unknown dtype"),
        (file_of({"a": entry(shape=(-2, 3))}), "malformed shape"),
        (file_of({"a": entry(shape=(2.0, 3))}), "malformed shape"),
        (file_of({"a": entry(shape=(True, 3))}), "malformed shape"),
        (file_of({"a": entry(shape=[1] * 65)}), "malformed shape"),
        (file_of({"a": entry(shape="6")}), "malformed shape"),
        (file_of({"a": entry(offsets=(0,))}), "malformed data_offsets"),
        (file_of({"a": entry(offsets=(-12, 0))}), "malformed data_offsets"),
        (file_of({"a": entry(offsets=(12, 0))}), "do not match"),
        (file_of({"a": entry(offsets=(0, 11))}), "do not match"),
        (file_of({"a": entry(shape=(2**40, 2**40))}), "do not match"),
        (file_of({"a": entry(offsets=(4, 16))}), "does not begin where"),
        (file_of({"a": entry(), "b": entry(offsets=(6, 18))}), "does not begin where"),
    ],
)
def test_malformed_header_names_its_cause(content: bytes, cause: str) -> None:
    files = Recorded(content)
    with pytest.raises(HeaderError, match=cause):
        read_header(files, "model.safetensors")
    assert files.furthest <= announced(content)


def test_cut_off_header_of_unknown_file_size() -> None:
    with pytest.raises(HeaderError, match="cut off"):
        parse_header(b'{"a":', length=90)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(HeaderError):
        parse_header(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@given(st.binary(max_size=200))
def test_any_bytes(content: bytes) -> None:
    refuse_or_read(content)


@given(st.integers(0, 2**64 - 1), st.binary(max_size=80))
def test_any_length_field(length: int, rest: bytes) -> None:
    refuse_or_read(length.to_bytes(LENGTH_BYTES, "little") + rest)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_any_json(header: object) -> None:
    refuse_or_read(file_of(header))


@given(
    st.dictionaries(
        st.text(max_size=6),
        st.fixed_dictionaries(
            {
                "dtype": st.sampled_from([*DTYPE_BITS, "X", ""]),
                "shape": st.lists(st.integers(-3, 2**62) | st.integers(0, 4), max_size=4),
                "data_offsets": st.lists(st.integers(-10, 2**63), min_size=1, max_size=3),
            }
        ),
        max_size=4,
    ),
    st.binary(max_size=64),
)
def test_any_entries(header: dict[str, object], data: bytes) -> None:
    refuse_or_read(file_of(header, data))


@given(st.data())
def test_cut_anywhere(data: st.DataObject) -> None:
    content = save({"a": np.zeros((3, 4), np.float32), "b": np.zeros(7, np.int8)})
    refuse_or_read(content[: data.draw(st.integers(0, len(content)))])


@given(st.data())
def test_one_byte_changed(data: st.DataObject) -> None:
    content = bytearray(save({"a": np.zeros((3, 4), np.float32), "b": np.zeros(7, np.int8)}))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    refuse_or_read(bytes(content))


@given(st.lists(st.tuples(st.sampled_from(["F16", "I64", "U8"]), st.lists(st.integers(0, 5), max_size=3)), max_size=5))
def test_well_formed_headers_come_back(shapes: list[tuple[str, list[int]]]) -> None:
    header: dict[str, object] = {}
    offset = 0
    for index, (dtype, shape) in enumerate(shapes):
        nbytes = int(np.prod(shape, dtype=np.int64)) * DTYPE_BITS[dtype] // 8
        header[f"t{index}"] = entry(dtype, shape, (offset, offset + nbytes))
        offset += nbytes
    content = file_of(header, bytes(offset))
    read = read_header(Recorded(content), "model.safetensors")
    assert read.size == len(content)
    assert [(t.dtype, list(t.shape)) for t in read.tensors.values()] == shapes
    assert all(isinstance(tensor, TensorInfo) for tensor in read.tensors.values())


def test_local_file_is_read_no_further_than_asked(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(range(100)))
    files = LocalFiles(tmp_path)
    assert files.read("x", 10, 5) == bytes(range(10, 15))
    assert files.read("x", 98, 50) == bytes([98, 99])
    assert files.size("x") == 100
    assert files.size("y") is None
