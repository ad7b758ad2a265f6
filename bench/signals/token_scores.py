"""Signal `TokenScores`: log-probability and entropy at each token of answers, samples and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.api import Format, Of, Ragged, Task, TokenIds, TokenScores, UserError
from bench.model.continuation_specs import NOTHING, AnswerSpan, Arrays, Continuations, PendingArrays
from bench.prompts.front_coding import Ids
from bench.servers.readings import Ability, Scored
from bench.signals.definition import PassDefinition, definition
from bench.signals.samples import join_texts, sample_letters, sample_sources, sampled_ids
from bench.store.disk_cache import digest_arrays

if TYPE_CHECKING:
    import torch

    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.prompts.shards import PromptTokeniser
    from bench.signals.server_extractor import QuestionRequests
    from bench.signals.split_data import StoredSplit
    from bench.signals.synthetic import SyntheticQuestions

CHUNK = 256
"""Number of positions whose logits are in memory at once; in float32, with a vocabulary of 152,064, they take 150 MB,
and four times as much while scores are computed."""


class TokenScoresDefinition(PassDefinition[TokenScores]):
    """Definition of `TokenScores`, stored as an array `(sum of t_i, ...)` per field of its dtype, with `offsets`.

    Question i has t_i scored tokens. The scores of all letters of a choice question are one stored signal. Of an open
    question, those of the right answer and those of the wrong options are two stored signals.
    """

    declares = TokenScores
    ragged = True
    """Texts differ in length."""
    bounds_are = "questions whose entropies, if they are used, are lower bounds"
    bounds_leave = "true ones may be higher by, in nats,"

    @property
    def continuations(self) -> Continuations:
        """What the model reads after the prompt: answer, samples or options, each without its last token."""
        return {
            Of.ANSWER: Continuations(AnswerSpan.ANSWER_PREDICTING),
            Of.TRACE: Continuations(trace=True),
            Of.SAMPLES: Continuations(samples=frozenset({self.signal.samples})),
            Of.OPTIONS: Continuations(),
            Of.GOLD: Continuations(gold=True),
            Of.WRONG: Continuations(wrong=True),
        }[self.signal.of]

    @property
    def unanswered(self) -> Arrays | None:
        """Arrays without rows for an empty answer; None for other texts, which are scored in any case."""
        return self._empty_scores() if self.signal.of is Of.ANSWER else None

    def unsupported_reason(self, task: Task, prompts: PromptTokeniser) -> str | None:
        """Return why answers have no trace, or why tokens of samples can't be read; None for other texts."""
        reasons = {Of.TRACE: prompts.no_traces_reason, Of.SAMPLES: prompts.no_sample_states_reason}
        return reasons.get(self.signal.of)

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """Return the definitions of the stored signals from which the scores are taken.

        Scores of some option letters are taken from the stored scores of all letters. Scores of samples of one token
        are computed from hidden states at the prompts' ends.
        """
        of, choice = self.signal.of, fmt is Format.CHOICE
        if of is Of.SAMPLES:
            ids = sample_sources(self.signal.samples, max_new_tokens)
            return ids if max_new_tokens == 1 else (self, *ids)
        if of in {Of.ANSWER, Of.TRACE} or choice == (of is Of.OPTIONS):
            return (self,)
        return (self._with_texts(Of.OPTIONS),) if choice else (self._with_texts(Of.GOLD), self._with_texts(Of.WRONG))

    def _with_texts(self, of: Of) -> TokenScoresDefinition:
        return TokenScoresDefinition(replace(self.signal, of=of))

    def name(self, settings: PromptSettings, seed: int) -> str:
        """Return the signal's name in store keys.

        For scores of samples it contains the seed, and for those of option letters a digest of the letters' token ids.
        """
        added = {Of.SAMPLES: f" seed {seed}", Of.OPTIONS: f" {digest_arrays([settings.letter_ids])}"}
        return f"{super().name(settings, seed)}{added.get(self.signal.of, '')}"

    def take(self, batch: DecodeBatch) -> Sequence[Sequence[PendingArrays]]:
        """Return each question's scores from float32 logits: an array `(t_i, ...)` per field of `TokenScores.dtype`.

        Raises:
            UserError: `top` is larger than the vocabulary.
        """
        import torch

        # questions of one prompt share its answer and trace only
        per_item = self.signal.of not in {Of.ANSWER, Of.TRACE}
        places = [(i, m) for i, group in enumerate(batch.items) for m in range(len(group) if per_item else 1)]
        of, letters, items = self.signal.of, batch.settings.letter_ids, batch.items
        texts: list[Sequence[Ids]] = [
            batch.samples[self.signal.samples, i, m]
            if of is Of.SAMPLES
            else list(letters[: items[i][m].options, None])
            if of is Of.OPTIONS
            else [items[i][m].prompt[slice(*items[i][m].trace)]]
            if of is Of.TRACE
            else {Of.ANSWER: [batch.answers[i]], Of.GOLD: [items[i][m].gold], Of.WRONG: items[i][m].wrong}[of]
            for i, m in places
        ]
        sizes = [sum(map(len, group)) for group in texts]
        flat = np.concatenate([NOTHING, *(ids for group in texts for ids in group)])
        nodes: Sequence[int] = range(len(flat))
        if of is not Of.TRACE:
            nodes = [
                node for (i, _), group in zip(places, texts, strict=True) for node in batch.continuation_nodes(i, group)
            ]
        pairs = dict.fromkeys(zip(nodes, flat.tolist(), strict=True))  # shared prefixes of the texts are scored once
        if of is Of.TRACE:
            assert batch.trace_states is not None  # noqa: S101  # the extractor keeps them for this signal
            states = batch.trace_states
        else:
            states = batch.states(1.0, [node for node, _ in pairs])
        ids = batch.ids_of(np.asarray([token for _, token in pairs], dtype=np.int32))
        parts = []
        for first in range(0, max(1, len(ids)), CHUNK):
            logits = batch.lm.head.logits(states[first : first + CHUNK])
            self._check(logits)
            parts.append(_scores(logits, ids[first : first + CHUNK], self.signal))
        joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        if len(pairs) < len(nodes):
            rows = {pair: row for row, pair in enumerate(pairs)}
            index = torch.as_tensor([rows[pair] for pair in zip(nodes, flat.tolist(), strict=True)], device=ids.device)
            joined = {name: column[index] for name, column in joined.items()}
        columns = {name: torch.split(column, sizes) for name, column in joined.items()}
        values = [{name: column[i] for name, column in columns.items()} for i in range(len(sizes))]
        if not per_item:
            return batch.repeat_per_question(values)
        ends = np.cumsum([0, *map(len, batch.items)])
        return [values[start:stop] for start, stop in pairwise(ends)]

    def needs(self, fmt: Format) -> Ability:
        """Return what a server has to give: the likeliest tokens, which bound the entropy; given texts, if not its own.

        Scores of samples have no entropy, so they serve the signal `Samples` alone; letters' are read from whole
        distributions.
        """
        of, least = self.signal.of, Ability.WHOLE if self.signal.divergence else Ability.TOP
        if of is Of.TRACE:
            return Ability.TRACES | (Ability.STATES if self.signal.divergence else Ability.TOP | Ability.GIVEN)
        if of is Of.SAMPLES:
            return Ability.WHOLE if fmt is Format.CHOICE else Ability.SAMPLED
        if of is not Of.ANSWER:
            least |= Ability.WHOLE if fmt is Format.CHOICE else Ability.GIVEN
        return least

    def prefers(self, fmt: Format) -> Ability:
        """Return what exact values need: whole distributions, for the entropy."""
        return self.needs(fmt) | Ability.WHOLE

    def ask(self, requests: QuestionRequests) -> Arrays:
        """Return the scores of a question's texts, an array `(t_i, ...)` per field of `TokenScores.dtype`."""
        import torch

        of, item = self.signal.of, requests.item
        if of is Of.OPTIONS:  # letters, of one token each
            letters = torch.as_tensor(requests.settings.letter_ids[: item.options], dtype=torch.long)
            return _scores(torch.tensor(requests.first)[None], letters, self.signal, [0] * len(letters))
        if of is Of.TRACE:
            return self._arrays(requests.trace_scores()) if len(range(*item.trace)) else self._empty_scores()
        samples = self.signal.samples if of is Of.SAMPLES else None
        texts: Sequence[Ids] = requests.sampled_ids(samples) if samples else item.wrong
        if of in {Of.ANSWER, Of.GOLD}:
            texts = [requests.answer if of is Of.ANSWER else item.gold]
        parts = [self._empty_scores(), *(self._arrays(requests.scores(ids, samples)) for ids in texts if len(ids))]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _arrays(self, scored: Scored) -> Arrays:
        import torch

        top, likeliest = self.signal.top, scored.top_log_probabilities
        if max(top, self.signal.mean_of) > likeliest.shape[1]:
            raise UserError(f"{self.signal!r}: expected at most {likeliest.shape[1]} tokens from a server")
        tops = {"top_ids": scored.top_ids[:, :top], "top_log_probabilities": likeliest[:, :top]}
        fields = {**vars(scored), **tops, "top_mean": likeliest[:, : self.signal.mean_of or None].mean(axis=1)}
        missing = np.full(len(scored.ids), np.nan, dtype=np.float32)
        return {n: torch.as_tensor(missing if fields[n] is None else fields[n]) for n in self._empty_scores()}

    def _empty_scores(self) -> Arrays:
        import torch

        most = max(self.signal.top, self.signal.mean_of)
        return _scores(torch.zeros(0, most + 1), torch.zeros(0, dtype=torch.long), self.signal)

    def _check(self, logits: torch.Tensor) -> None:
        if max(self.signal.top, self.signal.mean_of) > logits.shape[-1]:
            raise UserError(f"{self.signal!r}: expected at most {logits.shape[-1]} tokens, the whole vocabulary")

    def column(self, split: StoredSplit) -> Ragged:
        """Return a `Ragged` of `TokenScores.dtype`, `(t_i,)` for each question."""
        if self.signal.of in {Of.ANSWER, Of.TRACE}:
            return self.stored(split)
        if self.signal.of is Of.SAMPLES:
            return self._sampled(split)
        ids: Any = definition(TokenIds(self.signal.of)).column(split)
        parts = [source.signal.of for source in self.sources(split.split_data.task.format, 0)]
        stored = [(_option_orders(split, of), self._with_texts(of).stored(split)) for of in parts]
        values = []
        for i, order in enumerate(_option_orders(split, self.signal.of)):
            option_scores: dict[int, npt.NDArray[np.void]] = {}  # option's index in the data -> its scores
            for orders, scores in stored:
                ends = np.cumsum([len(split.options[i][k]) for k in orders[i]])[:-1]
                option_scores |= zip(orders[i], np.split(scores[i], ends), strict=True)
            values += [option_scores[k] for k in order]
        return Ragged(np.concatenate(values), ids.offsets, ids.owner)

    def stored(self, split: StoredSplit) -> Ragged:
        """Return the stored scores of this signal as a `Ragged` without `owner`, the index of each token's text."""
        arrays = split.arrays(self.signal)
        return Ragged(self._records(arrays), arrays["offsets"])

    def _sampled(self, split: StoredSplit) -> Ragged:
        import torch

        sampling = self.signal.samples
        if split.settings.max_new_tokens > 1:
            ids = join_texts(list(sampled_ids(split, sampling)))
            return replace(self.stored(split), owner=ids.owner)
        texts, values = [], [self._records({name: value.numpy() for name, value in self._empty_scores().items()})]
        for letters, logits in sample_letters(split, sampling):
            self._check(logits)
            tokens = join_texts(letters)
            rows = np.repeat(np.arange(len(letters)), tokens.lengths).tolist()
            scores = _scores(logits, logits.new_tensor(tokens.values, dtype=torch.long), self.signal, rows)
            values.append(self._records({name: value.cpu().numpy() for name, value in scores.items()}))
            texts += letters
        return replace(join_texts(texts), values=np.concatenate(values))

    def synthesize(self, data: SyntheticQuestions) -> Ragged:
        """Return synthetic scores by the synthetic output head; at higher certainty the answer is likelier."""
        import torch

        texts = data.texts.get(self.signal.of)
        if texts is not None:
            ids, states = texts.ids, texts.states
        else:
            groups = data.samples(self.signal.samples) if self.signal.of is Of.SAMPLES else data.unlabelled
            ids = join_texts([[ids for ids, _ in group] for group in groups])
            states = np.concatenate([rows for group in groups for _, rows in group])
        logits = torch.from_numpy(states @ data.output_head.T)
        scores = _scores(logits, torch.as_tensor(ids.values), self.signal)
        return Ragged(self._records({name: value.numpy() for name, value in scores.items()}), ids.offsets, ids.owner)

    def _records(self, arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.void]:
        records = np.empty(len(arrays["log_probability"]), dtype=self.signal.dtype)
        for name in self.signal.dtype.names or ():
            records[name] = arrays[name]
        return records


def _option_orders(split: StoredSplit, of: Of) -> list[list[int]]:
    """Return the indices of the options whose scores are returned, for each question and in that order.

    `of` selects all options, the right one, or the wrong ones.
    """
    if of is Of.OPTIONS:
        return split.unlabelled
    pairs = [(range(len(question.choices)), question.gold) for question in split.questions]
    return [[k for k in numbers if (k == gold) == (of is Of.GOLD)] for numbers, gold in pairs]


def _scores(logits: torch.Tensor, ids: torch.Tensor, signal: TokenScores, rows: Sequence[int] | None = None) -> Arrays:
    """Compute the fields of `TokenScores.dtype` for m tokens, on the logits' device.

    Args:
        logits: `(k, v)` float32, with vocabulary size v.
        ids: `(m,)` token ids, on the same device.
        signal: selects the optional fields.
        rows: `(m,)` index of the row of `logits` that predicts each token; by default row i predicts token i.
    """
    import torch

    log_probabilities = logits.log_softmax(dim=-1)
    entropy = torch.special.entr(log_probabilities.exp()).sum(dim=-1)  # 0 where a token is impossible
    scores = {"entropy": entropy}
    if signal.divergence:
        scores["divergence"] = _divergence(log_probabilities)
    if signal.mean_of:
        scores["top_mean"] = log_probabilities.topk(signal.mean_of, dim=-1).values.mean(dim=-1)
    if signal.top:
        likeliest = log_probabilities.topk(signal.top, dim=-1)
        scores |= {"top_ids": likeliest.indices, "top_log_probabilities": likeliest.values}
    if rows is not None:
        at = torch.as_tensor(rows, dtype=torch.long, device=logits.device)
        log_probabilities, scores = log_probabilities[at], {name: value[at] for name, value in scores.items()}
    scores["log_probability"] = log_probabilities.gather(-1, ids[:, None])[:, 0]
    return scores


def _divergence(log_probabilities: torch.Tensor) -> torch.Tensor:
    """Return KL(uniform || p) in nats, `(k,)`, from log p `(k, v)`; tokens of probability 0 are left out."""
    possible = log_probabilities.isfinite()
    count = possible.sum(dim=-1)
    return -log_probabilities.where(possible, 0).sum(dim=-1) / count - count.log()


DEFINITION = TokenScoresDefinition
