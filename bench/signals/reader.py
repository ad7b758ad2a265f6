"""A split of a task on a backbone, shard by shard through the store: prompts, answers, signals, and what they cost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bench.api import (
    Adapter,
    AdapterRef,
    At,
    ChoiceLogits,
    Format,
    Hidden,
    QueryLogits,
    Question,
    SampleAgreement,
    Signal,
    Task,
)
from bench.api.errors import fenced
from bench.api.protocol import Protocol
from bench.api.question import Answer, Released
from bench.backbone.memory import give_back
from bench.data.splits import TaskSplit
from bench.grading.grade import Judge, JudgeCase, Match, grade_choice, grade_open, grade_released
from bench.prompts.shards import PromptTokeniser, Shard
from bench.prompts.tails import Ids
from bench.prompts.templates import context
from bench.store.folders import Entry, Store, digest_arrays, key_of

if TYPE_CHECKING:
    from bench.backbone.extract import Item, Measured
    from bench.backbone.model import Backbone
    from bench.progress import Progress
    from bench.prompts.asking import Asking


@dataclass
class Reading:
    """What is known of a split: its questions, the answers and, in the store, the signals."""

    where: TaskSplit
    task: Task
    questions: list[Question]
    shards: list[Shard]
    signals: frozenset[Signal] = frozenset()
    """What was planned to be measured."""
    bundles: list[list[Entry]] = field(default_factory=list)
    """For each shard the store's entries that hold its answers and signals."""
    answer_ids: list[list[Ids]] = field(default_factory=list)
    adapter: AdapterRef | None = None
    """Through which adapter the query was read, if any."""
    answers: list[Answer] = field(default_factory=list)
    left_out: frozenset[str] = frozenset()
    """Ids of questions that are neither learned from nor scored: contaminated ones, and those without a verdict."""
    counts: dict[str, int] = field(default_factory=dict)
    """What else a result should say of this split, in words, e.g. how many questions are left out and why."""
    n_undecided: int = 0
    """Open answers on which the judge came to no verdict."""
    compared_by: str = ""
    """The judge by which samples agree with the answer, where samples were drawn."""
    modal_shares: dict[SampleAgreement, float] = field(default_factory=dict)
    """Share of a question's samples that say what most of them say, mean over the questions (docs/methods.md §2.14)."""
    released: Mapping[str, Released] = field(default_factory=dict)
    """Question id -> the answer that was taken from a release instead of being generated."""

    @property
    def key(self) -> tuple[TaskSplit, str | None]:
        """What tells it from the other readings of a run: the split, and the fingerprint of its adapter."""
        return self.where, None if self.adapter is None else self.adapter.fingerprint

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
        """`(n,)` bool: the answer is more than white space; the others never enter `fit` or `predict`."""
        return np.asarray([bool(answer.text) for answer in self.answers], dtype=np.bool_)

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """`(n,)` bool: the question counts."""
        return np.asarray([question.id not in self.left_out for question in self.questions], dtype=np.bool_)

    @property
    def usable(self) -> npt.NDArray[np.bool_]:
        """`(n,)` bool: the question counts and was answered; what `fit` and `predict` get."""
        return self.answered & self.kept

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """`(n,)` bool labels."""
        return np.asarray([answer.correct for answer in self.answers], dtype=np.bool_)


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
    judge: Judge = field(default_factory=Match)
    """Says whether open answers are right."""
    forward_tokens: int = 0
    """Token positions fed to the model by this reader itself; what the store had costs nothing."""

    @cached_property
    def prompts(self) -> PromptTokeniser:
        """Writes the prompts."""
        return PromptTokeniser(self.backbone.chat, self.backbone.context, self.protocol)

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
        return Reading(where, task, questions, shards, released=given)

    def asking(self, reading: Reading) -> Asking:
        """What is the same for all questions of a split."""
        return self.prompts.asking(reading.task, reading.questions, self.budget)

    def options(self, reading: Reading, questions: Sequence[Question]) -> list[list[Ids]]:
        """Ids of each question's options as the model would have to say them: letters, or texts."""
        return self.prompts.options(reading.task, questions)

    # --- answers and signals ------------------------------------------------------------------------------------------

    def find(self, reading: Reading, signals: frozenset[Signal]) -> int:
        """Look up what the store has; returns the number of shards that must be computed."""
        asking = self.asking(reading)
        signals = stored(signals, reading.task.format, asking.max_new_tokens)
        missing = 0
        for shard in reading.shards:
            entries = self.store.entries(self._kind(shard, asking))
            held = {name for entry in entries for name in held_in(entry)}
            missing += (not entries and shard.given is None) or not {self.name_of(s, asking) for s in signals} <= held
        return missing

    def read_through(self, reading: Reading, adapter: AdapterRef) -> Reading:
        """The same answers, and the self-check query read again through an adapter."""
        from bench.backbone.adapter import adapted

        signal = QueryLogits(Adapter.OWN)
        asking = self.asking(reading)
        again = replace(reading, bundles=[], signals=frozenset({signal}))
        total = sum(shard.tokens for shard in reading.shards)
        name = self.name_of(signal, asking, adapter)
        stage = self.progress.stage(f"read {reading.where} adapted", total, unit="tokens")
        with stage as advance, adapted(self.backbone, adapter):
            for shard, answers in zip(reading.shards, reading.answer_ids, strict=True):
                kind = f"{self._kind(shard, asking)}-adapted"
                entry = self.store.get(kind, key_of({"signals": [name], "answers": digest_arrays(answers)}))
                if entry is None:
                    measured = self._measure(reading, shard, asking, [signal], answers, "adapter_predictions")
                    entry = self._put(kind, measured, {signal: name}, reading)
                again.bundles.append([entry])
                advance(shard.tokens)
        again.adapter = adapter
        return again

    def estimate(self, reading: Reading) -> float:
        """Seconds to read a split from nothing: the multiplications of its tokens at this device's measured rate."""
        tree_tokens = sum(len(pack) for shard in reading.shards for pack in _distinct_tails(shard.prompts))
        return self.backbone.seconds_per_token * tree_tokens

    def read(self, reading: Reading, signals: frozenset[Signal]) -> None:
        """Make answers and signals of a split available, computing what the store lacks."""
        asking = self.asking(reading)
        signals = reading.signals = stored(signals, reading.task.format, asking.max_new_tokens)
        total = sum(shard.tokens for shard in reading.shards)
        with self.progress.stage(f"read {reading.where}", total, unit="tokens") as advance:
            for shard in reading.shards:
                entries, ids = self._complete(reading, shard, asking, signals)
                reading.bundles.append(entries)
                reading.answer_ids.append(ids)
                advance(shard.tokens)
                give_back()
        self._grade(reading)
        if any(isinstance(signal, SampleAgreement) for signal in signals):
            reading.compared_by = self.judge.name

    def _complete(
        self, reading: Reading, shard: Shard, asking: Asking, signals: frozenset[Signal]
    ) -> tuple[list[Entry], list[Ids]]:
        kind = self._kind(shard, asking)
        entries = self.store.entries(kind)
        ids = _load_answers(entries[0]) if entries else shard.given
        names = {s: self.name_of(s, asking) for s in sorted(signals, key=repr)}
        held = {name for entry in entries for name in held_in(entry)}
        missing = {signal: name for signal, name in names.items() if name not in held}
        if ids is None or missing:
            measured = self._measure(reading, shard, asking, list(missing), ids)
            entries = [*entries, self._put(kind, measured, missing, reading)]
            ids = measured.answers
        wanted = set(names.values())
        made = [e for e in entries if shard.given is None and "answers" in e.manifest["costs"]]
        return [e for e in entries if e in made or wanted & set(held_in(e))], ids

    def _measure(
        self,
        reading: Reading,
        shard: Shard,
        asking: Asking,
        signals: Sequence[Signal],
        answers: list[Ids] | None,
        stage: str | None = None,
    ) -> Measured:
        from bench.backbone.extract import Extractor

        items = list(self._items(reading, shard, signals, answers))
        measured = Extractor(self.backbone, asking, signals, stage).measure(items)
        self.forward_tokens += sum(cost.forward_tokens for cost in measured.costs.values())
        return measured

    def _items(
        self, reading: Reading, shard: Shard, signals: Sequence[Signal], answers: list[Ids] | None
    ) -> Iterator[Item]:
        from bench.backbone.extract import Item
        from bench.backbone.sampling import uniforms

        task, questions = reading.task, [reading.questions[row] for row in shard.rows]
        lettered = task.format is Format.CHOICE
        samples = next((s for s in signals if isinstance(s, SampleAgreement)), None)
        asks = any(isinstance(s, QueryLogits) for s in signals)
        befores = self._before_answers(reading, questions, shard.shown) if asks else None
        said = [[] for _ in questions] if lettered else self.options(reading, questions)
        for i, (question, options) in enumerate(zip(questions, said, strict=True)):
            yield Item(
                shard.prompts[i],
                len(question.choices) if lettered else 0,
                None if answers is None else answers[i],
                gold=options[question.gold] if options else np.zeros(0, dtype=np.int32),
                wrong=tuple(ids for k, ids in enumerate(options) if k != question.gold),
                query_prompt=None if befores is None else befores[i],
                uniforms=None
                if samples is None
                else uniforms(self.seed, question.id, samples.n, self.prompts.max_new_tokens(task)),
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
            partial(_write_bundle, measured=measured, names=names),
            split=str(reading.where),
            token_budget=self.budget,
            costs={stage: asdict(cost) for stage, cost in measured.costs.items()},
            halvings=measured.halvings,
            packed=self.backbone.packed,
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
        }
        return f"readings/{key_of(fields)}"

    def name_of(self, signal: Signal, asking: Asking, adapter: AdapterRef | None = None) -> str:
        """A signal with what it depends on besides prompt and answer."""
        if adapter is not None:
            return f"{self.name_of(signal, asking)} adapter {adapter.fingerprint}"
        if isinstance(signal, QueryLogits):
            return f"{signal!r} {digest_arrays([asking.suffix, asking.verdict_ids])}"
        if isinstance(signal, SampleAgreement):
            return f"{signal!r} seed {self.seed}"
        return f"{signal!r} {digest_arrays([asking.letter_ids])}" if isinstance(signal, ChoiceLogits) else repr(signal)

    def _grade(self, reading: Reading) -> None:
        """Right or wrong, question by question; those that the judge can't decide are left out."""
        said = dict(
            zip(
                (int(r) for shard in reading.shards for r in shard.rows),
                (ids.tolist() for shard in reading.answer_ids for ids in shard),
                strict=True,
            )
        )
        task, protocol = reading.task, self.protocol
        texts = [self.backbone.chat.decode(said[row]) for row in range(len(reading.questions))]
        pairs = list(zip(reading.questions, texts, strict=True))
        if reading.released:
            reading.answers += [
                grade_released(q, text, reading.released[q.id], task.format, protocol) for q, text in pairs
            ]
        elif task.format is Format.CHOICE:
            reading.answers += [grade_choice(question, text, protocol) for question, text in pairs]
        else:
            self._ask_judge(reading, texts)

    def _ask_judge(self, reading: Reading, texts: Sequence[str]) -> None:
        """Open answers with their verdicts; those without one are left out and counted."""
        questions = reading.questions
        asked = [
            JudgeCase(c, q.answer, text) for c, q, text in zip(self.contexts(reading), questions, texts, strict=True)
        ]
        verdicts = self.judge.verdicts(asked, f"judge {reading.where}", self.progress)
        undecided = {q.id for q, verdict in zip(questions, verdicts, strict=True) if verdict is None}
        reading.left_out |= undecided
        reading.n_undecided = len(undecided)
        pairs = zip(texts, verdicts, strict=True)
        reading.answers += [grade_open(text, correct=bool(verdict)) for text, verdict in pairs]

    def contexts(self, reading: Reading) -> list[str]:
        """Each question as its prompt shows it, without exemplars: what a judge is shown."""
        task, letters = reading.task, self.protocol.letters
        with fenced(f"task {task.name!r}, style_of"):
            return [context(question, task.style_of(question), letters) for question in reading.questions]


OPTIONS = frozenset({At.GOLD_PREDICTING, At.WRONG_PREDICTING})


def stored(signals: frozenset[Signal], fmt: Format, max_new_tokens: int) -> frozenset[Signal]:
    """The signals from which these are made: whatever is one letter long is read off the state at the prompt's end."""

    def source(signal: Signal) -> Signal:
        if isinstance(signal, Hidden) and signal.at in OPTIONS and fmt is Format.CHOICE:
            return Hidden(signal.depth, At.PROMPT_END)
        return Hidden(1.0, At.PROMPT_END) if isinstance(signal, SampleAgreement) and max_new_tokens == 1 else signal

    return frozenset(map(source, signals))


def _distinct_tails(prompts: Sequence[Ids]) -> Iterator[Ids]:
    """What each prompt adds to the one before it: nearly the tokens that a shard reads."""
    before = np.zeros(0, dtype=np.int32)
    for ids in prompts:
        n = min(len(before), len(ids))
        differs = np.flatnonzero(before[:n] != ids[:n])
        yield ids[int(differs[0]) if len(differs) else n :]
        before = ids


# --- files ------------------------------------------------------------------------------------------------------------


def _write_bundle(folder: Path, measured: Measured, names: Mapping[Signal, str]) -> None:
    from safetensors.numpy import save_file as save_numpy
    from safetensors.torch import save_file

    flat = np.concatenate(measured.answers) if measured.answers else np.zeros(0, dtype=np.int32)
    sizes = np.asarray([0, *(len(a) for a in measured.answers)], dtype=np.int64)
    save_numpy({"values": flat.astype(np.int32), "offsets": np.cumsum(sizes)}, folder / "answers.safetensors")
    for signal, name in names.items():
        save_file(measured.columns[signal], folder / f"{file_name(name)}.safetensors", metadata={"signal": name})


def held_in(entry: Entry) -> list[str]:
    """Names of the signals in an entry."""
    names: list[str] = entry.manifest["fields"]["signals"]
    return names


def file_name(name: str) -> str:
    """Where a signal lies in an entry, without its ending."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def _load_answers(entry: Entry) -> list[Ids]:
    from safetensors.numpy import load_file

    arrays = load_file(entry.folder / "answers.safetensors")
    return np.split(arrays["values"], arrays["offsets"][1:-1])


def bundle_digest(reading: Reading) -> str:
    """What the answers and signals of a split are, for the key of what is learned from them."""
    files = [sorted(entry.manifest["files"].items()) for shard in reading.bundles for entry in shard]
    judge = {"samples compared by": reading.compared_by} if reading.compared_by else {}
    return key_of({"files": files, "labels": digest_arrays([reading.correct]), **judge})
