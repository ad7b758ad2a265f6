"""Questions that occur twice are found whatever their case and spacing; nothing else is taken for one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bench.api import Question
from bench.data.contamination import contaminated_ids, count_duplicates, count_in_own_prompt, normalise_wording

texts = st.text(min_size=1, max_size=40)


def asked(name: str, text: str, gold: int = 0, parts: tuple[tuple[str, str], ...] = ()) -> Question:
    return Question(name, "s", text, ("yes", "no"), gold, parts)


@given(texts)
def test_normalised_wording_stays_as_it_is(text: str) -> None:
    # casefolding is not idempotent for every character, its result is
    assert normalise_wording(normalise_wording(normalise_wording(text))) == normalise_wording(normalise_wording(text))


@given(texts, st.sampled_from([" ", "\n", "\t  ", "\u00a0"]))
def test_normalised_wording_ignores_white_space(text: str, space: str) -> None:
    assert normalise_wording(f"{space}{text}{space}end") == normalise_wording(f"{text} end")


def test_contamination_is_by_text_and_parts_not_options() -> None:
    tests = [asked("t0", "Which  Bone?"), asked("t1", "So?", parts=(("passage", "A b."),))]
    train = [
        asked("same", "which bone?", gold=1),
        asked("other", "Which bones?"),
        asked("same passage", "so?", parts=(("passage", "a  B."),)),
        asked("other passage", "so?", parts=(("passage", "c."),)),
    ]
    assert contaminated_ids(train, tests) == {"same", "same passage"}
    assert contaminated_ids([], tests) == contaminated_ids(train, []) == frozenset()


def test_duplicates_and_contradictions_are_counted_apart() -> None:
    questions = [
        asked("0", "Why?"),
        asked("1", "WHY?"),
        asked("2", " why? ", gold=1),
        asked("3", "Why?", gold=1),
        asked("4", "Who?"),
    ]
    assert count_duplicates(questions) == {"repeated questions": 1, "questions with another answer than before": 2}
    assert count_duplicates(questions[3:]) == {}
    one, other = Question("0", "s", "Why?", ("a", "b"), 0), Question("1", "s", "Why?", ("b", "a"), 1)
    assert count_duplicates([one, other]) == {"repeated questions": 1}  # in another order of options


def test_question_in_its_own_prompt_is_counted() -> None:
    asked = Question("t:0", "bees", "What do bees  make?", ("honey", "silk"), 0)
    again = Question("d:7", "bees", "what do bees make?", ("wax", "honey"), 1)
    other = Question("d:8", "bees", "What do moths make?", ("honey", "silk"), 1)
    assert count_in_own_prompt([(asked, [other, again]), (asked, [other]), (other, [])]) == 1
