"""Cells of a transfer matrix -> its numbers: intervals, paired prices, methods by their worst cell.

Prices are of the same test questions, learned here against learned elsewhere, Student's t of sums of influences. Holm's
correction covers all prices of a metric; those of a new subject, which are against a corpus of the same size, are a
family of their own. Methods that learned elsewhere are tested against all that are told nothing at once: an
intersection-union test (Berger, 1982), since a reference chosen on test results would favour whoever is compared to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from bench.api import UserError
from bench.metrics import METRICS
from bench.report.tables.caption import counts_of, limit_of
from bench.report.text import listed, plain, setting
from bench.report.transfer.model import (
    LEVEL,
    METRICS_SHOWN,
    AgainstUntrained,
    Constant,
    Matrix,
    MatrixEntry,
    MeanPrice,
    Missing,
    Price,
    StoredCell,
    Worst,
)
from bench.results.files import path_of, read_records
from bench.results.records import Records
from bench.results.transfer import AT_RANDOM, SUBJECT, About, Corpus, TransferCell
from bench.stats import Influence, Interval, Sampling, Settings, compare, influence, over_seeds, strata_of
from bench.stats.comparison import normal_draws
from bench.stats.holm import with_holm
from bench.stats.worst import Cells

Key = tuple[str, Corpus | None]
"""Method and corpus."""
_OTHER_ANSWERS = "it rests on other answers or labels than the other cells of this test"


@dataclass(frozen=True, eq=False)
class _Tested:
    """All cells of one test, question by question."""

    sampling: Sampling
    keys: Set[Key]
    """Cells with results."""
    cells: Mapping[str, Mapping[Key, Influence]]
    """Metric -> cells where it is defined, means over seeds."""
    constants: Mapping[Corpus, Influence]
    """Brier scores of CONSTANT."""
    settings: Settings
    """Without draws, which correct a pair for others."""

    def worsening(
        self, metric: str, worse: Sequence[Influence], better: Sequence[Influence]
    ) -> tuple[float, Interval, float | None]:
        """How much worse the first are than the second, positive where they are: mean of pairs, interval, p value."""
        pair = [("worse", over_seeds(worse)), ("better", over_seeds(better))]
        order = -1 if METRICS[metric].higher_is_better else 1
        (found,) = compare(metric, dict(pair[::order]), self.sampling, (), self.settings)
        return found.difference, found.fixed, found.p


def computed(
    cells: Sequence[TransferCell],
    about: About,
    say: Callable[[str], None] = lambda _: None,
    settings: Settings | None = None,
) -> Matrix:
    """The matrix of some cells.

    Args:
        cells: of all seeds.
        about: what they are of.
        say: told before long work.
        settings: what metrics are of, and draws.

    Raises:
        UserError: a result is not as it must be, or no cell has numbers.
    """
    say("computing the cells of the matrix")
    settings = replace(settings or Settings(), level=LEVEL)
    missing = [Missing(c.method, c.corpus, c.test, c.missing) for c in cells if c.missing]
    tested: dict[str, _Tested] = {}
    for test in about.tests:
        gaps = {(gap.method, gap.corpus) for gap in missing if gap.test == test}  # of any seed: others have one more
        records: dict[Key, list[Records]] = defaultdict(list)  # of each cell's seeds, in the order of ids
        for cell in cells:
            if cell.test == test and cell.path is not None and (cell.method, cell.corpus) not in gaps:
                records[cell.method, cell.corpus].append(read_records(cell.path).by_id())
        answers = {
            key: [(tuple(run.id), tuple(run.subject), run.correct.tobytes()) for run in runs]
            for key, runs in records.items()
        }
        for key, own in answers.items():
            if set(own) != set(next(iter(answers.values()))[:1]):
                missing.append(Missing(*key, test, _OTHER_ANSWERS))
                del records[key]
        if records:
            tested[test] = _tested(records, about, replace(settings, draws=1))
    if not tested:
        reasons = list(dict.fromkeys(each.reason for each in missing))
        raise UserError(f"No cell of the matrix has numbers: {'; '.join(reasons[:3])}")
    entries = tuple(
        MatrixEntry(*key, test, metric, of.value, each.sampling.intervals(metric, of, LEVEL)[0])
        for metric in METRICS_SHOWN
        for test, each in tested.items()
        for key, of in each.cells[metric].items()
    )
    stored = tuple(  # by which one who reads the matrix later can tell whether results are still those
        StoredCell(c.method, c.corpus, c.test, path_of(c.row, Path()).as_posix(), c.row.records_digest)
        for c in cells
        if c.row is not None and c.row.records_digest is not None and not c.missing
    )
    worst = tuple(w for metric in METRICS_SHOWN for w in _worst(metric, tested, missing, settings))
    homes = {test: about.home(test) for test in tested}
    moves = {test: [(at, home) for at in about.corpora if home and at != home] for test, home in homes.items()}
    parted = [(at, replace(at, leaves_out=AT_RANDOM)) for at in about.corpora if at.leaves_out == SUBJECT]
    prices, novelty = (
        tuple(price for metric in METRICS_SHOWN for price in with_holm(_prices(metric, about, tested, compared)))
        for compared in (moves, dict.fromkeys(tested, parted))
    )
    constants = []
    for (test, each), at in zip(tested.items(), homes.values(), strict=True):
        home = None if at is None else each.constants.get(at)
        for corpus, of in each.constants.items():
            points, moved = None, Interval("fixed-subjects")
            if home is not None and corpus != at:
                points, moved, _ = each.worsening("brier", [of], [home])
            ends = each.sampling.intervals("brier", of, LEVEL)[0]
            constants.append(Constant(corpus, test, of.value, ends, points, moved))
    return Matrix(
        about, entries, prices, tuple(_means(about, tested, prices)), worst,
        tuple(with_holm(_against_untrained(about, tested))), tuple(dict.fromkeys(missing)),
        novelty, tuple(_means(about, tested, novelty)), tuple(constants), stored,
        tuple(_remarks(cells, tested)), settings.average,
    )  # fmt: skip


# --- cells ------------------------------------------------------------------------------------------------------------


def _remarks(cells: Sequence[TransferCell], tested: Mapping[str, _Tested]) -> Iterator[str]:
    """Sentences on the results with numbers: their questions, and what sets them apart from those of a whole run."""
    yield f"n = {listed(f'{each.sampling.correct.size:,} questions of {test}' for test, each in tested.items())}."
    rows = [cell.row for cell in cells if cell.row is not None and not cell.missing]
    yield from dict.fromkeys(limit_of(row) for row in rows if row.limit is not None)
    overridden = listed(f"{name}={setting(value)}" for row in rows for name, value in row.deviations.items())
    if overridden:
        yield f"Overridden constants: {overridden}."
    yield from map(plain, counts_of([cell.row for cell in cells if cell.row is not None]))


def _tested(records: Mapping[Key, Sequence[Records]], about: About, settings: Settings) -> _Tested:
    first = next(iter(records.values()))[0]
    correct, strata, average = first.correct, strata_of(first.subject), settings.average
    cells: dict[str, dict[Key, Influence]] = {metric: {} for metric in METRICS_SHOWN}
    for metric, (key, runs) in product(METRICS_SHOWN, records.items()):
        if METRICS[metric].of_order or all(run.probabilities is not None for run in runs):
            of = over_seeds(influence(metric, run.confidence, run.order, correct, strata, average) for run in runs)
            cells[metric] |= {} if of is None else {key: of}
    constants: dict[Corpus, Influence] = {}
    for corpus in about.corpora:
        shares = {each.subject: each.share for each in about.shares if each.corpus == corpus}
        usual = about.share(corpus)
        if usual is not None and any(key[1] == corpus for key in records):
            constant = np.asarray([shares.get(subject, usual) for subject in first.subject])
            of = influence("brier", constant, constant, correct, strata, average)
            constants |= {} if of is None else {corpus: of}
    return _Tested(Sampling.of(strata, correct, average), records.keys(), cells, constants, settings)


# --- prices -----------------------------------------------------------------------------------------------------------


def _prices(
    metric: str, about: About, tested: Mapping[str, _Tested], moves: Mapping[str, Sequence[tuple[Corpus, Corpus]]]
) -> Iterator[Price]:
    """Prices of all methods that are told labels; scaling changes no order, so it has no price in AUROC.

    Args:
        metric: of the prices.
        about: what the cells are of.
        tested: cells by test.
        moves: test -> what was learned on, and what that is against.
    """
    names = about.learners + (about.scaled if metric == "brier" else ())
    for test, each in tested.items():
        own = each.cells[metric]
        for name, (corpus, home) in product(names, moves[test]):
            if {(name, corpus), (name, home)} <= own.keys():
                price = each.worsening(metric, [own[name, corpus]], [own[name, home]])
                yield Price(name, corpus, home, test, metric, *price)


def _means(about: About, tested: Mapping[str, _Tested], prices: Sequence[Price]) -> Iterator[MeanPrice]:
    """Mean prices of the methods that learn."""
    for metric in METRICS_SHOWN if prices else ():
        for test, each in tested.items():
            for corpus in about.corpora:
                own = [p for p in prices if (p.metric, p.test, p.corpus) == (metric, test, corpus)]
                own = [price for price in own if price.method in about.learners]
                if own:
                    home, of = own[0].home, each.cells[metric]
                    both = ([of[price.method, at] for price in own] for at in (corpus, home))
                    points, ends, _ = each.worsening(metric, *both)
                    yield MeanPrice(corpus, home, test, metric, points, ends, len(own))


# --- worst cells ------------------------------------------------------------------------------------------------------


def _worst(
    metric: str, tested: Mapping[str, _Tested], missing: Sequence[Missing], settings: Settings
) -> Iterator[Worst]:
    """Each method's worst cell, the best one first; methods with a missing cell have no rank."""
    from scipy.linalg import block_diag

    places, values, spreads = [], [], []
    for test, each in tested.items():
        own = {key: of for key, of in each.cells[metric].items() if not _is_control(key[1])}
        if own:
            places += [(test, key) for key in own]
            values += [of.value for of in own.values()]
            spreads.append(each.sampling.spread(metric, np.stack([of.by_question for of in own.values()])))
    if not places:
        return
    names, covariance = [name for _, (name, _) in places], block_diag(*(spread.covariance for spread in spreads))
    freedom = np.concatenate([spread.freedom for spread in spreads])
    cells = Cells(metric, np.array(names), np.array(values), covariance, freedom, normal_draws(covariance, settings))
    gaps = {each.method for each in missing if not _is_control(each.corpus)}
    defined = {test: each.cells[metric].keys() for test, each in tested.items()}
    undefined = {key[0] for test in tested for key in tested[test].keys - defined[test] if not _is_control(key[1])}
    no_spread = next(filter(None, (each.sampling.refused(metric) for each in tested.values())), "")
    reasons = {
        name: "a cell is missing" if name in gaps else "undefined in a cell" if name in undefined else no_spread
        for name in names
    }
    ranks = cells.ranks([name for name, reason in reasons.items() if not reason])
    for name in sorted(reasons, key=lambda name: (ranks.get(name, len(names) + 1), cells.badness[cells.worst(name)])):
        at = cells.worst(name)
        test, (_, corpus) = places[at]
        ends = Interval("fixed-subjects", reason=no_spread) if no_spread else cells.interval(name)
        yield Worst(name, metric, values[at], corpus, test, ends, ranks.get(name), reasons[name])


def _is_control(corpus: Corpus | None) -> bool:
    """Whether it is no shift that anybody would meet, but what the price of one is held against."""
    return corpus is not None and corpus.leaves_out == AT_RANDOM


# --- beside what is told nothing --------------------------------------------------------------------------------------


def _against_untrained(about: About, tested: Mapping[str, _Tested]) -> Iterator[AgainstUntrained]:
    """Every cell elsewhere of the methods that learn, against all that are told nothing at once."""
    scores = {test: each.cells["brier"] for test, each in tested.items()}
    everywhere = set.intersection(*({*own} for own in scores.values()))
    untold = tuple(sorted(name for name, corpus in everywhere if corpus is None))
    for (test, own), name, corpus in product(scores.items(), about.learners, about.corpora) if untold else ():
        if corpus != about.home(test) and not _is_control(corpus) and (name, corpus) in own:
            pairs = {one: tested[test].worsening("brier", [own[name, corpus]], [own[one, None]]) for one in untold}
            against = max(untold, key=lambda one: pairs[one][2] or 0)
            points, ends, p = pairs[against]
            p = p if len({each > 0 for each, *_ in pairs.values()}) == 1 else 1.0
            yield AgainstUntrained(name, corpus, test, untold, against, points, ends, p)
