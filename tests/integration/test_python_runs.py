"""`run(...)` in Python: the files of the command, methods that are classes, cells without numbers, and progress."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from bench import Results, load_head, load_results, run
from bench.api import UserError
from bench.results.files import read_records
from bench.results.row import ResultRow
from bench.store.sources import plugin_digest
from tests.fixtures import cells
from tests.fixtures.cells import Notebook
from tests.kit.place import Place

CELL = '''
import numpy as np
from bench.api import ChoiceLogits, ConfidenceMethod, Needs, method
from tests.fixtures import cells

@method("top-option")
class TopOption(ConfidenceMethod):
    """Probability of the likeliest option."""

    reference = "arXiv:1610.02136"
    needs = Needs(predict=frozenset({ChoiceLogits()}))

    def predict(self, batch):
        logits = batch[ChoiceLogits()].astype(np.float64)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return weights.max(axis=1) / weights.sum(axis=1)

@method("base-rate")
class BaseRate(ConfidenceMethod):
    """Share of right answers in training."""

    reference = "arXiv:1610.02136"
    needs = Needs()
    shift = 0.0

    def fit(self, train, ctx):
        self.rate_ = float(train.correct.mean()) + self.shift
        cells.FITS.append(self.name)
        return self

    def predict(self, batch):
        return np.full(len(batch), self.rate_)

@method("broken")
class Broken(TopOption):
    """A method that fails."""

    def predict(self, batch):
        raise ValueError("no room")
'''


def run_here(methods: Any, folder: Path, **options: Any) -> Results:
    folders = {"out": folder, "cache": folder / "cache"}
    return run(methods, "tiny", "atlas-choice", limit=16, quiet=True, train_limit="32+32", **folders, **options)


def confidences(found: Results, method: str) -> Any:
    return read_records(next(path for path in found.paths if path.name.startswith(method))).confidence


def numbers(row: ResultRow) -> object:
    return row.metrics, row.per_subject, row.n, row.config, row.protocol, row.status


def test_python_writes_what_the_command_writes(place: Place) -> None:
    found = run("ptrue, sequence-probability", "tiny", "atlas-choice", limit=16, out=str(place / "a"), quiet=True)
    methods = ("--method", "ptrue,sequence-probability")
    place.run(*methods, "--model", "tiny", "--task", "atlas-choice", "--limit", 16, out="b")
    other = load_results(place / "b", partial=True, quiet=True)
    assert {row.method: numbers(row) for row in found.rows} == {row.method: numbers(row) for row in other.rows}
    assert {path.name for path in found.paths} == {path.name for path in (place / "b").rglob("*--n16.json")}
    assert not found.failed
    assert found.frame().equals(load_results(place / "a", partial=True, quiet=True).frame())


def test_class_of_a_cell_is_a_method(tmp_path: Path) -> None:
    cells.FITS.clear()
    with Notebook() as notebook:
        cell = notebook.cell(CELL)
        found = run_here(["ptrue", cell["TopOption"], cell["BaseRate"], cell["Broken"]], tmp_path)
        status = {row.method: row.status for row in found.rows}
        assert status == {"ptrue": "ok", "top-option": "ok", "base-rate": "ok", "broken": "failed"}
        assert found.failed
        assert "no room" in found.wide().reset_index().set_index("method").loc["broken"].reason
        assert "not built in" in found.table().render("md")
        assert confidences(found, "top-option").min() >= 0.25  # of four options, the likeliest
        revisions = found.rows[1].provenance["revisions"]
        assert revisions["method top-option"] is None  # a class without a file has no digest


def test_class_of_a_cell_is_fitted_anew(tmp_path: Path) -> None:
    """Without a file nothing says whether it is still the same, so its fits are not stored."""
    cells.FITS.clear()
    with Notebook() as notebook:
        first = confidences(run_here(notebook.cell(CELL)["BaseRate"], tmp_path), "base-rate")
        same = confidences(run_here(notebook.cell(CELL)["BaseRate"], tmp_path), "base-rate")
        assert cells.FITS == ["base-rate"] * 2
        assert not (tmp_path / "cache" / "fits").exists()
        edited = CELL.replace("shift = 0.0", "shift = 0.125")
        other = confidences(run_here(notebook.cell(edited)["BaseRate"], tmp_path), "base-rate")
        assert cells.FITS == ["base-rate"] * 3
    assert (first == same).all()
    assert other - first == pytest.approx(0.125)


def test_variants_of_a_script_are_fitted_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is the same for all classes that a function in it makes."""
    lines = "".join(f"    {line}\n" for line in CELL.replace("self.shift", "shift").splitlines())
    script = f"def variant(shift):\n{lines}    return BaseRate\n"
    (tmp_path / "a_script.py").write_text(script, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    variant = importlib.import_module("a_script").variant
    first, other = (confidences(run_here(variant(shift), tmp_path), "base-rate") for shift in (0.0, 0.125))
    assert other - first == pytest.approx(0.125)


def test_class_of_a_file_has_digest_and_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fits are not stored all the same."""
    cells.FITS.clear()
    (path := tmp_path / "own_script.py").write_text(CELL, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    cls = importlib.import_module("own_script").BaseRate
    for _ in range(2):
        found = run_here(cls, tmp_path, save_heads=tmp_path / "heads", overwrite=True)
    assert found.rows[0].provenance["revisions"]["method base-rate"] == f"sha256 {plugin_digest(cls)}"
    assert cells.FITS == ["base-rate"] * 2
    (card,) = (tmp_path / "heads").rglob("head.json")
    with pytest.raises(UserError, match=r"it came from the file own_script.py: give it with --plugin FILE"):
        load_head(card.parent, device="cpu")
    assert load_head(card.parent, device="cpu", plugins=[path]).method.rate_ == confidences(found, "base-rate")[0]


def test_dry_run_has_a_plan_and_no_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("ptrue", "tiny", "atlas-choice", limit=8, out=tmp_path, dry_run=True)
    assert "Plan: ptrue on tiny over atlas-choice" in capsys.readouterr().err
    assert found.plan
    assert found.plan[0] in repr(found)
    assert not list(tmp_path.rglob("*.json"))
    with pytest.raises(UserError, match="the run was a dry one"):
        found.table()
