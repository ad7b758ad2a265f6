"""The trace decoder: generates the reasoning traces of a shard's questions side by side.

A sampled trace is closed, and the model goes on with its answer. After a greedy trace it does not, since the extractor
reads prompt and trace again, with all signals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from bench.api import Samples, Signal, UserError
from bench.model.continuation_specs import NOTHING, Arrays, Continuations, ModelInput, PendingArrays
from bench.model.continuation_tree import ContinuationTree, PromptEnds
from bench.model.decode_batch import DecodeBatch
from bench.model.devices import BatchLimits
from bench.model.extractor import Extractor, Values
from bench.model.language_model import LanguageModel
from bench.model.token_sampling import sample_tokens
from bench.prompts.front_coding import Ids
from bench.prompts.prompt_settings import PromptSettings
from bench.prompts.traces import Thinking, TraceEnd

STAGE = "traces"
"""Name of the stage to which the cost of traces is added."""
LEAST_BYTES = 2**29
"""Bytes of keys and values that the traces of a decode batch may have on any device, unless a single one has more."""


@dataclass(frozen=True, repr=False)
class Traces(Signal):
    """Generated traces, with sampling settings also the answers after them; stored like a signal, and read by none.

    Stored as `values`, a `Ragged` of int64. For each text of a question these are: the trace; -2 less its `TraceEnd`;
    the number of tokens that were fed; the answer; -1.
    """

    sampling: Samples | None = None
    """Sampling settings; None for one greedy trace."""

    @property
    def n(self) -> int:
        """Number of traces of each question."""
        return 1 if self.sampling is None else self.sampling.n


@dataclass(frozen=True)
class TraceText:
    """One generated trace, with the answer after it."""

    trace: Ids
    end: TraceEnd
    fed: int
    """Number of token positions after the prompt that the model processed to generate it."""
    answer: Ids


def trace_texts(values: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> Iterator[list[TraceText]]:
    """Yield each question's texts from the stored values of `Traces`."""
    for row in np.split(values, offsets[1:-1]):
        texts = []
        for text in np.split(row, np.flatnonzero(row == -1) + 1)[:-1]:
            at = int(np.flatnonzero(text < -1)[0])
            ids = text.astype(np.int32)
            texts.append(TraceText(ids[:at], TraceEnd(-2 - int(text[at])), int(text[at + 1]), ids[at + 2 : -1]))
        yield texts


@dataclass(eq=False)
class _Text:
    """A trace and an answer that are being generated."""

    row: int
    """Index of the prompt in the decode batch."""
    numbers: npt.NDArray[np.float64] | None
    """Random numbers in [0, 1), one for each token; None for a greedy text."""
    trace: list[int] = field(default_factory=list)
    end: TraceEnd | None = None
    answer: list[int] = field(default_factory=list)
    forced: list[int] = field(default_factory=list)
    """Token ids that follow whatever the model would choose."""
    next: int | None = None
    """Token to feed; None once the text is complete."""
    fed: int = 0

    def number(self) -> float:
        """Return the random number of the next token."""
        return 0.0 if self.numbers is None else float(self.numbers[self.fed])


class _TraceSpec:
    """Stands for the reader of a signal: traces need no hidden state."""

    continuations = Continuations()
    depths: frozenset[float] = frozenset()
    ragged = True
    unanswered: Arrays | None = None

    def take(self, done: DecodeBatch) -> Sequence[Sequence[PendingArrays]]:
        """Not called: the decoder itself returns the values."""
        raise NotImplementedError


class TraceDecoder(Extractor):
    """Generates the traces of a shard, each up to its end marker, a stop token or the budget."""

    def __init__(
        self,
        lm: LanguageModel,
        settings: PromptSettings,
        thinking: Thinking,
        traces: Traces,
        together: BatchLimits | None = None,
    ) -> None:
        """Prepare the decoder.

        Args:
            lm: the model.
            settings: prompt settings; their `max_new_tokens` is the length limit of answers after sampled traces.
            thinking: says how traces end and are closed.
            traces: which traces to generate.
            together: limits of decode batches; by default those of the device.
        """
        specs: Mapping[Signal, _TraceSpec] = {traces: _TraceSpec()}
        super().__init__(lm, replace(settings, max_new_tokens=thinking.budget), specs, STAGE, together)
        self.together = replace(self.together, sequences=max(1, self.together.sequences // traces.n))
        self.thinking, self.traces = thinking, traces
        self.answer_limit = 0 if traces.sampling is None else settings.max_new_tokens

    @property
    def longest(self) -> int:
        """Maximum number of tokens of a trace, its closing and its answer."""
        return self.thinking.budget + len(self.thinking.cut) + self.answer_limit

    def _too_long(self, _items: Sequence[ModelInput], limits: BatchLimits) -> Callable[[Sequence[int]], bool]:
        most = max(limits.bytes, LEAST_BYTES) // max(1, self.lm.session.measure_bytes_per_token())
        return lambda rows: len(rows) * self.traces.n * self.longest > most

    def _run_batch(
        self, items: list[list[ModelInput]], tree: ContinuationTree, _inner: torch.Tensor | None = None
    ) -> tuple[list[Ids], Values]:
        """Generate the traces of a decode batch; the answers that are returned are empty."""
        if not isinstance(tree.prompt_ends, PromptEnds):
            raise UserError(
                f"--think-budget: expected a model that generates texts side by side; {self.lm.spec.name!r} reads each"
                f" question alone, as {self.lm.no_packs_reason}. Use another model."
            )
        texts: list[list[list[_Text]]] = []
        for row, group in enumerate(items):
            if self.traces.sampling is None:  # equal prompts share the text
                texts.append([[_Text(row, None)]] * len(group))
            else:
                texts.append([[_Text(row, numbers) for numbers in item.uniforms[: self.traces.n]] for item in group])  # type: ignore[index]  # set for sampled traces
        distinct = {id(text): text for group in texts for own in group for text in own}
        with self._counted(STAGE):
            self._generate(list(distinct.values()), tree, tree.prompt_ends)
        values = [
            [{"values": torch.as_tensor(np.concatenate([_stored(t) for t in own]))} for own in group] for group in texts
        ]
        return [NOTHING] * len(items), {self.traces: values}

    @torch.inference_mode()
    def _generate(self, texts: list[_Text], tree: ContinuationTree, ends: PromptEnds) -> None:
        """Generate texts to their ends, a token of each in every forward pass."""
        session = tree.session
        rows = [text.row for text in texts]
        seen, states = ends.seen[torch.as_tensor(rows, device=ends.seen.device)], tree.states(self.last, rows)
        while True:
            for text, token in zip(texts, self.choose(states, texts), strict=True):
                self.advance(text, token)
            going = [k for k, text in enumerate(texts) if text.next is not None]
            if not going:
                return
            if len(going) < len(texts):
                texts, seen = [texts[k] for k in going], seen[torch.as_tensor(going, device=seen.device)]
            own = torch.eye(len(texts), dtype=torch.bool, device=seen.device)
            seen = torch.cat([seen, own], dim=1)
            ids = np.asarray([text.next for text in texts], dtype=np.int32)
            positions = np.asarray([ends.lengths[text.row] + text.fed for text in texts], dtype=np.int64)
            states = session.forward(ids, positions, partial(_same, seen), {self.last: None})[self.last]
            for text in texts:
                text.fed += 1

    def choose(self, states: torch.Tensor, texts: Sequence[_Text]) -> list[int]:
        """Return the model's next token of each text."""
        logits, sampling = self.lm.head.logits(states), self.traces.sampling
        if sampling is None:
            tokens: list[int] = logits.argmax(dim=-1).tolist()
            return tokens
        numbers = [text.number() for text in texts]
        return sample_tokens(logits, range(len(texts)), numbers, sampling.temperature, sampling.top_p)

    def advance(self, text: _Text, token: int) -> None:
        """Go on with the token that the model chose, or with a forced one; set the token to feed next."""
        if text.forced:
            text.next = text.forced.pop(0)
        elif text.end is None:
            self._advance_trace(text, token)
        elif token in self.lm.stops:
            text.next = None
        else:
            text.answer.append(token)
            text.next = token if len(text.answer) < self.answer_limit else None

    def _advance_trace(self, text: _Text, token: int) -> None:
        text.next = token
        if token in self.lm.stops:
            text.end = TraceEnd.STOPPED
        else:
            text.trace.append(token)
            length = self.thinking.length(text.trace, self.lm.chat.pieces)
            if length is not None:
                text.end = TraceEnd.MARKER
                del text.trace[length:]
            elif len(text.trace) == self.thinking.budget:
                text.end = TraceEnd.BUDGET
        if text.end is None:
            return
        if not self.answer_limit:
            text.next = None
            return
        by_instruction = text.end is TraceEnd.MARKER and self.thinking.marker_id is None
        # the model wrote the line of an instructed answer itself; a stop token is not fed, a marker is part of `closed`
        closing = [] if by_instruction else self.thinking.closing(text.end).tolist()
        own = [token] if by_instruction or text.end is TraceEnd.BUDGET else []
        text.forced = [*own, *closing]
        text.next = text.forced.pop(0)


def _same(visible: torch.Tensor) -> torch.Tensor:
    return visible


def _stored(text: _Text) -> npt.NDArray[np.int64]:
    assert text.end is not None  # noqa: S101  # all texts are complete
    return np.asarray([*text.trace, -2 - text.end, text.fed, *text.answer, -1], dtype=np.int64)
