"""`Dialect`: how one kind of server is asked. What all kinds have in common is here: probes, checks, the tokenizer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import jinja2
import msgspec
import numpy as np
import openai

from bench.api import OutputHead, UserError
from bench.prompts.front_coding import Ids
from bench.servers.client import Client
from bench.servers.readings import WORDS, Ability, Draw, Floats, Scored, difference, score_rows

TOP = 20
"""Number of likeliest tokens that are read with each token, if not all are."""
TOLERANCE = 2e-3
"""Largest difference in nats between two readings of one distribution that are the same; sums are off by 4e-4."""
BIAS = 100
UNKNOWN = 1 << 18
"""Size of a vocabulary, or context, that the server doesn't tell: more than most models have."""
_REFUSALS = {400, 413, 422, 500}
"""Status of a call that a server refuses for what it asks."""
_PASSING = {0, 408, 409, 425, 429, 502, 503, 504}
"""Status of a failure that passes; 0 if no answer came."""
_AT_ONCE = 8
"""Texts that are tokenised at once."""
_IMPOSSIBLE = -9000.0
"""Log-probabilities below this stand for probability 0."""
PROMPTS = ("The capital of France is", "2 + 2 =", "def f(x):\n    return", "Once upon a time", "Question: Is")
"""Prompts after which the probe reads log-probabilities; they tell one model from another."""
TEXTS = (
    "x", " x", "  x", "x\n\n1.", "1234567890", "\n", "\t", "½", "y½", "é", "日本語", "🙂", "</s>", "<|im_start|>",
    "<|im_end|>", "<|endoftext|>", "it's", "A", "(a)", "a b",
)  # fmt: skip
"""Texts whose token ids tell one tokenizer from another."""
_PIECE = 64
"""Positions whose distributions are computed at once from their states."""


class _TokensReply(msgspec.Struct):
    tokens: list[int]


class _TextReply(msgspec.Struct):
    prompt: str


class BusyError(UserError):
    """A server answers otherwise each time, as others use it."""


class Dialect(ABC):
    """A model of a server of one kind; it has those parts of a transformers tokenizer that prompts need."""

    name: ClassVar[str]
    """Name of the kind, e.g. `llama.cpp`."""
    called: ClassVar[str]
    """Words for the server in sentences."""
    tolerance = 0.02
    """Largest difference in nats between two probes of a server that has the same model."""
    reads_anew = True
    """Whether a request can keep the server from going on from what it has read of a prompt before."""
    identity: Mapping[str, Any]
    """All that the server says of its model, and the token ids of fixed texts. Part of store keys."""
    context = vocabulary = UNKNOWN
    """Tokens of prompt and answer together; size of the vocabulary."""
    width = 0
    """Width of the hidden states; 0 if it is not said."""
    layers: Sequence[int] = ()
    """Layers whose hidden states the server writes; layer k is `hidden_states[k]` of transformers."""
    dtype: Any = None
    """Dtype of the states, once some were read."""
    root = ""
    """Folder or Hub id of the model's files as the server names it."""
    head: OutputHead | None = None
    """Output head with the final norm, if states can be read: log-probabilities are then computed from them."""
    slots: int
    """Requests that the server answers at once."""
    chat_template = "the server's"
    """Template of conversations, if the server tells it; empty if the model has none."""
    bos_token = ""
    bos_token_id: int | None = None

    def __init__(self, client: Client, card: Mapping[str, Any], *, cached: bool) -> None:
        """Set what all kinds have; each kind then probes what the server can do.

        Args:
            client: calls the server.
            card: what `/v1/models` says of the model.
            cached: whether the server may go on from what it has read of a prompt before.

        Raises:
            UserError: the server can't be reached, or can't be used.
        """
        self.client, self.cached = client, cached
        self.model = str(card.get("id", ""))
        """Name of the model as the server reports it."""
        self.abilities = Ability.TEXT
        self.notes: list[str] = []
        """Remarks for the user on what was found."""
        self.all_special_ids: list[int] = []
        """Ids of special tokens, which have no text; a letter that is one is none."""

    # --- what each kind does in its own way ---------------------------------------------------------------------------

    @abstractmethod
    def tokenise(self, text: str, *, special: bool) -> list[int]:
        """Return the token ids of a text; `special` adds what the tokenizer adds by default."""

    @abstractmethod
    def render(self, turns: Sequence[Mapping[str, str]], *, answering: bool, **settings: Any) -> str:
        """Return a conversation as text, by the server's own chat template."""

    @abstractmethod
    def text(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""

    @abstractmethod
    def next_token(self, prompt: Ids, k: int, *, temperature: float = 1, bias: int | None = None) -> dict[int, float]:
        """Return the log-probabilities of the k likeliest tokens after a prompt, the likeliest first.

        Args:
            prompt: token ids.
            k: number of tokens.
            temperature: of the sampler, which must not change them.
            bias: token that the sampler prefers, which must not change them either.
        """

    @abstractmethod
    def complete(
        self, prompt: Ids, limit: int, draw: Draw | None = None, *, whole: bool = False, scored: bool = True
    ) -> Scored:
        """Return the model's continuation of a prompt, greedy unless it is drawn, without the end token.

        Args:
            prompt: token ids.
            limit: most tokens.
            draw: how it is sampled.
            whole: whether whole distributions are read; else those of the likeliest tokens.
            scored: whether log-probabilities are read; without them a long text is quickly sent.

        Raises:
            UserError: the server fails, or what it answers is not as asked; `given` and `chosen` raise it too.
        """

    def given(self, prompt: Ids, text: Ids, *, whole: bool = False) -> Scored:
        """Return the log-probabilities of a given text after a prompt; most servers can't be asked for them."""
        del prompt, whole
        said = self.text(text.tolist())
        what = f"can't read a text that it doesn't answer now, as a file's or an earlier one: {said!r}"
        raise self.client.error(what, "Leave out --answers, or remove what it answered: bench cache prune")

    def chosen(self, prompt: Ids, ids: Ids) -> Floats:
        """Return the log-probabilities of tokens after a prompt, less a constant: softmax makes shares of them.

        Kinds with the ability `CHOSEN` define it, and others are not asked.
        """
        raise NotImplementedError

    def spellings(self, token: int) -> list[int]:
        """Return the tokens that say what a token says where an answer begins; most kinds know the very one."""
        return [token]

    def stops_at(self, _token: int) -> bool:
        """Return whether the server ends texts at the token that ends turns; other servers than vLLM find it so."""
        return True

    def states(self, prompt: Ids, rows: Sequence[int]) -> dict[int, Floats]:
        """Return layer -> hidden states `(len(rows), d)` at positions of a prompt; the last ones are after the norm.

        Kinds with the ability `STATES` define it, and others are not asked.

        Raises:
            UserError: the server fails, or what it writes is not as asked.
        """
        raise NotImplementedError

    def log_probabilities(self, states: Mapping[int, Floats], piece: slice = slice(None)) -> Floats:
        """Return the log-probabilities of all tokens `(t, v)` that states predict, or a piece of them."""
        assert self.head is not None  # noqa: S101  # for the type checker
        logits = self.head.logits(states[max(self.layers)][piece]).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)), dtype=np.float32)

    def score(self, text: Ids, states: Mapping[int, Floats]) -> Scored:
        """Return the log-probabilities of a text from the states that predict its tokens."""
        n = len(text)
        pieces = [slice(start, min(start + _PIECE, n)) for start in range(0, max(1, n), _PIECE)]
        parts = [score_rows(text[piece], self.log_probabilities(states, piece), TOP) for piece in pieces]
        columns = zip(*([*vars(part).values()][:-1] for part in parts), strict=True)
        return Scored(*map(np.concatenate, columns))

    def keep(self, path: Path) -> None:  # noqa: B027 - most kinds need none
        """Name a file for what must be remembered of this model."""

    def check_room(self, prompts: Sequence[Ids], limit: int) -> None:  # noqa: B027 - most refuse what is too long
        """Check that prompts are read whole, and answers to them of at most `limit` tokens."""

    def ask_tokens(self, body: Mapping[str, Any]) -> list[int]:
        """Return the token ids that the server makes of a text or conversation."""
        reply: _TokensReply = self.client.request("/tokenize", body, _TokensReply)
        return reply.tokens

    def ask_text(self, path: str, body: Mapping[str, Any]) -> str:
        """Return the text that the server makes of token ids or of a conversation."""
        reply: _TextReply = self.client.request(path, body, _TextReply)
        return reply.prompt

    # --- the tokenizer ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the size of the vocabulary."""
        return self.vocabulary

    def __call__(self, text: str | Sequence[str], *, add_special_tokens: bool = True, **_: Any) -> dict[str, Any]:
        """Return `input_ids` of a text, or of each of several."""
        ids = partial(self.tokenise, special=add_special_tokens)
        if isinstance(text, str):
            return {"input_ids": ids(sendable(text))}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return {"input_ids": list(pool.map(ids, map(sendable, text)))}

    def apply_chat_template(
        self, turns: Sequence[Mapping[str, str]], *, add_generation_prompt: bool, tokenize: bool, **settings: Any
    ) -> str:
        """Return a conversation as text, by the server's own chat template unless another one is given.

        Raises:
            UserError: the server fails.
            ValueError: the template does.
        """
        del tokenize
        template: str | None = settings.pop("chat_template")
        messages = [{k: sendable(v) for k, v in turn.items()} for turn in turns]
        if template is not None:
            words = {"messages": messages, "bos_token": self.bos_token, "add_generation_prompt": add_generation_prompt}
            return str(jinja2.Template(template, trim_blocks=True, lstrip_blocks=True).render(words))  # as transformers
        try:
            return self.render(messages, answering=add_generation_prompt, **settings)
        except UserError as error:
            if is_refusal(error):
                raise ValueError(str(error)) from error
            raise

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of token ids; special tokens have none."""
        del skip_special_tokens
        return self.text(ids)

    # --- probes -------------------------------------------------------------------------------------------------------

    def encode(self, text: str) -> Ids:
        """Return the token ids of a fixed prompt."""
        return np.asarray(self.tokenise(text, special=True), dtype=np.int32)

    def probe(self, prompts: Sequence[str] = PROMPTS) -> list[dict[str, float]]:
        """Return the log-probabilities of the five likeliest tokens after each of some prompts, by token."""
        found = (self.next_token(self.encode(text), 5) for text in prompts)
        return [{str(token): round(value, 4) for token, value in after.items()} for after in found]

    def check_unsampled(self, prompt: Ids) -> Mapping[int, float]:
        """Return the log-probabilities of the likeliest tokens after a prompt, which no sampler may move.

        Raises:
            UserError: another temperature, or a bias, moves them; or they are all the same, or others each time.
        """
        plain = self.next_token(prompt, TOP)
        self.check_weights(plain)
        moves = {"temperature": (0.25, None)} | ({} if self.layers else {"bias": (1.0, min(plain))})
        for what, (temperature, bias) in moves.items():
            after = self.next_token(prompt, TOP, temperature=temperature, bias=bias)
            if difference([plain], [after]) > TOLERANCE:
                if difference([plain], [self.next_token(prompt, TOP)]) > TOLERANCE:
                    moved = "gives one prompt other log-probabilities each time, as it does when others use it, too"
                    raise BusyError(str(self.client.error(moved, "Wait until it is free")))
                raise self.unexpected_reply("log-probabilities of the model itself", f"others with another {what}")
        return plain

    def check_weights(self, plain: Mapping[int, float]) -> None:
        """Check that the likeliest tokens after a prompt are not all equally likely, as with weights of zero.

        Raises:
            UserError: they are.
        """
        if len(set(plain.values())) == 1:
            raise self.client.error("finds all tokens equally likely, as if it had no weights", "Load its model anew")

    def find_exact(self, prompt: Ids, plain: Mapping[int, float]) -> None:
        """Find which readings of chosen tokens and of given texts agree with the likeliest tokens'."""
        ids, expected = np.asarray([*plain][:4], dtype=np.int32), np.asarray([*plain.values()][:4])
        self.abilities |= Ability.TOP
        try:
            if np.ptp(self.chosen(prompt, ids) - expected) < TOLERANCE:
                self.abilities |= Ability.CHOSEN
            if abs(self.given(prompt, ids[1:2]).log_probability[0] - expected[1]) < TOLERANCE:
                self.abilities |= Ability.GIVEN
        except UserError as error:
            if not is_refusal(error):
                raise
            self.notes.append(f"log-probabilities of given texts are refused, which needs a newer server ({error})")
        else:
            lost = [WORDS[each] for each in (Ability.CHOSEN, Ability.GIVEN) if each not in self.abilities]
            if lost:
                self.notes.append(f"{' and '.join(lost)} are not read, as they are others than the likeliest tokens'")

    def check_model(self, name: str) -> None:
        """Check that the server still has the model, by the name in a reply.

        Raises:
            UserError: it has another one.
        """
        if name not in {self.model, ""}:
            raise self.client.error(f"has the model {name!r} now, not {self.model!r}", "Start it as it was before")

    def unexpected_reply(self, asked: str, got: str) -> UserError:
        """Return an error: what was asked, and what came."""
        return self.client.error(f"answers otherwise than it is asked: expected {asked}, got {got}", "Update it")

    def scored(
        self, ids: Ids, own: Sequence[float], rows: Sequence[Mapping[int, float]], *, whole: bool, first: bool = False
    ) -> Scored:
        """Return tokens with their log-probabilities, after checks; whole distributions are divided by their sums.

        Args:
            ids: the tokens.
            own: their log-probabilities, in the end also of the end token.
            rows: the log-probabilities of the likeliest tokens at each position, the likeliest first.
            whole: whether these are all tokens.
            first: whether the distribution at the first position is kept.

        Raises:
            UserError: some are no log-probabilities.
        """
        n, entropy, divergence, distribution = len(ids), None, None, None
        rows = rows[: max(1, n)]  # of an empty answer those at its end
        k = self.vocabulary if whole else min([TOP, *map(len, rows)])
        order = np.asarray([[*row][:k] for row in rows], dtype=np.int64).reshape(len(rows), k)
        tops = np.asarray([[*row.values()][:k] for row in rows], dtype=np.float64).reshape(len(rows), k)
        values = np.asarray(own[: len(rows)], dtype=np.float64)
        if not (values <= TOLERANCE).all() or not (tops <= TOLERANCE).all():  # false for NaN
            raise self.unexpected_reply("log-probabilities", f"{values[:4].tolist()}, {tops[:4, :4].tolist()}")
        if whole:
            tops = np.where(tops < _IMPOSSIBLE, -np.inf, tops)
            excess = np.log(np.exp(tops).sum(axis=1, keepdims=True))  # of sums of float32, some 1e-4
            values, tops = values - excess[:, 0], tops - excess
            finite, count = np.where(np.isfinite(tops), tops, 0), np.isfinite(tops).sum(axis=1)
            entropy = -(np.exp(tops) * finite).sum(axis=1).astype(np.float32)[:n]
            divergence = (-finite.sum(axis=1) / count - np.log(count)).astype(np.float32)[:n]
            if first:
                distribution = np.empty(self.vocabulary, dtype=np.float32)
                distribution[order[0]] = tops[0]
        likeliest = tops[:, :TOP].astype(np.float32)
        return Scored(ids, values[:n].astype(np.float32), order[:, :TOP], likeliest, entropy, divergence, distribution)


def sendable(text: str) -> str:
    """Return a text without lone surrogates, which can't be sent."""
    return text.encode(errors="replace").decode()


def is_refusal(error: UserError) -> bool:
    """Return whether a call failed as the server refused what it asked."""
    return getattr(error.__cause__, "status_code", 0) in _REFUSALS


def passes(error: Exception) -> bool:
    """Return whether a call failed by what passes, such as load, so that it doesn't tell what a server can do."""
    cause = error.__cause__
    if isinstance(error, BusyError):
        return True
    return isinstance(cause, openai.APIError | TimeoutError) and getattr(cause, "status_code", 0) in _PASSING
