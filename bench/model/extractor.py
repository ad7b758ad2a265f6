"""One shard of questions -> answers and signals: generate or re-read, grow what is asked for, keep what it shows."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from itertools import count

import numpy as np
import torch

from bench.api import Samples, Signal, UserError
from bench.model.batch_planner import BatchPlanner
from bench.model.continuation_specs import (
    NOTHING,
    AnswerSpan,
    Arrays,
    ContinuationSpec,
    Generation,
    ModelInput,
    PendingArray,
    UserTurn,
)
from bench.model.continuation_tree import ContinuationTree, read_together
from bench.model.decode_batch import DecodeBatch, Replies, SignalSpec
from bench.model.devices import ALONE, BatchLimits, followed_together
from bench.model.language_model import LanguageModel
from bench.model.memory import is_out_of_memory
from bench.model.sampling import beside_rows, draw
from bench.model.upload_buffer import fetched
from bench.prompts.front_coding import Ids
from bench.prompts.prompt_settings import PromptSettings

Values = dict[Signal, list[list[Arrays]]]
"""Signal -> its value for each question of each distinct prompt of a pass, on the host."""
_LONG = 2
"""Budgets that the answers of a pack may take together, where there are several."""
_FULL = 1024
"""Tokens from which on a pass is no longer bound by its launches."""
VERSION = 2
"""Part of every signal's key; raised when what an extractor computes changes."""


@dataclass
class Cost:
    """Cost of reading a stage."""

    forward_tokens: int = 0
    seconds: float = 0.0


@dataclass
class ShardOutput:
    """A shard's answers and signals."""

    answers: list[Ids]
    columns: dict[Signal, Arrays]
    costs: dict[str, Cost] = field(default_factory=dict)
    halvings: int = 0
    """Number of times that a pack did not fit into memory and was halved."""
    bytes_per_token: int = 0
    """Size of one position in the cache; 0 where nothing was read with one."""


class Extractor:
    """Reads shards on one model for one set of signals."""

    def __init__(
        self,
        lm: LanguageModel,
        asking: PromptSettings,
        measures: Mapping[Signal, SignalSpec],
        stage: str | None = None,
        together: BatchLimits | None = None,
    ) -> None:
        """Plan what to read.

        Args:
            lm: the model.
            asking: what is the same for all questions.
            measures: what is wanted, and how it is taken from a pass.
            stage: under which name to count everything; by default each part under its own.
            together: which packs are followed side by side; by default those that the device can take.
        """
        self.lm = lm
        self.together = together or followed_together(*lm.devices)
        self.stage = stage
        self.asking = asking
        self.measures = measures
        self.last = lm.blocks
        depths = {depth for measure in measures.values() for depth in measure.depths}
        self.blocks = sorted({self.last, *map(lm.block_of, depths)})
        self.demands = [*measures.values()]
        """Measures by which passes are planned, also where no values are taken of them."""
        self.growth = ContinuationSpec.union(measure.growth for measure in self.demands)

    def measure(self, items: Sequence[ModelInput]) -> ShardOutput:
        """Read a shard; answers that are not given are generated greedily."""
        self.costs: dict[str, Cost] = {}
        self.halvings = 0
        known = (self.asking.letter_ids, self.asking.verdict_ids)
        self.rows = {ids.tobytes(): self.lm.session.send(ids) for ids in known}
        values = {signal: [measure.unanswered or {}] * len(items) for signal, measure in self.measures.items()}
        answers = [NOTHING] * len(items)
        alike: dict[tuple[bytes, bytes], list[int]] = {}  # one prompt and one given answer: they are read once
        for i, one in enumerate(items):
            if one.answer is None or any(len(one.answer) or each.unanswered is None for each in self.demands):
                answer = b"" if one.answer is None else one.answer.tobytes()
                alike.setdefault((one.prompt.tobytes(), answer), []).append(i)
        members = list(alike.values())
        for rows, said, found in self._passes([[items[i] for i in group] for group in members]):
            groups = [members[row] for row in rows]
            for signal, given in found.items():
                for group, own in zip(groups, given, strict=True):
                    for i, value in zip(group, own, strict=True):
                        values[signal][i] = value
            for group, text in zip(groups, said, strict=True):
                for i in group:
                    answers[i] = text
        columns: dict[Signal, Arrays] = {}
        for signal, measure in self.measures.items():
            names, join = values[signal][0], torch.cat if measure.ragged else torch.stack
            columns[signal] = {name: join([value[name] for value in values[signal]]) for name in names}
            if measure.ragged:
                sizes = torch.tensor([0, *(len(next(iter(value.values()))) for value in values[signal])])
                columns[signal]["offsets"] = sizes.cumsum(0)
        return ShardOutput(answers, columns, self.costs, self.halvings, self.lm.session.bytes_per_token)

    # --- packs --------------------------------------------------------------------------------------------------------

    def _passes(self, groups: list[list[ModelInput]]) -> Iterator[tuple[list[int], list[Ids], Values]]:
        """Every decode batch, followed to its end; yields which groups are in it, their answers and what was taken."""
        session = self.lm.session
        if not self.lm.packed:
            for row, group in enumerate(groups):
                prompt = group[0].prompt
                with self._counted(self._first_stage(group[0])):
                    states = session.read_alone(prompt, dict.fromkeys(self.blocks, np.asarray([len(prompt) - 1])))
                yield [row], *self._followed([group], ContinuationTree(session, [prompt], states))
            return
        limits, most, items = self.together, self.asking.max_new_tokens, [group[0] for group in groups]
        size = 0 if limits == ALONE else session.measured_bytes()
        decodes = any(item.answer is None for item in items) or bool(self.growth.samples)
        if not decodes or most <= 1:  # a pass has the query of each, and need not be larger
            queries = -(-_FULL // (1 + len(self.asking.suffix)))
            limits = replace(limits, sequences=min(queries, limits.sequences))
        usual = max(_LONG * self.asking.budget, limits.sequences * most)

        def too_long(rows: Sequence[int]) -> bool:
            """Whether answers that are read back have more tokens together than generated ones can have."""
            return sum(len(answer) for row in rows if (answer := items[row].answer) is not None) > usual

        decode_batches = BatchPlanner([item.prompt for item in items], self.asking.budget, limits, size, too_long)
        for decode_batch in decode_batches:
            rows = [row for planned in decode_batch for row in planned.rows]
            packs = [(planned.pack, planned.leaves) for planned in decode_batch]
            stage = self._first_stage(groups[rows[0]][0])
            try:
                with self._counted(stage):
                    starts, states = read_together(session, packs, self.asking.budget, self.blocks)
                found = self._followed([groups[row] for row in rows], ContinuationTree(session, starts, states))
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                if not decode_batches.halve(decode_batch):  # it comes back in smaller ones
                    raise UserError(
                        f"A single prompt of {len(decode_batches.prompts[rows[0]])} tokens does not fit into the memory"
                        f" of {self.lm.device}. Use a smaller --dtype, a larger device, or --set protocol.shots=0."
                    ) from error
                self.halvings += 1
                session.reset()
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                continue
            session.leave()
            yield rows, *found

    def _first_stage(self, item: ModelInput) -> str:
        """The stage for which a prompt is read: before a given answer, that of what comes next."""
        if self.stage is not None or item.answer is None:
            return self.stage or "answers"
        if self.growth.answer > AnswerSpan.NOTHING:
            return "query"
        return "samples" if all(measure.growth.samples for measure in self.demands) else "continuations"

    # --- what grows ---------------------------------------------------------------------------------------------------

    def _followed(self, items: list[list[ModelInput]], tree: ContinuationTree) -> tuple[list[Ids], Values]:
        """Continue from the prompts' ends; returns answers, and all that is taken of the pass."""
        answers = [group[0].answer for group in items]
        given = [NOTHING if answer is None else answer for answer in answers]
        done = DecodeBatch(self.lm, self.asking, items, tree, given, dict(self.rows))
        if any(answer is None for answer in answers):
            with self._counted("answers", done):  # greedily (docs/methods.md §0.5)
                done.answers = [*self._decode(done, {Generation(i): i for i in range(len(items))}).values()]
        with self._counted("query", done):
            self._grow_answers(done)
        with self._counted("continuations", done):
            for i, item in ((i, item) for i, group in enumerate(items) for item in group):
                if self.growth.gold:
                    tree.grow(i, item.gold[:-1])
                for option in item.wrong if self.growth.wrong else ():
                    tree.grow(i, option[:-1])
            tree.read()
        with self._counted("samples", done):
            self._grow_samples(done)
        return done.answers, taken(self.measures, done)

    def _decode(
        self, done: DecodeBatch, starts: Mapping[Generation, int], sampling: Samples | None = None
    ) -> dict[Generation, Ids]:
        """Write texts side by side, each up to a stop token or its limit; the last token of a limit is not read.

        Args:
            done: the pass on whose tree they grow.
            starts: text -> the node that it follows.
            sampling: how tokens are drawn; None: greedily.
        """
        written: dict[Generation, list[int]] = {text: [] for text in starts}
        nodes = dict(starts)
        for step in count():
            if not nodes:
                break
            tokens = self._next_tokens(done, nodes, sampling, step)
            following = {}
            for (text, node), token in zip(nodes.items(), tokens, strict=True):
                if token in self.lm.stops:
                    continue
                written[text].append(token)
                if len(written[text]) < self.limit(text):
                    following[text] = done.tree.grow(node, [token])[0]
            nodes = following
        return {text: np.asarray(tokens, dtype=np.int32) for text, tokens in written.items()}

    def limit(self, text: Generation) -> int:
        """Tokens of a text at most."""
        return text.kind.say if isinstance(text.kind, UserTurn) else self.asking.max_new_tokens

    def _next_tokens(
        self, done: DecodeBatch, nodes: Mapping[Generation, int], sampling: Samples | None, step: int
    ) -> list[int]:
        """Read what is new on the tree and choose the token of every text that follows its node.

        Samples that begin alike, or like the answer, stand at one node: it is read once, and its logits are computed
        once.
        """
        if sampling is None:
            done.tree.read()
            return done.logits(list(nodes.values())).argmax(dim=-1).tolist()
        distinct = sorted(set(nodes.values()))
        place = {node: row for row, node in enumerate(distinct)}
        rows = [place[node] for node in nodes.values()]
        items = [done.items[text.row][text.question] for text in nodes]
        uniforms = [
            item.uniforms[text.number, step]  # type: ignore[index]  # given whenever samples are asked for
            for item, text in zip(items, nodes, strict=True)
        ]
        done.tree.expect(distinct)
        table = done.tree.session.send(beside_rows(rows, uniforms, len(distinct)))  # goes up with the pass
        done.tree.read(self._sampled_blocks)
        return draw(done.logits(distinct), rows, table.tensor, sampling.temperature, sampling.top_p)

    def _grow_answers(self, done: DecodeBatch) -> None:
        """Each answer as far as a signal needs it, and the user turns after it."""
        upto, turns = self.growth.answer, sorted(self.growth.turns)
        asked = [i for i, answer in enumerate(done.answers) if len(answer)]
        alone = any(done.items[i][0].query_prompt is not None for i in asked)
        ends: dict[UserTurn, list[int]] = {turn: [] for turn in turns}
        for i, answer in enumerate(done.answers):
            kept = (
                answer
                if upto is AnswerSpan.ANSWER_END
                else answer[:-1]
                if upto is AnswerSpan.ANSWER_PREDICTING
                else NOTHING
            )
            done.paths.append(done.tree.grow(i, kept))
            for turn in turns if len(answer) and not alone else ():  # in this order, on which last bits depend
                ends[turn].append(done.tree.grow(done.paths[i][-1], self.asking.turns[turn.wording])[-1])
        done.expect()
        for nodes in ends.values():
            done.tree.expect(nodes)
        done.tree.read()
        if not alone:
            done.replies = {turn: Replies(asked, done.tree, nodes) for turn, nodes in ends.items()}
            self._reply(done, turns)
        for turn in turns if alone else ():
            # conversations that don't continue the answering prompts are read whole, on a tree of their own whose first
            # states stand in place of those before answers
            before = [prompt for i in asked if (prompt := done.items[i][0].query_prompt) is not None]
            states = {block: done.tree.states(block, asked) for block in self.blocks}
            tree, ids = ContinuationTree(self.lm.session, before, states), self.asking.turns[turn.wording]
            leaves = [tree.grow(k, np.concatenate([done.answers[i], ids]))[-1] for k, i in enumerate(asked)]
            tree.read()
            done.replies[turn] = Replies(asked, tree, leaves)
            self._reply(replace(done, tree=tree), [turn])

    def _reply(self, done: DecodeBatch, turns: Sequence[UserTurn]) -> None:
        """Greedy replies to the turns that want one, side by side."""
        starts = {
            Generation(i, turn): node
            for turn in turns
            if turn.say
            for i, node in zip(done.replies[turn].asked, done.replies[turn].nodes, strict=True)
        }
        for text, ids in self._decode(done, starts).items():
            assert isinstance(text.kind, UserTurn)  # noqa: S101  # for the type checker
            done.replies[text.kind].said.append(ids)

    def _grow_samples(self, done: DecodeBatch) -> None:
        """Samples of all questions, stored or drawn, as far as drawing reads them; their ends where wanted."""
        for sampling in sorted(self.growth.samples, key=astuple):
            if all(sampling in item.samples for group in done.items for item in group):
                for i, group in enumerate(done.items):
                    done.samples |= {(sampling, i, m): item.samples[sampling] for m, item in enumerate(group)}
            else:
                groups = [(i, m) for i, group in enumerate(done.items) for m in range(len(group))]
                texts = [Generation(i, sampling, m, j) for i, m in groups for j in range(sampling.n)]
                written = self._decode(done, {text: text.row for text in texts}, sampling)
                for i, m in groups:
                    own = [written[Generation(i, sampling, m, j)] for j in range(sampling.n)]
                    done.samples[sampling, i, m] = own
        for (sampling, i, _), samples in done.samples.items():
            for ids in samples:
                whole = sampling in self.growth.sample_ends or len(ids) < self.asking.max_new_tokens
                done.tree.grow(i, ids if whole else ids[:-1])
        done.tree.read(self._sampled_blocks)

    @property
    def _sampled_blocks(self) -> list[int]:
        """Blocks of which samples' states are read; nothing grows after them."""
        return self.blocks if self.growth.sample_ends else [self.last]

    @contextmanager
    def _counted(self, stage: str, _done: DecodeBatch | None = None) -> Iterator[None]:
        """Add the tokens and seconds of a block of code to a stage's cost; the pass is for subclasses."""
        cost, session = self.costs.setdefault(self.stage or stage, Cost()), self.lm.session
        before, start = session.tokens, time.perf_counter()
        try:
            yield
        finally:
            cost.forward_tokens += session.tokens - before
            cost.seconds += time.perf_counter() - start


def taken(measures: Mapping[Signal, SignalSpec], done: DecodeBatch) -> Values:
    """Everything that is wanted of a pass, brought down from the device in one copy.

    A state that several measures want is copied once.
    """
    found = {signal: measure.take(done) for signal, measure in measures.items()}
    cells = {
        id(value): {name: one if isinstance(one, PendingArray) else PendingArray(one) for name, one in value.items()}
        for groups in found.values()
        for group in groups
        for value in group
    }
    wanted: dict[int, set[int]] = defaultdict(set)
    tensors: dict[int, torch.Tensor] = {}
    for one in (one for cell in cells.values() for one in cell.values()):
        if isinstance(one.rows, torch.Tensor):
            tensors[id(one.rows)] = one.rows
        else:
            block, nodes = one.rows
            wanted[block].update(nodes)
    nodes_of = {block: sorted(nodes) for block, nodes in wanted.items()}
    for ordered in nodes_of.values():
        done.tree.expect(ordered)
    rows = [done.tree.states(block, ordered) for block, ordered in nodes_of.items()]
    copies = fetched([*rows, *tensors.values()])
    states, copied = dict(zip(nodes_of, copies, strict=False)), dict(zip(tensors, copies[len(rows) :], strict=True))
    numbers = {block: np.asarray(ordered, dtype=np.int64) for block, ordered in nodes_of.items()}

    def value_of(one: PendingArray) -> torch.Tensor:
        if isinstance(one.rows, torch.Tensor):
            return one.then(copied[id(one.rows)].clone())  # nothing is kept of the whole copy
        block, nodes = one.rows
        places = np.searchsorted(numbers[block], np.asarray(nodes, dtype=np.int64))
        return one.then(states[block][torch.as_tensor(places)])

    down = {key: {name: value_of(one) for name, one in cell.items()} for key, cell in cells.items()}
    return {signal: [[down[id(value)] for value in group] for group in groups] for signal, groups in found.items()}
