"""A server with llama.cpp's dialect whose model is one of ours: equal questions must give equal numbers."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bench.api.question import Message
from bench.model.language_model import LanguageModel
from bench.model.token_sampling import sample_tokens
from tests.fixtures.http import Server
from tests.kit.servers import Call, Reply

Fault = Callable[[Call, int], Reply | None]
"""Gets a call for a completion and its number, from 1; gives what is answered instead of what the model says."""


class LlamaServer:
    """`lm` behind the endpoints of llama.cpp's server. Texts are read whole for each token, so nothing is cached."""

    def __init__(self, lm: LanguageModel, alias: str = "/models/tiny.gguf", slots: int = 1) -> None:
        self.lm, self.alias, self.slots = lm, alias, slots
        spelt = ([i] for i in range(len(lm.chat.tokenizer)))
        self.bytes = [list(lm.chat.tokenizer.decode(ids, skip_special_tokens=True).encode()) for ids in spelt]
        self.calls: list[Call] = []
        self.fault: Fault = lambda _call, _n: None
        self.change: Callable[[dict[str, Any]], None] = lambda _answer: None
        """Alters what is answered to a call for a completion."""
        self.port, self.open, self.lock = 0, set[socket.socket](), threading.Lock()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def completions(self) -> list[dict[str, Any]]:
        """Bodies of the calls for completions."""
        return [call.body for call in self.calls if call.path == "/completion"]

    def start(self) -> None:
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                outer.open.add(self.connection)

            def do_POST(self) -> None:
                outer.handle(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def do_GET(self) -> None:
                outer.handle(self, {})

            def log_message(self, *_args: object) -> None:
                pass

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        """End as a killed process does: all connections break."""
        self.server.shutdown()
        self.server.server_close()
        for connection in self.open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.open = set()

    def handle(self, handler: http.server.BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        call = Call(handler.path, {k.lower(): v for k, v in handler.headers.items()}, body)
        with self.lock:
            self.calls.append(call)
            number = len(self.completions)
        reply = self.fault(call, number) if call.path == "/completion" else None
        time.sleep(reply.seconds if reply else 0)
        if reply is not None and reply.raw is not None:
            handler.close_connection = True
            reply.raw(handler.connection)
            return
        if reply is None or (reply.status == 200 and reply.body is None):
            answer = self.answer(call)
            reply = Reply(body=json.dumps(answer).encode()) if answer is not None else Reply(None, 404, body=b"{}")
        content = reply.encoded()
        handler.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    # --- what the endpoints answer ------------------------------------------------------------------------------------

    def answer(self, call: Call) -> dict[str, Any] | None:
        tokenizer, body = self.lm.chat.tokenizer, call.body
        match call.path:
            case "/v1/models":
                meta = {"n_vocab": len(tokenizer), "n_embd": self.lm.facts.hidden_size, "n_ctx": self.lm.context}
                return {"data": [{"id": self.alias, "meta": {**meta, "ftype": "F32"}}]}
            case "/props":
                settings = {"n_ctx": self.lm.context}
                return {
                    "default_generation_settings": settings, "total_slots": self.slots,
                    "chat_template": self.lm.chat.template or tokenizer.chat_template,
                    "bos_token": tokenizer.bos_token or "", "eos_token": tokenizer.eos_token,
                }  # fmt: skip
            case "/tokenize":
                return {"tokens": tokenizer(body["content"], add_special_tokens=body["add_special"])["input_ids"]}
            case "/apply-template":
                messages = [Message(m["role"], m["content"]) for m in body["messages"]]
                text = self.lm.chat.render(messages, answering=body["add_generation_prompt"])
                adds_bos = tokenizer("x")["input_ids"][:1] == [tokenizer.bos_token_id]  # else the template writes it
                return {"prompt": text.removeprefix(tokenizer.bos_token) if adds_bos else text}
            case "/completion":
                answer = self.complete(body)
                self.change(answer)
                return answer
        return None

    @torch.inference_mode()
    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        ids, entries, limit = list(body["prompt"]), [], body["n_predict"]
        forced = [int(part.strip("<[]>")) for part in body.get("grammar", "root ::= ").split()[2:]]
        numbers = np.random.default_rng(body.get("seed", 0)).random(limit)
        stop_type = "limit"
        for step in range(limit):
            logits = self.lm.head.logits(self.lm.model.base_model(torch.tensor([ids])).last_hidden_state[0, -1:])
            own = logits[0].double().log_softmax(-1)
            biased = logits.clone()
            for token, bias in body.get("logit_bias", []):
                biased[0, token] += bias
            temperature, top_p = body["temperature"], body["top_p"]
            token = int(biased.argmax())
            if forced:
                token = forced[step]
            elif temperature > 0:
                (token,) = sample_tokens(biased, [0], [float(numbers[step])], temperature, top_p)
            post, k = body.get("post_sampling_probs", False), body["n_probs"]
            values = (biased[0].double() / max(temperature, 1e-9)).softmax(-1) if post else own
            order = values.argsort(descending=True, stable=True)[:k].tolist()
            name = "prob" if post else "logprob"
            tops = [{"id": i, name: float(values[i]), "bytes": self.bytes[i]} for i in order]
            entries.append({"id": token, name: float(values[token]), f"top_{name}s": tops})
            ids.append(token)
            if token in self.lm.stops:
                stop_type = "eos"
                break
        tokens = [entry["id"] for entry in entries]
        return {
            "tokens": tokens, "completion_probabilities": entries, "stop_type": stop_type, "model": self.alias,
            "tokens_evaluated": len(body["prompt"]), "truncated": False,
        }  # fmt: skip


def half_a_body(connection: socket.socket) -> None:
    """Send half of an answer, then break the connection."""
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 400\r\nContent-Type: application/json\r\n\r\n{"tokens": [1')
    connection.shutdown(socket.SHUT_RDWR)
