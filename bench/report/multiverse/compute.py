"""Results of one model and task -> the multiverse of their table: places of methods, and what becomes of its claims.

The table is that of `bench table` (its tests, its correction, the mean over its seeds). Each universe is compared with
it by values, and tested by itself. Example: `computed(MultiverseRequest("tiny", "atlas-oe"), cache).claims("Brier")`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from bench.api import UserError
from bench.metrics import METRICS
from bench.report import recomputed, style
from bench.report.competition import OTHER_LABELS, rank
from bench.report.grouping import Key
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
    Exclusions,
    ResultSet,
    Setting,
    admitted,
    reference_of,
    setting_of,
    worlds,
)
from bench.report.multiverse.values import gradings, universes
from bench.report.selection import MultiverseRequest
from bench.report.standings.cache import StandingsReader
from bench.report.standings.compute import Standings
from bench.report.tables.choice import require
from bench.report.tables.model import Line, MetricValue
from bench.report.text import listed, plain
from bench.results import questions
from bench.results.files import recalibration_of
from bench.results.row import ResultRow
from bench.stats import Settings
from bench.stats.multiverse import ROUNDING, explained, places, spread

SEVERAL = 2
"""Methods that a claim needs."""
_NOT_SEEDS = "Seeds are not averaged in a universe: who runs a method once has one of them."


def computed(
    request: MultiverseRequest,
    cache: Path | None,
    say: Callable[[str], None] = lambda _: None,
    settings: Settings | None = None,
) -> Multiverse:
    """The multiverse of a table.

    Args:
        request: which results.
        cache: folder where the table's tests are kept; None keeps none.
        say: told before long work.
        settings: of tests.

    Raises:
        UserError: no such results, several presets to choose from, fewer than two methods that can be compared, or a
            result that is not as it must be.
    """
    gaps = Exclusions()
    of_setting = admitted(_found(request, cache, say), gaps)
    what = f"{plain(request.model)} on {plain(request.task)}"
    presets = {row.preset for row in of_setting}
    if not presets:
        raise UserError(
            f"no result of {what} in {request.results} can stand in a table with others (failed, partial, cut short,"
            " scores alone, or with settings of its own)"
        )
    if request.preset is not None:
        require("--preset", "preset", request.preset, presets, of="result with ")
    elif len(presets) > 1:
        raise UserError(
            f"results of {what} have presets {listed(presets)}; choose with --preset the one whose table is examined,"
            " the others are universes"
        )
    chosen = [row for row in of_setting if row.preset == (request.preset or next(iter(presets)))]
    reference = reference_of(chosen)
    own = [row for row in chosen if setting_of(row) == reference and not recalibration_of(row.method)]
    styles, lines = style.read(request.results), defaultdict[Key, list[ResultRow]](list)
    for row in sorted(own, key=lambda row: (styles.place(row.method), row.seed)):
        lines[Key(row.method, "")].append(row)
    standings = StandingsReader(request.results, cache, say)(lines)
    ranked = _ranked(lines, standings, gaps)
    known = list(dict.fromkeys(name for names in ranked.values() for name in names))
    if len(known) < SEVERAL:
        raise UserError(
            f"{what}: a claim needs two methods with results that the table can compare, there is"
            f" {f'{known[0]} alone' if known else 'none'}; run more: bench run --method all --model"
            f" {plain(request.model)}"
        )
    for name in request.methods:
        require("--method", "method", name, known, of="ranked ")
    made = worlds(of_setting, request.results, known, reference, gaps)
    say(f"analysing {what} in every universe")
    graded, effects, remarks = gradings(made, questions.read(request.results, request.task, own[0].task_version))
    every = tuple(universes(graded, settings or Settings()))
    left_out = [f"{text} ({n} result{'s' * (n > 1)})." for text, n in gaps.counts.items()] + gaps.missing
    lacking = [name for name in ranked[FAMILIES[1].name] if name not in ranked[CALIBRATION]]
    if lacking:
        left_out.append(
            f"In calibration {listed(lacking)} take{'s' * (len(lacking) == 1)} no part, as in tables: the AUROC is not"
            " above 50 % beyond chance, and a confidence that says nothing is calibrated easily."
        )
    return Multiverse(
        plain(request.model), plain(request.task), reference.preset, len(made[0].any.id),
        tuple(sorted({row.seed for row in own})), ranked,
        tuple(_options(every, reference, effects)), every,
        tuple(c for family in FAMILIES for c in _contests(family, ranked[family.name], every, standings)),
        tuple(p for family in FAMILIES for p in _places(family, ranked[family.name], every, standings)),
        (*_few_options(made), *left_out, *remarks, _NOT_SEEDS),
    )  # fmt: skip


# --- the table --------------------------------------------------------------------------------------------------------


def _found(request: MultiverseRequest, cache: Path | None, say: Callable[[str], None]) -> list[ResultRow]:
    """Results of the model and task."""
    every = recomputed.rows_of(request.results, cache, say=say)
    if not every:
        raise UserError("there are no results to analyse; run something first: bench run --method all --model tiny")
    for option, what in (("--model", "model"), ("--task", "task")):
        require(option, what, getattr(request, what), {getattr(row, what) for row in every}, of="result of ")
    found = [row for row in every if (row.model, row.task) == (request.model, request.task)]
    if not found:
        raise UserError(f"no result of {plain(request.model)} on {plain(request.task)}; run it, or name another --task")
    versions = {row.task_version for row in found}
    if len(versions) > 1:
        raise UserError(
            f"results of {plain(request.model)} on {plain(request.task)} have task versions {listed(versions)}, which"
            " ask other questions; delete the old ones, or move them to another folder"
        )
    return found


def _ranked(
    rows: Mapping[Key, Sequence[ResultRow]], standings: Standings, gaps: Exclusions
) -> dict[str, tuple[str, ...]]:
    """Family -> methods that the table compares there."""
    lines, styles = [], style.built_in()
    for key, runs in rows.items():
        standing, place = standings.lines.get(key), (*styles.place(key.method), "")
        estimates = {name: MetricValue(mean=of.value) for name, of in standing.metrics.items()} if standing else {}
        lines.append(Line(key, styles.of(key.method), place, rows=tuple(runs), estimates=estimates, standing=standing))
    contests = {family.name: rank(lines, standings, family.metric) for family in FAMILIES}
    for key, reason in contests[FAMILIES[1].name].excluded.items():
        if reason == OTHER_LABELS:
            gaps.counts[f"Left out: {key.label} rests on other answers or labels than most of the table"] += 1
        elif key in standings.left_out:
            gaps.counts[f"Left out: {key.label}, {reason}"] += 1
    return {
        name: tuple(line.method for line in lines if line in contest.comparable) for name, contest in contests.items()
    }


# --- options ----------------------------------------------------------------------------------------------------------


def _options(every: Sequence[Universe], reference: Setting, effects: Mapping[tuple[str, str], str]) -> Iterator[Option]:
    """Options of all dimensions, those of the table first; definitions are those of the families with several."""
    usual = {**reference._asdict(), **USUAL}
    for dimension in (name for name in every[0].choices if name != DEFINITION):
        for name in dict.fromkeys(universe.choices[dimension] for universe in every):
            yield Option(dimension, name, usual.get(dimension) == name, effects.get((dimension, name), ""))
    for family in (each for each in FAMILIES if len(each.definitions) > 1):
        for definition in family.definitions:
            yield Option(DEFINITION, definition.label, definition.metric == family.metric, f"of {family.name}")


def _few_options(made: Sequence[ResultSet]) -> Iterator[str]:
    """Sentences on combinations of the data's options that are not there, and on dimensions with one option."""
    options = {name: {world.choices[name] for world in made} for name in made[0].choices}
    product = math.prod(map(len, options.values()))
    if product > len(made):
        yield (
            f"Of {product:,} combinations of what runs were made with (preset, tuning, judge, seed, recalibration ...),"
            f" {len(made):,} are there: options that come with more of the others weigh more in every share, and what"
            " is told of one choice may be due to another that came with it."
        )
    adds = {"preset": "--preset", "tuning": "--tune", "judge": "--judge", RECALIBRATION: "--recalibrate"}
    if made[0].setting.judge == LETTERS:
        del adds["judge"]
    alone = {name: next(iter(options[name])) for name in adds if len(options[name]) == 1}
    if alone:
        yield (
            f"No choice here, as there are results of one option: {', '.join(f'{n} ({o})' for n, o in alone.items())}."
            f" bench run with {', '.join(adds[name] for name in alone)} adds others."
        )


# --- claims -----------------------------------------------------------------------------------------------------------


def _contests(
    family: Family, methods: Sequence[str], every: Sequence[Universe], standings: Standings
) -> Iterator[PairOutcome]:
    """Fates of the table's pairs in the universes of a family."""
    own, is_higher_better = [u for u in every if u.family == family.name], METRICS[family.metric].higher_is_better
    for pair in standings.pairs:
        if pair.metric != family.metric or not {pair.first.method, pair.second.method} <= set(methods):
            continue
        winner = pair.winner(1 - LEVEL)
        is_first = (pair.difference > 0) is is_higher_better if winner is None else winner == pair.first
        claimed = pair if is_first else pair.reversed()
        first, second = claimed.first.method, claimed.second.method
        both = [u for u in own if first in u.values and second in u.values]
        signs = [1 if METRICS[u.metric].higher_is_better else -1 for u in both]
        holds = [sign * (u.values[first] - u.values[second]) > ROUNDING for sign, u in zip(signs, both, strict=True)]
        tested = [u.wins for u in both if u.wins is not None]
        shares, influence = list[OptionShare](), dict[str, float]()
        for dimension in both[0].choices if both else ():
            options = [universe.choices[dimension] for universe in both]
            if len(set(options)) > 1:
                influence[dimension] = explained(holds, options)
                for name in dict.fromkeys(options):
                    of_option = [is_so for is_so, option in zip(holds, options, strict=True) if option == name]
                    shares.append(OptionShare(dimension, name, len(of_option), sum(of_option)))
        yield PairOutcome(
            family.name, first, second, claimed.difference, pair.p_corrected, winner is not None, len(both),
            sum(holds), len(tested), sum((first, second) in wins for wins in tested),
            sum((second, first) in wins for wins in tested), tuple(shares), influence,
        )  # fmt: skip


# --- places -----------------------------------------------------------------------------------------------------------


def _places(
    family: Family, methods: Sequence[str], every: Sequence[Universe], standings: Standings
) -> list[RankDistribution]:
    """Places of each method in the universes in which all have numbers, the best median first."""
    whole = [u for u in every if u.family == family.name and set(methods) <= u.values.keys()]
    if not whole or len(methods) < SEVERAL:
        return []
    found = np.stack([
        places(
            np.array([u.values[name] for name in methods]),
            higher_is_better=bool(METRICS[u.metric].higher_is_better),
        )
        for u in whole
    ])  # (u, m)  # fmt: skip
    tested = [u.wins for u in whole if u.wins is not None]
    ranks = {key.method: line.ranks.get(family.metric) for key, line in standings.lines.items()}
    made = []
    for name, column in zip(methods, found.T, strict=True):
        leads = [not any(loser == name and winner in methods for winner, loser in wins) for wins in tested]
        made.append(
            RankDistribution(
                family.name, name, ranks.get(name), spread(column), dict(sorted(Counter(column.tolist()).items())),
                sum(leads) / len(leads) if leads else None,
            )
        )  # fmt: skip
    return sorted(made, key=lambda each: (each.spread.median, each.spread.mean))
