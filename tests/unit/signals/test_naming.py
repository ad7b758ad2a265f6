"""What is read along right and wrong answers belongs to their ids: edited ones are read anew, all else stays."""

from __future__ import annotations

from collections.abc import Iterator
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
from bench.signals.batch_builder import BatchBuilder
from bench.signals.definition import pass_definitions
from tests.fixtures.rivers import NAMES
from tests.unit.run.test_costs import FewRivers, OpenRivers, read

ALONG: frozenset[Signal] = frozenset({
    TokenScores(Of.GOLD), TokenScores(Of.WRONG), TokenScores(Of.OPTIONS), Hidden(0.5, At.GOLD_PREDICTING),
    Hidden(1.0, At.WRONG_PREDICTING),
})  # fmt: skip


class Roads(OpenRivers):
    """Open questions whose prompts don't show the options; each text is asked twice, of other options."""

    style = PromptStyle(header="About {label}.", footer="Next.", context="{text}")


def edited(change: str) -> type[Task]:
    """Open questions of the same prompts with other options."""

    class Edited(Roads):
        def questions(self, split: Split) -> Iterator[Question]:
            for question in super().questions(split):
                choices = question.choices
                if split == "dev":
                    yield question
                elif change == "another right one":
                    yield replace(question, gold=(question.gold + 1) % len(choices))
                elif change == "fewer wrong ones":
                    kept = [k for k in range(len(choices)) if k == question.gold or k == (question.gold + 1) % 2]
                    yield replace(question, choices=tuple(choices[k] for k in kept), gold=kept.index(question.gold))
                else:
                    words = tuple(f"{text} {NAMES[k]} {NAMES[k + 1]}" for k, text in enumerate(choices))
                    yield replace(question, choices=words)

    return Edited


def columns(folder: Path, cache: Path, task: type[Task]) -> tuple[int, dict[Signal, Ragged]]:
    reader, split_data = read(folder, cache, task, set(ALONG))
    batch = BatchBuilder(reader).batch(split_data, ALONG, labels=True)
    found = {}
    for signal in ALONG:
        column = batch[signal]
        assert isinstance(column, Ragged)
        found[signal] = column
    return reader.forward_tokens, found


def assert_same(one: dict[Signal, Ragged], other: dict[Signal, Ragged]) -> None:
    for signal in ALONG:
        np.testing.assert_array_equal(one[signal].offsets, other[signal].offsets)
        names = one[signal].values.dtype.names
        for pair in [(one[signal].values, other[signal].values)] if names is None else [
            (one[signal].values[name], other[signal].values[name]) for name in names
        ]:  # fmt: skip
            np.testing.assert_allclose(*pair, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("change", ["another right one", "fewer wrong ones", "longer ones"])
def test_edited_options_under_the_same_prompts_are_read_anew(small_model: Path, tmp_path: Path, change: str) -> None:
    columns(small_model, tmp_path / "one", Roads)
    after, again = columns(small_model, tmp_path / "one", edited(change))
    _, fresh = columns(small_model, tmp_path / "fresh", edited(change))
    assert after > 0
    assert_same(again, fresh)


def test_options_that_come_back_are_found_again(small_model: Path, tmp_path: Path) -> None:
    _, first = columns(small_model, tmp_path, Roads)
    columns(small_model, tmp_path, edited("longer ones"))
    tokens, again = columns(small_model, tmp_path, Roads)
    assert tokens == 0
    assert_same(again, first)


def test_a_plan_counts_what_edited_options_cost(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, Roads, set(ALONG))
    assert reader.find(split_data, ALONG) == 0
    task = edited("longer ones")(None)  # type: ignore[arg-type]
    other = reader.open(split_data.where, task, list(task.questions("test")))
    assert reader.find(other, ALONG) == len(other.shards)
    assert reader.find(other, frozenset({QueryLogits()})) == reader.find(split_data, frozenset({QueryLogits()}))


def test_questions_of_one_prompt_keep_their_own_options(small_model: Path, tmp_path: Path) -> None:
    def alone(which: int) -> type[Task]:
        class Half(Roads):
            def questions(self, split: Split) -> Iterator[Question]:
                every = list(super().questions(split))
                yield from every if split == "dev" else [q for q in every if int(q.id.rsplit("/")[-1]) % 2 == which]

        return Half

    reader, split_data = read(small_model, tmp_path / "both", Roads, set(ALONG))
    prompts = [ids.tobytes() for ids, _ in split_data.pairs()]
    assert len(set(prompts)) < len(prompts)
    both = BatchBuilder(reader).batch(split_data, ALONG, labels=True)
    for which in (0, 1):
        reader, half = read(small_model, tmp_path / str(which), alone(which), set(ALONG))
        batch = BatchBuilder(reader).batch(half, ALONG, labels=True)
        places = [both.ids.index(name) for name in batch.ids]
        for signal in ALONG:
            for i, place in enumerate(places):
                found, expected = both[signal][place], batch[signal][i]
                if expected.dtype.names is not None:
                    found, expected = found["log_probability"], expected["log_probability"]
                np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("task", [FewRivers, Roads], ids=lambda task: task.name)
def test_keys_of_all_other_signals_stay(small_model: Path, tmp_path: Path, task: type[Task]) -> None:
    """What older versions stored is found."""
    others: set[Signal] = {QueryLogits(), Hidden(0.5), TokenScores(top=2)}
    signals = others | (ALONG if task.format is Format.CHOICE else set())
    reader, split_data = read(small_model, tmp_path, task, signals)
    plain = {
        s: each.name(reader.prompt_settings(split_data), 0) for s, each in pass_definitions(split_data.signals).items()
    }
    assert split_data.names == [plain] * len(split_data.shards)
    assert plain[TokenScores(top=2)] == "TokenScores(top=2)"


# --- samples ----------------------------------------------------------------------------------------------------------

DRAWN = Samples(3)
OF_SAMPLES: frozenset[Signal] = frozenset({
    DRAWN, TokenScores(Of.SAMPLES, samples=DRAWN), Hidden(0.5, At.SAMPLE_END, samples=DRAWN),
})  # fmt: skip


def renamed(task: type[Task]) -> type[Task]:
    """The same questions with other ids, by which samples are drawn."""

    class Renamed(task):  # type: ignore[misc, valid-type]
        def questions(self, split: Split) -> Iterator[Question]:
            for question in super().questions(split):
                yield replace(question, id=f"new/{question.id}") if split == "test" else question

    return Renamed


def of_samples(folder: Path, cache: Path, task: type[Task]) -> tuple[int, dict[Signal, Any]]:
    reader, split_data = read(folder, cache, task, set(OF_SAMPLES))
    batch = BatchBuilder(reader).batch(split_data, OF_SAMPLES, labels=True)
    return reader.forward_tokens, {signal: batch[signal] for signal in OF_SAMPLES}


@pytest.mark.parametrize("task", [FewRivers, Roads], ids=lambda task: task.name)
def test_samples_of_questions_with_other_ids_are_drawn_anew(
    small_model: Path, tmp_path: Path, task: type[Task]
) -> None:
    of_samples(small_model, tmp_path / "one", task)
    after, again = of_samples(small_model, tmp_path / "one", renamed(task))
    _, fresh = of_samples(small_model, tmp_path / "fresh", renamed(task))
    assert after > 0
    assert again[DRAWN].values["id"].tolist() == fresh[DRAWN].values["id"].tolist()
    for signal in OF_SAMPLES - {DRAWN}:
        one, other = (getattr(each[signal], "values", each[signal]) for each in (again, fresh))
        if one.dtype.names is not None:
            one, other = one["log_probability"], other["log_probability"]
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)
