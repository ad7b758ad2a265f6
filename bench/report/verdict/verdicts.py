"""Give the verdict on one table, as data and in sentences.

The verdict says who leads and by how much, what the cheapest leader costs, and who was not ranked and why. It also says
who is best without labels, who orders answers best, and what would decide a tie. What doesn't apply is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from bench.metrics import METRICS
from bench.report.competition import CALIBRATION, SEVERAL, badness
from bench.report.tables.model import Line, Table
from bench.report.text import EN_DASH, count, metric_name, precise
from bench.report.verdict.judgement import Judgement, State, judge_table, two_digits
from bench.report.verdict.phrases import (
    brief_cost,
    cost_phrases,
    join_with_and,
    label,
    lead_phrase,
    n_labels,
    name_first_few,
    with_value,
)

ORDER = "auroc"
"""Metric of how well confidences order right answers before wrong ones."""
FEW = ", on few questions"
"""Words behind the state of a table (`sure` or `tied`) that has too few questions, right answers or wrong answers."""
_NAMED = 3
"""Maximum number of methods that a short text names. In a longer list, a count of the others replaces the last name."""


@dataclass(frozen=True)
class ShortVerdict:
    """Verdict on one table in short texts, for a row of the summary of several tables."""

    leads: str
    """Names of the leading methods, e.g. `ccps and pik (tied)`; a dash if no method leads."""
    sure: str
    """What the tests say of the leaders: `sure`, `tied`, `not tested` or a dash, and `FEW` if questions are few."""
    by: str
    """Lead of the best method over the second, with its interval, e.g. `+3.9 [3.0, 4.8] over lts`."""
    orders: str
    """Names of the methods that order right answers best before wrong ones (AUROC).

    If no AUROC is defined, `undefined`. If no ranked method has an AUROC above chance, `none`. Else a dash if no method
    leads, and also if there are no results.
    """
    cost: str
    """Cost of the cheapest leading method, e.g. `25 k tokens, 1,600 labels`."""


@dataclass(frozen=True)
class Verdict:
    """Verdict on one table of methods by one metric."""

    metric: str
    """Metric that was requested."""
    state: State
    """What the tests say of methods without recalibration. `sure`: one method is significantly better than every
    other ranked method. `tied`: no method is. `not tested`: the numbers have no tests, or only one method is ranked.
    `none`: there are no numbers, or neither more nor less of the metric is better."""
    leaders: tuple[Line, ...]
    """Leading methods, the best mean first: no ranked method is significantly better. Empty if nothing was tested."""
    places: tuple[int, ...]
    """Indices of the leaders in the table's `lines`; leaders that the table hides are left out."""
    sentences: tuple[str, ...]
    """The verdict in sentences."""
    brief: ShortVerdict

    def record(self) -> dict[str, Any]:
        """Return the verdict as JSON data; leaders are indices into the table's `lines`."""
        return {
            "metric": self.metric, "state": self.state, "leaders": list(self.places),
            "sentences": list(self.sentences), "brief": asdict(self.brief),
        }  # fmt: skip


def verdict_of(table: Table, metric: str | None = None) -> Verdict:
    """Return the verdict on a table by a metric; hidden methods are judged, too.

    Args:
        table: table of methods. If its standings (intervals and tests) are missing, the verdict says that nothing was
            tested.
        metric: name in `bench.metrics.METRICS`; the headline metric of the table by default.
    """
    metric = metric or table.headline
    main, *recalibrated = judge_table(table, metric)
    order = judge_table(table, ORDER)[0]
    orders_none = bool(order.ranked) and not any(line.orders_answers for line in order.ranked)
    if main.metric == ORDER:
        second = _second_sentence(f"Best calibrated ({metric_name(CALIBRATION)})", judge_table(table, CALIBRATION)[0])
    elif not order.known:
        shares = {row.llm_accuracy for line in order.unknown for row in line.ok_rows}
        why = "in each subject all answers are right, or all are wrong" if shares else "there is no result"
        if len(shares) == 1:
            why = {1.0: "all answers are right", 0.0: "all answers are wrong"}.get(shares.pop() or 0.0, why)
        second = f"Nobody orders answers best: AUROC is undefined, because {why}."
    elif orders_none:
        second = "Nobody orders answers: no ranked method has an AUROC whose 95 % interval is above 50 %."
    else:  # if nobody leads by the headline metric either, that is enough to say
        nobody = f"Nobody orders answers best: {order.why_nobody}." if main.is_decided else ""
        second = _second_sentence("Orders answers best (AUROC)", order) or nobody
    cheapest, cost, cost_in_brief = main.cheapest, "", EN_DASH
    if cheapest:
        unknown = sum(not line.tokens for line in cheapest)
        is_one_of = ", the cheapest leader" * (len(main.leaders) > 1 and bool(cheapest[0].tokens))
        is_one_of += f" of those whose tokens are known ({unknown} not)" * bool(is_one_of and unknown)
        cost = f"Cost of {label(cheapest[0])}{is_one_of}: {', '.join(cost_phrases(cheapest[0]))}."
        cost_in_brief = f"{label(cheapest[0])}: " * (len(main.leaders) > 1) + brief_cost(cheapest[0])
    averaged = " averaged over subjects" * (table.average == "subjects")
    sentences = [
        *_leader_sentences(main, averaged), table.too_few if main.is_decided else "", second, cost,
        *_unranked_sentences(main),
        *(text for b in recalibrated for text in (*_leader_sentences(b, averaged), *_unranked_sentences(b))),
    ]  # fmt: skip
    by, orders = EN_DASH, _leader_names(order)
    lead = main.comparison_to(*main.ranked[:SEVERAL]) if len(main.ranked) >= SEVERAL else None
    if lead is not None:
        inside = (
            f" [{', '.join(precise(METRICS[lead.metric], end) for end in lead.fixed.ends)}]" if lead.fixed.ends else ""
        )
        size = precise(METRICS[lead.metric], lead.difference)
        by = f"{'+' * (lead.difference > 0)}{size}{inside} over {label(main.ranked[1])}"
    if not order.known:
        orders = "undefined" if any(line.ok_rows for line in order.unknown) else EN_DASH
    elif orders_none:
        orders = "none"
    sure = EN_DASH if main.state == "none" else main.state + FEW * (main.is_decided and bool(table.too_few))
    keys = [line.key for line in table.lines]
    places = tuple(keys.index(line.key) for line in main.leaders if line.key in keys)
    brief = ShortVerdict(_leader_names(main), sure, by, orders, cost_in_brief)
    return Verdict(metric, main.state, main.leaders, places, tuple(filter(None, sentences)), brief)


def _leader_sentences(block: Judgement, averaged: str) -> Iterator[str]:
    """Yield sentences on who leads, who is no better than a constant confidence, and what would decide a tie.

    The last sentence says who is best without labels.

    Args:
        block: methods that were recalibrated alike.
        averaged: words behind the metric's name, if the metric is a mean over subjects.
    """
    by = f"by {metric_name(block.metric)}{averaged}"
    by += f", recalibrated by {block.recalibration}" * bool(block.recalibration)
    leaders = [with_value(line, block.metric) for line in block.leaders]
    if not block.is_decided:
        groups = {line.standing and line.standing.labels for line in block.known}
        is_one = block.state == "not tested" and len(groups) == 1
        mean = f"; the best mean is {with_value(block.known[0], block.metric)}" if is_one else ""
        yield f"Nobody leads {by}: {block.why_nobody}{mean}."
        return
    best = block.leaders[0]
    next_lines = [other for other in block.others if other not in block.rivals][:1]
    next_leads = [lead_phrase(lead, other) for other in next_lines if (lead := block.comparison_to(best, other))]
    behind = "".join(f"; {label(best)} is {distance}" for distance in next_leads)
    if len(leaders) > 1:
        yield f"Tied {by}: {name_first_few(leaders)} can't be distinguished{behind}."
    elif block.rivals:
        rivals = name_first_few([label(line) for line in block.rivals])
        yield f"Leading {by}: {leaders[0]}, but it can't be distinguished from {rivals}{behind}."
    else:
        than = f"each of the {len(block.others)} other ranked methods" if len(block.others) > 1 else "the other one"
        yield f"Best {by}: {', '.join([leaders[0], f'significantly better than {than}', *next_leads])}."
    yield _seeds_sentence(block)
    useless = [line for line in block.leaders if block.metric == "brier" and line.is_worse_than_constant]
    if useless and (standing := useless[0].standing):  # leaders that are no better than a constant confidence
        who = f"{name_first_few(list(map(label, useless)))} {'is' if len(useless) == 1 else 'are'}"
        constant = f"{100 * standing.constant_confidence:.1f} % (Brier score {100 * standing.constant:.1f})"
        yield f"{who} no better than giving every answer the same confidence, {constant}."
    unordered = [label(line) for line in block.leaders if block.metric == ORDER and not line.orders_answers]
    if unordered:
        yield f"Not known to be above chance, an AUROC of 50 %: {name_first_few(unordered)}."
    # number of questions that would decide between the best line and the rival that needs the fewest
    needs = [(n, k) for k, line in enumerate(block.rivals) if (n := block.questions(line)) is not None]
    if needs:
        n, k = min(needs)
        line = block.rivals[k]
        lead = block.comparison_to(best, line)
        if n < math.inf and lead:
            yield (
                f"About {count(two_digits(n))} questions instead of {count(line.n or 0)} would decide between"
                f" {label(best)} and {label(line)} with a probability of 80 %, if the difference seen is the true one:"
                f" {label(best)} is {lead_phrase(lead, line)}."
            )
        else:
            why = (
                f"{label(best)} is only {lead_phrase(lead, line)}" if lead and lead.difference else "their means agree"
            )
            others = f", and no more for the other {len(needs) - 1}" * (len(needs) > 1)
            yield (
                f"How many questions would decide between {label(best)} and {label(line)} can't be said, as"
                f" {why}{others}."
            )
    # best ranked line without labels, if the line with the best mean saw labels
    unlabelled = (line for line in block.ranked if line.labels and not n_labels(line))
    if n_labels(block.ranked[0]) and (unlabelled_line := next(unlabelled, None)):
        distance = ", tied with the best" if unlabelled_line in block.leaders else ""
        if not distance and (pair := block.comparison_to(best, unlabelled_line)):
            distance = f"; {label(best)} is {lead_phrase(pair, unlabelled_line)}"
        yield f"Best without labelled answers: {with_value(unlabelled_line, block.metric)}{distance}."


def _seeds_sentence(block: Judgement) -> str:
    """Return a sentence on methods that are ahead of a sure leader with single seeds; empty if there are none."""
    best, ahead = block.leaders[0], []
    for line in (line for line in block.others if line.seeds == best.seeds and block.state == "sure"):
        by_seed = zip(line.estimate(block.metric).by_seed, best.estimate(block.metric).by_seed, strict=False)
        n = sum(badness(block.metric, value) < badness(block.metric, of_best) for value, of_best in by_seed)
        ahead += [f"{label(line)} with {n} of {len(best.seeds)}"] if n else []
    return f"With single seeds others are ahead of {label(best)}: {name_first_few(ahead)}." if ahead else ""


def _second_sentence(what: str, block: Judgement) -> str:
    """Return the sentence on who leads by a metric other than the headline metric; empty if nothing was tested."""
    if not block.is_decided:
        return ""
    leaders = name_first_few([with_value(line, block.metric) for line in block.leaders])
    better = f"; not ranked, with a better mean: {name_first_few(b)}" if (b := _better_unranked(block)) else ""
    if len(block.leaders) > 1:
        return f"{what}: {leaders}, tied{better}."
    unsure = (
        f", but it can't be distinguished from {name_first_few([label(line) for line in block.rivals])}"
        if block.rivals
        else ""
    )
    return f"{what}: {leaders}{unsure}{better}."


def _unranked_sentences(block: Judgement) -> Iterator[str]:
    """Yield a sentence on the methods that were not ranked, with the reasons.

    The sentence also names unranked methods whose mean is better than that of every ranked method.
    """
    ranked = {line.key for line in block.ranked}
    lines = [line for line in (*block.known, *block.unknown) if line.key not in ranked]
    if not lines or not block.ranked:
        return
    by_reason: dict[str, list[str]] = {}
    for line in lines:
        by_reason.setdefault(block.excluded[line.key], []).append(label(line))
    better = _better_unranked(block)
    remark = f"; with a better mean than every ranked method: {name_first_few(better)}" if better else ""
    yield f"Not ranked: {'; '.join(f'{name_first_few(names)} ({why})' for why, names in by_reason.items())}{remark}."


def _better_unranked(block: Judgement) -> list[str]:
    """Return the unranked methods whose mean is better than that of every ranked method, each with its mean."""
    least, values = block.ranked[0].badness(block.metric), [(line, line.badness(block.metric)) for line in block.known]
    return [with_value(line, block.metric) for line, value in values if value is not None and value < (least or 0.0)]


def _leader_names(block: Judgement) -> str:
    """Return the names of the leading methods, e.g. `ccps and pik (tied)`; a dash if no method leads."""
    names = [label(line) for line in block.leaders]
    if not block.is_decided:
        return EN_DASH
    if len(names) > _NAMED:
        names = [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} others"]
    return join_with_and(names) + " (tied)" * (block.state == "tied")
