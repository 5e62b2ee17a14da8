"""The node's Python, kept warm: see warm/warm_python.py for why, and for what stays as it is on a real node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import ansible
import ansible.release

INTERPRETER = "/usr/local/bin/warm-python"
UNIT = "warm-python.service"
LIBRARY = "opt/warm-python"
_SOURCES = Path(__file__).parent / "warm"
_SERVICE = f"""[Unit]
Description=Python kept warm for Ansible's modules
[Service]
WorkingDirectory=/{LIBRARY}
ExecStart=/usr/bin/python3 -c "import warm_python; warm_python.serve()"
[Install]
WantedBy=multi-user.target
"""


def lay(tree: Path) -> None:
    """Put client, server and a copy of this environment's Ansible below `tree`, for the node's Python to compile."""
    client = tree / INTERPRETER.lstrip("/")
    client.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-O2", "-static", "-Wall", "-o", str(client), str(_SOURCES / "client.c")], check=True)
    library = tree / LIBRARY
    for part in ("module_utils", "modules"):
        shutil.copytree(
            Path(ansible.__file__).parent / part,
            library / "ansible" / part,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    # As in the archive that each module brings along.
    (library / "ansible/__init__.py").write_text(
        f"__version__ = {ansible.release.__version__!r}\n__author__ = {ansible.release.__author__!r}\n"
    )
    shutil.copy(_SOURCES / "warm_python.py", library)
    unit = tree / "etc/systemd/system" / UNIT
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(_SERVICE)
