"""A Python that has imported what every module of Ansible imports, and forks for each one.

Emulated in software, python3 spends seconds of processor time on imports before a module does anything, and a playbook
starts hundreds of modules. Here each module still is a process of its own that reads its program from standard input or
a file, with the streams, environment and directory that the connection gave it; only the imports were done before.
"""

from __future__ import annotations

import argparse  # noqa: F401 - what programs of the roles begin with
import atexit
import base64  # noqa: F401 - what every module begins with
import contextlib
import gc
import os
import runpy
import shutil  # noqa: F401
import signal
import socket
import sys
import tempfile  # noqa: F401
import traceback
import zipfile  # noqa: F401
from pathlib import Path

# Beside this file lies a copy of the controller's own ansible package: the same sources as a module brings along.
import ansible.module_utils._internal._ansiballz._loader
import ansible.module_utils.basic
import ansible.modules  # noqa: F401

PLACE = "/run/warm-python"
CLIENT = "/usr/local/bin/warm-python"


def serve() -> None:
    """Answer clients until the node goes down."""
    Path(PLACE).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.umask(0o177)
    listener.bind(PLACE)
    listener.listen(16)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    gc.freeze()
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            _keep(connection)
        connection.close()


def _keep(connection: socket.socket) -> None:
    """Start the program in a child, and tell the client how it ended."""
    message, streams, _, _ = socket.recv_fds(connection, 65536, 3)
    child = os.fork()
    if child == 0:
        connection.close()
        _run(message, streams)
    for stream in streams:
        os.close(stream)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):
        connection.send(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def _run(message: bytes, streams: list[int]) -> None:
    """Be `python3` at the client's place: the program is the first argument, or comes from standard input."""
    os.setsid()
    directory, mask, count, *words = message[:-1].split(b"\0")
    arguments, environment = words[: int(count)], words[int(count) :]
    os.chdir(directory)
    os.umask(int(mask, 8))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in set(streams) - {0, 1, 2}:
        os.close(stream)
    os.environb.clear()
    os.environb.update(dict(one.split(b"=", 1) for one in environment))
    sys.argv = [os.fsdecode(word) for word in arguments] or [""]
    sys.executable = CLIENT
    code = 0
    try:
        if arguments:
            sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
            runpy.run_path(sys.argv[0], run_name="__main__")
        else:
            with open(0, "rb", closefd=False) as stdin:
                program = stdin.read()
            exec(compile(program, "<stdin>", "exec"), sys.modules["__main__"].__dict__)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)
