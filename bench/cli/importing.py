"""`bench import`: a log of another tool -> a file of answers for `bench run --answers`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import registry
from bench.api import Task, UserError
from bench.api.errors import fenced
from bench.store.files import write_whole


@dataclass(frozen=True)
class Asked:
    """Questions that a log is about."""

    task: str | None
    task_file: Path | None
    split: str = "test"
    data_dir: Path | None = None
    plugins: Sequence[Path] = ()

    def opened(self) -> Task:
        """The task.

        Raises:
            UserError: none or two are named, or it is not known.
        """
        from bench.data.question_files import task_of_file
        from bench.data.sources import open_source

        if (self.task is None) == (self.task_file is None):
            raise UserError("bench import: expected --task NAME or --task-file FILE, and one of them only.")
        source = open_source(self.data_dir)
        if self.task_file is not None:
            return task_of_file(self.task_file)(source)
        return registry.tasks(self.plugins).get(str(self.task))(source)


def write(tool: str, log: Path, asked: Asked, out: Path | None) -> list[str]:
    """Write the file of answers; returns what came of it, in sentences.

    Raises:
        UserError: the log can't be read, none of its questions is the task's, or the file can't be written.
    """
    from bench.data import logs

    task = asked.opened()
    split = next((each for each in task.card.splits if each == asked.split), None)
    if split is None:
        raise UserError(f"--split: expected one of {', '.join(task.card.splits)}, got {asked.split!r}.")
    with fenced(f"task {task.name!r}, questions of {split}"):
        questions = list(task.questions(split))
    records = {"lm-eval": logs.lm_eval_records, "inspect": logs.inspect_records}[tool](log)
    found = logs.imported(records, questions, task.format)
    where = f"{task.name}/{split}"
    if not found.rows:
        raise UserError(
            f"{log.name}: none of its {len(found.unmatched):,} questions is one of {where}, e.g."
            f" {found.unmatched[0]!r}; name the task that they are of."
        )
    path = out or Path(f"{log.stem}.answers.jsonl")
    try:
        write_whole(path, "".join(json.dumps(row) + "\n" for row in found.rows).encode())
    except OSError as error:
        raise UserError(f"--out: {path} can't be written ({error.strerror or error}); name another file.") from error
    told = [f"wrote {path}: answers to {len(found.rows):,} of {len(questions):,} questions of {where}"]
    if found.unmatched:
        told.append(f"{len(found.unmatched):,} records match no question, or several, e.g. {found.unmatched[0]!r}")
    if found.repeated:
        told.append(f"{found.repeated:,} records of questions that had an answer before were left out")
    if found.ungraded:
        told.append("some records have no grade that is right or wrong, so all grades were left out")
    return told
