"""Stand-ins of signals fit together: samples with their texts, scores with the head, relations with the texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bench.api import (
    At,
    Followup,
    Format,
    Hidden,
    Of,
    Related,
    SampleAgreement,
    Samples,
    Text,
    TokenIds,
    TokenScores,
    Unembedding,
)
from bench.testing import planted

DRAWN = Samples(3, 0.8)
TEXTS, AGREES = Text(Of.SAMPLES, samples=DRAWN), SampleAgreement(3, 0.8)
SCORES = TokenScores(Of.SAMPLES, top=2, samples=DRAWN)
OPTION_IDS, OPTION_SCORES, OPTION_TEXTS = TokenIds(Of.OPTIONS), TokenScores(Of.OPTIONS, top=2), Text(Of.OPTIONS)
ENDS = Hidden(0.5, At.SAMPLE_END, samples=DRAWN)
STATES = [Hidden(1.0, At.PROMPT_END), Hidden(1.0, At.QUERY_END), Hidden(0.5, At.ANSWER_PREDICTING, "mean")]
SURE, SPOKEN = Followup("how sure?", words=("low", "medium", "high")), Followup("how sure?", say=4)
ENTAILS, MATCHES = (Related(by, samples=DRAWN) for by in ("entailment", "match"))


@pytest.fixture(scope="module", params=list(Format))
def batch(request: pytest.FixtureRequest) -> Any:
    wanted = {
        DRAWN, SCORES, TEXTS, AGREES, OPTION_IDS, OPTION_SCORES, OPTION_TEXTS, ENDS, SURE, SPOKEN, Followup(), ENTAILS,
        MATCHES, *STATES, Text(), TokenIds(), Hidden(), Unembedding(),
    }  # fmt: skip
    return planted(wanted, 200, seed=4, fmt=request.param)


def test_stand_ins_are_of_the_same_samples(batch: Any) -> None:
    samples = batch[DRAWN]
    np.testing.assert_array_equal(samples.owner, batch[SCORES].owner)
    np.testing.assert_array_equal(samples.values["log_probability"], batch[SCORES].values["log_probability"])
    said = batch[TEXTS] == batch[Text()][:, None]
    assert (said >= batch[AGREES]).all()
    assert said.mean() < batch[AGREES].mean() + 0.02
    assert batch[AGREES][batch.correct].mean() > batch[AGREES][~batch.correct].mean() + 0.2
    assert (batch[TEXTS] == "").any()
    for i in range(200):
        texts = [*batch[TEXTS][i], batch[Text()][i]]
        same = np.asarray([[one == other for other in texts] for one in texts])
        np.testing.assert_array_equal(batch[MATCHES][i] > 0.5, same)
        np.testing.assert_array_equal(batch[ENTAILS][i].argmax(-1) == 2, same)
    np.testing.assert_allclose(batch[ENTAILS].sum(-1), 1.0, atol=1e-6)


def test_stand_ins_are_of_the_same_options(batch: Any) -> None:
    ids = batch[OPTION_IDS]
    np.testing.assert_array_equal(batch[OPTION_SCORES].owner, ids.owner)
    for i in range(200):
        options = [tuple(text.split()) for text in batch[OPTION_TEXTS][i]]
        assert len(options) >= 3
        owner = ids.owner[ids.offsets[i] : ids.offsets[i + 1]]
        assert options == [tuple(f"w{t}" for t in ids[i][owner == k]) for k in range(len(options))]


def test_stand_ins_lean_towards_the_truth(batch: Any) -> None:
    right = batch.correct
    leaning = batch[SURE][:, 2] - batch[SURE][:, 0]
    assert leaning[right].mean() > leaning[~right].mean() + 0.5
    percent = np.asarray([float(text.rstrip("%")) for text in batch[SPOKEN]])
    assert percent[right].mean() > percent[~right].mean() + 30
    assert batch[Followup()].shape == (200, 2)
    assert {batch[state].shape for state in STATES} == {(200, 16)}
    ends = batch[ENDS]
    assert (ends.shape, ends.dtype) == ((200, 3, 16), np.float32)
    spread = ends.var(axis=1).sum(axis=1)
    assert spread[right].mean() < spread[~right].mean()
    norm = batch[Unembedding()].norm
    assert float(norm(torch.randn(4, 16)).square().mean()) == pytest.approx(1.0, abs=1e-3)


def test_stand_in_scores_are_what_the_head_says() -> None:
    signal = TokenScores(top=4)
    batch = planted({signal, TokenIds(), Hidden(), Unembedding()}, 50, seed=3)
    scores: Any = batch[signal].values
    logits = batch[Unembedding()].logits(torch.tensor(batch[Hidden()].values)).double()
    expected = logits.log_softmax(-1)
    ids = torch.tensor(batch[TokenIds()].values)
    np.testing.assert_allclose(scores["log_probability"], expected.gather(-1, ids[:, None])[:, 0], atol=1e-5)
    np.testing.assert_allclose(scores["entropy"], -(expected.exp() * expected).sum(-1), atol=1e-5)
    assert scores["top_ids"].tolist() == expected.topk(4).indices.tolist()
