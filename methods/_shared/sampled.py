"""Base class of methods that compare several sampled answers to a question, and log-probabilities of samples."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bench.api import Batch, ConfidenceMethod, FloatArray, Hidden, Needs, Related, Samples, Signal

DIGITS = 9
"""Decimals to which scores based on counts are rounded, so that the order of summation does not break ties."""
ENTAILS = 2
"""Index of the class entailment in `Related(by="entailment")`: the second text follows from the first."""


@dataclass(kw_only=True, eq=False)
class SampledMethod(ConfidenceMethod):
    """Base class of methods that read samples; the class attribute `needs` names the signals at default arguments."""

    n: int = 10
    """Number of samples per question. CHOSEN: as in self-consistency, so that all methods share their samples."""
    temperature: float = 1.0
    """Sampling temperature. CHOSEN: as in self-consistency."""
    top_p: float = 1.0
    """Probability mass of nucleus sampling. CHOSEN: as in self-consistency."""

    @property
    def samples(self) -> Samples:
        """Signal of the samples with the method's `n`, `temperature` and `top_p`."""
        return Samples(self.n, self.temperature, self.top_p)

    def reads(self) -> Needs:
        """The signals of the class's `needs`, but on samples with the method's `n`, `temperature` and `top_p`."""
        signals: set[Signal] = set()
        for signal in type(self).needs.predict:
            if isinstance(signal, Samples):
                signals.add(self.samples)
            else:
                signals.add(replace(signal, samples=self.samples) if isinstance(signal, Related | Hidden) else signal)
        return Needs(predict=frozenset(signals))


def sample_log_probabilities(batch: Batch, samples: Samples) -> FloatArray:
    """Return the log-probability of each of N samples, `(n, N)` float64, in nats; 0 for a sample without tokens."""
    token_scores = batch[samples]
    assert token_scores.owner is not None  # noqa: S101  # for the type checker
    bins = np.repeat(np.arange(len(token_scores)), token_scores.lengths) * samples.n + token_scores.owner
    sums = np.bincount(bins, weights=token_scores.values["log_probability"], minlength=len(token_scores) * samples.n)
    return np.asarray(sums.reshape(len(token_scores), samples.n), dtype=np.float64)
