"""The hand-written project for several nodes: what must hold in it too."""

from __future__ import annotations

from pathlib import Path

import yaml

from outrider import __version__

PROJECT = yaml.safe_load((Path(__file__).resolve().parents[3] / "compose" / "multinode.yaml").read_text())


def test_every_service_is_confined_like_those_of_a_single_node() -> None:
    for service in PROJECT["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["user"] == "${OUTRIDER_UID:-10001}:${OUTRIDER_GID:-10001}"
        assert service["image"].endswith(f":{__version__}}}")


def test_the_api_listens_on_loopback_and_only_after_the_head() -> None:
    api = PROJECT["services"]["api"]
    assert "--host 127.0.0.1" in api["command"]
    assert api["depends_on"] == {"head": {"condition": "service_healthy"}}
    assert {service["profiles"][0] for service in PROJECT["services"].values()} == {"head", "worker"}
