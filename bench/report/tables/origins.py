"""Find where the methods of a table differ in judge or model revision, and where the table's answers come from.

Footnotes say how methods differ; the caption says only whether judges differ. Methods without a footnote have the most
common judge or revision, or an unknown one. Example: `list(Origins(runs).notes(Key("ccps", "")))`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bench.report.grouping import Key
from bench.report.text import join
from bench.results.files import base_of
from bench.results.provenance import PLUGIN
from bench.results.row import AFTER_TRACES, ResultRow

_REVISION_LENGTH = 12
"""Number of characters of a model revision that footnotes show."""

Values = Mapping[Key, frozenset[str]]
"""Judges, or model revisions, of the seeds of each line (method); an empty set if unknown."""


@dataclass(frozen=True)
class Origins:
    """Judges, model revisions and answer sources of the lines (methods) of one table."""

    runs: Mapping[Key, Sequence[ResultRow]]
    """Result rows of each line (method), one per seed. Rows that aren't ok count only in `source_sentence`."""

    @property
    def judge_sentence(self) -> str:
        """Sentence that says which judge graded the answers; empty if no judge did."""
        judges = {value for names in self._judges.values() for value in names}
        if len(judges) < 2:
            return f"Answers were graded by {join(judges)}." if judges else ""
        return (
            f"Answers were graded by different judges: by {_mode(self._judges)} unless a footnote says otherwise;"
            " numbers of different judges can't be compared."
        )

    @property
    def source_sentence(self) -> str:
        """Sentence that says where the answers come from; empty if all runs generated their own."""
        sources = {row.answers_source.partition(AFTER_TRACES)[0] for rows in self.runs.values() for row in rows}
        return f"Answers are {join(sources)}." if sources - {"generate"} else ""

    def notes(self, key: Key) -> Iterator[str]:
        """Yield the footnotes of a line (method) on its judge, model revision and plugin version."""
        if _differs(key, self._judges):
            yield f"graded by {join(self._judges[key])}"
        if _differs(key, self._revisions):
            revisions = join(revision[:_REVISION_LENGTH] for revision in self._revisions[key])
            usual = _mode(self._revisions)[:_REVISION_LENGTH]
            yield f"with revision {revisions} of the model, lines without such a note with {usual}"
        plugins = {_revision(row, f"{PLUGIN}{base_of(row.method)}") for row in self._done[key]}
        if len(plugins) > 1:
            yield "its seeds were run with different versions of the plugin"

    @cached_property
    def _judges(self) -> Values:
        return {key: frozenset(row.judge for row in rows if row.judge) for key, rows in self._done.items()}

    @cached_property
    def _revisions(self) -> Values:
        return {key: frozenset(filter(None, map(_revision, rows))) for key, rows in self._done.items()}

    @cached_property
    def _done(self) -> Mapping[Key, list[ResultRow]]:
        return {key: [row for row in rows if row.status == "ok"] for key, rows in self.runs.items()}


def _revision(row: ResultRow, of: str = "") -> str:
    """Return the revision of a row's model, or of the plugin named by `of`; empty if the row does not record it."""
    revisions = row.provenance.get("revisions")
    return str(revisions.get(of or row.model) or "") if isinstance(revisions, Mapping) else ""


def _mode(values: Values) -> str:
    """Return the most common value, e.g. judge; of equally common values, the alphabetically first."""
    lines = Counter(value for line_values in values.values() for value in line_values)
    return min(lines, key=lambda value: (-lines[value], value))


def _differs(key: Key, values: Values) -> bool:
    """Return whether a line (method) has another judge or revision than the most common one, or several."""
    return bool(values[key]) and values[key] != {_mode(values)}
