"""Safetensors headers: eight bytes of length, that many bytes of JSON; the tensors behind it are never touched.

Format and limits: https://github.com/huggingface/safetensors (README, `safetensors/src/tensor.rs`, 0.8.0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import orjson

from outrider.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outrider.preflight.reading.files import Files

LENGTH_BYTES = 8
# `MAX_HEADER_SIZE` of the reference reader.
MAX_HEADER_BYTES = 100_000_000
# A shape of more dimensions than any framework has is a forged one.
_MAX_RANK = 64
_MAX_BYTES = 2**63 - 1
DTYPE_BITS: dict[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}


class HeaderError(ModelError):
    """A safetensors file whose header cannot be trusted."""


class TensorInfo(NamedTuple):
    """One tensor of a header.

    Attributes:
        dtype: the format's name, as in `DTYPE_BITS`.
        shape: dimensions.
        start: first byte, counted from the beginning of the file.
        nbytes: size in bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """All tensors of one file.

    Attributes:
        tensors: by name.
        size: bytes that the whole file must have.
        metadata: the free-form text map of the format.
    """

    tensors: Mapping[str, TensorInfo]
    size: int
    metadata: Mapping[str, str] = field(default_factory=dict)


def read_header(files: Files, name: str) -> Header:
    """Read one file's header: its length field, then exactly the header.

    Raises:
        HeaderError: the header is malformed; nothing behind it was read.
        ModelError: the file cannot be read.
    """
    prefix = files.read(name, 0, LENGTH_BYTES)
    length = header_length(prefix, files.size(name))
    return parse_header(files.read(name, LENGTH_BYTES, length), length)


def header_length(prefix: bytes, file_size: int | None) -> int:
    """The length field, checked against the format's cap and the file's size.

    Raises:
        HeaderError: truncated, empty, larger than the cap or than the file.
    """
    if len(prefix) < LENGTH_BYTES:
        raise HeaderError("the file is shorter than a header", evidence=f"{len(prefix)} bytes")
    length = int.from_bytes(prefix, "little")
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise HeaderError("the header's length field is out of range", evidence=f"{length} bytes")
    if file_size is not None and length > file_size - LENGTH_BYTES:
        raise HeaderError(
            "the header is longer than the file", evidence=f"{length} bytes announced, the file has {file_size}"
        )
    return length


def parse_header(raw: bytes, length: int | None = None) -> Header:
    """Parse the JSON of a header, trusting nothing in it.

    Args:
        raw: the header without its length field.
        length: bytes that the length field announced, if it was read; fewer mean a truncated file.

    Raises:
        HeaderError: wrong JSON, unknown dtype, bad shape, offsets out of order or not matching dtype x shape.
    """
    if length is not None and len(raw) < length:
        raise HeaderError("the header is cut off", evidence=f"{len(raw)} of {length} bytes")
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise HeaderError("the header is not JSON", evidence=str(error)) from error
    if not isinstance(data, dict):
        raise HeaderError("the header is no JSON object", evidence=type(data).__name__)
    metadata = data.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise HeaderError("__metadata__ is no map of texts")
    base = LENGTH_BYTES + len(raw)
    tensors = {name: _tensor(name, facts, base) for name, facts in data.items()}
    end = _contiguous_end(tensors, base)
    return Header(tensors, end, metadata)


def _tensor(name: str, facts: object, base: int) -> TensorInfo:
    if not isinstance(facts, dict):
        raise HeaderError(f"tensor {name} is no JSON object")
    dtype, shape, offsets = facts.get("dtype"), facts.get("shape"), facts.get("data_offsets")
    bits = DTYPE_BITS.get(dtype) if isinstance(dtype, str) else None
    if not isinstance(dtype, str) or bits is None:
        raise HeaderError(f"tensor {name} has unknown dtype", evidence=repr(dtype)[:80])
    if not isinstance(shape, list) or len(shape) > _MAX_RANK or not _are_counts(shape):
        raise HeaderError(f"tensor {name} has a malformed shape", evidence=repr(shape)[:80])
    if not isinstance(offsets, list) or len(offsets) != 2 or not _are_counts(offsets):
        raise HeaderError(f"tensor {name} has malformed data_offsets", evidence=repr(offsets)[:80])
    total_bits = math.prod(shape) * bits
    nbytes = offsets[1] - offsets[0]
    if total_bits > _MAX_BYTES or total_bits % 8 or nbytes != total_bits // 8:
        raise HeaderError(
            f"tensor {name}: data_offsets do not match dtype x shape",
            evidence=f"{dtype} {shape} is {total_bits} bits, offsets span {nbytes} bytes",
        )
    return TensorInfo(dtype, tuple(shape), base + offsets[0], nbytes)


def _are_counts(values: list[object]) -> bool:
    for value in values:  # noqa: SIM110 - three times as fast, and large checkpoints have a million of these
        if type(value) is not int or value < 0 or value > _MAX_BYTES:
            return False
    return True


def _contiguous_end(tensors: Mapping[str, TensorInfo], base: int) -> int:
    """The file's end, if the tensors fill it without a hole or an overlap."""
    expected = base
    for tensor in tensors.values():
        if tensor.start != expected:
            return _sorted_end(tensors, base)
        expected += tensor.nbytes
    return expected


def _sorted_end(tensors: Mapping[str, TensorInfo], base: int) -> int:
    """The same for headers that do not list tensors in the order of their data."""
    expected = base
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].nbytes)):
        if tensor.start != expected:
            raise HeaderError(
                f"tensor {name} does not begin where the one before it ends",
                evidence=f"byte {tensor.start}, expected {expected}",
            )
        expected += tensor.nbytes
    return expected
