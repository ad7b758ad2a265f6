"""An audit of whole runs: nothing is unpickled, and nothing that lies in cache, results or model is executed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import model
from tests.faults import workload
from tests.integration.conftest import ROOT

GUARD = """
import hashlib, json, os, sys
folders = os.environ["GUARDED"].split(os.pathsep)
log = os.open(os.environ["GUARD_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def below(name):
    return isinstance(name, str) and any(name.startswith(folder + "/") for folder in folders)

def callers():
    frame, found = sys._getframe(2), []
    while frame is not None:
        found.append(frame.f_code.co_filename)
        frame = frame.f_back
    return found

def told(**what):
    os.write(log, (json.dumps(what) + "\\n").encode())

def guard(event, arguments):
    if event == "pickle.find_class":
        told(event=event, what=list(map(str, arguments)), callers=callers())
    elif event == "compile":
        source, name = arguments
        text = source.encode(errors="replace") if isinstance(source, str) else source
        if below(name):
            told(event=event, what=str(name))
        elif isinstance(text, bytes) and str(name).startswith("<"):
            told(event="source", what=hashlib.sha256(text).hexdigest())
    elif event == "exec" and below(arguments[0].co_filename):
        told(event=event, what=arguments[0].co_filename)
    elif event == "open" and below(arguments[0]) and str(arguments[0]).endswith((".pt", ".pkl", ".bin", ".pth")):
        told(event=event, what=arguments[0])

sys.addaudithook(guard)
told(event="guarded", what=str(os.getpid()))
"""
CHILD = GUARD + "import runpy; runpy.run_module('bench.training', run_name='__main__', alter_sys=True)\n"
PARENT = (
    GUARD
    + f"child = {CHILD!r}\n"
    + """
import subprocess
begin = subprocess.Popen.__init__

def guarded(self, command, *rest, **named):
    if isinstance(command, list) and command[1:4] == ["-P", "-m", "bench.training"]:
        command = [command[0], "-P", "-c", child, *command[4:]]
    begin(self, command, *rest, **named)

subprocess.Popen.__init__ = guarded
from bench.cli.app import main
main()
"""
)
PIPES = ("multiprocessing/", "torch/distributed/distributed_c10d.py")
"""Code that unpickles what came through a pipe from one of our own processes."""


def guarded(program: str, folders: list[Path], *arguments: str, folder: Path) -> list[dict[str, Any]]:
    """Run a program; returns what its guard tells."""
    log = folder / "guard.jsonl"
    environment = os.environ | workload.cache(folder) | {
        "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GUARD_LOG": str(log),
        "GUARDED": os.pathsep.join(str(each.resolve()) for each in folders),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in log.read_text().splitlines()]


def offences(told: list[dict[str, Any]], folders: list[Path]) -> list[dict[str, Any]]:
    """What must not be, of what a guard tells."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    contents = {hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.stat().st_size}
    found = []
    for each in told:
        piped = any(part in name for name in each.get("callers", ()) for part in PIPES)
        harmless = each["event"] == "guarded" or (each["event"] == "source" and each["what"] not in contents)
        if not harmless and not (each["event"] == "pickle.find_class" and piped):
            found.append(each)
    return found


@pytest.mark.parametrize(
    "program",
    [
        "import pickle; pickle.load(open('cache/x', 'rb'))",
        pytest.param("import torch; torch.load('cache/x.pt', weights_only=False)", marks=pytest.mark.slow),
        "exec(open('cache/y.py').read())",
        "import sys; sys.path.append('cache'); import y",
    ],
)
def test_guard_sees_foreign_code(program: str, tmp_path: Path) -> None:
    import torch

    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "x").write_bytes(b"cbuiltins\nlen\n.")
    (tmp_path / "cache" / "y.py").write_text("print('here')\n")
    torch.save({"a": torch.zeros(1)}, tmp_path / "cache" / "x.pt")
    folders = [tmp_path / "cache"]
    program = GUARD + program.replace("'cache", f"'{tmp_path.resolve()}/cache")
    assert offences(guarded(program, folders, folder=tmp_path), folders)


@pytest.mark.slow
def test_run_unpickles_and_executes_nothing_of_its_files(tmp_path: Path) -> None:
    """Learning, training under DeepSpeed and under plain torch, and once more with all of it from the cache."""
    shutil.copytree(Path(str(model.__file__)).parent / "tiny", tmp_path / "model")
    folders = [tmp_path / name for name in ("cache", "out", "model")]
    few = ["it.steps=2", "it.deepspeed=true", "ct.steps=2", "ct.deepspeed=false", "ccps.classifier_steps=50"]
    arguments = workload.command(
        workload.questions_file(tmp_path), tmp_path, "it,ct,ccps,ptrue,saplma-m",
        *(text for each in few for text in ("--set", each)),
    )  # fmt: skip
    arguments[arguments.index("tiny")] = str(tmp_path / "model")
    told = []
    for _ in range(2):
        told = guarded(PARENT, folders, *arguments, folder=tmp_path)
    assert sum(each["event"] == "guarded" for each in told) == 2 + 2  # runs and children
    assert not offences(told, folders)
