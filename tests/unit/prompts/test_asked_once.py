"""What a model is asked in the same words after every question is tokenised once, however many questions there are."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from bench import model, registry
from bench.api.protocol import Protocol
from bench.data.sources import open_source
from bench.progress import Silent
from bench.prompts.chat import Chat
from bench.prompts.shards import PromptTokeniser


class Counting:
    """A tokenizer that counts the texts that it is given."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.texts = tokenizer, 0

    def __call__(self, texts: Any, **options: Any) -> Any:
        self.texts += 1 if isinstance(texts, str) else len(texts)
        return self.tokenizer(texts, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


def test_letters_and_the_query_of_all_questions_are_tokenised_once() -> None:
    tokenizer = Counting(AutoTokenizer.from_pretrained(Path(model.__file__).parent / "tiny"))
    task = registry.tasks().get("atlas-choice")(open_source(None), Protocol())
    questions = list(islice(task.questions("test"), 30))
    fixed = []
    for n in (10, 30):
        prompts, tokenizer.texts = PromptTokeniser(Chat(tokenizer), 2048, Protocol()), 0
        prompts.shards(task, questions[:n], {}, Silent(), "atlas-choice/test")
        asked = [prompts.prompt_settings(task, questions, 1) for _ in range(5)]
        fixed.append(tokenizer.texts - n)
        assert len({(each.letter_ids.tobytes(), each.suffix.tobytes()) for each in asked}) == 1
    assert fixed[0] == fixed[1]
