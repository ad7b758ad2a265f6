"""The trace decoder: generates the reasoning traces of a shard's questions side by side.

A sampled trace is closed, and the model goes on with its answer. After a greedy trace it does not, since the extractor
reads prompt and trace again, with all signals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bench.api import Samples, Signal, UserError
from bench.model.continuation_specs import NOTHING, Continuations, ModelInput
from bench.model.continuation_tree import ContinuationTree, PromptEnds
from bench.model.devices import BatchLimits
from bench.model.extractor import Extractor, Values
from bench.model.language_model import LanguageModel
from bench.model.memory import is_out_of_memory
from bench.model.token_sampling import sample_tokens
from bench.prompts.front_coding import Ids
from bench.prompts.prompt_settings import PromptSettings
from bench.prompts.traces import Thinking, TraceEnd

VERSION = 2
"""Part of the keys of stored traces. Raise it if a change may alter the tokens that a model writes."""
STAGE = "traces"
"""Name of the stage to which the cost of traces is added."""
LEAST_BYTES = 2**31
"""Bytes of keys and values that the texts that are generated at once may have on any device, each with a copy of its
prompt; a single text may have more."""


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


@dataclass(eq=False)
class TraceText:
    """A trace, and the answer after it, which are generated or loaded."""

    trace: list[int] | Ids
    end: TraceEnd | None = None
    """How the trace ended; None as long as it goes on."""
    fed: int = 0
    """Number of token positions after the prompt that the model processed to generate the text."""
    answer: list[int] | Ids = field(default_factory=list)

    row: int = 0
    """While the text is generated: index of its prompt in the decode batch."""
    numbers: npt.NDArray[np.float64] | None = None
    """Random numbers in [0, 1), one for each token; None for a greedy text."""
    forced: list[int] = field(default_factory=list)
    """Token ids that follow whatever the model would choose."""
    next: int | None = None
    """Token to feed; None once the text is complete."""


def trace_texts(values: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> Iterator[list[TraceText]]:
    """Yield each question's texts from the stored values of `Traces`."""
    for row in np.split(values, offsets[1:-1]):
        texts = []
        for text in np.split(row.astype(np.int32), np.flatnonzero(row == -1) + 1)[:-1]:
            at = int(np.flatnonzero(text < -1)[0])
            texts.append(TraceText(text[:at], TraceEnd(-2 - int(text[at])), int(text[at + 1]), text[at + 2 : -1]))
        yield texts


_SPEC: Any = SimpleNamespace(continuations=Continuations(), depths=frozenset(), ragged=True, unanswered=None)
"""Stands for the reader of a signal: traces need no hidden state."""


class TraceDecoder(Extractor):
    """Generates the traces of a shard, each up to its end marker, a stop token or the budget."""

    way_out = "a smaller --think-budget, "

    def __init__(self, lm: LanguageModel, settings: PromptSettings, thinking: Thinking, traces: Traces) -> None:
        """Prepare the decoder.

        Args:
            lm: the model.
            settings: prompt settings; their `max_new_tokens` is the length limit of answers after sampled traces.
            thinking: says how traces end and are closed.
            traces: which traces to generate.
        """
        super().__init__(lm, replace(settings, max_new_tokens=thinking.budget), {traces: _SPEC}, STAGE)
        self.together = replace(self.together, sequences=max(1, self.together.sequences // traces.n))
        self.thinking, self.traces = thinking, traces
        self.answer_limit = 0 if traces.sampling is None else settings.max_new_tokens

    @property
    def longest(self) -> int:
        """Maximum number of tokens of a trace, its closing and its answer."""
        return self.thinking.budget + len(self.thinking.cut) + self.answer_limit

    def _too_long(self, items: Sequence[ModelInput], limits: BatchLimits) -> Callable[[Sequence[int]], bool]:
        # positions of the texts that are generated at once, each with its prompt
        self.positions_at_once = max(limits.bytes, LEAST_BYTES) // max(1, self.lm.session.measure_bytes_per_token())
        sizes = [self.traces.n * (len(item.prompt) + self.longest) for item in items]
        return lambda rows: len(rows) * max(sizes[row] for row in rows) > self.positions_at_once

    def _run_batch(
        self, items: list[list[ModelInput]], tree: ContinuationTree, _inner: torch.Tensor | None = None
    ) -> tuple[list[Ids], Values]:
        """Generate the traces of a decode batch; the answers that are returned are empty."""
        if not isinstance(tree.prompt_ends, PromptEnds):
            raise UserError(
                f"--think-budget: expected a model that generates texts side by side; {self.lm.spec.name!r} reads each"
                f" question alone, as {self.lm.no_packs_reason}. Use another model."
            )
        texts = []
        for row, group in enumerate(items):
            if self.traces.sampling is None:  # equal prompts share the text
                texts.append([[TraceText([], row=row)]] * len(group))
            else:
                numbers = (item.uniforms[: self.traces.n] for item in group if item.uniforms is not None)
                texts.append([[TraceText([], row=row, numbers=own) for own in rows] for rows in numbers])
        waiting = [text for group in texts for own in dict.fromkeys(map(tuple, group)) for text in own]
        session, prompts = tree.session, tree.session.row
        at_once = max(1, self.positions_at_once // (max(tree.prompt_ends.lengths) + self.longest))
        with self._counted(STAGE):
            while part := waiting[:at_once]:
                try:
                    self._generate(part, tree)
                    waiting = waiting[at_once:]
                except RuntimeError as error:
                    if len(part) == 1 or not is_out_of_memory(error):
                        raise
                    at_once, self.halvings = len(part) // 2, self.halvings + 1
                    for text in part:  # begins anew
                        vars(text).update(vars(TraceText([], row=text.row, numbers=text.numbers)))
                session.row = prompts
        stored = [[np.concatenate([stored_values(text) for text in own]) for own in group] for group in texts]
        values = [[{"values": torch.as_tensor(own)} for own in group] for group in stored]
        return [NOTHING] * len(items), {self.traces: values}

    @torch.inference_mode()
    def _generate(self, texts: list[TraceText], tree: ContinuationTree) -> None:
        """Generate texts to their ends, a token of each in every forward pass."""
        ends, rows = tree.prompt_ends, [text.row for text in texts]
        assert isinstance(ends, PromptEnds)  # noqa: S101  # for the type checker
        session, states = tree.session, tree.states(self.last, rows)
        seen = session.divide(ends.seen[rows], self.longest)
        while True:
            for text, token in zip(texts, self._choose(states, texts), strict=True):
                self._advance(text, token)
            going = [k for k, text in enumerate(texts) if text.next is not None]
            if not going:
                return
            if len(going) < len(texts):
                texts, seen = [texts[k] for k in going], seen[going]
                session.row.keep(going)
            seen = torch.cat([seen, seen.new_ones(len(texts), 1)], dim=1)
            ids = np.asarray([text.next for text in texts], dtype=np.int32)
            positions = np.asarray([ends.lengths[text.row] + text.fed for text in texts], dtype=np.int64)
            states = session.forward_each(ids, positions, seen)
            for text in texts:
                text.fed += 1

    def _choose(self, states: torch.Tensor, texts: Sequence[TraceText]) -> list[int]:
        logits, sampling = self.lm.head.logits(states), self.traces.sampling
        if sampling is None:
            return logits.argmax(dim=-1).tolist()
        numbers = [float(text.numbers[text.fed]) for text in texts if text.numbers is not None]
        return sample_tokens(logits, range(len(texts)), numbers, sampling.temperature, sampling.top_p)

    def _advance(self, text: TraceText, token: int) -> None:
        """Go on with the token that the model chose, or with a forced one; set the token to feed next."""
        assert isinstance(text.trace, list) and isinstance(text.answer, list)  # noqa: S101, PT018  # while generated
        if text.forced:
            text.next = text.forced.pop(0)
            return
        is_stop, text.next = token in self.lm.stops, token
        if text.end is not None:
            text.answer += [] if is_stop else [token]
            if is_stop or len(text.answer) == self.answer_limit:
                text.next = None
            return
        text.trace += [] if is_stop else [token]
        if is_stop:
            text.end = TraceEnd.STOPPED
        elif (length := self.thinking.length(text.trace, self.lm.chat.pieces)) is not None:
            text.end = TraceEnd.MARKER
            del text.trace[length:]
        elif len(text.trace) == self.thinking.budget:
            text.end = TraceEnd.BUDGET
        if text.end is not None:
            # the model wrote the line of an instructed answer itself; a stop token is not fed, a marker is in `closed`
            written = text.end is TraceEnd.MARKER and self.thinking.marker_id is None
            own = [token] if written or text.end is TraceEnd.BUDGET else []
            text.forced = [*own, *([] if written else self.thinking.closing(text.end).tolist())]
            text.next = text.forced.pop(0) if self.answer_limit else None


def stored_values(text: TraceText) -> npt.NDArray[np.int64]:
    """Return what `Traces` stores of a text."""
    assert text.end is not None  # noqa: S101  # all texts are complete
    return np.asarray([*text.trace, -2 - text.end, text.fed, *text.answer, -1], dtype=np.int64)
