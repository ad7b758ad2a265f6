"""Every signal is defined once, refuses what isn't measured, and says what the harness asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from bench import api
from bench.api import (
    Adapter,
    At,
    AttentionRows,
    ChoiceLogits,
    ContractError,
    Followup,
    Format,
    Hidden,
    Needs,
    Of,
    QueryLogits,
    Related,
    SampleAgreement,
    Samples,
    Signal,
    Text,
    TokenIds,
    TokenScores,
    Unembedding,
)
from bench.api.methods import refuse_gold
from bench.model.continuation_specs import AnswerSpan, Continuations, UserTurn
from bench.signals import definition as module
from bench.signals.definition import continuations_of, definition, read_from_model, required_stored_signals

GOLD, WRONG, OPTIONS = (TokenScores(of) for of in (Of.GOLD, Of.WRONG, Of.OPTIONS))
END = Hidden(1.0, At.PROMPT_END)


@dataclass(frozen=True, repr=False)
class Undefined(Signal):
    """A signal that this room knows nothing of."""


def test_signals_are_all_defined() -> None:
    declared = {value for value in vars(api).values() if isinstance(value, type) and issubclass(value, Signal)}
    assert set(module.definitions()) == declared - {Signal}
    with pytest.raises(ContractError, match=r"defines Undefined\(\), found none; add one"):
        definition(Undefined())


@pytest.mark.parametrize(
    ("wanted", "fmt", "limit", "stored"),
    [
        ({Hidden(0.5, At.GOLD_PREDICTING), SampleAgreement()}, Format.CHOICE, 1, {Hidden(0.5, At.PROMPT_END), END}),
        ({Hidden(0.5, At.WRONG_PREDICTING), TokenIds()}, Format.CHOICE, 1, {Hidden(0.5, At.PROMPT_END)}),
        ({Samples(3), TokenScores(Of.SAMPLES)}, Format.CHOICE, 1, {END}),
        ({GOLD, WRONG, OPTIONS}, Format.CHOICE, 1, {OPTIONS}),
        ({Hidden(0.5, At.GOLD_PREDICTING), TokenIds()}, Format.OPEN, 30, {Hidden(0.5, At.GOLD_PREDICTING)}),
        ({Hidden(0.5, At.WRONG_PREDICTING)}, Format.OPEN, 30, {Hidden(0.5, At.WRONG_PREDICTING)}),
        ({AttentionRows("predicting"), AttentionRows()}, Format.CHOICE, 1, {AttentionRows()}),
        ({SampleAgreement()}, Format.OPEN, 30, {Samples()}),
        ({Samples(3)}, Format.OPEN, 30, {Samples(3), TokenScores(Of.SAMPLES, samples=Samples(3))}),
        ({OPTIONS}, Format.OPEN, 30, {GOLD, WRONG}),
        ({GOLD}, Format.OPEN, 30, {GOLD}),
    ],
)
def test_signals_are_made_of_stored_ones(wanted: set[Signal], fmt: Format, limit: int, stored: set[Signal]) -> None:
    assert required_stored_signals(wanted, fmt, limit) == stored


def test_continuations_are_what_signals_need_together() -> None:
    assert continuations_of({TokenIds(), Unembedding(), ChoiceLogits()}) == Continuations()
    assert module.continuation_specs_of({ChoiceLogits()}) != module.continuation_specs_of({TokenIds()})
    ends = {END, Hidden(0.5, At.ANSWER_PREDICTING)}
    assert continuations_of(ends) == Continuations(AnswerSpan.ANSWER_PREDICTING)
    asked = Continuations(AnswerSpan.ANSWER_END, turns=frozenset({UserTurn()}))
    assert continuations_of({*ends, QueryLogits()}) == asked
    more = {Hidden(1.0, At.GOLD_PREDICTING), Hidden(1.0, At.WRONG_PREDICTING), Samples(3, 0.5)}
    assert continuations_of(more) == Continuations(gold=True, wrong=True, samples=frozenset({Samples(3, 0.5, 1.0)}))
    assert definition(Followup("Sure?", say=4)).continuations.turns == {UserTurn("Sure?", 4)}


def test_signals_through_own_adapter_wait_for_fit() -> None:
    signals = {Hidden(), QueryLogits(), QueryLogits(Adapter.OWN), TokenIds(), Unembedding(), Text(), Text(Of.SAMPLES)}
    assert read_from_model(signals) == {Hidden(), QueryLogits(), Text(Of.SAMPLES)}
    assert module.uses_adapter(signals)
    assert not module.uses_adapter(signals - {QueryLogits(Adapter.OWN)})


@pytest.mark.parametrize("fmt", list(Format))
def test_signals_tell_whether_they_read_the_answer(fmt: Format) -> None:
    answer: set[Signal] = {
        Hidden(1.0, At.ANSWER_END), Hidden(0.5, At.QUERY_END), QueryLogits(), QueryLogits(Adapter.OWN), Followup("?"),
        TokenIds(), TokenIds(Of.QUERY), TokenScores(), Text(), SampleAgreement(), Related(), AttentionRows(),
    }  # fmt: skip
    others: set[Signal] = {
        END, Hidden(0.5, At.SAMPLE_END), ChoiceLogits(), Samples(), Unembedding(), Text(Of.QUESTION), Text(Of.SAMPLES),
        TokenIds(Of.PROMPT), OPTIONS, TokenScores(Of.SAMPLES),
    }  # fmt: skip
    predicting = {Hidden(1.0, At.ANSWER_PREDICTING), Hidden(1.0, At.ANSWER_PREDICTING, "mean")}
    read = {each for each in answer | others | predicting if definition(each).reads_answer(fmt)}
    assert read == answer | (predicting if fmt is Format.OPEN else set())


def test_letters_lack_where_questions_are_open() -> None:
    signals = (ChoiceLogits(), Hidden(), QueryLogits(), SampleAgreement(), TokenIds(), Unembedding())
    lacking = [(s, fmt) for s in signals for fmt in Format if definition(s).unsupported(fmt) is not None]
    assert lacking == [(ChoiceLogits(), Format.OPEN)]


def test_token_scores_have_the_fields_asked_for() -> None:
    assert TokenScores().dtype == np.dtype([("log_probability", "f4"), ("entropy", "f4")])
    wide = [("top_ids", "i8", (3,)), ("top_log_probabilities", "f4", (3,))]
    assert TokenScores(top=3).dtype == np.dtype([("log_probability", "f4"), ("entropy", "f4"), *wide])
    far = TokenScores(divergence=True)
    assert far.dtype.names == ("log_probability", "entropy", "divergence")
    named = [repr(TokenScores()), repr(TokenScores(top=3)), repr(far)]
    assert named == ["TokenScores()", "TokenScores(top=3)", "TokenScores(divergence=True)"]


class Disguised(Samples):
    """Samples that are none."""


POOLED = r'expected pool=None, or "mean" at At.ANSWER_PREDICTING or At.ANSWER_END'
MADE: list[tuple[Callable[..., Signal], dict[str, Any], str]] = [
    (Text, {"of": Of.GOLD}, "Text: of: expected one of Of.QUESTION, .* got Of.GOLD"),
    (TokenIds, {"of": Of.SAMPLES}, "TokenIds: of: expected one of .* got Of.SAMPLES"),
    (Samples, {"n": 0}, r"expected n of at least 1, .* got Samples\(n=0\)"),
    (Samples, {"n": 2.5}, r"expected n of at least 1, .* got Samples\(n=2.5\)"),
    (Samples, {"n": "3"}, "expected n of at least 1"),
    (Samples, {"n": True}, "expected n of at least 1"),
    (Samples, {"temperature": 0.0}, "temperature above 0"),
    (Samples, {"temperature": float("inf")}, "temperature above 0"),
    (Samples, {"top_p": "all"}, "top_p in"),
    (Samples, {"top_p": 1.5}, r"top_p in \(0, 1\]"),
    (SampleAgreement, {"n": 0}, "expected n of at least 1"),
    (Hidden, {"depth": float("nan")}, "Hidden: expected depth as a fraction of the blocks, got nan"),
    (Hidden, {"depth": "0.5"}, "Hidden: expected depth as a fraction of the blocks, got '0.5'"),
    (Hidden, {"at": At.PROMPT_END, "pool": "mean"}, POOLED),
    (Hidden, {"at": At.SAMPLE_END, "pool": "mean"}, POOLED),
    (Hidden, {"at": At.ANSWER_END, "pool": "max"}, POOLED),
    (AttentionRows, {"row": "both"}, "AttentionRows: row: expected holding or predicting, got 'both'"),
    (TokenScores, {"of": Of.PROMPT}, "expected one of Of.ANSWER, .* got Of.PROMPT"),
    (TokenScores, {"top": -1}, "at least 0, got -1"),
    (TokenScores, {"top": 1.5}, "at least 0, got 1.5"),
    (Related, {"by": "magic"}, "expected one of entailment, similarity, judge, match, got 'magic'"),
    (Related, {"of": Of.GOLD}, "got Of.GOLD"),
    (Followup, {"after": Of.PROMPT}, "after: expected one of Of.ANSWER, got Of.PROMPT"),
    (Followup, {"words": ("low", "high")}, "the self-check query has no and yes"),
    (Followup, {"wording": "Well?", "words": ("low", "high"), "say": 3}, "a reply as text has no words"),
    (Followup, {"wording": "Well?", "words": ["low"]}, r"expected a tuple of different words, got \['low'\]"),
    (Followup, {"wording": "Well?", "words": ("low", "low")}, "expected a tuple of different words"),
    (Followup, {"say": -1}, "say as a whole number of at least 0"),
    (Followup, {"say": 1.5}, "say as a whole number of at least 0"),
    (Followup, {"wording": "a\ud800b"}, "wording as text"),
    (Followup, {"wording": "Sure?", "words": ("\udfff",)}, "tuple of different words"),
]


@pytest.mark.parametrize(("make", "arguments", "said"), MADE)
def test_signals_that_are_not_measured_are_refused(make: Any, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ContractError, match=said):
        make(**arguments)


def test_predict_may_not_read_the_right_answer() -> None:
    drawn = Hidden(0.5, At.SAMPLE_END, samples=Samples(3))
    told: set[Signal] = {OPTIONS, Samples(3), Text(Of.OPTIONS), Followup("?", say=3), Hidden(1.0, At.QUERY_END), drawn}
    assert {signal for signal in told if signal.drawn} == {drawn, Samples(3)}
    refuse_gold("it", Needs(frozenset({GOLD, WRONG}), frozenset(told)))
    with pytest.raises(ContractError, match=r"predict would read TokenScores\(of=Of.GOLD\), which tells"):
        refuse_gold("it", Needs(predict=frozenset({GOLD})))
    with pytest.raises(ContractError, match=r"expected signals of bench.api as they are, got TokenScores"):
        refuse_gold("it", Needs(predict=frozenset({TokenScores(Of.SAMPLES, samples=Disguised())})))
