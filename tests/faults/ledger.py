"""What became of each fault, kept case by case, so that a part that was stopped goes on where it was."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bench.report.tables.formats import markdown_table
from bench.store.sources import source_digest

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "faults"


class Outcome(StrEnum):
    """What a user had of a fault."""

    SURVIVED = "survived"
    """The right result, or one sentence that says what to do, and nothing lost."""
    WRONG = "wrong without a word"
    """A number changed, and nothing was said."""
    LOST = "lost"
    """A result, an answer or another method's cell is gone."""
    PAID = "paid twice"
    """A judge was asked again for what it had said."""
    TRACEBACK = "traceback"
    HUNG = "hung"


COLUMNS = ("tried", *Outcome)


class FaultError(Exception):
    """A fault that was not survived."""

    def __init__(self, outcome: Outcome, detail: str = "") -> None:
        super().__init__(detail)
        self.outcome = outcome


@dataclass(frozen=True)
class Case:
    """One fault."""

    name: str
    """Unique within its part."""
    trial: Callable[[], None]
    """Does it; raises a `FaultError` where it was not survived. Whatever else it raises is a mistake of the trial."""


@dataclass(frozen=True)
class Ledger:
    """Outcomes of one part's cases, for the code as it is now; those of other code are forgotten."""

    part: str

    @property
    def path(self) -> Path:
        """One line of JSON for each case."""
        return KEPT / f"{self.part}.jsonl"

    def known(self) -> dict[str, Outcome]:
        """Case -> outcome."""
        if not self.path.is_file():
            return {}
        lines = map(json.loads, self.path.read_text(encoding="utf-8").splitlines())
        now = code_digest()
        return {line["case"]: Outcome(line["outcome"]) for line in lines if line["code"] == now}

    def add(self, case: str, outcome: Outcome, detail: str) -> None:
        """Keep an outcome."""
        line = {"case": case, "outcome": outcome, "detail": detail, "code": code_digest()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def tried(ledger: Ledger, cases: Iterable[Case], seconds: float, say: Callable[[str], None]) -> bool:
    """Try the cases that are not known yet, for so long; returns whether all are known now."""
    known, start = ledger.known(), time.monotonic()
    for case in cases:
        if case.name in known:
            continue
        if time.monotonic() - start > seconds:
            return False
        outcome, detail = Outcome.SURVIVED, ""
        try:
            case.trial()
        except FaultError as failure:
            outcome, detail = failure.outcome, str(failure)
            say(f"  {ledger.part}: {case.name}: {outcome}: {detail}")
        ledger.add(case.name, outcome, detail)
    return True


def not_survived(ledger: Ledger) -> list[str]:
    """Cases of a part that were not survived, named as pytest names what failed."""
    known = ledger.known()
    return [f"FAILED {ledger.part}: {case}: {known[case]}" for case in known if known[case] is not Outcome.SURVIVED]


def code_digest() -> str:
    """Digest of all code that a user runs."""
    return source_digest(ROOT / folder for folder in ("bench", "methods", "tasks"))[:16]


def as_markdown(counts: Mapping[str, Counter[Outcome]]) -> str:
    """The table of the README; group -> outcomes, as columns."""
    rows = []
    for group, found in [*counts.items(), ("all", sum(counts.values(), Counter[Outcome]()))]:
        rows.append([group, *(f"{n:,}" for n in [found.total(), *(found[outcome] for outcome in Outcome)])])
    return "\n".join(markdown_table(["faults", *COLUMNS], rows, "lr"))
