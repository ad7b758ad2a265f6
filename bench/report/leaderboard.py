"""`python -m bench.report.leaderboard FOLDER`: writes FOLDER/README.md, the leaderboard of committed results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from bench.api import UserError
from bench.progress import visible
from bench.report.selection import View
from bench.report.tables import formats
from bench.report.tables.request import build_views
from bench.results.cells import list_result_files
from bench.results.submissions import check_results
from bench.store.disk_cache import cache_folder
from bench.store.files import write_atomic

NAME = "README.md"

_ABOUT = (resources.files(__package__) / "leaderboard.md").read_text(encoding="utf-8") + "\n"


def write(folder: Path, cache: Path | None = None) -> Path:
    """Write README.md of a results folder, whole or not at all, and return its path.

    Args:
        folder: results folder.
        cache: folder that caches intervals and tests; None disables the cache.

    Raises:
        UserError: there are no results, results don't belong in one table, or `bench check` refuses a result.
    """
    verdicts = check_results(folder)
    refused = [verdict for verdict in verdicts if verdict.problems]
    if refused:
        raise UserError(
            f"{len(refused)} of {len(verdicts)} files can't stand on the leaderboard, e.g. {refused[0].file}:"
            f" {refused[0].problems[0]}; see them all: bench check --results {folder}"
        )
    if not list_result_files(folder).cells:
        raise UserError(f"--results {folder}: expected results of whole tasks for the leaderboard, found partial ones")
    tables = formats.render(build_views(View(folder), cache), "md")
    path = folder / NAME
    write_atomic(path, (_ABOUT + tables).encode())
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the leaderboard of a folder given on the command line; return 0, or 2 after an error message."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if len(argv) != 1:
        sys.stderr.write("usage: python -m bench.report.leaderboard FOLDER\n")
        return 2
    try:
        sys.stdout.write(f"wrote {write(Path(argv[0]), cache_folder())}\n")
    except UserError as error:
        sys.stderr.write(f"bench: {visible(str(error))}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
