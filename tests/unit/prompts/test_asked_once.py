"""What a model is asked in the same words after every question is tokenised once, however many questions there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from bench import registry
from bench.api.protocol import Protocol
from bench.api.question import Prompt
from bench.data.sources import open_source
from bench.progress import Silent
from bench.prompts.chat import QuerySuffix
from bench.prompts.shards import PromptTokeniser
from bench.prompts.tails import Ids


class Counted:
    """Stands in for a tokenizer with its template: counts what it is asked for."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def prompts(self, prompts: Sequence[Prompt]) -> list[Ids]:
        self.calls["prompts"] += len(prompts)
        return [np.arange(9, dtype=np.int32) for _ in prompts]

    def query(self, *_: Any) -> QuerySuffix:
        self.calls["query"] += 1
        return QuerySuffix(np.arange(3, dtype=np.int32), continues=True)

    def letters(self, _: Prompt, letters: str) -> Ids:
        self.calls["letters"] += 1
        return np.arange(len(letters), dtype=np.int32)


def test_letters_and_the_query_of_all_questions_are_tokenised_once() -> None:
    chat: Any = Counted()
    task = registry.tasks().get("atlas-choice")(open_source(None), Protocol())
    questions = list(islice(task.questions("test"), 30))
    prompts = PromptTokeniser(chat, 2048, Protocol())
    prompts.shards(task, questions, {}, Silent(), "atlas-choice/test")
    asked = [prompts.asking(task, questions, 1) for _ in range(5)]
    assert chat.calls == {"prompts": 30, "query": 1, "letters": 2}  # of the options, and of yes and no
    assert len({(each.letter_ids.tobytes(), each.suffix.tobytes()) for each in asked}) == 1
    assert asked[0].letter_ids.tolist() == list(range(max(len(q.choices) for q in questions)))
