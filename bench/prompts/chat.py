"""Tokenizer and chat template: conversations become token ids.

The ids begin with exactly one BOS token if the tokenizer adds one by default.

If a template rejects or drops a system turn, the system text is put before the first user turn. A model without a
template gets `_PLAIN_TEMPLATE`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle, dropwhile, takewhile
from typing import Any

import numpy as np

from bench.api import UserError
from bench.api.protocol import Protocol
from bench.api.question import Message, Prompt
from bench.prompts.front_coding import Ids
from bench.prompts.templates import QUERY_SENTINEL, followup_messages, query_messages, query_text
from bench.prompts.traces import LEADS, MARKERS, Thinking

_DATE_STRING = "26 Jul 2024"
"""Date passed to every chat template. Otherwise Llama's line with today's date would change (docs/methods.md §1.5)."""

AT_ONCE = 32
"""Largest number of texts tokenised together; a tokenizer allocates, and keeps, some 150 bytes per token."""

_SECONDS = 10.0
"""Seconds within which a chat template must render one conversation; a millisecond is usual."""

_PLAIN_TEMPLATE = (
    "{{ bos_token or '' }}"
    "{% for message in messages %}{{ message['role'] | capitalize }}:\n{{ message['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:\n{% endif %}"
)
"""Chat template for models without one. Each turn begins with the role's name, and the answer is on its own line."""
_PLAIN_NOTE = (
    "this model has no chat template: it was asked with a plain one of confbench's own (turns named System, User and"
    " Assistant), on which every number here depends"
)

_THINKING_NOTE = "this model's chat template can open a reasoning trace: it was asked with enable_thinking off"
_TRACE_NOTE = (
    "this model's chat template opens a reasoning trace, which can't be turned off: the trace is taken as its answer"
)
OPENING = r"(?:[<\[]\|?(?:think|thinking|thought|reason|reasoning)\|?[>\]]|<\|channel\|?>\s*(?:thought|analysis)\S*)"
"""Pattern of what opens a reasoning trace, e.g. `<think>`."""
_OPEN_TRACE = re.compile(OPENING + r"\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class QuerySuffix:
    """Tokens of a user turn that follows the answer, such as the self-check query."""

    ids: Ids
    """Token ids that follow the answer. After the last of them the model begins its reply."""
    continues: bool
    """Whether the conversation up to the answer has the same tokens as the prompt, so that the KV cache can be
    reused."""


class Chat:
    """A tokenizer with its chat template; turns conversations into token ids."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.template: str | None = None if tokenizer.chat_template else _PLAIN_TEMPLATE
        self.thinking: Thinking | None = None
        """How the model reasons before its answers; None if it answers at once."""
        # caches for the placeholder prompts of tasks, whose ids are needed again for every result
        self._suffix_cache: dict[tuple[Prompt, str], QuerySuffix] = {}
        self._first_ids_cache: dict[tuple[Prompt, tuple[str, ...]], Ids] = {}

    @property
    def notes(self) -> list[str]:
        """Notes on how the prompts were made, for readers of the results."""
        gap = f"this model's chat template writes {self.gap!r} before answers: they are read behind it"
        notes = {_PLAIN_NOTE: self.template, _THINKING_NOTE: self.takes_thinking, _TRACE_NOTE: self.opens_trace}
        if self.thinking is not None:
            way = f"its template's own way, up to {self.thinking.marker}" if self.thinking.marker else "an instruction"
            reasons = (
                f"this model reasons before each answer, in at most {self.thinking.budget:,} tokens, by {way}; every"
                f" answer is read after {self.thinking.lead.strip()!r}"
            )
            notes = {_PLAIN_NOTE: self.template, reasons: True}
        return [note for note, applies in {**notes, gap: self.gap}.items() if applies]

    def think(self, budget: int, context: int) -> None:
        """Let the model reason before its answers: by its template's own end marker, or else by an instruction.

        Args:
            budget: maximum number of tokens of a trace.
            context: context length of the model in tokens.

        Raises:
            UserError: the budget exceeds the context, or this template gives no turn in which the model can reason.
        """
        if budget >= context:
            raise UserError(
                f"--think-budget {budget}: expected fewer tokens than this model's context of {context:,}, which holds"
                " prompt, trace and answer; name fewer."
            )
        source = self._template_text()
        if "<|channel|>" in source:
            raise UserError(
                "--think-budget: traces of models that write several channels (gpt-oss) can't be told from answers"
                " here; use another model."
            )
        before, said, _ = self._probe("probe", "\u241e", answering=False).partition("\u241e")
        leads = bool(said) and before.rstrip() == self._probe(answering=False).rstrip()  # the user's turn (Mistral)
        if not leads and self._probe(answering=True) == self._probe(answering=False):
            raise UserError(
                "--think-budget: expected a chat template with a generation prompt, after which the model reasons; this"
                " one has none. Use another model, or mend its template."
            )
        opened = self._opens(thinking=True)
        # some templates take earlier traces away, of models that write none (LFM2.5): these are instructed
        own = [marker for marker in MARKERS if marker in source] if opened or self.takes_thinking else []
        ids_of = {marker: self.following("", marker) for marker in own}
        marker = next((marker for marker, ids in ids_of.items() if len(ids) == 1), "")
        if opened and not marker:
            raise UserError(
                "--think-budget: this model's chat template opens a trace; expected its end marker to be one token of"
                f" {', '.join(MARKERS)}. Use another model."
            )
        fitting = [(lead, gap) for lead, gap in LEADS if all(len(self.following(lead, gap + x)) == 1 for x in "abAB")]
        lead, gap = (fitting or LEADS)[0]
        closed = self.following("text\n", lead)
        if marker:
            closed = np.concatenate([ids_of[marker], self.following(marker, f"\n\n{lead}")])
        cut = self.following("text", f"\n{marker}\n\n{lead}" if marker else f"\n\n{lead}")
        marker_id = int(ids_of[marker][0]) if marker else None
        self.thinking = Thinking(budget, marker, marker_id, closed, cut, lead, gap, opened)

    def _template_text(self) -> str:
        """Return the template; of one that a server doesn't tell what shows its markers: prompts, dropped traces."""
        texts = [str(self.tokenizer.chat_template or "")]
        texts += (self._probe(answering=True, enable_thinking=on) for on in (True, False))
        for marker in MARKERS:
            said = self._probe("q", f"dropped{marker}kept", "q", answering=True)
            texts.append(marker if "kept" in said and "dropped" not in said else said.replace(marker, ""))
        return "\n".join(texts)

    def following(self, before: str, text: str) -> Ids:
        """Return the token ids of a text as it follows another one, or alone if both share a token."""
        start, whole, alone = self.tokenizer([before, before + text, text], add_special_tokens=False)["input_ids"]
        return np.asarray(whole[len(start) :] if whole[: len(start)] == start else alone, dtype=np.int32)

    @cached_property
    def takes_thinking(self) -> bool:
        """Whether the chat template takes `enable_thinking`; every prompt then has it off."""
        on, off = (self._probe(answering=True, enable_thinking=value) for value in (True, False))
        return on != off

    @cached_property
    def opens_trace(self) -> bool:
        """Whether the generation prompt opens a reasoning trace, even with `enable_thinking` off."""
        return self._opens(thinking=False)

    def _opens(self, *, thinking: bool) -> bool:
        """Return whether the generation prompt opens a reasoning trace, with `enable_thinking` on or off."""
        settings: dict[str, Any] = {"enable_thinking": thinking} if self.takes_thinking else {}
        whole, before = (self._probe(answering=value, **settings) for value in (True, False))
        return _OPEN_TRACE.search(whole.removeprefix(before)) is not None

    @property
    def no_letters_reason(self) -> str | None:
        """Why the model can't answer with one token; None if it can."""
        if self.thinking is not None or not self.opens_trace:
            return None
        return "this model's chat template opens a reasoning trace, so the first token is no answer; use another model"

    def _probe(self, *turns: str, answering: bool, by: Sequence[str] = ("user", "assistant"), **settings: bool) -> str:
        """Return a short conversation of these roles as text; empty if the template fails, which `check` reports."""
        messages = [{"role": role, "content": turn} for role, turn in zip(cycle(by), turns or ("probe",), strict=False)]
        try:
            return self._apply_template(messages, answering=answering, **settings)
        except UserError:  # a server fails
            raise
        except Exception:  # noqa: BLE001 - templates fail by any error
            return ""

    def render(self, messages: Sequence[Message], *, answering: bool = True, at_once: bool = False) -> str:
        """Return a conversation as text.

        Args:
            messages: turns of the conversation.
            answering: whether the generation prompt is added, and the `gap` behind it unless a trace of the template's
                own follows; the model answers there.
            at_once: whether the model replies without a trace, even if it reasons before its answers.
        """
        turns = [{"role": m.role, "content": m.content} for m in messages]
        if not self._takes_system and turns[0]["role"] == "system":
            first = f"{turns[0]['content']}\n\n{turns[1]['content']}"
            turns = [{"role": "user", "content": first}, *turns[2:]]
        settings = {"enable_thinking": self.thinking is not None and not at_once} if self.takes_thinking else {}
        try:
            text = self._apply_template(turns, answering=answering, **settings)
        except UserError:  # a server fails
            raise
        except Exception as error:
            why = " ".join(str(error).split())[:200]
            raise UserError(
                f"The chat template of this model fails ({type(error).__name__}: {why}); mend or remove it."
            ) from error
        answers = answering and (at_once or self.thinking is None or not self.thinking.marker)
        return text + self.gap if answers else text

    def check(self, *, limited: bool = True) -> None:
        """Check the chat template by rendering a short conversation, whose time may be limited.

        Raises:
            UserError: the template fails, or does not finish in time.
        """
        probe = [Message("system", "probe"), Message("user", "probe")]

        def render() -> None:
            with suppress(UserError):  # the main thread raises it below
                self.render(probe)

        thread = threading.Thread(target=render, daemon=True)
        thread.start()
        thread.join(_SECONDS if limited else None)
        if thread.is_alive():
            raise UserError(
                f"The chat template of this model took more than {_SECONDS:.0f} s to write one short conversation;"
                " mend or remove it."
            )
        self.render(probe)

    def _apply_template(self, turns: list[dict[str, str]], *, answering: bool, **settings: bool) -> str:
        asked = {"chat_template": self.template, "tokenize": False, "date_string": _DATE_STRING, **settings}
        return str(self.tokenizer.apply_chat_template(turns, add_generation_prompt=answering, **asked))

    @cached_property
    def _takes_system(self) -> bool:  # a template may reject a system turn by any error; a broken one fails in `render`
        return "probe-system" in self._probe("probe-system", "probe-user", by=("system", "user"), answering=True)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Tokenise rendered conversations, each with one BOS token if the tokenizer adds one by default."""
        encoded: list[Ids] = []
        for first in range(0, len(texts), AT_ONCE):
            part = list(texts[first : first + AT_ONCE])
            batch = self.tokenizer(part, add_special_tokens=False, return_attention_mask=False)["input_ids"]
            if self._bos_id is not None:
                batch = [[self._bos_id, *dropwhile(lambda token: token == self._bos_id, ids)] for ids in batch]
            encoded += [np.asarray(ids, dtype=np.int32) for ids in batch]
        return encoded

    def prompts(self, prompts: Sequence[Prompt]) -> list[Ids]:
        """Return the token ids of prompts, i.e. of conversations that end where the answer begins."""
        return self.encode([self.render(prompt.messages) for prompt in prompts])

    @cached_property
    def _bos_id(self) -> int | None:
        """Id of the BOS token; None if the tokenizer puts no BOS token before plain text."""
        ids = self.tokenizer("x")["input_ids"]
        bos_id = self.tokenizer.bos_token_id
        return bos_id if bos_id is not None and ids[:1] == [bos_id] else None

    def query(self, prompt: Prompt, protocol: Protocol) -> QuerySuffix:
        """Return the tokens of the self-check query that follows the answer to a prompt (docs/methods.md §2.0).

        The query's tokens are the same for all questions.
        """
        return self.followup(prompt, query_text(protocol.query_letters))

    def followup(self, prompt: Prompt, wording: str) -> QuerySuffix:
        """Return the tokens of a user turn that follows the answer to a prompt; they are the same for all questions.

        Args:
            prompt: any prompt.
            wording: text of the user turn.

        Raises:
            UserError: the chat template does not show the answer exactly once.
        """
        if (prompt, wording) in self._suffix_cache:
            return self._suffix_cache[prompt, wording]
        rendered = self.render(followup_messages(prompt, wording), at_once=True)
        if self.thinking is not None and self.opens_trace:
            rendered += f"\n{self.thinking.marker}\n\n"
        before, _, after = rendered.partition(QUERY_SENTINEL)
        if not after or QUERY_SENTINEL in after:
            raise UserError(
                "The chat template of this model does not print the assistant's turn exactly once, so the self-check"
                " query can't be placed after the answer. Use a model whose template shows previous turns."
            )
        continues = before.removesuffix(self.blank) == self.render(prompt.messages)
        suffix = QuerySuffix(self.following("x", after), continues)  # alone, SentencePiece puts a blank before it
        return self._suffix_cache.setdefault((prompt, wording), suffix)

    @cached_property
    def _written(self) -> tuple[str, str]:
        """What the template writes between a prompt and its answer: `gap` and `blank`."""
        asked = self._probe(answering=True, enable_thinking=False)
        # llama.cpp's server would take a last turn of the assistant as one to go on with
        said = self._probe("probe", QUERY_SENTINEL, "probe", answering=False, enable_thinking=False)
        written, found, _ = said.removeprefix(asked).partition(QUERY_SENTINEL)
        if not (asked and found and said.startswith(asked)) or (written.strip(" ") and self.opens_trace):
            return "", ""
        gap = written.rstrip(" ")
        blank = written[len(gap) :]
        start, *whole = self.encode([asked + gap, *(asked + written + letter for letter in "abAB")])
        return gap, blank if all(np.array_equal(ids[:-1], start) for ids in whole) else ""

    @property
    def gap(self) -> str:
        """Text that the template writes between the generation prompt and the answer, without a `blank` at its end.

        Empty for most templates; gpt-oss names the channel, and GLM-4.5 begins a line. A template that ignores
        `add_generation_prompt` has the header of the assistant's turn there. It is part of prompts.
        """
        return self._written[0]

    @property
    def blank(self) -> str:
        """Blank that the template writes before an answer, as the start of the answer's first token.

        Empty for most templates, and where prompt, blank and letter aren't the prompt's tokens and one more: some
        tokenizers of Mistral put a blank behind `[/INST]` themselves, and the template's would be a second one.
        """
        return self._written[1]

    @cached_property
    def turn_end(self) -> int | None:
        """Id of the special token with which the template ends the assistant's turn; None if it is no such token."""
        said = self._probe("probe", QUERY_SENTINEL, answering=False, enable_thinking=False)
        end = said.partition(QUERY_SENTINEL)[2].strip().partition("\n")[0].rstrip()  # Phi writes </s> in a line below
        ids = self.following("x", end).tolist()
        special = {*self.tokenizer.all_special_ids, *getattr(self.tokenizer, "added_tokens_decoder", ())}
        return ids[0] if len(ids) == 1 and ids[0] in special else None

    def before_answers(self, prompts: Sequence[Prompt], protocol: Protocol) -> list[Ids]:
        """Return token ids of the self-check conversations up to the answer, one sequence for each prompt.

        With some chat templates these ids differ from those of the prompts.
        """
        rendered = [self.render(query_messages(prompt, protocol)) for prompt in prompts]
        return self.encode([text.partition(QUERY_SENTINEL)[0].removesuffix(self.blank) for text in rendered])

    def continuations(self, prompt: Prompt, texts: Sequence[str]) -> list[Ids]:
        """Return the token ids that each text has as a continuation of a prompt, i.e. as an answer."""
        base, texts = self._answer_place(prompt, texts)
        (start, *whole) = self.encode([base, *(base + text for text in texts)])
        alone = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return [
            ids[len(start) :] if np.array_equal(ids[: len(start)], start) else np.asarray(other, dtype=np.int32)
            for ids, other in zip(whole, alone, strict=True)
        ]

    def _answer_place(self, prompt: Prompt, texts: Sequence[str], *, at_once: bool = False) -> tuple[str, list[str]]:
        """Return a prompt as text, with its `lead`, and answers as they follow it, `at_once` those without a trace."""
        if self.thinking is not None and prompt.lead:
            answers = [self.thinking.gap + text for text in texts]
        else:  # a text that begins with white space already is as the model wrote it
            answers = [self.blank * bool(text[:1].strip()) + text for text in texts]
        return self.render(prompt.messages, at_once=at_once) + prompt.lead, answers

    def letters(self, prompt: Prompt, letters: str) -> Ids:
        """Return the token id that each letter has at the beginning of an answer to this prompt.

        Raises:
            UserError: a letter has more than one token there.
        """
        advice = (
            "Choose other letters, for example:"
            " --set protocol.letters=ABCDEFGHIJKLMNOPQRSTUVWXYZ --set protocol.query_letters=AB"
        )
        return self._first_ids(prompt, letters, "option letter", advice)

    def words(self, prompt: Prompt, words: Sequence[str]) -> Ids:
        """Return the token id that each word has at the beginning of a reply to this prompt.

        Raises:
            UserError: a word has more than one token there, or two words have the same token.
        """
        advice = "Choose other words, or read the reply as text: say=N."
        ids = self._first_ids(replace(prompt, lead=""), words, "word", advice)
        if len(set(ids.tolist())) != len(ids):
            raise UserError(f"Expected words of different tokens of this model's tokenizer, got {', '.join(words)}.")
        return ids

    def _first_ids(self, prompt: Prompt, texts: Sequence[str], kind: str, advice: str) -> Ids:
        if texts and self.no_letters_reason is not None:
            raise UserError(f"Expected {kind}s as answers of one token: {self.no_letters_reason}.")
        key = prompt, tuple(texts)
        if key in self._first_ids_cache:
            return self._first_ids_cache[key]
        base, answers = self._answer_place(prompt, texts, at_once=not prompt.lead)
        (start, *rest) = self.encode([base, *(base + answer for answer in answers)])
        ids = []
        for text, whole in zip(texts, rest, strict=True):
            if len(whole) != len(start) + 1 or not np.array_equal(whole[: len(start)], start):
                raise UserError(
                    f"Expected {kind} {text!r} to be one token of this model's tokenizer where the answer begins, got"
                    f" {len(whole) - len(start)} more tokens. {advice}"
                )
            ids.append(int(whole[-1]))
        return self._first_ids_cache.setdefault(key, np.asarray(ids, dtype=np.int32))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of generated token ids, without white space at its ends."""
        return self._text(ids).strip()

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the text that each generated token id adds to the text before; joined, these are the whole text.

        If a character takes several ids, the last of them adds it. Special tokens, e.g. the end of a turn, add nothing.
        White space at the ends stays.
        """
        whole, pieces, start = self._text(ids), [], 0
        for k in range(1, len(ids) + 1):
            end = len(whole)
            if k < len(ids):
                common = takewhile(lambda pair: pair[0] == pair[1], zip(self._text(ids[:k]), whole, strict=False))
                end = max(start, sum(1 for _ in common))
            pieces.append(whole[start:end])
            start = end
        return pieces

    def _text(self, ids: Sequence[int]) -> str:
        plain = list(map(int, ids))  # a server's tokenizer is asked in JSON, which knows no number of numpy's
        text = str(self.tokenizer.decode(plain, skip_special_tokens=True))
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # some ids end within a character
