"""Constants of a Python module, read from its syntax tree: dictionaries, Literals, dataclass fields, enums."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from outrider.errors import EngineError


@dataclass(frozen=True, slots=True)
class Module:
    """A parsed module; each method answers one question about it, or raises EngineError."""

    path: str
    tree: ast.Module
    assigned: dict[str, ast.expr] = field(default_factory=dict)

    def dictionary(self, constant: str) -> dict[str, Any]:
        """String keys of a module-level dictionary, with the values that are literals (else names)."""
        return self._dictionary(self._value(constant), constant)

    def dictionary_in(self, function: str, variable: str) -> dict[str, Any]:
        """The same for a dictionary that is assigned inside a function."""
        for node in ast.walk(self._function(function)):
            target, value = _assignment(node)
            if target == variable and value is not None:
                return self._dictionary(value, variable)
        raise self._unknown(f"{function} does not assign {variable}")

    def literal(self, name: str) -> set[str]:
        """Members of a `Literal[...]` alias, with aliases inside it followed."""
        return self._members(self._value(name))

    def enum(self, name: str) -> set[str]:
        """Names of the members of an Enum class."""
        return {
            target
            for statement in self._class(name).body
            for target, _ in [_assignment(statement)]
            if target and target.isupper()
        }

    def fields(self, name: str) -> dict[str, dict[str, Any]]:
        """Annotated fields of a dataclass: `type` as written, `values` if a Literal, `min`, `above`, `max`."""
        found: dict[str, dict[str, Any]] = {}
        for statement in self._class(name).body:
            if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                continue
            facts: dict[str, Any] = {"type": ast.unparse(statement.annotation)}
            if values := self._allowed(statement.annotation):
                facts["values"] = sorted(values)
            facts |= _bounds(statement.value)
            found[statement.target.id] = facts
        return found

    def tuples_in(self, function: str) -> list[list[str]]:
        """Every tuple of strings in a function, in the order of the source."""
        return [
            [str(item.value) for item in node.elts if isinstance(item, ast.Constant)]
            for node in ast.walk(self._function(function))
            if isinstance(node, ast.Tuple) and node.elts and all(_is_text(item) for item in node.elts)
        ]

    def compared_with(self, variable: str) -> set[str]:
        """Texts that `variable` is compared with by `==`."""
        return {
            side.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == variable
            for side in node.comparators
            if isinstance(side, ast.Constant) and isinstance(side.value, str)
        }

    def constants_returned(self, method: str) -> dict[str, int]:
        """Class -> the integer that its `method` returns, for classes that return a constant."""
        found: dict[str, int] = {}
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.ClassDef):
                continue
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == method:
                    last = item.body[-1]
                    if isinstance(last, ast.Return) and isinstance(last.value, ast.Constant):
                        found[node.name] = int(str(last.value.value))
        return found

    def options_added(self) -> set[str]:
        """Long options of every `add_argument` call, without their dashes."""
        return {
            word.value.removeprefix("--")
            for call in ast.walk(self.tree)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
            for word in call.args
            if isinstance(word, ast.Constant) and isinstance(word.value, str) and word.value.startswith("--")
        }

    def decorated_with(self, decorator: str) -> set[str]:
        """First argument of every use of a decorator."""
        return {
            str(call.args[0].value)
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef)
            for call in node.decorator_list
            if isinstance(call, ast.Call) and ast.unparse(call.func) == decorator
            if isinstance(call.args[0], ast.Constant)
        }

    def _allowed(self, annotation: ast.expr) -> set[str]:
        """Values of an annotation that is a Literal, perhaps with None; empty if it is anything wider."""
        if isinstance(annotation, ast.BinOp):
            sides = [side for side in (annotation.left, annotation.right) if ast.unparse(side) != "None"]
            return self._allowed(sides[0]) if len(sides) == 1 else set()
        if isinstance(annotation, ast.Name) and annotation.id in self.assigned:
            return self._members(self.assigned[annotation.id])
        return self._members(annotation) if isinstance(annotation, ast.Subscript) else set()

    def _members(self, value: ast.expr) -> set[str]:
        if isinstance(value, ast.Name):
            return self._members(self.assigned[value.id]) if value.id in self.assigned else set()
        if not isinstance(value, ast.Subscript) or ast.unparse(value.value) != "Literal":
            return set()
        items = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
        members: set[str] = set()
        for item in items:
            members |= {str(item.value)} if isinstance(item, ast.Constant) else self._members(item)
        return members

    def _dictionary(self, value: ast.expr, name: str) -> dict[str, Any]:
        if not isinstance(value, ast.Dict):
            raise self._unknown(f"{name} is no dictionary")
        return {
            str(key.value): _plain(item)
            for key, item in zip(value.keys, value.values, strict=True)
            if isinstance(key, ast.Constant)
        }

    def _value(self, name: str) -> ast.expr:
        if name not in self.assigned:
            raise self._unknown(f"there is no {name}")
        return self.assigned[name]

    def _class(self, name: str) -> ast.ClassDef:
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return node
        raise self._unknown(f"there is no class {name}")

    def _function(self, name: str) -> ast.FunctionDef:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return node
        raise self._unknown(f"there is no function {name}")

    def _unknown(self, what: str) -> EngineError:
        return EngineError(
            f"the engine's source is arranged differently: {what}",
            evidence=self.path,
            next_step="read the new source and adapt engine_tables/extract.py",
        )


def read_module(path: str, text: str) -> Module:
    """Parse one module."""
    tree = ast.parse(text)
    module = Module(path, tree)
    for node in tree.body:
        target, value = _assignment(node)
        if target and value is not None:
            module.assigned[target] = value
    return module


def _assignment(node: ast.AST) -> tuple[str | None, ast.expr | None]:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id, node.value
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id, node.value
    return None, None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _plain(node: ast.expr) -> Any:
    return ast.unparse(node) if isinstance(node, ast.Name) else ast.literal_eval(node)


def _bounds(value: ast.expr | None) -> dict[str, float]:
    """`ge`, `gt` and `le` of a pydantic Field call, as `min`, `above` and `max`."""
    if not isinstance(value, ast.Call):
        return {}
    names = {"ge": "min", "gt": "above", "le": "max"}
    return {names[str(word.arg)]: ast.literal_eval(word.value) for word in value.keywords if str(word.arg) in names}
