"""Reasoning traces: where a model's trace ends, and what is appended to it, so that the answer follows."""

from __future__ import annotations

import enum
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.api.question import Released, Text
from bench.prompts.front_coding import Ids

MARKERS = ("</think>", "[/THINK]", "<channel|>", "</thinking>", "</thought>", "</reasoning>")
"""End markers of traces that chat templates have."""
LEADS = (("Answer:", " "), ("Answer: ", ""))
"""Pairs (text after every trace, text between it and the answer), of which a tokenizer decides."""
_ANSWER_LINE = re.compile(r"(?:\A|\n)(?P<line>[ \t*#_>`-]*(?:final[ \t]+)?answer[ \t*_]*:[ \t*_]*)", re.IGNORECASE)
"""Pattern of the line that ends a trace for which the model was instructed; within a line it is a quotation."""
_TAG = re.compile(r"[<\[]/?(?:think|thinking|thought|reasoning)[>\]]", re.IGNORECASE)
_TAIL = 16
"""Number of last tokens in which the beginning of the answer's line is looked for while a trace is generated."""


class TraceEnd(enum.IntEnum):
    """How a trace ended."""

    MARKER = 0
    """With the model's end marker, or before the line with the answer."""
    STOPPED = 1
    """With a token that ends the model's turn."""
    BUDGET = 2
    """At its length limit."""


@dataclass(frozen=True, eq=False)
class Thinking:
    """How one model reasons before its answers, as token ids of its tokenizer."""

    budget: int
    """Maximum number of tokens of a trace."""
    marker: str
    """End marker of the model's template; empty if the model is instructed to reason."""
    marker_id: int | None
    closed: Ids
    """Token ids between a trace that ended by itself and the answer."""
    cut: Ids
    """Token ids between a trace that did not end and the answer."""
    lead: str
    """Text that `closed` and `cut` end with."""
    gap: str
    """Text between `lead` and the answer."""
    opened: bool = False
    """Whether the prompt opens the trace; else a model with a marker begins the trace with a tag that opens it."""

    @property
    def kind(self) -> str:
        """How the model is made to reason, with the version of the wording; for results and keys."""
        return "template" if self.marker else "instruction/1"

    def fields(self) -> dict[str, object]:
        """Return the fields of store keys that say how traces are generated and closed."""
        ids = {"closed": self.closed.tolist(), "cut": self.cut.tolist()}
        return {"budget": self.budget, "marker": self.marker_id, **ids}

    def closing(self, end: TraceEnd | None) -> Ids:
        """Return the token ids that are appended to a trace, after which the answer follows."""
        return self.closed if end is TraceEnd.MARKER else self.cut

    def length(self, ids: Sequence[int], pieces: Callable[[Sequence[int]], list[str]]) -> int | None:
        """Return the length of a trace that the last token ends: by the end marker, or by beginning the answer's line.

        Return None if the trace goes on.

        Args:
            ids: token ids that were generated, at least one.
            pieces: function that returns the text of each token id.
        """
        if self.marker_id is not None:
            return len(ids) - 1 if ids[-1] == self.marker_id else None
        if ":" not in pieces(ids[-1:])[0]:
            return None
        first = max(0, len(ids) - _TAIL)
        texts = ["x" if first else "", *pieces(ids[first:])]  # the beginning of a tail is no beginning of a line
        found = _ANSWER_LINE.search("".join(texts))
        if found is None:
            return None
        ends = np.cumsum([len(text) for text in texts[1:]]) + len(texts[0])
        return first + int(np.searchsorted(ends, found.start("line"), side="right"))

    def first_length(
        self, ids: Sequence[int], decode: Callable[[Sequence[int]], str], pieces: Callable[[Sequence[int]], list[str]]
    ) -> int | None:
        """Return the length of the trace with which a whole output begins; None if the output doesn't end it.

        Args:
            ids: token ids of the output.
            decode: function from token ids to text.
            pieces: function that returns the text of each token id.
        """
        if self.marker_id is not None:
            return ids.index(self.marker_id) if self.marker_id in ids else None
        # by halves, since a server makes each text in a request
        n = bisect_left(range(len(ids) + 1), 1, key=lambda n: bool(_ANSWER_LINE.search(decode(ids[:n]))))
        return self.length(ids[:n], pieces) if n <= len(ids) else None

    def separate(self, record: Released, decode: Callable[[Sequence[int]], str]) -> tuple[Text, str, TraceEnd, bool]:
        """Divide an output that another program generated into its trace and its answer.

        Args:
            record: the output; unless it is divided, the trace is searched for in its `text`.
            decode: function from token ids to text.

        Returns:
            The trace; the answer, empty if the output ends within the trace; how the trace ended; and whether another
            end marker follows the first one.
        """
        given: Text
        trace, whole, divided = record.trace, record.text, record.divided or bool(record.trace)
        if not isinstance(whole, str) and self.marker_id is not None:
            ids: tuple[int, ...] = tuple(map(int, trace)) if divided else whole
            n = ids.index(self.marker_id) if self.marker_id in ids else None
            rest = whole if divided else ids[len(ids) if n is None else n + 1 :]
            given, answer, ended, again = ids[:n], decode(rest), n is not None, self.marker_id in rest
        else:
            before, text = (part if isinstance(part, str) else decode(part) for part in (trace, whole))
            found = self._end(before if divided else text)
            if found is None and not (divided or self.marker) and len(text.split()) == 1:
                found = 0, 0  # an answer without a trace
            given = (before if divided else text)[: None if found is None else found[0]]
            answer = text if divided else "" if found is None else text[found[1] :]
            ended, again = found is not None, bool(self.marker) and self.marker in answer
            tag = "<|channel>thought" if self.marker == "<channel|>" else self.marker.replace("/", "")
            if tag and self.opened:
                given = given.lstrip().removeprefix(tag).lstrip("\n") if given.lstrip().startswith(tag) else given
            elif tag and before and tag not in before:  # servers' parsers take the tags away
                given = f"{tag}\n{given}"
        line = _ANSWER_LINE.match(answer.strip())
        answer = answer.strip()[0 if line is None else line.end() :]
        several = again or (not self.marker and not divided and bool(_ANSWER_LINE.search(answer)))
        ended = ended or (divided and bool(answer))
        return given, answer, TraceEnd.MARKER if ended else TraceEnd.STOPPED, several

    def _end(self, text: str) -> tuple[int, int] | None:
        """Return where the first end marker, or the line with the answer, begins and ends; None without one."""
        if self.marker:
            start = text.find(self.marker)
            return None if start < 0 else (start, start + len(self.marker))
        found = _ANSWER_LINE.search(text)
        return None if found is None else (found.start("line"), found.end())


def steps(trace: Sequence[int], text_of: Callable[[int], str]) -> list[int]:
    """Return the index in a trace of the last token of each step; a step is a line with text.

    Args:
        trace: token ids.
        text_of: function that returns the text of a token id.
    """
    ends, filled = list[int](), False
    for i, text in enumerate(map(text_of, trace)):
        filled = filled or bool(text.strip())
        if filled and ("\n" in text or i == len(trace) - 1):
            ends.append(i)
            filled = False
    return ends or [len(trace) - 1] * bool(trace)


def is_empty(trace: str) -> bool:
    """Return whether a trace has no text besides its markers."""
    return not _TAG.sub("", trace).strip()


def has_marker(text: str) -> bool:
    """Return whether a text has a marker with which a trace begins or ends."""
    return bool(_TAG.search(text)) or "<channel|>" in text


def end_counts(
    thinking: Thinking, ends: Sequence[TraceEnd | None], sizes: Sequence[int], empty: int, *, given: bool
) -> dict[str, int]:
    """Return description -> number of traces: of those that did not end by themselves, of long and of empty ones.

    Args:
        thinking: says how traces end.
        ends: how each trace ended.
        sizes: number of tokens of each trace.
        empty: number of traces without text.
        given: whether another program generated the traces, so that no answer was forced.
    """
    stopped = "outputs that don't end their trace, without an answer"
    return {
        f"traces cut at {thinking.budget:,} tokens and closed": ends.count(TraceEnd.BUDGET),
        stopped if given else "traces that ended without their end marker, closed": ends.count(TraceEnd.STOPPED),
        f"traces of more than {thinking.budget:,} tokens, kept whole": sum(n > thinking.budget for n in sizes),
        "empty traces": empty,
    }
