"""Every signal that methods can declare is defined once, and says of itself what the harness asks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bench.api import (
    Adapter,
    At,
    ChoiceLogits,
    ContractError,
    Followup,
    Format,
    Hidden,
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
from bench.model.continuation_specs import AnswerSpan, Continuations, UserTurn
from bench.signals.definition import (
    continuations_of,
    definition,
    definitions,
    read_from_model,
    required_stored_signals,
    uses_adapter,
)


def test_every_declared_signal_is_defined() -> None:
    import bench.api

    declared = {value for value in vars(bench.api).values() if isinstance(value, type) and issubclass(value, Signal)}
    assert set(definitions()) == declared - {Signal}


@dataclass(frozen=True, repr=False)
class Undefined(Signal):
    """A signal that this room knows nothing of."""


def test_an_undefined_signal_is_named() -> None:
    with pytest.raises(ContractError, match=r"defines Undefined\(\), found none; add one"):
        definition(Undefined())


def test_what_is_one_letter_long_is_made_from_the_state_at_the_prompts_end() -> None:
    wanted = {Hidden(0.5, At.GOLD_PREDICTING), Hidden(0.5, At.WRONG_PREDICTING), SampleAgreement(), TokenIds()}
    assert required_stored_signals(wanted, Format.CHOICE, 1) == {Hidden(0.5, At.PROMPT_END), Hidden(1.0, At.PROMPT_END)}
    assert required_stored_signals(wanted, Format.OPEN, 30) == wanted - {TokenIds(), SampleAgreement()} | {Samples()}
    assert required_stored_signals({Samples(3)}, Format.OPEN, 30) == {
        Samples(3),
        TokenScores(Of.SAMPLES, samples=Samples(3)),
    }
    assert required_stored_signals({Samples(3), TokenScores(Of.SAMPLES)}, Format.CHOICE, 1) == {
        Hidden(1.0, At.PROMPT_END)
    }


def test_options_are_scored_together_where_they_are_letters_and_apart_where_they_are_texts() -> None:
    gold, wrong, options = (TokenScores(of) for of in (Of.GOLD, Of.WRONG, Of.OPTIONS))
    assert required_stored_signals({gold, wrong, options}, Format.CHOICE, 1) == {options}
    assert required_stored_signals({options}, Format.OPEN, 30) == {gold, wrong}
    assert required_stored_signals({gold}, Format.OPEN, 30) == {gold}


def test_growth_is_what_signals_need_together() -> None:
    assert continuations_of({TokenIds(), Unembedding(), ChoiceLogits()}) == Continuations()
    ends = {Hidden(1.0, At.PROMPT_END), Hidden(0.5, At.ANSWER_PREDICTING)}
    assert continuations_of(ends) == Continuations(AnswerSpan.ANSWER_PREDICTING)
    assert continuations_of({*ends, QueryLogits()}) == Continuations(
        AnswerSpan.ANSWER_END, turns=frozenset({UserTurn()})
    )
    more = {Hidden(1.0, At.GOLD_PREDICTING), Hidden(1.0, At.WRONG_PREDICTING), Samples(3, 0.5)}
    assert continuations_of(more) == Continuations(gold=True, wrong=True, samples=frozenset({Samples(3, 0.5, 1.0)}))


def test_only_what_goes_through_an_own_adapter_waits_for_a_fit() -> None:
    signals = {Hidden(), QueryLogits(), QueryLogits(Adapter.OWN), TokenIds(), Unembedding(), Text(), Text(Of.SAMPLES)}
    assert read_from_model(signals) == {Hidden(), QueryLogits(), Text(Of.SAMPLES)}
    assert uses_adapter(signals)
    assert not uses_adapter(signals - {QueryLogits(Adapter.OWN)})


def test_signals_of_the_question_alone_do_not_read_the_answer() -> None:
    after = {
        Hidden(1.0, At.ANSWER_END),
        Hidden(0.5, At.QUERY_END),
        QueryLogits(),
        QueryLogits(Adapter.OWN),
        Followup("?"),
    }
    of_answer = {TokenIds(), TokenIds(Of.QUERY), TokenScores(), Text(), SampleAgreement(), Related()}
    before = {Hidden(1.0, At.PROMPT_END), Hidden(0.5, At.SAMPLE_END), ChoiceLogits(), Samples(), Unembedding()}
    of_others = {
        Text(Of.QUESTION),
        Text(Of.SAMPLES),
        TokenIds(Of.PROMPT),
        TokenScores(Of.OPTIONS),
        TokenScores(Of.SAMPLES),
    }
    predicting = {Hidden(1.0, At.ANSWER_PREDICTING), Hidden(1.0, At.ANSWER_PREDICTING, "mean")}
    for fmt in Format:
        read = {s for s in after | of_answer | before | of_others | predicting if definition(s).reads_answer(fmt)}
        assert read == after | of_answer | (predicting if fmt is Format.OPEN else set())


def test_only_letters_are_lacking_and_only_where_questions_are_open() -> None:
    signals = (ChoiceLogits(), Hidden(), QueryLogits(), SampleAgreement(), TokenIds(), Unembedding())
    lacking = [(s, fmt) for s in signals for fmt in Format if definition(s).unsupported(fmt) is not None]
    assert lacking == [(ChoiceLogits(), Format.OPEN)]
