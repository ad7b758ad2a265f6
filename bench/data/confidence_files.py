"""Reading of files with confidences that somebody already has (`bench audit FILE`), as columns of values.

Spreadsheets are CSV, JSON Lines, JSON (a list of objects) or Parquet, one row for each answer. Logs of Inspect
(`.eval`, `.json`) and samples of lm-evaluation-harness (`samples_*.jsonl`) are recognised by what is in them. Example:
`read_sheets([Path("scores.csv")]).columns["correct"]`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.api import UserError
from bench.api.errors import require_text
from bench.data.logs import inspect_columns, lm_eval_columns
from bench.data.tables import csv_rows, decode_utf8, json_lines, parquet_table, read_file, require_rows

if TYPE_CHECKING:
    from pandas import DataFrame

ENDINGS = (".csv", ".jsonl", ".json", ".parquet", ".eval")
MOST_BYTES = 500_000_000
"""Largest size of a file in bytes; its values are held in memory. Logs of Inspect have a limit of their own."""
MOST_ROWS = 2_000_000
_PICKLES = frozenset({".man", ".pkl", ".pickle", ".pt", ".npy", ".npz"})
LM_EVAL, INSPECT = "lm-eval", "inspect"


@dataclass(frozen=True)
class Sheet:
    """Columns of one or several files, all of the same length."""

    name: str
    """Name of the file without folder and ending, or of the first of several."""
    columns: Mapping[str, Sequence[Any]]
    """Name of a column -> its values; None where a row has none."""
    where: Sequence[str]
    """Name of each row in messages, e.g. `scores.csv line 3`."""
    kinds: frozenset[str] = frozenset()
    """Which tools wrote the files: `lm-eval`, `inspect`; empty for spreadsheets."""


def read_sheets(paths: Sequence[Path]) -> Sheet:
    """Read one or several files as the columns of one sheet; the column `file` has the name of each row's file.

    Raises:
        UserError: there is no file, or one is missing, too large, empty, or of another kind.
    """
    if not paths:
        raise UserError("expected a file with confidences, got none")
    rows: list[dict[str, Any]] = []
    where: list[str] = []
    kinds = set()
    for path in paths:
        kind, values, places = _read(path)
        kinds.add(kind)
        where += places
        stem = {"file": path.stem}
        rows += [stem | row for row in values]
    names = dict.fromkeys(name for row in rows for name in row)
    for name in names:
        require_text(name, f"{paths[0].name}, the name of a column")
    columns = {name: [row.get(name) for row in rows] for name in names}
    return Sheet(str(rows[0]["task"]) if kinds == {INSPECT} else paths[0].stem, columns, where, frozenset(kinds - {""}))


def sheet_of_frame(frame: DataFrame, name: str = "frame") -> Sheet:
    """Return a pandas DataFrame as a sheet; rows are named by their position.

    Raises:
        UserError: the frame has no row, or a column twice.
    """
    require_rows(name, len(frame))
    names = [str(column) for column in frame.columns]
    if len(set(names)) < len(names):
        raise UserError(f"{name}: expected each column once, found one twice in {', '.join(names)}; rename")
    columns = {text: frame[column].tolist() for text, column in zip(names, frame.columns, strict=True)}
    return Sheet(name, columns, [f"row {k}" for k in range(len(frame))])


def _read(path: Path) -> tuple[str, Sequence[dict[str, Any]], Iterable[str]]:
    """Return the kind of a file, its rows, and their names in messages."""
    ending, name = path.suffix.lower(), path.name
    require_text(name, "the name of a file")
    if ending in _PICKLES:
        raise UserError(
            f"{name}: {ending} files may hold code and are not opened; write the numbers as CSV, JSON Lines or Parquet"
        )
    if ending not in ENDINGS:
        raise UserError(
            f"{name}: expected a file that ends in {', '.join(ENDINGS)}, got {ending or 'no ending'!r}; save the sheet"
            " as CSV"
        )
    try:
        size = path.stat().st_size
    except OSError as error:
        raise UserError(f"Expected a file with confidences at {path}: {error.strerror or error}") from error
    if ending == ".eval":
        return _named(INSPECT, name, "sample", inspect_columns(path))
    if size > MOST_BYTES:
        raise UserError(
            f"{name}: it has {size / 1e9:,.1f} GB, and at most {MOST_BYTES / 1e9:g} GB is read; draw a million rows at"
            " random, which tell a calibration error to a tenth of a point"
        )
    content = read_file(path, "a file with confidences")
    require_rows(name, len(content.strip()))
    if ending == ".parquet":
        table = parquet_table(io.BytesIO(content), name)
        if len(set(table.column_names)) < len(table.column_names):
            raise UserError(f"{name}: expected each column once, found one twice; rename one")
        _refuse_many(name, len(table))
        return _named("", name, "row", table.to_pylist())
    if ending == ".json":
        try:
            value = json.loads(decode_utf8(content.removeprefix(b"\xef\xbb\xbf"), name))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{name}: expected JSON, but it can't be read ({error}); correct it") from error
        if isinstance(value, dict) and "samples" in value:
            return _named(INSPECT, name, "sample", inspect_columns(path))
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            raise UserError(
                f"{name}: expected a list of objects, or a log of Inspect; write one object for each answer"
            )
        require_rows(name, len(value))
        return _named("", name, "object", value)
    if ending == ".csv":
        _refuse_separators(name, content.split(b"\n", 1)[0])
    rows = list((csv_rows if ending == ".csv" else json_lines)(io.BytesIO(content), name))
    require_rows(name, len(rows))
    _refuse_many(name, len(rows))
    if {"doc", "resps"} <= rows[0].values.keys():
        return _named(LM_EVAL, name, "sample", lm_eval_columns(rows, name))
    return "", [dict(row.values) for row in rows], [row.where for row in rows]


def _refuse_separators(name: str, first: bytes) -> None:
    for separator, word in ((b";", "semicolons"), (b"\t", "tabs")):
        if separator in first and b"," not in first:
            raise UserError(
                f"{name}: expected cells separated by commas, got {word}; save it with commas, and numbers with a point"
                " (0.85)"
            )


def _refuse_many(name: str, n: int) -> None:
    if n > MOST_ROWS:
        raise UserError(f"{name}: it has {n:,} rows, and at most {MOST_ROWS:,} are read; draw some of them at random")


def _named(kind: str, name: str, noun: str, rows: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]], list[str]]:
    return kind, rows, [f"{name} {noun} {k}" for k in range(len(rows))]
