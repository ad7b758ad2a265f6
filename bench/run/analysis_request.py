"""Request of a user of `bench analyze METHOD ANALYSIS`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from bench.api import UserError
from bench.api.options import Flag, Heading, Names
from bench.run.config import RunConfig


@dataclass(frozen=True)
class AnalysisRequest:
    """Request of a user. Its fields are options of `bench analyze METHOD ANALYSIS`."""

    model: Annotated[str, Heading("What is analysed")] = ""
    """Model of the run: alias (bench list models), Hub id, or folder."""
    tasks: Names = ()
    """Task; may be repeated. Default: the model's own."""
    task_files: tuple[Path, ...] = ()
    """Questions as JSON Lines, CSV or Parquet, as of the run; may be repeated."""
    preset: str | None = None
    """paper, refcode, fixed or demo. Default: the model's own."""
    overrides: Annotated[tuple[str, ...], Flag("--set")] = ()
    """FIELD=VALUE of the method, or protocol.FIELD=VALUE."""
    seeds: Names = ("0", "1", "2", "3", "4")
    """Seeds, separated by commas; at least five, since an interval contains their spread."""
    train_on: str | None = None
    """TASK[:SPLIT] that the method learns on. Default: the task's own choice."""
    answers: str = RunConfig.answers
    """Source of the run's answers: generate, released[@REVISION], or FILE."""
    judge: str = RunConfig.judge
    """Who graded open answers: match, openai or hf."""
    judge_model: str | None = None
    """Model of the judge."""
    judge_url: str | None = None
    """Base URL of the judge's server."""
    data_dir: Path | None = None
    """Folder of Parquet files with the Hub's columns, instead of the Hub [$CONFBENCH_DATA]."""
    device: Annotated[str | None, Heading("Machine")] = None
    """cuda, mps or cpu. Default: the first of these that there is."""
    dtype: str | None = None
    """float32, bfloat16 or float16, as of the run."""
    token_budget: int | None = None
    """Tokens of one forward pass, as of the run."""

    def config(self, method: str, cache: Path | None) -> RunConfig:
        """The run that reads what the analysis needs."""
        return RunConfig(
            methods=(method,), model=self.model, tasks=self.tasks,
            task_files=self.task_files, preset=self.preset, overrides=self.overrides,
            train_on=self.train_on, answers=self.answers, judge=self.judge, judge_model=self.judge_model,
            judge_url=self.judge_url, data_dir=self.data_dir, device=self.device, dtype=self.dtype,
            token_budget=self.token_budget, out=Path(), cache=cache,
        )  # fmt: skip

    def command(self, method: str) -> str:
        """The `bench run` that reads it, as it would be typed."""
        words = ["bench", "run", "--method", method, "--model", self.model]
        for name in self.tasks:
            words += ["--task", name]
        for path in self.task_files:
            words += ["--task-file", str(path)]
        given = {
            "--preset": self.preset, "--train-on": self.train_on, "--answers": self.answers, "--judge": self.judge,
            "--judge-model": self.judge_model, "--judge-url": self.judge_url, "--data-dir": self.data_dir,
            "--device": self.device, "--dtype": self.dtype, "--token-budget": self.token_budget,
        }  # fmt: skip
        usual = {"--answers": RunConfig.answers, "--judge": RunConfig.judge}
        for option, value in given.items():
            if value is not None and value != usual.get(option):
                words += [option, str(value)]
        for text in self.overrides:
            words += ["--set", text]
        return shlex.join(words)

    def numbers(self) -> tuple[int, ...]:
        """The seeds.

        Raises:
            UserError: they are no different whole numbers, or too few.
        """
        from bench.stats.variants import MIN_SEEDS

        try:
            seeds = tuple(dict.fromkeys(int(text) for text in self.seeds))
        except ValueError:
            seeds = (-1,)
        if any(seed < 0 for seed in seeds):
            raise UserError(f"--seed: expected whole numbers from 0, got {', '.join(self.seeds)}")
        if len(seeds) < MIN_SEEDS:
            told = f"{len(seeds)} of them" if len(seeds) > 1 else "one"
            raise UserError(
                f"--seed: expected at least {MIN_SEEDS} different seeds, got {told}; an interval contains the spread"
                " between seeds, which fewer don't show"
            )
        return seeds
