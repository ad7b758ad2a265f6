"""`ServedAnswers`: answers and samples that a model's server writes, for the model that is loaded here to read.

Numbers of two engines stand in one result only after a comparison of both on a split's first questions, which it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import Signal, TokenScores, UserError
from bench.data.splits import TaskSplit
from bench.model.continuation_specs import Continuations
from bench.prompts.front_coding import Ids
from bench.signals.definition import continuations_of, definition
from bench.signals.samples import sampled_ids
from bench.signals.server_extractor import Journal, QuestionRequests
from bench.signals.split_data import SplitData
from bench.store.disk_cache import key_of

if TYPE_CHECKING:
    from bench.model.server_model import ServerModel
    from bench.signals.reader import Reader

_COMPARED = 32
"""Number of questions of a split on which both engines are compared."""
_MOST = 0.5
"""Largest mean difference of a token's log-probability, in nats. A quantised model's engines differ by some 0.1, other
prompts or weights by 1 and more."""


@dataclass(frozen=True, eq=False)
class ServedAnswers:
    """Has a server write the answers and samples of splits."""

    server: ServerModel
    notes: dict[TaskSplit, str] = field(default_factory=dict)
    """Split -> sentence on how far the two engines agree there."""

    def add(self, split_data: SplitData, signals: frozenset[Signal], reader: Reader) -> SplitData:
        """Return the split with the server's answers and samples, as if they came from a file, and with its traces.

        Args:
            split_data: the split as the reader has opened it.
            signals: the signals that methods read.
            reader: the reader of the model that is loaded here.

        Raises:
            UserError: the server fails or has another model, or samples of several settings are needed.
        """
        samplings = continuations_of(reader.stored_signals(signals, split_data)).samples
        if len({(each.temperature, each.top_p) for each in samplings}) > 1:
            raise UserError("--answers URL: expected samples at one temperature and top_p, got several; run one by one")
        if split_data.where not in self.notes:
            self.notes[split_data.where] = self._compare(split_data, reader)
        writer = replace(reader, lm=self.server, engine=None, served_answers=None, reasons=True)
        bare = [replace(shard, given=None, samples=None) for shard in split_data.shards]
        drawn_by = samplings if self.server.chat.thinking is None else reader.sampled_traces(signals)
        done = writer.read(replace(split_data, shards=bare), frozenset(drawn_by))
        most = max(samplings, key=lambda each: each.n, default=None)
        drawn: Iterator[list[Ids]] = iter(()) if most is None else sampled_ids(writer.stored(done), most)
        samples = (None if most is None else [next(drawn) for _ in shard.rows] for shard in bare)
        parts = zip(done.shards, done.answer_ids, samples, strict=True)
        shards = [replace(shard, given=ids, samples=texts) for shard, ids, texts in parts]
        return replace(done, shards=shards, requested=signals)

    def _compare(self, split_data: SplitData, reader: Reader) -> str:
        """Return how both engines agree on the first questions: answers, log-probabilities of the server's answers.

        Raises:
            UserError: they differ so much that it is another model or served otherwise, or it has other token ids.
        """
        reader.lm.require_vocabulary_of(self.server)
        vars(self.server)["chat"] = reader.lm.chat  # the server gets the same token ids
        own, where, label = replace(reader, served_answers=None), split_data.where, self.server.label
        opened = own.open(where, split_data.task, split_data.questions[:_COMPARED])
        here, settings = own.read(opened, frozenset()), own.prompt_settings(opened)
        path = own.store.root / "asked" / f"{key_of({'compared': self.server.fingerprint})[:32]}.jsonl"
        journal, theirs, shards = Journal(path, self.server.check_link), [], []
        for shard in opened.shards:
            for item in own.items(opened, shard, Continuations()):
                requests = QuestionRequests(self.server, journal, item, settings, own.seed, whole=False)
                theirs.append(requests.complete(item.prompt, settings.max_new_tokens))
            shards.append(replace(shard, given=[scored.ids for scored in theirs[-len(shard.rows) :]]))
        read = own.stored(own.read(replace(opened, shards=shards), frozenset({TokenScores()})))
        forced: Any = definition(TokenScores()).column(read)
        reader.forward_tokens = own.forward_tokens
        ours = [ids for part in here.answer_ids for ids in part]
        equal = sum(np.array_equal(ids, scored.ids) for ids, scored in zip(ours, theirs, strict=True))
        d = forced.values["log_probability"] - np.concatenate([scored.log_probability for scored in theirs])
        d = d if d.size else np.zeros(1)
        note = (
            f"answers are written by {label}: {equal} of the first {len(ours)} of {where} are those of the model here,"
            f" too; log-probabilities of their tokens are higher here by {d.mean():.3f} nats on average (standard"
            f" deviation {d.std():.3f}, at most {np.abs(d).max():.2f})"
        )
        if np.abs(d).mean() > _MOST:
            raise UserError(f"--answers: {note}. Two engines of one model differ by less; bench drift A B says why.")
        reader.progress.say(note)
        return note
