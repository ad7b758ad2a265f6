"""Analyses of CCPS: parts of its columns are learned from as all are, together or alone; planted effects are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from bench.api import AnalysisInput, Batch, Context, Format
from methods.ccps import Ccps
from methods.ccps import analyses as of_ccps
from methods.ccps.columns import FEATURES
from methods.ccps.networks import Data, Splits
from tests.unit.methods.ccps.test_method import batch

FEW: dict[str, Any] = {
    "contrastive_steps": 32,
    "classifier_steps": 64,
    "learning_rate": 3e-3,
    "contrastive_learning_rate": 3e-3,
    "contrastive_learning_rate_open": 3e-3,
}
SHORT: dict[str, Any] = {"contrastive_steps": 8, "classifier_steps": 24}
CLOSE = 1e-6


def given(fmt: Format = Format.CHOICE, *, seeds: int = 2, validation: bool = True, **settings: Any) -> AnalysisInput:
    """Answers of a random head, with what a run would hand to `fit`."""
    tokens = 1 if fmt is Format.CHOICE else 4
    held = batch(120, 7, tokens=tokens) if validation else None
    contexts = {seed: Context(seed=seed + 11, format=fmt, validation=held) for seed in range(seeds)}
    test = batch(150, 8, tokens=tokens, labels=False)
    return AnalysisInput(Ccps(**{**FEW, **settings}), batch(300, 6, tokens=tokens), test, contexts)


@pytest.mark.parametrize(("fmt", "validation"), [(Format.CHOICE, False), (Format.OPEN, True)])
def test_columns_all_together_are_the_method_itself(fmt: Format, validation: bool) -> None:
    short = {**FEW, "contrastive_steps": 4, "classifier_steps": 12}
    study = given(fmt, validation=validation, **short)
    found = of_ccps.features(study)
    assert {name: p.shape for name, p in found.confidence.items()} == dict.fromkeys(
        ("full", "original", "perturbation"), (2, 150)
    )
    for row, ctx in zip(found.confidence["full"], study.contexts.values(), strict=True):
        direct = Ccps(**short).fit(study.train, replace(ctx, trainings=[])).predict(study.test)
        np.testing.assert_allclose(row, direct, rtol=0, atol=CLOSE)
    assert dict(found.sizes) == {"full": 75, "original": 12, "perturbation": 63}
    assert not np.allclose(found.confidence["original"], found.confidence["full"], atol=1e-3)


def material(fmt: Format, *, validation: bool, dtype: torch.dtype, **settings: Any) -> tuple[Any, Context]:
    study = given(fmt, validation=validation, **settings)
    made = of_ccps.prepare(study)
    train, held = (part and Data(part.features.to(dtype), part.labels) for part in made.splits)
    assert train is not None
    return made._replace(splits=Splits(train, held), test=made.test.to(dtype)), study.contexts[0]


SUBSETS = [[k for k in range(75) if k != left_out] for left_out in (0, 33, 74)]


@pytest.mark.parametrize(
    ("fmt", "validation", "settings"),
    [
        (Format.CHOICE, True, SHORT),
        (Format.CHOICE, False, SHORT),
        (Format.CHOICE, True, {"learning_rate": 0.03, "classifier_steps": 128}),  # ends at different steps
        (Format.CHOICE, True, {**SHORT, "optimiser": "adam"}),
        pytest.param(Format.OPEN, True, {"classifier_steps": 8, "contrastive_steps": 4}, marks=pytest.mark.slow),
    ],
)
def test_columns_trained_together_are_as_trained_alone(fmt: Format, validation: bool, settings: dict[str, Any]) -> None:
    made, ctx = material(fmt, validation=validation, dtype=torch.float64, **settings)
    single, joint = replace(ctx, trainings=[]), replace(ctx, trainings=[])
    together = of_ccps.retrain_stack(made, SUBSETS, joint)
    alone = np.stack([of_ccps.retrain(made, own, single) for own in SUBSETS])
    np.testing.assert_allclose(together, alone, rtol=0, atol=CLOSE)
    taken = [[stage.stage().taken for stage in trainings.trainings] for trainings in (joint, single)]
    assert sorted(taken[0]) == sorted(taken[1])
    kept = [sorted((s.stage().name, s.stage().kept) for s in trainings.trainings) for trainings in (joint, single)]
    assert kept[0] == kept[1]


def test_columns_with_dropout_are_trained_one_by_one() -> None:
    made, ctx = material(Format.CHOICE, validation=True, dtype=torch.float32, classifier_dropout=0.2)
    together = of_ccps.retrain_stack(made, SUBSETS[:2], replace(ctx, trainings=[]))
    alone = np.stack([of_ccps.retrain(made, own, replace(ctx, trainings=[])) for own in SUBSETS[:2]])
    assert np.array_equal(together, alone)


def plant_columns(monkeypatch: pytest.MonkeyPatch, draw: Callable[[Any], Any], tested: Callable[[Batch], Any]) -> None:
    """Let the method see columns `(n, 75)` that are drawn for the labels of its answers, `tested` in the test."""

    def drawn(labels: Any) -> torch.Tensor:
        return torch.from_numpy(draw(np.asarray(labels)).astype(np.float32))

    def prepared(_self: Ccps, train: Batch, ctx: Context) -> Splits:
        assert ctx.validation is not None
        rows = (train.correct, ctx.validation.correct)
        return Splits(*(Data(drawn(labels), torch.tensor(labels, dtype=torch.int64)) for labels in rows))

    monkeypatch.setattr(Ccps, "prepare_splits", prepared)
    monkeypatch.setattr(Ccps, "test_inputs", lambda _self, batch: drawn(tested(batch)).numpy())


def test_leave_one_out_finds_the_column_that_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """One column alone tells the label, and all others are noise."""
    rng = np.random.default_rng(3)
    tested = rng.random(400) < 0.5

    def draw(labels: Any) -> Any:
        columns = rng.normal(size=(len(labels), 75))
        columns[:, FEATURES.index("pei_value_token")] += 3.0 * labels
        return columns

    plant_columns(monkeypatch, draw, lambda _: tested)
    fast = {"learning_rate": 1e-2, "contrastive_learning_rate": 1e-2}
    study = given(seeds=1, contrastive_steps=24, classifier_steps=48, **fast)
    study.method.format_ = "choice"  # type: ignore[attr-defined]
    found = of_ccps.leave_one_out(study)
    auroc = {name: np.mean([roc_auc_score(tested, row) for row in p]) for name, p in found.confidence.items()}
    assert len(auroc) == 76
    assert min(auroc, key=lambda name: auroc[name]) == "pei_value_token"
    assert auroc["full"] - auroc["pei_value_token"] > 0.2
    others = [auroc["full"] - value for name, value in auroc.items() if name not in {"full", "pei_value_token"}]
    assert max(map(abs, others)) < 0.1
