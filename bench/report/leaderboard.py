"""`python -m bench.report.leaderboard FOLDER`: writes FOLDER/README.md, the leaderboard of committed results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
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

_ABOUT = """# Results

This page is generated: `make results`, or `python -m bench.report.leaderboard results` where results were only added.

`<model>/<task>/<method>--<preset>--s<seed>[--<8 hex of what differs from the defaults>][--n<limit>].json` is one cell
of the comparison; the Parquet file of the same name has one row per question (`id, subject, correct, confidence,
answer, parsed`), from which every number can be computed again. `questions/` has the text of the questions,
under their benchmarks' licences (MMLU and MedMCQA: MIT, MMLU-Pro: Apache-2.0), `paper/` the published numbers,
`analyses/` what `make analyses` writes. Runs with `--limit` go to `partial/` and enter no table of this page.
A later run without numbers lies beside as `….failed.json` and replaces nothing.
Tables and reports show what the Parquet files give.
`records_digest` is the SHA-256 of a cell's Parquet file, `questions_digest` a digest of the questions that were tested,
and `digest` that of all other fields.

Fields of the JSON file: see `ResultRow` in `bench/results/row.py`; `schema_version` names their version. Metrics are
fractions, not percent: `mean` and `std` over subjects, `pooled` over all questions, `n_undefined` subjects left out.
`cost` counts token positions: what was fed to the model for all methods of the run together (`forward_tokens`,
`padded_tokens`) and the least possible (`forward_tokens_floor`); `forward_tokens_alone` is the least for this method by
itself. `generated_tokens_alone` counts the tokens that the model writes for it: each takes a decoding step, while
positions that are read back go through the model in one pass.

## Submit a run

1. Run whole tasks from a commit of this repository or from a released wheel: `bench run --method METHOD --model
   MODEL`.
2. Copy the two files of each cell (JSON and Parquet) to the same place below `results/`, and the files of `questions/`.
3. `bench check --results results` must pass. It computes every number again from the Parquet file. It compares labels
   with right answers, questions with the task's own, answers with those of other cells, and settings, versions and
   labels seen with what is registered. It refuses renamed results, uncommitted or unknown code, copies under other
   names or seeds, and files that belong to nothing. It lists what it can't check: data that are not at hand
   (`--data-dir DIR`), and methods and tasks that are not built in, which it never imports. Partial results (`--limit`)
   are checked alike, and listed.
4. Run `python -m bench.report.leaderboard results`, which refuses what the check refuses, and open a pull request with
   the files and this page.

## What only a run can find

A confidence is a number that somebody wrote. Files can't tell an honest one from one that was mixed with the label,
such as 0.9 * confidence + 0.1 * label, that another method or other constants gave, or
that was recalibrated on the labels it is tested on. Nor can they tell whether
tokens, seconds and trained parameters are true. A run of the cell can:

    bench check --results results --rerun tiny/atlas-choice/ccps--demo--s0.json

It runs this cell again with its own settings, in a temporary folder, and says whether it comes out again. On one
machine, every confidence of a method that neither learns nor draws must agree to 1e-4. Other machines read a model
slightly otherwise, and move trained methods by up to two points. So for all others each of the paper's metrics may
differ by as much as between the method's other seeds, at least one point, or by two points where there are not two
others. Confidences that separate right from wrong answers without a mistake are refused unless a run gives them again.

## Leaderboard

"""


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
