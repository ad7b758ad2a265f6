"""`bench analyze labels` on planted methods: it feeds the model nothing, and what is planted is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from bench.api import Batch, ConfidenceMethod, Context, FloatArray, Needs, QueryLogits, UserError
from bench.model.session import Session
from bench.progress import Advance, Progress, Silent
from bench.results.files import read, read_records
from bench.run.analyses.label_budgets import LabelsReport, run_labels
from bench.run.analyses.request import LabelsConfig
from bench.run.config import RunConfig
from bench.run.pipeline import run
from bench.signals.reader import Reader
from bench.stats.label_budgets import ONE_KIND, LabelCurves, Point
from methods.logistic_probe import LogisticProbe
from tests.kit.place import Place

TRUTH: dict[str, bool] = {}
"""Which answers of the test are right: what a planted method knows."""
TOLD: list[tuple[int, int, bool]] = []
"""Labels that `rising` was told by each fit: training, validation, and whether training had both kinds."""


class Rising(ConfidenceMethod):
    """Knows the test the better, the more labels it was told: nothing with few, nearly everything from 60 on."""

    name = "rising"
    reference = "none"
    needs = Needs(fit=frozenset({QueryLogits()}), predict=frozenset({QueryLogits()}))
    takes_one_class: ClassVar[bool] = True

    def fit(self, train: Batch, ctx: Context) -> Rising:
        held = 0 if ctx.validation is None else len(ctx.validation)
        TOLD.append((len(train), held, bool(train.correct.any() and not train.correct.all())))
        self.n_ = len(train) + held
        return self

    def predict(self, batch: Batch) -> FloatArray:
        right = np.asarray([TRUTH.get(each, False) for each in batch.ids])
        noise = np.random.default_rng(self.n_).uniform(0, 0.2, len(batch))
        return np.where(right == (self.n_ >= 60), 1 - noise, noise)


class Strict(Rising):
    """The same, but it can't learn from answers of one kind."""

    name = "strict"
    takes_one_class: ClassVar[bool] = False


class Still(Rising):
    """Says the same whatever it is told."""

    name = "still"

    def predict(self, batch: Batch) -> FloatArray:
        return np.full(len(batch), 0.55)


PLANTED = (Rising, Strict, Still)


SIZES = {"train": 80, "validation": 20, "test": 90}
ISLES = [
    {"question": f"Who rules isle {split} {i}?", "choices": ["Tove", "Kiru", "Bamo"], "answer": i % 3, "split": split,
     "subject": ("north", "south")[i % 2]}
    for split, n in SIZES.items() for i in range(n)
]  # fmt: skip


class World:
    """A cache in which an ordinary run has read everything, and studies made from it."""

    def __init__(self, place: Place) -> None:
        self.place, self.folder, self.cache = place, place.folder, place / "cache"
        self.file = place.write("isles.jsonl", ISLES)
        names = ("rising", "still", "strict", "logistic-probe", "perplexity", "ptrue")
        config = RunConfig(names, "tiny", task_files=(self.file,), cache=self.cache, out=place / "r")
        first = RunConfig(("ptrue",), "tiny", task_files=(self.file,), cache=self.cache, out=place / "first")
        (path,) = run(first).paths
        records = read_records(path)
        TRUTH.update(zip(records.id, records.correct.tolist(), strict=True))
        self.ran = run(config, classes=PLANTED)

    def study(
        self, methods: str, labels: str = "20,40,60,all", seeds: str = "0,1,2,3,4", progress: Progress | None = None
    ) -> LabelsReport:
        config = LabelsConfig(
            "tiny", tuple(methods.split(",")), task_files=(self.file,), labels=tuple(labels.split(",")),
            seeds=tuple(seeds.split(",")), out=self.folder / "a", cache=self.cache,
        )  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Session, "forward", lambda *_, **__: pytest.fail("the model was run"))
            return run_labels(config, progress or Silent(), PLANTED)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(Place(tmp_path_factory.mktemp("isles")))


def points(curves: LabelCurves, method: str, metric: str = "brier") -> dict[int, Point]:
    return {point.size: point for point in curves.of(method, metric)}


def value(point: Point) -> float:
    assert point.estimate is not None
    return point.estimate.value


def test_planted_method_crosses_where_it_was_planted(world: World) -> None:
    report = world.study("rising,still,ptrue")
    (curves,) = report.curves
    assert curves.study.forward_tokens == 0
    assert curves.study.sizes == (20, 40, 60, 100)
    assert dict(curves.study.validation) == {20: 4, 40: 8, 60: 12, 100: 20}
    found = {(c.method, c.metric): c for c in curves.crossings}
    for metric in ("brier", "auroc"):
        assert (found["rising", metric].worse_at, found["rising", metric].better_from) == ((20, 40), 60)
        assert [a.size for a in curves.ahead if a.metric == metric and a.is_shown(0.95)] == [60, 100]
    assert found["still", "auroc"].better_from is None
    assert len({value(point) for point in points(curves, "still").values()}) == 1
    assert len({value(point) for point in points(curves, "ptrue").values()}) == 1
    assert {point.labels for point in points(curves, "ptrue").values()} == {0}


class Counted(Silent):
    """Stages with their totals, and how much was done of each."""

    def __init__(self) -> None:
        self.stages: list[list[object]] = []

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Advance]:
        done: list[int] = []
        yield done.append
        self.stages.append([name, unit, total, sum(done)])


def test_label_study_progress_reaches_its_total(world: World) -> None:
    world.study("rising,still", labels="20,40", seeds="0,1,2", progress=(counted := Counted()))
    fits = [stage for stage in counted.stages if stage[1] == "fits"]
    assert [[unit, total, done] for _, unit, total, done in fits] == [["fits", 6, 6]] * 2
    assert all(total == done for _, _, total, done in counted.stages)


def test_devices_are_left_before_the_fits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    order, fit = [], Rising.fit
    engine = SimpleNamespace(
        work=lambda tasks: (task for task in tasks), rest=lambda: order.append("rest"), close=lambda: None
    )
    monkeypatch.setattr(Reader, "active_engine", engine)
    monkeypatch.setattr(Rising, "fit", lambda *given: (order.append("fit"), fit(*given))[1])
    world.study("rising,ptrue", "30", "7")  # fitted by no other test
    assert order == ["rest", "fit"]


def test_labels_told_are_exactly_those_of_the_budget(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one study fitted serves the next, for the same labels and for no others."""
    told, fit = [], LogisticProbe.fit

    def counted(method: LogisticProbe, train: Batch, ctx: Context) -> LogisticProbe:
        told.append((len(train), 0 if ctx.validation is None else len(ctx.validation)))
        return fit(method, train, ctx)

    monkeypatch.setattr(LogisticProbe, "fit", counted)
    world.study("logistic-probe", "25,35", "20,21,22")
    assert sorted(set(told)) == [(20, 5), (28, 7)]
    assert len(told) == 6
    (again,) = world.study("logistic-probe", "25,35,45", "20,21,22").curves
    assert sorted(set(told[6:])) == [(36, 9)]
    assert len(told) == 9
    assert [point.labels for point in points(again, "logistic-probe").values()] == [25, 35, 45]


def test_all_labels_and_seed_0_are_the_run(world: World) -> None:
    """Fits, scales and confidences are those of `bench run`, so that the end of each curve is its result."""
    rows = {row.method: read(path) for row, path in zip(world.ran.rows, world.ran.paths, strict=True)}
    (curves,) = world.study("logistic-probe,perplexity,ptrue", "all", "0").curves
    assert curves.study.scaled == ("perplexity",)
    for method in ("logistic-probe", "perplexity", "ptrue"):
        for metric in ("brier", "auroc"):
            assert value(points(curves, method, metric)[100]) == pytest.approx(rows[method].metrics[metric].pooled)
    assert points(curves, "perplexity")[100].labels == 20
    assert points(curves, "logistic-probe")[100].labels == 100
    assert "no intervals and no crossings: 1 draw" in curves.notes[0]


def test_draws_of_one_kind_are_counted_not_averaged(world: World) -> None:
    TOLD.clear()
    seeds = range(40, 60)
    (curves,) = world.study("rising,strict,perplexity", "10", ",".join(map(str, seeds))).curves
    of_rising = TOLD[:20]  # told in the order of the seeds; it takes answers of one kind
    assert {(train, held) for train, held, _ in of_rising} == {(6, 4)}
    one_kind = sum(not both for *_, both in of_rising)
    assert one_kind > 0, "the test needs such a draw"
    point = points(curves, "strict")[10]
    assert dict(point.missing) == {ONE_KIND: one_kind}
    assert point.draws == 20 - one_kind
    assert point.estimate is not None
    assert point.estimate.low is None
    assert not [gain for gain in curves.gains if (gain.method, gain.size) == ("strict", 10) and gain.p is not None]
    assert not points(curves, "rising")[10].missing


def test_more_labels_than_there_are_are_refused(world: World) -> None:
    with pytest.raises(UserError, match=r"--labels 20,101: expected at most the 100 labels .* got 101; all stands for"):
        world.study("rising,ptrue", "20,101")
    (curves,) = world.study("rising,ptrue", ",".join(LabelsConfig.labels), "0").curves
    assert curves.study.sizes == (20, 50, 100)


@pytest.mark.slow
def test_adapters_are_not_trained_again(world: World) -> None:
    (curves,) = world.study("still,it,ptrue", "20", "0").curves
    assert "not trained again" in curves.study.absent["it"]
    assert curves.study.trained == ("still",)


def test_study_writes_tables_and_figures_and_prints_data(world: World) -> None:
    words = (
        "--model",
        "tiny",
        "--task-file",
        world.file,
        "--method",
        "logistic-probe,perplexity",
        "--labels",
        "20,all",
    )
    made = world.place.done("analyze", "labels", *words, "--seed", "0,1", "--json", out="written")
    (data,) = json.loads(made.stdout)
    assert data["study"]["forward_tokens"] == 0
    assert any("no intervals, no tests, and so no crossings" in sentence for sentence in data["verdict"])
    written = sorted((world.place / "written").iterdir())
    assert {path.suffix for path in written} == {".md", ".csv", ".json", ".svg", ".png"}
    assert all(path.name.startswith("tiny--labels--isles") for path in written)
