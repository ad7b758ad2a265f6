"""`bench run --tune N`: constants are chosen on validation, by the same number of configurations for every method."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

from bench.results import files
from bench.results.row import Tuning
from bench.results.submissions.metadata_checks import tuning_findings
from methods.pik import PIK
from tests.kit.place import Place

PLUGIN = '''"""A method whose own rate is bad, and a task whose test labels can be turned round."""
import os
from dataclasses import dataclass, replace

import numpy as np

from bench.api import ConfidenceMethod, Needs, QueryLogits, Uniform, method, task
from tasks.atlas import AtlasChoice


@method("planted")
@dataclass(kw_only=True, eq=False)
class Planted(ConfidenceMethod):
    "A slope and a level of the self-check, learned by descent."
    reference = "arXiv:2410.00001"
    needs = Needs(fit=frozenset({QueryLogits()}), predict=frozenset({QueryLogits()}))
    search = {"learning_rate": Uniform(0.05, 0.5, log=True)}

    learning_rate: float = 1e-9
    """CHOSEN: so small that nothing is learned."""

    def odds(self, batch):
        z = batch[QueryLogits()].astype(np.float64)
        return np.stack([z[:, 1] - z[:, 0], np.ones(len(batch))], axis=1)

    def fit(self, train, ctx):
        x, y, weights = self.odds(train), train.correct, np.zeros(2)
        stopping = ctx.early_stopping(256)
        for step in stopping:
            p = 1 / (1 + np.exp(-x @ weights))
            weights = weights - self.learning_rate * x.T @ (p - y) / len(y)
            if stopping.due:
                sure = lambda batch, w=weights: 1 / (1 + np.exp(-self.odds(batch) @ w))
                stopping.record(sure, keep=lambda w=weights: {"w": w})
        self.weights_ = stopping.kept["w"]
        return self

    def predict(self, batch):
        return 1 / (1 + np.exp(-self.odds(batch) @ self.weights_))


@task("turned")
class Turned(AtlasChoice):
    "Atlas questions, with the wrong answers right where TURNED is set."
    train_on = "atlas-choice"

    def questions(self, split):
        for question in super().questions(split):
            turned = split == "test" and "TURNED" in os.environ
            yield replace(question, gold=(question.gold + 1) % len(question.choices)) if turned else question
'''
METHODS = "planted,pik,ptrue,lts"
N = 3


class Tuned(Place):
    """Where the methods are run."""

    def tune(self, out: str, *more: object, **options: Any) -> CompletedProcess[str]:
        settings = ("--set", "pik.steps=200", "--set", "lts.steps=200", "--limit", 80, "--train-limit", "86+32")
        asked = ("--method", METHODS, "--plugin", self / "planted.py", "--model", "tiny", "--task", "turned")
        return self.run(*asked, *settings, *more, out=out, **options)

    def path(self, method: str, out: str = "tuned") -> Path:
        (path,) = (self / out).rglob(f"{method}--*.json")
        return path

    def read(self, method: str, out: str = "tuned") -> files.ResultRow:
        return files.read(self.path(method, out))

    def account(self, method: str, out: str = "tuned") -> Tuning:
        told = self.read(method, out).tuning
        assert told is not None
        return told

    def chosen(self, method: str) -> dict[str, str]:
        told = self.account(method)
        return dict(told.configurations[told.chosen].values)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """What is read is stored before it is tuned, and so are the fits of the preset's own constants."""
    place = Tuned(tmp_path_factory.mktemp("tuned"), here=True)
    place.write("planted.py", PLUGIN)
    place.tune("plain")
    ended = place.tune("tuned", "--tune", N, "--recalibrate", "isotonic", "--save-heads", place / "heads")
    place.write("stderr", ended.stderr)
    return place


def test_tuning_betters_a_method_of_bad_rate(place: Tuned) -> None:
    before, after, told = place.read("planted", "plain"), place.read("planted"), place.account("planted")
    assert before.tuning is None
    losses = [each.validation_nll for each in told.configurations]
    assert told.chosen > 0
    assert losses[0] == pytest.approx(np.log(2), abs=1e-6)  # nothing was learned
    assert None not in losses
    assert losses[told.chosen] == min(loss for loss in losses if loss is not None)
    assert 0.05 <= float(place.chosen("planted")["learning_rate"]) <= 0.5
    assert told.configurations[0].values == {"learning_rate": "1e-09"}
    assert after.metrics["brier"].mean < before.metrics["brier"].mean - 0.02  # type: ignore[operator]
    assert after.training is not None
    assert after.training.validation_nll == pytest.approx(losses[told.chosen])


def test_tuning_gives_every_method_the_same_number(place: Tuned) -> None:
    names = {path.name.partition("--")[0] for path in (place / "tuned").rglob("*--*.json")}
    assert names == {f"{name}{kind}" for name in METHODS.split(",") for kind in ("", "+isotonic")}
    assert {place.account(name).n for name in names} == {N}
    assert [len(place.account(name).configurations) for name in METHODS.split(",")] == [N, N, 0, 0]
    assert place.account("ptrue").reason == "it learns nothing"
    assert place.account("lts").reason == "it declares no search space"
    assert place.account("pik+isotonic") == place.account("pik")
    said = (place / "stderr").read_text(encoding="utf-8")
    assert "planted (3 configurations, less than 1 s)" in said  # by the fit that `plain` recorded
    assert "the first its preset's own; validation chooses (learning_rate: 0.05 to 0.5, log-uniform; 1e-09 in" in said
    assert "chooses (learning_rate: 0.1 to 10 times 0.0001; weight_decay: 0.1 to 10 times 0.1)" in said
    assert "nothing to tune: ptrue (it learns nothing), lts (it declares no search space)" in said
    assert "then 7 fits and 4 predictions" in said


def test_tuned_results_have_files_of_their_own(place: Tuned) -> None:
    for name in ("planted", "pik"):
        row, seconds = place.read(name), [each.seconds for each in place.account(name).configurations]
        assert row.timings["fit"] == pytest.approx(sum(seconds), abs=1e-3)
        assert min(seconds) > 0
        assert row.config["tune"] == N
        assert place.path(name).name != place.path(name, "plain").name
        assert "learning_rate" not in str(row.deviations)  # no tables would show it
    assert "tune" not in place.read("planted", "plain").config


def test_tuning_ignores_labels_of_the_test(place: Tuned) -> None:
    """The right answers of the test are others: its metrics change, and nothing that was chosen does."""
    ended = place.tune("turned", "--tune", N, env={"TURNED": "1"})
    assert "fit planted:" not in ended.stderr
    assert "fit pik:" not in ended.stderr
    assert place.read("planted", "turned").llm_accuracy != place.read("planted").llm_accuracy
    for name in ("planted", "pik"):
        assert place.account(name, "turned") == place.account(name)
        before, after = place.records(name, "tuned"), place.records(name, "turned")
        assert np.array_equal(after.confidence, before.confidence)


def test_tuning_leaves_fields_set_by_hand(place: Tuned) -> None:
    rate = place.chosen("planted")["learning_rate"]
    ended = place.tune("fixed", "--tune", N, "--set", f"planted.learning_rate={rate}", "--set", "pik.weight_decay=0.01")
    assert place.account("planted", "fixed").reason == "all that it searches was set by hand"
    assert "fit planted:" not in ended.stderr  # the same constants: it is stored
    before, after = place.records("planted", "tuned"), place.records("planted", "fixed")
    assert np.array_equal(after.confidence, before.confidence)
    assert set(place.account("pik", "fixed").searched) == {"learning_rate"}
    rates = [[each.values["learning_rate"] for each in place.account("pik", out).configurations]
             for out in ("fixed", "tuned")]  # fmt: skip
    assert rates[0] == rates[1]


@pytest.mark.parametrize("name", ["pik", "pik+isotonic"])
def test_tuned_heads_hold_the_chosen_constants(place: Tuned, name: str) -> None:
    (card,) = (place / "heads").rglob(f"{name}--*/head.json")
    constants = json.loads(card.read_text(encoding="utf-8"))["method"]["constants"]
    chosen = {field: float(value) for field, value in place.chosen(name).items()}
    assert {field: constants[field] for field in chosen} == chosen


def test_tuned_results_have_tables_of_their_own(place: Tuned) -> None:
    for name in ("plain", "tuned"):
        for path in (place / name).rglob("*.*"):
            place.write(f"both/{path.relative_to(place / name)}", "").write_bytes(path.read_bytes())
    shown = place.done("table", "--results", place / "both", "--partial", "--deviations", "--format", "json").stdout
    tables = json.loads(shown)
    methods = [{line["method"] for line in table["lines"]} for table in tables]
    assert methods[0] == {*METHODS.split(",")}
    assert methods[1] == {f"{name}{kind}" for name in methods[0] for kind in ("", "+isotonic")}
    captions = [json.dumps(table) for table in tables]
    assert "chosen on validation" not in captions[0]
    assert "search space were chosen on validation, among 3 configurations: the same budget for all" in captions[1]
    assert "Not tuned: lts (it declares no search space)" in captions[1]
    assert "tune" not in {line["variant"] for table in tables for line in table["lines"]}


def test_forged_accounts_are_found(place: Tuned) -> None:
    row, told = place.read("pik"), place.account("pik")
    assert not [*tuning_findings(row, PIK)]
    fewer = replace(told, configurations=told.configurations[:2])
    silent = Tuning(N, reason="it declares no search space")
    unlabelled = replace(row.labels_seen, validation=0)
    for forged, said in (
        (replace(row, tuning=replace(told, chosen=(told.chosen + 1) % N)), "does not have the smallest loss"),
        (replace(row, tuning=fewer), "has 2 configurations of 3"),
        (replace(row, config={}), "its config has tune None"),
        (replace(row, tuning=None), "its config has tune 3, its tuning None"),
        (replace(row, seed=1), "not those that its seed draws"),
        (replace(row, tuning=silent), "but pik searches learning_rate, weight_decay"),
        (replace(row, labels_seen=unlabelled), "labels_seen has validation 0"),
    ):
        assert said in " ".join(tuning_findings(forged, PIK))
