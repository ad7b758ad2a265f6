"""`bench import`: a log of another tool -> a file of answers for `bench run --answers`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bench import registry
from bench.api import UserError
from bench.api.errors import fenced
from bench.store.files import write_whole


def write(
    tool: str, log: Path, task_name: str | None, task_file: Path | None, split_name: str, out: Path | None,
    data_dir: Path | None, plugins: Sequence[Path],
) -> list[str]:  # fmt: skip
    """Write the file of answers; returns what came of it, in sentences.

    Raises:
        UserError: not one task is named, or it is not known; the log can't be read, none of its questions is the
            task's, or the file can't be written.
    """
    from bench.data import logs
    from bench.data.question_files import task_of_file
    from bench.data.sources import open_source

    if (task_name is None) == (task_file is None):
        raise UserError("bench import: expected --task NAME or --task-file FILE, and one of them only.")
    source = open_source(data_dir)
    cls = registry.tasks(plugins).get(str(task_name)) if task_file is None else task_of_file(task_file)
    task = cls(source)
    split = next((each for each in task.card.splits if each == split_name), None)
    if split is None:
        raise UserError(f"--split: expected one of {', '.join(task.card.splits)}, got {split_name!r}.")
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
