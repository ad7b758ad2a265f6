"""Planted signals fit each other, and tell what is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from bench.api import (
    Adapter,
    At,
    AttentionRows,
    Batch,
    ChoiceLogits,
    Format,
    Hidden,
    Of,
    OutputHead,
    QueryLogits,
    SampleAgreement,
    TokenIds,
    Unembedding,
)
from bench.signals.synthetic import LETTERS, planted
from bench.testing.observing import contents

GOLD, WRONG, ANSWER = (Hidden(1.0, at) for at in (At.GOLD_PREDICTING, At.WRONG_PREDICTING, At.ANSWER_PREDICTING))
SIGNALS = (
    GOLD, WRONG, ANSWER, Hidden(1.0, At.PROMPT_END), *map(TokenIds, (Of.GOLD, Of.WRONG, Of.ANSWER)), Unembedding(),
)  # fmt: skip


def options(batch: Batch, i: int) -> dict[int, tuple[int, ...]]:
    """Wrong options of a question: number -> tokens."""
    wrong = batch[TokenIds(Of.WRONG)]
    assert wrong.owner is not None
    owner = wrong.owner[wrong.offsets[i] : wrong.offsets[i + 1]]
    return {int(k): tuple(wrong[i][owner == k]) for k in np.unique(owner)}


@pytest.mark.parametrize("fmt", list(Format))
def test_planted_answer_is_gold_or_a_wrong_option(fmt: Format) -> None:
    batch = planted(SIGNALS, 300, seed=5, fmt=fmt)
    for i, right in enumerate(batch.correct):
        answer, gold, wrong = tuple(batch[TokenIds()][i]), tuple(batch[TokenIds(Of.GOLD)][i]), options(batch, i)
        assert (answer == gold) == bool(right)
        assert right or answer in wrong.values()
        assert 2 <= len(wrong) <= 3
        assert gold not in wrong.values() or fmt is Format.OPEN  # two phrases of one token may be equal
    assert batch[GOLD].owner is batch[TokenIds(Of.GOLD)].owner is None
    assert np.array_equal(batch[WRONG].owner, np.asarray(batch[TokenIds(Of.WRONG)].owner))
    for signal, of in ((GOLD, Of.GOLD), (WRONG, Of.WRONG)):
        assert np.array_equal(batch[signal].offsets, batch[TokenIds(of)].offsets)


@pytest.mark.parametrize("fmt", list(Format))
def test_planted_options_begin_at_the_prompts_end(fmt: Format) -> None:
    batch = planted(SIGNALS, 200, seed=6, fmt=fmt)
    wrong = batch[WRONG]
    for i, start in enumerate(batch[Hidden(1.0, At.PROMPT_END)]):
        lengths = [len(tokens) for tokens in options(batch, i).values()]
        firsts = wrong[i][np.cumsum([0, *lengths[:-1]])]
        assert (firsts == start).all()
        assert (batch[GOLD][i][0] == start).all()


@pytest.mark.parametrize("fmt", list(Format))
def test_planted_answers_are_likelier_than_other_options(fmt: Format) -> None:
    batch = planted(SIGNALS, 300, seed=7, fmt=fmt)
    head, means = batch[Unembedding()], {}
    for signal, of in ((ANSWER, Of.ANSWER), (GOLD, Of.GOLD), (WRONG, Of.WRONG)):
        log_p = head.logits(torch.tensor(batch[signal].values)).log_softmax(dim=1).numpy()
        means[of] = log_p[np.arange(len(log_p)), batch[TokenIds(of)].values].mean()
    assert means[Of.ANSWER] > means[Of.GOLD] > means[Of.WRONG]


def test_planted_letters_that_are_not_shown_are_no_options() -> None:
    batch = planted((*SIGNALS, ChoiceLogits()), 300, seed=8)
    shown = np.isfinite(batch[ChoiceLogits()])
    assert 0.02 < (~shown).any(axis=1).mean() < 0.3
    for i in range(300):
        letters = {int(batch[TokenIds(Of.GOLD)][i][0]), *options(batch, i)}
        assert letters == set(np.flatnonzero(shown[i]))


def test_planted_truth_shows_in_samples_and_adapters() -> None:
    batch = planted((SampleAgreement(n=7), QueryLogits(Adapter.OWN), QueryLogits()), 1000, seed=9)
    agree = batch[SampleAgreement(n=7)]
    assert agree.shape == (1000, 7)
    assert agree.dtype == np.bool_
    assert roc_auc_score(batch.correct, agree.mean(axis=1)) > 0.7
    own, frozen = (np.diff(batch[QueryLogits(adapter)], axis=1) for adapter in Adapter.__members__.values())
    assert own == pytest.approx(frozen, abs=1e-5)


EVERYTHING = (
    Hidden(), Hidden(0.5), Hidden(1.0, At.PROMPT_END), Hidden(1.0, At.ANSWER_END), Hidden(0.75, At.PROMPT_END),
    TokenIds(), TokenIds(Of.PROMPT), TokenIds(Of.QUERY), ChoiceLogits(), QueryLogits(), Unembedding(),
)  # fmt: skip


@pytest.mark.parametrize("fmt", Format)
def test_planted_signals_fit_each_other(fmt: Format) -> None:
    batch = planted(EVERYTHING, 500, seed=5, fmt=fmt)
    ids, states, head = batch[TokenIds()], batch[Hidden()], batch[Unembedding()]
    assert set(ids.lengths) == ({1} if fmt is Format.CHOICE else {1, 2, 3, 4, 5})
    assert np.array_equal(ids.offsets, states.offsets)
    assert np.array_equal(states.values[states.offsets[:-1]], batch[Hidden(1.0, At.PROMPT_END)])
    logits = head.logits(torch.tensor(states.values)).numpy()  # (sum of t_i, v)
    assert (logits.argmax(axis=1) == ids.values).mean() > 0.85
    shown = np.isfinite(batch[ChoiceLogits()])
    first = logits[ids.offsets[:-1], :LETTERS]
    np.testing.assert_allclose(batch[ChoiceLogits()][shown], first[shown], atol=1e-5)
    assert 0.02 < (~shown).any(axis=1).mean() < 0.3
    assert fmt is Format.OPEN or shown[np.arange(500), ids.values].all(), "an answer is a letter that is not shown"
    for i in (0, 499):
        whole = batch[TokenIds(Of.QUERY)][i]
        start = np.concatenate([batch[TokenIds(Of.PROMPT)][i], ids[i]])
        assert np.array_equal(whole[: len(start)], start)
        assert len(whole) > len(start)


@pytest.mark.parametrize(
    ("signal", "score"),
    [
        (AttentionRows(), lambda rows: rows.values["itself"][..., 0].mean(axis=1)),
        (QueryLogits(), lambda z: z[:, 1] - z[:, 0]),
        (ChoiceLogits(), lambda z: np.sort(z, axis=1)[:, -1] - np.sort(z, axis=1)[:, -2]),
        (Hidden(), lambda h: np.linalg.norm(h.values, axis=1)),
    ],
)
def test_planted_truth_shows_in_each_signal(signal: Any, score: Any) -> None:
    batch = planted([signal], 1000, seed=6)
    assert roc_auc_score(batch.correct, score(batch[signal])) > 0.85


@pytest.mark.parametrize("signal", [Hidden(0.5, At.ANSWER_END), Hidden(0.75), Hidden(0.25, At.PROMPT_END)])
def test_planted_truth_of_one_batch_holds_on_another(signal: Hidden) -> None:
    def read(batch: Batch) -> Any:
        column = batch[signal]
        return column if signal.at is not At.ANSWER_PREDICTING else column.values

    train, test = planted([signal], 500, seed=1), planted([signal], 500, seed=2)
    direction = read(train)[train.correct].mean(axis=0) - read(train)[~train.correct].mean(axis=0)
    assert roc_auc_score(test.correct, read(test) @ direction) > 0.85


def test_contents_of_a_bfloat16_head_are_remembered() -> None:
    weight = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    batch = Batch(["a"], {Unembedding(): OutputHead(weight)})
    before = contents(batch)
    weight[0, 0] += 1
    assert contents(batch) != before
