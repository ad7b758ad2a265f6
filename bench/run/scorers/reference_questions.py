"""Test questions that a head keeps, with what the model wrote and was like then; `bench head check` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from bench.api import At, FloatArray, Hidden, Question, Ragged, Signal, UserError
from bench.api.question import Released
from bench.prompts.exemplars import indices_in_subject
from bench.run.scorers.card import KEPT, KEPT_ARRAYS
from bench.signals.definition import definition
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.decoding import decoded, parsed
from bench.store.files import write_json
from bench.training.job import Column, write_examples

MOST = 64
"""Questions that are kept, spread over the test."""
_RAGGED = ("prompts", "traces", "answers")
_MIDDLE = 0.5
_NOTHING = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class ReferenceQuestions:
    """Questions with all that a setting is compared by."""

    questions: tuple[Question, ...]
    prompts: Ragged
    """Token ids of the prompts; a trace of reasoning ends them."""
    traces: Ragged
    """Token ids of the traces alone."""
    answers: Ragged
    """Token ids of the answers."""
    states: Mapping[str, FloatArray]
    """Signal -> states `(n, d)`, float32."""
    confidence: FloatArray = field(default_factory=lambda: np.zeros(0))
    """`(n,)` what the run said; empty until a method has said it."""

    @property
    def given(self) -> dict[str, Released]:
        """The answers as a reader takes them."""
        return {
            q.id: Released(None, tuple(map(int, self.answers[i])), None, tuple(map(int, self.traces[i])))
            for i, q in enumerate(self.questions)
        }


def places(blocks: int) -> dict[str, Signal]:
    """The states that are kept of a model of so many blocks, in words: in the middle and last, around the answer."""
    depths = {"middle block": _MIDDLE, "last block": 1.0} if blocks > 1 else {"last block": 1.0}
    ends = {"prompt's end": At.PROMPT_END, "answer's end": At.ANSWER_END}
    return {f"{block}, {end}": Hidden(depth, at) for block, depth in depths.items() for end, at in ends.items()}


def chosen(
    split_data: SplitData, reader: Reader
) -> tuple[ReferenceQuestions, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Some questions of a test as they were asked, read again with their answers; and their rows `(n,)` in it.

    Args:
        split_data: the test, graded.
        reader: that read it.
    """
    usable = np.flatnonzero(split_data.usable)
    rows = usable[np.linspace(0, len(usable) - 1, min(MOST, len(usable))).round().astype(np.int64)]
    numbers = indices_in_subject(split_data.questions)  # by which some presets draw exemplars
    every = [replace(question, index_in_subject=numbers[question.id]) for question in split_data.questions]
    pairs, traces, order = list(split_data.pairs()), _traces(split_data), split_data.order
    given = {
        every[row].id: Released(None, tuple(map(int, pairs[order[row]][1])), None, tuple(map(int, traces[order[row]])))
        for row in rows
    }
    again = reader.open(split_data.where, split_data.task, [every[row] for row in rows], given)
    again = reader.read(again, frozenset(places(reader.lm.blocks).values()))
    pairs, traces, order = list(again.pairs()), _traces(again), again.order
    parts = zip(*((pairs[place][0], traces[place], pairs[place][1]) for place in order), strict=True)
    prompts, reasoned, answers = (Ragged.of([np.asarray(ids, dtype=np.int32) for ids in part]) for part in parts)
    return ReferenceQuestions(tuple(again.questions), prompts, reasoned, answers, states_of(again, reader)), rows


def _traces(split_data: SplitData) -> list[np.ndarray]:
    """Token ids of the traces, in the order of `SplitData.pairs`."""
    return [ids for shard in split_data.shards for ids in shard.traces or [_NOTHING] * len(shard.rows)]


def write(kept: ReferenceQuestions, folder: Path) -> None:
    """Write them into the folder of a head."""
    write_json(folder / KEPT, {"questions": [asdict(question) for question in kept.questions]})
    columns: dict[str, Column] = {name: getattr(kept, name) for name in _RAGGED}
    columns["confidence"] = np.asarray(kept.confidence, dtype=np.float64)
    columns |= {f"states.{name}": np.asarray(states, dtype=np.float32) for name, states in kept.states.items()}
    write_examples(folder / KEPT_ARRAYS, columns)


def read(folder: Path) -> ReferenceQuestions:
    """Questions that `write` wrote.

    Raises:
        UserError: it is something else.
    """
    from safetensors.numpy import load_file

    try:
        words = parsed((folder / KEPT).read_text(encoding="utf-8"))["questions"]
        questions = tuple(decoded(question, Question) for question in words)
        arrays = load_file(folder / KEPT_ARRAYS)
        parts = {name: Ragged(arrays[f"{name}.values"], arrays[f"{name}.offsets"]) for name in _RAGGED}
        states = {name.removeprefix("states."): a for name, a in arrays.items() if name.startswith("states.")}
        return ReferenceQuestions(questions, **parts, confidence=arrays["confidence"], states=states)
    except Exception as error:
        raise UserError(f"--head {folder}: {KEPT} can't be used ({str(error)[:100]}); copy the head again.") from error


def states_of(split_data: SplitData, reader: Reader) -> dict[str, FloatArray]:
    """The states `(n, d)` that are kept, by signal, in the order of the questions."""
    signals = sorted(places(reader.lm.blocks).values(), key=repr)
    split = replace(
        reader.stored(reader.read(split_data, frozenset(signals))), chosen=np.arange(len(split_data.questions))
    )
    return {repr(signal): definition(signal).column(split) for signal in signals}  # type: ignore[misc]
