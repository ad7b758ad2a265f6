"""Words of answers, their classes, and the word of each token."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.api import UserError
from methods.ccps.word_classes import CLASS_OF_TAG, Tag, Word, align_tokens, tag_words, tagger


@pytest.fixture(scope="module")
def tag() -> Tag:
    return tagger()


def test_tags_of_the_tagger_have_a_class() -> None:
    from HanTa.HanoverTagger import HanoverTagger

    tags = {name.removeprefix("END_") for name in HanoverTagger("morphmodel_en.pgz").tag2int if name.startswith("END_")}
    assert len(tags) > 50
    assert tags <= set(CLASS_OF_TAG)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (
            "The capital of France is not Lyon.",
            "The/function capital/content of/function France/content is/function not/function Lyon/content ./other",
        ),
        ("She doesn't swim", "She/function does/function n't/function swim/content"),
        ("She doesn\u2019t swim", "She/function does/function n\u2019t/function swim/content"),
        ("He can't, I cannot", "He/function ca/function n't/function ,/other I/function can/function not/function"),
        ("John's dog", "John/content 's/function dog/content"),
        ("3.5 % of $ 12,000", "3.5/numeral %/other of/function $/other 12,000/numeral"),
        ("a well-known plant", "a/function well-known/content plant/content"),
        ("x + y = z", "x/other +/other y/other =/other z/other"),
        ("\u044d\u0442\u043e", "\u044d\u0442\u043e/other"),
        ("\u041c\u043e\u0441\u043a\u0432\u0430", "\u041c\u043e\u0441\u043a\u0432\u0430/other"),
        ("", ""),
        (" \n", ""),
    ],
)
def test_words_have_classes(tag: Tag, text: str, kinds: str) -> None:
    assert " ".join(f"{text[w.start : w.end]}/{w.kind}" for w in tag_words(text, tag)) == kinds


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=40))
def test_words_of_any_text_dont_overlap(text: str) -> None:
    words = tag_words(text, lambda words: ["NN1"] * len(words))
    ends = [0, *(end for word in words for end in (word.start, word.end)), len(text)]
    assert ends == sorted(ends)
    outside = set(range(len(text))) - {k for word in words for k in range(word.start, word.end)}
    assert not any(text[k].isalnum() for k in outside)


def test_tagger_bears_any_text(tag: Tag) -> None:
    for text in ("\x00\ufffd", "a" * 10_000, "''", "'s 's", "\U0001f600 no", "\u0301", "don't" * 50):
        assert all(word.kind in {"content", "function", "numeral", "other"} for word in tag_words(text, tag))
    (word,) = tag_words("a" * 10_000, tag)
    assert word == Word(0, 10_000, "", "other")


def test_tag_that_is_unknown_is_one_sentence() -> None:
    with pytest.raises(UserError, match="HanTa gave the tag 'NOUN', which is none of CLAWS C5"):
        tag_words("a dog", lambda words: ["NOUN"] * len(words))


def test_tagger_that_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "HanTa", None)
    with pytest.raises(UserError, match=r"pip install 'confbench\[analysis\]'"):
        tagger()


WORDS = [Word(0, 5, "", "content"), Word(6, 8, "", "function"), Word(8, 11, "", "function")]


@pytest.mark.parametrize(
    ("pieces", "found"),
    [
        (["hello", " do", "n't"], [0, 1, 2]),
        (["hel", "lo ", "don", "'t"], [0, 0, 1, 2]),
        (["hello don't"], [0]),
        (["", "hello", " ", "do", "", "n't"], [0, 0, None, 1, 2, 2]),  # "": ends within the next character
        (["hello don't", "!", ""], [0, None, None]),
    ],
)
def test_token_belongs_to_the_word_it_overlaps_most(pieces: list[str], found: list[int | None]) -> None:
    assert align_tokens(pieces, WORDS) == found
