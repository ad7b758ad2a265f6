"""CCPS: a small network reads how the model's output distribution reacts when its last hidden state is perturbed.

Khanmohammadi et al., 2025, "Calibrating LLM Confidence by Probing Perturbed Representation Stability",
arXiv:2505.21772; methods.md §2.8-§2.12. Choice answers are read at their first token, open ones at up to thirty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.api import (
    At,
    Batch,
    BoolArray,
    ConfidenceMethod,
    Context,
    EarlyStopping,
    FloatArray,
    Format,
    Hidden,
    IntArray,
    Needs,
    Of,
    Preset,
    Ragged,
    RunFacts,
    TokenIds,
    Unembedding,
    UserError,
    method,
)
from methods._shared.training import check_fitted, check_labels, drawing_from
from methods.ccps.columns import FEATURES, Variant
from methods.ccps.paper import FIXED, NOT_REPRODUCED, PRESETS

if TYPE_CHECKING:
    from methods.ccps.networks import Data, Network, Stage

_HIDDEN = Hidden(1.0, At.ANSWER_PREDICTING)
_SIGNALS = frozenset({_HIDDEN, TokenIds(Of.ANSWER), Unembedding()})
_EPSILON_TO_FLIP = FEATURES.index("epsilon_to_flip_token")
_EVER_FLIPPED = FEATURES.index("did_argmax_change_from_original_max")


class _Tokens(NamedTuple):
    """Features of the tokens of n answers, one answer after the other."""

    features: npt.NDArray[np.float32]
    """(tokens, 75)"""
    lengths: IntArray
    """(n,) tokens of each answer that are read."""


@method("ccps")
class Ccps(ConfidenceMethod):
    """Perturbs the last hidden state against the answer and classifies what the output head does; needs labels."""

    reference: ClassVar[str] = "arXiv:2505.21772"
    needs: ClassVar[Needs] = Needs(fit=_SIGNALS, predict=_SIGNALS)
    presets: ClassVar[Mapping[str, Preset]] = PRESETS
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = NOT_REPRODUCED

    def __init__(  # noqa: PLR0913 -- one argument per field of paper.Settings, where each is explained
        self,
        *,
        radius: float = FIXED.radius,
        steps: int = FIXED.steps,
        js: Literal["true", "ref"] = FIXED.js,
        eps_flip: Literal["grid", "exact"] = FIXED.eps_flip,
        eps_relative: bool = FIXED.eps_relative,
        entropy_epsilon: float = FIXED.entropy_epsilon,
        unflipped_at_test: float | None = FIXED.unflipped_at_test,
        max_tokens: int = FIXED.max_tokens,
        pool_mask: bool = FIXED.pool_mask,
        encoder_channels: tuple[int, ...] = FIXED.encoder_channels,
        contrastive_dropout: float = FIXED.contrastive_dropout,
        classifier_dropout: float = FIXED.classifier_dropout,
        classifier_dropout_open: float = FIXED.classifier_dropout_open,
        margin: float = FIXED.margin,
        optimiser: Literal["adamw", "adam"] = FIXED.optimiser,
        weight_decay: float = FIXED.weight_decay,
        learning_rate: float = FIXED.learning_rate,
        contrastive_learning_rate: float = FIXED.contrastive_learning_rate,
        contrastive_learning_rate_open: float = FIXED.contrastive_learning_rate_open,
        batch_size: int = FIXED.batch_size,
        contrastive_batch_size: int = FIXED.contrastive_batch_size,
        contrastive_batch_size_open: int = FIXED.contrastive_batch_size_open,
        contrastive_steps: int = FIXED.contrastive_steps,
        classifier_steps: int = FIXED.classifier_steps,
    ) -> None:
        self.radius = radius
        self.steps = steps
        self.js: Literal["true", "ref"] = js
        self.eps_flip: Literal["grid", "exact"] = eps_flip
        self.eps_relative = eps_relative
        self.entropy_epsilon = entropy_epsilon
        self.unflipped_at_test = unflipped_at_test
        self.max_tokens = max_tokens
        self.pool_mask = pool_mask
        self.encoder_channels = encoder_channels
        self.contrastive_dropout = contrastive_dropout
        self.classifier_dropout = classifier_dropout
        self.classifier_dropout_open = classifier_dropout_open
        self.margin = margin
        self.optimiser: Literal["adamw", "adam"] = optimiser
        self.weight_decay = weight_decay
        self.learning_rate = learning_rate
        self.contrastive_learning_rate = contrastive_learning_rate
        self.contrastive_learning_rate_open = contrastive_learning_rate_open
        self.batch_size = batch_size
        self.contrastive_batch_size = contrastive_batch_size
        self.contrastive_batch_size_open = contrastive_batch_size_open
        self.contrastive_steps = contrastive_steps
        self.classifier_steps = classifier_steps

    def fit(self, train: Batch, ctx: Context) -> Ccps:
        """Learn scaler, encoder and classifier.

        Raises:
            UntrainableError: all labels are equal.
            UserError: hidden states or output weights that are not finite.
        """
        from methods.ccps.networks import Splits, train_classifier, train_contrastive

        check_labels(self.name, train.correct)
        contrastive, classification = self._stages(ctx.format)
        tokens = self._tokens(train, ctx.format)
        self.format_ = ctx.format.value
        self.mean_, self.scale_ = _scaler(tokens.features)
        learned = _data(self._network_inputs(tokens), train.correct, ctx.device)
        validation = None
        if ctx.validation is not None:
            inputs = self._network_inputs(self._test_tokens(ctx.validation, ctx.format))
            validation = _data(inputs, ctx.validation.correct, ctx.device)
        splits = Splits(learned, validation)
        # Initial weights and dropout masks come from torch's global generators.
        with drawing_from(ctx.seed, ctx.device):
            network = self._network(ctx.format).to(ctx.device)
            stopping = self._stopping("contrastive", contrastive, ctx, len(train))
            train_contrastive(network, splits, contrastive, stopping, ctx.seed)
            stopping = self._stopping("classification", classification, ctx, len(train))
            train_classifier(network, splits, classification, stopping, ctx.seed)
        self.weights_ = _snapshot(network)
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Probability that the answer is right, shape (n,), float64."""
        import torch

        from methods.ccps.networks import probabilities

        check_fitted(self)
        answer_format = Format(self.format_)
        inputs = self._network_inputs(self._test_tokens(batch, answer_format))
        device = batch[Unembedding()].weight.device
        with torch.device("meta"):  # without drawing initial weights
            network = self._network(answer_format).eval()
        weights = {name: torch.tensor(array, device=device) for name, array in self.weights_.items()}
        network.load_state_dict(weights, assign=True)
        return probabilities(network, torch.from_numpy(inputs).to(device))

    def n_parameters(self, facts: RunFacts) -> int:
        """9,542 for single-token answers, 21,778 for open ones, with the paper's shapes."""
        from methods.ccps.networks import n_parameters

        return n_parameters(facts.format, len(FEATURES), self.encoder_channels)

    def _tokens(self, batch: Batch, answer_format: Format) -> _Tokens:
        """Features of the answers' first token, or of their first `max_tokens`."""
        import torch

        from methods.ccps.features import perturbation_features

        hidden, ids, head = batch[_HIDDEN], batch[TokenIds(Of.ANSWER)], batch[Unembedding()]
        places, lengths = _first_tokens(ids, 1 if answer_format is Format.CHOICE else self.max_tokens)
        features = perturbation_features(
            torch.from_numpy(hidden.values[places]).to(head.weight.device),
            torch.from_numpy(ids.values[places]),
            head,
            radius=self.radius,
            steps=self.steps,
            variant=Variant(self.js, self.eps_flip, self.eps_relative, self.entropy_epsilon),
        )
        array: npt.NDArray[np.float32] = features.cpu().numpy()
        _check_finite(array)
        return _Tokens(array, lengths)

    def _test_tokens(self, batch: Batch, answer_format: Format) -> _Tokens:
        """The same of answers that are not learned from, where the official code reads one feature otherwise."""
        tokens = self._tokens(batch, answer_format)
        if answer_format is Format.CHOICE and self.unflipped_at_test is not None:
            unflipped = tokens.features[:, _EVER_FLIPPED] == 0
            tokens.features[unflipped, _EPSILON_TO_FLIP] = self.unflipped_at_test
        return tokens

    def _network_inputs(self, tokens: _Tokens) -> npt.NDArray[np.float32]:
        """Standardised features `(n, 75)`, or `(n, max_tokens, 75)` padded with zeros; the same in fit and predict."""
        scaled = ((tokens.features - self.mean_) / self.scale_).astype(np.float32)
        if Format(self.format_) is Format.CHOICE:
            return scaled
        inputs = np.zeros((len(tokens.lengths), self.max_tokens, len(FEATURES)), dtype=np.float32)
        inputs[np.arange(self.max_tokens) < tokens.lengths[:, None]] = scaled
        return inputs

    def _network(self, answer_format: Format) -> Network:
        from methods.ccps.networks import build

        return build(answer_format, len(FEATURES), self.encoder_channels, pool_mask=self.pool_mask)

    def _stages(self, answer_format: Format) -> tuple[Stage, Stage]:
        from methods.ccps.networks import Stage

        is_open = answer_format is Format.OPEN
        contrastive = Stage(
            self.contrastive_steps,
            self.contrastive_batch_size_open if is_open else self.contrastive_batch_size,
            self.contrastive_learning_rate_open if is_open else self.contrastive_learning_rate,
            self.contrastive_dropout,
            self.optimiser,
            self.weight_decay,
            self.margin,
        )
        classification = contrastive._replace(
            steps=self.classifier_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            dropout=self.classifier_dropout_open if is_open else self.classifier_dropout,
        )
        return contrastive, classification

    @staticmethod
    def _stopping(name: str, stage: Stage, ctx: Context, n: int) -> EarlyStopping:
        return ctx.early_stopping(stage.steps, name=name, epochs_per_step=min(stage.batch_size, n) / n)


def _first_tokens(rows: Ragged, limit: int) -> tuple[IntArray, IntArray]:
    """Places in `rows.values` of each row's first `limit` values, and how many each row has of them, `(n,)`."""
    lengths = np.minimum(rows.lengths, limit)
    starts = np.cumsum(lengths) - lengths
    within = np.arange(lengths.sum()) - np.repeat(starts, lengths)
    return np.repeat(rows.offsets[:-1], lengths) + within, lengths


def _check_finite(features: npt.NDArray[np.float32]) -> None:
    bad = ~np.isfinite(features).all(axis=1)
    if bad.any():
        raise UserError(
            f"ccps: expected finite hidden states and output weights; {bad.sum()} of {len(features)} answer tokens gave"
            " none; load the model in another precision, e.g. --dtype float32"
        )


def _scaler(features: npt.NDArray[np.float32]) -> tuple[FloatArray, FloatArray]:
    """Mean and population standard deviation per column, float64; 1 where a column is constant (methods.md §2.9).

    Constancy is read off the values: a computed deviation of 1e-16 would blow rounding noise up to a feature.
    """
    wide = features.astype(np.float64)
    constant = wide.min(axis=0) == wide.max(axis=0)
    return wide.mean(axis=0), np.where(constant, 1.0, wide.std(axis=0))


def _data(inputs: npt.NDArray[np.float32], correct: BoolArray, device: str) -> Data:
    import torch

    from methods.ccps.networks import Data

    return Data(torch.from_numpy(inputs).to(device), torch.tensor(correct, dtype=torch.int64, device=device))


def _snapshot(network: Network) -> dict[str, npt.NDArray[np.float32]]:
    """Copies of the weights: a state dict shares memory with the live network (methods.md §6 #17)."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in network.state_dict().items()}
