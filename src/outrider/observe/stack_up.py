"""`outrider observe up` and `down`: the Compose project of Prometheus, Alertmanager, Grafana and exporters."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from outrider import __version__
from outrider.errors import RuntimeStateError
from outrider.runtime.docker_engine import DockerEngine
from outrider.state import results_dir, state_dir, targets_dir

PROJECT = Path(__file__).resolve().parents[3]
FILE = PROJECT / "compose" / "observability.yaml"
GRAFANA_USER = (472, 0)
_BITS = 24


def password_file() -> Path:
    """Where Grafana's admin password lies: `OUTRIDER_GRAFANA_PASSWORD_FILE`, else among the state."""
    return Path(os.environ.get("OUTRIDER_GRAFANA_PASSWORD_FILE") or state_dir() / "grafana-admin-password")


def make_password(path: Path) -> bool:
    """Make a random password that only its owner can read; keeps the one that is there. Whether it was made.

    Raises:
        RuntimeStateError: the file that is there can be read by others.
    """
    if path.exists():
        if path.stat().st_mode & 0o077:
            raise RuntimeStateError(
                "others can read Grafana's admin password",
                evidence=f"{path} has mode {path.stat().st_mode & 0o777:04o}",
                next_step=f"chmod 600 {path}, and change the password in Grafana",
            )
        return False
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(secrets.token_urlsafe(_BITS))
    if os.geteuid() == 0:
        os.chown(path, *GRAFANA_USER)
    return True


def environment(stack: str) -> dict[str, str]:
    """Values of the project's variables."""
    uid, gid = GRAFANA_USER if os.geteuid() == 0 else (os.getuid(), os.getgid())
    return {
        "OUTRIDER_TARGETS": str(targets_dir().absolute()),
        "OUTRIDER_RESULTS": str(results_dir().absolute()),
        "OUTRIDER_GRAFANA_PASSWORD_FILE": str(password_file().absolute()),
        "OUTRIDER_UID": str(uid),
        "OUTRIDER_GID": str(gid),
        "OUTRIDER_STACK": stack,
    }


def up(stack: str, docker: DockerEngine | None = None, *, gpu: bool | None = None) -> list[str]:
    """Start it; gives the profiles that were chosen.

    Args:
        stack: whose cells the exporter publishes.
        docker: the engine to use.
        gpu: whether to watch GPUs; None looks for NVIDIA's device files.

    Raises:
        RuntimeStateError: no Docker engine, or Compose failed.
    """
    docker = docker or DockerEngine()
    require_project()
    make_password(password_file())
    targets_dir().mkdir(parents=True, exist_ok=True)
    targets_dir().chmod(0o755)
    results_dir().mkdir(parents=True, exist_ok=True)
    profiles = ["gpu"] if (gpu if gpu is not None else Path("/dev/nvidiactl").exists()) else []
    if _has_image(docker):
        profiles.append("exporter")
    words = [word for profile in profiles for word in ("--profile", profile)]
    docker.compose(FILE, *words, "up", "--detach", env=environment(stack))
    return profiles


def down(docker: DockerEngine | None = None) -> None:
    """Stop it; what was recorded stays in its volumes."""
    require_project()
    profiles = ("--profile", "gpu", "--profile", "exporter")
    (docker or DockerEngine()).compose(FILE, *profiles, "down", env=environment("-"))


def require_project() -> None:
    """Refuse where the project's files are not: an installed wheel has no Compose file.

    Raises:
        RuntimeStateError: this is no checkout.
    """
    if not FILE.is_file():
        raise RuntimeStateError(
            "the Compose project of the dashboards is not here",
            evidence=f"{FILE} does not exist",
            next_step="run from a checkout of Outrider",
        )


def _has_image(docker: DockerEngine) -> bool:
    try:
        docker.require_image(f"outrider/load:{__version__}", "outrider image build load")
    except RuntimeStateError:
        return False
    return True
