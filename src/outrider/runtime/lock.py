"""One lock a name, so that two starts of the same name cannot race."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from outrider.errors import RuntimeStateError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def locked(path: Path, name: str) -> Iterator[None]:
    """Hold a name's lock; the kernel drops it when this process ends, however it ends.

    `flock` and not `lockf`: POSIX record locks vanish as soon as any descriptor of the file is closed.

    Raises:
        RuntimeStateError: another process holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise RuntimeStateError(
                f"another start of {name} is under way",
                evidence=f"{path} is locked by pid {holder}",
                next_step=f"wait for it, or end it with: outrider stop {name.replace('/', ' ')}",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough: a child forked meanwhile shares it
        os.close(descriptor)
