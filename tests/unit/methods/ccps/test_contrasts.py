"""Differences of impacts against independent references, and how often they are found where there is nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from methods.ccps import impact_contrasts
from methods.ccps.impact_contrasts import LinearisedEstimate, TokenImpacts

Draws = np.random.Generator


def drawn(
    rng: Draws, n: int = 60, *, effect: float = 0.0, seeds: int = 5, length: int = 6, **how: float
) -> TokenImpacts:
    """Answers whose function words stand rather at the end, where `by_place` lowers impacts."""
    lengths = rng.integers(2, length + 1, n)
    answer = np.repeat(np.arange(n), lengths)
    place = np.arange(len(answer)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    content = rng.random(len(answer)) < np.where(place < 2, 0.75, 0.35)
    scale = np.repeat(rng.gamma(2.0, 0.5, n), lengths)  # of one answer
    level = how.get("level", 3.0) + effect * content - how.get("by_place", 0.0) * place
    whole = scale * (level + 0.3 * rng.normal(size=len(answer)))
    impact = whole + how.get("by_seed", 0.05) * rng.normal(size=(seeds, len(answer)))
    return TokenImpacts(answer, place, lengths[answer], content, impact, n)


def same_seeds(tokens: TokenImpacts) -> TokenImpacts:
    return TokenImpacts(*(vars(tokens)[name] for name in ("answer", "place", "length", "content")),
                  np.tile(tokens.impact.mean(axis=0), (5, 1)), tokens.n)  # fmt: skip


def test_contrast_within_answers_is_the_paired_t_test() -> None:
    tokens = same_seeds(drawn(np.random.default_rng(0), effect=0.3))
    means = [
        [tokens.impact[0][(tokens.answer == row) & (tokens.content == kind)].mean() for kind in (True, False)]
        for row in np.flatnonzero(tokens.has_both)
    ]
    content, function = np.array(means).T
    expected = stats.ttest_rel(content, function)
    difference, floor = impact_contrasts.within_answers(tokens) or pytest.fail("nothing")
    found = impact_contrasts.estimate(difference)
    low, high = expected.confidence_interval()
    assert (found.value, found.low, found.high, found.p) == pytest.approx(
        ((content - function).mean(), low, high, expected.pvalue), rel=1e-9
    )
    assert found.counted == len(content)
    assert floor.value == pytest.approx(function.mean())


def sandwich(design: Any, tokens: TokenImpacts, column: int) -> tuple[float, float, int]:
    """Coefficient, sum of squared scores of answers, and rank, by dense least squares."""
    y = tokens.impact.mean(axis=0)
    inverse = np.linalg.pinv(design.T @ design)
    beta = inverse @ design.T @ y
    scores = design * (y - design @ beta)[:, None]
    by_answer = np.stack([scores[tokens.answer == row].sum(axis=0) for row in range(tokens.n)])
    return float(beta[column]), float(((by_answer @ inverse)[:, column] ** 2).sum()), int(np.linalg.matrix_rank(design))


def test_contrast_over_all_is_a_regression_clustered_by_answer() -> None:
    tokens = same_seeds(drawn(np.random.default_rng(1), effect=0.3))
    design = np.stack([tokens.content, np.ones(len(tokens.content))], axis=1).astype(float)
    value, square, _ = sandwich(design, tokens, 0)
    difference, _ = impact_contrasts.over_all(tokens) or pytest.fail("nothing")
    assert difference.value == pytest.approx(value)
    assert (difference.influence**2).sum() == pytest.approx(square)


def test_contrast_at_same_places_is_a_two_way_regression() -> None:
    tokens = same_seeds(drawn(np.random.default_rng(2), n=40, effect=0.3, by_place=0.4))
    answers = np.eye(tokens.n)[tokens.answer]
    names = sorted(set(zip(tokens.length, tokens.place, strict=True)))
    places = np.array([
        [name == own for name in names] for own in zip(tokens.length, tokens.place, strict=True)
    ], dtype=float)  # fmt: skip
    design = np.column_stack([tokens.content.astype(float), answers, places])
    value, square, rank = sandwich(design, tokens, 0)
    difference, _ = impact_contrasts.within_places(tokens) or pytest.fail("nothing")
    assert difference.value == pytest.approx(value)
    t = len(tokens.answer)
    spent = (t - tokens.n) / (t - rank)
    assert (difference.influence**2).sum() == pytest.approx(spent * square)
    of_tokens = np.linalg.pinv(design)[0]  # by which the coefficient is a sum over tokens
    np.testing.assert_allclose(difference.weight, tokens.sums(of_tokens**2), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("contrast", [impact_contrasts.over_all, impact_contrasts.within_answers])
def test_lift_influences_are_derivatives_in_an_answers_weight(contrast: Any) -> None:
    tokens = same_seeds(drawn(np.random.default_rng(3), n=30, effect=0.3))

    def lift(weights: Any) -> float:
        y = tokens.impact[0]
        sums = [np.bincount(tokens.answer, of * y, tokens.n) for of in (tokens.content, ~tokens.content)]
        counts = [np.bincount(tokens.answer, of, tokens.n) for of in (tokens.content, ~tokens.content)]
        if contrast is impact_contrasts.within_answers:
            both = tokens.has_both
            sums = [np.where(both, a / np.maximum(b, 1), 0.0) for a, b in zip(sums, counts, strict=True)]
            counts = [both.astype(float)] * 2
        content, function = ((weights @ a) / (weights @ b) for a, b in zip(sums, counts, strict=True))
        return float(content / function - 1)

    found = impact_contrasts.lift(*contrast(tokens))
    assert found is not None
    once = np.ones(tokens.n)
    assert found.value == pytest.approx(lift(once))
    step = 1e-6
    changed = [(lift(once + step * row) - lift(once - step * row)) / (2 * step) for row in np.eye(tokens.n)]
    taking_part = tokens.has_both if contrast is impact_contrasts.within_answers else slice(None)
    np.testing.assert_allclose(found.influence, np.array(changed)[taking_part], rtol=1e-5, atol=1e-8)


def test_contrast_interval_has_the_spread_of_seeds() -> None:
    rng = np.random.default_rng(4)
    one = drawn(rng, by_seed=0.0)
    shifted = one.impact + np.linspace(-1, 1, 5)[:, None] * one.content  # seeds disagree on content words
    two = TokenImpacts(one.answer, one.place, one.length, one.content, shifted, one.n)
    (narrow, _), (wide, _) = (impact_contrasts.over_all(tokens) or pytest.fail("nothing") for tokens in (one, two))
    assert narrow.value == pytest.approx(wide.value)
    square = (narrow.influence**2).sum() * one.n / (one.n - 1)
    of_seeds = np.linspace(-1, 1, 5).var(ddof=1) / 5
    df = (square + of_seeds) ** 2 / (square**2 / (wide.effective_answers - 1) + of_seeds**2 / 4)
    found = impact_contrasts.estimate(wide)
    assert found.high is not None
    assert found.high - found.value == pytest.approx(stats.t.ppf(0.975, df) * np.sqrt(square + of_seeds))


def test_lift_is_of_the_means_over_seeds() -> None:
    """One network moves more than the others, and by another lift: a mean of five lifts would be another number."""
    one = drawn(np.random.default_rng(10), effect=0.3)
    scale = np.where(one.content, 10.0, 2.0) * (np.arange(5) == 0)[:, None] + 1
    difference, floor = impact_contrasts.over_all(
        TokenImpacts(one.answer, one.place, one.length, one.content, scale * one.impact, one.n)
    ) or pytest.fail("nothing")

    def lift(weights: Any) -> float:
        return float((weights @ difference.by_seed) / (weights @ floor.by_seed))

    found, once, step = impact_contrasts.lift(difference, floor), np.ones(5), 1e-6
    assert found is not None
    assert found.value == pytest.approx(difference.value / floor.value)
    changed = [(lift(once + step * row) - lift(once - step * row)) / (2 * step) for row in np.eye(5)]
    np.testing.assert_allclose((found.by_seed - found.value) / 5, changed, rtol=1e-6, atol=1e-9)


REPEATS = 300


@pytest.fixture(scope="module")
def nothing() -> dict[str, list[Any]]:
    """Estimates where classes don't matter and places do."""
    rng = np.random.default_rng(5)
    found: dict[str, list[Any]] = {"answers": [], "places": []}
    for _ in range(REPEATS):
        tokens = drawn(rng, by_place=0.5, level=5.0)
        for name, contrast in (
            ("answers", impact_contrasts.within_answers),
            ("places", impact_contrasts.within_places),
        ):
            pair = contrast(tokens)
            assert pair is not None
            found[name].append(impact_contrasts.estimate(pair[0]))
    return found


def test_contrast_at_same_places_is_blind_to_places(
    nothing: dict[str, list[Any]],
) -> None:
    rates = {name: np.mean([found.p < 0.05 for found in every]) for name, every in nothing.items()}
    assert rates["answers"] > 0.9
    low, high = stats.binom.ppf([0.001, 0.999], REPEATS, 0.05) / REPEATS
    assert low <= rates["places"] <= high


def test_contrast_finds_and_covers_a_planted_difference() -> None:
    rng, repeats = np.random.default_rng(6), 200
    found = []
    for _ in range(repeats):
        pair = impact_contrasts.within_places(drawn(rng, effect=0.5, by_place=0.5, level=5.0))
        assert pair is not None
        found.append(impact_contrasts.estimate(pair[0]))
    assert np.mean([each.p < 0.05 for each in found]) > 0.8
    assert np.mean([each.value for each in found]) == pytest.approx(0.5, abs=0.03)
    low = stats.binom.ppf(0.001, repeats, 0.95) / repeats
    assert np.mean([each.low <= 0.5 <= each.high for each in found]) >= low


def test_contrast_needs_more_than_one_telling_answer() -> None:
    n = 400
    answer, place = np.repeat(np.arange(n), 4), np.tile(np.arange(4), n)
    content = place != 2
    rng = np.random.default_rng(7)
    impact = rng.random((5, 4 * n))
    never = TokenImpacts(answer, place, np.full(4 * n, 4), content, impact, n)
    assert impact_contrasts.within_places(never) is None
    mistaken = content.copy()
    mistaken[0] = False
    assert impact_contrasts.within_places(TokenImpacts(answer, place, np.full(4 * n, 4), mistaken, impact, n)) is None
    often = content.copy()
    often[:200:4] = False
    known = impact_contrasts.within_places(TokenImpacts(answer, place, np.full(4 * n, 4), often, impact, n))
    assert known is not None
    assert known[0].effective_answers >= impact_contrasts.MIN_ANSWERS


def test_contrast_of_few_answers_has_no_interval() -> None:
    few = drawn(np.random.default_rng(8), n=8)
    difference, _ = impact_contrasts.within_answers(few) or pytest.fail("nothing")
    assert impact_contrasts.estimate(difference)[1:4] == (None, None, None)
    none = few.take(np.zeros(len(few.answer), dtype=np.bool_))
    assert impact_contrasts.mean_impact(none) is None
    assert impact_contrasts.over_all(none) is None
    assert impact_contrasts.within_answers(none) is None
    assert impact_contrasts.within_places(none) is None
    assert impact_contrasts.over_all(few.take(few.content)) is None


def test_contrast_of_no_impacts_has_no_lift() -> None:
    tokens = drawn(np.random.default_rng(9))
    still = TokenImpacts(tokens.answer, tokens.place, tokens.length, tokens.content, 0 * tokens.impact, tokens.n)
    difference, floor = impact_contrasts.over_all(still) or pytest.fail("nothing")
    assert impact_contrasts.estimate(difference)[:4] == (0.0, 0.0, 0.0, 1.0)
    assert impact_contrasts.lift(difference, floor) is None


def test_contrast_of_one_seed_has_no_interval() -> None:
    linear = LinearisedEstimate(np.ones(1), np.zeros(50), np.ones(50))
    assert impact_contrasts.estimate(linear).low is None
