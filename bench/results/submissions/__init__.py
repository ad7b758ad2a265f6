"""Check of result files for the leaderboard: whole, clean, and true as far as the files themselves can tell.

Every number must follow from the records, the records from the questions, and what a result says of itself from what is
registered. Reads JSON and Parquet and imports built-in methods and tasks only, never what a file names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import registry
from bench.api import UserError
from bench.data.sources import FolderSource, HubSource, open_source
from bench.results import cells
from bench.results import files as results
from bench.results import questions as question_texts
from bench.results.row import ResultRow as ResultRow
from bench.results.submissions import declared, numbers, questions, together
from bench.results.submissions.cell import Finding, Known, SubmittedCell, Unchecked
from bench.results.submissions.questions import Questions
from bench.results.transfer import FOLDER, MATRIX

ONLY_A_RUN = "only a run can tell whether its method does that (--rerun)"
"""End of a problem that `bench.run.rerun` can take away."""
LONGEST = 400
"""Characters of a finding that are shown."""


@dataclass(frozen=True)
class SubmissionVerdict:
    """Findings about one file."""

    file: str
    """Its path below the folder of results."""
    problems: tuple[str, ...]
    """Empty where it may be committed."""
    unchecked: tuple[str, ...] = ()
    """Checks that could not be made, and why."""


def check_results(folder: Path, data_dir: Path | None = None) -> list[SubmissionVerdict]:
    """One verdict for each file below a folder of results, those of partial runs included.

    Args:
        folder: of results.
        data_dir: Parquet files of the tasks' data sets, to check questions against.

    Raises:
        UserError: there is no such folder, or no result in it; `data_dir` is no folder.
    """
    if not folder.is_dir():
        raise UserError(f"--results {folder}: expected a folder of results, there is none")
    files = _visible(folder, "*.json")
    if not files:
        raise UserError(f"--results {folder}: expected result files, found none; run something: bench run --method all")
    return _Check(folder, Known(*registry.built_in()), open_source(data_dir)).verdicts(files)


def _visible(folder: Path, pattern: str) -> list[Path]:
    return [
        path
        for path in sorted(folder.rglob(pattern))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        # Cells of methods that learned elsewhere are checked there, and what analyses write is no result.
        and path.relative_to(folder).parts[0] not in {FOLDER, results.ANALYSES}
        and not path.name.endswith(MATRIX)
    ]


@dataclass
class _Check:
    folder: Path
    known: Known
    source: FolderSource | HubSource
    traces: list[together.Trace] = field(default_factory=list)
    asked: dict[tuple[str, int], Questions] = field(default_factory=dict)

    def verdicts(self, files: Iterable[Path]) -> list[SubmissionVerdict]:
        """Verdicts on these JSON files, and on Parquet files that belong to none."""
        found: dict[Path, list[Finding]] = defaultdict(list)
        for path in files:
            found[path] = list(self._of_file(path))
        for path, finding in together.findings(self.traces, self.known):
            found[path].append(finding)
        for path in _visible(self.folder, "*.parquet"):
            if path.with_suffix(".json").is_file():
                continue
            name = questions.FILE.fullmatch(path.name)
            if path.parent != self.folder / question_texts.FOLDER:
                beside = f"it has no {path.with_suffix('.json').name} beside it; copy that as well, or delete this file"
                found[path] = [beside]
            elif name is None:
                found[path] = ["expected a name like atlas-choice--v1.parquet; delete it"]
            else:
                found[path] = list(self._questions_of(name["task"], int(name["version"])).findings())
        verdicts = []
        for path in sorted(found):
            texts = dict.fromkeys(found[path])
            problems = tuple(_plain(text) for text in texts if not isinstance(text, Unchecked))
            unchecked = tuple(_plain(text) for text in texts if isinstance(text, Unchecked))
            verdicts.append(SubmissionVerdict(_plain(str(path.relative_to(self.folder))), problems, unchecked))
        return verdicts

    def _of_file(self, path: Path) -> Iterator[Finding]:
        if not cells.is_own(path):
            yield "it is no result; keep it elsewhere"
            return
        try:
            row = results.read(path)
            records = results.read_records(path) if row.status == "ok" else None
            place = results.path_of(row, self.folder)
        except UserError as error:
            yield str(error)
            return
        if row.limit is not None:
            yield f"it is partial (--limit {row.limit}); run the whole task"
        elif place != path:
            yield f"it says that it is {place.relative_to(self.folder)}; don't rename results"
        yield from declared.code_findings(row, self.folder)
        yield from declared.findings(row, self.known)
        if records is None:
            yield f"its cell is {row.status} ({row.reason}); only numbers are committed"
            return
        if not records.id:
            yield "its Parquet file has no rows"
            return
        cell = SubmittedCell(path, row, records.by_id())
        if len(set(records.id)) != len(records.id):
            yield "its Parquet file has a question twice"
        with suppress(UserError):  # deviations that can't be are another finding
            yield from numbers.mismatches(row, numbers.with_numbers_of(row, records))
        reason = numbers.too_good(records)
        if reason is not None:
            yield f"{reason}; {ONLY_A_RUN}"
        yield from questions.findings(cell, self._questions_of(row.task, row.task_version))
        yield from together.of_scores(cell, self.known)
        if cell.recalibration:
            origin = results.path_of(replace(row, method=cell.base), self.folder)
            try:
                own, before = results.read(origin), results.read_records(origin).by_id()
            except UserError:
                yield f"{origin.name} is not beside it, of which it is a recalibration; copy both"
            else:
                yield from together.of_another(cell, own, before)
        self.traces.append(together.trace(cell))

    def _questions_of(self, task: str, version: int) -> Questions:
        if (task, version) not in self.asked:
            cls = self.known.task(task)
            plugin = cls if cls is not None and cls.card.version == version else None
            self.asked[task, version] = Questions(self.folder, task, version, plugin, self.source)
        return self.asked[task, version]


def _plain(text: str) -> str:
    """Text that a terminal may show: what a file holds must not be obeyed, or stop the program."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
