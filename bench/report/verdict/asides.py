"""Sentences on what else decides: how answers are ordered, what the best cost, and what was left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from bench.report.averages import mean_of
from bench.report.competition import CALIBRATION, SEVERAL
from bench.report.tables.model import Line
from bench.report.text import count, metric_name
from bench.report.verdict.judgement import Judgement
from bench.report.verdict.phrases import behind, compact, joined, name, named, value, with_value

ORDER = "auroc"
"""Metric of how well right answers are ordered before wrong ones."""
UNKNOWN = "tokens unknown"
"""Words for a cost in brief where it isn't known how many tokens the model read."""

# --- ordering ---------------------------------------------------------------------------------------------------------


def on_order(block: Judgement, main: Judgement) -> Iterator[str]:
    """Who orders answers best.

    Args:
        block: by `ORDER`.
        main: by the headline metric, about which the verdict has spoken.
    """
    if not block.known:
        yield f"Which method orders answers best can't be told: {_why_undefined(block.unknown)}."
    elif block.ranked and not any(line.orders_answers for line in block.ranked):
        methods = "No ranked method orders" if len(block.ranked) > 1 else f"{name(block.ranked[0])} doesn't order"
        yield f"{methods} right answers before wrong ones beyond chance: no AUROC has a 95 % interval above 50 %."
    elif block.state == "sure":
        yield _on_best(block, main)
    elif block.state == "tied" and block.others:
        leaders = named([with_value(line, ORDER) for line in block.leaders])
        alone = f"{leaders} leads, but can't be distinguished from {named([name(line) for line in block.rivals])}"
        tied = f"no single method is best: {leaders} can't be distinguished"
        yield f"At ordering right answers before wrong ones (AUROC), {tied if len(block.leaders) > 1 else alone}."
    elif block.state == "tied":
        pair = joined([with_value(line, ORDER) for line in block.ranked])
        nobody = pair if len(block.ranked) == SEVERAL else f"none of the {len(block.ranked)} ranked methods"
        way = "can't be distinguished" if len(block.ranked) == SEVERAL else "can be distinguished from another"
        yield f"At ordering right answers before wrong ones (AUROC), {nobody} {way}."
    elif main.state in {"sure", "tied"}:
        yield "Which method orders answers best was not tested."


def on_calibration(block: Judgement) -> Iterator[str]:
    """Who is best calibrated, where tests say more than that nobody is; not of methods that don't order answers."""
    if block.state not in {"sure", "tied"} or not block.others:
        return
    leaders = named([with_value(line, CALIBRATION) for line in block.leaders])
    if block.state == "sure":
        yield f"Best calibrated, by {metric_name(CALIBRATION)}, is {leaders}."
    elif len(block.leaders) > 1:
        yield f"In calibration ({metric_name(CALIBRATION)}), {leaders} can't be distinguished."


def _on_best(block: Judgement, main: Judgement) -> str:
    best, following = block.best, block.others[0]
    also = "also " * (main.state == "sure" and main.best.key == best.key)
    lead = block.lead(best, following)
    others = f"each of the {len(block.others)} others" if len(block.others) > 1 else name(following)
    text = f"{name(best)} {also}orders answers best (AUROC {value(best, ORDER)}), significantly better than {others}"
    return text + (f"; the next, {name(following)}, {behind(lead)}." if lead else ".")


def _why_undefined(lines: Sequence[Line]) -> str:
    shares = {row.llm_accuracy for line in lines for row in line.done}
    if not shares:
        return "there is no result"
    if shares == {1.0}:
        return "AUROC is undefined, because all answers are right"
    if shares == {0.0}:
        return "AUROC is undefined, because all answers are wrong"
    return "AUROC is undefined, because in each subject the answers are all right or all wrong"


# --- cost -------------------------------------------------------------------------------------------------------------


def on_cost(block: Judgement) -> Iterator[str]:
    """The cost of the best; where several are, that of the cheapest."""
    if not block.leaders:
        return
    line = cheapest(block.leaders)
    costs = [text for text in (_tokens(line), _generated(line), _labels(line), _parameters(line)) if text]
    if not costs:
        return
    if len(block.leaders) == 1:
        yield f"{name(line)} needs {joined(costs)}."
        return
    others = [other for other in block.leaders if other.key != line.key]
    if len({in_brief(other) for other in block.leaders}) == 1 and all(other.parameters for other in block.leaders):
        yield _on_equal_costs(block.leaders, line, costs)
        return
    same = [name(other) for other in others if line.tokens and _mean(other.tokens) == _mean(line.tokens)]
    also = f" (as {'does' if len(same) == 1 else 'do'} {named(same)})" if same else ""
    unlabelled = [name(other) for other in others if not labels(other)] if labels(line) else []
    free = f"; {named(unlabelled)} need{'s' * (len(unlabelled) == 1)} no labelled answers" if unlabelled else ""
    costs[0] += also
    tied = f"the {len(block.leaders)} that are tied by {metric_name(block.metric)}"
    writer = min(others, key=lambda other: _mean(other.generated))
    fewer = _mean(writer.generated) < _mean(line.generated) and bool(line.generated)
    writes = f"; {name(writer)} needs the fewest generated tokens, {compact(_mean(writer.generated))}" if fewer else ""
    cheapest_in = " in token positions" if fewer else ""
    yield f"Of {tied}, {name(line)} is the cheapest{cheapest_in}: it needs {joined(costs)}{writes}{free}."


def _on_equal_costs(leaders: Sequence[Line], line: Line, costs: Sequence[str]) -> str:
    """Cost of leaders that differ in trained parameters at most."""
    others = [other for other in leaders if other.key != line.key]
    shared = [text for text in costs if text != _parameters(line)]
    who = f"{named(list(map(name, leaders)))} need"
    most = max((_mean(other.parameters) for other in others if other.parameters), default=0.0)
    if most <= _mean(line.parameters):
        return f"{who} {joined([*costs])}."
    few = f"{name(line)} trains {compact(_mean(line.parameters)) if _parameters(line) else 'no'} parameters"
    return f"{who} {joined(shared)}; {few}, {name(others[0]) if len(others) == 1 else 'others up to'} {compact(most)}."


def cheapest(lines: Sequence[Line]) -> Line:
    """The line with the fewest token positions; of several, with the fewest labels, then parameters."""
    return cheapest_first(lines)[0]


def cheapest_first(lines: Sequence[Line]) -> list[Line]:
    """Lines by token positions, labels and parameters; what isn't known comes last."""
    return sorted(lines, key=lambda line: (_mean(line.tokens), labels(line), _mean(line.parameters), line.place))


def labels(line: Line) -> int:
    """Answers or questions that it was told right or wrong, of the seed with the most."""
    return sum(_told(line))


def in_brief(line: Line) -> str:
    """Cost in a few words, e.g. `25 k tokens, 1,600 labels`."""
    tokens = [f"{compact(_mean(line.tokens))} tokens" if line.tokens else UNKNOWN]
    tokens += [f"{compact(_mean(line.generated))} generated"] if any(line.generated) else []
    n = labels(line)
    return ", ".join([*tokens, f"{count(n)} labels" if n else "no labels"])


def _mean(values: Sequence[float]) -> float:
    """Mean over seeds; infinity where unknown."""
    found = mean_of(values)
    return float("inf") if found is None else found


def _tokens(line: Line) -> str:
    return f"{compact(_mean(line.tokens))} token positions fed to the model" if line.tokens else ""


def _generated(line: Line) -> str:
    return f"{compact(_mean(line.generated))} generated tokens" if any(line.generated) else ""


def _told(line: Line) -> tuple[int, int]:
    """Labelled answers, and right answers to training questions, of the seed with the most."""
    return max(((seen.train + seen.validation, seen.gold) for seen in line.labels), key=sum, default=(0, 0))


def _labels(line: Line) -> str:
    if not line.labels:
        return ""
    answers, gold = _told(line)
    texts = [f"{count(answers)} labelled answers"] * bool(answers)
    texts += [f"{count(gold)} right answers to training questions"] * bool(gold)
    return joined(texts) if texts else "no labelled answers"


def _parameters(line: Line) -> str:
    trained = mean_of(line.parameters)
    return f"{compact(trained)} trained parameters" if trained else ""


# --- left out ---------------------------------------------------------------------------------------------------------


def on_left_out(block: Judgement) -> Iterator[str]:
    """Methods of a block that were not ranked, by reason."""
    ranked = {line.key for line in block.ranked}
    lines = [line for line in (*block.known, *block.unknown) if line.key not in ranked]
    if not lines or not block.ranked:
        return
    by_reason: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_reason[block.competition.excluded[line.key]].append(line)
    reasons = [
        f"the method{'s' * (len(found) > 1)} {named([name(line) for line in found])} ({why})"
        for why, found in by_reason.items()
    ]
    yield f"Left out of this judgement: {'; '.join(reasons)}."
    best = block.ranked[0].badness(block.metric) or 0.0
    better = [with_value(line, block.metric) for line in lines if _is_below(line.badness(block.metric), best)]
    if better:
        have = "has" if len(better) == 1 else "have"
        yield f"Of these, {named(better)} {have} a better mean than every ranked method."


def _is_below(value_: float | None, bound: float) -> bool:
    return value_ is not None and value_ < bound
