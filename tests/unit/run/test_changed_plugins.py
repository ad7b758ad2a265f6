"""A plugin file that somebody edits: during a run, and between two seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import registry
from bench.api.errors import PluginError
from bench.report.grouping import Key
from bench.report.tables.origins import Origins
from bench.results.provenance import PLUGIN
from bench.results.row import ResultRow
from bench.run.isolation.guard import Isolation
from bench.run.isolation.methods import guarded

SURE = """
import numpy as np
from bench.api import ConfidenceMethod, Needs, method


@method("sure")
class Sure(ConfidenceMethod):
    reference = "doi:10.1/x"
    needs = Needs()

    def skip(self, facts):
        return "first"

    def predict(self, batch):
        return np.ones(len(batch))
"""


def test_a_file_that_is_edited_while_a_run_goes_on_fails_its_cell(tmp_path: Path) -> None:
    path = tmp_path / "sure.py"
    path.write_text(SURE, encoding="utf-8")
    isolation = Isolation(30.0)
    try:
        sure = guarded(registry.methods([path]).get("sure"), isolation, path)()
        facts = None
        assert sure.skip(facts) == "first"  # type: ignore[arg-type]
        path.write_text(SURE.replace("first", "second"), encoding="utf-8")
        with pytest.raises(PluginError, match=r"sure\.py was changed since the run began"):
            sure.skip(facts)  # type: ignore[arg-type]
    finally:
        isolation.close()


def test_seeds_of_different_versions_of_a_plugin_are_marked() -> None:
    first = ResultRow(
        method="sure+platt", model="tiny", task="rivers", preset="demo", seed=0, protocol="0", task_version=1,
        status="ok", provenance={"revisions": {f"{PLUGIN}sure": "sha256 a"}},
    )  # fmt: skip
    other = replace(first, seed=1, provenance={"revisions": {f"{PLUGIN}sure": "sha256 b"}})
    key = Key("sure+platt", "")
    notes = {
        len(rows): list(Origins({key: rows}).notes(key)) for rows in ([first], [first, other], [first, first, first])
    }
    assert notes == {1: [], 2: ["its seeds were run with different versions of the plugin"], 3: []}
