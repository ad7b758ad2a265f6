"""CCPS: a small network on features of how the output distribution reacts to perturbations of the last hidden state.

Khanmohammadi et al., 2025, "Calibrating LLM Confidence by Probing Perturbed Representation Stability",
arXiv:2505.21772; docs/methods.md §2.8-§2.12. Choice answers are read at their first token, open ones at up to thirty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from bench.api import (
    At,
    Batch,
    BoolArray,
    ConfidenceMethod,
    Context,
    FloatArray,
    Format,
    Hidden,
    IntArray,
    Needs,
    Of,
    Preset,
    RunFacts,
    Search,
    TokenIds,
    Unembedding,
    UserError,
    method,
)
from methods._shared.training import AROUND, RATE_AND_DECAY, check_fitted, check_fractions, seeded_torch
from methods.ccps.columns import FEATURES, Variant

if TYPE_CHECKING:
    from torch import Tensor

    from methods.ccps.networks import Data, Network, Splits, StageSettings

Array = npt.NDArray[np.float32]
_HIDDEN = Hidden(1.0, At.ANSWER_PREDICTING)
_SIGNALS = frozenset({_HIDDEN, TokenIds(Of.ANSWER), Unembedding()})
_EPSILON_TO_FLIP = FEATURES.index("epsilon_to_flip_token")
_EVER_FLIPPED = FEATURES.index("did_argmax_change_from_original_max")


@method("ccps")
@dataclass(kw_only=True, eq=False)
class Ccps(ConfidenceMethod):
    """Calibrating LLM Confidence by Probing Perturbed Representation Stability (CCPS): a classifier; needs labels.

    It classifies changes of the output distribution under perturbations of the last hidden state.

    In the sources of its constants, "paper" is arXiv:2505.21772 and "code" what the authors' repository
    github.com/ledengary/CCPS executes. CHOSEN marks what neither gives.
    """

    reference = "arXiv:2505.21772"
    analyses: ClassVar[Mapping[str, str]] = {
        "features": "methods.ccps.analyses:features",
        "leave-one-out": "methods.ccps.analyses:leave_one_out",
        "shap": "methods.ccps.importance:shap",
        "trajectory": "methods.ccps.perturbation_ablation:trajectory",
        "tokens": "methods.ccps.token_masking:tokens",
        "tokens-raw": "methods.ccps.token_masking:tokens_raw",
    }
    needs = Needs(fit=_SIGNALS, predict=_SIGNALS)
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {},
        "refcode": {
            "js": "ref",
            "entropy_epsilon": 1e-6,
            "unflipped_at_test": 0.0,
            "encoder_channels": (64, 32, 16),
            "contrastive_dropout": 0.05,
            "classifier_dropout": 0.1,
            "classifier_dropout_open": 0.2,
            "optimiser": "adam",
            "weight_decay": 0.01,
            "contrastive_learning_rate_open": 1e-3,
            "contrastive_batch_size": 64,
        },
        "fixed": {},
        "demo": {},
    }
    small: ClassVar[Mapping[str, object]] = {
        "contrastive_steps": 60,
        "classifier_steps": 120,
        "learning_rate": 1e-2,
        "contrastive_learning_rate": 1e-2,
        "contrastive_learning_rate_open": 1e-2,
    }
    search: ClassVar[Mapping[str, Search]] = {
        **RATE_AND_DECAY,
        "contrastive_learning_rate": AROUND,
        "contrastive_learning_rate_open": AROUND,
    }
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = {
        "paper": (
            (
                "A hinge on the difference of two distances over pairs of one question: there is one graded answer to a"
                " question, so the code's loss over random pairs stands for it (docs/methods.md §2.11, §6 #8, #9, #10)."
            ),
            "PEI as total normalised drop: the code's mean drop over the steps is taken (docs/methods.md §6 #26).",
            (
                "Epsilon-to-flip from the answer's token: the code's, from the first choice, is taken"
                " (docs/methods.md §6 #25)."
            ),
        ),
        "refcode": (
            "Half-precision arithmetic (docs/methods.md §6 #24).",
            "A second begin token, and answers that are tokenised again (docs/methods.md §6 #33, #34).",
            "A tenth of the training rows, drawn by tokens, kept from training (docs/methods.md §6 #18, #19).",
        ),
    }

    radius: float = 20.0
    """Largest perturbation eps_max, absolute. Paper, Method; code: README (docs/methods.md §2.8, §2.13)."""
    steps: int = 5
    """Number S of equal steps up to the radius. Paper, Method (docs/methods.md §2.8)."""
    js: Literal["true", "ref"] = "true"
    """Jensen-Shannon divergence: `true`, as defined (paper, feature appendix), or `ref`, with the two arguments of each
    KL divergence exchanged (code; docs/methods.md §6 #27)."""
    eps_flip: Literal["grid", "exact"] = "grid"
    """How the smallest perturbation that changes the argmax is found: `grid`, at the first step that changes it, or
    `exact`. Code: first grid point (docs/methods.md §6 #25)."""
    eps_relative: bool = False
    """Whether the radius is in units of the state's norm. Paper and code: no (docs/methods.md §2.8)."""
    entropy_epsilon: float = 0.0
    """Number added inside the logarithm of the entropy. Paper, feature appendix: nothing; code: 1e-6 (docs/methods.md
    §3, column 6)."""
    unflipped_at_test: float | None = None
    """Epsilon-to-flip of a single-token validation or test answer whose argmax no step changes. None: the radius, as in
    training. Code: 0 (docs/methods.md §6 #21)."""
    max_tokens: int = 30
    """Number of tokens to which open answers are cut or padded. Paper, architecture appendix (docs/methods.md
    §2.10)."""
    pool_mask: bool = False
    """Whether padding is left out of the maximum over tokens. Code: padding takes part (docs/methods.md §6 #70)."""
    encoder_channels: tuple[int, ...] = (64, 32)
    """Output channels of the convolutions in the encoder of open answers. Paper, architecture appendix; code: 64, 32,
    16 (docs/methods.md §6 #14)."""
    contrastive_dropout: float = 0.0
    """Dropout in the encoder in the contrastive stage. Paper: none mentioned; code: 0.05 (docs/methods.md §2.12)."""
    classifier_dropout: float = 0.0
    """Dropout in the encoder in the classification stage, for single-token answers. Paper: none mentioned; code: 0.1
    (docs/methods.md §2.12)."""
    classifier_dropout_open: float = 0.0
    """Dropout in the encoder in the classification stage, for open answers. Paper: none mentioned; code: 0.2
    (docs/methods.md §2.12)."""
    margin: float = 1.0
    """Margin gamma of the contrastive loss. Paper: unspecified; code: 1.0 (docs/methods.md §2.11)."""
    optimiser: Literal["adamw", "adam"] = "adamw"
    """Optimiser of both stages. Paper, Training Details: AdamW; code: Adam with L2 (docs/methods.md §6 #11)."""
    weight_decay: float = 0.1
    """Weight decay in both stages. Paper, Training Details: 0.1; code: 0.01 (docs/methods.md §6 #11)."""
    learning_rate: float = 1e-4
    """Learning rate of the classification stage, constant. Paper, Training Details (docs/methods.md §2.12)."""
    contrastive_learning_rate: float = 1e-4
    """Learning rate of the contrastive stage, constant; single-token answers. Paper, Training Details
    (docs/methods.md §2.12)."""
    contrastive_learning_rate_open: float = 1e-4
    """Learning rate of the contrastive stage, constant; open answers. Paper, Training Details; code: 1e-3
    (docs/methods.md §6 #13)."""
    batch_size: int = 32
    """Number of answers in a step of the classification stage. Paper, Training Details (docs/methods.md §2.12)."""
    contrastive_batch_size: int = 32
    """Number of pairs in a step of the contrastive stage, for single-token answers. Paper, Training Details; code: 64
    (docs/methods.md §6 #12)."""
    contrastive_batch_size_open: int = 32
    """Number of pairs in a step of the contrastive stage, for open answers. Paper, Training Details; code: 32
    (docs/methods.md §2.12)."""
    contrastive_steps: int = 5000
    """Largest number of steps of the contrastive stage. Paper, Training Details (docs/methods.md §2.12, §0.19)."""
    classifier_steps: int = 5000
    """Largest number of steps of the classification stage. Paper, Training Details (docs/methods.md §2.12, §0.19)."""

    def __post_init__(self) -> None:
        """Raise an error if a dropout or the radius is out of range."""
        check_fractions(
            self.name,
            contrastive_dropout=self.contrastive_dropout,
            classifier_dropout=self.classifier_dropout,
            classifier_dropout_open=self.classifier_dropout_open,
        )
        if self.radius <= 0:
            raise UserError(f"{self.name}.radius: expected more than 0, got {self.radius}")

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Fit the scaler of the features, and train the network's encoder and classifier.

        Raises:
            UserError: hidden states or output weights are not finite, or training diverged.
        """
        network = self.train_network(self.prepare_splits(train, ctx), ctx)
        # copies: a state dict shares memory with the live network (docs/methods.md §6 #17)
        self.weights_ = {name: tensor.detach().cpu().numpy().copy() for name, tensor in network.state_dict().items()}
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Probability that the answer is right, shape (n,), float64."""
        import torch

        from methods.ccps.networks import probabilities

        check_fitted(self)
        inputs = self.test_inputs(batch)
        device = batch[Unembedding()].weight.device
        with torch.device("meta"):  # without initialising weights
            network = self.build_network(len(FEATURES)).eval()
        weights = {name: torch.tensor(array, device=device) for name, array in self.weights_.items()}
        network.load_state_dict(weights, assign=True)
        return probabilities(network, torch.from_numpy(inputs).to(device))

    # --- parts of fit and predict, also used by analyses --------------------------------------------------------------

    def prepare_splits(self, train: Batch, ctx: Context) -> Splits:
        """Fit the scaler, and return standardised features of training and validation answers.

        Raises:
            UserError: hidden states or output weights are not finite.
        """
        from methods.ccps.networks import Splits

        features, lengths = self._tokens(train, ctx.format)
        self.format_ = ctx.format.value
        self.mean_, self.scale_ = _scaler(features)
        train_data = _data(self._network_inputs(features, lengths), train.correct, ctx.device)
        if ctx.validation is None:
            return Splits(train_data, None)
        inputs = self.test_inputs(ctx.validation)
        return Splits(train_data, _data(inputs, ctx.validation.correct, ctx.device))

    def test_inputs(self, batch: Batch) -> Array:
        """Return standardised features of validation or test answers: `(n, 75)`, or `(n, max_tokens, 75)` if open."""
        answer_format = Format(self.format_)
        features, lengths = self._tokens(batch, answer_format)
        if answer_format is Format.CHOICE and self.unflipped_at_test is not None:
            features[features[:, _EVER_FLIPPED] == 0, _EPSILON_TO_FLIP] = self.unflipped_at_test
        return self._network_inputs(features, lengths)

    def train_network(self, splits: Splits, ctx: Context) -> Network:
        """Train a network in two stages: its encoder contrastively, then encoder and classifier on the labels.

        Raises:
            UserError: training diverged, i.e. weights are not finite.
        """
        from methods.ccps.networks import classification_objective, contrastive_objective, train

        # Initial weights and dropout masks come from torch's global generators.
        with seeded_torch(ctx.seed, ctx.device):
            network = self.build_network(splits.train.features.shape[-1]).to(ctx.device, splits.train.features.dtype)
            for objective, stage in zip(
                (contrastive_objective, classification_objective), self.stage_settings(ctx.format), strict=True
            ):
                stopping = stage.create_early_stopping(ctx, len(splits.train.labels))
                train(network, objective(splits, stage, ctx.seed), stage, stopping)
        if not all(bool(weights.isfinite().all()) for weights in network.parameters()):
            raise UserError(
                f"{self.name}: expected a training that ends with finite weights, but it diverged with the seed"
                f" {ctx.seed}; lower the rates, e.g. --set learning_rate={self.learning_rate / 10:g}"
            )
        return network

    def stage_settings(self, answer_format: Format) -> tuple[StageSettings, StageSettings]:
        """Return the settings of the contrastive stage and of the classification stage."""
        from methods.ccps.networks import StageSettings

        is_open = answer_format is Format.OPEN
        contrastive = StageSettings(
            "contrastive",
            self.contrastive_steps,
            self.contrastive_batch_size_open if is_open else self.contrastive_batch_size,
            self.contrastive_learning_rate_open if is_open else self.contrastive_learning_rate,
            self.contrastive_dropout,
            self.optimiser,
            self.weight_decay,
            self.margin,
        )
        return contrastive, contrastive._replace(
            name="classification",
            steps=self.classifier_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            dropout=self.classifier_dropout_open if is_open else self.classifier_dropout,
        )

    def directions(self, ids: Sequence[str], lengths: IntArray, width: int) -> Tensor | None:
        """Return the directions in which hidden states are perturbed; analyses override this.

        Args:
            ids: question ids of the n answers.
            lengths: `(n,)` number of tokens read of each answer.
            width: hidden size.

        Returns:
            `(sum of lengths, width)`; None: along the gradient, where each token's log-probability falls fastest.
        """
        del ids, lengths, width
        return None

    def n_parameters(self, facts: RunFacts) -> int:
        """Number of weights: 9,542 for single-token answers and 21,778 for open ones, with the paper's shapes."""
        import torch

        from methods.ccps.networks import build

        with torch.device("meta"):
            network = build(facts.format, len(FEATURES), self.encoder_channels, pool_mask=False)
        return sum(parameter.numel() for parameter in network.parameters())

    def _tokens(self, batch: Batch, answer_format: Format) -> tuple[Array, IntArray]:
        """Return the features `(tokens, 75)` of the answers' tokens, and the number of tokens per answer `(n,)`.

        Of a choice answer the first token is read, of an open answer the first `max_tokens` tokens.
        """
        import torch

        from methods.ccps.features import perturbation_features

        hidden, ids, head = batch[_HIDDEN], batch[TokenIds(Of.ANSWER)], batch[Unembedding()]
        lengths = np.minimum(ids.lengths, 1 if answer_format is Format.CHOICE else self.max_tokens)
        positions = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        token_rows = np.repeat(ids.offsets[:-1], lengths) + positions  # rows of these tokens among all
        features = perturbation_features(
            torch.from_numpy(hidden.values[token_rows]),
            torch.from_numpy(ids.values[token_rows]),
            head,
            radius=self.radius,
            steps=self.steps,
            variant=Variant(self.js, self.eps_flip, self.eps_relative, self.entropy_epsilon),
            directions=self.directions(batch.ids, lengths, hidden.values.shape[1]),
        )
        array: Array = features.numpy()
        bad = ~np.isfinite(array).all(axis=1)
        if bad.any():
            raise UserError(
                f"ccps: expected finite hidden states and output weights; {bad.sum()} of {len(array)} answer tokens"
                " gave none; load the model in another precision, e.g. --dtype float32"
            )
        return array, lengths

    def _network_inputs(self, features: Array, lengths: IntArray) -> Array:
        """Return standardised features: `(n, 75)`, or for open answers `(n, max_tokens, 75)`, padded with zeros."""
        scaled: Array = ((features - self.mean_) / self.scale_).astype(np.float32)
        if Format(self.format_) is Format.CHOICE:
            return scaled
        inputs = np.zeros((len(lengths), self.max_tokens, len(FEATURES)), dtype=np.float32)
        inputs[np.arange(self.max_tokens) < lengths[:, None]] = scaled
        return inputs

    def build_network(self, n_features: int) -> Network:
        """Build a network with initial weights from torch's global generator."""
        from methods.ccps.networks import build

        return build(Format(self.format_), n_features, self.encoder_channels, pool_mask=self.pool_mask)


def _scaler(features: Array) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation (ddof 0) of each column, float64 (docs/methods.md §2.9).

    The deviation of a column with equal values is set to 1: the computed one may be 1e-16, and dividing by it would
    amplify rounding noise.
    """
    wide = features.astype(np.float64)
    constant = wide.min(axis=0) == wide.max(axis=0)
    return wide.mean(axis=0), np.where(constant, 1.0, wide.std(axis=0))


def _data(inputs: Array, correct: BoolArray, device: str) -> Data:
    import torch

    from methods.ccps.networks import Data

    return Data(torch.from_numpy(inputs).to(device), torch.tensor(correct, dtype=torch.int64, device=device))
