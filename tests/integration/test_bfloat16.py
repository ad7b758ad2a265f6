"""Whole runs in bfloat16 beside float32: every method runs, packs are accepted, and cells say nearly the same.

The models are random, of six architectures (`tests/fixtures/deciding.py`). Their weights are bfloat16 numbers in both
runs, so that arithmetic alone differs. Bounds hold where both runs gave the same answer, because another answer has
another confidence; so the share of equal answers has a bound of its own.

What reads the model alone may differ by what bfloat16 does to a logit: states of 8 bits, times a spread of 2.5, move
logits by about 0.05 and probabilities by a quarter of that; at most 0.03 was found in two blocks and 0.14 in 48.
Samples come in tenths. A method that learns from labels differs more, since an answer that flipped in training is
another label among 48: there the mean difference and the Brier score have bounds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bench.results.files import read_records
from tests.fixtures import deciding
from tests.fixtures.deciding import KINDS, SHOTS
from tests.integration.conftest import FIXTURES
from tests.kit.place import Place

TASKS = ("riddles-choice", "riddles-open")
FROZEN = ("ptrue", "sequence-probability", "litcab", "self-consistency")
"""Methods that learn nothing from answers that the model gave."""
PROBES = ("saplma-f", "saplma-m", "saplma-um", "pik")
ADAPTERS = ("it", "ct")
WITHOUT_ADAPTERS = (*FROZEN, *PROBES, "lts", "ccps")
SETTINGS = (
    f"protocol.shots={SHOTS}", "protocol.max_new_tokens_open=4", "protocol.kept_step=last",
    "litcab.steps=10", "lts.steps=200", "ccps.contrastive_steps=20", "ccps.classifier_steps=20",
    *(f"{name}.{setting}" for name in PROBES for setting in ("steps=20", "learning_rate=0.001")),
    *(f"{name}.{setting}" for name in ADAPTERS for setting in ("steps=2", "deepspeed=false")),
)  # fmt: skip
SAME_ANSWERS = {2: 0.9, 48: 0.8}
"""Least share, by the number of blocks."""
FROZEN_APART = {2: 0.05, 48: 0.2}
"""Largest difference of a confidence."""
TOKENS_APART = {2: 0.028, 48: 0.2}
"""The same where token probabilities are read; logits rounded to bfloat16 would differ by 0.035 in two blocks."""
SAMPLED_APART = {2: 0.2, 48: 0.4}
LEARNED_APART = {2: 0.1, 48: 0.2}
"""Largest mean difference."""
BRIER_APART = {2: 0.05, 48: 0.1}


class Cell(NamedTuple):
    row: dict[str, Any]
    answers: dict[str, str]
    confidence: dict[str, float]


def cells(model: Path, dtype: str, methods: tuple[str, ...]) -> dict[Any, Cell]:
    """Every cell of a run, by task and method; all of them have numbers."""
    place = Place(model.parent)
    options = [part for name in TASKS for part in ("--task", name)]
    for setting in SETTINGS:
        if setting.partition(".")[0] in {"protocol", *methods}:
            options += ["--set", setting]
    place.run(
        "--method", ",".join(methods), "--model", model, "--plugin", FIXTURES / "riddles.py", "--device", "cpu",
        "--dtype", dtype, "--preset", "fixed", *options, out=dtype,
    )  # fmt: skip
    found = {}
    for path in (place / dtype).rglob("*--fixed--*.json"):
        row = json.loads(path.read_text())
        assert row["status"] == "ok", row["reason"]
        assert not [note for note in row["notes"] if "can't share a cache" in note], row["notes"]
        assert row["config"].get("dtype", "float32") == dtype
        records = read_records(path)
        answers = dict(zip(records.id, records.answer, strict=True))
        confidence = dict(zip(records.id, records.confidence.tolist(), strict=True))
        found[row["task"], row["method"]] = Cell(row, answers, confidence)
    assert set(found) == {(task, method) for task in TASKS for method in methods}
    return found


def check(short: dict[Any, Cell], full: dict[Any, Cell], layers: int) -> None:
    for (task, method), one in short.items():
        other = full[task, method]
        same = [name for name, answer in one.answers.items() if other.answers[name] == answer]
        assert len(same) >= SAME_ANSWERS[layers] * len(one.answers), task
        apart = np.abs([one.confidence[name] - other.confidence[name] for name in same])
        brier = abs(one.row["metrics"]["brier"]["pooled"] - other.row["metrics"]["brier"]["pooled"])
        assert brier <= BRIER_APART[layers], (task, method, brier)
        if method == "self-consistency":
            assert apart.max() <= SAMPLED_APART[layers] + 1e-9, (task, method, apart.max())
        elif method in FROZEN:
            most = FROZEN_APART if method == "ptrue" else TOKENS_APART
            assert apart.max() <= most[layers], (task, method, apart.max())
        else:
            assert apart.mean() <= LEARNED_APART[layers], (task, method, apart.mean())


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "methods"), [(2, WITHOUT_ADAPTERS), (2, ADAPTERS), (48, WITHOUT_ADAPTERS)])
@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_says_nearly_the_same(tmp_path: Path, kind: str, layers: int, methods: tuple[str, ...]) -> None:
    """Models of many layers are packed."""
    model = deciding.save(tmp_path / kind, kind, layers)
    short, full = (cells(model, dtype, methods) for dtype in ("bfloat16", "float32"))
    check(short, full, layers)
