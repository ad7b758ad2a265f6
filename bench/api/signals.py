"""Signal classes: what can be read of a frozen model, once for all methods. A method lists signals in its `needs`."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np

from bench.api.errors import ContractError


class At(enum.Enum):
    """Position at which a hidden state is read, in a sequence of a prompt of n tokens and an answer of L tokens."""

    PROMPT_END = "prompt_end"
    """Position n-1, whose state predicts the first answer token; one row per question."""
    ANSWER_PREDICTING = "answer_predicting"
    """Positions n-1 ... n+L-2: the state in row i predicts answer token i; L rows per question."""
    ANSWER_END = "answer_end"
    """Position n+L-1: the state after the last answer token was itself fed to the model; one row per question."""
    GOLD_PREDICTING = "gold_predicting"
    """As ANSWER_PREDICTING, with the right answer in place of the model's: the right letter, or the right text."""
    WRONG_PREDICTING = "wrong_predicting"
    """As GOLD_PREDICTING, for all wrong options one after the other; `Ragged.owner` is the index of each row's
    option."""
    SAMPLE_END = "sample_end"
    """Position of each sampled answer's last token: the state after this token was itself fed to the model. For an
    empty sample it is the prompt's last position."""
    STEP_END = "step_end"
    """The last token of each step of the reasoning trace; a step is a line of text. A row per step, which a trace cut
    into by its budget may end within."""
    QUERY_END = "query_end"
    """The last position of the self-check query, whose state predicts the reply (no or yes); one row per question."""


class Of(enum.Enum):
    """Which text of a question a signal is about."""

    PROMPT = "prompt"
    """The whole prompt as token ids, with the tokens of the chat template that begin the model's turn."""
    ANSWER = "answer"
    """The answer's token ids as generated, not from tokenising the text again; end tokens at the end are removed."""
    QUERY = "query"
    """The whole conversation as token ids: prompt, answer, and the self-check query after it."""
    GOLD = "gold"
    """The right answer as the model would generate it: the right letter, or the right text."""
    WRONG = "wrong"
    """All wrong options, one after the other; `Ragged.owner` is the index of each token's option."""
    QUESTION = "question"
    """The question as the prompt shows it, with options if the prompt has them, without exemplars."""
    OPTIONS = "options"
    """All options, without telling which is right; `Ragged.owner` is the index of each token's option. Letters are in
    alphabetical order. Options of open questions are sorted by text, as data sets may put the right one first."""
    SAMPLES = "samples"
    """All sampled answers, one after the other; `Ragged.owner` is the index of each token's sample."""
    TRACE = "trace"
    """The reasoning before the answer, without its end marker; empty if this answer has none."""


class Adapter(enum.Enum):
    """Whether a signal is computed with the frozen weights alone or with a LoRA adapter."""

    NONE = "none"
    """The frozen model without adapter."""
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
    """Base class of what can be read once of the frozen model.

    Two objects of one class with equal fields are the same signal.
    """

    @property
    def drawn(self) -> bool:
        """Whether the signal depends on the run's seed: true of samples, and of signals computed from samples."""
        of_samples = any(place in {At.SAMPLE_END, Of.SAMPLES} for place in _positions_and_texts(self))
        return of_samples or isinstance(self, Samples | SampleAgreement)

    def __repr__(self) -> str:
        """Return the constructor call as text, without arguments that have their default."""
        shown = [(f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default]
        texts = (f"{name}={value if isinstance(value, enum.Enum) else repr(value)}" for name, value in shown)
        return f"{type(self).__name__}({', '.join(texts)})"


@dataclass(frozen=True, repr=False)
class Samples(Signal):
    """Sampled answers: a `Ragged` of records `(t_i,)` for each question, one record for each token.

    `Ragged.owner` is the index of the sample, 0 ... n-1. A record has these fields:

    - `id`, int64: the token. The end token is not included, so a sample can be empty.
    - `log_probability`, float32, in nats: of the token by the model itself, at temperature 1 and without `top_p`.
    - `ended`, bool: whether the sample ended with an end token rather than at the length limit; true of all samples
      from a file. An empty sample has no record.

    Each sample has its own random generator, seeded by the run's seed, the question id and the index of the sample. So
    samples depend neither on batches nor on interruptions of a run. All signals with the same n, temperature and
    `top_p` use the same samples.
    """

    n: int = 10
    temperature: float = 1.0
    """Sampling temperature, above 0; logits are divided by it."""
    top_p: float = 1.0
    """Nucleus sampling: tokens are drawn from the smallest set of likely tokens whose total probability reaches
    this."""

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
        """Numpy dtype of the record of one token."""
        return np.dtype([("id", np.int64), ("log_probability", np.float32), ("ended", np.bool_)])


_POOLED = (At.ANSWER_PREDICTING, At.ANSWER_END)


@dataclass(frozen=True, repr=False)
class Hidden(Signal):
    """Hidden states, float32, at the position `at` and the depth `depth`.

    Shapes: `(n, d)` at positions with one row per question; a `Ragged` of `(t_i, d)` at those named PREDICTING; `(n, N,
    d)` at SAMPLE_END, with N samples. `depth` is a fraction of the number of blocks L: the output of block `int(depth *
    L)` is read. At 1.0 it is the last state after the final norm; other states need `OutputHead.norm` before the output
    head.
    """

    depth: float = 1.0
    at: At = At.ANSWER_PREDICTING
    pool: Literal["mean"] | None = None
    """With "mean", the mean state over the answer's tokens, `(n, d)`; None: no pooling. At ANSWER_PREDICTING, the
    states that predict the tokens are averaged. At ANSWER_END, the states after each token was fed to the model are
    averaged."""
    samples: Samples = Samples()
    """The sampled answers whose states are read; used at SAMPLE_END only."""

    def __post_init__(self) -> None:
        """Refuse an invalid depth or pooling.

        Raises:
            ContractError: `depth` is not a number, `pool` is neither "mean" nor None, or `pool` is "mean" at a position
                other than the answer's tokens.
        """
        if not _is_number(self.depth):
            raise ContractError(f"Hidden: expected depth as a fraction of the blocks, got {self.depth!r}")
        if self.pool is not None and (self.pool != "mean" or self.at not in _POOLED):
            raise ContractError(
                f'Hidden: expected pool=None, or "mean" at {" or ".join(map(str, _POOLED))}; got {self!r}'
            )


@dataclass(frozen=True, repr=False)
class TokenIds(Signal):
    """Token ids of one text per question, a `Ragged` of int64 `(t_i,)`; needs no forward pass."""

    of: Of = Of.ANSWER
    """The text: prompt, answer, query, reasoning trace, options, or right or wrong options. `Samples` has ids of
    samples."""

    def __post_init__(self) -> None:
        """Refuse texts whose token ids this signal does not have.

        Raises:
            ContractError: `of` is such a text.
        """
        _check("TokenIds: of", self.of, (Of.ANSWER, Of.PROMPT, Of.QUERY, Of.TRACE, Of.OPTIONS, Of.GOLD, Of.WRONG))


@dataclass(frozen=True, repr=False)
class TokenScores(Signal):
    """Log-probability and entropy of each token: a `Ragged` of records `(t_i,)` for each question.

    A record has these fields, in nats and from float32 logits. "Distribution" is that of the next token at this
    position.

    - `log_probability`, float32: of the token itself.
    - `entropy`, float32: of the distribution.
    - `divergence`, float32: KL(uniform || distribution), that is, the mean of -log p over the vocabulary minus the log
      of the vocabulary's size. Only if `divergence` is set.
    - `top_mean`, float32: mean log-probability of the `mean_of` most likely tokens. Only if `mean_of` is above 0.
    - `top_ids`, int64 `(top,)`: the most likely tokens, the likeliest first. Only if `top` is above 0.
    - `top_log_probabilities`, float32 `(top,)`: of the tokens in `top_ids`. Only if `top` is above 0.

    The end token of an answer is not included. Scores of answers and samples cost no extra forward pass; options and
    right answers of open questions are fed to the model after the prompt.
    """

    of: Of = Of.ANSWER
    """The text that is scored: the answer, the reasoning trace before it, the samples, all options, or (in `fit` only)
    the right or the wrong options.
    If a question has several texts, `Ragged.owner` is the index of the text of each token."""
    top: int = 0
    """Number of most likely tokens whose ids and log-probabilities are included."""
    divergence: bool = False
    """Whether records include `divergence`, the KL divergence from the uniform distribution."""
    samples: Samples = Samples()
    """The sampled answers that are scored; used with `Of.SAMPLES` only."""
    mean_of: int = 0
    """Number of most likely tokens whose mean log-probability records include."""

    def __post_init__(self) -> None:
        """Refuse texts whose tokens are not scored.

        Raises:
            ContractError: `of` is such a text, or `top` or `mean_of` is below 0.
        """
        _check("TokenScores: of", self.of, (Of.ANSWER, Of.TRACE, Of.SAMPLES, Of.OPTIONS, Of.GOLD, Of.WRONG))
        for name in ("top", "mean_of"):
            if not _is_count(getattr(self, name), 0):
                raise ContractError(
                    f"TokenScores: expected {name} as a whole number of at least 0, got {getattr(self, name)!r}"
                )

    @property
    def dtype(self) -> np.dtype[np.void]:
        """Numpy dtype of the record of one token."""
        top_fields = [("top_ids", np.int64, (self.top,)), ("top_log_probabilities", np.float32, (self.top,))]
        names = ["log_probability", "entropy", *(["divergence"] if self.divergence else [])]
        names += ["top_mean"] if self.mean_of else []
        return np.dtype([*((name, np.float32) for name in names), *(top_fields if self.top else [])])


@dataclass(frozen=True, repr=False)
class AttentionRows(Signal):
    """What the answer's tokens attend to: a `Ragged` of records `(L,)` for each question, one for each token.

    A record has these fields, float32 `(layers, heads)` each. Layers are those with attention, in order. The weights of
    a head are its softmax over all tokens up to the attending one.

    - `itself`: weight on the attending token.
    - `before`: weight on the token before it; 0 if there is none.
    - `prompt`: sum of the weights on the prompt's tokens.
    - `answer`: sum of the weights on the answer's tokens. With `prompt` it is 1, or less where a layer has a sink.

    Weights are computed again from queries and keys of the pass that reads the answer. The end token is not included.
    """

    row: Literal["holding", "predicting"] = "holding"
    """The attending token: the answer's token itself, or the one before it, whose state predicts it. The prompt's last
    token predicts the first one, and is a token of the prompt."""

    def __post_init__(self) -> None:
        """Refuse an unknown row.

        Raises:
            ContractError: `row` is neither "holding" nor "predicting".
        """
        if self.row not in {"holding", "predicting"}:
            raise ContractError(f"AttentionRows: row: expected holding or predicting, got {self.row!r}")


@dataclass(frozen=True, repr=False)
class Text(Signal):
    """Texts of questions, answers, options or samples, as `str` in arrays of dtype object.

    Only samples cost a forward pass. No text tells which option is right.

    - `QUESTION` and `ANSWER`: `(n,)`; answers are stripped of outer white space.
    - `SAMPLES`: `(n, N)`, stripped likewise, with N samples.
    - `OPTIONS`: a `Ragged` of `(k_i,)`, in the order that `Of.OPTIONS` describes.
    """

    of: Of = Of.ANSWER
    samples: Samples = Samples()
    """The sampled answers that are returned; used with `Of.SAMPLES` only."""

    def __post_init__(self) -> None:
        """Refuse texts other than questions, options, answers and samples.

        Raises:
            ContractError: `of` is another text.
        """
        _check("Text: of", self.of, (Of.QUESTION, Of.OPTIONS, Of.ANSWER, Of.SAMPLES))


@dataclass(frozen=True, repr=False)
class ChoiceLogits(Signal):
    """`(n, k)` float32 logits of the option letters at the prompt's end; -inf where a question has fewer options.

    With `forced` they are `(n, len(forced), k)`: of answers that are forced earlier in the reasoning trace. A part of
    the trace is closed like a trace that its budget cut.
    """

    forced: tuple[float, ...] = ()
    """Shares of the trace's tokens after which an answer is forced, from 0 to 1 in ascending order."""

    def __post_init__(self) -> None:
        """Refuse shares that are not ascending, or not from 0 to 1.

        Raises:
            ContractError: `forced` has such values.
        """
        shares = [share for share in self.forced if _is_number(share) and 0 <= share <= 1]
        if type(self.forced) is not tuple or list(self.forced) != sorted(set(shares)):
            raise ContractError(f"ChoiceLogits: expected ascending shares from 0 to 1, got {self.forced!r}")


@dataclass(frozen=True, repr=False)
class QueryLogits(Signal):
    """`(n, 2)` float32 logits of the replies (no, yes) to the self-check query (docs/methods.md §2.0)."""

    adapter: Adapter = Adapter.NONE


@dataclass(frozen=True, repr=False)
class Followup(Signal):
    """Reply to one more user turn after the answer: `(n, len(words))` float32 logits, or `(n,)` texts of dtype object.

    Prompt and answer are read once; several follow-ups add only their own tokens. `Followup()` equals `QueryLogits()`.
    Results record the wording.
    """

    wording: str = ""
    """Text of the user turn. Empty: the self-check query, whose replies no and yes are given as letters."""
    after: Of = Of.ANSWER
    """Text before the user turn; only the answer is supported."""
    words: tuple[str, ...] = ("no", "yes")
    """Words whose logits are read at the reply's first token; each word must be a single token."""
    say: int = 0
    """Length limit, in tokens, of a greedy reply that is returned as text. 0: the logits of `words` are returned
    instead."""

    def __post_init__(self) -> None:
        """Refuse invalid arguments.

        Raises:
            ContractError: `after` is not the answer, `wording` is not a text, `say` is below 0, `words` is not a tuple
                of different words, or `words` are set although the reply is a text or the user turn is the self-check
                query.
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
    """`(n, N)` bool: whether sampled answer j agrees with the greedy answer (docs/methods.md §2.14).

    A choice answer agrees by its letter, and a sample that is no letter disagrees. Whether open answers agree is
    decided by the run's judge. The samples are those of `Samples` with equal n, temperature and `top_p`.
    """

    n: int = 10
    temperature: float = 1.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        """Refuse invalid sampling settings, by the rules of `Samples`."""
        Samples(self.n, self.temperature, self.top_p)

    @property
    def samples(self) -> Samples:
        """The sampled answers that are compared with the greedy answer."""
        return Samples(self.n, self.temperature, self.top_p)


By = Literal["entailment", "similarity", "judge", "match"]
"""Way in which two texts are compared; see `Related`."""


@dataclass(frozen=True, repr=False)
class Related(Signal):
    """Pairwise relations among a question's samples and its answer, float32.

    The shape is `(n, m, m)`, or `(n, m, m, 3)` by entailment. m is the number of samples plus 1; the answer is the last
    text. Row i, column j compares text i followed by text j:

    - "entailment": probabilities that text j contradicts text i, is neutral to text i, follows from text i, by the
      model of `--nli`.
    - "similarity": within [0, 1], by the cross-encoder of `--similarity`.
    - "judge": 1 where the run's judge finds both texts equivalent, else 0.
    - "match": 1 where the normalised texts are equal, else 0.

    "match" replaces "entailment" and "similarity" if the run has no model for them, and every other way for option
    letters. Equal texts then entail each other or have similarity 1; different texts are neutral or have similarity 0.
    Results record which way was used.
    """

    by: By = "entailment"
    of: Of = Of.SAMPLES
    """Texts to compare; only samples with the answer are supported."""
    question: bool = False
    """Whether each text is put after its question and a blank, for "entailment" and "similarity". No effect on "match",
    nor on "judge": the judge always gets the question."""
    samples: Samples = Samples()

    def __post_init__(self) -> None:
        """Refuse invalid arguments.

        Raises:
            ContractError: `by` is no known way of comparing texts, or `of` is not `Of.SAMPLES`.
        """
        _check("Related: of", self.of, (Of.SAMPLES,))
        if self.by not in get_args(By):
            raise ContractError(f"Related: by: expected one of {', '.join(get_args(By))}, got {self.by!r}")


@dataclass(frozen=True, repr=False)
class Unembedding(Signal):
    """The model's output head, an `OutputHead`; it is shared in memory and never copied to disk."""


_GOLD = frozenset({At.GOLD_PREDICTING, At.WRONG_PREDICTING, Of.GOLD, Of.WRONG})


def leaks_label(signal: Signal) -> bool:
    """Return whether a signal reveals the right answer; only `fit` may read such a signal (docs/methods.md §0.21)."""
    return any(place in _GOLD for place in _positions_and_texts(signal))


def reads_trace(signal: Signal) -> bool:
    """Return whether a signal is read within a reasoning trace, so that answers without one don't have it."""
    return bool(getattr(signal, "forced", ())) or not {At.STEP_END, Of.TRACE}.isdisjoint(_positions_and_texts(signal))


def _check(what: str, got: Of, expected: tuple[Of, ...]) -> None:
    if got not in expected:
        raise ContractError(f"{what}: expected one of {', '.join(map(str, expected))}, got {got}")


def _positions_and_texts(signal: Signal) -> list[At | Of]:
    """Return all positions (`At`) and texts (`Of`) that a signal's fields have as values."""
    return [getattr(signal, name) for name in ("at", "of", "after") if hasattr(signal, name)]


def _is_plain(signal: Signal) -> bool:
    """Return whether a signal's class is defined in this module.

    A plugin's subclass is refused: it could pass a check and change afterwards.
    """
    is_known = type(signal).__module__ == __name__ and type(signal) in Signal.__subclasses__()
    samples = type(getattr(signal, "samples", Samples())) is Samples
    return is_known and samples and all(type(place) in {At, Of} for place in _positions_and_texts(signal))
