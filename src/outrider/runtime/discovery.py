"""Targets for Prometheus: one small JSON file an engine or load process, found by file service discovery.

    <state>/targets/engine-smollm2-cpu-ngram.json      written when a variant answers, removed when it is stopped
                    client-<pid>.json                  while a load process exports its figures
                    outrider.json                      while `outrider observe export` runs

An engine that dies by itself keeps its file: its scrape fails, and that is what the alert about it sees. Files are
replaced as a whole, so that Prometheus never reads half of one.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil

from outrider.errors import RuntimeStateError
from outrider.stack.schema import slug
from outrider.state import targets_dir

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from outrider.stack import Stack

ENGINE, CLIENT, EXPORTER = "engine", "client", "outrider"


@dataclass(frozen=True, slots=True)
class Target:
    """Something to scrape.

    Attributes:
        file: name of its file, without `.json`.
        address: `host:port`.
        labels: of every series that is scraped from it.
        path: of the metrics.
    """

    file: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    path: str = "/metrics"

    def to_json(self) -> str:
        """Prometheus' own form: a list of target groups."""
        group = {"targets": [self.address], "labels": {"__metrics_path__": self.path, **self.labels}}
        return json.dumps([group], indent=1) + "\n"


def engine_target(stack: Stack, variant: str, url: str, metrics_path: str = "/metrics") -> Target:
    """A variant that answers at `url`, labelled with what a dashboard tells apart."""
    engine, spec = stack.engine_of(variant), stack.variant(variant).speculation
    return Target(
        file=_engine_file(f"{stack.name}/{variant}"),
        address=urlsplit(url).netloc,
        labels={
            "stack": stack.name,
            "variant": variant,
            "engine_name": engine.name,
            "engine_version": engine.version,
            "drafter": (spec.drafter.model if spec.drafter else spec.method) if spec else "none",
        },
        path=metrics_path,
    )


def client_target(port: int) -> Target:
    """This process, as a load process; its metrics carry their own labels."""
    return Target(f"{CLIENT}-{os.getpid()}", f"127.0.0.1:{port}", {"pid": str(os.getpid())})


def exporter_target(port: int) -> Target:
    """This process, as the exporter of recorded cells."""
    return Target(EXPORTER, f"127.0.0.1:{port}")


def publish(target: Target, directory: Path | None = None) -> Path:
    """Write a target's file, readable by every user, since Prometheus runs as its own.

    Raises:
        RuntimeStateError: it cannot be written.
    """
    where = directory or targets_dir()
    path = where / f"{target.file}.json"
    draft = where / f".{target.file}.{os.getpid()}"
    try:
        where.mkdir(parents=True, exist_ok=True)
        where.chmod(0o755)
        draft.write_text(target.to_json(), encoding="utf-8")
        draft.chmod(0o644)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise RuntimeStateError(
            "Prometheus cannot be told of a target",
            evidence=f"{path}: {error.strerror}",
            next_step="make the directory writable, or name another one in OUTRIDER_TARGETS",
        ) from error
    drop_dead_clients(where)
    return path


def drop(target: Target, directory: Path | None = None) -> None:
    """Remove a target's file; harmless when it is not there."""
    _unlink((directory or targets_dir()) / f"{target.file}.json")


def drop_engine(name: str, directory: Path | None = None) -> None:
    """Remove the target of `<stack>/<variant>`; harmless when it is not there."""
    _unlink((directory or targets_dir()) / f"{_engine_file(name)}.json")


def drop_dead_clients(directory: Path) -> None:
    """Remove what load processes left that were killed."""
    for path in directory.glob(f"{CLIENT}-*.json"):
        pid = path.stem.partition("-")[2]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            _unlink(path)


def labels_of(url: str, directory: Path | None = None) -> dict[str, str]:
    """Labels of the engine that was published at a URL; empty if none was."""
    wanted = urlsplit(url).netloc.replace("localhost", "127.0.0.1")
    for path in sorted((directory or targets_dir()).glob(f"{ENGINE}-*.json")):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            for group in json.loads(path.read_text(encoding="utf-8")):
                if wanted in group["targets"]:
                    return {name: value for name, value in group["labels"].items() if not name.startswith("__")}
    return {}


def _engine_file(name: str) -> str:
    return f"{ENGINE}-{slug(name)}"


def _unlink(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
