"""Train CCPS networks on the 75 feature columns and on noise columns, and compute SHAP values for test answers.

Noise is standard normal and sampled once: all networks get the same noise. Training treats columns symmetrically, so an
uninformative column is as likely as each of the 19 noise columns to have the largest importance: it exceeds all of them
with probability 1/20. This calibrates small importances. (Boruta's shadow columns are a similar reference; Kursa and
Rudnicki, 2010.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bench.api import AnalysisInput, BoolArray, FloatArray, Format, UserError
from methods._shared.training import limited_threads
from methods.ccps.analyses import prepare
from methods.ccps.networks import Network, Splits, TokenEncoder, tokens_needed
from methods.ccps.shap_values import TOLERANCE, Gradients, Kernel, expected_gradients, kernel_explainer, kernel_values

NOISE = 19
"""Noise columns: with 19, an uninformative column exceeds all of them with probability 1/20."""
MIN_ANSWERS = 10
"""Fewest test answers for this analysis."""
TOKENS = 10
"""Number of first tokens of an open answer that are explained (docs/methods.md §5.6)."""
_SEED = 0  # for noise, background, choice of answers and coalitions: the same for all networks
NEAR = 0.95
"""Absolute correlation above which a column counts as a near copy."""


class Sizes(NamedTuple):
    """Sample sizes per network."""

    background: int
    """Number of training answers in the background."""
    answers: int
    """Number of test answers explained by gradients."""
    kernel_answers: int
    """Number of these test answers, from the first on, that kernel SHAP explains, too."""
    coalitions: int
    """Coalitions that kernel SHAP evaluates per answer."""
    points: int
    """Initial number of quadrature points along each line."""


SIZES: Mapping[Format, Sizes] = {
    Format.CHOICE: Sizes(100, 1000, 30, 4096, 16),
    Format.OPEN: Sizes(25, 300, 12, 2048, 16),
}


@dataclass(frozen=True, eq=False)
class Explanations:
    """SHAP values of the networks of all seeds; columns are the 75 features and the noise."""

    scaled: FloatArray
    """`(n, columns)`: standardised features of the explained answers; for open answers means over explained tokens."""
    gradients: FloatArray
    """`(seeds, n, columns)`: SHAP values by expected gradients, in logits."""
    gaps: FloatArray
    """`(seeds, n)`: errors of the quadrature."""
    kernel: FloatArray
    """`(seeds, r, columns)`: SHAP values of the first r answers by kernel SHAP."""
    kernel_of_logits: FloatArray
    """`(seeds, r, columns)`: kernel SHAP values of the game that gradients explain, the mean of logits."""
    kernel_again: FloatArray
    """`(1, r, columns)`: `kernel` of the first network with other coalitions, to estimate its sampling error."""
    constant: BoolArray
    """`(75,)`: whether a column is constant in training."""
    copied: int
    """Number of the 75 features whose correlation with another one exceeds `NEAR` in training."""
    sizes: Sizes
    tokens: bool
    """Whether a column's SHAP value is that of the column at several tokens together (open answers)."""


def explain_networks(data: AnalysisInput, sizes: Sizes | None = None) -> Explanations:
    """Train a network per seed, and explain test answers by expected gradients and by kernel SHAP.

    Raises:
        UserError: the package `shap` is missing, or there are too few answers; raised before training.
    """
    kernel_explainer()
    if len(data.test) < MIN_ANSWERS:
        raise UserError(
            f"ccps shap: expected at least {MIN_ANSWERS} test answers to explain, got {len(data.test)}; fewer give"
            " neither interval nor correlation"
        )
    method, plain, test = prepare(data)
    answer_format = next(iter(data.contexts.values())).format
    sizes, rng = sizes or SIZES[answer_format], np.random.default_rng(_SEED)
    train, validation = (part and part._replace(features=with_noise(part.features, rng)) for part in plain)
    splits = Splits(train, validation)  # type: ignore[arg-type]
    noisy_test = with_noise(test, rng)
    x = noisy_test[torch.from_numpy(rng.permutation(len(noisy_test))[: sizes.answers])]
    background = splits.train.features[torch.from_numpy(rng.permutation(len(splits.train.labels))[: sizes.background])]
    explanations, tokens = [], answer_format is Format.OPEN
    for k, (seed, ctx) in enumerate(data.contexts.items()):
        data.say(f"{method.name}, shap: seed {seed}, training")
        network = method.train_network(splits, ctx)
        data.say(f"{method.name}, shap: seed {seed}, values of {len(x):,} answers, {sizes.kernel_answers} by kernel")
        with limited_threads(network):
            explanations.append(_explain_network(network, x, background, sizes, (k,) if k else (k, len(data.contexts))))
    train_features = plain.train.features.flatten(0, -2)
    if tokens:
        train_features = train_features[train_features.ne(0).any(-1)]
    columns: FloatArray = train_features.double().cpu().numpy()
    constant = columns.min(0) == columns.max(0)
    varied = columns[:, ~constant] - columns[:, ~constant].mean(0)
    corr = np.abs(varied.T @ varied) / np.sqrt(np.outer(*[(varied**2).sum(0)] * 2))  # absolute correlations
    np.fill_diagonal(corr, 0)
    n_copied = int((corr.max(0, initial=0) > NEAR).sum())
    gradients, kernels = zip(*explanations, strict=True)
    return Explanations(
        (x[:, :TOKENS].mean(1) if tokens else x).double().cpu().numpy(),
        np.stack([part.values for part in gradients]), np.stack([part.gaps for part in gradients]),
        np.stack([first.values for first, *_ in kernels]), np.stack([first.of_logits for first, *_ in kernels]),
        np.stack([other.values for other in kernels[0][1:]]),
        constant, n_copied, sizes._replace(background=len(background)), tokens,
    )  # fmt: skip


def _explain_network(
    network: Network, x: Tensor, background: Tensor, sizes: Sizes, seeds: Sequence[int]
) -> tuple[Gradients, list[Kernel]]:
    """Return the SHAP values of answers by expected gradients, and by kernel SHAP with the coalitions of each seed."""
    for parameter in network.parameters():
        parameter.requires_grad = False
    if isinstance(network.encoder, TokenEncoder):
        longest = int(torch.cat([x, background]).ne(0).any(-1).any(0).sum())
        n_tokens = tokens_needed(longest, len(network.encoder.convolutions))
        x, background = x[:, :n_tokens], background[:, :n_tokens]

    def logit(inputs: Tensor) -> Tensor:
        z: Tensor = network(inputs)
        return z[:, 1] - z[:, 0]

    kernel_rows = x[: sizes.kernel_answers]
    return (
        expected_gradients(logit, x, background, sizes.points, TOKENS, TOLERANCE),
        [kernel_values(logit, kernel_rows, background, sizes.coalitions, TOKENS, seed) for seed in seeds],
    )


def with_noise(features: Tensor, rng: np.random.Generator) -> Tensor:
    """Append `NOISE` columns of standard normal noise to features; 0 on padding, as all features."""
    noise = torch.from_numpy(rng.standard_normal((*features.shape[:-1], NOISE))).to(features)
    is_token = features.ne(0).any(-1, keepdim=True)  # standardised features of a real token are never all 0
    return torch.cat([features, noise * is_token], dim=-1)
