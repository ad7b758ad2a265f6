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
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.api import UserError
from bench.prompts.chat import OPENING
from bench.prompts.front_coding import Ids
from bench.servers.client import Client
from bench.servers.dialect import PROMPTS, TOP, Dialect, is_refusal, passes
from bench.servers.readings import Ability, Draw, Scored, difference
from bench.store.lines import append_line, read_lines

_TURN, _SAYS = "\ufdd0", "\ufdd1"
"""Non-characters that begin a turn and end its role, in conversations as text."""
_PIECE = re.compile(r"[\x01-\x7f]{1,4}|[^\x01-\x7f]")
_MOST_TOKENS = re.compile(rb"[A-Za-z ]{1,3}|[^A-Za-z ]")
"""Parts of a text in UTF-8; tokenizers hardly ever make more tokens of it than there are parts."""
_MERGED = re.compile(rb"[\x80-\xff]{3}")
"""Three bytes of other characters, which count as two parts: 2 for a Chinese character, 1.3 for a Cyrillic letter.
In a trial the tokenizers of Llama 2 and GPT-3.5 made no more of sentences in 14 languages, but of Armenian, Ethiopic,
emoji and rare Chinese characters (up to 3 each); GPT-2's made more of Chinese, Korean, Tamil and Georgian too."""
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
_TOPS = (TOP, 5)
"""Numbers of likeliest tokens that are asked for, until a server gives as many; fewer than the last are of no use."""
_SCALED = 0.5
"""Difference in nats from which on log-probabilities count as scaled by a temperature; caches move them by less."""
_TRACE = re.compile(rf"\s*(?:<think|{OPENING})", re.IGNORECASE)
_BROKEN = {"abort", "error", "insufficient_system_resource"}
"""Ends of answers that are not the model's own."""
_FILTERED = "content_filter"
"""The server's own word on a question, each time: an empty answer."""
_UNTOLD = -9999
"""Stands for the log-probability of a token that is not among the likeliest."""


class _Told(NamedTuple):
    text: bytes
    log_probability: float
    likeliest: list[tuple[bytes, float]]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> _Told:
        """Return a token of a reply with the likeliest ones at its place."""
        text = told["token"].encode() if told.get("bytes") is None else bytes(told["bytes"])
        return cls(text, float(told["logprob"]), [cls.of(each)[:2] for each in told.get("top_logprobs") or ()])


class OpenAIChat(Dialect):
    """A model of a server that takes messages alone."""

    name, called = "OpenAI-compatible", "this OpenAI-compatible server"
    slots, reads_anew, tolerance = 64, False, _SCALED

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
        self._texts, self._path, self._lock = dict[int, bytes](), Path(), threading.Lock()
        self.served, self._is_new, self.top, self._scaled, self._room = self.model, True, 0, False, 0
        self._blank = False  # whether answers begin with a token with a blank, as those of SentencePiece do
        self._find_settings()
        if why := self._find_log_probabilities():
            self.top = 0
            self.notes.append(f"it gives no log-probabilities that could be used ({why})")
        self.notes.append("prompts are sent as messages: their tokens are unknown, and counted as four characters each")
        settings = {name: value for name, value in self._settings.items() if name != "cache_prompt"}
        self.identity = {"server": self.name, "model": self.model, "settings": settings, "top": self.top}
        self.identity |= {"blank": True} if self._blank else {}

    def _find_settings(self) -> None:
        """Find the settings with which samplers and reasoning are off, or else raise the last refusal."""
        for last, (neutral, quiet) in enumerate(product((_NEUTRAL | {"cache_prompt": self.cached}, {}), _QUIET), -5):
            self._settings = {**neutral, **quiet}
            try:
                self._ask(self.encode("Hi"), 8)
            except UserError as error:
                if not last or (error.__cause__ and not is_refusal(error)):
                    raise
            else:
                return

    def _find_log_probabilities(self) -> str:
        """Find how many likeliest tokens come, and what moves them; return why they can't be used, or nothing."""
        prompt, why = self.encode(PROMPTS[0]), ""
        for self.top in _TOPS:
            try:
                tokens = self._ask(prompt, 1, temperature=1)[1]
            except UserError as error:
                if passes(error):
                    raise
                why = str(error)
                continue
            given = min((len(token.likeliest) for token in tokens), default=0)
            why = "" if given >= self.top else f"{given} where {self.top} are asked for" if tokens else "null"
            if not why:
                break
        else:
            return why
        self._blank = max(tokens[0].likeliest, key=lambda pair: pair[1])[0].startswith(b" ")
        plain, greedy, sharp = (self.next_token(prompt, 5, temperature=t) for t in (1, 0, 0.25))
        self.check_weights(plain)
        if difference([plain], [greedy]) > _SCALED:
            return "those of greedy answers are others than the model's"
        self.abilities, self._scaled = Ability.TEXT | Ability.TOP, difference([plain], [sharp]) > _SCALED
        if self._scaled:
            self.notes.append("it scales log-probabilities by the temperature: samples at others than 1 have none")
        drawn = self._ask(self.encode(PROMPTS[3]), 32, temperature=2, seed=1)[1]  # hot: most are unlikely
        listed = sum(token.text in dict(token.likeliest) for token in drawn)
        if listed > 0.6 * len(drawn):
            what = f"of {len(drawn)} tokens at temperature 2 {listed} are among the {self.top} likeliest"
            self.notes.append(f"its own samplers cut what it samples: {what}; log-probabilities are not concerned")
        what = "others get their upper bound, and entropies their lower one, which results count"
        self.notes.append(f"log-probabilities are of the {self.top} likeliest tokens: {what}")
        if any(token.log_probability <= _UNTOLD for token in drawn):
            self.notes.append("it doesn't score what it samples outside these: it counts as the last listed, a bound")
        return ""

    def check_room(self, prompts: Sequence[Ids], limit: int) -> None:
        """Check that prompts and answers are read whole: words are sent, each of which is one token at least.

        Raises:
            UserError: they are cut.
        """
        texts = (self.text(prompt.tolist()).encode() for prompt in prompts)
        words = limit + max(len(_MOST_TOKENS.findall(text)) - len(_MERGED.findall(text)) for text in texts)
        if words <= self._room:
            return
        self._room, read = words, words  # a server that refuses what is too long doesn't cut it
        try:
            read = self._ask(self.encode(" a" * words), 1)[2]
        except UserError as error:
            if passes(error) or error.__cause__ is None:
                raise
        if not read:
            self.notes.append("it doesn't tell how many tokens it read, so a prompt that it cuts isn't noticed")
        elif read < words:
            what = f"cuts prompts: of {words:,} words, an upper bound for the longest question, it read {read:,} tokens"
            raise self.client.error(what, "Start it with a longer context (Ollama: OLLAMA_CONTEXT_LENGTH)")

    # --- a code of texts ----------------------------------------------------------------------------------------------

    def tokenise(self, text: str, *, special: bool) -> list[int]:
        """Return the code of a text: the bytes of up to four ASCII characters, of others less their first bits."""
        del special
        numbers = (int.from_bytes(piece.encode(), "big") for piece in _PIECE.findall(text))
        return [number & 0x07FF_FFFF if number >> 31 else number for number in numbers]

    def render(self, turns: Sequence[Mapping[str, str]], *, answering: bool, **settings: Any) -> str:
        """Return a conversation as text, from which the messages can be read again."""
        del settings
        text = "".join(f"{_TURN}{turn['role']}{_SAYS}{turn['content']}" for turn in turns)
        return f"{text}{_TURN}assistant{_SAYS}" if answering else text

    def encode(self, text: str) -> Ids:
        """Return the code of a conversation with a fixed prompt."""
        turn = self.render([{"role": "user", "content": text}], answering=True)
        return np.asarray(self.tokenise(turn, special=False), dtype=np.int32)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of a code."""
        return b"".join(map(self._spell, ids)).decode("utf-8", "replace")

    def _spell(self, token: int) -> bytes:
        if token & _LISTED != _LISTED:
            cut = 0x80 <= token >> 16 & 0xFF < 0xC0  # the second of four bytes
            return (token | 0xF000_0000 * cut).to_bytes(4, "big").lstrip(b"\0")
        if token not in self._texts:
            self.keep(self._path)  # another run may have added it
        if token not in self._texts:
            what = f"The cache lacks the texts of tokens of {self.model!r}, which its {self._path.name} had"
            raise UserError(f"{what}. Remove its answers too: bench cache prune.")
        return self._texts[token]

    def spellings(self, token: int) -> list[int]:
        """Return the ids of a word, and of it behind a blank if this model's answers begin so."""
        return [token, self._id(b" " + self._spell(token))] if self._blank else [token]

    def keep(self, path: Path) -> None:
        """Name the file with the texts of answers' tokens, and read it."""
        self._path = path
        lines = read_lines(path) if path.name else ()
        for token, text in (pair for line in lines if line for pair in line["tokens"].items()):
            self._texts[int(token)] = text.encode("latin-1")

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
            pairs = [(self._id(token), token) for token in tokens]
            new = {i: text for i, text in pairs if i & _LISTED == _LISTED and i not in self._texts}
            self._texts |= new
            if new and self._path.name:
                append_line(self._path, {"tokens": {str(i): text.decode("latin-1") for i, text in new.items()}})
        return np.asarray([i for i, _ in pairs], dtype=np.int32)

    def _by_id(self, token: _Told) -> dict[int, float]:
        """Return the log-probabilities of the likeliest tokens, the likeliest first; of two with one id the larger."""
        values = {self._id(text): value for text, value in sorted(token.likeliest, key=lambda pair: pair[1])}
        return dict(sorted(values.items(), key=lambda pair: -pair[1]))

    # --- readings -----------------------------------------------------------------------------------------------------

    def next_token(self, prompt: Ids, k: int, *, temperature: float = 1, bias: int | None = None) -> dict[int, float]:
        """Return the log-probabilities of the k likeliest tokens after a prompt (see `Dialect.next_token`)."""
        del bias
        text, tokens, _ = self._ask(prompt, 1 if self.top else 4, temperature=temperature)
        if not self.top:
            return {self._id(text.encode()): 0.0, 0: -1.0}  # of a probe, which the first words must do for
        return dict(islice(self._by_id(tokens[0]).items(), k)) if tokens else {}

    def complete(
        self, prompt: Ids, limit: int, draw: Draw | None = None, *, whole: bool = False, scored: bool = True
    ) -> Scored:
        """Return the model's continuation of a prompt (see `Dialect.complete`), never with whole distributions.

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        del whole, scored
        text, told, _ = self._ask(prompt, limit, **({} if draw is None else vars(draw)))
        if not self.top:
            ids = np.asarray(self.tokenise(text, special=False), dtype=np.int32)
            return Scored(ids, np.full(len(ids), np.nan, np.float32), *np.zeros((2, len(ids), 0)))
        tokens = [token for token in told if token.text]  # an end token may have none
        ends = (b"".join(token.text for token in tokens[:n]).decode("utf-8", "replace") for n in range(len(tokens) + 1))
        same = [n for n, end in enumerate(ends) if _plain(end) == _plain(text)]
        if not same or any(len(token.likeliest) < self.top for token in told):
            got = f"{[token.text for token in told[:8]]}, with {sorted({len(token.likeliest) for token in told})} each"
            raise self.unexpected_reply(f"the tokens of {text[:40]!r}, each with {self.top} log-probabilities", got)
        ids, tokens = self._ids([token.text for token in tokens[: same[-1]]]), tokens[: same[-1]] or told[:1]
        rows = [self._by_id(token) for token in tokens]
        pairs = zip((token.log_probability for token in tokens), rows, strict=True)
        own = [min(row.values()) if score <= _UNTOLD else score for score, row in pairs]
        found = self.scored(ids, own, rows, whole=False)
        if self._scaled and draw is not None and draw.temperature != 1:
            found = replace(found, log_probability=np.full_like(found.log_probability, np.nan))
        return found

    def _ask(self, prompt: Ids, limit: int, **settings: Any) -> tuple[str, list[_Told], int]:
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
            body |= {"logprobs": True, "top_logprobs": self.top}
        try:
            reply = self.client.request("chat/completions", body)
        except UserError as error:
            if getattr(error.__cause__, "code", None) == _FILTERED:
                return "", [], 0
            raise
        try:
            choice, used = reply["choices"][0], reply.get("usage") or {}
            message, text = choice["message"], choice["message"].get("content") or ""
            tokens = [_Told.of(told) for told in (choice.get("logprobs") or {}).get("content") or ()]
            model, read = str(reply.get("model") or ""), int(used.get("prompt_tokens") or 0)
            hidden = (used.get("completion_tokens_details") or {}).get("reasoning_tokens")
            trace = message.get("reasoning_content") or message.get("reasoning") or hidden or _TRACE.match(text)
            ended, told = str(choice.get("finish_reason")), used.get("completion_tokens")
            n = limit if told is None or (text and not told) else int(told)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self.unexpected_reply("a chat completion", self.client.connection.one_line(str(reply))) from error
        if trace:
            what = f"has a model, {self.model!r}, that reasons before it answers"
            raise self.client.error(what, "Serve it with reasoning turned off, or another model")
        if ended in _BROKEN or (ended == "length" and n < limit > 1):  # of one token it may only have read the prompt
            what = f"broke off an answer after {n} of {limit} tokens ({ended})"
            raise self.client.error(what, "Start it with a longer context" if ended == "length" else "See its log")
        if ended == _FILTERED:
            text, tokens = "", []
        self.model = model if self._is_new and model else self.model
        self._is_new = self._is_new and not model
        self.check_model(model)
        return text, tokens, read


def _plain(text: str) -> str:
    """Return a text as servers agree on it: some strip it, and leave out half a character at its end."""
    return text.replace("\ufffd", "").strip()
