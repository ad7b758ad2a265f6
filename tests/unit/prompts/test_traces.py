"""Models that reason first: their prompts, where traces end, what closes them, and turns after them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.api import Question, UserError
from bench.api.protocol import FIXED
from bench.api.question import Message, Prompt, Released
from bench.prompts.answer_tokens import TokenizedAnswers, tokenise_answers
from bench.prompts.chat import Chat
from bench.prompts.traces import TraceEnd, end_counts, is_empty, steps
from tests.fixtures import thinking

PROMPT = Prompt((Message("system", "Be brief."), Message("user", "Which gas do plants take in?\nAnswer:")))
TURNS = [{"role": m.role, "content": m.content} for m in PROMPT.messages]


def reasoning(template: str | None, budget: int = 64) -> Chat:
    """A chat whose model reasons first."""
    chat = Chat(thinking.tokenizer(template))
    chat.think(budget, 4096)
    return chat


@pytest.mark.parametrize("template", thinking.TEMPLATES)
def test_prompts_are_what_transformers_renders(template: str) -> None:
    chat = reasoning(template)
    text = chat.tokenizer.apply_chat_template(TURNS, tokenize=False, add_generation_prompt=True, enable_thinking=True)
    assert chat.render(PROMPT.messages).encode() == text.encode()
    whole = chat.tokenizer.apply_chat_template(TURNS, add_generation_prompt=True, enable_thinking=True)
    assert chat.prompts([PROMPT])[0].tolist() == whole["input_ids"]
    assert text.endswith("<think>\n") == (template == "r1")


@pytest.mark.parametrize("template", thinking.TEMPLATES)
def test_a_template_s_own_marker_ends_the_trace(template: str) -> None:
    chat = reasoning(template)
    assert chat.thinking is not None
    assert chat.thinking.kind == "template"
    (marker,) = chat.tokenizer("</think>", add_special_tokens=False)["input_ids"]
    assert chat.thinking.marker_id == marker
    decode = chat.tokenizer.decode
    assert decode(chat.thinking.closing(TraceEnd.MARKER)) == "</think>\n\n" + chat.thinking.lead
    assert decode(chat.thinking.closing(TraceEnd.BUDGET)) == "\n</think>\n\n" + chat.thinking.lead
    assert "its template's own way, up to </think>" in chat.notes[0]


def test_any_model_reasons_by_an_instruction() -> None:
    chat = reasoning(None)
    assert chat.thinking is not None
    assert chat.thinking.kind == "instruction/1"
    assert chat.thinking.marker_id is None
    decode = chat.tokenizer.decode
    assert decode(chat.thinking.closing(TraceEnd.MARKER)) == chat.thinking.lead
    assert decode(chat.thinking.closing(TraceEnd.STOPPED)) == "\n\n" + chat.thinking.lead
    assert "by an instruction" in chat.notes[0]


def test_model_whose_template_only_drops_traces_is_instructed() -> None:
    tokenizer = thinking.tokenizer("keeping")
    tokenizer.chat_template = thinking.published("lfm2_2_5")
    assert "</think>" in tokenizer.chat_template
    chat = Chat(tokenizer)
    chat.think(64, 4096)
    assert chat.thinking is not None
    assert (chat.thinking.kind, chat.thinking.marker_id) == ("instruction/1", None)


@pytest.mark.parametrize("template", [None, *thinking.TEMPLATES])
def test_letters_are_tokens_after_the_closing(template: str | None) -> None:
    chat = reasoning(template)
    assert chat.thinking is not None
    ids = chat.letters(replace(PROMPT, lead=f"\n\n{chat.thinking.lead}"), "abcd")
    for letter, token in zip("abcd", ids.tolist(), strict=True):
        for end in (TraceEnd.MARKER, TraceEnd.BUDGET):
            closing = chat.thinking.closing(end).tolist()
            text = chat.tokenizer.decode([*closing, token])
            assert text.endswith(f"Answer: {letter}")


class Served:
    """A tokenizer of a server that renders conversations and doesn't tell the template."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.chat_template = tokenizer, "the server's"

    def __call__(self, *texts: Any, **options: Any) -> Any:
        return self.tokenizer(*texts, **options)

    def apply_chat_template(self, *turns: Any, chat_template: Any, **options: Any) -> Any:
        """Render by the template that only the server has."""
        return self.tokenizer.apply_chat_template(*turns, **options)


@pytest.mark.parametrize("template", [None, *thinking.TEMPLATES])
def test_the_marker_of_a_template_that_a_server_does_not_tell_is_found(template: str | None) -> None:
    chat, known = Chat(Served(thinking.tokenizer(template))), reasoning(template).thinking
    chat.think(64, 4096)
    assert chat.thinking is not None
    assert known is not None
    assert (chat.thinking.marker, chat.thinking.fields()) == (known.marker, known.fields())
    assert chat.thinking.marker == ("" if template is None else "</think>")


def test_channels_of_a_template_that_a_server_does_not_tell_are_refused() -> None:
    tokenizer = thinking.tokenizer("keeping")
    tokenizer.chat_template = tokenizer.chat_template.replace("m.content", "'<|channel|>final' + m.content")
    with pytest.raises(UserError, match="models that write several channels"):
        Chat(Served(tokenizer)).think(64, 4096)


@pytest.mark.parametrize("template", [None, "qwen3"])
@pytest.mark.parametrize(
    "text",
    [
        "I see.</think>\n\nb</think>c",
        "</think>b",
        "",
        "It is b.\nAnswer: b\nAnswer: c",
        "No end",
        "Answer: b",
        'So "Answer: b"',
    ],
)
def test_a_whole_output_is_divided_where_it_ends_while_it_is_generated(template: str | None, text: str) -> None:
    chat = reasoning(template)
    assert chat.thinking is not None
    ids = chat.tokenizer(text, add_special_tokens=False)["input_ids"]
    one_by_one = (chat.thinking.length(ids[: k + 1], chat.pieces) for k in range(len(ids)))
    expected = next((length for length in one_by_one if length is not None), None)
    assert chat.thinking.first_length(ids, chat.decode, chat.pieces) == expected
    assert (expected is None) == (("</think>" if template else "Answer:") not in text or '"' in text)


def _after(chat: Chat, template: str, trace: str, answer: str, query: str) -> list[int]:
    """What the stored ids give for a query after an answer with a trace."""
    assert chat.thinking is not None
    ids: list[Any] = [chat.prompts([PROMPT])[0], chat.tokenizer(trace, add_special_tokens=False)["input_ids"]]
    ids += [chat.thinking.closing(TraceEnd.MARKER), chat.tokenizer(answer, add_special_tokens=False)["input_ids"]]
    return np.concatenate([*ids, chat.followup(PROMPT, query).ids]).astype(int).tolist()


@pytest.mark.parametrize("template", thinking.TEMPLATES)
def test_a_turn_after_the_answer_keeps_the_trace_and_is_answered_at_once(template: str) -> None:
    chat, trace = reasoning(template), "Plants need it to grow.\n"
    found = chat.tokenizer.decode(_after(chat, template, trace, "carbon dioxide", "Sure?"))
    rendered = chat.tokenizer.apply_chat_template(
        [*TURNS, {"role": "assistant", "content": f"{trace}</think>\n\nAnswer: carbon dioxide"},
         {"role": "user", "content": "Sure?"}],
        tokenize=False, add_generation_prompt=True, enable_thinking=False,
    )  # fmt: skip
    assert trace in found
    assert (trace in rendered) == (template == "keeping")
    before, _, after = found.partition(trace)
    assert "Sure?" in after
    assert before == chat.render(PROMPT.messages)
    assert found.rstrip("\n").endswith("</think>")  # no reply begins within a trace
    if template == "keeping":
        assert found == rendered


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("It is b.\nAnswer:", "It is b.\n"),
        ("It is b.\n\n**Final Answer:", "It is b.\n\n"),
        ("Answer:", ""),
        ("It is b.\n  answer :", "It is b."),  # a token has both the line's end and its blanks
        ('I end with "Answer:', None),
        ("x\n" + "word " * 40 + "Answer:", None),
        ("The options: a, b.\nNow:", None),
    ],
)
def test_the_line_of_the_answer_ends_an_instructed_trace(text: str, length: str | None) -> None:
    chat = reasoning(None)
    ids = chat.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert chat.thinking is not None
    found = chat.thinking.length(ids, chat.pieces)
    assert (None if found is None else chat.tokenizer.decode(ids[:found])) == length


def test_the_first_marker_ends_a_trace_also_where_it_is_quoted() -> None:
    chat = reasoning("qwen3")
    assert chat.thinking is not None
    ids = chat.tokenizer('I write "</think>', add_special_tokens=False)["input_ids"]
    assert chat.thinking.length(ids, chat.pieces) == len(ids) - 1
    assert chat.thinking.length(ids[:-1], chat.pieces) is None


def given(chat: Chat, *records: Released) -> TokenizedAnswers:
    questions = [Question(f"q{i}", "s", "?", ("a", "b"), 0) for i in range(len(records))]
    return tokenise_answers(chat, PROMPT, questions, {q.id: r for q, r in zip(questions, records, strict=True)})


@pytest.mark.parametrize(
    ("record", "trace", "answer", "end", "several"),
    [
        (Released(None, "I think so.</think>\n\nb", None), "I think so.", "b", TraceEnd.MARKER, 0),
        (Released(None, "So.</think>Answer: b</think> c", None), "So.", "b</think> c", TraceEnd.MARKER, 1),
        (Released(None, "I never end", None), "I never end", "", TraceEnd.STOPPED, 0),
        (Released(None, "</think>b", None), "", "b", TraceEnd.MARKER, 0),
        (Released(None, "b", None, "<think>I think so.</think>\n"), "<think>I think so.", "b", TraceEnd.MARKER, 0),
        (Released(None, "b", None, "tags taken"), "<think>\ntags taken", "b", TraceEnd.MARKER, 0),
        (Released(None, "", None, "cut here"), "<think>\ncut here", "", TraceEnd.STOPPED, 0),
        (Released(None, "b", None, divided=True), "", "b", TraceEnd.MARKER, 0),
    ],
)
def test_outputs_of_a_file_are_divided_at_the_first_marker(
    record: Released, trace: str, answer: str, end: TraceEnd, several: int
) -> None:
    chat = reasoning("qwen3")
    found = given(chat, record)
    assert chat.tokenizer.decode(found.traces[0]) == trace
    assert chat.tokenizer.decode(found.answers[0]).strip() == answer
    assert found.ends == [end]
    assert found.several == several
    ids = tuple(chat.tokenizer(str(record.trace) + str(record.text), add_special_tokens=False)["input_ids"])
    if not record.divided and not record.trace:  # as token ids they are the same
        again = given(chat, replace(record, text=ids))
        assert again.traces[0].tolist() == found.traces[0].tolist()
        assert again.ends == [end]


def test_traces_of_a_file_are_opened_once() -> None:
    chat = reasoning("r1")
    for record in (Released(None, "<think>\nSo.</think>b", None), Released(None, "b", None, "So.")):
        assert chat.tokenizer.decode(given(chat, record).traces[0]) == "So."


def test_second_answer_lines_of_a_file_are_counted() -> None:
    assert given(reasoning(None), Released(None, "So.\nAnswer: a\nAnswer: b", None)).several == 1


def test_outputs_of_a_file_are_divided_at_the_line_of_the_answer() -> None:
    chat = reasoning(None)
    found = given(chat, Released(None, "So it is.\n**Answer:** (b)", None, samples=("No.\nAnswer: a", "b")))
    assert chat.tokenizer.decode(found.traces[0]) == "So it is.\n"
    assert found.samples is not None
    decoded = [chat.tokenizer.decode(ids).strip() for ids in (found.answers[0], *found.samples[0])]
    assert decoded == ["(b)", "a", "b"]
    alone = given(chat, Released(None, "(b)", None), Released(None, "I never end", None))
    assert [chat.tokenizer.decode(ids).strip() for ids in alone.answers] == ["(b)", ""]
    assert [chat.tokenizer.decode(ids) for ids in alone.traces] == ["", "I never end"]


def test_steps_are_lines_with_text() -> None:
    chat = reasoning(None)
    ids = chat.tokenizer("One.\n\n\nTwo\nthree", add_special_tokens=False)["input_ids"]
    ends = steps(ids, lambda token: chat.pieces([token])[0])
    assert chat.tokenizer.decode(ids[: ends[0] + 1]).strip() == "One."
    assert ends[-1] == len(ids) - 1
    assert len(ends) == 3
    assert steps([], str) == []


def test_odd_traces_are_counted() -> None:
    chat = reasoning("qwen3")
    assert chat.thinking is not None
    ends = [TraceEnd.MARKER, TraceEnd.BUDGET, TraceEnd.STOPPED, TraceEnd.BUDGET]
    assert end_counts(chat.thinking, ends, [65, 64, 9, 64], 1, given=False) == {
        "traces cut at 64 tokens and closed": 2, "traces that ended without their end marker, closed": 1,
        "traces of more than 64 tokens, kept whole": 1, "empty traces": 1,
    }  # fmt: skip
    assert is_empty("<think>\n\n")
    assert not is_empty("<think>so")


@pytest.mark.parametrize(
    ("template", "budget", "message"),
    [
        (None, 4096, r"--think-budget 4096: expected fewer tokens than this model's context of 4,096"),
        ("{{ messages[0].content }}", 8, "expected a chat template with a generation prompt"),
        ("{% if add_generation_prompt %}<|channel|>{% endif %}", 8, "several channels"),
        (
            "{{ messages[0].content }}{% if add_generation_prompt %}<thought>{% endif %}",
            8,
            "opens a trace; expected its end",
        ),
    ],
)
def test_models_that_can_t_reason_are_refused(template: str | None, budget: int, message: str) -> None:
    chat = Chat(thinking.tokenizer())
    chat.tokenizer.chat_template = template or chat.tokenizer.chat_template
    with pytest.raises(UserError, match=message):
        chat.think(budget, 4096)


def test_a_user_s_turn_that_leads_to_the_answer_needs_no_generation_prompt() -> None:
    chat = Chat(thinking.tokenizer())
    chat.tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content }}</s>{% else %}"
        "[INST] {{ m.content }} [/INST]{% endif %}{% endfor %}"
    )
    chat.think(8, 4096)
    assert chat.thinking is not None


def test_a_model_that_reasons_by_its_template_answers_letters() -> None:
    chat = Chat(thinking.tokenizer("r1"))
    assert chat.no_letters_reason is not None
    chat.think(64, 4096)
    assert chat.no_letters_reason is None
    assert len(chat.letters(PROMPT, FIXED.query_letters)) == 2
