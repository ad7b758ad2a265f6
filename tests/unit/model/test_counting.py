"""A session without a model reads as many tokens as one with a model, and keeps the same beginnings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.model import session
from bench.model.continuation_tree import read_pack, read_together
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.prefix_tree import plan_packs
from bench.model.session import Session
from bench.model.specs import resolve
from bench.model.token_accounting import CountingSession


@pytest.mark.parametrize("most", [session.MAX_CACHED_BYTES, 20_000, 120_000])
def test_beginnings_are_kept_and_dropped_as_by_a_session(
    small_model: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(session, "MAX_CACHED_BYTES", most)
    tiny = LanguageModel(resolve(str(small_model)), LoadOptions())
    real = Session(tiny.model)
    counting = CountingSession(real.measure_bytes_per_token())
    draw = np.random.default_rng(0)
    exemplars = [draw.integers(5, 90, size).astype(np.int32) for size in (90, 70, 110)]
    fed = []
    for round_ in range(4):
        shown = exemplars[round_ % 3 :] + exemplars[: round_ % 2]
        prompts = [np.concatenate([each, draw.integers(5, 90, 9).astype(np.int32)]) for each in shown for _ in range(5)]
        packs = plan_packs(prompts, 64)
        for one in (real, counting):
            for pack in packs:
                read_pack(one, pack, 64, [tiny.blocks])
            read_together(one, [(pack, pack.leaves) for pack in packs[:3]], 64, [tiny.blocks])
        fed.append(real.tokens)
        assert (counting.tokens, counting.length) == (real.tokens, real.length)
    assert fed[-1] < 4 * fed[0]
    assert counting.bytes_per_token == real.bytes_per_token > 0
