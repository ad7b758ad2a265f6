"""Methods on reasoning traces: length, DeepConf, stability of the answer, a probe at the ends of lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bench.api import (
    At,
    Batch,
    ChoiceLogits,
    Context,
    Hidden,
    Of,
    Ragged,
    Text,
    TokenIds,
    TokenScores,
    UntrainableError,
)
from bench.signals.synthetic import planted
from methods.answer_stability import AnswerStability
from methods.deepconf import TOKENS, DeepConfLowest, DeepConfMean, DeepConfTail
from methods.trace_length import TraceLength
from methods.trace_probe import TraceProbe

CONFIDENCES = ([9, 3, 6, 2, 8, 7], [], [5])
"""Of the tokens of three traces; the first one is worked out by hand."""


def of_traces(*rows: Any) -> Batch:
    scores = [np.zeros(len(row), dtype=TOKENS.dtype) for row in rows]
    for column, row in zip(scores, rows, strict=True):
        column["top_mean"] = np.negative(np.asarray(row, dtype=np.float32))
    ids = Ragged.of([np.zeros(len(row), dtype=np.int64) for row in rows])
    return Batch([str(i) for i in range(len(rows))], {TOKENS: Ragged.of(scores), TokenIds(Of.TRACE): ids})


def test_trace_length_is_minus_the_number_of_tokens() -> None:
    assert TraceLength().predict(of_traces(*CONFIDENCES)).tolist() == [-6, 0, -1]


@pytest.mark.parametrize(
    ("method", "first"),
    [
        (DeepConfMean(), 35 / 6), (DeepConfTail(least=2, share=0.1), 7.5), (DeepConfLowest(least=3), 11 / 3),
        (DeepConfTail(), 35 / 6), (DeepConfLowest(), 35 / 6), (DeepConfLowest(least=1, share=0.5), 11 / 3),
    ],
)  # fmt: skip
def test_deepconf_statistics_are_those_by_hand(method: Any, first: float) -> None:
    assert method.predict(of_traces(*CONFIDENCES)).tolist() == pytest.approx([first, 0, 5])


def test_deepconf_s_token_confidence_is_that_of_the_paper() -> None:
    """Probabilities 0.7, 0.2, 0.05 have 1.653948; a sampled token outside of them is not a fourth."""
    from bench.signals.token_scores import _scores

    logits = torch.log(torch.tensor([[0.7, 0.2, 0.05, 0.03, 0.02]]))
    found = _scores(logits, torch.tensor([4]), TokenScores(mean_of=3))["top_mean"]
    assert -float(found) == pytest.approx(1.653948, abs=1e-6)
    assert -float(_scores(torch.zeros(1, 4), torch.tensor([0]), TokenScores(mean_of=4))["top_mean"]) == pytest.approx(
        1.386294, abs=1e-6
    )


def test_windows_follow_the_trace() -> None:
    method = DeepConfLowest()
    assert [method.window(n) for n in (5, 100, 1000, 30_000)] == [5, 16, 100, 2048]


@pytest.mark.parametrize("letters", ["abc", "bca", "ABC", "123"])
def test_answer_stability_is_of_the_answered_letter(letters: str) -> None:
    """It need not be the likeliest one; of what is no letter shown, the likeliest in the end is judged."""
    first, second, third = letters
    answers = {first: 0.6, second: 0.4, f" ({second.swapcase()}).": 0.4, third: 0.6, "ab": 0.6, "": 0.6, "The": 0.6}
    question = f"Where (b): or (x):?\n  ({first}): Here\n  ({second}): There"
    shares = np.array([[0.2, 0.8, 0], [0.4, 0.6, 0], [0.9, 0.1, 0], [0.9, 0.1, 0]])
    with np.errstate(divide="ignore"):
        logits = np.repeat(np.log(shares)[None].astype(np.float32), len(answers), axis=0)
    columns = {
        ChoiceLogits((0.25, 0.5, 0.75)): logits[:, :3], ChoiceLogits(): logits[:, 3],
        Text(Of.ANSWER): np.array(list(answers), dtype=np.object_),
        Text(Of.QUESTION): np.array([question] * len(answers), dtype=np.object_),
    }  # fmt: skip
    found = AnswerStability().predict(Batch(list(map(str, range(len(answers)))), columns))
    assert found.tolist() == pytest.approx(list(answers.values()))


def test_trace_probe_averages_its_lines() -> None:
    signal = Hidden(1.0, At.STEP_END)
    train, test = planted({signal}, 200, seed=0), planted({signal}, 100, seed=1)
    probe = TraceProbe().fit(train, Context(0))
    found = probe.predict(test)
    right, wrong = found[test.correct].mean(), found[~test.correct].mean()
    assert right > wrong + 0.5
    states = test[signal]
    alone = [float(probe.predict(Batch(["q"], {signal: Ragged.of([row[None]])}))[0]) for row in states[0]]
    odds = [np.log(p / (1 - p)) for p in alone]
    assert found[0] == pytest.approx(1 / (1 + np.exp(-np.mean(odds))))
    without = Batch(["q"], {signal: Ragged.of([states[0][:0]])})
    assert probe.predict(without).tolist() == [pytest.approx(train.correct.mean())]


@pytest.mark.parametrize(("lines", "got"), [((0, 0), "0 and 0"), ((2, 0), "2 and 0"), ((0, 3), "0 and 3")])
def test_trace_probe_needs_lines_of_both_kinds(lines: tuple[int, int], got: str) -> None:
    states = Ragged.of([np.ones((n, 4), dtype=np.float32) for n in lines])
    train = Batch(["right", "wrong"], {Hidden(1.0, At.STEP_END): states}, np.array([True, False]))
    with pytest.raises(UntrainableError, match=f"before right and before wrong training answers, got {got}"):
        TraceProbe().fit(train, Context(0))
