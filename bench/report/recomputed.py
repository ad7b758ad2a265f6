"""Load the rows of a results folder with their metrics recomputed from the Parquet files.

To recompute a result takes 0.1 s, so its metrics are cached. The name of the cache file is a digest of the JSON file
and the code. The JSON file names the digest of its Parquet file; the Parquet file itself is not read if its metrics are
cached. Example: `read_recomputed(Path("results"), cache)[0].metrics["brier"].mean`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from bench import metrics
from bench.api import UserError
from bench.metrics.summary import MetricSummary
from bench.results import cells
from bench.results import files as results
from bench.results.row import ResultRow
from bench.results.submissions import recomputation
from bench.store.disk_cache import digest_file, key_of
from bench.store.files import read_cached, write_cached
from bench.store.sources import source_digest

FOLDER = "numbers"
"""Name of the folder of cached metrics, inside the cache folder."""
_OTHERWISE = "its JSON file says other numbers than its Parquet file gives; shown are those of the Parquet file"


def read_recomputed(
    folder: Path,
    cache: Path | None = None,
    *,
    partial: bool = False,
    say: Callable[[str], None] = lambda _: None,
    chosen: Callable[[list[ResultRow]], list[ResultRow]] = lambda rows: rows,
) -> list[ResultRow]:
    """Load all result rows below a results folder, with recomputed metrics, sorted by path.

    Args:
        folder: results folder.
        cache: cache folder; None disables the cache.
        partial: include runs with `--limit`. These are always included if there are no other runs.
        say: called with a message before a long computation.
        chosen: function that gets all rows as stored in JSON, and returns the rows to recompute and return.

    Raises:
        UserError: there is no such folder, or a file in it is malformed.
    """
    say_once = functools.cache(say)
    paths = (
        cells.list_result_files(folder, partial=partial).cells or cells.list_result_files(folder, partial=True).cells
    )
    rows = {id(row): (row, path) for row, path in zip(map(cells.read_with_note, paths), paths, strict=True)}
    selected = chosen([row for row, _ in rows.values()])
    return [_recompute(*rows[id(row)], cache, say_once) for row in selected]


def _recompute(row: ResultRow, path: Path, cache: Path | None, say: Callable[[str], None]) -> ResultRow:
    if row.status != "ok":
        return row
    cached = None
    if cache:  # the JSON file names the digest of its Parquet file
        cached = cache / FOLDER / key_of({"result": digest_file(path), "records": row.records_digest, "code": _code()})
    if cached is not None and (added := read_cached(cached, _Metrics)) is not None:
        return added.added_to(row)
    say("computing the numbers of results from their Parquet files; remembered for next time")
    records = results.read_records(path)
    if not records.id:
        raise UserError(f"result {path.with_suffix('.parquet')}: expected questions, got no question; run it again")
    try:
        computed = recomputation.recompute_row(row, records)
    except UserError as error:
        raise UserError(f"result {path}: {error}") from error
    if any(recomputation.mismatches(row, computed)):
        return replace(computed, notes=(*row.notes, _OTHERWISE))
    added = _Metrics({}, {})
    if computed.metrics.keys() - row.metrics.keys():
        added = _Metrics(dict(computed.metrics), {name: dict(values) for name, values in computed.per_subject.items()})
    if cached is not None:
        with contextlib.suppress(OSError):
            write_cached(cached, added)
    return added.added_to(row)


class _Metrics(msgspec.Struct):
    """Cache entry: the recomputed metrics of a result whose JSON file lacks some metrics; empty if it has all."""

    metrics: dict[str, MetricSummary]
    per_subject: dict[str, dict[str, float | None]]

    def added_to(self, row: ResultRow) -> ResultRow:
        """Return the result row with these metrics in place of its own metrics, if there are any."""
        return replace(row, metrics=self.metrics, per_subject=self.per_subject) if self.metrics else row


@functools.cache
def _code() -> str:
    return source_digest([Path(recomputation.__file__), Path(metrics.__path__[0])])
