"""Choice of samples, and their log-probabilities, for methods that compare several answers to one question."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bench.api import Batch, ConfidenceMethod, FloatArray, Hidden, Needs, Related, Samples, Signal

DIGITS = 9
"""Places to which scores are rounded that count samples: sums in another order must not break ties."""
ENTAILS = 2
"""Last of the classes of `Related(by="entailment")`: the second text follows from the first."""


@dataclass(kw_only=True, eq=False)
class SampledMethod(ConfidenceMethod):
    """Method with a choice of samples; its `needs` are those of the default ones."""

    n: int = 10
    """Samples of a question. CHOSEN: those of self-consistency, so that all methods read the same."""
    temperature: float = 1.0
    """Divides the logits. CHOSEN: those of self-consistency."""
    top_p: float = 1.0
    """Probability mass that is kept. CHOSEN: those of self-consistency."""

    @property
    def samples(self) -> Samples:
        """The samples that the arguments ask for."""
        return Samples(self.n, self.temperature, self.top_p)

    def reads(self) -> Needs:
        """The signals of `needs`, of the samples that the arguments ask for."""
        read: set[Signal] = set()
        for signal in type(self).needs.predict:
            if isinstance(signal, Samples):
                read.add(self.samples)
            else:
                read.add(replace(signal, samples=self.samples) if isinstance(signal, Related | Hidden) else signal)
        return Needs(predict=frozenset(read))


def sample_log_probabilities(batch: Batch, samples: Samples) -> FloatArray:
    """Log-probability of each sample, `(n, N)` float64: the sum over its tokens, so 0 of one without any."""
    drawn = batch[samples]
    assert drawn.owner is not None  # noqa: S101  # for the type checker
    places = np.repeat(np.arange(len(drawn)), drawn.lengths) * samples.n + drawn.owner
    sums = np.bincount(places, weights=drawn.values["log_probability"], minlength=len(drawn) * samples.n)
    return np.asarray(sums.reshape(len(drawn), samples.n), dtype=np.float64)
