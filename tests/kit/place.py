"""A folder with a cache of its own in which the command is run, and what runs left there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from bench.results.files import read_records
from bench.results.question_records import QuestionRecords
from tests.kit import command

Rows = dict[str, dict[str, Any]]
"""Method -> its result."""
WORKING = ("Plan: ", "Label budgets on ", "  ", "prompts ", "read ", "reason ")
"""How lines begin that tell of work; stages that take long are told, on a busy machine also short ones."""


@dataclass(frozen=True)
class Place:
    """Commands are run with the cache `cache` of a folder; runs and analyses write to its folder `out`."""

    folder: Path
    here: bool = False
    """Whether methods of plugin files are called in this process."""

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    @property
    def env(self) -> dict[str, str]:
        """Environment with the cache."""
        return {"CONFBENCH_CACHE": str(self / "cache")}

    def bench(self, *words: object, env: Mapping[str, str] | None = None) -> CompletedProcess[str]:
        """Run the command."""
        with command.plugins_here() if self.here else nullcontext():
            return command.bench(*words, env={**self.env, **(env or {})})

    def done(
        self, *words: object, out: str | None = None, code: int = 0, env: Mapping[str, str] | None = None
    ) -> CompletedProcess[str]:
        """Run the command, which ends with a code and without a traceback; `out` is another folder of results."""
        where = ("--out", self / (out or "out")) if words[0] in {"run", "analyze"} else ()
        ended = self.bench(*words, *where, env=env)
        assert ended.returncode == code, ended.stdout + ended.stderr
        assert "Traceback" not in ended.stdout + ended.stderr
        return ended

    def run(self, *words: object, **more: Any) -> CompletedProcess[str]:
        """Do a run; the options are those of `done`."""
        return self.done("run", *words, **more)

    def refused(self, *words: object, env: Mapping[str, str] | None = None) -> str:
        """Run the command, which ends with exit code 2 and writes nothing; returns the sentence, all of its stderr."""
        ended = self.done(*words, code=2, env=env)
        assert not ended.stdout
        assert not (self / "out").exists()
        left = {path.name for path in (self / "cache").rglob("*") if path.suffix != ".log"}
        assert left <= {".writable", "logs", "claims"}
        (line,) = (line for line in ended.stderr.splitlines() if line and not line.startswith(WORKING))
        assert line.startswith("bench: ")
        return line.removeprefix("bench: ")

    def rows(self, out: str = "out") -> Rows:
        """Method -> its result."""
        found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((self / out).rglob("*.json"))]
        return {row["method"]: row for row in found if "method" in row}

    def row(self, out: str = "out") -> dict[str, Any]:
        """The only result."""
        (row,) = self.rows(out).values()
        return row

    def records(self, method: str, out: str = "out") -> QuestionRecords:
        """Questions and confidences of a method."""
        (path,) = (self / out).rglob(f"{method}--*.parquet")
        return read_records(path)

    def write(self, name: str, lines: Iterable[object] | str) -> Path:
        """Write a file: a text, or lines of JSON; returns its path."""
        text = lines if isinstance(lines, str) else "".join(f"{json.dumps(line)}\n" for line in lines)
        (self / name).parent.mkdir(parents=True, exist_ok=True)
        (self / name).write_text(text, encoding="utf-8")
        return self / name
