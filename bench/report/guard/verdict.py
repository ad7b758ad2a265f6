"""Sentences about guards: which confidence thresholds are certified, and how many labelled answers others need."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bench.report.guard.model import GuardedCell, GuardedLine, GuardedTable
from bench.report.tables.model import unique
from bench.report.text import count, percent, range_text, two_digits
from bench.report.verdict.phrases import like_phrase

_ROUNDING = 1e-6


def format_share(fraction: float) -> str:
    """Format a share that the user requested, such as a risk, in percent and without rounding.

    >>> format_share(0.05), format_share(0.125), format_share(0.9999999)
    ('5 %', '12.5 %', '99.99999 %')
    """
    return f"{100 * fraction:.12g} %"


def format_threshold(threshold: float) -> str:
    """Format a threshold for people, with three significant digits, or six if it is near 1; files have all digits.

    >>> format_threshold(0.91234), format_threshold(0.99996), format_threshold(0.0)
    ('0.912', '0.99996', '0')
    """
    return f"{threshold:.3g}" if threshold < 0.9995 else f"{threshold:.6g}"  # would be printed as 1


def format_level(level: float) -> str:
    """Format a confidence level, rounded up, so that the printed level is never lower than the real one.

    The distance from 1 keeps two significant digits.

    >>> format_level(0.98), format_level(1 - 0.001 / 12), format_level(0.5)
    ('0.98', '0.999917', '0.5')
    """
    gap = 1 - level
    digits = 1 - math.floor(math.log10(gap))
    rounded_gap = math.floor(gap * 10**digits * (1 + _ROUNDING)) / 10**digits
    return f"{1 - rounded_gap:.{digits}f}".rstrip("0")


def verdict(guards: GuardedTable) -> Iterator[str]:
    """Yield the sentences of the verdict on one table of guards.

    They say whether answers can be trusted, and which method keeps most answers or comes closest. Before that stand
    warnings of a judge that errs, and of a model that may guess. They name methods whose error rate on other questions
    is significantly above the requested risk, each tested by itself. The last one says what any method could reach
    with these labels.
    """
    yield from filter(None, map(guards.table.warnings.get, ("unfit_judge", "at_chance")))
    passed, risk, limits = guards.certified, format_share(guards.request.risk), guards.feasible
    domain = "" if guards.calibrated_on == guards.table.task else f" on questions like those of {guards.calibrated_on}"
    n, n_partial = len(guards.evaluated), sum(len(line.passed_seeds) < len(line.seeds) for line in passed)
    certain = len(passed) - n_partial or "none"
    answer = "No" if not passed else "Yes" if n_partial < len(passed) else "Not with every seed"
    rule = f"at most {risk} of trusted answers wrong, with a chance of {format_share(guards.request.level)}"
    yield (
        f"Can answers be trusted{domain} ({rule})? {answer}: a threshold keeps this for {certain} of {n}"
        f" methods{f', and with some seeds only for {n_partial} more' if n_partial else ''}."
    )
    if passed:
        best, done = passed[0], passed[0].passed_seeds
        kind = "score" if done[0].is_score else "confidence"
        start = range_text([c.threshold for c in done], format_threshold)
        same = [line.line.key.label for line in passed[1:] if percent(line.coverage) == percent(best.coverage)]
        yield (
            f"Most answers are kept by {best.line.key.label}{like_phrase(same)}: {percent(best.coverage)} %,"
            f" from a {kind} of {start} on"
            f"{f', with {len(done)} of {len(best.seeds)} seeds' * (len(best.seeds) > 1 and not guards.table.is_audit)}."
        )
    elif limits.most:
        nearest = [(line.line.key.label, min(line.seeds, key=lambda seed: seed.bound)) for line in guards.evaluated]
        name, seed = min(nearest, key=lambda pair: pair[1].bound)
        same = [other for other, own in nearest if other != name and percent(own.bound) == percent(seed.bound)]
        which = f" (seed {seed.row.seed})" * (not guards.table.is_audit)
        yield f"Closest: {name}{which}{like_phrase(same)}: {why_failed(seed)}."
    # more mistakes on the other questions than chance explains
    bad = []
    for line in passed:
        worst = max(
            filter(None, (seed.realised for seed in line.passed_seeds)), key=lambda cell: cell.risk_interval or (0.0,)
        )
        if worst.risk is not None and worst.risk_interval and worst.risk_interval[0] > guards.request.risk:
            interval = " to ".join(map(percent, worst.risk_interval))
            bad.append(f"{line.line.key.label} ({percent(worst.risk)} %, 95 % interval {interval})")
    if bad:
        looks = sum(len(line.passed_seeds) for line in passed)
        alone = f" (each of {looks} thresholds by itself)" * (looks > 1)
        more = f"More than {risk} wrong on the other questions, of {guards.table.task}, beyond chance{alone}"
        yield f"{more}: {', '.join(bad)}."
    yield (
        f"{guards.source}. With {limits.right:,} of these {limits.n:,} answers right no method can certify a risk"
        f" below {percent(limits.least_risk)} %, or keep more than {percent(limits.most / limits.n)} % at {risk};"
        f" to certify {risk} takes at least {limits.fewest:,} answers without a mistake, or"
        f" {limits.fewest_with_one:,} with one."
    )


def why_failed(seed: GuardedCell) -> str:
    """Explain why one method and seed has no certified threshold, and what would help."""
    if not seed.accepted:
        return "no calibration answer lies above its strictest threshold"
    reason = (
        f"of the {seed.accepted:,} calibration answers above its strictest threshold {seed.n_wrong:,} are wrong"
        f" ({percent(seed.n_wrong / seed.accepted)} %), which certifies {percent(seed.bound)} %"
    )
    if seed.answers_needed is None:
        return f"{reason}; with that share of mistakes it takes a better order or a higher --risk, not more answers"
    return (
        f"{reason}; with that share of mistakes {format_share(seed.request.risk)} takes about"
        f" {two_digits(seed.answers_needed):,} calibration answers,"
        f" of which there are {len(seed.calibration.values):,}"
    )


def describe_needs(guards: GuardedTable) -> Iterator[str]:
    """Yield sentences on what would certify a threshold for methods that have none, a sentence for each reason."""
    too_few, too_wrong, empty = list[str](), list[str](), list[str]()
    for line in guards.evaluated:
        label, failing = line.line.key.label, [seed for seed in line.seeds if seed.threshold is None]
        if sizes := [seed.answers_needed for seed in failing if seed.answers_needed is not None]:
            too_few.append(f"{label} ({range_text(map(two_digits, sizes), count)})")
        elif failing:
            (too_wrong if any(seed.accepted for seed in failing) else empty).append(label)
    if too_few:
        yield (
            f"Calibration answers needed (there are {guards.feasible.n:,}), if mistakes above the strictest threshold"
            f" stayed as frequent: {', '.join(too_few)}."
        )
    if too_wrong:
        yield (
            f"Too many wrong even above the strictest threshold; if mistakes there stayed as frequent, only a better"
            f" order of the answers or a higher --risk would help: {', '.join(too_wrong)}."
        )
    if empty:
        yield f"No calibration answer above the strictest threshold: {', '.join(empty)}."


def footnotes(line: GuardedLine) -> Iterator[str]:
    """Yield the footnotes of a method in a table of guards: those of its results, and e.g. why it has no threshold."""
    # a table's caption has notes of all lines, which a guard lacks; a label has the settings
    notes = unique([*line.line.notes, *(note for row in line.line.rows for note in row.notes)])
    yield from (note for note in notes if note != f"with {line.line.variant}")
    if line.reason:
        yield line.reason
    if line.seeds and line.seeds[0].is_score:
        is_audit = line.seeds[0].row.is_audit
        yield f"its thresholds are of {'scores, minus the uncertainty' if is_audit else 'scores without a scale'}"
    if line.seeds and line.line.not_ok_rows:
        yield "; ".join(line.line.reasons)
