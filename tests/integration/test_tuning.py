"""`bench run --tune N`: constants are chosen on validation, by the same number of configurations for every method."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.metrics import nll
from bench.results import files
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow, Tuning
from bench.results.submissions.metadata_checks import tuning_findings
from bench.run.rerun import _config
from methods.pik import PIK

Command = Callable[..., "subprocess.CompletedProcess[str]"]

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
SETTINGS = (
    "--model",
    "tiny",
    "--task",
    "turned",
    "--limit",
    80,
    "--scale-training",
    "--set",
    "pik.steps=200",
    "--set",
    "lts.steps=200",
)
N = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "planted.py").write_text(PLUGIN)
    return folder


@pytest.fixture(scope="module")
def tune(bench: Command, folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(out: str, *more: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return bench(
            "run", "--method", "planted,pik,ptrue,lts", "--plugin", folder / "planted.py", *SETTINGS, *more,
            "--out", folder / out, env={"CONFBENCH_CACHE": str(folder / "cache"), **(env or {})},
        )  # fmt: skip

    return run


Found = dict[str, tuple[Path, ResultRow, QuestionRecords]]


def cells(folder: Path) -> Found:
    found = {}
    for path in folder.rglob("*.json"):
        row = files.read(path)
        found[row.method] = path, row, files.read_records(path)
    return found


@pytest.fixture(scope="module")
def plain(tune: Command, folder: Path) -> Found:
    result = tune("plain")
    assert result.returncode == 0, result.stderr
    return cells(folder / "plain")


@pytest.fixture(scope="module")
def chosen(tune: Command, folder: Path, plain: Found) -> tuple[Found, str]:
    del plain  # what is read is stored by then, and so are the fits of the preset's own constants
    result = tune("tuned", "--tune", N, "--recalibrate", "isotonic", "--save-heads", folder / "heads")
    assert result.returncode == 0, result.stderr
    return cells(folder / "tuned"), result.stderr


def account(of: Found, method: str) -> Tuning:
    told = of[method][1].tuning
    assert told is not None
    return told


def test_a_method_whose_own_rate_is_bad_becomes_better_and_the_row_says_how(
    plain: Found, chosen: tuple[Found, str]
) -> None:
    found, _ = chosen
    (_, before, _), (_, after, _) = plain["planted"], found["planted"]
    assert before.tuning is None
    told = account(found, "planted")
    losses = [each.validation_nll for each in told.configurations]
    assert told.chosen > 0
    assert losses[0] == pytest.approx(np.log(2), abs=1e-6)  # nothing was learned
    assert None not in losses
    assert losses[told.chosen] == min(loss for loss in losses if loss is not None)
    assert 0.05 <= float(told.configurations[told.chosen].values["learning_rate"]) <= 0.5
    assert told.configurations[0].values == {"learning_rate": "1e-09"}
    assert after.metrics["brier"].mean < before.metrics["brier"].mean - 0.02  # type: ignore[operator]
    assert after.training is not None
    assert after.training.validation_nll == pytest.approx(losses[told.chosen])


def test_every_method_with_a_search_space_gets_the_same_number_and_others_say_why_not(
    chosen: tuple[Found, str],
) -> None:
    found, said = chosen
    assert {row.tuning and row.tuning.n for _, row, _ in found.values()} == {N}
    assert [len(account(found, name).configurations) for name in ("planted", "pik", "ptrue", "lts")] == [N, N, 0, 0]
    assert account(found, "ptrue").reason == "it learns nothing"
    assert account(found, "lts").reason == "it declares no search space"
    assert account(found, "pik+isotonic") == account(found, "pik")
    assert "planted (3 configurations, less than 1 s)" in said  # by the fit that `plain` recorded
    assert "nothing to tune: ptrue (it learns nothing), lts (it declares no search space)" in said
    assert "then 7 fits and 4 predictions" in said


def test_tuned_results_have_files_of_their_own(
    tune: Command, folder: Path, plain: Found, chosen: tuple[Found, str]
) -> None:
    found, _ = chosen
    names = {path.name for path, _, _ in plain.values()} & {path.name for path, _, _ in found.values()}
    assert not names
    assert found["planted"][1].config["tune"] == N
    assert "tune" not in plain["planted"][1].config
    assert "learning_rate" not in str(found["planted"][1].deviations)  # no tables would show it


def test_the_seconds_of_all_fits_are_the_row_s(chosen: tuple[Found, str]) -> None:
    found, _ = chosen
    for name in ("planted", "pik"):
        told = account(found, name)
        assert found[name][1].timings["fit"] == pytest.approx(
            sum(each.seconds for each in told.configurations), abs=1e-3
        )
        assert all(each.seconds > 0 for each in told.configurations)


def test_fewer_configurations_are_the_first_of_more(tune: Command, folder: Path, chosen: tuple[Found, str]) -> None:
    result = tune("fewer", "--tune", 2)
    assert "fit planted:" not in result.stderr  # all of them are stored
    fewer, (found, _) = cells(folder / "fewer"), chosen
    for name in ("planted", "pik"):
        assert account(fewer, name).configurations == account(found, name).configurations[:2]


def test_labels_of_the_test_have_no_say_and_a_run_again_fits_nothing(
    tune: Command, folder: Path, chosen: tuple[Found, str]
) -> None:
    """The right answers of the test are others: its metrics change, and nothing that was chosen does."""
    result = tune("turned", "--tune", N, env={"TURNED": "1"})
    assert result.returncode == 0, result.stderr
    assert "fit planted:" not in result.stderr
    assert "fit pik:" not in result.stderr
    turned, (found, _) = cells(folder / "turned"), chosen
    assert turned["planted"][1].llm_accuracy != found["planted"][1].llm_accuracy
    for name in ("planted", "pik"):
        assert account(turned, name) == account(found, name)
        assert np.array_equal(turned[name][2].confidence, found[name][2].confidence)


def test_a_field_set_by_hand_is_not_searched_and_the_chosen_value_gives_the_chosen_numbers(
    tune: Command, folder: Path, chosen: tuple[Found, str]
) -> None:
    found, _ = chosen
    told = account(found, "planted")
    rate = told.configurations[told.chosen].values["learning_rate"]
    result = tune("fixed", "--tune", N, "--set", f"planted.learning_rate={rate}", "--set", "pik.weight_decay=0.01")
    fixed = cells(folder / "fixed")
    assert account(fixed, "planted").reason == "all that it searches was set by hand"
    assert "fit planted:" not in result.stderr  # the same constants: it is stored
    assert np.array_equal(fixed["planted"][2].confidence, found["planted"][2].confidence)
    assert set(account(fixed, "pik").searched) == {"learning_rate"}
    rates = [[each.values["learning_rate"] for each in account(of, "pik").configurations] for of in (fixed, found)]
    assert rates[0] == rates[1]


def test_a_head_holds_the_chosen_constants(folder: Path, chosen: tuple[Found, str]) -> None:
    found, _ = chosen
    for name in ("pik", "pik+isotonic"):
        (card,) = (folder / "heads").rglob(f"{name}--*/head.json")
        told = account(found, name)
        constants = json.loads(card.read_text())["method"]["constants"]
        for field, value in told.configurations[told.chosen].values.items():
            assert constants[field] == float(value)


def test_recalibration_is_fitted_on_confidences_chosen_without_their_fold(chosen: tuple[Found, str]) -> None:
    found, _ = chosen
    assert found["planted+isotonic"][1].status == "ok"
    assert found["planted+isotonic"][1].labels_seen == found["planted"][1].labels_seen
    before, after = found["planted"][2].confidence, found["planted+isotonic"][2].confidence
    assert (np.diff(after[np.argsort(before, kind="stable")]) >= 0).all()


def test_tables_keep_tuned_and_untuned_results_apart(bench: Command, folder: Path, chosen: tuple[Found, str]) -> None:
    del chosen
    both = folder / "both"
    for name in ("plain", "tuned"):
        for path in (folder / name).rglob("*.*"):
            target = both / path.relative_to(folder / name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    shown = bench("table", "--results", both, "--partial", "--deviations", "--format", "json").stdout
    tables = json.loads(shown)
    methods = [{line["method"] for line in table["lines"]} for table in tables]
    assert methods[0] == {"planted", "pik", "ptrue", "lts"}
    assert methods[1] == {f"{name}{kind}" for name in methods[0] for kind in ("", "+isotonic")}
    captions = [json.dumps(table) for table in tables]
    assert "chosen on validation" not in captions[0]
    assert "search space were chosen on validation, among 3 configurations: the same budget for all" in captions[1]
    assert "Not tuned: lts (it declares no search space)" in captions[1]
    assert "tune" not in {line["variant"] for table in tables for line in table["lines"]}


def test_a_cell_is_run_again_as_it_was_tuned(plain: Found, chosen: tuple[Found, str]) -> None:
    again = _config(chosen[0]["pik+isotonic"][1], Path("out"), None)
    assert (again.tune, again.recalibrate, again.overrides) == (N, ("isotonic",), ("pik.steps=200",))
    assert _config(plain["pik"][1], Path("out"), None).tune is None


def test_a_forged_account_is_found(chosen: tuple[Found, str]) -> None:
    row = chosen[0]["pik"][1]
    told = account(chosen[0], "pik")
    other = (told.chosen + 1) % N

    def findings(row: ResultRow) -> str:
        return " ".join(tuning_findings(row, PIK))

    assert findings(row) == ""
    assert "does not have the smallest loss" in findings(replace(row, tuning=replace(told, chosen=other)))
    assert "has 2 configurations of 3" in findings(
        replace(row, tuning=replace(told, configurations=told.configurations[:2]))
    )
    assert "its config has tune None" in findings(replace(row, config={}))
    assert "its config has tune 3, its tuning None" in findings(replace(row, tuning=None))
    assert "not those that its seed draws" in findings(replace(row, seed=1))
    silent = replace(row, tuning=Tuning(N, reason="it declares no search space"))
    assert "but pik searches learning_rate, weight_decay" in findings(silent)
    unlabelled = replace(row, labels_seen=replace(row.labels_seen, validation=0))
    assert "labels_seen has validation 0" in findings(unlabelled)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--tune", 1), "expected at least 2 configurations, got 1"),
        (("--tune", 4, "--preset", "paper"), "preset 'paper' keeps the last step"),
    ],
)
def test_what_can_t_be_tuned_is_one_sentence(tune: Command, more: tuple[object, ...], told: str) -> None:
    result = tune("refused", *more)
    assert result.returncode == 2
    assert told in result.stderr


def test_the_loss_that_chooses_is_that_of_the_metric() -> None:
    """The rule is the negative log-likelihood as tables show it, so a chosen configuration can be checked by hand."""
    from bench.api.early_stopping import validation_loss

    rng = np.random.default_rng(0)
    confidence, correct = rng.random(50), rng.random(50) < 0.5
    assert validation_loss(confidence, correct) == pytest.approx(nll(confidence, correct))
