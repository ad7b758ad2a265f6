"""Seeded statistics of answers and their samples, and the batches that our methods read them from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bench.api import (
    At,
    AttentionRows,
    Batch,
    Followup,
    Hidden,
    OutputHead,
    Ragged,
    Related,
    Samples,
    Signal,
    TokenScores,
    Unembedding,
)
from bench.signals.token_scores import _scores

N = Samples().n
VOCABULARY = 50
WIDTH = 24
"""Of states at the samples' ends: more than there are samples."""
NARROW = 6
"""Of states of answers: fewer than there are right or wrong ones, so that a covariance has an inverse."""
LAYERS, HEADS = 7, 3
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Statistics:
    """What was measured of n answers and N samples of each; m = N + 1 texts, of which the answer is the last."""

    log_probabilities: Floats  # (sum of t_i, v) of all tokens that could have come; some are impossible
    ids: Ints  # (sum of t_i,) tokens of the answers, drawn from these; many answers have one alone
    offsets: Ints  # (n + 1,) where answers begin among the tokens
    texts: Ints  # (n, m) numbers of texts; equal ones are the same text, from one for all to hardly any twice
    lengths: Ints  # (n, N) tokens of samples; a few have none
    sampled: Floats  # (sum of lengths,) log-probabilities of the samples' tokens
    states: Floats  # (n, N, d) at the samples' ends
    entailment: Floats  # (n, m, m, 3) of contradiction, neither, entailment; every fourth question's are 0 and 1
    similarity: Floats  # (n, m, m) not symmetric; every fourth question's are 0 and 1
    stated: npt.NDArray[np.float64]  # (n,) probabilities that were said, of two decimals
    ends: Floats  # (n, d) states of answers
    correct: npt.NDArray[np.bool_]  # (n,) whether answers are right
    itself: Floats  # (sum of t_i, layers, heads) attention of the answers' tokens on themselves

    def __len__(self) -> int:
        return len(self.correct)

    def save(self, path: Path) -> None:
        """Write them as numpy's archive."""
        np.savez(path, **asdict(self))


def draw(questions: int, seed: int) -> Statistics:
    """Statistics of so many questions; those of one seed are the same with one version of numpy."""
    rng = np.random.default_rng(seed)
    texts = rng.integers(0, rng.integers(1, N + 2, questions)[:, None], (questions, N + 1))
    sizes = rng.choice([1, 1, 2, 3, 5, 8, 12], (questions, N + 1))  # of each text
    rows = np.arange(questions)[:, None]
    counts = sizes[np.arange(questions), texts[:, -1]]  # an answer has a token at least
    sizes[::10, 0] = 0
    of_texts = [[-rng.exponential(0.7, size) for size in own] for own in sizes]
    sampled = [of_texts[i][text] for i in range(questions) for text in texts[i, :-1]]
    correct = rng.random(questions) < 0.5
    logits = rng.normal(0, 3, (counts.sum(), VOCABULARY))
    logits[:, rng.integers(0, VOCABULARY, 5)] = -np.inf
    tokens = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    entailment, similarity = _relations(rng, texts)
    return Statistics(
        log_probabilities=_log_softmax(logits).astype(np.float32),
        ids=tokens,
        offsets=np.cumsum([0, *counts]),
        texts=texts,
        lengths=sizes[rows, texts[:, :-1]],
        sampled=np.concatenate(sampled).astype(np.float32),
        states=rng.normal(0, 1, (questions, N + 1, WIDTH))[rows, texts[:, :-1]].astype(np.float32),
        entailment=entailment,
        similarity=similarity,
        stated=rng.integers(0, 101, questions) / 100,
        ends=(rng.normal(0, 1, (questions, NARROW)) * (1 + correct[:, None]) + correct[:, None]).astype(np.float32),
        correct=correct,
        itself=np.random.default_rng([seed, 1])
        .beta(0.5, 2, (len(tokens), LAYERS, HEADS))
        .clip(1e-6)
        .astype(np.float32),
    )


def _relations(rng: np.random.Generator, texts: Ints) -> tuple[Floats, Floats]:
    """Entailment and similarity of texts; what texts mean is entailed by most that mean the same."""
    n, m = texts.shape
    rows = np.arange(n)[:, None, None]
    one, other = texts[:, :, None], texts[:, None, :]
    meanings = rng.integers(0, 4, (n, m))
    likeliest = np.where(meanings[:, :, None] == meanings[:, None, :], 2, rng.integers(0, 2, (n, m, m)))
    logits = rng.normal(0, 1, (n, m, m, 3)) + 2.5 * np.eye(3)[likeliest]
    entailment = np.exp(_log_softmax(logits))[rows, one, other]
    similarity = rng.beta(0.5, 0.5, (n, m, m))[rows, one, other]
    equal = (one == other)[::4]
    entailment[::4] = np.eye(3)[np.where(equal, 2, 1)]
    similarity[::4] = equal
    return entailment.astype(np.float32), similarity.astype(np.float32)


def _log_softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))


def batch(drawn: Statistics, signals: Iterable[Signal]) -> Batch:
    """The statistics as a method reads them."""
    return Batch([str(i) for i in range(len(drawn))], {signal: _column(drawn, signal) for signal in signals})


def _column(drawn: Statistics, signal: Signal) -> Any:
    match signal:
        case TokenScores():
            scores = _scores(torch.from_numpy(drawn.log_probabilities), torch.from_numpy(drawn.ids), signal)
            tokens = np.zeros(len(drawn.ids), dtype=signal.dtype)
            for name, values in scores.items():
                tokens[name] = values.numpy()
            return Ragged(tokens, drawn.offsets)
        case Samples():
            records = np.zeros(len(drawn.sampled), dtype=signal.dtype)
            records["log_probability"] = drawn.sampled
            owner = np.repeat(np.tile(np.arange(N), len(drawn)), drawn.lengths.ravel())
            return Ragged(records, np.cumsum([0, *drawn.lengths.sum(axis=1)]), owner)
        case Related():
            return drawn.entailment if signal.by == "entailment" else drawn.similarity
        case AttentionRows():
            rows = np.zeros(len(drawn.ids), dtype=[("itself", np.float32, (LAYERS, HEADS))])
            rows["itself"] = drawn.itself
            return Ragged(rows, drawn.offsets)
        case Unembedding():
            return OutputHead(torch.zeros(VOCABULARY, 1))
        case Hidden(at=At.SAMPLE_END):
            return drawn.states
        case Followup():
            return np.asarray([f"{value:.2f}" for value in drawn.stated], dtype=np.object_)
    raise NotImplementedError(f"expected a signal of which statistics are drawn, got {signal!r}")
