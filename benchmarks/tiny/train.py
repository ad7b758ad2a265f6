"""Training of `tiny`: `python -m benchmarks.tiny.train CORPUS` makes tokenizer and weights from nothing.

The curriculum is the recipe that worked (bench/DESIGN.md, The model `tiny`): letters are learned in terse questions
with the answer given beside them, then knowledge in terse closed-book questions, then the harness's own prompts by
degrees, then the self-check; earlier exercises stay in the mixture so that nothing is forgotten.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from bench import model
from bench.api import Format
from benchmarks.tiny.corpus import Corpus
from benchmarks.tiny.evaluate import measure
from benchmarks.tiny.exercises import LETTERS, RIGHT_OPTION, Encoded, Exercises, padded
from benchmarks.tiny.tokenizer import CONTEXT, make_tokenizer

FOLDER = Path(model.__file__).parent / "tiny"
_WARM_UP = 100
_LATEST = 25
"""Steps over which the loss is averaged."""
_MATRIX = 2
"""Dimensions of a matrix."""
_LETTER_BEFORE = 2
"""Tokens from the start of an option's text back to its letter: `a`, `): `."""
_ELSEWHERE = 0.05
"""Weight of the tokens that are no answers."""
_SAMPLED = 0.125
"""Share of those tokens that is looked at; the head costs more than the rest of the model."""
_TOKENS = 4096
"""Tokens in a step."""


@dataclass(frozen=True)
class Phase:
    steps: int
    terse: Mapping[str, float]
    """Mixture of terse exercises."""
    length: int = 160
    """Tokens in a row of terse exercises."""
    enough: float = 0.0
    """Loss on answers at which the phase ends early."""
    full: float = 0.0
    """Share of the steps that show whole conversations."""
    shots: tuple[int, int] = (0, 5)
    """Fewest and most exemplars in them."""
    checks: float = 0.0
    """Share of the conversations that end with the self-check."""
    choices: float = 0.6
    """Share of the conversations that show options."""
    slowing: bool = False
    """Whether the learning rate falls to nothing in this phase."""


_CURRICULUM = (
    Phase(800, {"copy": 1.0}, length=96, enough=0.15),
    Phase(800, {"copy": 0.2, "given": 0.8}, enough=0.1),
    Phase(700, {"given": 0.15, "choice": 0.5, "open": 0.2, "statement": 0.15}),
    Phase(500, {"given": 0.1, "choice": 0.4, "open": 0.2, "statement": 0.2, "check": 0.1}, full=0.4, shots=(0, 2)),
    Phase(
        900,
        {"choice": 0.4, "open": 0.2, "statement": 0.2, "check": 0.05, "check-letter": 0.15},
        full=0.7,
        checks=0.5,
        slowing=True,
    ),
)


def _make_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
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
        initializer_range=0.06,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():  # larger than usual: otherwise attention drowns what a token is, and letters are learned late
        model.model.embed_tokens.weight.normal_(0, 0.2)
    return model


def rows(exercises: Exercises, phase: Phase) -> list[Encoded]:
    draw = exercises.random
    if draw.random() >= phase.full:
        return [exercises.packed(phase.terse, phase.length) for _ in range(_TOKENS // phase.length)]
    shots = draw.randint(*phase.shots)
    fmt = Format.CHOICE if draw.random() < phase.choices else Format.OPEN
    found: list[Encoded] = []
    while len(found) * max((len(row.ids) for row in found), default=0) < _TOKENS:
        found.append(exercises.full(fmt, shots, check=draw.random() < phase.checks))
    return found


class Hints(torch.nn.Module):
    """Two linear readers of inner states where an option begins: which letter it has, and whether it is the right one.

    Their losses teach the two halves of choosing a letter at every option instead of at every answer; the readers are
    thrown away after training.
    """

    def __init__(self, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
        super().__init__()
        self.letter_ids = torch.tensor(tokenizer.convert_tokens_to_ids(list(LETTERS)))
        self.letter = torch.nn.Linear(model.config.hidden_size, len(LETTERS))
        self.right = torch.nn.Linear(model.config.hidden_size, 1)

    def loss(self, states: Sequence[torch.Tensor], ids: torch.Tensor, options: torch.Tensor) -> torch.Tensor:
        """Loss at the options of states `(n, t, d)` after each block, ids and options `(n, t)`."""
        row, column = options.nonzero(as_tuple=True)
        row, column = row[column >= _LETTER_BEFORE], column[column >= _LETTER_BEFORE]
        if not len(row):
            return torch.zeros(())
        after_two, after_three = (functional.rms_norm(states[n][row, column], states[n].shape[-1:]) for n in (2, 3))
        letters = (ids[row, column - _LETTER_BEFORE, None] == self.letter_ids).int().argmax(-1)
        right = (options[row, column] == RIGHT_OPTION).float()
        is_right = functional.binary_cross_entropy_with_logits(self.right(after_three)[:, 0], right)
        return functional.cross_entropy(self.letter(after_two), letters) + 2 * is_right


def _loss_of(
    model: LlamaForCausalLM, hints: Hints, batch: Sequence[Encoded], generator: torch.Generator
) -> tuple[torch.Tensor, tuple[float, float]]:
    """Loss of a batch; and its parts on answers and hints alone."""
    pad = model.config.pad_token_id
    ids, learned, options = (torch.tensor(part) for part in padded(batch, pad))
    output = model.model(ids[:, :-1], output_hidden_states=True)
    states, targets, answers = output.last_hidden_state, ids[:, 1:], learned[:, 1:]  # states: (n, t - 1, d)
    others = ~answers & (targets != pad) & (torch.rand(targets.shape, generator=generator) < _SAMPLED)
    on_answers = functional.cross_entropy(model.lm_head(states[answers]), targets[answers])
    elsewhere = functional.cross_entropy(model.lm_head(states[others]), targets[others])
    hinted = hints.loss(output.hidden_states, ids, options[:, :-1])
    return on_answers + _ELSEWHERE * elsewhere + hinted, (float(on_answers.detach()), float(hinted.detach()))


class Optimizer:
    """Muon for the matrices inside the blocks, AdamW for all else."""

    def __init__(self, model: LlamaForCausalLM, hints: Hints, peak: float) -> None:
        matrices = [p for name, p in model.named_parameters() if p.ndim == _MATRIX and "embed" not in name]
        others = [p for name, p in model.named_parameters() if p.ndim != _MATRIX or "embed" in name]
        self.peak = peak
        self.parts: tuple[torch.optim.Optimizer, ...] = (
            torch.optim.Muon(matrices, lr=peak, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW([*others, *hints.parameters()], lr=peak, betas=(0.9, 0.98), weight_decay=0.01),
        )

    def step(self, loss: torch.Tensor, factor: float) -> None:
        for part in self.parts:
            part.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for part in self.parts:
            for group in part.param_groups:
                torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
                group["lr"] = self.peak * factor
            part.step()


def train(corpus: Corpus, folder: Path, seed: int, peak: float) -> None:
    torch.set_num_threads(1)  # a second thread gains a tenth here, and would change the last digits of every sum
    tokenizer = make_tokenizer(corpus)
    model = _make_model(tokenizer, seed)
    hints = Hints(model, tokenizer)
    exercises = Exercises(corpus, tokenizer, seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = Optimizer(model, hints, peak)
    started, done = time.monotonic(), 0
    for number, phase in enumerate(_CURRICULUM):
        latest: deque[tuple[float, float]] = deque(maxlen=_LATEST)
        for step in range(phase.steps):
            loss, parts = _loss_of(model, hints, rows(exercises, phase), generator)
            optimizer.step(loss, min(1.0, (done + 1) / _WARM_UP, 1 - step / phase.steps if phase.slowing else 1.0))
            latest.append(parts)
            done += 1
            if done % _LATEST == 0:
                answers, hinted = (sum(part) / len(latest) for part in zip(*latest, strict=True))
                spent, losses = time.monotonic() - started, f"{answers:.3f}  {hinted:.3f}"
                print(f"{spent:5.0f} s  phase {number}  step {step + 1}  {losses}", flush=True)
                if answers < phase.enough and len(latest) == _LATEST:
                    break
        save(model, tokenizer, folder)
        print(json.dumps(measure(model, tokenizer, corpus, limit=160)), flush=True)
    print(json.dumps(measure(model, tokenizer, corpus)))


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write weights in half precision, configuration and tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    half = copy.deepcopy(model).half()
    half.generation_config = GenerationConfig.from_model_config(model.config)
    half.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiny.train", description="Train the model `tiny`.")
    parser.add_argument("corpus", type=Path, help="file with styles, pools, lessons and questions, as JSON lines")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write the model's files to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peak", type=float, default=5e-3, help="highest learning rate")
    chosen = parser.parse_args(arguments)
    train(Corpus.read(chosen.corpus), chosen.out, chosen.seed, chosen.peak)


if __name__ == "__main__":
    main()
