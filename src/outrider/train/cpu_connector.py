"""Hidden-state extraction on vLLM's CPU build: its example connector without CUDA streams and pinned memory.

vLLM 0.32's `ExampleHiddenStatesConnector` copies through a CUDA stream, so the CPU engine dies at its first request
(`patches/ledger.yaml`, entry vllm-cpu-hidden-states). The engine loads this class by `kv_connector_module_path`;
files, locks and notifications are the parent's.
"""

from __future__ import annotations

import fcntl
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    PendingSave,
    extract_from_kv_cache,
)


class _Copied:
    """Stands in for the CUDA event of a copy that is complete."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        return None


class CpuHiddenStatesConnector(ExampleHiddenStatesConnector):  # type: ignore[misc]
    """Writes `hidden_states` [tokens, layers, hidden] and `token_ids` [tokens] of each finished request."""

    def _submit_async_write(self, pending: PendingSave) -> None:
        if not self._is_tp_rank_zero:
            return
        offsets = torch.arange(self._block_size).reshape(1, -1)
        blocks = torch.tensor(pending.block_ids, dtype=torch.long).reshape(-1, 1)
        slots = (blocks * self._block_size + offsets).flatten()
        # A copy: the engine reuses these blocks once the request counts as sent.
        states = extract_from_kv_cache(self._kv_cache, slots, pending.token_ids.shape[0]).clone()
        tensors: dict[str, Any] = {
            "hidden_states": states.contiguous(),
            "token_ids": pending.token_ids.clone(),
        }
        Path(pending.filename).parent.mkdir(parents=True, exist_ok=True)
        lock = self._lock_fds.pop(pending.req_id, None)
        if lock is None and self.use_lock:
            lock = os.open(pending.filename + ".lock", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
            fcntl.flock(lock, fcntl.LOCK_EX)
        future = self._executor.submit(self._write_tensors, tensors, _Copied(), pending.filename, lock)
        self._req_copy_events[pending.req_id] = _Copied()
        self._req_futures[pending.req_id] = future
        future.add_done_callback(partial(self._on_write_done, pending.req_id))
