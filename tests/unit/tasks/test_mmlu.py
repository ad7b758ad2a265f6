"""MMLU: the subjects that its rows may name are those of the published sizes, and both formats ask all of them."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from bench.data.sources import FolderSource
from tasks.mmlu import SUBJECTS, MMLUChoice, MMLUOpen

SHARED = Path(__file__).parents[3] / ".." / "shared"
SIZES = SHARED / "paper" / "task_sizes.csv"
TEST = SHARED / "data" / "mmlu" / "test.parquet"


def published(benchmark: str) -> dict[str, int]:
    with SIZES.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["benchmark"] == benchmark]
    return {row["task"].lower(): int(row["n_test"]) for row in rows}


@pytest.mark.skipif(not SIZES.is_file(), reason="../shared/paper/task_sizes.csv is absent")
def test_known_subjects_are_the_published_ones() -> None:
    sizes = published("mmlu")
    assert [subject.replace("_", " ") for subject in SUBJECTS] == sorted(sizes)
    assert sum(sizes.values()) == MMLUOpen.card.sizes["test"]


@pytest.mark.skipif(not (TEST.is_file() and SIZES.is_file()), reason="../shared/data/mmlu or ../shared/paper is absent")
def test_open_format_asks_every_question_of_every_subject() -> None:
    source = FolderSource(SHARED / "data")
    questions = list(MMLUOpen(source).questions("test"))
    assert questions == list(MMLUChoice(source).questions("test"))
    sizes = Counter(question.subject.replace("_", " ") for question in questions)
    assert dict(sizes) == published("mmlu")
    pools = MMLUOpen(source).pools()
    assert {subject: len(pool) for subject, pool in pools.items()} == dict.fromkeys(SUBJECTS, 5)
