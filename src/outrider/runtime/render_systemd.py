"""Renders a variant as a systemd unit: the host's engine, sandboxed, ready when it answers.

    outrider render smollm2-cpu eagle3 --as systemd > /etc/systemd/system/outrider-smollm2-cpu-eagle3.service

One unit a stack and variant; `Conflicts=` names its siblings, because one engine takes the GPUs. Readiness is a gate in
`ExecStartPost`: the unit is `activating` until the engine answers, and `TimeoutStartSec` is derived from the bytes to
load. Directives are those of systemd 252 (Debian 12) and newer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.engine.vllm import engine_python
from outrider.runtime.entrypoint import KEY_NAME
from outrider.runtime.readiness import HARD_LIMIT
from outrider.runtime.render_compose import start_budget
from outrider.stack.schema import slug

if TYPE_CHECKING:
    from outrider.engine import Launch
    from outrider.stack import Stack

# systemd ignores what begins with X-; the runtime reads these back.
NAME_KEY, PORT_KEY, DIGEST_KEY = "X-Outrider-Name", "X-Outrider-Port", "X-Outrider-Stack-Digest"
_GATE_MARGIN_S = 30
_SANDBOX = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome={home}
PrivateTmp=yes
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
LockPersonality=yes
RemoveIPC=yes
UMask=0077
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""
# No PrivateDevices: it would hide the GPUs, and engines and drivers need the shared memory of /dev/shm either way.
_GPU_DEVICES = """\
DevicePolicy=closed
DeviceAllow=char-nvidia rw
DeviceAllow=char-nvidia-uvm rw
DeviceAllow=char-nvidia-caps rw
"""


@dataclass(frozen=True, slots=True)
class UnitOptions:
    """What a stack does not say.

    Attributes:
        user: account that runs the engine; Ansible makes it.
        python: interpreter that has Outrider, for the entry point and the gate; the engine's if None.
        api_key_file: file of the API key, which systemd hands over as a credential; None: no key.
        paths: directories that the engine must be able to read; under /home they are bound in read-only.
    """

    user: str = "outrider"
    python: str | None = None
    api_key_file: Path | None = None
    paths: tuple[Path, ...] = ()


def unit_name(stack: str, variant: str) -> str:
    """`outrider-<stack>-<variant>.service`."""
    return f"outrider-{slug(stack)}-{slug(variant)}.service"


def unit_text(stack: Stack, variant: str, launch: Launch, options: UnitOptions = UnitOptions()) -> str:
    """The unit file.

    Args:
        stack: the stack.
        variant: one of its variants.
        launch: how its engine is started on this host.
        options: see `UnitOptions`.
    """
    budget = start_budget(stack, launch)
    gate_s = math.ceil(HARD_LIMIT * budget.seconds)
    python = options.python or engine_python()
    siblings = [unit_name(stack.name, other) for other in stack.variants if other != variant]
    order = list(stack.variants)
    earlier = [unit_name(stack.name, other) for other in order[: order.index(variant)]]
    health = f"http://127.0.0.1:{launch.port}{launch.health_path}"
    argv = [python, "-P", "-m", "outrider.runtime.entrypoint", *_absolute(launch.argv)]
    gate = [python, "-P", "-m", "outrider.runtime.healthcheck", health, "--within", str(gate_s)]
    environment = {"HOME": "%C/outrider", "XDG_CACHE_HOME": "%C/outrider", "PYTHONUNBUFFERED": "1", **launch.env}
    lines = [
        f"# Rendered by `outrider render {stack.name} {variant} --as systemd`; change the stack, not this file.",
        "[Unit]",
        f"Description=Outrider: {stack.target.served_name}, {variant}",
        "After=network-online.target nvidia-persistenced.service",
        "Wants=network-online.target",
        *([f"Conflicts={' '.join(siblings)}"] if siblings else []),
        # Only an ordered pair is stopped first, started second, in whichever direction it is ordered; both would be a
        # cycle, so each variant comes after those that the stack names before it.
        *([f"After={' '.join(earlier)}"] if earlier else []),
        "StartLimitIntervalSec=1h",
        "StartLimitBurst=5",
        f"{NAME_KEY}={stack.name}/{variant}",
        f"{PORT_KEY}={launch.port}",
        f"{DIGEST_KEY}={stack.digest()}",
        "",
        "[Service]",
        "Type=exec",
        f"User={options.user}",
        f"Group={options.user}",
        f"SyslogIdentifier=outrider-{slug(stack.name)}-{slug(variant)}",
        *(f"Environment={_quoted(f'{name}={value}', specifiers=name in _OURS)}" for name, value in environment.items()),
        f"ExecStart={' '.join(map(_quoted, argv))}",
        # Ready means: it answers. systemd lets this command go on when the engine has died, so it looks itself.
        f"ExecStartPost={' '.join(map(_quoted, gate))} --pid $MAINPID",
        f"TimeoutStartSec={gate_s + _GATE_MARGIN_S}",
        "TimeoutStopSec=60",
        "Restart=on-failure",
        "RestartSec=5",
        # Workers that outlive their server hold device memory: the whole group ends.
        "KillMode=mixed",
        "CacheDirectory=outrider",
        "CacheDirectoryMode=0750",
        "WorkingDirectory=%C/outrider",
        "LimitNOFILE=65536",
        *(["LimitMEMLOCK=infinity"] if stack.engine.build == "cuda" else []),
        *([f"LoadCredential={KEY_NAME}:{options.api_key_file}"] if options.api_key_file else []),
        *_sandbox(stack, argv, options),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


_OURS = frozenset({"HOME", "XDG_CACHE_HOME"})


def _sandbox(stack: Stack, argv: list[str], options: UnitOptions) -> list[str]:
    """Directives of the sandbox; what lies under /home or /root is bound in, the rest of it is not there."""
    homes = sorted({str(path) for path in (*options.paths, *_homes_of(argv))})
    lines = _SANDBOX.format(home="tmpfs" if any(map(_at_home, homes)) else "yes").splitlines()
    lines += [f"BindReadOnlyPaths={_quoted(path)}" for path in homes if _at_home(path)]
    lines += (_GPU_DEVICES if stack.engine.build == "cuda" else "PrivateDevices=yes\n").splitlines()
    return lines


def _homes_of(argv: list[str]) -> list[Path]:
    """The virtual environments that the interpreters of a command lie in."""
    return [Path(word).parent.parent for word in argv if word.startswith("/") and "/bin/" in word]


def _at_home(path: str) -> bool:
    return path.startswith(("/home/", "/root/", "/run/user/"))


def _absolute(argv: tuple[str, ...]) -> list[str]:
    """The command with an absolute program: beside the engine's interpreter, if it is a plain name."""
    program = argv[0] if argv[0].startswith("/") else str(Path(engine_python()).parent / argv[0])
    return [program, *argv[1:]]


def _quoted(word: str, *, specifiers: bool = False) -> str:
    """A word as systemd reads it back (systemd.syntax(7)): quoted where needed, `%` and `$` doubled."""
    if not specifiers:
        word = word.replace("%", "%%").replace("$", "$$")
    if word and not any(c in word for c in " \t\n\"'\\;"):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
