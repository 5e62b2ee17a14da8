"""Why an engine ended, from its last log lines and what the kernel says about its process.

The table is ordered: what is more specific comes first, because one fault leaves several traces (a full
device makes the core fail, the core's failure makes the server fail, and only the server's line is last).
"""

from __future__ import annotations

import re
import signal
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN_LINES = 15
_SHOWN_COLUMNS = 300
_SEARCHED_LINES = 3000  # eight workers print a stack trace each before the server prints the last one
_HARMLESS = re.compile(r"(?:^|\s)(?:INFO|WARNING|DEBUG)[: ]")
_ERROR_LINE = re.compile(r"(?:^|\s)((?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)(?:: .*)?$|.*\berror: .*)")
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
    return Fault(re.compile(pattern, re.IGNORECASE | re.MULTILINE), cause, next_step)


_FREE_DEVICE = "see what else holds device memory (`nvidia-smi`), or lower the memory share, the context or the batch"
_REINSTALL = "reinstall the engine from the lock file, or point OUTRIDER_ENGINE_PYTHON at a complete one"
_KV_ROOM = "give the KV cache more memory (on the CPU: VLLM_CPU_KVCACHE_SPACE) or shorten the context"

# Seen with vLLM 0.32 unless a line says otherwise; `{0}`, `{1}` are the pattern's groups.
FAULTS = (
    _fault(
        r"address already in use",
        "its port was taken while it started",
        "choose another port, or end what holds it (`ss -ltnp`)",
    ),
    _fault(
        r"unrecognized arguments?: (.+)",
        "it does not know the argument {0}",
        "correct the stack's engine arguments: this engine version may have renamed or dropped it",
    ),
    _fault(r"error: argument (\S+): (.+)", "it refuses {0}: {1}", "correct that argument in the stack"),
    _fault(
        r"validation errors? for SpeculativeConfig\n(\w+)\n\s+Unexpected keyword argument",
        "it does not know the speculative field {0}",
        "correct the variant: this engine version may have renamed or dropped the field",
    ),
    _fault(
        r"validation errors? for SpeculativeConfig\n(\w+)\n\s+(.{0,120})",
        "it refuses the speculative field {0}: {1}",
        "correct that field of the variant",
    ),
    _fault(
        r"Invalid repository ID or local directory specified: '(.*?)'",
        "no model lies at {0}",
        "download it, or correct the path; a model directory holds a config.json",
    ),
    _fault(
        r"(?:Repo id must be in the form .*?: '(.*?)'|couldn't connect to .* to load the files)",
        "the model {0} is not on this machine and cannot be fetched",
        "download it first, or correct the path; a model directory holds a config.json",
    ),
    _fault(
        r"Cannot find any model weights with `(.*?)`",
        "{0} holds no weights",
        "download the model again: its *.safetensors are absent",
    ),
    _fault(
        r"No such file or directory: '(.*?\.(?:safetensors|json|bin|model))'",
        "the model file {0} is absent",
        "download the model again, or correct the path",
    ),
    _fault(
        r"(?:safetensors_rust\.)?SafetensorError: (.*)",
        "a weight file cannot be read: {0}",
        "download that file again: it is cut short or corrupt",
    ),
    _fault(
        r"No available memory for the cache blocks",
        "no memory is left for the KV cache beside the weights",
        _KV_ROOM,
    ),
    _fault(
        r"max seq len \((\d+)\), \(?(\S+ \S+) KV cache is needed, .*?available KV cache memory \((.*?)\)",
        "the KV cache of {2} does not hold one request of {0} tokens, which needs {1}",
        _KV_ROOM,
    ),
    _fault(
        r"(?:CUDA out of memory|CUDA error: out of memory|torch\.(?:cuda\.)?OutOfMemoryError)",
        "the GPU ran out of memory",
        _FREE_DEVICE,
    ),
    _fault(
        r"Free memory on device.*is less than desired GPU memory utilization",
        "less device memory is free than the share that it is to take",
        _FREE_DEVICE,
    ),
    _fault(
        r"(?:^|\s)MemoryError\b|Cannot allocate memory|can't allocate memory|std::bad_alloc",
        "the machine ran out of memory",
        "lower the KV cache or the context, or end what else holds memory",
    ),
    _fault(
        r"Insufficient space in /dev/shm for shared-memory allocation: (.+?)\. ",
        "its shared memory is too small: {0}",
        "enlarge /dev/shm, for a container with OUTRIDER_SHM",
    ),
    _fault(
        r"No space left on device",
        "a disk is full (/dev/shm counts)",
        "`df -h` shows which one; free it, or enlarge the container's shared memory",
    ),
    _fault(r"No module named '?([\w.]+)", "its Python has no module {0}", _REINSTALL),
    _fault(r"cannot import name '(\w+)' from '([\w.]+)'", "its module {1} has no {0}: versions do not fit", _REINSTALL),
    _fault(r"ImportError: (.*)", "a library cannot be loaded: {0}", _REINSTALL),
)


def describe_exit(code: int | None, *, because: str | None, oom_kills: int | None) -> str:
    """What the kernel says about an ended engine.

    Args:
        code: exit code; negative signal number if a signal ended it; None if nobody collected it.
        because: what ended the run, as in the record.
        oom_kills: processes that the OOM killer ended on this machine during the run; None if unknown.
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
    elif oom_kills or code in {-signal.SIGKILL, 128 + signal.SIGKILL}:
        if oom_kills is None:
            how += "; `dmesg` tells whether the kernel's OOM killer sent it"
        elif oom_kills:
            how += f"; the kernel's OOM killer ended {oom_kills} process(es) on this machine meanwhile"
        else:
            how += "; the kernel's OOM killer ended nothing meanwhile, so somebody sent it"
    return how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _accusing(lines: Sequence[str]) -> list[str]:
    """Lines that can hold a fault: healthy starts warn of errors that might happen one day."""
    return [line for line in lines[-_SEARCHED_LINES:] if not _HARMLESS.search(line)]


def known_fault(lines: Sequence[str]) -> tuple[Fault, re.Match[str]] | None:
    """The first fault of the table that the log shows, where it shows it last."""
    text = "\n".join(_accusing(lines))
    for fault in FAULTS:
        *_, last = (None, *fault.pattern.finditer(text))
        if last is not None:
            return fault, last
    return None


def last_error_line(lines: Sequence[str]) -> str | None:
    """The last line that names an error itself; one that points further up only if there is no other."""
    named = [match[1].strip() for line in _accusing(lines) if (match := _ERROR_LINE.search(line))]
    roots = [line for line in named if not any(words in line for words in _WRAPPERS)]
    return (roots or named or [None])[-1]


def explain(what: str, lines: Sequence[str], *, ending: str, code: int | None, oom_kills: int, log: str) -> EngineError:
    """The error for an engine that ended or did not become ready.

    Args:
        what: which engine did what: the start of the cause.
        lines: its log.
        ending: `describe_exit`'s words, or how it was given up.
        code: its exit code as in `describe_exit`; None if it was still alive.
        oom_kills: as in `describe_exit`.
        log: where the whole log is.
    """
    shown = "\n".join(line[:_SHOWN_COLUMNS] for line in lines[-SHOWN_LINES:]) or "(it printed nothing)"
    evidence = f"{ending}; the end of {log}:\n{textwrap.indent(shown, '    ')}"
    if (found := known_fault(lines)) is not None:
        fault, match = found
        cause = fault.cause.format(*(group.strip() if group else "" for group in match.groups()))
        if match[0] not in shown:
            evidence = f"{match[0].strip()}\n  {evidence}"
        return EngineError(f"{what}: {cause}", evidence=evidence, next_step=fault.next_step)
    line = last_error_line(lines)
    died_unheard = line is None or any(words in line for words in _WRAPPERS)  # the one that was killed says nothing
    if oom_kills and (died_unheard or code in {-signal.SIGKILL, 128 + signal.SIGKILL}):
        return EngineError(
            f"{what}: the kernel's OOM killer probably ended it",
            evidence=evidence,
            next_step="lower the KV cache or the context, raise its memory limit if it has one (OUTRIDER_MEMORY), "
            "or end what else holds memory; `dmesg` names the victim",
        )
    if line is not None:
        return EngineError(f"{what}: {line}", evidence=evidence, next_step=f"read the log before that line: {log}")
    return EngineError(f"{what}: {ending}", evidence=evidence, next_step=f"read {log}")
