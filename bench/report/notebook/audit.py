"""`Audit`: results of `bench.audit`, which are those of a run, with what only an audit has."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.data.confidence_files import Sheet
from bench.report import guard, write
from bench.report.analysis import Analysis
from bench.report.analysis import write as write_files
from bench.report.audit import AuditTables, audit, gate_sentence, views_of
from bench.report.audit.compute import not_compared
from bench.report.figures import reliability
from bench.report.figures.write import safe_name
from bench.report.notebook.results import Results, Say
from bench.report.notebook.shown import Page, Sentences, ShownTable
from bench.report.selection import AuditRequest, GuardRequest, ReportRequest, Selection
from bench.report.tables.grid import TableViews
from bench.results.files import SEPARATOR
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEM = "audit"
"""Name of the files of an audit."""


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Results):
    """An audit of confidences: tables, verdicts, figures and page as `Results` has them, by name of the column."""

    found: AuditTables = field(kw_only=True, repr=False)
    """What the audit computed: tables, gaps of `by`, limits of `fail_above`."""

    @classmethod
    def of(cls, sheet: Sheet, request: AuditRequest) -> Audit:
        """Audit a sheet.

        Raises:
            UserError: see `bench.report.audit.audit`; also a risk that is out of range.
        """
        if request.risk is not None:
            guard.refuse_shares(_guard_request(request.risk))
        found = audit(sheet, request)
        rows = tuple(row for table in found.tables for row in table.rows)
        selection = Selection(Path(sheet.name), metrics=request.metrics, headline=request.headline)
        notes = tuple(filter(None, [not_compared(found.tables, found.compared)]))
        return cls(selection, rows, notes, whole=found.tables, found=found)

    @property
    def failed(self) -> bool:
        """Whether a calibration error is above its limit in `fail_above`, beyond chance."""
        return any(gate.failed for gate in self.found.gates)

    @property
    def limits(self) -> Sentences:
        """What each limit of `fail_above` came to, as a sentence."""
        return Sentences(map(gate_sentence, self.found.gates))

    def report(self) -> ShownTable:
        """Return all that the command prints: tables, groups compared, and where confidences are off."""
        return ShownTable(views_of(self.found))

    def guard(self, risk: float = 0.05, level: float = 0.9) -> ShownTable:
        """Return from which confidence on at most a share `risk` of answers is wrong, as `bench guard` does.

        Raises:
            UserError: a share is out of range, or no question is left on one side.
        """
        return ShownTable(self._guard(_guard_request(risk, level)).views)

    def write(self, out: Path, risk: float | None, say: Say) -> list[Path]:
        """Write the page, tables, figures and, with a risk, guards into a folder; return the files' paths."""
        analyses = [Analysis(STEM, views_of(self.found), self._diagrams, figure_formats=("svg",))]
        if risk is not None:
            analyses.append(self._guard(_guard_request(risk)))
        paths = write_files(analyses, out)
        request = ReportRequest(**{**vars(self.selection), "out": out / f"{STEM}.html"})
        return [*paths, *write.write_tables(self.tables, request, say, self.found.records_of)]

    def write_page(self, out: Path, figures: Path | None, say: Say) -> Page:
        """Write the HTML page to `out`, and the figures to the folder `figures` unless it is None."""
        request = ReportRequest(**{**vars(self.selection), "out": out, "figures": figures})
        return Page(write.write_tables(self.tables, request, say, self.found.records_of)[0])

    def views(self, risk: float | None) -> list[TableViews]:
        """Return all tables of the audit and, with a risk, those of its guards."""
        return [views_of(self.found), *([] if risk is None else [self._guard(_guard_request(risk)).views])]

    def _diagrams(self) -> dict[str, Figure | None]:
        """Return the reliability diagrams of each group and recalibration, by the name of their file."""
        diagrams: dict[str, Figure | None] = {}
        for table in self.tables:
            for part in dict.fromkeys(line.part for line in table.lines):
                keys = [line.key for line in table.lines if line.part == part]
                names = [STEM, *[table.model] * (len(self.tables) > 1), *[part] * bool(part), "reliability"]
                stem = SEPARATOR.join(map(safe_name, names))
                diagrams[stem] = reliability([table.with_lines(keys)], self.found.records_of)
        return diagrams

    def _guard(self, request: GuardRequest) -> Analysis:
        guard.refuse_shares(request)
        return guard.build_analysis(guard.guards_of(self.tables, request, records=self.found.records_of))

    def _records(self, row: ResultRow) -> QuestionRecords:
        return self.found.records_of(row)


def _guard_request(risk: float, level: float = GuardRequest.level) -> GuardRequest:
    return GuardRequest(risk=risk, level=level)
