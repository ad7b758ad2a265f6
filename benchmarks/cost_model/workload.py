"""Packs and lengths of the real questions, measured once with the tokenizer of `tiny` and committed.

Tokens of a large model are longer: lengths are multiplied by (characters a token of `tiny`) ÷ (characters a token of a
large model), and packs are planned at budgets divided by it. So the figures rest on `workload.json` and on no data.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.model.continuation_specs import ModelInput
from bench.model.prefix_tree import plan_packs
from bench.model.token_sampling import uniform_numbers

if TYPE_CHECKING:
    from bench.api import Question, Split
    from bench.model.prefix_tree import Pack
    from bench.prompts.front_coding import Ids
    from bench.prompts.shards import PromptTokeniser, Shard

FILE = Path(__file__).with_name("workload.json")
CHARACTERS = 3.94
"""Characters of English in a token of a large model: assumed, measured on none of the models."""
BUDGETS = (1024, 8192)
QUANTILES = 16
LOOKED_AT = 1500
"""Questions whose prompts are written, about: whole subjects, evenly spaced."""
VOCABULARY = 1000
FIRST = 2
"""The first id that is a word: 0 is what is likely, 1 ends an answer."""
TASKS: dict[str, tuple[Split, int]] = {
    "mmlu-choice": ("test", 14_042), "mmlu-pro-choice": ("test", 12_032), "medmcqa-choice": ("test", 4_183),
    "mmlu-oe": ("test", 14_042), "medmcqa-oe": ("test", 4_183), "ct-local-choice": ("train", 18_650 + 2_000),
    "ct-local-oe": ("train", 18_534 + 2_000),
}  # fmt: skip
"""Task -> split that is looked at, and how many questions are read. A small part of the training corpora, of which the
data are at hand, stands in for the whole; the numbers are those of the whole, train and validation."""


@dataclass(frozen=True)
class Packs:
    """The mean pack at one budget."""

    questions: float
    tokens: int
    before: int
    """Tokens of the beginning that the pack's prompts share."""
    pieces: int
    """Tokens of such beginnings that are read for a pack, as the one before it did not have them."""


@dataclass(frozen=True)
class Workload:
    """One split that is read, in tokens of a large model."""

    questions: int
    options: int
    """Number of options, the nearest to the mean."""
    prompts: list[int]
    """Quantiles of the prompts' lengths."""
    answers: list[int]
    """Quantiles of the lengths of right and wrong options, as the model would have to say them."""
    query: int
    """Tokens of the self-check query."""
    packs: dict[str, Packs]
    """By budget."""

    @property
    def open(self) -> bool:
        return max(self.answers) > 1


def workloads() -> dict[str, Workload]:
    """Task -> its packs and lengths, as committed."""
    given = json.loads(FILE.read_text(encoding="utf-8"))["workloads"]
    for one in given.values():
        one["packs"] = {budget: Packs(**packs) for budget, packs in one["packs"].items()}
    return {name: Workload(**one) for name, one in given.items()}


def items(
    work: Workload, number: int, budget: int, *, samples: int = 0, given: bool = False, vocabulary: int = VOCABULARY
) -> list[ModelInput]:
    """The questions of a mean pack, in random ids; the answers are the model's to give unless they are `given`.

    Args:
        work: whose.
        number: of the pack, from 0; each has a beginning of its own, and together they have the mean of questions.
        budget: for which packs were planned.
        samples: random numbers for so many.
        given: whether there are answers.
        vocabulary: ids are below it.
    """
    rng = np.random.default_rng(number)
    packs = work.packs[str(budget)]

    def words(length: int) -> Ids:
        return rng.integers(FIRST, vocabulary, int(length)).astype(np.int32)

    before, after = (round(packs.questions * n) for n in (number, number + 1))
    shared, n = words(packs.before), max(1, after - before)
    made = []
    for i in range(n):
        own = words((i + 1) * packs.tokens // n - i * packs.tokens // n)
        lengths = [work.answers[((before + i) * 3 + k * 7) % len(work.answers)] for k in range(work.options)]
        gold, *wrong = map(words, lengths)
        answer = words(work.answers[(before + i) * 5 % len(work.answers)]) if given else None
        numbers = uniform_numbers(0, f"{number} {i}", samples, 30) if samples else None
        lettered = 0 if work.open else work.options
        made.append(ModelInput(np.concatenate([shared, own]), lettered, answer, gold, tuple(wrong), None, numbers))
    return made


def measured() -> dict[str, Any]:
    """What FILE holds, from the data.

    Raises:
        NotMeasured: the data are not at hand.
    """
    from bench import registry
    from bench.data.sources import open_source
    from bench.progress import Silent
    from bench.prompts.shards import PromptTokeniser
    from benchmarks.performance import sample

    source, chat = open_source(sample.data_folder()), sample.tiny().chat
    prompts = PromptTokeniser(chat, 1 << 30, sample.PROTOCOL)
    written = {}
    characters = tokens = 0
    for name, (split, _) in TASKS.items():
        task = registry.tasks().get(name)(source)
        chosen = list(_evenly(list(task.questions(split))))
        shards = prompts.shards(task, chosen, {}, Silent(), "")
        some = [ids for shard in shards for ids in shard.prompts[::20]]
        characters, tokens = (
            characters + sum(len(chat.tokenizer.decode(ids)) for ids in some),
            tokens + sum(map(len, some)),
        )
        written[name] = (task, chosen, shards)
        sys.stderr.write(f"{name}: {len(chosen)} prompts\n")
    ratio = characters / tokens / CHARACTERS
    return {
        "tokenizer": "tiny",
        "characters a token": round(characters / tokens, 3),
        "characters a token of a large model, assumed": CHARACTERS,
        "workloads": {
            name: asdict(_workload(TASKS[name][1], prompts, task, chosen, shards, ratio))
            for name, (task, chosen, shards) in written.items()
        },
    }


def _evenly(questions: Sequence[Question]) -> Iterator[Question]:
    """Whole subjects, evenly spaced."""
    groups: dict[str, list[Question]] = {}
    for question in questions:
        groups.setdefault(question.subject, []).append(question)
    step = max(1, round(len(questions) / LOOKED_AT))
    for group in list(groups.values())[::step] if len(groups) >= 2 * step else groups.values():
        yield from group if len(groups) >= 2 * step else group[: -(-len(group) // step)]


def _workload(
    total: int, prompts: PromptTokeniser, task: Any, chosen: list[Question], shards: list[Shard], ratio: float
) -> Workload:
    lengths = [len(ids) for shard in shards for ids in shard.prompts]
    said = [len(option) for question in prompts.options(task, chosen) for option in question]
    at = (np.arange(QUANTILES) + 0.5) / QUANTILES
    letters = max(said) == 1
    answers = np.quantile(said, at) * (1 if letters else ratio)
    return Workload(
        total,
        round(float(np.mean([len(question.choices) for question in chosen]))),
        (np.quantile(lengths, at) * ratio).round().astype(int).tolist(),
        np.maximum(1, answers.round()).astype(int).tolist(),
        round(len(prompts.query(prompts.placeholder_prompt(task))[0]) * ratio),
        {str(budget): _packs(shards, round(budget / ratio), ratio) for budget in BUDGETS},
    )


def _packs(shards: Sequence[Shard], budget: int, ratio: float) -> Packs:
    packs = [pack for shard in shards for pack in plan_packs(_distinct(shard.prompts), budget)]
    own, before, pieces = sum(len(p.tokens) for p in packs), sum(len(p.shared) for p in packs), _pieces(packs)
    scaled = [round(n / len(packs) * ratio) for n in (own, before, pieces)]
    return Packs(round(sum(len(pack.rows) for pack in packs) / len(packs), 2), *scaled)


def _distinct(prompts: Sequence[Ids]) -> list[Ids]:
    return list({ids.tobytes(): ids for ids in prompts}.values())


def _pieces(packs: Sequence[Pack]) -> int:
    """Tokens of shared beginnings that are read, where a pack keeps what the one before it read."""
    read = 0
    cuts: tuple[int, ...] = ()
    shared: Ids = np.zeros(0, dtype=np.int32)
    for pack in packs:
        kept = 0
        for ours, theirs in zip(cuts, pack.cuts, strict=False):
            if ours != theirs or not np.array_equal(shared[:ours], pack.shared[:ours]):
                break
            kept = ours
        read += len(pack.shared) - kept
        cuts, shared = pack.cuts, pack.shared
    return read


def main() -> None:
    FILE.write_text(json.dumps(measured(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
