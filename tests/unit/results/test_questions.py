"""Questions kept beside results: what is written when, what survives, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from threading import Thread

import pytest

from bench.api import Format, PromptStyle, Question, UserError
from bench.results import cells, question_texts
from bench.results.question_texts import QuestionText
from tests.kit import world

STYLE = PromptStyle(header="About {label}.", footer="Next.", context="Q: {text}\n{options}")
LETTERS = "abcdefghij"


def questions(n=4, start=0):
    return [
        QuestionText(f"t/{i}", "bells", f"Which bell rings {i} times?", ("one", "two"), "a")
        for i in range(start, start + n)
    ]


def test_choice_question_is_kept_with_its_options():
    question = Question("t/0", "bells", "Which metal?", ("tin", "bronze"), 1)
    choice = question_texts.of(question, STYLE, Format.CHOICE, LETTERS)
    assert choice == QuestionText("t/0", "bells", "Q: Which metal?\n  (a): tin\n  (b): bronze", ("tin", "bronze"), "b")
    opened = question_texts.of(question, replace(STYLE, context="Q: {text}"), Format.OPEN, LETTERS)
    assert opened == QuestionText("t/0", "bells", "Q: Which metal?", (), "bronze")
    several = replace(question, accepted=("bell metal",))
    opened = question_texts.of(several, replace(STYLE, context="Q: {text}"), Format.OPEN, LETTERS)
    assert opened.gold.split(question_texts.ANSWER_SEPARATOR) == ["bronze", "bell metal"]


def test_questions_of_any_text_are_read_back(tmp_path):
    odd = [
        QuestionText("x", "", "", (), ""),
        QuestionText("y", "</script>", "\u202eabc\x00\n\u2028", ("", " a ", "a"), "c"),
        QuestionText("z", "\u0627", "א" * 10_000, tuple("abcdefghij"), "😀"),
    ]
    path = question_texts.write("rivers", 3, odd, tmp_path)
    assert path == tmp_path / "questions" / "rivers--v3.parquet"
    read = question_texts.read(tmp_path, "rivers", 3)
    assert list(read.values()) == odd
    assert list(read) == ["x", "y", "z"]


def test_digest_knows_every_field_and_no_order():
    kept = questions()
    assert question_texts.digest(kept) == question_texts.digest(reversed(kept))
    changes = {"id": "t/9", "subject": "tins", "text": "?", "choices": ("two", "one"), "gold": "b"}
    others = [replace(kept[0], **{name: value}) for name, value in changes.items()]
    digests = {question_texts.digest([other, *kept[1:]]) for other in others} | {
        question_texts.digest(kept),
        question_texts.digest(kept[1:]),
    }
    assert len(digests) == len(changes) + 2


def test_questions_that_are_absent_are_none(tmp_path):
    question_texts.write("rivers", 1, questions(), tmp_path)
    assert question_texts.read(tmp_path, "rivers", 2) == {}
    assert question_texts.read(tmp_path, "hills", 1) == {}
    assert question_texts.read(tmp_path / "nowhere", "rivers", 1) == {}


def test_questions_are_added_and_never_taken_away(tmp_path):
    path = question_texts.write("rivers", 1, questions(2, start=2), tmp_path)
    question_texts.write("rivers", 1, questions(4), tmp_path)
    assert list(question_texts.read(tmp_path, "rivers", 1)) == ["t/0", "t/1", "t/2", "t/3"]
    before = path.stat()
    for again in (questions(), questions(2), []):
        assert not question_texts.would_change("rivers", 1, again, tmp_path)
        question_texts.write("rivers", 1, again, tmp_path)
    assert (before.st_ino, before.st_mtime_ns) == (path.stat().st_ino, path.stat().st_mtime_ns)
    assert question_texts.would_change("rivers", 1, questions(2, start=5), tmp_path)
    question_texts.write("rivers", 1, questions(2, start=5), tmp_path)
    assert list(question_texts.read(tmp_path, "rivers", 1)) == ["t/5", "t/6", "t/0", "t/1", "t/2", "t/3"]
    assert question_texts.would_change("rivers", 1, [replace(questions(1)[0], text="new")], tmp_path)
    question_texts.write("rivers", 1, [replace(questions(1)[0], text="new")], tmp_path)
    kept = question_texts.read(tmp_path, "rivers", 1)
    assert [kept["t/0"].text, kept["t/1"].text] == ["new", "Which bell rings 1 times?"]


def test_questions_of_two_runs_at_once_are_kept(tmp_path, monkeypatch):
    real, others = question_texts.read, []

    def read(*where):
        stored = real(*where)
        if not others:
            others.append(Thread(target=question_texts.write, args=("rivers", 1, questions(2, start=2), tmp_path)))
            others[0].start()
            others[0].join(0.3)  # it waits until the first has written
        return stored

    monkeypatch.setattr(question_texts, "read", read)
    question_texts.write("rivers", 1, questions(2), tmp_path)
    others[0].join()
    assert sorted(real(tmp_path, "rivers", 1)) == ["t/0", "t/1", "t/2", "t/3"]


def test_failed_write_leaves_the_old_file_alone(tmp_path, monkeypatch):
    path = question_texts.write("rivers", 1, questions(2), tmp_path)
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match="No space left"):
        question_texts.write("rivers", 1, questions(3), tmp_path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("task", ["../up", "a/b", "", "a--b", ".hidden"])
def test_names_that_leave_the_folder_are_refused(tmp_path, task):
    with pytest.raises(UserError, match="rename"):
        question_texts.write(task, 1, questions(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_results_and_questions_share_a_folder(tmp_path):
    question_texts.write("rivers", 1, questions(), tmp_path)
    row = world.write_failure(tmp_path, "ccps", "no train split", model="questions", task="rivers")
    assert (tmp_path / "questions_").is_dir()
    assert cells.read_all(tmp_path) == [row]
