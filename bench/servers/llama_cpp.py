"""The dialect of llama.cpp's server (`llama-server`): prompts as token ids, any token's log-probability, any text's.

Samplers are off, since the server's own cut and penalise (docs/servers.md). A text is forced by a grammar of token ids,
and the shares of a few tokens are those of a distribution in which all others have a bias against them.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from bench.prompts.front_coding import Ids
from bench.servers.client import Client
from bench.servers.dialect import BIAS, PROMPTS, TEXTS, TOLERANCE, TOP, Dialect
from bench.servers.readings import Ability, Draw, Floats, Scored

E = TypeVar("E")
_BUILT_IN = "cc145ac597328b60dbce2631dce17c0c84bb6a87b2380cc0473e2e1291965db7"
"""SHA-256 of the template (ChatML) that llama.cpp takes for a model without one, which such a model never saw."""


class _Entry(msgspec.Struct):
    id: int
    logprob: float = 0.0
    prob: float = 0.0


class _Spelt(_Entry, kw_only=True):
    bytes: list[int]


class _Token(msgspec.Struct, Generic[E]):
    id: int
    logprob: float = 0.0
    top_logprobs: list[E] = []
    top_probs: list[E] = []


class _Reply(msgspec.Struct, Generic[E]):
    """What `/completion` answers, reduced to the fields that are read."""

    tokens: list[int]
    stop_type: str
    tokens_evaluated: int
    completion_probabilities: list[_Token[E]] = []
    model: str = ""


class LlamaCpp(Dialect):
    """A model of llama.cpp's server."""

    name, called = "llama.cpp", "llama.cpp's server"

    def __init__(self, client: Client, props: Mapping[str, Any], card: Mapping[str, Any], *, cached: bool) -> None:
        """Probe what the server can do.

        Args:
            client: calls the server.
            props: what its `/props` says.
            card: what `/v1/models` says of the model.
            cached: whether the server may go on from what it has read of a prompt before.

        Raises:
            UserError: it can't be reached, or gives no log-probabilities of the model itself.
        """
        super().__init__(client, card, cached=False)  # while it is probed
        meta = card.get("meta") or {}
        self.context = int(props["default_generation_settings"]["n_ctx"])
        self.slots, self.width = int(props.get("total_slots", 1)), int(meta.get("n_embd", 0))
        told, self.vocabulary = str(props.get("chat_template")), int(meta["n_vocab"])
        template = sha256(told.encode()).hexdigest()
        self.chat_template = "" if template == _BUILT_IN else props.get("chat_template") or "the server's"
        self.bos_token = str(props.get("bos_token") or "")
        start = self.tokenise(self.bos_token, special=False)
        self.bos_token_id = start[0] if len(start) == 1 else None
        prompt, self._bytes = self.encode(PROMPTS[0]), [b""] * self.vocabulary
        settings = {"n_predict": 1, "n_probs": self.vocabulary, "temperature": 0}
        spelt = self._ask(prompt, _Reply[_Spelt], **settings).completion_probabilities[0]
        for entry in spelt.top_logprobs:
            self._bytes[entry.id] = bytes(entry.bytes)
        self.all_special_ids = [i for i, text in enumerate(self._bytes) if not text]
        self.find_exact(prompt, self.check_unsampled(prompt))
        self.abilities |= Ability.WHOLE | Ability.TRACES
        self.identity = {
            "server": self.name, "model": self.model.replace("\\", "/").rpartition("/")[2],
            "template": template,
            "meta": {name: value for name, value in meta.items() if name != "n_ctx"},
            "ids": self(TEXTS)["input_ids"],
        }  # fmt: skip
        self.cached = cached

    def tokenise(self, text: str, *, special: bool) -> list[int]:
        """Return the token ids of a text; `special` adds what the tokenizer adds by default."""
        return self.ask_tokens({"content": text, "add_special": special, "parse_special": True})

    def render(self, turns: Sequence[Mapping[str, str]], *, answering: bool, **settings: Any) -> str:
        """Return a conversation as text, by the server's own chat template."""
        body = {"messages": turns, "add_generation_prompt": answering, "chat_template_kwargs": settings}
        return self.ask_text("/apply-template", body)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        return b"".join(self._bytes[token] for token in ids).decode("utf-8", "replace")

    def next_token(self, prompt: Ids, k: int, *, temperature: float = 1, bias: int | None = None) -> dict[int, float]:
        """Return the log-probabilities of the k likeliest tokens after a prompt (see `Dialect.next_token`)."""
        settings = {} if bias is None else {"logit_bias": [[bias, BIAS]]}
        reply = self._ask(prompt, n_predict=1, n_probs=k, temperature=temperature, cache_prompt=False, **settings)
        return {entry.id: entry.logprob for entry in reply.completion_probabilities[0].top_logprobs}

    # --- readings -----------------------------------------------------------------------------------------------------

    def complete(
        self, prompt: Ids, limit: int, draw: Draw | None = None, *, whole: bool = False, scored: bool = True
    ) -> Scored:
        """Return the model's continuation of a prompt (see `Dialect.complete`).

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        settings: dict[str, Any] = {"temperature": 0}
        if draw is not None:
            settings = {"temperature": draw.temperature, "top_p": draw.top_p, "seed": draw.seed}
        n_probs = self.vocabulary if whole else TOP * scored
        reply = self._ask(prompt, n_predict=limit, n_probs=n_probs, **settings)
        ids = np.asarray(reply.tokens, dtype=np.int32)
        ended = reply.stop_type == "eos"
        if len(ids) < limit and not ended:
            raise self.unexpected_reply(f"{limit} tokens or an end", f"{len(ids)} ({reply.stop_type})")
        return self._scored(reply, ids[:-1] if ended else ids, whole=whole, first=limit == 1)

    def given(self, prompt: Ids, text: Ids, *, whole: bool = False) -> Scored:
        """Return the log-probabilities of a given text after a prompt, which a grammar of token ids forces.

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        grammar = "root ::= " + " ".join(f"<[{token}]>" for token in text.tolist())
        n_probs = self.vocabulary if whole else TOP
        reply = self._ask(prompt, n_predict=len(text), n_probs=n_probs, temperature=0, grammar=grammar)
        if reply.tokens[: len(text)] != text.tolist():
            raise self.unexpected_reply(f"the tokens {text.tolist()[:8]}", f"{reply.tokens[:8]}")
        return self._scored(reply, text, whole=whole)

    def chosen(self, prompt: Ids, ids: Ids) -> Floats:
        """Return the logs of the shares of some tokens among each other (see `Dialect.chosen`).

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        bias = [[token, BIAS] for token in ids.tolist()]
        reply = self._ask(prompt, n_predict=1, n_probs=len(ids), logit_bias=bias, post_sampling_probs=True)
        shares = {entry.id: entry.prob for entry in reply.completion_probabilities[0].top_probs}
        if sorted(shares) != sorted(ids.tolist()) or not np.isclose(sum(shares.values()), 1, atol=TOLERANCE):
            raise self.unexpected_reply(f"shares of the tokens {ids.tolist()[:8]}", f"{str(shares)[:80]}")
        tiny = float(np.finfo(np.float32).tiny)
        return np.log(np.asarray([max(shares[token], tiny) for token in ids.tolist()], dtype=np.float32))

    def _ask(self, prompt: Ids, kind: Any = _Reply[_Entry], **settings: Any) -> Any:
        """Return the server's reply to a prompt of token ids, as a `_Reply`.

        Raises:
            UserError: the server fails, has another model, or cut the prompt or its probabilities.
        """
        body = {
            "prompt": prompt.tolist(), "temperature": 1, "samplers": ["temperature", "top_p"], "top_p": 1, "top_k": 0,
            "min_p": 0, "cache_prompt": self.cached, "return_tokens": True, **settings,
        }  # fmt: skip
        reply = self.client.request("/completion", body, kind)
        self.check_model(reply.model)
        n_probs = min(settings["n_probs"], self.vocabulary)
        entries = reply.completion_probabilities = self._entries(prompt, reply, n_probs)
        sizes = sorted({len(entry.top_probs or entry.top_logprobs) for entry in entries})
        if (reply.tokens_evaluated, sizes, [entry.id for entry in entries]) != (len(prompt), [n_probs], reply.tokens):
            asked = f"{len(prompt)} tokens read, and each of the answer with {n_probs} log-probabilities"
            got = f"{reply.tokens_evaluated} read, and {len(entries)} of {len(reply.tokens)} with {sizes or 'none'}"
            raise self.unexpected_reply(asked, got)
        return reply

    def _entries(self, prompt: Ids, reply: Any, n_probs: int) -> list[Any]:
        """Return the entries of a reply, with those of tokens that end within a character, which the server leaves out.

        Their distribution is read after the tokens before them, where a bias makes the server say a whole character.
        """
        if not n_probs:
            return [_Token(token) for token in reply.tokens]
        decoder, entries, told = getincrementaldecoder("utf-8")("replace"), [], list(reply.completion_probabilities)
        if len(told) >= len(reply.tokens):
            return told
        for i, token in enumerate(reply.tokens):
            decoder.decode(self._bytes[token])
            if not decoder.getstate()[0]:
                entries += told[:1]
                del told[:1]
                continue
            before = np.concatenate([prompt, np.asarray(reply.tokens[:i], dtype=np.int32)])
            letter = [[self._bytes.index(b"x"), BIAS]]
            read = self._ask(before, n_predict=1, n_probs=self.vocabulary, temperature=0, logit_bias=letter)
            tops = read.completion_probabilities[0].top_logprobs
            entries.append(_Token(token, {each.id: each.logprob for each in tops}[token], tops[:n_probs]))
        return entries + told

    def _scored(self, reply: Any, ids: Ids, **kind: bool) -> Scored:
        entries = reply.completion_probabilities
        rows = [{each.id: each.logprob for each in entry.top_logprobs} for entry in entries]
        return self.scored(ids, [entry.logprob for entry in entries], rows, **kind)
