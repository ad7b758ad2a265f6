"""Training of `tiny`: `python -m bench.backbone.tiny.train CORPUS` makes tokenizer and weights from nothing.

The curriculum is the recipe that worked (bench/DESIGN.md): letters are learned in terse questions with the answer given
beside them, then knowledge in terse closed-book questions, then the harness's own prompts by degrees, then the
self-check; earlier exercises stay in the mixture so that nothing is forgotten.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from bench.backbone.tiny.corpus import Corpus
from bench.backbone.tiny.evaluate import measure
from bench.backbone.tiny.exercises import Encoded, Exercises, padded
from bench.backbone.tiny.tokenizer import CONTEXT, make_tokenizer
from bench.records import Format

FOLDER = Path(__file__).parent
WARM_UP = 200
ELSEWHERE = 0.05
"""Weight of the tokens that are no answers."""
SAMPLED = 0.125
"""Share of those tokens that is looked at; the head costs more than the rest of the model."""


@dataclass(frozen=True)
class Phase:
    """A stretch of the curriculum."""

    steps: int
    terse: Mapping[str, float]
    """Mixture of terse exercises."""
    length: int = 160
    """Tokens in a row of terse exercises."""
    full: float = 0.0
    """Share of the steps that show whole conversations."""
    shots: tuple[int, int] = (0, 5)
    """Fewest and most exemplars in them."""
    checks: float = 0.0
    """Share of the conversations that end with the self-check."""
    choices: float = 0.6
    """Share of the conversations that show options."""


CURRICULUM = (
    Phase(700, {"given": 1.0}),
    Phase(700, {"given": 0.2, "choice": 0.5, "open": 0.15, "statement": 0.15}),
    Phase(900, {"given": 0.1, "choice": 0.4, "open": 0.2, "statement": 0.2, "check": 0.1}, full=0.5, shots=(0, 2)),
    Phase(900, {"choice": 0.5, "open": 0.2, "statement": 0.2, "check": 0.1}, full=0.8, checks=0.3),
)
TOKENS = 4096
"""Tokens in a step."""


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """A small Llama with random weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def rows(exercises: Exercises, phase: Phase) -> list[Encoded]:
    """The rows of one step: terse exercises, or conversations with one number of exemplars."""
    draw = exercises.random
    if draw.random() >= phase.full:
        return [exercises.packed(phase.terse, phase.length) for _ in range(TOKENS // phase.length)]
    shots = draw.randint(*phase.shots)
    fmt = Format.CHOICE if draw.random() < phase.choices else Format.OPEN
    found: list[Encoded] = []
    while len(found) * max((len(row.ids) for row in found), default=0) < TOKENS:
        found.append(exercises.full(fmt, shots, check=draw.random() < phase.checks))
    return found


def loss_of(
    model: LlamaForCausalLM, batch: Sequence[Encoded], generator: torch.Generator
) -> tuple[torch.Tensor, float]:
    """Loss of a batch, and that of its answers alone."""
    pad = model.config.pad_token_id
    ids, learned = (torch.tensor(part) for part in padded(batch, pad))
    states = model.model(ids[:, :-1]).last_hidden_state  # (n, t - 1, d)
    targets, answers = ids[:, 1:], learned[:, 1:]
    others = ~answers & (targets != pad) & (torch.rand(targets.shape, generator=generator) < SAMPLED)
    on_answers = torch.nn.functional.cross_entropy(model.lm_head(states[answers]), targets[answers])
    elsewhere = torch.nn.functional.cross_entropy(model.lm_head(states[others]), targets[others])
    return on_answers + ELSEWHERE * elsewhere, float(on_answers)


def factor(step: int, total: int) -> float:
    """Learning rate at a step, as a share of its peak: warm-up, plateau, and a linear end."""
    return min(1.0, (step + 1) / WARM_UP, max(0.02, (total - step) / (0.25 * total)))


def phases(curriculum: Sequence[Phase]) -> Iterator[Phase]:
    """The phase of each step."""
    for phase in curriculum:
        for _ in range(phase.steps):
            yield phase


def train(corpus: Corpus, folder: Path, seed: int, peak: float) -> None:
    """Train from nothing and write the model's files."""
    tokenizer = make_tokenizer(corpus)
    model = make_model(tokenizer, seed)
    exercises = Exercises(corpus, tokenizer, seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.01)
    total, started = sum(phase.steps for phase in CURRICULUM), time.monotonic()
    recent: list[float] = []
    for step, phase in enumerate(phases(CURRICULUM)):
        for group in optimizer.param_groups:
            group["lr"] = peak * factor(step, total)
        loss, on_answers = loss_of(model, rows(exercises, phase), generator)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent = [*recent[-49:], on_answers]
        if step % 50 == 49:
            spent = time.monotonic() - started
            sys.stdout.write(f"{spent:5.0f} s  step {step + 1}/{total}  loss {sum(recent) / len(recent):.3f}\n")
            sys.stdout.flush()
        if step % 500 == 499:
            sys.stdout.write(f"{json.dumps(measure(model, tokenizer, corpus, limit=160))}\n")
            save(model, tokenizer, folder)
    save(model, tokenizer, folder)
    sys.stdout.write(f"{json.dumps(measure(model, tokenizer, corpus))}\n")


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write weights in half precision, configuration and tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    model.generation_config = GenerationConfig.from_model_config(model.config)
    weights = {name: value.to(torch.float16) for name, value in model.state_dict().items()}
    model.config.dtype = torch.float16
    model.save_pretrained(folder, state_dict=weights)
    tokenizer.save_pretrained(folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m bench.backbone.tiny.train", description="Train the model `tiny`.")
    parser.add_argument("corpus", type=Path, help="file with styles, pools, lessons and questions, as JSON lines")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write the model's files to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peak", type=float, default=2e-3, help="highest learning rate")
    chosen = parser.parse_args(arguments)
    train(Corpus.read(chosen.corpus), chosen.out, chosen.seed, chosen.peak)


if __name__ == "__main__":
    main()
