"""Verbalised confidence: the model states after its answer how likely it is right, in percent (docs/methods.md §2.26).

Example: the reply "85%" gives 0.85, and "quite sure" one half, since it has no number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from bench.api import Batch, ConfidenceMethod, FloatArray, Followup, Needs, method

_REPLY = Followup(
    "How likely is it that your answer is right? Reply with a number from 0 to 100 and nothing else.", say=16
)
_RANGE = r"\.?\d[\d.]*%?\s*[-\u2013]\s*\.?\d[\d.]*%?"
_NUMBER = r"(?<![\w.-])(\d*\.\d+|\d+)"
_BARE = _NUMBER + r"(?![A-Za-z_]|\.?\d)"
"""A number that no letter continues, as in 1st or 7B. Without the digit the match would end earlier: at 8 in 85th."""
_EVEN = r"(?<![\w.])50\s*/\s*50(?!\w|\.\d)"
_SHARE = re.compile(_NUMBER + r"\s*(?:%|percent\b|(?:/|out of)\s*(0*[1-9]\d*))", re.IGNORECASE)


@method("verbalised")
@dataclass(kw_only=True, eq=False)
class Verbalised(ConfidenceMethod):
    """Probability in the model's reply to a follow-up question after its answer; learns nothing.

    The method follows the two-stage variant of Tian et al., 2023, "Just Ask for Calibration", which asks for the
    probability in a second turn. The wording is confbench's own. In LM-Polygraph 0.7.0 users supply wording and
    pattern.
    """

    reference = "arXiv:2305.14975"
    needs = Needs(predict=frozenset({_REPLY}))

    unparsed: float = 0.5
    """Confidence if the reply names no probability. CHOSEN: one half, which favours neither right nor wrong."""

    def predict(self, batch: Batch) -> FloatArray:
        """Probability that each reply states, `(n,)` float64; `unparsed` for a reply without one."""
        probabilities = [parse_probability(reply) for reply in batch[_REPLY]]
        return np.asarray([self.unparsed if value is None else value for value in probabilities], dtype=np.float64)

    def oddities(self, batch: Batch) -> dict[str, int]:
        """Number of replies that state no probability, by description."""
        count = sum(parse_probability(reply) is None for reply in batch[_REPLY])
        return {"replies that name no probability": count} if count else {}


def parse_probability(reply: str) -> float | None:
    """Parse the probability that a reply states; None if it states none or several, or one outside [0, 1].

    Forms like "85%", "85 percent", "8.5/10" and "85 out of 100" take precedence over bare numbers, and "50/50" is one
    half. A bare number of at most 1 with a decimal point is a probability; other bare numbers are percentages. So
    "0.85" and "85" mean 0.85, and "1" means 0.01. A comma is a decimal point, but not in "1,000".
    """
    plain = re.sub(r"\b([1-9]\d*),(?=\d{3}\b)", r"\1", reply).replace(",", ".")
    plain = re.sub(_EVEN, "50%", re.sub(_RANGE, "", plain))
    shares = {float(number) / float(of or 100) for number, of in _SHARE.findall(plain)}
    bare = {float(x) / (1 if "." in x and float(x) <= 1 else 100) for x in re.findall(_BARE, plain)}
    (value, *others) = shares or bare or {-1.0}
    return value if 0 <= value <= 1 and all(abs(other - value) < 1e-9 for other in others) else None
