"""Requests of `bench table`, `report`, `guard`, `audit` and `analyze multiverse`; each field is a command-line option.

Example: `View(Path("results"), methods=("ccps", "lts"), headline="auroc")`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from bench.api import UserError
from bench.api.options import RUNS, Heading, Names, OptionName, Separated


class Against(StrEnum):
    """Published numbers that tables can show beside the measured ones."""

    PAPER = "paper"


class AverageOver(StrEnum):
    """How a metric is computed: over all questions at once, or for each subject and then averaged over subjects."""

    QUESTIONS = "questions"
    SUBJECTS = "subjects"


@dataclass(frozen=True)
class Selection:
    """Results that a table or report shows; each field is a command-line option, with its help below."""

    results: Annotated[Path, Heading("What is shown")] = RUNS
    """Folder of results."""
    methods: Names = ()
    """Names and groups, separated by commas; groups are paper, untrained, trained and all. Default: all."""
    metrics: Names = ()
    """Metrics to show, in this order, e.g. ece,auroc; or all. Default: those of the paper, and rmsce."""
    average: AverageOver | None = None
    """Metrics over all questions, or means over subjects. Default: questions; with --against paper: subjects."""
    headline: Annotated[str | None, OptionName("--sort")] = None
    """Metric that rows are ordered and ranked by. Default: brier."""
    models: Names = ()
    """Show these models only, separated by commas."""
    tasks: Names = ()
    """Show these tasks only, separated by commas."""
    train_on: Annotated[str | None, OptionName("--train-on")] = None
    """Show only methods that learned on the corpus that a run's --train-on named, or own: on the task's own choice."""
    preset: str | None = None
    """Show this preset only."""
    partial: bool = False
    """Also show runs with --limit."""
    deviations: bool = False
    """Also show runs with --set or --exemplar-sets, on answers that were given as text, or without exemplars."""


@dataclass(frozen=True)
class View(Selection):
    """Request of `bench table`: results to show, and how; each field is a command-line option, with its help below."""

    stats: Annotated[bool, Heading("How")] = False
    """Also show intervals, spreads, training, and metrics that the paper does not have."""
    legend: bool = False
    """Explain all signs and columns, which a terminal does in two lines otherwise."""
    against: Against | None = None
    """Show published numbers beside the measured ones."""
    compare: Annotated[tuple[str, ...] | None, Separated()] = None
    """Compare these methods, separated by commas: paired differences, tests and a verdict."""


@dataclass(frozen=True)
class ReportRequest(Selection):
    """Request of `bench report`: results to show, and files to write; each field is a command-line option."""

    out: Annotated[Path, Heading("Where")] = Path("report.html")
    """File of the HTML page."""
    figures: Path | None = None
    """Also draw the figures into this folder."""


@dataclass(frozen=True)
class GuardRequest(Selection):
    """Request of `bench guard`: results for which thresholds are chosen, and what a threshold must guarantee.

    Each field is a command-line option, with its help below.
    """

    risk: Annotated[float, Heading("What is guaranteed")] = 0.05
    """Largest share of mistakes among trusted answers, between 0 and 1."""
    level: float = 0.9
    """Probability with which the risk must be kept, between 0 and 1."""
    share: Annotated[float, Heading("Questions that decide")] = 0.5
    """Share of the test questions that choose the thresholds; thresholds are evaluated on the others."""
    split_seed: int = 0
    """Seed of the random division of the test questions, which is the same for all methods."""
    calibrate_on: str | None = None
    """Choose thresholds on all questions of this task instead, from results of the same model, method and fit."""
    out: Annotated[Path | None, Heading("Where")] = None
    """Folder to write figures (SVG), guard.csv and guard.json to."""

    def __post_init__(self) -> None:
        """Refuse shares and chances that are out of range."""
        for option, value, meaning in (
            ("--risk", self.risk, "a share of mistakes, e.g. 0.05"),
            ("--level", self.level, "a chance, e.g. 0.9"),
            ("--share", self.share, "a share of the questions, e.g. 0.5"),
        ):
            if not 0 < value < 1:  # also where it is NaN
                raise UserError(f"{option}: expected {meaning}, between 0 and 1 and neither of both, got {value:g}")


@dataclass(frozen=True)
class AuditRequest:
    """Request of `bench audit`; each field is a command-line option, with its help below."""

    correct: Annotated[str, Heading("Columns")] = "correct"
    """Whether the answer is right: true or false, 1 or 0, C or I."""
    confidences: Names = ()
    """Confidences, separated by commas. Default: columns with `confidence` in their names, else all others
    (of logs of Inspect none)."""
    uncertainties: Annotated[Names, OptionName("--uncertainty")] = ()
    """Columns where more is less sure, in any unit, e.g. an entropy; their order alone is taken from them."""
    id: str | None = None
    """Name of the question. Default: id, if there is such a column; without one each row is a question."""
    subject: str | None = None
    """Subject of the question; intervals speak of other questions of the same subjects. Default: subject, if there is
    such a column."""
    group: str | None = None
    """Model that answered: a table for each, and paired tests between them. Default: group, if there is such a column;
    in logs of Inspect the model. `file` is the name of the file."""
    split: str | None = None
    """Split of the row, for --learn-on. Default: split, if there is such a column."""
    scale: Annotated[Names, Heading("Values")] = ()
    """100 for confidences from 0 to 100, or 10; or of one column, NAME=100."""
    words: Annotated[Names, OptionName("--words")] = ()
    """Numbers for words, e.g. high=0.9,medium=0.6,low=0.3."""
    recalibrate: Annotated[Names, Heading("What is computed")] = ()
    """Also judge confidences that were recalibrated by isotonic, platt, beta or temperature, separated by commas."""
    learn_on: Names = ()
    """Splits on which recalibration learns; all is judged on the others. Default: each fifth of the rows is
    recalibrated by the other four."""
    by: Names = ()
    """Columns within whose values confidences are too high or too low, worst first."""
    risk: float | None = None
    """Also say from which confidence on at most this share of answers is wrong, with a chance of 90 %."""
    metrics: Names = ()
    """Metrics to show, in this order, e.g. ece,auroc; or all. Default: as in bench table."""
    headline: Annotated[str | None, OptionName("--sort")] = None
    """Metric that confidences are ordered and ranked by. Default: brier."""
    stats: bool = False
    """Also show intervals, and metrics that the paper does not have."""
    legend: bool = False
    """Explain all signs and columns, which a terminal does in two lines otherwise."""
    fail_above: Names = ()
    """NAME=0.1: exit with 1 if the calibration error of a confidence is above that beyond chance, or not testable."""
    out: Annotated[Path | None, Heading("Where")] = None
    """Folder to write the page (audit.html), tables (md, csv, json) and reliability diagrams (svg) to."""


@dataclass(frozen=True)
class MultiverseRequest:
    """Request of `bench analyze multiverse`; each field is a command-line option, with its help below."""

    model: Annotated[str, Heading("What is analysed")]
    """Model of the results, by its name in tables."""
    task: str
    """Task of the results."""
    results: Path = RUNS
    """Folder of results."""
    preset: str | None = None
    """Preset of the table. Default: the only one there is."""
    methods: Names = ()
    """Print claims about these methods only; ranks and tests still cover all methods. Default: all."""
    out: Annotated[Path, Heading("Output")] = RUNS / "analyses"
    """Folder of the tables and figures."""
