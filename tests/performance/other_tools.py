"""lm-evaluation-harness and LM-Polygraph on the same questions and model, each from PyPI in an environment of its own.

The environments lie in the user's cache folder and are made once, with the versions of `constraints.txt`. The other
tool runs in a process of its own; its seconds are taken inside, without start and loading, and both sides alternate.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import platformdirs
import torch

from bench.api import Format
from bench.prompts import templates
from tests.performance import sample
from tests.performance.measure import Line, NotMeasured, Options, seconds_of

DRIVERS = Path(__file__).parent / "drivers"
LM_EVAL, LM_POLYGRAPH = "lm-eval[hf]==0.4.13", "lm-polygraph==0.7.0"
SUBJECTS = 4
BATCH = 16
HOURS = 3600.0


def lm_eval(options: Options) -> Iterator[Line]:
    """Letters as continuations of 200 prompts ÷ our pass that answers them."""
    chosen = sample.questions(Format.CHOICE, SUBJECTS, 50)
    theirs, ours, told = _alternate(LM_EVAL, "lm_eval_driver.py", chosen, frozenset(), min(2, options.repeats))
    note = f"{theirs:.1f} s ÷ {ours:.2f} s; {len(chosen)} MMLU questions, batch {BATCH}, {_versions(told)}"
    yield Line("lm-evaluation-harness ÷ our choice pass", theirs / ours, ">= 4", note)


def lm_polygraph(options: Options) -> Iterator[Line]:
    """P(True) and mean token entropy of 64 prompts ÷ all our signals of the frozen model."""
    chosen = sample.questions(Format.CHOICE, SUBJECTS, 16)
    signals = sample.frozen_signals(Format.CHOICE)
    theirs, ours, told = _alternate(LM_POLYGRAPH, "polygraph_driver.py", chosen, signals, min(2, options.repeats))
    note = f"{theirs:.1f} s ÷ {ours:.2f} s; {len(chosen)} MMLU questions, batch {BATCH}, {_versions(told)}"
    yield Line("LM-Polygraph ÷ all our frozen signals", theirs / ours, ">= 5", note)


def _versions(told: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in told["versions"].items())


def _alternate(
    requirement: str, driver: str, chosen: Sequence[Any], signals: frozenset[Any], repeats: int
) -> tuple[float, float, dict[str, Any]]:
    """Median seconds of the other tool and of ours, and what the other one printed last."""
    python = environment(requirement)
    task = {
        "model": str(sample.tiny().folder),
        "prompts": _texts(chosen),
        "letters": list("abcd"),
        "threads": torch.get_num_threads(),
        "batch": BATCH,
        "new_tokens": 1,
    }
    theirs: list[float] = []
    ours: list[float] = []
    told: dict[str, Any] = {}
    with sample.temporary() as folder:
        path = folder / "task.json"
        path.write_text(json.dumps(task), encoding="utf-8")
        sample.read(Format.CHOICE, list(chosen), signals)
        for _ in range(repeats):
            told = told_by([str(python), str(DRIVERS / driver), str(path), "1"])
            theirs += told["seconds"]
            ours.append(seconds_of(lambda: sample.read(Format.CHOICE, list(chosen), signals)))
    return statistics.median(theirs), statistics.median(ours), told


def _texts(chosen: Sequence[Any]) -> list[str]:
    """The prompts as they are read by us, five exemplars each."""
    task = sample.mmlu(Format.CHOICE)
    dev = list(task.questions("dev"))
    shots = {q.subject: [e for e in dev if e.subject == q.subject][: sample.PROTOCOL.shots] for q in chosen}
    built = [templates.build(q, shots[q.subject], task.style, task.format, sample.PROTOCOL) for q in chosen]
    return [sample.tiny().chat.render(prompt.messages) for prompt in built]


def told_by(command: list[str]) -> dict[str, Any]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HOURS, check=False)
    if done.returncode:
        raise NotMeasured(
            f"{Path(command[1]).name} ended with: {(done.stderr.strip().splitlines() or ['nothing'])[-1]}"
        )
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def environment(requirement: str) -> Path:
    """The Python of an environment that holds the requirement; made if it isn't there.

    Raises:
        NotMeasured: pip can't install it.
    """
    name = "".join(c if c.isalnum() else "-" for c in requirement)
    folder = Path(platformdirs.user_cache_dir("confbench")) / "performance" / name
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    pip = [str(python), "-m", "pip", "install", "--quiet", "-c", str(sample.ROOT / "constraints.txt"), requirement]
    for command in ([sys.executable, "-m", "venv", "--clear", str(folder)], pip):
        done = subprocess.run(command, capture_output=True, text=True, timeout=HOURS, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise NotMeasured(f"{requirement} can't be installed: {last}")
    (folder / "complete").touch()
    return python
