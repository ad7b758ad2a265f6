"""Reference questions of a head: test questions with stored prompts, answers, hidden states and confidences.

`bench head check` reads these questions again and compares the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from bench.api import At, FloatArray, Hidden, Question, Ragged, Signal, UserError
from bench.api.question import Released
from bench.prompts.exemplars import indices_in_subject
from bench.run.scorers.card import ARRAYS, ITEMS
from bench.signals.definition import definition
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.decoding import decode_record, parse_json
from bench.store.files import write_json
from bench.training.job import Column, write_examples

MOST = 64
"""Largest number of reference questions in a head; they are spread evenly over the test questions."""
_RAGGED = ("prompts", "traces", "answers")
_MIDDLE = 0.5
DEPTHS = frozenset({_MIDDLE, 1.0})
"""Fractions of the model's depth of the blocks whose states are read, see `state_signals`."""
_NO_TOKENS = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class ReferenceQuestions:
    """Test questions of a head, with the token ids, hidden states and confidences for `bench head check`."""

    questions: tuple[Question, ...]
    prompts: Ragged
    """Token ids of the prompts, each followed by the reasoning trace of its answer."""
    traces: Ragged
    """Token ids of the reasoning traces; empty for answers without a trace."""
    answers: Ragged
    """Token ids of the answers."""
    states: Mapping[str, FloatArray]
    """`repr` of a hidden-state signal -> hidden states `(n, d)`, float32."""
    confidence: FloatArray = field(default_factory=lambda: np.zeros(0))
    """`(n,)` confidences of the run; empty until a method's confidences are filled in."""

    @property
    def given(self) -> dict[str, Released]:
        """Question id -> answer with its reasoning trace, in the form that `Reader.open` takes."""
        return {
            q.id: Released(None, tuple(map(int, self.answers[i])), None, tuple(map(int, self.traces[i])))
            for i, q in enumerate(self.questions)
        }


def state_signals(blocks: int) -> dict[str, Signal]:
    """Return description -> hidden-state signal; one signal for each pair of a block and a position.

    The blocks are the middle and the last one of the `blocks` transformer blocks; the positions are the ends of prompt
    and answer.
    """
    depths = {"middle block": _MIDDLE, "last block": 1.0} if blocks > 1 else {"last block": 1.0}
    ends = {"prompt's end": At.PROMPT_END, "answer's end": At.ANSWER_END}
    return {f"{block}, {end}": Hidden(depth, at) for block, depth in depths.items() for end, at in ends.items()}


def select(
    split_data: SplitData, reader: Reader
) -> tuple[ReferenceQuestions, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Select reference questions from a test and read them again with their answers.

    Args:
        split_data: graded test split.
        reader: the reader that has read the split.

    Returns:
        The n reference questions, and their row indices `(n,)` in the test.
    """
    usable = np.flatnonzero(split_data.usable)
    rows = usable[np.linspace(0, len(usable) - 1, min(MOST, len(usable))).round().astype(np.int64)]
    indices = indices_in_subject(split_data.questions)  # by which some presets sample exemplars
    questions = [replace(question, index_in_subject=indices[question.id]) for question in split_data.questions]
    pairs, traces, order = list(split_data.pairs()), _traces(split_data), split_data.order
    answers = {
        questions[i].id: Released(None, tuple(map(int, pairs[order[i]][1])), None, tuple(map(int, traces[order[i]])))
        for i in rows
    }
    reread = reader.open(split_data.where, split_data.task, [questions[row] for row in rows], answers)
    reread = reader.read(reread, frozenset(state_signals(reader.lm.blocks).values()))
    pairs, traces, order = list(reread.pairs()), _traces(reread), reread.order
    columns = zip(*((pairs[place][0], traces[place], pairs[place][1]) for place in order), strict=True)
    prompts, reasoned, answer_ids = (Ragged.of([np.asarray(ids, dtype=np.int32) for ids in part]) for part in columns)
    return ReferenceQuestions(tuple(reread.questions), prompts, reasoned, answer_ids, read_states(reread, reader)), rows


def _traces(split_data: SplitData) -> list[np.ndarray]:
    """Return the token ids of all reasoning traces of a split, in the order of `SplitData.pairs`."""
    return [ids for shard in split_data.shards for ids in shard.traces or [_NO_TOKENS] * len(shard.rows)]


def write(references: ReferenceQuestions, folder: Path) -> None:
    """Write reference questions into the folder of a head."""
    write_json(folder / ITEMS, {"questions": [asdict(question) for question in references.questions]})
    columns: dict[str, Column] = {name: getattr(references, name) for name in _RAGGED}
    columns["confidence"] = np.asarray(references.confidence, dtype=np.float64)
    columns |= {f"states.{name}": np.asarray(states, dtype=np.float32) for name, states in references.states.items()}
    write_examples(folder / ARRAYS, columns)


def read(folder: Path) -> ReferenceQuestions:
    """Read the reference questions from the folder of a head.

    Raises:
        UserError: a file is missing or damaged.
    """
    from safetensors.numpy import load_file

    try:
        values = parse_json((folder / ITEMS).read_text(encoding="utf-8"))["questions"]
        questions = tuple(decode_record(question, Question) for question in values)
        arrays = load_file(folder / ARRAYS)
        parts = {name: Ragged(arrays[f"{name}.values"], arrays[f"{name}.offsets"]) for name in _RAGGED}
        states = {name.removeprefix("states."): a for name, a in arrays.items() if name.startswith("states.")}
        return ReferenceQuestions(questions, **parts, confidence=arrays["confidence"], states=states)
    except Exception as error:
        raise UserError(f"--head {folder}: {ITEMS} can't be used ({str(error)[:100]}); copy the head again.") from error


def read_states(split_data: SplitData, reader: Reader) -> dict[str, FloatArray]:
    """Return `repr` of each signal of `state_signals` -> hidden states `(n, d)`, in the order of the questions."""
    signals = sorted(state_signals(reader.lm.blocks).values(), key=repr)
    split = replace(
        reader.stored(reader.read(split_data, frozenset(signals))), selected_rows=np.arange(len(split_data.questions))
    )
    return {repr(signal): definition(signal).column(split) for signal in signals}  # type: ignore[misc]
