"""Groups of texts with the same meaning, and their entropy (docs/methods.md §2.22)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.api import FloatArray

_ENTAILS = 2


def group_by_meaning(related: FloatArray) -> npt.NDArray[np.int64]:
    """Group m texts of each of n questions by meaning; return the number of each text's group, `(n, m)`.

    A text joins the first group for which it and the group's first text entail each other, or begins a new group.

    Args:
        related: `(n, m, m, 3)` probabilities of contradiction, neutrality and entailment between two texts; a text
            entails another if entailment is the likeliest of the three.
    """
    entails = related.argmax(axis=-1) == _ENTAILS
    same = entails & entails.swapaxes(1, 2)  # (n, m, m)
    group = np.zeros(same.shape[:2], dtype=np.int64)
    is_first = np.ones(same.shape[:2], dtype=np.bool_)
    for j in range(1, same.shape[1]):
        joins = same[:, j, :j] & is_first[:, :j]
        is_first[:, j] = ~joins.any(axis=1)
        group[:, j] = np.where(
            is_first[:, j], is_first[:, :j].sum(axis=1), group[np.arange(len(group)), joins.argmax(axis=1)]
        )
    return group


def semantic_entropy(related: FloatArray) -> FloatArray:
    """Return the entropy of the samples' meanings in nats, `(n,)`.

    `related` is as in `group_by_meaning`. The last text is the answer, which does not count.
    """
    samples = group_by_meaning(related[:, :-1, :-1])
    sizes = (samples[:, :, None] == np.arange(samples.shape[1])).sum(axis=1)  # (n, groups)
    share = sizes / samples.shape[1]
    return np.asarray(-(share * np.log(np.where(share > 0, share, 1.0))).sum(axis=1))
