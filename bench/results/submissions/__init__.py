"""Check of result files for the leaderboard (`bench check --results`): complete, consistent, from committed code.

The numbers are recomputed from the values per question, and the labels from the questions. The metadata must match the
registered methods and tasks. Only JSON and Parquet files are read. Only built-in methods and tasks are imported, never
code that a file names.
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
from bench.results import cells, question_texts
from bench.results import files as results
from bench.results.row import ResultRow as ResultRow
from bench.results.submissions import cross_cell_checks, metadata_checks, question_checks, recomputation
from bench.results.submissions.cell import BuiltIns, Finding, SkippedCheck, SubmittedCell
from bench.results.submissions.question_checks import Questions
from bench.results.transfer import FOLDER, MATRIX

ONLY_A_RUN = "only a run can tell whether its method does that (--rerun)"
"""End of the message about a problem which may be no problem, as running the cell again would show
(`bench.run.rerun`)."""
LONGEST = 400
"""Largest number of characters of a finding that the command shows."""


@dataclass(frozen=True)
class SubmissionVerdict:
    """Findings of the check about one file."""

    file: str
    """Path of the file below the results folder."""
    problems: tuple[str, ...]
    """Reasons why the file must not be committed; empty if there are none."""
    unchecked: tuple[str, ...] = ()
    """Checks that could not be made, each with the reason."""


def check_results(folder: Path, data_dir: Path | None = None) -> list[SubmissionVerdict]:
    """Check the result files and question texts below a folder, including results of runs with `--limit`.

    Transfer results, analyses and hidden files are not checked.

    Args:
        folder: the results folder.
        data_dir: folder of the tasks' data sets as Parquet files, to check questions against.

    Raises:
        UserError: there is no such folder, or no JSON file to check in it; or `data_dir` is no folder.
    """
    if not folder.is_dir():
        raise UserError(f"--results {folder}: expected a folder of results, there is none")
    files = _visible(folder, "*.json")
    if not files:
        raise UserError(f"--results {folder}: expected result files, found none; run something: bench run --method all")
    return _Check(folder, BuiltIns(*registry.built_in()), open_source(data_dir)).verdicts(files)


def _visible(folder: Path, pattern: str) -> list[Path]:
    return [
        path
        for path in sorted(folder.rglob(pattern))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        # results in the folder of transfer cells are not checked here, and analyses write no results
        and path.relative_to(folder).parts[0] not in {FOLDER, results.ANALYSES}
        and not path.name.endswith(MATRIX)
    ]


@dataclass
class _Check:
    folder: Path
    built_in: BuiltIns
    source: FolderSource | HubSource
    traces: list[cross_cell_checks.Trace] = field(default_factory=list)
    question_sets: dict[tuple[str, int], Questions] = field(default_factory=dict)

    def verdicts(self, files: Iterable[Path]) -> list[SubmissionVerdict]:
        """Return verdicts on JSON files, on Parquet files that lack their JSON file, and on files of question texts."""
        findings: dict[Path, list[Finding]] = defaultdict(list)
        for path in files:
            findings[path] = list(self._file_findings(path))
        for path, finding in cross_cell_checks.findings(self.traces, self.built_in):
            findings[path].append(finding)
        for path in _visible(self.folder, "*.parquet"):
            if path.with_suffix(".json").is_file():
                continue
            name = question_checks.FILE.fullmatch(path.name)
            if path.parent != self.folder / question_texts.FOLDER:
                beside = f"it has no {path.with_suffix('.json').name} beside it; copy that as well, or delete this file"
                findings[path] = [beside]
            elif name is None:
                findings[path] = ["expected a name like atlas-choice--v1.parquet; delete it"]
            else:
                findings[path] = list(self._load_questions(name["task"], int(name["version"])).findings())
        verdicts = []
        for path in sorted(findings):
            texts = dict.fromkeys(findings[path])
            problems = tuple(_printable(text) for text in texts if not isinstance(text, SkippedCheck))
            unchecked = tuple(_printable(text) for text in texts if isinstance(text, SkippedCheck))
            verdicts.append(SubmissionVerdict(_printable(str(path.relative_to(self.folder))), problems, unchecked))
        return verdicts

    def _file_findings(self, path: Path) -> Iterator[Finding]:
        if not cells.is_result_file(path):
            yield "it is no result; keep it elsewhere"
            return
        try:
            row = results.read(path)
            records = results.read_records(path) if row.status == "ok" else None
            expected = results.path_of(row, self.folder)
        except UserError as error:
            yield str(error)
            return
        if expected != path:
            yield f"it says that it is {expected.relative_to(self.folder)}; don't rename results"
        if row.limit is not None:
            yield SkippedCheck(f"it is partial (--limit {row.limit}): only tables with --partial show it")
        yield from metadata_checks.code_findings(row, self.folder)
        yield from metadata_checks.findings(row, self.built_in)
        if records is None:
            yield f"its cell is {row.status} ({row.reason}); only numbers are committed"
            return
        if not records.id:
            yield "its Parquet file has no rows"
            return
        cell = SubmittedCell(path, row, records.by_id())
        if len(set(records.id)) != len(records.id):
            yield "its Parquet file has a question twice"
        with suppress(UserError):  # invalid deviations are another finding
            yield from recomputation.mismatches(row, recomputation.recompute_row(row, records))
        reason = recomputation.too_good_reason(records)
        if reason is not None:
            yield f"{reason}; {ONLY_A_RUN}"
        yield from question_checks.findings(cell, self._load_questions(row.task, row.task_version))
        yield from cross_cell_checks.score_findings(cell, self.built_in)
        if cell.recalibration:
            method, config = self.built_in.method(cell.base), row.config
            if method is not None and not method.trains() and method.output != "score":  # its own cell read no label
                config = {key: value for key, value in config.items() if key not in {"train_on", "train_limit"}}
            origin = results.path_of(replace(row, method=cell.base, config=config), self.folder)
            try:
                original, original_records = results.read(origin), results.read_records(origin).by_id()
            except UserError:
                yield f"{origin.name} is not beside it, of which it is a recalibration; copy both"
            else:
                yield from cross_cell_checks.recalibration_findings(cell, original, original_records)
        self.traces.append(cross_cell_checks.trace(cell))

    def _load_questions(self, task: str, version: int) -> Questions:
        if (task, version) not in self.question_sets:
            cls = self.built_in.task(task)
            plugin = cls if cls is not None and cls.card.version == version else None
            self.question_sets[task, version] = Questions(self.folder, task, version, plugin, self.source)
        return self.question_sets[task, version]


def _printable(text: str) -> str:
    """Make untrusted text safe for a terminal: escape control characters, and shorten it."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
