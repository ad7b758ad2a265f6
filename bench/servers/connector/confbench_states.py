"""`ConfbenchStates`: vLLM writes the hidden states of just those tokens of a prompt that a request names.

vLLM imports this file in an environment of its own, so it uses nothing of confbench. `bench doctor --model URL` prints
the command. It is a kind of vLLM's `ExampleHiddenStatesConnector`, which writes the states of all tokens, and none on a
CPU. Tested with vLLM 0.32.0 on a CPU. On a GPU it takes the same path, by a copy to the host: untested, as is tensor
parallelism.

A request says `"kv_transfer_params": {"rows": [...]}`, positions in its prompt; without rows nothing is written. The
reply has `hidden_states_path` and `layers` in its `kv_transfer_params`. The file appears at once as a whole, with
`token_ids` of the prompt `(t,)` and `hidden_states` `(rows, layers, d)`. If it can't be written, a file of its name
with the ending `.error` says why. What nobody removes is removed after some minutes.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    PendingSave,
    extract_from_kv_cache,
)
from vllm.logger import init_logger

_KEPT_S = 900.0
"""Seconds after which a file that its client has not removed is removed: the client was killed."""
logger = init_logger(__name__)


@dataclass
class PendingRows(PendingSave):  # type: ignore[misc]  # vLLM is not installed beside confbench
    """States of a request that are to be written."""

    rows: list[int] = field(default_factory=list)


class Copied:
    """Stands for a CUDA event: the states have been copied."""

    def query(self) -> bool:
        """Return True."""
        return True


class ConfbenchStates(ExampleHiddenStatesConnector):  # type: ignore[misc]
    """Writes hidden states of named rows."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Read the layers from the server's configuration, and make the folder."""
        super().__init__(*args, **kwargs)
        self.use_lock = False  # files appear as a whole
        draft = self._vllm_config.speculative_config.draft_model_config.hf_config
        self.layers = list(draft.eagle_aux_hidden_state_layer_ids)
        self.folder, self._cleaned = Path(self._storage_path), 0.0
        self.folder.mkdir(parents=True, exist_ok=True)

    # --- in the scheduler ---------------------------------------------------------------------------------------------

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Have the rows written that the request names, before its blocks are freed."""
        filename = self._request_filenames.pop(request.request_id, None)
        rows, ids = (request.kv_transfer_params or {}).get("rows"), request.prompt_token_ids
        if not rows or filename is None or ids is None:
            return False, {"layers": self.layers}
        if not all(type(row) is int and 0 <= row < len(ids) for row in rows):
            return False, {"layers": self.layers, "error": f"rows: expected positions below {len(ids)}, got {rows[:3]}"}
        self._pending_saves[request.request_id] = PendingRows(
            request.request_id, filename, torch.tensor(ids), list(block_ids), list(rows)
        )
        return True, {"hidden_states_path": filename, "layers": self.layers}

    # --- in the worker ------------------------------------------------------------------------------------------------

    def _submit_async_write(self, pending: PendingRows) -> None:
        """Copy the rows from the cache; a thread writes them."""
        if not self._is_tp_rank_zero:
            return
        rows, blocks = torch.tensor(pending.rows), torch.tensor(pending.block_ids)
        slots = blocks[rows // self._block_size] * self._block_size + rows % self._block_size
        states = extract_from_kv_cache(self._kv_cache, slots.to(self._kv_cache.device), len(rows))
        tensors = {"token_ids": pending.token_ids, "hidden_states": states.cpu().contiguous()}
        future = self._executor.submit(self._write, tensors, Path(pending.filename))
        self._req_copy_events[pending.req_id], self._req_futures[pending.req_id] = Copied(), future
        future.add_done_callback(partial(self._on_write_done, pending.req_id))

    def _write(self, tensors: dict[str, torch.Tensor], path: Path) -> None:
        part = path.with_suffix(".part")
        try:
            self._remove_old()
            save_file(tensors, part)
            part.replace(path)
        except Exception as error:
            with suppress(OSError):
                part.unlink()
            with suppress(OSError):
                path.with_suffix(".error").write_text(str(error))  # empty if the disk is full
            raise

    def _remove_old(self) -> None:
        """Remove files that no client has removed."""
        now = time.time()
        if now - self._cleaned < _KEPT_S / 10:
            return
        self._cleaned = now
        for path in self.folder.iterdir():
            with suppress(OSError):
                if path.suffix in {".safetensors", ".error", ".part"} and now - path.stat().st_mtime > _KEPT_S:
                    path.unlink()

    def _on_write_done(self, req_id: str, future: Future[None]) -> None:
        self._req_futures.pop(req_id, None)
        if (error := future.exception()) is not None:
            logger.error("Hidden states of %s were not written: %r", req_id, error)
