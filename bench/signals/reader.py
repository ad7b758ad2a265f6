"""Reads the shards of a split through the store: answers and signals are computed once, and taken from there later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from bench.api import Adapter, AdapterRef, Format, QueryLogits, Question, Signal, Task
from bench.api.protocol import Protocol
from bench.api.question import Released
from bench.backbone.devices import class_of, default_budget
from bench.backbone.measure import Growth
from bench.backbone.memory import give_back
from bench.data.splits import TaskSplit
from bench.prompts.shards import PromptTokeniser, Shard
from bench.prompts.tails import Ids
from bench.signals.definition import growth_of, pass_definitions, stored
from bench.signals.files import load_answers, names_in, write_bundle
from bench.signals.reading import Reading
from bench.signals.stored import StoredSplit, name_of
from bench.store.folders import Entry, Store, digest_arrays, key_of

if TYPE_CHECKING:
    from bench.backbone.extract import Measured
    from bench.backbone.items import Item
    from bench.backbone.model import Backbone
    from bench.progress import Progress
    from bench.prompts.asking import Asking


@dataclass
class Reader:
    """Reads splits on one backbone."""

    backbone: Backbone
    store: Store
    protocol: Protocol
    budget: int
    progress: Progress
    seed: int = 0
    """Seed of samples; answers and everything else read from the backbone don't depend on it."""
    sample: int | None = None
    """Prompts of a large split that are written, for a plan that is not carried out; None: all."""
    forward_tokens: int = 0
    """Token positions fed to the model by this reader itself; what the store had costs nothing."""

    @cached_property
    def arithmetic(self) -> dict[str, object]:
        """Class of device and token budget, on which answers can depend below float32; empty in float32."""
        if str(self.backbone.dtype) == "torch.float32":
            return {}
        return {"device": class_of(self.backbone.device), "token_budget": self.budget}

    @property
    def unusual(self) -> dict[str, object]:
        """The token budget, where it can change an answer and is not this device's own."""
        usual = not self.arithmetic or self.budget == default_budget(self.backbone.device)
        return {} if usual else {"token_budget": self.budget}

    @cached_property
    def prompts(self) -> PromptTokeniser:
        """Writes the prompts."""
        return PromptTokeniser(self.backbone.chat, self.backbone.context, self.protocol, self.sample)

    def open(
        self, where: TaskSplit, task: Task, questions: list[Question], released: Mapping[str, Released] | None = None
    ) -> Reading:
        """Write the prompts of a split as token ids.

        Args:
            where: the split.
            task: its task.
            questions: what is asked.
            released: question id -> prompt, answer and label from a release; None where the model answers.
        """
        given = released or {}
        shards = self.prompts.shards(task, questions, given, self.progress, str(where))
        return Reading(where, task, questions, shards, given)

    def asking(self, reading: Reading) -> Asking:
        """Settings that are the same for all questions of a split."""
        return self.prompts.asking(reading.task, reading.questions, self.budget)

    def stored(self, reading: Reading) -> StoredSplit:
        """A split that was read, for what is made of its answers and signals."""
        return StoredSplit(reading, self.backbone, self.prompts, self.asking(reading), self.seed)

    # --- answers and signals ------------------------------------------------------------------------------------------

    def find(self, reading: Reading, signals: frozenset[Signal]) -> int:
        """Look up what the store has; returns the number of shards that must be computed."""
        asking = self.asking(reading)
        names = set(self._names(stored(signals, reading.task.format, asking.max_new_tokens), asking).values())
        missing = 0
        for shard in reading.shards:
            entries = self.store.entries(self._kind(shard, asking))
            held = {name for entry in entries for name in names_in(entry)}
            missing += (not entries and shard.given is None) or not names <= held
        return missing

    def estimate(self, reading: Reading) -> float:
        """Seconds to read a split from nothing: the multiplications of its tokens at this device's measured rate."""
        tree_tokens = sum(len(pack) for shard in reading.shards for pack in _distinct_tails(shard.prompts))
        return self.backbone.seconds_per_token * tree_tokens * len(reading.questions) / len(reading.rows)

    def read(self, reading: Reading, signals: frozenset[Signal]) -> Reading:
        """The split with its answers and signals available; what the store lacks is computed.

        Args:
            reading: an opened split.
            signals: what methods read of it.
        """
        asking = self.asking(reading)
        needed = stored(signals, reading.task.format, asking.max_new_tokens)
        names = self._names(needed, asking)
        bundles, answer_ids = [], []
        total = sum(shard.tokens for shard in reading.shards)
        with self.progress.stage(f"read {reading.where}", total, unit="tokens") as advance:
            for shard in reading.shards:
                entries, ids = self._complete(reading, shard, asking, names)
                bundles.append(entries)
                answer_ids.append(ids)
                advance(shard.tokens)
                give_back()
        return replace(reading, wanted=signals, signals=needed, bundles=bundles, answer_ids=answer_ids)

    def read_through(self, reading: Reading, adapter: AdapterRef) -> Reading:
        """The same answers, and the self-check query read again through an adapter."""
        from bench.backbone.adapter import adapted

        asking = self.asking(reading)
        signals = frozenset({QueryLogits(Adapter.OWN)})
        names = self._names(signals, asking, adapter)
        bundles = []
        total = sum(shard.tokens for shard in reading.shards)
        stage = self.progress.stage(f"read {reading.where} adapted", total, unit="tokens")
        with stage as advance, adapted(self.backbone, adapter):
            for shard, answers in zip(reading.shards, reading.answer_ids, strict=True):
                kind = f"{self._kind(shard, asking)}-adapted"
                fields = {"signals": list(names.values()), "answers": digest_arrays(answers)}
                entry = self.store.get(kind, key_of(fields))
                if entry is None:
                    measured = self._measure(reading, shard, asking, names, answers, "adapter_predictions")
                    entry = self._put(kind, measured, names, reading)
                bundles.append([entry])
                advance(shard.tokens)
        return replace(reading, signals=signals, bundles=bundles, adapter=adapter)

    def _names(
        self, signals: frozenset[Signal], asking: Asking, adapter: AdapterRef | None = None
    ) -> dict[Signal, str]:
        """Signal -> its name in keys."""
        found = pass_definitions(signals).items()
        return {signal: name_of(each.name(asking, self.seed), adapter) for signal, each in found}

    def _complete(
        self, reading: Reading, shard: Shard, asking: Asking, names: Mapping[Signal, str]
    ) -> tuple[list[Entry], list[Ids]]:
        kind = self._kind(shard, asking)
        entries = self.store.entries(kind)
        ids = load_answers(entries[0]) if entries else shard.given
        held = {name for entry in entries for name in names_in(entry)}
        missing = {signal: name for signal, name in names.items() if name not in held}
        if ids is None or missing:
            measured = self._measure(reading, shard, asking, missing, ids)
            entries = [*entries, self._put(kind, measured, missing, reading)]
            ids = measured.answers
        wanted = set(names.values())
        made = [e for e in entries if shard.given is None and "answers" in e.manifest["costs"]]
        return [e for e in entries if e in made or wanted & set(names_in(e))], ids

    def _measure(
        self,
        reading: Reading,
        shard: Shard,
        asking: Asking,
        signals: Iterable[Signal],
        answers: list[Ids] | None,
        stage: str | None = None,
    ) -> Measured:
        from bench.backbone.extract import Extractor

        measures = pass_definitions(signals)
        items = list(self._items(reading, shard, growth_of(signals), answers))
        measured = Extractor(self.backbone, asking, measures, stage).measure(items)
        self.forward_tokens += sum(cost.forward_tokens for cost in measured.costs.values())
        return measured

    def _items(self, reading: Reading, shard: Shard, growth: Growth, answers: list[Ids] | None) -> Iterator[Item]:
        from bench.backbone.items import Item
        from bench.backbone.sampling import uniforms

        task, questions = reading.task, [reading.questions[row] for row in shard.rows]
        lettered = task.format is Format.CHOICE
        n_samples = max((sampling.n for sampling in growth.samples), default=0)
        befores = self._before_answers(reading, questions, shard.shown) if growth.query else None
        options_of = [[] for _ in questions] if lettered else self.prompts.options(task, questions)
        for i, (question, options) in enumerate(zip(questions, options_of, strict=True)):
            yield Item(
                shard.prompts[i],
                len(question.choices) if lettered else 0,
                None if answers is None else answers[i],
                gold=options[question.gold] if options else np.zeros(0, dtype=np.int32),
                wrong=tuple(ids for k, ids in enumerate(options) if k != question.gold),
                query_prompt=None if befores is None else befores[i],
                uniforms=uniforms(self.seed, question.id, n_samples, self.prompts.max_new_tokens(task))
                if n_samples
                else None,
            )

    def _before_answers(
        self, reading: Reading, questions: Sequence[Question], shown: Sequence[Sequence[Question]]
    ) -> list[Ids] | None:
        """None where the self-check conversation continues the answering prompt, as nearly all templates do."""
        if self.backbone.chat.query(self.prompts.stand_in(reading.task), self.protocol).continues:
            return None
        prompts = [
            reading.released[question.id].prompt
            if reading.released
            else self.prompts.prompt(reading.task, question, shots)
            for question, shots in zip(questions, shown, strict=True)
        ]
        return self.backbone.chat.before_answers(prompts, self.protocol)

    def _put(self, kind: str, measured: Measured, names: Mapping[Signal, str], reading: Reading) -> Entry:
        """One folder for the whole pass: a killed run has all of it or nothing, and so repeats the same pass."""
        fields = {"signals": sorted(names.values()), "answers": digest_arrays(measured.answers)}
        return self.store.put(
            kind,
            key_of(fields),
            fields,
            partial(write_bundle, measured=measured, names=names),
            split=str(reading.where),
            token_budget=self.budget,
            costs={stage: asdict(cost) for stage, cost in measured.costs.items()},
            halvings=measured.halvings,
            packed=self.backbone.packed,
            beginnings=asdict(measured.beginnings),
            hindrance=self.backbone.hindrance,
        )

    def _kind(self, shard: Shard, asking: Asking) -> str:
        """The part of the store for one shard: weights, arithmetic, prompts, and how answers are drawn."""
        from bench.backbone.extract import VERSION

        fields = {
            "weights": self.backbone.fingerprint,
            "dtype": str(self.backbone.dtype),
            "attention": self.backbone.attention,
            "prompts": digest_arrays(shard.prompts),
            "decoding": {"greedy": True, "max_new_tokens": asking.max_new_tokens}
            if shard.given is None
            else {"released": digest_arrays(shard.given)},
            "extractor": VERSION,
            **self.arithmetic,
        }
        return f"readings/{key_of(fields)}"


def _distinct_tails(prompts: Sequence[Ids]) -> Iterator[Ids]:
    """Tokens that each prompt adds to the one before it: nearly the tokens that a shard reads."""
    before = np.zeros(0, dtype=np.int32)
    for ids in prompts:
        n = min(len(before), len(ids))
        differs = np.flatnonzero(before[:n] != ids[:n])
        yield ids[int(differs[0]) if len(differs) else n :]
        before = ids
