"""The dialect of vLLM's server: prompts as token ids at `/v1/completions`, any token's and any text's log-probability.

Whole distributions are read where the server was started with `--max-logprobs -1`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np

from bench.api import UserError
from bench.prompts.front_coding import Ids
from bench.servers.client import Client
from bench.servers.dialect import BIAS, PROMPTS, TEXTS, TOP, Dialect
from bench.servers.readings import Ability, Draw, Floats, Scored

_NAMED = "token_id:"
"""What a token is called in replies, before its id."""
_NO_TOKEN = (1 << 31) - 2
"""Id that no vocabulary has: the refusal says how many there are."""
_SLOTS = 256
_KEPT = 10_000
"""Conversations whose token ids are remembered between their rendering and their tokenisation."""


class _LogProb(msgspec.Struct):
    logprob: float


class _Generated(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]


class _Choice(msgspec.Struct):
    index: int
    finish_reason: str
    logprobs: _Generated
    prompt_logprobs: list[dict[int, _LogProb] | None] | None = None

    @property
    def ids(self) -> list[int]:
        """Token ids of the answer, with its end token."""
        return [int(token.removeprefix(_NAMED)) for token in self.logprobs.tokens]

    def likeliest(self) -> list[dict[int, float]]:
        """Return the log-probabilities at each position, the likeliest first."""
        rows = (sorted(row.items(), key=lambda pair: -pair[1]) for row in self.logprobs.top_logprobs)
        return [{int(token.removeprefix(_NAMED)): value for token, value in row} for row in rows]


class _Usage(msgspec.Struct):
    prompt_tokens: int


class _Completions(msgspec.Struct):
    """What `/v1/completions` answers, reduced to the fields that are read."""

    model: str
    choices: list[_Choice]
    usage: _Usage


class VLLM(Dialect):
    """A model of vLLM's server."""

    name = "vLLM"
    slots = _SLOTS

    def __init__(self, client: Client, card: Mapping[str, Any], *, cached: bool) -> None:
        """Probe what the server can do.

        Args:
            client: calls the server.
            card: what `/v1/models` says of the model.
            cached: whether the server may go on from what it has read of a prompt before.

        Raises:
            UserError: it can't be reached, or gives no log-probabilities of the model itself.
        """
        super().__init__(client, card, cached=cached)
        self.context, self._ids_of = int(card.get("max_model_len") or 1 << 30), dict[str, list[int]]()
        tokens = {text: self.tokenise(text, special=False) for text in TEXTS}
        self.tokenizer.all_special_ids = [ids[0] for text, ids in tokens.items() if text[0] == "<" and len(ids) == 1]
        first = self.tokenise("x", special=True)
        self.tokenizer.bos_token_id = first[0] if len(first) > len(tokens["x"]) else None
        prompt = self.encode(PROMPTS[0])
        plain = self.check_unsampled(prompt)
        self.abilities = self.exact_abilities(prompt, plain)
        self.vocabulary = self._vocabulary(prompt)
        try:
            whole = self.complete(prompt, 1, whole=True).first
        except UserError:
            whole = None
        if whole is not None and np.allclose(whole[list(plain)], list(plain.values()), atol=self.tolerance):
            self.abilities |= Ability.WHOLE
            self._find_ends(prompt)
        else:
            self.notes.append("whole distributions need --max-logprobs -1, with which vLLM can be started")
        turns = [{"role": role, "content": role} for role in ("system", "user", "assistant", "user")]
        template = self.render(turns, answering=True)
        self.identity = {
            "server": self.name, "model": self.model.rpartition("/")[2],
            "template": sha256(template.encode()).hexdigest(), "ids": list(tokens.values()),
        }  # fmt: skip

    def _vocabulary(self, prompt: Ids) -> int:
        """Return the size of the vocabulary, which vLLM tells when it refuses an id."""
        try:
            self._ask([prompt], 1, 1, stop_token_ids=[_NO_TOKEN])
        except UserError as error:
            if said := re.search(r"[Vv]ocabulary size: (\d+)", str(error.__cause__)):
                return int(said[1])
        return 1 << 18  # more than most models have

    def _find_ends(self, prompt: Ids) -> None:
        """Find the tokens that end an answer: those after a turn of the assistant, of which each is forced in turn."""
        turns = [{"role": role, "content": "x"} for role in ("user", "assistant")]
        last = self.tokenise(self.render(turns, answering=False), special=False)[-3:]
        for token in {*last, *self.tokenizer.all_special_ids}:
            (reply,) = self._ask([prompt], 2, 1, allowed_token_ids=[token])
            if reply.finish_reason == "stop" and len(reply.ids) == 1:
                self.stops |= {token}

    def tokenise(self, text: str, *, special: bool) -> list[int]:
        """Return the token ids of a text; `special` adds what the tokenizer adds by default."""
        if text in self._ids_of and not special:
            return self._ids_of[text]
        body = {"model": self.model, "prompt": text, "add_special_tokens": special}
        ids: list[int] = self.client.request("/tokenize", body)["tokens"]
        return ids

    def render(self, turns: Sequence[Mapping[str, str]], *, answering: bool, **settings: Any) -> str:
        """Return a conversation as text; its token ids are those that the server itself makes of it."""
        body = {"model": self.model, "messages": turns, "add_generation_prompt": answering}
        ids = self.client.request("/tokenize", {**body, "chat_template_kwargs": settings})["tokens"]
        text = str(self.client.request("/detokenize", {"model": self.model, "tokens": ids})["prompt"])
        if len(self._ids_of) >= _KEPT:
            self._ids_of.clear()
        self._ids_of[text] = ids
        return text

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        shown = [token for token in ids if token not in self.tokenizer.all_special_ids]
        return str(self.client.request("/detokenize", {"model": self.model, "tokens": shown})["prompt"])

    def next_token(self, prompt: Ids, k: int, *, temperature: float = 1, bias: int | None = None) -> dict[int, float]:
        """Return the log-probabilities of the k likeliest tokens after a prompt (see `Dialect.next_token`)."""
        settings = {} if bias is None else {"logit_bias": {str(bias): BIAS}}
        (reply,) = self._ask([prompt], 1, k, temperature=temperature, cache_salt=uuid4().hex, **settings)
        return dict(list(reply.likeliest()[0].items())[:k])

    # --- readings -----------------------------------------------------------------------------------------------------

    def complete(self, prompt: Ids, limit: int, draw: Draw | None = None, *, whole: bool = False) -> Scored:
        """Return the model's continuation of a prompt (see `Dialect.complete`).

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        settings: dict[str, Any] = {"temperature": 0}
        if draw is not None:
            settings = {"temperature": draw.temperature, "top_p": draw.top_p, "seed": draw.seed}
        (reply,) = self._ask([prompt], limit, -1 if whole else TOP, **settings)
        ids = np.asarray(reply.ids, dtype=np.int32)
        ended = reply.finish_reason == "stop"
        if len(ids) < limit and not ended:
            raise self.unexpected_reply(f"{limit} tokens or an end", f"{len(ids)} ({reply.finish_reason})")
        ids, own = ids[:-1] if ended else ids, reply.logprobs.token_logprobs
        return self._scored(ids, reply.likeliest(), own, whole=whole, first=limit == 1)

    def given(self, prompt: Ids, text: Ids, *, whole: bool = False) -> Scored:
        """Return the log-probabilities of a given text after a prompt: as those of a prompt, or token by token.

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        if whole:
            replies = self._ask([np.concatenate([prompt, text[:j]]) for j in range(len(text))], 1, -1)
            rows = [reply.likeliest()[0] for reply in replies]
        else:
            (reply,) = self._ask([np.concatenate([prompt, text])], 1, 1, prompt_logprobs=TOP)
            read = [{token: each.logprob for token, each in (row or {}).items()} for row in reply.prompt_logprobs or ()]
            rows = [dict(sorted(row.items(), key=lambda pair: -pair[1])) for row in read[len(prompt) :]]
        own = [row.get(token, np.nan) for token, row in zip(text.tolist(), rows, strict=False)]
        if len(own) != len(text):
            raise self.unexpected_reply(f"log-probabilities of {len(text)} given tokens", f"{len(own)}")
        return self._scored(text, rows, own, whole=whole)

    def chosen(self, prompt: Ids, ids: Ids) -> Floats:
        """Return the log-probabilities of some tokens after a prompt (see `Dialect.chosen`).

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        (reply,) = self._ask([prompt], 1, 1, logprob_token_ids=ids.tolist())
        found = reply.likeliest()[0]
        if not set(ids.tolist()) <= set(found):  # of a version that ignores what it doesn't know
            return np.asarray([self.given(prompt, ids[k : k + 1]).log_probability[0] for k in range(len(ids))])
        return np.asarray([found[token] for token in ids.tolist()], dtype=np.float32)

    def _ask(self, prompts: Sequence[Ids], limit: int, k: int, **settings: Any) -> list[_Choice]:
        """Return the server's replies to prompts of token ids, each with the k likeliest tokens at each position.

        Raises:
            UserError: the server fails, has another model, or cut the prompts or its probabilities.
        """
        body = {
            "model": self.model, "prompt": [prompt.tolist() for prompt in prompts], "max_tokens": limit, "logprobs": k,
            "temperature": 1, "top_p": 1, "top_k": -1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0,
            "frequency_penalty": 0, "return_tokens_as_token_ids": True, **settings,
        }  # fmt: skip
        if not self.cached:
            body["cache_salt"] = uuid4().hex
        reply: _Completions = self.client.request("completions", body, _Completions)
        if reply.model != self.model:
            raise self.client.error(
                f"has the model {reply.model!r} now, not {self.model!r}", "Start it as it was before"
            )
        least = self.vocabulary if k < 0 else k
        sizes = {len(row) for choice in reply.choices for row in choice.logprobs.top_logprobs}
        lengths = {len(choice.logprobs.top_logprobs) - len(choice.logprobs.tokens) for choice in reply.choices}
        read, sent = reply.usage.prompt_tokens, sum(map(len, prompts))
        if (read, len(reply.choices), lengths) != (sent, len(prompts), {0}) or min(sizes, default=0) < least:
            asked = f"{sent} tokens read, and each of the answer with {least} log-probabilities"
            raise self.unexpected_reply(asked, f"{read} read, and {sorted(sizes) or 'none'}")
        return sorted(reply.choices, key=lambda choice: choice.index)

    def _scored(self, ids: Ids, rows: Sequence[Mapping[int, float]], own: Sequence[float], **kind: bool) -> Scored:
        n, width = max(1, len(ids)), self.vocabulary if kind["whole"] else TOP
        top_ids, tops = [list(row)[:width] for row in rows[:n]], [list(row.values())[:width] for row in rows[:n]]
        return self.scored(ids, own[:n], top_ids, tops, **kind)
