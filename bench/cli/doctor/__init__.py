"""`bench doctor`: whether a run can start on this machine, and what would make it better."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.commands import AsJson
from bench.cli.doctor.finding import Finding, State

MARKS = {State.OK: "ok", State.NOTE: "note", State.BAD: "stops a run"}
"""State -> its word."""
Results = Annotated[Path, typer.Option("--out", help="Folder of results that runs will write.")]


def doctor(*, out: Results = Path("results"), as_json: AsJson = False) -> None:
    """Say whether a run can start on this machine, and what to mend. Exit code 1 where it can't."""
    from bench.cli.printing import print_json, print_line

    found = examined(out)
    bad = any(finding.state is State.BAD for finding in found)
    if as_json:
        print_json({"can_run": not bad, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            print_line(f"{MARKS[finding.state]:<12} {finding.about + ':':<14} {finding.what}")
            if finding.fix:
                print_line(f"{'':<28}-> {finding.fix}")
        print_line("No run can start here; mend what stops it." if bad else "A run can start on this machine.")
    raise typer.Exit(1 if bad else 0)


def examined(out: Path) -> list[Finding]:
    """All findings in order; those that ask other programs are asked for side by side.

    Args:
        out: folder of results.
    """
    from bench.cli.doctor import environment, libraries, machine

    checks: list[Callable[[], Iterator[Finding]]] = [
        environment.python,
        environment.packages,
        environment.other_bench,
        libraries.torch,
        libraries.others,
        machine.memory,
        lambda: machine.folders(out),
        machine.hub,
    ]
    with ThreadPoolExecutor(len(checks)) as pool:
        return [finding for some in pool.map(lambda check: list(_safely(check)), checks) for finding in some]


def _safely(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of a check; an error of its own is one more, so that the others are seen."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 - it examines whatever a machine may be
        what = f"{type(error).__name__}: {error}"
        yield Finding(getattr(check, "__name__", "check").strip("<>"), State.NOTE, f"could not be examined ({what})")
