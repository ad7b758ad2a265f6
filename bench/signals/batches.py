"""The stored answers and signals of a split -> the `Batch` that a method sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.api import (
    Adapter,
    At,
    Batch,
    Format,
    Hidden,
    Needs,
    Of,
    QueryLogits,
    Ragged,
    SampleAgreement,
    Signal,
    TokenIds,
    Unembedding,
    UserError,
)
from bench.api.methods import refuse_gold
from bench.grading.grade import JudgeCase, agrees, normalise_text
from bench.prompts.tails import Ids
from bench.signals.reader import OPTIONS, Reader, Reading, file_name, held_in
from bench.store.folders import Entry

if TYPE_CHECKING:
    from bench.prompts.asking import Asking


@dataclass(frozen=True)
class Batches:
    """Makes batches from what a reader has read."""

    reader: Reader

    def batch(
        self, reading: Reading, signals: frozenset[Signal], *, labels: bool, adapted: Reading | None = None
    ) -> Batch:
        """The usable questions of a split with these signals, in the split's order.

        Args:
            reading: the split.
            signals: what the method reads.
            labels: whether `correct` can be read.
            adapted: the split as it was read through the method's adapter.

        Raises:
            ContractError: a signal that tells the right answer, in a batch without labels.
        """
        if not labels:
            refuse_gold(str(reading.where), Needs(predict=signals))
        asking = self.reader.asking(reading)
        columns: dict[Signal, Any] = {}
        for signal in signals:
            if isinstance(signal, Unembedding):
                columns[signal] = self.reader.backbone.head
            elif signal == QueryLogits(Adapter.OWN) and adapted is not None:
                columns[signal] = self._column(adapted, signal, asking)
            else:
                columns[signal] = self._column(reading, signal, asking)
        joined = Batch([question.id for question in reading.in_shards()], columns)
        batch = joined.take(reading.order[reading.usable])
        if not labels:
            return batch
        return Batch(batch.ids, {s: batch[s] for s in batch.signals}, reading.correct[reading.usable])

    def _column(self, reading: Reading, signal: Signal, asking: Asking) -> Any:
        """A signal of all questions, in the order of the shards."""
        if isinstance(signal, TokenIds):
            return self._token_ids(reading, signal.of, asking)
        if isinstance(signal, SampleAgreement):
            return self._agreement(reading, signal, self._samples(reading, signal, asking))
        if isinstance(signal, Hidden) and signal.at in OPTIONS and reading.task.format is Format.CHOICE:
            return self._letter_states(reading, signal, asking)
        column = self._stored(reading, signal, asking)
        if isinstance(signal, Hidden) and signal.at is At.WRONG_PREDICTING:
            return replace(column, owner=self._option_ids(reading, Of.WRONG).owner)
        return column

    def _stored(self, reading: Reading, signal: Signal, asking: Asking) -> Any:
        """A signal as the store has it, the shards joined."""
        name = self.reader.name_of(signal, asking, reading.adapter)
        parts = [_load_signal(entries, name) for entries in reading.bundles]
        values = np.concatenate([part["values"] for part in parts])
        if "offsets" not in parts[0]:
            return values
        sizes = np.concatenate([np.diff(part["offsets"]) for part in parts])
        return Ragged(values, np.concatenate([[0], np.cumsum(sizes)]))

    def _samples(self, reading: Reading, signal: SampleAgreement, asking: Asking) -> Iterator[list[list[int]]]:
        """The ids of each question's samples."""
        if asking.max_new_tokens == 1:
            return self._letter_samples(reading, signal, asking)
        return _samples_in(self._stored(reading, signal, asking))

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
        questions = list(reading.in_shards())
        for question, options in zip(questions, self.reader.options(reading, questions), strict=True):
            kept = [(k, ids) for k, ids in enumerate(options) if (k == question.gold) == (of is Of.GOLD)]
            if not kept:
                raise UserError(f"it reads wrong answers, and question {question.id!r} of {reading.where} has none")
            rows.append(np.concatenate([ids for _, ids in kept]).astype(np.int64))
            owners.append(np.repeat([k for k, _ in kept], [len(ids) for _, ids in kept]))
        return replace(Ragged.of(rows), owner=np.concatenate(owners))

    def _letter_samples(self, reading: Reading, signal: SampleAgreement, asking: Asking) -> Iterator[list[list[int]]]:
        """One-token samples are drawn from the stored state at the prompt's end: no pass over the model."""
        import torch

        from bench.backbone.sampling import draw, uniforms

        states = self._column(reading, Hidden(1.0, At.PROMPT_END), asking)
        head = self.reader.backbone.head
        for question, state in zip(reading.in_shards(), states, strict=True):
            logits = head.logits(torch.tensor(state[None], device=head.weight.device))
            numbers = uniforms(self.reader.seed, question.id, signal.n, 1)[:, 0].tolist()
            tokens = draw(logits, [0] * signal.n, numbers, signal.temperature, signal.top_p)
            yield [[] if token in self.reader.backbone.stops else [token] for token in tokens]

    def _agreement(
        self, reading: Reading, signal: SampleAgreement, samples: Iterator[list[list[int]]]
    ) -> npt.NDArray[np.bool_]:
        """`(questions, N)` bool: does each sample say what the greedy answer says (docs/methods.md §2.14)."""
        answers = dict(zip((q.id for q in reading.questions), reading.answers, strict=True))
        fmt, protocol = reading.task.format, self.reader.protocol
        texts = list(self._texts(samples))
        agree = np.asarray(
            [
                [agrees(text, answers[question.id], question, fmt, protocol) for text in said]
                for question, said in zip(reading.in_shards(), texts, strict=True)
            ],
            dtype=np.bool_,
        )
        if fmt is Format.OPEN:
            self._compare(reading, texts, agree)
        reading.modal_shares[signal] = _modal_share(texts, agree)
        return agree

    def _texts(self, samples: Iterator[list[list[int]]]) -> Iterator[list[str]]:
        """The texts of each question's samples; each is decoded once."""
        said: dict[tuple[int, ...], str] = {}
        for ids_of in samples:
            for ids in ids_of:
                if tuple(ids) not in said:
                    said[tuple(ids)] = self.reader.backbone.chat.decode(ids)
            yield [said[tuple(ids)] for ids in ids_of]

    def _compare(self, reading: Reading, texts: list[list[str]], agree: npt.NDArray[np.bool_]) -> None:
        """Ask the judge about samples whose text differs from the answer's; one without a verdict disagrees."""
        judge = self.reader.judge.comparing()
        if judge is None:
            return
        contexts, places = self.reader.contexts(reading), np.argsort(reading.order)
        rows, columns = np.nonzero(~agree & reading.usable[places][:, None])
        asked = [
            JudgeCase(contexts[places[i]], reading.answers[places[i]].text, texts[i][j])
            for i, j in zip(rows, columns, strict=True)
        ]
        if asked:
            verdicts = judge.verdicts(asked, f"compare samples {reading.where}", self.reader.progress)
            agree[rows, columns] = [bool(verdict) for verdict in verdicts]

    def sampled(self, reading: Reading) -> Iterator[tuple[Ids, list[Ids]]]:
        """Each prompt with the ids of its samples; nothing where none had to be read."""
        asking = self.reader.asking(reading)
        for signal in reading.signals:
            if isinstance(signal, SampleAgreement):
                samples = self._samples(reading, signal, asking)
                for (prompt, _), ids_of in zip(reading.pairs(), samples, strict=True):
                    yield prompt, [np.asarray(ids, dtype=np.int32) for ids in ids_of]


def _modal_share(texts: Sequence[Sequence[str]], agree: npt.NDArray[np.bool_]) -> float:
    """Mean over the questions of the largest group of samples that say the same, those of the answer being one."""
    largest = [
        max(Counter("" if same else f"={normalise_text(text)}" for text, same in zip(said, row, strict=True)).values())
        for said, row in zip(texts, agree.tolist(), strict=True)
    ]
    return float(np.mean(largest) / agree.shape[1])


def _samples_in(samples: Ragged) -> Iterator[list[list[int]]]:
    """The ids of each question's samples, which are stored one after the other, each closed by -1."""
    for row in range(len(samples)):
        closed = np.split(samples[row], np.flatnonzero(samples[row] < 0) + 1)[:-1]
        yield [sample[:-1].tolist() for sample in closed]


def _load_signal(entries: Sequence[Entry], name: str) -> dict[str, npt.NDArray[Any]]:
    """A stored signal as float32 (hidden states lie on disk in the model's dtype)."""
    from safetensors.torch import load_file

    for entry in entries:
        if name in held_in(entry):
            arrays = load_file(entry.folder / f"{file_name(name)}.safetensors")
            return {k: (v.float() if v.is_floating_point() else v).numpy() for k, v in arrays.items()}
    raise KeyError(name)
