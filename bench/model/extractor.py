"""The extractor: generates or reads the answers of a shard of questions and extracts signals from the model."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from itertools import count

import numpy as np
import torch

from bench.api import IntArray, Samples, Signal, UserError
from bench.model.attention import ATTENTION
from bench.model.batch_planner import BatchPlanner, PackGroup
from bench.model.continuation_specs import (
    NOTHING,
    AnswerSpan,
    Arrays,
    Continuations,
    Generation,
    ModelInput,
    PendingArray,
    UserTurn,
)
from bench.model.continuation_tree import INNER, ContinuationTree, PromptEnds, read_together
from bench.model.decode_batch import DecodeBatch, Replies, SignalSpec
from bench.model.devices import ALONE, BatchLimits, default_batch_limits
from bench.model.language_model import LanguageModel
from bench.model.memory import is_out_of_memory
from bench.model.token_sampling import pad_by_row, sample_tokens
from bench.model.upload_buffer import copy_to_host
from bench.prompts.front_coding import Ids
from bench.prompts.prompt_settings import PromptSettings

Values = dict[Signal, list[list[Arrays]]]
"""Signal -> tensors on the host; `values[signal][i][j]` are those of the question `DecodeBatch.items[i][j]`."""
_LONG = 2
"""The stored answers of a decode batch may together have this many times as many tokens as a pack, or more if the
device's limits allow it."""
_FULL = 1024
"""Number of tokens from which on a forward pass takes longer than launching its kernels."""
VERSION = 2
"""Part of the digest that names the store's folder of a shard; raised when the extractor's results change."""


@dataclass
class Cost:
    """Cost of one stage: token positions that the model processed, and seconds that the stage took."""

    forward_tokens: int = 0
    seconds: float = 0.0


@dataclass
class ShardOutput:
    """What the extractor returns for a shard: answers and signals of the shard's questions, and costs."""

    answers: list[Ids]
    columns: dict[Signal, Arrays]
    costs: dict[str, Cost] = field(default_factory=dict)
    halvings: int = 0
    """Number of decode batches that did not fit into memory and were split."""
    bytes_per_token: int = 0
    """Bytes of the keys and values of one position; 0 if no KV cache was used."""
    bounds: dict[Signal, list[tuple[str, int, float]]] = field(default_factory=dict)
    """Signal -> (question id, number of values that are bounds, width that they leave open), of a model's server."""


class Extractor:
    """Runs one model over shards of questions, and extracts one set of signals."""

    way_out = ""
    """What else takes less memory, for the sentence on a prompt that does not fit."""

    def __init__(
        self, lm: LanguageModel, settings: PromptSettings, specs: Mapping[Signal, SignalSpec], stage: str | None = None
    ) -> None:
        """Derive from the signals which blocks and continuations the model reads.

        Args:
            lm: the model.
            settings: prompt settings, the same for all questions.
            specs: signal -> its reader.
            stage: name of a stage to which all costs are added; by default each stage has its own costs.
        """
        self.lm = lm
        self.together = default_batch_limits(*lm.devices, dtype=lm.dtype)
        self.stage = stage
        self.settings = settings
        self.specs = specs
        self.last = lm.blocks
        depths = {depth for spec in specs.values() for depth in spec.depths}
        self.blocks = sorted({self.last, *map(lm.block_of, depths)})
        self.planned_specs = [*specs.values()]
        """Readers of the signals for which forward passes are made. They equal `specs`, except in `CountingExtractor`,
        which empties `specs`."""
        self.continuations = Continuations.union(spec.continuations for spec in self.planned_specs)

    def extract(self, items: Sequence[ModelInput]) -> ShardOutput:
        """Return the answers and signals of a shard's questions; answers that are not stored are generated greedily."""
        self.costs: dict[str, Cost] = {}
        self.halvings = 0
        fixed_ids = (self.settings.letter_ids, self.settings.verdict_ids)
        self.rows = {ids.tobytes(): self.lm.session.send(ids) for ids in fixed_ids}
        values = {signal: [spec.unanswered or {}] * len(items) for signal, spec in self.specs.items()}
        answers = [NOTHING] * len(items)
        rows_by_key: dict[tuple[bytes, bytes], list[int]] = {}  # questions with equal prompt and answer are read once
        for i, item in enumerate(items):
            if item.answer is None or any(len(item.answer) or spec.unanswered is None for spec in self.planned_specs):
                answer = b"" if item.answer is None else item.answer.tobytes()
                rows_by_key.setdefault((item.prompt.tobytes(), answer), []).append(i)
        members = list(rows_by_key.values())
        for rows, texts, batch_values in self._run_batches([[items[i] for i in group] for group in members]):
            groups = [members[row] for row in rows]
            for signal, signal_values in batch_values.items():
                for group, group_values in zip(groups, signal_values, strict=True):
                    for i, value in zip(group, group_values, strict=True):
                        values[signal][i] = value
            for group, text in zip(groups, texts, strict=True):
                for i in group:
                    answers[i] = text
        columns = {signal: join_values(values[signal], ragged=spec.ragged) for signal, spec in self.specs.items()}
        return ShardOutput(answers, columns, self.costs, self.halvings, self.lm.session.bytes_per_token)

    # --- packs --------------------------------------------------------------------------------------------------------

    def _run_batches(self, groups: list[list[ModelInput]]) -> Iterator[tuple[list[int], list[Ids], Values]]:
        """Run all decode batches; yield for each the indices of its groups, and the groups' answers and signals.

        Args:
            groups: the questions of a shard, in groups with equal prompts and equal stored answers.
        """
        session = self.lm.session
        if not self.lm.uses_packs:
            for i, group in enumerate(groups):
                try:
                    outputs = self._run_alone(group)
                except RuntimeError as error:
                    if not is_out_of_memory(error):
                        raise
                    raise self._no_room(group[0].prompt) from error
                yield [i], *outputs
            return
        limits, max_new_tokens, items = self.together, self.settings.max_new_tokens, [group[0] for group in groups]
        size = 0 if limits == ALONE else session.measure_bytes_per_token()
        decodes = any(item.answer is None for item in items) or bool(self.continuations.samples)
        if not decodes or max_new_tokens <= 1:  # few sequences suffice: their query tokens fill a forward pass
            queries = -(-_FULL // (1 + len(self.settings.suffix)))
            limits = replace(limits, sequences=min(queries, limits.sequences))
            limits = ALONE if limits.only_decoding else limits
        # states of a trace are read in its prompt's own pack
        kept = [len(item.prompt) - item.trace[0] + 1 if item.trace[1] else 1 for item in items]
        too_long = self._too_long(items, limits)
        decode_batches = BatchPlanner(
            [item.prompt for item in items], self.settings.budget, limits, size, too_long, kept
        )
        for decode_batch in decode_batches:
            rows = [row for planned in decode_batch for row in planned.rows]
            stage = self._first_stage(groups[rows[0]][0])
            try:
                with self._counted(stage):
                    tree, traces = self._read_prompts(decode_batch, items)
                outputs = self._run_batch([groups[row] for row in rows], tree, traces)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                if not decode_batches.halve(decode_batch):  # else the loop goes on with its parts
                    raise self._no_room(decode_batches.prompts[rows[0]]) from error
                self.halvings += 1
                session.reset()
                torch.cuda.empty_cache()
                continue
            session.use_main_row()
            yield rows, *outputs

    def _run_alone(self, group: list[ModelInput]) -> tuple[list[Ids], Values]:
        """Read the prompt of a group without a KV cache, and each continuation with it; return as `_run_batch` does."""
        prompt, (start, stop) = group[0].prompt, group[0].trace
        ends = np.asarray([len(prompt) - 1, *self.marks(group[0])])
        read = dict.fromkeys(self.blocks, ends)
        if self.continuations.trace:
            read[self.last] = np.concatenate([ends, np.arange(start - 1, stop - 1)])
        with self._counted(self._first_stage(group[0])):
            states = self.lm.session.read_alone(prompt, read)
        inner = states[self.last][len(ends) :]
        states[self.last] = states[self.last][: len(ends)]
        prompts = [prompt[: end + 1] for end in ends]
        tree = ContinuationTree(self.lm.session, prompts, states, self._queries(np.arange(len(ends))))
        return self._run_batch([group], tree, inner)

    def _no_room(self, prompt: Ids) -> UserError:
        fact = f"A single prompt of {len(prompt)} tokens does not fit into the memory of {self.lm.device}."
        return UserError(f"{fact} Use {self.way_out}a smaller --dtype, a larger device, or --set protocol.shots=0.")

    def _too_long(self, items: Sequence[ModelInput], limits: BatchLimits) -> Callable[[Sequence[int]], bool]:
        """Return a function that says whether prompts, by index, have too many answer tokens for one decode batch."""
        most = max(_LONG * self.settings.budget, limits.sequences * self.settings.max_new_tokens)
        return lambda rows: sum(len(answer) for row in rows if (answer := items[row].answer) is not None) > most

    def marks(self, item: ModelInput) -> list[int]:
        """Return positions inside of a prompt: where answers are forced, then the ends of the trace's steps."""
        start, stop = item.trace
        cuts = [start + round(share * (stop - start)) - 1 for share in sorted(self.continuations.forced)]
        return [*cuts, *(item.steps if self.continuations.steps else ())]

    def _read_prompts(
        self, decode_batch: PackGroup, items: Sequence[ModelInput]
    ) -> tuple[ContinuationTree, torch.Tensor | None]:
        """Read the prompts of a decode batch.

        Returns:
            The tree, whose first nodes are the prompts' ends and then the `marks` of each prompt; and the states that
            predict the tokens of the traces, one after the other, or None if no signal reads them.
        """
        packs, inner, is_mark = [], list[IntArray](), list[bool]()
        for planned in decode_batch:
            marks, within = list[int](), list[int]()
            for row, leaf in zip(planned.rows, planned.leaves.tolist(), strict=True):
                item, path = items[row], planned.pack.path(leaf)
                path = np.concatenate([np.full(len(item.prompt) - len(path), -1), path])  # by position in the prompt
                marks += path[self.marks(item)].tolist()
                within += path[item.trace[0] - 1 : item.trace[1] - 1].tolist() if self.continuations.trace else []
            packs.append((planned.pack, np.asarray([*planned.leaves, *marks], dtype=np.int64)))
            inner.append(np.asarray(within, dtype=np.int64))
            is_mark += [False] * len(planned.leaves) + [True] * len(marks)
        blocks = [ATTENTION, *self.blocks] if self.continuations.attention else self.blocks
        prompt_ends, states = read_together(
            self.lm.session, packs, self.settings.budget, blocks, inner if self.continuations.trace else ()
        )
        trace_states, index = states.pop(INNER, None), np.arange(len(is_mark))
        if any(is_mark) and len(packs) > 1:  # the prompts' ends come first
            index = np.argsort(is_mark, kind="stable")
            at = torch.as_tensor(index, device=prompt_ends.seen.device)
            prompt_ends = PromptEnds(prompt_ends.seen[at], [prompt_ends.lengths[i] for i in index])
            states = {block: rows[at.to(rows.device)] for block, rows in states.items()}
        return ContinuationTree(self.lm.session, prompt_ends, states, self._queries(index)), trace_states

    def _queries(self, index: IntArray) -> list[int] | None:
        return index.tolist() if self.continuations.attention else None

    def _first_stage(self, item: ModelInput) -> str:
        """Return the name of the stage to which the cost of reading the prompt is added.

        If the constructor was given a `stage`, this is always that stage. Otherwise it is `answers` if the model
        generates the answer, else the first stage that reads tokens after the prompt.
        """
        if self.stage is not None or item.answer is None:
            return self.stage or "answers"
        if self.continuations.answer > AnswerSpan.NOTHING:
            return "query"
        return "samples" if all(spec.continuations.samples for spec in self.planned_specs) else "continuations"

    # --- continuations ------------------------------------------------------------------------------------------------

    def _run_batch(
        self, items: list[list[ModelInput]], tree: ContinuationTree, inner: torch.Tensor | None = None
    ) -> tuple[list[Ids], Values]:
        """Run the model over all continuations of a decode batch's prompts; return the answers and the signals.

        Args:
            items: questions of the decode batch.
            tree: its prompts.
            inner: states that predict the tokens of the prompts' traces; None if no signal reads them.
        """
        answers = [group[0].answer for group in items]
        stored = [NOTHING if answer is None else answer for answer in answers]
        batch = DecodeBatch(self.lm, self.settings, items, tree, stored, dict(self.rows), trace_states=inner)
        node, shares = len(items), sorted(self.continuations.forced)
        for group in items:
            nodes = range(node, node + len(self.marks(group[0])))
            batch.cuts.append(dict(zip(shares, nodes, strict=False)))
            batch.steps.append(nodes[len(shares) :])
            node = nodes.stop
        if any(answer is None for answer in answers):
            with self._counted("answers", batch):  # greedily (docs/methods.md §0.5)
                batch.answers = [*self._decode(batch, {Generation(i): i for i in range(len(items))}).values()]
        with self._counted("query", batch):
            self._grow_answers(batch)
        with self._counted("continuations", batch):
            for i, item in ((i, item) for i, group in enumerate(items) for item in group):
                if self.continuations.gold:
                    tree.grow(i, item.gold[:-1])
                for option in item.wrong if self.continuations.wrong else ():
                    tree.grow(i, option[:-1])
            for cut in (cut for cuts in batch.cuts for cut in cuts.values()):
                tree.grow(cut, self.settings.closing)
            tree.read()
        with self._counted("samples", batch):
            self._grow_samples(batch)
        return batch.answers, gather_to_host(self.specs, batch)

    def _decode(
        self, batch: DecodeBatch, parents: Mapping[Generation, int], sampling: Samples | None = None
    ) -> dict[Generation, Ids]:
        """Generate texts side by side, each up to a stop token or its maximum length.

        If a text reaches its maximum length, the model does not read its last token.

        Args:
            batch: the decode batch to whose tree the tokens are added.
            parents: each text with the tree node after which it starts.
            sampling: sampling settings; None for greedy decoding.
        """
        generated: dict[Generation, list[int]] = {text: [] for text in parents}
        nodes = dict(parents)
        for step in count():
            if not nodes:
                break
            tokens = self._next_tokens(batch, nodes, sampling, step)
            next_nodes = {}
            for (text, node), token in zip(nodes.items(), tokens, strict=True):
                if token in self.lm.stops:
                    continue
                generated[text].append(token)
                if len(generated[text]) < self.token_limit(text):
                    next_nodes[text] = batch.tree.grow(node, [token])[0]
            nodes = next_nodes
        return {text: np.asarray(tokens, dtype=np.int32) for text, tokens in generated.items()}

    def token_limit(self, text: Generation) -> int:
        """Return the maximum number of tokens of a generated text, which is an answer, a reply or a sample."""
        return text.kind.say if isinstance(text.kind, UserTurn) else self.settings.max_new_tokens

    def _next_tokens(
        self, batch: DecodeBatch, nodes: Mapping[Generation, int], sampling: Samples | None, step: int
    ) -> list[int]:
        """Run the model over the tree's new nodes, and return the next token of each text.

        Texts that have equal tokens so far share a node, whose hidden state and logits are computed once.
        """
        if sampling is None:
            batch.tree.read()
            return batch.logits(list(nodes.values())).argmax(dim=-1).tolist()
        distinct = sorted(set(nodes.values()))
        row_of = {node: row for row, node in enumerate(distinct)}
        rows = [row_of[node] for node in nodes.values()]
        items = [batch.items[text.row][text.question] for text in nodes]
        uniforms = [
            item.uniforms[text.number, step]  # type: ignore[index]  # set whenever samples are generated
            for item, text in zip(items, nodes, strict=True)
        ]
        batch.tree.prefetch(distinct)
        table = batch.tree.session.send(pad_by_row(rows, uniforms, len(distinct)))  # uploaded with the forward pass
        batch.tree.read(self._sampled_blocks)
        return sample_tokens(batch.logits(distinct), rows, table.tensor, sampling.temperature, sampling.top_p)

    def _grow_answers(self, batch: DecodeBatch) -> None:
        """Add the answers and the user turns after them to the token tree, and run the model over the new tokens.

        Tokens of an answer that no signal needs are not added.
        """
        # of an answer all tokens are read, all but the last one, or none
        stop = {AnswerSpan.ANSWER_END: None, AnswerSpan.ANSWER_PREDICTING: -1}.get(self.continuations.answer, 0)
        turns = sorted(self.continuations.turns)
        answered = [i for i, answer in enumerate(batch.answers) if len(answer)]
        separate = any(batch.items[i][0].query_prompt is not None for i in answered)
        ends: dict[UserTurn, list[int]] = {turn: [] for turn in turns}
        for i, answer in enumerate(batch.answers):
            batch.paths.append(batch.tree.grow(i, answer[:stop]))
            for turn in turns if len(answer) and not separate else ():  # node order changes last bits
                ends[turn].append(batch.tree.grow(batch.paths[i][-1], self.settings.turns[turn.wording])[-1])
        batch.prefetch()
        for nodes in ends.values():
            batch.tree.prefetch(nodes)
        batch.tree.read(answers={node for path in batch.paths for node in path})
        if self.continuations.attention:
            batch.attention = batch.tree.attention(batch.paths)
        if not separate:
            batch.replies = {turn: Replies(answered, batch.tree, nodes) for turn, nodes in ends.items()}
            self._reply(batch, turns)
        for turn in turns if separate else ():
            # Conversations that don't continue the answering prompts are read whole, on a separate tree; the states at
            # its roots are placeholders.
            prefixes = [prompt for i in answered if (prompt := batch.items[i][0].query_prompt) is not None]
            states = {block: batch.tree.states(block, answered) for block in self.blocks}
            tree, ids = ContinuationTree(self.lm.session, prefixes, states), self.settings.turns[turn.wording]
            leaves = [tree.grow(k, np.concatenate([batch.answers[i], ids]))[-1] for k, i in enumerate(answered)]
            tree.read()
            batch.replies[turn] = Replies(answered, tree, leaves)
            self._reply(replace(batch, tree=tree), [turn])

    def _reply(self, batch: DecodeBatch, turns: Sequence[UserTurn]) -> None:
        """Generate replies, greedily and side by side, to the user turns that ask for a reply."""
        parents = {
            Generation(i, turn): node
            for turn in turns
            if turn.say
            for i, node in zip(batch.replies[turn].answered, batch.replies[turn].nodes, strict=True)
        }
        for text, ids in self._decode(batch, parents).items():
            assert isinstance(text.kind, UserTurn)  # noqa: S101  # for the type checker
            batch.replies[text.kind].texts.append(ids)

    def _grow_samples(self, batch: DecodeBatch) -> None:
        """Generate samples, or take the stored ones, and run the model over their tokens.

        If a sample has the maximum length, its last token is read only if a signal needs it
        (`Continuations.sample_ends`).
        """
        for sampling in sorted(self.continuations.samples, key=astuple):
            if all(sampling in item.samples for group in batch.items for item in group):
                for i, group in enumerate(batch.items):
                    batch.samples |= {(sampling, i, m): item.samples[sampling] for m, item in enumerate(group)}
            else:
                groups = [(i, m) for i, group in enumerate(batch.items) for m in range(len(group))]
                texts = [Generation(i, sampling, m, j) for i, m in groups for j in range(sampling.n)]
                generated = self._decode(batch, {text: text.row for text in texts}, sampling)
                for i, m in groups:
                    numbers = range(sampling.n)
                    batch.samples[sampling, i, m] = [generated[Generation(i, sampling, m, j)] for j in numbers]
        for (sampling, i, _), samples in batch.samples.items():
            for ids in samples:
                read_last = sampling in self.continuations.sample_ends or len(ids) < self.settings.max_new_tokens
                batch.tree.grow(i, ids if read_last else ids[:-1])
        batch.tree.read(self._sampled_blocks)

    @property
    def _sampled_blocks(self) -> list[int]:
        """Numbers of the blocks whose hidden states are kept while samples are read.

        If a signal needs the ends of samples, these are all blocks that signals read; otherwise only the last block.
        """
        return self.blocks if self.continuations.sample_ends else [self.last]

    @contextmanager
    def _counted(self, stage: str, _batch: DecodeBatch | None = None) -> Iterator[None]:
        """Add the tokens that the model reads within the context, and the seconds, to the cost of a stage.

        `_batch` is unused here; subclasses need it.
        """
        cost, session = self.costs.setdefault(self.stage or stage, Cost()), self.lm.session
        before, start = session.tokens, time.perf_counter()
        try:
            yield
        finally:
            cost.forward_tokens += session.tokens - before
            cost.seconds += time.perf_counter() - start


def join_values(values: Sequence[Arrays], *, ragged: bool) -> Arrays:
    """Return a signal's tensors of a shard from those of its questions; with `offsets` if `ragged`."""
    join = torch.cat if ragged else torch.stack
    columns = {name: join([value[name] for value in values]) for name in values[0]}
    if ragged:
        columns["offsets"] = torch.tensor([0, *(len(next(iter(value.values()))) for value in values)]).cumsum(0)
    return columns


def gather_to_host(specs: Mapping[Signal, SignalSpec], batch: DecodeBatch) -> Values:
    """Copy the tensors that signals read from a decode batch to the host, all at once, and return them.

    A hidden state that several signals read is copied once.
    """
    values = {signal: spec.take(batch) for signal, spec in specs.items()}
    pending = {
        id(value): {name: x if isinstance(x, PendingArray) else PendingArray(x) for name, x in value.items()}
        for groups in values.values()
        for group in groups
        for value in group
    }
    node_sets: dict[int, set[int]] = defaultdict(set)
    tensors: dict[int, torch.Tensor] = {}
    for array in (array for arrays in pending.values() for array in arrays.values()):
        if isinstance(array.rows, torch.Tensor):
            tensors[id(array.rows)] = array.rows
        else:
            block, nodes = array.rows
            node_sets[block].update(nodes)
    block_nodes = {block: sorted(nodes) for block, nodes in node_sets.items()}
    for nodes in block_nodes.values():
        batch.tree.prefetch(nodes)
    rows = [batch.tree.states(block, nodes) for block, nodes in block_nodes.items()]
    copies = copy_to_host([*rows, *tensors.values()])
    states, copied = dict(zip(block_nodes, copies, strict=False)), dict(zip(tensors, copies[len(rows) :], strict=True))
    node_arrays = {block: np.asarray(nodes, dtype=np.int64) for block, nodes in block_nodes.items()}

    def value_of(array: PendingArray) -> torch.Tensor:
        if isinstance(array.rows, torch.Tensor):
            return array.transform(copied[id(array.rows)].clone())  # else the joint copy would stay in memory
        block, nodes = array.rows
        rows = np.searchsorted(node_arrays[block], np.asarray(nodes, dtype=np.int64))
        return array.transform(states[block][torch.as_tensor(rows)])

    on_host = {key: {name: value_of(array) for name, array in arrays.items()} for key, arrays in pending.items()}
    return {signal: [[on_host[id(value)] for value in group] for group in groups] for signal, groups in values.items()}
