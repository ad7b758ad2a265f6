r"""Answers that the paper's authors released with labels, used instead of generated answers (docs/methods.md §1.3).

The authors' data set on the Hub has JSON Lines files `<part>/<model>/<split>.jsonl`, e.g.
`CT-CHOICE/Meta-Llama-3.1-8B-Instruct/train.jsonl`; the test split may have one file per subject instead. Below
`--data-dir` the same files are in a folder `CCPS`. An example of a record, in part:
`{"context": "Question:\n...\n\nChoices:\n  (a): ...", "target": "b", "llm_output": "b", "query_label": 1,
"dataset_name": "arc", "hash_id": "...", "conversation": [{"role": "system", "content": "..."}, ...]}`.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import string
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from bench.api import Format, Question, Row, Split, Task, UserError
from bench.api.errors import AbsentError
from bench.api.question import Message, Prompt, Released
from bench.data.answer_files import is_answer_file
from bench.data.sources import ENVIRONMENT, hub_file, probe, revision_of
from bench.data.tables import json_lines
from bench.prompts.templates import SYSTEM

HUB = "ledengary/CCPS"
FOLDER = "CCPS"
"""Name of the folder of released answers below `--data-dir`."""
FILES: Mapping[str, Sequence[str]] = {
    "train": ("train.jsonl",),
    "validation": ("validation.jsonl", "val.jsonl"),
    "test": ("test.jsonl",),
}
"""Split -> file names that it may have in the release."""
INSTEAD = f"lay its files out as {FOLDER}/PART/MODEL/SPLIT.jsonl in a folder and name that with --data-dir"
_TASKS, _TASKS_FILE = "tasks", "released.toml"
"""The package with the built-in tasks; and the name of a file in it, which says for each task its folder of the
release."""
_WRONG_SUFFIX = "-WRG"
"""Suffix of a release folder (`<part>`) whose records also have the wrong options."""
_SEPARATOR = "<<OPJ>>"
"""Text between the wrong options in a record."""
OPTION = re.compile(r"[ \t]*\(([A-Za-z])\): ?(.*)")
"""Pattern of the first line of an option in a released prompt, e.g. `  (a): text`."""
LABELS: Mapping[object, bool | None] = {0: False, 1: True, -1: None, "0": False, "1": True, "-1": None}


# --- sources ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReleaseFolder:
    """Source of released answers: a folder below `--data-dir`."""

    folder: Path

    def files(self, folder: str) -> list[str]:
        """Return the JSON Lines files below a folder, as sorted paths relative to this folder."""
        top = self.folder / folder
        return sorted(path.relative_to(top).as_posix() for path in top.rglob("*.jsonl") if path.is_file())

    def path(self, name: str) -> Path:
        """Return the local path of a file of the release."""
        return self.folder / name

    def describe(self, names: Sequence[str]) -> dict[str, str]:
        """Return the provenance of some files: the SHA-256 of their joined bytes."""
        digest = hashlib.sha256()
        for name in names:
            digest.update(self.path(name).read_bytes())
        return {"source": "folder", "sha256": digest.hexdigest()}


@dataclass
class ReleaseOnHub:
    """Source of released answers on the Hub. Cached files need no network, unless a split has several files."""

    revision: str
    """Commit or branch of the Hub repository to load."""
    listed: list[str] | None = None
    """Names of all files of the Hub repository; None before the first call of `files`, or if the Hub can't be
    reached."""
    _probed: bool = False

    def files(self, folder: str) -> list[str]:
        """Return the JSON Lines files in a folder of the repository, as sorted paths relative to it.

        If the Hub can't be reached, only cached files are returned, and of these only those with a name in `FILES`.
        """
        if not self._probed:
            info = probe(HUB, self.revision, INSTEAD)
            self.listed = None if info is None else [file.rfilename for file in info.siblings or ()]
            self._probed = True
        names = self.listed
        if names is None:  # cached files of known names; for other names the cache may be incomplete
            from huggingface_hub import try_to_load_from_cache

            candidates = [f"{folder}/{name}" for files in FILES.values() for name in files]
            cached = {name: try_to_load_from_cache(HUB, name, None, self.revision, "dataset") for name in candidates}
            names = [name for name, path in cached.items() if isinstance(path, str)]
        inside = [name.removeprefix(f"{folder}/") for name in names if name.startswith(f"{folder}/")]
        return sorted(name for name in inside if name.endswith(".jsonl"))

    def path(self, name: str) -> Path:
        """Return the local path of a file of the repository; it is downloaded unless it is cached."""
        return hub_file(HUB, name, self.revision, online=self.listed is not None, instead=INSTEAD)

    def describe(self, names: Sequence[str]) -> dict[str, str]:
        """Return the provenance of some files: the commit from which they were loaded."""
        commits = sorted({revision_of(self.path(name)) for name in names})
        if len(commits) > 1:
            raise UserError(f"{HUB} at {self.revision} changed while it was loaded ({', '.join(commits)}); run again")
        requested = {} if commits == [self.revision] else {"asked for": self.revision}
        return {"source": "hub", "hub": HUB, **requested, "revision": ", ".join(commits)}


ReleaseSource = ReleaseFolder | ReleaseOnHub
"""Source of released answers."""


def requested_revision(answers: str) -> str | None:
    """Return the revision of the release that the option `--answers` names; empty if the release is read from a folder.

    Return None if `--answers` asks for answers that are not of the release.

    Raises:
        UserError: `answers` is none of the values that the option may have.
    """
    if answers == "generate" or is_answer_file(answers):
        return None
    kind, at, revision = answers.partition("@")
    if kind != "released" or (at and not revision):
        raise UserError(
            "--answers: expected generate, released, released@REVISION, a URL, or a file that ends in .jsonl or"
            f" .parquet, got {answers!r}."
        )
    return revision


def task_folders() -> dict[str, str]:
    """Return the built-in tasks whose answers were released, each with its folder there, e.g. `CT-CHOICE`."""
    return tomllib.loads((resources.files(_TASKS) / _TASKS_FILE).read_text(encoding="utf-8"))


def open_release(revision: str, data_dir: Path | None, model: str) -> Release:
    """Open the released answers of one model.

    Args:
        revision: revision of the data set on the Hub; empty to read from a folder.
        data_dir: the folder to read from; by default the one in `$CONFBENCH_DATA`.
        model: name of the model's folder in the release.

    Raises:
        UserError: both a revision and a folder are given, or neither, or the folder has no release.
    """
    origin = f"--data-dir {data_dir}" if data_dir else f"${ENVIRONMENT}"
    folder = data_dir or Path(os.environ.get(ENVIRONMENT) or "")
    has_folder = data_dir is not None or bool(os.environ.get(ENVIRONMENT))
    if has_folder and revision:
        raise UserError(
            f"--answers released@{revision} loads from the Hub, but {origin} names a folder; leave out @{revision} or"
            " the folder."
        )
    if not has_folder and not revision:
        raise UserError(
            f"--answers released: expected a revision of {HUB} on the Hub, as released@COMMIT or released@BRANCH, or"
            f" its files below --data-dir as {FOLDER}/PART/MODEL/SPLIT.jsonl."
        )
    if has_folder and not (folder / FOLDER).is_dir():
        raise UserError(
            f"--answers released: expected a folder {FOLDER} in {origin}, found none; put the files there, or name a"
            " revision on the Hub instead: released@REVISION."
        )
    source = ReleaseOnHub(revision) if revision else ReleaseFolder(folder / FOLDER)
    return Release(source, model, task_folders())


# --- records ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """The released answers of one model, with questions and labels."""

    source: ReleaseSource
    model: str
    """Name of the model's folder in the release."""
    folders: Mapping[str, str]
    """Name of a task -> release folder (`<part>`) that has its answers."""

    def folder_of(self, task: Task) -> str:
        """Return the release folder (`<part>`) that has a task's answers.

        Raises:
            UserError: the release has no answers to this task.
        """
        folder = self.folders.get(task.name)
        if folder is None:
            raise UserError(
                f"--answers released: task {task.name!r} is not in the release, expected one of"
                f" {', '.join(sorted(self.folders))}."
            )
        return folder

    def records(self, task: Task, split: Split) -> list[tuple[Question, Released]]:
        """Return the questions of a split in the release's order, each with its prompt, answer and label.

        Questions without a label are left out. Unusual records are counted in `task.counts`.

        Raises:
            UserError: the files are missing, a record is invalid, or no record has a label. The message names the file,
                and the line of an invalid record.
        """
        reader = _RecordReader(task.format)
        records: dict[str, tuple[Question, Released]] = {}
        names = self._names(task, split)
        for name in names:
            with self.source.path(name).open("rb") as file:
                for row in json_lines(file, f"{FOLDER}/{name}"):
                    record = reader.read(row, Path(name).stem)
                    if record is not None:
                        records[record[0].id] = record
        if not records:
            raise AbsentError(
                f"{FOLDER}/{names[0]}: expected records with a label of 0 or 1 for the {split} split, found none;"
                " load it again"
            )
        task.counts |= {f"{split}: {what}": n for what, n in reader.counts.items()}
        return list(records.values())

    def describe(self, task: Task, split: Split) -> dict[str, str]:
        """Return the provenance of a split's answers: source, revision or digest, and files."""
        names = self._names(task, split)
        several = f" to {names[-1]}, {len(names)} files" if len(names) > 1 else ""
        return {**self.source.describe(names), "file": names[0] + several, "license": "not stated"}

    def _names(self, task: Task, split: Split) -> list[str]:
        """Return the paths of a split's files in the release.

        Files whose records also have the wrong options are preferred.
        """
        part, present = self.folder_of(task), []
        for variant in (f"{part}{_WRONG_SUFFIX}", part):
            folder = f"{variant}/{self.model}"
            files = self.source.files(folder)
            # a file named by the split, a folder named by it, or for test one file for each subject
            by_name = [name for name in FILES.get(split, ()) if name in files][:1]
            in_folder = [name for name in files if name.startswith(f"{split}/")]
            known = {name for names in FILES.values() for name in names}
            by_subject = [name for name in files if "/" not in name and name not in known and split == "test"]
            if selected := by_name or in_folder or by_subject:
                return [f"{folder}/{name}" for name in selected]
            present += [f"{folder}/{name}" for name in files]
        certain = isinstance(self.source, ReleaseFolder) or self.source.listed is not None  # or it is out of reach
        raise (AbsentError if certain else UserError)(
            f"--answers released: expected {FOLDER}/{part}/{self.model}/{split}.jsonl, found"
            f" {', '.join(present[:3]) or 'nothing in that folder'}; name another split or revision, or connect once if"
            " the Hub could not be reached."
        )


class _Turn(msgspec.Struct):
    """One message of the conversation in a released record."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass
class _RecordReader:
    """Parser of released records, of choice questions or of open questions; it counts unusual records."""

    format: Format
    counts: Counter[str] = field(default_factory=Counter)
    _first: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Question id -> where the first record with this id is in the files, and its text."""

    def read(self, row: Row, stem: str) -> tuple[Question, Released] | None:
        """Parse a record into question and answer; None if it has no label.

        `stem` is the question's subject if the record names none.
        """
        label = _label(row)
        context = _text(row, "context")
        target = _text(row, "target")
        name = _text(row, "hash_id", _text(row, "id", ""))
        if not name:
            raise _field_error(row, "hash_id", "an id", row.values.get("hash_id"))
        subject = _text(row, "dataset_name", _text(row, "task", "")) or stem
        if self.format is Format.CHOICE:
            question = self._choice(row, Question(name, subject, context, (), 0), target)
        else:
            wrong = [text.strip() for text in _text(row, "wrong_target_texts", "").split(_SEPARATOR)]
            if not target.strip():
                raise _field_error(row, "target", "a text that is not empty", target)
            question = Question(name, subject, context, (target, *filter(None, wrong)), 0)
        prompt = self._prompt(row, context)
        if label is None:
            self.counts["records without a label, left out"] += 1
            return None
        text = _text(row, "llm_output", "").strip()
        if label and not text:  # docs/methods.md §0.6
            self.counts["empty answers with label 1, taken as wrong"] += 1
        released = Released(prompt, text, label and bool(text))
        where, first_text = self._first.setdefault(name, (row.where, question.text))
        if where == row.where:
            return question, released
        if first_text != question.text:
            raise UserError(
                f"{row.where}: expected an id of its own, got {name!r}, which another question has in {where};"
                " correct one of the two"
            )
        # some benchmarks repeat questions, whose hashes are equal
        self.counts["records that repeat a question and its id"] += 1
        new_id = next(new_id for n in itertools.count(2) if (new_id := f"{name}#{n}") not in self._first)
        self._first[new_id] = row.where, first_text
        return replace(question, id=new_id), released

    def _choice(self, row: Row, question: Question, target: str) -> Question:
        """Parse the options of a choice question, which are the lines `  (a): text` after the last `Choices:`."""
        text, separator, lines = question.text.rpartition("Choices:\n")
        options: list[str] = []
        for line in lines.rstrip("\n").split("\n") if separator else ():
            match = OPTION.fullmatch(line)
            if match and match[1].casefold() == string.ascii_lowercase[len(options) : len(options) + 1]:
                options.append(match[2])
            elif options:  # an option of several lines
                options[-1] += f"\n{line}"
        if not options:
            raise _field_error(row, "context", "lines '  (a): text' after 'Choices:'", question.text[-60:])
        letters = string.ascii_lowercase[: len(options)]
        letter = target.strip().casefold()
        if len(letter) != 1 or letter not in letters:
            raise _field_error(row, "target", f"a letter from a to {letters[-1]}", target)
        gold = letters.index(letter)
        wrong = _text(row, "wrong_targets", "")
        wrong_options = [str(i) for i in range(len(options)) if i != gold]
        if wrong and sorted(part.strip() for part in wrong.split(_SEPARATOR)) != sorted(wrong_options):
            self.counts["records whose wrong options are not all but the right one"] += 1
        return replace(question, text=text.strip(), choices=tuple(options), gold=gold)

    def _prompt(self, row: Row, context: str) -> Prompt:
        """Return the prompt of a record: its conversation or, if it has none, a prompt built from its other fields.

        The prompt is built as in the official code.
        """
        turns = row.values.get("conversation")
        try:
            parsed = [] if turns is None else msgspec.convert(turns, list[_Turn])
        except msgspec.ValidationError as error:
            expected = f"a list of messages with a role and a content ({error})"
            raise _field_error(row, "conversation", expected, turns) from None
        messages = tuple(Message(turn.role, turn.content) for turn in parsed)
        if turns is not None and (not messages or messages[-1].role != "user"):
            raise _field_error(row, "conversation", "a list of messages that ends with the user's", turns)
        if not messages:
            self.counts["records without a conversation, put together from their pieces"] += 1
            system = SYSTEM[self.format]
            if self.format is Format.OPEN:
                system = system.removesuffix(".")  # as the official code has it (docs/methods.md §1.5)
            messages = (
                Message("system", system),
                Message("user", _text(row, "prompt", "") + context + _text(row, "target_prompt", "")),
            )
        elif context not in messages[-1].content:
            self.counts["records whose conversation does not ask their question"] += 1
        return Prompt(messages)


def _label(row: Row) -> bool | None:
    """Return the label of a record: whether the answer is right, None if unknown."""
    labels = [row.values[key] for key in ("query_label", "assessment") if key in row.values]
    if not labels:
        raise _field_error(row, "query_label", "a label of 0 or 1, here or in 'assessment',", None)
    values = [value for value in labels if value is not None and value == value]  # noqa: PLR0124 - NaN differs from itself
    if not values:
        return None
    value = values[0].strip() if isinstance(values[0], str) else values[0]
    if not isinstance(value, str | int | float) or value not in LABELS:
        raise _field_error(row, "query_label", "a label of 0 or 1, or -1 for none", values[0])
    return LABELS[value]


def _text(row: Row, key: str, default: str | None = None) -> str:
    """Return a field of a record as text; an integer is converted. If the field is missing, return `default`.

    Raises:
        UserError: the field is neither text nor an integer, or it is missing and there is no default.
    """
    value = row.values.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _field_error(row, key, "a text", value)
    return str(value)


def _field_error(row: Row, key: str, expected: str, value: object) -> UserError:
    shown = "null or nothing" if value is None else f"{type(value).__name__} {value!r:.60}"
    return UserError(f"{row.where}: expected {expected} in {key!r}, got {shown}; correct the file or load it again")
