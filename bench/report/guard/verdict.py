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
    """Facts, a line each: the answer, who keeps most or comes closest, whose risk breaks, what the labels allow."""
    some, risk, possible = found.some, share(found.request.risk), found.feasible
    there = "" if found.calibrated_on == found.table.task else f" on questions like those of {found.calibrated_on}"
    part = sum(len(line.done) < len(line.seeds) for line in some)
    rule = f"at most {risk} of trusted answers wrong, with a chance of {share(found.request.level)}"
    yield (
        f"Can answers be trusted{there} ({rule})? {'Yes' if some else 'No'}: {len(some)} of {len(found.tested)} methods"
        f" with a threshold that keeps this{f', {part} of them not with every seed' if part else ''}."
    )
    if some:
        best, done = some[0], some[0].done
        kind, at = "score" if done[0].is_score else "confidence", span([each.threshold for each in done], number)
        yield (
            f"Largest share kept: {percent(best.coverage)} % of the answers, by {best.line.key.label} from a {kind} of"
            f" {at} on ({len(done)} of {len(best.seeds)} seeds)."
        )
    elif possible.most:
        line, seed = min(((line, seed) for line in found.tested for seed in line.seeds), key=lambda at: at[1].bound)
        yield f"Closest: {line.line.key.label} (seed {seed.row.seed}): {lacks(seed)}."
    # more mistakes on the other questions than chance explains
    told = []
    for line in some:
        made = max(filter(None, (seed.realised for seed in line.done)), key=lambda each: each.risk_interval or (0.0,))
        if made.risk is not None and made.risk_interval and made.risk_interval[0] > found.request.risk:
            interval = " to ".join(map(percent, made.risk_interval))
            told.append(f"{line.line.key.label} ({percent(made.risk)} %, 95 % interval {interval})")
    if told:
        yield f"More than {risk} wrong on the other questions, of {found.table.task}, beyond chance: {', '.join(told)}."
    yield (
        f"{found.source}. With {possible.right:,} of these {possible.n:,} answers right no method can certify a risk"
        f" below {percent(possible.least_risk)} %, or keep more than {percent(possible.most / possible.n)} % at {risk},"
        f" which asks for {possible.fewest:,} answers without a mistake or {possible.fewest_with_one:,} with one."
    )


def lacks(seed: Guarded) -> str:
    """Why a cell has no threshold, and what it would need."""
    if not seed.kept:
        return "no calibration answer lies above its strictest threshold"
    told = (
        f"of the {seed.kept:,} calibration answers above its strictest threshold {seed.mistakes:,} are wrong"
        f" ({percent(seed.mistakes / seed.kept)} %), which certifies {percent(seed.bound)} %"
    )
    if seed.needed is None:
        return f"{told}; more answers would not help, a better order of the answers or a higher --risk would"
    return (
        f"{told}; with that share of mistakes {share(seed.request.risk)} takes about {_about(seed.needed):,}"
        f" calibration answers, of which there are {len(seed.calibration.values):,}"
    )


def _about(number: int) -> int:
    """A number with two digits that say something."""
    return int(float(f"{number:.1e}"))


def needs(found: GuardedTable) -> Iterator[str]:
    """What methods without a threshold would need, those alike together."""
    few, worse, none = list[str](), list[str](), list[str]()
    for line in found.tested:
        label, lacking = line.line.key.label, [seed for seed in line.seeds if seed.threshold is None]
        if helped := [seed.needed for seed in lacking if seed.needed is not None]:
            few.append(f"{label} ({span(map(_about, helped), count)})")
        elif lacking:
            (worse if any(seed.kept for seed in lacking) else none).append(label)
    if few:
        yield (
            f"Calibration answers that would do instead of {found.feasible.n:,}, if mistakes above the strictest"
            f" threshold stayed as frequent: {', '.join(few)}."
        )
    if worse:
        yield (
            f"Too many wrong even above the strictest threshold, so that it takes a better order of the answers or a"
            f" higher --risk: {', '.join(worse)}."
        )
    if none:
        yield f"No calibration answer above the strictest threshold: {', '.join(none)}."


def notes_of(line: GuardedLine) -> Iterator[str]:
    """Footnotes of a line."""
    if line.reason:
        yield line.reason
    if line.seeds and line.seeds[0].is_score:
        yield "its thresholds are of scores without a scale"
    if line.seeds and line.line.others:
        yield "; ".join(line.line.reasons)
