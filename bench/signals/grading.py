"""A reading -> the same with answers that are right or wrong, and with samples that agree or don't.

Texts are related to each other by models for pairs of texts, or by being equal after normalising in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import BoolArray, FloatArray, Format
from bench.api.errors import attempted, fenced
from bench.api.signals import By
from bench.grading.grade import (
    Judge,
    JudgeCase,
    MatchJudge,
    agrees,
    grade_choice,
    grade_open,
    grade_released,
    same_text,
)
from bench.prompts.templates import context
from bench.signals.definition import definition, growth_of
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.folders import Store, key_of

if TYPE_CHECKING:
    from bench.api.protocol import Protocol
    from bench.model.text_pairs import PairModel
    from bench.progress import Progress

Pairs = Sequence[tuple[str, str]]

_AT_ONCE = 2_048
"""Pairs that are stored together: what is lost when a run is killed."""
_FILE = "relations.safetensors"


@dataclass(frozen=True)
class Relating:
    """The models that a run named for pairs of texts."""

    nli: PairModel | None = None
    similarity: PairModel | None = None

    def model(self, by: By) -> PairModel | None:
        """The model that relates texts in a way; None where matching texts stand in for it."""
        return {"entailment": self.nli, "similarity": self.similarity}.get(by)

    def relate(self, by: By, pairs: Pairs, store: Store, progress: Progress, what: str) -> FloatArray:
        """`(k, 3)` probabilities by entailment, else `(k,)`: see `Related`; what the store has is not computed again.

        Raises:
            UserError: the model can't be loaded.
        """
        from safetensors.numpy import load_file, save_file

        def write(related: FloatArray, folder: Path) -> None:
            save_file({"values": related}, folder / _FILE)

        model = self.model(by)
        if model is None:
            return matching(by, pairs)
        parts = [pairs[start : start + _AT_ONCE] for start in range(0, len(pairs), _AT_ONCE)]
        with progress.stage(f"{what} by {model.name}", len(pairs), unit="pairs") as advance:
            found = []
            for part in parts:
                kind = model.device.partition(":")[0]
                fields = {"model": model.files.fingerprint, "as": model.option, "device": kind}
                key = key_of({**fields, "pairs": [list(pair) for pair in part]})
                entry = store.get("relations", key)
                if entry is None:
                    entry = store.put("relations", key, fields, partial(write, model.relate(part, advance)))
                else:
                    advance(len(part))
                found.append(load_file(entry.folder / _FILE)["values"])
        return np.concatenate(found) if found else matching(by, ())


def matching(by: By, pairs: Pairs) -> FloatArray:
    """Relations of texts by whether they are the same after normalising."""
    same = np.asarray([same_text(one, other) for one, other in pairs], dtype=np.float32)
    return np.stack([np.zeros_like(same), 1 - same, same], axis=-1) if by == "entailment" else same


@dataclass(frozen=True)
class Grader:
    """Grades what a reader has read."""

    reader: Reader
    judge: Judge
    """Says whether open answers are right, and whether samples say the same."""
    relating: Relating = field(default_factory=Relating)
    """Says how samples are related."""

    def grade(self, split_data: SplitData) -> SplitData:
        """The reading with its answers graded; those that the judge can't decide are left out and counted.

        Raises:
            UserError: the judge can't be asked about the answers; verdicts that it gave are kept. Where it can't be
                asked about samples, that is kept in `SplitData.agreements`.
        """
        fmt, protocol = split_data.task.format, self.reader.protocol
        pairs = list(zip(split_data.questions, self._texts(split_data), strict=True))
        if split_data.graded_elsewhere:
            answers = [grade_released(q, text, split_data.released[q.id], fmt, protocol) for q, text in pairs]
        elif fmt is Format.CHOICE:
            answers = [grade_choice(question, text, protocol) for question, text in pairs]
        else:
            contexts = _contexts(split_data, protocol)
            asked = [JudgeCase(c, q.answer, text, q.accepted) for c, (q, text) in zip(contexts, pairs, strict=True)]
            verdicts = self.judge.verdicts(asked, f"judge {split_data.where}", self.reader.progress)
            judged = list(zip(pairs, verdicts, strict=True))
            undecided = frozenset(question.id for (question, _), verdict in judged if verdict is None)
            answers = [grade_open(text, correct=bool(verdict)) for (_, text), verdict in judged]
            split_data = replace(split_data, left_out=split_data.left_out | undecided, n_undecided=len(undecided))
        return self._with_samples(replace(split_data, answers=answers))

    def parsed(self, split_data: SplitData) -> SplitData:
        """The reading of questions whose right answers nobody knows: answers are parsed, and all count as wrong.

        Raises:
            UserError: as `grade`, about samples alone.
        """
        protocol, choice = self.reader.protocol, split_data.task.format is Format.CHOICE
        answers = []
        for question, text in zip(split_data.questions, self._texts(split_data), strict=True):
            answer = grade_choice(question, text, protocol) if choice else grade_open(text, correct=False)
            answers.append(replace(answer, correct=False))
        return self._with_samples(replace(split_data, answers=answers))

    def _with_samples(self, graded: SplitData) -> SplitData:
        """The graded reading with what its samples say, each compared with its answer and with the others."""
        split = self.reader.stored(graded)
        found = {signal: attempted(definition(signal).agreement, split, self._agreeing) for signal in graded.wanted}
        relations = {signal: attempted(definition(signal).relation, split, self._related) for signal in graded.wanted}
        known = {signal: relation for signal, relation in relations.items() if relation is not None}
        agreements = {signal: agreement for signal, agreement in found.items() if agreement is not None}
        return replace(
            graded,
            relations=known,
            related_by={signal: self._relates(graded, signal) for signal in known},
            agreements=agreements,
            compared_by=self.judge.name if agreements and growth_of(graded.signals).samples else "",
        )

    def _texts(self, split_data: SplitData) -> list[str]:
        """The answers as text, in the order of the questions."""
        generated = [ids.tolist() for answers in split_data.answer_ids for ids in answers]
        return [self.reader.lm.chat.decode(generated[place]) for place in split_data.order]

    def _agreeing(self, split_data: SplitData, texts: Sequence[Sequence[str]]) -> BoolArray:
        """`(n, N)` bool in the order of the shards: does each sample say what the answer says."""
        rows, fmt, protocol = split_data.rows, split_data.task.format, self.reader.protocol
        agree = np.asarray(
            [
                [agrees(text, split_data.answers[row], split_data.questions[row], fmt, protocol) for text in sampled]
                for row, sampled in zip(rows, texts, strict=True)
            ],
            dtype=np.bool_,
        )
        judge = self.judge.comparing() if fmt is Format.OPEN else None
        if judge is None:
            return agree
        contexts = _contexts(split_data, protocol)  # also by the judge, for texts that differ from the answer's
        places, columns = (index.tolist() for index in np.nonzero(~agree & split_data.usable[rows][:, None]))
        asked = [
            JudgeCase(contexts[rows[i]], split_data.answers[rows[i]].text, texts[i][j])
            for i, j in zip(places, columns, strict=True)
        ]
        if asked:  # a sample without a verdict disagrees
            verdicts = judge.verdicts(asked, f"compare samples {split_data.where}", self.reader.progress)
            agree[places, columns] = [bool(verdict) for verdict in verdicts]
        return agree

    def _relates(self, split_data: SplitData, signal: Any) -> str:
        """Who relates the samples of a signal: its model, or the judge, if there is one for them."""
        if split_data.task.format is Format.CHOICE:
            return MatchJudge.name
        if signal.by == "judge":
            return self.judge.name
        model = self.relating.model(signal.by)
        return MatchJudge.name if model is None else model.name

    def _related(self, split_data: SplitData, signal: Any, pairs: Sequence[tuple[int, str, str]]) -> FloatArray:
        """`(k,)` or `(k, 3)` relations of pairs of texts, each with the row of its question."""
        texts = [(one, other) for _, one, other in pairs]
        if self._relates(split_data, signal) == MatchJudge.name:
            return matching(signal.by, texts)
        contexts, where = _contexts(split_data, self.reader.protocol), str(split_data.where)
        if signal.by == "judge":  # it is asked once for both orders
            judge, same = self.judge.comparing(), matching("judge", texts)
            places = {pair: k for k, pair in enumerate(pairs)}
            todo = [pair for pair in pairs if not same[places[pair]] and pair[1] < pair[2]]
            asked = [JudgeCase(contexts[row], one, other) for row, one, other in todo]
            if judge is not None and asked:
                verdicts = judge.verdicts(asked, f"relate samples {where}", self.reader.progress)
                for (row, one, other), verdict in zip(todo, verdicts, strict=True):
                    same[[places[row, one, other], places[row, other, one]]] = bool(verdict)
            return same
        if signal.question:
            texts = [(f"{contexts[row]} {one}", f"{contexts[row]} {other}") for row, one, other in pairs]
        distinct = {pair: k for k, pair in enumerate(dict.fromkeys(texts))}
        reader, what = self.reader, f"relate samples {where}"
        found = self.relating.relate(signal.by, list(distinct), reader.store, reader.progress, what)
        return found[[distinct[pair] for pair in texts]]


def _contexts(split_data: SplitData, protocol: Protocol) -> list[str]:
    """Each question as its prompt shows it, without exemplars: what a judge is shown."""
    task = split_data.task
    with fenced(f"task {task.name!r}, style_of"):
        return [context(question, task.style_of(question), protocol.letters) for question in split_data.questions]
