"""Reads stacks from YAML; every mistake is reported as file:line, the field, what is allowed, what was meant."""

from __future__ import annotations

import types
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from outrider.errors import StackError
from outrider.stack.names import did_you_mean
from outrider.stack.schema import Stack

Loc = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class _Document:
    """Plain data with the line on which each key or item stands."""

    data: Any
    lines: dict[Loc, int]

    def line_of(self, loc: Loc) -> int:
        """Line of the deepest part of `loc` that exists in the file."""
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc, 1)


def _plain(node: yaml.Node, loc: Loc, lines: dict[Loc, int], source: str) -> Any:
    lines.setdefault(loc, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        out: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key in out:
                raise StackError(
                    f"{'.'.join(map(str, (*loc, key)))} is written twice",
                    evidence=f"{source}:{key_node.start_mark.line + 1}, first at line {lines[(*loc, key)]}",
                    next_step="keep one of them",
                )
            lines[(*loc, key)] = key_node.start_mark.line + 1
            out[key] = _plain(value_node, (*loc, key), lines, source)
        return out
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*loc, i), lines, source) for i, item in enumerate(node.value)]
    return _scalar(node)


def _scalar(node: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    finally:
        loader.dispose()


def _parse(text: str, source: str) -> _Document:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise StackError(
            f"not valid YAML: {error.problem or error.context}",
            evidence=f"{source}:{line}",
            next_step="check indentation, quotes and colons on that line",
        ) from error
    except yaml.YAMLError as error:
        raise StackError("not valid YAML", evidence=f"{source}: {error}") from error
    if not isinstance(root, yaml.MappingNode):
        raise StackError("a stack is a YAML mapping", evidence=f"{source}:1", next_step="see stacks/ for examples")
    lines: dict[Loc, int] = {}
    return _Document(_plain(root, (), lines, source), lines)


def _models_in(annotation: Any) -> list[Any]:
    """Strip Annotated, Optional and unions from an annotation."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _models_in(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [m for arg in get_args(annotation) for m in _models_in(arg)]
    return [annotation]


def _fields_at(loc: Loc) -> list[str]:
    """Names that the schema allows in the mapping that holds the last part of `loc`."""
    current: list[Any] = [Stack]
    for part in loc[:-1]:
        following: list[Any] = []
        for kind in current:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                for name, field in kind.model_fields.items():
                    if part == (field.alias or name):
                        following += _models_in(field.annotation)
            elif get_origin(kind) in (dict, tuple, list):
                following += _models_in(get_args(kind)[-1 if get_origin(kind) is dict else 0])
        current = following
    return [
        field.alias or name
        for kind in current
        if isinstance(kind, type) and issubclass(kind, BaseModel)
        for name, field in kind.model_fields.items()
    ]


def _explain(error: dict[str, Any], document: _Document, source: str) -> str:
    loc: Loc = tuple(error["loc"])
    where = f"{source}:{document.line_of(loc)}"
    field = ".".join(str(p) for p in loc) or "the stack"
    if error["type"] == "extra_forbidden":
        allowed = _fields_at(loc)
        return (
            f"{where}: {field}: unknown field{did_you_mean(str(loc[-1]), allowed)}\n"
            f"      allowed here: {', '.join(sorted(allowed))}"
        )
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] not in {"missing", "value_error"} and "input" in error:
        message += f" (got {error['input']!r})"
    return f"{where}: {field}: {message}"


def stack_from_text(text: str, source: str = "stack.yaml") -> Stack:
    """Read a stack from YAML text; `source` names it in errors.

    Raises:
        StackError: with one line a mistake: file:line, the field, what is allowed, and what was meant.
    """
    document = _parse(text, source)
    try:
        return Stack.model_validate(document.data)
    except ValidationError as error:
        seen: dict[str, None] = {}
        for item in error.errors():
            seen.setdefault(_explain(dict(item), document, source))
        raise StackError(
            f"{source} has {len(seen)} mistake{'s' if len(seen) > 1 else ''}",
            evidence="\n    ".join(["", *seen]).lstrip("\n"),
            next_step="mend these lines; `outrider stacks` lists stacks that load",
        ) from None


def load_stack(path: Path) -> Stack:
    """Read one stack file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise StackError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StackError(f"{path} is not UTF-8 text", evidence=str(error)) from error
    stack = stack_from_text(text, str(path))
    if stack.name != path.stem:
        raise StackError(
            f"a stack's file bears its name: {path.name} declares {stack.name!r}",
            evidence=str(path),
            next_step=f"rename one of them: {stack.name}.yaml",
        )
    return stack


def stacks_dir() -> Path:
    """The directory of shipped stacks: `stacks/` of a checkout, or the copy inside an installed wheel."""
    checkout = Path(__file__).resolve().parents[3] / "stacks"
    if checkout.is_dir():
        return checkout
    return Path(str(resources.files("outrider") / "_stacks"))


def list_stacks() -> list[Path]:
    """Files of all shipped stacks, by name."""
    return sorted(stacks_dir().glob("*.yaml"))


def find_stack(name_or_path: str) -> Stack:
    """Load a stack by the name of a shipped one or by a path to a file.

    Raises:
        StackError: there is none of that name (with the nearest), or the file is wrong.
    """
    if name_or_path.endswith((".yaml", ".yml")) or "/" in name_or_path:
        return load_stack(Path(name_or_path))
    files = {file.stem: file for file in list_stacks()}
    if name_or_path not in files:
        raise StackError(
            f"there is no stack {name_or_path!r}{did_you_mean(name_or_path, files)}",
            next_step=f"one of: {', '.join(files)}; or give the path of a YAML file",
        )
    return load_stack(files[name_or_path])
