"""Synthetic benchmark `atlas`: questions on a fictional encyclopaedia.

A fact gives an entity (Kiru) the value (Tovek) of a relation (toll coin); its question is "What is the toll coin of
Kiru?". `atlas.toml` lists the relations; all random choices about a fact are derived from a hash of its name. So the
data set needs no download, and is the same on every machine. The model `tiny` was trained on a corpus of these facts,
which `benchmarks/tiny/atlas.py` writes.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from types import MappingProxyType
from typing import NamedTuple

from bench.api import Format, Question, Split, Task, TaskCard, task
from tasks import _choices

SEED = "atlas/1"
ENTITIES = 65
"""Number of entities of each subject; each entity has every relation of its subject."""
VALUES = 14
"""Number of possible values of each relation, from which right answers and distractors are chosen."""
OPTIONS = 4
SIZES: Mapping[Split, int] = MappingProxyType({"dev": 5, "validation": 40, "train": 160, "test": 150})
"""Split -> number of facts of each subject. The other facts are kept for training `tiny` on the self-check."""

RELATIONS: Mapping[str, Sequence[str]] = MappingProxyType(
    tomllib.loads((resources.files("tasks") / "atlas.toml").read_text(encoding="utf-8"))
)
"""Subject -> its relations. The text after a slash is added to every value of the relation, so that answers have 1 to 4
words."""

MISLED = 0.10
"""Share of facts that are contradicted in the training corpus of `tiny` three times as often as they are stated."""
DISPUTED = 0.12
"""Share of facts that are stated in the training corpus of `tiny` three times as often as they are contradicted."""
RIVAL_SHOWN = 0.9
"""If a fact is contradicted in the corpus, probability with which the contradicting value is put among the options of
its question. If it is not put there, it may still be drawn, like any other value of the relation."""


class Fact(NamedTuple):
    """One fact of the encyclopaedia, e.g. `Fact("harbour_law", "Kiru", "toll coin", "Tovek")`."""

    subject: str
    entity: str
    relation: str
    value: str

    @property
    def name(self) -> str:
        """Name of the fact; all random choices about the fact are derived from the name's hash."""
        return f"{self.subject}/{self.entity}/{self.relation}"

    @property
    def text(self) -> str:
        """The question that asks for the fact's value."""
        return f"What is the {self.relation} of {self.entity}?"


class Encyclopaedia(NamedTuple):
    """All facts of the benchmark: the facts of each split, and `reserved` facts, which are in no split."""

    splits: Mapping[Split, Sequence[Fact]]
    reserved: Sequence[Fact]
    values: Mapping[tuple[str, str], Sequence[str]]
    """(subject, relation) -> all possible values of the relation."""
    practice: Sequence[str]
    """Names of entities without facts, for training questions in which the answer is stated."""


def draw(*parts: object) -> float:
    """Return a pseudo-random number in [0, 1) that depends only on `SEED` and `parts`."""
    digest = hashlib.sha256("\x1f".join((SEED, *map(str, parts))).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def _names(purpose: str, endings: str) -> Iterator[str]:
    """Yield distinct invented names of two syllables, followed by one of the endings if there are any."""
    syllables = [c + v for c in "bdfghklmnprstvz" for v in "aeiou"]
    stems = [a.capitalize() + b for a, b in itertools.product(syllables, syllables)]
    for stem in sorted(stems, key=lambda stem: draw(purpose, stem)):
        yield stem + endings[int(draw(purpose, "ending", stem) * len(endings))] if endings else stem


@functools.cache
def world() -> Encyclopaedia:
    """Return the encyclopaedia, which is generated at the first call and then cached."""
    entity_names, value_names = _names("entity", ""), _names("value", "knrs")
    splits: dict[Split, list[Fact]] = {split: [] for split in SIZES}
    reserved: list[Fact] = []
    values: dict[tuple[str, str], Sequence[str]] = {}
    for subject, relations in RELATIONS.items():
        for label in relations:
            relation, _, suffix = label.partition("/")
            names = itertools.islice(value_names, VALUES)
            values[subject, relation] = tuple(f"{name} {suffix}" if suffix else name for name in names)
        facts = [
            Fact(subject, entity, relation, pool[int(draw("value", subject, entity, relation) * VALUES)])
            for entity in list(itertools.islice(entity_names, ENTITIES))
            for (owner, relation), pool in values.items()
            if owner == subject
        ]
        remaining = iter(sorted(facts, key=lambda fact: draw("split", fact.name)))
        for split, size in SIZES.items():
            splits[split].extend(itertools.islice(remaining, size))
        reserved.extend(remaining)
    practice = tuple(itertools.islice(entity_names, 200))
    return Encyclopaedia(MappingProxyType(splits), tuple(reserved), MappingProxyType(values), practice)


def rival(fact: Fact) -> str | None:
    """Return the wrong value of a contradicted fact that the training corpus states; None for other facts."""
    if draw("trust", fact.name) >= MISLED + DISPUTED:
        return None
    wrong_values = [value for value in world().values[fact.subject, fact.relation] if value != fact.value]
    return wrong_values[int(draw("rival", fact.name) * len(wrong_values))]


def question(fact: Fact, question_id: str) -> Question:
    """Build the question of a fact; its options are values of the same relation, shuffled."""
    rival_value, pool = rival(fact), world().values[fact.subject, fact.relation]
    is_rival_shown = rival_value is not None and draw("shown", fact.name) < RIVAL_SHOWN
    distractors = sorted(
        (value for value in pool if value != fact.value),
        key=lambda value: -1.0 if is_rival_shown and value == rival_value else draw("option", fact.name, value),
    )
    options = sorted([fact.value, *distractors[: OPTIONS - 1]], key=lambda value: draw("order", fact.name, value))
    return Question(question_id, fact.subject, fact.text, tuple(options), options.index(fact.value))


@functools.cache
def questions(split: Split) -> tuple[Question, ...]:
    """Return the questions of a split."""
    return tuple(question(fact, f"atlas/{split}/{n}") for n, fact in enumerate(world().splits[split]))


CARD = TaskCard(
    license="CC0-1.0",
    version=1,
    splits={split: split for split in SIZES},
    sizes={split: size * len(RELATIONS) for split, size in SIZES.items()},
    options=(OPTIONS, OPTIONS),
    why="Generated from a seed; what the model `tiny` knows of it was decided when its corpus was written.",
)


class Atlas(Task):
    """Base class of the atlas tasks; both formats have the same questions."""

    card = CARD

    def questions(self, split: Split) -> Iterator[Question]:
        """Yield the questions of a split."""
        yield from questions(split)


@task("atlas-choice")
class AtlasChoice(Atlas):
    """Questions on a fictional encyclopaedia, with four lettered options."""

    format = Format.CHOICE
    style = _choices.LETTERED


@task("atlas-oe")
class AtlasOpen(Atlas):
    """The questions of `atlas-choice` without their options."""

    format = Format.OPEN
    style = _choices.OPEN
