"""Signal classes: what can be read of a frozen model, computed once for all methods; a method lists them in `needs`."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np

from bench.api.errors import ContractError


class At(enum.Enum):
    """Position in the sequence at which a hidden state is read, for a prompt of n tokens and an answer of L tokens."""

    PROMPT_END = "prompt_end"
    """Position n-1, the state that predicts the first answer token; one row per question."""
    ANSWER_PREDICTING = "answer_predicting"
    """Positions n-1 ... n+L-2: row i predicts answer token i; L rows per question."""
    ANSWER_END = "answer_end"
    """Position n+L-1, after the last answer token was read back in; one row per question."""
    GOLD_PREDICTING = "gold_predicting"
    """As ANSWER_PREDICTING, with the right answer put after the prompt: the right letter, or the right text."""
    WRONG_PREDICTING = "wrong_predicting"
    """As GOLD_PREDICTING, for all wrong options one after the other; `Ragged.owner` is the option of each row."""
    SAMPLE_END = "sample_end"
    """The position after the last token of each sample was read back in; the prompt's end for an empty sample."""
    QUERY_END = "query_end"
    """The end of the self-check query, which predicts the verdict on the answer; one row per question."""


class Of(enum.Enum):
    """Text of a question whose tokens a signal is about."""

    PROMPT = "prompt"
    """The rendered prompt with its generation prompt."""
    ANSWER = "answer"
    """The generated ids themselves, not re-tokenised text; trailing end tokens removed."""
    QUERY = "query"
    """The whole conversation: prompt, answer, and the self-check query after it."""
    GOLD = "gold"
    """The right answer as the model would generate it: the right letter, or the right text."""
    WRONG = "wrong"
    """All wrong options, one after the other; `Ragged.owner` is the option of each token."""
    QUESTION = "question"
    """The question as the prompt shows it, with options if the prompt has them, without exemplars."""
    OPTIONS = "options"
    """All options, unlabelled: letters in their order, open ones sorted by text, since data sets may list the right one
    first. `Ragged.owner` is the index in that order."""
    SAMPLES = "samples"
    """Sampled answers; `Ragged.owner` is the index of the sample."""


class Adapter(enum.Enum):
    """Weights with which a signal is computed."""

    NONE = "none"
    """The frozen model, without adapter."""
    OWN = "own"
    """The frozen model with the adapter that the method trained in `fit` (its `adapter_`)."""


# run-time checks, as type hints of plugins are not enforced


def _is_count(value: object, least: int) -> bool:
    """Return whether a value is an integer of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: object) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def _is_text(value: object) -> bool:
    """Return whether a value is text that UTF-8 can encode, without lone surrogates."""
    return type(value) is str and not any("\ud800" <= char <= "\udfff" for char in value)


@dataclass(frozen=True, repr=False)
class Signal:
    """Something that is computed once on the frozen model; signals of one class with equal fields are the same."""

    @property
    def drawn(self) -> bool:
        """Whether the signal depends on the seed, as samples do, and signals that are computed from them."""
        of_samples = any(place in {At.SAMPLE_END, Of.SAMPLES} for place in _positions_and_texts(self))
        return of_samples or isinstance(self, Samples | SampleAgreement)

    def __repr__(self) -> str:
        """Return the constructor call, without fields that have their default."""
        shown = [(f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default]
        texts = (f"{name}={value if isinstance(value, enum.Enum) else repr(value)}" for name, value in shown)
        return f"{type(self).__name__}({', '.join(texts)})"


@dataclass(frozen=True, repr=False)
class Samples(Signal):
    """Sampled answers: a `Ragged` of records, `(t_i,)` of `dtype` for each question; `owner` is the sample, 0 ... n-1.

    Fields, of one token each:

    - `id`, int64: the token. The end token is not included, so a sample can be empty.
    - `log_probability`, float32, in nats: of the token by the model itself, whatever the temperature and `top_p`.
    - `ended`, bool: whether the sample ended with an end token rather than at the length limit; true of an empty one.

    Samples are drawn with a generator keyed by (seed, question id, sample), so that they depend neither on batches nor
    on resuming. All signals with the same n, temperature and `top_p` have the same samples.
    """

    n: int = 10
    temperature: float = 1.0
    """Positive; the logits are divided by it."""
    top_p: float = 1.0
    """Nucleus sampling: only the most likely tokens are sampled, the fewest whose total probability reaches this."""

    def __post_init__(self) -> None:
        """Refuse invalid sampling settings.

        Raises:
            ContractError: `n` is below 1, `temperature` is not above 0, or `top_p` is outside (0, 1].
        """
        has_temperature = _is_number(self.temperature) and self.temperature > 0
        if not _is_count(self.n, 1) or not has_temperature or not _is_number(self.top_p) or not 0 < self.top_p <= 1:
            raise ContractError(f"expected n of at least 1, temperature above 0 and top_p in (0, 1], got {self!r}")

    @property
    def dtype(self) -> np.dtype[np.void]:
        """Dtype of one token's record."""
        return np.dtype([("id", np.int64), ("log_probability", np.float32), ("ended", np.bool_)])


_POOLED = (At.ANSWER_PREDICTING, At.ANSWER_END)


@dataclass(frozen=True, repr=False)
class Hidden(Signal):
    """Hidden states, float32: `(n, d)`, for `..._PREDICTING` a `Ragged` of `(t_i, d)` rows, for SAMPLE_END `(n, N, d)`.

    `depth` is a fraction of the number of blocks L: the output of block `int(depth * L)` is read; 1.0 is the last
    state after the final norm. `OutputHead.norm` is that norm: apply it to other states before the output head.
    """

    depth: float = 1.0
    at: At = At.ANSWER_PREDICTING
    pool: Literal["mean"] | None = None
    """With "mean", `(n, d)`: the mean over the answer's tokens, of the states that predict them (at ANSWER_PREDICTING)
    or of those after each was read back in (at ANSWER_END)."""
    samples: Samples = Samples()
    """The samples, at SAMPLE_END."""

    def __post_init__(self) -> None:
        """Refuse an invalid depth or pooling.

        Raises:
            ContractError: `depth` is not a number, or `pool` is neither None nor the mean over the answer.
        """
        if not _is_number(self.depth):
            raise ContractError(f"Hidden: expected depth as a fraction of the blocks, got {self.depth!r}")
        if self.pool is not None and (self.pool != "mean" or self.at not in _POOLED):
            raise ContractError(
                f'Hidden: expected pool=None, or "mean" at {" or ".join(map(str, _POOLED))}; got {self!r}'
            )


@dataclass(frozen=True, repr=False)
class TokenIds(Signal):
    """Token ids, a `Ragged` of int64 with `(t_i,)` per question; costs no forward pass."""

    of: Of = Of.ANSWER
    """Prompt, answer, query, options, right or wrong ones; the ids of samples are in `Samples`."""

    def __post_init__(self) -> None:
        """Refuse texts without token ids.

        Raises:
            ContractError: `of` is a text whose token ids this signal does not give.
        """
        _check("TokenIds: of", self.of, (Of.ANSWER, Of.PROMPT, Of.QUERY, Of.OPTIONS, Of.GOLD, Of.WRONG))


@dataclass(frozen=True, repr=False)
class TokenScores(Signal):
    """Log-probability and entropy of each token: a `Ragged` of records, `(t_i,)` of `dtype` for each question.

    Fields, of one token each, in nats and from float32 logits:

    - `log_probability`, float32: of the token.
    - `entropy`, float32: of the distribution at its position.
    - `divergence`, float32: KL(uniform || that distribution), the mean of -log p over the vocabulary less the logarithm
      of its size; left out without `divergence`.
    - `top_ids`, int64 `(top,)`: the most likely tokens, the likeliest first; left out where `top` is 0.
    - `top_log_probabilities`, float32 `(top,)`: of these; left out where `top` is 0.

    The end token of an answer is not included. Scores of answers and samples cost no extra forward pass; options and
    right answers of open questions are fed to the model after the prompt.
    """

    of: Of = Of.ANSWER
    """Texts that are scored: the answer, the samples, all options unlabelled, or (in `fit` only) right or wrong ones.
    If a question has several texts, `owner` is the index of the text of each token."""
    top: int = 0
    """Number of the most likely tokens to include."""
    divergence: bool = False
    """Whether to include the divergence from uniform."""
    samples: Samples = Samples()
    """The samples, with `Of.SAMPLES`."""

    def __post_init__(self) -> None:
        """Refuse texts without scores.

        Raises:
            ContractError: `of` is a text without scores, or `top` is below 0.
        """
        _check("TokenScores: of", self.of, (Of.ANSWER, Of.SAMPLES, Of.OPTIONS, Of.GOLD, Of.WRONG))
        if not _is_count(self.top, 0):
            raise ContractError(f"TokenScores: expected top as a whole number of at least 0, got {self.top!r}")

    @property
    def dtype(self) -> np.dtype[np.void]:
        """Dtype of one token's record."""
        top_fields = [("top_ids", np.int64, (self.top,)), ("top_log_probabilities", np.float32, (self.top,))]
        names = ["log_probability", "entropy", *(["divergence"] if self.divergence else [])]
        return np.dtype([*((name, np.float32) for name in names), *(top_fields if self.top else [])])


@dataclass(frozen=True, repr=False)
class Text(Signal):
    """Texts as `str` in arrays of dtype object; no forward pass except for samples.

    They never tell which option is right.

    - `QUESTION` and `ANSWER`: `(n,)`; answers are stripped of outer white space.
    - `SAMPLES`: `(n, N)`, also stripped.
    - `OPTIONS`: a `Ragged` of `(k_i,)`, in the order of `Of.OPTIONS`.
    """

    of: Of = Of.ANSWER
    samples: Samples = Samples()
    """The samples, with `Of.SAMPLES`."""

    def __post_init__(self) -> None:
        """Refuse texts that are not questions, options, answers or samples.

        Raises:
            ContractError: `of` is such a text.
        """
        _check("Text: of", self.of, (Of.QUESTION, Of.OPTIONS, Of.ANSWER, Of.SAMPLES))


@dataclass(frozen=True, repr=False)
class ChoiceLogits(Signal):
    """`(n, k)` float32 logits of the option letters at the prompt's end; -inf where a question has fewer options."""


@dataclass(frozen=True, repr=False)
class QueryLogits(Signal):
    """`(n, 2)` float32 logits of (no, yes) after the self-check query (docs/methods.md §2.0)."""

    adapter: Adapter = Adapter.NONE


@dataclass(frozen=True, repr=False)
class Followup(Signal):
    """Reply to one more user turn after the answer: `(n, len(words))` float32 logits, or `(n,)` texts of dtype object.

    Each of several follow-ups costs its own tokens only. With all defaults it equals `QueryLogits()`. Results record
    the wording.
    """

    wording: str = ""
    """Text of the user turn; empty: the self-check query, in which no and yes are letters."""
    after: Of = Of.ANSWER
    """The answer; no other text is supported."""
    words: tuple[str, ...] = ("no", "yes")
    """Words whose logits are read at the reply's first token; each must be one token."""
    say: int = 0
    """Length limit of a greedy reply in tokens, which is then returned as text; 0: the logits of the words."""

    def __post_init__(self) -> None:
        """Refuse invalid arguments.

        Raises:
            ContractError: `after` is not the answer, `say` is below 0, or `words` are set for a reply as text or for
                the self-check query, which has its own.
        """
        _check("Followup: after", self.after, (Of.ANSWER,))
        if not _is_text(self.wording) or not _is_count(self.say, 0):
            raise ContractError(
                f"Followup: expected a wording as text and say as a whole number of at least 0, got {self!r}"
            )
        are_words = type(self.words) is tuple and self.words and all(word and _is_text(word) for word in self.words)
        if not are_words or len(set(self.words)) != len(self.words):
            raise ContractError(f"Followup: expected a tuple of different words, got {self.words!r}")
        if self.words != ("no", "yes") and (self.say or not self.wording):
            reason = "a reply as text has no words" if self.say else "the self-check query has no and yes"
            raise ContractError(f"Followup: {reason}; leave words out, got {self.words!r}")


@dataclass(frozen=True, repr=False)
class SampleAgreement(Signal):
    """`(n, N)` bool: whether sample j agrees with the greedy answer (docs/methods.md §2.14).

    A choice answer agrees by its letter (a sampled non-letter disagrees), an open one by the judge of the run. The
    samples are those of `Samples` with the same numbers.
    """

    n: int = 10
    temperature: float = 1.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        """Refuse invalid sampling settings: see `Samples`."""
        Samples(self.n, self.temperature, self.top_p)

    @property
    def samples(self) -> Samples:
        """The compared samples."""
        return Samples(self.n, self.temperature, self.top_p)


By = Literal["entailment", "similarity", "judge", "match"]
"""Ways to relate two texts."""


@dataclass(frozen=True, repr=False)
class Related(Signal):
    """Relations among a question's samples and its answer, float32: `(n, m, m)`, or `(n, m, m, 3)` by entailment.

    m is the number of samples plus 1: the answer comes last. Row i, column j is for text i followed by text j:

    - "entailment": probabilities that text j contradicts text i, is neutral to it, follows from it, by the model of
      `--nli`;
    - "similarity": within [0, 1], by the cross-encoder of `--similarity`;
    - "judge": 1 where the judge of the run finds both equivalent, else 0;
    - "match": 1 where the normalised texts are equal, else 0.

    Without the model's option, and for option letters, "match" decides: texts that match entail each other (have
    similarity 1), others are neutral (have similarity 0). Results record which way was used. Equal pairs of texts are
    computed once.
    """

    by: By = "entailment"
    of: Of = Of.SAMPLES
    """Samples and the answer; no other texts are supported."""
    question: bool = False
    """Whether each text follows its question, as the prompt shows it, and a blank; ignored for "match"."""
    samples: Samples = Samples()

    def __post_init__(self) -> None:
        """Refuse unknown relations, and texts that can't be related.

        Raises:
            ContractError: `by` or `of` has a value that is not allowed.
        """
        _check("Related: of", self.of, (Of.SAMPLES,))
        if self.by not in get_args(By):
            raise ContractError(f"Related: by: expected one of {', '.join(get_args(By))}, got {self.by!r}")


@dataclass(frozen=True, repr=False)
class Unembedding(Signal):
    """The model's output head, an `OutputHead`; shared, never copied to disk."""


_GOLD = frozenset({At.GOLD_PREDICTING, At.WRONG_PREDICTING, Of.GOLD, Of.WRONG})


def leaks_label(signal: Signal) -> bool:
    """Return whether a signal reveals the right answer: such signals are for `fit` alone (docs/methods.md §0.21)."""
    return any(place in _GOLD for place in _positions_and_texts(signal))


def _check(what: str, got: Of, expected: tuple[Of, ...]) -> None:
    if got not in expected:
        raise ContractError(f"{what}: expected one of {', '.join(map(str, expected))}, got {got}")


def _positions_and_texts(signal: Signal) -> list[At | Of]:
    """Return the positions (`At`) and texts (`Of`) among the values of a signal's fields."""
    return [getattr(signal, name) for name in ("at", "of", "after") if hasattr(signal, name)]


def _is_plain(signal: Signal) -> bool:
    """Return whether a signal's class is defined here: a plugin's subclass could pass a check and then change."""
    is_known = type(signal).__module__ == __name__ and type(signal) in Signal.__subclasses__()
    samples = type(getattr(signal, "samples", Samples())) is Samples
    return is_known and samples and all(type(place) in {At, Of} for place in _positions_and_texts(signal))
