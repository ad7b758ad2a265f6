"""Selective prediction metrics: area under the risk-coverage curve, rejection ratio (PRR), coverage at a precision.

Pure functions of `confidence (n,)` and `correct (n,)`. Example: `aurc([0.9, 0.1], [True, False])` is 0.25, the mean of
risk 0 at coverage one half and risk 0.5 at coverage 1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.metrics.validation import count_distinct, validate

_PRECISION_PERCENT = 95
"""Share of right answers, in percent, that `coverage95` requires among the accepted answers."""


def aurc(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Area under the risk-coverage curve: the mean over k of the share of mistakes among the k most confident answers.

    The formula is 1/n * sum over k = 1..n of E_k / k, where E_k is the number of mistakes among the k most confident of
    the n answers (Geifman, Uziel and El-Yaniv, 2019). Answers of equal confidence are taken in random order, and E_k is
    an expected number. For a tie of m answers with e mistakes, below b more confident answers with B mistakes, E_k = B
    + (k - b) * e / m.

    Arguments and errors are those of `accuracy`.

    In the first example the shares of mistakes are 0/1, 1/2 and 1/3. In the second all confidences are equal, so each
    share is the error rate.

    >>> round(aurc([0.9, 0.8, 0.7], [True, False, True]), 6)
    0.277778
    >>> round(aurc([0.5, 0.5, 0.5], [True, False, True]), 6)
    0.333333
    """
    p, o = validate(confidence, correct)
    _, size, hits = count_distinct(p, o)
    accepted = np.cumsum(np.append(0, size[::-1]))  # (d + 1,): from the most confident down
    mistakes = np.cumsum(np.append(0, (size - hits)[::-1]))
    k = np.arange(1, p.size + 1)
    return float(np.mean(np.interp(k, accepted, mistakes) / k))


def eaurc(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Excess of `aurc` over that of the best order, all right answers first (Geifman, Uziel and El-Yaniv, 2019).

    With E mistakes among n answers, the best order has 1/n * sum over k = 1..n of max(0, k - (n - E)) / k. The excess
    measures the ranking alone, while `aurc` also depends on the error rate.

    Arguments and errors are those of `aurc`.

    In this example the best order has risks 0, 0 and 1/3; their mean is 1/6 less than `aurc`.

    >>> round(eaurc([0.9, 0.8, 0.7], [True, False, True]), 6)
    0.166667
    """
    p, o = validate(confidence, correct)
    k = np.arange(1, p.size + 1)
    best = float(np.mean(np.maximum(0, k - np.count_nonzero(o)) / k))
    return max(0.0, aurc(p, o) - best)


def prr(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float | None:
    """Prediction rejection ratio, as in LM-Polygraph: the gain over a random order, relative to that of the best order.

    The formula is (A - a) / (A* - a). A is the mean over k of the share of right answers among the k most confident
    answers. A* is A of the best order. a is A of a random order, the share of right answers. So the ratio is 1 for the
    best order and 0 for a random one (Malinin and Gales, 2021; Vashurin et al., 2025). Answers of equal confidence are
    taken in random order, as in `aurc`; LM-Polygraph uses the order of its sort.

    Arguments and errors are those of `accuracy`.

    Returns:
        The ratio; None where all answers are right or all are wrong.

    In this example the shares of mistakes are 0, 1/2, 1/3. In the best order they are 0, 0, 1/3, in a random order 1/3
    each.

    >>> round(prr([0.9, 0.8, 0.7], [True, False, True]), 6)
    0.25
    """
    p, o = validate(confidence, correct)
    risk, area = 1 - float(np.mean(o)), aurc(p, o)
    if o.all() or not o.any():
        return None
    return (risk - area) / (risk - area + eaurc(p, o))


def coverage95(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Largest share of answers that a threshold accepts with at least 95 % of them right (El-Yaniv and Wiener, 2010).

    Equal confidences are accepted together. The result is 0.0 where no threshold reaches 95 %.

    Arguments and errors are those of `accuracy`.

    In the first example a threshold accepts two answers without a mistake; all four would be 75 % right.

    >>> coverage95([0.9, 0.8, 0.2, 0.1], [True, True, False, True])
    0.5
    >>> coverage95([0.9, 0.8], [False, True])
    0.0
    """
    p, o = validate(confidence, correct)
    _, size, hits = count_distinct(p, o)
    accepted, right = np.cumsum(size[::-1]), np.cumsum(hits[::-1])
    enough = accepted[100 * right >= _PRECISION_PERCENT * accepted]  # integers: 19 of 20 is exactly 95 %
    return float(enough.max(initial=0) / p.size)
