"""The 75 feature columns of CCPS (docs/methods.md §3): names, and statistics over the perturbation steps.

Arrays of this module are `(tokens, steps)` in float64. `features.py` computes what depends on the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
OF_ORIGINAL, OF_PERTURBED = range(len(ORIGINAL)), range(len(ORIGINAL), len(FEATURES))
"""Indices of the columns of the original state, and of the perturbed states."""


@dataclass(frozen=True)
class Variant:
    """Variants of feature definitions on which the paper and its official code differ (docs/methods.md §3, §6)."""

    js: Literal["true", "ref"] = "true"
    """How the divergence between the distributions P0 and Ps is computed, with m = (P0 + Ps) / 2. `true`:
    Jensen-Shannon, the mean of KL(P0|m) and KL(Ps|m). `ref`: the mean of KL(m|P0) and KL(m|Ps), as in the official
    code."""
    eps_flip: Literal["grid", "exact"] = "grid"
    """How the smallest perturbation that changes the argmax is measured. `grid`: by the first step that does so.
    `exact`: computed, if it is within the radius."""
    eps_relative: bool = False
    """Whether steps and radius are in units of the hidden state's norm, not absolute."""
    entropy_epsilon: float = 0.0
    """Number added inside the logarithm of the entropy; the official code adds 1e-6."""


def assemble(readings: Mapping[str, Array]) -> Array:
    """Compute the 75 feature columns of t tokens, `(t, 75)`, from named quantities.

    Arrays are `(t, 1)` for the original hidden state and `(t, s)` for the states after s perturbation steps.
    """
    drop = readings["original_log_prob_actual"] - readings["perturbed_log_prob_actual"]
    # PEI: mean height of the trapezoids through f_0 = 0, f_k = max(0, drop in log-probability)
    f = np.maximum(0.0, drop)
    energy: Array = np.mean(f, axis=1, keepdims=True) - f[:, -1:] / (2 * f.shape[1])
    columns = {**readings, "pei_value_token": energy, "delta_log_prob_actual_from_original": drop}
    single = [columns[name] for name in (*ORIGINAL, *OVERALL)]
    x = np.stack([columns[name] for name in PER_STATE], axis=1)
    spread = np.std(x - x[:, :, :1], axis=2)  # exactly 0 where nothing changes
    statistics = np.stack([x.min(axis=2), x.max(axis=2), x.mean(axis=2), spread], axis=2)
    return np.concatenate([*single, statistics.reshape(len(drop), -1)], axis=1)
