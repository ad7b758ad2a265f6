"""Faults of result files and files of questions, through the commands that read them; and of writing them."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from bench.store.disk_cache import with_digest
from tests.faults.commands import Outcome, Ran, Runs, require
from tests.faults.parts.store import ABSURD, Damage, flip, foldered

TITLE = "a result file is damaged, changed or foreign"
DIGITS, FLIPS = 126, 8
"""Digits that are changed in a JSON file, and bits that are flipped in each file, evenly spread."""
_REFUSED = 2
_ODD_NUMBERS: dict[str, Any] = {
    "bins 10^9": {"deviations": {"protocol.ece_bins": 10**9}},
    "bins -1": {"deviations": {"protocol.ece_bins": -1}},
    "bins text": {"deviations": {"protocol.ece_bins": "many"}},
    "bins infinite": {"deviations": {"protocol.ece_bins": float("inf")}},
    "bins NaN": {"deviations": {"protocol.ece_bins": float("nan")}},
    "ddof -10^300": {"deviations": {"protocol.std_ddof": -(10**300)}},
    "seed of 4000 digits": {"seed": 10**4000},
    "negative version": {"task_version": -1},
    "deep configuration": {"config": json.loads('{"a":' * 400 + "1" + "}" * 400)},
    "half a surrogate": {"reason": "\ud800"},
    "NaN": {"llm_accuracy": float("nan")},
    "infinite": {"llm_accuracy": float("inf")},
}
"""Fields that somebody wrote, with the digest that belongs to them."""
FILES = {"JSON": "*/*/ccps*.json", "Parquet": "*/*/ccps*.parquet", "questions": "questions/*.parquet"}


def cases(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    shown = Shown(folder / "base", more=("--json",))
    assert shown.cells
    files, copy = {sort: next((shown.folder / "out").glob(form)) for sort, form in FILES.items()}, folder / "copy"
    for sort, file in files.items():
        for name, damage in _damages(file):
            yield f"{sort}: {name}", partial(_refused, shown, file, damage, copy)
    for name, changes in _ODD_NUMBERS.items():
        yield f"JSON: {name}", partial(_refused, shown, files["JSON"], partial(_rewritten, changes=changes), copy)
    yield "foreign JSON", partial(_foreign, shown, copy)
    yield "a failure beside each result", partial(_failures, shown, copy)


class Shown(Runs):
    """Results of an undisturbed run, and what the commands say of them."""

    @cached_property
    def usual(self) -> dict[str, str]:
        """What `read` shows of them; of a report, its page."""
        return {name: ran.out for name, ran in self.read(self.folder / "out").items()}

    def read(self, results: Path) -> dict[str, Ran]:
        page = self.folder / "page.html"
        page.unlink(missing_ok=True)
        reported = self.other(self.folder, "report", "--deviations", "--results", results, "--out", page)
        if page.exists():
            reported = replace(reported, out=page.read_text(encoding="utf-8"))
        table = self.other(self.folder, "table", "--deviations", "--format", "csv", "--results", results)
        return {"table": table, "report": reported, "check": self.other(self.folder, "check", "--results", results)}


def _damages(file: Path) -> Iterator[tuple[str, Damage]]:
    content = file.read_bytes()
    for k in range(FLIPS):
        bit = (2 * k + 1) * 8 * len(content) // (2 * FLIPS) + k % 8
        yield f"bit {k + 1} of {FLIPS} flipped", partial(flip, bit=bit)
    yield "cut", lambda path: os.truncate(path, len(content) // 2)
    yield "emptied", lambda path: os.truncate(path, 0)
    yield "deleted", Path.unlink
    yield "a folder instead", foldered
    yield "swapped", _swapped
    if file.suffix == ".json":
        text = content.decode()
        digits = [found.start() for found in re.finditer(r"\d", text)]
        for k in range(DIGITS):
            at = digits[k * len(digits) // DIGITS]
            changed = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]
            yield f"digit {k + 1} of {DIGITS} changed", partial(Path.write_text, data=changed, encoding="utf-8")
        for name, absurd in ABSURD.items():
            yield name, partial(Path.write_bytes, data=absurd)


def _swapped(path: Path) -> None:
    others = [other for other in path.parent.glob(f"*{path.suffix}") if other != path]
    shutil.copyfile([*others, Path("results/questions/atlas-choice--v1.parquet").absolute()][0], path)


def _rewritten(path: Path, changes: dict[str, Any]) -> None:
    values = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    path.write_text(json.dumps(with_digest(values)), encoding="utf-8")


def _refused(shown: Shown, file: Path, damage: Damage, folder: Path) -> None:
    """Each command refuses the file in a sentence, or shows what it shows of whole ones."""
    usual = shown.usual
    path = shown.copied(folder, "out") / file.relative_to(shown.folder)
    damage(path)
    for name, ran in shown.read(folder / "out").items():
        said = (ran.expect(0, 1, _REFUSED)).out + ran.err
        require("delete the file" not in said, Outcome.LOST, f"{name} advises to delete: {said[-200:]}")
        refused = ran.code == 1 and "FAILED" in said if name == "check" else ran.code == _REFUSED
        without = not path.exists() and path.suffix == ".json" and name != "check"  # no cell, so the others are shown
        textless = path.parent.name == "questions" and not path.exists() and name == "report"  # a page does without
        ok = refused or ran.out == usual[name] or (ran.code == 0 and (without or textless))
        require(ok, Outcome.WRONG, f"{name}, exit {ran.code}: {said[-200:]!r}")


def _foreign(shown: Shown, folder: Path) -> None:
    usual, results = shown.usual, shown.copied(folder, "out") / "out"
    path = next(results.glob("tiny/*")) / "config.json"
    path.write_text('{"mine": 1', encoding="utf-8")
    ran = shown.read(results)
    same = ran["table"].expect(0).out == usual["table"] and "passed over: 1" in ran["table"].err
    require(same, Outcome.WRONG, ran["table"].err)
    ran["report"].expect(0)
    said = [one.err for one in ran.values()] + [ran["table"].out, ran["check"].out]  # the page has words of its own
    require("delete" not in "".join(said) and path.exists(), Outcome.LOST, "it is to be deleted")


def _failures(shown: Shown, folder: Path) -> None:
    usual, results = shown.usual, shown.copied(folder, "out") / "out"
    for path in list(results.glob("*/*/*.json")):
        failed = Path(shutil.copyfile(path, path.with_suffix(".failed.json")))
        _rewritten(failed, {"status": "failed", "reason": "loss is NaN", "metrics": {}, "records_digest": None})
    table = shown.read(results)["table"].expect(0)
    now, before = ([line.split(",")[:12] for line in text.splitlines()] for text in (table.out, usual["table"]))
    require(now == before, Outcome.LOST, table.out)
    said = shown.other(shown.folder, "table", "--deviations", "--results", results).expect(0)
    require("failed (20" in " ".join(said.out.split()), Outcome.WRONG, "no word of the failures")
