"""A server before one of our models, of any dialect: equal questions must give equal numbers."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import torch

from bench.model.language_model import LanguageModel
from bench.model.token_sampling import sample_tokens
from tests.fixtures.http import Server
from tests.kit.servers import Call, Reply, send

Fault = Callable[[Call, int], Reply | None]
"""Gets a call for a completion and its number, from 1; gives what is answered instead of what the model says."""


class Loopback:
    """A server on this machine that can be killed and started again."""

    completing: str
    """Path of calls for completions."""

    def __init__(self) -> None:
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
        return [call.body for call in self.calls if call.path == self.completing]

    def start(self) -> None:
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else each answer waits 40 ms, its head being acknowledged late

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
        reply = self.fault(call, number) if call.path == self.completing else None
        time.sleep(reply.seconds if reply else 0)
        if reply is None or (reply.status == 200 and reply.body is None and reply.raw is None):
            answer = self.answer(call)
            if call.path == self.completing and isinstance(answer, dict):
                self.change(answer)
            refused = Reply(answer or "not found", 400 if answer else 404)
            reply = Reply(body=msgspec.json.encode(answer)) if isinstance(answer, dict) else refused
        send(handler, reply)

    def answer(self, call: Call) -> dict[str, Any] | str | None:
        """What is answered: JSON; a sentence, with status 400; or None, with 404."""
        raise NotImplementedError


class ModelServer(Loopback):
    """`lm` behind a server. Texts are read whole for each token, but none twice, whichever server reads it."""

    read: ClassVar[WeakKeyDictionary[torch.nn.Module, dict[tuple[int, ...], torch.Tensor]]] = WeakKeyDictionary()
    """Last hidden state of each text, of models whose weights below the head stay as they are."""
    spelt: ClassVar[WeakKeyDictionary[Any, list[list[int]]]] = WeakKeyDictionary()
    """Bytes of each token, of each tokenizer."""

    def __init__(self, lm: LanguageModel, alias: str = "/models/tiny.gguf") -> None:
        self.lm, self.alias = lm, alias
        if lm.chat.tokenizer not in self.spelt:
            texts = lm.chat.tokenizer.batch_decode(
                [[i] for i in range(len(lm.chat.tokenizer))], skip_special_tokens=True
            )
            self.spelt[lm.chat.tokenizer] = [list(text.encode()) for text in texts]
        self.bytes = list(self.spelt[lm.chat.tokenizer])
        super().__init__()

    @torch.inference_mode()
    def tokens(
        self,
        prompt: Sequence[int],
        limit: int,
        temperature: float = 1,
        top_p: float = 1,
        seed: int | None = None,
        bias: Sequence[tuple[int, float]] = (),
        forced: Sequence[int] = (),
        top_k: int = 0,
        more: Sequence[int] = (),
    ) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Tokens of an answer, the end token too, with the model's log-probabilities, and the sampler's logits.

        End tokens are those of the model's files, and `more`.
        """
        ids, numbers = list(prompt), np.random.default_rng(seed or 0).random(limit)
        for step in range(limit):
            known, text = self.read.setdefault(self.lm.model, {}), tuple(ids)
            if text not in known:
                known[text] = self.lm.model.base_model(torch.tensor([ids])).last_hidden_state[0, -1:].clone()
            logits = self.lm.head.logits(known[text])
            biased = logits.clone()
            for token, added in bias:
                biased[0, token] += added
            if top_k:
                biased[biased < biased.topk(top_k).values[:, -1:]] = -torch.inf
            token = int(biased.argmax())
            if forced:
                token = forced[step]
            elif temperature > 0:
                (token,) = sample_tokens(biased, [0], [float(numbers[step])], temperature, top_p)
            yield token, logits[0].double().log_softmax(-1), biased[0].double()
            ids.append(token)
            if token in {*self.lm.stops - self.lm.added_stops, *more}:
                return
