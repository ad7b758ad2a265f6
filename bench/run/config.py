"""What a user asks for, as `bench run` fills it from its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunConfig:
    """One run; everything the command line can do can be said here."""

    methods: tuple[str, ...]
    """Names, or "all"."""
    model: str
    """Alias, Hub id or folder."""
    tasks: tuple[str, ...] = ()
    """Names; empty: the model's default tasks."""
    train_on: str | None = None
    """`TASK` or `TASK:SPLIT` that methods learn on; None: the task's own choice."""
    preset: str | None = None
    """None: the model's default preset."""
    seed: int = 0
    """Of fits, hold-out splits and sampling."""
    limit: int | None = None
    """Test questions at most, spread over subjects."""
    overrides: tuple[str, ...] = ()
    """`METHOD.FIELD=VALUE`, `protocol.FIELD=VALUE`, or `FIELD=VALUE` with one method."""
    exemplar_sets: int | None = None
    """Fixed sets of exemplars per data set of a training corpus; None: each prompt draws its own."""
    judge: str = "match"
    """Who grades open answers: match, openai or hf."""
    judge_model: str | None = None
    """Model that the judge asks."""
    judge_url: str | None = None
    """Base URL of an OpenAI-compatible server; None: the one of OpenAI."""
    recalibrate: tuple[str, ...] = ()
    """Recalibrators whose versions of every method get rows of their own: isotonic, platt, beta, temperature."""
    answers: str = "generate"
    """Where answers come from: `generate`, or `released@REVISION` of the paper's authors."""
    task_files: tuple[Path, ...] = ()
    """Files of questions, each a task of its own."""
    data_dir: Path | None = None
    """Folder of Parquet files instead of the Hub."""
    plugins: tuple[Path, ...] = ()
    """Files with methods or tasks; their code is run."""
    device: str | None = None
    """None: cuda, else mps, else cpu."""
    dtype: str | None = None
    """None: the model's own on an accelerator, float32 on the CPU."""
    token_budget: int = 1024
    """Tokens of one forward pass."""
    out: Path = Path("results")
    """Where results are written."""
    cache: Path | None = None
    """None: $CONFBENCH_CACHE, else the user's cache folder."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""
    dry_run: bool = False
    """Stop after the plan."""
