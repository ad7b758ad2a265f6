"""Verdict on one table: its judgements as facts, and a line of words for each fact.

The lines, each left out where there is nothing to say: who leads and by how much; whether a constant confidence does
as well; what would decide a tie; the best method without labels; who orders answers best, or, where that is the
headline, who is best calibrated; what the cheapest leader costs; who was not ranked, and why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from bench.metrics import METRICS
from bench.report.competition import CALIBRATION, SEVERAL
from bench.report.tables.model import Line, Table
from bench.report.text import EN_DASH, count, metric_name, precise
from bench.report.verdict.costs import costs_of, in_brief
from bench.report.verdict.judgement import Judgement, State, judged, rounded
from bench.report.verdict.phrases import ahead, joined, name, named, with_value

ORDER = "auroc"
"""Metric of how well right answers are ordered before wrong ones."""
FEW = ", on few questions"
"""What is said of leaders of a table with too few questions, or too few of them right or wrong."""
_NAMED = 3
"""Methods that a short text names; of more, one fewer is, and the others are counted."""


@dataclass(frozen=True)
class Brief:
    """Short texts for a row of a summary."""

    leads: str
    """Names of the leaders, e.g. `ccps, pik (tied)`."""
    sure: str
    """`sure`, `tied`, `not tested`, or a dash; with `FEW` where the table has too few questions."""
    by: str
    """Lead over the next method with its interval, e.g. `+3.9 [3.0, 4.8] over lts`."""
    orders: str
    """Methods that order answers best."""
    cost: str
    """Cost of the cheapest leader."""


@dataclass(frozen=True)
class Verdict:
    """Verdict on a table by one metric."""

    metric: str
    """The metric that was asked for."""
    state: State
    """State without recalibration: `sure` where one method is significantly better than every other ranked one, `tied`
    where none is, `not tested` where there are numbers without tests, `none` where there are no numbers."""
    leaders: tuple[Line, ...]
    """Ranked lines than which no ranked line is significantly better, the best mean first; none where nothing was
    tested."""
    places: tuple[int, ...]
    """Numbers of the leaders among the lines of the table, of those that are shown."""
    sentences: tuple[str, ...]
    """The words, in order."""
    brief: Brief

    def record(self) -> dict[str, Any]:
        """It as data for JSON; its leaders are numbers of the table's lines."""
        return {
            "metric": self.metric, "state": self.state, "leaders": list(self.places),
            "sentences": list(self.sentences), "brief": asdict(self.brief),
        }  # fmt: skip


def verdict_of(table: Table, metric: str | None = None) -> Verdict:
    """Verdict on a table.

    Args:
        table: with standings; without them nothing was tested, and the verdict says so.
        metric: in `bench.metrics.METRICS`; that of the table by default.
    """
    metric = metric or table.headline
    main, *recalibrated = judged(table, metric)
    order = judged(table, ORDER)[0]
    leaders = main.leaders if main.is_decided else ()
    keys = [line.key for line in table.lines]
    sentences = [
        *_on_leaders(main),
        table.too_few if main.is_decided else "",
        *([_on_calibration(judged(table, CALIBRATION)[0])] if main.metric == ORDER else [_on_order(order, main)]),
        _on_cost(main),
        *_on_left_out(main),
        *(text for block in recalibrated for text in (*_on_leaders(block), *_on_left_out(block))),
    ]
    places = tuple(keys.index(line.key) for line in leaders if line.key in keys)
    return Verdict(metric, main.state, leaders, places, tuple(filter(None, sentences)), _brief(table, main, order))


def _on_leaders(block: Judgement) -> Iterator[str]:
    """Who leads, whether that is worth something, what would decide, and who is best without labels."""
    by = f"by {metric_name(block.metric)}" + f", recalibrated by {block.recalibration}" * bool(block.recalibration)
    leaders = [with_value(line, block.metric) for line in block.leaders]
    if not block.is_decided:
        labels = {line.standing and line.standing.labels for line in block.known}
        is_one = block.state == "not tested" and len(labels) == 1
        mean = f"; the best mean is {with_value(block.known[0], block.metric)}" if is_one else ""
        yield f"Nobody leads {by}: {block.why_nobody}{mean}."
        return
    best = block.leaders[0]
    following = [other for other in block.others if other not in block.rivals][:1]
    next_ = [ahead(lead, other) for other in following if (lead := block.lead(best, other))]
    behind = "".join(f"; {name(best)} is {distance}" for distance in next_)
    if len(leaders) > 1:
        yield f"Tied {by}: {named(leaders)} can't be distinguished{behind}."
    elif block.rivals:
        rivals = named([name(line) for line in block.rivals])
        yield f"Leading {by}: {leaders[0]}, but it can't be distinguished from {rivals}{behind}."
    else:
        than = f"each of the {len(block.others)} other ranked methods" if len(block.others) > 1 else "the other one"
        yield f"Best {by}: {', '.join([leaders[0], f'significantly better than {than}', *next_])}."
    if block.metric == "brier":
        yield _on_constant(block)
    if block.rivals:
        yield _on_questions(block)
    if (line := block.unlabelled) is not None:
        distance = ", tied with the best" if line in block.leaders else ""
        if not distance and (pair := block.lead(best, line)):
            distance = f"; {name(best)} is {ahead(pair, line)}"
        yield f"Best without labelled answers: {with_value(line, block.metric)}{distance}."


def _on_constant(block: Judgement) -> str:
    """Which leaders a constant confidence does as well as."""
    useless = [line for line in block.leaders if line.is_worse_than_constant]
    if not useless:
        return ""
    constant = useless[0].standing.constant if useless[0].standing else None
    share = "the share of right answers in training" + ("" if constant is None else f" ({100 * constant:.1f})")
    are = "is" if len(useless) == 1 else "are"
    return f"{named(list(map(name, useless)))} {are} no better than giving every answer the same confidence, {share}."


def _on_questions(block: Judgement) -> str:
    """Questions that would decide between the best and the nearest that is tied with it."""
    best = block.leaders[0]
    needs = [(n, k) for k, line in enumerate(block.rivals) if (n := block.questions(line)) is not None]
    if not needs:
        return ""
    n, k = min(needs)
    line = block.rivals[k]
    lead = block.lead(best, line)
    between = f"between {name(best)} and {name(line) if len(needs) == 1 else f'any of these {len(needs)}'}"
    if n < math.inf and lead:
        return (
            f"About {count(rounded(n))} questions instead of {count(line.n or 0)} would decide between {name(best)} and"
            f" {name(line)} with a probability of 80 %, if the difference seen is the true one: {name(best)} is"
            f" {ahead(lead, line)}."
        )
    return f"No number of questions that one would ask decides {between}: they hardly differ."


def _on_order(block: Judgement, main: Judgement) -> str:
    """Who orders answers best; where the headline metric found nobody either, only why none can."""
    if not block.known:
        shares = {row.llm_accuracy for line in block.unknown for row in line.done}
        why = "in each subject all answers are right, or all are wrong" if shares else "there is no result"
        if len(shares) == 1:
            why = {1.0: "all answers are right", 0.0: "all answers are wrong"}.get(shares.pop() or 0.0, why)
        return f"Nobody orders answers best: AUROC is undefined, because {why}."
    if block.ranked and not any(line.orders_answers for line in block.ranked):
        return "Nobody orders answers: no ranked method has an AUROC whose 95 % interval is above 50 %."
    nobody = f"Nobody orders answers best: {block.why_nobody}." if main.is_decided else ""
    return _second("Orders answers best (AUROC)", block) or nobody


def _on_calibration(block: Judgement) -> str:
    return _second(f"Best calibrated ({metric_name(CALIBRATION)})", block)


def _second(what: str, block: Judgement) -> str:
    """Who leads by a metric beside the headline; empty where nothing was tested."""
    if not block.is_decided:
        return ""
    leaders = named([with_value(line, block.metric) for line in block.leaders])
    if len(block.leaders) > 1:
        return f"{what}: {leaders}, tied."
    unsure = (
        f", but it can't be distinguished from {named([name(line) for line in block.rivals])}" if block.rivals else ""
    )
    return f"{what}: {leaders}{unsure}."


def _on_cost(block: Judgement) -> str:
    """What the leader costs, of several the cheapest; also what the only method costs."""
    lines = block.cheapest
    cheapest = ", the cheapest leader" if len(block.leaders) > 1 else ""
    return f"Cost of {name(lines[0])}{cheapest}: {', '.join(costs_of(lines[0]))}." if lines else ""


def _on_left_out(block: Judgement) -> Iterator[str]:
    """Methods that were not ranked, by reason, and which of them have a better mean than all that were."""
    ranked = {line.key for line in block.ranked}
    lines = [line for line in (*block.known, *block.unknown) if line.key not in ranked]
    if not lines or not block.ranked:
        return
    by_reason: dict[str, list[str]] = {}
    for line in lines:
        by_reason.setdefault(block.competition.excluded[line.key], []).append(name(line))
    better = [
        with_value(line, block.metric) for line in lines if line in block.known[: block.known.index(block.ranked[0])]
    ]
    remark = f"; with a better mean than every ranked method: {named(better)}" if better else ""
    yield f"Not ranked: {'; '.join(f'{named(names)} ({why})' for why, names in by_reason.items())}{remark}."


def _brief(table: Table, main: Judgement, order: Judgement) -> Brief:
    cost = (
        f"{name(main.cheapest[0])}: " * (len(main.leaders) > 1) + in_brief(main.cheapest[0])
        if main.cheapest
        else EN_DASH
    )
    by = EN_DASH
    lead = main.lead(*main.ranked[:SEVERAL]) if len(main.ranked) >= SEVERAL else None
    if lead is not None:
        metric, ends = METRICS[lead.metric], (lead.fixed.low, lead.fixed.high)
        inside = "" if None in ends else f" [{', '.join(precise(metric, end or 0.0) for end in ends)}]"
        by = f"{'+' * (lead.difference > 0)}{precise(metric, lead.difference)}{inside} over {name(main.ranked[1])}"
    if not order.known:
        orders = "undefined" if any(line.done for line in order.unknown) else EN_DASH
    elif order.ranked and not any(line.orders_answers for line in order.ranked):
        orders = "none"
    else:
        orders = _names(order)
    sure = EN_DASH if main.state == "none" else main.state + FEW * (main.is_decided and bool(table.too_few))
    return Brief(_names(main), sure, by, orders, cost)


def _names(block: Judgement) -> str:
    """Names of the leaders, e.g. `ccps, pik (tied)`."""
    names = [name(line) for line in block.leaders]
    if not block.is_decided:
        return EN_DASH
    if len(names) > _NAMED:
        names = [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} others"]
    return joined(names) + " (tied)" * (block.state == "tied")
