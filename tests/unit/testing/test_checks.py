"""The contract checks pass honest methods and tasks, and catch dishonest ones by the name of the rule."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from bench.api import (
    At,
    Batch,
    ChoiceLogits,
    ConfidenceMethod,
    Context,
    ContractError,
    FloatArray,
    Format,
    Hidden,
    Needs,
    Of,
    PromptStyle,
    QueryLogits,
    Question,
    RunFacts,
    SampleAgreement,
    Split,
    Task,
    TaskCard,
    Times,
    TokenIds,
    UserError,
)
from bench.testing import check_plugin, checks_for
from bench.testing.check import MakeMethod

MARGIN = '''"""Margin between the two most likely options (Scheffer et al., 2001)."""

import numpy as np

from bench.api import Batch, ChoiceLogits, ConfidenceMethod, Context, FloatArray, Needs, method


@method("margin")
class Margin(ConfidenceMethod):
    """Slope on the gap between the two best options."""

    reference = "doi:10.1007/3-540-44816-0_31"
    needs = Needs(fit=frozenset({ChoiceLogits()}), predict=frozenset({ChoiceLogits()}))

    def __init__(self, steps: int = 500) -> None:
        self.steps = steps

    def fit(self, train: Batch, ctx: Context) -> "Margin":
        """Fit the slope."""
        self.slope_ = 1.0 + float(train.correct.mean()) / self.steps
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Map the gap to a probability, shape (n,)."""
        best = np.sort(batch[ChoiceLogits()].astype(np.float64), axis=1)  # (n, k)
        return 1.0 / (1.0 + np.exp(-self.slope_ * (best[:, -1] - best[:, -2])))
'''
"""What a third party writes, with logits made float64: confidences must be."""


def broken_rules(plugin: Any) -> dict[str, str]:
    """Check name -> message, for the checks that fail."""
    broken = {}
    for make, check in checks_for(plugin):
        try:
            check(make)
        except AssertionError as error:
            broken[check.__name__] = str(error)
    return broken


# --- an honest method -------------------------------------------------------------------------------------------------


@pytest.fixture
def margin(tmp_path: Path) -> Callable[[str], Path]:
    """Function from the text of a plugin to its file."""

    def written(text: str) -> Path:
        path = tmp_path / "margin.py"
        path.write_text(text)
        return path

    return written


def test_third_party_example_passes(margin: Any) -> None:
    results = check_plugin(margin(MARGIN))
    assert [r for r in results if not r.ok] == []
    assert len(results) == 22


def test_exception_behind_several_rules_is_told_once(margin: Any) -> None:
    results = check_plugin(margin(MARGIN.replace("        self.slope_ =", "        raise ValueError('mine')  #")))
    failed = [result.message for result in results if not result.ok]
    assert len([message for message in failed if "mine" in message]) == 1
    assert "other rules fail by this alone" in " ".join(failed)


@pytest.mark.slow
def test_third_party_example_takes_seconds(margin: Any) -> None:
    started = time.process_time()
    check_plugin(margin(MARGIN))
    assert time.process_time() - started < 5


class Honest(ConfidenceMethod):
    """Slope on the self-check's log odds."""

    name = "honest"
    reference = "arXiv:2207.05221"
    needs = Needs(fit=frozenset({QueryLogits()}), predict=frozenset({QueryLogits()}))

    def __init__(self, steps: int = 20) -> None:
        self.steps = steps

    def fit(self, train: Batch, ctx: Context) -> Honest:
        self.slope_ = 1.0 + float(ctx.rng.random()) + 0.01 * float(train.correct.mean())
        return self

    def predict(self, batch: Batch) -> FloatArray:
        return np.asarray(1.0 / (1.0 + np.exp(-self.slope_ * odds(batch))))


def odds(batch: Batch) -> FloatArray:
    z = batch[QueryLogits()].astype(np.float64)
    return np.asarray(z[:, 1] - z[:, 0])


def formats(plugin: Any) -> set[Format]:
    return {make.format for make, _ in checks_for(plugin) if isinstance(make, MakeMethod)}


def test_honest_method_passes_in_both_formats() -> None:
    assert broken_rules(Honest) == {}
    assert formats(Honest) == set(Format)


def test_method_without_a_reference_passes_as_unpublished() -> None:
    unpublished = changed(reference=ConfidenceMethod.reference)
    assert broken_rules(unpublished) == {}
    remarks = {check.__name__: check(make) for make, check in checks_for(unpublished)}
    assert {name: remark for name, remark in remarks.items() if remark} == {
        "reference": "unpublished: it has no reference"
    }


# --- dishonest ones: each breaks one rule -----------------------------------------------------------------------------


def changed(**attributes: Any) -> type[Honest]:
    """The honest method with other attributes."""
    return type("Changed", (Honest,), {"__doc__": "Breaks a rule.", **attributes})


def predicts(change: Callable[[FloatArray], Any]) -> type[Honest]:
    """One whose confidences are changed."""
    return changed(predict=lambda self, batch: change(Honest.predict(self, batch)))


def learns(change: Callable[[Any, Batch, Context], Any]) -> type[Honest]:
    """One that does this, too, when it is fitted; what it returns is added to the slope."""

    def fit(self: Any, train: Batch, ctx: Context) -> Any:
        Honest.fit(self, train, ctx)
        self.slope_ += change(self, train, ctx) or 0.0
        return self

    return changed(fit=fit)


def running_mean(self: Any, batch: Batch) -> FloatArray:
    self.seen = getattr(self, "seen", 0.0) + 0.1
    return np.asarray(Honest.predict(self, batch) / (1.0 + self.seen))


def global_random(self: Any, batch: Batch) -> FloatArray:
    random.random()
    return Honest.predict(self, batch)


def global_numpy(*_: Any) -> float:
    return float(np.random.rand())  # noqa: NPY002


def global_torch(_self: Any, _train: Batch, ctx: Context) -> float:
    """Reproducible, at the cost of everyone else."""
    torch.manual_seed(ctx.seed)
    return float(torch.rand(1))


def undeclared(self: Any, batch: Batch) -> FloatArray:
    with contextlib.suppress(ContractError):
        batch[ChoiceLogits()]
    return Honest.predict(self, batch)


def undeclared_and_silent(_self: Any, train: Batch, _ctx: Context) -> None:
    with contextlib.suppress(ContractError):
        train[Hidden()]


def peeking(self: Any, batch: Batch) -> FloatArray:
    with contextlib.suppress(Exception):
        return batch.correct.astype(np.float64)
    return Honest.predict(self, batch)


def writes_in_place(self: Any, batch: Batch) -> FloatArray:
    z = batch[QueryLogits()]
    z -= 1.0
    return Honest.predict(self, batch)


def writes_by_force(_self: Any, train: Batch, _ctx: Context) -> None:
    z = train[QueryLogits()]
    z.flags.writeable = True
    z += 1.0
    z.flags.writeable = False


def working_init(self: Any, steps: int = 20) -> None:
    self.steps, self.table = steps, np.zeros(steps)


def renaming_init(self: Any, steps: int = 20) -> None:
    self.steps = steps + 1


def narrow_init(self: Any, steps: int = 20) -> None:
    if steps < 10:
        raise ValueError(f"{steps} steps")
    self.steps = steps


def unsaved_offset(self: Any, _train: Batch, _ctx: Context) -> None:
    self.offset = 0.3


def returns_another(self: Any, train: Batch, ctx: Context) -> Any:
    Honest.fit(self, train, ctx)
    return Honest.fit(type(self)(self.steps), train, ctx)


def counts_down(self: Any, _train: Batch, _ctx: Context) -> None:
    self.steps -= 1


def reads_more(signal: Any, above: int) -> Any:
    """`reads()` of a method that reads a further signal if it takes more steps."""
    return lambda self: Needs(
        fit=self.needs.fit, predict=self.needs.predict | (frozenset({signal}) if self.steps > above else frozenset())
    )


FOR_PREDICT = Needs(predict=frozenset({QueryLogits()}))
GOLD_IN_NEEDS = Needs(fit=Honest.needs.fit, predict=frozenset({QueryLogits(), TokenIds(Of.WRONG)}))
TWO_PRESETS = {"paper": {"steps": 20}, "fixed": {"steps": 30}}
FAR = {"steps": Times(0.1, 10.0)}
UNSAVED = changed(
    fit=learns(unsaved_offset).fit, predict=lambda self, batch: np.clip(Honest.predict(self, batch) + self.offset, 0, 1)
)
ONE_SIDED = changed(takes_one_class=True)


@pytest.mark.parametrize(
    ("plugin", "rule", "words"),
    [
        (predicts(lambda p: (p - p.min()) / (np.ptp(p) + 1e-9)), "subset_invariance",
         "of 50 questions alone: they differ by up to"),
        (changed(predict=running_mean), "subset_invariance", "they differ by up to"),
        (predicts(lambda p: p * np.linspace(1.0, 0.9, len(p))), "order_invariance", "they differ by up to"),
        (predicts(lambda p: 1.0 - p), "orientation", "expected an AUROC above 0.7"),
        (learns(global_numpy), "reproducible", "two fits with the same ctx.seed"),
        (learns(global_numpy), "global_randomness", "the global state of numpy was changed"),
        (learns(lambda *given: np.random.RandomState(given[2].seed).rand()), "values",
         "Seed must be between 0 and 2**32 - 1"),
        (learns(global_torch), "global_randomness", "the global state of torch was changed"),
        (changed(predict=global_random), "global_randomness", "the global state of random was changed"),
        (changed(predict=undeclared), "declared_reads",
         "predict read ChoiceLogits(), which needs does not declare for it"),
        (learns(lambda _self, train, _: train[Hidden()].values.mean()), "declared_reads",
         "was read but not declared in needs (declared: QueryLogits())"),
        (changed(needs=FOR_PREDICT, fit=learns(lambda _self, train, _: odds(train)[0]).fit), "declared_reads",
         "QueryLogits() was read but not declared in needs (declared: none)"),
        (learns(undeclared_and_silent), "declared_reads", "fit read Hidden()"),
        (changed(predict=peeking), "no_labels_in_predict", "predict read batch.correct"),
        (changed(predict=writes_in_place), "inputs_not_written", "copy it first"),
        (learns(writes_by_force), "inputs_not_written", "QueryLogits() was written to"),
        (changed(predict=lambda self, batch: self.slope_ * odds(batch)), "values",
         "expected values within [0, 1], got"),
        (predicts(lambda p: p > 0.5), "values", "expected numbers, got bool; give how sure it is and not the decision"),
        (predicts(lambda p: p[:, None]), "values", "expected shape (1,), got (1, 1); use .ravel()"),
        (predicts(lambda p: np.asarray(np.squeeze(p))), "values", "expected shape (1,), got ()"),
        (predicts(lambda p: p * np.nan), "values", "expected numbers, got NaN in 1 of 1"),
        (changed(__init__=working_init), "init_only_stores", "__init__ also sets ['table']"),
        (changed(__init__=renaming_init), "init_only_stores",
         "expected the arguments ['steps'] to be stored as they are"),
        (UNSAVED, "save_load", "AttributeError"),
        (changed(fit=returns_another), "parameters_unchanged", "expected fit to return self"),
        (learns(counts_down), "parameters_unchanged", "the arguments ['steps'] have changed"),
        (changed(slope_=1.0), "unfitted_raises", "predict gave values without fit"),
        (ONE_SIDED, "one_class", "all labels True, yet the confidences lie between"),
        (changed(reference="https://arxiv.org/abs/2207.05221"), "reference",
         "expected arXiv:1234.56789, doi:10.1234/name or none, got 'https://arxiv"),
        (changed(presets={"fixed": {"stepps": 3}}), "presets", "preset 'fixed' gives ['stepps']"),
        (changed(small={"stepps": 3}), "presets", "small gives ['stepps'], which __init__ does not take"),
        (changed(expected_failures={"subset_invarance": "typo"}), "declarations",
         "expected_failures names ['subset_invarance']"),
        (changed(needs=GOLD_IN_NEEDS), "no_gold_in_predict",
         "predict would read TokenIds(of=Of.WRONG), which tells the right answer"),
        (changed(presets=TWO_PRESETS, reads=reads_more(Hidden(at=At.GOLD_PREDICTING), 20)), "no_gold_in_predict",
         "Hidden(at=At.GOLD_PREDICTING), which tells the right answer"),
        (changed(fit_on="test"), "no_gold_in_predict", "fit_on: expected one of train, validation, got 'test'"),
        (changed(search=FAR, reads=reads_more(Hidden(), 40)), "search",
         "reads other signals than without; search constants of training alone"),
        (changed(search=FAR, __init__=narrow_init), "search", "which search allows: ValueError:"),
        (changed(search={"stepps": Times(0.1, 10.0)}), "search", "search names 'stepps', which __init__ does not take"),
        (changed(skip=lambda _self, _facts: "not today"), "runs_somewhere", "it skips choice questions (not today)"),
        (changed(__doc__=None), "docstring", "the class has no docstring"),
    ],
    ids=lambda value: value if isinstance(value, str) and "_" in value else "",
)  # fmt: skip
def test_broken_method_is_caught_by_name(plugin: type[ConfidenceMethod], rule: str, words: str) -> None:
    broken = broken_rules(plugin)
    assert rule in broken, broken
    assert broken[rule].startswith(f"honest: rule {rule!r} (")
    assert words in broken[rule]


# --- dishonest by a little, and honest ones that round ----------------------------------------------------------------


def of_batch(amount: float) -> type[Honest]:
    """Is less sure the fewer questions a batch has."""
    return predicts(lambda p: p * (1.0 - amount / len(p)))


def of_place(amount: float) -> type[Honest]:
    """Is less sure the later a question comes in its batch."""
    return predicts(lambda p: p * np.linspace(1.0, 1.0 - amount, len(p)))


def of_file(amount: float) -> type[Honest]:
    """Loses digits of what it learned when it is saved."""

    def save(self: Any, folder: Path) -> None:
        slope, self.slope_ = self.slope_, self.slope_ * (1.0 + amount)
        Honest.save(self, folder)
        self.slope_ = slope

    return changed(save=save)


def of_fits(amount: float) -> type[Honest]:
    """Learns something else each time."""
    fits: list[int] = []
    return learns(lambda *_: fits.append(1) or amount * len(fits))  # type: ignore[func-returns-value]


def of_one_class(amount: float) -> type[Honest]:
    """Tells answers apart a little, though all that it learned from were right, or wrong."""
    flat = learns(lambda self, train, _: amount - self.slope_ if len(set(train.correct)) == 1 else 0.0)
    return changed(fit=flat.fit, takes_one_class=True)


@pytest.mark.parametrize(
    ("make", "amount", "rules"),
    [
        (lambda _: predicts(lambda p: 1.0 - p), 0.0, {"orientation"}),
        (lambda _: learns(global_torch), 0.0, {"global_randomness"}),
        (lambda _: changed(predict=peeking), 0.0, {"no_labels_in_predict"}),
        (lambda _: changed(__init__=working_init), 0.0, {"init_only_stores"}),
        (of_batch, 1e-3, {"subset_invariance"}),
        (of_batch, 1e-4, {"subset_invariance"}),
        (of_batch, 1e-6, set()),
        (of_place, 1e-4, {"order_invariance", "subset_invariance"}),
        (of_place, 1e-6, set()),
        (of_file, 1e-6, {"save_load"}),
        (of_fits, 1e-6, {"reproducible"}),
        (of_one_class, 1e-4, {"one_class"}),
        (of_one_class, 1e-7, set()),
    ],
)
def test_only_broken_rules_are_told_and_rounding_breaks_none(make: Any, amount: float, rules: set[str]) -> None:
    """Sums in float32 round by a millionth; what is saved, and a second fit, are the very same."""
    assert set(broken_rules(make(amount))) == rules


@pytest.mark.parametrize("size", [1e-3, 1e3])
@pytest.mark.parametrize(("amount", "rules"), [(1e-4, {"subset_invariance"}), (1e-6, set())])
def test_rounding_of_scores_is_measured_by_their_size(size: float, amount: float, rules: set[str]) -> None:
    class Score(ConfidenceMethod):
        """Log odds in units of its own."""

        name = "score"
        reference = "arXiv:2207.05221"
        needs = Needs(predict=frozenset({QueryLogits()}))
        output = "score"

        def predict(self, batch: Batch) -> FloatArray:
            return size * odds(batch) * (1.0 - amount / len(batch))

    assert set(broken_rules(Score)) == rules


# --- how methods are made and read ------------------------------------------------------------------------------------


def test_expected_failure_passes_and_a_stale_one_fails() -> None:
    excuse = {"orientation": "measures doubt, by definition"}
    flipped = changed(predict=lambda self, batch: 1.0 - Honest.predict(self, batch), expected_failures=excuse)
    assert broken_rules(flipped) == {}
    broken = broken_rules(changed(expected_failures=excuse))
    assert set(broken) == {"orientation"}
    assert "no longer needed" in broken["orientation"]
    assert "measures doubt, by definition" in broken["orientation"]


def test_method_is_made_with_small_settings_then_first_preset() -> None:
    def init(self: Any, layers: Any, steps: int = 10_000, epochs: int = 1, learning_rate: float = 1e-4) -> None:
        self.layers, self.steps, self.epochs, self.learning_rate = layers, steps, epochs, learning_rate

    made = changed(__init__=init, presets={"fixed": {"layers": (8, 4), "epochs": 3}}, small={"steps": 20, "epochs": 2})
    assert MakeMethod(made)().params() == {"layers": (8, 4), "steps": 20, "epochs": 2, "learning_rate": 1e-4}


def test_skipped_formats_are_not_checked() -> None:
    def skip(_self: Any, facts: RunFacts) -> str | None:
        return "open answers" if facts.format is Format.OPEN else None

    assert formats(changed(skip=skip)) == {Format.CHOICE}


def test_signals_are_those_that_an_instance_reads() -> None:
    @dataclass(kw_only=True, eq=False)
    class OfSamples(ConfidenceMethod):
        """Share of the samples that agree."""

        name: ClassVar[str] = "of-samples"
        reference: ClassVar[str] = "arXiv:2203.11171"
        needs: ClassVar[Needs] = Needs()

        n: int = 5
        """Samples. CHOSEN: for the test."""

        def reads(self) -> Needs:
            return Needs(predict=frozenset({SampleAgreement(self.n)}))

        def predict(self, batch: Batch) -> FloatArray:
            """Share of agreeing samples, shape (n,)."""
            return np.asarray(batch[SampleAgreement(self.n)].mean(axis=1), dtype=np.float64)

    assert broken_rules(OfSamples) == {}


# --- plugin files -----------------------------------------------------------------------------------------------------

FIELDS = """from dataclasses import dataclass


@dataclass(kw_only=True, eq=False)
class Rated(ConfidenceMethod):
    rate: float = 0.5
    \"\"\"CHOSEN: it converges in all folds.\"\"\"


@method("margin-of-fields")
@dataclass(kw_only=True, eq=False)
class Margin(Rated):"""
BY_HAND = """    def __init__(self, steps: int = 500) -> None:
        self.steps = steps
"""


@pytest.mark.parametrize(
    ("below", "ok"), [('"""Paper, table 7."""', True), ('"""Steps."""', False), ("", False), ("other = 3", False)]
)
def test_dataclass_field_needs_a_source_below_it(margin: Any, below: str, *, ok: bool) -> None:
    text = MARGIN.replace('@method("margin")\nclass Margin(ConfidenceMethod):', FIELDS)
    results = check_plugin(margin(text.replace(BY_HAND, f"    steps: int = 500\n    {below}\n")))
    assert len(results) == 22
    broken = [r.message for r in results if not r.ok]
    assert (broken == []) is ok
    assert all("Margin.steps has no source below it" in message and "CHOSEN" in message for message in broken)


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("self.slope_ *", "{}['a'] *", "KeyError: 'a'"),
        ("batch[ChoiceLogits()]", "batch[Hidden()]", "Hidden() was read but not declared in needs"),
    ],
)
def test_failure_names_the_line_of_the_file(margin: Any, right: str, wrong: str, told: str) -> None:
    text = MARGIN.replace(right, wrong).replace("import Batch", "import Hidden, Batch")
    line = 1 + text[: text.index(wrong)].count("\n")
    messages = [result.message for result in check_plugin(margin(text)) if told in result.message]
    assert messages
    assert any(message.endswith(f"(margin.py:{line})") or f"(margin.py:{line}) (" in message for message in messages)


def test_plugin_can_be_checked_by_name() -> None:
    results = check_plugin("mmlu-choice")  # without rows: what stands in the class
    assert {r.name for r in results} == {f"mmlu-choice {rule}" for rule in ("docstring", "card", "style", "origins")}
    assert all(r.ok for r in results)
    with pytest.raises(UserError, match=r"got 'mmlu-choise'\. Did you mean 'mmlu-choice'\?"):
        check_plugin("mmlu-choise")


# --- tasks ------------------------------------------------------------------------------------------------------------


def question(i: int, split: str, gold: int) -> Question:
    return Question(f"t/{split}/{i}", "s", f"q{i}?", ("x", "y"), gold)


def card(test: int, dev: int) -> TaskCard:
    splits: Any = {"test": "test", "dev": "dev"}
    return TaskCard(
        license="MIT", version=1, splits=splits, sizes={"test": test, "dev": dev}, options=(2, 2), why="small"
    )


class Fine(Task):
    """Four questions and five exemplars."""

    name = "fine"
    format = Format.CHOICE
    card = card(4, 5)
    style = PromptStyle(header="About {label}.", footer="Now.", context="{text}\n{options}")

    def questions(self, split: Split) -> Iterator[Question]:
        return iter([question(i, split, i % 2) for i in range(self.card.sizes[split])])


DRAWS = random.Random(0)


def task(**attributes: Any) -> type[Task]:
    return type("Changed", (Fine,), {"__doc__": "Breaks a rule.", **attributes})


def asks(make: Callable[[int, str], Question], lost: int = 0) -> type[Task]:
    """A task of these questions, less some."""
    return task(questions=lambda self, split: iter([make(i, split) for i in range(self.card.sizes[split] - lost)]))


def lettered(*rows: tuple[int, int]) -> type[Task]:
    """A task whose questions have (number of options, index of the right one)."""

    def questions(_self: Any, split: Split) -> Iterator[Question]:
        for i, (n, gold) in enumerate(rows if split == "test" else rows[:5]):
            yield Question(f"t/{split}/{i}", "s", f"q{i}?", tuple("vwxyz"[:n]), gold)

    return task(questions=questions, card=replace(card(len(rows), 5), options=(min(rows)[0], max(rows)[0])))


def no_origins(_self: Any, _split: Split) -> Any:
    raise SystemExit("who knows")


@pytest.mark.parametrize(
    ("plugin", "rule", "words"),
    [
        (asks(lambda i, split: question(i, split, i % 2), 1), "sizes", "test: expected 4 questions, got 3"),
        (asks(lambda i, _: question(i, "all", i % 2)), "ids", "4 ids occur more than once, e.g. 't/all/0'"),
        (
            asks(lambda i, split: question(DRAWS.randrange(10**9), split, i % 2)),
            "ids",
            "a second reading gave other questions",
        ),
        (lettered(*[(2, 0)] * 10), "letters", "never right: ['b']"),
        (asks(lambda i, s: question(i, s, i % 2 + 1)), "gold", "t/test/1: expected a gold index from 0 to 1, got 2"),
        (task(origins=no_origins), "origins", "SystemExit: who knows"),
        (task(provenance=lambda _self, _split: {"rows": 4}), "provenance", "test: rows: expected text, got 4"),
        (
            task(style=PromptStyle(header="About {label}.", footer="Now.", context="{text}")),
            "style",
            "{options} in style.context",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_broken_task_is_caught_by_name(plugin: type[Task], rule: str, words: str) -> None:
    broken = broken_rules(plugin)
    assert words in broken.get(rule, ""), broken


def test_rare_letter_need_not_be_right() -> None:
    of_four = [(4, i % 4) for i in range(40)]
    assert broken_rules(lettered(*of_four, *[(5, 0)] * 24)) == {}
    assert "never right: ['e']" in broken_rules(lettered(*of_four, *[(5, 0)] * 25))["letters"]


def test_fine_task_passes_and_few_exemplars_are_a_remark() -> None:
    assert broken_rules(Fine) == {}
    shown = task(card=card(4, 1))
    assert broken_rules(shown) == {}
    remarks = {check.__name__: check(make) for make, check in checks_for(shown)}
    told = "1 subject has fewer than 5 exemplars, e.g. 's' 1; a run goes on with them and says so"
    assert {name: remark for name, remark in remarks.items() if remark} == {"prompts": told}
