"""Request of `bench analyze transfer`. Its fields but `cache` are the options: name, type, default and help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from bench.api.options import Flag, Heading, Names
from bench.run.config import RunConfig


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
    plugins: tuple[Path, ...] = ()
    """A .py file with methods or tasks; it is executed."""
    preset: str | None = None
    """paper, refcode, fixed or demo. Default: the model's own."""
    overrides: Annotated[tuple[str, ...], Flag("--set")] = ()
    """METHOD.FIELD=VALUE or protocol.FIELD=VALUE."""
    seed: int = 0
    """Seed of fits, hold-out splits and sampling; several, separated by commas, are averaged."""
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
            overrides=self.overrides, seed=self.seed, data_dir=self.data_dir, device=self.device, dtype=self.dtype,
            out=self.out, cache=self.cache,
        )  # fmt: skip

    def run_command(self, tasks: tuple[str, ...]) -> list[str]:
        """Words of the `bench run` that stores what this matrix needs; `tasks` are tested."""
        words = ["run", "--model", self.model, "--method", ",".join(self.methods or ("all",))]
        words += [word for task in tasks for word in ("--task", task)]
        words += [word for path in self.plugins for word in ("--plugin", str(path))]
        words += [word for text in self.overrides for word in ("--set", text)]
        named = {"--preset": self.preset, "--data-dir": self.data_dir, "--device": self.device, "--dtype": self.dtype}
        words += [word for name, value in named.items() if value is not None for word in (name, str(value))]
        return [*words, "--seed", str(self.seed)] if self.seed else words
