"""The page of what became of all parts."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence

from bench.report.tables.formats import markdown_table
from tests.nightly.ledger import Outcome, State
from tests.nightly.parts import Part

NAMED = 10
"""Failures of a part that are named."""
_LOAD, _OTHER = "load at start, end", "if another commit, machine"
_COLUMNS = ("part", "what it proves", "command", "outcome", "minutes", _LOAD, _OTHER)
_OPENING = """# What runs every night

`make nightly` runs what takes too long for `make test`, one part after the other, and writes this page. Started again,
it leaves out what is green for the code as it is and goes on with the rest; what other machines ran stays.
`make nightly NIGHTLY="--again faults"` runs a part from nothing. Minutes are few where the command itself had kept most
of its work. Benchmarks are another command: [how fast](performance.md)."""


def written(parts: Sequence[Part], outcomes: Mapping[str, Outcome]) -> str:
    return "\n".join(_lines(parts, outcomes)) + "\n"


def _lines(parts: Sequence[Part], outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    yield from (_OPENING, "")
    above: tuple[str, ...] = ()
    if outcomes:
        latest = max(outcomes.values(), key=lambda outcome: outcome.start)
        above = (latest.commit, latest.machine)
        yield from (f"Commit {latest.commit}, {latest.start[:10]}, {latest.machine}.", "")
    rows = ([p.name, p.proves, f"`{p.command}`", *_figures(outcomes.get(p.name), above)] for p in parts)
    yield from markdown_table(_COLUMNS, rows, "llllrrl")
    for part in parts:
        if part.name in outcomes:
            yield from _details(part.name, outcomes[part.name])


def _figures(outcome: Outcome | None, above: tuple[str, ...]) -> list[str]:
    if outcome is None:
        return ["not run yet", "", "", ""]
    said = {State.GREEN: "green: ", State.RED: "**red**: ", State.UNFINISHED: ""}[outcome.state] + _cell(outcome.said)
    others = [name for name in (outcome.commit, outcome.machine) if name not in above]
    return [said, f"{outcome.minutes:.1f}", "{:.1f}, {:.1f}".format(*outcome.load), ", ".join(others)]


def _details(name: str, outcome: Outcome) -> Iterator[str]:
    if outcome.failures:
        more = len(outcome.failures) - NAMED
        named = [*outcome.failures[:NAMED], *([f"and {more} more"] if more > 0 else [])]
        yield from ("", f"## Red: {name}", "", "```", *named, "```")
    if outcome.skips:
        yield from ("", f"## Skipped: {name}", "")
        rows = ([str(count), _cell(reason)] for reason, count in outcome.skips.items())
        yield from markdown_table(["tests", "why"], rows, "rl")


def _cell(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "\\|")
