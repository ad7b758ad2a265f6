"""Signal `AttentionRows`: what the answer's tokens attend to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import AttentionRows, FloatArray, Format, IntArray, Of, Ragged
from bench.model.continuation_specs import AnswerSpan, Continuations, PendingArrays
from bench.servers.readings import Ability
from bench.signals.definition import PassDefinition

if TYPE_CHECKING:
    from bench.model.decode_batch import DecodeBatch
    from bench.signals.split_data import StoredSplit
    from bench.signals.synthetic import SyntheticQuestions

FIELDS = ("itself", "before", "prompt", "answer")


class AttentionRowsDefinition(PassDefinition[AttentionRows]):
    """Definition of `AttentionRows`, stored as `values` `(sum of L_i + 1, 4, layers, heads)` float32, with `offsets`.

    Answer i of L_i tokens has L_i + 1 rows: of the prompt's last token and of each of its own. An empty one has none.
    """

    declares = AttentionRows
    continuations = Continuations(AnswerSpan.ANSWER_END, attention=True)
    """What the model reads after the prompt: the whole answer."""
    ragged = True
    """Answers differ in length."""

    def needs(self, fmt: Format) -> Ability:
        """Return what a model has to give: attention weights."""
        return Ability.ATTENTION

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """Return the definition of the stored signal, which has the rows of both kinds."""
        return (AttentionRowsDefinition(AttentionRows()),)

    def take(self, batch: DecodeBatch) -> list[list[PendingArrays]]:
        """Return the array `values` of each question, `(L + 1, 4, layers, heads)`."""
        return batch.repeat_per_question({"values": rows} for rows in batch.attention)

    def column(self, split: StoredSplit) -> Ragged:
        """Return a `Ragged` of records, `(L,)` for each question."""
        arrays = split.arrays(AttentionRows())
        return self._rows(arrays["values"], np.diff(arrays["offsets"]))

    def _rows(self, values: FloatArray, lengths: IntArray) -> Ragged:
        """Return the records of the chosen rows, from all rows `(sum of lengths, 4, layers, heads)`."""
        starts = np.cumsum(lengths) - lengths
        left_out = starts if self.signal.row == "holding" else starts + lengths - 1
        chosen = np.delete(values, left_out[lengths > 0], axis=0)
        dtype = np.dtype([(name, np.float32, values.shape[2:]) for name in FIELDS])
        offsets = np.concatenate([[0], np.cumsum(np.maximum(lengths - 1, 0))])
        return Ragged(np.ascontiguousarray(chosen).reshape(len(chosen), -1).view(dtype)[:, 0], offsets)

    def synthesize(self, data: SyntheticQuestions) -> Ragged:
        """Return synthetic weights; at higher certainty tokens attend to themselves, in odd heads to the prompt."""
        lengths = data.texts[Of.ANSWER].ids.lengths + 1
        n, layers, heads = int(lengths.sum()), data.model.n_layers, max(1, data.model.n_heads // data.model.n_layers)
        certainty = np.repeat(data.certainty, lengths)[:, None, None]
        logits = 0.5 * np.random.default_rng([data.seed, 4]).standard_normal((4, n, layers, heads))
        logits[0, ..., ::2] += certainty
        logits[2, ..., 1::2] += certainty
        itself, before, prompt, answer = np.exp(logits) / np.exp(logits).sum(axis=0)
        place = (np.arange(n) - np.repeat(np.cumsum(lengths) - lengths, lengths))[:, None, None]
        in_prompt = np.where(place == 0, itself, 0) + np.where(place <= 1, before, 0) + prompt
        in_prompt += np.where(place <= 1, answer, 0)  # the first token has no other of the answer before it
        values = np.stack([itself, before, in_prompt, 1 - in_prompt], axis=1)
        return self._rows(values.astype(np.float32), lengths)


DEFINITION = AttentionRowsDefinition
