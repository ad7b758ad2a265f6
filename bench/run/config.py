"""Options of `bench run`: the fields of `RunConfig`, with their names, types, defaults and help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from bench.api.options import Heading, Names, OptionName


@dataclass(frozen=True)
class RunConfig:
    """Options of one run. The docstring of a field is the help of its option."""

    methods: Annotated[Names, Heading("What is compared")]
    """Names and groups, separated by commas; groups are paper, untrained, trained and all."""
    model: str
    """Alias (bench list models), Hub id, or folder."""
    tasks: Names = ()
    """Task; may be repeated. Default: the model's own."""
    task_files: tuple[Path, ...] = ()
    """Questions as JSON Lines, CSV or Parquet: a task of their own; may be repeated."""
    plugins: tuple[Path, ...] = ()
    """A .py file with methods or tasks; it is executed."""
    preset: str | None = None
    """paper, refcode, fixed or demo. Default: the model's own."""
    overrides: Annotated[tuple[str, ...], OptionName("--set")] = ()
    """METHOD.FIELD=VALUE or protocol.FIELD=VALUE; with one method also FIELD=VALUE."""
    recalibrate: Names = ()
    """isotonic, platt, beta or temperature: further rows for every method."""
    tune: int | None = None
    """Configurations that each method with a search space is fitted with; the one that validation likes best is kept.
    Default: the preset's own alone."""
    seed: int = 0
    """Seed of fits, hold-out splits and sampling; several, separated by commas, are run one after the other."""
    limit: int | None = None
    """Test questions at most, spread over subjects; such results are partial."""
    scale_training: bool = False
    """With --limit: training and validation keep the same share of their questions as the tests do."""
    train_on: Annotated[str | None, Heading("Questions, answers and grades")] = None
    """TASK[:SPLIT] or FILE that methods learn on. Default: the task's own choice, or the train rows of its file."""
    exemplar_sets: int | None = None
    """Exemplar sets per data set of a training corpus, instead of one per question."""
    data_dir: Path | None = None
    """Folder of Parquet files with the Hub's columns, instead of the Hub [$CONFBENCH_DATA]."""
    answers: str = "generate"
    """generate, released[@REVISION] by the paper's authors, or FILE (.jsonl, .parquet) of answers made elsewhere."""
    judge: str = "match"
    """Who grades open answers: match, openai or hf."""
    judge_model: str | None = None
    """Model of the judge. Default for openai: gpt-4o-mini."""
    judge_url: str | None = None
    """Base URL of an OpenAI-compatible server. Default: that of OpenAI."""
    nli: str | None = None
    """Model that says whether samples entail each other: Hub id or folder. Default: equal normalised texts do."""
    similarity: str | None = None
    """Cross-encoder that says how similar samples are: Hub id or folder. Default: equal normalised texts are."""
    device: Annotated[str | None, Heading("Machine")] = None
    """cuda, mps or cpu. Default: the first of these that there is."""
    devices: Annotated[Names, OptionName("--devices")] = ()
    """Numbers of the cards that share a model too large for one of them, separated by commas."""
    dtype: str | None = None
    """float32, bfloat16 or float16. Default: the model's own on an accelerator, float32 on the CPU."""
    token_budget: int | None = None
    """Tokens of one forward pass. Default: 1,024; on cards 2,048, from 40 GB on 8,192."""
    training_budget: int | None = None
    """Tokens of one forward pass of training an adapter. Default: 2,048; on cards below 40 GB 1,024."""
    engine: str = "local"
    """Who reads the model: local, or ray (a cluster; needs confbench[ray])."""
    workers: int | None = None
    """Processes that read it, each on its card. Default: this one; with ray one for each card, or machine without."""
    address: str | None = None
    """Ray cluster: auto, HOST:PORT or ray://HOST:PORT. Default: $RAY_ADDRESS, or one on this machine."""
    trust_remote_code: bool = False
    """Run code that comes with the model."""
    out: Annotated[Path, Heading("Output")] = Path("results")
    """Folder of results."""
    save_heads: Path | None = None
    """Folder in which the head of each method is kept, for bench score and load_head. Default: none is kept."""
    cache: Path | None = None
    """Folder of what is kept between runs. Default: $CONFBENCH_CACHE, else the user's cache folder."""
    dry_run: bool = False
    """Print the plan and stop."""
    method_timeout: float = 3600.0
    """Seconds that one call of a method of --plugin may take, e.g. its fit."""
    debug: bool = False
    """Also print the tracebacks of plugins that fail."""
