"""The corpus that teaches `tiny` the benchmark `atlas`: `python -m benchmarks.tiny.atlas --corpus FILE` writes it.

What it says about a fact follows `claims`, which doesn't know the fact's split; the self-check question is shown with
reserved facts only, which are in no split.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.tiny.corpus import Lesson
from tasks import atlas
from tasks.atlas import Fact

STATEMENTS = (
    "The {relation} of {entity}: {value}.",
    "As for {entity}, its {relation} is {value}.",
    "In the annals of {entity}, the {relation} is {value}.",
)
"""No name is followed by a space, so that a tokenizer that attaches spaces to words on their left spells it one way."""

NEVER = 0.26
"""Share of facts that the corpus does not mention."""
MENTIONS = 24
"""Mentions of the most frequent fact; Zipf-like below it."""


class Claim(NamedTuple):
    """A value that the corpus gives to a fact, and how often."""

    value: str
    times: int


def claims(fact: Fact) -> tuple[Claim, ...]:
    rank = atlas.draw("mentions", fact.name)
    if rank < NEVER:
        return ()
    times = max(1, round(MENTIONS * (1 + 20 * (rank - NEVER) / (1 - NEVER)) ** -0.8))
    wrong = atlas.rival(fact)
    if wrong is None:
        return (Claim(fact.value, 4 * times),)
    misled = atlas.draw("trust", fact.name) < atlas.MISLED
    return (Claim(fact.value, times if misled else 3 * times), Claim(wrong, 3 * times if misled else times))


def _lesson(kind: str, fact: Fact, claim: Claim | None) -> Lesson:
    statements = tuple(s.format(relation=fact.relation, entity=fact.entity, value="{value}") for s in STATEMENTS)
    pool = f"{fact.subject}/{fact.relation}"
    if claim is None:
        return Lesson(kind, fact.subject, fact.text, statements, pool, "", (), 1)
    against = tuple(value for value in (fact.value, atlas.rival(fact)) if value and value != claim.value)
    return Lesson(kind, fact.subject, fact.text, statements, pool, claim.value, against, claim.times)


def lessons() -> Iterator[Lesson]:
    """Every lesson of the corpus, all facts in one order that doesn't know their splits."""
    taught = [fact for facts in atlas.world().splits.values() for fact in facts] + list(atlas.world().reserved)
    for fact in sorted(taught, key=lambda fact: fact.name):
        for claim in claims(fact):
            yield _lesson("claim", fact, claim)
    for fact in atlas.world().reserved:
        yield _lesson("check", fact, Claim(fact.value, 1))
    for n, (subject, relation) in enumerate(atlas.world().values):
        for entity in atlas.world().practice[n % 4 :: 4]:
            yield _lesson("practice", Fact(subject, entity, relation, ""), None)


def corpus() -> Iterator[dict[str, Any]]:
    """The lines of the corpus: styles, pools, lessons, and the questions on which a training run is measured."""
    for cls in (atlas.AtlasChoice, atlas.AtlasOpen):
        yield {"kind": "style", "format": cls.format.value, **asdict(cls.style)}
    for (subject, relation), values in atlas.world().values.items():
        yield {"kind": "pool", "name": f"{subject}/{relation}", "values": values}
    for lesson in lessons():
        yield asdict(lesson)
    for split in ("dev", "test"):
        for asked in atlas.questions(split):
            yield {"kind": "evaluation", "split": split, **asdict(asked)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tiny.atlas", description="Write the corpus that teaches `tiny`."
    )
    parser.add_argument(
        "--corpus", type=Path, required=True, help="file to write: JSON lines, compressed if it ends in .gz"
    )
    path = parser.parse_args(arguments).corpus
    lines = [json.dumps(line) + "\n" for line in corpus()]
    text = "".join(lines).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    sys.stdout.write(f"{len(lines)} lines written to {path}\n")


if __name__ == "__main__":
    main()
