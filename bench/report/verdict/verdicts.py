"""Give the verdict on one table, as data and as advice in at most five lines.

The advice says who is best or can't be told apart, who is best without labels, whether a constant confidence and the
plain probability are beaten, and what an answer costs. What else the tests say is in the details.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.metrics import METRICS
from bench.report.competition import CALIBRATION, Competition, State, badness
from bench.report.tables.model import Line, Table
from bench.report.text import EN_DASH, count, metric_name, precise, precise_difference, two_digits
from bench.report.verdict import audit
from bench.report.verdict.phrases import (
    cost_phrase,
    distance_phrase,
    n_labels,
    name_first_few,
    sort_by_cost,
    value_phrase,
    with_value,
)

ORDER = "auroc"
"""Metric of how well confidences order right answers before wrong ones."""
FEW = ", on few questions"
"""Words behind the state of a table (`sure` or `tied`) that has too few questions, right answers or wrong answers."""
PLAIN = "sequence-probability"
"""Method that costs nothing: the probability of the answer's tokens."""
MOST_LINES, COLUMNS = 5, 100
"""Lines of the advice at most, if lines are broken at so many columns."""
_NAMED = 3
"""Maximum number of methods that a short text names. In a longer list, a count of the others replaces the last name."""


@dataclass(frozen=True)
class ShortVerdict:
    """Verdict on one table in short texts, for a row of the summary of several tables."""

    leads: str
    """Names of the leading methods, e.g. `ccps and pik (tied)`; a dash if no method leads, or that a constant wins."""
    sure: str
    """What the tests say of the leaders: `sure`, `tied`, `not tested` or a dash, and `FEW` if questions are few."""
    by: str
    """Lead of the first leader over the best other method, with its interval, e.g. `+3.9 [3.0, 4.8] over lts`."""
    orders: str
    """Names of the methods that order right answers best before wrong ones (AUROC).

    If no AUROC is defined, `undefined`. If no ranked method has an AUROC above chance, `none`. Else a dash if no method
    leads, and also if there are no results.
    """
    cost: str
    """Cost of the cheapest leading method, e.g. `30 + 1, 1,600 labels`: tokens read + generated per answer, labels."""


@dataclass(frozen=True)
class Verdict:
    """Verdict on one table of methods by one metric."""

    metric: str
    """Metric that was requested."""
    state: State
    """What the tests say of methods without recalibration. `sure`: one method is significantly better than every
    other ranked method. `tied`: no method is. `not tested`: the numbers have no tests, or only one method is ranked.
    `none`: there are no numbers, neither more nor less of the metric is better, or no method beats a constant."""
    leaders: tuple[Line, ...]
    """Leading methods, the best mean first: no ranked method is significantly better, and by Brier score a constant
    confidence is worse. Empty if nothing was tested."""
    places: tuple[int, ...]
    """Indices of the leaders in the table's `lines`; leaders that the table hides are left out."""
    sentences: tuple[str, ...]
    """The advice: at most `MOST_LINES` lines."""
    details: tuple[str, ...]
    """What else the tests say, in sentences: seeds, unranked methods, recalibrated ones."""
    brief: ShortVerdict

    def record(self) -> dict[str, Any]:
        """Return the verdict as JSON data; leaders are indices into the table's `lines`."""
        return {
            "metric": self.metric, "state": self.state, "leaders": list(self.places),
            "sentences": list(self.sentences), "details": list(self.details), "brief": asdict(self.brief),
        }  # fmt: skip


def verdict_of(table: Table, metric: str | None = None) -> Verdict:
    """Return the verdict on a table by a metric; hidden methods are judged, too.

    Args:
        table: table of methods. If its standings (intervals and tests) are missing, the verdict says that nothing was
            tested.
        metric: name in `bench.metrics.METRICS`; the headline metric of the table by default.
    """
    metric = metric or table.headline
    main, *recalibrated = table.competitions(metric)
    order = table.competitions(ORDER)[0]
    if main.metric == ORDER:
        second = _second_sentence(f"Best calibrated ({metric_name(CALIBRATION)})", table.competitions(CALIBRATION)[0])
    elif not order.known:
        shares = {row.llm_accuracy for line in order.lines for row in line.ok_rows}
        why = "in each subject all answers are right, or all are wrong" if shares else "there is no result"
        if len(shares) == 1:
            why = {1.0: "all answers are right", 0.0: "all answers are wrong"}.get(shares.pop() or 0.0, why)
        second = f"Nobody orders answers best: AUROC is undefined, because {why}."
    elif order.orders_none:
        second = "Nobody orders answers: no ranked method has an AUROC whose 95 % interval is above 50 %."
    else:  # if nobody leads by the headline metric either, that is enough to say
        nobody = f"Nobody orders answers best: {order.why_nobody}." if main.leaders else ""
        second = _second_sentence("Orders answers best (AUROC)", order) or nobody
    averaged = " averaged over subjects" * (table.average == "subjects")
    free = _best_without_labels(main)
    warning = table.warnings
    advice = [
        warning["unfit_judge"], warning["too_few"], warning["at_chance"], _leader_sentence(main, averaged, free),
        _seeds_sentence(main), _better_sentence(main), _free_sentence(main, free), _baseline_sentence(main, free),
        _recalibrated_sentence(main, recalibrated), _cost_sentence(main, free), second,
    ]  # fmt: skip
    if table.is_audit:
        several = len(main.known) > 1
        advice = [
            warning["too_few"], *audit.calibration_sentences(table), _leader_sentence(main, averaged) * several,
            _baseline_sentence(main), *audit.order_sentences(table), second * several,
            audit.recalibrated_sentence(table),
        ]  # fmt: skip
    kept = list(filter(None, advice))
    while sum(len(textwrap.wrap(sentence, COLUMNS)) for sentence in kept) > MOST_LINES and len(kept) > 1:
        kept.pop()
    dropped = [sentence for sentence in advice if sentence and sentence not in kept]
    if warning["unjudgeable"]:
        known = [*audit.calibration_sentences(table)] * table.is_audit
        kept, dropped = [warning["unjudgeable"], *known], [text for text in (*kept, *dropped) if text not in known]
    details = [
        *dropped, *_detail_sentences(main), *_unranked_sentences(main),
        *(text for b in recalibrated for text in (_leader_sentence(b, averaged), *_unranked_sentences(b))),
    ]  # fmt: skip
    cheapest, cost_in_brief = sort_by_cost(main.chosen), EN_DASH
    if cheapest and not table.is_audit:
        cost_in_brief = f"{cheapest[0].key.label}: " * (len(main.leaders) > 1) + cost_phrase(cheapest[0])
    by, orders = EN_DASH, _leader_names(order)
    lead = main.comparison_to(*main.top) if len(main.ranked) > 1 else None
    if lead is not None:
        scale, ends = METRICS[lead.metric], lead.fixed.ends
        inside = f" [{', '.join(precise(scale, end) for end in ends)}]" if ends else ""
        by = f"{precise_difference(scale, lead.difference)}{inside} over {main.top[1].key.label}"
    if not order.known:
        orders = "undefined" if any(line.ok_rows for line in order.lines) else EN_DASH
    elif order.orders_none:
        orders = "none"
    few = bool(main.leaders and warning["too_few"])
    sure = EN_DASH if main.state == "none" else main.state + FEW * few
    keys = [line.key for line in table.lines]
    places = tuple(keys.index(line.key) for line in main.leaders if line.key in keys)
    brief = ShortVerdict(_leader_names(main), sure, by, orders, cost_in_brief)
    return Verdict(metric, main.state, main.leaders, places, tuple(kept), tuple(filter(None, details)), brief)


def _leader_sentence(block: Competition, averaged: str, free: Line | None = None) -> str:
    """Return the sentence on who leads, and on how many questions would decide a tie.

    Args:
        block: methods that were recalibrated alike.
        averaged: words behind the metric's name, if the metric is a mean over subjects.
        free: method whose distance from the best one another sentence says.
    """
    by = f"by {metric_name(block.metric)}{averaged}"
    by += f", recalibrated by {block.recalibration}" * bool(block.recalibration)
    leaders = [with_value(line, block.metric) for line in block.leaders]
    if block.constant_wins and (standing := block.first[0].standing):
        constant = f"{100 * standing.constant_confidence:.1f} % (Brier score {100 * standing.constant:.1f})"
        best = with_value(block.ranked[0], block.metric, block.ranked)
        if not all(block.fails(line) for line in block.ranked):
            return f"Best {by}: {best}, but its Brier score is no better than that of a constant, {constant}."
        remedy = "; recalibrated ones may (--recalibrate)" * any(line.orders_answers for line in block.ranked)
        return f"Take none: no method beats a constant confidence of {constant}; best is {best}{remedy}."
    if not block.leaders:
        groups = {line.standing and line.standing.labels for line in block.known}
        is_one = block.state == "not tested" and len(groups) == 1
        known = [line for line in block.known if line.key not in block.excluded] or list(block.known)
        mean = f"; the best mean is {with_value(known[0], block.metric, known)}" if is_one else ""
        return f"Nobody leads {by}: {block.why_nobody}{mean}."
    best_line, others = block.leaders[0], block.others
    if block.metric == ORDER and not best_line.orders_answers:
        by += ", though not known to be above chance (50.0)"
    if not block.rivals:
        than = {1: "the other one", 2: "both others"}.get(len(others), f"all {len(others)} others")
        than += " with a rank" * (len(block.known) > len(block.ranked))
        lead = block.comparison_to(best_line, others[0]) if others[0] is not free else None
        behind = f"; {others[0].key.label} is {distance_phrase(lead)}" if lead else ""
        return f"Best {by}: {leaders[0]}, significantly better than {than}{behind}."
    rivals, ahead = [line for line in block.rivals if line not in block.ahead], _ahead_phrase(block)
    by += " of those with a better Brier score than a constant" * bool(ahead)
    if len(leaders) > 1:
        who = f"Tied {by}: {name_first_few(leaders, most=3)} can't be told apart"
    else:
        names = name_first_few([line.key.label for line in rivals]) if rivals else ""
        who = f"Best mean {by}: {leaders[0]}" + f", not told apart from {names}" * bool(rivals)
    # the rival that fewest questions would separate from the best line
    needs = [(n, k) for k, line in enumerate(rivals) if (n := block.questions(line)) is not None]
    if not needs:
        return f"{who}{ahead}."
    n, k = min(needs)
    if n == math.inf:
        return f"{who}; no number of questions would decide{ahead}."
    takes = f"about {count(two_digits(n))} questions (here {count(best_line.n or 0)})"
    if len(rivals) > 1:
        return f"{who}; telling {rivals[k].key.label} from {best_line.key.label} takes {takes}, the others more{ahead}."
    return f"{who}; {takes} would decide{ahead}."


def _ahead_phrase(block: Competition) -> str:
    """Return which methods have a better mean than the leaders, but fail against a constant; empty if none has."""
    names = [with_value(line, block.metric) for line in block.ahead]
    what = "with a better mean, but a Brier score no better than a constant's"
    return f"; {what}: {name_first_few(names)}" if names else ""


def _best_without_labels(block: Competition) -> Line | None:
    """Return the best ranked method without labels that beats a constant confidence, if the best method has labels."""
    return next(iter(_without_labels(block)), None) if block.leaders and n_labels(block.leaders[0]) else None


def _without_labels(block: Competition) -> list[Line]:
    """Return the ranked methods without labels that beat a constant confidence, the best mean first."""
    return [line for line in block.ranked if line.labels and not n_labels(line) and not block.fails(line)]


def _free_sentence(block: Competition, free: Line | None) -> str:
    """Return the sentence on the best method without labels, `free`."""
    if free is not None:
        pair = block.comparison_to(block.leaders[0], free)
        distance = "tied with the best" if free in block.leaders else distance_phrase(pair) if pair else "not tested"
        return f"Best without labels: {with_value(free, block.metric, _without_labels(block))}, {distance}."
    if block.leaders and any(block.fails(line) and line.labels and not n_labels(line) for line in block.ranked):
        return "Without labels no method beats a constant confidence." * bool(n_labels(block.leaders[0]))
    return ""


def _recalibrated_sentence(block: Competition, recalibrated: Sequence[Competition]) -> str:
    """Return the sentence on the best recalibrated method, if no method as it is has a better mean."""
    leaders = [line for other in recalibrated for line in other.leaders]
    best = min(leaders, key=lambda line: line.badness(block.metric) or 0.0, default=None)
    least = block.known[0].badness(block.metric) if block.known else None
    if best is None or least is None or (best.badness(block.metric) or 0.0) >= least:
        return ""
    labels = f"{count(n_labels(best))} labels"
    return f"Best recalibrated: {with_value(best, block.metric, leaders)}, {labels}; not tested against these."


def _baseline_sentence(block: Competition, free: Line | None = None) -> str:
    """Return whether the best method is shown to beat a constant confidence and the plain probability of the answer.

    Args:
        block: methods that were recalibrated alike.
        free: method that the sentence before names, with its value.
    """
    best = next(iter(block.chosen), None)
    if block.metric != "brier" or best is None or best.standing is None or block.standings is None:
        return ""
    mean, constant = best.estimate("brier").mean or 0.0, best.standing.constant
    beats = "beats" if best.standing.beats_constant else "is not shown to beat"
    beats = "is no better than" if mean >= constant else beats
    text = f"{best.key.label} {beats} a constant confidence ({100 * constant:.1f})"
    if any(row.is_audit for row in best.rows):
        return f"{text}, the share of right answers."
    plains = [line for line in block.lines if line.method == PLAIN]
    tested = [line for line in plains if line.standing and line.standing.labels == best.standing.labels]
    plain = min(tested, key=lambda line: line.variant != best.variant, default=None)
    if plain is best:
        return f"{text}; it is the plain probability of the answer."
    if plain is None:
        why = f"was not ranked ({block.excluded[plains[0].key]})" if plains else "was not run"
        return f"{text}; {PLAIN}, the plain probability, {why}."
    wins = plain.key in block.standings.beaten.get((block.metric, best.key), ())
    link = " and " if wins and beats == "beats" else ", " + ("beats " if wins else "is not shown to beat ")
    name = f"{plain.key.label}, " * (plain is not free)
    return f"{text}{link}the plain probability ({name}{value_phrase(plain, block.metric)})."


def _cost_sentence(block: Competition, free: Line | None) -> str:
    """Return what an answer costs with the cheapest leader, and with the best method without labels, `free`."""
    if not (cheapest := sort_by_cost(block.chosen)):
        return ""
    known = [line for line in cheapest if line.answer_tokens]
    which = " (the cheapest of these)" * (cheapest[0] not in block.leaders[:1] and len(known) > 1)
    other = f"; {free.key.label} {cost_phrase(free)}" if free is not None and free is not cheapest[0] else ""
    return f"Tokens per answer: {cheapest[0].key.label}{which} {cost_phrase(cheapest[0])}{other}."


def _detail_sentences(block: Competition) -> Iterator[str]:
    """Yield what else the tests say: which methods don't beat a constant confidence, and what intervals are."""
    if not block.leaders:
        return
    useless = [line.key.label for line in block.ranked if block.fails(line)]
    if useless:
        yield f"No better than giving every answer the same confidence: {name_first_few(useless)}."
    yield "Intervals in brackets are 95 % intervals of a pair alone; all pairs are tested together."


def _seeds_sentence(block: Competition) -> str:
    """Return a sentence on methods that are ahead of a sure leader with single seeds; empty if there are none."""
    if not block.leaders:
        return ""
    best, ahead = block.leaders[0], []
    for line in (line for line in block.others if line.seeds == best.seeds and block.state == "sure"):
        by_seed = zip(line.estimate(block.metric).by_seed, best.estimate(block.metric).by_seed, strict=False)
        n = sum(badness(block.metric, value) < badness(block.metric, of_best) for value, of_best in by_seed)
        ahead += [f"{line.key.label} with {n} of {len(best.seeds)}"] if n else []
    return f"Seeds disagree: {name_first_few(ahead)} seeds better than {best.key.label}." if ahead else ""


def _better_sentence(block: Competition) -> str:
    """Return the sentence on unranked methods whose mean is better than the leaders', with the first one's reason."""
    better = _better_unranked(block) if block.leaders else []
    if not better:
        return ""
    keys = {line.key for line in block.ranked}
    reason = next(block.excluded[line.key] for line in block.known if line.key not in keys)
    return f"Not ranked, though with a better mean: {name_first_few(better)} ({reason})."


def _second_sentence(what: str, block: Competition) -> str:
    """Return the sentence on who leads by a metric other than the headline metric; empty if nothing was tested."""
    if not block.leaders:
        return ""
    leaders = name_first_few([with_value(line, block.metric) for line in block.leaders])
    better = f"; not ranked, with a better mean: {name_first_few(b)}" if (b := _better_unranked(block)) else ""
    better = _ahead_phrase(block) + better
    if len(block.leaders) > 1:
        return f"{what}: {leaders}, tied{better}."
    rivals = [line.key.label for line in block.rivals if line not in block.ahead]
    unsure = f", but it can't be distinguished from {name_first_few(rivals)}" if rivals else ""
    return f"{what}: {leaders}{unsure}{better}."


def _unranked_sentences(block: Competition) -> Iterator[str]:
    """Yield a sentence on the methods that were not ranked, with the reasons."""
    ranked = {line.key for line in block.ranked}
    lines = [line for line in block.lines if line.key not in ranked]
    if not lines or not block.ranked:
        return
    by_reason: dict[str, list[str]] = {}
    for line in lines:
        by_reason.setdefault(block.excluded[line.key], []).append(line.key.label)
    yield f"Not ranked: {'; '.join(f'{name_first_few(names)} ({why})' for why, names in by_reason.items())}."


def _better_unranked(block: Competition) -> list[str]:
    """Return the unranked methods whose mean is better than that of every ranked method, each with its mean."""
    least, values = block.ranked[0].badness(block.metric), [(line, line.badness(block.metric)) for line in block.known]
    return [with_value(line, block.metric) for line, value in values if value is not None and value < (least or 0.0)]


def _leader_names(block: Competition) -> str:
    """Return the names of the leading methods, e.g. `ccps and pik (tied)`; a dash if no method leads."""
    if not block.leaders:
        return "none beats a constant" if block.constant_wins else EN_DASH
    names = name_first_few([line.key.label for line in block.leaders], _NAMED)
    return names + " (tied)" * (block.state == "tied")
