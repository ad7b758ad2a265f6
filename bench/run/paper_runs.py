"""Reproduce a paper's grid of runs: which cells have results, and what the remaining runs cost.

A grid (the methods, models, tasks and seeds of a paper) is a file `grid.toml` in the folder of the paper's method, such
as `methods/ccps/grid.toml`.
"""

from __future__ import annotations

import inspect
import shlex
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bench import registry
from bench.api import ConfidenceMethod, Format, SampleAgreement, Task, UserError
from bench.grading import prompt
from bench.grading.judges import JudgeOptions, public_options
from bench.grading.openai import MODEL
from bench.model.specs import aliases, public_name
from bench.results.cells import read_all
from bench.store.decoding import RecordError, decode_record

NAME = "grid.toml"
"""Name of the file that describes a paper's grid of runs, in the folder of a method."""
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Computed:
    """Cost of a run of one model with one seed and an empty store, computed in advance."""

    hours: float
    """Hours on the accelerator that the grid names."""
    tokens: int
    """Token positions fed to the model."""


@dataclass(frozen=True)
class PaperGrid:
    """A paper's grid of runs: methods, models, tasks and seeds, and the cost of a run."""

    reference: str
    """The paper, as `arXiv:...` or `doi:...`."""
    preset: str
    methods: tuple[str, ...]
    """Names of methods, and names that stand for several methods (such as `trained`)."""
    models: tuple[str, ...]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    judge: str
    """Kind of judge that grades open answers: match, openai or hf."""
    judge_model: str
    characters: int
    """Mean number of characters of an open question with two answers, for estimating what a judge reads."""
    accelerator: str
    """Accelerator on which `computed` gives the hours of a run."""
    computed: Mapping[str, Computed]
    """Model -> cost of a run; models whose cost is unknown are missing."""


def read_grid(name: str, methods: registry.Registry[ConfidenceMethod]) -> PaperGrid:
    """Read the grid of runs from the file beside a method.

    Args:
        name: name of the method.
        methods: all methods that are known.

    Raises:
        UserError: there is no such method, it has no grid, or the grid is invalid.
    """
    path = Path(inspect.getfile(methods.get(name))).with_name(NAME)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        files = {other: Path(inspect.getfile(methods.get(other))).with_name(NAME) for other in methods.names()}
        with_grid = ", ".join(other for other, file in files.items() if file.is_file()) or "none"
        raise UserError(f"No grid is known of the paper of {name}. Methods with one: {with_grid}.") from error
    except (OSError, UnicodeError) as error:
        raise UserError(f"The grid of {name} can't be read: {path.name}: {error}.") from error
    try:
        return decode_record(tomllib.loads(text), PaperGrid)
    except (tomllib.TOMLDecodeError, RecordError) as error:
        raise UserError(f"The grid of {name}, {path}, is not as it must be: {error}.") from error


@dataclass(frozen=True, kw_only=True)
class PaperRuns:
    """The runs of a paper's grid, and how many cells of each have results."""

    grid: PaperGrid
    methods: Mapping[str, ConfidenceMethod]
    """Name -> method, for the methods of the grid."""
    tasks: Mapping[str, Task]
    """Name -> task, for the tasks of the grid and the training tasks."""
    models: tuple[str, ...]
    """Models of the grid for which the user asked."""
    judge: str
    """Kind of judge that grades open answers: match, openai or hf."""
    judge_model: str
    """Model of the judge, unless that is match."""
    out: Path
    """Folder of results."""
    train_limit: str | None = None
    """Value of `--train-limit`, which the user may pass on to the runs."""

    @cached_property
    def runs(self) -> list[Run]:
        """The runs of the grid, one for each model and seed, in the grid's order."""
        requested = {(method, task) for method in self.methods for task in self.grid.tasks}
        informed = {name for name, method in self.methods.items() if method.trains() or method.output == "score"}
        # `config` has the judge's model as asked for, `row.judge` as its server names it (gpt-4o-mini-2024-07-18)
        asked = public_options(JudgeOptions(self.judge, self.judge_model))["judge_model"]
        judge = [self.judge, MODEL if self.judge == "match" else asked]
        usual = (("judge", "match"), ("judge_model", MODEL))
        completed = {
            (row.model, row.seed, row.method, row.task)
            for row in (read_all(self.out) if self.out.is_dir() else [])
            if (row.preset, row.status) == (self.grid.preset, "ok")
            and (row.method, row.task) in requested
            and not row.deviations
            and row.config.get("train_limit") == (self.train_limit if row.method in informed else None)
            and not {"train_on", "think_budget", "answers"} & row.config.keys()
            and row.tuning is None
            and (
                row.dtype == getattr(aliases().get(row.model), "dtype", row.dtype)  # not known of other models
                or (row.dtype, row.provenance.get("hardware", {}).get("device")) == ("float32", "cpu")  # its default
            )
            and (self.tasks[row.task].format is not Format.OPEN or [row.config.get(*pair) for pair in usual] == judge)
        }
        n_completed = Counter((model, seed) for model, seed, _, _ in completed)
        return [Run(self, model, seed, n_completed[model, seed]) for model in self.models for seed in self.grid.seeds]

    @cached_property
    def n_judge_calls(self) -> tuple[int, int]:
        """Numbers of judge calls in one run: to grade answers, and (at most) to compare samples with answers."""
        if self.judge == "match":
            return 0, 0
        open_tasks = [name for name in self.grid.tasks if self.tasks[name].format is Format.OPEN]
        train_tasks = {self.tasks[name].train_on for name in open_tasks} - {""}
        tested = sum(self.tasks[name].card.sizes["test"] for name in open_tasks)
        corpora = sum(self.tasks[n].card.sizes.get(split, 0) for n in train_tasks for split in ("train", "validation"))
        agreements = {s for m in self.methods.values() for s in m.reads().predict if isinstance(s, SampleAgreement)}
        return tested + corpora, tested * sum(signal.n for signal in agreements)

    @cached_property
    def judge_tokens(self) -> int:
        """Estimate of the tokens that the judge reads in one run, at most."""
        calls = zip(self.n_judge_calls, (prompt.GRADING, prompt.COMPARING), strict=True)
        characters = sum(n * (len(prompt.SYSTEM) + len(words.user) + self.grid.characters) for n, words in calls)
        return characters // _CHARACTERS_PER_TOKEN


@dataclass(frozen=True)
class Run:
    """One `bench run` of a paper's grid: all methods and tasks on one model with one seed."""

    of: PaperRuns
    model: str
    seed: int
    there: int
    """Number of cells of this run that have results."""

    @property
    def cells(self) -> int:
        """Number of cells of this run: methods times tasks."""
        return len(self.of.methods) * len(self.of.grid.tasks)

    @property
    def done(self) -> bool:
        """Whether all cells of this run have results."""
        return self.there == self.cells

    def arguments(self, more: Sequence[str] = ()) -> list[str]:
        """Return the arguments of the `bench` command that makes this run.

        Args:
            more: further options, which override those of the grid.
        """
        grid = self.of.grid
        tasks = [word for task in grid.tasks for word in ("--task", task)]
        same = self.of.judge == grid.judge
        judge = ["--judge", grid.judge, "--judge-model", self.of.judge_model] if same else []
        start = ["run", "--method", ",".join(grid.methods), "--model", self.model, *tasks]
        return [*start, "--preset", grid.preset, "--seed", str(self.seed), *judge, *more]

    def command(self, more: Sequence[str] = ()) -> str:
        """Return the `bench` command line that makes this run, with URLs as results show them.

        Args:
            more: further options, which override those of the grid.
        """
        words = (part for word in self.arguments(more) for part in (word.split("=", 1) if "=http" in word else [word]))
        return shlex.join(["bench", *map(public_name, words)])

    def record(self) -> dict[str, object]:
        """Return the number of cells and the cost of the run as JSON values.

        The cost is that of the whole run; it is an upper bound if some cells have results, and 0 if all have.
        """
        computed = self.of.grid.computed.get(self.model)
        graded, compared = self.of.n_judge_calls
        cost: dict[str, object] = {
            "tokens": None if computed is None else computed.tokens,
            "hours": None if computed is None else computed.hours,
            "graded": graded,
            "compared_at_most": compared,
            "judge_tokens_at_most": self.of.judge_tokens,
        }
        left = {key: None if value is None else type(value)() for key, value in cost.items()} if self.done else cost
        return {"model": self.model, "seed": self.seed, "cells": self.cells, "there": self.there, **left}
