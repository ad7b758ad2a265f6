"""The words of prompts: rules that no golden file shows, their versions, and the structure of all real MMLU prompts."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from bench.api import Format, PromptStyle, Question, protocol
from bench.api.protocol import TEMPLATES, Protocol
from bench.data.sources import FolderSource
from bench.prompts import templates
from tasks.mmlu import MMLUChoice

GOLDEN = Path(__file__).parents[2] / "golden"
SHARED = Path(__file__).parents[3] / ".." / "shared"
PROTOCOL = Protocol()
STYLE = PromptStyle(header="About {label}.", footer="Now.", context="Q: {text}", target_prompt="\nA:")
OPEN = Question("t/0", "world_religions", "Who?", ("Ann", "Bob"), gold=1)
WORDS = {"choice/1": "53ef4487", "open/1": "6f799c76", "query/1": "de7b204f"}


def test_words_that_change_need_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the words change, raise the version in `bench.api.protocol.TEMPLATES` and put their hash here."""
    prompts = {fmt.value: templates.build(OPEN, [OPEN], STYLE, fmt, PROTOCOL) for fmt in Format}
    said = {name: [m.content for m in prompt.messages] for name, prompt in prompts.items()}
    said["query"] = [templates.query_text(PROTOCOL.query_letters)]
    hashes = {
        TEMPLATES[name]: hashlib.sha256("\0".join(words).encode()).hexdigest()[:8] for name, words in said.items()
    }
    assert hashes == WORDS
    before = PROTOCOL.digest()
    monkeypatch.setattr(protocol, "TEMPLATES", {**TEMPLATES, "query": "query/2"})
    assert PROTOCOL.digest() != before


def test_query_equals_its_golden_file() -> None:
    prompt = templates.build(OPEN, (), STYLE, Format.OPEN, PROTOCOL)
    turns = templates.query_messages(prompt, PROTOCOL)
    assert turns[:2] == prompt.messages
    shown = "".join(f"--- {m.role}\n{m.content}\n--- end\n" for m in turns[2:])
    assert shown == (GOLDEN / "prompt_query.txt").read_text(encoding="utf-8")


def test_exemplars_are_stripped_and_questions_are_not() -> None:
    ragged = Question("t/1", "s", " \n padded ", ("x", "y "), gold=1)
    style = PromptStyle(header="H", footer="F", context="{text}", target_prompt="|")
    content = templates.build(ragged, [ragged], style, Format.OPEN, PROTOCOL).messages[1].content
    assert content == "H\n\npadded | y\n\nF\n\n \n padded |"


@pytest.fixture(scope="module")
def mmlu() -> MMLUChoice:
    if not (SHARED / "data" / "mmlu" / "test.parquet").is_file():
        pytest.skip("../shared/data/mmlu is absent")
    return MMLUChoice(FolderSource(SHARED / "data"))


def test_mmlu_prompts_are_built_as_they_must_be(mmlu: MMLUChoice) -> None:
    pool: dict[str, list[Question]] = {}
    for exemplar in mmlu.questions("dev"):
        pool.setdefault(exemplar.subject, []).append(exemplar)
    seen: dict[str, str] = {}
    longest = 0
    for question in mmlu.questions("test"):
        prompt = templates.build(question, pool[question.subject], mmlu.style, mmlu.format, PROTOCOL)
        content = prompt.messages[1].content
        before, own = content.split("\n\nNow, answer the next question.\n\n")
        assert content.endswith("\nAnswer:")
        assert own.startswith("Question:\n" + question.text)
        assert len(re.findall(r"\nAnswer: [a-d]$", before, re.MULTILINE)) == 5
        assert seen.setdefault(question.subject, before) == before
        longest = max(longest, sum(len(m.content) for m in prompt.messages))
    assert len(set(seen.values())) == 57
    assert 14_000 < longest < 16_384, "what the embedded model's context must hold, at a token a character"
