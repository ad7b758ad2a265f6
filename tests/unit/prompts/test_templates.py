"""Prompts, word for word: golden files of self-written rows, and the structure of all real MMLU prompts."""

from __future__ import annotations

import csv
import hashlib
import itertools
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from bench.api import Format, PromptStyle, Question, protocol
from bench.api.protocol import TEMPLATES, Protocol
from bench.api.question import Prompt
from bench.data.sources import FolderSource
from bench.prompts import templates
from tasks.mmlu import MMLUChoice

GOLDEN = Path(__file__).parents[2] / "golden"
SHARED = Path(__file__).parents[3] / ".." / "shared"
DATA = SHARED / "data"
PROTOCOL = Protocol()


# --- golden files -----------------------------------------------------------------------------------------------------


def _row(question: str, subject: str, choices: list[str], answer: int) -> dict[str, object]:
    return {"question": question, "subject": subject, "choices": choices, "answer": answer}


DEV = [
    *(_row(f"What is {i} plus {i}?", "us_foreign_policy", [str(2 * i + j) for j in range(4)], 0) for i in range(5)),
    *(_row(f"Which comes after {c}?", "miscellaneous", ["B", "C", "D", "E"], i) for i, c in enumerate("ABCD")),
    _row("Which word has a space before it?", "miscellaneous", [" this", "that", "those", "these"], 0),
]
TEST = [
    _row("What is 9 plus 9?", "us_foreign_policy", ["16", "17", "18", "19"], 2),
    _row("Fill in {text}:\n  1. one\n  2. {options}\n", "miscellaneous", ["{text}", "100 %", " b ", "(a): a"], 3),
    _row("Ist das „schön“?", "miscellaneous", ["ja", "nein", "ja", "∅"], 1),
]
SHOTS = [5, 2, 0]
"""Exemplars in the three prompts: all, some (they are dropped from the left), none."""


@pytest.fixture
def fixture(tmp_path: Path) -> MMLUChoice:
    (tmp_path / "mmlu").mkdir()
    parquet.write_table(pa.Table.from_pylist(TEST), tmp_path / "mmlu" / "test.parquet")
    parquet.write_table(pa.Table.from_pylist(DEV), tmp_path / "mmlu" / "dev.parquet")
    return MMLUChoice(FolderSource(tmp_path))


def _written(prompt: Prompt) -> str:
    return "".join(f"--- {m.role}\n{m.content}\n--- end\n" for m in prompt.messages)


@pytest.mark.parametrize("i", range(3))
def test_prompt_equals_its_golden_file(fixture: MMLUChoice, i: int) -> None:
    question = list(fixture.questions("test"))[i]
    pool = [dev for dev in fixture.questions("dev") if dev.subject == question.subject]
    shots = pool[len(pool) - SHOTS[i] :]
    prompt = templates.build(question, shots, fixture.style, fixture.format, PROTOCOL)
    assert _written(prompt) == (GOLDEN / f"prompt_mmlu_choice_{i}.txt").read_text(encoding="utf-8")


def test_ids_are_the_places_in_the_file(fixture: MMLUChoice) -> None:
    assert [q.id for q in fixture.questions("test")] == ["mmlu/test/0", "mmlu/test/1", "mmlu/test/2"]
    assert [q.id for q in fixture.questions("dev")] == [f"mmlu/dev/{i}" for i in range(10)]


def test_query_conversation_equals_its_golden_file(fixture: MMLUChoice) -> None:
    question = next(fixture.questions("test"))
    prompt = templates.build(question, (), fixture.style, fixture.format, PROTOCOL)
    turns = templates.query_messages(prompt, PROTOCOL)
    assert turns[:2] == prompt.messages
    shown = "".join(f"--- {m.role}\n{m.content}\n--- end\n" for m in turns[2:])
    assert shown == (GOLDEN / "prompt_query.txt").read_text(encoding="utf-8")


WORDS = {"choice/1": "53ef4487", "open/1": "6f799c76", "query/1": "de7b204f"}


def test_other_words_need_another_version() -> None:
    """Once the words change, raise the version in `bench.api.protocol.TEMPLATES` and put their hash here."""
    prompts = {fmt.value: templates.build(OPEN, [OPEN], STYLE, fmt, PROTOCOL) for fmt in Format}
    said = {name: [m.content for m in prompt.messages] for name, prompt in prompts.items()}
    said["query"] = [templates.query_text(PROTOCOL.query_letters)]
    hashes = {
        TEMPLATES[name]: hashlib.sha256("\0".join(words).encode()).hexdigest()[:8] for name, words in said.items()
    }
    assert hashes == WORDS


def test_another_version_of_the_words_is_another_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    before = PROTOCOL.digest()
    monkeypatch.setattr(protocol, "TEMPLATES", {**TEMPLATES, "query": "query/2"})
    assert PROTOCOL.digest() != before


# --- rules that no golden file shows ----------------------------------------------------------------------------------

STYLE = PromptStyle(header="About {label}.", footer="Now.", context="Q: {text}", target_prompt="\nA:")
OPEN = Question("t/0", "world_religions", "Who?", ("Ann", "Bob"), gold=1)


def test_open_questions_show_the_answer_text_and_never_the_options() -> None:
    prompt = templates.build(OPEN, [OPEN], STYLE, Format.OPEN, PROTOCOL)
    assert prompt.messages[1].content == "About World religions.\n\nQ: Who?\nA: Bob\n\nNow.\n\nQ: Who?\nA:"
    assert "multiple-choice" not in prompt.messages[0].content


def test_exemplars_are_stripped_and_the_question_is_not() -> None:
    ragged = Question("t/1", "s", " \n padded ", ("x", "y "), gold=1)
    style = PromptStyle(header="H", footer="F", context="{text}", target_prompt="|")
    content = templates.build(ragged, [ragged], style, Format.OPEN, PROTOCOL).messages[1].content
    assert content == "H\n\npadded | y\n\nF\n\n \n padded |"


def test_prompts_of_a_subject_share_everything_up_to_the_question(fixture: MMLUChoice) -> None:
    _, second, third = fixture.questions("test")
    pool = [q for q in fixture.questions("dev") if q.subject == "miscellaneous"]
    a, b = (
        templates.build(q, pool, fixture.style, fixture.format, PROTOCOL).messages[1].content for q in (second, third)
    )
    shared = "".join(x for x, y in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
    assert shared.endswith("Now, answer the next question.\n\nQuestion:\n")


@pytest.mark.parametrize(
    ("subject", "label"),
    [
        ("us_foreign_policy", "Us foreign policy"),
        ("anatomy", "Anatomy"),
        ("high_school_history", "High school history"),
    ],
)
def test_subject_label(subject: str, label: str) -> None:
    assert templates.subject_label(subject) == label


def test_letters_go_up_to_the_last_option() -> None:
    many = Question("t/2", "s", "Which?", tuple(f"o{i}" for i in range(26)), gold=25)
    style = PromptStyle(header="", footer="", context="{text}\n{options}")
    lines = templates.context(many, style, PROTOCOL.letters).splitlines()
    assert lines[1] == "  (a): o0"
    assert lines[-1] == "  (z): o25"
    assert templates.target(many, Format.CHOICE, PROTOCOL.letters) == "z"


# --- all real prompts -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mmlu() -> MMLUChoice:
    if not (DATA / "mmlu" / "test.parquet").is_file():
        pytest.skip("../shared/data/mmlu is absent")
    return MMLUChoice(FolderSource(DATA))


def _published_sizes() -> dict[str, int]:
    path = SHARED / "paper" / "task_sizes.csv"
    if not path.is_file():
        pytest.skip("../shared/paper/task_sizes.csv is absent")
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["benchmark"] == "mmlu"]
    return {row["task"].lower().replace(" ", "_"): int(row["n_test"]) for row in rows}


def test_subjects_have_the_published_sizes_and_five_exemplars(mmlu: MMLUChoice) -> None:
    sizes = Counter(q.subject for q in mmlu.questions("test"))
    assert dict(sizes) == _published_sizes()
    assert len(sizes) == 57
    assert Counter(q.subject for q in mmlu.questions("dev")) == dict.fromkeys(sizes, 5)


def test_rows_of_a_subject_stand_together(mmlu: MMLUChoice) -> None:
    runs = [subject for subject, _ in itertools.groupby(q.subject for q in mmlu.questions("test"))]
    assert len(runs) == len(set(runs)) == 57


def test_every_real_prompt_is_built_as_it_must_be(mmlu: MMLUChoice) -> None:
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
