"""Disk cache of the standings of tables: means, intervals, tests and ranks of their lines (methods).

To compute the standings of twelve methods with three seeds on MMLU takes some seconds. The cache key is the SHA-256 of
the bytes of the result files, the settings, and the source code of the statistics. Example:
`StandingsReader(Path("results"), cache)(rows_by_line(rows, styles)).lines[Key("ccps", "")].ranks["brier"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache as memoized
from pathlib import Path

from bench.api import UserError
from bench.api.protocol import ECE_BINS
from bench.report.grouping import Key, ece_bins_of
from bench.report.standings import compute
from bench.report.standings.compute import Standings, compute_standings
from bench.report.text import plain
from bench.results.files import stored_path
from bench.results.row import ResultRow
from bench.stats import Average, Settings
from bench.store.disk_cache import digest_file, key_of
from bench.store.files import read_cached, write_cached
from bench.store.sources import source_digest

FOLDER = "standings"
"""Name of the folder of cached standings (intervals, tests and ranks), below the cache folder."""


@dataclass(frozen=True)
class StandingsReader:
    """Computes the standings of tables (means, intervals, tests and ranks of methods), or reads them from the cache."""

    results: Path
    """Folder of the results."""
    cache: Path | None = None
    """Cache folder; None caches nothing."""
    say: Callable[[str], None] = lambda _: None
    """Function that gets messages: before long computations, and when the cache can't be written."""
    average: Average = "questions"
    """Whether metrics are pooled over questions or averaged over subjects."""

    def __call__(self, lines: Mapping[Key, Sequence[ResultRow]]) -> Standings:
        """Return the standings (means, tests, ranks) of one table, given the result rows of each line (method).

        Rows whose status isn't ok are skipped.

        Raises:
            UserError: a result file is missing or damaged; the message names it.
        """
        files: dict[Key, list[tuple[ResultRow, Path]]] = {}
        for key, row in ((key, row) for key, rows in lines.items() for row in rows if row.status == "ok"):
            record = stored_path(row, self.results)
            table = record.with_suffix(".parquet")
            for file in (record, table):
                if not file.is_file():
                    raise UserError(
                        f"result {file} is not there, though a file with such a result is; don't rename results, and"
                        " copy both files of each"
                    )
            files.setdefault(key, []).append((row, table))
        bins = {ece_bins_of(row) for runs in files.values() for row, _ in runs}
        settings = Settings(self.average, bins=bins.pop() if bins else ECE_BINS)
        path, standings = None, None
        if self.cache:
            try:
                inputs = [
                    [*key, file.name, digest_file(file)]
                    for key, runs in files.items()
                    for _, table in runs
                    for file in (table.with_suffix(".json"), table)
                ]
            except OSError as error:
                raise UserError(f"result {error.filename} can't be read ({error.strerror or error})") from error
            key_parts = {"inputs": inputs, "settings": asdict(settings), "code": _statistics_digest()}
            path = self.cache / FOLDER / f"{key_of(key_parts)}.msgpack"
            standings = read_cached(path, Standings)
        if standings is None:
            if files:
                row = next(iter(files.values()))[0][0]
                self.say(
                    f"computing intervals and tests of {plain(row.model)} on {plain(row.task)}; kept for next time"
                )
            standings = compute_standings(files, settings)
            if path:
                try:
                    write_cached(path, standings)
                except OSError as error:
                    self.say(f"intervals and tests can't be kept in {path.parent} ({error.strerror or error})")
        return standings


@memoized
def _statistics_digest() -> str:
    bench = Path(__file__).resolve().parents[2]
    read = ("report/competition.py", "report/grouping.py", "results/files.py", "results/question_records.py")
    folders = [bench / "stats", bench / "metrics"]
    return source_digest([Path(__file__), Path(compute.__file__), *(bench / name for name in read), *folders])
