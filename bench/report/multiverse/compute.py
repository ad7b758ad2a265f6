"""Compute the multiverse analysis of one model and task: ranks of methods, and how often each claim holds.

The claims are the significant differences in the table that `bench table` shows, with its tests, its correction and its
means over seeds. A universe is one way to analyse the results. It is counted for each claim in how many universes the
two methods have the same order as in the table, and in how many the universe's own test is significant. Example:
`compute_multiverse(MultiverseRequest("tiny", "atlas-oe"), cache, print).claims("Brier")`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.api import UserError
from bench.api.errors import match_name
from bench.metrics import METRICS
from bench.report import recomputed, style
from bench.report.competition import OTHER_LABELS, rank
from bench.report.grouping import Key, common_corpus
from bench.report.multiverse.definitions import CALIBRATION, DEFINITION, FAMILIES, RECALIBRATION, USUAL, Family
from bench.report.multiverse.model import (
    LEVEL,
    Multiverse,
    Option,
    OptionShare,
    PairOutcome,
    RankDistribution,
    Universe,
)
from bench.report.multiverse.result_sets import (
    LETTERS,
    USUAL_ANSWERS,
    Exclusions,
    ResultSet,
    RunSettings,
    build_result_sets,
    eligible_rows,
    reference_of,
    setting_of,
)
from bench.report.multiverse.values import gradings, universes
from bench.report.selection import MultiverseRequest
from bench.report.standings.cache import StandingsReader
from bench.report.standings.compute import Standings
from bench.report.tables.choice import refuse_unknown
from bench.report.tables.model import Line, MetricValue
from bench.report.text import join, plain
from bench.results import question_texts
from bench.results.files import recalibration_of
from bench.results.row import ResultRow
from bench.stats import Settings
from bench.stats.multiverse import ROUNDING, competition_ranks, correlation_ratio, rank_summary

MIN_METHODS = 2
"""Minimum number of methods for a multiverse analysis, as a claim compares two methods."""
_NOT_SEEDS = "Seeds are not averaged in a universe: who runs a method once has one of them."


def compute_multiverse(
    request: MultiverseRequest, cache: Path | None, say: Callable[[str], None], settings: Settings | None = None
) -> Multiverse:
    """Compute a multiverse analysis: check the claims of a table in many defensible analyses of the same results.

    Args:
        request: model, task and results folder.
        cache: folder that caches the tests of the table; None for no cache.
        say: receives a message before long work.
        settings: settings of the significance tests in each universe (analysis).

    Raises:
        UserError: there are no such results; they have several presets and none was chosen; fewer than two methods can
            be compared; a result file is damaged.
    """
    exclusions = Exclusions()
    selected = _select_rows(request, cache, say)
    request = replace(request, model=selected[0].model, task=selected[0].task)
    eligible = eligible_rows(selected, exclusions)
    title = f"{plain(request.model)} on {plain(request.task)}"
    presets = {row.preset for row in eligible}
    if not presets:
        raise UserError(
            f"no result of {title} in {request.results} can stand in a table with others (failed, partial, cut short,"
            " scores alone, or with settings of its own)"
        )
    if request.preset is not None:
        refuse_unknown("--preset", "preset", request.preset, presets, of="result with ")
    elif len(presets) > 1:
        raise UserError(
            f"results of {title} have presets {join(presets)}; choose with --preset the one whose table is examined,"
            " the others are universes"
        )
    preset_rows = [row for row in eligible if row.preset == (request.preset or next(iter(presets)))]
    reference = reference_of(preset_rows)
    rows = [row for row in preset_rows if setting_of(row) == reference and not recalibration_of(row.method)]
    styles, lines = style.read(request.results), defaultdict[Key, list[ResultRow]](list)
    for row in sorted(rows, key=lambda row: (styles.place(row.method), row.seed)):
        lines[Key(row.method, "")].append(row)
    standings = StandingsReader(request.results, cache, say)(lines)
    ranked = _rank_methods(lines, standings, exclusions)
    methods = list(dict.fromkeys(name for names in ranked.values() for name in names))
    if len(methods) < MIN_METHODS:
        raise UserError(
            f"{title}: a claim needs two methods with results that the table can compare, there is"
            f" {f'{methods[0]} alone' if methods else 'none'}; run more: bench run --method all --model"
            f" {plain(request.model)}"
        )
    for name in request.methods:
        refuse_unknown("--method", "method", name, methods, of="ranked ")
    result_sets = build_result_sets(eligible, request.results, methods, reference, exclusions)
    say(f"analysing {title} in every universe")
    graded, effects, notes = gradings(
        result_sets, question_texts.read(request.results, request.task, rows[0].task_version)
    )
    evaluated = tuple(universes(graded, settings or Settings()))
    left_out = [f"{text} ({n} result{'s' * (n > 1)})." for text, n in exclusions.counts.items()] + exclusions.missing
    learned = [f"Methods learned on {plain(corpus)} (--train-on)."] if (corpus := common_corpus(rows)) else []
    absent = [name for name in ranked[FAMILIES[1].name] if name not in ranked[CALIBRATION]]
    if absent:
        left_out.append(
            f"In calibration {join(absent)} take{'s' * (len(absent) == 1)} no part, as in tables: the AUROC is not"
            " above 50 % beyond chance, and a confidence that says nothing is calibrated easily."
        )
    return Multiverse(
        plain(request.model), plain(request.task), reference.preset, len(result_sets[0].first.id),
        tuple(sorted({row.seed for row in rows})), ranked,
        tuple(_build_options(evaluated, reference, effects)), evaluated,
        tuple(c for family in FAMILIES for c in _pair_outcomes(family, ranked[family.name], evaluated, standings)),
        tuple(p for family in FAMILIES for p in _rank_distributions(family, ranked[family.name], evaluated, standings)),
        (*learned, *_option_remarks(result_sets), *left_out, *notes, _NOT_SEEDS),
    )  # fmt: skip


# --- the table --------------------------------------------------------------------------------------------------------


def _select_rows(request: MultiverseRequest, cache: Path | None, say: Callable[[str], None]) -> list[ResultRow]:
    """Return the stored results of the requested model and task."""
    candidates = recomputed.read_recomputed(request.results, cache, say=say)
    if not candidates:
        raise UserError("there are no results to analyse; run something first: bench run --method all --model tiny")
    models, tasks = {row.model for row in candidates}, {row.task for row in candidates}
    request = replace(request, model=match_name(request.model, models), task=match_name(request.task, tasks))
    refuse_unknown("--model", "model", request.model, models, of="result of ")
    refuse_unknown("--task", "task", request.task, tasks, of="result of ")
    rows = [row for row in candidates if (row.model, row.task) == (request.model, request.task)]
    if not rows:
        raise UserError(f"no result of {plain(request.model)} on {plain(request.task)}; run it, or name another --task")
    versions = {row.task_version for row in rows}
    if len(versions) > 1:
        raise UserError(
            f"results of {plain(request.model)} on {plain(request.task)} have task versions {join(versions)}, which"
            " ask other questions; delete the old ones, or move them to another folder"
        )
    return rows


def _rank_methods(
    rows: Mapping[Key, Sequence[ResultRow]], standings: Standings, exclusions: Exclusions
) -> dict[str, tuple[str, ...]]:
    """Return the methods that the table compares, for each family of claims (kind, e.g. on calibration)."""
    lines, styles = [], style.built_in()
    for key, runs in rows.items():
        standing, place = standings.lines.get(key), (*styles.place(key.method), "")
        estimates = {name: MetricValue(mean=e.value) for name, e in standing.metrics.items()} if standing else {}
        lines.append(Line(key, styles.of(key.method), place, rows=tuple(runs), estimates=estimates, standing=standing))
    competitions = {family.name: rank(lines, standings, family.metric) for family in FAMILIES}
    for key, reason in competitions[FAMILIES[1].name].excluded.items():
        if reason == OTHER_LABELS:
            exclusions.counts[f"Left out: {key.label} rests on other answers or labels than most of the table"] += 1
        elif key in standings.left_out:
            exclusions.counts[f"Left out: {key.label}, {reason}"] += 1
    return {name: tuple(line.method for line in lines if line in c.comparable) for name, c in competitions.items()}


# --- options ----------------------------------------------------------------------------------------------------------


def _build_options(
    universes: Sequence[Universe], reference: RunSettings, effects: Mapping[tuple[str, str], str]
) -> Iterator[Option]:
    """Yield the options of each analysis choice in which universes (analyses) differ.

    Args:
        universes: all universes.
        reference: setting of the table, i.e. what its runs fixed for all methods.
        effects: (choice, option) -> what the option changes, in words.
    """
    table_options = {**reference._asdict(), **USUAL}
    for dimension in (name for name in universes[0].choices if name != DEFINITION):
        for name in dict.fromkeys(universe.choices[dimension] for universe in universes):
            yield Option(dimension, name, table_options.get(dimension) == name, effects.get((dimension, name), ""))
    for family in (f for f in FAMILIES if len(f.definitions) > 1):
        for definition in family.definitions:
            yield Option(DEFINITION, definition.label, definition.metric == family.metric, f"of {family.name}")


def _option_remarks(sets: Sequence[ResultSet]) -> Iterator[str]:
    """Yield remarks on missing results: combinations of options without results, and choices with only one option."""
    options = {name: {s.choices[name] for s in sets} for name in sets[0].choices}
    product = math.prod(map(len, options.values()))
    if product > len(sets):
        yield (
            f"Of {product:,} combinations of what runs were made with (preset, tuning, judge, seed, recalibration ...),"
            f" {len(sets):,} are there: options that come with more of the others weigh more in every share, and what"
            " is told of one choice may be due to another that came with it."
        )
    flags = {"preset": "--preset", "tuning": "--tune", "judge": "--judge", RECALIBRATION: "--recalibrate"}
    if sets[0].setting.judge == LETTERS:
        del flags["judge"]
    flags |= {"answers": "--answers or --think-budget"} if options["answers"] != {USUAL_ANSWERS} else {}
    single = {name: next(iter(options[name])) for name in flags if len(options[name]) == 1}
    if single:
        yield (
            f"No choice here, as there are results of one option: {', '.join(f'{n} ({o})' for n, o in single.items())}."
            f" bench run with {', '.join(flags[name] for name in single)} adds others."
        )


# --- claims -----------------------------------------------------------------------------------------------------------


def _pair_outcomes(
    family: Family, methods: Sequence[str], universes: Sequence[Universe], standings: Standings
) -> Iterator[PairOutcome]:
    """Yield, for each pair of methods of the table, how often their order holds in the universes of a family of claims.

    A universe is one analysis of the results; a family is the claims of one kind, e.g. on calibration.
    """
    members, higher_wins = [u for u in universes if u.family == family.name], METRICS[family.metric].higher_is_better
    for pair in standings.pairs:
        if pair.metric != family.metric or not {pair.first.method, pair.second.method} <= set(methods):
            continue
        winner = pair.winner(1 - LEVEL)
        is_first = (pair.difference > 0) is higher_wins if winner is None else winner == pair.first
        claimed = pair if is_first else pair.reversed()
        first, second = claimed.first.method, claimed.second.method
        shared = [u for u in members if first in u.values and second in u.values]
        signs = [1 if METRICS[u.metric].higher_is_better else -1 for u in shared]
        holds = [sign * (u.values[first] - u.values[second]) > ROUNDING for sign, u in zip(signs, shared, strict=True)]
        tested = [u.wins for u in shared if u.wins is not None]
        shares, influence = list[OptionShare](), dict[str, float]()
        for dimension in shared[0].choices if shared else ():
            options = [universe.choices[dimension] for universe in shared]
            if len(set(options)) > 1:
                influence[dimension] = correlation_ratio(holds, options)
                for name in dict.fromkeys(options):
                    option_holds = [hold for hold, option in zip(holds, options, strict=True) if option == name]
                    shares.append(OptionShare(dimension, name, len(option_holds), sum(option_holds)))
        yield PairOutcome(
            family.name, first, second, claimed.difference, pair.p_corrected, winner is not None, len(shared),
            sum(holds), len(tested), sum((first, second) in wins for wins in tested),
            sum((second, first) in wins for wins in tested), tuple(shares), influence,
        )  # fmt: skip


# --- ranks ------------------------------------------------------------------------------------------------------------


def _rank_distributions(
    family: Family, methods: Sequence[str], universes: Sequence[Universe], standings: Standings
) -> list[RankDistribution]:
    """Return how often each method has which rank, over the universes (analyses) in which all methods have values.

    The method with the best median rank comes first.
    """
    complete = [u for u in universes if u.family == family.name and set(methods) <= u.values.keys()]
    if not complete or len(methods) < MIN_METHODS:
        return []
    ranks = np.stack([
        competition_ranks(
            np.array([u.values[name] for name in methods]),
            higher_is_better=bool(METRICS[u.metric].higher_is_better),
        )
        for u in complete
    ])  # (u, m)  # fmt: skip
    tested = [u.wins for u in complete if u.wins is not None]
    in_table = {key.method: line.ranks.get(family.metric) for key, line in standings.lines.items()}
    distributions = []
    for name, column in zip(methods, ranks.T, strict=True):
        is_lead = [not any(loser == name and winner in methods for winner, loser in wins) for wins in tested]
        distributions.append(
            RankDistribution(
                family.name, name, in_table.get(name), rank_summary(column),
                dict(sorted(Counter(column.tolist()).items())), sum(is_lead) / len(is_lead) if is_lead else None,
            )
        )  # fmt: skip
    return sorted(distributions, key=lambda d: (d.spread.median, d.spread.mean))
