"""Reading of Parquet, JSON Lines and CSV files as `Row`s, which know file and line for error messages."""

from __future__ import annotations

import bisect
import csv
import io
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, overload

import msgspec

from bench.api import Row, UserError
from bench.api.errors import AbsentError, did_you_mean, first_line, require_text

if TYPE_CHECKING:
    import pyarrow as pa

_BOM = b"\xef\xbb\xbf"
"""Byte order mark of UTF-8, which some programs write at the start of a file."""


class TableRows(Sequence[Row]):
    """Sequence of the rows of several Arrow tables; a row is converted to Python when it is accessed.

    Rows are numbered from the first table to the last. An error message names the table and the row in it.
    """

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables = list(tables.items())
        self._offsets = list(itertools.accumulate((len(table) for table in tables.values()), initial=0))

    def __len__(self) -> int:
        return self._offsets[-1]

    def __iter__(self) -> Iterator[Row]:
        for start, (name, table) in zip(self._offsets, self._tables, strict=False):
            row = 0
            for batch in table.to_batches(max_chunksize=1024):
                for values in batch.to_pylist():
                    yield _row(start, name, row, values)
                    row += 1

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        part = bisect.bisect_right(self._offsets, position) - 1
        name, table = self._tables[part]
        start = self._offsets[part]
        return _row(start, name, position - start, table.slice(position - start, 1).to_pylist()[0])


def _row(start: int, name: str, row: int, values: dict[str, Any]) -> Row:
    return Row(start + row, f"{name} row {row}", values)


# --- Parquet ----------------------------------------------------------------------------------------------------------


def parquet_table(
    file: Path | BinaryIO, name: str, columns: Sequence[str] | None = None, remedy: str = "copy it again"
) -> pa.Table:
    """Read a Parquet file, or some of its columns.

    Args:
        file: path or open file.
        name: the file's name in messages.
        columns: columns to read; None: all.
        remedy: what the message about a damaged file says to do.

    Raises:
        UserError: the file can't be read or has no row, or a column is missing.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file) as reader:
            require_columns(name, columns or (), reader.schema_arrow.names)
            table = reader.read(columns=None if columns is None else list(columns))
    except _read_errors() as error:
        reason = first_line(error).replace(f"{file}", "").strip()
        raise UserError(f"{name}: expected a whole Parquet file, but it can't be read ({reason}); {remedy}") from error
    require_rows(name, len(table))
    try:  # Arrow does not validate UTF-8 and list offsets while reading
        table.validate(full=True)
    except pa.ArrowException as error:
        raise UserError(
            f"{name}: expected whole values, but some are damaged ({first_line(error)}); {remedy}"
        ) from error
    return table


def parquet_bytes(table: pa.Table) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def exact_table(
    path: Path, columns: Mapping[str, pa.DataType], optional: Mapping[str, pa.DataType] = MappingProxyType({})
) -> pa.Table:
    """Read a Parquet file that must have exactly the columns `columns`, or `columns` and all of `optional`.

    Raises:
        ValueError: the file can't be read (the message may contain the path); or it has other columns or nulls, which
            have the same message.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as reader:
            table = reader.read()
        table.validate(full=True)
    except _read_errors() as error:
        raise ValueError(f"can't be read ({first_line(error)})") from error
    schemas = [pa.schema(list(names.items())) for names in (columns, {**columns, **optional})]
    if table.schema.remove_metadata() not in schemas or any(c.null_count for c in table.columns):
        expected = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        raise ValueError(f"has other columns than expected: {expected}, without nulls")
    return table


def _read_errors() -> tuple[type[Exception], ...]:
    """Return the classes of exceptions that reading a damaged file raises.

    Besides Arrow's, these are some of Python's, for invalid UTF-8 and for absurd sizes.
    """
    import pyarrow as pa

    return (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)


def require_columns(name: str, required: Sequence[str], present: Sequence[str]) -> None:
    """Check that a table has the required columns.

    Raises:
        UserError: a required column is missing.
    """
    missing = [column for column in required if column not in present]
    if missing:
        raise UserError(
            f"{name}: expected the column {', '.join(missing)}, found only {', '.join(present) or 'none'};"
            " use a file with the columns of the Hub"
        )


def read_file(path: Path, what: str, option: str = "") -> bytes:
    """Read the bytes of a file that a user named.

    Args:
        path: the file.
        what: what the message calls the file, e.g. `a file of answers`.
        option: end of the message, which names the option, e.g. `, given with --answers`.

    Raises:
        UserError: the file can't be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"Expected {what} at {path}{option}: {error.strerror or error}") from error


def file_rows(name: str, ending: str, content: bytes, columns: Collection[str] | None = None) -> Iterable[Row]:
    """Read the rows of a Parquet, CSV or JSON Lines file.

    Args:
        name: the file's name in messages.
        ending: `.parquet`, `.csv`, or else JSON Lines.
        content: the file's bytes.
        columns: columns of a Parquet file to read, in lower case; case is ignored. By default all are read. The values
            of its other columns become null, because their types may not convert to Python. Of CSV and JSON Lines files
            all columns are read.

    Raises:
        UserError: the file is invalid, has no row, or has a column twice, or a value does not convert to Python.
    """
    file = io.BytesIO(content)
    require_rows(name, len(content))
    if ending != ".parquet":
        rows = list((csv_rows if ending == ".csv" else json_lines)(file, name))
        require_rows(name, len(rows))
        return rows
    import pyarrow as pa

    table = parquet_table(file, name)
    names = table.column_names
    require_unique(name, names)
    if columns is None:
        try:
            return list(TableRows({name: table}))
        except _read_errors() as error:
            reason = first_line(error)
            raise UserError(f"{name}: a value can't be read ({reason}); write columns of texts and numbers") from error
    nothing = pa.nulls(len(table))
    return TableRows({name: pa.table({c: table.column(c) if c.casefold() in columns else nothing for c in names})})


def require_unique(name: str, columns: Sequence[str]) -> None:
    """Check that no two columns of a table have the same name.

    Raises:
        UserError: two columns do.
    """
    if duplicates := [column for i, column in enumerate(columns) if column in columns[:i]]:
        raise UserError(f"{name}: expected each column once, found {duplicates[0]!r} twice; rename one")


def require_rows(name: str, n: int) -> None:
    """Check that a file has at least one row.

    Raises:
        AbsentError: the file has no row.
    """
    if n == 0:
        raise AbsentError(f"{name}: expected at least one row, found none; the file is empty")


def row_error(row: Row, column: str, expected: str, value: object) -> UserError:
    """Build the error about an unexpected value in a row.

    Its message names the row, the column, what was expected, and the value.
    """
    missing = "null" if column in row.values else "nothing"
    shown = missing if value is None else f"{type(value).__name__} {value!r:.60}"
    return UserError(f"{row.where}: expected {expected} in column {column!r}, got {shown}; correct the row")


def typed_value(row: Row, column: str, kind: Any, expected: str) -> Any:
    """Return the value of a row in a column, validated by msgspec; None if it is missing or null.

    Args:
        row: row of a file.
        column: name of the column.
        kind: type of the value, optionally with `msgspec.Meta` constraints.
        expected: the type in words, for the message.

    Raises:
        UserError: the value has another type, or is a text that UTF-8 can't encode.
    """
    value = row.values.get(column)
    if value is None:
        return None
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str):
            require_text(text, f"{row.where}, column {column!r}")
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise row_error(row, column, expected, value) from None
    return value


def nonempty(row: Row, column: str, value: object, expected: str = "a text that is not empty", place: str = "") -> str:
    """Check that a value of a row is a text that is not empty, and return it.

    Args:
        row: row of a file.
        column: name of the column.
        value: the value in this column.
        expected: what was expected, in words for the message.
        place: where the value is, in words for the message; by default the column's name.

    Raises:
        UserError: the value is no text or empty, or UTF-8 can't encode it.
    """
    if not isinstance(value, str) or not value.strip():
        raise row_error(row, column, expected, value)
    require_text(value, f"{row.where}, {place or f'column {column!r}'}")
    return value


def register_id(first: dict[str, str], key: str, where: str) -> None:
    """Record in `first` (id -> row) the row of a question id.

    Raises:
        UserError: an earlier row has the same id.
    """
    if key in first:
        raise UserError(
            f"{where}: expected an id of its own, got {key!r}, which {first[key]} has too; change one of the two"
        )
    first[key] = where


# --- text -------------------------------------------------------------------------------------------------------------


def json_lines(file: BinaryIO, name: str) -> Iterator[Row]:
    """Yield the objects of a JSON Lines file as rows; lines are counted from 1, and blank lines are skipped.

    Raises:
        UserError: a line is not UTF-8, not JSON, or no object.
    """
    index = 0
    # split bytes at line feeds only; `str.splitlines` would also split inside a JSON text, e.g. at U+2028
    for number, raw in enumerate(file, start=1):
        where = f"{name} line {number}"
        text = decode_utf8(raw.removeprefix(_BOM) if number == 1 else raw, name, number)
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else first_line(error)
            raise UserError(
                f"{where}: expected a JSON object, got {text.strip()[:40]!r} ({reason}); correct the line"
            ) from error
        if not isinstance(value, dict):
            raise UserError(
                f"{where}: expected a JSON object with named values, got a {type(value).__name__}; write one object a"
                " line"
            )
        yield Row(index, where, value)
        index += 1


def csv_rows(file: BinaryIO, name: str) -> Iterator[Row]:
    """Yield the rows of a CSV file; its first line has the column names, and all values are texts.

    Raises:
        UserError: the file is not UTF-8 or not CSV, has a column twice, or has a row with another number of cells.
    """
    csv.field_size_limit(2**31 - 1)  # 131,072 characters by default: a reasoning trace is longer
    text = decode_utf8(file.read().removeprefix(_BOM), name)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    index, start = 0, 1
    while True:
        where = f"{name} line {start}"
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UserError(
                f"{where}: expected comma-separated values, but they can't be read ({error}); correct the quotes, or"
                " write JSON Lines"
            ) from error
        if cells is None:
            return
        start = reader.line_num + 1
        if cells and not header:
            header = [cell.strip() for cell in cells]
            require_unique(where, header)
        elif cells:
            if len(cells) != len(header):
                raise UserError(
                    f"{where}: expected {len(header)} cells as in the first line, the names of columns, got"
                    f" {len(cells)}; put a cell with a comma into double quotes"
                )
            yield Row(index, where, dict(zip(header, cells, strict=True)))
            index += 1


def decode_utf8(raw: bytes, name: str, line: int = 1) -> str:
    """Decode UTF-8 bytes of a file that start at line `line`.

    Raises:
        UserError: the bytes are not UTF-8, or have a null byte; the message names the first invalid byte.
    """
    invalid = [at for at in [raw.find(b"\0")] if at >= 0]  # UTF-16 of ASCII letters is valid UTF-8
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        text = ""
        invalid.append(error.start)
    if not invalid:
        return text
    at = min(invalid)
    line += raw.count(b"\n", 0, at)
    column = at - raw.rfind(b"\n", 0, at)
    guess = " (is it UTF-16?)" if raw[at] in {0x00, 0xFE, 0xFF} else ""
    raise UserError(
        f"{name} line {line}: expected text in UTF-8, got the byte 0x{raw[at]:02x} at place {column} of the line"
        f"{guess}; save the file as UTF-8"
    )


def require_spelling(name: str, columns: Iterable[str], checked: Sequence[str], other: Collection[str] = ()) -> None:
    """Refuse a table with a column name that looks like a misspelling of a column that the table lacks.

    Args:
        name: the file's name in messages.
        columns: the file's column names.
        checked: column names that must not be misspelt.
        other: names of further columns that are read.

    Raises:
        UserError: there is such a column; the message names it.
    """
    present = list(columns)
    missing = [column for column in checked if column not in present]
    for column in present:
        hint = "" if column in checked or column in other else did_you_mean(column.lower(), missing)
        if hint:
            raise UserError(f"{name}: nothing is known of column {column!r}.{hint} Rename it, or take it out")
