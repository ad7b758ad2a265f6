"""Compute a transfer matrix from its cells: intervals, prices of distribution shift, worst cells.

A cell is one method, trained on one corpus (the answers of a task) or on none, and tested on one task. Each test task
has a home corpus, the reference. The price of another corpus is how much worse the method is on the same test
questions. Prices are tested by Student's t test on the influences of questions, with Holm's correction for all prices
of a metric. A second set of prices, corrected separately, is about new subjects: training without the tested subject is
compared with training on equally many answers of all subjects. Methods trained on other corpora than the home corpus
are also compared with all methods without labels at once, by an intersection-union test (Berger, 1982). To choose one
of these by its test results would bias the comparison.
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
from bench.report.tables.caption import counts_of, limit_sentence
from bench.report.text import join, plain, setting_text
from bench.report.transfer.model import (
    LEVEL,
    METRICS_SHOWN,
    AgainstUntrained,
    Baseline,
    CellSource,
    Matrix,
    MatrixEntry,
    MeanPrice,
    MissingCell,
    Price,
    WorstCell,
)
from bench.results.files import path_of, read_records
from bench.results.question_records import QuestionRecords
from bench.results.transfer import AT_RANDOM, SUBJECT, About, Corpus, TransferCell
from bench.stats import Influence, Interval, Sampling, Settings, compare, influence, mean_over_seeds, strata_of
from bench.stats.comparison import count_differing, normal_draws
from bench.stats.holm import with_holm
from bench.stats.intervals import MIN_RARER
from bench.stats.worst import MethodCells

Key = tuple[str, Corpus | None]
"""Method and training corpus, which identify a cell of one test task. The corpus is None for a method that needs no
labels."""
_OTHER_ANSWERS = "it rests on other answers or labels than the other cells of this test"


@dataclass(frozen=True, eq=False)
class _TestData:
    """All cells of one test task: their metrics, and the influence of each test question on these metrics."""

    sampling: Sampling
    keys: Set[Key]
    """Cells that have results."""
    cells: Mapping[str, Mapping[Key, Influence]]
    """Metric -> cell -> value and influences, mean over seeds; cells in which the metric is undefined are missing."""
    constants: Mapping[Corpus, Influence]
    """Training corpus -> Brier score if the confidence in every answer is the corpus's share of right answers."""
    settings: Settings
    """Settings of the paired comparisons. They make one random draw, as their p values need none."""

    def worsening(
        self, metric: str, worse: Sequence[Influence], better: Sequence[Influence]
    ) -> tuple[float, Interval, float | None]:
        """Return how much worse the cells in `worse` are than those in `better`, pair by pair, in a metric.

        Returns:
            Three values: the mean difference over pairs, positive if `worse` is worse; its interval; its p value.
        """
        pair = [("worse", mean_over_seeds(worse)), ("better", mean_over_seeds(better))]
        step = -1 if METRICS[metric].higher_is_better else 1
        (comparison,) = compare(metric, dict(pair[::step]), self.sampling, (), self.settings)
        return comparison.difference, comparison.fixed, comparison.p


def compute_matrix(
    cells: Sequence[TransferCell],
    about: About,
    say: Callable[[str], None] = lambda _: None,
    settings: Settings | None = None,
) -> Matrix:
    """Compute a transfer matrix from its cells, i.e. methods by training corpus and test task.

    Args:
        cells: cells of all methods, corpora, tests and seeds.
        about: methods, corpora and tests of the matrix.
        say: receives a message before long work.
        settings: average over questions or subjects, and number of random draws for the ranks by worst cell.

    Raises:
        UserError: a result is damaged, or no cell has a result that can be compared.
    """
    say("computing the cells of the matrix")
    settings = replace(settings or Settings(), level=LEVEL)
    missing = [MissingCell(cell.method, cell.corpus, cell.test, cell.missing) for cell in cells if cell.missing]
    tested: dict[str, _TestData] = {}
    for test in about.tests:
        gaps = {(gap.method, gap.corpus) for gap in missing if gap.test == test}  # cells that lack a seed
        records: dict[Key, list[QuestionRecords]] = defaultdict(list)  # a list over seeds, sorted by id
        for cell in cells:
            if cell.test == test and cell.path is not None and (cell.method, cell.corpus) not in gaps:
                records[cell.method, cell.corpus].append(read_records(cell.path).by_id())
        labels_by_key = {key: [run.labels for run in runs] for key, runs in records.items()}
        for key, digests in labels_by_key.items():
            if set(digests) != set(next(iter(labels_by_key.values()))[:1]):
                missing.append(MissingCell(*key, test, _OTHER_ANSWERS))
                del records[key]
        if records:
            tested[test] = _estimate_test_task(records, about, replace(settings, draws=1))
    if not tested:
        reasons = list(dict.fromkeys(cell.reason for cell in missing))
        raise UserError(f"No cell of the matrix has numbers: {'; '.join(reasons[:3])}")
    entries = tuple(
        MatrixEntry(*key, test, metric, estimate.value, data.sampling.intervals(metric, estimate, LEVEL)[0])
        for metric in METRICS_SHOWN
        for test, data in tested.items()
        for key, estimate in data.cells[metric].items()
    )
    stored = tuple(  # digests tell a later reader whether the results have changed
        CellSource(cell.method, cell.corpus, cell.test, path_of(cell.row, Path()).as_posix(), cell.row.records_digest)
        for cell in cells
        if cell.row is not None and cell.row.records_digest is not None and not cell.missing
    )
    worst = tuple(cell for metric in METRICS_SHOWN for cell in _worst(metric, tested, missing, settings))
    homes = {test: about.home(test) for test in tested}
    moves = {test: [(c, home) for c in about.corpora if home and c != home] for test, home in homes.items()}
    without_subject = [(c, replace(c, leaves_out=AT_RANDOM)) for c in about.corpora if c.leaves_out == SUBJECT]
    prices, novelty = (
        tuple(price for metric in METRICS_SHOWN for price in with_holm(_prices(metric, about, tested, pairs)))
        for pairs in (moves, dict.fromkeys(tested, without_subject))
    )
    means, novelty_means = (
        tuple(mean for metric in METRICS_SHOWN for mean in with_holm(_means(metric, about, tested, paid)))
        for paid in (prices, novelty)
    )
    constants = []
    for (test, data), home_corpus in zip(tested.items(), homes.values(), strict=True):
        home_influence = None if home_corpus is None else data.constants.get(home_corpus)
        for corpus, estimate in data.constants.items():
            points, price_interval = None, Interval("fixed-subjects")
            if home_influence is not None and corpus != home_corpus:
                points, price_interval, _ = data.worsening("brier", [estimate], [home_influence])
            interval = data.sampling.intervals("brier", estimate, LEVEL)[0]
            constants.append(Baseline(corpus, test, estimate.value, interval, points, price_interval))
    return Matrix(
        about, entries, prices, means, worst,
        tuple(with_holm(_against_untrained(about, tested))), tuple(dict.fromkeys(missing)),
        novelty, novelty_means, tuple(constants), stored,
        tuple(_remarks(cells, about, tested)), settings.average,
    )  # fmt: skip


# --- cells ------------------------------------------------------------------------------------------------------------


def _remarks(cells: Sequence[TransferCell], about: About, tested: Mapping[str, _TestData]) -> Iterator[str]:
    """Yield remarks on the results: number of questions, limits, overridden constants, overlaps, warnings."""
    yield f"n = {join(f'{data.sampling.correct.size:,} questions of {test}' for test, data in tested.items())}."
    rows = [cell.row for cell in cells if cell.row is not None and not cell.missing]
    yield from dict.fromkeys(limit_sentence(row) for row in rows if row.limit is not None)
    limits = join(str(row.config["train_limit"]) for row in rows if "train_limit" in row.config)
    if limits:
        yield f"Methods learned from a part of the labels (--train-limit {limits})."
    overridden = join(f"{name}={setting_text(value)}" for row in rows for name, value in row.deviations.items())
    if overridden:
        yield f"Overridden constants: {overridden}."
    yield from (
        f"{plain(one)} and {plain(other)} come from sources that overlap, so that neither is new to what learned on the"
        " other."
        for one, other in about.overlapping
    )
    yield from map(plain, counts_of([cell.row for cell in cells if cell.row is not None]))


def _estimate_test_task(
    records: Mapping[Key, Sequence[QuestionRecords]], about: About, settings: Settings
) -> _TestData:
    first = next(iter(records.values()))[0]
    correct, strata, average = first.correct, strata_of(first.subject), settings.average
    cells: dict[str, dict[Key, Influence]] = {metric: {} for metric in METRICS_SHOWN}
    for metric, (key, runs) in product(METRICS_SHOWN, records.items()):
        if METRICS[metric].is_rank_based or all(run.probabilities is not None for run in runs):
            estimate = mean_over_seeds(
                influence(metric, r.confidence, r.ranking_values, correct, strata, average) for r in runs
            )
            cells[metric] |= {} if estimate is None else {key: estimate}
    constants: dict[Corpus, Influence] = {}
    for corpus in about.corpora:
        shares = {s.subject: s.share for s in about.shares if s.corpus == corpus}
        share = about.share(corpus)
        if share is not None and any(key[1] == corpus for key in records):
            constant = np.asarray([shares.get(subject, share) for subject in first.subject])
            estimate = influence("brier", constant, constant, correct, strata, average)
            constants |= {} if estimate is None else {corpus: estimate}
    return _TestData(Sampling.of(strata, correct, average), records.keys(), cells, constants, settings)


# --- prices -----------------------------------------------------------------------------------------------------------


def _prices(
    metric: str, about: About, tested: Mapping[str, _TestData], moves: Mapping[str, Sequence[tuple[Corpus, Corpus]]]
) -> Iterator[Price]:
    """Yield the prices of training corpora for each method that uses labels.

    A price is how much worse the method is than with the reference corpus. Methods whose scores are only scaled have no
    price in AUROC, as scaling keeps the order of answers.

    Args:
        metric: metric in which prices are measured.
        about: methods, corpora and tests of the matrix.
        tested: test task -> its cells.
        moves: test task -> pairs of a training corpus and its reference corpus.
    """
    names = about.learners + (about.scaled if metric == "brier" else ())
    for test, data in tested.items():
        influences = data.cells[metric]
        for name, (corpus, home) in product(names, moves[test]):
            if {(name, corpus), (name, home)} <= influences.keys():
                price = data.worsening(metric, [influences[name, corpus]], [influences[name, home]])
                yield Price(name, corpus, home, test, metric, *price)


def _means(metric: str, about: About, tested: Mapping[str, _TestData], prices: Sequence[Price]) -> Iterator[MeanPrice]:
    """Yield, for each test task and training corpus, the mean price over the trained methods in a metric.

    A price is how much worse a method is than with the reference corpus, `Price.home`.
    """
    for (test, data), corpus in product(tested.items(), about.corpora):
        selected = [p for p in prices if (p.metric, p.test, p.corpus) == (metric, test, corpus)]
        selected = [price for price in selected if price.method in about.learners]
        if selected:
            home, influences = selected[0].home, data.cells[metric]
            pair = ([influences[price.method, at] for price in selected] for at in (corpus, home))
            points, interval, p = data.worsening(metric, *pair)
            yield MeanPrice(corpus, home, test, metric, points, interval, len(selected), p)


# --- worst cells ------------------------------------------------------------------------------------------------------


def _worst(
    metric: str, tested: Mapping[str, _TestData], missing: Sequence[MissingCell], settings: Settings
) -> Iterator[WorstCell]:
    """Yield the worst cell of each method, starting with the best-ranked method.

    Methods have no rank and come last if a cell is missing, or if the metric is undefined in a cell. No method has a
    rank if intervals can't be computed on some test task. Controls (`_is_control`) don't count as cells here.
    """
    from scipy.linalg import block_diag

    cells, values, spreads, blocks = [], [], [], []
    for test, data in tested.items():
        by_key = {key: estimate for key, estimate in data.cells[metric].items() if not _is_control(key[1])}
        if by_key:
            cells += [(test, key) for key in by_key]
            values += [estimate.value for estimate in by_key.values()]
            spreads.append(data.sampling.standard_errors(metric, np.stack([e.by_question for e in by_key.values()])))
            inputs = [estimate.inputs for estimate in by_key.values()]
            blocks.append([[count_differing(metric, a, b) < MIN_RARER for b in inputs] for a in inputs])
    if not cells:
        return
    names, covariance = [name for _, (name, _) in cells], block_diag(*(spread.covariance for spread in spreads))
    freedom, alike = np.concatenate([spread.freedom for spread in spreads]), block_diag(*blocks)
    ranking = MethodCells(
        metric, np.array(names), np.array(values), covariance, freedom, normal_draws(covariance, settings), alike
    )
    incomplete = {cell.method for cell in missing if not _is_control(cell.corpus)}
    defined = {test: data.cells[metric].keys() for test, data in tested.items()}
    undefined = {key[0] for test in tested for key in tested[test].keys - defined[test] if not _is_control(key[1])}
    no_spread = next(filter(None, (data.sampling.no_interval_reason(metric) for data in tested.values())), "")
    reasons = {
        name: "a cell is missing" if name in incomplete else "undefined in a cell" if name in undefined else no_spread
        for name in names
    }
    ranks = ranking.rank_by_worst_cell([name for name, reason in reasons.items() if not reason])
    for name in sorted(reasons, key=lambda n: (ranks.get(n, len(names) + 1), ranking.badness[ranking.worst(n)])):
        index = ranking.worst(name)
        test, (_, corpus) = cells[index]
        interval = Interval("fixed-subjects", reason=no_spread) if no_spread else ranking.interval(name)
        yield WorstCell(name, metric, values[index], corpus, test, interval, ranks.get(name), reasons[name])


def _is_control(corpus: Corpus | None) -> bool:
    """Whether a training corpus lacks randomly drawn answers, as the control for a corpus without one subject.

    The control is as small as the corpus without the subject, but it has answers of all subjects.
    """
    return corpus is not None and corpus.leaves_out == AT_RANDOM


# --- against untrained methods ----------------------------------------------------------------------------------------


def _against_untrained(about: About, tested: Mapping[str, _TestData]) -> Iterator[AgainstUntrained]:
    """Test trained methods against all methods without labels at once, in each cell without the home corpus.

    The home corpus is the reference training corpus of a test task. Controls (`_is_control`) are not tested.
    """
    by_test = {test: data.cells["brier"] for test, data in tested.items()}
    in_all_tests = set.intersection(*({*brier} for brier in by_test.values()))
    untold = tuple(sorted(name for name, corpus in in_all_tests if corpus is None))
    for (test, brier), name, corpus in product(by_test.items(), about.learners, about.corpora) if untold else ():
        if corpus != about.home(test) and not _is_control(corpus) and (name, corpus) in brier:
            pairs = {u: tested[test].worsening("brier", [brier[name, corpus]], [brier[u, None]]) for u in untold}
            against = max(untold, key=lambda u: pairs[u][2] or 0)
            points, interval, p = pairs[against]
            p = p if len({price > 0 for price, *_ in pairs.values()}) == 1 else 1.0
            yield AgainstUntrained(name, corpus, test, untold, against, points, interval, p)
