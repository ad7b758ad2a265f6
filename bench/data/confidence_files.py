"""Reading of files with confidences that somebody already has (`bench audit FILE`), as columns of values.

Spreadsheets are CSV, JSON Lines, JSON (a list of objects) or Parquet, one row for each answer. Logs of Inspect
(`.eval`, `.json`) and samples of lm-evaluation-harness (`samples_*.jsonl`) are recognised by what is in them. Example:
`read_sheet([Path("scores.csv")]).columns["correct"]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from bench.api import Row, UserError
from bench.api.errors import require_text
from bench.data.logs import inspect_rows, lm_eval_rows
from bench.data.tables import decode_utf8, file_rows, read_file, require_rows, require_unique

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


def read_sheet(data: Any) -> Sheet:
    """Return a pandas DataFrame, or one or several files, as one sheet.

    Raises:
        UserError: it is neither; a file is missing, too large, empty, or of another kind; a column is there twice.
    """
    if hasattr(data, "columns") and hasattr(data, "index"):
        require_rows("frame", len(data))
        frame = data.reset_index([key for key in data.index.names if key in ROLES and key not in data])
        require_unique("frame", list(map(str, frame)))
        return Sheet("frame", {str(key): frame[key].tolist() for key in frame}, [f"row {k}" for k in range(len(frame))])
    files: list[Any] = list(data) if isinstance(data, Iterable) and not isinstance(data, str | Mapping) else [data]
    if not all(isinstance(file, str | PathLike) for file in files):
        kind = f"{type(data).__module__}.{type(data).__qualname__}".removeprefix("builtins.")
        raise UserError(f"audit(): expected a pandas DataFrame or names of files, got {kind}; make a DataFrame of it")
    paths = [Path(file).expanduser() for file in files]
    rows: list[Row] = []
    kinds = set()
    is_named = len({path.stem for path in paths}) == len(paths)
    for path in paths:
        found, is_inspect = _read(path, path.name if path.name and is_named else str(path))
        stem = {"file": path.stem if is_named else str(path)}
        rows += (Row(row.index, row.where, {**stem, **row.values}) for row in found)
        kinds.add(is_inspect)
    if len(rows) > MOST_ROWS or not rows:
        raise UserError(f"expected files of 1 to {MOST_ROWS:,} rows, got {len(rows):,}; draw some of them at random")
    values = [row.values for row in rows]
    tasks = list(dict.fromkeys(str(row["task"]) for row in values if "task" in row)) if kinds == {True} else []
    if len(tasks) > 1:  # whose ids may be the same numbers
        values = [{**row, "id": f"{row.get('task')}/{row.get('id')}"} for row in values]
    names = dict.fromkeys(name for row in values for name in row)
    require_text(" ".join(names), f"{paths[0].name}, the names of columns")
    columns = {name: [row.get(name) for row in values] for name in names}
    return Sheet(", ".join(tasks) or paths[0].stem, columns, [row.where for row in rows], any(kinds))


def _read(path: Path, name: str) -> tuple[Iterable[Row], bool]:
    """Return the rows of a file, and whether it is a log of Inspect; `name` is its name in messages."""
    ending = path.suffix.lower()
    require_text(name, "the name of a file")
    if ending not in ENDINGS:
        raise UserError(
            f"{name}: expected a file that ends in {', '.join(ENDINGS)}, got {ending or 'no ending'!r}; save the sheet"
            " as CSV (pickles of any kind may hold code, and are not opened)"
        )
    if ending == ".eval":
        return inspect_rows(path, name), True
    if path.is_file() and (size := path.stat().st_size) > MOST_BYTES:
        raise UserError(
            f"{name}: it has {size / 1e9:,.1f} GB, and at most {MOST_BYTES / 1e9:g} GB is read; draw a million rows at"
            " random, which tell a calibration error to a tenth of a point"
        )
    content = read_file(path, "a file with confidences")
    if ending == ".json":
        try:
            value = json.loads(decode_utf8(content.removeprefix(b"\xef\xbb\xbf"), name))
        except (ValueError, RecursionError) as error:
            advice = "correct it, or end its name in .jsonl if each line is an object"
            raise UserError(f"{name}: expected JSON, but it can't be read ({error}); {advice}") from error
        if isinstance(value, dict) and "samples" in value:
            return inspect_rows(path, name), True
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            raise UserError(f"{name}: expected a list of objects, or a log of Inspect; write an object for each answer")
        require_rows(name, len(value))
        return (Row(k, f"{name} row {k}", row) for k, row in enumerate(value)), False
    header = decode_utf8(content.split(b"\n", 1)[0], name).strip("\ufeff\r\n ") if ending == ".csv" else ","
    if header and "," not in header:
        raise UserError(
            f"{name}: expected names of columns in the first line, separated by commas, got {header!r:.60}; take other"
            " lines out, separate cells by commas, and write numbers as 0.85"
        )
    rows = list(file_rows(name, ending, content))
    return (lm_eval_rows(rows, path.stem) if {"doc", "resps"} <= rows[0].values.keys() else rows), False
