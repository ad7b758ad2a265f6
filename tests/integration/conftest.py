"""What the tests of whole runs share: the command in this process and in one of its own, a small model, a small task.

Results come as `subprocess.CompletedProcess`, wherever the command ran.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bench import cli

Command = Callable[..., "subprocess.CompletedProcess[str]"]

ROOT = Path(__file__).parents[2]
TINY = ROOT / "bench" / "backbone" / "tiny"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

RIVERS = '''"""A small task with two shards in each split, and a learner that feels every bit of its signals."""
import os
import time
from pathlib import Path

import numpy as np

from bench.api import (
    At, ConfidenceMethod, Format, Hidden, Needs, PromptStyle, QueryLogits, Question, Task, TaskCard, method, task,
)

SIZES = {"rivers": 180, "hills": 90, "coasts": 40}
NAMES = ["Tove", "Kiru", "Bamo", "Lun", "Vesk", "Orro", "Dalm", "Pirr"]


@task("rivers")
class Rivers(Task):
    "Where invented rivers end."
    format = Format.CHOICE
    card = TaskCard(
        license="MIT", version=1, why="none", options=(4, 4),
        splits={"train": "train", "test": "test", "dev": "dev"}, sizes={"train": 310, "test": 310, "dev": 6},
    )
    style = PromptStyle(header="About {label}.", footer="Next.", context="{text}\\n{options}")

    def questions(self, split):
        rng = np.random.default_rng(len(split))
        for subject, size in SIZES.items():
            for i in range(2 if split == "dev" else size):
                words = " ".join(rng.choice(NAMES, 3))
                choices = tuple(map(str, rng.choice(NAMES, 4, replace=False)))
                yield Question(f"{split}/{subject}/{i}", subject, f"Where does {words} end?", choices, i % 4)


SIGNALS = frozenset({Hidden(1.0, At.PROMPT_END), QueryLogits()})


@method("echo")
class Echo(ConfidenceMethod):
    "Projects states on the mean state of the training answers."
    reference = "none"
    needs = Needs(fit=SIGNALS, predict=SIGNALS)

    def fit(self, train, ctx):
        if "PAUSE" in os.environ:
            Path(os.environ["PAUSE"]).touch()
            time.sleep(60)
        states = train[Hidden(1.0, At.PROMPT_END)].astype(np.float64)
        self.direction_ = states.mean(axis=0) + ctx.rng.normal(size=states.shape[1])
        self.shift_ = float(train[QueryLogits()].mean() + train.correct.mean())
        return self

    def predict(self, batch):
        states = batch[Hidden(1.0, At.PROMPT_END)].astype(np.float64)
        score = states @ self.direction_ + batch[QueryLogits()].sum(axis=1) - self.shift_
        return 1 / (1 + np.exp(-score / 10))
'''


def _inside(*arguments: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    out, err = io.StringIO(), io.StringIO()
    command = ["bench", *map(str, arguments)]
    code = 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", command)
        patch.setenv("COLUMNS", "200")
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def _outside(
    *arguments: object, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from bench.cli import main; main()", *map(str, arguments)]
    # no thread pools beside the tests' own, and COLUMNS so that no table is folded
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200", **(env or {})}
    return subprocess.run(
        program, capture_output=True, text=True, timeout=120, check=False, env=environment, cwd=cwd or ROOT
    )


@pytest.fixture(scope="session")
def bench() -> Command:
    """The command, in this process: quick."""
    return _inside


@pytest.fixture(scope="session")
def bench_process() -> Command:
    """The command, in a process of its own."""
    return _outside


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A randomly initialised Llama with the tokenizer of `tiny`."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    vocabulary = len(__import__("transformers").AutoTokenizer.from_pretrained(TINY))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=4096, initializer_range=0.2, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("models") / "small"
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in TOKENIZER_FILES:
        shutil.copy(TINY / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def rivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plugin file with the task `rivers` and the method `echo`."""
    path = tmp_path_factory.mktemp("plugins") / "rivers.py"
    path.write_text(RIVERS, encoding="utf-8")
    return path
