"""`bench check`: checks a plugin by the rules of `bench.api`, or results before submission, and prints the outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path

from rich.text import Text

from bench.cli import verbosity
from bench.cli.check_process import check_file
from bench.cli.printing import console, print_json, print_line
from bench.data.sources import open_folder
from bench.results.submissions import check_results
from bench.run.isolation.log import RunLog
from bench.run.rerun import final_verdicts, rerun
from bench.store.disk_cache import cache_folder
from bench.testing import check_plugin


def plugin(target: str, data_dir: Path | None, seconds: float, *, as_json: bool) -> bool:
    """Check a method or a task by the rules of `bench.api`, print the outcome, and return whether all checks passed.

    Args:
        target: a .py file or a registered name.
        data_dir: folder of a task's data sets as Parquet files, read instead of the Hub.
        seconds: time limit of each rule, if the target is a file.
        as_json: whether to print JSON.

    Raises:
        UserError: the file or name does not exist.
    """
    path = Path(target)
    if path.suffix == ".py" or path.is_file():
        log = RunLog.create(cache_folder())
        with log.redirect():
            results = check_file(path, data_dir, seconds, log)
    else:
        log, results = None, check_plugin(target, open_folder(data_dir))
    if as_json:
        print_json([{"check": result.name, "ok": result.ok, "message": result.message} for result in results])
        return all(result.ok for result in results)
    # failures and remarks; with `--verbose` every rule
    shown = [result for result in results if not result.ok or result.message or verbosity.is_verbose()]
    for result in shown:
        mark = _mark(ok=result.ok, remark=bool(result.message))
        console().print(mark, Text(result.name), Text(result.message, style="dim"), soft_wrap=True)
    rest = "" if len(shown) == len(results) else "; -v lists each"
    console().print(f"{sum(result.ok for result in results)} of {len(results)} checks passed{rest}")
    if log is not None and log.has_text:
        print_line(f"what it printed is in {log.path}")
    return all(result.ok for result in results)


def results(
    folder: Path,
    cell: Path | None,
    data_dir: Path | None,
    *,
    model: str | None = None,
    tokenizer: str | None = None,
    as_json: bool,
) -> bool:
    """Check result files for submission, print the outcome, and return whether all may be submitted.

    Args:
        folder: the results folder.
        cell: JSON file of a cell to run again and compare; None: run nothing.
        data_dir: folder of the tasks' data sets as Parquet files, read instead of the Hub.
        model: file or folder of the cell's model, if it is a local one.
        tokenizer: folder of the cell's `--tokenizer`, if it is a local one.
        as_json: whether to print JSON.

    Raises:
        UserError: the folder or cell does not exist, or the folder has no result.
    """
    verdicts, again = check_results(folder, data_dir), None
    if cell is not None:
        again = rerun(cell, folder, data_dir, verbosity.progress(), model=model, tokenizer=tokenizer)
        verdicts = final_verdicts(verdicts, again)
    if as_json:
        files = [{"file": v.file, "problems": v.problems, "not_checked": v.unchecked} for v in verdicts]
        print_json(files if again is None else {"files": files, "rerun": asdict(again)})
        return not any(verdict.problems for verdict in verdicts)
    for verdict in verdicts:
        console().print(_mark(ok=not verdict.problems), Text(verdict.file), soft_wrap=True)
        for problem in verdict.problems:
            print_line(f"         {problem}")
    for reason, count in Counter(reason for verdict in verdicts for reason in verdict.unchecked).items():
        print_line(f"not checked: {reason} ({count} file{'s' * (count > 1)})")
    if again is not None:
        print_line(f"{again.file}, run again: {again.reason}")
        for note in again.notes:
            print_line(f"         {note}")
    passed = sum(not verdict.problems for verdict in verdicts)
    console().print(f"{passed} of {len(verdicts)} files may be submitted")
    return passed == len(verdicts)


def _mark(*, ok: bool, remark: bool = False) -> Text:
    if not ok:
        return Text("FAILED", style="red")
    return Text("note  ", style="yellow") if remark else Text("ok    ", style="green")
