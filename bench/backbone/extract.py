"""One shard of questions -> answers and signals: generate or re-read, continue with the query, keep what was asked for.

The state table of a question has L + 1 rows for an answer of L tokens: row 0 is the prompt's end, row j the state after
answer token j. `PROMPT_END` is row 0, `ANSWER_PREDICTING` rows 0 ... L-1, `ANSWER_END` row L (architecture.md §6).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from bench.api import At, ChoiceLogits, Hidden, QueryLogits, Signal
from bench.backbone.hf import Backbone
from bench.backbone.prefix import Ids, Pack, plan_packs
from bench.backbone.session import Alone, Branches, read_alone, read_pack
from bench.errors import UserError

VERSION = 1
"""Part of every signal's key; raised when what an extractor computes changes."""

Arrays = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Asking:
    """What is the same for all questions of a run on one model."""

    max_new_tokens: int
    letter_ids: Ids
    """Ids of the option letters where an answer begins, as many as the largest number of options."""
    suffix: Ids
    """Ids of the self-check turn, after the answer."""
    suffix_continues: bool
    """Whether that turn may continue on the answer's cache."""
    verdict_ids: Ids
    """Ids of (no, yes)."""
    budget: int
    """Tokens in one pack."""


@dataclass
class Cost:
    """What reading took."""

    forward_tokens: int = 0
    padded_tokens: int = 0
    seconds: float = 0.0


@dataclass
class Measured:
    """A shard's answers and signals."""

    answers: list[Ids]
    columns: dict[Signal, Arrays]
    costs: dict[str, Cost] = field(default_factory=dict)
    halvings: int = 0
    """How often a pack did not fit into memory and was halved."""


@dataclass
class _Trace:
    """What was read of the questions of one pack."""

    first_logits: torch.Tensor | None
    """(n, v) at the prompt's end, float32."""
    states: dict[int, list[torch.Tensor]]
    """Block -> chunks of rows of the state tables."""
    owners: list[npt.NDArray[np.int64]]
    """For each chunk, the question of each row."""
    answers: list[Ids]
    verdicts: torch.Tensor
    """(n, 2) logits of no and yes; NaN where there is no answer."""

    def rows(self, block: int) -> list[torch.Tensor]:
        """The state table of each question at a block."""
        owner = np.concatenate(self.owners)
        order = torch.as_tensor(np.argsort(owner, kind="stable"))
        sizes = np.bincount(owner, minlength=len(self.answers))
        return list(torch.split(torch.cat(self.states[block]).cpu()[order], sizes.tolist()))


class Extractor:
    """Reads shards on one backbone for one set of signals."""

    def __init__(self, backbone: Backbone, asking: Asking, signals: Sequence[Signal]) -> None:
        self.backbone = backbone
        self.asking = asking
        self.signals = list(signals)
        hidden = [s for s in self.signals if isinstance(s, Hidden)]
        self.blocks = sorted({backbone.blocks, *(backbone.block_of(s.depth) for s in hidden)})
        self.wants_query = any(isinstance(s, QueryLogits) for s in self.signals)
        self.wants_end = any(s.at is At.ANSWER_END for s in hidden)
        self.wants_rows = any(s.at is At.ANSWER_PREDICTING for s in hidden)

    def measure(self, prompts: Sequence[Ids], options: Sequence[int], answers: Sequence[Ids] | None) -> Measured:
        """Read a shard; without `answers` they are generated greedily, else these are read.

        Args:
            prompts: n prompts.
            options: `(n,)` number of options of each question; 0 for open questions.
            answers: n generated answers, or None.
        """
        distinct, row_of = _distinct(prompts, answers)
        given = None if answers is None else [answers[i] for i in distinct]
        self.costs: dict[str, Cost] = {}
        self.halvings = 0
        values: dict[Signal, list[torch.Tensor]] = {s: [torch.empty(0)] * len(distinct) for s in self.signals}
        got: list[Ids] = [np.zeros(0, dtype=np.int32)] * len(distinct)
        for rows, trace in self._traces([prompts[i] for i in distinct], given):
            for signal in self.signals:
                for row, value in zip(rows, EXTRACTORS[type(signal)](self, signal, trace), strict=True):
                    values[signal][row] = value
            for row, answer in zip(rows, trace.answers, strict=True):
                got[row] = answer
        columns = {s: _column(s, [values[s][i] for i in row_of], options) for s in self.signals}
        return Measured([got[i] for i in row_of], columns, self.costs, self.halvings)

    def _traces(self, prompts: list[Ids], given: list[Ids] | None) -> list[tuple[list[int], _Trace]]:
        if not self.backbone.packed:
            return [([i], self._alone(prompts[i], None if given is None else given[i])) for i in range(len(prompts))]
        out: list[tuple[list[int], _Trace]] = []
        queue = [(pack, np.arange(len(prompts))) for pack in plan_packs(prompts, self.asking.budget)]
        while queue:
            pack, names = queue.pop(0)
            rows = [int(names[r]) for r in pack.rows]
            try:
                out.append((rows, self._packed(pack, None if given is None else [given[r] for r in rows])))
            except (torch.OutOfMemoryError, RuntimeError) as error:
                queue[:0] = self._halved(rows, prompts, pack, error)
        return out

    def _halved(
        self, rows: list[int], prompts: list[Ids], pack: Pack, error: Exception
    ) -> list[tuple[Pack, npt.NDArray[np.int64]]]:
        """The same questions in packs of half the size, after a pack did not fit into memory."""
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise error
        if len(rows) == 1:
            raise UserError(
                f"A single prompt of {len(prompts[rows[0]])} tokens does not fit into the memory of"
                f" {self.backbone.device}. Use a smaller --dtype, a larger device, or --set protocol.shots=0."
            ) from error
        self.halvings += 1
        self.backbone.session.reset()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        smaller = plan_packs([prompts[r] for r in rows], max(1, len(pack.tokens) // 2))
        return [(piece, np.asarray(rows)) for piece in smaller]

    def _packed(self, pack: Pack, given: list[Ids] | None) -> _Trace:
        session = self.backbone.session
        with self._counted("answers" if given is None else "query"):
            branches, states = read_pack(session, pack, self.asking.budget, self.blocks)
        return self._follow(branches, states, given)

    def _alone(self, prompt: Ids, given: Ids | None) -> _Trace:
        with self._counted("answers" if given is None else "query"):
            branches, states = read_alone(self.backbone.session, [prompt], self.blocks)
        return self._follow(branches, states, None if given is None else [given])

    def _follow(self, branches: Branches | Alone, states: dict[int, torch.Tensor], given: list[Ids] | None) -> _Trace:
        """From the prompt's end on: the answer, then the query."""
        n = len(next(iter(states.values())))
        needs_logits = given is None or any(isinstance(s, ChoiceLogits) for s in self.signals)
        logits = self.backbone.head.logits(states[self.backbone.blocks]) if needs_logits else None
        trace = _Trace(
            logits,
            {block: [rows] for block, rows in states.items()},
            [np.arange(n)],
            given if given is not None else [np.zeros(0, dtype=np.int32)] * n,
            torch.full((n, 2), float("nan")),
        )
        read = np.zeros(n, dtype=np.int64)  # answer tokens that are in the cache already
        if given is None:
            assert logits is not None  # noqa: S101  # they are computed whenever answers are generated
            with self._counted("answers"):
                read = self._generate(branches, trace, logits)
        with self._counted("query"):
            self._continue(branches, trace, read)
        return trace

    def _generate(self, branches: Branches | Alone, trace: _Trace, logits: torch.Tensor) -> npt.NDArray[np.int64]:
        """Greedy answers (methods.md §0.5); returns how many tokens of each were read back in."""
        n = len(logits)
        answers: list[list[int]] = [[] for _ in range(n)]
        read = np.zeros(n, dtype=np.int64)
        active = np.arange(n)
        for step in range(self.asking.max_new_tokens):
            chosen = logits.argmax(dim=-1).cpu().numpy()
            going = np.asarray([token not in self.backbone.stops for token in chosen], dtype=np.bool_)
            active, chosen = active[going], chosen[going]
            for i, token in zip(active, chosen, strict=True):
                answers[i].append(int(token))
            if not len(active) or step == self.asking.max_new_tokens - 1:
                break
            pieces = [np.zeros(0, dtype=np.int32)] * n
            for i, token in zip(active, chosen, strict=True):
                pieces[i] = np.asarray([token], dtype=np.int32)
            states = branches.extend(pieces, lambda o: dict.fromkeys(self.blocks, np.arange(o[-1])))
            self._keep(trace, states, active)
            read[active] += 1
            logits = self.backbone.head.logits(states[self.backbone.blocks])
        trace.answers = [np.asarray(answer, dtype=np.int32) for answer in answers]
        return read

    def _continue(self, branches: Branches | Alone, trace: _Trace, read: npt.NDArray[np.int64]) -> None:
        """Read the rest of each answer as far as a signal needs it, and the query after it."""
        answered = np.asarray([len(a) > 0 for a in trace.answers], dtype=np.bool_)
        to_the_end = self.wants_end or self.wants_query
        if not to_the_end and not self.wants_rows:
            return
        rest = [a[k:] if to_the_end else a[k : max(len(a) - 1, 0)] for a, k in zip(trace.answers, read, strict=True)]
        tail = self.asking.suffix if self.wants_query else np.zeros(0, dtype=np.int32)
        pieces = [np.concatenate([r, tail]) if ok else r[:0] for r, ok in zip(rest, answered, strict=True)]
        if not any(len(piece) for piece in pieces):
            return
        sizes = np.asarray([len(r) for r in rest]) * answered
        owner = np.repeat(np.arange(len(rest)), sizes)
        last = self.backbone.blocks

        def wanted(offsets: npt.NDArray[np.int64]) -> dict[int, npt.NDArray[np.int64]]:
            within = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            tokens = offsets[:-1][owner] + within
            ends = offsets[1:][answered] - 1 if self.wants_query else tokens[:0]
            return {block: np.concatenate([tokens, ends]) if block == last else tokens for block in self.blocks}

        states = branches.extend(pieces, wanted)
        if self.wants_query:
            ends = states[last][len(owner) :]
            verdicts = self.backbone.head.logits(ends)[:, self.asking.verdict_ids.tolist()]
            trace.verdicts[torch.as_tensor(answered)] = verdicts.cpu()
        self._keep(trace, {block: rows[: len(owner)] for block, rows in states.items()}, owner)

    @staticmethod
    def _keep(trace: _Trace, states: dict[int, torch.Tensor], owner: npt.NDArray[np.int64]) -> None:
        for block, rows in states.items():
            trace.states[block].append(rows)
        trace.owners.append(owner)

    def _counted(self, stage: str) -> _Counter:
        return _Counter(self.costs.setdefault(stage, Cost()), self.backbone)


class _Counter:
    """Adds the tokens and seconds of a block of code to a stage's cost."""

    def __init__(self, cost: Cost, backbone: Backbone) -> None:
        self.cost = cost
        self.tokens = backbone.session.tokens

    def __enter__(self) -> None:
        self.before = (self.tokens.forward, self.tokens.padded, time.perf_counter())

    def __exit__(self, *_: object) -> None:
        forward, padded, start = self.before
        self.cost.forward_tokens += self.tokens.forward - forward
        self.cost.padded_tokens += self.tokens.padded - padded
        self.cost.seconds += time.perf_counter() - start


def _distinct(prompts: Sequence[Ids], answers: Sequence[Ids] | None) -> tuple[list[int], list[int]]:
    """Indices of the distinct questions, and for each question which of them it is: a duplicate is read once."""
    seen: dict[tuple[bytes, bytes], int] = {}
    distinct: list[int] = []
    row_of = []
    for i, prompt in enumerate(prompts):
        key = (prompt.tobytes(), b"" if answers is None else answers[i].tobytes())
        if key not in seen:
            seen[key] = len(distinct)
            distinct.append(i)
        row_of.append(seen[key])
    return distinct, row_of


def _hidden(extractor: Extractor, signal: Signal, trace: _Trace) -> list[torch.Tensor]:
    assert isinstance(signal, Hidden)  # noqa: S101  # the table below pairs them
    tables = trace.rows(extractor.backbone.block_of(signal.depth))
    lengths = [len(answer) for answer in trace.answers]
    if signal.at is At.PROMPT_END:
        return [table[0] for table in tables]
    if signal.at is At.ANSWER_END:
        return [table[n] for table, n in zip(tables, lengths, strict=True)]
    return [table[:n] for table, n in zip(tables, lengths, strict=True)]


def _choice_logits(extractor: Extractor, _signal: Signal, trace: _Trace) -> list[torch.Tensor]:
    assert trace.first_logits is not None  # noqa: S101  # computed whenever this signal is asked for
    return list(trace.first_logits[:, extractor.asking.letter_ids.tolist()].cpu())


def _query_logits(_extractor: Extractor, _signal: Signal, trace: _Trace) -> list[torch.Tensor]:
    return list(trace.verdicts)


EXTRACTORS: Mapping[type[Signal], Callable[[Extractor, Signal, _Trace], list[torch.Tensor]]] = {
    Hidden: _hidden,
    ChoiceLogits: _choice_logits,
    QueryLogits: _query_logits,
}
"""Signal -> how it is taken from what was read of a pack: one tensor for each question."""


def _column(signal: Signal, values: list[torch.Tensor], options: Sequence[int]) -> Arrays:
    """One signal of a shard as it is stored: `values`, and `offsets` where questions have several rows."""
    if isinstance(signal, Hidden) and signal.at is At.ANSWER_PREDICTING:
        sizes = torch.tensor([0, *(len(v) for v in values)])
        return {"values": torch.cat(values), "offsets": sizes.cumsum(0)}
    stacked = torch.stack(values)
    if isinstance(signal, ChoiceLogits):
        absent = torch.arange(stacked.shape[1])[None, :] >= torch.as_tensor(options)[:, None]
        stacked = stacked.masked_fill(absent, float("-inf"))
    return {"values": stacked.contiguous()}
