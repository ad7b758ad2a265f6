"""Guards in words: what could be certified at all, what was, and what a threshold would have needed."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bench.report.guard.model import Guarded, GuardedLine, GuardedTable
from bench.report.text import count, percent, span

_ROUNDING = 1e-6


def share(fraction: float) -> str:
    """A share that was asked for, in percent with as many digits as it needs.

    >>> share(0.05), share(0.125), share(0.9999999)
    ('5 %', '12.5 %', '99.99999 %')
    """
    return f"{100 * fraction:.12g} %"


def number(threshold: float) -> str:
    """A threshold, rounded for people; CSV, JSON and cards have all digits.

    >>> number(0.91234), number(0.99996), number(0.0)
    ('0.912', '0.99996', '0')
    """
    return f"{threshold:.3g}" if threshold < 0.9995 else f"{threshold:.6g}"  # noqa: PLR2004 - would be printed as 1


def not_less(level: float) -> str:
    """A level with two digits of its distance from 1, rounded up: as it is printed it asks for no less.

    >>> not_less(0.98), not_less(1 - 0.001 / 12), not_less(0.5)
    ('0.98', '0.999917', '0.5')
    """
    left = 1 - level
    digits = 1 - math.floor(math.log10(left))
    lower = math.floor(left * 10**digits * (1 + _ROUNDING)) / 10**digits
    return f"{1 - lower:.{digits}f}".rstrip("0")


def verdict(found: GuardedTable) -> Iterator[str]:
    """Sentences on top of a table; the first is the answer."""
    risk, level, possible = share(found.terms.risk), share(found.terms.level), found.feasible
    methods = len(found.tested)
    if not possible.most:
        yield (
            f"No threshold can keep mistakes to {risk}, whatever the method: with a chance of {level} that asks for"
            f" {possible.fewest:,} calibration answers without a mistake, and there are {possible.n:,}, of which"
            f" {possible.right:,} are right."
        )
    elif not found.some:
        whose = "the method has no" if methods == 1 else f"none of the {methods} methods has a"
        yield (
            f"No threshold can keep mistakes to {risk} here: {whose} confidence above which that holds with a chance of"
            f" {level}."
        )
        line, seed = min(((line, seed) for line in found.tested for seed in line.seeds), key=lambda at: at[1].bound)
        named = f" (seed {seed.row.seed})" if len(line.seeds) > 1 else ""
        yield f"Closest is {line.line.key.label}{named}: {lacks(seed)}."
    else:
        yield from _kept(found, methods)
    yield _feasibility(found)


def _kept(found: GuardedTable, methods: int) -> Iterator[str]:
    some, best = found.some, found.some[0]
    rule = f"at most {share(found.terms.risk)} of trusted answers wrong, with a chance of {share(found.terms.level)}"
    whose = "the method has" if methods == 1 else f"{len(some)} of {methods} methods have"
    there = "" if found.calibrated_on == found.table.task else f", on questions like those of {found.calibrated_on}"
    part = sum(len(line.done) < len(line.seeds) for line in some)
    not_all = f", {part} of them not with every seed" if part and methods > 1 else ""
    yield f"Can answers be trusted ({rule})? Yes{there}: {whose} a threshold that keeps this{not_all}."
    first = best.done[0]
    kind = "a score" if first.is_score else "a confidence"
    at = span([each.threshold for each in best.done], number)
    seeds = f" ({len(best.done)} of {len(best.seeds)} seeds)" if len(best.seeds) > 1 else ""
    observed = ""
    if len(best.seeds) == 1 and first.realised and first.realised.risk is not None:
        observed = f"; {percent(first.realised.risk)} % of these were wrong"
    most = "" if methods == 1 else " most:"
    yield (
        f"{best.line.key.label} keeps{most} {percent(best.coverage)} % of the answers, from {kind} of {at}"
        f" on{seeds}{observed}."
    )
    # more mistakes on the other questions than chance explains
    told = []
    for line in found.some:
        over = [
            (made.risk, made.risk_interval)
            for seed in line.done
            if (made := seed.realised) and made.risk and made.risk_interval and made.risk_interval[0] > found.terms.risk
        ]
        if over:
            risk, ends = max(over, key=lambda each: each[0])
            interval = " to ".join(map(percent, ends))
            told.append(f"{line.line.key.label} ({percent(risk)} %, 95 % interval {interval})")
    if told:
        yield (
            f"But on the other questions, of {found.table.task}, more than {share(found.terms.risk)} of what it keeps"
            f" is wrong, beyond chance, for {', '.join(told)}."
        )


def _feasibility(found: GuardedTable) -> str:
    """The most that any method could have certified with these labels."""
    possible, risk = found.feasible, share(found.terms.risk)
    start = f"{found.source}. {possible.right:,} of the {possible.n:,} answers are right"
    if not possible.right:
        return f"{start}, so nothing can be certified."
    keeps = f"keep more than {percent(possible.most / possible.n)} %" if possible.most else "keep any"
    return (
        f"{start}: even an order with all of these first could certify no risk below {percent(possible.least_risk)} %,"
        f" and could not {keeps} of the answers at {risk}, which asks for {possible.fewest:,} answers without a mistake"
        f" or {possible.fewest_with_one:,} with one."
    )


def lacks(seed: Guarded) -> str:
    """Why a cell has no threshold, and what it would need."""
    risk = share(seed.terms.risk)
    if not seed.kept:
        return "no calibration answer lies above its strictest threshold"
    told = (
        f"of the {seed.kept:,} calibration answers above its strictest threshold {seed.mistakes:,} are wrong"
        f" ({percent(seed.mistakes / seed.kept)} %), which certifies {percent(seed.bound)} %"
    )
    if _is_worse(seed):
        return f"{told}; more answers would not help, a better order of the answers or a higher --risk would"
    needed = "more" if seed.needed is None else f"about {_about(seed.needed):,}"
    n = len(seed.calibration.values)
    return f"{told}; with that share of mistakes {risk} takes {needed} calibration answers, of which there are {n:,}"


def _about(number: int) -> int:
    """A number with two digits that say something."""
    return int(float(f"{number:.1e}"))


def _is_worse(seed: Guarded) -> bool:
    """Whether so many are wrong above the strictest threshold that more answers would not help."""
    return seed.mistakes >= seed.terms.risk * seed.kept


def needs(found: GuardedTable) -> Iterator[str]:
    """Sentences on what methods without a threshold would need, those alike together."""
    lacking = {line.line.key.label: [s for s in line.seeds if s.threshold is None] for line in found.tested}
    few, worse, none = list[str](), list[str](), list[str]()
    for label, seeds in lacking.items():
        kept = [seed for seed in seeds if seed.kept]
        helped = [seed.needed for seed in kept if not _is_worse(seed) and seed.needed is not None]
        if helped:
            few.append(f"{label} ({span(map(_about, helped), count)})")
        elif kept:
            worse.append(label)
        elif seeds:
            none.append(label)
    risk = share(found.terms.risk)
    if few:
        yield (
            f"More calibration answers than {found.feasible.n:,} would do, if mistakes above the strictest threshold"
            f" stayed as frequent, for {', '.join(few)}."
        )
    if worse:
        yield (
            f"{risk} or more are wrong even above the strictest threshold of {', '.join(worse)}: that takes a better"
            " order of the answers, or a higher --risk."
        )
    if none:
        yield f"No calibration answer lies above the strictest threshold of {', '.join(none)}."


def notes_of(line: GuardedLine) -> Iterator[str]:
    """Footnotes of a line."""
    if line.reason:
        yield line.reason
    if line.seeds and line.seeds[0].is_score:
        yield "its thresholds are of scores without a scale"
    if line.seeds and line.line.others:
        yield "; ".join(line.line.reasons)
