"""Answer stability: how early in its reasoning the model would have given its answer (docs/methods.md §2.32).

Example: if the letter that is answered had the probabilities 0.2, 0.4, 0.9 after a quarter, half and three quarters of
the trace, and 0.9 after all of it, the confidence is 0.6.
"""

from __future__ import annotations

import re
import string

import numpy as np

from bench.api import Batch, ChoiceLogits, ConfidenceMethod, FloatArray, Needs, Of, Text, method

_FORCED, _ANSWER, _QUESTION = ChoiceLogits((0.25, 0.5, 0.75)), Text(Of.ANSWER), Text(Of.QUESTION)


@method("answer-stability")
class AnswerStability(ConfidenceMethod):
    """Mean probability of the answered letter, forced after parts of the trace and after all of it; learns nothing.

    Answers are forced as in "Thought calibration" (Wu et al., 2025), which trains a probe for whether they stay the
    same; here the probabilities themselves are averaged.
    """

    reference = "arXiv:2505.18404"
    needs = Needs(predict=frozenset({ChoiceLogits(), _FORCED, _ANSWER, _QUESTION}))

    def predict(self, batch: Batch) -> FloatArray:
        """Mean probability of the answered letter among the options, `(n,)` float64.

        Of an answer that is no letter shown, it is that of the letter that is likeliest in the end.
        """
        logits = np.concatenate([batch[_FORCED], batch[ChoiceLogits()][:, None]], axis=1).astype(np.float64)
        weights = np.exp(logits - logits.max(axis=2, keepdims=True))
        shares = weights / weights.sum(axis=2, keepdims=True)  # (n, 4, k)
        answered = shares[:, -1].argmax(axis=1)
        for i, text in enumerate(batch[_ANSWER]):  # it may be sampled, or another engine's, so not the likeliest
            letter = text.strip(string.whitespace + "()[].:").casefold()
            shown = re.findall(r"  \((.)\): ", batch[_QUESTION][i].casefold())[-np.isfinite(logits[i, -1]).sum() :]
            if letter in shown:
                answered[i] = shown.index(letter)
        return np.asarray(shares[np.arange(len(answered)), :, answered].mean(axis=1))
