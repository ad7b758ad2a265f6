"""`trajectory`: directions are an answer's own and favour none, variants are trainings, planted effects are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bench.api import AnalysisInput, At, Batch, Context, Findings, Format, Hidden, Of, TokenIds, Unembedding, UserError
from bench.stats.variants import StepRow, VariantComparison, compare_variants
from methods.ccps import Ccps
from methods.ccps import analyses as of_ccps
from methods.ccps import perturbation_ablation as of_trajectory
from methods.ccps.columns import FEATURES, ORIGINAL
from methods.ccps.features import perturbation_features
from methods.ccps.networks import Data, Splits, TokenEncoder
from methods.ccps.perturbation_ablation import FURTHER, ORIGINAL_ONLY, RANDOM, RandomDirections, trajectory
from tests.unit.methods.ccps.test_analyses import CLOSE, FEW, given
from tests.unit.methods.ccps.test_method import batch

SEEDS = 3


# --- directions -------------------------------------------------------------------------------------------------------


def drawn(ids: list[str], lengths: list[int], *, seed: int = 3, width: int = 6) -> list[np.ndarray[Any, Any]]:
    """Directions of each answer."""
    rows = RandomDirections(seed=seed).directions(ids, np.array(lengths), width).numpy()
    return np.split(rows, np.cumsum(lengths)[:-1])


def test_directions_follow_from_id_and_seed_alone() -> None:
    first = dict(zip("abc", drawn(["a", "b", "c"], [2, 3, 1]), strict=True))
    other = dict(zip("xca", drawn(["x", "c", "a"], [4, 3, 1]), strict=True))
    for name in "ac":  # in another order, beside others, with more or fewer of their tokens
        shared = min(len(first[name]), len(other[name]))
        assert np.array_equal(first[name][:shared], other[name][:shared])
    assert not np.allclose(first["a"][0], first["b"][0])
    assert not np.allclose(first["b"][0], first["b"][1])
    assert not np.allclose(first["a"], drawn(["a"], [2], seed=4)[0])


def test_directions_favour_none() -> None:
    """Unit vectors drawn uniformly in d dimensions: mean 0, second moments I / d, and no fewer tokens than asked."""
    n, width = 4000, 5
    rows = np.concatenate(drawn([f"q{i}" for i in range(n)], [1] * n, width=width)).astype(np.float64)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert unit.shape == (n, width)
    assert np.abs(unit.mean(0)).max() < 4.5 / np.sqrt(n * width)
    assert np.abs(unit.T @ unit / n - np.eye(width) / width).max() < 4.5 * np.sqrt(2 / n) / width
    fourth = np.mean(unit**4)  # 3 / (d (d + 2)) on the sphere; a cube's corners would give 1 / d^2
    assert fourth == pytest.approx(3 / (width * (width + 2)), rel=0.03)


def exact(study: AnalysisInput) -> of_ccps.PreparedData:
    """Features in double precision: in single, Adam makes whole steps of rounding where gradients cancel."""
    made = of_ccps.prepare(study)
    train, held = (part and Data(part.features.double(), part.labels) for part in made.splits)
    assert train is not None
    return made._replace(splits=Splits(train, held), test=made.test.double())


# --- less padding -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool_mask", [False, True])
@pytest.mark.parametrize("channels", [(64, 32), (24, 16, 8)])
def test_padding_that_is_less_gives_the_same_gradients(channels: tuple[int, ...], pool_mask: bool) -> None:
    torch.manual_seed(1)
    encoder = TokenEncoder((75, *channels), pool_mask=pool_mask).double()
    lengths = [1, 2, 4, 4, 3]
    batches = [batch(5, k, tokens=4) for k in range(2)]
    study = AnalysisInput(
        Ccps(encoder_channels=channels, pool_mask=pool_mask), batches[0], batches[1],
        {0: Context(seed=1, format=Format.OPEN)},
    )  # fmt: skip
    longest = max(int(b[TokenIds(Of.ANSWER)].lengths.max()) for b in batches)
    few = of_trajectory.reduce_padding(study).max_tokens
    assert few == longest + 2 * len(channels)
    whole = torch.zeros(5, 30, 75, dtype=torch.float64)
    for row, length in zip(whole, lengths, strict=True):
        row[: min(length, longest)] = torch.randn(min(length, longest), 75)
    found = []
    for x in (whole, whole[:, :few]):
        encoder.zero_grad()
        embedded = encoder(x)
        embedded.square().sum().backward()
        found.append([embedded.detach(), *(p.grad.clone() for p in encoder.parameters() if p.grad is not None)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_padding_that_is_less_gives_the_same_trainings() -> None:
    assert of_trajectory.reduce_padding(given(Format.OPEN, max_tokens=6)).max_tokens == 6  # of long answers all
    study = given(Format.OPEN, contrastive_steps=8, classifier_steps=16)
    found = []
    for method in (study.method, of_trajectory.reduce_padding(study)):
        made = exact(replace(study, method=method))
        assert made.test.shape[1] == (8 if found else 30)
        found.append(of_ccps.retrain(made, range(75), replace(study.contexts[0], trainings=[])))
    np.testing.assert_allclose(*found, rtol=0, atol=CLOSE)


# --- variants ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", [Format.CHOICE, pytest.param(Format.OPEN, marks=pytest.mark.slow)])
def test_variants_are_trainings_with_other_constants(fmt: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_trajectory, "prepare", exact)
    short = {"contrastive_steps": 4, "classifier_steps": 8}
    study = given(fmt, validation=fmt is Format.CHOICE, **short)
    settings: dict[str, Any] = {**FEW, **short, "max_tokens": of_trajectory.reduce_padding(study).max_tokens}
    found = trajectory(study)
    assert list(found.confidence) == [
        "full", "radius 1.25", "radius 5", "radius 80", "1 step", "2 steps", "10 steps", RANDOM, FURTHER, ORIGINAL_ONLY,
    ]  # fmt: skip
    assert {p.shape for p in found.confidence.values()} == {(2, 150)}
    assert (found.sizes["full"], found.sizes[ORIGINAL_ONLY]) == (75, 12)
    second = study.contexts[1]
    direct = {
        "full": Ccps(**settings),
        "radius 5": Ccps(**settings, radius=5.0),
        "10 steps": Ccps(**settings, steps=10),
        RANDOM: RandomDirections(**settings, seed=second.seed),
        FURTHER: RandomDirections(**settings, seed=second.seed, radius=20.0 * np.sqrt(12)),
    }
    for name, method in direct.items():
        alone = of_ccps.retrain(exact(replace(study, method=method)), range(75), replace(second, trainings=[]))
        np.testing.assert_allclose(found.confidence[name][1], alone, rtol=0, atol=CLOSE, err_msg=name)
        others = [p[1] for other, p in found.confidence.items() if other != name]
        assert min(np.abs(p - alone).max() for p in others) > 1e-3, name
    whole = exact(replace(study, method=direct["full"]))
    original = of_ccps.retrain(whole, range(len(ORIGINAL)), replace(second, trainings=[]))
    np.testing.assert_allclose(found.confidence[ORIGINAL_ONLY][1], original, rtol=0, atol=CLOSE)


def test_variants_leave_out_the_steps_of_the_run() -> None:
    method = Ccps(steps=2, radius=0.5, eps_relative=True)
    names = list(of_trajectory._variants(method, 4))
    assert names == ["radius 0.03125", "radius 0.125", "radius 2", "1 step", "10 steps", RANDOM, FURTHER]
    assert "radius 0.5 times the state's norm, 2 steps" in of_trajectory._build_notes(method, 4)[0]


def test_trajectory_is_an_analysis_of_ccps() -> None:
    study = given()
    with pytest.raises(UserError, match="one of ccps"):
        trajectory(replace(study, method=type("Other", (), {"name": "other"})()))


# --- planted effects --------------------------------------------------------------------------------------------------


@pytest.fixture
def directions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variants of radius and steps, which take time."""
    for name in ("RADII", "STEPS"):
        monkeypatch.setattr(of_trajectory, name, ())


def told_by(answers: Batch, column: str, *, noise: float, seed: int) -> np.ndarray[Any, Any]:
    """Labels that follow one column, less what the original state and the gradient's norm say of it."""
    hidden, ids = answers[Hidden(1.0, At.ANSWER_PREDICTING)].values, answers[TokenIds(Of.ANSWER)].values
    rows = perturbation_features(torch.tensor(hidden), torch.tensor(ids), answers[Unembedding()]).double().numpy()
    known = [FEATURES.index(name) for name in (*ORIGINAL, "jacobian_norm_token") if name != column]
    scaled = (rows - rows.mean(0)) / np.where(rows.std(0) > 0, rows.std(0), 1)
    x = np.column_stack([np.ones(len(rows)), scaled[:, known], scaled[:, known] ** 2])
    target = scaled[:, FEATURES.index(column)]
    if column not in ORIGINAL:
        target = target - x @ np.linalg.lstsq(x, target, rcond=None)[0]
    target = (target - target.mean()) / target.std() + noise * np.random.default_rng(seed).normal(size=len(rows))
    labels: np.ndarray[Any, Any] = target > np.median(target)
    return labels


def planted(column: str, noise: float) -> tuple[Findings, np.ndarray[Any, Any]]:
    """Analysis of answers whose labels follow a column."""
    parts = {name: batch(n, k, labels=False) for k, (name, n) in enumerate({"a": 400, "b": 120, "c": 400}.items())}
    columns = {name: {signal: part[signal] for signal in part.signals} for name, part in parts.items()}
    labels = {name: told_by(part, column, noise=noise, seed=k) for k, (name, part) in enumerate(parts.items())}
    train, held = (Batch(parts[name].ids, columns[name], labels[name]) for name in ("a", "b"))
    contexts = {seed: Context(seed=seed + 11, format=Format.CHOICE, validation=held) for seed in range(SEEDS)}
    method = Ccps(**{**FEW, "contrastive_steps": 32, "classifier_steps": 160, "learning_rate": 6e-3})
    return trajectory(AnalysisInput(method, train, parts["c"], contexts)), labels["c"]


def compared(found: Findings, labels: np.ndarray[Any, Any]) -> tuple[VariantComparison, Mapping[str, StepRow]]:
    result = compare_variants(
        found.confidence, found.reference, labels, ["s"] * len(labels), ("auroc",), path=found.path
    )  # fmt: skip
    return result, {step.adds: step for step in result.steps}


@pytest.mark.usefixtures("directions_only")
def test_label_of_the_gradients_line_needs_the_direction() -> None:
    result, steps = compared(*planted("perturbed_logit_actual_min", 0.0))
    step: Any = steps["the direction"]
    assert step.difference.value > 0.05
    assert step.p_corrected < 1e-4
    assert step.share.low > 0.5
    assert sum(each.share.value for each in result.steps if each.share) == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("directions_only")
def test_label_of_the_margin_needs_no_direction() -> None:
    result, steps = compared(*planted("original_margin_logit_top1_top2", 0.3))
    values = {row.variant: row.estimate.value for row in result.rows if row.estimate}
    assert min(values["full"], values[RANDOM], values[ORIGINAL_ONLY]) > 0.85
    step: Any = steps["the direction"]
    assert (step.p_corrected or 0) > 0.05
    assert abs(step.difference.value) < 0.02
    assert all(each.share is None for each in result.steps)
