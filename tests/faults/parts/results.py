"""Faults of result files and files of questions, through the commands that read them; and of writing them."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.store.disk_cache import with_digest
from tests.faults import commands, workload
from tests.faults.ledger import Case, FaultError, Outcome
from tests.faults.parts.store import ABSURD, Damage, flip

TITLE = "a result file is damaged, changed or foreign"
DIGITS, FLIPS = 40, 8
"""Digits that are changed in a JSON file, and bits that are flipped in each file."""
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


def cases(folder: Path) -> Iterator[Case]:
    """All of them."""
    base = Base(folder / "base")
    for sort, file in base.files().items():
        for name, damage in _damages(file):
            yield Case(f"{sort}: {name}", functools.partial(_refused, base, file, damage, folder / "copy"))
    for name, changes in _ODD_NUMBERS.items():
        damage = functools.partial(_rewritten, changes=changes)
        yield Case(f"JSON: {name}", functools.partial(_refused, base, base.files()["JSON"], damage, folder / "copy"))
    yield Case("foreign JSON", functools.partial(_foreign, base, folder / "copy"))
    yield Case("a failure beside each result", functools.partial(_failures, base, folder / "copy"))


class Base:
    """Results of an undisturbed run, and what the commands say of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @functools.cached_property
    def results(self) -> Path:
        """Their folder."""
        file = workload.questions_file(self.folder)
        arguments = workload.command(file, self.folder, "ccps,ptrue", "--json")
        commands.bench(*arguments, folder=self.folder / "said", env=workload.cache(self.folder)).expect(0)
        return self.folder / "out"

    def files(self) -> dict[str, Path]:
        """One of each sort."""
        found = {"JSON": "*/*/ccps*.json", "Parquet": "*/*/ccps*.parquet", "questions": "questions/*.parquet"}
        return {sort: next(self.results.glob(pattern)) for sort, pattern in found.items()}

    @functools.cached_property
    def shown(self) -> dict[str, str]:
        """What `read` shows of them; of a report, its page."""
        return {name: ran.out for name, ran in self.read(self.results).items()}

    def read(self, results: Path) -> dict[str, commands.Ran]:
        """Each command that reads results, on these."""
        table = ("table", "--deviations", "--format", "csv", "--results", results)
        report = ("report", "--deviations", "--results", results, "--out", self.folder / "page.html")
        check = ("check", "--results", results)
        run = functools.partial(commands.bench, folder=self.folder / "said", env=workload.cache(self.folder))
        page = self.folder / "page.html"
        page.unlink(missing_ok=True)
        reported = run(*report)
        if page.exists():
            reported = replace(reported, out=page.read_text(encoding="utf-8"))
        return {"table": run(*table), "report": reported, "check": run(*check)}


def _damages(file: Path) -> Iterator[tuple[str, Damage]]:
    content = file.read_bytes()
    for k in range(FLIPS):
        bit = (2 * k + 1) * 8 * len(content) // (2 * FLIPS) + k % 8
        yield f"bit {bit} flipped", lambda path, bit=bit: flip(path, bit)
    yield "cut", lambda path: os.truncate(path, len(content) // 2)
    yield "emptied", lambda path: os.truncate(path, 0)
    yield "deleted", lambda path: path.unlink()
    yield "a folder instead", lambda path: (path.unlink(), path.mkdir())
    yield "swapped", _swapped
    if file.suffix == ".json":
        text = content.decode()
        digits = [found.start() for found in re.finditer(r"\d", text)]
        for at in digits[:: max(1, len(digits) // DIGITS)]:
            yield f"digit at {at} changed", functools.partial(_with_digit, text=text, at=at)
        for name, absurd in ABSURD.items():
            yield name, lambda path, absurd=absurd: path.write_bytes(absurd)


def _swapped(path: Path) -> None:
    """Another file of its sort in its place: that of the other method, or of other questions."""
    others = [other for other in path.parent.glob(f"*{path.suffix}") if other != path]
    if others:
        shutil.copyfile(others[0], path)
    else:
        shutil.copyfile(Path("results/questions/atlas-choice--v1.parquet").absolute(), path)


def _with_digit(path: Path, text: str, at: int) -> None:
    path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :], encoding="utf-8")


def _rewritten(path: Path, changes: dict[str, Any]) -> None:
    values = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    path.write_text(json.dumps(with_digest(values)), encoding="utf-8")


def _refused(base: Base, file: Path, damage: Callable[[Path], object], folder: Path) -> None:
    """Each command refuses the file in a sentence, or shows what it shows of whole ones."""
    shown, results = base.shown, _copied(base, folder)
    path = results / file.relative_to(base.results)
    damage(path)
    for name, ran in base.read(results).items():
        ran.expect(0, 1, _REFUSED)
        said = ran.out + ran.err
        if "delete the file" in said:
            raise FaultError(Outcome.LOST, f"{name} advises to delete: {said[-200:]}")
        refused = ran.code == 1 and "FAILED" in said if name == "check" else ran.code == _REFUSED
        without = not path.exists() and path.suffix == ".json" and name != "check"  # no cell, so the others are shown
        ok = refused or ran.out == shown[name] or (ran.code == 0 and (without or _texts_are_gone(path, name)))
        if not ok:
            raise FaultError(Outcome.WRONG, f"{name}, exit {ran.code}: {said[-200:]!r}")


def _texts_are_gone(path: Path, command: str) -> bool:
    """Whether there is no file of questions, which a page does without."""
    return path.parent.name == "questions" and not path.exists() and command == "report"


def _copied(base: Base, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return Path(shutil.copytree(base.results, folder / "out"))


def _foreign(base: Base, folder: Path) -> None:
    """Files of somebody else are passed over, counted, and stay."""
    shown, results = base.shown, _copied(base, folder)
    path = next(results.glob("tiny/*")) / "config.json"
    path.write_text('{"mine": 1', encoding="utf-8")
    ran = base.read(results)
    if ran["table"].expect(0).out != shown["table"] or "passed over: 1" not in ran["table"].err:
        raise FaultError(Outcome.WRONG, ran["table"].err)
    ran["report"].expect(0)
    said = [one.err for one in ran.values()] + [ran["table"].out, ran["check"].out]  # the page has words of its own
    if "delete" in "".join(said) or not path.exists():
        raise FaultError(Outcome.LOST, "it is to be deleted")


def _failures(base: Base, folder: Path) -> None:
    """Failures of later runs leave the older numbers, and are told."""
    shown, results = base.shown, _copied(base, folder)
    for path in list(results.glob("*/*/*.json")):
        failed = path.with_suffix(".failed.json")
        shutil.copyfile(path, failed)
        _rewritten(failed, {"status": "failed", "reason": "loss is NaN", "metrics": {}, "records_digest": None})
    table = base.read(results)["table"].expect(0)
    means = [line.split(",")[:12] for line in table.out.splitlines()]
    if means != [line.split(",")[:12] for line in shown["table"].splitlines()]:
        raise FaultError(Outcome.LOST, table.out[-300:])
    said = commands.bench(
        "table", "--deviations", "--results", results, folder=base.folder / "said", env=workload.cache(base.folder)
    ).expect(0)
    if "failed (20" not in " ".join(said.out.split()):
        raise FaultError(Outcome.WRONG, "no word of the failures")
