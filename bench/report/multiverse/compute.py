"""Results of one model and task -> the multiverse of their table: places of methods, and what becomes of its claims.

The table is that of `bench table` (its tests, its correction, the mean over its seeds). Each universe is compared with
it by values, and tested by itself. Example: `computed(MultiverseRequest("tiny", "atlas-oe"), cache).claims("Brier")`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from bench.api import IntArray, UserError
from bench.api.errors import did_you_mean
from bench.metrics import METRICS
from bench.report import recomputed, style
from bench.report.grouping import Key
from bench.report.multiverse.definitions import (
    AGGREGATION,
    CALIBRATION,
    FAMILIES,
    MACRO,
    NONE,
    RECALIBRATION,
    Family,
)
from bench.report.multiverse.model import (
    LEVEL,
    Contest,
    Multiverse,
    MultiverseRequest,
    Option,
    Places,
    Share,
    Universe,
)
from bench.report.multiverse.values import gradings, universes
from bench.report.multiverse.worlds import (
    LETTERS,
    Found,
    Gaps,
    Setting,
    World,
    admitted,
    reference_of,
    setting_of,
    worlds,
)
from bench.report.standings.cache import StandingsReader
from bench.report.standings.compute import Pair, Standings
from bench.report.text import listed, plain
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
        settings: of resamples.

    Raises:
        UserError: no such results, several presets to choose from, fewer than two methods that can be compared, or a
            result that is not as it must be.
    """
    gaps = Gaps()
    found = _found(request, cache, say)
    of_setting = admitted(found, gaps)
    reference, own = _reference(request, of_setting)
    lines = _lines(own, request.results)
    standings = StandingsReader(request.results, cache, say)(lines)
    ranked = _ranked(standings, gaps)
    _refuse_few(request, ranked)
    made = worlds(of_setting, list(dict.fromkeys(name for names in ranked.values() for name in names)), reference, gaps)
    say(f"analysing {plain(request.model)} on {plain(request.task)} in every universe")
    graded, options, notes = gradings(made)
    every = tuple(universes(graded, settings or Settings()))
    contests = tuple(c for family in FAMILIES for c in _contests(family, ranked[family.name], every, standings))
    tallies = {family.name: _places(family, ranked[family.name], every, standings) for family in FAMILIES}
    return Multiverse(
        plain(request.model), plain(request.task), reference.preset, len(made[0].correct),
        tuple(sorted({each.row.seed for each in own if not recalibration_of(each.row.method)})), ranked,
        (*_options(made, reference), *options, *_averages(every)), every, contests,
        tuple(p for family in FAMILIES for p in tallies[family.name][0]),
        {family.name: tallies[family.name][1] for family in FAMILIES},
        (*_uncrossed(made), *_alone(made), *_without_any(request, found), *gaps.sentences(), *_without_order(ranked),
         *notes, _NOT_SEEDS),
    )  # fmt: skip


# --- the table --------------------------------------------------------------------------------------------------------


def _found(request: MultiverseRequest, cache: Path | None, say: Callable[[str], None]) -> list[Found]:
    """Results of the model and task in all folders."""
    every: list[Found] = []
    for folder in (request.results, *request.also):
        every += [Found(row, folder) for row in recomputed.rows_of(folder, cache, say=say)]
    if not every:
        raise UserError("there are no results to analyse; run something first: bench run --method all --model tiny")
    for option, what in (("--model", "model"), ("--task", "task")):
        name, known = getattr(request, what), {getattr(each.row, what) for each in every}
        if name not in known:
            raise UserError(
                f"{option}: no result of {what} {plain(name)!r}; there are {listed(known)}.{did_you_mean(name, known)}"
            )
    found = [each for each in every if (each.row.model, each.row.task) == (request.model, request.task)]
    if not found:
        raise UserError(f"no result of {plain(request.model)} on {plain(request.task)}; run it, or name another --task")
    versions = {each.row.task_version for each in found}
    if len(versions) > 1:
        raise UserError(
            f"results of {plain(request.model)} on {plain(request.task)} have task versions {listed(versions)}, which"
            " ask other questions; delete the old ones, or leave out their folder"
        )
    return found


def _reference(request: MultiverseRequest, found: Sequence[Found]) -> tuple[Setting, list[Found]]:
    """The setting of the table and its results."""
    own = [each for each in found if each.folder == request.results]
    presets = {each.row.preset for each in own}
    if not presets:
        raise UserError(
            f"no result of {plain(request.model)} on {plain(request.task)} in {request.results} can stand in a table"
            " with others (failed, partial, cut short, scores alone, or with settings of its own)"
        )
    if request.preset is not None and request.preset not in presets:
        hint = did_you_mean(request.preset, presets)
        raise UserError(
            f"--preset: no result with preset {plain(request.preset)!r}; there are {listed(presets)}.{hint}"
        )
    if request.preset is None and len(presets) > 1:
        raise UserError(
            f"results of {plain(request.model)} on {plain(request.task)} have presets {listed(presets)}; choose with"
            " --preset the one whose table is examined, the others are universes"
        )
    chosen = [each for each in own if each.row.preset == (request.preset or next(iter(presets)))]
    reference = reference_of(chosen)
    return reference, [each for each in chosen if setting_of(each.row) == reference]


def _lines(own: Sequence[Found], results: Path) -> dict[Key, list[ResultRow]]:
    """The table's lines: its methods as they are, in the order of figures."""
    styles = style.read(results)
    lines: dict[Key, list[ResultRow]] = {}
    for each in sorted(own, key=lambda each: (styles.place(each.row.method), each.row.seed)):
        if not recalibration_of(each.row.method):
            lines.setdefault(Key(each.row.method, ""), []).append(each.row)
    return lines


def _ranked(standings: Standings, gaps: Gaps) -> dict[str, tuple[str, ...]]:
    """Family -> methods that the table ranks there; as in tables, who doesn't order answers has no calibration."""
    known = {key.method: line for key, line in standings.lines.items() if not line.labels}
    for key in (key for key, line in standings.lines.items() if line.labels):
        gaps.add(f"Left out: {key.label} rests on other answers or labels than most of the table")
    for key, reason in standings.left_out.items():
        gaps.add(f"Left out: {key.label}, {reason.partition(':')[0]}")
    found = {}
    for family in FAMILIES:
        names = [name for name, line in known.items() if line.metrics[family.metric].value is not None]
        if family.name == CALIBRATION:
            names = [name for name in names if known[name].orders_answers]
        found[family.name] = tuple(names)
    return found


def _refuse_few(request: MultiverseRequest, ranked: Mapping[str, Sequence[str]]) -> None:
    known = list(dict.fromkeys(name for names in ranked.values() for name in names))
    if len(known) < SEVERAL:
        told = f"{known[0]} alone" if known else "none"
        raise UserError(
            f"{plain(request.model)} on {plain(request.task)}: a claim needs two methods with results that the table"
            f" can compare, there is {told}; run more: bench run --method all --model {plain(request.model)}"
        )
    for name in request.methods:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UserError(f"--method: {plain(name)!r} is not ranked in this table; there are {listed(known)}.{hint}")


# --- options ----------------------------------------------------------------------------------------------------------


def _options(made: Sequence[World], reference: Setting) -> Iterator[Option]:
    """Options of the dimensions that are read off results, those of the table first."""
    own = {**reference._asdict(), RECALIBRATION: NONE}
    for dimension in made[0].choices:
        names = dict.fromkeys(world.choices[dimension] for world in made)
        for name in names:
            yield Option(dimension, name, own.get(dimension) == name)


def _averages(every: Sequence[Universe]) -> Iterator[Option]:
    for name in dict.fromkeys(universe.choices[AGGREGATION] for universe in every):
        yield Option(AGGREGATION, name, name == MACRO)


def _uncrossed(made: Sequence[World]) -> Iterator[str]:
    """A sentence where not every combination of the data's options is there."""
    names = list(made[0].choices)
    product = int(np.prod([len({world.choices[name] for world in made}) for name in names]))
    if product > len(made):
        yield (
            f"Of {product:,} combinations of what runs were made with (preset, tuning, judge, seed, recalibration ...),"
            f" {len(made):,} are there: options that come with more of the others weigh more in every share, and what"
            " is told of one choice may be due to another that came with it."
        )


def _alone(made: Sequence[World]) -> Iterator[str]:
    """A sentence on dimensions of which there is one option."""
    adds = {"preset": "--preset", "tuning": "--tune", "judge": "--judge", RECALIBRATION: "--recalibrate"}
    if made[0].setting.judge == LETTERS:
        del adds["judge"]
    told = {name: {world.choices[name] for world in made} for name in adds}
    alone = {name: options.pop() for name, options in told.items() if len(options) == 1}
    if alone:
        yield (
            f"No choice here, as there are results of one option: {', '.join(f'{n} ({o})' for n, o in alone.items())}."
            f" bench run with {', '.join(adds[name] for name in alone)} adds others."
        )


def _without_any(request: MultiverseRequest, found: Sequence[Found]) -> Iterator[str]:
    """A sentence for each further folder that adds nothing."""
    for folder in request.also:
        if not any(each.folder == folder for each in found):
            yield f"--also {plain(str(folder))}: no result of {plain(request.model)} on {plain(request.task)} is in it."


def _without_order(ranked: Mapping[str, Sequence[str]]) -> Iterator[str]:
    lacking = [name for name in ranked[FAMILIES[1].name] if name not in ranked[CALIBRATION]]
    if lacking:
        yield (
            f"In calibration {listed(lacking)} take{'s' * (len(lacking) == 1)} no part, as in tables: the AUROC is not"
            " above 50 % beyond chance, and a confidence that says nothing is calibrated easily."
        )


# --- claims -----------------------------------------------------------------------------------------------------------


def contest_of(pair: Pair, family: Family, every: Sequence[Universe]) -> Contest:
    """Fate of a pair of the table.

    Args:
        pair: the table's.
        family: of the claim.
        every: universes of that family.
    """
    winner = pair.winner(1 - LEVEL)
    is_first = (pair.difference > 0) is family.higher_is_better if winner is None else winner == pair.first
    own = pair if is_first else pair.reversed()
    first, second = own.first.method, own.second.method
    both = [u for u in every if first in u.values and second in u.values]
    holds = [_is_better(u, first, second) for u in both]
    tested = [u for u in both if u.wins is not None]
    return Contest(
        family.name, first, second, own.difference, own.p_corrected, winner is not None, len(both), sum(holds),
        len(tested), sum((first, second) in (u.wins or ()) for u in tested),
        sum((second, first) in (u.wins or ()) for u in tested), *_by_choice(both, holds),
    )  # fmt: skip


def _contests(
    family: Family, methods: Sequence[str], every: Sequence[Universe], standings: Standings
) -> Iterator[Contest]:
    own = [universe for universe in every if universe.family == family.name]
    for pair in standings.pairs:
        if pair.metric == family.metric and {pair.first.method, pair.second.method} <= set(methods):
            yield contest_of(pair, family, own)


def _by_choice(both: Sequence[Universe], holds: Sequence[bool]) -> tuple[tuple[Share, ...], dict[str, float]]:
    """Shares by option of each dimension with several, and how much of where the direction holds each explains."""
    shares, influence = list[Share](), dict[str, float]()
    for dimension in both[0].choices if both else ():
        options = [universe.choices[dimension] for universe in both]
        if len(set(options)) > 1:
            influence[dimension] = explained(holds, options)
            for name in dict.fromkeys(options):
                of_option = [is_so for is_so, option in zip(holds, options, strict=True) if option == name]
                shares.append(Share(dimension, name, len(of_option), sum(of_option)))
    return tuple(shares), influence


def _is_better(universe: Universe, first: str, second: str) -> bool:
    """Whether the first is better by value, by more than rounding."""
    difference = universe.values[first] - universe.values[second]
    return (difference if METRICS[universe.metric].higher_is_better else -difference) > ROUNDING


# --- places -----------------------------------------------------------------------------------------------------------


def _places(
    family: Family, methods: Sequence[str], every: Sequence[Universe], standings: Standings
) -> tuple[list[Places], int]:
    """Places of each method, the best median first; and the universes in which all have numbers."""
    whole = [u for u in every if u.family == family.name and set(methods) <= u.values.keys()]
    if not whole or len(methods) < SEVERAL:
        return [], len(whole)
    found = np.stack([_places_in(universe, methods) for universe in whole])  # (u, m)
    tested = [universe for universe in whole if universe.wins is not None]
    ranks = {key.method: line.ranks.get(family.metric) for key, line in standings.lines.items()}
    made = []
    for name, column in zip(methods, found.T, strict=True):
        leads = [not any(loser == name and winner in methods for winner, loser in u.wins or ()) for u in tested]
        made.append(
            Places(
                family.name, name, ranks.get(name), spread(column), dict(sorted(Counter(column.tolist()).items())),
                sum(leads) / len(leads) if leads else None,
            )
        )  # fmt: skip
    return sorted(made, key=lambda each: (each.spread.median, each.spread.mean)), len(whole)


def _places_in(universe: Universe, methods: Sequence[str]) -> IntArray:
    values = np.array([universe.values[name] for name in methods])
    return places(values, higher_is_better=bool(METRICS[universe.metric].higher_is_better))
