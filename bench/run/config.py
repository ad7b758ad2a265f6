"""Options of `bench run` and of commands on heads: dataclasses of their names, types, defaults and help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from bench.api import UserError
from bench.api.options import RUNS, Heading, Names, OptionName, OrNumber


@dataclass(frozen=True)
class RunConfig:
    """Options of one run. The docstring of a field is the help of its option."""

    methods: Annotated[Names, Heading("What is compared")]
    """Methods and groups, separated by commas; groups are paper, untrained, trained and all."""
    model: str
    """Alias (bench list models), Hub id, folder, GGUF file, or URL of a server."""
    tasks: Names = ()
    """Task; may be repeated. Default: the tasks of the model."""
    task_files: tuple[Path, ...] = ()
    """Question files (JSON Lines, CSV or Parquet), each a task of its own; may be repeated."""
    plugins: tuple[Path, ...] = ()
    """A .py file with methods or tasks; it is executed."""
    preset: str | None = None
    """Set of constants: paper, refcode, fixed or demo. Default: the preset of the model."""
    overrides: Annotated[tuple[str, ...], OptionName("--set")] = ()
    """Constant to change: METHOD.FIELD=VALUE or protocol.FIELD=VALUE; with one method also FIELD=VALUE."""
    recalibrate: Names = ()
    """isotonic, platt, beta or temperature: adds a row with recalibrated confidences for every method."""
    tune: int | None = None
    """Number of configurations to fit for each method with a search space; the one with the smallest validation loss is
    kept. Default: only the preset's."""
    seed: int = 0
    """Seed of fits, recalibration folds, configurations of --tune, and sampling; several, separated by commas, are run
    one after the other."""
    limit: int | None = None
    """Largest number of test questions, spread over subjects; such results are partial."""
    train_limit: Annotated[str | None, OrNumber()] = None
    """Largest number of questions whose labels are learned from: N, which training and validation share, or N+M.
    Default: all."""
    max_time: str | None = None
    """Longest time that the fit of a method may take by the plan, such as 90m or 2h; a method that would take longer is
    skipped. Default: any."""
    train_on: Annotated[str | None, Heading("Questions, answers and grades")] = None
    """TASK[:SPLIT] or FILE that methods learn on. Default: the task's own choice, or the train rows of its file."""
    exemplar_sets: int | None = None
    """Number of exemplar sets per data set of a training corpus. Default: each question draws its own exemplars."""
    data_dir: Path | None = None
    """Folder of Parquet files with the Hub's columns, instead of the Hub [$CONFBENCH_DATA]."""
    answers: str = "generate"
    """Source of the answers: generate, released[@REVISION] (published by the paper's authors), FILE (.jsonl, .parquet),
    or URL of a server that has the model."""
    think_budget: int | None = None
    """Most tokens of a reasoning trace before each answer: by the model's template, or by an instruction. Default: the
    model answers at once."""
    judge: str = "match"
    """Who grades open answers: match, openai or hf."""
    judge_model: str | None = None
    """Model of the judge. Default for openai: gpt-4o-mini."""
    judge_url: str | None = None
    """Base URL of an OpenAI-compatible server. Default: that of OpenAI."""
    nli: str | None = None
    """Model that says whether samples entail each other: Hub id or folder. Default: samples with equal normalised texts
    do."""
    similarity: str | None = None
    """Cross-encoder that says how similar samples are: Hub id or folder. Default: only equal normalised texts are
    similar."""
    device: Annotated[str | None, Heading("Machine")] = None
    """cuda, mps (an Apple GPU, untried) or cpu. Default: cuda if there is one, else cpu."""
    devices: Annotated[Names, OptionName("--devices")] = ()
    """Numbers of the cards that share a model too large for one of them, separated by commas."""
    dtype: str | None = None
    """float32, bfloat16 or float16. Default: the dtype of the model; on a CPU float32, unless the model's is bfloat16
    and the CPU multiplies it natively."""
    tokenizer: str | None = None
    """Tokenizer of a GGUF file: Hub id or folder. Default: the file's own."""
    served: str | None = None
    """Name of the model on the server that --model or --answers names. Default: its only one."""
    parallel: int | None = None
    """Requests to the server at once, which then may reuse what it has read; quantised models give other last digits
    in each run. Default: one at a time, each read anew."""
    token_budget: int | None = None
    """Tokens of one forward pass. Default: 1,024; on cards 2,048, or 8,192 if they have at least 40 GB."""
    training_budget: int | None = None
    """Tokens of one forward pass in training an adapter. Default: 2,048; on cards with less than 40 GB, 1,024."""
    engine: str = "local"
    """What runs the model: local, or ray (a cluster; needs confbench[ray])."""
    workers: int | None = None
    """Number of processes that run the model, each on its own card. Default: only this process; with ray, one for each
    card, or for each machine if there are no cards."""
    address: str | None = None
    """Ray cluster: auto or HOST:PORT. Default: $RAY_ADDRESS, or one on this machine."""
    trust_remote_code: bool = False
    """Run code that comes with the model."""
    out: Annotated[Path, Heading("Output")] = RUNS
    """Folder of results."""
    overwrite: bool = False
    """Also replace results that git tracks. Default: refuse."""
    save_heads: Path | None = None
    """Folder in which the head of each method is kept, for bench score and load_head. Default: none is kept."""
    cache: Path | None = None
    """Folder for what later runs reuse. Default: $CONFBENCH_CACHE, else the user's cache folder."""
    dry_run: bool = False
    """Print the plan and stop."""
    method_timeout: float = 3600.0
    """Seconds that one call of a method of --plugin may take, e.g. its fit."""
    debug: bool = False
    """Also print the tracebacks of plugins that fail."""


class Attention(StrEnum):
    """Implementation of attention in transformers."""

    SDPA = "sdpa"
    EAGER = "eager"


@dataclass(frozen=True)
class HeadSetting:
    """The model with which a head is loaded, how the model is run, and the plugin files."""

    model: str | None = None
    """Alias, Hub id, folder, GGUF file, or URL of a server. Default: the model of the run that made the head."""
    device: str | None = None
    """cuda, mps (an Apple GPU, untried) or cpu. Default: cuda if there is one, else cpu."""
    dtype: str | None = None
    """float32, bfloat16 or float16. Default: that of the run that made the head."""
    attention: Attention | None = None
    """sdpa or eager. Default: sdpa if possible."""
    token_budget: int | None = None
    """Tokens of one forward pass. Default: the device's."""
    plain: bool = False
    """Read each question alone, without a shared cache."""
    trust_remote_code: bool = False
    """Run code that comes with the model."""
    plugins: tuple[Path, ...] = ()
    """The .py file of the head's method, if any; it is executed."""
    tokenizer: str | None = None
    """Tokenizer of a GGUF file: Hub id or folder. Default: the file's own."""
    served: str | None = None
    """Name of the model on a server. Default: its only one."""

    def __post_init__(self) -> None:
        """Refuse forward passes without a token."""
        if self.token_budget is not None and self.token_budget < 1:
            raise UserError(f"--token-budget: expected at least 1, got {self.token_budget}")
