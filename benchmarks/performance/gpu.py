"""`make bench-gpu`: speed on a CUDA device, for a randomly initialised model of Llama-3.1-8B's shape in bf16.

Prefill: model-FLOPs utilisation of our passes over five-shot prompts, against a large bf16 product measured on the same
machine. CCPS features ÷ the forward pass. LitCab: training steps a second, and peak memory. Reading, decoding and
training at the card's own budget, beside the committed cost model. Without a GPU it says so.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.api import Format, OutputHead
from bench.model.continuation_tree import read_pack
from bench.model.devices import default_budget
from bench.model.prefix_tree import plan_packs
from bench.model.session import Session
from bench.prompts.front_coding import common_prefix
from benchmarks.cost_model.__main__ import read
from benchmarks.cost_model.workload import BUDGETS, workloads
from benchmarks.performance import sample
from benchmarks.performance.gpu_stages import LoadedModel, Stages, waiting
from benchmarks.performance.measure import Line, NotMeasured, median, report
from methods.ccps.features import perturbation_features
from methods.litcab import LitCab
from methods.litcab.networks import Objective, Targets, train_layer

DEVICE = "cuda"
WIDTH, INNER, LAYERS, HEADS, KEY_HEADS, VOCABULARY = 4096, 14_336, 32, 32, 8, 128_256
"""Llama-3.1-8B's config.json."""
SHOTS_TOKENS, QUESTION_TOKENS, QUESTIONS = 650, 120, 64
"""About the lengths of five MMLU exemplars and of a question, where no prompts are at hand."""
BUDGET = 8192
SQUARE = 8192
LITCAB_TOKENS = 32 * 4
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.performance.gpu", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing was measured")
        return
    name = torch.cuda.get_device_name()
    print(f"{name}, torch {version('torch')}, transformers {version('transformers')}")
    report(lines(), options.json, device=name)


def lines(works: Mapping[str, Any] | None = None) -> Iterator[Line]:
    a, b = (torch.randn(SQUARE, SQUARE, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    peak = 2 * SQUARE**3 / _seconds(lambda: a @ b, 20)
    yield Line("bf16 product, TFLOP/s", peak / 1e12, "", f"{SQUARE:,} x {SQUARE:,}")
    model = _model()
    yield from _prefill(model, peak)
    yield from _features(model)
    budget = min(BUDGETS, key=lambda known: abs(known - default_budget(DEVICE)))
    yield from Stages(LoadedModel(model, DEVICE), works or workloads(), budget).lines(read()["models"]["llama8b"])
    del model
    torch.cuda.empty_cache()
    yield from _litcab()


def _seconds(call: Callable[[], object], repeats: int = REPEATS) -> float:
    return median(call, repeats, partial(waiting, DEVICE))


def _model() -> Any:
    """Random weights; their values change no time."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS, vocab_size=VOCABULARY, max_position_embeddings=131_072, rope_theta=500_000.0,
        attn_implementation="sdpa", dtype="bfloat16",
    )  # fmt: skip
    with torch.device(DEVICE):
        return transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval().requires_grad_(requires_grad=False)


def _prompts() -> tuple[list[np.ndarray], str]:
    """Ids of prompts that share their subject's exemplars: MMLU's own lengths where they are at hand."""
    rng = np.random.default_rng(0)
    try:
        lengths, kind = _lengths(), "lengths of five-shot MMLU prompts in the tokens of tiny"
    except NotMeasured:
        lengths, kind = [(SHOTS_TOKENS, QUESTION_TOKENS)] * QUESTIONS, "synthetic prompts of about MMLU's lengths"
    shots = rng.integers(0, VOCABULARY, max(shared for shared, _ in lengths)).astype(np.int32)
    return [
        np.concatenate([shots[:shared], rng.integers(0, VOCABULARY, own).astype(np.int32)]) for shared, own in lengths
    ], kind


def _lengths() -> list[tuple[int, int]]:
    """Shared and own tokens of each prompt of the first subject."""
    with sample.temporary() as folder:
        _, split_data = sample.opened(Format.CHOICE, sample.questions(Format.CHOICE, 1, QUESTIONS), folder)
    prompts = split_data.shards[0].prompts
    shared = min(common_prefix(prompts[0], other) for other in prompts[1:])
    return [(shared, len(ids) - shared) for ids in prompts]


def _prefill(model: Any, peak: float) -> Iterator[Line]:
    prompts, kind = _prompts()
    session = Session(model)

    def ours() -> None:
        session.reset()
        for pack in plan_packs(prompts, BUDGET):
            read_pack(session, pack, BUDGET, [LAYERS])

    ours()
    tokens = session.tokens
    seconds = _seconds(ours)
    weights = LAYERS * (2 * WIDTH * WIDTH + 2 * WIDTH * WIDTH * KEY_HEADS // HEADS + 3 * WIDTH * INNER)
    attention = 2 * LAYERS * WIDTH * sum(len(ids) for ids in prompts) / len(prompts)  # over half the positions before
    flops = tokens * (2 * weights + attention)
    note = f"{tokens:,} tokens in {seconds:.2f} s, {tokens / seconds:,.0f} a second, budget {BUDGET:,}; {kind}"
    yield Line("prefill, model-FLOPs utilisation", flops / seconds / peak, ">= 0.5", note)
    given = sum(map(len, prompts))
    yield Line("prompt tokens ÷ tokens read", given / tokens, "", f"{given:,} ÷ {tokens:,}")


def _features(model: Any) -> Iterator[Line]:
    questions = 32
    prompt = torch.randint(0, VOCABULARY, (1, SHOTS_TOKENS + QUESTION_TOKENS), device=DEVICE)
    head = OutputHead(model.get_output_embeddings().weight.detach())
    hidden = torch.randn(questions, WIDTH, device=DEVICE) * 2
    ids = torch.randint(0, VOCABULARY, (questions,), device=DEVICE)

    def forward() -> None:
        with torch.inference_mode():
            model.base_model(input_ids=prompt, use_cache=False)

    ours, bare = _seconds(lambda: perturbation_features(hidden, ids, head)) / questions, _seconds(forward)
    times = f"{ours * 1e3:.2f} ms a letter ÷ {bare * 1e3:.1f} ms for {prompt.shape[1]} tokens"
    note = f"{times}; {questions} letters at a time"
    yield Line("CCPS features ÷ forward pass", ours / bare, "<= 0.01", note)


def _litcab() -> Iterator[Line]:
    rng = np.random.default_rng(0)
    head = OutputHead(torch.randn(VOCABULARY, WIDTH, device=DEVICE, dtype=torch.bfloat16) * 0.02)
    states = torch.tensor(rng.normal(size=(LITCAB_TOKENS, WIDTH))).bfloat16().float().numpy()  # as the model's are
    ids = rng.integers(0, VOCABULARY, LITCAB_TOKENS)
    tokens, wrong = Targets(states, np.arange(LITCAB_TOKENS), ids), np.arange(LITCAB_TOKENS) % 4 > 0
    method = LitCab()
    objective = Objective(method.cap, method.penalty, method.relu_input)
    rates = {"learning_rate": method.learning_rate, "weight_decay": method.weight_decay}
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
    few, many = (
        _seconds(lambda n=n: train_layer(head, [(tokens, wrong)] * n, objective, lambda _: None, **rates), 3)  # type: ignore[misc]
        for n in (2, 12)
    )
    shape = f"d = {WIDTH:,}, V = {VOCABULARY:,}, {LITCAB_TOKENS} tokens a step"
    yield Line("LitCab, training steps a second", 10 / (many - few), "", shape)
    if DEVICE == "cuda":
        yield Line("LitCab, peak memory in GB", torch.cuda.max_memory_allocated() / 1e9, "", shape)


if __name__ == "__main__":
    main()
