"""Tokens that a run reads against the least possible, and its wall time against the bare forward passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from bench import registry
from bench.api import Format
from bench.model.decode_batch import DecodeBatch
from bench.results.row import ResultRow
from bench.run.config import RunConfig
from bench.run.pipeline import run
from tests.performance import sample
from tests.performance.measure import Line, NotMeasured, Options, interleaved

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel

TASKS = ("atlas-choice", "atlas-oe", "mmlu-choice", "mmlu-pro-choice", "medmcqa-choice")
LIMIT = 500
"""Test questions of a task that isn't the embedded model's own; those are read whole."""
FEWER = ("it.steps=4", "ct.steps=4", "litcab.steps=20")
"""Training steps don't change which tokens are read before and after; of adapter training only the amount."""
WALL_QUESTIONS = (3, 50)
"""Subjects, and questions of each, for the wall time."""


def lines(_options: Options) -> Iterator[Line]:
    """`--method all`: tokens read ÷ least possible, and padded ÷ read, the worst of its stages for each task."""
    for task in TASKS:
        if task not in registry.tasks().names():
            yield Line(f"tokens, {task}", None, "<= 1.03", "there is no such task")
            continue
        try:
            rows = _rows(task)
        except NotMeasured as reason:
            yield Line(f"tokens, {task}", None, "<= 1.03", str(reason))
            continue
        yield from _ratios(task, rows)


def _rows(task: str) -> list[ResultRow]:
    embedded = task.startswith("atlas-")
    with sample.temporary() as folder:
        config = RunConfig(
            methods=("all",),
            model="tiny",
            tasks=(task,),
            train_on=None if embedded else "atlas-choice",
            limit=None if embedded else LIMIT,
            overrides=FEWER,
            data_dir=None if embedded else sample.data_folder(),
            device="cpu",
            out=folder / "results",
            cache=folder / "cache",
        )
        return run(config).rows


def _ratios(task: str, rows: Sequence[ResultRow]) -> Iterator[Line]:
    failed = [f"{row.method}: {row.reason}" for row in rows if row.status == "failed"]
    if failed:
        yield Line(f"tokens, {task}", None, "<= 1.03", f"failed {failed[0]}")
        return
    stages: dict[str, tuple[float, float, int]] = {}
    for row in rows:
        for stage, cost in row.cost.items():
            if cost.forward_tokens and cost.forward_tokens_floor:
                found = (cost.forward_tokens / cost.forward_tokens_floor, cost.padded_tokens / cost.forward_tokens)
                stages[stage] = max(stages.get(stage, (0.0, 0.0, 0)), (*found, cost.forward_tokens))
    each = ", ".join(f"{stage} {ratio:.3f} of {tokens:,}" for stage, (ratio, _, tokens) in stages.items())
    yield Line(f"tokens read ÷ floor, {task}", max(r for r, _, _ in stages.values()), "<= 1.03", each)
    yield Line(f"padded ÷ read, {task}", max(p for _, p, _ in stages.values()), "<= 1.15", "the worst stage")


# --- wall time --------------------------------------------------------------------------------------------------------


def lines_of_wall_time(options: Options) -> Iterator[Line]:
    """Reading all signals of the frozen model ÷ a bare loop over the very same forward passes."""
    for fmt in Format:
        chosen = sample.questions(fmt, *WALL_QUESTIONS)
        signals = sample.frozen_signals(fmt)
        tape = _Tape(sample.tiny())
        with tape.recording():
            sample.read(fmt, chosen, signals)

        def ours(fmt: Format = fmt, chosen: Any = chosen, signals: Any = signals) -> None:
            sample.read(fmt, chosen, signals)

        wall, bare = interleaved([ours, tape.play], options.repeats)
        note = (
            f"{wall:.2f} s ÷ {bare:.2f} s; {len(chosen)} MMLU questions, {tape.tokens:,} tokens in {len(tape)} passes"
        )
        yield Line(f"backbone stage ÷ bare loop, {fmt.value}", wall / bare, "<= 1.25", note)


class _Tape:
    """The forward passes of a model: recorded once, then run again without anything around them.

    A pass has the output head at the positions from which a next token is chosen, and at no others, as in decoding.
    """

    def __init__(self, lm: LanguageModel) -> None:
        self.session, self.head = lm.session, lm.head
        self.passes: list[tuple[int, dict[str, Any]]] = []
        self.chosen: list[list[int]] = []
        """After each pass, how many rows of logits were taken, call by call."""
        self.tokens = 0

    def __len__(self) -> int:
        return len(self.passes)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within, every pass is written down with the cache's length at its start."""
        original, logits_of = self.session.forward, DecodeBatch.logits

        def logits(done: DecodeBatch, nodes: Sequence[int]) -> torch.Tensor:
            self.chosen[-1].append(len(nodes))
            return logits_of(done, nodes)

        def forward(ids: Any, positions: Any, visible: Any, read: Any) -> Any:
            places = torch.as_tensor(positions, dtype=torch.long)
            inputs = {
                "input_ids": torch.as_tensor(ids, dtype=torch.long)[None],
                "position_ids": places[None],
                "attention_mask": self.session.mask(visible(), places),
            }
            self.passes.append((self.session.length, inputs))
            self.chosen.append([])
            self.tokens += len(ids)
            return original(ids, positions, visible, read)

        self.session.forward = forward  # type: ignore[method-assign]
        DecodeBatch.logits = logits  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            del self.session.forward
            DecodeBatch.logits = logits_of  # type: ignore[method-assign]

    @torch.inference_mode()
    def play(self) -> None:
        """All passes again; what stands in the cache does not matter for the time."""
        for (length, inputs), chosen in zip(self.passes, self.chosen, strict=True):
            row = self.session._current
            for layer in row.layers:
                layer.length = length
            states = self.session.model.base_model(**inputs, past_key_values=row.cache, use_cache=True)[0][0]
            for rows in chosen:
                self.head.logits(states[torch.arange(rows) % len(states)]).argmax(dim=-1)
