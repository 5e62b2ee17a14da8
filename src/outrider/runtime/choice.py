"""Which runtime: what `--runtime` makes, and how each of them starts a variant."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from outrider.engine import adapter_of
from outrider.runtime.announced import Announced
from outrider.runtime.compose import ComposeOptions, ComposeRuntime
from outrider.runtime.container import container_launch
from outrider.runtime.local import LocalRuntime
from outrider.runtime.render_systemd import UnitOptions
from outrider.runtime.switch import Candidate
from outrider.runtime.systemd import SystemdRuntime
from outrider.state import state_dir

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.model_store import Located
    from outrider.runtime.base import Runtime
    from outrider.stack import Stack


class Kind(StrEnum):
    """The ways of running an engine."""

    LOCAL = "local"
    COMPOSE = "compose"
    SYSTEMD = "systemd"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says beside the stack.

    Attributes:
        host: address to listen on.
        image: another image than the one of this version (compose).
        api_key_file: file of the API key (compose, systemd).
        user: account that runs the engine (systemd).
        paths: directories that the engine reads (systemd).
    """

    host: str = "127.0.0.1"
    image: str | None = None
    api_key_file: Path | None = None
    user: str = "outrider"
    paths: tuple[Path, ...] = ()


def runtime_for(kind: Kind, stack: Stack | None = None, settings: Settings = Settings()) -> Runtime:
    """The runtime, which also tells Prometheus; `stack` is needed to start something with it.

    Raises:
        RuntimeStateError: the machine does not have what it needs.
    """
    return Announced(_bare(kind, stack, settings), stack)


def _bare(kind: Kind, stack: Stack | None, settings: Settings) -> Runtime:
    if kind is Kind.COMPOSE:
        return ComposeRuntime(
            state_dir(), stack, ComposeOptions(image=settings.image, api_key_file=settings.api_key_file)
        )
    if kind is Kind.SYSTEMD:
        options = UnitOptions(
            user=settings.user, python=sys.executable, api_key_file=settings.api_key_file, paths=settings.paths
        )
        return SystemdRuntime(state_dir(), stack, options)
    return LocalRuntime(state_dir())


def candidate(
    kind: Kind, stack: Stack, variant: str, located: Located, port: int, settings: Settings = Settings()
) -> Candidate:
    """How a runtime starts a variant."""
    weights = tuple(path for path in (located.model_dir, located.drafter_dir) if path)
    if kind is Kind.COMPOSE:
        return Candidate(variant, replace(container_launch(stack, variant), port=port), weights)
    launch = adapter_of(stack, variant).launch(
        stack,
        variant,
        host=settings.host,
        port=port,
        model_dir=located.model_dir,
        drafter_dir=located.drafter_dir,
    )
    return Candidate(variant, launch, weights)
