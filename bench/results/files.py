"""ResultRow <-> `results/<model>/<task>/<method>--<preset>--s<seed>[--<8 hex of config>].json`, with a Parquet file.

The JSON file is strict (no NaN), sorted, and written last, so that where it stands the cell is complete; the Parquet
file of the same stem has one row per question, and its digest stands in the JSON file. Runs with `--limit` lie under
`partial/`. Example: `results/tiny/atlas-choice/ccps--demo--s0.json`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import re
import tempfile
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.api import BoolArray, FloatArray, UserError
from bench.backbone.models import NAME, model_label
from bench.results.row import SCHEMA_VERSION, ResultRow
from bench.store.decoding import decoded, parsed
from bench.store.files import write_whole
from bench.store.folders import digest_file

SEPARATOR = "--"
RECALIBRATED = "+"
"""Between a method and the recalibrator of its confidences, e.g. `ccps+isotonic`."""
PARTIAL = "partial"
RESERVED = frozenset({PARTIAL, "paper", "questions"})
"""Folders of `results/` that are no model's."""

_DEEPEST = 20
"""Levels of objects and lists in a field that holds any values."""


@dataclass(frozen=True, eq=False)
class Records:
    """One cell question by question; all columns have n rows in the task's order."""

    id: Sequence[str]
    subject: Sequence[str]
    correct: BoolArray
    confidence: FloatArray
    answer: Sequence[str]
    """Text that the model generated."""
    parsed: BoolArray


# --- names and paths --------------------------------------------------------------------------------------------------


def base_of(method: str) -> str:
    """The method without its recalibration.

    >>> base_of("ccps+isotonic"), base_of("ccps")
    ('ccps', 'ccps')
    """
    return method.partition(RECALIBRATED)[0]


def recalibration_of(method: str) -> str:
    """Recalibration of a method's confidences; empty where they are as they were.

    >>> recalibration_of("ccps+isotonic"), recalibration_of("ccps")
    ('isotonic', '')
    """
    return method.partition(RECALIBRATED)[2]


def model_folder(model: str) -> str:
    """Folder name of a model: its label with `/` as `--`; `_` is appended where that is RESERVED.

    >>> model_folder("Qwen/Qwen2.5-14B-Instruct"), model_folder("partial")
    ('Qwen--Qwen2.5-14B-Instruct', 'partial_')
    """
    folder = model_label(model).replace("/", SEPARATOR)
    return f"{folder}_" if folder.casefold() in RESERVED else folder


def path_of(row: ResultRow, out: Path) -> Path:
    """Path at which the row's JSON file belongs; nothing is touched.

    Raises:
        UserError: method, task or preset is no safe name.
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
    base = out if row.limit is None else out / PARTIAL
    return base / model_folder(row.model) / row.task / f"{SEPARATOR.join(parts)}.json"


def config_digest(config: Mapping[str, Any]) -> str:
    """First 8 hex digits of the SHA-256 of a configuration."""
    return hashlib.sha256(json.dumps(_encode(config), sort_keys=True).encode()).hexdigest()[:8]


def ensure_writable(out: Path) -> None:
    """Check before any work that results can be written below `out`; leaves nothing behind.

    Raises:
        UserError: they can't.
    """
    existing = out.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise _unwritable(out, error) from error


# --- writing ----------------------------------------------------------------------------------------------------------


def write(row: ResultRow, records: Records | None, out: Path) -> Path:
    """Write a cell, JSON last; returns the JSON file's path.

    Killed at any moment, it leaves the whole cell or none: an older JSON file goes first. Cells that aren't ok have no
    records. `records_digest` is set here.

    Raises:
        UserError: the folder can't be written, or a name is not safe.
        ValueError: records and status, or their lengths, don't fit; a number is NaN or infinite.
    """
    if (row.status == "ok") != (records is not None):
        raise ValueError(f"expected records exactly for status ok, got status {row.status} of {row.method}")
    path = path_of(row, out)
    columns = None if records is None else _parquet(records)
    digest = None if columns is None else hashlib.sha256(columns).hexdigest()
    text = to_json(dataclasses.replace(row, records_digest=digest))
    try:
        path.unlink(missing_ok=True)
        if columns is None:
            path.with_suffix(".parquet").unlink(missing_ok=True)
        else:
            write_whole(path.with_suffix(".parquet"), columns)
        write_whole(path, text.encode())
    except OSError as error:
        raise _unwritable(out, error) from error
    return path


def to_json(row: ResultRow) -> str:
    """The row as strict JSON, keys sorted, ending in a newline; a model's path is replaced by its label."""
    public = dataclasses.replace(row, model=model_label(row.model))
    return json.dumps(_encode(public), allow_nan=False, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def _parquet(records: Records) -> bytes:
    """The bytes of the Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: pa.array(getattr(records, name), type=kind) for name, kind in _columns().items()})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _columns() -> dict[str, Any]:
    import pyarrow as pa

    return {
        "id": pa.string(), "subject": pa.string(), "correct": pa.bool_(), "confidence": pa.float64(),
        "answer": pa.string(), "parsed": pa.bool_(),
    }  # fmt: skip


def _encode(value: Any) -> Any:
    """Dataclasses, mappings, sequences and numpy scalars as what `json` knows."""
    if dataclasses.is_dataclass(value):
        return {field.name: _encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _unwritable(out: Path, error: OSError) -> UserError:
    return UserError(
        f"results folder {str(out)!r} can't be written ({error.strerror or error}); name another one with --out"
    )


# --- reading ----------------------------------------------------------------------------------------------------------


def read(path: Path) -> ResultRow:
    """Read one JSON file, checked field by field, and its Parquet file's digest.

    Raises:
        UserError: it is not such a file, or its Parquet file is missing or another one; names the file.
    """
    try:
        row = _row_from(parsed(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"result {path} can't be read ({error.strerror or error})") from error
    except RecursionError as error:
        raise UserError(f"result {path} is nested too deep; delete the file and run that cell again") from error
    except ValueError as error:  # also what JSON and UTF-8 decoding raise
        raise UserError(f"result {path}: {error}; delete the file and run that cell again") from error
    if row.status == "ok":
        _require_records(path.with_suffix(".parquet"), row)
    return row


def _require_records(path: Path, row: ResultRow) -> None:
    """Refuse a Parquet file that is not the one that the row was written with."""
    if not path.is_file():
        raise UserError(f"result {path.with_suffix('.json')} has no {path.name} beside it; copy both, or run it again")
    try:
        digest = digest_file(path)
    except OSError as error:
        raise UserError(f"result {path} can't be read ({error.strerror or error})") from error
    if digest != row.records_digest:
        raise UserError(
            f"result {path} is not the file that its JSON file was written with: expected SHA-256"
            f" {str(row.records_digest)[:16]}, got {digest[:16]}; copy both files again, or run that cell again"
        )


def read_all(folder: Path, *, partial: bool = False) -> list[ResultRow]:
    """All rows below a results folder, in the order of their paths.

    Args:
        folder: of results.
        partial: also the rows of runs with `--limit`.

    Raises:
        UserError: there is no such folder, or a file in it is not as it must be.
    """
    return [read(file) for file in files(folder, partial=partial)]


def files(folder: Path, *, partial: bool = False) -> list[Path]:
    """The JSON files that `read_all` reads, in its order.

    Raises:
        UserError: there is no such folder.
    """
    if not folder.is_dir():
        raise UserError(f"results folder {str(folder)!r} does not exist; run something first: bench run --method all")
    models = {file: file.relative_to(folder).parts[0] for file in sorted(folder.glob("*/*/*.json"))}
    whole = [file for file, model in models.items() if model not in RESERVED and not model.startswith(".")]
    limited = folder / PARTIAL
    return [*whole, *files(limited)] if partial and limited.is_dir() else whole


def read_records(path: Path) -> Records:
    """The questions of a cell, from the Parquet file beside its JSON file (either path will do).

    Raises:
        UserError: missing, not Parquet, other columns, nulls, or a confidence that is NaN or outside [0, 1].
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = path.with_suffix(".parquet")
    try:
        table = pq.read_table(path, memory_map=False)
        table.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"result {path} can't be read ({error}); run that cell again") from error
    expected = pa.schema(list(_columns().items()))
    if table.schema.remove_metadata() != expected or any(column.null_count for column in table.columns):
        wanted = ", ".join(f"{name} {kind}" for name, kind in _columns().items())
        raise UserError(f"result {path}: expected the columns {wanted} without nulls; run that cell again")
    columns = {name: table[name] for name in table.column_names}
    confidence = columns["confidence"].to_numpy()
    bad = np.flatnonzero(~((confidence >= 0) & (confidence <= 1)))
    if bad.size:
        raise UserError(f"result {path}: confidence {confidence[bad[0]]} in row {bad[0]}; expected values in [0, 1]")
    return Records(
        id=columns["id"].to_pylist(),
        subject=columns["subject"].to_pylist(),
        correct=columns["correct"].to_numpy(),
        confidence=confidence,
        answer=columns["answer"].to_pylist(),
        parsed=columns["parsed"].to_numpy(),
    )


def schema() -> str:
    """Fields and types of a result as text, one per line; what the schema version stands for."""
    lines: list[str] = []
    pending: list[type] = [ResultRow]
    for record in pending:
        for name, hint in typing.get_type_hints(record).items():
            lines.append(f"{record.__name__}.{name}: {hint if typing.get_args(hint) else hint.__name__}")
            pending += [part for part in _record_types(hint) if part not in pending]
    lines += [f"parquet.{name}: {kind}" for name, kind in _columns().items()]
    return re.sub(r"\bbench[\w.]*\.(?=\w)", "", "\n".join(lines)) + "\n"  # a record may move to another module


def _record_types(hint: Any) -> Iterator[type]:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for argument in typing.get_args(hint):
        yield from _record_types(argument)


def _row_from(values: Any) -> ResultRow:
    """Build the row; ValueErrors say which field is wrong."""
    if not isinstance(values, dict):
        raise ValueError("expected a JSON object")  # noqa: TRY004 - one kind of error for whatever is wrong in a file
    version = values.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(f"schema version {version!r}; this program reads version {SCHEMA_VERSION}")
    row = decoded(values, ResultRow)
    if not isinstance(row.provenance.get("code", {}), Mapping):
        raise ValueError("provenance.code: expected an object")  # noqa: TRY004 - as above
    for name in ("config", "deviations", "provenance"):
        if not _is_shallow(getattr(row, name), _DEEPEST):
            raise ValueError(f"{name}: expected at most {_DEEPEST} levels")
    return row


def _is_shallow(value: Any, levels: int) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(_is_shallow(part, levels - 1) for part in parts)
