"""SHAP values of a network's logit, by `shap.KernelExplainer` as in the paper, and by gradients, which is faster.

A player is a feature column; for open answers, the column at all explained tokens. Players in a coalition have the
values of the explained answer x; all other players have those of a background answer b. The two methods estimate
different values:

- Kernel SHAP estimates, from sampled coalitions, the Shapley values of the game v(S) = logit of the mean, over the
  background, of P(right | S from the answer). (Lundberg and Lee, 2017: interventional, link logit.)
- Expected gradients (Erion et al., 2021) are Aumann-Shapley values of the logit: (x - b) times the mean gradient on
  the straight line from b to x, averaged over the background. Quadrature replaces sampling on the line, so the result
  is deterministic.

Both are w (x - mean b) if the logit is a sum over players with weights w, and the game is the mean of logits
(`Kernel.of_logits`). With interactions they may differ: the Shapley value averages over all orders of players, the
Aumann-Shapley value integrates along the diagonal. Also, the logit of a mean is not the mean of logits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from bench.api import FloatArray, UserError

Logit = Callable[[Tensor], Tensor]
"""Function from inputs `(m, columns)` or `(m, tokens, columns)` to the log odds `(m,)` that answers are right."""

TOLERANCE = 0.01
"""Largest error in logits of the sum of an answer's expected gradients; above it, more quadrature points are used."""
_MOST_POINTS = 1024
_VALUES_AT_ONCE = 1 << 22  # input values per forward pass; bounds the memory


class Gradients(NamedTuple):
    """Expected gradients of r explained answers."""

    values: FloatArray
    """`(r, columns)` in logits; for open answers, summed over tokens."""
    gaps: FloatArray
    """`(r,)` error of the numerical integration, for each of the r explained answers. It is the absolute difference
    between the sum of the answer's values and its logit minus the background's mean logit."""


class Kernel(NamedTuple):
    """Kernel SHAP values of r explained answers, for two games with the same coalitions."""

    values: FloatArray
    """`(r, columns)` in logits, for the logit of the mean probability over the background, i.e. with link logit."""
    of_logits: FloatArray
    """`(r, columns)` in logits, for the mean logit over the background, the game that expected gradients explain."""


def expected_gradients(
    logit: Logit, x: Tensor, background: Tensor, points: int, explained: int, tolerance: float = np.inf
) -> Gradients:
    """Compute expected gradients by Gauss-Legendre quadrature on lines from background answers to explained answers.

    An answer far from the background has long lines, and the logit changes only on a small part of them. It gets more
    points.

    Args:
        logit: the network's logit.
        x: features of the r explained answers, `(r, columns)` or `(r, tokens, columns)`.
        background: features of the b background answers, in the same shape.
        points: number of quadrature points; exact for a gradient that is a polynomial of degree `2 points - 1`.
        explained: number of explained tokens; later tokens keep the answer's values.
        tolerance: while the gap of an answer is larger, the number of points is multiplied by 4, up to 1,024.
    """
    results = []
    for row in x:
        row_background, n_points = fix_later_tokens(background, row, explained), points
        values, gap = _explain_row(logit, row, row_background, n_points)
        while gap > tolerance and n_points < _MOST_POINTS:
            n_points *= 4
            values, gap = _explain_row(logit, row, row_background, n_points)
        results.append((values, gap))
    return Gradients(*(torch.stack(part).double().cpu().numpy() for part in zip(*results, strict=True)))


def _explain_row(logit: Logit, x: Tensor, background: Tensor, points: int) -> tuple[Tensor, Tensor]:
    """Return the expected gradients `(columns,)` of one answer, and the error of their sum.

    The error is that of `Gradients.gaps`.
    """
    nodes, weights = (torch.from_numpy(part).to(x.device, x.dtype) for part in np.polynomial.legendre.leggauss(points))
    positions, weights = (nodes + 1) / 2, weights / 2  # from [-1, 1] to [0, 1]
    difference = x - background  # (b, ..., columns)
    values = torch.zeros_like(x)
    for chunk in torch.split(difference, max(1, _VALUES_AT_ONCE // (x.numel() * len(positions)))):
        inputs = x - chunk[:, None] * (1 - positions).reshape(-1, *[1] * x.ndim)  # (b, points, ..., columns)
        inputs = inputs.flatten(0, 1).requires_grad_()
        (gradient,) = torch.autograd.grad(logit(inputs).sum(), inputs)
        mean = torch.einsum("bp...,p->b...", gradient.reshape(len(chunk), len(positions), *x.shape), weights)
        values += (mean * chunk).sum(0)
    values /= len(background)
    with torch.no_grad():
        gap = (values.double().sum() - (logit(x[None]).double()[0] - logit(background).double().mean())).abs()
    return values if x.ndim == 1 else values.sum(0), gap


def kernel_values(logit: Logit, x: Tensor, background: Tensor, coalitions: int, explained: int, seed: int) -> Kernel:
    """Compute kernel SHAP values by `shap.KernelExplainer`.

    `l1_reg=False` keeps all columns; the explainer's default would set all but ten to 0. Coalitions are pairs of a set
    and its complement, sampled anew for each answer. The explainer gets a function of coalitions, with a row of zeros
    as background and a row of ones to explain. So the mean over the real background is computed here, in batches.

    Args:
        logit: the network's logit.
        x: features of the r explained answers, `(r, columns)` or `(r, tokens, columns)`.
        background: features of the b background answers, in the same shape.
        coalitions: number of coalitions evaluated per answer, each on the whole background.
        explained: number of explained tokens; later tokens keep the answer's values.
        seed: seed of the coalitions.

    Raises:
        UserError: the package `shap` is missing.
    """
    explainer_class = kernel_explainer()
    values = np.zeros((2, len(x), x.shape[-1]))
    state = np.random.get_state()  # noqa: NPY002  # shap draws from numpy's global generator
    try:
        for i, row in enumerate(x):
            row_background = fix_later_tokens(background, row, explained)
            is_player = (row_background != row).flatten(0, -2).any(0)
            n_players = int(is_player.sum())
            if not n_players:
                continue
            (row_seed,) = np.random.SeedSequence([seed, i]).generate_state(1)
            np.random.seed(row_seed)  # noqa: NPY002
            explainer = explainer_class(_game(logit, row, row_background, is_player), np.zeros((1, n_players)))
            shap_values = explainer.shap_values(np.ones((1, n_players)), nsamples=coalitions, l1_reg=False, silent=True)
            values[:, i, is_player.cpu().numpy()] = np.reshape(shap_values, (n_players, 2)).T
    finally:
        np.random.set_state(state)  # noqa: NPY002
    return Kernel(*values)


def _game(logit: Logit, x: Tensor, background: Tensor, is_player: Tensor) -> Callable[[FloatArray], FloatArray]:
    """Return the game that is explained, as a function of coalitions `(m, players)`.

    Its result, `(m, 2)`, has the logit of the mean probability and the mean logit over the background.
    """
    n_rows = max(1, _VALUES_AT_ONCE // background.numel())

    def value(coalitions: FloatArray) -> FloatArray:
        member = torch.zeros(len(coalitions), len(is_player), dtype=torch.bool, device=x.device)
        member[:, is_player] = torch.from_numpy(coalitions > 0.5).to(x.device)
        parts = []
        with torch.no_grad():
            for chunk in torch.split(member, n_rows):
                mask = chunk.reshape(len(chunk), *[1] * (background.ndim - 1), -1)
                mixed = torch.where(mask, x, background).flatten(0, 1)
                z = logit(mixed).double().reshape(len(chunk), -1)  # (m, b)
                # log-odds of a mean of probabilities, without rounding one to 0 or 1
                mean_odds = logsigmoid(z).logsumexp(1) - logsigmoid(-z).logsumexp(1)
                parts.append(torch.stack([mean_odds, z.mean(1)], dim=1))
        values: FloatArray = torch.cat(parts).cpu().numpy()
        return values

    return value


def fix_later_tokens(background: Tensor, x: Tensor, explained: int) -> Tensor:
    """Return the background with tokens after the first `explained` replaced by the answer's, if there are tokens."""
    if x.ndim == 1 or len(x) <= explained:
        return background
    return torch.cat([background[:, :explained], x[explained:].expand(len(background), -1, -1)], dim=1)


def kernel_explainer() -> Any:
    """Import `shap.KernelExplainer`.

    Raises:
        UserError: the package `shap` is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecation warnings of matplotlib from shap's plots
            import shap
    except ImportError as error:
        raise UserError(
            f"ccps shap: expected the package shap, got none ({error}). Install it: pip install 'confbench[analysis]'"
        ) from error
    return shap.KernelExplainer
