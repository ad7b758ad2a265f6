"""What probes and CCPS learn, held to scikit-learn on the same signals: is a ranking of methods one of their constants?

Slow: it reads the signals of the embedded model itself. It prints the Brier scores:
`python -m pytest -m slow -s tests/unit/methods/test_against_baselines.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegressionCV
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from bench.api import At, Batch, ConfidenceMethod, Context, FloatArray, Hidden, Of, Ragged, TokenIds, Unembedding
from bench.data.splits import TaskSplit
from bench.progress import Silent
from bench.run.config import RunConfig
from bench.run.plan import Read
from bench.run.preparation import open_resources, prepare
from bench.run.resolve import resolve
from bench.signals.batch_builder import BatchBuilder
from bench.signals.split_data import SplitData
from methods.ccps import Ccps
from methods.ccps.features import perturbation_features
from methods.pik import PIK
from methods.saplma import SaplmaF, SaplmaM, SaplmaUM
from tests.kit.methods import unlabelled

pytestmark = pytest.mark.slow

METHODS: list[type[ConfidenceMethod]] = [PIK, SaplmaF, SaplmaM, SaplmaUM, Ccps]
TASKS = ("atlas-choice", "atlas-oe")
SEEDS = (0, 1, 2)
POINT = 0.01
"""One Brier point."""


class Splits(NamedTuple):
    """Labelled answers of a task."""

    train: Batch
    validation: Batch
    test: Batch
    subjects: np.ndarray


class ReadTask(NamedTuple):
    """A task of which a run has read its splits."""

    name: str
    data_by_split: Mapping[TaskSplit, SplitData]
    batches: BatchBuilder
    methods: Mapping[str, ConfidenceMethod]
    """Name -> the method with the preset's arguments."""


@pytest.fixture(scope="module", params=TASKS)
def read(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ReadTask:
    names = tuple(cls.name for cls in METHODS)
    config = RunConfig(
        methods=names, model="tiny", tasks=(request.param,), cache=tmp_path_factory.mktemp(request.param)
    )
    resolved = resolve(config)
    resources = open_resources(config, resolved, Silent())
    prepared = prepare(resolved, resources, (), None)
    for step in prepared.steps:
        if isinstance(step, Read):
            graded = resources.grader.grade(resources.reader.read(prepared.data_by_split[step.where], step.signals))
            prepared.data_by_split[step.where] = graded
    return ReadTask(request.param, prepared.data_by_split, BatchBuilder(resources.reader), resolved.methods)


def splits_of(read: ReadTask, cls: type[ConfidenceMethod]) -> Splits:
    data_by_split = [read.data_by_split[TaskSplit(read.name, split)] for split in ("train", "validation", "test")]
    batches = [read.batches.batch(split_data, cls.needs.predict, labels=True) for split_data in data_by_split]
    test = data_by_split[-1]
    subjects = np.array([question.subject for question in test.questions])[test.usable]
    return Splits(*batches, subjects)


def features_of(cls: type[ConfidenceMethod], batch: Batch) -> FloatArray:
    """What a method reads of each answer, as a row: a state, or CCPS' features, averaged over an answer's tokens."""
    if cls is not Ccps:
        (signal,) = cls.needs.predict
        return np.asarray(batch[signal], dtype=np.float64)
    hidden, ids = batch[Hidden(1.0, At.ANSWER_PREDICTING)], batch[TokenIds(Of.ANSWER)]
    features = perturbation_features(
        torch.from_numpy(hidden.values.copy()), torch.from_numpy(ids.values.copy()), batch[Unembedding()]
    )
    rows = Ragged(features.double().numpy(), ids.offsets)
    return np.stack([rows[i].mean(axis=0) for i in range(len(rows))])


def by_subject(losses: FloatArray, splits: Splits) -> list[FloatArray]:
    return [losses[splits.subjects == subject] for subject in np.unique(splits.subjects)]


def squared_errors(confidence: FloatArray, splits: Splits) -> FloatArray:
    return np.asarray((confidence - splits.test.correct) ** 2)


def brier(confidence: FloatArray, splits: Splits) -> float:
    return float(np.mean([losses.mean() for losses in by_subject(squared_errors(confidence, splits), splits)]))


def is_worse(confidence: FloatArray, other: FloatArray, splits: Splits) -> bool:
    """Beyond chance: the paired difference of the Brier scores is more than 1.96 standard errors."""
    parts = by_subject(squared_errors(confidence, splits) - squared_errors(other, splits), splits)
    error = np.sqrt(sum(part.var(ddof=1) / len(part) for part in parts)) / len(parts)
    return bool(np.mean([part.mean() for part in parts]) > 1.96 * error)


def references(cls: type[ConfidenceMethod], splits: Splits) -> dict[str, FloatArray]:
    """Confidences of logistic regression, C by cross-validation, and of an MLP that stops early."""
    scaler = StandardScaler().fit(features_of(cls, splits.train))
    train, test = (scaler.transform(features_of(cls, batch)) for batch in (splits.train, splits.test))
    linear = LogisticRegressionCV(
        Cs=10, cv=5, scoring="neg_log_loss", max_iter=3000, l1_ratios=(0,), use_legacy_attributes=False
    )
    network = MLPClassifier((64, 32), early_stopping=True, max_iter=200, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = {"logistic regression": linear, "early-stopped MLP": network}
        return {
            name: model.fit(train, splits.train.correct).predict_proba(test)[:, 1] for name, model in fitted.items()
        }


def ours(cls: type[ConfidenceMethod], splits: Splits, read: ReadTask) -> list[FloatArray]:
    """Confidences with each seed."""
    fmt = read.data_by_split[TaskSplit(read.name, "train")].task.format
    contexts = [Context(seed, fmt, validation=splits.validation) for seed in SEEDS]
    fitted = [cls(**read.methods[cls.name].params()).fit(splits.train, ctx) for ctx in contexts]
    return [method.predict(unlabelled(splits.test)) for method in fitted]


def constant(splits: Splits) -> FloatArray:
    return np.full(len(splits.test), splits.train.correct.mean())


@pytest.mark.parametrize("cls", METHODS)
def test_methods_are_as_good_as_scikit_learn(cls: type[ConfidenceMethod], read: ReadTask) -> None:
    splits = splits_of(read, cls)
    score = float(np.mean([brier(one, splits) for one in ours(cls, splits, read)]))
    theirs = {name: brier(confidence, splits) for name, confidence in references(cls, splits).items()}
    shown = ", ".join(f"{name} {100 * value:.1f}" for name, value in theirs.items())
    base = brier(constant(splits), splits)
    print(f"{read.name} {cls.name}: Brier {100 * score:.1f}; {shown}; constant {100 * base:.1f}")  # noqa: T201 - the figures
    assert score <= min(theirs.values()) + POINT


@pytest.mark.parametrize("rows", [100, 200, 400])
@pytest.mark.parametrize("cls", [PIK, SaplmaF, Ccps])
def test_methods_on_few_rows_beat_a_constant(
    cls: type[ConfidenceMethod], rows: int, read: ReadTask, request: pytest.FixtureRequest
) -> None:
    """Beyond chance, except where logistic regression is, too; the validation split chooses the step."""
    if cls is PIK and read.name == "atlas-oe" and rows == 400:  # with fewer, logistic regression is worse, too
        # Weights that start at zero don't help: validation loss 0.67 as before, a constant 0.61.
        reason = "at 1e-4 its bias takes 3,300 steps to the base rate; by then its weights know few rows by heart"
        request.applymarker(pytest.mark.xfail(reason=reason))
    whole = splits_of(read, cls)
    drawn = np.random.default_rng(0).permutation(len(whole.train))[:rows]
    some = whole._replace(train=whole.train.take(drawn))
    confidences = ours(cls, some, read)
    linear, base = references(cls, some)["logistic regression"], constant(some)
    score = np.mean([brier(confidence, some) for confidence in confidences])
    print(  # noqa: T201 - the figures
        f"{read.name} {cls.name}, {rows} rows: Brier {100 * score:.1f}; logistic regression"
        f" {100 * brier(linear, some):.1f}; constant {100 * brier(base, some):.1f}"
    )
    assert is_worse(linear, base, some) or not any(is_worse(one, base, some) for one in confidences)
