"""Reading of files with confidences that somebody already has (`bench audit FILE`), as columns of values.

Spreadsheets are CSV, JSON Lines, JSON (a list of objects) or Parquet, one row for each answer. Logs of Inspect
(`.eval`, `.json`) and samples of lm-evaluation-harness (`samples_*.jsonl`) are recognised by what is in them. Example:
`read_sheet([Path("scores.csv")]).columns["correct"]`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.api import UserError
from bench.api.errors import require_text
from bench.data.logs import inspect_columns, lm_eval_columns
from bench.data.tables import csv_rows, decode_utf8, json_lines, parquet_table, read_file, require_rows

if TYPE_CHECKING:
    from pandas import DataFrame

ENDINGS = (".csv", ".jsonl", ".json", ".parquet", ".eval")
MOST_BYTES, MOST_ROWS = 500_000_000, 2_000_000
"""Largest size of a file, whose values are held in memory. Logs of Inspect have a limit of their own."""
ROLES = ("id", "subject", "group", "split")
"""Columns that say of which question, model or split a row is."""


class Sheet(NamedTuple):
    """Columns of one or several files, all of the same length."""

    name: str
    """Name of the file without folder and ending, or of the first of several; of logs of Inspect the tasks."""
    columns: Mapping[str, Sequence[Any]]
    """Name of a column -> its values; None where a row has none. `file` has the name of each row's file."""
    where: Sequence[str]
    """Name of each row in messages, e.g. `scores.csv line 3`."""
    is_inspect: bool = False
    """Whether the files are logs of Inspect, or one of them is."""


def read_sheet(paths: Sequence[Path]) -> Sheet:
    """Read one or several files as one sheet.

    Raises:
        UserError: there is no file, or one is missing, too large, empty, or of another kind.
    """
    rows: list[dict[str, Any]] = []
    where: list[str] = []
    kinds = set()
    for path in paths:
        is_inspect, values, places = _read(path)
        kinds.add(is_inspect)
        where += places or [f"{path.name} row {k}" for k in range(len(values))]
        stem = {"file": path.stem}
        rows += [stem | row for row in values]
    if len(rows) > MOST_ROWS or not rows:
        raise UserError(f"expected files of 1 to {MOST_ROWS:,} rows, got {len(rows):,}; draw some of them at random")
    tasks = list(dict.fromkeys(str(row["task"]) for row in rows if "task" in row)) if kinds == {True} else []
    if len(tasks) > 1:  # whose ids may be the same numbers
        rows = [row | {"id": f"{row.get('task')}/{row.get('id')}"} for row in rows]
    names = dict.fromkeys(name for row in rows for name in row)
    require_text(" ".join(names), f"{paths[0].name}, the names of columns")
    columns = {name: [row.get(name) for row in rows] for name in names}
    return Sheet(", ".join(tasks) or paths[0].stem, columns, where, any(kinds))


def sheet_of_frame(frame: DataFrame, name: str = "frame") -> Sheet:
    """Return a pandas DataFrame as a sheet; rows are named by their position.

    Raises:
        UserError: the frame has no row, or a column twice.
    """
    require_rows(name, len(frame))
    if roles := [key for key in frame.index.names if key in ROLES and key not in frame]:
        frame = frame.reset_index(roles)
    _require_unique(name, list(map(str, frame)))
    return Sheet(name, {str(key): frame[key].tolist() for key in frame}, [f"row {k}" for k in range(len(frame))])


def _require_unique(name: str, columns: Sequence[str]) -> None:
    if len(set(columns)) < len(columns):
        raise UserError(f"{name}: expected each column once, found one twice in {', '.join(columns)}; rename")


def _read(path: Path) -> tuple[bool, list[dict[str, Any]], list[str]]:
    """Return whether a file is a log of Inspect, its rows, and their names in messages, if not just numbered."""
    ending, name = path.suffix.lower(), path.name
    require_text(name, "the name of a file")
    if ending not in ENDINGS:
        raise UserError(
            f"{name}: expected a file that ends in {', '.join(ENDINGS)}, got {ending or 'no ending'!r}; save the sheet"
            " as CSV (pickles of any kind may hold code, and are not opened)"
        )
    if ending == ".eval":
        return True, inspect_columns(path), []
    if path.is_file() and (size := path.stat().st_size) > MOST_BYTES:
        raise UserError(
            f"{name}: it has {size / 1e9:,.1f} GB, and at most {MOST_BYTES / 1e9:g} GB is read; draw a million rows at"
            " random, which tell a calibration error to a tenth of a point"
        )
    content = read_file(path, "a file with confidences")
    require_rows(name, len(content.strip()))
    if ending == ".parquet":
        table = parquet_table(io.BytesIO(content), name)
        _require_unique(name, table.column_names)
        return False, table.to_pylist(), []
    if ending == ".json":
        try:
            value = json.loads(decode_utf8(content.removeprefix(b"\xef\xbb\xbf"), name))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{name}: expected JSON, but it can't be read ({error}); correct it") from error
        if isinstance(value, dict) and "samples" in value:
            return True, inspect_columns(path), []
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            raise UserError(f"{name}: expected a list of objects, or a log of Inspect; write an object for each answer")
        require_rows(name, len(value))
        return False, value, []
    first = content.split(b"\n", 1)[0]
    if ending == ".csv" and b"," not in first and (b";" in first or b"\t" in first):
        got = "semicolons" if b";" in first else "tabs"
        raise UserError(f"{name}: expected cells separated by commas, got {got}; save it so, and numbers as 0.85")
    rows = list((csv_rows if ending == ".csv" else json_lines)(io.BytesIO(content), name))
    require_rows(name, len(rows))
    if {"doc", "resps"} <= rows[0].values.keys():
        return False, lm_eval_columns(rows, name), []
    return False, [dict(row.values) for row in rows], [row.where for row in rows]
