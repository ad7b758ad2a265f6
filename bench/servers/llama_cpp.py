"""The dialect of llama.cpp's server (`llama-server`): prompts as token ids, any token's log-probability, any text's.

Samplers are off, since the server's own cut and penalise (docs/servers.md). A text is forced by a grammar of token ids,
and the shares of a few tokens are those of a distribution in which all others have a bias against them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from bench.api import UserError
from bench.prompts.front_coding import Ids
from bench.servers.client import Client
from bench.servers.readings import Ability, Draw, Floats, Scored

E = TypeVar("E")
TOP = 20
"""Number of likeliest tokens that are read with each token, if not all are."""
_BIAS = 100
_TOLERANCE = 2e-3
"""Largest difference in nats between two readings of one distribution that are the same; sums are off by 4e-4."""
_AT_ONCE = 8
"""Texts that are tokenised at once."""
_IMPOSSIBLE = -1e30
"""Log-probabilities below this stand for probability 0."""
PROMPTS = ("The capital of France is", "2 + 2 =", "def f(x):\n    return", "Once upon a time", "Question: Is")
"""Prompts after which the probe reads log-probabilities; they tell one model from another."""
TEXTS = (
    "x", " x", "  x", "x\n\n1.", "1234567890", "\n", "\t", "½", "y½", "é", "日本語", "🙂", "</s>", "<|im_start|>",
    "<|im_end|>", "<|endoftext|>", "it's", "A", "(a)", "a b",
)  # fmt: skip
"""Texts whose token ids tell one tokenizer from another."""


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
    completion_probabilities: list[_Token[E]]
    stop_type: str
    tokens_evaluated: int
    model: str = ""


class LlamaCpp:
    """A model of llama.cpp's server."""

    name = "llama.cpp"

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
        self.client, self.model, self.cached = client, str(card.get("id", "")), cached
        meta = card.get("meta") or {}
        self.context = int(props["default_generation_settings"]["n_ctx"])
        self.slots, self.width = int(props.get("total_slots", 1)), int(meta.get("n_embd", 0))
        self.vocabulary = int(meta["n_vocab"])
        self.notes: list[str] = []
        self._bytes: list[bytes] = []
        self.tokenizer: Any = ServerTokenizer(self, props)
        self.abilities = self._abilities()
        template = sha256(str(props.get("chat_template")).encode()).hexdigest()
        self.identity: Mapping[str, Any] = {
            "server": self.name, "model": self.model.replace("\\", "/").rpartition("/")[2], "template": template,
            "meta": {name: value for name, value in meta.items() if name != "n_ctx"},
            "ids": self.tokenizer(TEXTS)["input_ids"],
        }  # fmt: skip

    def _abilities(self) -> Ability:
        """Return what the server can be asked for: each kind of reading is compared with the whole distribution."""
        prompt = np.asarray(self.tokenizer(PROMPTS[0])["input_ids"], dtype=np.int32)
        spelt = self._ask(prompt, _Reply[_Spelt], n_predict=1, n_probs=self.vocabulary).completion_probabilities[0]
        self._bytes = [b""] * self.vocabulary
        for entry in spelt.top_logprobs:
            self._bytes[entry.id] = bytes(entry.bytes)
        self.tokenizer.all_special_ids = [i for i, text in enumerate(self._bytes) if not text]
        whole = self.complete(prompt, 1, whole=True).first
        if whole is None or not np.isfinite(whole).any():
            raise self._unexpected_reply("whole distributions", "none")
        likeliest = np.argsort(-whole)[:4].astype(np.int32)
        for what, setting in (
            ("temperature", {"temperature": 0.25}),
            ("bias", {"logit_bias": [[int(likeliest[3]), _BIAS]]}),
        ):
            reply = self._ask(prompt, n_predict=1, n_probs=4, **setting).completion_probabilities[0]
            values = [entry.logprob for entry in reply.top_logprobs]
            if not np.allclose(values, whole[likeliest], atol=_TOLERANCE):
                raise self._unexpected_reply("log-probabilities of the model itself", f"others with another {what}")
        abilities = Ability.TEXT | Ability.TOP | Ability.WHOLE
        shares = np.exp(self.chosen(prompt, likeliest))
        if np.allclose(shares, np.exp(whole[likeliest]) / np.exp(whole[likeliest]).sum(), atol=_TOLERANCE):
            abilities |= Ability.CHOSEN
        try:
            given = self.given(prompt, likeliest[1:2])
            same = np.allclose(given.log_probability, whole[likeliest[1:2]], atol=_TOLERANCE)
            abilities |= Ability.GIVEN if same else Ability(0)
        except UserError as error:
            self.notes.append(f"texts can't be forced by a grammar of token ids, which needs a newer server ({error})")
        return abilities

    def probe(self) -> list[float]:
        """Return the log-probabilities of the five likeliest tokens after each of `PROMPTS`, by token id."""
        return [value for text in PROMPTS for value in self._after(text)]

    def quick_probe(self) -> list[float]:
        """Return the log-probabilities after the first of `PROMPTS`, as `probe` does."""
        return self._after(PROMPTS[0])

    def _after(self, text: str) -> list[float]:
        ids = np.asarray(self.tokenizer(text)["input_ids"], dtype=np.int32)
        reply = self._ask(ids, n_predict=1, n_probs=5, cache_prompt=False).completion_probabilities[0]
        pairs = sorted((entry.id, entry.logprob) for entry in reply.top_logprobs)
        return [round(number, 4) for pair in pairs for number in pair]

    # --- readings -----------------------------------------------------------------------------------------------------

    def complete(self, prompt: Ids, limit: int, draw: Draw | None = None, *, whole: bool = False) -> Scored:
        """Return the model's continuation of a prompt (see `Dialect.complete`).

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        settings: dict[str, Any] = {"temperature": 0}
        if draw is not None:
            settings = {"temperature": draw.temperature, "top_p": draw.top_p, "seed": draw.seed}
        reply = self._ask(prompt, n_predict=limit, n_probs=self.vocabulary if whole else TOP, **settings)
        ids = np.asarray(reply.tokens, dtype=np.int32)
        ended = reply.stop_type == "eos"
        if len(ids) < limit and not ended:
            raise self._unexpected_reply(f"{limit} tokens or an end", f"{len(ids)} ({reply['stop_type']})")
        return self._scored(reply, ids[:-1] if ended else ids, whole=whole, first=limit == 1)

    def given(self, prompt: Ids, text: Ids, *, whole: bool = False) -> Scored:
        """Return the log-probabilities of a given text after a prompt, which a grammar of token ids forces.

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        grammar = "root ::= " + " ".join(f"<[{token}]>" for token in text.tolist())
        n_probs = self.vocabulary if whole else 1
        reply = self._ask(prompt, n_predict=len(text), n_probs=n_probs, temperature=0, grammar=grammar)
        if reply.tokens[: len(text)] != text.tolist():
            raise self._unexpected_reply(f"the tokens {text.tolist()[:8]}", f"{reply['tokens'][:8]}")
        return self._scored(reply, text, whole=whole)

    def chosen(self, prompt: Ids, ids: Ids) -> Floats:
        """Return the logs of the shares of some tokens among each other (see `Dialect.chosen`).

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        bias = [[token, _BIAS] for token in ids.tolist()]
        reply = self._ask(prompt, n_predict=1, n_probs=len(ids), logit_bias=bias, post_sampling_probs=True)
        shares = {entry.id: entry.prob for entry in reply.completion_probabilities[0].top_probs}
        if sorted(shares) != sorted(ids.tolist()) or not np.isclose(sum(shares.values()), 1, atol=_TOLERANCE):
            raise self._unexpected_reply(f"shares of the tokens {ids.tolist()[:8]}", f"{str(shares)[:80]}")
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
        if self.model not in {reply.model, ""}:
            raise self.client.error(
                f"has the model {reply.model!r} now, not {self.model!r}", "Start it as it was before"
            )
        n_probs, entries = min(settings["n_probs"], self.vocabulary), reply.completion_probabilities
        sizes = sorted({len(entry.top_probs or entry.top_logprobs) for entry in entries})
        if (reply.tokens_evaluated, sizes, [entry.id for entry in entries]) != (len(prompt), [n_probs], reply.tokens):
            asked = f"{len(prompt)} tokens read, and each of the answer with {n_probs} log-probabilities"
            got = f"{reply.tokens_evaluated} read, and {len(entries)} of {len(reply.tokens)} with {sizes or 'none'}"
            raise self._unexpected_reply(asked, got)
        return reply

    def _scored(self, reply: Any, ids: Ids, *, whole: bool, first: bool = False) -> Scored:
        entries = reply.completion_probabilities[: max(1, len(ids))]  # an empty answer has an end token at least
        own = np.asarray([entry.logprob for entry in entries], dtype=np.float64)
        top_ids = np.asarray([[each.id for each in entry.top_logprobs] for entry in entries], dtype=np.int64)
        tops = np.asarray([[each.logprob for each in entry.top_logprobs] for entry in entries], dtype=np.float64)
        if not (own <= _TOLERANCE).all() or not (tops <= _TOLERANCE).all():  # false for NaN
            raise self._unexpected_reply("log-probabilities", f"{own.tolist()[:4]}, {tops[:, :4].tolist()[:4]}")
        entropy = divergence = distribution = None
        if whole:
            tops = np.where(tops < _IMPOSSIBLE, -np.inf, tops)
            excess = np.log(np.exp(tops).sum(axis=1, keepdims=True))  # of sums of float32, some 1e-4
            own, tops = own - excess[:, 0], tops - excess
            finite, count = np.where(np.isfinite(tops), tops, 0), np.isfinite(tops).sum(axis=1)
            entropy = -(np.exp(tops) * finite).sum(axis=1).astype(np.float32)
            divergence = (-finite.sum(axis=1) / count - np.log(count)).astype(np.float32)
            if first:
                distribution = np.empty(self.vocabulary, dtype=np.float32)
                distribution[top_ids[0]] = tops[0]
        n = len(ids)
        return Scored(
            ids, own[:n].astype(np.float32), top_ids[:n, :TOP], tops[:n, :TOP].astype(np.float32),
            None if entropy is None else entropy[:n], None if divergence is None else divergence[:n], distribution,
        )  # fmt: skip

    def _unexpected_reply(self, asked: str, got: str) -> UserError:
        return self.client.error(f"answers otherwise than it is asked: expected {asked}, got {got}", "Update it")

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        return b"".join(self._bytes[token] for token in ids).decode("utf-8", "replace")


class ServerTokenizer:
    """The parts of a transformers tokenizer that prompts need, by the server's endpoints."""

    def __init__(self, server: LlamaCpp, props: Mapping[str, Any]) -> None:
        self._server = server
        self.chat_template = str(props.get("chat_template") or "the server's")
        self.bos_token_id = self._single(props.get("bos_token"))
        self.eos_token_id = self._single(props.get("eos_token"))
        self.all_special_ids: list[int] = []

    def __len__(self) -> int:
        return self._server.vocabulary

    def _single(self, token: object) -> int | None:
        ids = self._ids(str(token), special=False) if token else []
        return ids[0] if len(ids) == 1 else None

    def __call__(
        self, text: str | Sequence[str], *, add_special_tokens: bool = True, return_attention_mask: bool = False
    ) -> dict[str, Any]:
        """Return `input_ids` of a text, or of each of several."""
        del return_attention_mask
        if isinstance(text, str):
            return {"input_ids": self._ids(text, special=add_special_tokens)}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return {"input_ids": list(pool.map(lambda each: self._ids(each, special=add_special_tokens), text))}

    def _ids(self, text: str, *, special: bool) -> list[int]:
        content = text.encode(errors="replace").decode()  # lone surrogates can't be sent
        body = {"content": content, "add_special": special, "parse_special": True}
        ids: list[int] = self._server.client.request("/tokenize", body)["tokens"]
        return ids

    def apply_chat_template(
        self,
        turns: Sequence[Mapping[str, str]],
        *,
        chat_template: str | None,
        tokenize: bool,
        add_generation_prompt: bool,
        **settings: Any,
    ) -> str:
        """Return a conversation as text, by the server's own chat template."""
        del chat_template, tokenize
        messages = [{k: v.encode(errors="replace").decode() for k, v in turn.items()} for turn in turns]
        body = {"messages": messages, "add_generation_prompt": add_generation_prompt, "chat_template_kwargs": settings}
        return str(self._server.client.request("/apply-template", body)["prompt"])

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of token ids; special tokens have none."""
        del skip_special_tokens
        return self._server.text(ids)
