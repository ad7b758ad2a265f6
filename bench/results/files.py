"""Read and write results: `results/<model>/<task>/<method>--<preset>--s<seed>[--<8 hex of config>].json`, with Parquet.

The JSON file has a `ResultRow` as strict JSON (no NaN), with sorted keys and a digest of its content. The Parquet file
has the same stem and one row per question; its digest is in the JSON file. Results of runs with `--limit N` are below
`partial/`, with names that end in `--nN`. A failed or skipped run does not replace earlier numbers: it is stored as
`….failed.json`, which is removed when a run of the cell succeeds. Example:
`results/tiny/atlas-choice/ccps--demo--s0.json`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from bench.api import UserError
from bench.data.tables import exact_table, parquet_bytes
from bench.model.specs import NAME, model_label
from bench.results.provenance import tracked_files
from bench.results.question_records import QuestionRecords
from bench.results.row import SCHEMA_VERSION, ResultRow
from bench.store.decoding import decode_record, parse_json
from bench.store.disk_cache import DIGEST, digest_file, with_digest
from bench.store.files import json_text, named_errors, write_atomic
from bench.store.locks import folder_lock

SEPARATOR = "--"
RECALIBRATED = "+"
"""Separator between the name of a method and the name of its recalibration, as in `ccps+isotonic`."""
PARTIAL = "partial"
ANALYSES = "analyses"
"""Name of the folder that `bench analyze` and `bench guard` write tables and figures to; results are not in it."""
RESERVED = frozenset({PARTIAL, ANALYSES, "transfer", "paper", "questions"})
"""Names of folders of `results/` that are not models."""

_MAX_DEPTH = 20
"""Largest allowed nesting of objects and lists in a field that may hold any JSON."""
FAILED = ".failed.json"
"""File name suffix of a failed or skipped run's result."""


# --- names and paths --------------------------------------------------------------------------------------------------


def base_of(method: str) -> str:
    """Return a method's name without the recalibration appended to it.

    >>> base_of("ccps+isotonic"), base_of("ccps")
    ('ccps', 'ccps')
    """
    return method.partition(RECALIBRATED)[0]


def recalibration_of(method: str) -> str:
    """Return the name of the recalibration appended to a method's name; empty without one.

    >>> recalibration_of("ccps+isotonic"), recalibration_of("ccps")
    ('isotonic', '')
    """
    return method.partition(RECALIBRATED)[2]


def model_folder(model: str) -> str:
    """Return the folder name of a model: its label with `--` for `/`; with `_` at the end if the name is in RESERVED.

    >>> model_folder("Qwen/Qwen2.5-14B-Instruct"), model_folder("partial")
    ('Qwen--Qwen2.5-14B-Instruct', 'partial_')
    """
    folder = model_label(model).replace("/", SEPARATOR)
    return f"{folder}_" if folder.casefold() in RESERVED else folder


def path_of(row: ResultRow, out: Path) -> Path:
    """Return the path of a result's JSON file below the folder `out`; nothing is written.

    Raises:
        UserError: method, task or preset can't be part of a file name.
    """
    for kind, name in (("method", row.method), ("preset", row.preset), ("task", row.task)):
        if not NAME.fullmatch(name):
            raise UserError(
                f"{kind} name {name!r} can't be part of a file name: expected letters, digits and single . _ + -"
                f" (no {SEPARATOR!r}, at most 80), beginning with a letter or digit; rename it"
            )
    parts = [row.method, row.preset, f"s{row.seed}"]
    if row.config:
        parts.append(config_digest(row.config))
    if row.limit is not None:
        parts.append(f"n{row.limit}")
    base = out if row.limit is None else out / PARTIAL
    ending = ".json" if row.status == "ok" else FAILED
    return base / model_folder(row.model) / row.task / f"{SEPARATOR.join(parts)}{ending}"


def stored_path(row: ResultRow, results: Path) -> Path:
    """Return the path of a result's JSON file; `results` is the results folder or its subfolder `partial`."""
    limited = row.limit is not None and results.absolute().name == PARTIAL
    return path_of(row, results.absolute().parent if limited else results)


def config_digest(config: Mapping[str, Any]) -> str:
    """Return the first 8 hex digits of the SHA-256 of a configuration."""
    return hashlib.sha256(json.dumps(_encode(config), sort_keys=True).encode()).hexdigest()[:8]


def ensure_writable(out: Path) -> None:
    """Check, before any work is done, that results can be written below `out`; no file remains there.

    Raises:
        UserError: results can't be written.
    """
    with _unwritable(out):
        places = (out.absolute(), *out.absolute().parents)
        existing = next(place for place in places if place.is_symlink() or place.exists())  # a link may lead nowhere
        with tempfile.TemporaryFile(dir=existing):
            pass


def refuse_tracked(rows: Iterable[ResultRow], out: Path, others: Iterable[Path] = ()) -> None:
    """Check that the files of these results are none that git tracks, in the repository of the folder `out`.

    Args:
        rows: the results.
        out: the results folder.
        others: further files below it that would be replaced.

    Raises:
        UserError: git tracks one.
    """
    tracked, paths = tracked_files(out), [path_of(row, out) for row in rows]
    every = [*paths, *(path.with_suffix(FAILED) for path in paths), *others]
    if found := [path for path in every if path.relative_to(out).as_posix() in tracked]:
        raise UserError(
            f"{found[0]}{' and others' * (len(found) > 1)}: git tracks this, and the run would change it; name another"
            " folder with --out, or replace what is there with --overwrite"
        )


# --- writing ----------------------------------------------------------------------------------------------------------


def write(row: ResultRow, records: QuestionRecords | None, out: Path) -> Path:
    """Write the JSON file and the Parquet file of a result; return the JSON file's path.

    The write is atomic: if the process is killed, either both files are old or both are new. The new Parquet file is
    written first, under a temporary name with its digest. Then the JSON file is written, which has this digest, and the
    Parquet file gets its final name. If that last step is missing, `read` does it. A result whose status is not ok has
    no records, and does not replace stored ones.

    Args:
        row: the result; its `records_digest` is set here.
        records: values per question of a result whose status is ok; None for other results.
        out: the results folder.

    Raises:
        UserError: the folder can't be written, or a name can't be part of a file name. The old files
            then stay.
        ValueError: records don't fit the status, columns differ in length, or a number in `row` is NaN or infinite.
    """
    if (row.status == "ok") != (records is not None):
        raise ValueError(f"expected records exactly for status ok, got status {row.status} of {row.method}")
    path = path_of(row, out)
    columns = digest = None
    if records is not None:
        import pyarrow as pa

        types, score = _column_types()
        types |= {} if records.score is None else score
        arrays = {name: pa.array(getattr(records, name), type=type_) for name, type_ in types.items()}
        columns = parquet_bytes(pa.table(arrays))
        digest = hashlib.sha256(columns).hexdigest()
    text = to_json(dataclasses.replace(row, records_digest=digest)).encode()
    with _unwritable(out):
        path.parent.mkdir(parents=True, exist_ok=True)
        if columns is None or digest is None:
            write_atomic(path, text)
        else:
            with folder_lock(path.parent):
                write_atomic(_pending(path, digest), columns)
                write_atomic(path, text)
                _finish(path, digest)
    return path


def _pending(path: Path, digest: str) -> Path:
    """Return the temporary path that a result's Parquet file has until the JSON file is written."""
    return path.with_name(f".{path.stem}.{digest[:8]}.parquet")


def _finish(path: Path, digest: str) -> None:
    """Give a pending Parquet file, if there is one, its final name; remove pending files with other digests.

    Remove the file of an earlier failed run, too, now that the new result is complete. The caller must hold the
    folder's lock.
    """
    pending = _pending(path, digest)
    if pending.is_file() and digest_file(pending) == digest:
        path.with_suffix(FAILED).unlink(missing_ok=True)
        pending.replace(path.with_suffix(".parquet"))
    for leftover in path.parent.glob(f".{escape(path.stem)}.{'[0-9a-f]' * 8}.parquet"):
        leftover.unlink(missing_ok=True)


def to_json(row: ResultRow) -> str:
    """Serialise a result as strict JSON with sorted keys and a final newline.

    A model's path is replaced by its label.
    """
    public = dataclasses.replace(row, model=model_label(row.model))
    return json_text(with_digest(_encode(public)), sort_keys=True)


def _column_types() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two dicts, column name -> Parquet type: the columns of all methods, and the extra column `score`."""
    import pyarrow as pa

    columns = {
        "id": pa.string(), "subject": pa.string(), "correct": pa.bool_(), "confidence": pa.float64(),
        "answer": pa.string(), "parsed": pa.bool_(),
    }  # fmt: skip
    return columns, {"score": pa.float64()}


def _encode(value: Any) -> Any:
    """Convert dataclasses, mappings, sequences and numpy scalars to types that `json` can serialise."""
    if dataclasses.is_dataclass(value):
        return {field.name: _encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _unwritable(out: Path) -> AbstractContextManager[None]:
    return named_errors(f"results folder {str(out)!r} can't be written", "; name another one with --out")


# --- reading ----------------------------------------------------------------------------------------------------------


def read(path: Path) -> ResultRow:
    """Read the result of a JSON file; check its fields, its digest and the digest of its Parquet file.

    If the process that wrote the result was killed before the last step, that step is done here.

    Raises:
        UserError: the file is invalid, or its Parquet file is missing or has another digest; the message names the
            file.
    """
    parquet = path.with_suffix(".parquet")
    try:
        row = _read_row(path)
        if row.status != "ok" or _digest_of(parquet) == row.records_digest:
            return row
        with folder_lock(path.parent):  # another process is writing the two files, or was killed meanwhile
            row = _read_row(path)
            _finish(path, str(row.records_digest))
        digest = _digest_of(parquet)
    except OSError as error:
        raise UserError(
            f"result {error.filename or path} can't be read ({error.strerror or error}); try again"
        ) from error
    if digest is None:
        raise UserError(f"result {path} has no {parquet.name} beside it; copy both, or run it again")
    if digest != row.records_digest:
        raise UserError(
            f"result {parquet} is not the file that its JSON file was written with: expected SHA-256"
            f" {str(row.records_digest)[:16]}, got {digest[:16]}; copy both files again, or run that cell again"
        )
    return row


def _read_row(path: Path) -> ResultRow:
    remedy = "copy it again, or run that cell again"
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("expected a JSON object")  # noqa: TRY004 - one exception type for all invalid files
        if (version := values.get("schema_version")) != SCHEMA_VERSION:
            raise ValueError(f"schema version {version!r}; this program reads version {SCHEMA_VERSION}")
        row = decode_record({name: value for name, value in values.items() if name != DIGEST}, ResultRow)
        if not isinstance(row.provenance.get("code", {}), Mapping):
            raise ValueError("provenance.code: expected an object")  # noqa: TRY004 - as above
        for name in ("config", "deviations", "provenance"):
            if not _is_shallow(getattr(row, name), _MAX_DEPTH):
                raise ValueError(f"{name}: expected at most {_MAX_DEPTH} levels")
        if values.get(DIGEST) != with_digest(values)[DIGEST]:
            raise ValueError("its digest is not that of what it says, so something in it was changed")
        return row
    except RecursionError as error:
        raise UserError(f"result {path} is nested too deep; {remedy}") from error
    except ValueError as error:  # also what JSON and UTF-8 decoding raise
        raise UserError(f"result {path}: {error}; {remedy}") from error


def _digest_of(path: Path) -> str | None:
    """Return the SHA-256 of a file, in hex; None if the file does not exist."""
    try:
        return digest_file(path)
    except FileNotFoundError:
        return None


def read_records(path: Path) -> QuestionRecords:
    """Read a result's values per question from its Parquet file; `path` is the Parquet file or the JSON file.

    Raises:
        UserError: the file is missing or not Parquet, has other columns or nulls, has a score that is NaN or
            +infinity, or has a confidence that is NaN or outside [0, 1]. If the file has scores, the confidences may
            all be NaN.
    """
    path = path.with_suffix(".parquet")
    try:
        table = exact_table(path, *_column_types())
    except ValueError as error:
        raise UserError(f"result {path} {error}; run that cell again") from error
    columns = {name: table[name] for name in table.column_names}
    confidence = columns["confidence"].to_numpy()
    score = columns["score"].to_numpy() if "score" in columns else None
    infinite = np.zeros(0, dtype=np.int64) if score is None else np.flatnonzero(~(score < np.inf))
    if score is not None and infinite.size:
        raise UserError(f"result {path}: score {score[infinite[0]]} in row {infinite[0]}; expected a finite one")
    bad = np.flatnonzero(~((confidence >= 0) & (confidence <= 1)))
    if bad.size and (score is None or not np.isnan(confidence).all()):
        raise UserError(f"result {path}: confidence {confidence[bad[0]]} in row {bad[0]}; expected values in [0, 1]")
    return QuestionRecords(
        id=columns["id"].to_pylist(),
        subject=columns["subject"].to_pylist(),
        correct=columns["correct"].to_numpy(),
        confidence=confidence,
        answer=columns["answer"].to_pylist(),
        parsed=columns["parsed"].to_numpy(),
        score=score,
    )


def records_of(row: ResultRow, results: Path) -> QuestionRecords:
    """Load the question records of a result in a folder of results; see `stored_path` and `read_records`."""
    return read_records(stored_path(row, results))


def _is_shallow(value: Any, levels: int) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(_is_shallow(child, levels - 1) for child in children)
