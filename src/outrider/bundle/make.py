"""Makes a bundle: gathers, cuts, lists; the node's side is `install.sh`, which goes along."""

from __future__ import annotations

import errno
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.bundle.contents import Contents, Form, Models, contents
from outrider.bundle.errors import BundleError
from outrider.bundle.parts import split, write_sums
from outrider.bundle.streams import saved_images, tarred
from outrider.bundle.venv_wheels import Fit, Wheelhouse, gather_venv, require_fit
from outrider.images.wheels import build_own
from outrider.model_store import manifest
from outrider.runtime.render_compose import compose_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from packaging.version import Version

    from outrider.stack import Stack

# What runs on the node; both lie open in the bundle, because they are what one reads first.
_ON_NODE = ("install.sh", "node_site.py")


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked for.

    Attributes:
        form: container or venv.
        models: whether weights travel, or only what they must be.
        part_bytes: largest file.
        version: Outrider's version.
        fit: how a venv bundle is fitted to a node.
    """

    form: Form
    models: Models
    part_bytes: int
    version: str
    fit: Fit = field(default_factory=Fit)


def make_bundle(
    stack: Stack, order: Order, root: Path, out: Path, on_step: Callable[[str], None] = lambda _step: None
) -> dict[str, object]:
    """Make a bundle in an empty directory; gives what `bundle.json` says.

    Raises:
        BundleError: the directory is not empty or has no room, weights or an image are not here, or what is said of
            the node does not fit the stack.
        ImageError: wheels cannot be had.
    """
    if out.exists() and any(out.iterdir()):
        raise BundleError(f"{out} is not empty", next_step="name a new directory; bundles are never mixed")
    plan = contents(stack, order.form, order.version)
    node = require_fit(plan, order.fit, root)
    _require_models(plan, order.models)
    out.mkdir(parents=True, exist_ok=True)
    try:
        return _fill(stack, order, root, out, plan, node, on_step)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise BundleError(
            f"{out} has no room for the bundle",
            evidence=f"{sum(path.stat().st_size for path in out.iterdir()) / 1e9:.2f} GB were written to it",
            next_step="remove what lies there, and name a directory on a larger disk",
        ) from error


def _fill(
    stack: Stack,
    order: Order,
    root: Path,
    out: Path,
    plan: Contents,
    node: dict[str, Version | None],
    on_step: Callable[[str], None],
) -> dict[str, object]:
    on_step("project files")
    _write_project(stack, order, root, out, plan)
    if order.models is Models.FILES:
        on_step(f"{len(plan.models)} models")
        with tarred(_model_sources(stack, plan)) as source:
            split(source, out, "models.tar", order.part_bytes)
    if plan.images:
        on_step(f"images {', '.join(plan.images)}")
        with saved_images(plan.images) as source:
            split(source, out, "images.tar", order.part_bytes)
    house = Wheelhouse()
    if plan.wheels:
        on_step("wheels")
        house = gather_venv(plan, order.fit, node, root)
        with tarred(house.sources) as source:
            split(source, out, "wheels.tar", order.part_bytes)
    for name in _ON_NODE if plan.wheels else _ON_NODE[:1]:
        shutil.copy(Path(__file__).with_name(name), out / name)
    (out / "install.sh").chmod(0o755)
    facts = _facts(stack, order, plan, house)
    (out / "bundle.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    on_step("checksums")
    write_sums(out)
    return facts


def _require_models(plan: Contents, how: Models) -> None:
    """Weights that shall travel must be here, and whole where a manifest says what they are."""
    if how is not Models.FILES:
        return
    for model in plan.models:
        if model.directory is None or not model.directory.is_dir():
            raise BundleError(
                f"the weights of {model.repository} are not here",
                evidence=str(model.directory or "OUTRIDER_MODELS names no directory that has them"),
                next_step="outrider fetch, or set OUTRIDER_MODELS; or bundle with --models manifest",
            )
        if (model.directory / manifest.NAME).is_file() and (faults := manifest.check(model.directory)):
            raise BundleError(f"the weights of {model.repository} are damaged", evidence="; ".join(faults))


def _model_sources(stack: Stack, plan: Contents) -> dict[str, Path]:
    """Where each model goes below the node's prefix: as the cache, the project and the store have it here."""
    sources = {}
    for model in plan.models:
        if model.directory is None:  # _require_models has refused that
            continue
        is_made = model.repository == stack.target.model and stack.target.source is not None
        name = model.directory.name if is_made else model.name
        sources[name if name.startswith("models/") else f"models/{name}"] = model.directory
    return sources


def _write_project(stack: Stack, order: Order, root: Path, out: Path, plan: Contents) -> None:
    project = out / ".project"
    for name in ("stacks", "compose"):
        (project / name).mkdir(parents=True)
    shutil.copy(root / "stacks" / f"{stack.name}.yaml", project / "stacks")
    text = compose_text(stack, tuple(stack.variants), order.version)
    (project / "compose" / f"{stack.name}.yaml").write_text(text, encoding="utf-8")
    (project / "models.json").write_text(json.dumps(_manifests(plan), indent=2) + "\n", encoding="utf-8")
    sources = {path.name: path for path in (*project.iterdir(), root / "patches")}
    if plan.wheels:  # ours lies with the project, so that a change of ours changes this small part alone
        build_own(root, root / "build" / "wheels" / "own")
        sources |= {f"own/{file.name}": file for file in (root / "build" / "wheels" / "own").glob("*.whl")}
    with tarred(sources) as source:
        split(source, out, "project.tar", order.part_bytes)
    shutil.rmtree(project)


def _manifests(plan: Contents) -> list[dict[str, object]]:
    """What the weights must be: repository, revision, and files with checksums where they are known."""
    rows: list[dict[str, object]] = []
    for model in plan.models:
        listed = model.directory / manifest.NAME if model.directory else None
        files = json.loads(listed.read_text(encoding="utf-8"))["files"] if listed and listed.is_file() else None
        rows.append({"repository": model.repository, "revision": model.revision, "files": files})
    return rows


def _facts(stack: Stack, order: Order, plan: Contents, house: Wheelhouse) -> dict[str, object]:
    return {
        "stack": stack.name,
        "stack_digest": stack.digest(),
        "outrider": order.version,
        "form": order.form.value,
        "models": order.models.value,
        "images": list(plan.images),
        "engine": plan.engine,
        "python": plan.python,
        "provided": house.provided,
        "trimmed": list(house.trimmed),
    }
