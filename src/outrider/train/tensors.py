"""Safetensors files without a tensor library: read the header, copy chosen tensors byte for byte.

Format (huggingface/safetensors, README "Format"): 8 bytes little-endian length of the header, the header as JSON
(name to dtype, shape, data_offsets, relative to the end of the header), then the data.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from outrider.train.errors import TrainError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LONGEST_HEADER = 100_000_000  # the reference implementation's limit
_CHUNK = 1 << 22


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """Tensor name to dtype, shape and data_offsets.

    Raises:
        TrainError: the file is cut short or is no safetensors file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else _LONGEST_HEADER + 1
        text = file.read(length) if length <= min(_LONGEST_HEADER, size) else b""
    try:
        header: dict[str, dict[str, Any]] = json.loads(text)
    except ValueError as error:
        raise TrainError(f"{path.name} is not a safetensors file", evidence=str(path)) from error
    header.pop("__metadata__", None)
    end = max((int(t["data_offsets"][1]) for t in header.values()), default=0)
    if 8 + length + end != size:
        raise TrainError(
            f"{path.name} is cut short", evidence=f"{path}: {size} bytes, its header asks for {8 + length + end}"
        )
    return header


def copy_tensors(source: Path, target: Path, keep: Callable[[str], bool]) -> dict[str, dict[str, Any]]:
    """Copy the tensors that `keep` accepts, in order of name; gives the new header."""
    header = read_header(source)
    with source.open("rb") as file:
        data_start = 8 + struct.unpack("<Q", file.read(8))[0]
        chosen: dict[str, dict[str, Any]] = {}
        at = 0
        for name in sorted(filter(keep, header)):
            first, last = header[name]["data_offsets"]
            chosen[name] = {**header[name], "data_offsets": [at, at + last - first]}
            at += last - first
        text = json.dumps({"__metadata__": {"format": "pt"}, **chosen}, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with target.open("wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for name in chosen:
                first, last = header[name]["data_offsets"]
                file.seek(data_start + first)
                left = last - first
                while left:
                    block = file.read(min(_CHUNK, left))
                    left -= len(block)
                    out.write(block)
    return chosen
