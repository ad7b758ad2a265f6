"""Token masking: planted effects are found, none is found where there is none, and what can't be said is said."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bench.api import AnalysisInput, Batch, Context, Format, Of, Ragged, TokenIds, UserError
from bench.report import measures_table as shown
from bench.stats.analysis_measures import AnalysisMeasures, validate_measures
from methods.ccps import Ccps
from methods.ccps import token_masking as masking
from methods.ccps.impact_contrasts import Effect
from methods.ccps.token_masking import Contrast, build_answer
from tests.unit.methods.ccps.test_analyses import FEW
from tests.unit.methods.ccps.test_method import batch

NOUNS, SMALL = ["dog", "river", "house", "plant", "city"], ["the", "of", "and", "with", "in"]
RESULTS = Path(__file__).parents[4] / "results"


def sentences(n: int, seed: int = 0, *, at: int | None = None) -> list[list[str]]:
    """Answers of two to six words as tokens; `at`: function words stand there alone, else anywhere."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        length = int(rng.integers(2, 7)) if at is None else 4
        function = rng.random(length) < 0.5 if at is None else np.arange(length) == at
        words = [str(rng.choice(SMALL if small else NOUNS)) for small in function]
        found.append([words[0], *(f" {word}" for word in words[1:])])
    return found


def given(texts: list[list[str]], fmt: Format = Format.OPEN) -> AnalysisInput:
    ids = Batch([f"q{k}" for k in range(len(texts))], {TokenIds(Of.ANSWER): Ragged.of([[0] * len(t) for t in texts])})
    contexts = {seed: Context(seed=seed, format=fmt) for seed in range(5)}
    return AnalysisInput(Ccps(**FEW), ids, ids, contexts, pieces=lambda _: texts)


class Hearing(nn.Module):
    """Confidence from the first feature of all places."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`(n, places, features)` -> logits."""
        z = x[:, :, 0].sum(dim=1)
        return torch.stack([torch.zeros_like(z), z], dim=1)


def measured(texts: list[list[str]], *, content: float, seed: int = 0, by_place: float = 0.0) -> Any:
    """Table of networks that hear tokens of content words by `content` more than others, and early ones `by_place`."""
    read, rng = masking.read_tokens(given(texts), 30), np.random.default_rng(seed)
    inputs = np.zeros((len(texts), 30, 2), dtype=np.float32)
    size = 1 + content * (read.kind == "content") + by_place * (6 - read.place) + 0.2 * rng.normal(size=len(read.place))
    inputs[read.answer, read.place, 0] = 0.1 * size * rng.choice([-1.0, 1.0], size=len(size))
    found = [
        masking.token_impacts(Hearing(), torch.from_numpy(inputs * scale), np.zeros(2), read)  # type: ignore[arg-type]
        for scale in (0.98, 0.99, 1.0, 1.01, 1.02)
    ]
    confidence, impact = (np.stack(each) for each in zip(*found, strict=True))
    return validate_measures("ccps", masking.build_measures(read, confidence, impact))


def row(table: Any, what: str) -> Any:
    return next(row for row in table.rows if row["what"] == what)


def test_masking_impact_is_what_one_token_changes() -> None:
    read = masking.read_tokens(given([["dog"], ["the", " dog"]]), 30)
    inputs = torch.zeros(2, 30, 2)
    inputs[0, 0, 0], inputs[1, 0, 0], inputs[1, 1, 0] = 1.0, -2.0, 0.5
    p = 1 / (1 + np.exp(-np.array([1.0, -1.5])))
    confidence, impact = masking.token_impacts(Hearing(), inputs, np.zeros(2), read)  # type: ignore[arg-type]
    np.testing.assert_allclose(confidence, p, atol=1e-6)
    without = 1 / (1 + np.exp(-np.array([0.0, 0.5, -2.0])))
    np.testing.assert_allclose(impact, np.abs(p[[0, 1, 1]] - without), atol=1e-6)
    _, raw = masking.token_impacts(Hearing(), inputs, np.array([3.0, 0.0]), read)  # type: ignore[arg-type]
    np.testing.assert_allclose(raw[0], abs(p[0] - 1 / (1 + np.exp(-3.0))), atol=1e-6)
    assert float(inputs[0, 0, 0]) == 1.0


def test_masking_finds_words_the_network_hears_more() -> None:
    table = measured(sentences(150), content=0.5)
    lift = row(table, masking.ALL)
    assert lift["lift"] == pytest.approx(0.5, abs=0.1)
    assert lift["lift_low"] > 0.3
    places = row(table, masking.SAME_PLACES)
    assert places["p"] < 0.001
    assert table.answer.startswith("Content words move it more, also with their places taken out.")


def test_masking_finds_nothing_if_words_dont_matter() -> None:
    p = [row(measured(sentences(60, k), content=0.0, seed=k), masking.WITHIN)["p"] for k in range(40)]
    assert np.mean(np.array(p) < 0.05) <= 0.175  # at most 7 of 40, beyond which chance is 0.1 %
    table = measured(sentences(60, 3), content=0.0, seed=3)
    assert table.answer.startswith("Nothing shows: within answers no difference is significant.")


def test_masking_takes_no_places_for_words() -> None:
    table = measured(sentences(150, at=3), content=0.0, by_place=0.3)
    assert row(table, masking.WITHIN)["p"] < 0.001
    assert row(table, masking.SAME_PLACES)["difference"] is None
    assert "at the same places it can't be told: too few answers have words of one kind" in table.answer


def test_masking_counts_answers_without_both_kinds() -> None:
    texts = [*sentences(20, 1, at=1), ["dog"], ["the"], ["12"], ["!"], ["", "\ufffd"]]
    table = measured(texts, content=0.5)
    told = " ".join(table.notes)
    assert "20 of 25 answers have content and function words, 1 have no function word, 1 have no content word" in told
    assert "3 have neither" in told
    assert row(table, "numerals")["tokens"] == 1
    assert row(table, "numerals")["impact_low"] is None
    alone = measured([["dog"], ["12"]] * 20, content=0.5)
    assert alone.rows == ()
    assert alone.answer == "It can't be said: none of 40 answers has both a content word and a function word."
    few = measured([*sentences(5, at=1), *([["dog"]] * 20)], content=0.5)
    assert few.answer.startswith("It can't be said: 5 of 25 answers have both")
    assert row(few, masking.WITHIN)["difference_low"] is None


def test_masking_has_a_row_for_first_tokens() -> None:
    texts = [["d", "og", " ", "with", " riv", "er"], ["the", " hou", "se"]] * 20
    table = measured(texts, content=0.5)
    assert row(table, "content words")["tokens"] == 120
    assert row(table, "other tokens")["tokens"] == 20
    assert row(table, masking.WORDS_ONCE)["tokens"] == 100
    assert masking.WORDS_ONCE not in [each["what"] for each in measured(sentences(20), content=0.5).rows]


def test_masking_shows_tokens_the_network_doesnt_read() -> None:
    texts = [["the", *([" dog"] * 40)]]
    read = masking.read_tokens(given(texts), 30)
    assert len(read.answer) == 30
    table = masking.build_measures(read, np.full((5, 1), 0.5), np.full((5, 30), 0.01))
    assert table.strips is not None
    (strip,) = table.strips.strips
    assert [piece.value is None for piece in strip.pieces] == [False] * 30 + [True] * 11
    assert strip.pieces[-1].told == "not read by the network"


def test_masking_draws_coloured_answers_without_their_numbers() -> None:
    texts = sentences(200)
    one, other = (measured(texts, content=c, seed=k).strips for c, k in ((0.0, 1), (2.0, 2)))
    assert [strip.title for strip in one.strips] == [strip.title for strip in other.strips]
    assert len(one.strips) == 20
    for strip in one.strips:
        marks = {piece.mark for piece in strip.pieces}
        assert marks >= {"content", "function"}
        assert "".join(piece.text for piece in strip.pieces) == "".join(texts[int(strip.title[1:])])


def test_masking_networks_are_those_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    test = batch(40, 8, tokens=4, labels=False)
    texts = [["the", " dog", " of", " it"][:length] for length in test[TokenIds(Of.ANSWER)].lengths]
    held, train = batch(60, 7, tokens=4), batch(120, 6, tokens=4)
    contexts = {0: Context(seed=11, format=Format.OPEN, validation=held)}
    study = AnalysisInput(Ccps(**FEW), train, test, contexts, pieces=lambda _: texts)
    heard: list[Any] = []
    whole = masking.build_measures
    monkeypatch.setattr(masking, "build_measures", lambda *found: heard.append(found) or whole(*found))
    table, raw = (validate_measures("ccps", analysis(study)) for analysis in (masking.tokens, masking.tokens_raw))
    read, confidence, impact = heard[0]
    own = Context(seed=11, format=Format.OPEN, validation=held)
    np.testing.assert_allclose(confidence[0], Ccps(**FEW).fit(train, own).predict(test), atol=1e-6)
    assert impact.shape == (1, len(read.answer))
    assert impact.max() > 0
    np.testing.assert_allclose(table.rows[0]["impact"], impact[:, read.kind == "content"].mean(), rtol=1e-6)
    assert raw.rows[0]["impact"] != table.rows[0]["impact"]
    assert np.array_equal(heard[1][1], confidence)


def test_masking_refuses_choice_answers_and_a_missing_tagger(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="token masking needs open answers"):
        masking.tokens(given([["a"]], Format.CHOICE))
    monkeypatch.setitem(sys.modules, "HanTa", None)
    with pytest.raises(UserError, match=r"pip install 'confbench\[analysis\]'"):
        masking.tokens(given([["dog"]]))


def test_masking_table_has_the_papers_rows_and_columns() -> None:
    table = measured(sentences(60), content=0.5)
    with (RESULTS / "paper" / table.published).open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 12
    for line in lines:
        assert row(table, line["row"])[line["column"]] is not None
    found = AnalysisMeasures("ccps", "tokens", "llama8b", "mmlu-oe", "paper", (0, 1, 2, 3, 4), 60, table)
    paper = shown.read_published(found, RESULTS)
    records = {record["what"]: record for record in shown.measure_rows(found, paper)}
    assert records["content words"]["impact (points): paper"] == "1.82"
    assert records[masking.ALL]["lift (%): paper"] == "+45.6"


# --- verdicts ---------------------------------------------------------------------------------------------------------


def compared(within: float, places: float | None, split: float | None = None, rest: float = 1) -> list[Contrast]:
    """Comparisons by their values in standard errors."""

    def of(what: str, value: float | None) -> Contrast:
        if value is None:
            return Contrast(what, 100, None, None)
        p = 0.2 if abs(value) < 2 else 0.001
        difference = Effect(value / 100, (value - 2) / 100, (value + 2) / 100, p, 50)
        return Contrast(what, 100, difference, Effect(value / 10, (value - 2) / 10, (value + 2) / 10, p, 50))

    found = [
        of(masking.ALL, 3),
        of(masking.WITHIN, within),
        of(masking.WITHOUT_FIRST, rest),
        of(masking.SAME_PLACES, places),
    ]
    return found if split is None else [*found, of(masking.WORDS_ONCE, split)]


MORE, LESS = "Content words move it more, also", "Content words move it less, also"
INSIDE = "Within an answer content words move it more"
NOTHING = "Nothing shows: within answers no difference is significant."
FIRST = "Without the first token of each answer it is"
SPLIT = "how words are split may explain it"


@pytest.mark.parametrize(
    ("contrasts", "lead", "told"),
    [
        ({"within": 4, "places": 3}, f"{MORE} with their places taken out.", ""),
        ({"within": -4, "places": -3}, f"{LESS} with their places taken out.", ""),
        ({"within": 4, "places": 1}, f"{INSIDE}, but with places taken out no difference is significant", ""),
        ({"within": 4, "places": -3}, f"{INSIDE}, but with places taken out it is the other way round", ""),
        ({"within": 4, "places": None}, f"{INSIDE}; at the same places it can't be told: too few answers", FIRST),
        ({"within": 1, "places": 1}, f"{NOTHING} Over all tokens", ""),
        ({"within": 1, "places": None}, f"{NOTHING} Over all tokens", FIRST),
        ({"within": 1, "places": 3}, f"{NOTHING} With places taken out they move it more", ""),
        ({"within": 4, "places": None, "rest": 3}, INSIDE, f"{FIRST} +3.00 points (1.00 to 5.00), p 0.001."),
        ({"within": 4, "places": None, "rest": -3}, INSIDE, f"{FIRST} \u22123.00 points (\u22125.00 to"),
        ({"within": 4, "places": 3, "split": 3}, MORE, ""),
        ({"within": 4, "places": 3, "split": 1}, MORE, SPLIT),
        ({"within": 4, "places": 1, "split": 1}, INSIDE, ""),
    ],
)
def test_verdict_says_more_only_if_both_tests_do(contrasts: dict[str, Any], lead: str, told: str) -> None:
    verdict = build_answer(compared(**contrasts), 50, 80)
    assert verdict.startswith(lead)
    assert "Over all tokens, as published, the lift is +30 % (10 to 50), p 0.001. Within the 50 answers" in verdict
    assert told in verdict
    assert (FIRST in verdict, "how words are split" in verdict) == (told.startswith(FIRST), told == SPLIT)


def test_verdict_if_tokens_move_alike() -> None:
    read = masking.read_tokens(given(sentences(40)), 30)
    alike = np.tile(np.random.default_rng(0).random(40)[read.answer], (5, 1))
    told = masking.build_measures(read, np.full((5, 40), 0.5), alike).answer
    assert told.startswith("Nothing shows: masking any token of an answer moves it alike")
    same = Effect(0.01, 0.01, 0.01, 0.0, 50)
    names = (masking.ALL, masking.WITHIN, masking.WITHOUT_FIRST, masking.SAME_PLACES)
    found = [Contrast(what, 100, same, None) for what in names]
    assert build_answer(found, 50, 80).startswith(f"{MORE} with their places taken out.")
