"""Real servers with a GGUF file: llama.cpp's in this process, vLLM's by a Python of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import resolve

START_S = 600
"""Seconds within which vLLM must answer; some 40 are usual, for a model of 1.5B twice as many."""


def llama_server(file: Path) -> Any:
    """llama.cpp's server (package xllamacpp), which ends when the object does; `listening_address` is its address."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = str(file), 4096, 1, False
    return xllamacpp.Server(params)


@contextlib.contextmanager
def vllm_server(python: str, file: Path, scratch: Path, dtype: str = "float32") -> Iterator[tuple[str, LanguageModel]]:
    """URL of a vLLM server with the dequantised weights of a file, and the model of the same weights here."""
    options = LoadOptions(device="cpu", dtype=dtype, cache=str(scratch / "converted"))
    here = LanguageModel(resolve(str(file)), options)
    folder = Path(shutil.copytree(here.folder, scratch / "folder"))
    weights = load_file(next(here.files.weights_folder(getattr(torch, dtype)).glob("*.safetensors")))
    if "model.embed_tokens.weight" not in weights:  # the head is the embedding, too
        weights["model.embed_tokens.weight"] = weights.pop("lm_head.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    del weights
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", folder, "--served-model-name", file.stem,
               "--dtype", dtype, "--max-model-len", "4096", "--enforce-eager", "--host", "127.0.0.1",
               "--port", port, "--max-logprobs", "-1"]  # fmt: skip
    with (scratch / "vllm.log").open("w") as log:
        running = subprocess.Popen([*map(str, command)], env={**os.environ, **settings}, stdout=log, stderr=log)
    try:
        end = time.monotonic() + START_S
        while running.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            time.sleep(2)
        yield f"http://127.0.0.1:{port}/v1", here
    finally:
        running.terminate()
        running.wait(60)
