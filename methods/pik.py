"""P(IK): a linear probe on the prompt's last hidden state predicts whether the answer will be right.

Kadavath et al., 2022, "Language Models (Mostly) Know What They Know", arXiv:2207.05221; docs/methods.md §2.3. The label
is the correctness of the greedy answer, where Kadavath et al. used the share of right answers among many samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bench.api import At, Hidden, Needs, Preset, RunFacts, method
from methods._shared.probe import StateProbe, n_parameters

_STATE = Hidden(1.0, At.PROMPT_END)


@method("pik")
@dataclass(kw_only=True, eq=False)
class PIK(StateProbe):
    """P(IK), "I know": a linear probe on the hidden state at the end of the prompt, before the answer; needs labels."""

    reference = "arXiv:2207.05221"
    needs = Needs(fit=frozenset({_STATE}), predict=frozenset({_STATE}))
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {"standardise": False},
        "refcode": {"standardise": False},  # the official repository holds no baseline (docs/methods.md, Sources)
        "fixed": {},
        "demo": {},
    }
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = {
        "paper": (
            "Its own publication's training: the paper's one budget for all methods is taken (docs/methods.md §6 #52).",
        ),
        "refcode": ("There is no official code of this baseline: these are the paper's values.",),
    }

    def n_parameters(self, facts: RunFacts) -> int:
        """Number of weights and biases of the probe, 2 d + 2 for hidden size d."""
        return n_parameters(facts.model.hidden_size, ())
