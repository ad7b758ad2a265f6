"""Requests of the `bench analyze` commands: dataclasses in which each field but `cache` is an option with its help."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from bench.api import UserError
from bench.api.options import RUNS, Heading, Names, OptionName, OrNumber, words_of
from bench.data.splits import MIN_LABELS
from bench.model.specs import public_name
from bench.results.transfer import AT_RANDOM, SUBJECT
from bench.run.config import RunConfig


def parse_seeds(texts: Sequence[str]) -> tuple[int, ...]:
    """Parse seeds from texts; return the distinct numbers in the given order.

    Raises:
        UserError: a text is not a whole number of at least 0, or there are no texts.
    """
    seeds = tuple(dict.fromkeys(int(text) if text.isascii() and text.isdigit() else -1 for text in texts))
    if not seeds or any(seed < 0 for seed in seeds):
        raise UserError(f"--seed: expected whole numbers from 0, got {', '.join(texts) or 'none'}")
    return seeds


def _to_run_config(request: AnalysisRequest | TransferConfig | LabelsConfig, **changes: Any) -> RunConfig:
    """Return a run configuration that copies the options of a request by name; `changes` replace or add options."""
    shared = {field.name: getattr(request, field.name) for field in fields(RunConfig) if hasattr(request, field.name)}
    return RunConfig(**{**shared, **changes})


def format_command(config: RunConfig) -> str:
    """Format the `bench run` command of a configuration; its folders of results and of the store are omitted."""
    return shlex.join(["bench", "run", *map(public_name, words_of(config, without=("out", "cache")))])


@dataclass(frozen=True)
class AnalysisRequest:
    """Request of `bench analyze METHOD ANALYSIS`; its fields are the options."""

    model: Annotated[str, Heading("What is analysed")] = ""
    """Model of the run: alias (bench list models), Hub id, folder or GGUF file."""
    tasks: Names = ()
    """Task; may be repeated. Default: the tasks of the model."""
    task_files: tuple[Path, ...] = ()
    """Question files (JSON Lines, CSV or Parquet), the same as in the run; may be repeated."""
    preset: str | None = None
    """Set of constants: paper, refcode, fixed or demo. Default: the preset of the model."""
    overrides: Annotated[tuple[str, ...], OptionName("--set")] = ()
    """Constant to change: FIELD=VALUE of the method, or protocol.FIELD=VALUE."""
    seeds: Names = ("0", "1", "2", "3", "4")
    """Seeds, separated by commas; at least five, since intervals include the spread over seeds."""
    train_on: str | None = None
    """TASK[:SPLIT] that the method learns on. Default: the task's own choice."""
    answers: str = RunConfig.answers
    """Source of the run's answers: generate, released[@REVISION], FILE, or URL of a server."""
    judge: str = RunConfig.judge
    """Who graded open answers: match, openai or hf."""
    judge_model: str | None = None
    """Model of the judge."""
    judge_url: str | None = None
    """Base URL of the judge's server."""
    data_dir: Path | None = None
    """Folder of Parquet files with the Hub's columns, instead of the Hub [$CONFBENCH_DATA]."""
    tokenizer: Annotated[str | None, Heading("Machine")] = None
    """Tokenizer of a GGUF file: Hub id or folder. Default: the file's own."""
    device: str | None = None
    """cuda, mps (an Apple GPU, untried) or cpu. Default: cuda if there is one, else cpu."""
    dtype: str | None = None
    """float32, bfloat16 or float16; the same as in the run."""
    token_budget: int | None = None
    """Tokens of one forward pass; the same as in the run."""

    def config(self, method: str, cache: Path | None) -> RunConfig:
        """Return the configuration of a run that stores the answers and signals which the analysis needs."""
        return _to_run_config(self, methods=(method,), out=Path(), cache=cache)

    def seed_values(self) -> tuple[int, ...]:
        """Return the seeds as numbers.

        Raises:
            UserError: a seed is not a whole number of at least 0, or there are too few seeds for an interval.
        """
        from bench.stats.variants import MIN_SEEDS

        seeds = parse_seeds(self.seeds)
        if len(seeds) < MIN_SEEDS:
            number = f"{len(seeds)} of them" if len(seeds) > 1 else "one"
            raise UserError(
                f"--seed: expected at least {MIN_SEEDS} different seeds, got {number}; an interval contains the spread"
                " between seeds, which fewer don't show"
            )
        return seeds


@dataclass(frozen=True)
class TransferConfig:
    """Request of `bench analyze transfer`; the docstring of a field is the help of its option."""

    model: Annotated[str, Heading("What is compared")]
    """Alias (bench list models), Hub id, folder or GGUF file."""
    methods: Names = ()
    """Methods and groups, separated by commas; groups are paper, untrained, trained and all. Default: all."""
    on: Annotated[Names, OptionName("--on")] = ()
    """Tasks, separated by commas: methods learn on each that has a train split, and are tested on each that has a test
    split. Default: the tasks of the model."""
    leave_subject_out: bool = False
    """Also learn, for each tested subject, on the training data without this subject."""
    size_matched: bool = False
    """With --leave-subject-out: as a control, also learn without equally many random answers. This doubles the number
    of additional fits."""
    homes: Annotated[tuple[str, ...], OptionName("--home")] = ()
    """TEST=TASK: the scores of TEST are compared with those after learning on TASK; may be repeated. Default: the
    task's own choice, if it is one of --on."""
    plugins: tuple[Path, ...] = ()
    """A .py file with methods or tasks; it is executed."""
    preset: str | None = None
    """Set of constants: paper, refcode, fixed or demo. Default: the preset of the model."""
    overrides: Annotated[tuple[str, ...], OptionName("--set")] = ()
    """Constant to change: METHOD.FIELD=VALUE or protocol.FIELD=VALUE."""
    seed: int = 0
    """Seed of fits, sampling and the random answers of --size-matched; several, separated by commas, are averaged."""
    limit: int | None = None
    """Largest number of test questions, spread over subjects; such results are partial."""
    train_limit: Annotated[str | None, OrNumber()] = None
    """Largest number of questions of each corpus whose labels are learned from: N, which training and validation share,
    or N+M. Default: all."""
    data_dir: Path | None = None
    """Folder of Parquet files with the Hub's columns, instead of the Hub [$CONFBENCH_DATA]."""
    read: Annotated[bool, Heading("Cost")] = False
    """Compute signals that are not stored yet, after showing the cost. Default: stop, and show the command that does
    so."""
    with_adapters: bool = False
    """Also train adapters that are not stored (methods IT and CT), and read with them, after showing the cost."""
    tokenizer: Annotated[str | None, Heading("Machine")] = None
    """Tokenizer of a GGUF file: Hub id or folder. Default: the file's own."""
    device: str | None = None
    """cuda, mps (an Apple GPU, untried) or cpu. Default: cuda if there is one, else cpu."""
    dtype: str | None = None
    """float32, bfloat16 or float16. Default: the dtype of the model; on a CPU float32, unless the model's is bfloat16
    and the CPU multiplies it natively."""
    out: Annotated[Path, Heading("Output")] = RUNS / "transfer"
    """Folder of the results, the tables and the figure."""
    cache: Path | None = None
    """Folder for what later runs reuse. Default: $CONFBENCH_CACHE, else the user's cache folder."""

    def run_config(self) -> RunConfig:
        """Return the configuration of a run that reads the same questions as the transfer analysis."""
        return _to_run_config(self, methods=self.methods or ("all",), tasks=self.on)

    def leave_out(self) -> tuple[str, ...]:
        """Return the kinds of leave-out fits that the user requested: SUBJECT, AT_RANDOM, both, or none.

        A leave-out fit learns on a corpus without one subject (SUBJECT), or without equally many random answers
        (AT_RANDOM).

        Raises:
            UserError: --size-matched without --leave-subject-out.
        """
        if self.size_matched and not self.leave_subject_out:
            raise UserError(
                "--size-matched: expected --leave-subject-out as well, for as many answers are left out at random as"
                " that leaves out; add it"
            )
        return (SUBJECT, AT_RANDOM)[: self.leave_subject_out + self.size_matched]


@dataclass(frozen=True)
class LabelsConfig:
    """Request of `bench analyze labels`; the docstring of a field is the help of its option."""

    model: Annotated[str, Heading("What is studied")]
    """Alias (bench list models), Hub id, folder or GGUF file."""
    methods: Names = ()
    """Methods and groups, separated by commas; groups are paper, untrained, trained and all. Default: all. Methods that
    train adapters take no part."""
    tasks: Names = ()
    """Task that is tested; may be repeated. Default: the tasks of the model."""
    task_files: tuple[Path, ...] = ()
    """Questions as JSON Lines, CSV or Parquet; may be repeated."""
    labels: Annotated[Names, OptionName("--labels")] = ("20", "50", "100", "200", "400", "800", "all")
    """Numbers of labelled questions, separated by commas; all stands for as many as there are."""
    seeds: Names = ("0", "1", "2", "3", "4")
    """Seeds, separated by commas; each seed draws other labels and trains anew. Intervals need five seeds."""
    plugins: tuple[Path, ...] = ()
    """A .py file with methods or tasks; it is executed."""
    preset: str | None = None
    """Set of constants: paper, refcode, fixed or demo. Default: the preset of the model."""
    overrides: Annotated[tuple[str, ...], OptionName("--set")] = ()
    """Constant to change: METHOD.FIELD=VALUE or protocol.FIELD=VALUE."""
    data_dir: Path | None = None
    """Folder of Parquet files with the Hub's columns, instead of the Hub [$CONFBENCH_DATA]."""
    read: Annotated[bool, Heading("Cost")] = False
    """Compute signals that are not stored yet, after showing the cost. Default: stop, and show the command that does
    so."""
    tokenizer: Annotated[str | None, Heading("Machine")] = None
    """Tokenizer of a GGUF file: Hub id or folder. Default: the file's own."""
    device: str | None = None
    """cuda, mps (an Apple GPU, untried) or cpu. Default: cuda if there is one, else cpu."""
    dtype: str | None = None
    """float32, bfloat16 or float16. Default: the dtype of the model; on a CPU float32, unless the model's is bfloat16
    and the CPU multiplies it natively."""
    out: Annotated[Path, Heading("Output")] = RUNS / "analyses"
    """Folder of the tables and the figure."""
    cache: Path | None = None
    """Folder for what later runs reuse. Default: $CONFBENCH_CACHE, else the user's cache folder."""

    def run_config(self) -> RunConfig:
        """Return the configuration of a run, with seed 0, that reads the same questions as the label-budget study."""
        return _to_run_config(self, methods=self.methods or ("all",))

    def seed_values(self) -> tuple[int, ...]:
        """Return the seeds as numbers.

        Raises:
            UserError: a seed is not a whole number of at least 0, or there are no seeds.
        """
        return parse_seeds(self.seeds)

    def sizes(self) -> tuple[int | None, ...]:
        """Return the label budgets in ascending order; None stands for all labels and comes last.

        Raises:
            UserError: a budget is neither `all` nor a number of at least `MIN_LABELS`, or there are no budgets.
        """
        sizes: set[int] = set()
        for text in self.labels:
            count = int(text) if text.isascii() and text.isdigit() else 0
            if text != "all" and count < MIN_LABELS:
                raise UserError(
                    f"--labels: expected whole numbers from {MIN_LABELS} on, or all, got {text!r}; with fewer there"
                    " is hardly an answer of each kind to learn from"
                )
            sizes |= {count} - {0}
        if not self.labels:
            raise UserError("--labels: expected numbers of labels, got none; for example --labels 20,100,all")
        return (*sorted(sizes), *([None] if "all" in self.labels else []))
