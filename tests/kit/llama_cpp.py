"""A server with llama.cpp's dialect whose model is one of ours: equal questions must give equal numbers."""

from __future__ import annotations

from typing import Any

from bench.api.question import Message
from bench.model.language_model import LanguageModel
from tests.kit.model_server import ModelServer
from tests.kit.servers import Call

BUILT_IN = (
    "{%- for message in messages -%}\n"
    "  {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "  {{- '<|im_start|>assistant\n' -}}\n"
    "{%- endif -%}"
)
"""What llama.cpp takes for the template of a model without one (`CHATML_TEMPLATE_SRC` in its source)."""


class LlamaServer(ModelServer):
    """`lm` behind the endpoints of llama.cpp's server."""

    completing = "/completion"

    def __init__(self, lm: LanguageModel, alias: str = "/models/tiny.gguf", slots: int = 1) -> None:
        self.slots = slots
        super().__init__(lm, alias)

    def answer(self, call: Call) -> dict[str, Any] | str | None:
        tokenizer, body = self.lm.chat.tokenizer, call.body
        match call.path:
            case "/v1/models":
                meta = {"n_vocab": len(tokenizer), "n_embd": self.lm.facts.hidden_size, "n_ctx": self.lm.context}
                return {"data": [{"id": self.alias, "meta": {**meta, "ftype": "F32"}}]}
            case "/props":
                settings = {"n_ctx": self.lm.context}
                return {
                    "default_generation_settings": settings, "total_slots": self.slots,
                    "chat_template": tokenizer.chat_template or BUILT_IN,
                    "bos_token": tokenizer.bos_token or "", "eos_token": tokenizer.eos_token,
                }  # fmt: skip
            case "/tokenize":
                return {"tokens": tokenizer(body["content"], add_special_tokens=body["add_special"])["input_ids"]}
            case "/apply-template":
                assert tokenizer.chat_template, "such a model is asked with a plain template"
                messages, begun = [Message(m["role"], m["content"]) for m in body["messages"]], ""
                if messages[-1].role == "assistant":  # the server goes on with it
                    begun = messages.pop().content
                asks = body["add_generation_prompt"] or bool(begun)
                text = self.lm.chat.render(messages, answering=asks).removesuffix(self.lm.chat.gap) + begun
                adds_bos = tokenizer("x")["input_ids"][:1] == [tokenizer.bos_token_id]  # else the template writes it
                return {"prompt": text.removeprefix(tokenizer.bos_token) if adds_bos else text}
            case "/completion":
                return self.complete(body)
        return None

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        forced = [int(part.strip("<[]>")) for part in body.get("grammar", "root ::= ").split()[2:]]
        post, k, temperature = body.get("post_sampling_probs", False), body["n_probs"], body["temperature"]
        name, entries = "prob" if post else "logprob", []
        for token, own, biased in self.tokens(
            body["prompt"], body["n_predict"], temperature, body["top_p"], body.get("seed"), body.get("logit_bias", []),
            forced,
        ):  # fmt: skip
            values = (biased / max(temperature, 1e-9)).softmax(-1) if post else own
            order, numbers = values.argsort(descending=True, stable=True)[:k].tolist(), values.tolist()
            tops = [{"id": i, name: numbers[i], "bytes": self.bytes[i]} for i in order]
            entries.append({"id": token, name: numbers[token], f"top_{name}s": tops})
        tokens = [entry["id"] for entry in entries]
        return {
            "tokens": tokens, "model": self.alias, "truncated": False,
            **({"completion_probabilities": entries} if k else {}),
            "stop_type": "eos" if tokens[-1] in self.lm.stops else "limit", "tokens_evaluated": len(body["prompt"]),
        }  # fmt: skip
