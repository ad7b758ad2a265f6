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
from typing import Any, NamedTuple

import numpy as np

from bench.api import UserError
from bench.prompts.front_coding import Ids
from bench.servers.client import Client
from bench.servers.dialect import PROMPTS, TOP, UNKNOWN, Dialect
from bench.servers.readings import Ability, Draw, Scored, difference
from bench.store.lines import append_line, read_lines

_TURN, _SAYS = "\ufdd0", "\ufdd1"
"""Non-characters that begin a turn and end its role, in conversations as text."""
_PIECE = re.compile(r"[\x01-\x7f]{1,4}|[^\x01-\x7f]")
_LISTED = 0x4080_0000
"""Bits of the ids of tokens that are no piece. An id of four ASCII characters lacks the second, others the first."""
_NEUTRAL = {"top_k": -1, "min_p": 0, "repetition_penalty": 1, "repeat_penalty": 1}
"""Settings beside OpenAI's that turn samplers off; servers ignore what they don't know, or refuse it."""
_QUIET: Sequence[Mapping[str, Any]] = (
    {},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"reasoning_effort": "none"},
)
"""Settings that turn reasoning off; the first that does is used."""
_TOPS = (100, TOP, 5)
"""Numbers of likeliest tokens that are asked for, until a server gives as many; fewer than the last are of no use."""
_SCALED = 0.5
"""Difference in nats from which on log-probabilities count as scaled by a temperature; caches move them by less."""
_UNTOLD = -9999
"""Stands for the log-probability of a token that is not among the likeliest."""
_REFUSALS = {400, 413, 422, 500}
"""Status of a call that a server refuses for what it asks."""


class _Token(NamedTuple):
    text: bytes
    log_probability: float
    likeliest: list[tuple[bytes, float]]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> _Token:
        """Return a token of the reply with the likeliest ones at its place, the likeliest first."""
        text = told["token"].encode() if told.get("bytes") is None else bytes(told["bytes"])
        tops = [cls.of(each)[:2] for each in told.get("top_logprobs") or ()]
        return cls(text, float(told["logprob"]), sorted(tops, key=lambda pair: -pair[1]))


class OpenAIChat(Dialect):
    """A model of a server that takes messages alone."""

    name, called, slots, reads_anew, tolerance = (
        "OpenAI-compatible",
        "this OpenAI-compatible server",
        64,
        False,
        _SCALED,
    )

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
        self.context, self.top, self._scaled, self._room, self._system = UNKNOWN, 0, False, 0, True
        self._texts, self._path, self._lock = dict[int, bytes](), Path(), threading.Lock()
        self.served, self._is_new = self.model, True
        self._settings = self._find_settings()
        self._find_log_probabilities()
        self.notes.append("prompts are sent as messages: their tokens are unknown, and counted as four characters each")
        settings = {name: value for name, value in self._settings.items() if name != "cache_prompt"}
        self.identity = {"server": self.name, "model": self.model, "settings": settings, "top": self.top}

    def _find_settings(self) -> dict[str, Any]:
        """Return the settings with which samplers and reasoning are off."""
        refusal, prompt = (
            "",
            self._prompt([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]),
        )
        for neutral, quiet, self._system in product(
            (_NEUTRAL | {"cache_prompt": self.cached}, {}), _QUIET, (True, False)
        ):
            self._settings = {**neutral, **quiet}
            try:
                self._ask(prompt if self._system else self.encode("Hi"), 8)
            except UserError as error:
                if error.__cause__ and getattr(error.__cause__, "status_code", 0) not in _REFUSALS:
                    raise
                refusal = str(error)
            else:
                return self._settings
        raise UserError(refusal)

    def _find_log_probabilities(self) -> None:
        """Find how many likeliest tokens the server gives, and whether temperature and samplers move them."""
        prompt, refusal = self.encode(PROMPTS[0]), ""
        for self.top in _TOPS:
            try:
                tokens = self._ask(prompt, 1, temperature=1)[1]
            except UserError as error:
                refusal = str(error)
                continue
            given = min((len(token.likeliest) for token in tokens), default=0)
            if given >= self.top:
                break
            refusal = f"{given} where {self.top} are asked for" if tokens else "null"
        else:
            self.top = 0
            self.notes.append(f"it gives no log-probabilities that could be used ({refusal})")
            return
        plain, greedy, sharp = (self.next_token(prompt, 5, temperature=t) for t in (1, 0, 0.25))
        self.check_weights(plain)
        if difference([plain], [greedy]) > _SCALED:
            self.top = 0
            self.notes.append("its log-probabilities are not those of the model: those of greedy answers are others")
            return
        self.abilities, self._scaled = Ability.TEXT | Ability.TOP, difference([plain], [sharp]) > _SCALED
        if self._scaled:
            self.notes.append("it scales log-probabilities by the temperature: samples at others than 1 have none")
        drawn = self._ask(self.encode(PROMPTS[3]), 32, temperature=2, seed=1)[1]  # hot: most are unlikely
        listed = sum(token.text in dict(token.likeliest[:TOP]) for token in drawn)
        if listed > 0.6 * len(drawn):
            what = f"of {len(drawn)} tokens at temperature 2 {listed} are among the {TOP} likeliest"
            self.notes.append(f"its own samplers cut what it samples: {what}; log-probabilities are not concerned")
        what = "others get their upper bound, and entropies their lower one, which results count"
        self.notes.append(f"log-probabilities are of the {self.top} likeliest tokens: {what}")

    def probe(self, prompts: Sequence[str] = PROMPTS) -> list[dict[str, float]]:
        """Return the log-probabilities of the five likeliest tokens after fixed prompts; without any, the answers."""
        if self.top:
            return super().probe(prompts)
        return [{self._ask(self.encode(text), 4)[0]: 0.0, "": -1.0} for text in prompts]

    def check_room(self, longest: int) -> None:
        """Check that a prompt of so many tokens is read whole: words are sent, each of which is one token at least.

        Raises:
            UserError: it is cut.
        """
        words = longest * 4 // 3
        if words <= self._room:
            return
        self._room, read = words, words  # a server that refuses what is too long doesn't cut it
        try:
            read = self._ask(self.encode(" a" * words), 1)[2]
        except UserError as error:
            if getattr(error.__cause__, "status_code", 0) not in _REFUSALS:
                raise
        if not read:
            self.notes.append("it doesn't tell how many tokens it read, so a prompt that it cuts isn't noticed")
        elif read < words:
            what = (
                f"cuts prompts: of {words:,} words it read {read:,} tokens, and the longest question may need as many"
            )
            raise self.client.error(what, "Start it with a longer context (Ollama: OLLAMA_CONTEXT_LENGTH)")

    # --- a code of texts ----------------------------------------------------------------------------------------------

    def tokenise(self, text: str, *, special: bool) -> list[int]:
        """Return the code of a text: the bytes of up to four ASCII characters, or of one other less some of its bits."""
        del special
        numbers = (int.from_bytes(piece.encode(), "big") for piece in _PIECE.findall(text))
        return [number & 0x07FF_FFFF if number >> 31 else number for number in numbers]

    def render(self, turns: Sequence[Mapping[str, str]], *, answering: bool, **settings: Any) -> str:
        """Return a conversation as text, from which the messages can be read again."""
        del settings
        if turns[0]["role"] == "system" and not self._system:
            raise ValueError("this server takes no system turn")
        text = "".join(f"{_TURN}{turn['role']}{_SAYS}{turn['content']}" for turn in turns)
        return f"{text}{_TURN}assistant{_SAYS}" if answering else text

    def encode(self, text: str) -> Ids:
        """Return the code of a conversation with a fixed prompt."""
        return self._prompt([{"role": "user", "content": text}])

    def _prompt(self, turns: Sequence[Mapping[str, str]]) -> Ids:
        return np.asarray(self.tokenise(self.render(turns, answering=True), special=False), dtype=np.int32)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of a code."""
        return b"".join(map(self._spell, ids)).decode("utf-8", "replace")

    def _spell(self, token: int) -> bytes:
        if token & _LISTED != _LISTED:
            whole = token | 0xF000_0000 if token & 0x00C0_0000 == 0x0080_0000 else token  # of four bytes
            return whole.to_bytes(4, "big").lstrip(b"\0")
        if token not in self._texts:
            self.keep(self._path)  # another run may have added it
        if token not in self._texts:
            what = f"The cache lacks the texts of tokens of {self.model!r}, which its {self._path.name} had"
            raise UserError(f"{what}. Remove its answers too: bench cache prune.")
        return self._texts[token]

    def keep(self, path: Path) -> None:
        """Name the file with the texts of answers' tokens, and read it."""
        self._path = path
        for line in read_lines(path) if path.name else ():
            self._texts |= {
                int(token): text.encode("latin-1") for token, text in (line or {"tokens": {}})["tokens"].items()
            }

    def _id(self, token: bytes) -> int:
        text = token.decode("utf-8", "replace")
        if text.encode() == token and _PIECE.fullmatch(text):
            return self.tokenise(text, special=False)[0]
        number = int.from_bytes(sha256(token).digest()[:4], "big") & 0x7FFF_FFFF | _LISTED
        while self._texts.get(number, token) != token:
            number = number + 1 & 0x7FFF_FFFF | _LISTED
        return number

    def _ids(self, tokens: Sequence[bytes]) -> Ids:
        """Return the ids of an answer's tokens, and store the texts of those that are no piece."""
        with self._lock:
            ids = [self._id(token) for token in tokens]
            new = {
                i: text for i, text in zip(ids, tokens, strict=True) if i & _LISTED == _LISTED and i not in self._texts
            }
            self._texts |= new
            if new and self._path.name:
                append_line(self._path, {"tokens": {str(i): text.decode("latin-1") for i, text in new.items()}})
        return np.asarray(ids, dtype=np.int32)

    # --- readings -----------------------------------------------------------------------------------------------------

    def next_token(self, prompt: Ids, k: int, *, temperature: float = 1, bias: int | None = None) -> dict[int, float]:
        """Return the log-probabilities of the k likeliest tokens after a prompt; tokens without ids have no bias."""
        del bias
        tokens = self._ask(prompt, 1, temperature=temperature)[1]
        return {self._id(text): value for token in tokens[:1] for text, value in token.likeliest[:k]}

    def complete(self, prompt: Ids, limit: int, draw: Draw | None = None, *, whole: bool = False) -> Scored:
        """Return the model's continuation of a prompt (see `Dialect.complete`), never with whole distributions.

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        del whole
        text, told, _ = self._ask(prompt, limit, **({} if draw is None else vars(draw)))
        if not self.top:
            ids = np.asarray(self.tokenise(text, special=False), dtype=np.int32)
            return Scored(ids, np.full(len(ids), np.nan, np.float32), *np.zeros((2, len(ids), 0)))
        k, tokens = self._k(limit), [token for token in told if token.text]  # an end token may have none
        ends = (b"".join(token.text for token in tokens[:n]).decode("utf-8", "ignore") for n in range(len(tokens) + 1))
        same = [n for n, end in enumerate(ends) if end.strip() == text.replace("\ufffd", "").strip()]
        rows = [token.likeliest[:k] for token in (tokens or told)[: max(1, *same, 1)]]
        if not same or any(len(row) < k for row in rows):
            got = f"{[token.text for token in tokens[:8]]}, with {sorted({len(row) for row in rows})} of them each"
            raise self.unexpected_reply(f"the tokens of {text[:40]!r}, each with {k} log-probabilities", got)
        scores = [token.log_probability for token in tokens[: same[-1]]]
        own = [row[-1][1] if score <= _UNTOLD else score for score, row in zip(scores, rows, strict=False)]
        top_ids = [[self._id(each) for each, _ in row] for row in rows] or [[]]
        ids = self._ids([token.text for token in tokens[: same[-1]]])
        scored = self.scored(ids, own, top_ids, [[value for _, value in row] for row in rows] or [[]])
        if self._scaled and draw is not None and draw.temperature != 1:
            scored = replace(scored, log_probability=np.full_like(scored.log_probability, np.nan))
        return scored

    def _k(self, limit: int) -> int:
        """Return the number of likeliest tokens to ask for: for letters as many as there are."""
        return self.top if limit == 1 else min(self.top, TOP)

    def _ask(self, prompt: Ids, limit: int, **settings: Any) -> tuple[str, list[_Token], int]:
        """Return what the server answers in a conversation: text, tokens if they are told, tokens read or 0.

        Raises:
            UserError: the server fails, has another model, or its model reasons.
        """
        turns = [turn.partition(_SAYS) for turn in self.text(prompt.tolist()).split(_TURN)[1:-1]]
        body = {
            "model": self.served, "messages": [{"role": role, "content": content} for role, _, content in turns],
            "max_tokens": limit, "temperature": 0, "top_p": 1, **self._settings, **settings,
        }  # fmt: skip
        if self.top:
            body |= {"logprobs": True, "top_logprobs": self._k(limit)}
        reply = self.client.request("chat/completions", body)
        try:
            choice = reply["choices"][0]
            message, text = choice["message"], choice["message"].get("content") or ""
            tokens = [_Token.of(told) for told in (choice.get("logprobs") or {}).get("content") or ()]
            model, read = str(reply.get("model") or ""), int((reply.get("usage") or {}).get("prompt_tokens") or 0)
            trace = message.get("reasoning_content") or message.get("reasoning") or text.lstrip().startswith("<think")
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self.unexpected_reply("a chat completion", f"{str(reply)[:160]}") from error
        if trace:
            what = f"has a model, {self.model!r}, that reasons before it answers"
            raise self.client.error(what, "Serve it with reasoning turned off, or another model")
        self.model = model if self._is_new else self.model
        self._is_new = False
        self.check_model(model)
        return text, tokens, read
