"""Tokens that a reading needs after each prompt, stage by stage: what is counted of it, fed or at least."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from bench.backbone.measure import Growth, Upto
from bench.signals.definition import growth_of, pass_definitions
from bench.signals.followup import after_answers
from bench.signals.samples import drawn

if TYPE_CHECKING:
    from bench.backbone.counted import Followed, Path
    from bench.prompts.tails import Ids
    from bench.signals.reader import Reader
    from bench.signals.reading import Reading

Paths = Iterator[list["Path"]]
"""Paths of each question, in the order of the shards."""


def followed(reading: Reading, reader: Reader) -> Iterator[list[Followed]]:
    """All that is read of each question, shard by shard."""
    from bench.backbone.counted import Followed

    befores = reader.query_prompts(reading) if growth_of(reading.signals).turns else None
    stages = {
        "answers": _answers(reading, reader),
        "query": _answers_read_back(reading, reader, continued=befores is None),
        "continuations": _options(reading, reader),
        "samples": _samples(reading, reader),
    }
    apart, generated = _apart(reading, reader, befores), _generated(reading)
    questions = (
        Followed(prompt, None if generated else answer, {stage: next(paths) for stage, paths in stages.items()}, own)
        for (prompt, answer), own in zip(reading.pairs(), apart, strict=True)
    )
    for shard in reading.shards:
        yield list(islice(questions, len(shard.rows)))


def _generated(reading: Reading) -> bool:
    """Whether the answers are generated when it is read; through an adapter they are read back."""
    return not reading.released and reading.adapter is None


def _answers(reading: Reading, reader: Reader) -> Paths:
    """Answers: the last token is chosen, not read, where the length limit ended one; given ones are not generated."""
    from bench.backbone.counted import Path

    limit, generated = reader.asking(reading).max_new_tokens, _generated(reading)
    for _, answer in reading.pairs():
        read = answer if len(answer) < limit else answer[:-1]
        yield [Path(read, spoken=len(read))] if generated else []


def _answers_read_back(reading: Reading, reader: Reader, *, continued: bool) -> Paths:
    """The answers as far as a signal reads them, and the user turns after them where these continue them."""
    from bench.backbone.counted import Path

    growth = growth_of(reading.signals)
    if growth.answer < (Upto.ANSWER_PREDICTING if _generated(reading) else Upto.PROMPT_END):
        yield from ([] for _ in reading.rows)
        return
    for (_, answer), turns in zip(reading.pairs(), _turns(reading, reader), strict=True):
        read_back = {Upto.PROMPT_END: answer[:0], Upto.ANSWER_PREDICTING: answer[:-1]}.get(growth.answer, answer)
        said = [Path(np.concatenate([read_back, turn.ids]), turn.spoken) for turn in turns] if continued else []
        yield [Path(read_back), *said] if len(answer) else []


def _apart(reading: Reading, reader: Reader, befores: Sequence[Ids] | None) -> Paths:
    """Conversations after the answers; `befores`: ids before them; None where they continue the answering prompts."""
    from bench.backbone.counted import Path

    if befores is None:
        yield from ([] for _ in reading.rows)
        return
    for before, (_, answer), turns in zip(befores, reading.pairs(), _turns(reading, reader), strict=True):
        yield [Path(np.concatenate([before, answer, turn.ids]), turn.spoken) for turn in turns] if len(answer) else []


def _turns(reading: Reading, reader: Reader) -> Paths:
    """The user turns after each answer, with what is read of the replies."""
    from bench.backbone.counted import Path

    turns = sorted(growth_of(reading.signals).turns)
    suffixes = [len(reader.asking(reading).turns[turn.wording]) for turn in turns]
    for own in after_answers(reader.stored(reading), turns):
        yield [Path(ids, len(ids) - suffix) for ids, suffix in zip(own, suffixes, strict=True)]


def _options(reading: Reading, reader: Reader) -> Paths:
    """The options, each up to the state that predicts its last token; prompts of which nothing else is read."""
    from bench.backbone.counted import Path

    growths = [each.growth for each in pass_definitions(reading.signals).values()]
    growth, alone = Growth.union(growths), not _generated(reading) and Growth() in growths
    if not (growth.gold or growth.wrong or alone):
        yield from ([] for _ in reading.rows)
        return
    split = reader.stored(reading)
    options_of = split.options if growth.gold or growth.wrong else [[] for _ in split.questions]
    for (_, answer), question, options in zip(reading.pairs(), split.questions, options_of, strict=True):
        wanted = (growth.gold if k == question.gold else growth.wrong for k in range(len(options)))
        paths = [Path(ids[:-1]) for ids, is_read in zip(options, wanted, strict=True) if is_read]
        yield [*paths, *([Path(answer[:0])] if alone and len(answer) else [])]


def _samples(reading: Reading, reader: Reader) -> Paths:
    """The samples, read like answers, those that came with them at once."""
    from bench.backbone.counted import Path

    split, growth = reader.stored(reading), growth_of(reading.signals)
    limit, given = split.asking.max_new_tokens, reading.samples is not None
    samplings = sorted(growth.samples)
    drawings = [drawn(split, sampling) for sampling in samplings]
    for _ in reading.rows:
        paths: list[Path] = []
        for sampling, drawing in zip(samplings, drawings, strict=True):
            for ids in next(drawing):
                read: Ids = ids if sampling in growth.sample_ends or len(ids) < limit else ids[:-1]
                paths.append(Path(read, spoken=0 if given else len(read)))
        yield paths
