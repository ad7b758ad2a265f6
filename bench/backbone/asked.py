"""User turns after conversations that don't continue the answering prompts: each is read whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from bench.backbone.items import Pass, Replies
from bench.backbone.measure import Turn
from bench.backbone.session import read_alone


def asked_alone(done: Pass, turn: Turn, asked: list[int], blocks: Sequence[int]) -> Replies:
    """Replies to a turn.

    Args:
        done: the pass, with its answers.
        turn: what is asked.
        asked: the questions that have an answer.
        blocks: those of which states are kept.
    """
    backbone, states, said = done.backbone, [], []
    for i in asked:
        before = done.items[i][0].query_prompt
        assert before is not None  # noqa: S101  # of all or of none
        ids = np.concatenate([before, done.answers[i], done.asking.turns[turn.wording]])
        reply: list[int] = []
        for step in range(max(1, turn.say)):
            whole = np.concatenate([ids, np.asarray(reply, dtype=np.int32)])
            end = read_alone(backbone.session, whole, dict.fromkeys(blocks, np.asarray([len(whole) - 1])))
            states += [end] if not step else []
            if not turn.say:
                break
            token = int(backbone.head.logits(end[backbone.blocks]).argmax())
            if token in backbone.stops:
                break
            reply.append(token)
        said.append(np.asarray(reply, dtype=np.int32))
    return Replies(asked, states={block: torch.cat([each[block] for each in states]) for block in blocks}, said=said)
