"""`bench guard`: computes confidence thresholds above which answers can be trusted, from result files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.api import UserError
from bench.cli.options import options_from
from bench.cli.printing import OutFormat, announcer, print_analyses, print_notes
from bench.report.selection import GuardRequest


@options_from(GuardRequest, without=("metrics", "average", "headline"))
def guard(
    request: GuardRequest,
    *,
    head: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a head that was saved with one of these results: the threshold is written into the head's"
            " card, and bench score then says which answers are trusted.",
            rich_help_panel="Where",
        ),
    ] = None,
    format_: Annotated[
        OutFormat, typer.Option("--format", help="How to print.", rich_help_panel="Where")
    ] = OutFormat.TERMINAL,
) -> None:
    """Say from which confidence on answers can be trusted: no more than --risk of them wrong.

    Result files are read and no model is run. For each method and seed, thresholds are tested on a share of the test
    questions, from the strictest down. The other test questions show how many answers are above the chosen threshold,
    and how many of these are wrong. If no threshold keeps the risk, the output says what would be needed.

    Example: bench guard --risk 0.1 --method ccps
    """
    from bench.report.guard import build_analysis
    from bench.report.guard.compute import compute_guards
    from bench.report.guard.verdict import format_share, why_failed
    from bench.results.cells import skipped_notes
    from bench.run.config import RunConfig
    from bench.run.scorers.card import GuardCard, read_card, write_guard
    from bench.store.disk_cache import cache_folder

    if request.out is not None and request.out.exists() and not request.out.is_dir():
        raise UserError(f"--out {request.out}: expected a folder, or a name for one, got a file")
    card = None if head is None else read_card(head)  # errors in it are reported before the computation
    if card is not None and card.asked.answers != RunConfig.answers:
        raise UserError(
            f"--head {head}: its answers are from {card.asked.answers}, and bench score trusts none but the model's"
            " own; take a head of a run without --answers, or leave --head out."
        )
    print_notes(skipped_notes(request.results, partial=request.partial))
    tables = compute_guards(request, cache_folder(), announcer())
    guard_card = None
    if card is not None:
        matches = [
            (table, seed)
            for table in tables
            for line in table.lines
            for seed in line.seeds
            if card.test.records is not None and seed.row.records_digest == card.test.records
        ]
        if not matches:
            raise UserError(
                f"--head {head}: none of these guards is of the result of its run ({card.name}, by the SHA-256 of its"
                " questions); name the folder with --results, add --partial if that run had --limit and --deviations if"
                " it had --set or --exemplar-sets, and leave out what chooses other methods, models or tasks."
            )
        table, seed = matches[0]
        if seed.threshold is None:
            raise UserError(
                f"--head {head}: no threshold of {card.name} keeps mistakes to {format_share(seed.request.risk)}:"
                f" {why_failed(seed)}. Its card stays as it was."
            )
        is_split = table.request.calibrate_on is None
        guard_card = GuardCard(
            threshold=seed.threshold, risk=seed.request.risk, level=seed.request.level, bound=seed.bound,
            task=table.calibrated_on, answers=len(seed.calibration.values), kept=seed.accepted, mistakes=seed.n_wrong,
            share=table.request.share if is_split else None, split_seed=table.request.split_seed if is_split else None,
        )  # fmt: skip
    print_analyses([build_analysis(tables)], request.out, format_)
    if head is not None and guard_card is not None:
        write_guard(head, guard_card)
        print_notes([f"{head}: trusted are {guard_card.terms}; bench score says so of each answer"])
