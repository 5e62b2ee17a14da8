"""Runs inside a container whose first process is systemd: serves, is killed, comes back, stops; prints what it saw.

    python systemd_story.py MODEL_DIR

Uses the engine's own interpreter, in which Outrider is installed without what only measuring needs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from outrider.engine import adapter
from outrider.errors import OutriderError
from outrider.runtime import ports
from outrider.runtime.base import State
from outrider.runtime.render_systemd import UnitOptions, unit_name
from outrider.runtime.systemd import Systemctl, SystemdRuntime
from outrider.stack import find_stack

STACK = find_stack("smollm2-cpu")
NAME = "smollm2-cpu/baseline"
UNIT = unit_name("smollm2-cpu", "baseline")
DEADLINE_S = 240.0


def seen(step: str, **facts: object) -> None:
    """One line of the story."""
    print(json.dumps({"step": step, **facts}), flush=True)


def await_state(runtime: SystemdRuntime, wanted: State, restarts: int) -> None:
    """Look until systemd says so; the journal's next line is the event that is waited on."""
    deadline = time.monotonic() + DEADLINE_S
    with subprocess.Popen(
        ["journalctl", "--follow", "--lines", "0", "--output", "cat"], stdout=subprocess.PIPE, text=True
    ) as journal:
        assert journal.stdout is not None
        while True:
            found = Systemctl().state(UNIT)
            if runtime.status(NAME).state is wanted and found.restarts == restarts:
                break
            if time.monotonic() > deadline:
                journal.kill()
                sys.exit(f"never {wanted}: {found}")
            journal.stdout.readline()
        journal.kill()


def main(model_dir: Path) -> None:
    """The story."""
    key = Path("/etc/outrider-key")
    key.write_text("k-4712\n")
    key.chmod(0o600)
    options = UnitOptions(python=sys.executable, api_key_file=key, paths=(model_dir,))
    runtime = SystemdRuntime(Path("/var/lib/outrider"), STACK, options)
    os.environ["OUTRIDER_ENGINE_PYTHON"] = sys.executable
    launch = adapter("vllm").launch(
        STACK, "baseline", host="127.0.0.1", port=8000, model_dir=model_dir, drafter_dir=None
    )
    shares: list[float] = []
    running = runtime.start(NAME, launch, on_progress=lambda p: shares.append(p.share or 0.0), weights=[model_dir])
    first = running.pid
    seen("ready", state=runtime.status(NAME).state, shares=sorted(set(shares)), pid=first)
    facts = Path(f"/proc/{first}/status").read_text()
    seen("confined", uid=facts.split("Uid:")[1].split()[0], no_new_privileges="NoNewPrivs:\t1" in facts,
         capabilities=facts.split("CapEff:")[1].split()[0],
         key_in_command="k-4712" in Path(f"/proc/{first}/cmdline").read_text())  # fmt: skip
    try:
        runtime.start(NAME, launch)
    except OutriderError as error:
        seen("refused", cause=error.cause)
    os.kill(first or 0, signal.SIGKILL)
    await_state(runtime, State.READY, restarts=1)
    seen("restarted", pid=running.pid, alive=running.alive())
    ended = runtime.stop(NAME)
    seen("stopped", state=ended.state, port_free=ports.is_free(8000),
         left=subprocess.run(["pgrep", "-f", "vllm"], capture_output=True, text=True, check=False).stdout)  # fmt: skip
    seen("log", lines=len(runtime.log_lines(NAME)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
