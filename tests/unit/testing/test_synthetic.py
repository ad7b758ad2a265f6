"""The planted gold and wrong answers, samples and adapter logits fit together with the other planted signals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from bench.api import (
    Adapter,
    At,
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
from bench.testing import planted
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
def test_the_answer_is_gold_where_it_is_right_and_a_wrong_option_elsewhere(fmt: Format) -> None:
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
def test_every_option_begins_at_the_prompts_end(fmt: Format) -> None:
    batch = planted(SIGNALS, 200, seed=6, fmt=fmt)
    wrong = batch[WRONG]
    for i, start in enumerate(batch[Hidden(1.0, At.PROMPT_END)]):
        lengths = [len(tokens) for tokens in options(batch, i).values()]
        firsts = wrong[i][np.cumsum([0, *lengths[:-1]])]
        assert (firsts == start).all()
        assert (batch[GOLD][i][0] == start).all()


@pytest.mark.parametrize("fmt", list(Format))
def test_said_options_are_likelier_than_unsaid_ones(fmt: Format) -> None:
    batch = planted(SIGNALS, 300, seed=7, fmt=fmt)
    head, means = batch[Unembedding()], {}
    for signal, of in ((ANSWER, Of.ANSWER), (GOLD, Of.GOLD), (WRONG, Of.WRONG)):
        log_p = head.logits(torch.tensor(batch[signal].values)).log_softmax(dim=1).numpy()
        means[of] = log_p[np.arange(len(log_p)), batch[TokenIds(of)].values].mean()
    assert means[Of.ANSWER] > means[Of.GOLD] > means[Of.WRONG]


def test_letters_that_are_not_shown_are_no_options() -> None:
    batch = planted((*SIGNALS, ChoiceLogits()), 300, seed=8)
    shown = np.isfinite(batch[ChoiceLogits()])
    assert 0.02 < (~shown).any(axis=1).mean() < 0.3
    for i in range(300):
        letters = {int(batch[TokenIds(Of.GOLD)][i][0]), *options(batch, i)}
        assert letters == set(np.flatnonzero(shown[i]))


def test_truth_can_be_seen_in_samples_and_through_an_adapter() -> None:
    batch = planted((SampleAgreement(n=7), QueryLogits(Adapter.OWN), QueryLogits()), 1000, seed=9)
    agree = batch[SampleAgreement(n=7)]
    assert agree.shape == (1000, 7)
    assert agree.dtype == np.bool_
    assert roc_auc_score(batch.correct, agree.mean(axis=1)) > 0.7
    own, frozen = (np.diff(batch[QueryLogits(adapter)], axis=1) for adapter in Adapter.__members__.values())
    assert own == pytest.approx(frozen, abs=1e-5)


def test_contents_of_a_head_in_bfloat16_can_be_remembered() -> None:
    weight = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    batch = Batch(["a"], {Unembedding(): OutputHead(weight)})
    before = contents(batch)
    weight[0, 0] += 1
    assert contents(batch) != before
