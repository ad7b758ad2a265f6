"""Every signal, on every architecture and in packs of any size, is that of a plain pass over the whole conversation."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from transformers.models.llama import modeling_llama

from bench.api import (
    At,
    AttentionRows,
    ChoiceLogits,
    Followup,
    Hidden,
    Of,
    QueryLogits,
    Samples,
    Signal,
    TokenScores,
    UserError,
)
from bench.model.attention import unrecorded_reason
from bench.model.continuation_specs import ModelInput
from bench.model.devices import ALONE, BatchLimits
from bench.model.language_model import LanguageModel
from bench.model.session import Session, blocks
from bench.model.token_sampling import uniform_numbers
from bench.servers.readings import Ability
from bench.signals import token_scores
from tests.fixtures import models
from tests.kit import passes

DRAWN, OTHERS = Samples(3, 0.8), Samples(2, 2.0)
SIGNALS: list[Signal] = [
    *(Hidden(depth, at) for at in (At.PROMPT_END, At.ANSWER_END, At.QUERY_END) for depth in (0.5, 1.0)),
    Hidden(1.0, At.ANSWER_PREDICTING), Hidden(0.75, At.ANSWER_PREDICTING),
    *(Hidden(0.5, at, "mean") for at in (At.ANSWER_PREDICTING, At.ANSWER_END)),
    Hidden(1.0, At.GOLD_PREDICTING), Hidden(0.5, At.WRONG_PREDICTING),
    *(Hidden(depth, At.SAMPLE_END, samples=DRAWN) for depth in (0.5, 1.0)),
    ChoiceLogits(), QueryLogits(), DRAWN, OTHERS,
    Followup(passes.HOW), Followup(passes.HOW, words=passes.WORDS), Followup(passes.HOW, say=4), Followup(say=2),
    *(TokenScores(top=top) for top in (0, 3, passes.VOCABULARY)),
    *(TokenScores(top=top, divergence=True) for top in (0, 3)),
    TokenScores(Of.SAMPLES, top=2, samples=DRAWN), *(TokenScores(of) for of in (Of.GOLD, Of.WRONG, Of.OPTIONS)),
]  # fmt: skip
SHOWN = [4, 2, 3, 4, 4, 4, 2]
GOLD = [[20, 21], [30], [40, 41, 42], [50], [20], [60, 61], [30]]
WRONG = [[own[::-1], [33, 34, 35]] for own in GOLD]
ANSWERS = [[20, 21], [30], [], [50], [60, 61], [70], [30]]
ELSEWHERE = [[*p[:3], 40, *p[3:]] if len(p) % 2 else p[3:].tolist() for p in passes.prompts()]
ROOM = 10**12


class Case(NamedTuple):
    """What is read: answers of at most `limit` tokens, or stored ones, in packs of at most `budget` tokens."""

    limit: int
    budget: int
    answers: Sequence[Sequence[int]] | None = None
    together: BatchLimits = ALONE
    samples: list[list[int]] | None = None
    """Stored ones of the first kind."""
    before: Sequence[Sequence[int]] | None = None
    """Conversations up to the answer that don't continue the prompts."""


CASES = {
    "letters": Case(1, 64),
    "generated": Case(4, 64),
    "generated side by side": Case(4, 30, None, BatchLimits(1000, ROOM)),
    "letters side by side": Case(1, 30, None, BatchLimits(1000, ROOM)),
    "stored, one by one": Case(4, 1, ANSWERS),
    "stored, pairs": Case(4, 17, ANSWERS, BatchLimits(3, ROOM)),
    "stored samples": Case(4, 4096, ANSWERS, samples=[[20], [21, 22], []]),
    "asked elsewhere": Case(4, 64, ANSWERS, before=ELSEWHERE),
}
FAST = {
    "llama": [*CASES],
    "mistral with a window": ["generated", "stored, one by one"],
    "gemma2": ["generated side by side", "stored samples"],
    "gpt2": ["letters side by side", "asked elsewhere"],
    "gpt-oss": ["generated side by side", "stored, pairs"],
    "mamba": ["letters side by side", "stored samples"],
}
"""Architecture -> cases that are tried each time: those of plain attention all, of each other kind two."""
EACH = pytest.mark.parametrize(
    ("lm", "case"),
    [
        pytest.param(name, case, id=f"{name}-{label}", marks=() if label in FAST.get(name, ()) else pytest.mark.slow)
        for name in passes.ARCHITECTURES
        for label, case in CASES.items()
    ],
    indirect=["lm"],
    scope="module",
)


@pytest.fixture(scope="module", params=passes.distinct(passes.ARCHITECTURES))
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return passes.load(passes.save(tmp_path_factory.mktemp("model") / request.param, request.param))


def inputs(case: Case) -> list[ModelInput]:
    more: dict[str, Any] = {} if case.before is None else {"query_prompt": passes.ids(*case.before)}
    if case.samples is not None:
        more["samples"] = [{DRAWN: passes.ids(*case.samples)}] * 7
    return passes.items(
        case.answers, options=SHOWN, gold=passes.ids(*GOLD), wrong=[tuple(passes.ids(*own)) for own in WRONG],
        uniforms=[uniform_numbers(3, f"question {i}", 3, case.limit) for i in range(7)], **more,
    )  # fmt: skip


@EACH
def test_signals_are_those_of_plain_passes(lm: LanguageModel, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_scores, "CHUNK", 4)  # positions that are scored at once
    given = inputs(case)
    found = passes.extract(lm, SIGNALS, given, case.limit, case.budget, case.together)
    for i, item in enumerate(given):
        prompt, numbers = item.prompt.tolist(), item.uniforms
        assert numbers is not None
        answer = passes.say(lm, prompt, case.limit) if case.answers is None else case.answers[i]
        assert found.answers[i].tolist() == answer
        samples = {
            each: [passes.say(lm, prompt, case.limit, row, each.temperature) for row in numbers[: each.n]]
            for each in (DRAWN, OTHERS)
        }
        if case.samples is not None:
            samples[DRAWN] = case.samples
        asked = passes.Asked(
            lm, passes.prompt_settings(case.limit), prompt, answer, SHOWN[i], GOLD[i], WRONG[i], samples=samples,
            before=None if case.before is None else case.before[i],
        )  # fmt: skip
        for signal in SIGNALS:
            if isinstance(signal, Samples):
                assert passes.texts_of(found.columns[signal], i) == samples[signal]
            else:
                passes.assert_close(passes.question(found.columns[signal], i), asked.expected(signal), (signal, i))


def assert_attention_is_eager(lm: LanguageModel, case: Case, beside: Sequence[Signal] = ()) -> None:
    given = inputs(case)
    found = passes.extract(lm, [AttentionRows(), *beside], given, case.limit, case.budget, case.together)
    for i, item in enumerate(given):
        rows, n = passes.question(found.columns[AttentionRows()], i), len(item.prompt)
        whole = (*item.prompt.tolist(), *found.answers[i].tolist())
        weights = passes.attention(lm, whole)
        expected = [
            torch.stack([row[..., at], row[..., at - 1], row[..., :n].sum(-1), row[..., n:].sum(-1)])
            for at in range(n - 1, len(whole))
            for row in [weights[:, :, at]]
        ]
        assert rows.shape == (len(found.answers[i]) + bool(len(found.answers[i])), 4, *weights.shape[:2])
        for row, other in zip(rows, expected, strict=False):
            torch.testing.assert_close(row, other, atol=1e-5, rtol=0)


@EACH
def test_attention_is_that_of_eager_attention(lm: LanguageModel, case: Case) -> None:
    reason = lm.missing(Ability.ATTENTION)
    assert (reason is None) == lm.uses_packs
    if reason is not None:
        assert reason == "it reads attention weights, and this architecture has none"
    else:
        assert_attention_is_eager(lm, case)
        assert_attention_is_eager(lm, case, [QueryLogits(), Followup(passes.HOW, say=4), DRAWN, TokenScores(Of.GOLD)])


@pytest.mark.parametrize("case", ["generated", "stored, pairs"])
def test_attention_is_read_without_packs_too(tmp_path: Path, case: str) -> None:
    alone = passes.load(passes.save(tmp_path / "llama"), plain=True)
    assert not alone.uses_packs
    assert_attention_is_eager(alone, CASES[case])


def test_leftover_window_of_a_llama_is_ignored(tmp_path: Path) -> None:
    """Its code has no window, whatever config.json says; Mistral's and Gemma's, which have, are tried above."""
    config = models.llama(**passes.SHAPE, num_key_value_heads=2, sliding_window=16, use_sliding_window=False)
    words = models.words(passes.VOCABULARY, pad_token="w0")
    leftover, end = passes.load(models.save(tmp_path / "llama", config, words)), Hidden(1.0, At.PROMPT_END)
    assert leftover.config.sliding_window == 16
    found = passes.extract(leftover, [AttentionRows(), end], passes.items(), 1).columns
    for i, item in enumerate(passes.items()):
        passes.assert_close(passes.question(found[end], i), passes.plain(leftover, item.prompt)[1][-1][-1], i)
    assert_attention_is_eager(leftover, CASES["generated"])


def test_window_of_a_models_own_code_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its class can't be made without values, so that nothing says which fields the code knows."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("sys.path", [*sys.path])
    folder = passes.save(tmp_path / "own", "mistral with a window")
    weights = passes.load(folder).model
    code = "from transformers import LlamaConfig\n\nclass Own(LlamaConfig):\n    model_type = 'own'\n\n"
    code += "    def __init__(self, needed, **more):\n        super().__init__(**more)\n        self.needed = needed\n"
    (folder / "own.py").write_text(code, encoding="utf-8")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"model_type": "own", "needed": 1, "auto_map": {"AutoConfig": "own.Own"}}
    for width in (16, None):
        (folder / "config.json").write_text(json.dumps({**config, "sliding_window": width}), encoding="utf-8")
        own = passes.load(folder, trust_remote_code=True)
        vars(own)["model"] = weights
        assert own.session.window == width


def test_attention_that_its_output_does_not_follow_from_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = modeling_llama.ALL_ATTENTION_FUNCTIONS
    known = functions["sdpa"]
    twice = lambda *args, scaling, **more: known(*args, scaling=2 * scaling, **more)  # noqa: E731
    monkeypatch.setitem(functions._local_mapping, "sdpa", twice)
    other = passes.load(passes.save(tmp_path / "llama"))
    with pytest.raises(UserError, match=r"layer 1 gives something else than softmax attention, .* Leave out the meth"):
        passes.extract(other, [AttentionRows()], passes.items(), 1)


def test_attention_given_its_mask_by_name_is_read(tmp_path: Path) -> None:
    config = transformers.AfmoeConfig(
        **passes.SHAPE, num_key_value_heads=2, head_dim=16, sliding_window=16, moe_intermediate_size=32, num_experts=4,
        num_experts_per_tok=2,
    )  # fmt: skip
    words = models.words(passes.VOCABULARY, pad_token="w0")
    assert_attention_is_eager(passes.load(models.save(tmp_path / "afmoe", config, words)), CASES["generated"])


def test_attention_computed_twice_a_pass_is_refused(tmp_path: Path) -> None:
    config = transformers.DiffLlamaConfig(**passes.SHAPE, num_key_value_heads=2)
    twice = passes.load(models.save(tmp_path / "diffllama", config, models.words(passes.VOCABULARY, pad_token="w0")))
    with pytest.raises(UserError, match=r"a layer computes attention more than once in a pass\. Leave out the methods"):
        passes.extract(twice, [AttentionRows()], passes.items(), 1)


def test_attention_of_unknown_code_is_refused() -> None:
    assert unrecorded_reason(transformers.FalconConfig()) == (
        "it reads attention weights, which this architecture's code doesn't tell"
    )
    assert "code of their own" in str(unrecorded_reason(type("Own", (transformers.LlamaConfig,), {})()))


def test_head_gives_logits_also_of_inner_states(lm: LanguageModel) -> None:
    captured: list[torch.Tensor] = []
    handle = blocks(lm.model)[-1].register_forward_hook(
        lambda _m, _i, out: captured.append(out[0] if isinstance(out, tuple) else out)
    )
    logits, states = passes.plain(lm, [*range(9, 50), 7])
    handle.remove()
    assert lm.norm is not None
    for final in (states[-1], lm.norm(captured[0].reshape(-1, 64))):
        torch.testing.assert_close(lm.head.logits(final), logits, **passes.CLOSE)
    assert int(logits[-1].argmax()) == int(lm.head.logits(states[-1][-1:]).argmax())


def test_packs_are_used_except_without_attention(lm: LanguageModel) -> None:
    assert lm.uses_packs == (lm.spec.name not in passes.UNSHARED)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return passes.load(passes.save(tmp_path_factory.mktemp("model") / "llama"))


def test_signals_alone_are_as_beside_others(llama: LanguageModel) -> None:
    given = inputs(CASES["stored samples"])
    beside = passes.extract(llama, SIGNALS, given, 4).columns
    for signal in SIGNALS:
        alone = passes.extract(llama, [signal], given, 4).columns[signal]
        assert alone.keys() == beside[signal].keys()
        for name, column in alone.items():
            torch.testing.assert_close(column, beside[signal][name], equal_nan=True, **passes.CLOSE)


def test_token_scores_refuse_more_tokens_than_vocabulary(llama: LanguageModel) -> None:
    with pytest.raises(UserError, match=r"TokenScores\(top=121\): expected at most 120 tokens"):
        passes.extract(llama, [TokenScores(top=121)], passes.items(), 1)


def test_bytes_of_tokens_are_known_before_reading(lm: LanguageModel) -> None:
    if not lm.uses_packs:
        pytest.skip("keeps no keys")
    fresh = Session(lm.model)
    size = fresh.measure_bytes_per_token()
    assert (fresh.tokens, fresh.row.length) == (0, 0)
    fresh = Session(lm.model)
    fresh.forward(np.arange(3), np.arange(3), lambda: torch.ones(3, 3, dtype=torch.bool), {})
    assert fresh.bytes_per_token == size > 0


def test_divergence_is_of_possible_tokens() -> None:
    logits = torch.full((1, 8), -torch.inf)
    logits[0, :4] = torch.tensor([0.7, 0.1, 0.1, 0.1]).log()
    found = token_scores._divergence(logits.log_softmax(-1))
    assert found.item() == pytest.approx(-np.log(0.7 * 0.1**3) / 4 - np.log(4))
