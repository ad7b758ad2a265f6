"""From what was read of a token's logits to the 75 CCPS columns (docs/methods.md §3): names, formulas, statistics.

Everything here is small, `(tokens, steps)` in float64; the vocabulary is dealt with in `features.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

ORIGINAL = (
    "original_log_prob_actual",
    "original_prob_actual",
    "original_logit_actual",
    "original_prob_argmax",
    "original_logit_argmax",
    "original_entropy",
    "original_margin_logit_top1_top2",
    "original_margin_prob_top1_top2",
    "original_norm_logits_L2",
    "original_std_logits",
    "original_norm_hidden_state_L2",
    "is_actual_token_original_argmax",
)
OVERALL = ("jacobian_norm_token", "epsilon_to_flip_token", "pei_value_token")
PER_STATE = (
    "perturbed_log_prob_actual",
    "perturbed_prob_actual",
    "perturbed_logit_actual",
    "delta_log_prob_actual_from_original",
    "perturbed_prob_argmax",
    "perturbed_logit_argmax",
    "did_argmax_change_from_original",
    "perturbed_entropy",
    "perturbed_margin_logit_top1_top2",
    "perturbed_norm_logits_L2",
    "kl_div_perturbed_from_original",
    "js_div_perturbed_from_original",
    "cosine_sim_logits_perturbed_to_original",
    "cosine_sim_hidden_perturbed_to_original",
    "l2_dist_hidden_perturbed_from_original",
)
STATISTICS = ("min", "max", "mean", "std")
FEATURES: tuple[str, ...] = (*ORIGINAL, *OVERALL, *(f"{name}_{what}" for name in PER_STATE for what in STATISTICS))
"""Names of the 75 columns, in the order of docs/methods.md §3."""

_MIN_NORM = 1e-8  # as in torch's cosine similarity: the cosine with a zero vector is 0


@dataclass(frozen=True)
class Variant:
    """Readings of the definitions on which the paper and the official code differ (docs/methods.md §3, §6)."""

    js: Literal["true", "ref"] = "true"
    """Jensen-Shannon divergence, or the official code's mean of the reversed halves KL(m|P0) and KL(m|Ps)."""
    eps_flip: Literal["grid", "exact"] = "grid"
    """First step that changes the argmax, or the exact distance to the change where it is within the radius."""
    eps_relative: bool = False
    """Measure steps and radius in units of the hidden state's norm instead of absolutely."""
    entropy_epsilon: float = 0.0
    """Added inside the logarithm of the entropy; the official code has 1e-6."""


class State(NamedTuple):
    """What was read of logits Z with softmax P: one column per state; a0 is the original argmax, t the actual token."""

    level: Array
    """Z[a0]"""
    top: Array
    """max Z - Z[a0] >= 0"""
    margin: Array
    """Top-1 minus top-2 of Z."""
    log_total: Array
    """log sum exp(Z - max Z) >= 0"""
    actual: Array
    """Z[t] - max Z <= 0"""
    entropy: Array
    """Of P, exactly."""
    reported_entropy: Array
    """The same with the variant's epsilon."""
    squared_norm: Array
    """Z . Z"""
    alignment: Array
    """Z . Z_0"""
    drift: Array
    """E under P_0 of (Z - Z[a0]) - (Z_0 - Z_0[a0])"""
    mixture_entropy: Array
    """Entropy of (P_0 + P) / 2."""
    backward: Array
    """E under P of Z_0 - Z_0[a0]; 0 unless the variant needs it."""

    @property
    def log_prob_actual(self) -> Array:
        """The actual token's log-probability."""
        return self.actual - self.log_total


class Motion(NamedTuple):
    """How the hidden states were moved; each `(t, 1)` but epsilons `(t, s)`."""

    std_logits: Array
    jacobian_norm: Array
    exact_flip: Array
    """Distance at which the argmax changes, inf where never; all inf unless the variant needs it."""
    hidden_norm: Array
    hidden_along: Array
    """H_0 . d"""
    moved: Array
    """1, or 0 where the gradient is zero and d = 0."""
    epsilons: Array


def assemble(original: State, perturbed: State, motion: Motion, variant: Variant) -> Array:
    """The 75 columns `(t, 75)` float64; original has `(t, 1)` arrays, perturbed `(t, s)`."""
    flipped = perturbed.top > 0
    delta = original.log_prob_actual - perturbed.log_prob_actual
    columns = [
        *_original_columns(original, motion),
        motion.jacobian_norm,
        _flip_distance(flipped, motion, variant),
        _perturbation_energy(delta),
    ]
    for values in _per_state(original, perturbed, motion, variant):
        columns += _statistics(values)
    return np.concatenate(columns, axis=1)


def _statistics(x: Array) -> list[Array]:
    """Minimum, maximum, mean and population standard deviation over the states, each `(t, 1)`."""
    spread = np.std(x - x[:, :1], axis=1, keepdims=True)  # exactly 0 where nothing changes
    return [*(np.asarray(f(x, axis=1, keepdims=True)) for f in (np.min, np.max, np.mean)), spread]


def _original_columns(z: State, motion: Motion) -> list[Array]:
    """Columns 1-12, each `(t, 1)`."""
    prob_argmax = np.exp(-z.log_total)
    return [
        z.log_prob_actual,
        np.exp(z.log_prob_actual),
        z.level + z.actual,
        prob_argmax,
        z.level,
        z.reported_entropy,
        z.margin,
        prob_argmax * -np.expm1(-z.margin),
        np.sqrt(z.squared_norm),
        motion.std_logits,
        motion.hidden_norm,
        (z.actual >= 0).astype(np.float64),
    ]


def _per_state(z0: State, z: State, motion: Motion, variant: Variant) -> list[Array]:
    """The 15 quantities of PER_STATE, each `(t, s)`."""
    kl = np.maximum(0.0, z.top + z.log_total - z0.log_total - z.drift)
    norm = np.sqrt(np.maximum(0.0, z.squared_norm))
    distance = motion.epsilons * motion.moved
    return [
        z.log_prob_actual,
        np.exp(z.log_prob_actual),
        z.level + z.top + z.actual,
        z0.log_prob_actual - z.log_prob_actual,
        np.exp(-z.log_total),
        z.level + z.top,
        (z.top > 0).astype(np.float64),
        z.reported_entropy,
        z.margin,
        norm,
        kl,
        _JS[variant.js](z0, z, kl),
        _cosine(z.alignment, np.sqrt(z0.squared_norm), norm),
        _cosine_hidden(motion, distance),
        distance,
    ]


def _jensen_shannon(z0: State, z: State, kl: Array) -> Array:
    """(KL(P0|m) + KL(P|m)) / 2 = H(m) - (H(P0) + H(P)) / 2, within [0, ln 2]."""
    del kl
    return np.clip(z.mixture_entropy - (z0.entropy + z.entropy) / 2, 0.0, np.log(2.0))


def _reversed_jensen_shannon(z0: State, z: State, kl: Array) -> Array:
    """(KL(m|P0) + KL(m|P)) / 2 = (KL(P0|P) + KL(P|P0)) / 4 - JS: what the official code computes."""
    backward_kl = np.maximum(0.0, z0.log_total - z.entropy - z.backward)
    return np.maximum(0.0, (kl + backward_kl) / 4 - _jensen_shannon(z0, z, kl))


_JS = {"true": _jensen_shannon, "ref": _reversed_jensen_shannon}


def _cosine(dot: Array, a: Array, b: Array) -> Array:
    return np.clip(dot / np.maximum(a * b, _MIN_NORM), -1.0, 1.0)


def _cosine_hidden(motion: Motion, distance: Array) -> Array:
    """cos(H_0, H_0 + eps d) from |H_0| and H_0 . d."""
    squared = motion.hidden_norm**2
    dot = squared + distance * motion.hidden_along
    norm = np.sqrt(np.maximum(0.0, squared + 2 * distance * motion.hidden_along + distance**2))
    return _cosine(dot, motion.hidden_norm, norm)


def _flip_distance(flipped: npt.NDArray[np.bool_], motion: Motion, variant: Variant) -> Array:
    """Distance `(t, 1)` at which the argmax changes; the radius where it doesn't."""
    radius = motion.epsilons[:, -1:]
    if variant.eps_flip == "exact":
        return np.minimum(motion.exact_flip, radius)
    return np.asarray(np.min(np.where(flipped, motion.epsilons, radius), axis=1, keepdims=True))


def _perturbation_energy(delta: Array) -> Array:
    """PEI `(t, 1)`: mean height of the trapezoids through f_0 = 0, f_k = max(0, drop in log-probability)."""
    f = np.maximum(0.0, delta)
    energy: Array = np.mean(f, axis=1, keepdims=True) - f[:, -1:] / (2 * f.shape[1])
    return energy
