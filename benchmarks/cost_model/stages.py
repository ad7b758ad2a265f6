"""The stages of the comparison, each measured on a dry model by the code that runs it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from bench import registry
from bench.api import Adapter, ConfidenceMethod, Context, Format, OutputHead, QueryLogits, Ragged, Signal
from bench.model import training_memory
from bench.model.adapter import with_lora
from bench.model.continuation_tree import read_pack
from bench.model.language_model import LanguageModel
from bench.model.linear_layers import find_linear_layers, target_paths
from bench.model.prefix_tree import plan_packs
from bench.model.session import checkpoint_blocks
from bench.prompts.prompt_settings import PromptSettings
from bench.signals.definition import definition, pass_definitions, read_from_model, required_stored_signals
from bench.testing import planted
from bench.training.job import Job
from bench.training.model import ReadableModel, group_sequences
from benchmarks.cost_model import dry_model
from benchmarks.cost_model.arithmetic import Ideal, Machine
from benchmarks.cost_model.dry import DECODE, OTHER, PREFILL, SHARED, Counter, Section, Trace, counted
from benchmarks.cost_model.dry_model import DTYPE, LONGER, SHORT, DryExtractor, DryModel, configurations
from benchmarks.cost_model.workload import Workload, items, workloads
from methods._shared.lora import ct_loss, it_loss
from methods.ccps.features import perturbation_features
from methods.litcab.networks import Layer, Objective, Targets, write_gradient

MACHINE = Machine()
SAMPLES, LONGEST = 10, 30
"""Of self-consistency; tokens of an open answer at most."""
SHARD = 512
"""Questions at most."""
STEPS, BATCH, TRAINING_TOKENS, RANK = 10_000, 32, 2048, 8
"""Of every training in preset `paper`; tokens of a pass of training."""
OPTIMISER_LAUNCHES = 6
"""Of a step, for each tensor of an adapter: DeepSpeed's product, sum and their derivatives, and its flat copies."""
ADAMW_BYTES = 28
"""Of a fused step of AdamW, for each weight: weight, gradient and two moments are read, three are written."""


@dataclass
class Stage:
    """What one stage does altogether."""

    passes: float
    tokens: float
    """Fed in these."""
    total: Section
    seconds: float
    ideal: float
    """Seconds at best."""

    @classmethod
    def of(cls, trace: Trace, times: float, ideal: float) -> Stage:
        """The work of a trace, so many times."""
        total, passes = Section(), sum(tokens > 0 for tokens in trace.tokens)
        for one in trace.sections:
            total = total.plus(one, times)
        return cls(times * passes, times * sum(trace.tokens), total, times * MACHINE.seconds(trace.sections), ideal)

    def plus(self, other: Stage, times: float = 1.0) -> Stage:
        names = ("passes", "tokens", "seconds", "ideal")
        sums = {name: getattr(self, name) + times * getattr(other, name) for name in names}
        return Stage(total=self.total.plus(other.total, times), **sums)

    def record(self) -> dict[str, float]:
        """Rounded to three or four digits, for the file of figures."""
        values = {
            "passes": self.passes, "tokens": self.tokens, "launches": self.total.launches,
            "TFLOP": (self.total.flops + self.total.flops32) / 1e12, "GB": self.total.bytes / 1e9,
            "down": self.total.down, "up": self.total.up, "seconds": self.seconds, "ideal": self.ideal,
        }  # fmt: skip
        return {name: float(f"{value:.4g}") for name, value in values.items()}


def stages(model: str) -> dict[str, Callable[[int], Stage]]:
    """Name of a stage -> how it is measured at a token budget of reading."""
    works = workloads()
    reads: dict[str, Callable[[int], Stage]] = {
        f"read {name}": lambda budget, name=name: _reading(model, works[name], budget, learning="ct-" in name)  # type: ignore[misc]
        for name in works
    }
    tests = [name for name in works if "ct-" not in name]

    def adapted(budget: int) -> Stage:
        whole = Stage(0, 0, Section(), 0, 0)
        for name in tests:
            whole = whole.plus(_reading(model, works[name], budget, adapted=True), 2)
        return whole

    others: dict[str, Callable[[int], Stage]] = {
        "adapters read the tests": adapted,
        "LitCab, choice": lambda _: _litcab(model, works["ct-local-choice"]),
        "LitCab, open": lambda _: _litcab(model, works["ct-local-oe"]),
        "CCPS features": lambda _: _features(model, works),
        "probes and CCPS networks": lambda _: _networks(),
    }
    trainings: dict[str, Callable[[int], Stage]] = {
        f"train {name}, {fmt}": lambda _, name=name, work=work: _training(model, name, works[work])  # type: ignore[misc]
        for fmt, work in (("choice", "ct-local-choice"), ("open", "ct-local-oe"))
        for name in ("IT", "CT")
    }
    return {**reads, **others, **trainings}


# --- reading ----------------------------------------------------------------------------------------------------------


def signals_of(fmt: Format, *, learning: bool) -> frozenset[Signal]:
    """What the paper's methods together read of a split that they learn on, or are tested on."""
    needs = [registry.methods().get(name)().reads() for name in sorted(registry.paper_methods())]
    wanted = {signal for need in needs for signal in (need.fit if learning else need.predict)}
    read = {signal for signal in read_from_model(wanted) if definition(signal).unsupported(fmt) is None}
    return required_stored_signals(read, fmt, 1 if fmt is Format.CHOICE else LONGEST)


def pack_trace(
    model: str,
    work: Workload,
    budget: int,
    blocks: int,
    *,
    learning: bool = False,
    adapted: bool = False,
    packs: int = 1,
) -> tuple[Trace, Trace]:
    """Sections of a pack that reads its beginning, and of packs followed side by side, without their beginnings."""
    fmt = Format.OPEN if work.open else Format.CHOICE
    mean = float(np.mean(work.answers)) if work.open else math.inf  # a letter always comes
    counter = Counter(mean, configurations()[model].get_text_config().vocab_size)
    lm = DryModel(model, blocks, counter, rank=RANK if adapted else 0)
    signals = frozenset({QueryLogits(Adapter.OWN)}) if adapted else signals_of(fmt, learning=learning)
    words = np.arange(100, 100 + work.query, dtype=np.int32)
    letters = np.arange(2, 2 + (0 if work.open else work.options), dtype=np.int32)
    asking = PromptSettings(LONGEST if work.open else 1, letters, words, np.asarray([5, 6], dtype=np.int32), budget)
    drawn = SAMPLES if any(measure.continuations.samples for measure in pass_definitions(signals).values()) else 0
    chosen = [items(work, number, budget, samples=drawn, given=adapted) for number in range(packs)]
    extractor = DryExtractor(lm, asking, pass_definitions(signals))
    extractor.together = dry_model.limits_of(model, blocks, MACHINE.memory)
    first_pack = plan_packs([item.prompt for item in chosen[0]], budget)[0]
    first = counted(lambda: read_pack(lm.session, first_pack, budget, [blocks]), counter)
    counter.trace = Trace([OTHER], [0], [Section()])
    session: Any = lm.session
    session.forget()  # what it keeps is counted in bytes, and short models would keep more
    later = counted(lambda: extractor.extract([item for pack in chosen for item in pack]), counter)
    return first, later.of(PREFILL, DECODE, OTHER)


def packs_together(model: str, work: Workload, budget: int) -> int:
    """Mean packs that are followed side by side: as many as have enough sequences and fit, or as a shard has."""
    packs, text = work.packs[str(budget)], configurations()[model].get_text_config()
    blocks = int(text.num_hidden_layers)
    limits = dry_model.limits_of(model, blocks, MACHINE.memory)
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    size = blocks * 2 * text.num_key_value_heads * width * DTYPE.itemsize
    fitting = limits.bytes // (size * (packs.tokens + packs.before))
    wanted = math.ceil(limits.sequences / packs.questions)
    return max(1, min(int(fitting), wanted, int(SHARD / packs.questions)))


def _reading(model: str, work: Workload, budget: int, *, learning: bool = False, adapted: bool = False) -> Stage:
    whole = configurations()[model].get_text_config().num_hidden_layers
    beside = packs_together(model, work, budget)
    short, longer = (
        pack_trace(model, work, budget, blocks, learning=learning, adapted=adapted, packs=beside)
        for blocks in (SHORT, LONGER)
    )
    first, later = (a.extended(b, LONGER - SHORT, whole - SHORT) for a, b in zip(short, longer, strict=True))
    packs = work.packs[str(budget)]
    first, number = first.of(SHARED), work.questions / packs.questions
    read, ideal = sum(first.tokens), _ideal(model)
    shared = number * packs.pieces / read if read else 0.0
    parts = []
    for trace, times in ((first, shared), (later, number / beside)):
        given, said = sum(trace.of(SHARED, PREFILL).tokens), sum(trace.of(DECODE).tokens)
        parts.append(Stage.of(trace, times, times * (ideal.prefill(given) + ideal.decode(said))))
    return parts[0].plus(parts[1])


@cache
def _ideal(model: str) -> Ideal:
    return Ideal.of(training_memory.build_on_meta(configurations()[model], DTYPE), MACHINE)


def _head(model: str) -> OutputHead:
    text = configurations()[model].get_text_config()
    return OutputHead(torch.empty(text.vocab_size, text.hidden_size, dtype=DTYPE, device="meta"))


def _litcab(model: str, work: Workload) -> Stage:
    """A step of LitCab on questions with options of the mean length, as often as it is taken."""
    head, length = _head(model), round(float(np.mean(work.answers)))
    states = BATCH * (1 + work.options * (length - 1))
    n = BATCH * work.options * length
    rng = np.random.default_rng(0)
    width = head.weight.shape[1]
    tokens = Targets(np.zeros((states, width), dtype=np.float32), rng.integers(0, states, n), rng.integers(0, 1000, n))
    layer, gradient = Layer.zeros(head), Layer.zeros(head)
    wrong = np.arange(n) % work.options > 0
    counter = Counter()
    trace = counted(
        lambda: write_gradient(layer, gradient, head, tokens, wrong, Objective(3.0, 0.01, relu_input=False)), counter
    )
    weights = layer.weight.numel()
    trace.sections.append(Section(launches=1, bytes=ADAMW_BYTES * weights))
    return Stage.of(trace, STEPS, STEPS * _ideal(model).layer_step(states, weights))


def _features(model: str, works: dict[str, Workload]) -> Stage:
    """CCPS' features of all answer tokens, of tests and training."""
    head, chunk = _head(model), 1000  # several of the chunks that it makes itself
    states, ids = torch.zeros(chunk, head.weight.shape[1]), torch.zeros(chunk, dtype=torch.long)
    with np.errstate(all="ignore"):  # all numbers are 0
        trace = counted(lambda: perturbation_features(states, ids, head), Counter())
    tokens = sum(
        work.questions * float(np.mean(work.answers)) if work.open else work.questions for work in works.values()
    )
    # Three products with the head are what has to be computed: the state's logits, the gradient, its direction's.
    return Stage.of(trace, tokens / chunk, 3 * 2 * head.weight.numel() * tokens / MACHINE.flops)


def _networks() -> Stage:
    """Launches of all trainings of small networks; nothing else matters in them."""
    launches = 0.0
    for name in ("pik", "saplma-f", "saplma-m", "saplma-um", "ccps"):
        cls = registry.methods().get(name)
        given = ("contrastive_steps", "classifier_steps") if name == "ccps" else ("steps",)
        for fmt in Format:
            few, many = (_launches(cls(**dict.fromkeys(given, steps)), fmt) for steps in (2, 6))
            launches += (many - few) / 4 * STEPS / len(given)
    total = Section(launches=launches)
    return Stage.of(Trace([OTHER], [0], [total]), 1, MACHINE.seconds([total]))


def _launches(method: ConfidenceMethod, fmt: Format) -> float:
    train = planted(method.reads().fit, 64, seed=0, fmt=fmt)
    counter = Counter(device="cpu")
    trace = counted(lambda: method.fit(train, Context(0, fmt)), counter)
    return sum(one.launches for one in trace.sections)


def _training(model: str, name: str, work: Workload) -> Stage:
    whole = configurations()[model].get_text_config().num_hidden_layers
    short, longer = (_step_trace(model, name, work, blocks) for blocks in (SHORT, LONGER))
    trace = short.extended(longer, LONGER - SHORT, whole - SHORT)
    return Stage.of(trace, STEPS, _ideal(model).training(STEPS * sum(trace.tokens)))


@cache
def computes_again(model: str) -> bool:
    """Whether the blocks of a model are computed again on the way back."""
    return dry_model.checkpointing(model, TRAINING_TOKENS, RANK, MACHINE.memory)


def _step_trace(model: str, name: str, work: Workload, blocks: int) -> Trace:
    """One step: a section for each forward pass with its backward pass."""
    counter = Counter()
    lm = DryModel(model, blocks, counter)
    with torch.device("meta"):
        wrapped = with_lora(lm.model, target_paths(find_linear_layers(lm.model)), rank=RANK)
    if computes_again(model):
        checkpoint_blocks(lm.model)
    return counted(training_step(lm, wrapped, name, work, counter), counter)


def training_step(lm: LanguageModel, wrapped: Any, name: str, work: Workload, counter: Counter) -> Callable[[], None]:
    """A step of training an adapter around a model; the counter is told of each forward pass."""
    settings = {"divergence": "jsd", "divergence_weight": 1.0}
    examples, loss = _examples(work), ct_loss if name == "CT" else it_loss
    readable = ReadableModel(lm, wrapped, _job())
    adapter = [p for p in wrapped.parameters() if p.requires_grad]
    queries = [examples["query"][i].astype(np.int32) for i in range(BATCH)]
    groups = group_sequences(queries, TRAINING_TOKENS)
    if name == "CT":  # what is asked of the frozen model is read once for the whole run, before the steps
        ends = [int(n) for n in examples["gold"].lengths]
        rows = [
            np.concatenate([examples["prompt"][i], examples["gold"][i][:-1]]).astype(np.int32) for i in range(BATCH)
        ]
        with counter.on() if lm.device == "meta" else nullcontext():
            readable.cache_frozen_states((row.tobytes(), end) for row, end in zip(rows, ends, strict=True))
        counter.trace = Trace([OTHER], [0], [Section()])

    def step() -> None:
        sums = [torch.zeros_like(p, dtype=torch.float32) for p in adapter]
        for group in groups:
            counter.begin(PREFILL, 1)
            before = readable.fed.forward
            some = {key: column.take(np.asarray(group)) if isinstance(column, Ragged) else column[group]
                    for key, column in examples.items()}  # fmt: skip
            value = loss(readable, some, settings) / BATCH
            for into, gradient in zip(sums, torch.autograd.grad(value, adapter), strict=True):
                into.add_(gradient)
            value.item()
            counter.trace.tokens[-1] = readable.fed.forward - before
        counter.begin(OTHER)
        counter.section.launches += OPTIMISER_LAUNCHES * len(adapter)

    return step


def _examples(work: Workload) -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def words(length: int) -> Any:
        return rng.integers(2, 1000, length)

    beginning = words(work.packs["1024"].before)
    prompts = [words(work.prompts[i * 5 % len(work.prompts)]) for i in range(BATCH)]
    for prompt in prompts:
        prompt[: len(beginning)] = beginning[: len(prompt)]
    answers, gold = ([words(work.answers[(i * k) % len(work.answers)]) for i in range(BATCH)] for k in (3, 7))
    query = words(work.query)
    queries = [np.concatenate([prompt, answer, query]) for prompt, answer in zip(prompts, answers, strict=True)]
    return {
        "query": Ragged.of(queries), "prompt": Ragged.of(prompts), "gold": Ragged.of(gold),
        "correct": np.arange(BATCH) % 2 == 0,
    }  # fmt: skip


def _job() -> Job:
    empty: dict[str, Any] = {}
    return Job(
        model=empty, weights="", load=empty, loss="", settings=empty, columns=(), confidence="", validation=(),
        targets=(), verdict_ids=(5, 6), packed=True, token_budget=TRAINING_TOKENS, checkpoint_every=STEPS,
    )  # fmt: skip
