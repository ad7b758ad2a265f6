"""One shard of questions -> answers and signals: generate or re-read, grow what is asked for, keep what it shows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from bench.api import Signal, UserError
from bench.backbone.beginnings import Beginnings
from bench.backbone.items import NOTHING, Item, Measure, Pass, Replies
from bench.backbone.measure import Arrays, Growth, Sampling, Turn, Upto
from bench.backbone.memory import is_out_of_memory
from bench.backbone.model import Backbone
from bench.backbone.prefix import Pack, plan_packs
from bench.backbone.sampling import draw
from bench.backbone.session import read_alone, read_pack
from bench.backbone.tree import ContinuationTree
from bench.prompts.asking import Asking
from bench.prompts.tails import Ids

VERSION = 1
"""Part of every signal's key; raised when what an extractor computes changes."""
_LONG = 2
"""Budgets that the answers of a pack may take together, where there are several."""


@dataclass
class Cost:
    """Cost of reading a stage."""

    forward_tokens: int = 0
    padded_tokens: int = 0
    beginnings: int = 0
    """Forward tokens of shared beginnings, of which others may have been in memory."""
    seconds: float = 0.0


@dataclass
class Measured:
    """A shard's answers and signals."""

    answers: list[Ids]
    columns: dict[Signal, Arrays]
    costs: dict[str, Cost] = field(default_factory=dict)
    halvings: int = 0
    """Number of times that a pack did not fit into memory and was halved."""
    beginnings: Beginnings = field(default_factory=lambda: Beginnings("answers"))
    """The shared beginnings among what was read; none where each sequence was read alone."""


class Extractor:
    """Reads shards on one backbone for one set of signals."""

    def __init__(
        self, backbone: Backbone, asking: Asking, measures: Mapping[Signal, Measure], stage: str | None = None
    ) -> None:
        """Plan what to read.

        Args:
            backbone: the model.
            asking: what is the same for all questions.
            measures: what is wanted, and how it is taken from a pass.
            stage: under which name to count everything; by default each part under its own.
        """
        self.backbone = backbone
        self.stage = stage
        self.asking = asking
        self.measures = measures
        self.last = backbone.blocks
        depths = {depth for measure in measures.values() for depth in measure.depths}
        self.blocks = sorted({self.last, *map(backbone.block_of, depths)})
        self.growth = Growth.union(measure.growth for measure in measures.values())

    def measure(self, items: Sequence[Item]) -> Measured:
        """Read a shard; answers that are not given are generated greedily."""
        self.costs: dict[str, Cost] = {}
        self.halvings = 0
        self.beginnings = Beginnings(self._first_stage(items[0]) if items else "answers")
        values = {signal: [measure.unanswered or {}] * len(items) for signal, measure in self.measures.items()}
        answers = [NOTHING] * len(items)
        members = list(_members({i: item for i, item in enumerate(items) if not self._is_unneeded(item)}).values())
        for rows, done in self._passes([[items[i] for i in group] for group in members]):
            groups = [members[row] for row in rows]
            for signal, measure in self.measures.items():
                for group, given in zip(groups, measure.take(done), strict=True):
                    for i, value in zip(group, given, strict=True):
                        values[signal][i] = value
            for group, answer in zip(groups, done.answers, strict=True):
                for i in group:
                    answers[i] = answer
        columns = {signal: _column(values[signal], measure) for signal, measure in self.measures.items()}
        self.beginnings.bytes_per_token = self.backbone.session.bytes_per_token
        return Measured(answers, columns, self.costs, self.halvings, self.beginnings)

    def _is_unneeded(self, item: Item) -> bool:
        """Whether nothing has to be read for an item: it has no answer, and all that is wanted is known without one."""
        no_answer = item.answer is not None and not len(item.answer)
        return no_answer and all(measure.unanswered is not None for measure in self.measures.values())

    # --- packs --------------------------------------------------------------------------------------------------------

    def _passes(self, groups: list[list[Item]]) -> Iterator[tuple[list[int], Pass]]:
        """Every pack, followed to its end; yields which groups are in it."""
        prompts = [group[0].prompt for group in groups]
        if not self.backbone.packed:
            for row, group in enumerate(groups):
                yield [row], self._follow([group], self._tree_alone(group[0]))
            return
        # Two questions may share a prompt and differ in stored answers: the prompt is read once, the trees are two.
        distinct = {prompt.tobytes(): prompt for prompt in prompts}
        owners: dict[bytes, list[int]] = {}
        for row, prompt in enumerate(prompts):
            owners.setdefault(prompt.tobytes(), []).append(row)
        queue = list(_named(plan_packs(list(distinct.values()), self.asking.budget), list(distinct)))
        while queue:
            pack, names = queue.pop(0)
            rows = [row for name in names for row in owners[name]]
            spread = [at for at, name in enumerate(names) for _ in owners[name]]
            if len(names) > 1 and self._is_long([groups[row][0] for row in rows]):
                queue[:0] = _smaller(pack, [distinct[name] for name in names])
                continue
            try:
                done = self._follow([groups[row] for row in rows], self._tree(pack, spread, groups[rows[0]][0]))
            except (torch.OutOfMemoryError, RuntimeError) as error:
                queue[:0] = self._halved(pack, [distinct[name] for name in names], error)
                continue
            yield rows, done

    def _halved(self, pack: Pack, prompts: list[Ids], error: Exception) -> list[tuple[Pack, list[bytes]]]:
        """The same prompts in packs of half the size, after a pack did not fit into memory."""
        if not is_out_of_memory(error):
            raise error
        if len(prompts) == 1:
            raise UserError(
                f"A single prompt of {len(prompts[0])} tokens does not fit into the memory of"
                f" {self.backbone.device}. Use a smaller --dtype, a larger device, or --set protocol.shots=0."
            ) from error
        self.halvings += 1
        self.backbone.session.reset()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return _smaller(pack, prompts)

    def _is_long(self, items: Sequence[Item]) -> bool:
        """Whether the answers that are read back are much longer than a pack, as generated ones are not."""
        return sum(len(item.answer) for item in items if item.answer is not None) > _LONG * self.asking.budget

    def _tree(self, pack: Pack, spread: list[int], first: Item) -> ContinuationTree:
        session = self.backbone.session
        with self._counted(self._first_stage(first)):
            spots, states = read_pack(session, pack, self.asking.budget, self.blocks)
        self.beginnings.add(session.path(pack))
        index = torch.as_tensor(spread, dtype=torch.long)
        return ContinuationTree(
            session, [spots[i] for i in spread], {b: rows[index.to(rows.device)] for b, rows in states.items()}
        )

    def _tree_alone(self, item: Item) -> ContinuationTree:
        session = self.backbone.session
        end = np.asarray([len(item.prompt) - 1])
        with self._counted(self._first_stage(item)):
            states = read_alone(session, item.prompt, dict.fromkeys(self.blocks, end))
        return ContinuationTree(session, [item.prompt], states)

    def _first_stage(self, item: Item) -> str:
        """The stage for which prompts are read: stored answers are read again for what comes next."""
        if self.stage is not None or item.answer is None:
            return self.stage or "answers"
        if self.growth.answer > Upto.NOTHING:
            return "query"
        return "samples" if all(measure.growth.samples for measure in self.measures.values()) else "continuations"

    # --- what grows ---------------------------------------------------------------------------------------------------

    def _follow(self, items: list[list[Item]], tree: ContinuationTree) -> Pass:
        """Continue from the prompts' ends: answers, query, other options, samples."""
        answers = [group[0].answer for group in items]
        given = [NOTHING if answer is None else answer for answer in answers]
        done = Pass(self.backbone, self.asking, items, tree, given, [])
        if any(answer is None for answer in answers):
            with self._counted("answers"):
                self._generate(done)
        with self._counted("query"):
            self._grow_answers(done)
        with self._counted("continuations"):
            self._grow_options(done)
        with self._counted("samples"):
            self._grow_samples(done)
        return done

    def _generate(self, done: Pass) -> None:
        """Greedy answers (docs/methods.md §0.5)."""
        generated: list[list[int]] = [[] for _ in done.items]
        nodes = dict(enumerate(range(len(done.items))))
        for step in range(self.asking.max_new_tokens):
            chosen = done.logits(list(nodes.values())).argmax(dim=-1).tolist()
            going = {i: token for i, token in zip(nodes, chosen, strict=True) if token not in self.backbone.stops}
            for i, token in going.items():
                generated[i].append(token)
            if not going or step == self.asking.max_new_tokens - 1:
                break
            nodes = {i: done.tree.grow(nodes[i], [token])[0] for i, token in going.items()}
            done.tree.read()
        done.answers = [np.asarray(tokens, dtype=np.int32) for tokens in generated]

    def _grow_answers(self, done: Pass) -> None:
        """Each answer as far as a signal needs it, and the user turns after it."""
        upto = self.growth.answer
        for i, answer in enumerate(done.answers):
            kept = answer if upto is Upto.ANSWER_END else answer[:-1] if upto is Upto.ANSWER_PREDICTING else NOTHING
            done.paths.append(done.tree.grow(i, kept))
        asked = [i for i, answer in enumerate(done.answers) if len(answer)]
        if asked and done.items[asked[0]][0].query_prompt is not None:
            done.tree.read()
            done.replies = {turn: self._asked_alone(done, turn, asked) for turn in sorted(self.growth.turns)}
        else:
            self._ask(done, asked)

    def _ask(self, done: Pass, asked: list[int]) -> None:
        """All turns after all answers, side by side."""
        ends = {
            turn: [done.tree.grow(done.paths[i][-1], self.asking.turns[turn.wording])[-1] for i in asked]
            for turn in sorted(self.growth.turns)
        }
        done.tree.read()
        done.replies = {turn: Replies(asked, nodes) for turn, nodes in ends.items()}
        self._reply(done)

    def _reply(self, done: Pass) -> None:
        """Greedy replies to the turns that want one, side by side."""
        turns = {turn: replies.nodes for turn, replies in done.replies.items() if turn.say}
        nodes = {(turn, k): node for turn, ends in turns.items() for k, node in enumerate(ends)}
        said: dict[tuple[Turn, int], list[int]] = {place: [] for place in nodes}
        while nodes:
            tokens = done.logits(list(nodes.values())).argmax(dim=-1).tolist()
            going = {}
            for (place, node), token in zip(nodes.items(), tokens, strict=True):
                if token in self.backbone.stops:
                    continue
                said[place].append(token)
                if len(said[place]) < place[0].say:
                    going[place] = done.tree.grow(node, [token])[0]
            nodes = going
            done.tree.read()
        for (turn, _), tokens in said.items():
            done.replies[turn].said.append(np.asarray(tokens, dtype=np.int32))

    def _asked_alone(self, done: Pass, turn: Turn, asked: list[int]) -> Replies:
        """A turn after conversations that don't continue the prompts: each is read whole."""
        states: dict[int, list[torch.Tensor]] = {block: [] for block in self.blocks}
        said = []
        for i in asked:
            before = done.items[i][0].query_prompt
            assert before is not None  # noqa: S101  # of all or of none
            ids = np.concatenate([before, done.answers[i], self.asking.turns[turn.wording]])
            end = self._read_alone(ids)
            for block, rows in end.items():
                states[block].append(rows)
            reply: list[int] = []
            while len(reply) < turn.say:
                token = int(self.backbone.head.logits(end[self.last]).argmax())
                if token in self.backbone.stops:
                    break
                reply.append(token)
                if len(reply) < turn.say:
                    end = self._read_alone(np.concatenate([ids, np.asarray(reply, dtype=np.int32)]))
            said.append(np.asarray(reply, dtype=np.int32))
        return Replies(asked, states={block: torch.cat(rows) for block, rows in states.items()}, said=said)

    def _read_alone(self, ids: Ids) -> dict[int, torch.Tensor]:
        """Block -> `(1, d)` state after a whole conversation."""
        return read_alone(self.backbone.session, ids, dict.fromkeys(self.blocks, np.asarray([len(ids) - 1])))

    def _grow_options(self, done: Pass) -> None:
        for i, group in enumerate(done.items):
            if self.growth.gold:
                done.tree.grow(i, group[0].gold[:-1])
            if self.growth.wrong:
                for option in group[0].wrong:
                    done.tree.grow(i, option[:-1])
        done.tree.read()

    def _grow_samples(self, done: Pass) -> None:
        """Samples of all questions, stored or drawn, as far as drawing reads them; their ends where wanted."""
        for sampling in sorted(self.growth.samples):
            if all(sampling in item.samples for group in done.items for item in group):
                for i, group in enumerate(done.items):
                    done.samples |= {(sampling, i, m): item.samples[sampling] for m, item in enumerate(group)}
            else:
                self._draw(done, sampling)
        for (sampling, i, _), samples in done.samples.items():
            for ids in samples:
                whole = sampling in self.growth.sample_ends or len(ids) < self.asking.max_new_tokens
                done.tree.grow(i, ids if whole else ids[:-1])
        done.tree.read(self._sampled_blocks)

    @property
    def _sampled_blocks(self) -> list[int]:
        """Blocks of which samples' states are read; nothing grows after them."""
        return self.blocks if self.growth.sample_ends else [self.last]

    def _draw(self, done: Pass, sampling: Sampling) -> None:
        """Samples of all questions side by side; those that begin alike, or like the answer, are read once."""
        walkers = [
            (i, m, j) for i, group in enumerate(done.items) for m in range(len(group)) for j in range(sampling.n)
        ]
        generated: dict[tuple[int, int, int], list[int]] = {walker: [] for walker in walkers}
        nodes = {walker: walker[0] for walker in walkers}
        for step in range(self.asking.max_new_tokens):
            nodes = self._step(done, sampling, step, nodes, generated)
            if not nodes or step == self.asking.max_new_tokens - 1:
                break
            done.tree.read(self._sampled_blocks)
        for i, group in enumerate(done.items):
            for m in range(len(group)):
                drawn = [np.asarray(generated[i, m, j], dtype=np.int32) for j in range(sampling.n)]
                done.samples[sampling, i, m] = drawn

    def _step(
        self,
        done: Pass,
        sampling: Sampling,
        step: int,
        nodes: dict[tuple[int, int, int], int],
        generated: dict[tuple[int, int, int], list[int]],
    ) -> dict[tuple[int, int, int], int]:
        """Draw one token for every sample that goes on; returns where they stand."""
        distinct = sorted(set(nodes.values()))
        place = {node: row for row, node in enumerate(distinct)}
        uniforms = [self._uniform(done, walker, step) for walker in nodes]
        rows = [place[node] for node in nodes.values()]
        tokens = draw(done.logits(distinct), rows, uniforms, sampling.temperature, sampling.top_p)
        going = {}
        for (walker, node), token in zip(nodes.items(), tokens, strict=True):
            if token in self.backbone.stops:
                continue
            generated[walker].append(token)
            if step < self.asking.max_new_tokens - 1:
                going[walker] = done.tree.grow(node, [token])[0]
        return going

    @staticmethod
    def _uniform(done: Pass, walker: tuple[int, int, int], step: int) -> float:
        i, m, j = walker
        uniforms = done.items[i][m].uniforms
        assert uniforms is not None  # noqa: S101  # given whenever samples are asked for
        return float(uniforms[j, step])

    def _counted(self, stage: str) -> _Counter:
        return _Counter(self.costs.setdefault(self.stage or stage, Cost()), self.backbone)


class _Counter:
    """Adds the tokens and seconds of a block of code to a stage's cost."""

    def __init__(self, cost: Cost, backbone: Backbone) -> None:
        self.cost = cost
        self.tokens = backbone.session.tokens

    def __enter__(self) -> None:
        self.before = (self.tokens.forward, self.tokens.padded, self.tokens.beginnings, time.perf_counter())

    def __exit__(self, *_: object) -> None:
        forward, padded, beginnings, start = self.before
        self.cost.forward_tokens += self.tokens.forward - forward
        self.cost.padded_tokens += self.tokens.padded - padded
        self.cost.beginnings += self.tokens.beginnings - beginnings
        self.cost.seconds += time.perf_counter() - start


def _members(items: Mapping[int, Item]) -> dict[tuple[bytes, bytes], list[int]]:
    """(prompt, stored answer) -> the questions that have them: what they share is read once."""
    members: dict[tuple[bytes, bytes], list[int]] = {}
    for i, item in items.items():
        answer = b"" if item.answer is None else item.answer.tobytes()
        members.setdefault((item.prompt.tobytes(), answer), []).append(i)
    return members


def _smaller(pack: Pack, prompts: list[Ids]) -> list[tuple[Pack, list[bytes]]]:
    """Prompts of a pack in packs of half its size, each with their names."""
    return list(_named(plan_packs(prompts, max(1, len(pack.tokens) // 2)), [prompt.tobytes() for prompt in prompts]))


def _named(packs: Sequence[Pack], names: Sequence[bytes]) -> Iterator[tuple[Pack, list[bytes]]]:
    for pack in packs:
        yield pack, [names[row] for row in pack.rows]


def _column(values: Sequence[Arrays], measure: Measure) -> Arrays:
    """One signal of a shard as it is stored: its tensors, and `offsets` where questions have any number of rows."""
    if not measure.ragged:
        return {name: torch.stack([value[name] for value in values]) for name in values[0]}
    sizes = torch.tensor([0, *(len(next(iter(value.values()))) for value in values)])
    columns = {name: torch.cat([value[name] for value in values]) for name in values[0]}
    return {**columns, "offsets": sizes.cumsum(0)}
