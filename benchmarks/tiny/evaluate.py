"""Figures of a model on the corpus's questions as the harness asks them: accuracy, letters, and P(True).

An independent, plain loop over whole prompts: right padding, no shared prefixes, no cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from bench.api import Format, Question
from bench.api.protocol import FIXED
from bench.api.question import Prompt
from bench.prompts import templates
from benchmarks.tiny.corpus import Corpus

_BATCH = 32


def measure(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, corpus: Corpus, limit: int | None = None
) -> dict[str, float]:
    """Figures on the test questions, five shots; with `limit`, on that many of them, evenly spread."""
    questions = corpus.questions["test"]
    questions = questions[:: max(1, len(questions) // limit)] if limit else questions
    figures: dict[str, float] = {}
    for fmt in Format:
        found = _Measured(model, tokenizer, corpus, fmt).run(questions)
        figures |= {f"{fmt.value}_{name}": round(value, 4) for name, value in found.items()}
    return figures


class _Measured:
    """One format's prompts, answers and self-checks."""

    def __init__(
        self, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, corpus: Corpus, fmt: Format
    ) -> None:
        self.model, self.tokenizer, self.fmt = model, tokenizer, fmt
        self.style = corpus.styles[fmt]
        self.exemplars: dict[str, list[Question]] = defaultdict(list)
        for question in corpus.questions["dev"]:
            self.exemplars[question.subject].append(question)
        self.letters = [tokenizer.convert_tokens_to_ids(letter) for letter in FIXED.letters[:4]]

    def run(self, questions: Sequence[Question]) -> dict[str, float]:
        prompts = [templates.build(q, self.exemplars[q.subject], self.style, self.fmt, FIXED) for q in questions]
        steps = 1 if self.fmt is Format.CHOICE else 8
        logits, answers = self._answers(prompts, steps)
        targets = [templates.target(q, self.fmt, FIXED.letters) for q in questions]
        right = [plain(answer) == plain(target) for answer, target in zip(answers, targets, strict=True)]
        checks = self._last_logits([self._check(p, a) for p, a in zip(prompts, answers, strict=True)])
        no_yes = checks[:, self.letters[:2]]  # (n, 2)
        figures = {
            "accuracy": sum(right) / len(right),
            "ptrue_auroc": auroc(no_yes.softmax(-1)[:, 1].tolist(), right),
            "ptrue_mean": float(no_yes.softmax(-1)[:, 1].mean()),
            "ptrue_letters": share([int(top) in self.letters[:2] for top in checks.argmax(-1)]),
        }
        if self.fmt is Format.CHOICE:
            figures["letters"] = share([int(top) in self.letters for top in logits.argmax(-1)])
            figures["auroc"] = auroc(logits.softmax(-1).max(-1).values.tolist(), right)
            figures["confidence"] = float(logits.softmax(-1).max(-1).values.mean())
        return figures

    def _check(self, prompt: Prompt, answer: str) -> list[int]:
        messages = templates.query_messages(prompt, FIXED)
        return self._ids([(m.role, m.content.replace(templates.QUERY_SENTINEL, answer)) for m in messages])

    def _ids(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        conversation = [{"role": role, "content": content} for role, content in messages]
        text = self.tokenizer.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False)
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _answers(self, prompts: Sequence[Prompt], steps: int) -> tuple[torch.Tensor, list[str]]:
        """Logits after the prompts, and greedy answers."""
        rows = [self._ids([(m.role, m.content) for m in prompt.messages]) for prompt in prompts]
        starts = [len(row) for row in rows]
        first = logits = self._last_logits(rows)
        going = list(range(len(rows)))
        for _ in range(steps):
            for n, top in zip(going, logits.argmax(-1).tolist(), strict=True):
                rows[n].append(top)
            going = [n for n in going if rows[n][-1] != self.tokenizer.eos_token_id]
            if not going or steps == 1:
                break
            logits = self._last_logits([rows[n] for n in going])
        generated = [row[start:] for row, start in zip(rows, starts, strict=True)]
        return first, [self.tokenizer.decode(ids, skip_special_tokens=True) for ids in generated]

    @torch.inference_mode()
    def _last_logits(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        found: list[Any] = []
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            longest = max(map(len, batch))
            ids = torch.tensor([[*row, *[self.tokenizer.pad_token_id] * (longest - len(row))] for row in batch])
            states = self.model.model(ids).last_hidden_state  # (n, t, d)
            last = torch.tensor([len(row) - 1 for row in batch])
            found.append(self.model.lm_head(states[torch.arange(len(batch)), last]))
        return torch.cat(found).float()


def plain(text: str) -> str:
    """Text without case, outer white space and punctuation."""
    return text.strip().strip("()[].:").casefold()


def share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)


def auroc(scores: Sequence[float], right: Sequence[bool]) -> float:
    """Probability that a right answer has a higher score than a wrong one, ties counting half."""
    good = torch.tensor([s for s, r in zip(scores, right, strict=True) if r])
    bad = torch.tensor([s for s, r in zip(scores, right, strict=True) if not r])
    if not len(good) or not len(bad):
        return float("nan")
    wins = (good[:, None] > bad[None, :]).float() + 0.5 * (good[:, None] == bad[None, :]).float()
    return float(wins.mean())
