"""`ServerModel`: a model behind a server, in the place of a loaded one.

It has what prompts, keys and results need: tokenizer and template, a fingerprint, shapes. It has no weights: what
methods read is asked of the server (`bench.signals.server_extractor`). Only of a server that writes hidden states the
output head is read here, from the model's files.
"""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from bench.api import ModelFacts, OutputHead, UserError
from bench.model.folder import ModelFolder
from bench.model.language_model import LanguageModel, LoadOptions, block_number
from bench.model.specs import DIGITS, SERVED, ModelSpec
from bench.prompts.chat import Chat
from bench.servers.dialect import PROMPTS, TOLERANCE, TOP
from bench.servers.readings import WORDS, Ability, difference, tier
from bench.servers.recognise import open_server
from bench.store.disk_cache import Store, key_of
from bench.store.usage import SERVERS

_ROUNDED = 0.25
"""Largest difference in nats between the server's log-probabilities and those of its states below float32: the server
rounds logits to the dtype's bits."""
_BESIDE = 0.5
"""Largest difference in nats between two probes of one model, the second beside other requests, which move it by .3."""


@dataclass(frozen=True)
class ServedFiles(ModelFolder):
    """Stands for the files of a model, which are the server's."""

    identity: str = ""

    @cached_property
    def weights(self) -> str:
        """Digest of all that the server says of its model."""
        return self.identity


class LogProbabilities(OutputHead):
    """Output head of a server's model: a state is the log-probabilities of all tokens, which are taken as logits."""

    def logits(self, hidden: Any, rows: Any = None) -> Any:
        """Return the values themselves, those of all tokens or of `rows`."""
        return hidden if rows is None else hidden[..., rows]


class ServerModel(LanguageModel):
    """A model behind a server."""

    attention = "server"
    """How it attends is not known."""
    shard_divisor = 8
    """How many times smaller shards are than usual, so that progress shows."""

    def __init__(self, spec: ModelSpec, options: LoadOptions, served: str | None, parallel: int | None) -> None:
        """Ask the server what it is, and probe what it can do.

        Args:
            spec: the model, with the server's URL as source.
            options: the device is that of fits; the others don't concern a server.
            served: name of the model on the server; None for its only one.
            parallel: requests at once, which let the server reuse what it has read; None for one at a time, each anew.

        Raises:
            UserError: the server can't be reached or used, or doesn't have the model.
        """
        self.client, self.dialect = open_server(spec.source, served, cached=parallel is not None)
        if parallel is not None and parallel > self.dialect.slots:
            raise UserError(
                f"--parallel {parallel}: this server takes at most {self.dialect.slots} at once; name no more, or"
                " start it with more slots."
            )
        self.parallel, self.options = parallel, options
        self.devices = (options.device or "cpu",)
        self.identity = key_of(dict(self.dialect.identity))
        stem = "-".join(re.findall(r"[A-Za-z0-9._]+", re.split(r"[/\\]", self.dialect.model)[-1].removesuffix(".gguf")))
        self.label = f"{stem[:60].strip('._-') or 'model'}{SERVED}{self.identity[:DIGITS]}"
        self.spec = replace(spec, name=self.label)
        self.folder, self.blocks = Path(os.devnull), 1  # no folder: Path() would be the one in which the command runs
        self.files = ServedFiles(self.label, self.folder, None, spec.source, identity=self.identity)
        self.context = self.dialect.context - 1  # a server that reads also writes a token, for which it wants room
        self.chat = Chat(self.dialect)
        self.chat.check(limited=False)  # calls of servers have limits of their own
        end, self._probed = self.chat.turn_end, list[dict[str, float]]()
        self._links, self._lock = self.client.links, threading.Lock()
        facts = ModelFacts(self.label, self.dialect.width, self.dialect.vocabulary, 1)
        vars(self).update(
            dtype=torch.float32, facts=facts, no_packs_reason=None, head=LogProbabilities(torch.zeros(0)), norm=None,
            speed="the server doesn't tell how fast it is",
            stops=frozenset(self.dialect.all_special_ids),
            added_stops=frozenset() if end is None or self.dialect.stops_at(end) else frozenset({end}),
        )  # fmt: skip
        if self.dialect.layers:
            try:
                self._open_head()
            except UserError as error:
                self.dialect.notes.append(f"it writes hidden states, which can't be used: {error}")
        lacks = ~self.dialect.abilities & (Ability.CHOSEN | Ability.WHOLE)  # what is read by bounds is kept apart
        marks: dict[str, Any] = {"cached": True} if parallel is not None else {}
        marks |= {"lacks": lacks.value} if lacks and Ability.TRACES in self.dialect.abilities else {}
        self._fingerprint = key_of({"identity": self.identity, **marks}) if marks else self.identity

    def _open_head(self) -> None:
        """Read the output head from the model's files, and compare its log-probabilities with the server's own.

        Raises:
            UserError: the files aren't here, or give other log-probabilities; or the server doesn't write the states.
        """
        from bench.model.served_head import find_files, read_head

        dialect, prompt = self.dialect, self.dialect.encode(PROMPTS[0])
        files = find_files(dialect.root)
        self.config, last = files.config(), max(dialect.layers)
        self.blocks = int(self.config.get_text_config().num_hidden_layers)
        if last != self.blocks:
            raise UserError(f"of the layers {list(dialect.layers)}, none is the last, {self.blocks}; name it, too")
        dialect.states(prompt, [0])
        facts, dialect.head = read_head(files, dialect.dtype, self.device)
        limit = TOLERANCE if dialect.dtype == torch.float32 else _ROUNDED
        for text in PROMPTS[:3]:
            prompt = dialect.encode(text)
            own = dialect.log_probabilities(dialect.states(prompt, [len(prompt) - 1]))[0]
            apart = max(abs(float(own[token]) - value) for token, value in dialect.next_token(prompt, TOP).items())
            if not apart <= limit:
                dialect.head = None
                raise UserError(
                    f"the output head in {dialect.root} gives other log-probabilities than the server, by up to"
                    f" {apart:.3g} nats: those are other weights"
                )
        dialect.abilities |= Ability.CHOSEN | Ability.WHOLE | Ability.STATES
        dialect.vocabulary, self.files, self.folder = facts.vocab_size, files, files.path
        vars(self).update(facts=replace(facts, name=self.label), head=dialect.head, norm=dialect.head.norm)

    @property
    def fingerprint(self) -> str:
        """Identity of all that numbers depend on: what the server says, what it lacks, whether it reuses prompts."""
        return self._fingerprint

    @property
    def dtype_name(self) -> str:
        """Kind of the server's weights as it names them, e.g. `Q4_1`."""
        meta = self.dialect.identity.get("meta") or {}
        return str(meta.get("ftype") or "served")

    @property
    def notes(self) -> list[str]:
        """Notes for readers of results: what was asked, in which tier, and what reading many at once costs."""
        way = (
            f"{self.parallel} at a time, which may reuse what they have read: a quantised model then gives other last"
            " digits in each run"
            if self.parallel
            else f"one at a time{', each read anew' * self.dialect.reads_anew}"
        )
        tier_number = tier(self.dialect.abilities)
        what = f"answers and log-probabilities are those of {self.dialect.called}, tier {tier_number}; requests"
        return [f"{what} {way}", *self.dialect.notes, *self.chat.notes]

    def block_of(self, depth: float) -> int:
        """Return the number of the layer at a fraction of the model's depth (see `LanguageModel.block_of`)."""
        return block_number(depth, self.blocks)

    def missing(self, needs: Ability, depths: frozenset[float] = frozenset()) -> str | None:
        """Return why the server can't give what a signal needs, which reads states at some depths; None if it can."""
        lacking = [words for ability, words in WORDS.items() if ability in needs & ~self.dialect.abilities]
        if lacking:
            return f"it reads {lacking[0]}, which {self.dialect.called} doesn't give"
        others = sorted({self.block_of(depth) for depth in depths} - {*self.dialect.layers}) if depths else ()
        if others:
            return (
                f"it reads the states of layer {others[0]}, and the server writes those of"
                f" {', '.join(map(str, self.dialect.layers))}; bench doctor prints the command for all"
            )
        return None

    def check_identity(self, store: Store, *, dry_run: bool = False) -> None:
        """Compare the model with the one that had this identity before, by log-probabilities after fixed prompts.

        Args:
            store: has the log-probabilities from then; those of a new model are put there.
            dry_run: whether nothing may be stored.

        Raises:
            UserError: they differ: it is another model, or served otherwise.
        """
        self._probed = self.dialect.probe()
        if not dry_run:
            self.dialect.keep(store.root / "asked" / f"tokens-{self.identity[:32]}.jsonl")
        fields = {"identity": self.identity, "probe": "by token"}
        entry = store.get(SERVERS, key_of(fields))
        if entry is None and not dry_run:
            store.put(
                SERVERS, key_of(fields), fields, lambda _: None,
                model=self.label, probe=self._probed, said=dict(self.dialect.identity),
            )  # fmt: skip
        elif entry is not None:
            self._compare(entry.manifest["probe"], self._probed, "since it was first read")

    def check_link(self) -> None:
        """Compare the model with the one at the start of the run, if the server is reached by a new connection.

        Raises:
            UserError: it is another model.
        """
        with self._lock:
            links = self.client.links
            if links != self._links:
                most = _BESIDE if (self.parallel or 1) > 1 else 0
                self._compare(self._probed[:1], self.dialect.probe(PROMPTS[:1]), "during the run", most)
                self._links = min(links + 1, self.client.links)  # the probe's own may be one more

    def _compare(self, before: list[dict[str, float]], now: list[dict[str, float]], when: str, most: float = 0) -> None:
        apart = difference(before, now)
        if not apart <= max(most, self.dialect.tolerance):
            raise self.client.error(
                f"answers otherwise than before: {when} log-probabilities of {self.dialect.model!r} after fixed prompts"
                f" differ by up to {apart:.3g}; it has another model, or other settings",
                "Start it as it was, or serve the other model by another name (llama-server --alias NAME)",
            )


def open_model(
    spec: ModelSpec, options: LoadOptions, served: str | None = None, parallel: int | None = None
) -> LanguageModel:
    """Open a model: its files, or the server that has it.

    Raises:
        UserError: it can't be opened; or `--served` or `--parallel` is given for a model that no server has.
    """
    if spec.is_server:
        return ServerModel(spec, options, served, parallel)
    for option, value in (("--served", served), ("--parallel", parallel)):
        if value is not None:
            raise UserError(f"{option} {value}: expected the URL of a server as --model, got {spec.name!r}.")
    return LanguageModel(spec, options)
