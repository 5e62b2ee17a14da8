"""The part of `install.sh` that is Python: runs on the node, from the standard library alone.

    python3 -I node_site.py require bundle.json /opt/outrider  # by the node's Python: has it what the bundle counts on?
    python3 -I node_site.py link bundle.json /opt/outrider     # by the node's Python: show its packages to our venv
    /opt/outrider/bin/engine-python -P node_site.py see        # by the engine's: what is imported, and from where

Where the node's Python is itself a virtual environment, `--system-site-packages` would show the packages of the
interpreter below it. So a .pth file names this interpreter's own directories; they come after ours on the path, and
ours win. The loader knows no such order: torch looks for CUDA's libraries beside itself (its RUNPATH is
../../nvidia/*/lib), and they lie in the other directory. So the engine is started through a script that names all of
them, ours first.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from importlib import metadata, util
from pathlib import Path
from typing import Any

LINK = "node-packages.pth"


def site_directories() -> list[Path]:
    """Where this interpreter's packages lie."""
    return [Path(entry) for entry in sys.path if Path(entry).name in {"site-packages", "dist-packages"}]


def faults(bundle: dict[str, Any], prefix: Path) -> list[str]:
    """Why this interpreter cannot carry the bundle; empty if it can."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if version != bundle["python"]:
        return [f"{sys.executable} is Python {version}; the bundle is for {bundle['python']}"]
    if Path(sys.prefix).resolve() == (prefix / "venv").resolve():
        return [f"{sys.executable} belongs to the environment that is to be made anew: deactivate it"]
    wanted: dict[str, str] = bundle["provided"]
    if not wanted:
        return []
    there: dict[str, str] = {}
    for dist in metadata.distributions():
        there.setdefault(_canonical(dist.metadata["Name"] or ""), dist.version or "")
    for name, said in wanted.items():
        if said and there.get(name, said).partition("+")[0] != said.partition("+")[0]:
            print(f"note: {name} is {there[name]} here; the bundle was made for {said}")
    if missing := sorted(set(wanted) - set(there)):
        return [f"{sys.executable} does not have {', '.join(missing)}, which the bundle leaves to the node"]
    return []


def library_directories(places: list[Path]) -> list[Path]:
    """The directories of NVIDIA's shared libraries, in the order of the places."""
    return [found for place in places for found in sorted(place.glob("nvidia/*/lib")) if found.is_dir()]


def link(bundle: dict[str, Any], prefix: Path) -> None:
    """Show this interpreter's packages to the environment if the bundle counts on them; write the engine's script."""
    venv = prefix / "venv"
    (own,) = venv.glob("lib/python3*/site-packages")
    places = [own]
    if bundle["provided"]:
        places += site_directories()
        (own / LINK).write_text("".join(f"{place}\n" for place in places[1:]), encoding="utf-8")
    script = prefix / "bin" / "engine-python"
    script.parent.mkdir(exist_ok=True)
    fresh = script.with_name("engine-python.new")
    fresh.write_text(_engine_script(venv / "bin" / "python", library_directories(places)), encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(script)


def _engine_script(python: Path, libraries: list[Path]) -> str:
    lines = ["#!/bin/sh", "# Made by install.sh: the engine's Python, with NVIDIA's libraries where the loader looks."]
    if libraries:
        path = shlex.quote(":".join(map(str, libraries)))
        lines += [f"LD_LIBRARY_PATH={path}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}", "export LD_LIBRARY_PATH"]
    return "\n".join([*lines, f'exec {shlex.quote(str(python))} "$@"', ""])


def see() -> list[str]:
    """What the engine's interpreter imports; an ImportError is the answer too, and is not caught."""
    import torch  # noqa: PLC0415 - only the engine's interpreter has it

    lines = [f"torch {torch.__version__} for CUDA {torch.version.cuda} in {Path(torch.__file__).parent}"]
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    lines.append(f"GPUs: {', '.join(gpus) or 'none that torch sees'}")
    found = util.find_spec("vllm")
    if found is None or found.origin is None:
        raise ImportError("vllm is not installed")
    return [*lines, f"vllm {metadata.version('vllm')} in {Path(found.origin).parent}"]


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(argv: list[str]) -> int:
    """Do one step; gives the exit status."""
    if argv[1] == "see":
        print(*(f"  {line}" for line in see()), sep="\n")
        return 0
    bundle = json.loads(Path(argv[2]).read_text(encoding="utf-8"))
    prefix = Path(argv[3])
    if argv[1] == "link":
        link(bundle, prefix)
        return 0
    found = faults(bundle, prefix)
    print(*found, sep="\n", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
