"""LitCab: a linear layer, trained to prefer gold answers over wrong options, adjusts the logits of the answer.

Liu et al., 2023, "LitCab: Lightweight Language Model Calibration over Short- and Long-form Responses",
arXiv:2310.19208; docs/methods.md §2.7. The confidence is the geometric mean of the answer tokens' adjusted
probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bench.api import (
    At,
    Batch,
    BoolArray,
    ConfidenceMethod,
    Context,
    FloatArray,
    Hidden,
    Needs,
    Of,
    Preset,
    Ragged,
    RunFacts,
    Search,
    TokenIds,
    Unembedding,
    UserError,
    method,
)
from methods._shared.training import RATE_AND_DECAY, check_finite, check_fitted, iterate_batches

if TYPE_CHECKING:
    from methods.litcab.networks import Layer, Targets

_GOLD = Hidden(1.0, At.GOLD_PREDICTING)
_WRONG = Hidden(1.0, At.WRONG_PREDICTING)
_ANSWER = Hidden(1.0, At.ANSWER_PREDICTING)


class _Corpus(NamedTuple):
    """Training data of LitCab: distinct hidden states, as views of a batch's arrays, and each question's tokens."""

    gold: npt.NDArray[np.float32]
    """`(m, d)` states that predict the tokens of gold answers, of all questions."""
    wrong: npt.NDArray[np.float32]
    """`(m, d)` states that predict the tokens of wrong options, of all questions."""
    states: Ragged
    """`(m_i,)` for each question: row numbers of its distinct states, in the concatenation of `gold` and `wrong`.
    Lettered options share one state, at the end of the prompt."""
    tokens: Ragged
    """`(t_i, 3)` for each question: index into the question's states, token id, and 1 for a token of a wrong option,
    else 0."""


@method("litcab")
@dataclass(kw_only=True, eq=False)
class LitCab(ConfidenceMethod):
    """LitCab, lightweight calibration: the answer's probability, logits adjusted by one layer; needs wrong options.

    Weights, gradient, two moments of AdamW and the frozen output head take 9.5 GB for hidden size d = 4,096 and a
    vocabulary of 128,256 (14 GB for 5,120 and 152,064). A chunk of 256 tokens takes at most 0.5 GB more; on an
    accelerator one of 768 tokens takes 1 GB. See `networks.py`.

    In the sources of its constants, "paper" is arXiv:2505.21772, whose baseline this is, and "code" what the authors of
    LitCab released as github.com/launchnlp/LitCab.
    """

    reference = "arXiv:2310.19208"
    needs = Needs(
        fit=frozenset({_GOLD, TokenIds(Of.GOLD), _WRONG, TokenIds(Of.WRONG), Unembedding()}),
        predict=frozenset({_ANSWER, TokenIds(Of.ANSWER), Unembedding()}),
    )
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {},
        "refcode": {"relu_input": True, "negatives": 3, "batch_size": 128, "learning_rate": 5e-6, "weight_decay": 0.01},
        "fixed": {},
        "demo": {},
    }
    small: ClassVar[Mapping[str, object]] = {"steps": 200, "learning_rate": 1e-2}
    search: ClassVar[Mapping[str, Search]] = RATE_AND_DECAY
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = {
        "paper": (
            "Its own publication's training: the paper's one budget for all methods is taken (docs/methods.md §6 #52).",
            "A max-margin loss: the code's capped difference of cross-entropies is taken (docs/methods.md §6 #59).",
        ),
        "refcode": (
            "A random initial bias, and scoring without a bias (docs/methods.md §6 #60).",
            "Twenty epochs with the best validation step kept: the paper's steps to their end (docs/methods.md §2.7).",
        ),
    }
    takes_one_class = True
    expected_failures: ClassVar[Mapping[str, str]] = {
        "one_class": "learns from gold answers and wrong options, never from which answers were right"
    }

    relu_input: bool = False
    """Whether the layer gets ReLU(h) instead of the hidden state h. Paper, baseline appendix: h; code: ReLU(h)
    (docs/methods.md §2.7, §6 #60)."""
    cap: float = 3.0
    """Mean cross-entropy in nats above which wrong options are not made less likely any more. Code (docs/methods.md
    §2.7)."""
    penalty: float = 0.01
    """Factor of the norm of the weights in the loss. Code (docs/methods.md §2.7)."""
    negatives: int | None = None
    """Number of wrong options per question, sampled once; None: all. CHOSEN: all (docs/methods.md §0.8); code: 3
    (docs/methods.md §2.7)."""
    steps: int = 10_000
    """Largest number of training steps. Paper, Training Details (docs/methods.md §2.0, §0.19)."""
    batch_size: int = 32
    """Largest number of questions in a step. Paper, Training Details; code: at least 128 (docs/methods.md §2.7)."""
    learning_rate: float = 1e-4
    """Learning rate, constant. Paper, Training Details; code: 5e-6 (docs/methods.md §2.7)."""
    weight_decay: float = 0.1
    """Weight decay of AdamW, betas 0.9 and 0.999. Paper, Training Details; code: 0.01 (docs/methods.md §2.7)."""

    def __post_init__(self) -> None:
        """Raise an error if `negatives` is no count."""
        if self.negatives is not None and not (isinstance(self.negatives, int) and self.negatives >= 1):
            raise UserError(f"litcab.negatives: expected none or a count of at least 1, got {self.negatives!r}")

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Train the layer on gold answers and wrong options; the labels of the model's answers are not read.

        Raises:
            UserError: there is no wrong option, or hidden states are not finite.
        """
        import torch

        from methods.litcab.networks import Objective, train_layer

        option_mask = _sample_options(train[TokenIds(Of.WRONG)], self.negatives, ctx.rng)
        corpus = _corpus(train, option_mask)
        batch_size = min(self.batch_size, len(train))
        batches = iterate_batches(len(train), batch_size, torch.Generator().manual_seed(ctx.seed))
        stopping = ctx.early_stopping(self.steps, epochs_per_step=batch_size / len(train))

        def record(layer: Layer) -> None:
            if stopping.due:
                stopping.record(lambda batch: self._confidence(layer, batch), keep=layer.arrays)

        train_layer(
            train[Unembedding()],
            (_step(corpus, rows.numpy()) for _, rows in zip(stopping, batches, strict=False)),
            Objective(self.cap, self.penalty, self.relu_input),
            record,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
        )
        self.weight_, self.bias_ = stopping.kept
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Geometric mean of the answer tokens' adjusted probabilities, `(n,)` float64."""
        import torch

        from methods.litcab.networks import Layer

        check_fitted(self)
        device = batch[Unembedding()].weight.device
        layer = Layer(*(torch.tensor(array, device=device) for array in (self.weight_, self.bias_)))
        return self._confidence(layer, batch)

    def _confidence(self, layer: Layer, batch: Batch) -> FloatArray:
        from methods.litcab.networks import Targets, log_probabilities

        head, states, ids = batch[Unembedding()], batch[_ANSWER], batch[TokenIds(Of.ANSWER)]
        check_finite(self.name, states.values)
        tokens = Targets(states.values, np.arange(len(ids.values)), ids.values)
        log_p = log_probabilities(layer, head, tokens, relu_input=self.relu_input)
        owner = np.repeat(np.arange(len(ids)), ids.lengths)
        return np.asarray(np.exp(np.bincount(owner, weights=log_p, minlength=len(ids)) / ids.lengths))

    def n_parameters(self, facts: RunFacts) -> int:
        """Number of weights d x v and biases v of the layer, for hidden size d and v tokens in the vocabulary."""
        return facts.model.hidden_size * facts.model.vocab_size + facts.model.vocab_size


def _sample_options(wrong: Ragged, negatives: int | None, rng: np.random.Generator) -> BoolArray:
    """Return a mask over the tokens of wrong options, which selects at most `negatives` options per question.

    The options are sampled; None selects all.
    """
    mask = np.ones(len(wrong.values), dtype=np.bool_)
    if negatives is None:
        return mask
    owner = np.zeros(len(wrong.values), dtype=np.int64) if wrong.owner is None else wrong.owner
    for start, end in zip(wrong.offsets[:-1], wrong.offsets[1:], strict=True):
        options = np.unique(owner[start:end])
        if len(options) > negatives:
            mask[start:end] = np.isin(owner[start:end], rng.choice(options, negatives, replace=False))
    return mask


def _corpus(train: Batch, option_mask: BoolArray) -> _Corpus:
    """Collect the tokens of gold answers and selected wrong options, and the distinct states that predict them."""
    gold_states, gold, wrong_states, wrong = (
        train[_GOLD], train[TokenIds(Of.GOLD)], train[_WRONG], train[TokenIds(Of.WRONG)]
    )  # fmt: skip
    if not option_mask.any():
        raise UserError(
            f"litcab: expected wrong options to tell gold answers from; none of {len(train)} training questions has"
            " any; name a task with options with --train-on"
        )
    check_finite(LitCab.name, gold_states.values)
    check_finite(LitCab.name, wrong_states.values)
    states, tokens = [], []
    for i in range(len(train)):
        gold_rows = np.arange(gold.offsets[i], gold.offsets[i + 1])
        wrong_rows = wrong.offsets[i] + np.flatnonzero(option_mask[wrong.offsets[i] : wrong.offsets[i + 1]])
        ids = np.concatenate([gold.values[gold_rows], wrong.values[wrong_rows]])
        state_numbers: dict[bytes, int] = {}  # bytes of a state -> its number
        rows = [*gold_states[i], *wrong_states.values[wrong_rows]]
        state_ids = [state_numbers.setdefault(row.tobytes(), len(state_numbers)) for row in rows]
        _, first = np.unique(state_ids, return_index=True)
        states.append(np.concatenate([gold_rows, len(gold.values) + wrong_rows])[first])
        tokens.append(np.stack([state_ids, ids, np.arange(len(ids)) >= len(gold_rows)], axis=1))
    return _Corpus(gold_states.values, wrong_states.values, Ragged.of(states), Ragged.of(tokens))


def _step(corpus: _Corpus, rows: npt.NDArray[np.integer]) -> tuple[Targets, BoolArray]:
    """Return the tokens of the questions `rows` with their states, and a mask `(t,)` of tokens of wrong options."""
    from methods.litcab.networks import Targets

    states, tokens = corpus.states.take(rows), corpus.tokens.take(rows)
    state_ids, ids, wrong = tokens.values.T
    n_gold = len(corpus.gold)
    is_gold = states.values < n_gold
    values = np.empty((len(is_gold), corpus.gold.shape[1]), dtype=np.float32)
    values[is_gold] = corpus.gold[states.values[is_gold]]
    values[~is_gold] = corpus.wrong[states.values[~is_gold] - n_gold]
    return Targets(values, state_ids + np.repeat(states.offsets[:-1], tokens.lengths), ids), wrong == 1
