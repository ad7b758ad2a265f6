"""Caption of a table: data, settings, answers and exclusions, in sentences."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from bench.report.grouping import Group, common_corpus, common_settings, tuning_budget
from bench.report.tables.origins import Origins
from bench.report.text import count, join, percent, plain, range_text
from bench.results.files import base_of
from bench.results.row import ACCEPTED, AFTER_TRACES, REFUSED, LabelsSeen, ResultRow

MANY = 100
"""Number of questions below which the caption warns."""
ENOUGH = 20
"""Number of right answers, and of wrong answers, below which the caption warns."""
_Z = 1.96
"""Standard errors by which a model's accuracy must exceed that of guessing."""
_ERRS = 0.1
"""Share of the options that measured a judge, of right or of wrong ones, from which on its errors are a warning."""
_MEASURED = re.compile(rf"({ACCEPTED}|{REFUSED}), of (\d{{1,9}})$")
_GENERATED = "generate"
"""Value of `answers_source` for answers that the run itself generated."""


def build_facts(group: Group, origins: Origins) -> tuple[str, ...]:
    """Build the caption of a table: first a title that names model and task, then sentences.

    Args:
        group: result rows of the table.
        origins: judges, model revisions and answer sources of the table's methods.
    """
    return tuple(plain(fact) for fact in _facts(group, origins) if fact)


def title_of(rows: Sequence[ResultRow]) -> str:
    """Return the title of a table: model and task, traces before answers, and the corpus of a run's `--train-on`."""
    corpus, (_, traces, limit) = common_corpus(rows), rows[0].answers_source.partition(AFTER_TRACES)
    return f"{rows[0].model} on {rows[0].task}{traces}{limit}" + (f", learned on {corpus}" if corpus else "")


def too_few(rows: Sequence[ResultRow]) -> str:
    """Return a warning if a table has few questions, or few right or wrong answers; empty if it has enough."""
    sizes = [(row.n, round(row.n * row.llm_accuracy)) for row in rows if row.n and row.llm_accuracy is not None]
    counts = {
        "questions": (MANY, [n for n, _ in sizes]), "right answers": (ENOUGH, [right for _, right in sizes]),
        "wrong answers": (ENOUGH, [n - right for n, right in sizes]),
    }  # fmt: skip
    few = [
        f"{min(values)} {what} instead of {least}"
        for what, (least, values) in counts.items()
        if min(values, default=least) < least
    ]
    return f"Too few to choose by: {', '.join(few)}." if few else ""


def unjudgeable(rows: Sequence[ResultRow]) -> str:
    """Return why no method can be judged by these answers, all right or all wrong, and what to look at; else empty."""
    known = [row for row in rows if row.n and row.llm_accuracy is not None]
    shares = {row.llm_accuracy for row in known}
    if not known or (n := known[0].n) is None:
        return ""
    if shares == {0.0}:
        return (
            f"All {count(n)} answers were graded wrong{_unread(known[0])}, so no method can be judged: look at some"
            " answers (bench report) and at how they are graded."
        )
    if shares == {1.0}:
        return f"All {count(n)} answers are right, so no method can be judged: take harder questions."
    return ""


def at_chance(rows: Sequence[ResultRow]) -> str:
    """Return a warning if the model is not shown to answer better than by guessing among the options; else empty."""
    known = [row for row in rows if row.n and row.llm_accuracy not in {None, 0.0, 1.0}]
    if not known or (n := known[0].n) is None:
        return ""
    right, chance = max(row.llm_accuracy or 0.0 for row in known), known[0].chance_accuracy
    if chance is None or right > chance + _Z * math.sqrt(chance * (1 - chance) / n):
        return ""
    return (
        f"The model is not shown to be better than guessing ({percent(right)} % right, {percent(chance)} % by"
        f" chance{_unread(known[0])}): take another model or easier questions."
    )


def unfit_judge(rows: Sequence[ResultRow]) -> str:
    """Return a warning if the judge errs on a tenth of the right or wrong options that measured it; else empty."""
    counts = {(row.judge, what): n for row in rows for what, n in row.counts.items()}
    measured = [(m[1], n, int(m[2])) for (_, what), n in counts.items() if (m := _MEASURED.search(what))]
    if all(of - n < _ERRS * of for _, n, of in measured):
        return ""
    found = join(f"{what}: {n:,} of {of:,}" for what, n, of in measured)
    return f"These grades say little of the answers ({found}): take another judge (--judge-model)."


WARNINGS: Mapping[str, Callable[[Sequence[ResultRow]], str]] = {
    "too_few": too_few, "unjudgeable": unjudgeable, "at_chance": at_chance, "unfit_judge": unfit_judge,
}  # fmt: skip
"""Name of a warning in CSV and JSON -> its sentence for the result rows of a table, or an empty text."""


def _unread(row: ResultRow) -> str:
    return f", {count(row.n_unparsed)} of them unreadable" if row.n_unparsed else ""


def preset_sentence(row: ResultRow) -> str:
    """Return the sentence that names the preset of a result row."""
    return f"The preset is {row.preset}."


def limit_sentence(row: ResultRow) -> str:
    """Return the sentence that says that the results cover only part of the questions (`--limit`)."""
    return f"Results are partial (--limit {row.limit})."


def dtype_sentence(rows: Iterable[ResultRow]) -> str:
    """Return the sentence that names the dtypes of the model's weights; empty if no row has numbers."""
    dtypes = {row.dtype or row.config.get("dtype") or "" for row in rows if row.status == "ok"}
    known = f"The model's weights are in {join(dtypes - {''})}" if dtypes - {""} else ""
    if "" not in dtypes:
        return known and f"{known}."
    return f"{known}; of some results the dtype is not recorded." if known else "The dtype is not recorded."


def distinguishing_labels(tables: Sequence[Sequence[ResultRow]]) -> list[str]:
    """Return for each table a text that distinguishes it from other tables of its model and task, e.g. its limit.

    The text is empty for the usual table: no limit, no tuning, one protocol, one source of answers, and one corpus that
    methods learned on.

    Args:
        tables: result rows of each table.
    """
    labels, firsts = [], [rows[0] for rows in tables]
    for row, rows in zip(firsts, tables, strict=True):
        same = [other for other in firsts if (other.model, other.task, other.limit) == (row.model, row.task, row.limit)]
        words = [] if row.limit is None else [f"partial, --limit {row.limit}"]
        words += [f"tuned, {tuning_budget(row)} configurations"] if tuning_budget(row) else []
        words += [f"protocol {row.protocol[:8]}"] if len({other.protocol for other in same}) > 1 else []
        if row.answers_source != _GENERATED and len({other.answers_source for other in same}) > 1:
            words.append(f"answers from {row.answers_source}".replace(f"answers from {_GENERATED} ", ""))
        words += [f"learned on {corpus}"] if (corpus := common_corpus(rows)) else []
        labels.append(plain(", ".join(words)))
    return labels


def _facts(group: Group, origins: Origins) -> Iterable[str]:
    rows, first_row, common = group.rows, group.rows[0], common_settings(group.rows)
    yield title_of(rows)
    yield "" if first_row.is_audit else preset_sentence(first_row)
    if tuning_budget(first_row):
        yield (
            "Constants of each method with a search space were chosen on validation, among"
            f" {tuning_budget(first_row)} configurations: the same budget for all."
        )
        reasons: dict[str, set[str]] = defaultdict(set)
        for row in rows:
            if row.train_on is not None and row.tuning is not None and row.tuning.reason is not None:
                reasons[row.tuning.reason].add(base_of(row.method))
        yield from (f"Not tuned: {join(names)} ({reason})." for reason, names in sorted(reasons.items()))
    if first_row.limit is not None:
        yield limit_sentence(first_row)
    yield "" if first_row.is_audit else dtype_sentence(rows)
    # the model's own answers, which are the same for all methods
    subjects = max(len(row.per_subject) for row in rows)
    in_subjects = f" in {subjects} subject{'s' * (subjects > 1)}" if subjects else ""
    accuracies = [row.llm_accuracy for row in rows if row.llm_accuracy is not None]
    accuracy = f"; the model answers {range_text(accuracies, percent)} % of them right" if accuracies else ""
    if first_row.is_audit:
        in_subjects *= subjects > 1
        yield f"n = {count(first_row.n or 0)} answers{in_subjects}, {range_text(accuracies, percent)} % of them right."
        yield from counts_of(rows)
        return
    if any(row.n is not None for row in rows):
        yield f"n = {range_text([row.n for row in rows], count)} questions{in_subjects}{accuracy}."
    yield from _count_sentence("answer", "could not be read", (row.n_unparsed for row in rows))
    yield from _count_sentence("answer", "empty", (row.n_empty for row in rows))
    yield from _count_sentence("answer without a verdict", "left out", (row.n_undecided for row in rows))
    yield from _count_sentence("exemplar", "dropped for lack of room", (row.n_shots_dropped for row in rows))
    yield origins.source_sentence
    yield from counts_of(rows)
    yield origins.judge_sentence
    train_sets = join(row.train_on for row in rows if row.train_on is not None)
    told = any(row.labels_seen != LabelsSeen() for row in rows)
    how = "was trained; some read validation labels, e.g. to scale scores" if told else "learned from labels"
    yield f"Methods learned from {train_sets}." if train_sets else f"No method {how}."
    shown_elsewhere = {
        "train_on", "tune", "judge", "judge_model", "judge_url", "answers", "dtype", *first_row.deviations
    }  # fmt: skip
    settings = [f"{name} {value}" for name, value in sorted(common.items()) if name not in shown_elsewhere]
    if settings:
        yield f"Settings: {', '.join(settings)}."
    overridden = sorted({*first_row.deviations} - {"answer_ids"})  # counted among the answers
    deviations = [f"{name}={common[name]}" for name in overridden if name in common]
    if deviations:
        yield f"Overridden constants: {', '.join(deviations)}."
    if group.hidden:
        n = len(group.hidden)
        yield f"{n} partial or deviating result{'s are' if n > 1 else ' is'} not shown."


def _count_sentence(noun: str, participle: str, values: Iterable[int | None]) -> Iterable[str]:
    """Yield a sentence with a count, e.g. `3 answers were empty.`, unless the count is 0 or unknown."""
    known = [value for value in values if value is not None]
    if not any(known):
        return
    name, *rest = noun.split(" ", 1)
    subject = " ".join((name + "s" * (set(known) != {1}), *rest))
    verb = "" if participle.startswith("could") else "was " if set(known) == {1} else "were "
    yield f"{range_text(known, count)} {subject} {verb}{participle}."


def counts_of(rows: Sequence[ResultRow]) -> Iterable[str]:
    """Yield a sentence for each name in the `counts` of the rows; splits with the same number share one.

    Example: `mmlu/test and mmlu/validation: 3 repeated questions.`
    """
    counts: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        for what, n in row.counts.items():
            counts[what].add(n)
    splits: dict[tuple[str, frozenset[int]], list[str]] = defaultdict(list)
    for name, values in sorted(counts.items()):
        split, _, what = name.partition(": ")
        splits[what, frozenset(values)].append(split)
    for (what, ns), names in splits.items():
        name = ": ".join(filter(None, [" and ".join(names), what]))
        before, colon, last = name.rpartition(": ")
        yield f"{name}: 1." if ns == {1} else f"{before}{colon}{range_text(ns, count)} {last}."
