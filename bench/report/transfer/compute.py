"""Cells of a transfer matrix -> its numbers: intervals, paired prices, methods by their worst cell.

Prices are of the same test questions, learned here against learned elsewhere: for Brier scores Student's t of a macro
mean, for AUROC the resamples' interval and a normal test with their standard error. Holm's correction covers all prices
of a metric; those of a new subject, which are against a corpus of the same size, are a family of their own. Worst cells
are compared in resamples that all methods and tests share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path

import numpy as np

from bench.api import BoolArray, FloatArray, UserError
from bench.metrics import METRICS
from bench.metrics.answers import ranked
from bench.report.tables.caption import counts_of, limit_of
from bench.report.text import listed, plain, setting
from bench.report.transfer.model import (
    CONSTANT,
    LEVEL,
    METRICS_SHOWN,
    Beside,
    Constant,
    Entry,
    Matrix,
    MeanPrice,
    Missing,
    Price,
    StoredCell,
    Worst,
)
from bench.results.files import path_of, read_records
from bench.results.records import Records
from bench.results.transfer import AT_RANDOM, SUBJECT, About, Corpus, TransferCell
from bench.stats import (
    Interval,
    Settings,
    Strata,
    basic_interval,
    corrected,
    losses,
    mean_interval,
    normal_test,
    resample,
    strata_of,
    t_test,
)
from bench.stats.holm import with_holm
from bench.stats.intervals import no_spread_of_ranks
from bench.stats.resampling import Resampled

Key = tuple[str, Corpus | None]
"""Method and corpus."""
_OTHER_ANSWERS = "it rests on other answers or labels than the other cells of this test"


@dataclass(frozen=True, eq=False)
class _Tested:
    """All cells of one test, question by question."""

    test: str
    strata: Strata
    correct: BoolArray
    brier: Mapping[Key, FloatArray]
    """Loss of each question, (n,), mean over seeds; also of CONSTANT, which has no ranks and so no resamples."""
    resampled: Mapping[Key, Mapping[str, Resampled]]
    no_ranks: Interval | None
    settings: Settings

    def sample(self, key: Key, metric: str) -> tuple[float, FloatArray] | None:
        """Macro mean and its resamples (r,); None where it is undefined."""
        if key not in self.resampled or (metric == "brier" and key not in self.brier):
            return None
        found = self.resampled[key][metric]
        return None if found.mean is None else (found.mean, found.replicates)

    def interval(self, key: Key, metric: str) -> Interval:
        """Interval of one number."""
        sample = self.sample(key, metric)
        assert sample is not None  # noqa: S101 - asked for cells with numbers alone
        if metric == "brier":
            return mean_interval(self.brier[key], self.strata, level=LEVEL)
        return self.no_ranks or basic_interval(*sample, self.strata, level=LEVEL, bounds=METRICS[metric].bounds)

    def worsening(
        self, worse: Sequence[Key], better: Sequence[Key], metric: str
    ) -> tuple[float, Interval, float | None]:
        """Mean worsening from the second cells to the first, pair by pair: its value, interval and p value.

        Cells of both have this metric.
        """
        if metric == "brier":
            loss = np.mean([self.brier[a] - self.brier[b] for a, b in zip(worse, better, strict=True)], axis=0)
            interval, p, _ = t_test(loss, self.strata, LEVEL)
            return float(self.strata.means(loss).mean()), interval, p
        sign = 1 if METRICS[metric].higher_is_better else -1
        pairs = [(self.sample(a, metric), self.sample(b, metric)) for a, b in zip(worse, better, strict=True)]
        value = float(np.mean([sign * (b[0] - a[0]) for a, b in pairs if a and b]))
        if self.no_ranks is not None:
            return value, self.no_ranks, None
        drawn = np.mean([sign * (b[1] - a[1]) for a, b in pairs if a and b], axis=0)
        return value, *normal_test(value, drawn, self.strata, LEVEL, (-1, 1))


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
        settings: of resamples.

    Raises:
        UserError: a result is not as it must be, or no cell has numbers.
    """
    say("resampling the cells of the matrix")
    missing = [Missing(c.method, c.corpus, c.test, c.missing) for c in cells if c.missing]
    tested: dict[str, _Tested] = {}
    for test in about.tests:
        gaps = {(gap.method, gap.corpus) for gap in missing if gap.test == test}  # of any seed: others have one more
        own = (cell for cell in cells if cell.test == test and (cell.method, cell.corpus) not in gaps)
        records, odd = _records(list(own))
        missing += [Missing(*key, test, _OTHER_ANSWERS) for key in odd]
        if records:
            tested[test] = _tested(test, records, about, settings or Settings(level=LEVEL))
    if not tested:
        reasons = list(dict.fromkeys(each.reason for each in missing))
        raise UserError(f"No cell of the matrix has numbers: {'; '.join(reasons[:3])}")
    entries = tuple(
        Entry(*key, test, metric, sample[0], each.interval(key, metric))
        for metric in METRICS_SHOWN
        for test, each in tested.items()
        for key in each.resampled
        if (sample := each.sample(key, metric)) is not None
    )
    stored = tuple(  # by which one who reads the matrix later can tell whether results are still those
        StoredCell(c.method, c.corpus, c.test, path_of(c.row, Path()).as_posix(), c.row.records_digest)
        for c in cells
        if c.row is not None and c.row.records_digest is not None and not c.missing
    )
    worst = tuple(w for metric in METRICS_SHOWN for w in _worst(metric, about, tested, missing))
    homes = {test: about.home(test) for test in tested}
    moves = {test: [(at, home) for at in about.corpora if home and at != home] for test, home in homes.items()}
    parted = [(at, replace(at, leaves_out=AT_RANDOM)) for at in about.corpora if at.leaves_out == SUBJECT]
    prices, novelty = (
        tuple(price for metric in METRICS_SHOWN for price in with_holm(_prices(metric, about, tested, compared)))
        for compared in (moves, dict.fromkeys(tested, parted))
    )
    return Matrix(
        about, entries, prices, tuple(_means(about, tested, prices)), worst,
        tuple(with_holm(_beside(about, tested, worst))), tuple(dict.fromkeys(missing)),
        novelty, tuple(_means(about, tested, novelty)), tuple(_constants(about, tested)), stored,
        tuple(_remarks(cells, tested)),
    )  # fmt: skip


# --- cells ------------------------------------------------------------------------------------------------------------


def _records(cells: Sequence[TransferCell]) -> tuple[dict[Key, list[Records]], list[Key]]:
    """Records of each cell's seeds, in the order of ids; and cells that rest on other answers than the first."""
    found: dict[Key, list[Records]] = defaultdict(list)
    for cell in cells:
        if cell.path is not None:
            found[cell.method, cell.corpus].append(read_records(cell.path).by_id())
    first = next(iter(found.values()), [None])[0]
    odd = [
        key
        for key, runs in found.items()
        if first is not None
        and any((run.id, run.subject) != (first.id, first.subject)
                or not np.array_equal(run.correct, first.correct) for run in runs)
    ]  # fmt: skip
    return {key: runs for key, runs in found.items() if key not in odd}, odd


def _remarks(cells: Sequence[TransferCell], tested: Mapping[str, _Tested]) -> Iterator[str]:
    """Sentences on the results with numbers: their questions, and what sets them apart from those of a whole run."""
    yield f"n = {listed(f'{len(each.correct):,} questions of {test}' for test, each in tested.items())}."
    rows = [cell.row for cell in cells if cell.row is not None and not cell.missing]
    yield from dict.fromkeys(limit_of(row) for row in rows if row.limit is not None)
    overridden = listed(f"{name}={setting(value)}" for row in rows for name, value in row.deviations.items())
    if overridden:
        yield f"Overridden constants: {overridden}."
    yield from map(plain, counts_of([cell.row for cell in cells if cell.row is not None]))


def _tested(test: str, records: Mapping[Key, Sequence[Records]], about: About, settings: Settings) -> _Tested:
    keys = list(records)
    first = records[keys[0]][0]
    correct, strata = first.correct, strata_of(first.subject)
    known = {key for key in keys if all(run.probabilities is not None for run in records[key])}
    half = np.full(len(correct), 0.5)  # in the place of confidences that there are none of; read by no number
    runs = {str(i): np.stack([run.confidence if key in known else half for run in records[key]])
            for i, key in enumerate(keys)}  # fmt: skip
    order = {str(i): np.stack([ranked(run.order) for run in records[key]]) for i, key in enumerate(keys)
             if all(run.score is not None for run in records[key])}  # fmt: skip
    values = resample(runs, correct, strata, settings, order)
    brier = {key: losses(runs[str(i)], correct)["brier"].mean(axis=0) for i, key in enumerate(keys) if key in known}
    for corpus in about.corpora:
        shares = {each.subject: each.share for each in about.shares if each.corpus == corpus}
        usual = about.share(corpus)
        if usual is not None and any(key[1] == corpus for key in keys):
            constant = np.asarray([shares.get(subject, usual) for subject in first.subject])
            brier[CONSTANT, corpus] = np.square(constant - correct)
    return _Tested(
        test, strata, correct, brier, {key: values[str(i)] for i, key in enumerate(keys)},
        no_spread_of_ranks(correct, strata), settings,
    )  # fmt: skip


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
        for name, (corpus, home) in product(names, moves[test]):
            if all(each.sample((name, at), metric) is not None for at in (corpus, home)):
                points, ends, p = each.worsening([(name, corpus)], [(name, home)], metric)
                yield Price(name, corpus, home, test, metric, points, ends, p)


def _constants(about: About, tested: Mapping[str, _Tested]) -> Iterator[Constant]:
    """Brier scores of CONSTANT."""
    for test, each in tested.items():
        home = about.home(test)
        for (name, corpus), loss in each.brier.items():
            if name != CONSTANT or corpus is None:
                continue
            interval = mean_interval(loss, each.strata, level=LEVEL)
            value = float(each.strata.means(loss).mean())
            if corpus == home or (CONSTANT, home) not in each.brier:
                yield Constant(corpus, test, value, interval, None, Interval("fixed-subjects"))
            else:
                points, moved, _ = each.worsening([(CONSTANT, corpus)], [(CONSTANT, home)], "brier")
                yield Constant(corpus, test, value, interval, points, moved)


def _means(about: About, tested: Mapping[str, _Tested], prices: Sequence[Price]) -> Iterator[MeanPrice]:
    """Mean prices of the methods that learn."""
    for metric in METRICS_SHOWN if prices else ():
        for test, each in tested.items():
            for corpus in about.corpora:
                own = [p for p in prices if (p.metric, p.test, p.corpus) == (metric, test, corpus)]
                names = [price.method for price in own if price.method in about.learners]
                if names:
                    home = own[0].home
                    points, ends, _ = each.worsening(
                        [(name, corpus) for name in names], [(name, home) for name in names], metric
                    )
                    yield MeanPrice(corpus, home, test, metric, points, ends, len(names))


# --- worst cells ------------------------------------------------------------------------------------------------------


def _worst(metric: str, about: About, tested: Mapping[str, _Tested], missing: Sequence[Missing]) -> Iterator[Worst]:
    """Each method's worst cell, the best one first; methods with a missing cell have no rank."""
    sign = -1 if METRICS[metric].higher_is_better else 1
    names = dict.fromkeys(name for each in tested.values() for name, _ in each.resampled)
    found: dict[str, tuple[float, tuple[str, Key], FloatArray]] = {}
    for name in names:
        own = {(test, key): sample for test, each in tested.items() for key in each.resampled
               if key[0] == name and not _is_control(key[1])
               and (sample := each.sample(key, metric)) is not None}  # fmt: skip
        if own:
            place = max(own, key=lambda at: sign * own[at][0])
            drawn = sign * np.max([sign * replicates for _, replicates in own.values()], axis=0)
            found[name] = (own[place][0], place, drawn)
    gaps = {each.method for each in missing if not _is_control(each.corpus)}
    undefined = {(test, key[0]) for test, each in tested.items() for key in each.resampled
                 if not _is_control(key[1]) and each.sample(key, metric) is None}  # fmt: skip
    there = {(test, key[0]) for test, each in tested.items() for key in each.resampled} - undefined
    reasons = {
        name: "a cell is missing" if name in gaps else "undefined in a cell"
        for name in found
        if name in gaps or any((test, name) not in there for test in about.tests)
    }
    for name in found.keys() - reasons.keys():  # also where another cell is its worst one: that one might be by chance
        own_ends = (each.interval(key, metric) for each in tested.values() for key in each.resampled
                    if key[0] == name and not _is_control(key[1]))  # fmt: skip
        reason = next((ends.reason for ends in own_ends if ends.low is None), "")
        reasons |= {name: reason} if reason else {}
    ranks = _ranks({name: one for name, one in found.items() if name not in reasons}, sign)
    for name in sorted(found, key=lambda name: (ranks.get(name, len(found) + 1), sign * found[name][0])):
        value, (test, key), drawn = found[name]
        each = tested[test]
        ends = each.interval(key, metric)
        if ends.low is not None:
            ends = basic_interval(value, drawn, each.strata, level=LEVEL, bounds=METRICS[metric].bounds)
        yield Worst(name, metric, value, key[1], test, ends, ranks.get(name), reasons.get(name, ""))


def _is_control(corpus: Corpus | None) -> bool:
    """Whether it is no shift that anybody would meet, but what the price of one is held against."""
    return corpus is not None and corpus.leaves_out == AT_RANDOM


def _ranks(found: Mapping[str, tuple[float, tuple[str, Key], FloatArray]], sign: int) -> dict[str, int]:
    """1 plus the number of methods whose worst cell is significantly better; all pairs are tested together."""
    pairs = list(combinations(found, 2))
    ranks = dict.fromkeys(found, 1)
    if not pairs:
        return ranks
    difference = np.array([found[a][0] - found[b][0] for a, b in pairs])
    drawn = np.stack([found[a][2] - found[b][2] for a, b in pairs])
    p = corrected(difference, drawn.std(axis=1, ddof=1), drawn - drawn.mean(axis=1, keepdims=True))
    for (a, b), between, value in zip(pairs, difference.tolist(), p.tolist(), strict=True):
        if value < 1 - LEVEL:
            ranks[a if sign * between > 0 else b] += 1
    return ranks


def _beside(about: About, tested: Mapping[str, _Tested], worst: Sequence[Worst]) -> Iterator[Beside]:
    """Every method that learned elsewhere, beside the untrained method with the best worst Brier score."""
    told = {*about.learners, *about.scaled}
    reference = next((w.method for w in worst if w.metric == "brier" and w.method not in told and w.rank), None)
    for test, each in tested.items() if reference is not None else ():
        home = about.home(test)
        for name in about.learners:
            for corpus in about.corpora:
                if corpus == home or _is_control(corpus) or each.sample((name, corpus), "brier") is None:
                    continue
                points, ends, p = each.worsening([(name, corpus)], [(str(reference), None)], "brier")
                yield Beside(name, corpus, test, str(reference), points, ends, p)
