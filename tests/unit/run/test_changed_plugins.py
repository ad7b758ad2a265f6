"""A plugin file that somebody edits: during a run, and between two seeds."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from bench import registry
from bench.api.errors import PluginError
from bench.report.grouping import Key
from bench.report.tables.origins import Origins
from bench.results.provenance import PLUGIN
from bench.results.row import ResultRow
from bench.run.config import RunConfig
from bench.run.isolation.methods import isolated_class
from bench.run.isolation.sandbox import Isolation
from bench.run.pipeline import run
from bench.store.disk_cache import Store
from bench.store.sources import source_digest

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
        sure = isolated_class(registry.methods([path]).get("sure"), isolation, path)()
        facts = None
        assert sure.skip(facts) == "first"  # type: ignore[arg-type]
        path.write_text(SURE.replace("first", "second"), encoding="utf-8")
        with pytest.raises(PluginError, match=r"sure\.py or a file that it imports has changed since the run began"):
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


def test_a_module_of_its_author_that_is_edited_while_a_run_goes_on_fails_its_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the old one learned would be kept as what the new one would have learned."""
    monkeypatch.syspath_prepend(str(tmp_path))
    helper, path = tmp_path / "helper_of_sure.py", tmp_path / "sure.py"
    helper.write_text("WORD = 'first'\n", encoding="utf-8")
    path.write_text(
        SURE.replace('"first"', "helper_of_sure.WORD").replace("import numpy", "import helper_of_sure, numpy")
    )
    isolation = Isolation(30.0)
    try:
        sure = isolated_class(registry.methods([path]).get("sure"), isolation, path)()
        assert sure.skip(None) == "first"  # type: ignore[arg-type]
        helper.write_text("WORD = 'second'\n", encoding="utf-8")
        with pytest.raises(PluginError, match=r"sure\.py or a file that it imports has changed since the run began"):
            sure.skip(None)  # type: ignore[arg-type]
    finally:
        isolation.close()


TWO = """
from pathlib import Path
import numpy as np
from bench.api import ChoiceLogits, ConfidenceMethod, Needs, method

LETTERS = frozenset({ChoiceLogits()})

class Constant(ConfidenceMethod):
    reference = "doi:10.1/x"
    needs = Needs(fit=LETTERS, predict=LETTERS)

    def fit(self, train, ctx):
        Path(__file__).write_text(SECOND, encoding="utf-8")
        self.share_ = 0.5
        return self

    def predict(self, batch):
        return np.full(len(batch), self.share_)

@method("a-constant")
class One(Constant):
    \"\"\"One.\"\"\"

@method("b-constant")
class Other(Constant):
    \"\"\"Another.\"\"\"

SECOND = "# edited"
"""


@pytest.mark.slow
def test_what_code_in_memory_learned_is_kept_as_of_the_file_that_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class of an edited file that nobody imported again runs as it was."""
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "two_constants.py"
    path.write_text(TWO, encoding="utf-8")
    first = source_digest([path])
    module = importlib.import_module("two_constants")
    config = RunConfig(
        ("a-constant", "b-constant"),
        "tiny",
        ("atlas-choice",),
        limit=4,
        device="cpu",
        out=tmp_path / "o",
        cache=tmp_path / "cache",
    )
    report = run(config, classes=(module.One, module.Other))
    assert [row.reason for row in report.rows] == [None, None]
    assert path.read_text(encoding="utf-8") == "# edited"
    assert {e.manifest["fields"]["source"] for e in Store(tmp_path / "cache").entries("fits")} == {first}
