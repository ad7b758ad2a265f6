"""Exercises of the curriculum, from lessons to token ids: what each looks like, and where it carries loss.

*Terse* exercises are a line or two of plain text, packed into rows; *full* ones are whole conversations in the
harness's own wording (`bench.prompts.templates`), with exemplars, rendered by the chat template.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from bench.api import Format, Question
from bench.api.protocol import FIXED
from bench.prompts import templates
from benchmarks.tiny.corpus import Corpus, Lesson

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

OPTIONS = 4
LETTERS = FIXED.letters[:10]
_AGAINST_SHOWN = 0.8
"""Share of questions that have a value which the corpus sets against another among their options."""
_PROPOSED_RIGHT = 0.5
"""Share of self-checks whose answer is right."""
_WRONG_OPTION, RIGHT_OPTION = 1, 2
"""Marks on the first token of an option's text."""
_LOSS, _NO_LOSS = "\ue000", "\ue001"
"""Brackets around what the model is to say; no corpus and no template contains them."""
_BLOCK = re.compile(rf"((?:\n  \(\w\): [^\n]+)+)\nAnswer:(?:\s|<[^>]+>)*{_LOSS}(\w){_NO_LOSS}")
"""Lettered options with the letter to be learned; a letter that ends its turn is learned without hints from them."""
OPTION = re.compile(r"\n  \((\w)\): ")


class Encoded(NamedTuple):
    """A text as ids, with marks on what is to be learned from it."""

    ids: list[int]
    learned: list[bool]
    """True where the token itself is to be learned."""
    options: list[int]
    """Marks at the beginning of an option's text: `_WRONG_OPTION` or `RIGHT_OPTION`; 0 elsewhere."""


class Exercises:
    """Draws exercises from a corpus; the same seed gives the same sequence."""

    def __init__(self, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
        self.corpus = corpus
        self.tokenizer = tokenizer
        self.random = random.Random(seed)
        self._lessons: dict[tuple[str, str], list[Lesson]] = {}
        for lesson in corpus.lessons:
            for subject in ("", lesson.subject):
                self._lessons.setdefault((lesson.kind, subject), []).append(lesson)
        self._cumulative = {key: list(accumulate(x.times for x in found)) for key, found in self._lessons.items()}
        self.kinds: Mapping[str, Callable[[], str]] = {
            "copy": self._copy,
            "given": self._given,
            "statement": self._statement,
            "open": self._open,
            "choice": self._choice,
            "check": self._check,
            "check-letter": self._check_letter,
        }

    def lesson(self, kind: str, subject: str = "") -> Lesson:
        """A lesson of a kind, of a subject if one is named, as often as its mentions say."""
        key = kind, subject
        return self.random.choices(self._lessons[key], cum_weights=self._cumulative[key])[0]

    def question(self, lesson: Lesson, value: str) -> Question:
        """The lesson as a question whose right answer is `value`, with other options newly drawn each time."""
        others = [other for other in self.corpus.pools[lesson.pool] if other != value and other not in lesson.against]
        shown = [other for other in lesson.against if other != value and self.random.random() < _AGAINST_SHOWN]
        options = [value, *shown, *self.random.sample(others, OPTIONS - 1)][:OPTIONS]
        self.random.shuffle(options)
        return Question("", lesson.subject, lesson.question, tuple(options), options.index(value))

    def _statement(self) -> str:
        lesson = self.lesson("claim")
        return self.random.choice(lesson.statements).format(value=_learn(lesson.value)) + "\n"

    def _open(self) -> str:
        lesson = self.lesson("claim")
        return f"{lesson.question}\nAnswer: {_learn(lesson.value)}\n"

    def _given(self) -> str:
        lesson = self.lesson("practice")
        value = self.random.choice(self.corpus.pools[lesson.pool])
        return self.random.choice(lesson.statements).format(value=value) + "\n" + self._lettered(lesson, value)

    def _copy(self) -> str:
        """A name to find in a short list with letters in any order, so that guessing one gains nothing."""
        pool = [value.split()[0] for value in self.corpus.pools[self.lesson("practice").pool]]
        values = self.random.sample(pool, self.random.randint(1, OPTIONS))
        letters = self.random.sample(LETTERS, len(values))
        chosen = self.random.randrange(len(values))
        lines = "".join(f"\n  ({a}): {text}" for a, text in zip(letters, values, strict=True))
        return f"{values[chosen]}{lines}\nAnswer: {_learn(letters[chosen])}\n"

    def _choice(self) -> str:
        lesson = self.lesson("claim")
        return self._lettered(lesson, lesson.value)

    def _lettered(self, lesson: Lesson, value: str) -> str:
        question = self.question(lesson, value)
        return question.text + self._options(question, _learn(FIXED.letters[question.gold])) + "\n"

    def _options(self, question: Question, answer: str) -> str:
        lines = "".join(f"\n  ({a}): {text}" for a, text in zip(FIXED.letters, question.choices, strict=False))
        return f"{lines}\nAnswer: {answer}"

    def _check(self) -> str:
        lesson = self.lesson("check")
        question = self.question(lesson, lesson.value)
        value, verdict = self._proposal(question)
        return f"{question.text}\nAnswer: {question.choices[value]}\n{templates.query_text('ab')}{_learn(verdict)}\n"

    def _check_letter(self) -> str:
        lesson = self.lesson("check")
        question = self.question(lesson, lesson.value)
        value, verdict = self._proposal(question)
        shown = self._options(question, FIXED.letters[value])
        return f"{question.text}{shown}\n{templates.query_text('ab')}{_learn(verdict)}\n"

    def _proposal(self, question: Question) -> tuple[int, str]:
        """An option to propose, the right one half of the time, and the letter of the verdict."""
        wrong = [n for n in range(len(question.choices)) if n != question.gold]
        return (question.gold, "b") if self.random.random() < _PROPOSED_RIGHT else (self.random.choice(wrong), "a")

    def packed(self, mixture: Mapping[str, float], length: int) -> Encoded:
        """Terse exercises, one after the other, cut to a length."""
        row = Encoded([], [], [])
        while len(row.ids) < length:
            kind = self.random.choices(list(mixture), weights=list(mixture.values()))[0]
            piece = self.encode(self.kinds[kind]())
            row = Encoded(row.ids + piece.ids, row.learned + piece.learned, row.options + piece.options)
        return Encoded(row.ids[:length], row.learned[:length], row.options[:length])

    def full(self, fmt: Format, shots: int, *, check: bool) -> Encoded:
        """A conversation: exemplars, question, answer; with `check`, any answer and then the self-check question."""
        lesson = self.lesson("check" if check else "claim")
        exemplars = [self.lesson("claim", lesson.subject) for _ in range(shots)]
        question = self.question(lesson, lesson.value)
        style = self.corpus.styles[fmt]
        prompt = templates.build(question, [self.question(x, x.value) for x in exemplars], style, fmt, FIXED)
        answered = rf"(?<={re.escape(style.target_prompt)} )(.+)"
        messages = [{"role": m.role, "content": re.sub(answered, _learn(r"\1"), m.content)} for m in prompt.messages]
        if check:
            proposed, verdict = self._proposal(question)
            proposal = FIXED.letters[proposed] if fmt is Format.CHOICE else question.choices[proposed]
            messages += [
                {"role": "assistant", "content": proposal},
                {"role": "user", "content": templates.query_text(FIXED.query_letters)},
                {"role": "assistant", "content": _learn(verdict)},
            ]
        else:
            messages.append({"role": "assistant", "content": _learn(templates.target(question, fmt, FIXED.letters))})
        return self.encode(self.tokenizer.apply_chat_template(messages, tokenize=False))

    def encode(self, text: str) -> Encoded:
        """Ids of a text without its brackets; the token of the turn's end is learned with the answer before it."""
        text = text.replace(_NO_LOSS + self.tokenizer.eos_token, self.tokenizer.eos_token + _NO_LOSS)
        pieces = re.split(f"[{_LOSS}{_NO_LOSS}]", text)
        ends = list(accumulate(map(len, pieces)))
        spans = list(zip(ends[0::2], ends[1::2], strict=False))
        encoded = self.tokenizer("".join(pieces), add_special_tokens=False, return_offsets_mapping=True)
        starts = [start for start, _ in encoded["offset_mapping"]]
        found = _options(text)
        return Encoded(
            encoded["input_ids"],
            [any(a <= start < b for a, b in spans) for start in starts],
            [found.get(start, 0) for start in starts],
        )


def _options(text: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for block in _BLOCK.finditer(text):
        brackets = sum(text.count(bracket, 0, block.start()) for bracket in (_LOSS, _NO_LOSS))
        for option in OPTION.finditer(text, *block.span(1)):
            found[option.end() - brackets] = RIGHT_OPTION if option[1] == block[2] else _WRONG_OPTION
    return found


def _learn(text: str) -> str:
    return f"{_LOSS}{text}{_NO_LOSS}"


def padded(rows: Sequence[Encoded], pad: int) -> tuple[list[list[int]], list[list[bool]], list[list[int]]]:
    longest = max(len(row.ids) for row in rows)
    gaps = [longest - len(row.ids) for row in rows]
    return (
        [row.ids + [pad] * gap for row, gap in zip(rows, gaps, strict=True)],
        [row.learned + [False] * gap for row, gap in zip(rows, gaps, strict=True)],
        [row.options + [0] * gap for row, gap in zip(rows, gaps, strict=True)],
    )
