"""A process that starts an engine and then ends in the way its command line says; run by the owner tests."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from outrider.engine.base import Launch
from outrider.runtime.local import LocalRuntime
from outrider.runtime.signals import unwinding_on_signals


def wait_for_ever(*_: object) -> None:
    sys.stdout.write("waiting\n")
    sys.stdout.flush()
    while True:
        time.sleep(0.2)  # a signal that comes just before a wait without a limit would be noticed never


def main() -> None:
    how, state_dir, launch = sys.argv[1], Path(sys.argv[2]), Launch(**json.loads(sys.argv[3]))
    runtime = LocalRuntime(state_dir, grace_s=1.0, fixed_s=60.0)
    if how == "while-starting":
        runtime.start("small/baseline", launch, on_progress=wait_for_ever)
    elif how == "detach-while-starting":
        runtime.start("small/baseline", launch, on_progress=wait_for_ever, detached=True)
    elif how == "detach":
        runtime.start("small/baseline", launch, detached=True)
    elif how == "forget":
        runtime.start("small/baseline", launch)
    elif how == "fork-and-serve":
        runtime.start("small/baseline", launch)
        child = os.fork()  # holds every descriptor that we hold
        while child == 0:  # only its parent speaks: whichever ran first would otherwise be read first
            signal.pause()
        sys.stdout.write(f"{child}\n")
        wait_for_ever()
    elif how == "unwind":
        with unwinding_on_signals(), runtime.start("small/baseline", launch):
            wait_for_ever()
    else:
        with runtime.start("small/baseline", launch):
            wait_for_ever()


if __name__ == "__main__":
    main()
