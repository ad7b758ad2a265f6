"""Requests of `bench analyze`. Their fields are options (but `cache`): name, type, default and help."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from bench.api import UserError
from bench.api.options import Flag, Heading, Names
from bench.results.transfer import AT_RANDOM, SUBJECT
from bench.run.config import RunConfig

LEAST_LABELS = 10
"""Labels of the smallest budget."""


def seeds_of(texts: Sequence[str]) -> tuple[int, ...]:
    """Seeds, each once, in order.

    Raises:
        UserError: one is no whole number from 0.
    """
    seeds = tuple(dict.fromkeys(int(text) if text.isascii() and text.isdigit() else -1 for text in texts))
    if not seeds or any(seed < 0 for seed in seeds):
        raise UserError(f"--seed: expected whole numbers from 0, got {', '.join(texts) or 'none'}")
    return seeds


def _run_words(
    model: str, methods: str, repeated: Mapping[str, Sequence[object]], named: Mapping[str, object]
) -> list[str]:
    """Words of a `bench run` after `bench`; options without a value are left out."""
    words = ["run", "--model", model, "--method", methods]
    words += [word for option, values in repeated.items() for value in values for word in (option, str(value))]
    return words + [word for option, value in named.items() if value is not None for word in (option, str(value))]


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
        named = {
            "--preset": self.preset, "--train-on": self.train_on,
            "--answers": None if self.answers == RunConfig.answers else self.answers,
            "--judge": None if self.judge == RunConfig.judge else self.judge,
            "--judge-model": self.judge_model, "--judge-url": self.judge_url, "--data-dir": self.data_dir,
            "--device": self.device, "--dtype": self.dtype, "--token-budget": self.token_budget,
        }  # fmt: skip
        repeated = {"--task": self.tasks, "--task-file": self.task_files, "--set": self.overrides}
        return shlex.join(["bench", *_run_words(self.model, method, repeated, named)])

    def numbers(self) -> tuple[int, ...]:
        """The seeds.

        Raises:
            UserError: they are no different whole numbers, or too few.
        """
        from bench.stats.variants import MIN_SEEDS

        seeds = seeds_of(self.seeds)
        if len(seeds) < MIN_SEEDS:
            told = f"{len(seeds)} of them" if len(seeds) > 1 else "one"
            raise UserError(
                f"--seed: expected at least {MIN_SEEDS} different seeds, got {told}; an interval contains the spread"
                " between seeds, which fewer don't show"
            )
        return seeds


@dataclass(frozen=True)
class TransferConfig:
    """One matrix. A docstring below is the help of its option."""

    model: Annotated[str, Heading("What is compared")]
    """Alias (bench list models), Hub id, or folder."""
    methods: Names = ()
    """Names and groups, separated by commas; groups are paper, untrained, trained and all. Default: all."""
    on: Annotated[Names, Flag("--on")] = ()
    """Tasks, separated by commas: methods learn on each that has a train split, and are tested on each that has a test
    split. Default: the model's own."""
    leave_subject_out: bool = False
    """Also learn on each task without the subject that is tested, subject by subject."""
    size_matched: bool = False
    """With --leave-subject-out: also learn without as many answers drawn at random, which tells the price of a new
    subject from that of fewer answers. It takes as many fits again."""
    homes: Annotated[tuple[str, ...], Flag("--home")] = ()
    """TEST=TASK: prices of TEST are against having learned on TASK; may be repeated. Default: the task's own choice, if
    that is one of --on."""
    plugins: tuple[Path, ...] = ()
    """A .py file with methods or tasks; it is executed."""
    preset: str | None = None
    """paper, refcode, fixed or demo. Default: the model's own."""
    overrides: Annotated[tuple[str, ...], Flag("--set")] = ()
    """METHOD.FIELD=VALUE or protocol.FIELD=VALUE."""
    seed: int = 0
    """Seed of fits, hold-out splits and sampling; several, separated by commas, are averaged."""
    limit: int | None = None
    """Test questions at most, spread over subjects, as of the run; such results are partial."""
    data_dir: Path | None = None
    """Folder of Parquet files with the Hub's columns, instead of the Hub [$CONFBENCH_DATA]."""
    read: Annotated[bool, Heading("Cost")] = False
    """Read what is not stored yet, after saying what it costs. Default: stop, and name the command that reads it."""
    with_adapters: bool = False
    """Also train and read adapters that are not stored (IT, CT), after saying what it costs."""
    device: Annotated[str | None, Heading("Machine")] = None
    """cuda, mps or cpu. Default: the first of these that there is."""
    dtype: str | None = None
    """float32, bfloat16 or float16. Default: the model's own on an accelerator, float32 on the CPU."""
    out: Annotated[Path, Heading("Output")] = Path("results/transfer")
    """Folder of the results, the tables and the figure."""
    cache: Path | None = None
    """Folder of what is kept between runs. Default: $CONFBENCH_CACHE, else the user's cache folder."""

    def run_config(self) -> RunConfig:
        """The run that reads the same questions."""
        return RunConfig(
            self.methods or ("all",), self.model, self.on, plugins=self.plugins, preset=self.preset,
            overrides=self.overrides, seed=self.seed, limit=self.limit, data_dir=self.data_dir, device=self.device,
            dtype=self.dtype, out=self.out, cache=self.cache,
        )  # fmt: skip

    def leave_out(self) -> tuple[str, ...]:
        """Parts of a corpus that are left out subject by subject, besides fits of the whole one.

        Raises:
            UserError: the size of nothing would be matched.
        """
        if self.size_matched and not self.leave_subject_out:
            raise UserError(
                "--size-matched: expected --leave-subject-out as well, for as many answers are left out at random as"
                " that leaves out; add it"
            )
        return (SUBJECT, AT_RANDOM)[: self.leave_subject_out + self.size_matched]

    def run_command(self, tasks: tuple[str, ...], train_on: str | None = None) -> list[str]:
        """Words of the `bench run` that stores what this matrix needs of some tests.

        Args:
            tasks: what is tested.
            train_on: what they learn on; None where it is the tasks' own choice.
        """
        repeated = {"--task": tasks, "--plugin": self.plugins, "--set": self.overrides}
        named = {
            "--train-on": train_on, "--limit": self.limit, "--preset": self.preset, "--data-dir": self.data_dir,
            "--device": self.device, "--dtype": self.dtype, "--seed": self.seed or None,
        }  # fmt: skip
        return _run_words(self.model, ",".join(self.methods or ("all",)), repeated, named)


@dataclass(frozen=True)
class LabelsConfig:
    """One study of label budgets. A docstring below is the help of its option."""

    model: Annotated[str, Heading("What is studied")]
    """Alias (bench list models), Hub id, or folder."""
    methods: Names = ()
    """Names and groups, separated by commas; groups are paper, untrained, trained and all. Default: all that are quick
    to fit."""
    tasks: Names = ()
    """Task that is tested; may be repeated. Default: the model's own."""
    task_files: tuple[Path, ...] = ()
    """Questions as JSON Lines, CSV or Parquet; may be repeated."""
    labels: Annotated[Names, Flag("--labels")] = ("20", "50", "100", "200", "400", "800", "all")
    """Numbers of labelled questions, separated by commas; all stands for as many as there are."""
    seeds: Names = ("0", "1", "2", "3", "4")
    """Seeds, separated by commas: each is another draw of the labels and another training. Intervals need five."""
    plugins: tuple[Path, ...] = ()
    """A .py file with methods or tasks; it is executed."""
    preset: str | None = None
    """paper, refcode, fixed or demo. Default: the model's own."""
    overrides: Annotated[tuple[str, ...], Flag("--set")] = ()
    """METHOD.FIELD=VALUE or protocol.FIELD=VALUE."""
    data_dir: Path | None = None
    """Folder of Parquet files with the Hub's columns, instead of the Hub [$CONFBENCH_DATA]."""
    read: Annotated[bool, Heading("Cost")] = False
    """Read what is not stored yet, after saying what it costs. Default: stop, and name the command that reads it."""
    device: Annotated[str | None, Heading("Machine")] = None
    """cuda, mps or cpu. Default: the first of these that there is."""
    dtype: str | None = None
    """float32, bfloat16 or float16. Default: the model's own on an accelerator, float32 on the CPU."""
    out: Annotated[Path, Heading("Output")] = Path("results/analyses")
    """Folder of the tables and the figure."""
    cache: Path | None = None
    """Folder of what is kept between runs. Default: $CONFBENCH_CACHE, else the user's cache folder."""

    def run_config(self) -> RunConfig:
        """The run that reads the same questions, with seed 0."""
        return RunConfig(
            self.methods or ("all",), self.model, self.tasks, task_files=self.task_files, plugins=self.plugins,
            preset=self.preset,
            overrides=self.overrides, data_dir=self.data_dir, device=self.device, dtype=self.dtype, out=self.out,
            cache=self.cache,
        )  # fmt: skip

    def run_command(self, tasks: tuple[str, ...]) -> list[str]:
        """Words of the `bench run` that stores what the study needs; `tasks` are tested."""
        repeated = {
            "--task": [task for task in tasks if not self.task_files or task in self.tasks],
            "--task-file": self.task_files, "--plugin": self.plugins, "--set": self.overrides,
        }  # fmt: skip
        named = {
            "--preset": self.preset, "--data-dir": self.data_dir, "--device": self.device, "--dtype": self.dtype
        }  # fmt: skip
        return _run_words(self.model, ",".join(self.methods or ("all",)), repeated, named)

    def numbers(self) -> tuple[int, ...]:
        """The seeds.

        Raises:
            UserError: they are no different whole numbers.
        """
        return seeds_of(self.seeds)

    def sizes(self) -> tuple[int | None, ...]:
        """Numbers of labels, ascending; None stands for all and is the last.

        Raises:
            UserError: one is neither a number of at least `LEAST_LABELS` nor `all`.
        """
        sizes: set[int] = set()
        for text in self.labels:
            count = int(text) if text.isascii() and text.isdigit() else 0
            if text != "all" and count < LEAST_LABELS:
                raise UserError(
                    f"--labels: expected whole numbers from {LEAST_LABELS} on, or all, got {text!r}; with fewer there"
                    " is hardly an answer of each kind to learn from"
                )
            sizes |= {count} - {0}
        if not self.labels:
            raise UserError("--labels: expected numbers of labels, got none; for example --labels 20,100,all")
        return (*sorted(sizes), *([None] if "all" in self.labels else []))
