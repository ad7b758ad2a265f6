"""What IT and CT share: their loss functions, which the trainer of adapters calls, and how they are read and counted.

A loss function gets the model as `bench.api.AdapterModel`, some of a batch's examples, and the method's settings, and
returns the sum over these examples; the trainer divides by the size of the whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import (
    AdapterModel,
    AdapterRef,
    Batch,
    ConfidenceMethod,
    Context,
    ContractError,
    FloatArray,
    Of,
    Ragged,
    RunFacts,
    TokenIds,
    Validation,
)
from methods._shared.training import check_labels

if TYPE_CHECKING:
    from torch import Tensor


def it_loss(model: AdapterModel, examples: Mapping[str, Any], settings: Mapping[str, Any]) -> Tensor:
    """Next-token cross-entropy of the right verdict over the full vocabulary (methods.md §2.5).

    Args:
        model: the backbone with the adapter.
        examples: `query`, a Ragged of token ids up to where the verdict is read; `correct` `(n,)` bool.
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
    """Cross-entropy over the two verdicts + weight x divergence from the frozen model on gold tokens (methods.md §2.6).

    The divergence is taken at the positions that predict the gold answer's tokens after the prompt, over the full
    vocabulary, and summed over tokens. Which positions these are follows from the lengths of prompt and gold answer in
    tokens (methods.md §6 #58).

    Args:
        model: the backbone with the adapter, and without.
        examples: `query` and `correct` as for `it_loss`; `prompt` and `gold`, Raggeds of token ids.
        settings: `divergence`, a name in `DIVERGENCES`, and `divergence_weight`.

    Returns:
        Sum over the examples in nats, a scalar.
    """
    query, gold = examples["query"], examples["gold"]
    n, weight = len(query), float(settings["divergence_weight"])
    continued = _continued(examples["prompt"], gold)
    # One call: where the query begins with the prompt, the gold answer costs its own tokens only.
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


def _continued(prompt: Ragged, gold: Ragged) -> Ragged:
    """Prompt and gold answer without its last token, which predicts nothing that is compared."""
    return Ragged.of([np.concatenate([prompt[i], gold[i][:-1]]) for i in range(len(prompt))])


def _cross_entropy(logits: Tensor, targets: Any) -> Tensor:
    """Sum over rows of `(n, k)` logits; `targets` `(n,)` int64 numpy."""
    log_p = logits.log_softmax(dim=-1)
    return -log_p[range(len(targets)), targets.tolist()].sum()


def jensen_shannon(logits: Tensor, reference: Tensor) -> Tensor:
    """Half KL(p || m) + half KL(q || m) with m the mean of both, for each row, in nats, within [0, ln 2].

    Args:
        logits: `(n, v)` of the model in training, p.
        reference: `(n, v)` of the frozen one, q.
    """
    log_p, log_q = logits.log_softmax(dim=-1), reference.log_softmax(dim=-1)
    log_m = log_p.logaddexp(log_q) - math.log(2.0)
    return 0.5 * ((log_p.exp() * (log_p - log_m)).sum(dim=-1) + (log_q.exp() * (log_q - log_m)).sum(dim=-1))


def forward_kl(logits: Tensor, reference: Tensor) -> Tensor:
    """KL(frozen || trained) for each row, in nats; arguments as in `jensen_shannon`."""
    return reverse_kl(reference, logits)


def reverse_kl(logits: Tensor, reference: Tensor) -> Tensor:
    """KL(trained || frozen) for each row, in nats; arguments as in `jensen_shannon`."""
    log_p, log_q = logits.log_softmax(dim=-1), reference.log_softmax(dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


DIVERGENCES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "jsd": jensen_shannon,
    "forward_kl": forward_kl,
    "reverse_kl": reverse_kl,
}


# --- what the methods do with it --------------------------------------------------------------------------------------


def train_adapter(
    method: ConfidenceMethod, train: Batch, ctx: Context, loss: str, columns: Sequence[Of] = (Of.QUERY,)
) -> AdapterRef:
    """Have an adapter trained on labelled answers, with the method's parameters as settings.

    Args:
        method: whose adapter it is.
        train: labelled answers.
        ctx: seed, trainer and validation answers.
        loss: name of a function of this module.
        columns: token ids that the loss reads, the query first; they are named as `Of` names them.

    Raises:
        UntrainableError: all labels are equal.
        UserError: training failed.
        ContractError: there is no backbone to adapt.
    """
    check_labels(method.name, train.correct)
    if ctx.train_adapter is None:
        raise ContractError(f"{method.name}: expected a context with train_adapter, a backbone to adapt; got none")
    settings = method.params()
    validation = None
    if ctx.validation is not None:
        validation = Validation(f"{__name__}:verdict_confidence", _examples(ctx.validation, (Of.QUERY,)))
    return ctx.train_adapter(
        loss=f"{__name__}:{loss}",
        examples=_examples(train, columns),
        settings={**settings, "batch_size": min(int(str(settings["batch_size"])), len(train)), "seed": ctx.seed},
        validation=validation,
    )


def _examples(batch: Batch, columns: Sequence[Of]) -> dict[str, Any]:
    return {**{of.value: batch[TokenIds(of)] for of in columns}, "correct": batch.correct}


def verdict_confidence(model: AdapterModel, examples: Mapping[str, Any], settings: Mapping[str, Any]) -> Tensor:
    """Probability of yes after the query, `(n,)`; arguments as `it_loss`."""
    del settings
    query = examples["query"]
    logits = model.logits(query, np.ones(len(query), dtype=np.int64))[:, list(model.verdict_ids)]
    return logits.double().softmax(dim=-1)[:, 1]


def probability_of_yes(logits: FloatArray) -> FloatArray:
    """softmax(z)[yes], shape `(n,)` float64, of `(n, 2)` logits of (no, yes) (methods.md §2.0)."""
    z = logits.astype(np.float64)
    p: FloatArray = np.exp(-np.logaddexp(0.0, z[:, 0] - z[:, 1]))
    return p


def n_lora_parameters(facts: RunFacts, rank: int, target_modules: str = "") -> int:
    """Sum over the adapted layers of rank x (inputs + outputs) (methods.md §2.6)."""
    names = {name.strip() for name in target_modules.split(",") if name.strip()}
    layers = [p for p in facts.model.projections if (p.name in names if names else p.part)]
    return rank * sum(p.inputs + p.outputs for p in layers)
