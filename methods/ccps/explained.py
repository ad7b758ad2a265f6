"""Networks of CCPS, trained on its columns and on columns of noise, with SHAP values of test answers.

Noise is standard normal and drawn once, as answers and their columns are: all networks see the same. Training treats
columns alike, so that among the columns of noise and one without any information each is as likely to get the largest
importance: one in twenty is above all 19 by chance. That is how small importances are read. (Boruta's shadow columns
are such a reference too; Kursa and Rudnicki, 2010.)
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
from methods.ccps.analyses import material_of
from methods.ccps.networks import Network, Splits, TokenEncoder, tokens_needed
from methods.ccps.shap_values import CLOSE, Gradients, Kernel, expected_gradients, kernel_explainer, kernel_values

NOISE = 19
"""Columns of noise: the fewest of which a column without information is above all one time in twenty."""
FEWEST = 10
"""Test answers below which nothing is said."""
TOKENS = 10
"""First tokens of an open answer that are explained (docs/methods.md §5.6)."""
_SEED = 0  # of the noise, the background, the explained answers and the coalitions: the same for all trainings
NEAR = 0.95
"""Correlation, of either sign, beyond which a column is called a near copy."""


class Sizes(NamedTuple):
    """Amounts that are computed for each training."""

    background: int
    """Training answers that stand for absent columns."""
    answers: int
    """Test answers that are explained by gradients."""
    kernel_answers: int
    """Number of these, the first ones, that kernel SHAP explains as well."""
    coalitions: int
    """Evaluated for each answer by kernel SHAP."""
    points: int
    """Points of the quadrature along each line, to begin with."""


SIZES: Mapping[Format, Sizes] = {
    Format.CHOICE: Sizes(100, 1000, 30, 4096, 16),
    Format.OPEN: Sizes(25, 300, 12, 2048, 16),
}


@dataclass(frozen=True, eq=False)
class Explained:
    """SHAP values of every training; columns are the 75 and those of noise."""

    scaled: FloatArray
    """`(n, columns)`: standardised values of the explained answers; of open ones means over the explained tokens."""
    gradients: FloatArray
    """`(seeds, n, columns)` in logits."""
    gaps: FloatArray
    """`(seeds, n)`: errors of the quadrature."""
    kernel: FloatArray
    """`(seeds, r, columns)` of the first r answers."""
    kernel_of_logits: FloatArray
    """The same of the game that gradients share out."""
    kernel_again: FloatArray
    """`(1, r, columns)`: `kernel` of the first training with other coalitions, by which its own error is known."""
    constant: BoolArray
    """`(75,)`: whether a column has one value in training."""
    copied: int
    """Number of the 75 that correlate with another one beyond `NEAR` in training."""
    sizes: Sizes
    tokens: bool
    """Whether a column is one at several tokens."""


def explained(given: AnalysisInput, sizes: Sizes | None = None) -> Explained:
    """Train a network for each seed, and explain test answers in both ways.

    Raises:
        UserError: the package `shap` is missing, or answers are; said before anything is trained.
    """
    kernel_explainer()
    if len(given.test) < FEWEST:
        raise UserError(
            f"ccps shap: expected at least {FEWEST} test answers to explain, got {len(given.test)}; fewer give"
            " neither interval nor correlation"
        )
    method, plain, test = material_of(given)
    answer_format = next(iter(given.contexts.values())).format
    sizes, rng = sizes or SIZES[answer_format], np.random.default_rng(_SEED)
    train, validation = (part and part._replace(features=with_noise(part.features, rng)) for part in plain)
    splits = Splits(train, validation)  # type: ignore[arg-type]
    tests = with_noise(test, rng)
    x = tests[torch.from_numpy(rng.permutation(len(tests))[: sizes.answers])]
    behind = splits.train.features[torch.from_numpy(rng.permutation(len(splits.train.labels))[: sizes.background])]
    found, tokens = [], answer_format is Format.OPEN
    for k, (seed, own) in enumerate(given.contexts.items()):
        given.say(f"{method.name}, shap: seed {seed}, training")
        network = method.trained(splits, own)
        given.say(f"{method.name}, shap: seed {seed}, values of {len(x):,} answers, {sizes.kernel_answers} by kernel")
        with limited_threads(network):
            found.append(_of_network(network, x, behind, sizes, (k,) if k else (k, len(given.contexts))))
    seen = plain.train.features.flatten(0, -2)
    if tokens:
        seen = seen[seen.ne(0).any(-1)]
    columns: FloatArray = seen.double().cpu().numpy()
    constant = columns.min(0) == columns.max(0)
    varied = columns[:, ~constant] - columns[:, ~constant].mean(0)
    alike = np.abs(varied.T @ varied) / np.sqrt(np.outer(*[(varied**2).sum(0)] * 2))  # correlations, of either sign
    np.fill_diagonal(alike, 0)
    copied = int((alike.max(0, initial=0) > NEAR).sum())
    gradients, kernels = zip(*found, strict=True)
    return Explained(
        (x[:, :TOKENS].mean(1) if tokens else x).double().cpu().numpy(),
        np.stack([each.values for each in gradients]), np.stack([each.gaps for each in gradients]),
        np.stack([first.values for first, *_ in kernels]), np.stack([first.of_logits for first, *_ in kernels]),
        np.stack([other.values for other in kernels[0][1:]]),
        constant, copied, sizes._replace(background=len(behind)), tokens,
    )  # fmt: skip


def _of_network(
    network: Network, x: Tensor, background: Tensor, sizes: Sizes, draws: Sequence[int]
) -> tuple[Gradients, list[Kernel]]:
    """Values of answers by both ways; by kernel SHAP once for each of these seeds."""
    for parameter in network.parameters():
        parameter.requires_grad = False
    if isinstance(network.encoder, TokenEncoder):
        longest = int(torch.cat([x, background]).ne(0).any(-1).any(0).sum())
        kept = tokens_needed(longest, len(network.encoder.convolutions))
        x, background = x[:, :kept], background[:, :kept]

    def logit(inputs: Tensor) -> Tensor:
        z: Tensor = network(inputs)
        return z[:, 1] - z[:, 0]

    few = x[: sizes.kernel_answers]
    return (
        expected_gradients(logit, x, background, sizes.points, TOKENS, CLOSE),
        [kernel_values(logit, few, background, sizes.coalitions, TOKENS, seed) for seed in draws],
    )


def with_noise(features: Tensor, rng: np.random.Generator) -> Tensor:
    """Features with `NOISE` columns of standard normal noise behind; 0 where an answer has ended, as all are."""
    noise = torch.from_numpy(rng.standard_normal((*features.shape[:-1], NOISE))).to(features)
    there = features.ne(0).any(-1, keepdim=True)  # standardised features of a real token are never all 0
    return torch.cat([features, noise * there], dim=-1)
