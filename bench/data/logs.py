"""Logs of other evaluation tools -> a file of answers (`bench import`), each matched to a question of a task.

- lm-evaluation-harness, `samples_*.jsonl` as `--log_samples` writes them, one object a line. In part: `{"doc": {...},
  "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": ...}}, "resps": [["text"]], "filtered_resps": ["text"],
  "filter": "none", "metrics": ["exact_match"], "exact_match": 1.0}`. Scored options have `"resps": [[["-9.4",
  "False"]], ...]`, and the likeliest is the answer. Repeats are samples.
- Inspect, a log as JSON, or as `.eval`, which is a zip archive of `samples/*.json`. A sample in part: `{"id": ...,
  "epoch": 1, "input": "text", "output": {"choices": [{"message": {"content": "text"}}]}, "scores": {"match": {"value":
  "C", "answer": "text"}}}`. Epochs and choices after the first are samples; parts of type `reasoning` are a trace.

Nothing but JSON is read, and of an archive no more than its entries say, within bounds.
"""

from __future__ import annotations

import io
import json
import math
import re
import string
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.api import Format, Question, Row, UserError
from bench.data.contamination import normalised
from bench.data.tables import json_lines, read_file

_LARGEST = 256 * 2**20
"""Bytes of one entry of an archive, at most; a sample is some kilobytes."""
_LARGEST_LOG = 4 * 2**30
"""Bytes of a log, unpacked, at most."""
_ZSTANDARD = 93
"""Number of this compression in zip archives; Python's own module has it from 3.14 on."""
_IDS = ("id", "question_id", "qid", "hash_id", "key")
"""Fields of lm-evaluation-harness' documents that may hold a question's id."""
_GRADES: Mapping[object, bool] = {"C": True, "I": False, 1: True, 0: False}


@dataclass
class LogRecord:
    """One question's part of a log."""

    names: Sequence[str]
    """Texts that may be the question's id."""
    texts: Sequence[str]
    """Texts that may be the question."""
    said: list[str]
    """The answer, and further samples."""
    trace: str = ""
    """Reasoning before the answer."""
    final: str | None = None
    """Part of the answer that was graded, if not all of it."""
    choices: Sequence[str] = ()
    option: int | None = None
    """Number of the option that was chosen, where options were scored."""
    grade: bool | None = None
    judge: str = ""

    def row(self, question: Question, fmt: Format) -> dict[str, object]:
        """The row of a file of answers."""
        if self.option is not None and fmt is Format.CHOICE:
            letter = string.ascii_lowercase[self._place(question, self.option)]
            told: dict[str, object] = {"id": question.id, "text": letter}
        else:
            told = {"id": question.id, "text": self.trace + self.said[0]}
            start = _last(self.said[0], self.final) if self.final else -1
            if start >= 0 and self.final:
                told["text"] = self.trace + self.said[0][: start + len(self.final)]
            if self.trace or start > 0:
                told["final_start"] = len(self.trace) + max(start, 0)
        if len(self.said) > 1:
            told["samples"] = self.said[1:]
        return told if self.grade is None else {**told, "grade": self.grade, "judge": self.judge}

    def fits(self, question: Question, fmt: Format) -> bool:
        """Whether its options, as far as they are known, leave no doubt which of the question's was chosen."""
        if fmt is not Format.CHOICE or not self.choices:
            return True
        if self.option is not None:
            return len(self.choices) == len(question.choices)
        return tuple(self.choices) == question.choices or not self._reordered(question)  # a letter counts by its place

    def _reordered(self, question: Question) -> bool:
        return sorted(self.choices) == sorted(question.choices)

    def _place(self, question: Question, option: int) -> int:
        """Number that an option of the log has in the question, which may have them in another order."""
        return question.choices.index(self.choices[option]) if self._reordered(question) else option


@dataclass
class Imported:
    """Rows of a file of answers, and what became of the rest of a log."""

    rows: list[dict[str, object]] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    """Beginnings of the questions that are none of the task's, or several, or have other options than its."""
    repeated: int = 0
    """Records of questions that had an answer before."""
    ungraded: bool = False
    """Whether grades were left out, since some records have none."""


def imported(records: Iterable[LogRecord], questions: Sequence[Question], fmt: Format) -> Imported:
    """The rows of a file of answers to the questions of a task."""
    by_id = {question.id: question for question in questions}
    by_text: dict[str, list[Question]] = {}
    for question in questions:
        by_text.setdefault(normalised(question.text), []).append(question)
    found, seen = Imported(), set()
    for record in records:
        matched = _matched(record, by_id, by_text)
        if matched is None or not record.fits(matched, fmt):
            found.unmatched.append(next(iter((*record.texts, *record.names)), "")[:60])
        elif matched.id in seen:
            found.repeated += 1
        else:
            seen.add(matched.id)
            found.rows.append(record.row(matched, fmt))
    graded = sum("grade" in row for row in found.rows)
    found.ungraded = 0 < graded < len(found.rows)
    if found.ungraded:
        for row in found.rows:
            row.pop("grade", None)
            row.pop("judge", None)
    return found


def _matched(
    record: LogRecord, by_id: Mapping[str, Question], by_text: Mapping[str, Sequence[Question]]
) -> Question | None:
    """The question of a record, by its id or else by its text and, where several have that, by its options."""
    for name in record.names:
        if name in by_id:
            return by_id[name]
    several = [question for text in record.texts for question in by_text.get(normalised(text), ())]
    alike = [question for question in several if question.choices == tuple(record.choices)]
    chosen = list({question.id: question for question in (alike if len(several) > 1 else several)}.values())
    return chosen[0] if len(chosen) == 1 else None


def _last(text: str, part: str) -> int:
    """Where a part of a text stands last, by itself if it can: "5" not within "105"; -1 if nowhere."""
    alone = [found.start() for found in re.finditer(rf"(?<!\w){re.escape(part)}(?!\w)", text)]
    return alone[-1] if alone else text.rfind(part)


# --- lm-evaluation-harness --------------------------------------------------------------------------------------------


def lm_eval_records(path: Path) -> list[LogRecord]:
    """The records of a file that `--log_samples` wrote; of several filters the first.

    Raises:
        UserError: it can't be read, or a line is not as it must be.
    """
    rows = list(json_lines(io.BytesIO(read_file(path, "a log")), path.name))
    if not rows:
        raise UserError(f"{path.name}: expected samples that lm-eval wrote with --log_samples, found none")
    first = rows[0].values.get("filter")
    return [_lm_eval(row) for row in rows if row.values.get("filter") == first]


def _lm_eval(row: Row) -> LogRecord:
    doc, responses = row.values.get("doc"), row.values.get("resps")
    if not isinstance(doc, dict) or not isinstance(responses, list) or not responses:
        raise _wrong(row, "'doc' and 'resps', as in the samples that lm-eval writes with --log_samples")
    names = [str(doc[name]) for name in _IDS if isinstance(doc.get(name), str | int)]
    texts = [value for value in doc.values() if isinstance(value, str)]
    choices = doc.get("choices")
    metric, grade = "", None
    for name in _listed(row.values.get("metrics")):  # the first one that says right or wrong
        value = row.values.get(str(name))
        if isinstance(value, bool | int | float) and value in {0, 1}:
            metric, grade = str(name), bool(value)
            break
    record = LogRecord(names, texts, [], choices=_texts(_listed(choices)), grade=grade, judge=f"lm-eval {metric}")
    if isinstance(responses[0], list) and responses[0] and isinstance(responses[0][0], str):
        record.said = _texts(responses[0])
        final = next(iter(_listed(row.values.get("filtered_resps"))), None)
        record.final = final if isinstance(final, str) and final != record.said[0] else None
    else:
        record.option = _likeliest(row, responses)
        record.said = [_option_text(row, record.option)]
        listed = _listed(_at(choices, "text") if isinstance(choices, dict) else choices)
        n = len(responses)
        record.choices = _texts(listed) if len(listed) == n else [_option_text(row, i) for i in range(n)]
        if metric != "acc":  # the others are not of the likeliest option
            record.grade = None
    return record


def _likeliest(row: Row, responses: Sequence[Any]) -> int:
    try:
        scores = [float(response[0][0]) for response in responses]
    except (TypeError, ValueError, LookupError) as error:
        raise _wrong(row, "texts or log-likelihoods of options in 'resps'") from error
    if any(map(math.isnan, scores)):
        raise _wrong(row, "log-likelihoods of options in 'resps' that are numbers")
    if len(scores) > len(string.ascii_lowercase):
        raise _wrong(row, f"at most {len(string.ascii_lowercase)} options in 'resps'")
    return max(range(len(scores)), key=scores.__getitem__)


def _option_text(row: Row, option: int) -> str:
    try:
        asked = row.values["arguments"]
        text = asked[f"gen_args_{option}"]["arg_1"] if isinstance(asked, dict) else asked[option][1]
    except (TypeError, LookupError) as error:
        raise _wrong(row, "the options' texts in 'arguments'") from error
    return str(text).strip()


# --- Inspect ----------------------------------------------------------------------------------------------------------


def inspect_records(path: Path) -> list[LogRecord]:
    """The records of a log, one for each question; those without an answer are left out.

    Raises:
        UserError: it can't be read, or is no log of Inspect.
    """
    samples: Sequence[Any]
    try:
        if path.suffix.lower() == ".eval":
            samples = list(_archived(path))
        elif path.stat().st_size > _LARGEST_LOG:
            raise ValueError(f"it has more than {_LARGEST_LOG:,} bytes")
        else:
            samples = _listed(_at(json.loads(path.read_bytes()), "samples"))
    except OSError as error:
        raise UserError(f"Expected a log at {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path.name}: expected a log of Inspect in JSON, got something else ({error})") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise UserError(f"{path.name}: expected a whole log of Inspect, but it can't be unpacked ({error})") from error
    records: dict[str, LogRecord] = {}
    for i, sample in enumerate(sorted(samples, key=_epoch)):
        record = _inspect(Row(i, f"{path.name} sample {i}", sample))
        if record is None:
            continue
        first = records.setdefault(record.names[0], record)
        if first is not record:
            first.said += record.said
    if not records:
        raise UserError(f"{path.name}: expected samples with answers in the log, found none; was the run finished?")
    return list(records.values())


def _epoch(sample: Any) -> int:
    epoch = _at(sample, "epoch")
    return epoch if isinstance(epoch, int) else 1


def _archived(path: Path) -> Iterator[Any]:
    left = _LARGEST_LOG
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith("samples/") and entry.filename.endswith(".json"):
                data = _unpacked(archive, entry, min(left, _LARGEST))
                left -= len(data)
                yield json.loads(data)


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> bytes:
    """The bytes of an entry; whatever it says of its size, no more than `most` are unpacked."""
    if entry.compress_type == _ZSTANDARD:
        data = _zstandard(archive, entry, most)
    else:
        with archive.open(entry) as file:
            data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{entry.filename} has more than {most:,} bytes")
    if zlib.crc32(data) != entry.CRC:
        raise zipfile.BadZipFile(f"{entry.filename} is damaged")
    return data


def _zstandard(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> bytes:
    import pyarrow as pa

    file = archive.fp
    assert file is not None  # noqa: S101  # it is open
    file.seek(entry.header_offset + 26)  # of the local header of 30 bytes the last four: lengths of name and extra
    name, extra = (int.from_bytes(file.read(2), "little") for _ in range(2))
    file.seek(name + extra, 1)
    packed = file.read(min(entry.compress_size, most))
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as unpacking:
            data: bytes = unpacking.read(most + 1)
    except (OSError, pa.ArrowException) as error:
        raise zipfile.BadZipFile(f"{entry.filename} is damaged") from error
    return data


def _inspect(row: Row) -> LogRecord | None:
    sample = row.values
    if not isinstance(sample, dict) or not isinstance(sample.get("id"), str | int):
        raise _wrong(row, "a sample with an id, as Inspect writes it")
    answers = _listed(_at(sample, "output", "choices"))
    said = [_content(sample, _at(answer, "message", "content")) for answer in answers]
    if not said:
        return None
    asked = sample.get("input")
    if isinstance(asked, list):  # a conversation asks by what the user said last in it
        contents = [turn.get("content") for turn in asked if isinstance(turn, dict) and turn.get("role") == "user"]
        question = _content(sample, contents[-1])[1] if contents else ""
    else:
        question = _attached(sample, asked)
    texts = [question, *(value for value in _items(sample.get("metadata")).values() if isinstance(value, str))]
    record = LogRecord(
        [str(sample["id"])], list(filter(None, texts)), [text for _, text in said], trace=said[0][0],
        choices=_texts(_listed(sample.get("choices"))),
    )  # fmt: skip
    for name, score in _items(sample.get("scores")).items():  # the first scorer
        if isinstance(score, dict):
            value, graded = score.get("value"), score.get("answer")
            record.judge = f"inspect {name}"
            record.grade = _GRADES.get(value) if isinstance(value, str | int | float) else None
            if isinstance(graded, str) and graded.strip() and graded != record.said[0]:
                record.final = graded
            break
    return record


def _content(sample: Mapping[str, Any], content: Any) -> tuple[str, str]:
    """Reasoning and text of a message; long texts lie apart."""
    if not isinstance(content, list):
        return "", _attached(sample, content)
    parts = [part for part in content if isinstance(part, dict)]
    trace = "".join(_attached(sample, part.get("reasoning")) for part in parts if part.get("type") == "reasoning")
    text = "".join(_attached(sample, part.get("text")) for part in parts if part.get("type") == "text")
    return trace, text


def _attached(sample: Mapping[str, Any], text: Any) -> str:
    if isinstance(text, str) and text.startswith("attachment://"):
        text = _items(sample.get("attachments")).get(text.removeprefix("attachment://"), text)
    return text if isinstance(text, str) else ""


# --- JSON of any shape ------------------------------------------------------------------------------------------------


def _at(value: Any, *keys: str) -> Any:
    """The part of a value below these keys; None where there is none."""
    for key in keys:
        value = _items(value).get(key)
    return value


def _items(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _texts(values: Sequence[Any]) -> list[str]:
    return [str(value) for value in values]


def _wrong(row: Row, expected: str) -> UserError:
    return UserError(f"{row.where}: expected {expected}, got something else; name a log of the tool's own")
