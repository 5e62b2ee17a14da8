"""A checkpoint as its files describe it: configs, tokenizer, and the headers of every shard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import orjson

from outrider.errors import ModelError
from outrider.preflight.reading.headers import HeaderError, read_header
from outrider.preflight.reading.tokenizer import TokenizerFacts, facts_from_json, facts_from_tiktoken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outrider.preflight.reading.files import Files
    from outrider.preflight.reading.headers import TensorInfo

FaultKind = Literal["absent", "malformed", "shard_absent", "shard_size", "header", "index", "no_safetensors"]
INDEX = "model.safetensors.index.json"
# Bytes of JSON or tokenizer text that are read at most; larger files are not what they claim to be.
_SMALL = 128 << 20
# Integer tables (d2t, t2d) are the only tensor data that is ever read; the largest vocabulary needs 2 MiB.
_TABLE = 8 << 20
_INTEGER_DTYPES = {"I64": "<i8", "I32": "<i4", "U8": "<u1", "BOOL": "<u1", "I8": "<i1", "I16": "<i2"}


@dataclass(frozen=True, slots=True)
class Fault:
    """Something about the files themselves that is wrong."""

    kind: FaultKind
    where: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was read of one model. Values are as found: nothing in `config` is validated yet.

    Attributes:
        label: directory or repository, for `where` of findings.
        config: `config.json`, None if it cannot be read.
        generation_config: `generation_config.json`, empty if absent.
        tokenizer: None if there are no tokenizer files.
        chat_template: True if one is there.
        tensors: name -> header entry over all shards; None if no header could be read.
        shards: shard file -> size in bytes that its header demands.
        weights_listed: files that look like weights, of any format.
        from_reference: True if this is a shipped `shapes/` reference and no file was read.
        faults: what is wrong with the files.
        tables: `d2t` and `t2d` of a drafter, where present: integers as stored.
    """

    label: str
    config: Mapping[str, Any] | None
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: TokenizerFacts | None = None
    chat_template: bool = False
    tensors: Mapping[str, TensorInfo] | None = None
    shards: Mapping[str, int] = field(default_factory=dict)
    weights_listed: tuple[str, ...] = ()
    from_reference: bool = False
    faults: tuple[Fault, ...] = ()
    tables: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def where(self, name: str) -> str:
        """`label/name`, for findings."""
        return f"{self.label}/{name}"


def read_checkpoint(files: Files, *, tables: bool = False) -> Checkpoint:
    """Read configs, tokenizer and headers; every problem becomes a fault, none an exception.

    Args:
        files: where to read.
        tables: also read the integer tables `d2t` and `t2d` (of drafters), the only tensor data ever read.
    """
    faults: list[Fault] = []
    try:
        names = files.names()
    except ModelError as error:
        return Checkpoint(files.label, None, faults=(Fault("absent", files.label, str(error)),))
    config = _json(files, names, "config.json", faults, required=True)
    tokenizer_config = _json(files, names, "tokenizer_config.json", faults) or {}
    tensors, shards, shard_of = _headers(files, names, faults)
    return Checkpoint(
        label=files.label,
        config=config,
        generation_config=_json(files, names, "generation_config.json", faults) or {},
        tokenizer=_tokenizer(files, names, tokenizer_config),
        chat_template=bool(
            tokenizer_config.get("chat_template") or names & {"chat_template.jinja", "chat_template.json"}
        ),
        tensors=tensors,
        shards=shards,
        weights_listed=tuple(sorted(n for n in names if n.endswith((".safetensors", ".bin", ".pt", ".pth", ".gguf")))),
        faults=tuple(faults),
        tables=_tables(files, shard_of, tensors, faults) if tables and tensors else {},
    )


def _json(
    files: Files, names: frozenset[str], name: str, faults: list[Fault], *, required: bool = False
) -> dict[str, Any] | None:
    where = f"{files.label}/{name}"
    if name not in names:
        if required:
            faults.append(Fault("absent", where, "no such file"))
        return None
    try:
        data = orjson.loads(files.read(name, 0, _SMALL))
    except (ModelError, orjson.JSONDecodeError) as error:
        faults.append(Fault("malformed", where, str(error)))
        return None
    if not isinstance(data, dict):
        faults.append(Fault("malformed", where, f"holds a {type(data).__name__}, not an object"))
        return None
    return data


def _tokenizer(files: Files, names: frozenset[str], tokenizer_config: Mapping[str, Any]) -> TokenizerFacts | None:
    try:
        if "tokenizer.json" in names:
            return facts_from_json(files.read("tokenizer.json", 0, _SMALL), tokenizer_config)
        if tiktoken := sorted(name for name in names if name.endswith((".tiktoken", "tiktoken.model"))):
            return facts_from_tiktoken(files.read(tiktoken[0], 0, _SMALL), tokenizer_config)
    except ModelError as error:
        return TokenizerFacts("tokenizer.json", fault=str(error))
    if "tokenizer.model" in names:
        return TokenizerFacts("sentencepiece")
    return None


def _headers(
    files: Files, names: frozenset[str], faults: list[Fault]
) -> tuple[dict[str, TensorInfo] | None, dict[str, int], dict[str, str]]:
    listed = _index(files, names, faults)
    present = {name for name in names if name.endswith(".safetensors") and not name.startswith("consolidated")}
    expected = set(listed.values()) if listed else present
    if not expected:
        faults.append(Fault("no_safetensors", files.label, "no *.safetensors file"))
        return None, {}, {}
    tensors: dict[str, TensorInfo] = {}
    shards: dict[str, int] = {}
    found_in: dict[str, str] = {}
    for shard in sorted(expected):
        where = f"{files.label}/{shard}"
        size = files.size(shard) if shard in present else None
        if shard not in present:
            faults.append(Fault("shard_absent", where, f"named by {INDEX}, not there"))
            continue
        try:
            header = read_header(files, shard)
        except HeaderError as error:
            faults.append(Fault("header", where, " ".join(str(error).split())))
            continue
        except ModelError as error:
            faults.append(Fault("header", where, str(error)))
            continue
        if size is not None and size != header.size:
            faults.append(Fault("shard_size", where, f"{size} bytes, its header describes {header.size}"))
        tensors |= header.tensors
        shards[shard] = header.size
        found_in |= dict.fromkeys(header.tensors, shard)
    if listed:
        _compare_index(files.label, listed, found_in, set(shards), faults)
    return tensors or None, shards, found_in


def _index(files: Files, names: frozenset[str], faults: list[Fault]) -> dict[str, str]:
    data = _json(files, names, INDEX, faults)
    if data is None:
        return {}
    weight_map = data.get("weight_map")
    if not isinstance(weight_map, dict) or not all(
        isinstance(shard, str) and "/" not in shard for shard in weight_map.values()
    ):
        faults.append(Fault("malformed", f"{files.label}/{INDEX}", "weight_map is no map of tensor to file"))
        return {}
    return weight_map


def _compare_index(
    label: str, listed: Mapping[str, str], found_in: Mapping[str, str], read: set[str], faults: list[Fault]
) -> None:
    wrong = [name for name, shard in listed.items() if shard in read and found_in.get(name) != shard]
    extra = [name for name in found_in if name not in listed]
    for what, tensors in (("not in the shard that the index names", wrong), ("not in the index", extra)):
        if tensors:
            faults.append(Fault("index", f"{label}/{INDEX}", f"{len(tensors)} tensors {what}: {min(tensors)}"))


def _tables(
    files: Files, shard_of: Mapping[str, str], tensors: Mapping[str, TensorInfo], faults: list[Fault]
) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for name, tensor in tensors.items():
        short = name.rsplit(".", 1)[-1]
        if short not in {"d2t", "t2d"} or tensor.dtype not in _INTEGER_DTYPES or tensor.nbytes > _TABLE:
            continue
        try:
            raw = files.read(shard_of[name], tensor.start, tensor.nbytes)
        except ModelError as error:
            faults.append(Fault("header", f"{files.label}/{shard_of[name]}", str(error)))
            continue
        width = int(_INTEGER_DTYPES[tensor.dtype][-1])
        signed = _INTEGER_DTYPES[tensor.dtype][1] == "i"
        found[short] = tuple(
            int.from_bytes(raw[i : i + width], "little", signed=signed) for i in range(0, len(raw), width)
        )
    return found
