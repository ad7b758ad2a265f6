"""The dialect of servers that know no more than OpenAI's chat completions: Ollama, LM Studio, SGLang, OpenAI, others.

A conversation is sent as messages, so the server's token ids are unknown. The ids here are a code of the text that is
sent, from which it can be read again: one for each four ASCII characters or other character, and one for each token of
an answer, which the server does tell where it gives log-probabilities.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bench.api import UserError
from bench.prompts.front_coding import Ids
from bench.servers.client import Client
from bench.servers.dialect import PROMPTS, TOP, Dialect
from bench.servers.readings import Ability, Draw, Floats, Scored, bound_shares, difference
from bench.store.lines import append_line, read_lines

_TURN, _SAYS = "\ufdd0", "\ufdd1"
"""Non-characters that begin a turn and end its role, in conversations as text."""
_PIECE = re.compile(r"[\x00-\x7f]{1,4}|[^\x00-\x7f]", re.DOTALL)
_PACKED, _LISTED = 1 << 29, 1 << 30
"""Smallest ids of several ASCII characters and of other tokens; smaller ones are code points."""
_NEUTRAL = {"top_k": -1, "min_p": 0, "repetition_penalty": 1, "repeat_penalty": 1}
"""Settings beside OpenAI's that turn samplers off; servers ignore what they don't know, or refuse it."""
_QUIET: Sequence[Mapping[str, Any]] = (
    {},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"reasoning_effort": "none"},
)
"""Settings that turn reasoning off, the first that does is used."""
_TOPS = (100, TOP, 5)
"""Numbers of likeliest tokens that are asked for, until a server gives as many; fewer than the last are of no use."""
_SAMPLED, _HOT = 32, 2.0
"""Tokens of the text that tells whether samplers cut, and its temperature: most are not among the likeliest."""
_UNKNOWN = -9999.0
"""What stands for the log-probability of a token that is not among the likeliest."""
_SCALED = 0.5
"""Difference in nats from which on log-probabilities count as scaled by a temperature; caches move them by less."""


class _Listed(msgspec.Struct):
    token: str
    logprob: float
    spelling: list[int] | None = msgspec.field(name="bytes", default=None)

    @property
    def spelt(self) -> bytes:
        return self.token.encode() if self.spelling is None else bytes(self.spelling)


class _Told(_Listed):
    top_logprobs: list[_Listed] = []

    def likeliest(self, k: int) -> list[_Listed]:
        """Return the k likeliest tokens, the likeliest first."""
        return sorted(self.top_logprobs, key=lambda each: -each.logprob)[:k]


class _ToldTokens(msgspec.Struct):
    content: list[_Told] | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Said(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    logprobs: _ToldTokens | None = None


class _Used(msgspec.Struct):
    prompt_tokens: int = 0


class _Chat(msgspec.Struct):
    """What `chat/completions` answers, reduced to the fields that are read."""

    choices: list[_Said]
    model: str = ""
    usage: _Used | None = None

    @property
    def text(self) -> str:
        return self.choices[0].message.content or ""

    @property
    def tokens(self) -> list[_Told]:
        told = self.choices[0].logprobs
        return (told and told.content) or []

    @property
    def thinks(self) -> bool:
        """Whether the model reasons before it answers."""
        message = self.choices[0].message
        return bool(message.reasoning_content or message.reasoning) or self.text.lstrip().startswith("<think")


class OpenAIChat(Dialect):
    """A model of a server that takes messages alone."""

    name = "OpenAI-compatible"
    tolerance = _SCALED
    slots, context, vocabulary, reads_anew = 64, 1 << 30, 1 << 18, False

    def __init__(self, client: Client, card: Mapping[str, Any], *, cached: bool) -> None:
        """Probe what the server can do.

        Args:
            client: calls the server.
            card: what `/v1/models` says of the model.
            cached: whether the server may go on from what it has read of a prompt before.

        Raises:
            UserError: it can't be reached, or its model reasons before it answers.
        """
        super().__init__(client, card, cached=cached)
        self._codes, self._lock = dict[int, bytes](), threading.Lock()
        self._path: Path | None = None
        self.top, self._scaled, self._room, self._system = 0, False, 0, True
        self._settings, self._reported = self._find_settings()
        self._find_log_probabilities()
        self.notes.append("prompts are sent as messages: their tokens are unknown, and counted as four characters each")
        settings = {name: value for name, value in self._settings.items() if name != "cache_prompt"}
        self.identity = {"server": self.name, "model": self._reported, "settings": settings, "top": self.top}

    @property
    def called(self) -> str:
        """Words for the server in sentences."""
        return "this OpenAI-compatible server"

    def _find_settings(self) -> tuple[dict[str, Any], str]:
        """Return the settings with which samplers and reasoning are off, and the model as its answers name it."""
        refusal: UserError | None = None
        for neutral, quiet, system in product((_NEUTRAL | {"cache_prompt": self.cached}, {}), _QUIET, (True, False)):
            settings = {**neutral, **quiet}
            turns = [{"role": "system", "content": "Be brief."}] * system + [{"role": "user", "content": "Say yes."}]
            body = {"model": self.model, "messages": turns, **settings}
            try:
                reply = self.client.request("chat/completions", {**body, "max_tokens": 8, "temperature": 0}, _Chat)
            except UserError as error:
                if getattr(error.__cause__, "status_code", 0) not in {400, 422, 500}:
                    raise
                refusal = error
                continue
            if not reply.thinks:
                self._system = system
                return settings, reply.model or self.model
        raise refusal or self.client.error(
            f"has a model, {self.model!r}, that reasons before it answers, so its first token is no answer",
            "Serve it with reasoning turned off, or another model",
        )

    def _find_log_probabilities(self) -> None:
        """Find how many likeliest tokens the server gives, and whether temperature and samplers move them."""
        prompt, refusal = self.encode(PROMPTS[0]), ""
        for self.top in _TOPS:
            try:
                told = self._ask(prompt, 1, temperature=1).tokens
            except UserError as error:
                refusal = str(error)
                continue
            given = min((len(each.top_logprobs) for each in told), default=0)
            refusal = f"{given} where {self.top} are asked for" if told else "null"
            if given >= self.top:
                break
        else:
            self.top = 0
            self.notes.append(f"it gives no log-probabilities that could be used ({refusal})")
            return
        plain, greedy, sharp = (self.next_token(prompt, 5, temperature=t) for t in (1, 0, 0.25))
        self.check_weights(plain)
        if difference([plain], [greedy]) > _SCALED:
            self.top = 0
            self.notes.append("its log-probabilities are not those of the model: greedy answers have others")
            return
        self.abilities |= Ability.TOP
        self._scaled = difference([plain], [sharp]) > _SCALED
        if self._scaled:
            self.notes.append("it scales log-probabilities by the temperature: samples at others than 1 have none")
        drawn = self._ask(self.encode(PROMPTS[3]), _SAMPLED, temperature=_HOT, seed=1).tokens
        listed = sum(each.spelt in {top.spelt for top in each.top_logprobs[:TOP]} for each in drawn)
        if listed > 0.6 * len(drawn):
            self.notes.append(
                f"its own samplers cut what it samples: of {len(drawn)} tokens at temperature {_HOT:g} {listed} are"
                f" among the {TOP} likeliest; log-probabilities are not concerned"
            )
        self.notes.append(
            f"log-probabilities are of the {self.top} likeliest tokens: others get their upper bound, and entropies"
            " their lower one, which results count"
        )

    def probe(self, prompts: Sequence[str] = PROMPTS) -> list[dict[str, float]]:
        """Return the log-probabilities of the five likeliest tokens after fixed prompts; without any, the answers."""
        if self.top:
            return super().probe(prompts)
        return [{self.text(self.complete(self.encode(text), 4).ids.tolist()): 0.0, "": -1.0} for text in prompts]

    def check_room(self, longest: int) -> None:
        """Check that a prompt of so many tokens is read whole: words are sent, each of which is one token at least.

        Raises:
            UserError: it is cut.
        """
        words = longest * 4 // 3
        if words <= self._room:
            return
        try:
            used = self._ask(self._coded([{"role": "user", "content": " a" * words}]), 1).usage
        except UserError as error:
            if getattr(error.__cause__, "status_code", 0) not in {400, 413, 422}:
                raise
            used = None  # it refuses what is too long
        if used is not None and used.prompt_tokens < words:
            if used.prompt_tokens:
                raise self.client.error(
                    f"cuts prompts: of {words:,} words it read {used.prompt_tokens:,} tokens, and the longest question"
                    " may need as many",
                    "Start it with a longer context (Ollama: OLLAMA_CONTEXT_LENGTH)",
                )
            self.notes.append("it doesn't tell how many tokens it read, so a prompt that it cuts isn't noticed")
        self._room = words

    # --- a code of texts ----------------------------------------------------------------------------------------------

    def tokenise(self, text: str, *, special: bool) -> list[int]:
        """Return the code of a text: of four ASCII characters or one other each."""
        del special
        return [_code(piece) for piece in _PIECE.findall(text)]

    def render(self, turns: Sequence[Mapping[str, str]], *, answering: bool, **settings: Any) -> str:
        """Return a conversation as text, which only the code of the messages is made of."""
        del settings
        if not self._system and turns[0]["role"] == "system":
            raise ValueError("this server takes no system turn")
        text = "".join(f"{_TURN}{turn['role']}{_SAYS}{turn['content']}" for turn in turns)
        return f"{text}{_TURN}assistant{_SAYS}" if answering else text

    def encode(self, text: str) -> Ids:
        """Return the code of a conversation with a fixed prompt."""
        return self._coded([{"role": "user", "content": text}])

    def _coded(self, turns: Sequence[Mapping[str, str]]) -> Ids:
        return np.asarray(self.tokenise(self.render(turns, answering=True), special=False), dtype=np.int32)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of a code."""
        return b"".join(self._spell(token) for token in ids).decode("utf-8", "replace")

    def _spell(self, token: int) -> bytes:
        if token < _PACKED:
            return chr(token).encode()
        if token < _LISTED:
            packed, text = token - _PACKED, b""
            while packed > 1:
                packed, text = packed >> 7, bytes([packed & 0x7F]) + text
            return text
        if token not in self._codes:
            self._read_codes()  # another run may have added it
        if token not in self._codes:
            raise UserError(
                f"The cache lacks the texts of the tokens of {self._reported!r}, which {self._path} had. Remove its"
                " answers too: bench cache prune."
            )
        return self._codes[token]

    def keep(self, path: Path) -> None:
        """Name the file with the texts of answers' tokens, and read it."""
        self._path = path
        self._read_codes()

    def _read_codes(self) -> None:
        for line in (line for line in (read_lines(self._path) if self._path else ()) if line is not None):
            self._codes |= {int(token): text.encode("latin-1") for token, text in line["tokens"].items()}

    def _id(self, token: bytes) -> int:
        text = token.decode("utf-8", "replace")
        if text.encode() == token and _PIECE.fullmatch(text):
            return _code(text)
        number = _LISTED + int.from_bytes(sha256(token).digest()[:4], "big") % (_LISTED - 256)
        while self._codes.get(number, token) != token:
            number += 1
        return number

    def _ids(self, tokens: Sequence[bytes]) -> list[int]:
        """Return the ids of an answer's tokens; the texts of those that are no code are stored."""
        with self._lock:
            ids, new = [], {}
            for token in tokens:
                ids.append(self._id(token))
                if ids[-1] >= _LISTED and ids[-1] not in self._codes:
                    self._codes[ids[-1]] = new[str(ids[-1])] = token
            if new and self._path:
                append_line(self._path, {"tokens": {number: token.decode("latin-1") for number, token in new.items()}})
            return ids

    # --- readings -----------------------------------------------------------------------------------------------------

    def next_token(self, prompt: Ids, k: int, *, temperature: float = 1, bias: int | None = None) -> dict[int, float]:
        """Return the log-probabilities of the k likeliest tokens after a prompt; tokens without ids have no bias."""
        del bias
        tokens = self._ask(prompt, 1, temperature=temperature).tokens
        return {self._id(each.spelt): each.logprob for each in tokens[0].likeliest(k)} if tokens else {}

    def complete(self, prompt: Ids, limit: int, draw: Draw | None = None, *, whole: bool = False) -> Scored:
        """Return the model's continuation of a prompt (see `Dialect.complete`), never with whole distributions.

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        del whole
        settings = {} if draw is None else {"temperature": draw.temperature, "top_p": draw.top_p, "seed": draw.seed}
        reply = self._ask(prompt, limit, **settings)
        if not self.top:
            ids = np.asarray(self.tokenise(reply.text, special=False), dtype=np.int32)
            unknown = np.full(len(ids), np.nan, dtype=np.float32)
            return Scored(ids, unknown, np.zeros((len(ids), 0), dtype=np.int64), unknown[:, None][:, :0])
        spelt, k = [each.spelt for each in reply.tokens], self.top if limit == 1 else min(self.top, TOP)
        n = _count(spelt, reply.text)
        rows = [each.likeliest(k) for each in reply.tokens[: max(1, n or 0)]]
        if n is None or any(len(row) < k for row in rows):
            got = f"{b''.join(spelt)[:40]!r} with {sorted({len(row) for row in rows})} of them each"
            raise self.unexpected_reply(f"the tokens of {reply.text[:40]!r}, each with {k} log-probabilities", got)
        ids = np.asarray(self._ids(spelt[:n]), dtype=np.int32)
        pairs = zip(reply.tokens[:n], rows, strict=False)  # of an empty answer there may be neither
        own = [row[-1].logprob if each.logprob <= _UNKNOWN else each.logprob for each, row in pairs]
        top_ids, tops = (
            [[self._id(each.spelt) for each in row] for row in rows],
            [[each.logprob for each in row] for row in rows],
        )
        scored = self.scored(ids, own, top_ids or [[]], tops or [[]])
        if self._scaled and draw is not None and draw.temperature != 1:
            return replace(scored, log_probability=np.full_like(scored.log_probability, np.nan))
        return scored

    def given(self, prompt: Ids, text: Ids, *, whole: bool = False) -> Scored:
        """Refuse to read a given text, which such a server can't.

        Raises:
            UserError: always.
        """
        del prompt, whole
        raise self.client.error(
            f"can't read a text that it doesn't answer now ({self.text(text.tolist())[:40]!r}): it answered so before,"
            " or the text is from a file",
            "Leave out --answers, or remove its answers: bench cache prune",
        )

    def chosen(self, prompt: Ids, ids: Ids) -> Floats:
        """Return the log-probabilities of tokens after a prompt, of those that aren't listed the upper bound."""
        return np.asarray(bound_shares(self.next_token(prompt, self.top), ids.tolist())[0], dtype=np.float32)

    def _ask(self, prompt: Ids, limit: int, **settings: Any) -> _Chat:
        """Return the server's reply to a conversation.

        Raises:
            UserError: the server fails, has another model, or its model reasons.
        """
        turns = [turn.partition(_SAYS) for turn in self.text(prompt.tolist()).split(_TURN)[1:-1]]
        body = {
            "model": self.model, "messages": [{"role": role, "content": content} for role, _, content in turns],
            "max_tokens": limit, "temperature": 0, "top_p": 1, **self._settings, **settings,
        }  # fmt: skip
        if self.top:
            body |= {"logprobs": True, "top_logprobs": self.top if limit == 1 else min(self.top, TOP)}
        reply: _Chat = self.client.request("chat/completions", body, _Chat)
        if reply.model not in {self._reported, ""}:
            raise self.client.error(
                f"has the model {reply.model!r} now, not {self._reported!r}", "Start it as it was before"
            )
        if reply.thinks:
            raise self.unexpected_reply("an answer", "a reasoning trace, which was turned off")
        return reply


def _code(piece: str) -> int:
    """Return the id of one character, or of two to four ASCII characters, seven bits each after a one."""
    if len(piece) == 1:
        return ord(piece)
    packed = 1
    for char in piece:
        packed = packed << 7 | ord(char)
    return _PACKED + packed


def _count(tokens: Sequence[bytes], text: str) -> int | None:
    """Return how many of an answer's tokens make its text, without an end token; None if none do."""
    for form in (str, str.strip):  # some servers strip answers
        for errors in ("replace", "ignore"):  # of half a character at the end
            for n in range(len(tokens) + 1):
                if form(b"".join(tokens[:n]).decode("utf-8", errors)) == form(text):
                    return n
    return None
