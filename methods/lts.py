"""LTS, logit temperature scaling: P(True) with its logits divided by a temperature fitted on validation.

Kapoor et al., 2024, "Large Language Models Must Be Taught to Know What They Don't Know", arXiv:2406.08391, apply the
temperature scaling of Guo et al., arXiv:1706.04599, to the self-check query; docs/methods.md §2.2. A temperature
preserves the order of confidences, so every rank metric equals that of P(True).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from bench.api import (
    Batch,
    ConfidenceMethod,
    Context,
    FloatArray,
    Needs,
    Preset,
    QueryLogits,
    RunFacts,
    UserError,
    method,
)
from methods._shared.logistic import probability
from methods._shared.training import check_fitted

_HALVINGS = 100  # bisection steps; after about 60 float64 can't distinguish the ends


@method("lts")
@dataclass(kw_only=True, eq=False)
class LTS(ConfidenceMethod):
    """Logit temperature scaling (LTS): P(True) with one temperature, fitted to the validation answers.

    In the sources of its constants, "paper" is arXiv:2505.21772, whose baseline this is.
    """

    reference = "arXiv:2406.08391"
    needs = Needs(fit=frozenset({QueryLogits()}), predict=frozenset({QueryLogits()}))
    fit_on = "validation"
    draws = False
    presets: ClassVar[Mapping[str, Preset]] = {"paper": {}, "refcode": {"solver": "descent"}, "fixed": {}, "demo": {}}
    small: ClassVar[Mapping[str, object]] = {"steps": 200, "batch_size": 32, "learning_rate": 1e-2}
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = {
        "paper": (
            "Ranks unlike P(True)'s, as in its tables: one temperature can't change them (docs/methods.md §6 #46).",
        ),
        "refcode": (
            "The code's own shuffling of the answers.",
            "Plain text without a chat template, and a query with roman numerals (docs/methods.md §2.0).",
        ),
    }

    lowest: float = 0.05
    """Lowest temperature. CHOSEN: the paper says only that it is positive; at 0.01 many confidences would be equal
    (docs/methods.md §0.10)."""
    highest: float = 100.0
    """Highest temperature. CHOSEN: at this temperature all confidences are near one half (docs/methods.md §0.10)."""
    solver: Literal["exact", "descent"] = "exact"
    """How the temperature is found. CHOSEN: exact, as the paper names no way. Code: gradient descent from temperature
    1, whose steps are too short to leave the range from about 0.4 to 2.2 (docs/methods.md §2.2)."""
    steps: int = 2_000
    """Number of steps of the descent. Code (docs/methods.md §2.2)."""
    batch_size: int = 64
    """Number of answers in a step of the descent. Code (docs/methods.md §2.2)."""
    learning_rate: float = 1e-3
    """Learning rate at the descent's first step; it falls along a half cosine. Code (docs/methods.md §2.2)."""
    weight_decay: float = 1e-2
    """Weight decay of the descent's AdamW. Code (docs/methods.md §2.2)."""

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Fit the temperature by the log loss; sets `temperature_` and `at_bound_`.

        With the solver `exact` the temperature is that of the smallest loss between `lowest` and `highest`. If it is a
        bound, `at_bound_` says which one and why; else `at_bound_` is empty. This is a property of the self-check, not
        an error. The solver `descent` ignores the bounds, may end elsewhere than at the smallest loss, and leaves
        `at_bound_` empty.

        All this holds for the solver `exact`. With the solver `descent`, the temperature is that after the last step,
        the bounds have no effect, and `at_bound_` is empty.

        Raises:
            UserError: the bounds are not 0 < lowest < highest, the solver is unknown, or logits are not finite.
        """
        if self.solver not in {"exact", "descent"}:
            raise UserError(f"lts.solver: expected exact or descent, got {self.solver!r}")
        if not 0 < self.lowest < self.highest < math.inf:
            raise UserError(f"lts: expected 0 < lowest < highest, got lowest={self.lowest}, highest={self.highest}")
        odds = _odds(train)
        if not np.isfinite(odds).all():
            raise UserError(
                f"lts: expected finite logits of no and yes; {(~np.isfinite(odds)).sum()} of {len(odds)} answers have"
                " others; load the model in another precision, e.g. --dtype float32"
            )
        if self.solver == "descent":
            import torch

            rng = ctx.rng
            x, y = torch.tensor(odds), torch.tensor(train.correct.astype(np.float64))
            log_temperature = torch.zeros((), dtype=torch.float64, requires_grad=True)
            adamw = torch.optim.AdamW([log_temperature], lr=self.learning_rate, weight_decay=self.weight_decay)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adamw, self.steps)
            epochs = (rng.permutation(len(odds)) for _ in count())
            batches = (
                order[at : at + self.batch_size] for order in epochs for at in range(0, len(odds), self.batch_size)
            )
            for rows in islice(batches, self.steps):
                adamw.zero_grad()
                scaled = x[rows] / log_temperature.exp()
                loss = torch.nn.functional.binary_cross_entropy_with_logits(scaled, y[rows])
                loss.backward()  # type: ignore[no-untyped-call]
                adamw.step()
                schedule.step()
            self.temperature_, self.at_bound_ = float(log_temperature.detach().exp()), ""
            return self

        def slope(inverse: float) -> float:
            """Return the derivative of the convex loss in 1 / temperature, whose zero is found by bisection."""
            return float(((probability(inverse * odds) - train.correct) * odds).mean())

        low, high = 1 / self.highest, 1 / self.lowest
        side = why = ""
        if slope(low) >= 0:
            self.temperature_, side, why = self.highest, "upper", "says nothing about what is right, or the opposite"
        elif slope(high) <= 0:
            self.temperature_, side, why = self.lowest, "lower", "is right whenever it is sure"
        else:
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                low, high = (middle, high) if slope(middle) < 0 else (low, middle)
            self.temperature_ = 2 / (low + high)
        self.at_bound_ = side and (
            f"the temperature is at its {side} bound {self.temperature_:g}:"
            f" on the validation answers the self-check {why}"
        )
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Probability of yes at the fitted temperature, shape (n,), float64."""
        check_fitted(self)
        return probability(_odds(batch) / self.temperature_)

    def n_parameters(self, facts: RunFacts) -> int:
        """Number of learned parameters: one, the temperature."""
        del facts
        return 1


def _odds(batch: Batch) -> npt.NDArray[np.float64]:
    """Return the log odds of yes against no after the self-check query, `(n,)`."""
    logits = batch[QueryLogits()].astype(np.float64)  # (n, 2): no, yes
    return np.asarray(logits[:, 1] - logits[:, 0])
