"""A split of a task on a backbone, shard by shard through the store: prompts, answers, signals, and what they cost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench import prompting
from bench.api import (
    At,
    Batch,
    ChoiceLogits,
    Hidden,
    Of,
    QueryLogits,
    Ragged,
    SampleAgreement,
    Signal,
    Task,
    TokenIds,
    Unembedding,
)
from bench.errors import UserError
from bench.grading import agrees, grade
from bench.plan import Where
from bench.protocol import ExemplarOrder, Protocol
from bench.records import Answer, Format, Generation, Prompt, Question
from bench.store import Entry, Store, key_of

if TYPE_CHECKING:
    from bench.backbone.extract import Asking, Extractor, Item, Measured
    from bench.backbone.hf import Backbone
    from bench.progress import Progress

SHARD = 256
"""Questions of a shard, at least: whole subjects are joined until there are as many (architecture.md §6)."""

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Shard:
    """The unit that is computed whole or not at all."""

    rows: npt.NDArray[np.int64]
    """Which questions of the split."""
    prompts: list[Ids]
    shown: list[list[Question]]
    """The exemplars of each prompt."""
    dropped: int
    """Exemplars that were left out because the context is too short."""

    @property
    def tokens(self) -> int:
        """Prompt tokens, those that are shared counted each time."""
        return sum(len(ids) for ids in self.prompts)


@dataclass
class Reading:
    """What is known of a split: its questions, the answers and, in the store, the signals."""

    where: Where
    task: Task
    questions: list[Question]
    shards: list[Shard]
    signals: frozenset[Signal] = frozenset()
    """What was planned to be measured."""
    bundles: list[list[Entry]] = field(default_factory=list)
    """For each shard the store's entries that hold its answers and signals."""
    answer_ids: list[list[Ids]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    halvings: int = 0

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """`(n,)` for each question its place in the joined shards."""
        joined = np.concatenate([shard.rows for shard in self.shards])
        return np.argsort(joined, kind="stable")

    def in_shards(self) -> Iterator[Question]:
        """The questions in the order of the shards."""
        return (self.questions[row] for shard in self.shards for row in shard.rows)

    def pairs(self) -> Iterator[tuple[Ids, Ids]]:
        """Prompt and answer ids of every question, shard by shard."""
        for shard, answers in zip(self.shards, self.answer_ids, strict=True):
            yield from zip(shard.prompts, answers, strict=True)

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """`(n,)` bool: there is at least one answer token; the others never enter `fit` or `predict`."""
        lengths = [len(ids) for shard in self.answer_ids for ids in shard]
        return np.asarray(lengths, dtype=np.int64)[self.order] > 0

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """`(n,)` bool labels."""
        return np.asarray([answer.correct for answer in self.answers], dtype=np.bool_)


def split_into_shards(subjects: Sequence[str]) -> list[npt.NDArray[np.int64]]:
    """Row numbers of each shard: subjects in order of appearance, joined until a shard has at least SHARD questions."""
    members: dict[str, list[int]] = {}
    for row, subject in enumerate(subjects):
        members.setdefault(subject, []).append(row)
    shards: list[list[int]] = []
    for rows in members.values():
        if shards and len(shards[-1]) < SHARD:
            shards[-1].extend(rows)
        else:
            shards.append(list(rows))
    return [np.asarray(rows, dtype=np.int64) for rows in shards]


@dataclass
class Reader:
    """Reads splits on one backbone."""

    backbone: Backbone
    store: Store
    protocol: Protocol
    budget: int
    progress: Progress
    seed: int = 0
    """Of samples; answers and everything else read from the backbone don't depend on it."""
    forward_tokens: int = 0
    """Token positions fed to the model by this reader itself; what the store had costs nothing."""

    # --- prompts ------------------------------------------------------------------------------------------------------

    def open(self, where: Where, task: Task, questions: list[Question], dev: Iterable[Question]) -> Reading:
        """Write the prompts of a split as token ids."""
        pools: dict[str, list[Question]] = {}
        for question in dev:
            pools.setdefault(question.subject, []).append(question)
        shards = []
        with self.progress.stage(f"prompts {where}", len(questions)) as advance:
            for rows in split_into_shards([q.subject for q in questions]):
                shards.append(self._shard(rows, questions, task, pools))
                advance(len(rows))
        return Reading(where, task, questions, shards)

    def _shard(
        self, rows: npt.NDArray[np.int64], questions: list[Question], task: Task, pools: Mapping[str, list[Question]]
    ) -> Shard:
        chosen = [self._exemplars(questions[r], int(r), pools) for r in rows]
        prompts = [self._prompt(questions[r], shown, task) for r, shown in zip(rows, chosen, strict=True)]
        ids = self.backbone.chat.prompts(prompts)
        room = self.backbone.context - self._after_prompt(task, prompts[0])
        dropped = 0
        for i, row in enumerate(rows):
            while len(ids[i]) > room:
                chosen[i] = chosen[i][1:] if chosen[i] else self._too_long(questions[row], len(ids[i]), room)
                (ids[i],) = self.backbone.chat.prompts([self._prompt(questions[row], chosen[i], task)])
                dropped += 1
        return Shard(rows, ids, chosen, dropped)

    def _prompt(self, question: Question, exemplars: Sequence[Question], task: Task) -> Prompt:
        return prompting.build(question, exemplars, task.style, task.format, self.protocol)

    @staticmethod
    def _too_long(question: Question, length: int, room: int) -> list[Question]:
        raise UserError(
            f"Question {question.id} has {length} tokens without exemplars, and this model's context leaves room for"
            f" {room}. Use a model with a longer context."
        )

    def _after_prompt(self, task: Task, prompt: Prompt) -> int:
        return self._max_new_tokens(task) + len(self.backbone.chat.query(prompt, self.protocol).ids)

    def _exemplars(self, question: Question, row: int, pools: Mapping[str, list[Question]]) -> list[Question]:
        pool = [q for q in pools.get(question.subject, []) if q.id != question.id]
        if self.protocol.exemplar_order is ExemplarOrder.PERMUTED:
            order = np.random.default_rng(self.protocol.exemplar_seed + row).permutation(len(pool))
            pool = [pool[i] for i in order]
        return pool[: self.protocol.shots]

    def _max_new_tokens(self, task: Task) -> int:
        choice = task.format is Format.CHOICE
        return self.protocol.max_new_tokens_choice if choice else self.protocol.max_new_tokens_open

    def asking(self, reading: Reading) -> Asking:
        """What is the same for all questions of a split."""
        from bench.backbone.extract import Asking

        prompt = self._prompt(reading.questions[0], [], reading.task)
        chat = self.backbone.chat
        widest = max(len(q.choices) for q in reading.questions) if reading.task.format is Format.CHOICE else 0
        suffix = chat.query(prompt, self.protocol)
        return Asking(
            self._max_new_tokens(reading.task),
            chat.letters(prompt, self.protocol.letters[:widest]),
            suffix.ids,
            chat.letters(prompt, self.protocol.query_letters),
            self.budget,
        )

    # --- answers and signals ------------------------------------------------------------------------------------------

    def find(self, reading: Reading, signals: frozenset[Signal]) -> int:
        """Look up what the store has; returns the number of shards that must be computed."""
        asking = self.asking(reading)
        signals = stored(signals, reading.task.format)
        missing = 0
        for shard in reading.shards:
            entries = self.store.entries(self._kind(shard, asking))
            held = {name for entry in entries for name in entry.manifest["fields"]["signals"]}
            missing += not entries or not {self._name(s, asking) for s in signals} <= held
        return missing

    def estimate(self, reading: Reading) -> float:
        """Seconds to read a split from nothing: the multiplications of its tokens at this device's measured rate."""
        tree_tokens = sum(len(pack) for shard in reading.shards for pack in _distinct_tails(shard.prompts))
        return self.backbone.seconds_per_token * tree_tokens

    def read(self, reading: Reading, signals: frozenset[Signal]) -> None:
        """Make answers and signals of a split available, computing what the store lacks."""
        asking = self.asking(reading)
        signals = reading.signals = stored(signals, reading.task.format)
        total = sum(shard.tokens for shard in reading.shards)
        with self.progress.stage(f"read {reading.where}", total, unit="tokens") as advance:
            for shard in reading.shards:
                entries, ids = self._complete(reading, shard, asking, signals)
                reading.bundles.append(entries)
                reading.answer_ids.append(ids)
                advance(shard.tokens)
        self._grade(reading)

    def _complete(
        self, reading: Reading, shard: Shard, asking: Asking, signals: frozenset[Signal]
    ) -> tuple[list[Entry], list[Ids]]:
        kind = self._kind(shard, asking)
        entries = self.store.entries(kind)
        ids = _load_answers(entries[0]) if entries else None
        held = {name for entry in entries for name in entry.manifest["fields"]["signals"]}
        missing = [s for s in sorted(signals, key=repr) if self._name(s, asking) not in held]
        if ids is None or missing:
            measured = self._measure(reading, shard, asking, missing, ids)
            entries = [*entries, self._put(kind, measured, {s: self._name(s, asking) for s in missing}, reading)]
            ids = measured.answers
            self.forward_tokens += sum(cost.forward_tokens for cost in measured.costs.values())
            reading.halvings += measured.halvings
        return entries, ids

    def _measure(
        self, reading: Reading, shard: Shard, asking: Asking, signals: Sequence[Signal], answers: list[Ids] | None
    ) -> Measured:
        from bench.backbone.extract import Extractor

        extractor: Extractor = Extractor(self.backbone, asking, signals)
        return extractor.measure(list(self._items(reading, shard, signals, answers)))

    def _items(
        self, reading: Reading, shard: Shard, signals: Sequence[Signal], answers: list[Ids] | None
    ) -> Iterator[Item]:
        from bench.backbone.extract import Item
        from bench.backbone.sampling import uniforms

        task, questions = reading.task, [reading.questions[row] for row in shard.rows]
        lettered = task.format is Format.CHOICE
        samples = next((s for s in signals if isinstance(s, SampleAgreement)), None)
        asks = any(isinstance(s, QueryLogits) for s in signals)
        befores = self._before_answers(task, questions, shard.shown) if asks else None
        for i, question in enumerate(questions):
            options = () if lettered else self.options(reading, question)
            yield Item(
                shard.prompts[i],
                len(question.choices) if lettered else 0,
                None if answers is None else answers[i],
                gold=options[question.gold] if options else np.zeros(0, dtype=np.int32),
                wrong=tuple(ids for k, ids in enumerate(options) if k != question.gold),
                query_prompt=None if befores is None else befores[i],
                uniforms=None
                if samples is None
                else uniforms(self.seed, question.id, samples.n, self._max_new_tokens(task)),
            )

    def options(self, reading: Reading, question: Question) -> list[Ids]:
        """Ids of a question's options as the model would have to say them: letters, or texts."""
        prompt = self._prompt(reading.questions[0], [], reading.task)
        if reading.task.format is Format.CHOICE:
            letters = self.backbone.chat.letters(prompt, self.protocol.letters[: len(question.choices)])
            return [letters[k : k + 1] for k in range(len(letters))]
        return self.backbone.chat.continuations(prompt, question.choices)

    def _before_answers(
        self, task: Task, questions: Sequence[Question], shown: Sequence[Sequence[Question]]
    ) -> list[Ids] | None:
        """None where the self-check conversation continues the answering prompt, as nearly all templates do."""
        prompts = [self._prompt(question, shots, task) for question, shots in zip(questions, shown, strict=True)]
        if self.backbone.chat.query(prompts[0], self.protocol).continues:
            return None
        return self.backbone.chat.before_answers(prompts, self.protocol)

    def _put(self, kind: str, measured: Measured, names: Mapping[Signal, str], reading: Reading) -> Entry:
        """One folder for the whole pass: a killed run has all of it or nothing, and so repeats the same pass."""
        fields = {"signals": sorted(names.values()), "answers": _digest(measured.answers)}
        return self.store.put(
            kind,
            key_of(fields),
            fields,
            partial(_write_bundle, measured=measured, names=names),
            split=str(reading.where),
            token_budget=self.budget,
            costs={stage: asdict(cost) for stage, cost in measured.costs.items()},
            halvings=measured.halvings,
        )

    def _kind(self, shard: Shard, asking: Asking) -> str:
        """The part of the store for one shard: weights, arithmetic, prompts, and how answers are drawn."""
        from bench.backbone.extract import VERSION

        fields = {
            "weights": self.backbone.fingerprint,
            "dtype": str(self.backbone.dtype),
            "attention": self.backbone.attention,
            "prompts": _digest(shard.prompts),
            "decoding": {"greedy": True, "max_new_tokens": asking.max_new_tokens},
            "extractor": VERSION,
        }
        return f"readings/{key_of(fields)}"

    def _name(self, signal: Signal, asking: Asking) -> str:
        """A signal with what it depends on besides prompt and answer."""
        if isinstance(signal, QueryLogits):
            return f"{signal!r} {_digest([asking.suffix, asking.verdict_ids])}"
        if isinstance(signal, SampleAgreement):
            return f"{signal!r} seed {self.seed}"
        return f"{signal!r} {_digest([asking.letter_ids])}" if isinstance(signal, ChoiceLogits) else repr(signal)

    def _grade(self, reading: Reading) -> None:
        by_row = dict(
            zip(
                (int(r) for shard in reading.shards for r in shard.rows),
                (ids for shard in reading.answer_ids for ids in shard),
                strict=True,
            )
        )
        for row, question in enumerate(reading.questions):
            ids = by_row[row].tolist()
            generation = Generation(question.id, tuple(ids), self.backbone.chat.decode(ids))
            reading.answers.append(grade(question, generation, reading.task.format, self.protocol))

    # --- batches ------------------------------------------------------------------------------------------------------

    def batch(self, reading: Reading, signals: frozenset[Signal], *, labels: bool) -> Batch:
        """The answered questions of a split with these signals, in the split's order."""
        asking = self.asking(reading)
        columns: dict[Signal, Any] = {}
        for signal in signals:
            if isinstance(signal, Unembedding):
                columns[signal] = self.backbone.head
            else:
                columns[signal] = self._column(reading, signal, asking)
        ids = [question.id for question in reading.questions]
        joined = Batch([ids[r] for shard in reading.shards for r in shard.rows], columns)
        order = reading.order[reading.answered]
        batch = joined.take(order)
        if not labels:
            return batch
        return Batch(batch.ids, {s: batch[s] for s in batch.signals}, reading.correct[reading.answered])

    def _column(self, reading: Reading, signal: Signal, asking: Asking) -> Any:
        """A signal of all questions, in the order of the shards."""
        if isinstance(signal, TokenIds):
            return self._token_ids(reading, signal.of, asking)
        if isinstance(signal, Hidden) and signal.at in OPTIONS and reading.task.format is Format.CHOICE:
            return self._letter_states(reading, signal, asking)
        name = self._name(signal, asking)
        parts = [_load_signal(entries, name) for entries in reading.bundles]
        values = np.concatenate([part["values"] for part in parts])
        if "offsets" not in parts[0]:
            return values
        sizes = np.concatenate([np.diff(part["offsets"]) for part in parts])
        ragged = Ragged(values, np.concatenate([[0], np.cumsum(sizes)]))
        if isinstance(signal, SampleAgreement):
            return self._agreement(reading, ragged)
        wrong = isinstance(signal, Hidden) and signal.at is At.WRONG_PREDICTING
        return replace(ragged, owner=self._option_ids(reading, Of.WRONG).owner) if wrong else ragged

    def _letter_states(self, reading: Reading, signal: Hidden, asking: Asking) -> Ragged:
        """A letter is predicted at the prompt's end, the right one and the wrong ones alike."""
        states = self._column(reading, Hidden(signal.depth, At.PROMPT_END), asking)
        ids = self._token_ids(reading, Of.GOLD if signal.at is At.GOLD_PREDICTING else Of.WRONG, asking)
        return Ragged(np.repeat(states, ids.lengths, axis=0), ids.offsets, ids.owner)

    def _token_ids(self, reading: Reading, of: Of, asking: Asking) -> Ragged:
        if of in {Of.GOLD, Of.WRONG}:
            return self._option_ids(reading, of)
        rows = []
        for prompt, answer in reading.pairs():
            whole = {Of.ANSWER: [answer], Of.PROMPT: [prompt], Of.QUERY: [prompt, answer, asking.suffix]}[of]
            rows.append(np.concatenate(whole).astype(np.int64))
        return Ragged.of(rows)

    def _option_ids(self, reading: Reading, of: Of) -> Ragged:
        rows, owners = [], []
        for question in reading.in_shards():
            options = list(enumerate(self.options(reading, question)))
            kept = [(k, ids) for k, ids in options if (k == question.gold) == (of is Of.GOLD)]
            rows.append(np.concatenate([ids for _, ids in kept]).astype(np.int64))
            owners.append(np.repeat([k for k, _ in kept], [len(ids) for _, ids in kept]))
        return replace(Ragged.of(rows), owner=np.concatenate(owners))

    def _agreement(self, reading: Reading, samples: Ragged) -> npt.NDArray[np.bool_]:
        """`(questions, N)` bool: each sample graded against the greedy answer, as an answer is against the gold one."""
        said: dict[tuple[int, ...], str] = {}
        answers = dict(zip((q.id for q in reading.questions), reading.answers, strict=True))
        rows = []
        for question, ids_of in zip(reading.in_shards(), _samples_in(samples), strict=True):
            for ids in ids_of:
                if tuple(ids) not in said:
                    said[tuple(ids)] = self.backbone.chat.decode(ids)
            texts = [said[tuple(ids)] for ids in ids_of]
            answer, fmt = answers[question.id], reading.task.format
            rows.append([agrees(text, answer, question, fmt, self.protocol) for text in texts])
        return np.asarray(rows, dtype=np.bool_)

    def sampled(self, reading: Reading) -> Iterator[tuple[Ids, list[Ids]]]:
        """Each prompt with the ids of its samples; nothing where no samples were planned."""
        asking = self.asking(reading)
        for signal in reading.signals:
            if not isinstance(signal, SampleAgreement):
                continue
            parts = [_load_signal(entries, self._name(signal, asking)) for entries in reading.bundles]
            samples = (ids for part in parts for ids in _samples_in(Ragged(part["values"], part["offsets"])))
            for (prompt, _), ids_of in zip(reading.pairs(), samples, strict=True):
                yield prompt, [np.asarray(ids, dtype=np.int32) for ids in ids_of]


def _samples_in(samples: Ragged) -> Iterator[list[list[int]]]:
    """The ids of each question's samples, which are stored one after the other, each closed by -1."""
    for row in range(len(samples)):
        closed = np.split(samples[row], np.flatnonzero(samples[row] < 0) + 1)[:-1]
        yield [sample[:-1].tolist() for sample in closed]


OPTIONS = frozenset({At.GOLD_PREDICTING, At.WRONG_PREDICTING})


def stored(signals: frozenset[Signal], fmt: Format) -> frozenset[Signal]:
    """The signals from which these are made: options that are letters are all predicted at the prompt's end."""
    if fmt is Format.OPEN:
        return signals
    return frozenset(
        Hidden(s.depth, At.PROMPT_END) if isinstance(s, Hidden) and s.at in OPTIONS else s for s in signals
    )


def _distinct_tails(prompts: Sequence[Ids]) -> Iterator[Ids]:
    """What each prompt adds to the one before it: nearly the tokens that a shard reads."""
    before = np.zeros(0, dtype=np.int32)
    for ids in prompts:
        n = min(len(before), len(ids))
        differs = np.flatnonzero(before[:n] != ids[:n])
        yield ids[int(differs[0]) if len(differs) else n :]
        before = ids


# --- files ------------------------------------------------------------------------------------------------------------


def _digest(arrays: Sequence[Ids]) -> str:
    """SHA-256 of ordered id sequences, their lengths included."""
    digest = hashlib.sha256(np.asarray([len(a) for a in arrays], dtype=np.int64).tobytes())
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype=np.int32).tobytes())
    return digest.hexdigest()


def _write_bundle(folder: Path, measured: Measured, names: Mapping[Signal, str]) -> None:
    from safetensors.numpy import save_file as save_numpy
    from safetensors.torch import save_file

    flat = np.concatenate(measured.answers) if measured.answers else np.zeros(0, dtype=np.int32)
    sizes = np.asarray([0, *(len(a) for a in measured.answers)], dtype=np.int64)
    save_numpy({"values": flat.astype(np.int32), "offsets": np.cumsum(sizes)}, folder / "answers.safetensors")
    for signal, name in names.items():
        save_file(measured.columns[signal], folder / f"{_file_name(name)}.safetensors", metadata={"signal": name})


def _file_name(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def _load_answers(entry: Entry) -> list[Ids]:
    from safetensors.numpy import load_file

    arrays = load_file(entry.folder / "answers.safetensors")
    return np.split(arrays["values"], arrays["offsets"][1:-1])


def _load_signal(entries: Sequence[Entry], name: str) -> dict[str, npt.NDArray[Any]]:
    """A stored signal as float32 (hidden states lie on disk in the model's dtype)."""
    from safetensors.torch import load_file

    for entry in entries:
        if name in entry.manifest["fields"]["signals"]:
            arrays = load_file(entry.folder / f"{_file_name(name)}.safetensors")
            return {k: (v.float() if v.is_floating_point() else v).numpy() for k, v in arrays.items()}
    raise KeyError(name)


def bundle_digest(reading: Reading) -> str:
    """What the answers and signals of a split are, for the key of what is learned from them."""
    files = [sorted(entry.manifest["files"].items()) for shard in reading.bundles for entry in shard]
    return key_of({"files": files, "labels": hashlib.sha256(reading.correct.tobytes()).hexdigest()})
