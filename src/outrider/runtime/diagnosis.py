"""Why an engine ended, from its last log lines and what the kernel says about its process.

The table is ordered: what is more specific comes first, because one fault leaves several traces (a full
device makes the core fail, the core's failure makes the server fail, and only the server's line is last).
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN_LINES = 15
_ERROR_LINE = re.compile(r"(?:^|\s)((?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt)(?:: .*)?$|.*\berror: .*)")
_WRAPPERS = ("See root cause above", "See stack trace", "Failed core proc", "WorkerProc initialization failed")


@dataclass(frozen=True, slots=True)
class Fault:
    """A known way for an engine to fail.

    Attributes:
        pattern: matches a log line.
        cause: one sentence; `{0}`, `{1}`, ... are the pattern's groups.
        next_step: what to do.
    """

    pattern: re.Pattern[str]
    cause: str
    next_step: str


def _fault(pattern: str, cause: str, next_step: str) -> Fault:
    return Fault(re.compile(pattern, re.IGNORECASE), cause, next_step)


FAULTS = (
    _fault(
        r"address already in use",
        "the port was taken while the engine started",
        "choose another port; `outrider status` and the error before a start name the owner",
    ),
    _fault(
        r"unrecognized arguments?: (.+)",
        "the engine does not know the argument {0}",
        "correct the stack's engine arguments: this engine version may have renamed or dropped it",
    ),
    _fault(
        r"argument (\S+): (.+)",
        "the engine refuses the argument {0}: {1}",
        "correct that argument in the stack",
    ),
    _fault(
        r"(unsupported|unknown|invalid) speculative (?:decoding )?method:?(.*)",
        "the engine does not know this speculative method:{1}",
        "correct the variant's `method`; it must be one that the pinned engine version has",
    ),
    _fault(
        r"(?:no available memory for the cache blocks)(.*)",
        "no memory is left for the KV cache once the weights are loaded",
        "raise the memory share (or VLLM_CPU_KVCACHE_SPACE on the CPU), or shorten the context",
    ),
    _fault(
        r"((?:to serve|the model's max seq len).*(?:KV cache).*)",
        "the KV cache does not hold one request of the full context",
        "shorten the context, or give the KV cache more memory",
    ),
    _fault(
        r"(?:CUDA out of memory|CUDA error: out of memory|torch\.OutOfMemoryError|NCCL.*out of memory)(.*)",
        "the GPU ran out of memory",
        "see what else holds device memory (`nvidia-smi`), lower the memory share, the context or the batch",
    ),
    _fault(
        r"free memory on device.*(?:less than|is less)",
        "the GPU's free memory is less than the share that the engine is to take",
        "end what holds device memory (`nvidia-smi` names it), or lower the memory share",
    ),
    _fault(
        r"(?:MemoryError|Cannot allocate memory|DefaultCPUAllocator: can't allocate memory|std::bad_alloc)",
        "the machine ran out of memory",
        "lower the KV cache or the context, or end what else holds memory",
    ),
    _fault(
        r"No space left on device",
        "a disk is full (/dev/shm counts)",
        "`df -h` shows which one; free it, or enlarge the container's shared memory",
    ),
    _fault(
        r"(?:No module named '?([\w.]+)|cannot import name '([\w.]+)')",
        "the engine's Python lacks something that it imports: {0}",
        "reinstall the engine from the lock file, or point OUTRIDER_ENGINE_PYTHON at a complete one",
    ),
    _fault(
        r"(?:ImportError: (.*)|cannot open shared object file.*)",
        "a library of the engine cannot be loaded",
        "reinstall the engine from the lock file; its build must fit this machine's driver and C library",
    ),
)


def describe_exit(code: int | None, *, because: str | None, oom_kills: int) -> str:
    """What the kernel says about an ended engine.

    Args:
        code: exit code; negative signal number if a signal ended it; None if nobody collected it.
        because: what ended the run, as in the record.
        oom_kills: processes that the OOM killer ended on this machine during the run.
    """
    if code is None:
        how = "its exit code was not seen (its supervisor was killed)"
    elif code < 0:
        how = f"ended by signal {-code} ({_signal_name(-code)})"
    elif code > 128 and _signal_name(code - 128) != "unknown":
        how = f"exit code {code}, as after signal {code - 128} ({_signal_name(code - 128)})"
    else:
        how = f"exit code {code}"
    if because in {"stop", "owner"}:
        how += ", after it was asked to stop" if because == "stop" else ", after its starter was gone"
    elif code in {-signal.SIGKILL, 128 + signal.SIGKILL}:
        how += (
            f"; the kernel's OOM killer ended {oom_kills} process(es) on this machine meanwhile"
            if oom_kills
            else "; the kernel's OOM killer ended nothing meanwhile, so somebody sent it"
        )
    return how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def known_fault(lines: Sequence[str]) -> tuple[Fault, re.Match[str]] | None:
    """The first fault of the table that the log shows, with its last line."""
    for fault in FAULTS:
        for line in reversed(lines):
            if match := fault.pattern.search(line):
                return fault, match
    return None


def last_error_line(lines: Sequence[str]) -> str | None:
    """The last line that names an error itself, rather than pointing at one further up."""
    for line in reversed(lines):
        if (match := _ERROR_LINE.search(line)) and not any(words in line for words in _WRAPPERS):
            return match[1].strip()
    return None


def explain(
    what: str, lines: Sequence[str], *, ending: str, code: int | None, oom_kills: int, log: str
) -> EngineError:
    """The error for an engine that ended or did not become ready.

    Args:
        what: which engine did what: the start of the cause.
        lines: its log.
        ending: `describe_exit`'s words, or how it was given up.
        code: its exit code as in `describe_exit`; None if it was still alive.
        oom_kills: as in `describe_exit`.
        log: where the whole log is.
    """
    shown = "\n    ".join(lines[-SHOWN_LINES:]) or "(the engine printed nothing)"
    evidence = f"{ending}; the end of {log}:\n    {shown}"
    if (found := known_fault(lines)) is not None:
        fault, match = found
        groups = [group.strip() if group else "" for group in match.groups()]
        cause = fault.cause.format(*groups) if groups else fault.cause
        seen = match.string.strip()
        if seen not in {line.strip() for line in lines[-SHOWN_LINES:]}:
            evidence = f"{seen}\n  {evidence}"
        return EngineError(f"{what}: {cause}", evidence=evidence, next_step=fault.next_step)
    if (line := last_error_line(lines)) is not None:
        return EngineError(f"{what}: {line}", evidence=evidence, next_step=f"read the log before that line: {log}")
    if code in {-signal.SIGKILL, 128 + signal.SIGKILL} and oom_kills:
        return EngineError(
            f"{what}: the kernel's OOM killer probably ended it",
            evidence=evidence,
            next_step="lower the KV cache or the context, or end what else holds memory; `dmesg` names the victim",
        )
    return EngineError(f"{what}: {ending}", evidence=evidence, next_step=f"read {log}")
