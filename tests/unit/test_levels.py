"""`make simulate` on planted outcomes: what its page says, what fails, and that it goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.stats import TESTED
from tests.levels import __main__ as levels
from tests.levels.populations import CELLS, GAPS, POWERED, SHAPED, SHAPES

FORMER = json.loads(levels.FORMER.read_text(encoding="utf-8"))["found"]


def planted() -> dict[str, Any]:
    """Outcomes with which every criterion holds."""
    cell = {"named": 20, "tested": 400, "untested": {}, "covered": 0.95, "error": 0.005, "intervals": 1.0}
    return {
        "time": 5.0,
        **{f"power: {each.name}": dict(FORMER[each.name]) for each in POWERED},
        **{f"levels: {each.name}": {metric: dict(cell) for metric in TESTED} for each in CELLS},
        **{
            f"shapes: {each.name}: {shape}": [
                {"gaps": [*gaps], "true": [*gaps], "data_sets": 400,
                 "named": {"rmsce": [10, 10] if gaps == GAPS[0] else [300, 0], "ece": [50, 9]}}
                for gaps in GAPS
            ]
            for each in SHAPED for shape in SHAPES
        },
    }  # fmt: skip


def simulated(outcomes: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, list[str]]:
    """Exit code, page and the jobs that were run."""
    ran: list[str] = []
    jobs = {name: lambda name=name: ran.append(name) or outcomes[name] for name in outcomes}  # type: ignore[misc]
    monkeypatch.setattr(levels, "jobs", lambda _most: jobs)
    (folder / "docs").mkdir(exist_ok=True)
    code = levels.main([], folder)
    return code, (folder / "docs" / "levels.md").read_text(encoding="utf-8"), ran


def test_levels_measured_are_not_measured_again(tmp_path, monkeypatch):
    first = simulated(planted(), tmp_path, monkeypatch)
    assert first[0] == 0
    assert first[2] == [*planted()]
    assert "**fails**" not in first[1]
    ledger = tmp_path / "build" / "levels" / "outcomes.jsonl"
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:-2]))
    again = simulated(planted(), tmp_path, monkeypatch)
    assert (again[0], again[2]) == (0, [*planted()][-2:])


@pytest.mark.parametrize(
    ("job", "place", "value", "said"),
    [
        ("levels: 57 x 10", ("auroc", "named"), 33, "most 8.2%: AUROC, 57 x 10 | **fails**"),
        ("levels: 57 x 10", ("nll", "covered"), 0.91, "least 91.0%: NLL, 57 x 10 | **fails**"),
        ("shapes: 8 x 150: low, high", (0, "named", "rmsce"), [0, 40], "most 10.0%: RMSCE, low, high, 8 x 150"),
        ("shapes: 8 x 150: low, high", (2, "named", "rmsce"), [199, 0], "least 49.8%: RMSCE, low, high, 8 x 150"),
        ("shapes: 57 x 10: low, high", (1, "named", "rmsce"), [9, 11], "most 2.8%: RMSCE, low, high, 57 x 10"),
        ("power: 57 x 20", ("acc",), FORMER["57 x 20"]["acc"] - 0.021, "least gain -2.1: ACC, 57 x 20 | **fails**"),
    ],
)
def test_levels_page_says_what_fails(job, place, value, said, tmp_path, monkeypatch, capsys):
    outcomes = planted()
    where = outcomes[job]
    for key in place[:-1]:
        where = where[key]
    where[place[-1]] = value
    code, page, _ = simulated(outcomes, tmp_path, monkeypatch)
    assert (code, page.count("**fails**")) == (1, 1)
    assert said in page
    assert capsys.readouterr().out.splitlines()[-1].startswith("FAILED ")


def test_levels_page_counts_untested_data_sets(tmp_path, monkeypatch):
    outcomes = planted()
    none = {"named": 0, "tested": 0, "untested": {"too few": 400}, "covered": None, "error": None, "intervals": 0.0}
    outcomes["levels: 57 x 10"]["auroc"] = none
    outcomes["levels: 57 x 20"]["auroc"] |= {"tested": 300, "untested": {"too few": 100}, "intervals": 0.75, "named": 9}
    few = {"named": 3, "tested": 3, "untested": {"too few": 397}, "covered": 0.2, "error": 0.1, "intervals": 0.01}
    outcomes["levels: 8 x 150"]["auroc"] = few
    code, page, _ = simulated(outcomes, tmp_path, monkeypatch)
    assert code == 0
    for text in ("no test", "no interval", "3 tested", "few intervals", "3.0 ± 1.0 (25% untested)", "(25% none)",
                 "- Untested, 57 x 20: 100 of 400 data sets, too few."):  # fmt: skip
        assert text in page
