"""Rows of a results folder with the numbers that their Parquet files give, whatever their JSON files say.

That takes a tenth of a second for each result, so it is remembered which JSON files say what their Parquet files give:
an empty file in the cache, named by the digest of both and of the program that computes. Example:
`rows_of(Path("results"), cache)[0].metrics["brier"].mean`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench import metrics
from bench.api import UserError
from bench.results import cells
from bench.results import files as results
from bench.results.row import ResultRow
from bench.results.submissions import numbers

FOLDER = "numbers"
"""Below the cache folder."""
_OTHERWISE = "its JSON file says other numbers than its Parquet file gives; shown are those of the Parquet file"


def rows_of(
    folder: Path,
    cache: Path | None = None,
    *,
    partial: bool = False,
    say: Callable[[str], None] = lambda _: None,
    chosen: Callable[[list[ResultRow]], list[ResultRow]] = lambda rows: rows,
) -> list[ResultRow]:
    """All rows below a results folder, in the order of their paths.

    Args:
        folder: of results.
        cache: folder where it is remembered what was computed; None remembers nothing.
        partial: also the rows of runs with `--limit`, which are given anyway where there are no others.
        say: told before long computations.
        chosen: those whose numbers are computed and given, of all rows as their JSON files say them.

    Raises:
        UserError: there is no such folder, or a file in it is not as it must be.
    """
    say_once = functools.cache(say)
    paths = cells.found(folder, partial=partial).cells or cells.found(folder, partial=True).cells
    rows = {id(row): (row, path) for row, path in zip(map(cells.shown, paths), paths, strict=True)}
    wanted = chosen([row for row, _ in rows.values()])
    return [_computed(*rows[id(row)], cache, say_once) for row in wanted]


def _computed(row: ResultRow, path: Path, cache: Path | None, say: Callable[[str], None]) -> ResultRow:
    if row.status != "ok":
        return row
    known = cache / FOLDER / _digest(path, row) if cache else None
    if known is not None and known.exists():
        return row
    say("computing the numbers of results from their Parquet files; remembered for next time")
    records = results.read_records(path)
    if not records.id:
        raise UserError(f"result {path.with_suffix('.parquet')}: expected questions, got no question; run it again")
    try:
        found = numbers.with_numbers_of(row, records)
    except UserError as error:
        raise UserError(f"result {path}: {error}") from error
    if any(numbers.mismatches(row, found)):
        return replace(found, notes=(*row.notes, _OTHERWISE))
    if known is not None:
        with contextlib.suppress(OSError):
            known.parent.mkdir(parents=True, exist_ok=True)
            known.touch()
    return row


def _digest(path: Path, row: ResultRow) -> str:
    """Digest of the JSON file, of its Parquet file, which it has itself, and of the program that computes."""
    own = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashlib.sha256(f"{own}{row.records_digest}{_source()}".encode()).hexdigest()


@functools.cache
def _source() -> str:
    files = [Path(inspect.getfile(numbers)), *sorted(Path(inspect.getfile(metrics)).parent.glob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
