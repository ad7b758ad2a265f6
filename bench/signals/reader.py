"""Read a split shard by shard: load answers and signals from the store, and compute and store the missing ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count, islice
from typing import TYPE_CHECKING

import numpy as np

from bench.api import Adapter, AdapterRef, Format, QueryLogits, Question, Samples, Signal, Task, UserError
from bench.api.protocol import Protocol
from bench.api.question import Released, drawn_by
from bench.data.answer_files import SERVER
from bench.data.splits import TaskSplit
from bench.grading.grade import grade_choice
from bench.model.continuation_specs import NOTHING, Continuations, ModelInput
from bench.model.devices import ALONE, default_batch_limits, default_budget, device_class
from bench.model.memory import release_free_memory
from bench.prompts.front_coding import Ids
from bench.prompts.shards import PromptTokeniser, Shard
from bench.prompts.traces import end_counts, is_empty
from bench.signals.definition import continuations_of, definition, pass_definitions, required_stored_signals
from bench.signals.files import load_answers, load_signal, names_in
from bench.signals.forecast import PassForecast, generate_texts
from bench.signals.samples import split_samples
from bench.signals.split_data import SplitData, StoredSplit
from bench.signals.worker import Engine, ShardTask, Worker
from bench.store.disk_cache import Entry, Store, digest_arrays, key_of

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel
    from bench.progress import Progress
    from bench.prompts.prompt_settings import PromptSettings
    from bench.signals.forecast import Texts
    from bench.signals.served_answers import ServedAnswers

_MAX_ATTEMPTS = 3
"""Number of attempts to find a shard that no other run changes meanwhile. After them the shard is computed, even if
another run has stored some of its signals."""

_PIECE, _LARGE_PIECE = (32, 65_536), (256, 262_144)
"""Numbers of traces, and of tokens that they may have, which are generated and stored together: by a large model on a
CPU or a server, and otherwise. Fewer tokens would cost a kill less, and decoding more: 16 traces of 4,096 tokens take
some 15 minutes on two cores at 75 tokens a second, and 6 at once, in 10 minutes, give half as many a second."""
_TRACES = "traces"
"""Name of traces in store keys."""
_TRACE = 256
"""Number of tokens of a trace that take as long to read as a prompt; shards are the smaller, the longer traces are."""

_StoreLookup = tuple[list[Entry], ShardTask | None]
"""Store entries of a shard, and the task that computes what they lack; None if they lack nothing."""


@dataclass(frozen=True, eq=False)
class TracePiece:
    """Questions of a shard whose traces are generated together and stored as one entry."""

    sampling: Samples | None
    """Sampling settings; None for greedy traces."""
    kind: str
    items: list[ModelInput]


@dataclass
class Reader:
    """Reads splits with one model: finds answers and signals in the store, or has them computed."""

    lm: LanguageModel
    store: Store
    protocol: Protocol
    budget: int
    progress: Progress
    seed: int = 0
    """Seed of the samples; answers and all other signals don't depend on it."""
    sample: int | None = None
    """Number of prompts of a large split that are tokenised if a run is only planned; None to tokenise all."""
    engine: Engine | None = None
    """Engine that computes missing shards; None to compute them in this process."""
    file_has_traces: bool = False
    """Whether answers come from a file, of which at least one has a reasoning trace."""
    forward_tokens: int = 0
    """Number of token positions that the model read for this reader. Answers and signals from the store cost none."""
    peak_memory_mb: float = 0.0
    """Largest peak memory of any other process that computed shards for this reader, in MiB; 0.0 if only this process
    computed some."""
    served_answers: ServedAnswers | None = None
    """Writes the answers and samples that the model reads; None if it writes its own."""
    reasons: bool = True
    """Whether this model writes the traces before its answers, if they have some."""
    _probe_texts: dict[tuple[TaskSplit, frozenset[Samples]], list[Texts]] = field(default_factory=dict, init=False)

    @cached_property
    def active_engine(self) -> Engine:
        """The engine in use: `engine`, or a worker in this process."""

        def waits(task: ShardTask, whom: str) -> None:
            self.progress.say(f"shard {task.number + 1} of {task.split} is being read by {whom}; waiting for it")

        return self.engine or Worker(self.lm, self.store, waits)

    @cached_property
    def arithmetic(self) -> dict[str, object]:
        """Settings that decide which tokens share a forward pass.

        Empty in float32, where answers don't depend on them.
        """
        if str(self.lm.dtype) == "torch.float32":
            return {}
        limits = default_batch_limits(*self.lm.devices, dtype=self.lm.dtype)
        batch_limits = {} if limits == ALONE else {"followed_together": [limits.sequences, limits.bytes]}
        return {"device": device_class(*self.lm.devices), "token_budget": self.budget, **batch_limits}

    @property
    def _ends(self) -> dict[str, object]:
        """Field of store keys of generated texts: their stop tokens, where the model's files don't name all."""
        return {"ends": sorted(self.lm.added_stops)} if self.lm.added_stops else {}

    @property
    def nondefault_settings(self) -> dict[str, object]:
        """Settings of the model that are not the usual ones.

        They are `enable_thinking`, off where the chat template takes it, or `thinking`, how the model is made to
        reason; `parallel` of a server's model, and `answers` if such a model only writes these; a tokenizer that the
        user named; the dtype unless it is float32; and the token budget of a forward pass unless it is the device's
        default. In float32, where answers don't depend on the budget, it is left out.
        """
        thinking = self.lm.chat.thinking
        settings: dict[str, object] = {"enable_thinking": False} if self.lm.chat.takes_thinking else {}
        if thinking is not None:
            settings = {"thinking": thinking.kind}
        server = self.lm if self.served_answers is None else self.served_answers.server
        settings |= {} if server is self.lm else {"answers": f"{SERVER}{server.label}"}
        if server.parallel is not None:
            settings["parallel"] = server.parallel
        if self.lm.files.given_tokenizer:
            settings["tokenizer"] = self.lm.files.given_tokenizer
        if self.arithmetic:
            settings["dtype"] = self.lm.dtype_name
            if self.budget != default_budget(*self.lm.devices):
                settings["token_budget"] = self.budget
        return settings

    @cached_property
    def prompts(self) -> PromptTokeniser:
        """Tokeniser of the prompts."""
        divisor = self.lm.shard_divisor
        if divisor > 1 and self.lm.chat.thinking is not None:  # prompts are longer by their traces
            divisor *= 1 + self.lm.chat.thinking.budget // _TRACE
        return PromptTokeniser(self.lm.chat, self.lm.context, self.protocol, self.sample, divisor, self.file_has_traces)

    def open(
        self, where: TaskSplit, task: Task, questions: list[Question], released: Mapping[str, Released] | None = None
    ) -> SplitData:
        """Return a split with its prompts tokenised; answers and signals are added by `read`.

        Args:
            where: name of the split.
            task: task of the split.
            questions: questions of the split.
            released: question id -> answer from a release or a file; None if the model answers.
        """
        answers = released or {}
        shards = self.prompts.shards(task, questions, answers, self.progress, str(where))
        return self._with_counts(SplitData(where, task, questions, shards, answers))

    def prompt_settings(self, split_data: SplitData, signals: frozenset[Signal] = frozenset()) -> PromptSettings:
        """Return the prompt settings that all questions of a split share, for its `requested` signals and `signals`."""
        settings = self.prompts.prompt_settings(split_data.task, split_data.questions, self.budget)
        for signal in sorted(signals | split_data.requested, key=repr):
            settings = definition(signal).extend_settings(settings, split_data.task, self.prompts)
        return settings

    def stored(self, split_data: SplitData) -> StoredSplit:
        """Return an object that loads the stored answers and signals of a split, which `read` returned."""
        return StoredSplit(split_data, self.lm, self.prompts, self.prompt_settings(split_data), self.seed)

    def items(
        self, split_data: SplitData, shard: Shard, continuations: Continuations, answers: Sequence[Ids] | None = None
    ) -> list[ModelInput]:
        """Return the model's input for each question of a shard; without `answers` the model generates the answers."""
        task, questions = split_data.task, [split_data.questions[row] for row in shard.rows]
        query_prompts = None
        if continuations.turns:
            query_prompts = self.prompts.query_prompts(task, questions, shard, split_data.released)
        is_choice = task.format is Format.CHOICE
        reads_options = (continuations.gold or continuations.wrong) and not is_choice
        options_of = self.prompts.options(task, questions) if reads_options else [[] for _ in questions]
        bounds = [shard.trace_bounds(i) for i in range(len(questions))]
        steps = [
            [start + k for k in self.prompts.trace_steps(shard.prompts[i][start:stop])] if continuations.steps else []
            for i, (start, stop) in enumerate(bounds)
        ]
        return [
            ModelInput(
                shard.prompts[i],
                len(question.choices) if is_choice else 0,
                None if answers is None else answers[i],
                gold=options[question.gold] if options else NOTHING,
                wrong=tuple(ids for k, ids in enumerate(options) if k != question.gold),
                query_prompt=None if query_prompts is None else query_prompts[i],
                trace=bounds[i],
                steps=steps[i],
                id=drawn_by(question),
            )
            for i, (question, options) in enumerate(zip(questions, options_of, strict=True))
        ]

    # --- answers and signals ------------------------------------------------------------------------------------------

    def find(self, split_data: SplitData, signals: frozenset[Signal]) -> int:
        """Return for how many shards the store lacks the answers or some of the given signals."""
        if self.generates_traces(split_data):
            if not all(self.store.entries(piece.kind) for piece in self.trace_pieces(split_data, signals)):
                return len(split_data.shards)
            split_data = self._with_traces(split_data, signals)
        settings = self.prompt_settings(split_data, signals)
        sources = self.stored_signals(signals, split_data)
        names = self._names(split_data, sources, settings)
        missing = 0
        for shard, shard_names in zip(split_data.shards, names, strict=True):
            entries = self.store.entries(self._kind(shard, settings))
            stored_names = {name for entry in entries for name in names_in(entry)}
            missing += (not entries and shard.given is None) or not set(shard_names.values()) <= stored_names
        return missing

    def forecast(self, split_data: SplitData, signals: frozenset[Signal], *, adapted: bool = False) -> PassForecast:
        """Return a forecast of the forward passes for an opened split.

        With `adapted` it is a forecast for reading the split a second time, with an adapter, after its answers are
        stored.
        """
        return PassForecast(self, split_data, signals, adapted)

    def estimate(self, split_data: SplitData, signals: frozenset[Signal], *, adapted: bool = False) -> float | None:
        """Return the seconds that one process needs for a split if nothing is stored; None if the speed is unknown.

        `adapted` means the same as in `forecast`.
        """
        speed = self.lm.speed
        return None if isinstance(speed, str) else self.forecast(split_data, signals, adapted=adapted).seconds(speed)

    def probe_texts(
        self, split_data: SplitData, settings: PromptSettings, samplings: frozenset[Samples]
    ) -> list[Texts]:
        """Return the model's answers and samples for a few prompts of a split, generated once and then cached.

        The list is empty if the model is large or can't be run (see `generate_texts`).
        """
        key = split_data.where, samplings
        if key not in self._probe_texts:
            self._probe_texts[key] = generate_texts(self.lm, split_data.shards[0].prompts, settings, samplings)
        return self._probe_texts[key]

    def stored_signals(self, signals: frozenset[Signal], split_data: SplitData) -> frozenset[Signal]:
        """Return the stored signals from which signals are computed, without samples that have traces of their own."""
        limit = self.prompts.max_new_tokens(split_data.task)
        if self.prompts.thinking is None:
            return required_stored_signals(signals, split_data.task.format, limit)
        # a letter behind a trace of its own is stored with it, and isn't drawn from the state at the prompt's end
        sources = required_stored_signals(signals, split_data.task.format, max(2, limit))
        return frozenset(source for source in sources if not continuations_of([source]).samples)

    # --- reasoning traces ---------------------------------------------------------------------------------------------

    def generates_traces(self, split_data: SplitData) -> bool:
        """Return whether the model reasons before the answers of a split, which are not those of a file."""
        return self.reasons and self.prompts.thinking is not None and not split_data.released

    def sampled_traces(self, signals: frozenset[Signal]) -> list[Samples]:
        """Return the settings with which traces are sampled for some signals."""
        # as for an open task: a choice task without traces samples letters from logits, and stores no samples
        return sorted(continuations_of(required_stored_signals(signals, Format.OPEN, 2)).samples, key=repr)

    def _with_traces(self, split_data: SplitData, signals: frozenset[Signal]) -> SplitData:
        """Return the split with reasoning traces from the store in its prompts; missing ones are generated first."""
        from bench.model.trace_decoder import Traces, TraceText, trace_texts

        thinking = self.prompts.thinking
        assert thinking is not None  # noqa: S101  # for the type checker
        pieces = self.trace_pieces(split_data, signals)

        def look_up(i: int) -> _StoreLookup:
            piece = pieces[i]
            names: dict[Signal, str] = {Traces(piece.sampling): _TRACES}
            if entries := self.store.entries(piece.kind):
                return entries, None
            where, settings = str(split_data.where), self.prompt_settings(split_data)
            return [], ShardTask(i, where, piece.kind, (), piece.items, settings, names, self.seed, thinking=thinking)

        tokens = [len(piece.items) * Traces(piece.sampling).n * thinking.budget for piece in pieces]
        stored = self._complete(f"reason {split_data.where}", tokens, look_up)
        generated: dict[Samples | None, list[list[TraceText]]] = {}
        for piece, entries in zip(pieces, stored, strict=True):
            generated.setdefault(piece.sampling, []).extend(trace_texts(**load_signal(entries, _TRACES)))
        shards, greedy = [], iter(generated[None])
        for shard in split_data.shards:
            texts = [text for (text,) in islice(greedy, len(shard.rows))]
            traces = [np.asarray(text.trace, dtype=np.int32) for text in texts]
            shards.append(shard.with_traces(thinking, traces, [text.end for text in texts]))
        entries = [entry for part in stored for entry in part]
        return self._with_counts(replace(split_data, shards=shards, generated=generated, trace_entries=entries))

    def trace_pieces(self, split_data: SplitData, signals: frozenset[Signal]) -> list[TracePiece]:
        """Return the pieces of a split in which traces are generated and stored, greedy ones first."""
        from bench.model import extractor, trace_decoder

        pieces, limit, thinking = [], self.prompts.max_new_tokens(split_data.task), self.prompts.thinking
        assert thinking is not None  # noqa: S101  # for the type checker
        fields = {
            "weights": self.lm.fingerprint, "dtype": str(self.lm.dtype), "attention": self.lm.attention,
            "thinking": thinking.fields(), "extractor": extractor.VERSION,
            "traces": trace_decoder.VERSION, **self._ends, **self.arithmetic,
        }  # fmt: skip
        for sampling in (None, *self.sampled_traces(signals)):
            most, tokens = _PIECE if self.lm.shard_divisor > 1 else _LARGE_PIECE
            size = max(1, min(most, tokens // thinking.budget) // (1 if sampling is None else sampling.n))
            for shard in split_data.shards:
                ids = [drawn_by(split_data.questions[row]) for row in shard.rows]
                for first in range(0, len(ids), size):
                    rows = range(first, min(first + size, len(ids)))
                    items = [ModelInput(shard.without_traces(i), 0, id=ids[i]) for i in rows]
                    key: dict[str, object] = {"prompts": digest_arrays([item.prompt for item in items])}
                    if sampling is not None:
                        key |= {"sampling": repr(sampling), "drawn by": [ids[i] for i in rows], "seed": self.seed}
                        key["answer"] = limit
                    pieces.append(TracePiece(sampling, f"readings/{key_of({**fields, **key})}", items))
        return pieces

    def _with_counts(self, split_data: SplitData) -> SplitData:
        """Return the split with the numbers of odd traces among its `counts`."""
        thinking, shards = self.prompts.thinking, split_data.shards
        traces = [trace for shard in shards for trace in shard.traces or ()]
        empty = sum(is_empty(self.lm.chat.decode(trace.tolist())) for trace in traces)
        counts = {"answers without a trace, in a file where others have one": empty * (empty < len(traces))}
        if thinking is not None:
            ends = [end for shard in shards for end in shard.ends or ()]
            counts = end_counts(thinking, ends, [*map(len, traces)], empty, given=bool(split_data.released))
            counts["outputs with a second end marker, divided at the first"] = sum(shard.several for shard in shards)
        said = filter(None, (split_data.released.get(question.id) for question in split_data.questions))
        counts["answers whose reasoning was redacted"] = sum(answer.redacted for answer in said)
        return replace(split_data, counts={**split_data.counts, **{what: n for what, n in counts.items() if n}})

    def sampled_counts(self, split_data: SplitData, signals: frozenset[Signal]) -> dict[str, int]:
        """Return description -> number, of odd traces before samples that some signals read, and of unread letters.

        The letters are those behind traces, and those of files.
        """
        thinking, decode, counts = self.prompts.thinking, self.lm.chat.decode, dict[str, int]()
        asked = [split_data.questions[row] for shard in split_data.shards for row in shard.rows]
        given = [ids for shard in split_data.shards for ids in shard.samples or ()]
        for sampling in self.sampled_traces(signals):
            written = split_data.generated.get(sampling, ())
            if thinking is not None and (texts := [*chain(*written)]):
                empty = sum(is_empty(decode([*text.trace])) for text in texts)
                counts |= end_counts(thinking, [text.end for text in texts], [], empty, given=False)
            answers = [[[*text.answer] for text in each] for each in written]
            answers = answers or [[ids.tolist() for ids in each[: sampling.n]] for each in given]
            if split_data.task.format is Format.CHOICE and answers:
                pairs = ((question, ids) for question, each in zip(asked, answers, strict=True) for ids in each)
                read = (grade_choice(question, decode(ids), self.protocol) for question, ids in pairs)
                counts["answers that could not be read"] = sum(not answer.parsed for answer in read)
        return {f"sampled {what}": n for what, n in counts.items() if n}

    def read(self, split_data: SplitData, signals: frozenset[Signal]) -> SplitData:
        """Return the split with its answers and signals from the store; missing ones are computed and stored first.

        Args:
            split_data: a split that `open` returned.
            signals: the signals that methods read.
        """
        if self.generates_traces(split_data):
            split_data = self._with_traces(split_data, signals)
        split_data = replace(split_data, requested=signals)
        settings = self.prompt_settings(split_data)
        sources = self.stored_signals(signals, split_data)
        if self.served_answers is not None:
            split_data = self.served_answers.add(split_data, signals, self)
        names = self._names(split_data, sources, settings)

        def look_up(i: int) -> _StoreLookup:
            kind = self._kind(split_data.shards[i], settings)
            entries = self.store.entries(kind)
            ids = load_answers(entries[0]) if entries else split_data.shards[i].given
            stored_names = {name for entry in entries for name in names_in(entry)}
            missing = {signal: name for signal, name in names[i].items() if name not in stored_names}
            if ids is not None and not missing:
                return entries, None
            given, by_setting = split_data.shards[i].samples, {}
            for sampling in continuations_of(missing).samples:
                if given is not None:
                    by_setting[sampling] = [sampled[: sampling.n] for sampled in given]
                elif (name := names[i].get(sampling)) in stored_names:
                    by_setting[sampling] = list(split_samples(load_signal(entries, name)))
            task = self._task(split_data, i, kind, entries, missing, ids)
            samples = [{setting: ids[k] for setting, ids in by_setting.items()} for k in range(len(task.items))]
            items = [replace(item, samples=sampled) for item, sampled in zip(task.items, samples, strict=True)]
            return entries, replace(task, items=items)

        totals = [shard.prompts.total for shard in split_data.shards]
        entries_by_shard = self._complete(f"read {split_data.where}", totals, look_up)
        answers = [
            load_answers(entries[0]) if shard.given is None else shard.given
            for shard, entries in zip(split_data.shards, entries_by_shard, strict=True)
        ]
        bundles = []  # the entries in which answers were generated or that hold one of these signals
        for entries, shard_names, shard in zip(entries_by_shard, names, split_data.shards, strict=True):
            read, generated = set(shard_names.values()), shard.given is None
            used = [e for e in entries if (generated and "answers" in e.manifest["costs"]) or read & set(names_in(e))]
            bundles.append(used)
        return replace(split_data, signals=sources, names=names, bundles=bundles, answer_ids=answers)

    def read_adapted(self, split_data: SplitData, adapter: AdapterRef) -> SplitData:
        """Return the split with its answers, and with the logits after the self-check query that an adapter gives."""
        names, keys = self._adapted(split_data, adapter)
        resolved = replace(adapter, folder=adapter.folder.resolve())

        def look_up(i: int) -> _StoreLookup:
            kind, key = keys[i]
            entry = self.store.get(kind, key)
            if entry is not None:
                return [entry], None
            task = self._task(split_data, i, kind, [], names, split_data.answer_ids[i])
            return [], replace(task, stage="adapter_predictions", adapter=resolved, held=None)

        totals = [shard.prompts.total for shard in split_data.shards]
        bundles = self._complete(f"read {split_data.where} adapted", totals, look_up)
        names_by_shard = [names] * len(bundles)
        return replace(split_data, signals=frozenset(names), names=names_by_shard, bundles=bundles, adapter=adapter)

    def has_adapted(self, split_data: SplitData, adapter: AdapterRef) -> bool:
        """Return whether the store already has all signals that `read_adapted` would compute."""
        _, keys = self._adapted(split_data, adapter)
        return all(self.store.get(kind, key) is not None for kind, key in keys)

    def _adapted(self, split_data: SplitData, adapter: AdapterRef) -> tuple[dict[Signal, str], list[tuple[str, str]]]:
        """Return where the signals computed with an adapter are in the store.

        Returns:
            A pair: signal -> its name in store keys; and for each shard the (kind, key) of its store entry.
        """
        settings = self.prompt_settings(split_data)
        signals: frozenset[Signal] = frozenset({QueryLogits(Adapter.OWN)})
        (base_name,) = (spec.name(settings, self.seed) for spec in pass_definitions(signals).values())
        names = dict.fromkeys(signals, f"{base_name} adapter {adapter.fingerprint}")
        key_fields = [{"signals": list(names.values()), "answers": digest_arrays(ids)} for ids in split_data.answer_ids]
        kinds = [f"{self._kind(shard, settings)}-adapted" for shard in split_data.shards]
        return names, [(kind, key_of(fields)) for kind, fields in zip(kinds, key_fields, strict=True)]

    def _complete(self, stage: str, totals: list[int], look_up: Callable[[int], _StoreLookup]) -> list[list[Entry]]:
        """Return the store entries of each shard; missing answers and signals are computed and stored first.

        Args:
            stage: name of the stage on the progress bar.
            totals: number of tokens of each shard, for the progress bar.
            look_up: returns for the index of a shard its store entries, and the task that computes what they lack.
        """
        complete: dict[int, list[Entry]] = {}
        stored_entries: dict[int, list[Entry]] = {}
        with self.progress.stage(stage, sum(totals), unit="tokens") as advance:

            def finish(i: int, entries: list[Entry]) -> None:
                complete[i] = entries
                advance(totals[i])
                release_free_memory()

            def missing(*, recompute: bool) -> Iterator[ShardTask]:
                """Yield a task for each incomplete shard; the store is searched only when the task is requested."""
                for i in range(len(totals)):
                    if i not in complete:
                        stored_entries[i], task = look_up(i)
                        if task is None:
                            finish(i, stored_entries[i])
                        else:
                            yield replace(task, held=None) if recompute else task

            for attempt in count():
                with closing(self.active_engine.work(missing(recompute=attempt >= _MAX_ATTEMPTS))) as results:
                    for task, result in results:
                        self.forward_tokens += result.forward_tokens
                        self.peak_memory_mb = max(self.peak_memory_mb, result.peak_memory_mb)
                        entry = result.entry or (self.store.get(task.kind, result.key) if result.key else None)
                        if entry is not None:  # else another run stored some signals: look the shard up again
                            finish(task.number, [*stored_entries[task.number], entry])
                if len(complete) == len(totals):
                    break
        return [complete[i] for i in range(len(totals))]

    def _names(
        self, split_data: SplitData, signals: frozenset[Signal], settings: PromptSettings
    ) -> list[dict[Signal, str]]:
        """Return for each shard: signal -> its name in store keys.

        A name ends with digests of what the signal depends on besides the prompts: right options, wrong options and,
        for samples, the question ids, from which the random numbers are derived, and beside given answers their limit.
        """
        definitions = pass_definitions(signals)
        base_names = {signal: spec.name(settings, self.seed) for signal, spec in definitions.items()}
        continuations, names = continuations_of(signals), []
        for shard in split_data.shards:
            questions = [split_data.questions[row] for row in shard.rows]
            options: list[list[Ids]] = [[]] * len(questions)
            if continuations.gold or continuations.wrong:
                options = self.prompts.options(split_data.task, questions)
            pairs = list(zip(questions, options, strict=True))
            gold = digest_arrays([texts[question.gold] for question, texts in pairs if texts])
            wrong = [[ids for k, ids in enumerate(texts) if k != question.gold] for question, texts in pairs]
            counts = np.asarray([len(texts) for texts in wrong], dtype=np.int64)
            digests = {"gold": gold, "wrong": digest_arrays([counts, *(ids for texts in wrong for ids in texts)])}
            if shard.samples is None:  # the samples' random generator depends on the question ids
                # the shard's key has the samples' length limit only where the model answers, too
                limit = {} if shard.given is None else {"max_new_tokens": settings.max_new_tokens}
                digests["drawn by"] = key_of({"ids": [*map(drawn_by, questions)], **limit, **self._ends})
            digests |= {name: str(ends) for name, ends in self._ends.items()}
            shard_names = {}
            for signal, name in base_names.items():
                spec = definitions[signal].continuations
                says = any(turn.say for turn in spec.turns)
                is_read = {"gold": spec.gold, "wrong": spec.wrong, "drawn by": spec.samples, "ends": says}
                shard_names[signal] = " ".join(
                    [name, *(f"{part} {digest}" for part, digest in digests.items() if is_read[part])]
                )
            names.append(shard_names)
        return names

    def _task(
        self,
        split_data: SplitData,
        number: int,
        kind: str,
        entries: Sequence[Entry],
        names: Mapping[Signal, str],
        answers: list[Ids] | None,
    ) -> ShardTask:
        """Return the task that computes signals of a shard.

        Raises:
            UserError: the model's context is too short for the longest prompt and answer with a user turn after them.
        """
        shard, continuations = split_data.shards[number], continuations_of(names)
        keys = tuple(entry.folder.name for entry in entries)
        settings = self.prompt_settings(split_data)
        # not the self-check query, for which prompts leave room
        followups = [turn for turn in continuations.turns if turn.wording or turn.say]
        answer = max([settings.max_new_tokens, *map(len, shard.given or ())])
        longest = max(map(len, shard.prompts), default=0) + answer if followups else 0
        for turn in followups:
            tokens, context = len(settings.turns[turn.wording]) + turn.say, self.lm.context
            if longest + tokens > context:
                raise UserError(
                    f"A follow-up of {tokens} tokens with its reply does not fit after prompt and answer of {longest}"
                    f" tokens into this model's context of {context}. Shorten it, or show fewer exemplars: --set"
                    " protocol.shots=N"
                )
        return ShardTask(
            number, str(split_data.where), kind, keys, self.items(split_data, shard, continuations, answers), settings,
            dict(names), self.seed,
        )  # fmt: skip

    def _kind(self, shard: Shard, settings: PromptSettings) -> str:
        """Return the name of the store's folder for a shard's entries, which contains a digest.

        The digest covers weights, dtype, attention, prompts, decoding and, below float32, the settings of batches.
        """
        from bench.model.extractor import VERSION

        fields = {
            "weights": self.lm.fingerprint,
            "dtype": str(self.lm.dtype),
            "attention": self.lm.attention,
            "prompts": digest_arrays(shard.prompts),
            "decoding": {"greedy": True, "max_new_tokens": settings.max_new_tokens, **self._ends}
            if shard.given is None
            else {"released": digest_arrays(shard.given)},
            **({"samples": [digest_arrays(sampled) for sampled in shard.samples]} if shard.samples else {}),
            **({"traces": digest_arrays(shard.traces)} if shard.traces and any(map(len, shard.traces)) else {}),
            # former readings had neither letters nor turns after the answer with the template's blank
            **({"blank": self.prompts.chat.blank} if self.prompts.chat.blank else {}),
            "extractor": VERSION,
            **self.arithmetic,
        }
        return f"readings/{key_of(fields)}"
