"""Which model classes of the engine inherit an interface, followed through imports without importing them."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _File:
    """Classes of one module with their bases as written, and where imported names come from."""

    bases: dict[str, list[str]]
    imported: dict[str, tuple[str, str]]


def classes_with_base(sources: dict[str, str], registered: dict[str, object], interface: str) -> list[str]:
    """Architectures whose class inherits `interface`, however many classes up.

    Args:
        sources: Python files of the package by path inside it.
        registered: architecture -> (module, class), as the engine's registry writes it.
        interface: name of the interface class.
    """
    files: dict[str, _File] = {}
    found = []
    for architecture, entry in registered.items():
        module, name = entry if isinstance(entry, tuple) else (str(entry), architecture)
        path = _path(str(module), sources)
        if path is not None and _inherits(path, str(name), interface, sources, files, set()):
            found.append(architecture)
    return sorted(found)


def _path(module: str, sources: dict[str, str]) -> str | None:
    dotted = module.removeprefix("vllm.") if module.startswith("vllm.") else f"model_executor.models.{module}"
    stem = dotted.replace(".", "/")
    return next((path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in sources), None)


def _inherits(
    path: str,
    name: str,
    interface: str,
    sources: dict[str, str],
    files: dict[str, _File],
    seen: set[tuple[str, str]],
) -> bool:
    if (path, name) in seen:
        return False
    seen.add((path, name))
    if path not in files:
        files[path] = _read(path, sources)
    here = files[path]
    if name not in here.bases:
        origin = here.imported.get(name)
        return origin is not None and _inherits(*origin, interface, sources, files, seen)
    return any(base == interface or _inherits(path, base, interface, sources, files, seen) for base in here.bases[name])


def _read(path: str, sources: dict[str, str]) -> _File:
    bases: dict[str, list[str]] = {}
    imported: dict[str, tuple[str, str]] = {}
    for node in ast.walk(ast.parse(sources[path])):
        if isinstance(node, ast.ClassDef):
            bases[node.name] = [ast.unparse(base).split("[")[0] for base in node.bases]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            # `NewName = OldName` makes an alias.
            bases.setdefault(ast.unparse(node.targets[0]), [node.value.id])
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(path, node, sources)
            for alias in node.names if origin else ():
                imported[alias.asname or alias.name] = (str(origin), alias.name)
    return _File(bases, imported)


def _origin(path: str, node: ast.ImportFrom, sources: dict[str, str]) -> str | None:
    module = node.module or ""
    if node.level:
        folder = path.rsplit("/", node.level)[0] if path.count("/") >= node.level else ""
        stem = "/".join(part for part in (folder, module.replace(".", "/")) if part)
    else:
        stem = module.removeprefix("vllm.").replace(".", "/")
    return next((found for found in (f"{stem}.py", f"{stem}/__init__.py") if found in sources), None)
