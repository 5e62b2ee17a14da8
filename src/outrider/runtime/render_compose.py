"""Renders a stack as a Compose project: one service a variant, each behind a profile of its name.

    docker compose -f compose/compose.yaml --profile eagle3 up --wait

`compose/*.yaml` are this module's output, committed; a test renders them again and compares.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import yaml

from outrider.runtime import container
from outrider.runtime.entrypoint import KEY_NAME
from outrider.runtime.readiness import ASSUMED_BANDWIDTH, Budget
from outrider.stack.schema import slug

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.engine import Launch
    from outrider.stack import Stack

NAME_LABEL = "dev.outrider.name"
DIGEST_LABEL = "dev.outrider.stack-digest"
PORT_LABEL = "dev.outrider.port"
BIND_LABEL = "dev.outrider.bind"
_HEADER = """\
# Rendered by `outrider render {stack} {what} --as compose`; change the stack, not this file.
# Variables: OUTRIDER_BIND, OUTRIDER_PORT, OUTRIDER_API_KEY_FILE, OUTRIDER_CACHE, OUTRIDER_MODELS, OUTRIDER_PROJECT,
# OUTRIDER_IMAGE, OUTRIDER_UID, OUTRIDER_GID, OUTRIDER_SHM, OUTRIDER_MEMORY, OUTRIDER_NOFILE, OUTRIDER_MEMLOCK
# (docs/operating.md).
"""


_CHECK = ("-P", "-m", "outrider.runtime.healthcheck")
# In an image without Outrider; `urlopen` raises for anything but a good answer.
_BARE_CHECK = ("-c", "import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=5)")
_ALIAS = "engine"  # under which the load service finds whichever variant runs
_MERGE = "merge-the-template"


def project_name(stack: str) -> str:
    """Name of a stack's Compose project."""
    return "outrider-" + slug(stack).replace(".", "-").lower()


def service_name(variant: str) -> str:
    """Name of a variant's service."""
    return slug(variant)


def start_budget(stack: Stack, launch: Launch) -> Budget:
    """How long a start may take on the node that the stack names, by the bytes to load and its disk."""
    bandwidth = (stack.node.disk_gb_s or ASSUMED_BANDWIDTH / 1e9) * 1e9
    return Budget(weight_bytes=launch.weight_bytes, bandwidth=bandwidth)


def compose_project(stack: Stack, variants: Sequence[str], version: str) -> dict[str, Any]:
    """The project as plain data.

    Args:
        stack: the stack.
        variants: which of its variants become services.
        version: Outrider's version, which is the tag of the image.
    """
    return {
        "name": project_name(stack.name),
        "x-engine": _template(stack, version),
        "services": {service_name(v): _service(stack, v) for v in variants} | {"load": _load(stack, version)},
        "secrets": {KEY_NAME: {"file": "${OUTRIDER_API_KEY_FILE:-/dev/null}"}},
        "volumes": {"cache": {"labels": {"dev.outrider.stack": stack.name}}},
    }


def compose_text(stack: Stack, variants: Sequence[str], version: str) -> str:
    """The project as YAML, with its header; the template stands once and is referred to."""
    project = compose_project(stack, variants, version)
    what = variants[0] if len(variants) == 1 else "all"
    body = yaml.dump(project, Dumper=_Dumper, sort_keys=False, width=120, default_flow_style=False, allow_unicode=True)
    # PyYAML quotes a merge key, so it is written as a word and replaced.
    body = body.replace("x-engine:\n", "x-engine: &engine\n").replace(f"    {_MERGE}: true\n", "    <<: *engine\n")
    return _HEADER.format(stack=stack.name, what=what) + body


class _Dumper(yaml.SafeDumper):
    """Indents lists below their key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)


def _template(stack: Stack, version: str) -> dict[str, Any]:
    """What every variant's service shares."""
    cuda = stack.engine.build == "cuda"
    target = "serve" if cuda else "serve-cpu"
    template: dict[str, Any] = {
        "image": f"${{OUTRIDER_IMAGE:-outrider/{target}:{version}}}",
        "pull_policy": "never",
        "user": "${OUTRIDER_UID:-10001}:${OUTRIDER_GID:-10001}",
        "init": True,
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "tmpfs": ["/tmp:mode=1777"],  # noqa: S108 - the container's own
        "shm_size": "${OUTRIDER_SHM:-%s}" % ("16gb" if cuda else "1gb"),
        "mem_limit": "${OUTRIDER_MEMORY:-0}",  # none; with one, the kernel ends the engine and not a neighbour
        "ulimits": _ulimits(cuda=cuda),
        "ports": [f"${{OUTRIDER_BIND:-127.0.0.1}}:${{OUTRIDER_PORT:-8000}}:{container.PORT}"],
        "secrets": [KEY_NAME],
        "restart": "unless-stopped",
        "stop_grace_period": "60s" if cuda else "20s",
        "logging": {"driver": "json-file", "options": {"max-size": "16m", "max-file": "3"}},
    }
    if cuda:
        template["deploy"] = {"resources": {"reservations": {"devices": [_gpus(stack)]}}}
    return template


def _ulimits(*, cuda: bool) -> dict[str, Any]:
    limits: dict[str, Any] = {"nofile": {"soft": "${OUTRIDER_NOFILE:-65536}", "hard": "${OUTRIDER_NOFILE:-65536}"}}
    if cuda:  # NCCL pins host memory; -1 is no limit
        limits["memlock"] = {"soft": "${OUTRIDER_MEMLOCK:--1}", "hard": "${OUTRIDER_MEMLOCK:--1}"}
    return limits


def _gpus(stack: Stack) -> dict[str, Any]:
    """A CDI request: it survives a daemon-reload and injects no compatibility libraries of another driver.

    `capabilities` is mandatory, `count` and `device_ids` exclude each other, and the driver's name is `cdi`.
    """
    need = stack.parallel.tensor * stack.parallel.pipeline * stack.parallel.data
    return {
        "driver": "cdi",
        "device_ids": [f"nvidia.com/gpu={index}" for index in range(need)],
        "capabilities": ["gpu"],
    }


def _service(stack: Stack, variant: str) -> dict[str, Any]:
    launch = container.container_launch(stack, variant)
    budget = start_budget(stack, launch)
    health = f"http://127.0.0.1:{launch.port}{launch.health_path}"
    foreign = container.foreign_image(stack, variant)
    own_image = {"image": f"${{OUTRIDER_SGLANG_IMAGE:-{foreign}}}"} if foreign else {}
    return {
        _MERGE: True,
        "profiles": [service_name(variant)],
        **own_image,
        "command": [_literal(word) for word in launch.argv],
        "environment": {name: _literal(value) for name, value in launch.env.items()},
        "volumes": [
            *(
                {"type": "bind", "source": mount.source, "target": mount.target, "read_only": True,
                 "bind": {"create_host_path": False}}
                for mount in container.mounts(stack, variant)
            ),
            {"type": "volume", "source": "cache", "target": str(container.CACHE_DIR)},
        ],
        "networks": {"default": {"aliases": [_ALIAS]}},
        "healthcheck": {
            "test": ["CMD", "python3", *(_BARE_CHECK if foreign else _CHECK), health],
            "interval": "5s",
            "timeout": "6s",
            "retries": 3,
            # Nothing counts against a start until then; the engine may be ready much earlier.
            "start_period": f"{math.ceil(budget.seconds)}s",
        },
        "labels": {
            NAME_LABEL: f"{stack.name}/{variant}",
            DIGEST_LABEL: stack.digest(),
            BIND_LABEL: "${OUTRIDER_BIND:-127.0.0.1}",
            PORT_LABEL: "${OUTRIDER_PORT:-8000}",
        },
    }  # fmt: skip


def _load(stack: Stack, version: str) -> dict[str, Any]:
    """Users for whichever variant runs: `docker compose run --rm load`, or with arguments of your own."""
    url = f"http://{_ALIAS}:{container.PORT}"
    return {
        "profiles": ["load"],
        "image": f"outrider/load:{version}",
        "pull_policy": "never",
        "user": "${OUTRIDER_UID:-10001}:${OUTRIDER_GID:-10001}",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "tmpfs": ["/tmp:mode=1777", "/var/cache/outrider:mode=1777"],  # noqa: S108 - the container's own
        "secrets": [KEY_NAME],
        "command": ["load", url, "--model", stack.target.served_name, "--concurrency", "1", "--requests", "12",
                    "--engine", stack.engine.name],
    }  # fmt: skip


def _literal(text: str) -> str:
    """A dollar sign that Compose shall not take for a variable."""
    return text.replace("$", "$$")
