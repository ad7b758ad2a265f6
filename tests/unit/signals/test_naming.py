"""What is read along right and wrong answers belongs to their ids: edited ones are read anew, all else stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api import (
    At,
    Format,
    Hidden,
    Of,
    PromptStyle,
    QueryLogits,
    Question,
    Ragged,
    Samples,
    Signal,
    Split,
    Task,
    TokenScores,
)
from bench.signals.definition import definition, pass_definitions
from tests.fixtures.rivers import NAMES
from tests.kit.splits import SAID, FewRivers, OpenRivers, batch_of, opened, read

ALONG: frozenset[Signal] = frozenset({
    TokenScores(Of.GOLD), TokenScores(Of.WRONG), TokenScores(Of.OPTIONS), Hidden(0.5, At.GOLD_PREDICTING),
    Hidden(1.0, At.WRONG_PREDICTING),
})  # fmt: skip


class Roads(OpenRivers):
    """Open questions whose prompts don't show the options; each text is asked twice, of other options."""

    style = PromptStyle(header="About {label}.", footer="Next.", context="{text}")


def changed(task: type[Task], change: Callable[[Question], Question | None]) -> type[Task]:
    """A task whose test questions are changed, or left out."""

    class Changed(task):  # type: ignore[misc, valid-type]
        def questions(self, split: Split) -> Iterator[Question]:
            for question in super().questions(split):
                if (other := question if split == "dev" else change(question)) is not None:
                    yield other

    return Changed


def fewer(question: Question) -> Question:
    kept = [k for k in range(len(question.choices)) if k == question.gold or k == (question.gold + 1) % 2]
    choices = tuple(question.choices[k] for k in kept)
    return replace(question, choices=choices, gold=kept.index(question.gold))


def longer(question: Question) -> Question:
    words = (f"{text} {NAMES[k]} {NAMES[k + 1]}" for k, text in enumerate(question.choices))
    return replace(question, choices=tuple(words))


def another(question: Question) -> Question:
    return replace(question, gold=(question.gold + 1) % len(question.choices))


def columns(folder: Path, cache: Path, task: type[Task], signals: frozenset[Signal] = ALONG) -> tuple[int, Any]:
    reader, split_data = read(folder, cache, task, set(signals))
    return reader.forward_tokens, batch_of(reader, split_data, *signals, labels=True)


def assert_close(found: Any, expected: Any) -> None:
    for name in found.dtype.names or [...]:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5, rtol=1e-5)


def assert_same(one: Any, other: Any, signals: frozenset[Signal] = ALONG) -> None:
    for signal in signals:
        if isinstance(one[signal], Ragged):
            np.testing.assert_array_equal(one[signal].offsets, other[signal].offsets)
        assert_close(*(getattr(each[signal], "values", each[signal]) for each in (one, other)))


@pytest.mark.parametrize("change", [another, fewer, longer])
def test_options_that_were_edited_are_read_anew(small_model: Path, tmp_path: Path, change: Any) -> None:
    columns(small_model, tmp_path / "one", Roads)
    after, again = columns(small_model, tmp_path / "one", changed(Roads, change))
    _, fresh = columns(small_model, tmp_path / "fresh", changed(Roads, change))
    assert after > 0
    assert_same(again, fresh)


def test_options_that_come_back_are_found(small_model: Path, tmp_path: Path) -> None:
    _, first = columns(small_model, tmp_path, Roads)
    columns(small_model, tmp_path, changed(Roads, longer))
    tokens, again = columns(small_model, tmp_path, Roads)
    assert tokens == 0
    assert_same(again, first)


def test_options_that_were_edited_count_in_plans(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, Roads, set(ALONG))
    assert reader.find(split_data, ALONG) == 0
    task = changed(Roads, longer)(None)  # type: ignore[arg-type]
    other = reader.open(split_data.where, task, list(task.questions("test")))
    assert reader.find(other, ALONG) == len(other.shards)
    assert reader.find(other, frozenset({QueryLogits()})) == reader.find(split_data, frozenset({QueryLogits()}))


def test_options_are_of_each_question_with_one_prompt(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path / "both", Roads, set(ALONG))
    prompts = [ids.tobytes() for ids, _ in split_data.pairs()]
    assert len(set(prompts)) < len(prompts)
    both = batch_of(reader, split_data, *ALONG, labels=True)
    for which in (0, 1):
        half = changed(Roads, lambda q, which=which: q if int(q.id[-1]) % 2 == which else None)
        _, batch = columns(small_model, tmp_path / str(which), half)
        for signal in ALONG:
            for i, name in enumerate(batch.ids):
                assert_close(both[signal][both.ids.index(name)], batch[signal][i])


@pytest.mark.parametrize("task", [FewRivers, Roads], ids=lambda task: task.name)
def test_keys_of_other_signals_stay(small_model: Path, tmp_path: Path, task: type[Task]) -> None:
    """What older versions stored is found."""
    others: set[Signal] = {QueryLogits(), Hidden(0.5), TokenScores(top=2)}
    signals = others | (ALONG if task.format is Format.CHOICE else set())
    reader, split_data = read(small_model, tmp_path, task, signals)
    plain = {
        s: each.name(reader.prompt_settings(split_data), 0) for s, each in pass_definitions(split_data.signals).items()
    }
    assert split_data.names == [plain] * len(split_data.shards)
    assert plain[TokenScores(top=2)] == "TokenScores(top=2)"


DRAWN = Samples(3)
OF_SAMPLES: frozenset[Signal] = frozenset({
    DRAWN, TokenScores(Of.SAMPLES, samples=DRAWN), Hidden(0.5, At.SAMPLE_END, samples=DRAWN),
})  # fmt: skip


@pytest.mark.parametrize("task", [FewRivers, Roads], ids=lambda task: task.name)
def test_samples_of_renamed_questions_are_drawn_anew(small_model: Path, tmp_path: Path, task: type[Task]) -> None:
    columns(small_model, tmp_path / "one", task, OF_SAMPLES)
    renamed = changed(task, lambda question: replace(question, id=f"new/{question.id}"))
    after, again = columns(small_model, tmp_path / "one", renamed, OF_SAMPLES)
    _, fresh = columns(small_model, tmp_path / "fresh", renamed, OF_SAMPLES)
    assert after > 0
    assert again[DRAWN].values["id"].tolist() == fresh[DRAWN].values["id"].tolist()
    assert_same(again, fresh, OF_SAMPLES)


def test_samples_beside_given_answers_have_own_limits(small_model: Path, tmp_path: Path) -> None:
    """Where the model answers, the limit is in the shard's key already, and names are those of older versions."""
    reader, short = read(small_model, tmp_path, OpenRivers, set(OF_SAMPLES), SAID)
    other = replace(reader, protocol=replace(reader.protocol, max_new_tokens_open=6))
    long = other.read(opened(other, OpenRivers, SAID), OF_SAMPLES)
    lengths = []
    for each, split_data in ((reader, short), (other, long)):
        records: Any = definition(DRAWN).column(each.stored(split_data))
        lengths.append(
            max(int((ids == k).sum()) for ids in np.split(records.owner, records.offsets[1:-1]) for k in ids)
        )
    assert lengths == [4, 6]
    settings = reader.prompt_settings(short)
    names = reader._names(opened(reader, OpenRivers), OF_SAMPLES, settings)
    assert names == reader._names(opened(reader, OpenRivers), OF_SAMPLES, replace(settings, max_new_tokens=6))
