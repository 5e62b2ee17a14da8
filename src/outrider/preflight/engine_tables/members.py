"""Members of classes as dotted names: fields, attributes that methods assign, and methods with their arguments."""

from __future__ import annotations

import ast


def class_members(text: str, name: str) -> set[str]:
    """Members of a class in a source text; empty if there is no such class.

    Returns:
        `Class.field`, `Class.attribute` (assigned to `self` in any method) and `Class.method(self, argument)`.
    """
    found: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for part in node.body:
                found |= {f"{name}.{member}" for member in _members(part)}
    return found


def _members(part: ast.stmt) -> set[str]:
    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
        return {part.target.id}
    if isinstance(part, ast.FunctionDef):
        arguments = ", ".join(argument.arg for argument in part.args.args)
        return {f"{part.name}({arguments})"} | _assigned(part)
    return set()


def _assigned(function: ast.FunctionDef) -> set[str]:
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            targets = node.targets
        else:
            targets = [node.target] if isinstance(node, ast.AnnAssign) else []
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                found.add(target.attr)
    return found
