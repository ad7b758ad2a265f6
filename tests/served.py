"""`python -m tests.served [NAME] [--limit N]`: a real model on llama.cpp and on vLLM, beside the same file read here.

`CONFBENCH_GGUF` names the folder with NAME.gguf, `CONFBENCH_VLLM` a Python with vLLM (`make vllm`); llama.cpp is
xllamacpp's. An engine that is missing is left out, and named. Prints what `bench drift` finds on questions of
`atlas-choice`; the last line sums it up. The exit code is 1 where an engine differs by more than arithmetic explains.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.progress import Silent
from bench.run.config import RunConfig
from bench.run.drift import compare_sides, read_sides
from tests.kit.real_servers import llama_server, vllm_server

EXPLAINED = "no more than"
"""What a cause says that arithmetic explains."""
DTYPE = "bfloat16"


def compared(file: Path, url: str, cache: Path, limit: int) -> dict[str, Any]:
    common: dict[str, Any] = {
        "methods": ("ptrue", "sequence-probability"), "out": "", "tasks": ("atlas-choice",), "preset": "fixed",
        "limit": limit, "cache": cache,
    }  # fmt: skip
    configs = [RunConfig(model=str(file), dtype=DTYPE, **common), RunConfig(model=url, **common)]
    return compare_sides(*read_sides(configs, Silent()))


def main(name: str, limit: int) -> int:
    file, python = Path(os.environ.get("CONFBENCH_GGUF", "")) / f"{name}.gguf", os.environ.get("CONFBENCH_VLLM", "")
    if not file.is_file():
        print(f"CONFBENCH_GGUF names no folder with {file.name}")
        return 2
    found, said = dict[str, dict[str, Any]](), list[str]()
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        if find_spec("xllamacpp"):
            running = llama_server(file)
            found["llama.cpp"] = compared(file, f"{running.listening_address}/v1", scratch / "converted", limit)
            del running
        if python:
            with vllm_server(python, file, scratch, DTYPE) as (url, _):
                found["vLLM"] = compared(file, url, scratch / "converted", limit)
    for engine, each in found.items():
        print(
            engine, json.dumps({key: each[key] for key in ("a", "b", "test", "steps", "methods", "causes")}, indent=1)
        )
        letters = each["steps"].get("letters", {})
        why = "; ".join(f"{cause}: {text}" for cause, text in each["causes"].items()) or "as float arithmetic makes"
        figures = f"sd {letters.get('sd', 0):.3f}, flips {letters.get('flips')} of {each['questions']}"
        said.append(f"{engine}: letters differ by {figures} ({why})")
    said += [f"{engine} left out" for engine in ("llama.cpp", "vLLM") if engine not in found]
    print(f"{name}: {'. '.join(said)}")
    causes = [why for each in found.values() for why in each["causes"].values()]
    return 2 if not found else int(not all(EXPLAINED in why for why in causes))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.served", description=__doc__)
    parser.add_argument("name", nargs="?", default="qwen2.5-coder-1.5b-instruct-q4_k_m")
    parser.add_argument("--limit", type=int, default=20)
    options = parser.parse_args()
    sys.exit(main(options.name, options.limit))
