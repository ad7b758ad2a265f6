"""lm-evaluation-harness and LM-Polygraph on the same questions and model, each from PyPI in an environment of its own.

The environments lie in the user's cache folder and are made once, with the versions of `constraints.txt`. The other
tool runs in a process of its own; its seconds are taken inside, without start and loading, and both sides alternate.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs
import torch

from bench.api import Format, Task
from bench.model.language_model import LanguageModel
from bench.prompts import templates
from bench.prompts.chat import Chat
from benchmarks.performance import sample
from benchmarks.performance.measure import ROOT, Line, NotMeasured, seconds_of, told_by

DRIVER = Path(__file__).with_name("driver.py")
LM_EVAL, LM_POLYGRAPH = "lm-eval[hf]==0.4.13", "lm-polygraph==0.7.0"
SUBJECTS = 4
BATCH = 16
HOUR = 3600


def lm_eval(repeats: int) -> Iterator[Line]:
    """Letters as continuations of 200 prompts ÷ our pass that answers them."""
    chosen = sample.questions(Format.CHOICE, SUBJECTS, 50)
    ratio, note = _alternate(LM_EVAL, "lm_eval", chosen, frozenset(), min(2, repeats))
    yield Line("lm-evaluation-harness ÷ our choice pass", ratio, ">= 4", note)


def lm_polygraph(repeats: int) -> Iterator[Line]:
    """P(True) and mean token entropy of 64 prompts ÷ all our signals of the frozen model."""
    chosen = sample.questions(Format.CHOICE, SUBJECTS, 16)
    signals = sample.frozen_signals(Format.CHOICE)
    ratio, note = _alternate(LM_POLYGRAPH, "lm_polygraph", chosen, signals, min(2, repeats))
    yield Line("LM-Polygraph ÷ all our frozen signals", ratio, ">= 5", note)


def _alternate(
    requirement: str, tool: str, chosen: list[Any], signals: frozenset[Any], repeats: int
) -> tuple[float, str]:
    """Median seconds of the other tool ÷ ours, and a note on both."""
    environment(requirement)
    read = partial(sample.read, Format.CHOICE, chosen, signals)
    read()
    theirs: list[float] = []
    ours: list[float] = []
    told: dict[str, Any] = {}
    prompts = texts(chosen, sample.tiny().chat)
    for _ in range(repeats):
        told = told_of(requirement, tool, sample.tiny().folder, prompts, "abcd")
        theirs.append(told["seconds"])
        ours.append(seconds_of(read))
    slow, quick = statistics.median(theirs), statistics.median(ours)
    return slow / quick, f"{slow:.1f} s ÷ {quick:.2f} s; {len(chosen)} MMLU questions, batch {BATCH}, {versions(told)}"


def told_of(
    requirement: str,
    tool: str,
    model: Path,
    prompts: Sequence[str],
    letters: str,
    dtype: str = "float32",
    batch: int = BATCH,
) -> dict[str, Any]:
    """What the driver tells of one of the tools, on these prompts with the model of a folder."""
    task = {
        "model": str(model), "prompts": list(prompts), "letters": list(letters), "batch": batch, "dtype": dtype,
        "threads": torch.get_num_threads(),
    }  # fmt: skip
    with sample.temporary() as folder:
        path = folder / "task.json"
        path.write_text(json.dumps(task), encoding="utf-8")
        return told_by([environment(requirement), DRIVER, tool, path])


def likeliest(scores: Sequence[Sequence[float]], letters: str = "abcd") -> str:
    """The letter with the highest log-likelihood of each question."""
    return "".join(letters[max(range(len(row)), key=row.__getitem__)] for row in scores)


@contextmanager
def as_folder(lm: LanguageModel) -> Iterator[Path]:
    """A folder from which other tools load a model whose weights come from a GGUF file."""
    with sample.temporary() as folder:
        for path in [*lm.folder.iterdir(), lm.files.weights_folder(lm.dtype) / "model.safetensors"]:
            (folder / path.name).symlink_to(path.resolve())
        (folder / "config.json").unlink()  # LM-Polygraph asks for the name of the model's class
        config = {**lm.config.to_dict(), "architectures": [type(lm.model).__name__]}
        (folder / "config.json").write_text(json.dumps(config, default=str), encoding="utf-8")
        yield folder


def versions(told: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in told["versions"].items())


def texts(chosen: Sequence[Any], chat: Chat, task: Task | None = None) -> list[str]:
    """Prompts of MMLU's questions, as our pass reads them; `task` may have a part of them."""
    task = task or sample.mmlu(Format.CHOICE)
    dev = list(task.questions("dev"))
    shots = {q.subject: [e for e in dev if e.subject == q.subject][: sample.PROTOCOL.shots] for q in chosen}
    built = [templates.build(q, shots[q.subject], task.style, task.format, sample.PROTOCOL) for q in chosen]
    return [chat.render(prompt.messages) for prompt in built]


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
    pip = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), requirement]
    for command in ([sys.executable, "-m", "venv", "--clear", str(folder)], pip):
        done = subprocess.run(command, capture_output=True, text=True, timeout=HOUR, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise NotMeasured(f"{requirement} can't be installed: {last}")
    (folder / "complete").touch()
    return python
