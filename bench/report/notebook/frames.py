"""Convert tables to data frames, with the numbers of `bench table --format csv` and `json`: unrounded fractions.

In the frames of `long` and `questions`, a cell (one method with one seed) that failed or was skipped has rows with its
status and reason, and without numbers. The frame of `wide` has one row for each method: its means leave out such cells,
and its reason names theirs. The frame of `pairs` leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.metrics import METRICS
from bench.report.tables.model import COLUMNS, Line, Table
from bench.report.text import plain
from bench.results.question_records import QuestionRecords
from bench.results.question_texts import QuestionText
from bench.results.row import ResultRow

if TYPE_CHECKING:
    from pandas import DataFrame

LONG = (
    "model", "task", "preset", "limit", "answers_source", "learned_on", "tuned", "average", "group", "method",
    "variant", "seed", "metric", "value", "std", "mean", "low", "high", "n", "n_undefined", "status", "reason", "note",
)  # fmt: skip
"""Columns of the data frame that `long` returns."""
QUESTIONS = (
    "model", "task", "preset", "limit", "answers_source", "learned_on", "tuned", "method", "variant", "seed", "id",
    "subject", "correct", "confidence", "score", "answer", "parsed", "text", "gold", "status", "reason",
)  # fmt: skip
"""Columns of the data frame that `questions` returns."""
_CATEGORIES = (
    "model", "task", "preset", "answers_source", "learned_on", "average", "group", "method", "variant", "metric",
    "status", "subject", "verdict",
)  # fmt: skip
_DTYPES: Mapping[str, Any] = {
    **dict.fromkeys(("seed", "seeds", "runs", "n", "n_undefined", "limit", "tuned", "rank"), "Int64"),
    **dict.fromkeys(("correct", "parsed", "leading"), "boolean"),
    **dict.fromkeys(
        ("id", "answer", "text", "gold", "reason", "note", "first", "second", "caption", "missing"), "string"
    ),
}


def long(tables: Sequence[Table]) -> DataFrame:
    """Return a data frame with a row for each model, task, method, seed and metric.

    `value` is the metric of the seed, and `std` is its standard deviation over subjects. `n_undefined` is the number of
    subjects that `value` leaves out. `mean` is the mean over seeds. `low` and `high` are the ends of the mean's 95 %
    interval for other questions of the same subjects. Missing numbers are NaN, or `<NA>` in columns of whole numbers.
    An estimate of `rmsce` can be negative: `value` keeps the sign, while `mean` is at least 0.
    """
    records = []
    for table in tables:
        names = _metrics(table)
        for line in table.lines:
            for row in line.rows:
                common = {**_line_data(table, line), **_row_data(row)}
                for name in names:
                    summary, estimate, is_ok = row.metrics.get(name), line.estimate(name), row.status == "ok"
                    low, high = (estimate.ends if is_ok else None) or (None, None)
                    records.append({
                        **common,
                        "metric": name,
                        "value": summary and summary.of(table.average),
                        "std": row.std_over_subjects(name),
                        "mean": estimate.mean if is_ok else None,
                        "low": low,
                        "high": high,
                        "n_undefined": summary and (summary.n_undefined if table.average == "subjects" else 0),
                        "note": "; ".join(estimate.notes) if is_ok and estimate.notes else None,
                    })  # fmt: skip
    return _build_frame(records, LONG)


def _metrics(table: Table) -> Sequence[str]:
    """Return the names of the metrics that were requested.

    Without a request, these are the metrics in `COLUMNS` and all others that some method has.
    """
    if table.metrics is not None:
        return table.metrics
    return [name for name in METRICS if name in COLUMNS or any(name in line.estimates for line in table.lines)]


def _line_data(table: Table, line: Line) -> dict[str, Any]:
    return {**table.head, "group": line.group, "method": line.method, "variant": line.variant}


def _row_data(row: ResultRow) -> dict[str, Any]:
    reason = None if row.status == "ok" else plain(row.reason or "no reason given")
    return {"seed": row.seed, "n": row.n, "status": row.status, "reason": reason}


def wide(tables: Sequence[Table]) -> DataFrame:
    """Return a data frame with a row for each method of each table and a column for each metric, as means over seeds.

    Metrics are those that were requested, or by default only those in `COLUMNS`.

    The index is model, task and method. A method's name includes its settings if the table has the method with several
    settings. Further columns are rank (by the metric that sorts the tables), leading, group, n (questions), seeds
    (number of ok seeds), runs (number of all seeds), status, reason (also of single seeds), preset, limit,
    answers_source, learned_on (the `--train-on` of the runs; empty for the task's own choice), tuned (number of
    configurations tried) and average. A model and task has a table for each of these, so join frames on them, too.
    """
    import pandas as pd

    records = [
        {
            **_line_data(table, line),
            "method": line.key.label,
            **{name: line.estimate(name).mean for name in _metrics(table)},
            "rank": line.rank(table.headline),
            "leading": line in table.leaders(),
            "n": line.n,
            "seeds": len(line.seeds),
            "runs": line.n_runs,
            "status": line.status,
            "reason": "; ".join(line.reasons) or None,
        }
        for table in tables
        for line in table.lines
    ]
    names = list(dict.fromkeys(name for table in tables for name in (table.metrics or COLUMNS)))
    columns = (
        *names, "rank", "leading", "group", "n", "seeds", "runs", "status", "reason", "preset", "limit",
        "answers_source", "learned_on", "tuned", "average",
    )  # fmt: skip
    index = pd.MultiIndex.from_tuples(
        [(record["model"], record["task"], record["method"]) for record in records], names=["model", "task", "method"]
    )
    return _build_frame(records, columns).set_index(index)


def questions(
    tables: Sequence[Table],
    records_of: Callable[[ResultRow], QuestionRecords],
    texts_of: Callable[[str, int], Mapping[str, QuestionText]],
) -> DataFrame:
    """Return a data frame with a row for each model, task, method, seed and question.

    Args:
        tables: tables of any models and tasks.
        records_of: function that returns the question records of a result row.
        texts_of: function of task and task version that returns question texts by id; empty if they are not stored.
    """
    import pandas as pd

    columns: dict[str, list[Any]] = {name: [] for name in QUESTIONS}
    for table in tables:
        for line in table.lines:
            for row in line.rows:
                common, values, n = ({**_line_data(table, line), **_row_data(row)}, {}, 1)  # one row with the reason
                if row.status == "ok":
                    records, texts = records_of(row), texts_of(row.task, row.task_version)
                    question_texts, n = [texts.get(key) for key in records.id], len(records.id)
                    values = {
                        "id": records.id,
                        "subject": map(plain, records.subject),
                        "correct": records.correct.tolist(),
                        "confidence": records.confidence.tolist(),
                        "score": [None] * n if records.score is None else records.score.tolist(),
                        "answer": records.answer,
                        "parsed": records.parsed.tolist(),
                        "text": [text and text.text for text in question_texts],
                        "gold": [text and text.gold for text in question_texts],
                    }
                for name, column in columns.items():
                    column.extend(values.get(name, [common.get(name)] * n))
    return _set_dtypes(pd.DataFrame(columns))


def pairs(records: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return a data frame of paired differences: a row for each pair of methods and metric.

    Args:
        records: CSV records of `bench table --compare`; those of a table without a pair have no row.
    """
    columns = (
        "model", "task", "preset", "limit", "answers_source", "learned_on", "tuned", "average", "metric", "first",
        "second", "difference", "low", "high", "clustered_low", "clustered_high", "p", "p_corrected", "verdict",
        "caption", "missing",
    )  # fmt: skip
    return _build_frame([record for record in records if "metric" in record], columns)


def _build_frame(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> DataFrame:
    import pandas as pd

    return _set_dtypes(pd.DataFrame({name: [record.get(name) for record in records] for name in columns}))


def _set_dtypes(frame: DataFrame) -> DataFrame:
    """Return the frame with a fixed dtype for each column, also for an empty column.

    Categories are in the order in which they occur in the rows.
    """
    import pandas as pd

    for name in frame.columns:
        values = frame[name]
        if name in _CATEGORIES:
            frame[name] = pd.Categorical(values, categories=list(dict.fromkeys(values.dropna())), ordered=False)
        else:
            frame[name] = values.astype(_DTYPES.get(name, "float64"))
    return frame
