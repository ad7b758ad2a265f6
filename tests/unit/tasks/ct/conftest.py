"""All 20 data sets in the Hub's columns, made up: three rows of each that go round, each time with another question.

Beside the ordinary rows stand, in the train splits, those that filters leave out or count, at the places in `ODD`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any, overload

import pytest

from bench.api import DataCard, Row, Source, Split, UserError

Values = dict[str, Any]


def _keyed(asked: str, words: str, options: Sequence[str], key: str, labels: str = "ABCDE") -> Values:
    return {
        "id": "x",
        words: asked,
        "choices": {"text": list(options), "label": list(labels[: len(options)])},
        "answerKey": key,
    }


def _pair(premise: str, hypothesis: str, label: int) -> Values:
    return {"premise": premise, "hypothesis": hypothesis, "label": label}


ARC = [
    _keyed("Which of these melts first?", "question", ("ice", "tin", "iron", "salt"), "A"),
    _keyed("What has no legs?", "question", ("a cat", "a snake", "an ant"), "2", "123"),
    _keyed("Where is it {text} night?", "question", ("east", "west", "north", "south", "nowhere (yet)"), "E"),
]
NLI = [
    _pair("Two cooks share a stove.", "They are alone", 2),
    _pair("A band plays\nin the rain.", "It is outdoors", 0),
    _pair("She reads.", "She reads a novel", 1),
]
HUB_ROWS: dict[str, list[Values]] = {
    "arc": ARC,
    "arc_challenge": [{**row, "question": f"Hard: {row['question']}"} for row in ARC],
    "obqa": [
        _keyed("A mirror shows", "question_stem", ("light", "sound", "heat", "taste"), "A"),
        _keyed("Boats float because of", "question_stem", ("paint", "buoyancy", "crews", "flags"), " B"),
        _keyed("Snow is", "question_stem", ("hot", "dry", "loud", "cold"), "D"),
    ],
    "commonsense_qa": [
        {**_keyed("Where do you keep a spoon?", "question", ("drawer", "roof", "sea", "sky", "well"), "A"),
         "question_concept": "spoon"},
        {**_keyed("What do you wear on feet?", "question", ("hat", "shoes", "ring", "coat", "belt"), "B"),
         "question_concept": "feet"},
        {**_keyed("Who bakes?", "question", ("a poet", "a judge", "a pilot", "a diver", "a baker"), "E"),
         "question_concept": "bake"},
    ],
    "trec": [
        {"text": "How many legs has a crab ?", "coarse_label": 5, "fine_label": 38},
        {"text": "What is a quark ?", "coarse_label": 2, "fine_label": 24},
        {"text": "What does CPU stand for ?", "coarse_label": 0, "fine_label": 1},
    ],
    "sciq": [
        {"question": "What do bees make?", "distractor3": "wax paper", "distractor1": "silk", "distractor2": "milk",
         "correct_answer": "honey", "support": "Bees visit flowers.\nThey make honey."},
        {"question": "What is H2O?", "distractor3": "salt", "distractor1": "air", "distractor2": "gold",
         "correct_answer": "water", "support": ""},
        {"question": "What bends light?", "distractor3": "a wall", "distractor1": "a wire", "distractor2": "a rope",
         "correct_answer": "a lens", "support": "A lens bends light."},
    ],
    "math_qa": [
        {"Problem": "a circle of radius 1 has the girth", "correct": "a",
         "options": "a ) 2 ( pi ) , b ) 12 , c ) 0.5 , d ) 1 , e ) none of these"},
        {"Problem": "half of 3 is", "options": "a ) 1 , b ) 2 , c ) 3 , d ) 4 , e ) 3 / 2", "correct": "e"},
        {"Problem": "x if 2 x = 8 ?", "options": "[ ' a ) 8 ' , ' b ) 6 ' , ' c ) 4 ' , ' d ) 2 ' , ' e ) 0 ' ]",
         "correct": "c"},
    ],
    "boolq": [
        {"question": "can tin float", "answer": False, "passage": "Tin is denser than water."},
        {"question": "is rye a grass", "answer": True, "passage": "Rye {passage} is a grass.\nIt is grown for grain."},
        {"question": "do owls sleep", "answer": True, "passage": "Owls sleep by day."},
    ],
    "cosmos_qa": [
        {"id": "x", "context": "I missed the bus .", "question": "Why was I late ?", "answer0": "I slept .",
         "answer1": "The bus left .", "answer2": "It rained .", "answer3": "None of the above choices .", "label": 1},
        {"id": "x", "context": "She baked .", "question": "What followed ?", "answer0": "Cake .", "answer1": "Rain .",
         "answer2": "War .", "answer3": "Sleep .", "label": 0},
        {"id": "x", "context": "He sang .", "question": "Where ?", "answer0": "At sea .", "answer1": "At home .",
         "answer2": "At work .", "answer3": "On stage .", "label": 3},
    ],
    "multirc": [
        {"paragraph": "Sent 1: Ann left. Sent 2: Ben stayed.", "question": "Who left?", "answer": "Ann",
         "idx": {"paragraph": 0, "question": 0, "answer": 0}, "label": 1},
        {"paragraph": "Sent 1: Ann left. Sent 2: Ben stayed.", "question": "Who stayed?", "answer": "Ann",
         "idx": {"paragraph": 0, "question": 1, "answer": 1}, "label": 0},
        {"paragraph": "It rained.", "question": "What fell?", "answer": "rain",
         "idx": {"paragraph": 1, "question": 2, "answer": 2}, "label": 1},
    ],
    "siqa": [
        {"context": "Kim lost a key.", "question": "How does Kim feel?", "answerA": "glad", "answerB": "annoyed",
         "answerC": "proud", "label": "2\n"},
        {"context": "Lee won.", "question": "Why?", "answerA": "luck", "answerB": "sleep", "answerC": "rain",
         "label": "1"},
        {"context": "Mo hid.", "question": "What next?", "answerA": "sing", "answerB": "dance", "answerC": "wait",
         "label": "3"},
    ],
    "cb": [
        {**_pair("Nobody said that it was late.", "it was late", 2), "idx": 0},
        {**_pair("He knew that she had won.", "she had won", 0), "idx": 1},
        {**_pair("I doubt that pigs fly.", "pigs fly", 1), "idx": 2},
    ],
    "snli": NLI,
    "anli": [{"uid": "x", "reason": "", **row} for row in NLI],
    "copa": [
        {"premise": "The cup broke.", "choice1": "It fell.", "choice2": "It was blue.", "question": "cause",
         "idx": 0, "label": 0},
        {"premise": "It snowed.", "choice1": "The sea rose.", "choice2": "Schools closed.", "question": "effect",
         "idx": 1, "label": 1},
        {"premise": "He yawned.", "choice1": "He was tired.", "choice2": "He ran.", "question": "cause",
         "idx": 2, "label": 0},
    ],
    "hellaswag": [
        {"ind": 1, "activity_label": "Tea", "ctx_a": "A man pours tea.", "ctx_b": "he", "ctx": "A man pours tea. he",
         "endings": ["drinks it.", "flies.", "melts.", "is a cup."], "source_id": "x", "split": "train",
         "split_type": "indomain", "label": "0"},
        {"ind": 2, "activity_label": "Knots", "ctx_a": "[header] How to tie a knot [title] Take a rope.", "ctx_b": "",
         "ctx": "[header] How to tie a knot [title] Take a rope.",
         "endings": ["Eat it.", "Burn it.", "Loop it.", "Sell it."],
         "source_id": "x", "split": "train", "split_type": "indomain", "label": "2"},
        {"ind": 3, "activity_label": "Chess", "ctx_a": "Two play.", "ctx_b": "one", "ctx": "Two play. one",
         "endings": ["is a board.", "moves.", "rains.", "boils."],
         "source_id": "x", "split": "train", "split_type": "indomain", "label": "1"},
    ],
    "piqa": [
        {"goal": "dry a wet shoe", "sol1": "Fill it with paper, then wait.", "sol2": "Fill it with soup.", "label": 0},
        {"goal": "open a jar", "sol1": "Ask it.", "sol2": "Turn the lid.", "label": 1},
        {"goal": "cool tea", "sol1": "Add ice.", "sol2": "Boil it.", "label": 0},
    ],
    "winogrande": [
        {"sentence": "Ann thanked Eve, for _ had helped.", "option1": "Ann", "option2": "Eve", "answer": "2"},
        {"sentence": "The lid does not fit the pot, as the _ is small.", "option1": "lid", "option2": "pot",
         "answer": "1"},
        {"sentence": "_ slept, so Ben drove.", "option1": "Cal", "option2": "Ben", "answer": "1"},
    ],
}  # fmt: skip

ASKED = MappingProxyType(
    {
        "arc": "question", "arc_challenge": "question", "obqa": "question_stem", "commonsense_qa": "question",
        "trec": "text", "sciq": "question", "math_qa": "Problem", "boolq": "question", "cosmos_qa": "question",
        "multirc": "question", "siqa": "question", "cb": "hypothesis", "snli": "hypothesis", "anli": "hypothesis",
        "copa": "premise", "hellaswag": "ctx", "piqa": "goal", "winogrande": "sentence",
    }
)  # fmt: skip
"""The column that tells rows apart."""

ODD: dict[str, dict[int, Values]] = {
    "commonsense_qa": {3: {"choices": {"label": list("ABCDE"), "text": ["in", "on", "in", "at", "by"]}}},
    "math_qa": {
        3: {"options": "a ) 1 , b ) 2 , c ) 2 , d ) 4 , e ) 5"},
        4: {"options": "a ) 1,000 , b ) 2,500 , c ) 3 , d ) 45 , e ) none of these"},
        5: {"options": "a ) ( 1 / 2 ) x , b ) ( 3 / 4 ) x , c ) 1 , d ) 2 , e ) 3"},
        6: {"options": "a ) 10 ( rounded ) , b ) 9 , c ) 8 , d ) 7 , e ) 6"},
        7: {"options": "a ) 1 , b ) 2 , c ) 3 , d ) 4"},
    },
    "sciq": {3: {"distractor1": "honey", "correct_answer": "honey"}},
    "siqa": {3: {"answerA": "wait", "answerB": "wait"}},
    "piqa": {3: {"label": -1}},
    "anli": {3: {"label": -1}},
    "winogrande": {
        3: {"answer": ""},
        4: {"sentence": "The _ hid the _ ."},
        5: {"sentence": "There is none."},
    },
}

SIZES: dict[str, int] = {
    "ct/ai2_arc/ARC-Easy/train": 2_251, "ct/ai2_arc/ARC-Easy/validation": 570,
    "ct/ai2_arc/ARC-Challenge/train": 1_119, "ct/ai2_arc/ARC-Challenge/validation": 299,
    "ct/boolq/default/train": 9_427, "ct/boolq/default/validation": 3_270,
    "ct/super_glue/cb/train": 250, "ct/super_glue/cb/validation": 56,
    "ct/super_glue/copa/train": 400, "ct/super_glue/copa/validation": 100,
    "ct/super_glue/multirc/train": 27_243, "ct/super_glue/multirc/validation": 4_848,
    "ct/commonsense_qa/default/train": 9_741, "ct/commonsense_qa/default/validation": 1_221,
    "ct/cosmos_qa/default/train": 25_262, "ct/cosmos_qa/default/validation": 2_985,
    "ct/hellaswag/default/train": 39_905, "ct/hellaswag/default/validation": 10_042,
    "ct/math_qa/default/train": 29_837, "ct/math_qa/default/validation": 4_475,
    "ct/openbookqa/main/train": 4_957, "ct/openbookqa/main/validation": 500,
    "ct/piqa/plain_text/train": 16_113, "ct/piqa/plain_text/validation": 1_838,
    "ct/sciq/default/train": 11_679, "ct/sciq/default/validation": 1_000,
    "ct/social_i_qa/default/train": 33_410, "ct/social_i_qa/default/validation": 1_954,
    "ct/snli/plain_text/train": 550_152, "ct/snli/plain_text/validation": 10_000,
    "ct/anli/plain_text/train_r1": 16_946, "ct/anli/plain_text/dev_r1": 1_000,
    "ct/anli/plain_text/train_r2": 45_460, "ct/anli/plain_text/dev_r2": 1_000,
    "ct/anli/plain_text/train_r3": 100_459, "ct/anli/plain_text/dev_r3": 1_200,
    "ct/trec/default/train": 5_452,
    "ct/winogrande/winogrande_xl/train": 40_398, "ct/winogrande/winogrande_xl/validation": 1_267,
}  # fmt: skip
"""Rows on the Hub, by the metadata of the data sets (`dataset_infos.json`)."""

NAMES = MappingProxyType(
    {
        "ct/ai2_arc/ARC-Easy": "arc", "ct/ai2_arc/ARC-Challenge": "arc_challenge", "ct/openbookqa/main": "obqa",
        "ct/social_i_qa/default": "siqa",
    }
)  # fmt: skip


class HubRows(Sequence[Row]):
    """Rows that are made when they are asked for; counts how many were."""

    def __init__(self, name: str, where: str, n: int, columns: Sequence[str], *, odd: bool) -> None:
        found = HUB_ROWS[name][0]
        missing = [column for column in columns if column not in found]
        if missing:
            raise UserError(f"{where}: expected the column {', '.join(missing)}, found only {', '.join(found)}")
        self._rows = [{column: row[column] for column in columns} for row in HUB_ROWS[name]]
        self._odd = ODD.get(name, {}) if odd else {}
        self._asked = ASKED[name] if ASKED[name] in columns and n > 3 else ""
        self._unlabelled = name == "snli" and "label" in columns
        self._where, self._n = where, n
        self.made = 0

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[Row]:
        return map(self._row, range(self._n))

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._n))]
        if not 0 <= index < self._n:
            raise IndexError(index)
        return self._row(index)

    def _row(self, i: int) -> Row:
        self.made += 1
        values = self._rows[i % 3]
        if i in self._odd:
            values = values | {column: value for column, value in self._odd[i].items() if column in values}
        if self._asked:
            values = values | {self._asked: f"{values[self._asked]} No. {i}"}
        if self._unlabelled and i % 63 == 50:  # 158 of 10,000, as on the Hub
            values = values | {"label": -1}
        return Row(i, f"{self._where} row {i}", values)


class HubLike(Source):
    """Has every split of every card, with as many rows as the Hub has, unless told otherwise."""

    def __init__(self, sizes: Mapping[str, int] = MappingProxyType({}), absent: Sequence[str] = ()) -> None:
        self.sizes = SIZES | dict(sizes)
        self.absent = absent
        self.tables: list[tuple[str, HubRows]] = []

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> HubRows:
        path = f"{card.folder}/{card.splits[split]}"
        name = NAMES.get(card.folder) or card.folder.removeprefix("ct/").removeprefix("super_glue/").partition("/")[0]
        rows = HubRows(name, f"{path}.parquet", self.sizes[path], columns, odd=split == "train")
        self.tables.append((path, rows))
        return rows

    def has(self, card: DataCard, split: Split) -> bool:
        return split in card.splits and f"{card.folder}/{card.splits[split]}" not in self.absent

    def made(self, path: str) -> int:
        """Rows of a split that were asked for."""
        return sum(rows.made for where, rows in self.tables if where == path)


@pytest.fixture(scope="session")
def hub() -> SimpleNamespace:
    """The made-up Hub: `like(sizes, absent)`, a source, and `row(name, i)`, a row of a data set's, changeable."""

    def row(name: str, i: int, **changes: Any) -> Row:
        family = "anli" if name.startswith("anli") else name
        return Row(i, f"{name}.parquet row {i}", copy.deepcopy(HUB_ROWS[family][i]) | changes)

    like: Callable[..., HubLike] = HubLike
    return SimpleNamespace(like=like, row=row, rows=HUB_ROWS)
