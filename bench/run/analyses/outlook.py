"""Time that the fits of a matrix will take, told before the first of them; and their order, the dearest last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.run.forecast import duration

_NAMED = 6
"""Methods that are told one by one."""
_ADVICE = (
    "the dearest methods come last; each fit is stored, so that after Ctrl-C the same command goes on from there;"
    " --method chooses which take part"
)
_SHARE = 0.01
"""Part of the whole below which a method isn't told by its name."""


@dataclass(frozen=True)
class FitsOf:
    """Fits of one method on one corpus."""

    method: str
    stored: Sequence[bool]
    """For each fit whether an earlier run stored it."""
    seconds: float | str
    """Seconds of one fit on the whole corpus, at most; or why that can't be said."""

    @property
    def left(self) -> int:
        """Fits to be made."""
        return len(self.stored) - sum(self.stored)


def dearest_last(names: Iterable[str], fits: Sequence[FitsOf]) -> list[str]:
    """The methods in an order in which whoever stops early has most: by what their fits take, unknown times last."""
    cost = dict.fromkeys(names, 0.0)
    for each in fits:
        if each.method in cost and each.left:
            cost[each.method] += float("inf") if isinstance(each.seconds, str) else each.left * each.seconds
    return sorted(cost, key=lambda name: cost[name])


def in_words(fits: Sequence[FitsOf]) -> list[str]:
    """Lines on the fits that are to be made, the dearest method first.

    >>> lines = in_words([FitsOf("a", [False] * 18, 200.0)])
    >>> print(lines[0])
    18 of 18 fits are not stored: at most 60 min, of which a at most 60 min (18 of at most 200 s each)
    """
    total, left = sum(len(each.stored) for each in fits), sum(each.left for each in fits)
    if not left:
        return [f"all {total} fits are stored"] if total else []
    known: dict[str, list[tuple[int, float]]] = {}
    unknown: dict[str, int] = {}
    for each in (each for each in fits if each.left):
        if isinstance(each.seconds, str):
            unknown[each.method] = unknown.get(each.method, 0) + each.left
        else:
            known.setdefault(each.method, []).append((each.left, each.seconds))
    seconds = {name: sum(n * one for n, one in own) for name, own in known.items()}
    whole = sum(seconds.values())
    named = sorted((name for name in seconds if seconds[name] > _SHARE * whole), key=lambda name: -seconds[name])
    told = []
    for name in named[:_NAMED]:
        count, longest = sum(n for n, _ in known[name]), max(one for _, one in known[name])
        dearest = duration(longest, "at most")
        told.append(f"{name} {duration(seconds[name], 'at most')} ({count} of {dearest} each)")
    told += [f"others {duration(whole - sum(seconds[name] for name in named[:_NAMED]), 'at most')}"] * (
        len(seconds) > len(told)
    )
    also = f"; not known of {', '.join(f'{name} ({n})' for name, n in unknown.items())}" if unknown else ""
    times = f"{duration(whole, 'at most')}, of which {', '.join(told)}" if known else "in a time that can't be said"
    return [f"{left} of {total} fits are not stored: {times}{also}", _ADVICE]
