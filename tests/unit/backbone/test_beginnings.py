"""Shared beginnings are counted as one run from nothing reads them, whatever a process found in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.backbone import beginnings, session
from bench.backbone.beginnings import Kept
from bench.backbone.model import Backbone, LoadOptions
from bench.backbone.models import resolve
from bench.backbone.prefix import plan_packs
from bench.backbone.session import Session
from bench.backbone.starts import read_pack

EXEMPLARS, OTHER, INSIDE = ("exemplars", 80), ("other", 40), ("inside", 12)


def test_a_piece_is_read_once_and_again_where_it_was_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Kept().read([(EXEMPLARS, INSIDE), (EXEMPLARS,), (OTHER,), (EXEMPLARS, INSIDE)], 1) == 132
    kept = Kept()
    assert kept.read([(EXEMPLARS,)], 1) == 80
    assert kept.read([(EXEMPLARS, INSIDE)], 1) == 12
    assert kept.read([(OTHER,)], 1) == 40
    assert kept.read([(EXEMPLARS,)], 1) == 0
    monkeypatch.setattr(beginnings, "MOST_KEPT_BYTES", 100)
    narrow = Kept()
    assert narrow.read([(EXEMPLARS,), (OTHER,), (EXEMPLARS,)], 1) == 200
    assert Kept().read([(EXEMPLARS,), (EXEMPLARS, INSIDE)], 1_000) == 92  # the current path stays, however large


@pytest.mark.parametrize("most", [beginnings.MOST_KEPT_BYTES, 20_000])
def test_the_count_is_what_a_session_reads(small_model: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    for module in (beginnings, session):
        monkeypatch.setattr(module, "MOST_KEPT_BYTES", most)
    tiny = Backbone(resolve(str(small_model)), LoadOptions())
    draw, kept = np.random.default_rng(0), Kept()
    exemplars = [draw.integers(5, 90, size).astype(np.int32) for size in (90, 70, 110)]
    fresh = Session(tiny.model)
    for round_ in range(4):
        shown = exemplars[round_ % 3 :] + exemplars[: round_ % 2]
        prompts = [np.concatenate([each, draw.integers(5, 90, 9).astype(np.int32)]) for each in shown for _ in range(5)]
        before, packs = fresh.tokens.forward, plan_packs(prompts, 64)
        for pack in packs:
            read_pack(fresh, pack, 64, [tiny.blocks])
        shared = fresh.tokens.forward - before - sum(len(pack.tokens) for pack in packs)
        assert shared == kept.read([fresh.path(pack) for pack in packs], fresh.bytes_per_token)
    assert fresh.bytes_per_token > 0
