"""How each of the 20 data sets is asked, word for word, as docs/methods.md §1.4 has it: golden files.

`UPDATE_GOLDEN=1 pytest tests/unit/tasks/ct` rewrites the golden files; read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.api import Format, Question
from bench.api.protocol import Protocol
from bench.prompts import templates
from tasks.ct.composer import CHOICE_SETS, OPEN_SETS
from tasks.ct.data_set import DataSet, ReadOptions, SplitQuestions

GOLDEN = Path(__file__).parents[3] / "golden"
PROTOCOL = Protocol()
CASES = [(each, Format.CHOICE) for each in CHOICE_SETS] + [(each, Format.OPEN) for each in OPEN_SETS]
IDS = [f"{each.name}-{fmt.value}" for each, fmt in CASES]


@pytest.mark.parametrize(("data_set", "fmt"), CASES, ids=IDS)
def test_prompts_equal_their_golden_file(hub: SimpleNamespace, data_set: DataSet, fmt: Format) -> None:
    train = f"{data_set.card.folder}/{data_set.card.splits['train']}"
    rows = list(SplitQuestions(hub.like({train: 3}), data_set, "train", ReadOptions(fmt, PROTOCOL.exemplar_seed), {}))
    shots: list[list[Question]] = [rows[1:], rows[:1], []]
    shown = ""
    for question, exemplars in zip(rows, shots, strict=True):
        prompt = templates.build(question, exemplars, data_set.style(fmt), fmt, PROTOCOL)
        right = templates.target(question, fmt, PROTOCOL.letters)
        shown += f"--- {question.id}, right: {right}\n{prompt.messages[1].content}\n--- end\n"
    path = GOLDEN / f"ct_{data_set.name}_{fmt.value}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(shown, encoding="utf-8", newline="\n")
    assert shown == path.read_text(encoding="utf-8")


def test_prompts_are_of_all_data_sets() -> None:
    assert len(CHOICE_SETS) == 20
    assert [each.name for each in CHOICE_SETS] == sorted(each.name for each in CHOICE_SETS)
    assert {each.name for each in CHOICE_SETS} - {each.name for each in OPEN_SETS} == {"hellaswag"}
