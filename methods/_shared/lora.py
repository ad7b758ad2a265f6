"""LoRA tuning shared by IT and CT: hyperparameters, loss functions for the adapter trainer, and confidences.

Arguments of a loss function are a `bench.api.AdapterModel`, part of a batch's examples, and the method's settings. It
returns the sum of the losses of these examples, which the trainer divides by the size of the whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bench.api import (
    POINTS,
    Adapter,
    AdapterModel,
    AdapterRef,
    Batch,
    ConfidenceMethod,
    Context,
    ContractError,
    FloatArray,
    Of,
    Preset,
    QueryLogits,
    Ragged,
    RunFacts,
    Search,
    TokenIds,
    Validation,
)
from methods._shared.logistic import probability
from methods._shared.training import RATE_AND_DECAY, check_fitted, check_fractions

if TYPE_CHECKING:
    from torch import Tensor

VERDICT = QueryLogits(Adapter.OWN)
"""Signal that IT and CT read in `predict`: logits of no and yes after the self-check query, with the trained
adapter."""


def it_loss(model: AdapterModel, examples: Mapping[str, Any], settings: Mapping[str, Any]) -> Tensor:
    """Next-token cross-entropy of the right verdict over the full vocabulary (docs/methods.md §2.5).

    Args:
        model: the model with the adapter.
        examples: `query`, a Ragged of token ids of prompt, answer and self-check query; `correct` `(n,)` bool.
        settings: not read.

    Returns:
        Sum over the examples in nats, a scalar.
    """
    del settings
    query, correct = examples["query"], examples["correct"]
    logits = model.logits(query, np.ones(len(query), dtype=np.int64))  # (n, v)
    targets = np.asarray(model.verdict_ids)[correct.astype(np.int64)]
    return _cross_entropy(logits, targets)


def ct_loss(model: AdapterModel, examples: Mapping[str, Any], settings: Mapping[str, Any]) -> Tensor:
    """Cross-entropy of the verdict (no or yes) + weight x divergence from the frozen model (docs/methods.md §2.6).

    The divergence compares next-token distributions over the full vocabulary, at the positions that predict the gold
    answer's tokens after the prompt; it is summed over these tokens. The positions follow from the token counts of
    prompt and gold answer (docs/methods.md §6 #58).

    Args:
        model: the model, which is run with the adapter and without it.
        examples: `query` and `correct` as for `it_loss`; `prompt` and `gold`, Raggeds of token ids.
        settings: `divergence`, a name in `DIVERGENCES`, and `divergence_weight`.

    Returns:
        Sum over the examples in nats, a scalar.
    """
    query, gold = examples["query"], examples["gold"]
    n, weight = len(query), float(settings["divergence_weight"])
    # without the gold answer's last token, whose prediction is not compared
    prompt = examples["prompt"]
    continued = Ragged.of([np.concatenate([prompt[i], gold[i][:-1]]) for i in range(len(prompt))])
    # One call: if the query begins with the prompt, the gold answer costs only its own tokens.
    both = Ragged.of([query[i] for i in range(n)] + [continued[i] for i in range(n)])
    last = np.concatenate([np.ones(n, dtype=np.int64), gold.lengths])
    if weight == 0.0:
        both, last = query, last[:n]
    logits = model.logits(both, last)
    verdicts = logits[:n, list(model.verdict_ids)]  # (n, 2): no, yes
    loss = _cross_entropy(verdicts, examples["correct"].astype(np.int64))
    if weight == 0.0:
        return loss
    reference = model.logits(continued, gold.lengths, adapted=False)
    divergence = DIVERGENCES[settings["divergence"]](logits[n:], reference)
    return loss + weight * divergence.sum()


def _cross_entropy(logits: Tensor, targets: Any) -> Tensor:
    """Return the cross-entropy summed over rows of logits `(n, k)`; `targets` are the right classes, `(n,)` int64."""
    log_p = logits.log_softmax(dim=-1)
    return -log_p[range(len(targets)), targets.tolist()].sum()


def jensen_shannon(logits: Tensor, reference: Tensor) -> Tensor:
    """Jensen-Shannon divergence of each row: half KL(p || m) + half KL(q || m), m = (p + q) / 2; nats in [0, ln 2].

    Args:
        logits: `(n, v)` logits of the model in training; p is their softmax.
        reference: `(n, v)` logits of the frozen model; q is their softmax.
    """
    log_p, log_q = logits.log_softmax(dim=-1), reference.log_softmax(dim=-1)
    log_m = log_p.logaddexp(log_q) - math.log(2.0)
    return 0.5 * ((log_p.exp() * (log_p - log_m)).sum(dim=-1) + (log_q.exp() * (log_q - log_m)).sum(dim=-1))


def forward_kl(logits: Tensor, reference: Tensor) -> Tensor:
    """KL(q || p) of each row in nats, where p is the trained model's distribution and q the frozen model's.

    Arguments as in `jensen_shannon`.
    """
    return reverse_kl(reference, logits)


def reverse_kl(logits: Tensor, reference: Tensor) -> Tensor:
    """KL(p || q) of each row in nats, where p is the trained model's distribution and q the frozen model's.

    Arguments as in `jensen_shannon`.
    """
    log_p, log_q = logits.log_softmax(dim=-1), reference.log_softmax(dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


DIVERGENCES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "jsd": jensen_shannon,
    "forward_kl": forward_kl,
    "reverse_kl": reverse_kl,
}


# --- base class of the methods ----------------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False)
class LoraMethod(ConfidenceMethod):
    """Method with a LoRA adapter tuned to answer the self-check query; `fit` sets `adapter_`.

    In the sources of its constants, "paper" is arXiv:2505.21772, whose baselines IT and CT are, and "code" what the
    repository of Kapoor et al. (arXiv:2406.08391), github.com/activatedgeek/calibration-tuning, executes. CHOSEN marks
    what neither gives.
    """

    reference = "arXiv:2406.08391"
    published_training = "10,000 steps, 17.2 epochs"  # of 32 on 18,650 rows (docs/methods.md §2.0)
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {},
        # Code: README, on one device (docs/methods.md §6 #53).
        "refcode": {"steps": 5_000, "batch_size": 4, "weight_decay": 0.0, "clip": 1.0},
        "fixed": {},
        "demo": {"steps": 40, "learning_rate": 3e-3, "points": 3},  # CHOSEN on validation: bench/DESIGN.md, Fitting
    }
    small: ClassVar[Mapping[str, object]] = {"steps": 200, "learning_rate": 1e-2}
    search: ClassVar[Mapping[str, Search]] = RATE_AND_DECAY
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = {
        "paper": (
            "Its own publication's training: the paper's one budget for all methods is taken (docs/methods.md §6 #52).",
        ),
        "refcode": (
            "A base model in 8 bits: it is read in the precision of the run (docs/methods.md §6 #55).",
            "Plain text without a chat template, and a query with roman numerals (docs/methods.md §2.0).",
            "Four examples on each device: four in all (docs/methods.md §6 #53).",
        ),
    }

    steps: int = 10_000
    """Number of training steps. Paper, Training Details; code: 5,000 (docs/methods.md §2.0, §6 #53)."""
    batch_size: int = 32
    """Number of answers per step, on all devices together. Paper, Training Details; code: 4 on each device
    (docs/methods.md §2.0, §6 #53)."""
    learning_rate: float = 1e-4
    """Learning rate at the first step. Paper, Training Details. It falls along a half cosine, without warm-up, as in
    the code (docs/methods.md §0.8)."""
    weight_decay: float = 0.1
    """Weight decay of AdamW. Paper, Training Details; code: 0.0 (docs/methods.md §6 #51)."""
    beta1: float = 0.9
    """First decay rate of AdamW. CHOSEN: torch's default, as the paper names none (docs/methods.md §0.8)."""
    beta2: float = 0.999
    """Second decay rate of AdamW. CHOSEN: torch's default, as for beta1 (docs/methods.md §0.8)."""
    clip: float = 0.0
    """Largest norm of a step's gradient; 0: no limit. Paper: unspecified; code: the trainer's default, 1.0
    (docs/methods.md §2.6)."""
    rank: int = 8
    """Rank of the adapter, which changes query and value of every layer. Paper, parameter table; code: lora_rank
    (docs/methods.md §2.5, §2.6)."""
    alpha: int = 32
    """LoRA's alpha: the adapter's product is multiplied by alpha / rank. Code: lora_alpha (docs/methods.md §2.5)."""
    dropout: float = 0.1
    """Dropout rate on the adapter's input. Code: lora_dropout (docs/methods.md §2.5)."""
    target_modules: str = ""
    """Names of the layers to adapt (last parts of module names), separated by commas. CHOSEN: empty, i.e. query and
    value layers are found."""
    points: int = POINTS
    """Number of evaluations of the validation loss, the same for every method (docs/methods.md §0.20)."""
    published_steps: int = 10_000
    """Steps of the paper's training: with fewer, and a loss that still falls, the result is marked "cut short"."""
    deepspeed: bool = True
    """Whether to train with DeepSpeed's ZeRO stage 2; if not, plain torch does the same training. Paper, Training
    Details (docs/methods.md §6 #54)."""

    def __post_init__(self) -> None:
        """Raise an error for settings with which nothing could be trained."""
        check_fractions(self.name, dropout=self.dropout, beta1=self.beta1, beta2=self.beta2)

    def predict(self, batch: Batch) -> FloatArray:
        """Probability of yes with the adapter, shape (n,), float64."""
        check_fitted(self)
        return probability_of_yes(batch[VERDICT])

    def n_parameters(self, facts: RunFacts) -> int:
        """Number of the adapter's weights: sum over layers of rank x (inputs + outputs) (docs/methods.md §2.6)."""
        names = {name.strip() for name in self.target_modules.split(",") if name.strip()}
        layers = [p for p in facts.model.projections if (p.name in names if names else p.part)]
        return self.rank * sum(p.inputs + p.outputs for p in layers)


def train_adapter(
    method: LoraMethod, train: Batch, ctx: Context, loss: str, columns: Sequence[Of] = (Of.QUERY,)
) -> AdapterRef:
    """Train an adapter on labelled answers by `ctx.train_adapter`, with the method's parameters as settings.

    Args:
        method: the method to train for.
        train: labelled answers.
        ctx: seed, trainer and validation answers.
        loss: name of a loss function of this module.
        columns: texts whose token ids the loss reads, the query first. The loss gets each under the value of its `Of`,
            e.g. `query`.

    Raises:
        UserError: training failed.
        ContractError: there is no model to adapt.
    """
    if ctx.train_adapter is None:
        raise ContractError(f"{method.name}: expected a context with train_adapter, a model to adapt; got none")
    validation = None
    if ctx.validation is not None:
        validation = Validation(f"{__name__}:verdict_confidence", _examples(ctx.validation, (Of.QUERY,)))
    return ctx.train_adapter(
        loss=f"{__name__}:{loss}",
        examples=_examples(train, columns),
        settings={**method.params(), "batch_size": min(method.batch_size, len(train)), "seed": ctx.seed},
        validation=validation,
    )


def _examples(batch: Batch, columns: Sequence[Of]) -> dict[str, Any]:
    return {**{of.value: batch[TokenIds(of)] for of in columns}, "correct": batch.correct}


def verdict_confidence(model: AdapterModel, examples: Mapping[str, Any], settings: Mapping[str, Any]) -> Tensor:
    """Probability of yes after the self-check query, `(n,)`; arguments as in `it_loss`."""
    del settings
    query = examples["query"]
    logits = model.logits(query, np.ones(len(query), dtype=np.int64))[:, list(model.verdict_ids)]
    return logits.double().softmax(dim=-1)[:, 1]


def probability_of_yes(logits: FloatArray) -> FloatArray:
    """Return the probability of yes, `(n,)` float64, from logits `(n, 2)` of (no, yes) (docs/methods.md §2.0)."""
    z = logits.astype(np.float64)
    return probability(z[:, 1] - z[:, 0])
