"""Grade the answers of a split, and compare samples with the answer and with each other.

Pairs of texts are compared by text-pair models or by the judge; without these, two texts are related if their
normalised texts are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import BoolArray, FloatArray, Format
from bench.api.errors import capture
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
from bench.prompts.traces import has_marker
from bench.results.row import ACCEPTED, REFUSED
from bench.signals.definition import definition
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.signals.text import shown_questions
from bench.store.disk_cache import Store, key_of

if TYPE_CHECKING:
    from bench.model.text_pairs import PairModel
    from bench.progress import Progress

Pairs = Sequence[tuple[str, str]]

_CHUNK = 2_048
"""Number of compared pairs in one store entry. A run that is killed loses the comparisons of at most so many."""
_FILE = "relations.safetensors"
MEASURED = 100
"""Most questions of a test by whose options a judge is measured."""


@dataclass(frozen=True)
class PairModels:
    """Models that compare two texts. A model whose option (`--nli`, `--similarity`) was not given is None."""

    nli: PairModel | None = None
    similarity: PairModel | None = None

    def model(self, by: By) -> PairModel | None:
        """Return the model that computes a kind of relation; None if a judge or normalised texts are used instead."""
        return {"entailment": self.nli, "similarity": self.similarity}.get(by)

    def relate(
        self, by: By, pairs: Pairs, store: Store, progress: Progress, what: str, *, question: bool = False
    ) -> FloatArray:
        """Return how the texts of k pairs are related, float32; stored relations are loaded, missing ones are computed.

        For entailment they are `(k, 3)` probabilities of contradiction, neutrality and entailment, else `(k,)`
        (see `Related`). With `question` each text begins with its question, which is what a pair too long is cut by.

        Raises:
            UserError: the model can't be loaded.
        """
        from safetensors.numpy import load_file, save_file

        def write(related: FloatArray, folder: Path) -> None:
            save_file({"values": related}, folder / _FILE)

        model = self.model(by)
        assert model is not None  # noqa: S101  # texts without a model are matched by the caller
        parts = [pairs[start : start + _CHUNK] for start in range(0, len(pairs), _CHUNK)]
        with progress.stage(f"{what} by {model.name}", len(pairs), unit="pairs") as advance:
            relations = []
            for part in parts:
                kind = model.device.partition(":")[0]
                fields = {"model": model.files.fingerprint, "as": model.option, "device": kind}
                fields |= {"cut": "question"} if question else {}
                key = key_of({**fields, "pairs": [list(pair) for pair in part]})
                entry = store.get("relations", key)
                if entry is None:
                    related = model.relate(part, advance, question=question)
                    entry = store.put("relations", key, fields, partial(write, related))
                else:
                    advance(len(part))
                relations.append(load_file(entry.folder / _FILE)["values"])
        return np.concatenate(relations) if relations else match_relations(by, ())


def match_relations(by: By, pairs: Pairs) -> FloatArray:
    """Return how the texts of k pairs are related if only their normalised texts are compared, float32.

    For entailment: `(k, 3)` probabilities of contradiction, neutrality and entailment. Equal texts entail each other
    with probability 1, other texts are neutral with probability 1. Else similarities `(k,)`: 1 for equal texts, 0 for
    others.
    """
    same = np.asarray([same_text(one, other) for one, other in pairs], dtype=np.float32)
    return np.stack([np.zeros_like(same), 1 - same, same], axis=-1) if by == "entailment" else same


@dataclass(frozen=True)
class Grader:
    """Grades the splits that a reader has read."""

    reader: Reader
    judge: Judge
    """Judge that decides whether open answers are right, and whether two answers mean the same."""
    pair_models: PairModels = field(default_factory=PairModels)
    """Models that compare samples with each other and with the answer."""

    def grade(self, split_data: SplitData) -> SplitData:
        """Return the split with graded answers; those on which the judge has no verdict are left out and counted.

        Raises:
            UserError: the judge fails on the answers; its earlier verdicts stay stored. If comparing samples
                fails, the error is recorded in `SplitData.agreements` or `SplitData.relations` instead.
        """
        fmt, protocol = split_data.task.format, self.reader.protocol
        pairs = list(zip(split_data.questions, self._texts(split_data), strict=True))
        thinking, marked = self.reader.prompts.thinking, sum(has_marker(text) for _, text in pairs)
        if marked and (thinking is None or not split_data.released):  # a reader counts those of files behind traces
            what = "answers with a reasoning trace in them, read whole (see --think-budget)"
            what = what if thinking is None else "answers after traces with a further marker of a trace, read whole"
            split_data = replace(split_data, counts={**split_data.counts, what: marked})
        if split_data.has_external_labels:
            answers = [grade_released(q, text, split_data.released[q.id], fmt, protocol) for q, text in pairs]
        elif fmt is Format.CHOICE:
            answers = [grade_choice(question, text, protocol) for question, text in pairs]
        else:
            contexts = shown_questions(split_data.task, split_data.questions, protocol.letters)
            if split_data.where.split == "test" and not isinstance(self.judge, MatchJudge):
                measured = self._measure_judge(split_data, contexts)
                split_data = replace(split_data, counts={**split_data.counts, **measured})
            cases = [JudgeCase(c, q.answer, text, q.accepted) for c, (q, text) in zip(contexts, pairs, strict=True)]
            verdicts = self.judge.verdicts(cases, f"judge {split_data.where}", self.reader.progress)
            judged = list(zip(pairs, verdicts, strict=True))
            undecided = frozenset(question.id for (question, _), verdict in judged if verdict is None)
            answers = [grade_open(text, correct=bool(verdict)) for (_, text), verdict in judged]
            split_data = replace(split_data, left_out=split_data.left_out | undecided, n_undecided=len(undecided))
        return self._compare_samples(replace(split_data, answers=answers))

    def _measure_judge(self, split_data: SplitData, contexts: Sequence[str]) -> dict[str, int]:
        """Return how many right options of some questions the judge accepts and how many wrong ones it refuses.

        The questions are `MEASURED` of the split's at equal distances, or all. It is done before anything is graded.
        """
        n = len(split_data.questions)
        rows = np.unique(np.linspace(0, n - 1, min(n, MEASURED)).round().astype(int)).tolist()
        options = [(row, k) for row in rows for k in range(len(split_data.questions[row].choices))]
        questions = [split_data.questions[row] for row, _ in options]
        cases = [
            JudgeCase(contexts[row], question.answer, question.choices[k], question.accepted)
            for (row, k), question in zip(options, questions, strict=True)
        ]
        verdicts = self.judge.verdicts(cases, f"measure the judge on {split_data.where}", self.reader.progress)
        rights = [k == q.gold or q.choices[k] in q.accepted for (_, k), q in zip(options, questions, strict=True)]
        counts = {}
        for words, right in ((ACCEPTED, True), (REFUSED, False)):
            of = [verdict for verdict, is_right in zip(verdicts, rights, strict=True) if is_right == right]
            if of:
                counts[f"{words}, of {len(of)}"] = sum(verdict is right for verdict in of)
        return counts

    def parsed(self, split_data: SplitData) -> SplitData:
        """Return the split with parsed answers. All are labelled wrong, since the questions have no right answers.

        If comparing samples fails, the error is recorded in `SplitData.agreements` or `SplitData.relations`.
        """
        protocol, choice = self.reader.protocol, split_data.task.format is Format.CHOICE
        answers = []
        for question, text in zip(split_data.questions, self._texts(split_data), strict=True):
            answer = grade_choice(question, text, protocol) if choice else grade_open(text, correct=False)
            answers.append(replace(answer, correct=False))
        return self._compare_samples(replace(split_data, answers=answers))

    def _compare_samples(self, graded: SplitData) -> SplitData:
        """Return the graded split with the results of comparing its samples with the answer and with each other."""
        split = self.reader.stored(graded)
        signals = graded.requested
        compared = {signal: capture(definition(signal).agreement, split, self._agreement) for signal in signals}
        related = {signal: capture(definition(signal).relation, split, self._relation) for signal in signals}
        relations = {signal: relation for signal, relation in related.items() if relation is not None}
        agreements = {signal: agreement for signal, agreement in compared.items() if agreement is not None}
        return replace(
            graded,
            relations=relations,
            related_by={signal: self._related_by(graded, signal) for signal in relations},
            agreements=agreements,
            compared_by=self.judge.name if agreements and graded.task.format is Format.OPEN else "",
        )

    def _texts(self, split_data: SplitData) -> list[str]:
        """Return the answers as text, in the order of the questions."""
        generated = [ids.tolist() for answers in split_data.answer_ids for ids in answers]
        return [self.reader.lm.chat.decode(generated[place]) for place in split_data.order]

    def _agreement(self, split_data: SplitData, texts: Sequence[Sequence[str]]) -> BoolArray:
        """Return `(n, N)` bool in the order of the shards: whether each sample agrees with the answer."""
        rows, fmt, protocol = split_data.rows, split_data.task.format, self.reader.protocol
        pairs = ((split_data.answers[row], split_data.questions[row]) for row in rows)
        same = [[agrees(text, *pair, fmt, protocol) for text in own] for pair, own in zip(pairs, texts, strict=True)]
        agree = np.asarray(same, dtype=np.bool_)
        judge = self.judge.pairwise_judge() if fmt is Format.OPEN else None
        if judge is None:
            return agree
        contexts = shown_questions(split_data.task, split_data.questions, protocol.letters)
        # the judge compares samples whose text differs from the answer's
        places, columns = (index.tolist() for index in np.nonzero(~agree & split_data.usable[rows][:, None]))
        cases = [
            JudgeCase(contexts[rows[i]], split_data.answers[rows[i]].text, texts[i][j])
            for i, j in zip(places, columns, strict=True)
        ]
        if cases:  # a sample without a verdict counts as disagreeing
            verdicts = judge.verdicts(cases, f"compare samples {split_data.where}", self.reader.progress)
            agree[places, columns] = [bool(verdict) for verdict in verdicts]
        return agree

    def _related_by(self, split_data: SplitData, signal: Any) -> str:
        """Return the name of what compares a signal's samples: a model, the judge, or `match` for normalised texts."""
        if split_data.task.format is Format.CHOICE:
            return MatchJudge.name
        if signal.by == "judge":
            return self.judge.name
        model = self.pair_models.model(signal.by)
        return MatchJudge.name if model is None else model.name

    def _relation(self, split_data: SplitData, signal: Any, pairs: Sequence[tuple[int, str, str]]) -> FloatArray:
        """Return how the texts of k pairs are related, in the shape that `PairModels.relate` returns.

        Args:
            split_data: the split.
            signal: the signal, which says what kind of relation is computed.
            pairs: k triples (index of the question in the split, text, text).
        """
        texts = [(one, other) for _, one, other in pairs]
        if self._related_by(split_data, signal) == MatchJudge.name:
            return match_relations(signal.by, texts)
        letters, where = self.reader.protocol.letters, str(split_data.where)
        contexts = shown_questions(split_data.task, split_data.questions, letters)
        if signal.by == "judge":  # one verdict holds for both orders of a pair
            judge, same = self.judge.pairwise_judge(), match_relations("judge", texts)
            index_of_pair = {pair: k for k, pair in enumerate(pairs)}
            unmatched = [pair for pair in pairs if not same[index_of_pair[pair]] and pair[1] < pair[2]]
            cases = [JudgeCase(contexts[row], one, other) for row, one, other in unmatched]
            if judge is not None and cases:
                verdicts = judge.verdicts(cases, f"relate samples {where}", self.reader.progress)
                for (row, one, other), verdict in zip(unmatched, verdicts, strict=True):
                    same[[index_of_pair[row, one, other], index_of_pair[row, other, one]]] = bool(verdict)
            return same
        if signal.question:
            texts = [(f"{contexts[row]} {one}", f"{contexts[row]} {other}") for row, one, other in pairs]
        distinct = {pair: k for k, pair in enumerate(dict.fromkeys(texts))}
        reader, stage = self.reader, f"relate samples {where}"
        relations = self.pair_models.relate(
            signal.by, list(distinct), reader.store, reader.progress, stage, question=signal.question
        )
        return relations[[distinct[pair] for pair in texts]]
