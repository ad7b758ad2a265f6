"""Legend of a table: sentences that explain its numbers and signs.

Only numbers and signs that occur in the table are explained. Example: `" ".join(legend([table]))`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.metrics.summary import Average
from bench.report.competition import SIGNS, ranked_by
from bench.report.tables.model import COLUMNS, HEADLINE, Line, Table
from bench.report.text import EN_DASH, averaged, metric_name

DAGGER = "†"
WORSE = "!"

LEADS = "▸"
"""Sign before the rank of a leading method: no ranked method is significantly better."""

_MEAN = (
    "Numbers are {of}, and means over seeds where there are several, in percent{nats}; ↑ says that more is better, ↓"
    " that less is."
)
HALF = (
    "± is half the width of the 95 % interval for other questions of the same subjects, on its longer side; without ±"
    " there is no interval."
)
FLOOR = "After the slash of an ECE stands its floor, the ECE that the same confidences would have if calibrated."
ACC = (
    "ACC is the share of answers for which a confidence above 50 % agrees with being right; it is no accuracy of the"
    " model."
)
_BEST = {
    "beyond chance": f"{SIGNS['beyond chance']} (bold) is the best of its {{group}}, significantly better than every"
    " other.",
    "not beyond chance": f"{SIGNS['not beyond chance']} is the best mean of its {{group}}, not significantly better"
    " than every other.",
    "not tested": f"{SIGNS['not tested']} is the best mean of its {{group}}, and was not tested.",
}
_TESTS = (
    "All pairs of methods of a {group} are tested on the same questions, at a level of 5 % that is corrected for their"
    " number."
)
_AUDIT_CONSTANT = f"{WORSE} is a Brier score no better than that of a constant confidence, the share of right answers."
_BLOCKS = "A block has the methods that were recalibrated alike, or not at all."
GROUPS = (
    "Group: the methods of the paper, others that don't learn, others that do; marks, ranks and tests are those of all."
)
_BY_SQUARE = (
    "In calibration, RMSCE decides, the root mean squared calibration error without what chance adds to it, where less"
    " than 0 counts as 0; ECE has no test."
)
CALIBRATED = (
    f"{DAGGER} is an ECE that can't be distinguished from that of a calibrated method (p ≥ 0.05), where AUROC is above"
    " chance."
)
_CONSTANT = (
    f"{WORSE} is a Brier score no better than that of a constant confidence, the share of right answers in training, or"
    " of these answers where no method was trained."
)
_RANKS = (
    "Rank is 1 plus the number of ranked methods of the {group} with a significantly better {metric}, and at least the"
    " rank above it. {order}"
)
_LEADING = (
    f"{LEADS} (bold) marks rank 1 by {{metric}}, unless the Brier score is no better than that of a constant"
    " confidence."
)
ORDER = "Rows are in the order of the mean {metric}."
TOKENS = (
    "Tokens are those that the model reads, and after + those that it generates, for one tested answer and this method"
    " alone, once it is fitted (k: a thousand)."
)
DASHES = f"{EN_DASH} stands where there is no number or no rank; a footnote there, or at the method, says why."
LABELS_AS_SUM = (
    "Labels are the answers that a method was told to be right or wrong, in training and in validation, and the"
    " training questions of which it read the right answer."
)
SEEDS = "Seeds are the runs of a method."
PUBLISHED = (
    "Published numbers are the paper's, from a single run, ± the standard deviation over its subjects, which is no"
    " error. The difference is ours minus published, in percentage points, ± half the width of our interval alone."
)
FIXED = "The 95 % interval for these subjects is one for other questions of the same subjects."
_CLUSTERED = "The 95 % interval for other subjects takes the subjects as a sample of subjects."
_STD = "Std is a standard deviation: of a metric over the subjects, or between the seeds."
CHANCE = "p calibrated is the probability that a calibrated method has an ECE at least as large."
DECOMPOSED = "Brier is MCB - DSC + UNC."
TRAINING = (
    "Kept is the step whose weights were kept, taken the steps that were made, and limit the most that might be. Epochs"
    " are passes over the training rows up to the kept step. NLL is the negative log-likelihood of the confidences, in"
    " nats; a constant's is that of the share of right answers in training, on the validation answers."
)


def legend(table: Table, *, stats: bool = False) -> tuple[str, ...]:
    """Return the sentences of the legend of a table; with `stats`, subrows with intervals stand below the methods."""
    lines, names = table.lines, table.columns
    sentences = [mean_sentence(table.average, nats=stats or "nll" in names)] + [ACC] * ("acc" in names)
    sentences += [HALF] * any(line.estimate(metric).half is not None for line in lines for metric in names)
    sentences += [FLOOR] * ("ece" in names and any("ece_floor" in line.estimates for line in lines))
    sentences += [_BLOCKS] * (_group_noun(lines) == "block")
    sentences += [*sign_sentences(table, names), rank_sentence(table)]
    sentences += [LABELS_AS_SUM] * (not table.is_audit)
    sentences += [TOKENS] * any(line.answer_tokens for line in lines) + [GROUPS] * has_groups(lines)
    sentences += [SEEDS] if len({(len(line.seeds), line.n_runs) for line in lines}) > 1 else []
    sentences += [PUBLISHED] * any(table.cell(line.method, name) for line in lines for name in names)
    sentences += interval_sentences(table) if stats else []
    return tuple(sentences)


def page_legend(
    methods: Sequence[Line], average: Average, headline: str = HEADLINE, *, is_audit: bool = False
) -> dict[str, Any]:
    """Return the signs and the legend of the table on the HTML page; the page shows the sentences that apply.

    Args:
        methods: one line of each method of the page.
        average: what metrics average over.
        headline: metric that methods are ordered and ranked by.
        is_audit: whether the page is one of `bench audit`, which knows no labels.
    """
    constant = _AUDIT_CONSTANT if is_audit else _CONSTANT
    signs = [*zip(SIGNS.values(), _BEST.values(), strict=True), (DAGGER, CALIBRATED), (WORSE, constant)]
    return {
        "mean": mean_sentence(average, nats=True),
        "best": dict(SIGNS),
        "calibrated": DAGGER,
        "worse": WORSE,
        "leader": LEADS,
        "signs": [[sign, sentence.format(group="block")] for sign, sentence in signs],
        "spoken": {
            "calibrated": "can't be distinguished from a calibrated method's",
            "worse": "no better than a constant",
        },
        "half": HALF,
        "dash": DASHES,
        "caption": "Each row is a method; rows stand by model and benchmark, the best first.",
        "acc": ACC,
        "labels": "" if is_audit else LABELS_AS_SUM,
        "floor": FLOOR,
        "calibration": _BY_SQUARE,
        "tests": f"{_TESTS.format(group='block')} {_BLOCKS}",
        "groups": GROUPS if has_groups(methods) else None,
        "ranks": _ranks("block", headline),
        "leads": _LEADING.format(metric=metric_name(ranked_by(headline))),
    }


def brief(tables: Sequence[Table]) -> str:
    """Return what a terminal prints in place of the legend of these tables: two lines of 110 columns."""
    leads = any(line in table.lines for table in tables for line in table.leaders())
    return (
        "↓ less is better, ↑ more; ± 95 % interval; "
        + f"{LEADS} leads: none is significantly better; " * leads
        + f"* ~ best of the column, significantly or not; {WORSE} no better than a constant; {DAGGER} may be"
        " calibrated" + "; tokens: read + generated per answer" * (not tables[0].is_audit) + ". All signs: --legend"
    )


def mean_sentence(average: Average, *, nats: bool = False) -> str:
    """Return the sentence that says what the numbers of a table are: means over seeds, in percent or nats."""
    return _MEAN.format(of=averaged(average), nats=" (NLL in nats)" if nats else "")


def interval_sentences(table: Table) -> list[str]:
    """Return the sentences that explain the subrows of intervals and standard deviations."""
    return [*([FIXED, _CLUSTERED] if table.standings else []), _STD]


def rank_sentence(table: Table) -> str:
    """Return the sentence that explains ranks, or only the order of rows if there are no ranks."""
    headline = table.headline
    if not any(line.rank(headline) is not None for line in table.lines):
        return order_sentence(headline)
    leads = {line.key for line in table.lines} & {line.key for line in table.leaders()}
    leading = f" {_LEADING.format(metric=metric_name(ranked_by(headline)))}" if leads else ""
    return _ranks(_group_noun(table.lines), headline) + leading


def _ranks(group: str, headline: str) -> str:
    return _RANKS.format(group=group, metric=metric_name(ranked_by(headline)), order=order_sentence(headline))


def order_sentence(headline: str) -> str:
    """Return the sentence that says by which metric rows are ordered."""
    return ORDER.format(metric=metric_name(ranked_by(headline)))


def sign_sentences(table: Table, names: Sequence[str] = COLUMNS) -> Iterator[str]:
    """Yield the sentences that explain the signs that occur in a table which shows the named metrics."""
    lines = table.lines
    marks_present = {line.estimates[name].best for line in lines for name in names if name in line.estimates}
    group = _group_noun(lines)
    yield from (sentence.format(group=group) for best, sentence in _BEST.items() if best in marks_present)
    if marks_present - {None, "not tested"}:
        yield _TESTS.format(group=group)
    if "rmsce" in names and any(line.estimates.get("rmsce") for line in lines):
        yield _BY_SQUARE
    if "ece" in names and any(line.is_calibrated and line.orders_answers for line in lines):
        yield CALIBRATED
    if "brier" in names and any(line.is_worse_than_constant for line in lines):
        yield _AUDIT_CONSTANT if table.is_audit else _CONSTANT


def has_groups(lines: Sequence[Line]) -> bool:
    """Return whether the lines of a table belong to several groups of methods (paper, untrained, trained)."""
    return len({line.group for line in lines}) > 1


def _group_noun(lines: Sequence[Line]) -> str:
    """Return the noun for methods that are ranked together: `block`, or `table` if there is only one block."""
    return "block" if len({line.key.recalibration for line in lines}) > 1 else "table"
