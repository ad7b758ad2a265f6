"""What chat templates write before answers: they are read as the tokens that follow it, and elsewhere as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.api import ChoiceLogits, Followup, QueryLogits, Signal
from bench.api.protocol import FIXED
from bench.api.question import Message, Prompt, Released
from bench.grading.hf import _first_ids
from bench.prompts.chat import _DATE_STRING, Chat
from bench.prompts.templates import query_text
from tests.fixtures import models
from tests.fixtures.thinking import KEEPING, published
from tests.fixtures.thinking import tokenizer as tokenizer_of
from tests.kit.splits import FiveRivers, batch_of, read
from tests.unit.prompts.test_traces import Served

TURNS = (
    "{{{{ bos_token }}}}{{% for m in messages %}}{{% if m.role == 'user' %}}[INST] {{{{ m.content }}}}{end}"
    "{{% elif m.role == 'assistant' %}}{before}{{{{ m.content }}}}{{{{ eos_token }}}}"
    "{{% else %}}{{{{ raise_exception('no') }}}}{{% endif %}}{{% endfor %}}"
)
MISTRAL, LLAMA_2 = TURNS.format(end="[/INST]", before=" "), TURNS.format(end=" [/INST]", before=" ")
VICUNA = (
    "{% for m in messages %}{{ {'user': 'USER: ', 'assistant': 'ASSISTANT: '}.get(m.role, '') + m.content + ' ' }}"
    "{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
ZEPHYR = (
    "{% for m in messages %}\n{{ '<|' + m.role + '|>\n' + m.content + eos_token }}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"
)
BLANK = {"mistral": MISTRAL, "llama 2": LLAMA_2, "vicuna": VICUNA}
OTHERS = {
    "mistral at first": TURNS.format(end=" [/INST]", before=""), "tekken": TURNS.format(end="[/INST]", before=""),
    "blanks": TURNS.format(end="[/INST]", before="  "),
    "zephyr": ZEPHYR, "smollm3": KEEPING,
    **{name: published(name) for name in ("llama3", "qwen2_5", "qwen3", "gemma", "phi3", "deepseek_r1_distill")},
}  # fmt: skip
GAPS = {
    "line": (TURNS.format(end="[/INST]", before="{{ '\n' }}"), "\n"),
    "header": (KEEPING.partition("{% if add")[0], "<|im_start|>assistant\n"),  # whatever is asked for
    "header, blank": (VICUNA.partition("{% if add")[0], "ASSISTANT:"),
    "channel": (published("gptoss"), "<|channel|>final<|message|>"),
    "glm": (published("glm4moe"), "\n"),
}
"""Name -> template, and what it writes between the generation prompt and an answer, without a blank at its end."""
PROMPT = Prompt((Message("system", "Be brief."), Message("user", "Which? a) x b) y")))


def names(chat: Chat, ids: Any) -> Any:
    return chat.tokenizer.convert_ids_to_tokens(list(map(int, ids)))


@pytest.mark.parametrize("template", BLANK)
def test_answers_are_tokens_that_the_template_writes(template: str) -> None:
    chat = Chat(models.pieces(BLANK[template]))
    (asked,) = chat.prompts([PROMPT])
    for answer in ("b", "yes", "so"):
        (whole,) = chat.encode([chat.render([*PROMPT.messages, Message("assistant", answer)], answering=False)])
        (ids,) = chat.continuations(PROMPT, [answer])
        assert whole[: len(asked) + len(ids)].tolist() == [*asked, *ids]
        assert chat.decode(ids.tolist()) == answer
    assert names(chat, chat.letters(PROMPT, "abcd")) == ["▁a", "▁b", "▁c", "▁d"]
    assert names(chat, chat.words(PROMPT, ("no", "yes"))) == ["▁no", "▁yes"]
    own = [names(chat, ids) for ids in chat.continuations(PROMPT, ["", " yes", "\nno"])]
    assert own == [[], ["▁yes"], ["<0x0A>", "no"]]  # texts with white space of their own
    assert chat.before_answers([PROMPT], FIXED)[0].tolist() == asked.tolist()
    assert chat.query(PROMPT, FIXED).continues


class GoingOn(Served):
    """A tokenizer of llama.cpp's server, which takes a last turn of the assistant as one to go on with."""

    def apply_chat_template(self, *turns: Any, **options: Any) -> Any:
        (said,) = turns
        begun = said[-1]["content"] if said[-1]["role"] == "assistant" else ""
        options["add_generation_prompt"] |= bool(begun)
        return super().apply_chat_template(said[:-1] if begun else said, **options) + begun

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


@pytest.mark.parametrize("template", GAPS)
@pytest.mark.parametrize("kind", [lambda tokenizer: tokenizer, GoingOn], ids=["tokenizer", "server"])
def test_answers_follow_what_the_template_writes(template: str, kind: Any) -> None:
    text, gap = GAPS[template]
    tokenizer = models.pieces(text)
    chat = Chat(kind(tokenizer))
    assert chat.gap == gap
    assert chat.notes[-1].endswith(f"writes {gap!r} before answers: they are read behind it")
    (asked,) = chat.prompts([PROMPT])
    turns = [{"role": m.role, "content": m.content} for m in PROMPT.messages]
    if template == "line":  # it refuses a system turn
        turns = [{"role": "user", "content": f"{turns[0]['content']}\n\n{turns[1]['content']}"}]
    query = [{"role": "assistant", "content": "b"}, {"role": "user", "content": query_text(FIXED.query_letters)}]
    suffix = chat.query(PROMPT, FIXED)
    after = np.concatenate([asked, chat.letters(PROMPT, "b"), suffix.ids])
    for before, start in ((turns, asked), ([*turns, *query], after)):
        for letter, token in zip("ab", chat.letters(PROMPT, "ab"), strict=True):
            said = [*before, {"role": "assistant", "content": letter}]
            whole = tokenizer.apply_chat_template(said, tokenize=False, enable_thinking=False, date_string=_DATE_STRING)
            assert chat.encode([whole])[0][: len(start) + 1].tolist() == [*start, token]
    assert suffix.continues
    assert chat.before_answers([PROMPT], FIXED)[0].tolist() == asked.tolist()


def test_gap_is_no_part_of_prompts_before_traces() -> None:
    tokenizer = tokenizer_of("keeping")
    tokenizer.chat_template = published("glm4moe")
    chat = Chat(tokenizer)
    chat.think(64, 4096)
    assert chat.thinking is not None
    assert (chat.gap, chat.thinking.marker) == ("\n", "</think>")
    assert chat.render(PROMPT.messages).endswith("<|assistant|>")
    assert tokenizer.decode(chat.query(PROMPT, FIXED).ids).endswith("<|assistant|>\n<think></think>\n")


@pytest.mark.parametrize("template", OTHERS)
def test_answers_of_other_templates_follow_at_once(template: str) -> None:
    chat = Chat(models.pieces(OTHERS[template]))
    assert (chat.gap, chat.blank) == ("", "")
    if chat.no_letters_reason is None:
        assert names(chat, chat.letters(PROMPT, "ab")) == ["a", "b"]
    assert [names(chat, ids) for ids in chat.continuations(PROMPT, ["yes", " yes"])] == [["yes"], ["▁yes"]]


def test_blank_of_the_tokenizer_is_not_doubled() -> None:
    chat = Chat(models.pieces(MISTRAL, prepends=True))
    assert chat.blank == ""
    assert names(chat, chat.letters(PROMPT, "ab")) == ["▁a", "▁b"]


@pytest.mark.parametrize("prepends", [False, True])
def test_turn_after_an_answer_is_tokenised_behind_it(prepends: bool) -> None:
    tokenizer = models.pieces("", prepends=prepends)
    tokenizer.chat_template = None
    chat = Chat(tokenizer)
    (asked,) = chat.prompts([PROMPT])
    turns = [*PROMPT.messages, Message("assistant", "yes"), Message("user", query_text(FIXED.query_letters))]
    (answer,) = chat.continuations(PROMPT, ["yes"])
    assert [*asked, *answer, *chat.query(PROMPT, FIXED).ids] == chat.encode([chat.render(turns)])[0].tolist()


def test_judge_reads_words_with_and_without_blank() -> None:
    for template in (MISTRAL, OTHERS["zephyr"]):
        lm: Any = type("Tokenizer", (), {"chat": Chat(models.pieces(template))})
        assert set(names(lm.chat, _first_ids(lm, "yes"))) == {"yes", "▁yes"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(tmp_path_factory.mktemp("mistral"), models.llama(vocab_size=512), models.pieces(MISTRAL))


def test_shares_of_letters_are_those_of_tokens_written(folder: Path, tmp_path: Path) -> None:
    signals = ChoiceLogits(), QueryLogits()
    reader, split_data = read(folder, tmp_path, FiveRivers, {*signals}, [Released(None, "b", None)])
    chat, model = reader.lm.chat, reader.lm.model
    batch = batch_of(reader, split_data, *signals, labels=True)
    questions = {question.id: question for question in split_data.questions}
    shown = {
        split_data.questions[row].id: own for s in split_data.shards for row, own in zip(s.rows, s.shown, strict=True)
    }
    for i, name in enumerate(batch.ids):
        asked = reader.prompts.prompt(split_data.task, questions[name], shown[name]).messages
        query = [*asked, Message("assistant", "b"), Message("user", query_text(FIXED.query_letters))]
        for turns, signal, count in ((asked, signals[0], len(questions[name].choices)), (query, signals[1], 2)):
            (start,) = chat.encode([chat.render(turns)])
            replies = [[*turns, Message("assistant", letter)] for letter in FIXED.letters[:count]]
            written = [whole[len(start)] for whole in chat.encode([chat.render(each) for each in replies])]
            with torch.inference_mode():
                logits = model(torch.as_tensor(start[None].astype(np.int64))).logits[0, -1, written]
            assert batch[signal][i][:count] == pytest.approx(logits.numpy(), abs=1e-4)


def test_readings_without_the_blank_are_stale(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: set[Signal] = {Followup("Sure?", say=2)}
    given = [Released(None, (70,), None)]
    with monkeypatch.context() as former:
        former.setattr(Chat, "blank", "")
        assert read(folder, tmp_path, FiveRivers, said, given)[0].forward_tokens
    for again in (True, False):
        assert bool(read(folder, tmp_path, FiveRivers, said, given)[0].forward_tokens) is again
