"""Results of a GGUF model from two places, each with a folder and cache of its own, pass the check as one folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.results.files import read
from bench.results.submissions import check_results
from tests.kit.gguf import write_gguf
from tests.kit.place import Place

ROOT = Path(__file__).parents[2]
DIRTY = "it was made with uncommitted changes; commit them and run it again"


@pytest.mark.slow
def test_rows_of_a_gguf_file_elsewhere_pass(tmp_path: Path) -> None:
    here, elsewhere = Place(tmp_path / "here"), Place(tmp_path / "elsewhere")
    for place in (here, elsewhere):
        place.folder.mkdir()
    file = write_gguf(here / "small.gguf", ROOT / "bench" / "model" / "tiny")
    shutil.copy(file, elsewhere / "small.gguf")
    for place, method in ((here, "ptrue"), (elsewhere, "sequence-probability")):
        place.run("--model", place / "small.gguf", "--method", method, "--task", "atlas-choice")
    whole = shutil.copytree(here / "out", tmp_path / "results")
    shutil.copytree(elsewhere / "out", whole, dirs_exist_ok=True)
    rows = [read(path) for path in sorted(whole.glob("*/*/*.json"))]
    assert [row.method for row in rows] == ["ptrue", "sequence-probability"]
    assert len({(row.model, row.task) for row in rows}) == 1
    verdicts = check_results(whole)
    assert len([verdict for verdict in verdicts if verdict.file.endswith(".json")]) == 2
    assert {problem for verdict in verdicts for problem in verdict.problems} <= {DIRTY}  # of the harness's own code
    # another file under that file's name, and its answers, are another model's: they are not taken for it
    (model,) = {row.model for row in rows}
    changed = write_gguf(elsewhere / "small.gguf", ROOT / "bench" / "model" / "tiny", {"general.name": "another"})
    elsewhere.run("--model", changed, "--method", "ptrue", "--task", "atlas-choice", "--limit", "8", out="again")
    assert model not in {
        read(path).model for path in (elsewhere / "again").rglob("*.json") if "questions" not in path.parts
    }
