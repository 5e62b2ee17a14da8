"""Runs command lines two at a time: most of CI is one process at work, and its machine has two cores.

    side_by_side.py 'make lint types' 'make test' '.ci/containers'

They are started in the order given, so the longest belong in front. What one printed is shown when it has ended, in one
piece. The exit status is 1 if any failed; the others are run all the same, so that one run of CI shows every failure.
Standard library only, like `setup_env.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

AT_ONCE = 2
GRACE_S = 60.0  # a container engine that a job started is stopped by that job
# Python runs a signal's handler between two steps of its main thread. One that comes just before that thread begins to
# wait without a limit is not seen until something else wakes it.
LOOK_UP_S = 0.5


@dataclass
class Jobs:
    """What runs now; each job is a process group of its own, so that all of it can be ended."""

    running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    ended: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, command: str) -> tuple[str, int, float, str]:
        """Run one to its end: command, exit status, seconds, what it printed."""
        began = time.monotonic()
        with tempfile.NamedTemporaryFile(prefix="job-", suffix=".log") as log:
            with self.lock:
                if self.ended:
                    return command, 1, 0.0, "not started\n"
                process = subprocess.Popen(
                    ["bash", "-euo", "pipefail", "-c", command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self.running.add(process)
                print(f"== began, see {log.name}: {command}", flush=True)
            status = process.wait()
            with self.lock:
                self.running.discard(process)
            log.seek(0)
            return command, status, time.monotonic() - began, log.read().decode(errors="replace")

    def end(self) -> None:
        """End what runs and start nothing more."""
        with self.lock:
            self.ended = True
            left = list(self.running)
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        for process in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def main(commands: list[str]) -> int:
    """Run them; 0 if all ended well."""
    if not commands:
        sys.exit(f"usage: {sys.argv[0]} COMMAND...")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    jobs, results = Jobs(), []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            left = {pool.submit(jobs.run, command) for command in commands}
            while left:
                ended, left = wait(left, LOOK_UP_S, FIRST_COMPLETED)
                for command, status, seconds, printed in (one.result() for one in ended):
                    results.append((command, status, seconds))
                    print(f"\n== {command}\n{printed}", end="")
                    print(f"== ended with {status} after {seconds:.0f} s: {command}", flush=True)
        except BaseException:
            jobs.end()
            raise
    print("\n== side by side:", flush=True)
    for command, status, seconds in results:
        print(f"   {'ok' if status == 0 else f'failed ({status})'}, {seconds:.0f} s: {command}", flush=True)
    return 0 if all(status == 0 for _, status, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
