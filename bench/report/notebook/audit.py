"""`Audit`: results of `bench.audit`, which are those of a run, with what only an audit has."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.data.confidence_files import Sheet
from bench.report.analysis import Analysis, file_stem
from bench.report.analysis import write as write_files
from bench.report.audit import AuditTables, audit, gate_sentence, views_of
from bench.report.figures import reliability
from bench.report.guard import build_analysis
from bench.report.guard.compute import guards_of
from bench.report.notebook.results import Results, Say
from bench.report.notebook.shown import Sentences, ShownTable
from bench.report.selection import AuditRequest, GuardRequest, Selection
from bench.report.tables.choice import refuse_unknown_metrics
from bench.report.text import join
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEM = "audit"
"""Beginning of the names of an audit's files."""


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Results):
    """An audit of confidences: tables, verdicts, figures and page as `Results` has them; a method is a column."""

    found: AuditTables = field(kw_only=True, repr=False)
    """What the audit computed: tables, gaps of `by`, limits of `fail_above`."""

    @classmethod
    def of(cls, sheet: Sheet, request: AuditRequest) -> Audit:
        """Audit a sheet.

        Raises:
            UserError: see `bench.report.audit.audit`; also a risk that is out of range.
        """
        GuardRequest(risk=GuardRequest.risk if request.risk is None else request.risk)  # refused before any work
        selection = Selection(Path(sheet.name), metrics=request.metrics, headline=request.headline)
        refuse_unknown_metrics(selection)
        found = audit(sheet, request)
        rows = tuple(row for table in found.tables for row in table.rows)
        alone = "no question is in all groups (by id), so they are not compared; --id names the column of questions"
        notes = (alone,) * (len(found.tables) > 1 and not found.compared)
        splits = sorted({str(name) for name in sheet.columns.get(request.split or "split", ())})
        all_judged = f"rows of all splits are judged ({join(splits[:5])}); --learn-on names those that were learned on"
        notes += (all_judged,) * (len(splits) > 1 and not request.learn_on)
        return cls(
            selection, rows, notes, whole=found.tables, records=lambda r: found.records[r.model, r.method], found=found
        )

    @property
    def failed(self) -> bool:
        """Whether a calibration error is above its limit in `fail_above`, beyond chance, or could not be tested."""
        return any(gate.failed for gate in self.found.gates)

    @property
    def limits(self) -> Sentences:
        """What each limit of `fail_above` came to, as a sentence."""
        return Sentences(map(gate_sentence, self.found.gates))

    def report(self) -> ShownTable:
        """Return what the command prints first: tables, groups compared, and where confidences are off."""
        return ShownTable(views_of(self.found, self.tables))

    def guard(self, risk: float = GuardRequest.risk, level: float = GuardRequest.level) -> ShownTable:
        """Return from which confidence on at most a share `risk` of answers is wrong, as `bench guard` does.

        Thresholds of uncertainties are of scores, minus the uncertainty; recalibrated confidences have none.

        Raises:
            UserError: a share is out of range, or no question is left on one side.
        """
        return ShownTable(self._guard(risk, level).views)

    def analyses(self) -> list[Analysis]:
        """Return the tables and diagrams of the audit and, if a risk was requested, its guards."""
        risk = self.found.request.risk
        main = Analysis(STEM, views_of(self.found, self.tables), self._diagrams, figure_formats=("svg",))
        return [main] if risk is None else [main, self._guard(risk)]

    def write(self, out: Path, say: Say) -> list[Path]:
        """Write page, tables, reliability diagrams and, if a risk was requested, guards into a folder."""
        return [*write_files(self.analyses(), out), self.write_page(out / f"{STEM}.html", None, say)]

    def _diagrams(self) -> dict[str, Figure | None]:
        """Return the reliability diagrams of each group and recalibration, by the name of their file."""
        diagrams: dict[str, Figure | None] = {}
        for table in self.tables:
            for part in {line.key.recalibration for line in table.lines}:
                names = [STEM, *[table.model] * (len(self.tables) > 1), *[part] * bool(part), "reliability"]
                shown = table.with_lines([line.key for line in table.lines if line.key.recalibration == part])
                diagrams[file_stem(*names)] = reliability([shown], self._records)
        return diagrams

    def _guard(self, risk: float, level: float = GuardRequest.level) -> Analysis:
        def of_file(row: ResultRow) -> QuestionRecords:
            """Return the file's own numbers: probabilities that the audit learned have seen all labels."""
            run = self._records(row)
            return run if run.score is None else replace(run, confidence=np.full(len(run.id), np.nan))

        left_out = ("Recalibrated confidences have no threshold: only the audit has them.",)
        tables = [
            replace(
                table.with_lines({line.key for line in table.lines if not line.key.recalibration}),
                remarks=(*table.remarks, *left_out * bool(self.found.request.recalibrate)),
            )
            for table in self.tables
        ]
        return build_analysis(guards_of(tables, GuardRequest(risk=risk, level=level), records=of_file))
