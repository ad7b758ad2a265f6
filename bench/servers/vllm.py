"""The dialect of vLLM's server: prompts as token ids at `/v1/completions`, any token's and any text's log-probability.

Whole distributions are read where the server was started with `--max-logprobs -1`. A server that was started with the
connector `confbench_states` writes hidden states into a folder; all log-probabilities but those of the model's own
texts are then computed from these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from bench.api import UserError
from bench.prompts.front_coding import Ids
from bench.servers.client import Client
from bench.servers.dialect import BIAS, PROMPTS, TEXTS, TOLERANCE, TOP, UNKNOWN, Dialect, is_refusal, passes
from bench.servers.readings import Ability, Draw, Floats, Scored

_NAMED = "token_id:"
"""What a token is called in replies, before its id."""
_ENDS = ("<|eot_id|>", "<end_of_turn>", "<|end|>")
"""Tokens that end turns, beside those of `TEXTS`."""
_KEPT = 10_000
"""Conversations whose token ids are remembered between their rendering and their tokenisation."""


_WAIT_S = 60.0
"""Seconds after the reply within which the server has written the states of its prompt."""


class _Reading(NamedTuple):
    ids: list[int]
    """Token ids of the answer, with its end token."""
    own: list[float]
    rows: list[dict[int, float]]
    """Log-probabilities at each position, the likeliest first."""
    of_prompt: list[dict[int, float]]
    """The same of the prompt, if they were asked for."""
    ended: bool
    told: Mapping[str, Any]
    """What the server's connector says of the states."""


class VLLM(Dialect):
    """A model of vLLM's server."""

    name, called, slots = "vLLM", "vLLM's server", 256

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
        self.abilities |= Ability.TRACES
        self.context, self._ids_of = int(card.get("max_model_len") or UNKNOWN), dict[str, list[int]]()
        self._ends: list[int] = []
        tokens = {text: self.tokenise(text, special=False) for text in (*TEXTS, *_ENDS)}
        self.all_special_ids = [ids[0] for text, ids in tokens.items() if text[0] == "<" and len(ids) == 1]
        first = self.tokenise("x", special=True)
        self.bos_token_id = first[0] if len(first) > len(tokens["x"]) else None
        prompt = self.encode(PROMPTS[0])
        told, self.root = self._ask([prompt], 1, 1)[0].told, str(card.get("root", ""))
        self.layers = tuple(told.get("layers", ()))
        if "hidden_states_path" in told:
            what = "writes the states of all tokens of each prompt into a folder, where nobody deletes them"
            raise client.error(what, "Start it with confbench's connector (docs/vllm.md)")
        plain = self.check_unsampled(prompt)
        if not self.layers:
            self.find_exact(prompt, plain)
        elif abs(self.given(prompt, np.asarray([[*plain][1]])).log_probability[0] - [*plain.values()][1]) < TOLERANCE:
            self.abilities |= Ability.TOP | Ability.GIVEN
        try:
            self.vocabulary = max(self._ask([prompt], 1, -1)[0].rows[0]) + 1
            self.abilities |= Ability.WHOLE
        except UserError as error:
            if passes(error):
                raise
            if not self.layers:
                self.notes.append("whole distributions need --max-logprobs -1, with which vLLM can be started")
        turns = [{"role": role, "content": role} for role in ("system", "user", "assistant")]
        try:
            text = self.render(turns, answering=False)
        except UserError as error:
            if not is_refusal(error):
                raise
            text = self.render(turns[1:], answering=False)  # of a template that takes no system turn
        self.identity = {
            "server": self.name, "model": self.model.rpartition("/")[2], "template": sha256(text.encode()).hexdigest(),
            "ids": list(tokens.values()), **({"states": True} if self.layers else {}),
        }  # fmt: skip

    def tokenise(self, text: str, *, special: bool) -> list[int]:
        """Return the token ids of a text; `special` adds what the tokenizer adds by default."""
        if text in self._ids_of and not special:
            return self._ids_of[text]
        return self.ask_tokens({"model": self.model, "prompt": text, "add_special_tokens": special})

    def render(self, turns: Sequence[Mapping[str, str]], *, answering: bool, **settings: Any) -> str:
        """Return a conversation as text; its token ids are those that the server itself makes of it."""
        body = {"model": self.model, "messages": turns, "add_generation_prompt": answering}
        ids = self.ask_tokens({**body, "chat_template_kwargs": settings})
        text = self.ask_text("/detokenize", {"model": self.model, "tokens": ids})
        if len(self._ids_of) >= _KEPT:
            self._ids_of.clear()
        self._ids_of[text] = ids
        return text

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        shown = [token for token in ids if token not in self.all_special_ids]
        return self.ask_text("/detokenize", {"model": self.model, "tokens": shown})

    def next_token(self, prompt: Ids, k: int, *, temperature: float = 1, bias: int | None = None) -> dict[int, float]:
        """Return the log-probabilities of the k likeliest tokens after a prompt (see `Dialect.next_token`)."""
        biases = {} if bias is None else {"logit_bias": {str(bias): BIAS}}
        (reply,) = self._ask([prompt], 1, k, temperature=temperature, cache_salt=uuid4().hex, **biases)
        return dict(list(reply.rows[0].items())[:k])

    # --- readings -----------------------------------------------------------------------------------------------------

    def stops_at(self, token: int) -> bool:
        """Return whether the server ends texts at a token by itself; from now on it is asked to."""
        self._ends = [token]
        settings = {"temperature": 0, "logit_bias": {str(token): BIAS}}
        if self.layers or self._ask([self.encode(PROMPTS[0])], 2, 1, **settings)[0].ended:  # layers forbid biases
            return True
        self.notes.append(f"it is told to end texts at token {token}, too, with which its chat template ends turns")
        return False

    def complete(
        self, prompt: Ids, limit: int, draw: Draw | None = None, *, whole: bool = False, scored: bool = True
    ) -> Scored:
        """Return the model's continuation of a prompt (see `Dialect.complete`).

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        settings = {**({"temperature": 0} if draw is None else vars(draw)), "stop_token_ids": self._ends}
        (reply,) = self._ask([prompt], limit, -1 if whole else TOP * scored, **settings)
        if len(reply.ids) < limit and not reply.ended:
            raise self.unexpected_reply(f"{limit} tokens or an end", f"{len(reply.ids)}")
        ids = np.asarray(reply.ids[:-1] if reply.ended else reply.ids, dtype=np.int32)
        return self.scored(ids, reply.own, reply.rows, whole=whole, first=limit == 1)

    def given(self, prompt: Ids, text: Ids, *, whole: bool = False) -> Scored:
        """Return the log-probabilities of a given text after a prompt: as those of a prompt, or token by token.

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        if whole:
            prompts = [np.concatenate([prompt, text[:j]]) for j in range(len(text))]
            rows = [reply.rows[0] for reply in self._ask(prompts, 1, -1)]
        else:
            (reply,) = self._ask([np.concatenate([prompt, text])], 1, 1, prompt_logprobs=TOP)
            rows = reply.of_prompt[len(prompt) :]
        own = [row.get(token, np.nan) for token, row in zip(text.tolist(), rows, strict=False)]
        if len(own) != len(text):
            raise self.unexpected_reply(f"log-probabilities of {len(text)} given tokens", f"{len(own)}")
        return self.scored(text, own, rows, whole=whole)

    def chosen(self, prompt: Ids, ids: Ids) -> Floats:
        """Return the log-probabilities of some tokens after a prompt (see `Dialect.chosen`).

        Raises:
            UserError: the server fails, or what it answers is not as asked.
        """
        if self.head is not None:
            rows = self.log_probabilities(self.states(prompt, [len(prompt) - 1]))
            return np.asarray(rows[0, ids], dtype=np.float32)
        if self.cached:  # beside other requests vLLM 0.32 gives them the tokens that one of them names
            said = {token: self._ask([prompt], 1, 1, allowed_token_ids=[token])[0].rows[0] for token in ids.tolist()}
            return np.asarray([row.get(token, np.nan) for token, row in said.items()], dtype=np.float32)
        (reply,) = self._ask([prompt], 1, 1, logprob_token_ids=ids.tolist())
        found = reply.rows[0]
        if not set(ids.tolist()) <= set(found):  # of a version that ignores what it doesn't know
            found = {token: float(self.given(prompt, np.asarray([token])).log_probability[0]) for token in ids.tolist()}
        return np.asarray([found[token] for token in ids.tolist()], dtype=np.float32)

    # --- hidden states ------------------------------------------------------------------------------------------------

    def states(self, prompt: Ids, rows: Sequence[int]) -> dict[int, Floats]:
        """Return hidden states at positions of a prompt (see `Dialect.states`); the file that had them is deleted.

        Raises:
            UserError: the server fails, writes no file, or other layers, or states of another prompt.
        """
        (reply,) = self._ask([prompt], 1, 1, kv_transfer_params={"rows": list(rows)})
        if tuple(reply.told.get("layers", ())) != self.layers or "hidden_states_path" not in reply.told:
            what = f"writes states of layers {reply.told.get('layers', 'none')} now, not of {list(self.layers)}"
            raise self.client.error(str(reply.told.get("error", what)), "Start it as it was before")
        path, shape = Path(reply.told["hidden_states_path"]), (len(rows), len(self.layers))
        try:
            tensors = self._load(path)
            if not np.array_equal(tensors["token_ids"].numpy(), prompt) or tensors["hidden_states"].shape[:2] != shape:
                asked = f"{shape[0]} states of each of {shape[1]} layers of a prompt"
                raise self.unexpected_reply(asked, f"others in {path}")
            path.unlink(missing_ok=True)  # one that has the prompt is no other's
        except OSError as error:
            what = f"wrote hidden states to {path.parent}, which can't be read or deleted ({error.strerror or error})"
            raise self.client.error(what, "Give yourself the rights to that folder") from error
        self.dtype = tensors["hidden_states"].dtype
        states = dict(zip(self.layers, tensors["hidden_states"].float().numpy().swapaxes(0, 1), strict=True))
        if self.head is not None and self.head.norm is not None:
            states[max(self.layers)] = self.head.norm(states[max(self.layers)])
        return states

    def _load(self, path: Path) -> dict[str, Any]:
        """Return the tensors of a file that the server is writing.

        Raises:
            UserError: it isn't there in time, or could not be written.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        failure, end, pause = path.with_suffix(".error"), monotonic() + _WAIT_S, 0.001
        while not path.is_file():
            if failure.is_file():
                why = failure.read_text().strip()[:160] or "no space left"
                failure.unlink(missing_ok=True)
                raise self.client.error(f"can't write hidden states to {path.parent} ({why})", "Free some disk space")
            if monotonic() > end:
                seen = "" if path.parent.is_dir() else ", a folder that this machine doesn't have"
                what = f"wrote no hidden states within {_WAIT_S:g} s to {path.parent}{seen}"
                raise self.client.error(what, "Start it with a shared_storage_path that it shares with this machine")
            sleep(pause)
            pause = min(2 * pause, 0.1)
        try:
            return dict(load_file(path))
        except SafetensorError as error:
            raise self.client.error(f"wrote hidden states that can't be read ({error})", "See its log") from error

    # --- requests -----------------------------------------------------------------------------------------------------

    def _ask(self, prompts: Sequence[Ids], limit: int, k: int, **settings: Any) -> list[_Reading]:
        """Return the server's replies to prompts of token ids, each with the k likeliest tokens at each position.

        Raises:
            UserError: the server fails, has another model, or cut the prompts or its probabilities.
        """
        body = {
            "model": self.model, "prompt": [prompt.tolist() for prompt in prompts], "max_tokens": limit, "logprobs": k,
            "temperature": 1, "top_p": 1, "top_k": -1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0,
            "frequency_penalty": 0, "return_tokens_as_token_ids": True, **settings,
        }  # fmt: skip
        reply = self.client.request("completions", body if self.cached else {"cache_salt": uuid4().hex, **body})
        try:
            self.check_model(reply["model"])
            connector = reply.get("kv_transfer_params") or {}
            choices = sorted(reply["choices"], key=lambda choice: choice["index"])
            replies = [_completion(choice, connector) for choice in choices]
            read, sent = reply["usage"]["prompt_tokens"], sum(map(len, prompts))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            got = self.client.connection.one_line(str(reply))
            raise self.unexpected_reply("completions with log-probabilities", got) from error
        least = k if k >= 0 else self.vocabulary if Ability.WHOLE in self.abilities else 1
        sizes = {len(row) for each in replies for row in each.rows}
        whole = all(0 < len(each.ids) == len(each.own) == len(each.rows) for each in replies)
        if (read, len(replies), whole and min(sizes, default=-1) >= least) != (sent, len(prompts), True):
            asked = f"{sent} tokens read, and each of the answer with {least} log-probabilities"
            raise self.unexpected_reply(asked, f"{read} read, and {sorted(sizes) or 'none'}")
        return replies


def _completion(choice: Mapping[str, Any], connector: Mapping[str, Any]) -> _Reading:
    """Return what is read of one of `choices`."""

    def by_id(pairs: Sequence[tuple[str, float]]) -> dict[int, float]:
        return {int(token.removeprefix(_NAMED)): value for token, value in sorted(pairs, key=lambda pair: -pair[1])}

    told, given = choice["logprobs"], choice.get("prompt_logprobs") or ()
    of_prompt = [by_id([(token, each["logprob"]) for token, each in (row or {}).items()]) for row in given]
    ids = [int(token.removeprefix(_NAMED)) for token in told["tokens"]]
    rows = [by_id(row.items()) for row in told["top_logprobs"]]
    return _Reading(ids, told["token_logprobs"], rows, of_prompt, choice["finish_reason"] == "stop", connector)
