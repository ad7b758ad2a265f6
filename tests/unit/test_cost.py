"""The floor of a run is the number of distinct prefixes that its signals need, and what was fed never goes below it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from bench.api import At, ChoiceLogits, Format, Hidden, PromptStyle, QueryLogits, Signal, Task, TaskCard
from bench.backbone.hf import Backbone, LoadOptions
from bench.cost import costs_of, floor_of, peak_memory_mb
from bench.models import ModelSpec
from bench.plan import Where
from bench.progress import Silent
from bench.protocol import FIXED
from bench.reading import Reader, Reading
from bench.records import Question, Split
from bench.store import Store

TOKENIZER = Path(__file__).parents[2] / "bench" / "backbone" / "tiny"
NAMES = ["Tove", "Kiru", "Bamo", "Lun", "Vesk", "Orro", "Dalm", "Pirr"]


class Rivers(Task):
    """Questions of two subjects that share exemplars, options and beginnings."""

    name = "rivers"
    format = Format.CHOICE
    card: ClassVar = TaskCard(
        license="MIT", version=1, splits={"test": "test", "dev": "dev"}, sizes={"test": 14, "dev": 4}, options=(2, 4),
        why="none",
    )  # fmt: skip
    style = PromptStyle(header="About {label}.", footer="Next.", context="{text}\n{options}")

    def questions(self, split: Split) -> Iterator[Question]:
        count = 2 if split == "dev" else 7
        for subject in ("rivers", "hills"):
            for i in range(count):
                choices = tuple(NAMES[(i + j) % len(NAMES)] for j in range(2 + i % 3))
                text = f"Where does {NAMES[(i // 2) % len(NAMES)]} end"  # two questions of one text: longer sharing
                yield Question(f"{split}/{subject}/{i}", subject, text, choices, i % len(choices))


class OpenRivers(Rivers):
    """The same, asked openly."""

    name = "rivers-oe"
    format = Format.OPEN


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    made = tmp_path_factory.mktemp("small")
    config = LlamaConfig(
        vocab_size=8192, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=4096, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(made)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(TOKENIZER / name, made / name)
    return made


def read(folder: Path, cache: Path, task: type[Task], signals: set[Signal]) -> tuple[Reader, Reading]:
    backbone = Backbone(ModelSpec("small", str(folder), local=True), LoadOptions(device="cpu"))
    store = Store(cache)
    store.prepare()
    reader = Reader(backbone, store, replace(FIXED, max_new_tokens_open=4), 96, Silent())
    made = task(None)  # type: ignore[arg-type]
    reading = reader.open(Where(task.name, "test"), made, list(made.questions("test")))
    reader.read(reading, frozenset(signals))
    return reader, reading


def prefixes(sequences: list[list[int]]) -> set[tuple[int, ...]]:
    return {tuple(ids[:n]) for ids in sequences for n in range(1, len(ids) + 1)}


def brute_force(reader: Reader, reading: Reading, *, to_answer_end: bool, query: bool) -> dict[str, int]:
    """Every prefix as a tuple in a set."""
    limit = 1 if reading.task.format is Format.CHOICE else 4
    suffix = reader.asking(reading).suffix.tolist() if query else []
    generated, queried = [], []
    for prompt, answer in reading.pairs():
        read_back = len(answer) - 1 if len(answer) == limit else len(answer)
        generated.append([*prompt.tolist(), *answer.tolist()[:read_back]])
        if len(answer):
            kept = len(answer) if query or to_answer_end else len(answer) - 1
            queried.append([*prompt.tolist(), *answer.tolist()[:kept], *suffix])
    first = prefixes(generated)
    return {"answers": len(first), "query": len(prefixes(queried) - first)}


CASES: dict[str, set[Signal]] = {
    "query": {QueryLogits()},
    "prompt end": {Hidden(1.0, At.PROMPT_END), ChoiceLogits()},
    "answer predicting": {Hidden(1.0, At.ANSWER_PREDICTING)},
    "answer end": {Hidden(1.0, At.ANSWER_END)},
    "all": {QueryLogits(), Hidden(1.0, At.ANSWER_PREDICTING), Hidden(1.0, At.ANSWER_END), ChoiceLogits()},
}


@pytest.mark.parametrize("task", [Rivers, OpenRivers], ids=lambda t: t.name)
@pytest.mark.parametrize("case", CASES)
def test_the_floor_is_the_number_of_distinct_prefixes(
    folder: Path, tmp_path: Path, task: type[Task], case: str
) -> None:
    signals = CASES[case]
    if task is OpenRivers:
        signals = signals - {ChoiceLogits()}
    reader, reading = read(folder, tmp_path, task, signals)
    query = QueryLogits() in signals
    expected = brute_force(reader, reading, to_answer_end=Hidden(1.0, At.ANSWER_END) in signals, query=query)
    nothing_else = {"continuations": 0, "samples": 0, "adapter_predictions": 0}
    assert floor_of([reading], reader) == {**expected, **nothing_else}
    assert floor_of([reading, reading], reader) == {**expected, **nothing_else}  # counted once
    costs = costs_of([reading], reader)
    floors = {stage: cost.forward_tokens_floor for stage, cost in costs.items()}
    assert {**nothing_else, "query": 0, **floors} == {**expected, **nothing_else}
    for stage, cost in costs.items():
        assert cost.padded_tokens >= cost.forward_tokens >= expected[stage]
    assert sum(cost.forward_tokens for cost in costs.values()) == reader.forward_tokens


def test_stored_readings_tell_what_they_once_cost(folder: Path, tmp_path: Path) -> None:
    reader, reading = read(folder, tmp_path, Rivers, CASES["query"])
    again, stored = read(folder, tmp_path, Rivers, CASES["query"])
    assert (reader.forward_tokens > 0, again.forward_tokens) == (True, 0)
    assert costs_of([stored], again) == costs_of([reading], reader)


def test_peak_memory_is_this_process(tmp_path: Path) -> None:
    before = peak_memory_mb("cpu")
    ballast = np.ones(60 * 2**20, dtype=np.uint8)
    assert 20 < before <= peak_memory_mb("cpu") < 1e5
    assert ballast.nbytes / 2**20 < peak_memory_mb("cpu")
