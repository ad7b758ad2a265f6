"""The connector that vLLM loads: which rows of its cache are written, and what is told of them; vLLM is a stand-in."""

from __future__ import annotations

import os
import runpy
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bench import servers

FILE = Path(servers.__file__).parent / "connector" / "confbench_states.py"
BLOCK = 4


@dataclass
class PendingSave:
    req_id: str
    filename: str
    token_ids: torch.Tensor
    block_ids: list[int]


class Example:
    """What the connector takes of vLLM's own."""

    def __init__(self, folder: Path) -> None:
        draft = SimpleNamespace(hf_config=SimpleNamespace(eagle_aux_hidden_state_layer_ids=[2, 4]))
        self._vllm_config = SimpleNamespace(speculative_config=SimpleNamespace(draft_model_config=draft))
        self._storage_path, self._request_filenames, self._pending_saves = str(folder), {}, {}
        self._is_tp_rank_zero, self._block_size, self._executor = True, BLOCK, ThreadPoolExecutor(1)
        self._kv_cache = torch.arange(5 * 2 * BLOCK * 3.0).reshape(5, 2, BLOCK, 3)
        self._req_copy_events, self._req_futures = {}, {}


def extract(cache: torch.Tensor, slots: torch.Tensor, n: int) -> torch.Tensor:
    return cache[slots // BLOCK, :, slots % BLOCK][:n]


@pytest.fixture
def connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    example = "vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector"
    for name, has in {
        example: {
            "ExampleHiddenStatesConnector": Example,
            "PendingSave": PendingSave,
            "extract_from_kv_cache": extract,
        },
        "vllm.logger": {"init_logger": lambda _name: SimpleNamespace(error=lambda *_words: None)},
    }.items():
        module = ModuleType(name)
        vars(module).update(has)
        monkeypatch.setitem(sys.modules, name, module)
    return runpy.run_path(str(FILE), run_name="confbench_states")["ConfbenchStates"](tmp_path / "states")


def finish(connector: Any, rows: object, tokens: int = 10) -> tuple[bool, Any]:
    path = connector.folder / "cmpl-1.safetensors"
    connector._request_filenames["1"] = str(path)
    request = SimpleNamespace(
        request_id="1",
        prompt_token_ids=list(range(tokens)),
        kv_transfer_params=None if rows is None else {"rows": rows},
    )
    told: tuple[bool, Any] = connector.request_finished(request, [3, 0, 4])
    for pending in connector._pending_saves.values():
        connector._submit_async_write(pending)
    connector._pending_saves.clear()
    connector._executor.submit(lambda: None).result()
    return told


def test_connector_writes_the_named_rows_of_all_layers(connector: Any) -> None:
    delayed, told = finish(connector, [9, 0, 5])
    assert (delayed, told["layers"]) == (True, [2, 4])
    tensors = load_file(told["hidden_states_path"])
    assert tensors["token_ids"].tolist() == list(range(10))
    cache = connector._kv_cache  # token 9 is the second one of the third block, 4; token 5 of the second one, 0
    assert torch.equal(tensors["hidden_states"], torch.stack([cache[4, :, 1], cache[3, :, 0], cache[0, :, 1]]))
    assert connector._req_copy_events["1"].query()
    assert [path.name for path in connector.folder.iterdir()] == ["cmpl-1.safetensors"]


@pytest.mark.parametrize("rows", [None, [], [10], [-1], ["1"], [True]])
def test_connector_writes_nothing_without_rows_of_the_prompt(connector: Any, rows: object) -> None:
    delayed, told = finish(connector, rows)
    assert (delayed, told["layers"]) == (False, [2, 4])
    assert ("error" in told) == bool(rows)
    assert not [*connector.folder.iterdir()]


def test_connector_leaves_a_reason_if_the_disk_is_full(connector: Any) -> None:
    def full(*_words: object) -> None:
        raise OSError(28, "No space left on device")

    connector._write.__func__.__globals__["save_file"] = full
    _, told = finish(connector, [0])
    failure = Path(told["hidden_states_path"]).with_suffix(".error")
    assert "No space left on device" in failure.read_text()
    assert [*connector.folder.iterdir()] == [failure]


def test_connector_removes_what_killed_clients_left(connector: Any) -> None:
    old, other = connector.folder / "cmpl-0.safetensors", connector.folder / "notes.txt"
    for path in (old, other):
        path.touch()
        os.utime(path, (time.time() - 1e4,) * 2)
    finish(connector, [0])
    assert {path.name for path in connector.folder.iterdir()} == {"cmpl-1.safetensors", "notes.txt"}


def test_connector_uses_nothing_of_confbench() -> None:
    assert "import bench" not in FILE.read_text()
    assert "from bench" not in FILE.read_text()
