"""Room on the GPUs, from what nvidia-smi prints."""

from __future__ import annotations

import os

import pytest

from outrider.errors import RuntimeStateError
from outrider.runtime.device_memory import GpuMemory, parse_gpus, parse_holders, short_of_room, wait_until_free
from outrider.stack import find_stack

FULL = "\n".join(f"{i}, 90000, 97887" for i in range(8))
FREE = "\n".join(f"{i}, 600, 97887" for i in range(8))


def test_what_nvidia_smi_prints_is_read() -> None:
    assert parse_gpus("0, 600, 97887\n1, [N/A], 97887\n") == [GpuMemory(0, 600, 97887)]
    assert parse_holders("17, 500\n17, 20\n18, [N/A]\n\n") == {17: 520, 18: 0}


def test_a_gpu_is_short_if_the_engines_share_does_not_fit() -> None:
    gpus = [GpuMemory(0, 600, 97887), GpuMemory(1, 9000, 97887), GpuMemory(2, 90000, 97887)]
    assert short_of_room(gpus, 2, 0.93) == [gpus[1]]
    assert short_of_room(gpus, 2, 0.90) == []


def test_it_waits_until_memory_is_released() -> None:
    answers = iter([FULL, FREE])
    wait_until_free(find_stack("kimi-k2.5-rtx6000x8"), query=lambda *_words: next(answers))
    assert next(answers, None) is None


def test_who_still_holds_memory_is_named() -> None:
    def query(*words: str) -> str:
        return f"{os.getpid()}, 89000\n" if "compute-apps" in words[0] else FULL

    with pytest.raises(RuntimeStateError, match="device memory is not free") as caught:
        wait_until_free(find_stack("kimi-k2.5-rtx6000x8"), wait_s=0.0, query=query)
    assert f"pid {os.getpid()} of user" in caught.value.evidence
    assert "GPU 7: 90000 of 97887 MiB" in caught.value.evidence


def test_fewer_gpus_than_the_stack_needs_are_not_taken_for_free_ones() -> None:
    four = "".join(FREE.splitlines(keepends=True)[:4])
    with pytest.raises(RuntimeStateError, match="needs 8 GPUs, this machine has 4") as caught:
        wait_until_free(find_stack("kimi-k2.5-rtx6000x8"), query=lambda *_words: four)
    assert "GPU 0, GPU 1, GPU 2, GPU 3" in caught.value.evidence


def test_a_stack_without_gpus_asks_nobody() -> None:
    wait_until_free(find_stack("smollm2-cpu"), query=lambda *_words: pytest.fail("asked"))
