"""Letters of lm-evaluation-harness beside the committed ones: equal scores are told from preferred ones."""

from __future__ import annotations

import json

import pytest

from benchmarks import beside_lm_eval


def test_letters_beside_lm_eval_are_told_apart() -> None:
    names = [*json.loads(beside_lm_eval.KEPT.read_text(encoding="utf-8"))["scores"]][:3]
    ours = beside_lm_eval.beside({name: [0.0] * 4 for name in names}).ours
    rows = [[-2.0] * 4 for _ in names]
    for row, letter in zip(rows, ours, strict=True):
        row["abcd".index(letter)] = -1.0
    rows[1] = [-1.0] * 4  # as likely each; the first is taken
    rows[2]["abcd".index(ours[2]) - 1] = -0.5
    found = beside_lm_eval.beside(dict(zip(names, rows, strict=True)))
    assert found.theirs[0] == found.ours[0]
    assert sorted(found.differ.tolist()) == pytest.approx([0.0, 0.5])
    assert found.margins.tolist() == pytest.approx([1.0, 0.0, 0.5])
