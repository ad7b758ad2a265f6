"""ResultRow <-> `results/<model>/<task>/<method>--<preset>--s<seed>[--<8 hex of config>].json`, with a Parquet file.

The JSON file is strict (no NaN), sorted, and has a digest of what it says. The Parquet file of the same stem has one
row per question; its digest stands in the JSON file. Runs with `--limit N` lie under `partial/`, and their names end in
`--nN`. A run that ended without numbers takes none away: it is told in `….failed.json`, until one has numbers again.
Example: `results/tiny/atlas-choice/ccps--demo--s0.json`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Mapping
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from bench.api import UserError
from bench.data.tables import exact_table, parquet_bytes
from bench.model.specs import NAME, model_label
from bench.results.records import Records
from bench.results.row import SCHEMA_VERSION, ResultRow
from bench.store.decoding import decoded, parsed
from bench.store.files import json_text, write_whole
from bench.store.folders import DIGEST, digest_file, sealed
from bench.store.locks import folder_lock

SEPARATOR = "--"
RECALIBRATED = "+"
"""Between a method and the recalibrator of its confidences, e.g. `ccps+isotonic`."""
PARTIAL = "partial"
ANALYSES = "analyses"
"""Tables and figures that `bench analyze` and `bench guard` write; no result is among them."""
RESERVED = frozenset({PARTIAL, ANALYSES, "transfer", "paper", "questions"})
"""Folders of `results/` that are no model's."""

_DEEPEST = 20
"""Levels of objects and lists in a field that holds any values."""
FAILED = ".failed.json"
"""Ending of the file of a run that ended without numbers."""


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
    """Path at which the row's JSON file belongs, beside its numbers where it has none; nothing is touched.

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
    if row.limit is not None:
        parts.append(f"n{row.limit}")
    base = out if row.limit is None else out / PARTIAL
    ending = ".json" if row.status == "ok" else FAILED
    return base / model_folder(row.model) / row.task / f"{SEPARATOR.join(parts)}{ending}"


def place_of(row: ResultRow, results: Path) -> Path:
    """Path of a row's JSON file where it was read below a folder of results, or below the `partial` in one."""
    limited = row.limit is not None and results.absolute().name == PARTIAL
    return path_of(row, results.absolute().parent if limited else results)


def config_digest(config: Mapping[str, Any]) -> str:
    """First 8 hex digits of the SHA-256 of a configuration."""
    return hashlib.sha256(json.dumps(_encode(config), sort_keys=True).encode()).hexdigest()[:8]


def ensure_writable(out: Path) -> None:
    """Check before any work that results can be written below `out`; leaves nothing behind.

    Raises:
        UserError: they can't.
    """
    existing = next(place for place in (out.absolute(), *out.absolute().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise _unwritable(out, error) from error


# --- writing ----------------------------------------------------------------------------------------------------------


def write(row: ResultRow, records: Records | None, out: Path) -> Path:
    """Write a cell; returns the JSON file's path.

    Killed at any moment, it leaves the cell as it was or as it is now: the new Parquet file waits under a name with its
    digest until the JSON file that names it is there, and whoever reads that finds it. Cells that aren't ok have no
    records, and take none away. `records_digest` is set here.

    Raises:
        UserError: the folder can't be written, or a name is not safe; an older cell stays.
        ValueError: records and status, or their lengths, don't fit; a number is NaN or infinite.
    """
    if (row.status == "ok") != (records is not None):
        raise ValueError(f"expected records exactly for status ok, got status {row.status} of {row.method}")
    path = path_of(row, out)
    columns = digest = None
    if records is not None:
        import pyarrow as pa

        kinds, score = _columns()
        kinds |= {} if records.score is None else score
        arrays = {name: pa.array(getattr(records, name), type=kind) for name, kind in kinds.items()}
        columns = parquet_bytes(pa.table(arrays))
        digest = hashlib.sha256(columns).hexdigest()
    text = to_json(dataclasses.replace(row, records_digest=digest)).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if columns is None or digest is None:
            write_whole(path, text)
        else:
            with folder_lock(path.parent):
                write_whole(_pending(path, digest), columns)
                write_whole(path, text)
                _finish(path, digest)
    except OSError as error:
        raise _unwritable(out, error) from error
    return path


def _pending(path: Path, digest: str) -> Path:
    """Name of a Parquet file whose JSON file is not there yet, or has just been written."""
    return path.with_name(f".{path.stem}.{digest[:8]}.parquet")


def _finish(path: Path, digest: str) -> None:
    """Give a Parquet file that its JSON file waits for its name, if there is one, and remove others that waited.

    With it goes the account of a failure before, not earlier: else a write that fails takes away what there was.

    To be called by one process at a time.
    """
    pending = _pending(path, digest)
    if pending.is_file() and digest_file(pending) == digest:
        path.with_suffix(FAILED).unlink(missing_ok=True)
        pending.replace(path.with_suffix(".parquet"))
    for left in path.parent.glob(f".{escape(path.stem)}.{'[0-9a-f]' * 8}.parquet"):
        left.unlink(missing_ok=True)


def to_json(row: ResultRow) -> str:
    """The row as strict JSON, keys sorted, ending in a newline; a model's path is replaced by its label."""
    public = dataclasses.replace(row, model=model_label(row.model))
    return json_text(sealed(_encode(public)), sort_keys=True)


def _columns() -> tuple[dict[str, Any], dict[str, Any]]:
    """Columns of a Parquet file, and that of methods that give scores, which other results don't have."""
    import pyarrow as pa

    columns = {
        "id": pa.string(), "subject": pa.string(), "correct": pa.bool_(), "confidence": pa.float64(),
        "answer": pa.string(), "parsed": pa.bool_(),
    }  # fmt: skip
    return columns, {"score": pa.float64()}


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
    """Read one JSON file, checked field by field, and the digests of it and of its Parquet file.

    A write that was killed between the two files is finished here.

    Raises:
        UserError: it is not such a file, or its Parquet file is missing or another one; names the file.
    """
    parquet = path.with_suffix(".parquet")
    try:
        row = _row_at(path)
        if row.status != "ok" or _digest_of(parquet) == row.records_digest:
            return row
        with folder_lock(path.parent):  # another process is writing the two, or died on it
            row = _row_at(path)
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


def _row_at(path: Path) -> ResultRow:
    way_out = "copy it again, or run that cell again"
    try:
        values = parsed(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("expected a JSON object")  # noqa: TRY004 - one kind for whatever is wrong in a file
        version = values.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(f"schema version {version!r}; this program reads version {SCHEMA_VERSION}")
        row = decoded({name: value for name, value in values.items() if name != DIGEST}, ResultRow)
        if not isinstance(row.provenance.get("code", {}), Mapping):
            raise ValueError("provenance.code: expected an object")  # noqa: TRY004 - as above
        for name in ("config", "deviations", "provenance"):
            if not _is_shallow(getattr(row, name), _DEEPEST):
                raise ValueError(f"{name}: expected at most {_DEEPEST} levels")
        if values.get(DIGEST) != sealed(values)[DIGEST]:
            raise ValueError("its digest is not that of what it says, so something in it was changed")
        return row
    except RecursionError as error:
        raise UserError(f"result {path} is nested too deep; {way_out}") from error
    except ValueError as error:  # also what JSON and UTF-8 decoding raise
        raise UserError(f"result {path}: {error}; {way_out}") from error


def _digest_of(path: Path) -> str | None:
    """SHA-256 of a file; None where there is none."""
    try:
        return digest_file(path)
    except FileNotFoundError:
        return None


def read_records(path: Path) -> Records:
    """The questions of a cell, from the Parquet file beside its JSON file (either path will do).

    Raises:
        UserError: missing, not Parquet, other columns, nulls, a confidence outside [0, 1], or NaN where it has to be
            known.
    """
    path = path.with_suffix(".parquet")
    try:
        table = exact_table(path, *_columns())
    except ValueError as error:
        raise UserError(f"result {path} {error}; run that cell again") from error
    columns = {name: table[name] for name in table.column_names}
    confidence = columns["confidence"].to_numpy()
    score = columns["score"].to_numpy() if "score" in columns else None
    strange = np.zeros(0, dtype=np.int64) if score is None else np.flatnonzero(~(score < np.inf))
    if score is not None and strange.size:
        raise UserError(f"result {path}: score {score[strange[0]]} in row {strange[0]}; expected a finite one")
    bad = np.flatnonzero(~((confidence >= 0) & (confidence <= 1)))
    if bad.size and (score is None or not np.isnan(confidence).all()):
        raise UserError(f"result {path}: confidence {confidence[bad[0]]} in row {bad[0]}; expected values in [0, 1]")
    return Records(
        id=columns["id"].to_pylist(),
        subject=columns["subject"].to_pylist(),
        correct=columns["correct"].to_numpy(),
        confidence=confidence,
        answer=columns["answer"].to_pylist(),
        parsed=columns["parsed"].to_numpy(),
        score=score,
    )


def _is_shallow(value: Any, levels: int) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(_is_shallow(part, levels - 1) for part in parts)
