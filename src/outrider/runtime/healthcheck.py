"""Asks an engine whether it serves: once for a container's healthcheck, until a deadline as a unit's gate.

    python -m outrider.runtime.healthcheck http://127.0.0.1:8000/health
    python -m outrider.runtime.healthcheck http://127.0.0.1:8000/health --within 1800 --pid 812

Standard library only; no proxy is asked. Exit code 0 once the path answers 200, else 1.
"""

from __future__ import annotations

import argparse
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

_PAUSE_S = 1.0


def fault(url: str, timeout_s: float = 5.0) -> str:
    """Empty if the URL answers 200, else what happened."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_s) as response:  # the scheme is checked by main
            return "" if response.status == 200 else f"HTTP {response.status}"
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except OSError as error:
        return str(error)


def main() -> None:
    """Ask, and say why not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--within", type=float, default=0.0, help="seconds to go on asking")
    parser.add_argument("--pid", type=int, help="give up as soon as this process has ended")
    asked = parser.parse_args()
    if not asked.url.startswith("http://"):
        parser.error("the URL starts with http://")
    deadline = time.monotonic() + asked.within
    while answer := fault(asked.url):
        if asked.pid and not Path(f"/proc/{asked.pid}").exists():
            sys.exit(f"{asked.url}: process {asked.pid} has ended before it answered")
        if time.monotonic() >= deadline:
            sys.exit(f"{asked.url}: {answer}")
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
