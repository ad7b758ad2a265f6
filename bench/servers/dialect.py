"""`Dialect`: how one kind of server is asked. What all kinds have in common is here: probes, checks, the tokenizer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bench.api import UserError
from bench.prompts.front_coding import Ids
from bench.servers.client import Client
from bench.servers.readings import Ability, Draw, Floats, Scored, difference

TOP = 20
"""Number of likeliest tokens that are read with each token, if not all are."""
TOLERANCE = 2e-3
"""Largest difference in nats between two readings of one distribution that are the same; sums are off by 4e-4."""
BIAS = 100
UNKNOWN = 1 << 18
"""Size of a vocabulary, or context, that the server doesn't tell: more than most models have."""
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


class Dialect(ABC):
    """A model of a server of one kind."""

    name: ClassVar[str]
    """Name of the kind, e.g. `llama.cpp`."""
    called: ClassVar[str]
    """Words for the server in sentences."""
    tolerance: ClassVar[float] = 0.02
    """Largest difference in nats between two probes of a server that has the same model."""
    top = TOP
    """Number of likeliest tokens that it gives with each token."""
    identity: Mapping[str, Any]
    """All that the server says of its model, and the token ids of fixed texts. Part of store keys."""
    context: int
    """Tokens of prompt and answer together."""
    vocabulary = UNKNOWN
    width = 0
    """Width of the hidden states; 0 if it is not said."""
    slots: int
    """Requests that the server answers at once."""
    reads_anew = True
    """Whether a request can keep the server from going on from what it has read of a prompt before."""
    template = ""
    """The chat template, if the server shows it."""

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
        self.stops: frozenset[int] = frozenset()
        """Token ids that end an answer, as far as they are known."""
        self.tokenizer = ServerTokenizer(self)

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
    def complete(self, prompt: Ids, limit: int, draw: Draw | None = None, *, whole: bool = False) -> Scored:
        """Return the model's continuation of a prompt, greedy unless it is drawn, without the end token.

        Args:
            prompt: token ids.
            limit: most tokens.
            draw: how it is sampled.
            whole: whether whole distributions are read; else those of the likeliest tokens.

        Raises:
            UserError: the server fails, or what it answers is not as asked; `given` and `chosen` raise it too.
        """

    def given(self, prompt: Ids, text: Ids, *, whole: bool = False) -> Scored:
        """Return the log-probabilities of a given text after a prompt; most servers can't be asked for them."""
        del prompt, whole
        raise self.client.error(
            f"can't read a text that it doesn't answer now ({self.text(text.tolist())[:40]!r}): it answered so before, or"
            " a file has it",
            "Leave out --answers, or remove its answers: bench cache prune",
        )

    def chosen(self, prompt: Ids, ids: Ids) -> Floats:
        """Return the log-probabilities of tokens after a prompt, less a constant: softmax makes shares of them."""
        raise NotImplementedError

    def keep(self, path: Path) -> None:  # noqa: B027 - most kinds need none
        """Name a file for what must be remembered of this model."""

    def check_room(self, longest: int) -> None:  # noqa: B027 - most kinds refuse what is too long
        """Check that a prompt of so many tokens is read whole."""

    # --- probes -------------------------------------------------------------------------------------------------------

    def encode(self, text: str) -> Ids:
        """Return the token ids of a fixed prompt."""
        return np.asarray(self.tokenise(text, special=True), dtype=np.int32)

    def probe(self, prompts: Sequence[str] = PROMPTS) -> list[dict[str, float]]:
        """Return the log-probabilities of the five likeliest tokens after each of some prompts, by token."""
        found = (self.next_token(self.encode(text), 5) for text in prompts)
        return [{str(token): round(value, 4) for token, value in after.items()} for after in found]

    def check_unsampled(self, prompt: Ids) -> dict[int, float]:
        """Return the log-probabilities of the likeliest tokens after a prompt, which no sampler may move.

        Raises:
            UserError: another temperature, or a bias, moves them; or they are all the same.
        """
        plain = self.next_token(prompt, TOP)
        self.check_weights(plain)
        last = list(plain)[-1]
        for what, after in (
            ("temperature", self.next_token(prompt, TOP, temperature=0.25)),
            ("bias", self.next_token(prompt, TOP, bias=last)),
        ):
            if difference([plain], [after]) > TOLERANCE:
                raise self.unexpected_reply("log-probabilities of the model itself", f"others with another {what}")
        return plain

    def check_weights(self, plain: Mapping[int, float]) -> None:
        """Check that the likeliest tokens after a prompt are not all equally likely, as with weights of zero.

        Raises:
            UserError: they are.
        """
        if len(set(plain.values())) == 1:
            raise self.client.error("finds all tokens equally likely, as if it had no weights", "Load its model anew")

    def exact_abilities(self, prompt: Ids, plain: Mapping[int, float]) -> Ability:
        """Return which readings of chosen tokens and of given texts agree with the likeliest tokens'."""
        likeliest = np.asarray(list(plain)[:4], dtype=np.int32)
        expected = np.asarray(list(plain.values())[:4])
        found = Ability.TEXT | Ability.TOP
        try:
            if np.ptp(self.chosen(prompt, likeliest) - expected) < TOLERANCE:
                found |= Ability.CHOSEN
            if abs(self.given(prompt, likeliest[1:2]).log_probability[0] - expected[1]) < TOLERANCE:
                found |= Ability.GIVEN
        except UserError as error:
            self.notes.append(f"log-probabilities of given texts are refused, which needs a newer server ({error})")
        return found

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
        self,
        ids: Ids,
        own: Sequence[float],
        top_ids: Sequence[Sequence[int]],
        tops: Sequence[Sequence[float]],
        *,
        whole: bool = False,
        first: bool = False,
    ) -> Scored:
        """Return tokens with their log-probabilities, after checks; whole distributions are divided by their sums.

        Args:
            ids: the tokens.
            own: their log-probabilities; of an empty text those of its end token, as in `top_ids` and `tops`.
            top_ids: the likeliest tokens at each position, the likeliest first.
            tops: their log-probabilities.
            whole: whether these are all tokens.
            first: whether the distribution at the first position is kept.

        Raises:
            UserError: some are no log-probabilities.
        """
        n, values, likeliest = len(ids), np.asarray(own, dtype=np.float64), np.asarray(tops, dtype=np.float64)
        order, entropy, divergence, distribution = np.asarray(top_ids, dtype=np.int64), None, None, None
        if not (values <= TOLERANCE).all() or not (likeliest <= TOLERANCE).all():  # false for NaN
            raise self.unexpected_reply("log-probabilities", f"{own[:4]}, {[row[:4] for row in tops[:4]]}")
        if whole:
            likeliest = np.where(likeliest < _IMPOSSIBLE, -np.inf, likeliest)
            excess = np.log(np.exp(likeliest).sum(axis=1, keepdims=True))  # of sums of float32, some 1e-4
            values, likeliest = values - excess[:, 0], likeliest - excess
            finite, count = np.where(np.isfinite(likeliest), likeliest, 0), np.isfinite(likeliest).sum(axis=1)
            entropy = -(np.exp(likeliest) * finite).sum(axis=1).astype(np.float32)[:n]
            divergence = (-finite.sum(axis=1) / count - np.log(count)).astype(np.float32)[:n]
            if first:
                distribution = np.empty(self.vocabulary, dtype=np.float32)
                distribution[order[0]] = likeliest[0]
        shown = likeliest[: max(1, n), : self.top].astype(np.float32)
        return Scored(
            ids, values[:n].astype(np.float32), order[: max(1, n), : self.top], shown, entropy, divergence, distribution
        )


class ServerTokenizer:
    """The parts of a transformers tokenizer that prompts need, by a dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.bos_token_id: int | None = None
        self.eos_token_id: int | None = None
        self.all_special_ids: list[int] = []

    def __len__(self) -> int:
        return self._dialect.vocabulary

    @property
    def chat_template(self) -> str:
        """The server's template, or words for it."""
        return self._dialect.template or "the server's"

    def __call__(
        self, text: str | Sequence[str], *, add_special_tokens: bool = True, return_attention_mask: bool = False
    ) -> dict[str, Any]:
        """Return `input_ids` of a text, or of each of several."""
        del return_attention_mask

        def ids(each: str) -> list[int]:
            return self._dialect.tokenise(sendable(each), special=add_special_tokens)

        if isinstance(text, str):
            return {"input_ids": ids(text)}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return {"input_ids": list(pool.map(ids, text))}

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
        messages = [{k: sendable(v) for k, v in turn.items()} for turn in turns]
        return self._dialect.render(messages, answering=add_generation_prompt, **settings)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of token ids; special tokens have none."""
        del skip_special_tokens
        return self._dialect.text(ids)


def sendable(text: str) -> str:
    """Return a text without lone surrogates, which can't be sent."""
    return text.encode(errors="replace").decode()
