"""`make bench-real REAL=FILE.gguf`: speed on this processor with a real model, on MMLU's questions.

Reading choice questions ÷ bare passes over as many tokens, also behind reasoning traces; reading open answers ÷ prompts
at that rate and decoding in batches of 32; ten samples ÷ one greedy answer; peak memory beyond the weights; a training
step of LitCab ÷ AdamW alone; on some of the choice questions, times as many, lm-evaluation-harness ÷ our answers, and
LM-Polygraph ÷ all our signals. Each part is timed once, as it takes minutes, with nothing else running. For 1.5 billion
weights on two cores some 25 to 40 minutes without the tools, which take 45 more.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import DynamicCache

from bench import registry
from bench.api import Format, Of, Question, SampleAgreement, Signal, TokenIds
from bench.data.splits import TaskSplit
from bench.model import specs
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.memory import peak_memory_mb
from bench.progress import Silent
from bench.signals.definition import read_from_model
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.disk_cache import Store
from benchmarks.performance import sample
from benchmarks.performance.measure import Line, median, report, seconds_of
from benchmarks.performance.other_tools import (
    LM_EVAL,
    LM_POLYGRAPH,
    as_folder,
    environment,
    likeliest,
    texts,
    told_of,
    versions,
)
from methods.litcab import LitCab
from methods.litcab.networks import Objective, Targets, train_layer

BUDGET = 1024
SEQUENCES, CONTEXT, STEPS = 32, 256, 8
"""Of the bare decoding: sequences side by side, positions before each, and steps that are timed."""
CHOICE = ((57, 10), (4, 50))
"""Subjects, and questions of each."""
BESIDE, TOGETHER = 50, 4
"""Questions that the other tools get of them, at least, and how many at once: they keep all logits of a prompt."""
OPEN, SAMPLED = 57, 16
TRACED, TRACE = (8, 4), 320
"""Subjects of questions with a trace, questions of each, and a trace's most tokens."""
LITCAB, LETTERS = 32, 4
"""Questions of a training step, and letters of each."""


class Real:
    def __init__(self, file: Path) -> None:
        self.lm = LanguageModel(specs.resolve(str(file)), LoadOptions("cpu"))
        self.model: Any = self.lm.model
        assert self.lm.uses_packs  # checked once, before anything is timed
        self.weights = sum(p.numel() * p.itemsize for p in {id(p): p for p in self.model.parameters()}.values())

    def read(
        self, fmt: Format, chosen: list[Question], signals: frozenset[Signal], before: frozenset[Signal] | None = None
    ) -> tuple[float, int, SplitData]:
        """Seconds, tokens that the model read, and what was read; `before` is read and stored before that."""
        with sample.temporary() as folder:
            store = Store(folder)
            store.prepare()
            if before is not None:
                reader = Reader(self.lm, store, sample.PROTOCOL, BUDGET, Silent())
                reader.read(reader.open(TaskSplit("mmlu", "test"), sample.mmlu(fmt), chosen), before)
            reader = Reader(self.lm, store, sample.PROTOCOL, BUDGET, Silent())
            split_data = reader.open(TaskSplit("mmlu", "test"), sample.mmlu(fmt), chosen)
            self.lm.session.reset()
            start, found = self.lm.session.tokens, []
            seconds = seconds_of(lambda: found.append(reader.read(split_data, signals)))
        return seconds, self.lm.session.tokens - start, found[0]

    @torch.inference_mode()
    def bare_rate(self) -> float:
        """Tokens a second of passes of 1,024 tokens, without cache and output head."""
        ids = torch.arange(BUDGET)[None] % 1000 + 100
        return BUDGET / median(lambda: self.model.base_model(input_ids=ids, use_cache=False), 3, lambda: None)

    @torch.inference_mode()
    def decoding_rate(self) -> float:
        """Tokens a second of greedy decoding by transformers, 32 sequences at a time."""
        cache = DynamicCache(config=self.model.config)
        ids = torch.arange(SEQUENCES * CONTEXT).reshape(SEQUENCES, -1) % 1000
        self.model.base_model(input_ids=ids, past_key_values=cache, use_cache=True)

        def step() -> None:
            states = self.model.base_model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)[0]
            self.model.lm_head(states[:, -1]).argmax(dim=-1)

        return SEQUENCES / median(step, STEPS, lambda: None)

    @cache  # noqa: B019 - there is one
    def choice_reading(self, subjects: int, each: int, signals: frozenset[Signal]) -> tuple[float, int, int, list[str]]:
        """Seconds, tokens read, tokens given, and the answers."""
        chosen = sample.questions(Format.CHOICE, subjects, each)
        seconds, tokens, split_data = self.read(Format.CHOICE, chosen, signals)
        given = sum(len(prompt) for prompt, _ in split_data.pairs())
        decode = self.lm.chat.tokenizer.decode
        return seconds, tokens, given, [decode(answer).strip() for _, answer in split_data.pairs()]

    def choice(self) -> Iterator[Line]:
        rate = self.bare_rate()
        yield Line("bare passes of 1,024 tokens, tokens a second", rate)
        for subjects, each in CHOICE:
            signals = sample.frozen_signals(Format.CHOICE)
            seconds, tokens, given, _ = self.choice_reading(subjects, each, signals)
            note = f"{seconds:.1f} s, {tokens:,} tokens read, {given:,} given, ratio {given / tokens:.1f}"
            name = f"choice reading ÷ bare passes, {subjects} x {each}"
            yield Line(name, seconds / (tokens / rate), "<= 1.15", note)

    def tools(self) -> Iterator[Line]:
        """lm-evaluation-harness ÷ our answers, LM-Polygraph for P(True) and token entropy ÷ all our signals."""
        for requirement in (LM_EVAL, LM_POLYGRAPH):
            environment(requirement)  # made before anything is timed
        with as_folder(self.lm) as folder:
            for subjects, each in CHOICE:
                chosen = sample.questions(Format.CHOICE, subjects, each)
                prompts, every = texts(chosen, self.lm.chat), len(chosen) // BESIDE
                answering, tokens, given, answers = self.choice_reading(subjects, each, frozenset())
                reading, *_ = self.choice_reading(subjects, each, sample.frozen_signals(Format.CHOICE))
                for requirement, tool, ours, seconds, more in (
                    (LM_EVAL, "lm_eval", "our answers", answering, 1.1),
                    (LM_POLYGRAPH, "lm_polygraph", "all our signals", reading, 1.5),
                ):
                    told = told_of(requirement, tool, folder, prompts[::every], "abcd", self.lm.dtype_name, TOGETHER)
                    theirs = told["seconds"] * len(prompts) / len(prompts[::every])
                    note = (
                        f"{theirs:.0f} s ÷ {seconds:.0f} s; every {every}th question, times {every}, "
                        f"{TOGETHER} at once; {versions(told)}"
                    )
                    if tool == "lm_eval":
                        # ours is the likeliest token of all, theirs the likeliest letter
                        both = zip(likeliest(told["found"]), answers[::every], strict=True)
                        pairs = [(a, b) for a, b in both if b in set("abcd")]
                        same, others = sum(a == b for a, b in pairs), len(prompts[::every]) - len(pairs)
                        note += f"; letters equal in {same} of {len(pairs)}; {others} answers of ours are no letter"
                    name = f"{tool} ÷ {ours}, {subjects} x {each}"
                    yield Line(name, theirs / seconds, f">= {more * given / tokens:.1f}", note)

    def open(self) -> Iterator[Line]:
        rate, decoding = self.bare_rate(), self.decoding_rate()
        yield Line("decoding 32 sequences, tokens a second", decoding)
        chosen = sample.questions(Format.OPEN, OPEN, 1)
        greedy = sample.frozen_signals(Format.OPEN) - {SampleAgreement()}
        seconds, tokens, split_data = self.read(Format.OPEN, chosen, greedy)
        written = sum(len(answer) for _, answer in split_data.pairs())
        ideal = (tokens - written) / rate + (written + len(chosen)) / decoding
        note = f"{seconds:.1f} s ÷ {ideal:.1f} s; {tokens - written:,} tokens read, {written:,} written"
        yield Line(f"open reading ÷ ideal, {OPEN} answers", seconds / ideal, "<= 1.4", note)
        alone, _, _ = self.read(Format.OPEN, chosen[:SAMPLED], frozenset())
        sampled, _, _ = self.read(Format.OPEN, chosen[:SAMPLED], frozenset({SampleAgreement()}))
        note = f"{sampled:.1f} s ÷ {alone:.1f} s for {SAMPLED} questions, prompts read in both"
        yield Line("answer and ten samples ÷ answer", sampled / alone, "<= 3", note)

    def traces(self) -> Iterator[Line]:
        """Letters behind traces, which are generated and stored before: for all methods that generate nothing."""
        rate, signals = self.bare_rate(), sample.frozen_signals(Format.CHOICE) - {SampleAgreement()}
        for name in ("deepconf-mean", "trace-length", "trace-probe"):
            signals |= read_from_model(registry.methods().get(name).needs.predict)
        chosen = sample.questions(Format.CHOICE, *TRACED)
        self.lm.chat.think(TRACE, self.lm.context)
        try:
            seconds, tokens, _ = self.read(Format.CHOICE, chosen, signals, frozenset({TokenIds(Of.TRACE)}))
        finally:
            self.lm.chat.thinking = None
        note = f"{seconds:.1f} s, {tokens:,} tokens read"
        yield Line(f"reading traces ÷ bare passes, {len(chosen)} questions", seconds / (tokens / rate), "<= 1.3", note)

    def memory(self) -> Iterator[Line]:
        beyond = peak_memory_mb("cpu") * 2**20 - self.weights
        yield Line("peak memory beyond the weights, GB", beyond / 1e9, "<= 1.6", f"weights {self.weights / 1e9:.2f} GB")

    def litcab(self) -> Iterator[Line]:
        head, rng = self.lm.head, np.random.default_rng(0)
        shape, token = tuple(head.weight.shape), np.arange(LITCAB * LETTERS)
        states = torch.tensor(rng.normal(size=(LITCAB, shape[1]))).to(self.lm.dtype).float().numpy()
        letters = Targets(states, token // LETTERS, rng.integers(0, shape[0], len(token)))
        method = LitCab()
        objective = Objective(method.cap, method.penalty, method.relu_input)
        rates = {"learning_rate": method.learning_rate, "weight_decay": method.weight_decay}

        def train(steps: int) -> None:
            train_layer(head, [(letters, token % LETTERS > 0)] * steps, objective, lambda _: None, **rates)

        step = (seconds_of(lambda: train(5)) - seconds_of(lambda: train(1))) / 4
        weight = torch.zeros(shape)
        weight.grad = torch.full(shape, 1e-3)  # written, since untouched pages of zeros are read from the cache
        alone = median(torch.optim.AdamW([weight], fused=True).step, 3, lambda: None)
        note = f"{step:.2f} s ÷ {alone:.2f} s, {LITCAB} questions a step, V = {shape[0]:,}, d = {shape[1]:,}"
        yield Line("LitCab's step ÷ AdamW alone", step / alone, "<= 1.5", note)


PARTS: dict[str, Callable[[Real], Iterator[Line]]] = {
    "choice": Real.choice, "open": Real.open, "traces": Real.traces, "memory": Real.memory, "litcab": Real.litcab,
    "tools": Real.tools,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.performance.real", description=__doc__)
    parser.add_argument("file", type=Path, help="a GGUF file, such as qwen2.5-coder-1.5b-instruct-q4_k_m.gguf")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS])
    options = parser.parse_args()
    real = Real(options.file)
    dtype, load = real.lm.dtype_name, os.getloadavg()[0]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {dtype}, load {load:.1f}", flush=True)
    start = time.perf_counter()
    report((line for name in options.only for line in PARTS[name](real)), None)
    print(f"  {time.perf_counter() - start:.0f} s, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
