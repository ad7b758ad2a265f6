"""Parts of `make nightly`: ordinary commands, each with what it proves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

CODE = ("bench", "methods", "tasks", "tests", "pyproject.toml", "constraints.txt")
LEVELS = ("bench/stats", "bench/metrics", "tests/levels", "benchmarks/performance/judging.py")
SOURCES = ("bench", "methods", "tasks", "tests/fixtures", "tests/faults", "constraints.txt")
PYTEST = "python -m pytest -q -rfEs"
CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Need:
    name: str
    install: str
    """Command that installs it."""
    there: Callable[[], bool]


CHROMIUM = Need("Chromium", "apt-get install chromium", lambda: any(map(shutil.which, CHROMIUMS)))
RAY = Need("Ray", "pip install -e '.[ray]'", lambda: find_spec("ray") is not None)
MODEL = Need("a real model", "CONFBENCH_GGUF=FOLDER and CONFBENCH_VLLM=PYTHON (make vllm)",
             lambda: bool(os.environ.get("CONFBENCH_GGUF")))  # fmt: skip
ATHERIS = Need("atheris", "pip install -e '.[fuzz]'", lambda: find_spec("atheris") is not None)


@dataclass(frozen=True)
class Part:
    """One command; exit code 0 is green."""

    name: str
    proves: str
    command: str
    """Words as in a shell; `python` is the one that runs the parts."""
    reads: tuple[str, ...] = CODE
    """Files and folders: where one has changed, a green part is run again."""
    need: Need | None = None
    rounds: int = 1
    """Times that the command may be given until it's finished; above one, exit code 2 means that it isn't."""
    keeps: str | None = None
    """File or folder in which the command itself keeps what it has done, to go on from there."""


PARTS = (
    Part("levels", "tests err as seldom as they say, and intervals cover, on answers whose truth is known",
         "python -m tests.levels", reads=LEVELS, keeps="build/levels"),
    Part("wheel", "the wheel works outside the checkout, and the source archive has all files",
         f"{PYTEST} tests/integration/test_wheel.py", reads=(".",)),
    Part("browser", "the page works in Chromium, and stays quick where a comparison is large",
         f"{PYTEST} -m browser", need=CHROMIUM),
    Part("ray", "a Ray cluster leaves the bytes of one process, whatever becomes of its nodes",
         f"{PYTEST} -m ray", need=RAY),
    Part("slow", "other tests above three seconds: coverage of intervals, bfloat16, DeepSpeed, forecasts, the site",
         f"{PYTEST} -m 'slow and not browser and not ray' --ignore tests/integration/test_wheel.py"),
    Part("served", "a model of 1.5B on llama.cpp and on vLLM gives what its file gives here, within arithmetic",
         "python -m tests.served", need=MODEL),
    Part("readme", "every command of the README and of the pages runs whole",
         f"{PYTEST} -m readme", reads=(*CODE, "README.md", "docs")),
    Part("faults", "no fault of a disk, process, judge, model or plugin loses a result, or changes one without a word",
         "python -m tests.faults", reads=SOURCES, rounds=6, keeps="build/faults"),
    Part("fuzz", "parsers refuse odd inputs in a sentence",
         "python -m tests.fuzz", reads=(*SOURCES, "tests/fuzz"), need=ATHERIS),
    Part("mutants", "tests fail where the code is wrong",
         "python -m tests.mutants", keeps="build/mutants/outcomes"),
)  # fmt: skip
