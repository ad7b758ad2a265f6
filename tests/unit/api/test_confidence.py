"""What a method gives becomes float64 once, and is refused where it is no real number for each answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from bench.api.confidence import as_float64, check_confidences, check_scores
from bench.api.errors import ContractError

HALVES = [0.5, 0.25, 1.0]


@pytest.mark.parametrize(
    "values",
    [
        HALVES,
        tuple(HALVES),
        *(np.array(HALVES, dtype=kind) for kind in (np.float16, np.float32, np.float64, np.longdouble)),
        *(torch.tensor(HALVES, dtype=kind) for kind in (torch.float16, torch.bfloat16, torch.float32, torch.float64)),
        torch.tensor(HALVES, requires_grad=True),
        [torch.tensor(value) for value in HALVES],
        [np.float32(value) for value in HALVES],
        pd.Series(HALVES, index=[2, 0, 1]),
    ],
    ids=lambda values: f"{type(values).__name__}-{getattr(values, 'dtype', '')}",
)
def test_confidences_of_any_kind_become_float64(values: Any) -> None:
    for found in (check_confidences("x", values, 3), check_scores("x", values, ["a", "b", "c"])):
        assert found.dtype == np.float64
        assert found.tolist() == HALVES


def test_confidences_may_be_whole_numbers() -> None:
    assert check_confidences("x", [0, 1], 2).tolist() == [0.0, 1.0]
    assert check_scores("x", torch.tensor([-3, 12]), ["a", "b"]).tolist() == [-3.0, 12.0]


def test_confidences_are_copied() -> None:
    values = np.array([0.5, 0.25])
    found = check_confidences("x", values, 2)
    values[:] = 0
    assert found.tolist() == [0.5, 0.25]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (np.array([0.5 + 0.5j, 0.1]), "x: expected real numbers, got complex128"),
        (torch.tensor([0.5 + 0.5j, 0.1]), "x: expected real numbers, got complex64"),
        (np.array([True, False]), r"x: expected numbers, got bool; give how sure it is and not the decision.*\[:, 1\]"),
        ([True, False], "x: expected numbers, got bool"),
        (torch.tensor([True, False]), "x: expected numbers, got bool"),
        (["0.5", "0.1"], r"x: expected real numbers, got <U3 \(a list\)"),
        ([None, 0.5], r"x: expected real numbers, got object \(a list\)"),
        (None, r"x: expected real numbers, got object \(a NoneType\)"),
        ([[0.5], [0.1, 0.2]], "x: expected one number for each answer, got a list"),
        (torch.tensor([0.5, 0.1]).to_sparse(), "x: expected one number for each answer, got a Tensor"),
        (np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]"), "x: expected real numbers, got datetime64"),
    ],
)
def test_confidences_that_are_no_numbers_are_refused(values: Any, complaint: str) -> None:
    with pytest.raises(ContractError, match=complaint):
        check_confidences("x", values, 2)
    with pytest.raises(ContractError, match=complaint):
        check_scores("x", values, ["a", "b"])


def test_confidences_that_are_masked_are_refused() -> None:
    with pytest.raises(ContractError, match="NaN in 1 of 2"):
        check_confidences("x", np.ma.masked_array([0.5, 0.1], [True, False]), 2)


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((2, 1), r"got \(2, 1\); use .ravel\(\)$"),
        ((1, 2), r"got \(1, 2\); use .ravel\(\)$"),
        ((2, 2), r"got \(2, 2\); give one column, e.g. predict_proba\(x\)\[:, 1\]$"),
        ((3,), r"got \(3,\)$"),
        ((), r"got \(\)$"),
    ],
)
def test_confidences_of_another_shape_are_refused(shape: tuple[int, ...], hint: str) -> None:
    with pytest.raises(ContractError, match=r"x: expected shape \(2,\), " + hint):
        check_confidences("x", np.zeros(shape), 2)


@pytest.mark.parametrize("value", [-0.1, 1.5, np.inf, -np.inf])
def test_confidences_outside_0_and_1_are_refused(value: float) -> None:
    with pytest.raises(ContractError, match=rf'x: expected values within \[0, 1\], got .*{value}; .*output = "score"'):
        check_confidences("x", np.array([0.5, value]), 2)


def test_confidences_keep_their_shape() -> None:
    assert as_float64("x", [[1, 2]]).shape == (1, 2)
