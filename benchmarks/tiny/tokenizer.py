"""Making the tokenizer: byte-level BPE over a list of English words, the prompts' wording, and a corpus's own words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from bench.api import PromptStyle
from bench.prompts import templates
from benchmarks.tiny.corpus import Corpus

_BEGIN, _END, _PAD = "<|begin|>", "<|end|>", "<|pad|>"
_ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
_CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
_VOCABULARY = 8192
CONTEXT = 16384
_WORDS = Path(__file__).parent / "words.txt"
"""Common English words, the most common first."""
_INFLECTED = 4
"""Letters from which a word gets endings; the shortest are rarely nouns or verbs."""
PIECES = r"\p{L}+ ?|\p{N}{1,3} ?|\n+ *\(?|[^\s\p{L}\p{N}]+ ?|\s+"
"""A space goes with the word before it, so that a name has the same ids after a space, a bracket and the assistant's
tag as long as no space follows; the newline and indent of an option go with its bracket, and leave its letter bare."""


def make_tokenizer(corpus: Corpus) -> PreTrainedTokenizerFast:
    """Train the tokenizer; the same corpus gives the same one."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=[_PAD, _BEGIN, _END, *_ROLES],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(corpus), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=_BEGIN,
        eos_token=_END,
        pad_token=_PAD,
        additional_special_tokens=list(_ROLES),
        chat_template=_CHAT_TEMPLATE,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def _texts(corpus: Corpus) -> Iterator[str]:
    names = {word for pool in corpus.pools.values() for value in pool for word in re.findall(r"[^ ]+ ?", value)}
    sentences = [text for lesson in corpus.lessons for text in (lesson.question, *lesson.statements)]
    names |= {word for text in sentences for word in re.findall(r"\w+ ?", text)}
    for name in sorted(names):
        yield from itertools.repeat(name, 100)
    wording = [*templates.SYSTEM.values(), templates.query_text("ab"), *map(_wording, corpus.styles.values())]
    subjects = sorted({templates.subject_label(lesson.subject) for lesson in corpus.lessons})
    marks = ("\n  (", "\n\n", "____", "x): ", "), ", ".\n", '" ', "...", " 000", "1900", "2000")
    for text in (*wording, *subjects, *marks):
        yield from itertools.repeat(f"{text}\n", 300)
    yield from _english(_WORDS.read_text(encoding="utf-8").split())
    for number in range(100):
        yield from itertools.repeat(f"{number} {number}.", 40)


def _wording(style: PromptStyle) -> str:
    """The words around a question; spelled out, so that a new field of `PromptStyle` makes no other tokenizer."""
    names = ("header", "footer", "context", "target_prompt")
    return f"PromptStyle({', '.join(f'{name}={getattr(style, name)!r}' for name in names)})"


def _english(words: Iterable[str]) -> Iterator[str]:
    """Each word as often as its rank suggests: before a space, at the end of a clause, inflected, as a first word."""
    for rank, word in enumerate(dict.fromkeys(words)):
        times = 30 + 30000 // (rank + 50)
        yield from itertools.repeat(f"{word} {word} {word}.", times)
        for form in (word.capitalize(), *_inflections(word)):
            yield from itertools.repeat(f"{form} {form}.", times // 6)


def _inflections(word: str) -> Iterator[str]:
    """Regular forms; some are no words, and do no harm."""
    stem = word[:-1] if word.endswith(("e", "y")) else word
    if len(word) >= _INFLECTED:
        yield f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
        yield f"{stem}ed"
        yield f"{word if word.endswith('y') else stem}ing"
        yield f"{word}ly"
