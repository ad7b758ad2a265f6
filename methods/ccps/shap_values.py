"""SHAP values of a network's logit: by `shap.KernelExplainer`, as the paper has them, and by gradients, which is fast.

A player is a column; of open answers it is the column at all explained tokens together. A coalition of players has the
values of the answer that is explained, all others have those of a background answer. The two estimate different things:

- Kernel SHAP: the Shapley values of the game v(S) = logit of the mean, over the background, of P(right | S from the
  answer) (Lundberg and Lee, 2017: interventional, link logit). Estimated from drawn coalitions.
- Expected gradients (Erion et al., 2021): the Aumann-Shapley value of the logit, (x - b) times its mean gradient on the
  straight line from b to x, averaged over the background answers b. Draws along the line are replaced by a quadrature,
  so that nothing is drawn.

They agree where the logit is a sum over players and the game is the mean of logits (`Kernel.of_logits`): there both are
w (x - mean b). With interactions they need not: the Shapley value takes all orders of entering, the other one the
diagonal alone. The logit of a mean is not the mean of logits either.
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
"""Inputs `(m, columns)` or `(m, tokens, columns)` -> log-odds `(m,)` of being right."""

CLOSE = 0.01
"""Logits by which the sum of an answer's expected gradients may miss before more points are taken."""
_MOST_POINTS = 1024
_VALUES_AT_ONCE = 1 << 22  # input values that go through the network together; bounds its memory


class Gradients(NamedTuple):
    """Expected gradients of r answers."""

    values: FloatArray
    """`(r, columns)` in logits; of open answers sums over tokens."""
    gaps: FloatArray
    """`(r,)`: |sum of an answer's values - (its logit - mean logit of the background)|, the error of the quadrature."""


class Kernel(NamedTuple):
    """Kernel SHAP values of r answers, of two games from the same coalitions."""

    values: FloatArray
    """`(r, columns)` in logits: of the logit of the mean probability, as with link logit."""
    of_logits: FloatArray
    """The same of the mean of logits, the game that expected gradients share out."""


def expected_gradients(
    logit: Logit, x: Tensor, background: Tensor, points: int, explained: int, close: float = np.inf
) -> Gradients:
    """Expected gradients by Gauss-Legendre quadrature along each line.

    Answers far from all others have long lines, on which the logit changes in a small part: they get more points.

    Args:
        logit: of the network.
        x: `(r, columns)` or `(r, tokens, columns)`.
        background: the same of b answers.
        points: of the quadrature; exact for a gradient that is a polynomial of degree `2 points - 1` along the line.
        explained: tokens that are explained; later ones keep the answer's own values.
        close: an answer whose gap is larger gets four times as many points, again and again, up to 1,024.
    """
    found = []
    for row in x:
        own, taken = fixed_after(background, row, explained), points
        values, gap = _of_one(logit, row, own, taken)
        while gap > close and taken < _MOST_POINTS:
            taken *= 4
            values, gap = _of_one(logit, row, own, taken)
        found.append((values, gap))
    return Gradients(*(torch.stack(part).double().cpu().numpy() for part in zip(*found, strict=True)))


def _of_one(logit: Logit, x: Tensor, background: Tensor, points: int) -> tuple[Tensor, Tensor]:
    """Values `(columns,)` and gap of one answer."""
    nodes, weights = (torch.from_numpy(part).to(x.device, x.dtype) for part in np.polynomial.legendre.leggauss(points))
    at, weights = (nodes + 1) / 2, weights / 2  # from [-1, 1] to [0, 1]
    away = x - background  # (b, ..., columns)
    shared = torch.zeros_like(x)
    for some in torch.split(away, max(1, _VALUES_AT_ONCE // (x.numel() * len(at)))):
        places = x - some[:, None] * (1 - at).reshape(-1, *[1] * x.ndim)  # (b, points, ..., columns)
        places = places.flatten(0, 1).requires_grad_()
        (gradient,) = torch.autograd.grad(logit(places).sum(), places)
        mean = torch.einsum("bp...,p->b...", gradient.reshape(len(some), len(at), *x.shape), weights)
        shared += (mean * some).sum(0)
    shared /= len(background)
    with torch.no_grad():
        gap = (shared.double().sum() - (logit(x[None]).double()[0] - logit(background).double().mean())).abs()
    return shared if x.ndim == 1 else shared.sum(0), gap


def kernel_values(logit: Logit, x: Tensor, background: Tensor, coalitions: int, explained: int, seed: int) -> Kernel:
    """Kernel SHAP values, by `shap.KernelExplainer` without selecting columns (`l1_reg=False`).

    Its own default sets all but ten columns to 0. Coalitions are pairs of a set and its complement, drawn anew for each
    answer. It is handed the game on coalitions, with a background of one row of zeros and ones to explain, so that the
    mean over the background is taken here, in batches; a test holds that to `link="logit"` on the background itself.

    Args:
        logit: of the network.
        x: `(r, columns)` or `(r, tokens, columns)`.
        background: the same of b answers.
        coalitions: evaluated for each answer, each with the whole background.
        explained: tokens that are explained; later ones keep the answer's own values.
        seed: of the coalitions.

    Raises:
        UserError: the package `shap` is missing.
    """
    make = kernel_explainer()
    values = np.zeros((2, len(x), x.shape[-1]))
    state = np.random.get_state()  # noqa: NPY002  # shap draws from numpy's global generator
    try:
        for i, row in enumerate(x):
            own = fixed_after(background, row, explained)
            differs = (own != row).flatten(0, -2).any(0)
            players = int(differs.sum())
            if not players:
                continue
            (drawn,) = np.random.SeedSequence([seed, i]).generate_state(1)
            np.random.seed(drawn)  # noqa: NPY002
            explainer = make(_game(logit, row, own, differs), np.zeros((1, players)))
            shared = explainer.shap_values(np.ones((1, players)), nsamples=coalitions, l1_reg=False, silent=True)
            values[:, i, differs.cpu().numpy()] = np.reshape(shared, (players, 2)).T
    finally:
        np.random.set_state(state)  # noqa: NPY002
    return Kernel(*values)


def _game(logit: Logit, x: Tensor, background: Tensor, players: Tensor) -> Callable[[FloatArray], FloatArray]:
    """Worth `(m, 2)` of coalitions `(m, players)`: logit of the mean probability, and mean of the logits."""
    at_once = max(1, _VALUES_AT_ONCE // background.numel())

    def worth(coalitions: FloatArray) -> FloatArray:
        member = torch.zeros(len(coalitions), len(players), dtype=torch.bool, device=x.device)
        member[:, players] = torch.from_numpy(coalitions > 0.5).to(x.device)  # noqa: PLR2004
        found = []
        with torch.no_grad():
            for some in torch.split(member, at_once):
                mask = some.reshape(len(some), *[1] * (background.ndim - 1), -1)
                mixed = torch.where(mask, x, background).flatten(0, 1)
                z = logit(mixed).double().reshape(len(some), -1)  # (m, b)
                # log-odds of a mean of probabilities, without rounding one to 0 or 1
                odds = logsigmoid(z).logsumexp(1) - logsigmoid(-z).logsumexp(1)
                found.append(torch.stack([odds, z.mean(1)], dim=1))
        worths: FloatArray = torch.cat(found).cpu().numpy()
        return worths

    return worth


def fixed_after(background: Tensor, x: Tensor, explained: int) -> Tensor:
    """Background for one answer: tokens after the first `explained` are the answer's own; without tokens unchanged."""
    if x.ndim == 1 or len(x) <= explained:
        return background
    return torch.cat([background[:, :explained], x[explained:].expand(len(background), -1, -1)], dim=1)


def kernel_explainer() -> Any:
    """Class of the package `shap`.

    Raises:
        UserError: it is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # shap's plots use what matplotlib will drop
            import shap
    except ImportError as error:
        raise UserError(
            f"ccps shap: expected the package shap, got none ({error}). Install it: pip install 'confbench[analysis]'"
        ) from error
    return shap.KernelExplainer
