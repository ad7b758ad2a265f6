"""Conversion of logs of lm-evaluation-harness and Inspect to a file of answers (`bench import`).

lm-evaluation-harness: `samples_*.jsonl`, which the option `--log_samples` writes, with one JSON object per line. An
example, in part: `{"doc": {...}, "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": ...}}, "resps": [["text"]],
"filtered_resps": ["text"], "filter": "none", "metrics": ["exact_match"], "exact_match": 1.0}`. Multiple choice has
`"resps": [[["-9.4", "False"]], ...]`, the log-likelihoods of the options. The option with the largest one is the
answer. Further replies to a question become samples.

Inspect: a log as JSON, or as `.eval`, which is a zip archive of `samples/*.json`. An example of a sample, in part:
`{"id": ..., "epoch": 1, "input": "text", "output": {"choices": [{"message": {"content": "text"}}]}, "scores": {"match":
{"value": "C", "answer": "text"}}}`. What the model said in later epochs, and in choices after the first, becomes
samples. Parts of the message with type `reasoning` become the reasoning trace.

For `bench import` each record is matched to a question of a task; for `bench audit` it is a row with a grade and what
may be a confidence. Only JSON is read, and archives are unpacked within size limits.
"""

from __future__ import annotations

import io
import json
import math
import re
import string
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.api import Format, Question, Row, UserError
from bench.data.contamination import normalise_wording
from bench.data.tables import json_lines, read_file

_MAX_ENTRY_BYTES = 256 * 2**20
"""Largest size of an unpacked archive entry, in bytes; a usual entry has some kilobytes."""
_MAX_LOG_BYTES = 4 * 2**30
"""Largest size of a whole unpacked log, in bytes."""
_ZSTANDARD = 93
"""Number of the compression method Zstandard in zip archives; `zipfile` supports it from Python 3.14 on."""
_IDS = ("id", "question_id", "qid", "hash_id", "key")
"""Names of the fields of `doc`, in a log of lm-evaluation-harness, that may have the question's id."""
_GRADES: Mapping[object, bool] = {"C": True, "I": False, "N": False, 1: True, 0: False}
"""Grades of Inspect; N is no answer."""


@dataclass
class LogRecord:
    """One record of a log: a question, the model's output and further samples."""

    names: Sequence[str]
    """Values of the record, one of which may be the question's id in the task."""
    texts: Sequence[str]
    """Texts of the record, one of which may be the question's text in the task."""
    outputs: list[str]
    """Texts that the model generated: the answer, then further samples. If `option` is set, only the option's text."""
    trace: str = ""
    """Reasoning that the model generated before the answer."""
    redacted: bool = False
    """Whether reasoning is left out of `trace`, because the log has it encrypted."""
    final: str | None = None
    """The part of the answer that was graded in the log; None if the whole answer was graded."""
    choices: Sequence[str] = ()
    option: int | None = None
    """Index of the option with the largest log-likelihood; None if the answer was generated as text."""
    log_likelihoods: Sequence[float] = ()
    """Log-likelihood of each option; empty if the answer was generated as text."""
    grade: bool | None = None
    judge: str = ""
    left_out: str = ""
    """Why the record gives no answer, in words that follow "records"; the other fields are then empty."""

    def row(self, question: Question, fmt: Format) -> dict[str, object]:
        """Build a row of a file of answers: the record's output as the answer to `question`."""
        if self.option is not None and fmt is Format.CHOICE:
            option = self.option  # the question may have the options in another order
            own, asked = (list(map(normalise_wording, each)) for each in (self.choices, question.choices))
            if own != asked and sorted(own) == sorted(asked):
                option = asked.index(own[option])
            row: dict[str, object] = {"id": question.id, "text": string.ascii_lowercase[option]}
        else:
            start, stop = self.graded_part
            row = {"id": question.id, "text": self.trace + self.outputs[0][:stop]}
            if self.trace or stop - start < len(self.outputs[0]) or self.redacted:
                row["final_start"] = len(self.trace) + start
            row |= {"redacted": True} if self.redacted else {}
        if len(self.outputs) > 1:
            row["samples"] = self.outputs[1:]
        return row if self.grade is None else {**row, "grade": self.grade, "judge": self.judge}

    @property
    def graded_part(self) -> tuple[int, int]:
        """The part of the answer that was graded in the log, as a range of its characters."""
        answer, final = self.outputs[0], self.final
        if not final or final not in answer:
            return 0, len(answer)
        # last occurrence, as a whole word if possible: "5" not within "105"
        matches = re.finditer(rf"(?<!\w){re.escape(final)}(?!\w)", answer)
        start = max((match.start() for match in matches), default=answer.rfind(final))
        return start, start + len(final)

    def identifies_option(self, question: Question, fmt: Format) -> bool:
        """Return whether the record certainly chose one particular option of `question`.

        This is not always certain, because the log may have other options than the task, or another order of them.
        Spelling apart (see `normalise_wording`), they must be the task's, or letters. Also return True for open
        questions, and if the log does not list the options.
        """
        if fmt is not Format.CHOICE or not self.choices:
            return True
        own, asked = (list(map(normalise_wording, each)) for each in (self.choices, question.choices))
        if sorted(own) == sorted(asked):  # a letter names a position; options may differ in case alone, as AA and Aa
            alike = len(set(own)) == len(own) and (own == asked or self.option is not None)
            return alike or tuple(self.choices) == question.choices
        return [text.strip("().:") for text in own] == list(string.ascii_lowercase[: len(asked)])


@dataclass
class Imported:
    """Rows for a file of answers, and counts of the log's records that were left out."""

    rows: list[dict[str, object]] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    """Beginnings of the questions of records that were left out, because no question of the task matches or several
    do."""
    repeated: int = 0
    """Number of records left out because an earlier record answers the same question."""
    redacted: int = 0
    """Number of rows whose reasoning the log has encrypted."""
    left_out: Counter[str] = field(default_factory=Counter)
    """`LogRecord.left_out` -> number of such records."""
    ungraded: bool = False
    """Whether all rows lost their grades, which happens if some records of the log have no grade."""


def import_records(records: Iterable[LogRecord], questions: Sequence[Question], fmt: Format) -> Imported:
    """Match records of a log to the questions of a task, and build the rows of a file of answers from them."""
    by_id = {question.id: question for question in questions}
    by_text: dict[str, list[Question]] = {}
    for question in questions:
        by_text.setdefault(normalise_wording(question.text), []).append(question)
    result, seen = Imported(), set()
    for record in records:
        if record.left_out:
            result.left_out[record.left_out] += 1
            continue
        # match by text, and among several questions of one text by options; else by id, which may be a mere counter
        candidates = [question for text in record.texts for question in by_text.get(normalise_wording(text), ())]
        same_options = [question for question in candidates if question.choices == tuple(record.choices)]
        chosen = {question.id: question for question in (same_options if len(candidates) > 1 else candidates)}
        by_name = (by_id[name] for name in record.names if name in by_id)
        named = (question for question in by_name if question in candidates or not candidates)
        matched = next(iter(chosen.values())) if len(chosen) == 1 else next(named, None)
        if matched is not None and not record.identifies_option(matched, fmt):
            result.left_out["whose options are not those of the task, or in another order,"] += 1
        elif matched is None:
            result.unmatched.append(next(iter((*record.texts, *record.names)), "")[:60])
        elif matched.id in seen:
            result.repeated += 1
        else:
            seen.add(matched.id)
            result.rows.append(record.row(matched, fmt))
            result.redacted += record.redacted
    graded = sum("grade" in row for row in result.rows)
    result.ungraded = 0 < graded < len(result.rows)
    if result.ungraded:
        for row in result.rows:
            row.pop("grade", None)
            row.pop("judge", None)
    return result


# --- lm-evaluation-harness --------------------------------------------------------------------------------------------


def lm_eval_records(path: Path) -> list[LogRecord]:
    """Read the records of a file that lm-evaluation-harness wrote with `--log_samples`.

    If records of several filters are in the file, those of the first filter are read, and the others are left out.

    Raises:
        UserError: the file can't be read or has no record, or a line is invalid.
    """
    rows = list(json_lines(io.BytesIO(read_file(path, "a log")), path.name))
    if not rows:
        raise UserError(f"{path.name}: expected samples that lm-eval wrote with --log_samples, found none")
    first, metric = rows[0].values.get("filter"), _binary_metric(rows)
    other = LogRecord((), (), [], left_out=f"of other filters than {first!r}")
    return [_lm_eval(row, metric) if row.values.get("filter") == first else other for row in rows]


def _binary_metric(rows: Sequence[Row]) -> str:
    """Return the metric that is 0 or 1 in most records, the first of several; empty if none is in any."""
    named = ((row.values, str(name)) for row in rows for name in _as_list(row.values.get("metrics")))
    counts = Counter(name for values, name in named if values.get(name) in (0, 1))
    return max(counts, key=counts.__getitem__, default="")


def _lm_eval(row: Row, metric: str) -> LogRecord:
    doc, responses = row.values.get("doc"), row.values.get("resps")
    if not isinstance(doc, dict) or not isinstance(responses, list) or not responses:
        raise _log_error(row, "'doc' and 'resps', as in the samples that lm-eval writes with --log_samples")
    names = [str(doc[name]) for name in _IDS if isinstance(doc.get(name), str | int)]
    texts = [value for value in doc.values() if isinstance(value, str)]
    choices, filtered = doc.get("choices"), row.values.get("filter")
    value = row.values.get(metric)
    grade = bool(value) if value in (0, 1) else None
    judge = f"lm-eval {metric}" if filtered in (None, "none") else f"lm-eval {metric} ({filtered})"
    record = LogRecord(names, texts, [], choices=list(map(str, _as_list(choices))), grade=grade, judge=judge)
    if isinstance(responses[0], list) and responses[0] and isinstance(responses[0][0], str):
        record.outputs = list(map(str, responses[0]))
        final = next(iter(_as_list(row.values.get("filtered_resps"))), None)
        record.final = final if isinstance(final, str) and final != record.outputs[0] else None
    else:
        try:
            scores = [float(response[0][0]) for response in responses]
        except (TypeError, ValueError, LookupError) as error:
            raise _log_error(row, "texts or log-likelihoods of options in 'resps'") from error
        if any(map(math.isnan, scores)):
            raise _log_error(row, "log-likelihoods of options in 'resps' that are numbers")
        if len(scores) > len(string.ascii_lowercase):
            raise _log_error(row, f"at most {len(string.ascii_lowercase)} options in 'resps'")
        record.log_likelihoods = scores
        record.option = max(range(len(scores)), key=scores.__getitem__)
        record.outputs = [_option_text(row, record.option)]
        listed = _as_list(_get_nested(choices, "text") if isinstance(choices, dict) else choices)
        n = len(responses)
        record.choices = list(map(str, listed)) if len(listed) == n else [_option_text(row, i) for i in range(n)]
        if metric != "acc":  # other metrics do not grade the most likely option
            record.grade = None
    return record


def lm_eval_rows(rows: Sequence[Row], stem: str) -> Iterator[Row]:
    """Yield a row of values for each record of lm-evaluation-harness: id, grade, subject, and `softmax`.

    `softmax` is the confidence in the most likely option: the softmax over the options' log-likelihoods.

    Raises:
        UserError: an answer is a text, for which the log has no confidence, or a record has no accuracy.
    """
    task, metric = re.sub(r"^samples_|_\d{4}-\d\d-\d\dT.*$", "", stem), _binary_metric(rows)
    for row in (row for row in rows if row.values.get("filter") == rows[0].values.get("filter")):
        record, doc = _lm_eval(row, metric), _as_mapping(row.values.get("doc"))
        if not record.log_likelihoods or record.grade is None:
            raise _log_error(row, "the log-likelihoods of options and the metric acc, as texts have no confidence here")
        softmax = 1 / sum(math.exp(value - max(record.log_likelihoods)) for value in record.log_likelihoods)
        subject = str(doc.get("subject") or doc.get("category") or task)
        key = f"{task}/{row.values.get('doc_id', row.index)}"
        values = {"id": key, "correct": record.grade, "softmax": softmax, "subject": subject}
        yield Row(row.index, row.where, values)


def _option_text(row: Row, option: int) -> str:
    try:
        arguments = row.values["arguments"]
        text = arguments[f"gen_args_{option}"]["arg_1"] if isinstance(arguments, dict) else arguments[option][1]
    except (TypeError, LookupError) as error:
        raise _log_error(row, "the options' texts in 'arguments'") from error
    return str(text).strip()


# --- Inspect ----------------------------------------------------------------------------------------------------------


def inspect_records(path: Path) -> list[LogRecord]:
    """Read a log of Inspect: a record for each question, and one for each sample without a reply, which is left out.

    Raises:
        UserError: the file can't be read, is no log of Inspect, or has no answer.
    """
    samples = _read_inspect(path)[1]
    first_scorer = _first_scorer(samples)
    records: dict[str, LogRecord] = {}
    silent = []
    epochs = [epoch if isinstance(epoch := _get_nested(sample, "epoch"), int) else 1 for sample in samples]
    for i, (_, sample) in enumerate(sorted(zip(epochs, samples, strict=True), key=lambda pair: pair[0])):
        record = _inspect(Row(i, f"{path.name} sample {i}", sample), first_scorer)
        if record.left_out:
            silent.append(record)
            continue
        first = records.setdefault(record.names[0], record)
        if first is not record:
            start, stop = record.graded_part
            first.outputs += [record.outputs[0][start:stop], *record.outputs[1:]]
    if not records:
        raise UserError(f"{path.name}: expected samples with answers in the log, found none; was the run finished?")
    return [*records.values(), *silent]


def inspect_rows(path: Path, name: str) -> list[Row]:
    """Return a row of values for each sample of a log of Inspect that was scored.

    Besides `id`, `epoch`, `model`, `task` and `correct` (the grade by the log's first scorer), these are numbers and
    texts in scores and metadata: `score_SCORER`, `score_SCORER_KEY`, `metadata_KEY`, `store_KEY`.

    Raises:
        UserError: the file can't be read, is no log of Inspect, or no sample was scored.
    """
    header, samples = _read_inspect(path)
    ran, rows = {name: _get_nested(header, "eval", name) for name in ("model", "task")}, []
    first = _first_scorer(samples)
    for sample in filter(lambda sample: _as_mapping(_get_nested(sample, "scores")), samples):
        grade = _get_nested(sample, "scores", first, "value")
        values = {"correct": grade, **ran, "id": sample.get("id"), "epoch": sample.get("epoch")}
        for scorer, score in sample["scores"].items():
            value = _get_nested(score, "value")
            values[f"score_{scorer}"] = value
            parts = {**_as_mapping(_get_nested(score, "metadata")), **_as_mapping(value)}
            values |= {f"score_{scorer}_{key}": part for key, part in parts.items()}
        for what in ("metadata", "store"):
            values |= {f"{what}_{key}": part for key, part in _as_mapping(sample.get(what)).items()}
        rows.append({key: value for key, value in values.items() if isinstance(value, bool | int | float | str)})
    rows.sort(key=lambda row: row["epoch"] if isinstance(row.get("epoch"), int) else 1)
    if not rows:
        raise UserError(f"{name}: expected samples with scores in the log, found none; was the run finished?")
    return [Row(k, f"{name} row {k}", row) for k, row in enumerate(rows)]


def _first_scorer(samples: Sequence[Any]) -> str:
    """Return the name of the log's first scorer, which may have left out samples; empty if none was scored.

    It is the first that no sample has after another; if there is none, the first of the first scored sample.
    """
    scored = [list(_as_mapping(_get_nested(sample, "scores"))) for sample in samples]
    later = {name for names in scored for name in names[1:]}
    return min((name for names in scored for name in names), key=later.__contains__, default="")


def _read_inspect(path: Path) -> tuple[Any, Sequence[Any]]:
    """Return the header of a log of Inspect, and its samples.

    Raises:
        UserError: the file can't be read, or is no log of Inspect.
    """
    try:
        if path.suffix.lower() == ".eval":
            entries = list(_unzip_log(path))
            headers = [value for name, value in entries if not name.startswith("samples/")]
            return (headers or [None])[-1], [value for name, value in entries if name.startswith("samples/")]
        if path.stat().st_size > _MAX_LOG_BYTES:
            raise ValueError(f"it has more than {_MAX_LOG_BYTES:,} bytes")
        header = json.loads(path.read_bytes())
        return header, _as_list(_get_nested(header, "samples"))
    except OSError as error:
        raise UserError(f"Expected a log at {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path.name}: expected a log of Inspect in JSON, got something else ({error})") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise UserError(f"{path.name}: expected a whole log of Inspect, but it can't be unpacked ({error})") from error


def _unzip_log(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield names and contents of the samples and of the header of a zip archive.

    The size limits apply to the bytes that are actually unpacked.
    """
    import pyarrow as pa

    remaining = _MAX_LOG_BYTES
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            name, limit = entry.filename, min(remaining, _MAX_ENTRY_BYTES)
            if not re.fullmatch(r"samples/.*\.json|_journal/start\.json|header\.json", name):
                continue
            if entry.compress_type == _ZSTANDARD:
                file.seek(entry.header_offset + 26)  # the local header ends with the lengths of name and extra field
                file.seek(sum(int.from_bytes(file.read(2), "little") for _ in range(2)), 1)
                compressed = file.read(min(entry.compress_size, limit))
                try:
                    with pa.CompressedInputStream(pa.BufferReader(compressed), "zstd") as stream:
                        data = stream.read(limit + 1)
                except (OSError, pa.ArrowException) as error:
                    raise zipfile.BadZipFile(f"{name} is damaged") from error
            else:
                with archive.open(entry) as member:
                    data = member.read(limit + 1)
            if len(data) > limit:
                raise ValueError(f"{name} has more than {limit:,} bytes")
            if zlib.crc32(data) != entry.CRC:
                raise zipfile.BadZipFile(f"{name} is damaged")
            remaining -= len(data)
            yield name, json.loads(data)


def _inspect(row: Row, scorer: str) -> LogRecord:
    sample = row.values
    if not isinstance(sample, dict) or not isinstance(sample.get("id"), str | int):
        raise _log_error(row, "a sample with an id, as Inspect writes it")
    answers = _as_list(_get_nested(sample, "output", "choices"))
    outputs = [_content(sample, _get_nested(answer, "message", "content")) for answer in answers]
    if not outputs:
        return LogRecord((), (), [], left_out="without a reply")
    prompt = sample.get("input")
    if isinstance(prompt, list):  # the question is the last user message of a conversation
        contents = [turn.get("content") for turn in prompt if isinstance(turn, dict) and turn.get("role") == "user"]
        question = _content(sample, contents[-1])[1] if contents else ""
    else:
        question = _attachment(sample, prompt)
    texts = [question, *(value for value in _as_mapping(sample.get("metadata")).values() if isinstance(value, str))]
    record = LogRecord(
        [str(sample["id"])], list(filter(None, texts)), [text for _, text in outputs], trace=outputs[0][0],
        choices=list(map(str, _as_list(sample.get("choices")))),
    )  # fmt: skip
    first = _as_list(_get_nested(answers[0], "message", "content"))
    record.redacted = any(bool(_get_nested(part, "redacted")) for part in first)
    value, final = (_get_nested(sample, "scores", scorer, key) for key in ("value", "answer"))
    record.judge = f"inspect {scorer}"
    record.grade = _GRADES.get(value) if isinstance(value, str | int | float) else None
    if isinstance(final, str) and final.strip() and final != record.outputs[0]:
        record.final = final
    return record


def _content(sample: Mapping[str, Any], content: Any) -> tuple[str, str]:
    """Return two texts of a message: its reasoning, which may be empty, and its answer."""
    if not isinstance(content, list):
        return "", _attachment(sample, content)
    parts = [part for part in content if isinstance(part, dict)]
    thoughts = (part for part in parts if part.get("type") == "reasoning" and not part.get("redacted"))
    trace = "".join(_attachment(sample, part.get("reasoning")) for part in thoughts)
    text = "".join(_attachment(sample, part.get("text")) for part in parts if part.get("type") == "text")
    return trace, text


def _attachment(sample: Mapping[str, Any], text: Any) -> str:
    if isinstance(text, str) and text.startswith("attachment://"):
        text = _as_mapping(sample.get("attachments")).get(text.removeprefix("attachment://"), text)
    return text if isinstance(text, str) else ""


# --- JSON of any shape ------------------------------------------------------------------------------------------------


def _get_nested(value: Any, *keys: str) -> Any:
    """Return the value in nested JSON objects, found by taking one key after the other; None if a key is missing."""
    for key in keys:
        value = _as_mapping(value).get(key)
    return value


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _log_error(row: Row, expected: str) -> UserError:
    return UserError(f"{row.where}: expected {expected}, got something else; name a log of the tool's own")
