"""Stages of the comparison on a real device, each by one of its mean packs or steps, beside the committed cost model.

The model is random: it ends an answer as often as the right answers are long, and its samples agree as often as the
cost model assumes, since its head is scaled so. Times of a stage are those of one pack, or step, times their number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from bench.api import Format, OutputHead
from bench.model.adapter import with_lora
from bench.model.continuation_tree import read_pack
from bench.model.devices import ALONE, default_batch_limits
from bench.model.language_model import LanguageModel
from bench.model.linear_layers import target_paths
from bench.model.prefix_tree import plan_packs
from bench.prompts.prompt_settings import PromptSettings
from bench.signals.definition import pass_definitions
from benchmarks.cost_model import stages
from benchmarks.cost_model.dry import AGREEING, DECODE, Counter
from benchmarks.cost_model.dry_model import DryExtractor, DrySession
from benchmarks.cost_model.workload import Workload, items
from benchmarks.performance.measure import Line, median

FACTOR = 1.5
"""By how much a stage may take longer or shorter than the cost model says."""
REPEATS = 3


class LoadedModel(LanguageModel):
    """A random model on a device, as far as the extractor and training ask for one."""

    def __init__(self, model: Any, device: str) -> None:
        self.config, self.devices, self.context = model.config, (device,), 1 << 30
        self.blocks = int(model.config.get_text_config().num_hidden_layers)
        self.counter = Counter()
        session = DrySession(model, self.counter)
        vars(self).update(model=model, dtype=model.dtype, no_packs_reason=None, stops=frozenset(), session=session)
        weight = model.get_output_embeddings().weight.detach()
        vars(self)["head"] = OutputHead(weight, scale=_scale(weight))

    def answer_length(self, mean: float) -> None:
        """End answers after so many tokens, on average: that share of the vocabulary ends them."""
        words = len(self.head.weight)
        chosen = np.random.default_rng(0).permutation(words)[: max(1, round(words / (mean + 1)))]
        vars(self)["stops"] = frozenset(chosen.tolist())


def _scale(weight: torch.Tensor) -> float:
    """Factor of the logits with which the likeliest token has the probability that samples agree."""
    states = torch.randn(64, weight.shape[1], device=weight.device).to(weight.dtype)
    logits = OutputHead(weight).logits(states)
    low, high = 0.0, 1e4
    for _ in range(40):
        middle = (low + high) / 2
        sure = float((logits * middle).softmax(dim=-1).amax(dim=-1).mean())
        low, high = (middle, high) if sure < AGREEING else (low, middle)
    return high


class Timed(DryExtractor):
    decoding: float = 0.0

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        waiting(self.lm.device)
        start = time.perf_counter()
        with super()._decoding():
            yield
        waiting(self.lm.device)
        self.decoding += time.perf_counter() - start


@dataclass
class Stages:
    loaded: LoadedModel
    works: Mapping[str, Workload]
    budget: int
    """Tokens of a pass; figures and workloads know it."""
    seconds: dict[str, float] = field(default_factory=dict)

    def lines(self, figures: Mapping[str, Any]) -> Iterator[Line]:
        """Each stage beside what the cost model says of it: stage -> budget -> record."""
        for name, work in self.works.items():
            yield from self._read(f"read {name}", work, learning="ct-" in name)
        for name in ("IT", "CT"):
            for fmt, task in (("choice", "ct-local-choice"), ("open", "ct-local-oe")):
                self._train(f"train {name}, {fmt}", name, self.works[task])
        for name, seconds in self.seconds.items():
            computed = figures[name][str(self.budget)]["seconds"]
            outside = "" if 1 / FACTOR <= seconds / computed <= FACTOR else f", OUTSIDE a factor of {FACTOR}"
            note = f"{seconds:,.0f} s ÷ {computed:,.0f} s{outside}"
            yield Line(f"measured ÷ cost model, {name}", seconds / computed, "", note)

    def _read(self, stage: str, work: Workload, *, learning: bool) -> Iterator[Line]:
        loaded, packs = self.loaded, work.packs[str(self.budget)]
        fmt = Format.OPEN if work.open else Format.CHOICE
        loaded.answer_length(float(np.mean(work.answers)) if work.open else np.inf)
        measures = pass_definitions(stages.signals_of(fmt, learning=learning))
        drawn = stages.SAMPLES if any(measure.continuations.samples for measure in measures.values()) else 0
        words = len(loaded.head.weight)
        alone = default_batch_limits(*loaded.devices, dtype=loaded.dtype) == ALONE
        beside = 1 if alone else stages.packs_together("llama8b", work, self.budget)
        each = [items(work, pack, self.budget, samples=drawn, vocabulary=min(1000, words)) for pack in range(beside)]
        chosen = [item for pack in each for item in pack]
        letters = np.arange(2, 2 + (0 if work.open else work.options), dtype=np.int32)
        suffix = np.arange(10, 10 + work.query, dtype=np.int32)
        limit = stages.LONGEST if work.open else 1
        asking = PromptSettings(limit, letters, suffix, np.asarray([5, 6], dtype=np.int32), self.budget)
        extractor = Timed(loaded, asking, measures, None)
        again = self._median(lambda: extractor.extract(chosen))
        extractor.decoding, before = 0.0, len(loaded.counter.trace.kinds)
        extractor.extract(chosen)
        number, read = work.questions / packs.questions, max(1, packs.before)
        beginning = self._beginning(each[0])
        fresh = beside if beside > 1 else 0  # a single pack finds its beginning in the row when it is read again
        self.seconds[stage] = number * ((again - fresh * beginning) / beside + beginning * packs.pieces / read)
        if work.open:
            trace = loaded.counter.trace
            said = [n for kind, n in zip(trace.kinds[before:], trace.tokens[before:], strict=True) if kind == DECODE]
            note = f"{np.mean(said):,.0f} live sequences a step, {len(said)} steps, budget {self.budget:,}"
            yield Line(f"decoding, tokens a second, {stage}", sum(said) / extractor.decoding, "", note)

    def _beginning(self, chosen: Any) -> float:
        pack, session = plan_packs([item.prompt for item in chosen], self.budget)[0], self.loaded.session

        def read(*, anew: bool) -> None:
            if anew:
                session.reset()
            read_pack(session, pack, self.budget, [self.loaded.blocks])

        return max(0.0, self._median(lambda: read(anew=True)) - self._median(lambda: read(anew=False)))

    def _train(self, stage: str, name: str, work: Workload) -> None:
        loaded = self.loaded
        with torch.device(loaded.device):
            wrapped = with_lora(loaded.model, target_paths(loaded.layers), rank=stages.RANK)
        try:
            step = stages.training_step(loaded, wrapped, name, work, Counter())
            self.seconds[stage] = stages.STEPS * self._median(step)
        finally:
            wrapped.unload()

    def _median(self, work: Any) -> float:
        return median(work, REPEATS, partial(waiting, self.loaded.device))


def waiting(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
