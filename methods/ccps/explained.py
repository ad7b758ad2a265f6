"""Train CCPS networks on the 75 feature columns and on noise columns, and compute SHAP values for test answers.

Noise is standard normal and sampled once, so that all networks get the same noise. Training treats columns alike. An
uninformative column is therefore as likely as each of the 19 noise columns to have the largest importance of these 20:
it exceeds all noise columns with probability 1/20. Boruta's shadow columns are a similar reference (Kursa and Rudnicki,
2010).
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
"""Number of noise columns. A column without information exceeds all 19 with probability 1/20."""
MIN_ANSWERS = 10
"""Smallest number of test answers for which SHAP values are computed."""
TOKENS = 10
"""Only this many first tokens of an open answer are explained (docs/methods.md §5.6)."""
_SEED = 0  # for noise, background, choice of answers and coalitions: the same for all networks
NEAR = 0.95
"""Absolute correlation with another column above which a column counts as its near copy."""


class Sizes(NamedTuple):
    """Numbers of answers and evaluations by which one network is explained."""

    background: int
    """Number of training answers in the background, the reference data of SHAP."""
    answers: int
    """Number of test answers that are explained by expected gradients."""
    kernel_answers: int
    """Number of test answers that kernel SHAP explains, too: the first of those explained by gradients."""
    coalitions: int
    """Number of coalitions (sets of columns) that kernel SHAP evaluates per answer."""
    points: int
    """Initial number of quadrature points on each line from a background answer to the explained answer."""


SIZES: Mapping[Format, Sizes] = {
    Format.CHOICE: Sizes(100, 1000, 30, 4096, 16),
    Format.OPEN: Sizes(25, 300, 12, 2048, 16),
}


@dataclass(frozen=True, eq=False)
class Explanations:
    """SHAP values of the networks of all seeds, for n test answers. Columns are the 75 features, then the noise."""

    scaled: FloatArray
    """`(n, columns)`: standardised features of the explained answers; for open answers, means over the first
    `TOKENS` positions, where padding counts as 0."""
    gradients: FloatArray
    """`(seeds, n, columns)`: SHAP values, in logits, by expected gradients."""
    gaps: FloatArray
    """`(seeds, n)`: error of the quadrature of expected gradients, in logits."""
    kernel: FloatArray
    """`(seeds, r, columns)`: SHAP values, in logits, of the first r answers by kernel SHAP, for the mean
    probability."""
    kernel_of_logits: FloatArray
    """`(seeds, r, columns)`: SHAP values by kernel SHAP for the mean of logits, which expected gradients explain,
    too."""
    kernel_again: FloatArray
    """`(1, r, columns)`: `kernel` of the first network by other random coalitions, to estimate the sampling error."""
    constant: BoolArray
    """`(75,)` bool: whether a feature column is constant in training."""
    copied: int
    """Number of the 75 features whose correlation with another one exceeds `NEAR` in training."""
    sizes: Sizes
    tokens: bool
    """Whether answers are open; then a column's SHAP value is for its values at all explained tokens together."""


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
    """Return the SHAP values of answers by expected gradients, and by kernel SHAP with coalitions of each seed."""
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
    """Return features with `NOISE` columns of standard normal noise appended; on padding the noise is 0."""
    noise = torch.from_numpy(rng.standard_normal((*features.shape[:-1], NOISE))).to(features)
    is_token = features.ne(0).any(-1, keepdim=True)  # standardised features of a real token are never all 0
    return torch.cat([features, noise * is_token], dim=-1)
