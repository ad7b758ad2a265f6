"""Conversation -> token ids: the chat template, applied once, with exactly one begin token where the model has one.

Fallbacks: a template that refuses a system turn, or drops it, gets the system text as the beginning of the first user
turn; a model without a template gets `_PLAIN_TEMPLATE`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile, takewhile
from typing import Any

import numpy as np

from bench.api import UserError
from bench.api.protocol import Protocol
from bench.api.question import Message, Prompt
from bench.prompts.front_coding import Ids
from bench.prompts.templates import QUERY_SENTINEL, followup_messages, query_messages, query_text

_DATE_STRING = "26 Jul 2024"
"""Given to every template, so that Llama's "today" line never follows the clock (docs/methods.md §1.5)."""

AT_ONCE = 32
"""Texts that are tokenised together: a tokenizer notes some 150 bytes about every token, and keeps what it freed."""

_SECONDS = 10.0
"""The longest that a template may take for one conversation; a thousandth of a second is usual."""

_PLAIN_TEMPLATE = (
    "{{ bos_token or '' }}"
    "{% for message in messages %}{{ message['role'] | capitalize }}:\n{{ message['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:\n{% endif %}"
)
"""Template for models without one: named turns, and a new line before the answer so that a bare letter follows."""
_PLAIN_NOTE = (
    "this model has no chat template: it was asked with a plain one of confbench's own (turns named System, User and"
    " Assistant), on which every number here depends"
)


@dataclass(frozen=True)
class QuerySuffix:
    """Tokens that follow the answer in the self-check conversation."""

    ids: Ids
    """Tokens after the answer, up to where the verdict is read."""
    continues: bool
    """Whether the conversation up to the answer is the answering prompt itself, so that its cache can be continued."""


class Chat:
    """A tokenizer with its chat template."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.template: str | None = None if tokenizer.chat_template else _PLAIN_TEMPLATE
        self.notes = [] if self.template is None else [_PLAIN_NOTE]
        """Notes for a reader of the numbers on how the model was asked."""
        # of the few prompts that stand for a task: every cell asks for them again
        self._suffixes: dict[tuple[Prompt, str], QuerySuffix] = {}
        self._firsts: dict[tuple[Prompt, tuple[str, ...]], Ids] = {}

    def render(self, messages: Sequence[Message], *, answering: bool = True) -> str:
        """The conversation as text; `answering` adds the tokens after which the model speaks."""
        turns = [{"role": m.role, "content": m.content} for m in messages]
        if not self._takes_system and turns[0]["role"] == "system":
            first = f"{turns[0]['content']}\n\n{turns[1]['content']}"
            turns = [{"role": "user", "content": first}, *turns[2:]]
        try:
            return self._rendered(turns, answering=answering)
        except Exception as error:
            why = " ".join(str(error).split())[:200]
            raise UserError(
                f"The chat template of this model fails ({type(error).__name__}: {why}); mend or remove it."
            ) from error

    def check(self) -> None:
        """Render a conversation, so that a template that can't be used is refused before any work.

        Raises:
            UserError: it fails, or it does not end.
        """
        probe = [Message("system", "probe"), Message("user", "probe")]

        def render() -> None:
            with suppress(UserError):  # it is raised below
                self.render(probe)

        thread = threading.Thread(target=render, daemon=True)
        thread.start()
        thread.join(_SECONDS)
        if thread.is_alive():
            raise UserError(
                f"The chat template of this model took more than {_SECONDS:.0f} s to write one short conversation;"
                " mend or remove it."
            )
        self.render(probe)

    def _rendered(self, turns: list[dict[str, str]], *, answering: bool) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                turns,
                chat_template=self.template,
                tokenize=False,
                add_generation_prompt=answering,
                date_string=_DATE_STRING,
            )
        )

    @cached_property
    def _takes_system(self) -> bool:
        probe = [{"role": "system", "content": "probe-system"}, {"role": "user", "content": "probe-user"}]
        try:
            return "probe-system" in self._rendered(probe, answering=True)
        except Exception:  # noqa: BLE001 - whatever a template does without one; a broken one fails again in `render`
            return False

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Token ids of rendered conversations, one begin token each where the tokenizer has one by default."""
        encoded: list[Ids] = []
        for first in range(0, len(texts), AT_ONCE):
            part = list(texts[first : first + AT_ONCE])
            batch = self.tokenizer(part, add_special_tokens=False, return_attention_mask=False)["input_ids"]
            if self._begin is not None:
                batch = [[self._begin, *dropwhile(lambda token: token == self._begin, ids)] for ids in batch]
            encoded += [np.asarray(ids, dtype=np.int32) for ids in batch]
        return encoded

    def prompts(self, prompts: Sequence[Prompt]) -> list[Ids]:
        """Token ids of answering prompts."""
        return self.encode([self.render(prompt.messages) for prompt in prompts])

    @cached_property
    def _begin(self) -> int | None:
        """The begin token, if this tokenizer puts one before plain text."""
        ids = self.tokenizer("x")["input_ids"]
        begin = self.tokenizer.bos_token_id
        return begin if begin is not None and ids[:1] == [begin] else None

    def query(self, prompt: Prompt, protocol: Protocol) -> QuerySuffix:
        """The self-check turn after this prompt's answer (docs/methods.md §2.0); the same for all questions."""
        return self.followup(prompt, query_text(protocol.query_letters))

    def followup(self, prompt: Prompt, wording: str) -> QuerySuffix:
        """A user's turn after this prompt's answer; the same for all questions.

        Raises:
            UserError: the template does not show the answer, or not once.
        """
        if (prompt, wording) in self._suffixes:
            return self._suffixes[prompt, wording]
        rendered = self.render(followup_messages(prompt, wording))
        before, _, after = rendered.partition(QUERY_SENTINEL)
        if not after or QUERY_SENTINEL in after:
            raise UserError(
                "The chat template of this model does not print the assistant's turn exactly once, so the self-check"
                " query can't be placed after the answer. Use a model whose template shows previous turns."
            )
        (ids,) = self.tokenizer([after], add_special_tokens=False)["input_ids"]
        suffix = QuerySuffix(np.asarray(ids, dtype=np.int32), continues=before == self.render(prompt.messages))
        return self._suffixes.setdefault((prompt, wording), suffix)

    def before_answers(self, prompts: Sequence[Prompt], protocol: Protocol) -> list[Ids]:
        """Token ids before the answers in the self-check conversations, where they are not the prompts themselves."""
        rendered = [self.render(query_messages(prompt, protocol)) for prompt in prompts]
        return self.encode([text.partition(QUERY_SENTINEL)[0] for text in rendered])

    def continuations(self, prompt: Prompt, texts: Sequence[str]) -> list[Ids]:
        """Ids of texts right where a prompt's answer begins."""
        base = self.render(prompt.messages)
        (start, *whole) = self.encode([base, *(base + text for text in texts)])
        alone = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return [
            ids[len(start) :] if np.array_equal(ids[: len(start)], start) else np.asarray(other, dtype=np.int32)
            for ids, other in zip(whole, alone, strict=True)
        ]

    def letters(self, prompt: Prompt, letters: str) -> Ids:
        """The id of each letter right where this prompt's answer begins.

        Raises:
            UserError: a letter is more than one token there.
        """
        way_out = (
            "Choose other letters, for example:"
            " --set protocol.letters=ABCDEFGHIJKLMNOPQRSTUVWXYZ --set protocol.query_letters=AB"
        )
        return self._first_ids(prompt, letters, "option letter", way_out)

    def words(self, prompt: Prompt, words: Sequence[str]) -> Ids:
        """The id of each word of a reply right where it begins.

        Raises:
            UserError: a word is more than one token there, or two are the same.
        """
        ids = self._first_ids(prompt, words, "word", "Choose other words, or read the reply as text: say=N.")
        if len(set(ids.tolist())) != len(ids):
            raise UserError(f"Expected words of different tokens of this model's tokenizer, got {', '.join(words)}.")
        return ids

    def _first_ids(self, prompt: Prompt, texts: Sequence[str], what: str, way_out: str) -> Ids:
        key = prompt, tuple(texts)
        if key in self._firsts:
            return self._firsts[key]
        base = self.render(prompt.messages)
        (start, *rest) = self.encode([base, *(base + text for text in texts)])
        ids = []
        for text, whole in zip(texts, rest, strict=True):
            if len(whole) != len(start) + 1 or not np.array_equal(whole[: len(start)], start):
                raise UserError(
                    f"Expected {what} {text!r} to be one token of this model's tokenizer where the answer begins, got"
                    f" {len(whole) - len(start)} more tokens. {way_out}"
                )
            ids.append(int(whole[-1]))
        return self._firsts.setdefault(key, np.asarray(ids, dtype=np.int32))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of generated ids, outer white space removed."""
        return self._text(ids).strip()

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Text that each generated id adds; joined they are the text with its outer white space.

        An id that ends within a character adds nothing, the one that ends it adds the character. Tokens that are not
        shown, e.g. the end of a turn, add nothing.
        """
        whole, found, reached = self._text(ids), [], 0
        for k in range(1, len(ids) + 1):
            end = len(whole)
            if k < len(ids):
                alike = takewhile(lambda pair: pair[0] == pair[1], zip(self._text(ids[:k]), whole, strict=False))
                end = max(reached, sum(1 for _ in alike))
            found.append(whole[reached:end])
            reached = end
        return found

    def _text(self, ids: Sequence[int]) -> str:
        text = str(self.tokenizer.decode(list(ids), skip_special_tokens=True))
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # some can end within a character
