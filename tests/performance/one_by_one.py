"""Each method with passes of its own, one question at a time, no shared prefix, as official scripts do; against ours.

The slow side answers once and then reads, for each method that leaves the model as it is, prompt and answer again with
plain transformers calls. Methods that train the model are left out on both sides, and so is all that isn't a pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.api import Format
from bench.prompts import templates
from bench.signals.split_data import SplitData
from tests.performance import sample
from tests.performance.measure import Line, Options, interleaved

QUESTIONS = 100
"""All of MMLU's first subject."""
SAMPLES = 10
READS = ("ptrue", "lts", "pik", "saplma-f", "saplma-m", "saplma-um", "litcab", "ccps")
"""Methods that read once more; the first two ask the self-check query."""
ASKING = {"ptrue", "lts"}


def lines(options: Options) -> Iterator[Line]:
    """One line for lettered questions and one for open ones."""
    for fmt, target in ((Format.CHOICE, ">= 10"), (Format.OPEN, ">= 20")):
        chosen = sample.questions(fmt, 1, QUESTIONS)
        signals = sample.frozen_signals(fmt)
        split_data = sample.read(fmt, chosen, signals)
        slow = _OneByOne(split_data, fmt)
        slow.check()
        quick = partial(sample.read, fmt, chosen, signals)
        times = interleaved([slow.run, quick], min(2, options.repeats), warm_up=False)  # both ran above
        note = f"{times[0]:.1f} s ÷ {times[1]:.2f} s; {len(chosen)} five-shot MMLU questions of one subject, tiny"
        yield Line(f"one at a time ÷ ours, {fmt.value}", times[0] / times[1], target, note)


class _OneByOne:
    def __init__(self, split_data: SplitData, fmt: Format) -> None:
        self.model: Any = sample.tiny().model
        self.prompts = [torch.as_tensor(ids, dtype=torch.long)[None] for ids, _ in split_data.pairs()]
        self.expected = [ids.tolist() for _, ids in split_data.pairs()]
        self.stops = sorted(sample.tiny().stops)
        choice = fmt is Format.CHOICE
        self.length = sample.PROTOCOL.max_new_tokens_choice if choice else sample.PROTOCOL.max_new_tokens_open
        prompt = templates.build(split_data.questions[0], [], sample.mmlu(fmt).style, fmt, sample.PROTOCOL)
        self.suffix = torch.as_tensor(sample.tiny().chat.query(prompt, sample.PROTOCOL).ids, dtype=torch.long)[None]

    def check(self) -> None:
        """Both sides must say the same."""
        for prompt, expected in list(zip(self.prompts, self.expected, strict=True))[:8]:
            said = self._answer(prompt)[0].tolist()
            assert said == expected, f"one side says {said}, the other {expected}"

    @torch.inference_mode()
    def run(self) -> None:
        for prompt in self.prompts:
            answer = self._answer(prompt)
            self._sample(prompt)
            for name in READS:
                parts = [prompt, answer, self.suffix] if name in ASKING else [prompt, answer]
                whole = prompt if name == "pik" else torch.cat(parts, dim=1)
                self.model(input_ids=whole, output_hidden_states=name not in ASKING, use_cache=False)

    def _answer(self, prompt: torch.Tensor) -> torch.Tensor:
        """Greedily, without what ends it."""
        ids = self._generate(prompt, do_sample=False)[:, prompt.shape[1] :]
        kept = [i for i in ids[0].tolist() if i not in self.stops]
        return torch.tensor([kept], dtype=torch.long)

    def _sample(self, prompt: torch.Tensor) -> None:
        self._generate(prompt, do_sample=True, num_return_sequences=SAMPLES, temperature=1.0, top_k=0, top_p=1.0)

    def _generate(self, prompt: torch.Tensor, **how: Any) -> torch.Tensor:
        ids: torch.Tensor = self.model.generate(
            input_ids=prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=self.length,
            pad_token_id=self.stops[0],
            eos_token_id=self.stops,
            **how,
        )
        return ids
