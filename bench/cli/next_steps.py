"""Commands to go on with after a run; they work as they are printed, in the folder where the run was started."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.run.config import RunConfig


def next_steps(config: RunConfig, heads: Sequence[Path] = ()) -> list[str]:
    """Lines with the commands that show what a run has written, and that use the first of its heads."""
    where = [] if config.out == Path("results") else ["--results", str(config.out)]
    rows = [name for name, chosen in (("--partial", config.limit), ("--deviations", config.overrides)) if chosen]
    commands = {
        "with intervals, calibration and training": ["table", *where, *rows, "--stats"],
        "as a page": ["report", *where, *rows, "--serve"],
    }
    if heads:
        commands["your own questions"] = ["score", "--head", str(heads[0]), "--model", config.model, "questions.jsonl"]
    named = {what: f"{program()} {shlex.join(words)}" for what, words in commands.items()}
    width = max(map(len, named.values()))
    return [
        f"{'next:' if not row else '':5} {command:{width}}  {what}" for row, (what, command) in enumerate(named.items())
    ]


def program() -> str:
    """The words that start this program again from this folder, e.g. `bench` or `.venv/bin/bench`."""
    called = Path(sys.argv[0])
    if called.parts[-3:] == ("bench", "cli", "__main__.py"):
        return f"{_called(Path(sys.executable))} -m bench.cli"
    return _called(called) if called.is_file() else "bench"


def _called(program: Path) -> str:
    """Its name where that alone finds it, else its path."""
    found = shutil.which(program.name)
    is_found = found is not None and Path(found).absolute() == program.absolute()
    return program.name if is_found else shlex.quote(str(program))
