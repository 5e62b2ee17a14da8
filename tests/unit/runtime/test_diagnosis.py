"""What a failed engine's log and exit code are taken to mean. The log lines are vLLM 0.32's own."""

from __future__ import annotations

import signal

import pytest

from outrider.runtime import diagnosis

CORE = "(EngineCore pid=12860) ERROR 11-29 16:55:45 [core.py:1510] "
WORKER = "(Worker pid=12666) ERROR 11-29 16:55:09 [multiproc_executor.py:953] "
WRAPPER = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
FRAME = '  File "/opt/engine/vllm/v1/engine/core.py", line 1510, in run_engine_core'
NOT_A_REPOSITORY = (
    "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
    "'/models/none'. Use `repo_type` argument if needed."
)
SMALL_CACHE = (
    "ValueError: To serve at least one request with the model's max seq len (2048), (0.04 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (0.01 GiB). Based on the available memory, the estimated "
    "maximum model length is 384."
)
SMALL_SHM = (
    "RuntimeError: Insufficient space in /dev/shm for shared-memory allocation: 160 MiB required, 0 MiB free. "
    "Increase /dev/shm (e.g. --shm-size or --ipc=host)."
)
ULIMIT = (
    "(APIServer pid=1) WARNING 11-29 16:54:54 [system_utils.py:255] Found ulimit of 20000 and failed to "
    "automatically increase. This can cause fd limit errors like `OSError: [Errno 24] Too many open files`."
)


def cause_of(*lines: str, code: int | None = 1, oom_kills: int = 0) -> str:
    ending = diagnosis.describe_exit(code, because="engine", oom_kills=oom_kills)
    error = diagnosis.explain("it ended", lines, ending=ending, code=code, oom_kills=oom_kills, log="engine.log")
    assert error.next_step
    assert ending in error.evidence
    return error.cause


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["OSError: [Errno 98] Address already in use"], "its port was taken"),
        (["api_server.py: error: unrecognized arguments: --no-such-flag 3"], "the argument --no-such-flag 3"),
        (
            ["api_server.py: error: argument --max-num-seqs: invalid int value: 'many'"],
            "it refuses --max-num-seqs: invalid int value: 'many'",
        ),
        (
            [
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig",
                "prompt_lookup_maxx",
                "  Unexpected keyword argument [type=unexpected_keyword_argument, input_value=4, input_type=int]",
            ],
            "does not know the speculative field prompt_lookup_maxx",
        ),
        (
            [
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig",
                "method",
                "  Input should be 'ngram', 'medusa', 'eagle3' [type=literal_error, input_value='nope']",
            ],
            "refuses the speculative field method: Input should be 'ngram'",
        ),
        (
            [
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig",
                "  Value error, Invalid repository ID or local directory specified: '/models/none'.",
            ],
            "no model lies at /models/none",
        ),
        (
            [
                NOT_A_REPOSITORY,
            ],
            "the model /models/none is not on this machine",
        ),
        (
            [
                f"{WORKER}RuntimeError: Cannot find any model weights with `/models/empty`",
                f"{CORE}Exception: WorkerProc initialization failed due to an exception in a background process.",
                WRAPPER,
            ],
            "/models/empty holds no weights",
        ),
        (
            [
                f"{CORE}{SMALL_SHM}",
                WRAPPER,
            ],
            "its shared memory is too small: 160 MiB required, 0 MiB free",
        ),
        (
            [
                f"{CORE}{SMALL_CACHE}",
                WRAPPER,
            ],
            "KV cache of 0.01 GiB does not hold one request of 2048 tokens, which needs 0.04 GiB",
        ),
        (
            [f"{CORE}ValueError: No available memory for the cache blocks. Try increasing it.", WRAPPER],
            "no memory is left for the KV cache",
        ),
        (
            [f"{WORKER}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", WRAPPER],
            "the GPU ran out of memory",
        ),
        (["MemoryError"], "the machine ran out of memory"),
        (["/usr/bin/python: No module named vllm.entrypoints"], "no module vllm.entrypoints"),
        (["ModuleNotFoundError: No module named 'torch'"], "no module torch"),
        (
            ["ImportError: libcudart.so.13: cannot open shared object file: No such file or directory"],
            "a library cannot be loaded: libcudart.so.13",
        ),
        (["OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'"], "a disk is full"),
        (
            [f"{CORE}KeyError: 'model.embed_tokens.weight'", FRAME, WRAPPER],
            "KeyError: 'model.embed_tokens.weight'",
        ),
        ([f"{CORE}Exception: WorkerProc initialization failed, no more is known"], "WorkerProc initialization"),
    ],
)
def test_known_faults_are_named_through_the_wrappers_around_them(lines: list[str], cause: str) -> None:
    assert cause in cause_of(ULIMIT, *lines, FRAME)


def test_a_warning_in_a_healthy_log_is_not_taken_for_the_cause() -> None:
    assert cause_of(ULIMIT, code=-signal.SIGKILL).startswith("it ended: ended by signal 9 (SIGKILL)")


def test_a_root_cause_above_the_shown_lines_is_shown_too() -> None:
    lines = ["MemoryError: no room", *[f"frame {i}" for i in range(40)]]
    error = diagnosis.explain("it ended", lines, ending="exit code 1", code=1, oom_kills=0, log="engine.log")
    assert "MemoryError" in error.evidence
    assert "frame 39" in error.evidence
    assert "frame 24" not in error.evidence


def test_a_very_long_line_is_cut() -> None:
    error = diagnosis.explain("it ended", ["x" * 9000], ending="exit code 1", code=1, oom_kills=0, log="engine.log")
    assert len(str(error)) < 1000


def test_a_silent_engine_is_said_to_be_silent() -> None:
    error = diagnosis.explain("it ended", [], ending="exit code 1", code=1, oom_kills=0, log="engine.log")
    assert "printed nothing" in error.evidence


@pytest.mark.parametrize(
    ("code", "because", "oom_kills", "words"),
    [
        (0, "engine", 0, "exit code 0"),
        (3, "engine", 0, "exit code 3"),
        (-11, "engine", 0, "signal 11 (SIGSEGV)"),
        (134, "engine", 0, "exit code 134, as after signal 6 (SIGABRT)"),
        (-9, "engine", 2, "OOM killer ended 2 process(es)"),
        (-9, "engine", 0, "OOM killer ended nothing"),
        (137, None, None, "`dmesg` tells whether"),
        (-9, "stop", 0, "after it was asked to stop"),
        (-15, "owner", 0, "after its starter was gone"),
        (None, None, 0, "was not seen"),
    ],
)
def test_the_kernel_s_word_is_told(code: int | None, because: str | None, oom_kills: int | None, words: str) -> None:
    assert words in diagnosis.describe_exit(code, because=because, oom_kills=oom_kills)


def test_a_kill_that_came_with_the_oom_killer_says_so_as_the_cause() -> None:
    assert "OOM killer probably" in cause_of("loading", code=-9, oom_kills=1)


def test_a_worker_that_the_oom_killer_took_is_the_cause_when_only_the_server_complains() -> None:
    core = WRAPPER.format("{'EngineCore': -9}")
    assert "OOM killer probably" in cause_of("loading", core, code=1, oom_kills=1)
    assert "OOM killer" not in cause_of("loading", core, code=1, oom_kills=0)
    assert "KeyError" in cause_of(f"{CORE}KeyError: 'x'", core, code=1, oom_kills=1), "it had a cause of its own"
