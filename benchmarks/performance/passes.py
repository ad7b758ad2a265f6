"""Forward passes: tokens against the least possible, wall time against the bare passes, and against one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch

from bench.api import Format
from bench.model.decode_batch import DecodeBatch
from bench.prompts import templates
from bench.results.row import ResultRow
from bench.run.config import RunConfig
from bench.run.pipeline import run
from bench.signals.split_data import SplitData
from benchmarks.performance import sample
from benchmarks.performance.measure import Line, NotMeasured, interleaved

TASKS = ("atlas-choice", "atlas-oe", "mmlu-choice", "mmlu-pro-choice", "medmcqa-choice")
LIMIT = 500
"""Test questions of a task that isn't the embedded model's own; those are read whole."""
FEWER = ("it.steps=4", "ct.steps=4", "litcab.steps=20")
"""Training steps don't change which tokens are read before and after; of adapter training only the amount."""
WALL_QUESTIONS = (3, 50)
"""Subjects, and questions of each, for the wall time."""


def tokens(_repeats: int) -> Iterator[Line]:
    """`--method all`: tokens read ÷ least possible, and padded ÷ read, the worst of its stages for each task."""
    for task in TASKS:
        try:
            yield from _ratios(task, _rows(task))
        except NotMeasured as reason:
            yield Line(f"tokens, {task}", None, "<= 1.03", str(reason))


def _rows(task: str) -> list[ResultRow]:
    embedded = task.startswith("atlas-")
    others: dict[str, Any] = {"train_on": "atlas-choice", "limit": LIMIT}
    own = {} if embedded else others | {"data_dir": sample.data_folder()}
    with sample.temporary() as folder:
        out, cache = folder / "results", folder / "cache"
        config = RunConfig(("all",), "tiny", (task,), overrides=FEWER, device="cpu", out=out, cache=cache, **own)
        rows = run(config).rows
    if failed := [f"{row.method}: {row.reason}" for row in rows if row.status == "failed"]:
        raise NotMeasured(f"failed {failed[0]}")
    return rows


def _ratios(task: str, rows: Sequence[ResultRow]) -> Iterator[Line]:
    stages: dict[str, tuple[float, float, int]] = {}
    for row in rows:
        for stage, cost in row.cost.items():
            if cost.forward_tokens and cost.forward_tokens_floor:
                found = (cost.forward_tokens / cost.forward_tokens_floor, cost.padded_tokens / cost.forward_tokens)
                stages[stage] = max(stages.get(stage, (0.0, 0.0, 0)), (*found, cost.forward_tokens))
    each = ", ".join(f"{stage} {ratio:.3f} of {tokens:,}" for stage, (ratio, _, tokens) in stages.items())
    yield Line(f"tokens read ÷ floor, {task}", max(r for r, _, _ in stages.values()), "<= 1.03", each)
    yield Line(f"padded ÷ read, {task}", max(p for _, p, _ in stages.values()), "<= 1.15", "the worst stage")


def wall_time(repeats: int) -> Iterator[Line]:
    """Reading all signals of the frozen model ÷ a bare loop over the very same forward passes."""
    for fmt in Format:
        chosen = sample.questions(fmt, *WALL_QUESTIONS)
        ours = partial(sample.read, fmt, chosen, sample.frozen_signals(fmt))
        tape = _Tape()
        with tape.recording():
            ours()
        wall, bare = interleaved([ours, tape.play], repeats)
        passes = f"{tape.tokens:,} tokens in {len(tape.passes)} passes"
        note = f"{wall:.2f} s ÷ {bare:.2f} s; {len(chosen)} MMLU questions, {passes}"
        yield Line(f"backbone stage ÷ bare loop, {fmt.value}", wall / bare, "<= 1.25", note)


class _Tape:
    """The forward passes of `tiny`: recorded once, then run again without anything around them.

    A pass has the output head at the positions from which a next token is chosen, and at no others, as in decoding.
    """

    def __init__(self) -> None:
        self.session, self.head = sample.tiny().session, sample.tiny().head
        self.passes: list[tuple[int, dict[str, Any], list[int]]] = []
        """The cache's length at the start, inputs, and how many rows of logits were taken afterwards, call by call."""
        self.tokens = 0

    @contextmanager
    def recording(self) -> Iterator[None]:
        original, logits_of = self.session.forward, DecodeBatch.logits

        def logits(done: DecodeBatch, nodes: Sequence[int]) -> torch.Tensor:
            self.passes[-1][2].append(len(nodes))
            return logits_of(done, nodes)

        def forward(ids: Any, positions: Any, visible: Any, read: Any) -> Any:
            places = torch.as_tensor(positions, dtype=torch.long)
            inputs = {
                "input_ids": torch.as_tensor(ids, dtype=torch.long)[None],
                "position_ids": places[None],
                "attention_mask": self.session.mask(visible(), places),
            }
            self.passes.append((self.session.row.length, inputs, []))
            self.tokens += len(ids)
            return original(ids, positions, visible, read)

        with mock.patch.object(self.session, "forward", forward), mock.patch.object(DecodeBatch, "logits", logits):
            yield

    @torch.inference_mode()
    def play(self) -> None:
        """All passes again; what stands in the cache does not matter for the time."""
        for length, inputs, chosen in self.passes:
            row = self.session.row
            for layer in row.layers:
                layer.length = length
            states = self.session.model.base_model(**inputs, past_key_values=row.cache, use_cache=True)[0][0]
            for rows in chosen:
                self.head.logits(states[torch.arange(rows) % len(states)]).argmax(dim=-1)


QUESTIONS = 100
"""All of MMLU's first subject."""
SAMPLES = 10
READS = ("ptrue", "lts", "pik", "saplma-f", "saplma-m", "saplma-um", "litcab", "ccps")
"""Methods that read once more; the first two ask the self-check query."""
ASKING = {"ptrue", "lts"}


def one_by_one(repeats: int) -> Iterator[Line]:
    """Each method with passes of its own, one question at a time, no shared prefix, as official scripts do; and ours.

    The slow side answers once and then reads, for each method that leaves the model as it is, prompt and answer again
    with plain transformers calls. Methods that train the model are left out on both sides; so is all that isn't a pass.
    """
    for fmt, target in ((Format.CHOICE, ">= 10"), (Format.OPEN, ">= 20")):
        chosen = sample.questions(fmt, 1, QUESTIONS)
        quick = partial(sample.read, fmt, chosen, sample.frozen_signals(fmt))
        slow = _OneByOne(quick(), fmt)
        slow.check()
        times = interleaved([slow.run, quick], min(2, repeats), warm_up=False)  # both ran above
        note = f"{times[0]:.1f} s ÷ {times[1]:.2f} s; {len(chosen)} five-shot MMLU questions of one subject, tiny"
        yield Line(f"one at a time ÷ ours, {fmt.value}", times[0] / times[1], target, note)


class _OneByOne:
    def __init__(self, split_data: SplitData, fmt: Format) -> None:
        self.model: Any = sample.tiny().model
        self.prompts = [torch.as_tensor(ids, dtype=torch.long)[None] for ids, _ in split_data.pairs()]
        self.expected = [ids.tolist() for _, ids in split_data.pairs()]
        self.stops = sorted(sample.tiny().stops)
        protocol = sample.PROTOCOL
        self.length = protocol.max_new_tokens_choice if fmt is Format.CHOICE else protocol.max_new_tokens_open
        prompt = templates.build(split_data.questions[0], [], sample.mmlu(fmt).style, fmt, protocol)
        self.suffix = torch.as_tensor(sample.tiny().chat.query(prompt, protocol).ids, dtype=torch.long)[None]

    def check(self) -> None:
        for prompt, expected in list(zip(self.prompts, self.expected, strict=True))[:8]:
            said = self._answer(prompt)[0].tolist()
            assert said == expected, f"one side says {said}, the other {expected}"

    @torch.inference_mode()
    def run(self) -> None:
        for prompt in self.prompts:
            answer = self._answer(prompt)
            self._generate(prompt, do_sample=True, num_return_sequences=SAMPLES, temperature=1.0, top_k=0, top_p=1.0)
            for name in READS:
                parts = [prompt, answer, self.suffix] if name in ASKING else [prompt, answer]
                whole = prompt if name == "pik" else torch.cat(parts, dim=1)
                self.model(input_ids=whole, output_hidden_states=name not in ASKING, use_cache=False)

    def _answer(self, prompt: torch.Tensor) -> torch.Tensor:
        ids = self._generate(prompt, do_sample=False)[0, prompt.shape[1] :]
        return torch.tensor([[i for i in ids.tolist() if i not in self.stops]], dtype=torch.long)

    def _generate(self, prompt: torch.Tensor, **how: Any) -> torch.Tensor:
        ends = {"pad_token_id": self.stops[0], "eos_token_id": self.stops, "max_new_tokens": self.length}
        ids: torch.Tensor = self.model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), **ends, **how)
        return ids
