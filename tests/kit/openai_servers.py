"""Servers with the dialects of vLLM, and of those with OpenAI's chat completions alone, before one of our models."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2
import torch
from safetensors.torch import save_file

from bench.api.question import Message
from bench.model.language_model import LanguageModel
from tests.kit.model_server import Loopback, ModelServer
from tests.kit.servers import NEWER, Call


class VLLMServer(ModelServer):
    """`lm` behind the endpoints of vLLM's server."""

    completing = "/v1/completions"

    def __init__(
        self, lm: LanguageModel, alias: str = "/models/tiny.gguf", most: int = -1, *, old: bool = False,
        layers: Sequence[int] = (), folder: Path | None = None,
    ) -> None:  # fmt: skip
        self.most, self.old = most, old
        """Most log-probabilities of a token, -1 for all; whether it ignores `logprob_token_ids`."""
        self.layers, self.folder, self.root = list(layers), folder or Path(), str(lm.folder)
        """Layers whose states it writes, as with the connector `confbench_states`; the folder; the model's files."""
        self.unnormed, self.written = copy.deepcopy(lm.model.base_model), 0
        self.unnormed.norm = torch.nn.Identity()
        self.write: Callable[[dict[str, torch.Tensor], Path], None] = save_file
        super().__init__(lm, alias)

    def answer(self, call: Call) -> dict[str, Any] | str | None:
        tokenizer, body = self.lm.chat.tokenizer, call.body
        match call.path:
            case "/v1/models":
                return {"data": [{"id": self.alias, "max_model_len": self.lm.context, "root": self.root}]}
            case "/tokenize":
                ids = tokenizer(body.get("prompt", ""), add_special_tokens=body.get("add_special_tokens", True))[
                    "input_ids"
                ]
                if "messages" in body:
                    messages = [Message(m["role"], m["content"]) for m in body["messages"]]
                    (ids,) = self.lm.chat.encode(
                        [self.lm.chat.render(messages, answering=body["add_generation_prompt"])]
                    )
                return {"tokens": list(map(int, ids)), "max_model_len": self.lm.context}
            case "/detokenize":
                return {"prompt": tokenizer.decode(body["tokens"])}
            case "/v1/completions":
                return self.complete(body)
            case "/v1/chat/completions":
                return self.chat(body)
        return None

    def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        messages = [Message(m["role"], m["content"]) for m in body["messages"]]
        (ids,) = self.lm.chat.encode([self.lm.chat.render(messages)])
        choice = self._choice(0, ids.tolist(), 0, body)
        del choice["logprobs"]
        given = {"prompt_token_ids": choice.pop("prompt_token_ids")} if "prompt_token_ids" in choice else {}
        message = {"role": "assistant", "content": choice.pop("text")}
        return {"model": self.alias, "choices": [{**choice, "message": message}], **given}

    def complete(self, body: dict[str, Any]) -> dict[str, Any] | str:
        vocabulary, k = len(self.lm.chat.tokenizer), body.get("logprobs", 0)
        if self.most >= 0 and not 0 <= k <= self.most:
            return f"Requested sample logprobs of {k % vocabulary}, which is greater than max allowed: {self.most}"
        if any(token >= vocabulary for token in body.get("stop_token_ids", [])):
            return f"contain out-of-vocab token ids. Vocabulary size: {vocabulary}"
        prompts, told = body["prompt"], {}
        if any(len(prompt) + body["max_tokens"] > self.lm.context for prompt in prompts):
            return f"This model's maximum context length is {self.lm.context} tokens."
        if self.layers and ("logit_bias" in body or "logprob_token_ids" in body):
            return "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding."
        if self.layers:
            told = {"kv_transfer_params": self._states(*prompts, body.get("kv_transfer_params", {}).get("rows"))}
        return told | {
            "model": self.alias, "choices": [self._choice(i, prompt, k, body) for i, prompt in enumerate(prompts)],
            "usage": {"prompt_tokens": sum(map(len, prompts))},
        }  # fmt: skip

    def _choice(self, index: int, prompt: Sequence[int], k: int, body: dict[str, Any]) -> dict[str, Any]:
        names, chosen = [], [] if self.old else body.get("logprob_token_ids", [])
        own_values, tops = [], []
        bias = [(int(token), added) for token, added in body.get("logit_bias", {}).items()]
        bias += [(token, 1e9) for token in body.get("allowed_token_ids", [])]
        for token, own, _ in self.tokens(
            prompt, body["max_tokens"], body.get("temperature", 1), body.get("top_p", 1), body.get("seed"), bias,
            more=body.get("stop_token_ids", ()),
        ):  # fmt: skip
            order = chosen or own.argsort(descending=True, stable=True)[: k if k >= 0 else None].tolist()
            numbers = own.tolist()
            names.append(token)
            own_values.append(numbers[token])
            tops.append({f"token_id:{i}": numbers[i] for i in [token, *order]})
        ends = {*self.lm.stops - self.lm.added_stops, *body.get("stop_token_ids", ())}
        ids = {"prompt_token_ids": list(prompt), "token_ids": names} if body.get("return_token_ids") else {}
        return {
            "index": index, "finish_reason": "stop" if names[-1] in ends else "length", **ids,
            "text": self.lm.chat.tokenizer.decode(names, skip_special_tokens=True),
            "logprobs": {
                "tokens": [f"token_id:{i}" for i in names], "token_logprobs": own_values, "top_logprobs": tops,
            },
            "prompt_logprobs": self._given(prompt, body["prompt_logprobs"]) if "prompt_logprobs" in body else None,
        }  # fmt: skip

    @torch.inference_mode()
    def _states(self, prompt: Sequence[int], rows: Sequence[int] | None) -> dict[str, Any]:
        """What the connector tells, and its file."""
        if not rows:
            return {"layers": self.layers}
        with self.lock:
            self.written += 1
            path = self.folder / f"cmpl-{self.written}.safetensors"
        read = self.unnormed(torch.tensor([prompt]), output_hidden_states=True).hidden_states
        states = torch.stack([read[k][0, list(rows)] for k in self.layers], dim=1)
        self.write({"token_ids": torch.tensor(prompt), "hidden_states": states.contiguous()}, path)
        return {"hidden_states_path": str(path), "layers": self.layers}

    @torch.inference_mode()
    def _given(self, prompt: Sequence[int], k: int) -> list[dict[int, Any] | None]:
        states = self.lm.model.base_model(torch.tensor([prompt])).last_hidden_state[0]
        rows = self.lm.head.logits(states).double().log_softmax(-1)
        named = torch.cat([torch.tensor(prompt[1:])[:, None], rows[:-1].topk(k).indices], 1)
        pairs = zip(named.tolist(), rows[:-1].gather(1, named).tolist(), strict=True)
        return [None, *({i: {"logprob": value} for i, value in zip(*pair, strict=True)} for pair in pairs)]


class ChatServer(ModelServer):
    """`lm` behind OpenAI's chat completions, and nothing else; with the oddities of servers that have no more."""

    completing = "/v1/chat/completions"

    def __init__(self, lm: LanguageModel, alias: str = "tiny", most: int = 20) -> None:
        self.most = most
        """Most `top_logprobs`: more are refused."""
        self.given: int | None = None
        """Number of likeliest tokens that come, whatever is asked for; 0 for null."""
        self.scaled, self.thinks, self.strict, self.untold, self.blank = False, False, False, False, False
        """Whether the temperature scales log-probabilities; the model reasons unless told not to; unknown settings are
        refused; an answer's tokens outside the likeliest have -9999; its first token has a blank (SentencePiece),
        which its template strips."""
        self.newer = False
        """Whether `max_tokens` is refused, as by newer models of OpenAI."""
        self.room, self.top_k = 1 << 30, 0
        """Tokens of a prompt that are read, the last ones; candidates of the sampler, 0 for all."""
        super().__init__(lm, alias)

    def answer(self, call: Call) -> dict[str, Any] | str | None:
        match call.path:
            case "/v1/models":
                return {"data": [{"id": self.alias, "object": "model"}]}
            case "/v1/chat/completions":
                return self.complete(call.body)
        return None

    def complete(self, body: dict[str, Any]) -> dict[str, Any] | str:
        if self.strict and {"top_k", "min_p"} & set(body):
            return "Unrecognized request argument supplied: top_k"
        if self.newer and "max_tokens" in body:
            return NEWER
        k = body.get("top_logprobs", 0)
        if k > self.most:
            return f"top_logprobs must be at most {self.most}"
        messages = [Message(m["role"], m["content"].removeprefix(" " * self.blank)) for m in body["messages"]]
        (ids,) = self.lm.chat.encode([self.lm.chat.render(messages)])
        prompt, temperature, entries, text = ids.tolist()[-self.room :], body["temperature"], [], []
        top_p, seed = body.get("top_p", 1), body.get("seed")
        limit = body["max_completion_tokens" if self.newer else "max_tokens"]
        for token, own, _ in self.tokens(prompt, limit, temperature, top_p, seed, top_k=self.top_k):
            shown = (own / temperature).log_softmax(-1) if self.scaled and temperature > 0 else own
            order = shown.argsort(descending=True, stable=True)[: k if self.given is None else self.given].tolist()
            text.append(token)
            entries.append({**self._entry(token, shown), "top_logprobs": [self._entry(i, shown) for i in order]})
            if self.untold and token not in order:
                entries[-1]["logprob"] = -9999.0
        for entry in [entries[0], *entries[0]["top_logprobs"]] if self.blank else ():
            if entry["bytes"]:
                entry.update(token=f" {entry['token']}", bytes=[*b" ", *entry["bytes"]])
        message = {"role": "assistant", "content": self.lm.chat.tokenizer.decode(text, skip_special_tokens=True)}
        if self.thinks and body.get("chat_template_kwargs", {}).get("enable_thinking", True):
            message["reasoning_content"] = "Let me think."
        told = body.get("logprobs") and self.given != 0
        return {
            "model": self.alias, "usage": {"prompt_tokens": len(prompt)},
            "choices": [{
                "message": message, "finish_reason": "stop" if text[-1] in self.lm.stops else "length",
                "logprobs": {"content": entries} if told else None,
            }],
        }  # fmt: skip

    def _entry(self, token: int, values: torch.Tensor) -> dict[str, Any]:
        spelt = self.bytes[token]
        return {"token": bytes(spelt).decode("utf-8", "replace"), "bytes": spelt, "logprob": float(values[token])}


class ChatOnly(Loopback):
    """A real server behind a proxy that lets only its chat completions through."""

    completing = "/v1/chat/completions"

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__()

    def answer(self, call: Call) -> dict[str, Any] | str | None:
        if call.path not in {"/v1/models", self.completing}:
            return None
        body = {"json": call.body} if call.body else {}
        reply = httpx2.request("POST" if body else "GET", self.address + call.path, timeout=600, **body)
        return reply.json() if reply.status_code == 200 else f"{reply.status_code}: {reply.text}"
