"""Files -> rows that name themselves in errors: Parquet tables, JSON Lines and CSV."""

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
from bench.api.errors import did_you_mean, require_text

if TYPE_CHECKING:
    import pyarrow as pa

_BOM = b"\xef\xbb\xbf"
"""The mark with which some programs begin a UTF-8 file."""


class TableRows(Sequence[Row]):
    """The rows of Arrow tables, one after the other; each is made when it is asked for, so that many cost no objects.

    Rows are numbered through; an error names the table and the row in it.
    """

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables = list(tables.items())
        self._starts = list(itertools.accumulate((len(table) for table in tables.values()), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[Row]:
        for start, (name, table) in zip(self._starts, self._tables, strict=False):
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
        part = bisect.bisect_right(self._starts, position) - 1
        name, table = self._tables[part]
        start = self._starts[part]
        return _row(start, name, position - start, table.slice(position - start, 1).to_pylist()[0])


def _row(start: int, name: str, row: int, values: dict[str, Any]) -> Row:
    return Row(start + row, f"{name} row {row}", values)


# --- Parquet ----------------------------------------------------------------------------------------------------------


def parquet_table(
    file: Path | BinaryIO, name: str, columns: Sequence[str] | None = None, remedy: str = "copy it again"
) -> pa.Table:
    """A Parquet file, or these columns of it.

    Args:
        file: where it is.
        name: what messages call it.
        columns: all of them if None.
        remedy: what to do about a damaged one.

    Raises:
        UserError: it can't be read, it has no row, or a column is missing.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file) as opened:
            require_columns(name, columns or (), opened.schema_arrow.names)
            table = opened.read(columns=None if columns is None else list(columns))
    except _broken() as error:
        reason = first_line(error).replace(f"{file}", "").strip()
        raise UserError(f"{name}: expected a whole Parquet file, but it can't be read ({reason}); {remedy}") from error
    require_rows(name, len(table))
    try:  # Arrow reads without looking whether texts are UTF-8, and lists end where they say
        table.validate(full=True)
    except pa.ArrowException as error:
        raise UserError(
            f"{name}: expected whole values, but some are damaged ({first_line(error)}); {remedy}"
        ) from error
    return table


def parquet_bytes(table: pa.Table) -> bytes:
    """The bytes of a table as a Parquet file."""
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def exact_table(
    path: Path, columns: Mapping[str, pa.DataType], or_also: Mapping[str, pa.DataType] = MappingProxyType({})
) -> pa.Table:
    """A Parquet file that has exactly these columns, or these and some more, and no null in them.

    Raises:
        ValueError: it is not such a file, or can't be read; says in what.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as opened:
            table = opened.read()
        table.validate(full=True)
    except _broken() as error:
        raise ValueError(f"can't be read ({first_line(error)})") from error
    allowed = [pa.schema(list(names.items())) for names in (columns, {**columns, **or_also})]
    if table.schema.remove_metadata() not in allowed or any(c.null_count for c in table.columns):
        wanted = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        raise ValueError(f"has other columns than expected: {wanted}, without nulls")
    return table


def _broken() -> tuple[type[Exception], ...]:
    """Errors of Arrow about a damaged file: its own, and Python's where a name is no UTF-8, or a size absurd."""
    import pyarrow as pa

    return (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)


def require_columns(name: str, wanted: Sequence[str], found: Sequence[str]) -> None:
    """Check that a table has these columns.

    Raises:
        UserError: it lacks one.
    """
    missing = [column for column in wanted if column not in found]
    if missing:
        raise UserError(
            f"{name}: expected the column {', '.join(missing)}, found only {', '.join(found) or 'none'};"
            " use a file with the columns of the Hub"
        )


def read_file(path: Path, what: str, given: str = "") -> bytes:
    """The bytes of a file that a user named.

    Args:
        path: of the file.
        what: it holds, e.g. `a file of answers`.
        given: option it was named with, after a comma.

    Raises:
        UserError: it can't be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"Expected {what} at {path}{given}: {error.strerror or error}") from error


def file_rows(name: str, ending: str, content: bytes, read: Collection[str]) -> Iterable[Row]:
    """The rows of a file by the ending of its name; at least one.

    Args:
        name: of the file.
        ending: `.parquet`, `.csv`, or else JSON Lines.
        content: its bytes.
        read: the columns that mean something; others of a Parquet file are null, for Python may have no value for what
            is in them.

    Raises:
        UserError: it is no such file, it has no row, or a column twice.
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
    if len(set(names)) < len(names):
        raise UserError(f"{name}: expected each column once, found one twice in {', '.join(names)}; rename")
    nothing = pa.nulls(len(table))
    return TableRows({name: pa.table({c: table.column(c) if c in read else nothing for c in names})})


def require_rows(name: str, n: int) -> None:
    """Check that there are rows at all.

    Raises:
        UserError: there is none.
    """
    if n == 0:
        raise UserError(f"{name}: expected at least one row, found none; the file is empty")


def wrong(row: Row, column: str, expected: str, value: object) -> UserError:
    """Error for a value of a row that is not what was expected."""
    missing = "null" if column in row.values else "nothing"
    shown = missing if value is None else f"{type(value).__name__} {value!r:.60}"
    return UserError(f"{row.where}: expected {expected} in column {column!r}, got {shown}; correct the row")


def typed(row: Row, column: str, kind: Any, expected: str) -> Any:
    """The value of a row in a column, checked by msgspec; None where there is none.

    Args:
        row: that has it, or not.
        column: its name.
        kind: type of the value, with limits as `msgspec.Meta` has them.
        expected: the same in words.

    Raises:
        UserError: it is of another type, or a text that UTF-8 can't hold.
    """
    value = row.values.get(column)
    if value is None:
        return None
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise wrong(row, column, expected, value) from None
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str):
            require_text(text, f"{row.where}, column {column!r}")
    return value


def filled(row: Row, column: str, value: object, expected: str = "a text that is not empty", place: str = "") -> str:
    """A value of a row that has to be a text which says something.

    Raises:
        UserError: it is none, or one that UTF-8 can't hold; names the column, or else the place in it.
    """
    if not isinstance(value, str) or not value.strip():
        raise wrong(row, column, expected, value)
    require_text(value, f"{row.where}, {place or f'column {column!r}'}")
    return value


def require_own_id(first: dict[str, str], key: str, where: str) -> None:
    """Note where a question's id stands.

    Raises:
        UserError: another row of `first` has it.
    """
    if key in first:
        raise UserError(
            f"{where}: expected an id of its own, got {key!r}, which {first[key]} has too; change one of the two"
        )
    first[key] = where


def first_line(error: BaseException) -> str:
    """Message of an exception, in one line."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


# --- text -------------------------------------------------------------------------------------------------------------


def json_lines(file: BinaryIO, name: str) -> Iterator[Row]:
    """The objects of a JSON Lines file, lines counted from 1; blank lines are passed over.

    Raises:
        UserError: a line is not UTF-8, no JSON, or no object.
    """
    index = 0
    # bytes are cut at line feeds only; `str.splitlines` would also cut inside a JSON text, e.g. at U+2028
    for number, raw in enumerate(file, start=1):
        where = f"{name} line {number}"
        text = decoded(raw.removeprefix(_BOM) if number == 1 else raw, name, number)
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            why = error.msg if isinstance(error, json.JSONDecodeError) else first_line(error)
            raise UserError(
                f"{where}: expected a JSON object, got {text.strip()[:40]!r} ({why}); correct the line"
            ) from error
        if not isinstance(value, dict):
            raise UserError(
                f"{where}: expected a JSON object with named values, got a {type(value).__name__}; write one object a"
                " line"
            )
        yield Row(index, where, value)
        index += 1


def csv_rows(file: BinaryIO, name: str) -> Iterator[Row]:
    """The rows of a CSV file by the names in its first line; every value stays the text that it is.

    Raises:
        UserError: it is not UTF-8 or no CSV, a name stands there twice, or a row has more or fewer cells than there
            are names.
    """
    text = decoded(file.read().removeprefix(_BOM), name)
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
            twice = [column for i, column in enumerate(header) if column in header[:i]]
            if twice:
                raise UserError(f"{where}: expected each column once, found {twice[0]!r} twice; rename one")
        elif cells:
            if len(cells) != len(header):
                raise UserError(
                    f"{where}: expected {len(header)} cells as in the first line, got {len(cells)}; put a cell with"
                    " a comma into double quotes"
                )
            yield Row(index, where, dict(zip(header, cells, strict=True)))
            index += 1


def decoded(raw: bytes, name: str, line: int = 1) -> str:
    """Bytes that begin at this line of a file as text.

    Raises:
        UserError: they are not UTF-8; names the first byte that is not.
    """
    bad = [at for at in [raw.find(b"\0")] if at >= 0]  # UTF-16 without a mark decodes where all letters are English
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        text = ""
        bad.append(error.start)
    if not bad:
        return text
    at = min(bad)
    line += raw.count(b"\n", 0, at)
    place = at - raw.rfind(b"\n", 0, at)
    guess = " (is it UTF-16?)" if raw[at] in {0x00, 0xFE, 0xFF} else ""
    raise UserError(
        f"{name} line {line}: expected text in UTF-8, got the byte 0x{raw[at]:02x} at place {place} of the line{guess};"
        " save the file as UTF-8"
    )


def require_spelling(
    name: str, columns: Iterable[str], wanted: Sequence[str], also_known: Collection[str] = ()
) -> None:
    """Refuse a column that is nearly the name of a wanted one that the file lacks.

    Args:
        name: of the file.
        columns: of the file.
        wanted: names of which a misspelt one would be passed over without a word.
        also_known: names of further columns that mean something.

    Raises:
        UserError: there is one; names it.
    """
    found = list(columns)
    lacking = [column for column in wanted if column not in found]
    for column in found:
        hint = "" if column in wanted or column in also_known else did_you_mean(column.lower(), lacking)
        if hint:
            raise UserError(f"{name}: nothing is known of column {column!r}.{hint} Rename it, or take it out")
