"""Small models of many architectures, questions to them, and what plain passes over whole sequences say of these."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bench.api import At, ChoiceLogits, Followup, Hidden, Of, QueryLogits, Samples, Signal, TokenScores
from bench.model.continuation_specs import ModelInput
from bench.model.devices import BatchLimits
from bench.model.extractor import Extractor, ShardOutput
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import ModelSpec
from bench.prompts.prompt_settings import PromptSettings
from bench.signals.definition import pass_definitions
from tests.fixtures import models

VOCABULARY, BLOCKS = 120, 4
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": BLOCKS, "num_attention_heads": 4,
    "intermediate_size": 96, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
ARCHITECTURES: dict[str, Callable[[], Any]] = {
    "llama": lambda: models.llama(**SHAPE, num_key_value_heads=2),
    "qwen2": lambda: transformers.Qwen2Config(**SHAPE, num_key_value_heads=2),
    "mistral with a window": lambda: transformers.MistralConfig(**SHAPE, num_key_value_heads=2, sliding_window=16),
    "gemma2": lambda: transformers.Gemma2Config(
        **SHAPE, num_key_value_heads=2, head_dim=16, sliding_window=16, attn_implementation="eager"
    ),
    "phi": lambda: transformers.PhiConfig(**SHAPE),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=64, n_layer=4, n_head=4, n_positions=512, bos_token_id=1, eos_token_id=2
    ),
    "cohere": lambda: transformers.CohereConfig(**SHAPE, num_key_value_heads=2, logit_scale=0.25),
    "gpt-oss": lambda: transformers.GptOssConfig(
        **SHAPE | {"intermediate_size": 32},
        num_key_value_heads=2,
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=16,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    ),
    "mamba": lambda: transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=4, bos_token_id=1, eos_token_id=2, pad_token_id=0
    ),
}
ALIKE = {"qwen2", "phi", "cohere"}
"""Architectures that differ from others in their weights alone."""
UNSHARED = {"mamba"}
"""Without attention there is no cache that branches could share."""

SUFFIX, TURN = np.asarray([5, 6, 7, 8], dtype=np.int32), np.asarray([60, 61, 62], dtype=np.int32)
VERDICTS, LETTERS = np.asarray([10, 11], dtype=np.int32), np.asarray([10, 11, 12, 13], dtype=np.int32)
HOW, WORDS = "how sure?", ("low", "medium", "high")
CLOSE = {"atol": 1e-4, "rtol": 1e-4}


def load(folder: Path, **options: Any) -> LanguageModel:
    """The model of a folder on the CPU."""
    return LanguageModel(ModelSpec(folder.name, str(folder), local=True), LoadOptions(device="cpu", **options))


def save(folder: Path, architecture: str = "llama") -> Path:
    """A model of an architecture, with words as its tokens."""
    return models.save(folder, ARCHITECTURES[architecture](), models.words(VOCABULARY, pad_token="w0"))


def distinct(names: Iterable[str]) -> list[Any]:
    """Parameters, where those that are `ALIKE` are slow."""
    return [pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ()) for name in names]


# --- questions --------------------------------------------------------------------------------------------------------


def ids(*rows: Sequence[int]) -> list[np.ndarray]:
    """Token ids as the harness has them."""
    return [np.asarray(row, dtype=np.int32) for row in rows]


def prompts() -> list[np.ndarray]:
    """Seven prompts that share much: one beginning, two sets of exemplars, one question twice."""
    rng = np.random.default_rng(0)
    system, exemplars = rng.integers(9, VOCABULARY, 20), rng.integers(9, VOCABULARY, (2, 30))
    tails = [rng.integers(9, VOCABULARY, size) for size in (3, 9, 14, 5, 40)]
    bodies = [[*exemplars[i % 2], *tail] for i, tail in enumerate(tails)]
    bodies.append([*bodies[2][:-4], 50, 51])  # shares most of its question with another
    bodies.append(bodies[1])  # an exact duplicate
    return ids(*([*system, *body] for body in bodies))


def items(answers: Sequence[Sequence[int]] | None = None, **more: Sequence[Any]) -> list[ModelInput]:
    """Inputs for the prompts; `more` are further fields, a value a question."""
    stored = [None] * 7 if answers is None else ids(*answers)
    columns = {"options": [4] * 7, **more}
    return [
        ModelInput(prompt, answer=stored[i], **{name: value[i] for name, value in columns.items()})
        for i, prompt in enumerate(prompts())
    ]


def prompt_settings(limit: int, budget: int = 64) -> PromptSettings:
    """Settings with the tokens of this module."""
    words = {("no", "yes"): VERDICTS, WORDS: ids([13, 14, 15])[0]}
    return PromptSettings(limit, LETTERS, SUFFIX, VERDICTS, budget, {HOW: TURN}, words)


def extract(
    lm: LanguageModel,
    signals: Iterable[Signal],
    given: list[ModelInput],
    limit: int,
    budget: int = 64,
    together: BatchLimits | None = None,
) -> ShardOutput:
    """Signals of some questions from an extractor of its own, which keeps no beginning of another."""
    lm.session.reset()
    extractor = Extractor(lm, prompt_settings(limit, budget), pass_definitions(list(signals)))
    extractor.together = together or extractor.together
    return extractor.extract(given)


def question(columns: Mapping[str, torch.Tensor], i: int) -> Any:
    """A question's part of a signal as an extractor gives it: a tensor, or tensors by name."""
    rows = slice(*columns["offsets"][i : i + 2].tolist()) if "offsets" in columns else i
    parts = {name: column[rows] for name, column in columns.items() if name != "offsets"}
    return parts.get("values", parts)


def texts_of(column: Mapping[str, torch.Tensor], i: int) -> list[list[int]]:
    """The ids of a question's samples, each of which -1 ends."""
    found: list[list[int]] = [[]]
    for token in question(column, i).tolist():
        found.append([]) if token < 0 else found[-1].append(token)
    assert not found[-1]
    return found[:-1]


def prefixes(sequences: Iterable[Iterable[int]]) -> set[tuple[int, ...]]:
    """Every beginning of every sequence: what has to be read at least."""
    return {tuple(each[:n]) for each in map(tuple, sequences) for n in range(1, len(each) + 1)}


# --- plain passes -----------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=500)
def _plain(lm: LanguageModel, sequence: tuple[int, ...]) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    with torch.inference_mode():
        out = lm.model(torch.as_tensor(sequence)[None], output_hidden_states=True, use_cache=False)
    return out.logits[0].float(), tuple(h[0] for h in out.hidden_states)


def plain(lm: LanguageModel, *parts: Iterable[int]) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Logits and hidden states of one whole sequence, through the model's own forward, without a cache."""
    return _plain(lm, tuple(int(token) for part in parts for token in part))


@functools.lru_cache(maxsize=100)
def attention(lm: LanguageModel, sequence: tuple[int, ...]) -> torch.Tensor:
    """Weights `(layers, heads, t, t)` of a whole sequence by the model's eager attention."""
    own = lm.model.config._attn_implementation
    lm.model.set_attn_implementation("eager")
    with torch.inference_mode():
        found = lm.model(torch.as_tensor(sequence)[None], output_attentions=True, use_cache=False).attentions
    lm.model.set_attn_implementation(own)
    return torch.stack([layer[0] for layer in found if layer is not None])


@functools.lru_cache(maxsize=20_000)
def _next_logits(lm: LanguageModel, sequence: tuple[int, ...]) -> torch.Tensor:
    return _plain(lm, sequence)[0][-1].clone()


def say(
    lm: LanguageModel, start: Iterable[int], limit: int, numbers: Any = None, temperature: float = 1.0
) -> list[int]:
    """What the model says: the likeliest tokens, or by the inverse CDF at one number a token."""
    said: list[int] = []
    while len(said) < limit:
        logits = _next_logits(lm, (*map(int, start), *said))
        token = int(logits.argmax())
        if numbers is not None:
            cumulated = torch.softmax(logits.double() / temperature, -1).cumsum(-1).numpy()
            token = int(np.searchsorted(cumulated, numbers[len(said)] * cumulated[-1], side="right"))
        if token in lm.stops:
            break
        said.append(token)
    return said


@dataclass
class Asked:
    """A question, the texts after it, and its signals by plain passes over each whole conversation."""

    lm: LanguageModel
    settings: PromptSettings
    prompt: Sequence[int]
    answer: Sequence[int]
    shown: int = 4
    gold: Sequence[int] = ()
    wrong: Sequence[Sequence[int]] = ()
    options: Sequence[Sequence[int]] | None = None
    samples: Mapping[Samples, Sequence[Sequence[int]]] = field(default_factory=dict)
    before: Sequence[int] | None = None
    """The conversation up to the answer where something is asked after it, if it isn't the prompt."""

    def expected(self, signal: Signal) -> Any:
        """The signal's value: a tensor, tensors by name, or token ids."""
        match signal:
            case Hidden():
                return self._hidden(signal)
            case ChoiceLogits():
                letters = self.settings.letter_ids[: self.shown].tolist()
                absent = torch.full((len(self.settings.letter_ids) - self.shown,), -torch.inf)
                return torch.cat([plain(self.lm, self.prompt)[0][-1][letters], absent])
            case QueryLogits():
                return self._reply("", self.settings.verdict_ids)
            case Followup(say=0):
                return self._reply(signal.wording, self.settings.words[signal.words])
            case Followup():
                return say(self.lm, self._turn(signal.wording), signal.say) if len(self.answer) else []
            case TokenScores():
                return self._scores(signal)
        raise AssertionError(signal)

    def _states(self, depth: float, *parts: Iterable[int]) -> torch.Tensor:
        states = plain(self.lm, *parts)[1]
        block = round(depth * self.lm.blocks)
        first = 1 if self.lm.config.model_type == "mamba" else 0  # its list has no embeddings at the front
        return states[-1 if block == self.lm.blocks else block - first]

    def _hidden(self, signal: Hidden) -> torch.Tensor:
        depth, at, n = signal.depth, signal.at, len(self.prompt)
        if at is At.QUERY_END:
            end = self._states(depth, self._turn(""))[-1]
            return end if len(self.answer) else torch.full_like(end, torch.nan)
        if at is At.SAMPLE_END:
            return torch.stack([self._states(depth, self.prompt, own)[-1] for own in self.samples[signal.samples]])
        if at is At.PROMPT_END:
            return self._states(depth, self.prompt)[-1]
        if at is At.ANSWER_END:
            states = self._states(depth, self.prompt, self.answer)
            return states[n:].mean(0) if signal.pool else states[-1]
        texts = {At.ANSWER_PREDICTING: [self.answer], At.GOLD_PREDICTING: [self.gold], At.WRONG_PREDICTING: self.wrong}
        rows = torch.cat([self._states(depth, self.prompt, text)[n - 1 : n - 1 + len(text)] for text in texts[at]])
        return rows.mean(0) if signal.pool else rows

    def _turn(self, wording: str) -> list[int]:
        before = self.prompt if self.before is None else self.before
        return [*before, *self.answer, *self.settings.turns[wording].tolist()]

    def _reply(self, wording: str, words: np.ndarray) -> torch.Tensor:
        logits = plain(self.lm, self._turn(wording))[0][-1][torch.as_tensor(words.tolist())]
        return logits if len(self.answer) else torch.full_like(logits, torch.nan)

    def _scores(self, signal: TokenScores) -> dict[str, torch.Tensor]:
        """Scores of each token, in float64."""
        letters = [[letter] for letter in self.settings.letter_ids[: self.shown].tolist()]
        texts = {
            Of.ANSWER: [self.answer], Of.GOLD: [self.gold], Of.WRONG: self.wrong,
            Of.OPTIONS: letters if self.options is None else self.options,
            Of.SAMPLES: self.samples.get(signal.samples, ()),
        }[signal.of]  # fmt: skip
        flat = torch.as_tensor([int(token) for text in texts for token in text], dtype=torch.long)
        n = len(self.prompt)
        logits = [plain(self.lm, self.prompt, text)[0][n - 1 : n - 1 + len(text)] for text in texts]
        scores = torch.cat(logits).double().log_softmax(-1)
        ordered = scores.sort(dim=-1, descending=True)
        fields = {
            "log_probability": scores[torch.arange(len(flat)), flat],
            "entropy": -(scores.exp() * scores).sum(-1),
            "divergence": -scores.mean(-1) - np.log(scores.shape[-1]),
            "top_ids": ordered.indices[:, : signal.top],
            "top_log_probabilities": ordered.values[:, : signal.top],
        }
        return {name: fields[name] for name in signal.dtype.names or ()}


def assert_close(found: Any, expected: Any, what: object) -> None:
    """A signal's value is the expected one, but for rounding."""
    if isinstance(expected, dict):
        assert set(found.dtype.names if isinstance(found, np.ndarray) else found) == set(expected), what
        for name, column in expected.items():
            assert_close(found[name], column, (what, name))
        return
    here = found if isinstance(found, torch.Tensor) else torch.as_tensor(np.array(found))
    there = torch.as_tensor(expected).double()
    torch.testing.assert_close(here.double(), there, equal_nan=True, **CLOSE, msg=lambda text: f"{what}: {text}")
