"""`ServerExtractor`: answers and signals of a shard from a model's server, in the local extractor's arrays.

Each signal says in `PassDefinition.ask` what it asks about one question. Every answer of the server is kept at once, so
that a run which is killed asks nothing twice.
"""

from __future__ import annotations

import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import Format, Samples, Signal, UserError
from bench.model.continuation_specs import Arrays, ModelInput, UserTurn
from bench.model.extractor import Cost, ShardOutput, join_values
from bench.prompts.front_coding import Ids
from bench.prompts.prompt_settings import PromptSettings
from bench.servers.readings import Ability, Draw, Floats, Scored, bound_entropy, bound_shares
from bench.signals.definition import PassDefinition
from bench.store.disk_cache import key_of
from bench.store.files import NO_SPACE, named_errors
from bench.store.lines import append_line, read_lines

if TYPE_CHECKING:
    from bench.model.server_model import ServerModel


_FLUSH_S = 1.0
"""Seconds after which answers are flushed to the disk, which takes longer than all else about a request."""


class QuestionRequests:
    """One question on a server: what its signals ask, each thing once."""

    def __init__(
        self,
        server: ServerModel,
        journal: Journal,
        item: ModelInput,
        settings: PromptSettings,
        seed: int,
        *,
        whole: bool,
    ) -> None:
        self._server, self._journal, self._seed = server, journal, seed
        self.by_states = Ability.STATES in server.dialect.abilities
        """Whether the server writes hidden states, from which all but its own texts is then computed."""
        self._whole = whole and not self.by_states
        self._states: dict[tuple[bytes, tuple[int, ...]], dict[int, Floats]] = {}
        self.item, self.settings = item, settings
        self.tokens = 0
        """Tokens of all requests and answers."""
        self.bounds: list[tuple[int, float]] = []
        """Of each text that the signal reads: how many values are bounds, and the width that they leave open."""
        self._drawn: dict[Samples, list[Scored]] = {}
        self._read_on: dict[tuple[int, bool], Scored] = {}
        self._only_own = Ability.GIVEN not in server.dialect.abilities
        """Whether scores come with the model's own texts alone, which the journal then keeps."""

    @property
    def answer(self) -> Ids:
        """Token ids of the answer, which is generated unless it is stored."""
        return self._generated.ids if self.item.answer is None else self.item.answer

    @property
    def _generated(self) -> Scored:
        return self._continued(self.settings.max_new_tokens, whole=self._whole)

    @property
    def first(self) -> Floats | None:
        """Log-probabilities of all tokens at the prompt's end, `(v,)`; None if the server gives no such."""
        if self.by_states:
            return np.asarray(self._server.dialect.log_probabilities(self.after(self.answer))[0])
        return self._continued(1, whole=True).first

    def _continued(self, limit: int, *, whole: bool) -> Scored:
        """Return the prompt's continuation, which is read once (`cached_property` of 3.11 has one lock for all)."""
        if (limit, whole) not in self._read_on:
            self._read_on[limit, whole] = self.complete(self.item.prompt, limit, whole=whole)
        return self._read_on[limit, whole]

    def layer(self, depth: float) -> int:
        """Return the number of the layer at a fraction of the model's depth.

        Raises:
            UserError: the server doesn't write its states.
        """
        layer, layers = self._server.block_of(depth), self._server.dialect.layers
        if layer not in layers:
            raise UserError(
                f"Layer {layer}: expected one that the server writes ({', '.join(map(str, layers))}). Start it with"
                " that one, too: bench doctor prints the command."
            )
        return layer

    def after(self, text: Ids) -> dict[int, Floats]:
        """Return layer -> states `(t + 1, d)` at the prompt's end and at each token of a text after it."""
        n = len(self.item.prompt)
        return self.states(np.concatenate([self.item.prompt, text]), range(n - 1, n + len(text)))

    def states(self, ids: Ids, rows: Sequence[int]) -> dict[int, Floats]:
        """Return layer -> states `(len(rows), d)` at positions of a sequence of token ids."""
        name, layers = (ids.tobytes(), tuple(rows)), list(self._server.dialect.layers)
        if name not in self._states and rows:
            key = {"states": layers, "rows": list(rows), "prompt": ids.tolist()}

            def read() -> str:
                self.tokens += len(ids)
                states = self._server.dialect.states(ids, rows)
                return b64encode(np.stack([states[layer] for layer in layers]).tobytes()).decode()

            packed = np.frombuffer(b64decode(self._journal.get(key, read, once=True)), dtype=np.float32)
            states = packed.reshape(len(layers), len(rows), -1).copy()
            self._states[name] = dict(zip(layers, states, strict=True))
        width = self._server.facts.hidden_size
        return self._states.get(name) or {layer: np.zeros((0, width), np.float32) for layer in layers}

    def scores(self, text: Ids, samples: Samples | None = None) -> Scored:
        """Return the log-probabilities of a text after the prompt; with whole distributions unless it is a sample.

        `samples` are those to which the text belongs, if it is a sample.
        """
        if self.by_states and samples is None:
            return self._server.dialect.score(text, self.after(text))
        known = self._drawn.get(samples, []) if samples is not None else []
        if samples is None and (self.item.answer is None or self._only_own):
            known = [self._generated]
        scored = next((each for each in known if np.array_equal(each.ids, text)), None)
        if scored is None:
            scored = self._read("given", self.item.prompt, text=text, whole=samples is None and self._whole)
        return scored if samples is not None else self._with_entropy(scored)

    def trace_scores(self) -> Scored:
        """Return the log-probabilities of the reasoning trace, whose distributions are too many to be read whole."""
        start, stop = self.item.trace
        trace = self.item.prompt[start:stop]
        if self.by_states:
            return self._server.dialect.score(trace, self.states(self.item.prompt, range(start - 1, stop - 1)))
        return self._with_entropy(self._read("given", self.item.prompt[:start], text=trace, whole=False))

    def _with_entropy(self, scored: Scored) -> Scored:
        """Return scores with the entropies' lower bounds, if the entropies themselves aren't known."""
        if scored.entropy is None:
            low, high = bound_entropy(scored.top_log_probabilities, self._server.dialect.vocabulary)
            self.bounds.append((len(low), float(np.mean(high - low))))
            return replace(scored, entropy=low)
        return scored

    def shares(self, prompt: Ids, ids: Ids) -> Floats:
        """Return the log-probabilities of tokens after a prompt, less a constant; bounds of those that aren't given."""
        if self.by_states:
            if prompt is self.item.prompt and self.first is not None:
                return self.first[ids]
            rows = self._server.dialect.log_probabilities(self.states(prompt, [len(prompt) - 1]))
            return np.asarray(rows[0, ids])
        if Ability.CHOSEN not in self._server.dialect.abilities:
            first = self.complete(prompt, 1)
            pairs = zip(first.top_ids.tolist(), first.top_log_probabilities.tolist(), strict=True)
            listed = next((dict(zip(*pair, strict=True)) for pair in pairs), {})
            values, missing, width = bound_shares(listed, [*map(self._server.dialect.spellings, ids.tolist())])
            self.bounds += [(missing, width)] * bool(missing)
            return np.asarray(values, dtype=np.float32)
        if self.item.answer is None and prompt is self.item.prompt and self._whole and self.first is not None:
            return self.first[ids]
        key = {"chosen": ids.tolist(), "prompt": prompt.tolist()}
        return np.asarray(self._journal.get(key, lambda: self._chosen(prompt, ids)), dtype=np.float32)

    def _chosen(self, prompt: Ids, ids: Ids) -> list[float]:
        self.tokens += len(prompt) + 1
        return list(map(float, self._server.dialect.chosen(prompt, ids)))

    def conversation(self, turn: UserTurn) -> Ids:
        """Return the token ids of prompt, answer and a user turn."""
        prompt = self.item.prompt if self.item.query_prompt is None else self.item.query_prompt
        return np.concatenate([prompt, self.answer, self.settings.turns[turn.wording]])

    def sampled_ids(self, samples: Samples) -> list[Ids]:
        """Return the token ids of the question's samples, which are drawn unless they are stored."""
        if samples in self.item.samples and not self._only_own:
            return list(self.item.samples[samples])
        if samples not in self._drawn:
            limit = self.settings.max_new_tokens
            self._drawn[samples] = [self.complete(self.item.prompt, limit, draw) for draw in self.draws(samples)]
        return [scored.ids for scored in self._drawn[samples]]

    def draws(self, samples: Samples) -> list[Draw]:
        """Return how each of the question's samples is drawn."""
        names = (f"{self._seed}\0{self.item.id}\0{j}".encode() for j in range(samples.n))
        seeds = (int.from_bytes(sha256(name).digest()[:4], "big") & 0x7FFFFFFF for name in names)
        return [Draw(samples.temperature, samples.top_p, seed) for seed in seeds]

    def write(self, prompt: Ids, limit: int, draw: Draw | None) -> list[int]:
        """Return the token ids of the model's continuation of a prompt, without log-probabilities."""
        return list(map(int, self._read("complete", prompt, limit=limit, draw=draw, scored=False).ids))

    def complete(self, prompt: Ids, limit: int, draw: Draw | None = None, *, whole: bool = False) -> Scored:
        """Return the model's continuation of a prompt (see `Dialect.complete`)."""
        return self._read("complete", prompt, limit=limit, draw=draw, whole=whole)

    def _read(self, what: str, prompt: Ids, **arguments: Any) -> Scored:
        shown = {name: repr(np.asarray(v).tolist() if name == "text" else v) for name, v in arguments.items()}

        def read() -> dict[str, Any]:
            scored: Scored = getattr(self._server.dialect, what)(prompt, **arguments)
            self.tokens += len(prompt) + len(scored.ids)
            return scored.to_json()

        return Scored.from_json(self._journal.get({what: shown, "prompt": prompt.tolist()}, read))


class Journal:
    """What a server answered for one shard or one comparison of engines, in a file that a killed run goes on from.

    The file of a shard is removed once the shard is stored, but kept if the server lacks `Ability.GIVEN`.
    """

    def __init__(self, path: Path, check: Callable[[], None]) -> None:
        """Read what an earlier run kept.

        Args:
            path: the file.
            check: raises an error if the server has another model than before; called before an answer is kept.
        """
        self.path, self._check, self._lock, self._flushed = path, check, threading.Lock(), 0.0
        with named_errors(f"The cache's {path.name} can't be read", NO_SPACE):
            lines = [line for line in read_lines(path) if line is not None]
        self._values = {line["key"]: line["value"] for line in lines}

    def get(self, fields: Mapping[str, Any], ask: Callable[[], Any], *, once: bool = False) -> Any:
        """Return the answer to a request, and ask for it if it is not kept.

        Args:
            fields: the request.
            ask: asks the server.
            once: whether it is not asked for again in this process, so that its answer, which is large, is kept in the
                file alone.
        """
        key = key_of(fields)
        if key not in self._values:
            value = ask()
            self._check()
            with self._lock, named_errors(f"The cache's {self.path.name} can't be written", NO_SPACE):
                line, flush = {"key": key, "value": value}, perf_counter() - self._flushed > _FLUSH_S
                append_line(self.path, line, flush=flush)
                self._flushed = perf_counter() if flush else self._flushed
                self._values[key] = value
        return self._values.pop(key) if once else self._values[key]


class ServerExtractor:
    """Reads shards of questions from a model's server."""

    def __init__(
        self, server: ServerModel, settings: PromptSettings, specs: Mapping[Signal, PassDefinition[Any]], seed: int
    ) -> None:
        self.server, self.settings, self.specs, self.seed = server, settings, specs, seed

    def extract(self, items: Sequence[ModelInput], journal: Path) -> ShardOutput:
        """Return the answers and signals of a shard's questions.

        Args:
            items: the questions.
            journal: file in which each of the server's answers is kept.
        """
        import torch

        started, kept = perf_counter(), Journal(journal, self.server.check_link)
        self.server.dialect.check_room([item.prompt for item in items], self.settings.max_new_tokens)
        bounds: dict[Signal, list[tuple[str, int, float]]] = {}

        def ask(item: ModelInput) -> tuple[Ids, dict[Signal, Arrays], int]:
            fmt = Format.CHOICE if item.options else Format.OPEN
            whole = Ability.WHOLE in self.server.dialect.abilities and any(
                spec.depths or (Ability.WHOLE in spec.prefers(fmt) and not spec.continuations.samples)
                for spec in self.specs.values()
            )
            requests = QuestionRequests(self.server, kept, item, self.settings, self.seed, whole=whole)
            empty, values = not len(requests.answer), {}
            for signal, spec in self.specs.items():
                unanswered = spec.unanswered if empty else None
                told = spec.ask(requests) if unanswered is None else unanswered
                values[signal] = {k: v if isinstance(v, torch.Tensor) else torch.tensor(v) for k, v in told.items()}
                if requests.bounds:
                    counts, widths = zip(*requests.bounds, strict=True)
                    bounds.setdefault(signal, []).append((item.id, sum(counts), max(widths)))
                    requests.bounds.clear()
            return requests.answer, values, requests.tokens

        with ThreadPoolExecutor(self.server.parallel or 1) as pool:
            waiting = [pool.submit(ask, item) for item in items]
            try:
                asked = [each.result() for each in waiting]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        stage = "answers" if any(item.answer is None for item in items) else "continuations"
        columns = {
            signal: join_values([values[signal] for _, values, _ in asked], ragged=spec.ragged)
            for signal, spec in self.specs.items()
        }
        cost = Cost(sum(tokens for _, _, tokens in asked), perf_counter() - started)
        return ShardOutput([answer for answer, _, _ in asked], columns, {stage: cost}, bounds=bounds)
