"""What a user asks for is checked before any work, and every refusal says what would do."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.api import Batch, ConfidenceMethod, FloatArray, Needs, Question, UserError
from bench.api.protocol import FIXED, ExemplarOrder, LetterRule
from bench.data.loading import check_questions
from bench.data.splits import TaskSplit, limit_by_subject
from bench.run.config import RunConfig
from bench.run.resolve import ResolvedRun, resolve
from bench.store.disk_cache import cache_folder

PLUGIN = '''"""A method with a field of every type."""
import numpy as np
from bench.api import ConfidenceMethod, Needs, method

@method("fields")
class Fields(ConfidenceMethod):
    "Nothing."
    reference = "none"
    needs = Needs()

    def __init__(self, *, steps=3, rate=0.1, name="x", careful=False, ceiling=None):
        self.steps, self.rate, self.name, self.careful, self.ceiling = steps, rate, name, careful, ceiling

    def predict(self, batch):
        return np.zeros(len(batch))
'''


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "fields.py"
    path.write_text(PLUGIN, encoding="utf-8")
    return path


def resolved(methods: tuple[str, ...] = ("ptrue",), **options: Any) -> ResolvedRun:
    return resolve(RunConfig(methods, options.pop("model", "tiny"), **options))


def test_what_is_not_named_comes_from_the_model() -> None:
    run = resolved()
    assert (run.preset, run.tests, list(run.methods)) == ("demo", ("atlas-choice", "atlas-oe"), ["ptrue"])
    assert run.config_of("ptrue", "atlas-choice") == {}


def short(run: ResolvedRun) -> dict[str, str]:
    """Test -> where methods learn, without the digits of files."""
    return {plain(test): plain(str(target)) for test, target in run.learn_on.items()}


def plain(text: str) -> str:
    return re.sub(r"-[0-9a-f]{6}\b", "", text)


def bees(folder: Path, name: str, *splits: str) -> Path:
    folder.mkdir(exist_ok=True)
    row = {"question": "What do bees make?", "choices": ["honey", "silk"], "answer": "a"}
    lines = [json.dumps({**row, "split": split} if split else row) for split in splits or ("",)]
    (folder / name).write_text("\n".join(lines), encoding="utf-8")
    return folder / name


def test_a_file_without_train_rows_leaves_methods_that_learn_without_work(tmp_path: Path) -> None:
    path = bees(tmp_path, "bees.jsonl")
    run = resolved(("ccps", "ptrue"), tasks=(), task_files=(path,))
    assert short(run) == {"bees": "bees:train"}
    assert list(run.tasks) == list(run.tests)
    with pytest.raises(
        UserError,
        match=r"ccps, pik: nothing can be run, because it learns, and bees-\w{6} has no train rows; name some",
    ):
        resolved(("ccps", "pik"), tasks=(), task_files=(path,))


def test_one_file_is_tested_and_another_learned_on(tmp_path: Path) -> None:
    test, train = bees(tmp_path, "bees.jsonl"), bees(tmp_path, "wasps.jsonl")
    run = resolved(("ccps",), tasks=(), task_files=(test,), train_on=str(train))
    assert short(run) == {"bees": "wasps:train"}
    (tested,) = run.tests
    assert run.config_of("ccps", tested) == {"train_on": str(run.learn_on[tested])}
    other = bees(tmp_path / "other", "bees.jsonl", "train", "test")
    run = resolved(("ccps",), tasks=(), task_files=(test,), train_on=str(other))
    assert short(run) == {"bees": "bees:train"}
    assert str(run.learn_on[tested]) != f"{tested}:train"
    run = resolved(("ccps",), tasks=(), task_files=(test,), train_on=f"{other}:test")
    assert short(run) == {"bees": "bees:test"}


def test_a_file_that_is_tested_may_be_learned_on_too(tmp_path: Path) -> None:
    path = bees(tmp_path, "bees.jsonl", "train", "test")
    run = resolved(("ccps",), tasks=("atlas-choice",), task_files=(path,), train_on=str(path))
    assert short(run) == dict.fromkeys(("atlas-choice", "bees"), "bees:train")
    with pytest.raises(UserError, match=r"would learn the labels that bees-\w{6} tests them on"):
        resolved(("ccps",), tasks=(), task_files=(path,), train_on=f"{path}:test")


def test_a_corpus_may_be_named_without_its_format() -> None:
    learn_on = resolved(("ccps",), train_on="atlas", tasks=("atlas-choice", "atlas-oe")).learn_on
    assert {test: str(target) for test, target in learn_on.items()} == {
        "atlas-choice": "atlas-choice:train",
        "atlas-oe": "atlas-oe:train",
    }


def test_the_judge_is_part_of_open_cells_only() -> None:
    run = resolved(judge="openai", judge_model="m", answers="released@main", exemplar_sets=3)
    assert run.config_of("ptrue", "atlas-choice") == {"answers": "released@main", "protocol.exemplar_sets": 3}
    assert run.config_of("ptrue", "atlas-oe") == {
        "answers": "released@main",
        "judge": "openai",
        "judge_model": "m",
        "protocol.exemplar_sets": 3,
    }
    assert run.deviations_of("ptrue") == {"protocol.exemplar_sets": 3}


def test_all_means_every_method_once_and_names_keep_their_order() -> None:
    everything = resolved(("all",)).methods
    assert {"ptrue", "ccps"} <= set(everything)
    assert list(resolved(("ptrue", "ccps", "ptrue")).methods) == ["ptrue", "ccps"]


@pytest.mark.parametrize(
    "given",
    [
        {"steps=7": 7, "rate=1e-3": 1e-3, "name=a=b": "a=b", "careful=true": True, "ceiling=0.5": 0.5},
        {"fields.steps=7": 7, "rate=2": 2.0, "name=": "", "ceiling=high": "high"},
        {"careful=False": False, "ceiling=none": None},
    ],
)
def test_an_override_has_the_type_of_its_field(plugin: Path, given: dict[str, object]) -> None:
    run = resolved(("fields",), plugins=(plugin,), overrides=tuple(given))
    expected = {text.removeprefix("fields.").partition("=")[0]: value for text, value in given.items()}
    for field, value in expected.items():
        got = run.methods["fields"].params()[field]
        assert got == value
        assert type(got) is type(value)
    assert run.deviations_of("fields") == {f"fields.{field}": value for field, value in expected.items()}
    fresh = run.new_method("fields")
    assert fresh is not run.methods["fields"]
    assert fresh.params() == run.methods["fields"].params()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("steps=many", "expected a value of type int, got 'many'"),
        ("steps=1.5", "expected a value of type int, got '1.5'"),
        ("rate=fast", "expected a value of type float"),
        ("careful=yes", "expected true or false, got 'yes'"),
        ("stps=3", "has no field 'stps'.*Did you mean 'steps'"),
        ("nothing=3", "expected one of steps, rate, name, careful, ceiling"),
        ("steps", "expected METHOD.FIELD=VALUE"),
        ("=3", "expected METHOD.FIELD=VALUE"),
    ],
)
def test_an_override_that_does_not_fit_says_what_would(plugin: Path, text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        resolved(("fields",), plugins=(plugin,), overrides=(text,))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ccps.steps=3", "'ccps' is no chosen method"),
        ("protocol.shts=3", "Did you mean 'shots'"),
        ("protocol.shots=few", "expected a value of type int"),
        ("protocol.shots=-1", "expected at least 0, got -1"),
        ("protocol.ece_bins=0", "expected at least 1, got 0"),
        ("protocol.max_new_tokens_choice=0", "expected at least 1, got 0"),
        ("protocol.letter_rule=near", "expected one of exact, substring"),
        ("protocol.letters=aab", "expected different letters"),
        ("protocol.letters=abA", "expected different letters"),
        ("protocol.letters=a", "expected different letters, two at least"),
        ("protocol.letters=a b", "expected different letters"),
        ("protocol.query_letters=abc", "expected two letters"),
        ("protocol.query_letters=a", "expected different letters, two at least"),
        ("protocol.query_letters=", "expected different letters, two at least"),
    ],
)
def test_an_override_of_no_chosen_method_or_of_the_protocol_says_what_would_fit(text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        resolved(("ptrue",), overrides=(text,))


PEEK = PLUGIN.replace("import ConfidenceMethod", "import ConfidenceMethod, Of, TokenIds").replace(
    "    def predict",
    "    def reads(self):\n"
    "        return Needs(predict=frozenset({TokenIds(Of.GOLD)} if self.careful else ()))\n\n"
    "    def predict",
)


def test_a_method_that_reads_the_right_answer_by_an_argument_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "peek.py"
    path.write_text(PEEK, encoding="utf-8")
    assert resolved(("fields",), plugins=(path,)).methods["fields"].reads() == Needs()
    with pytest.raises(UserError, match=r"'fields'.*TokenIds\(of=Of.GOLD\), which tells the right answer"):
        resolved(("fields",), plugins=(path,), overrides=("careful=true",))


@pytest.mark.parametrize("member", ["__init__", "reads", "trains", "params"])
def test_a_method_that_fails_before_any_work_is_named_with_its_reason(tmp_path: Path, member: str) -> None:
    path = tmp_path / "broken.py"
    raising = f"    def {member}(*_, **__):\n        raise KeyError('gone')\n\n    def predict"
    path.write_text(PLUGIN.replace("def __init__", "def unused").replace("    def predict", raising), encoding="utf-8")
    with pytest.raises(UserError, match=r"method 'fields': KeyError: 'gone' \(broken.py:15\); correct it"):
        resolved(("fields", "ptrue"), plugins=(path,))


def test_a_bare_field_needs_one_method() -> None:
    with pytest.raises(UserError, match=r"say which one: --set METHOD.shots=3"):
        resolved(("ptrue", "ccps"), overrides=("shots=3",))


def test_protocol_overrides_reach_the_protocol_and_every_result() -> None:
    overrides = ("protocol.shots=2", "protocol.letter_rule=substring", "protocol.exemplar_order=permuted")
    run = resolved(overrides=overrides)
    expected = replace(FIXED, preset="demo", shots=2, letter_rule=LetterRule.SUBSTRING)
    assert run.protocol == replace(expected, exemplar_order=ExemplarOrder.PERMUTED)
    told = {"protocol.shots": 2, "protocol.letter_rule": "substring", "protocol.exemplar_order": "permuted"}
    assert run.config_of("ptrue", "atlas-choice") == told


LOST = """
from bench.api import Format, PromptStyle, Task, TaskCard, task

@task("lost")
class Lost(Task):
    "Learns on a corpus that nobody registered."
    format = Format.CHOICE
    card = TaskCard(license="MIT", version=1, why="none", options=(2, 2), splits={"test": "t"}, sizes={"test": 1})
    style = PromptStyle(header="", footer="", context="{text}{options}")
    train_on = "nowhere-choice"

    def questions(self, split):
        return iter(())
"""


def test_a_task_whose_corpus_is_not_registered_says_how_to_name_another(tmp_path: Path) -> None:
    (tmp_path / "lost.py").write_text(LOST, encoding="utf-8")
    with pytest.raises(UserError, match=r"learns on 'nowhere-choice'.*--train-on"):
        resolved(("ccps",), tasks=("lost",), plugins=(tmp_path / "lost.py",))


def test_the_later_of_two_overrides_holds() -> None:
    assert resolved(overrides=("protocol.shots=2", "protocol.shots=3")).protocol.shots == 3


def test_a_preset_sets_methods_and_protocol_together() -> None:
    run = resolved(("ccps",), preset="refcode")
    assert run.protocol.letter_rule is LetterRule.SUBSTRING
    usual = resolved(("ccps",), preset="fixed").methods["ccps"].params()
    refcode = type(run.methods["ccps"]).presets["refcode"]
    assert run.methods["ccps"].params() == {**usual, **refcode} != usual


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"methods": ("cpps",)}, r"Unknown method 'cpps'\. Did you mean 'ccps'\?"),
        ({"methods": ()}, "No method was named"),
        ({"model": "tny"}, r"Unknown model 'tny'.*Did you mean 'tiny'"),
        ({"tasks": ("atlas-choise",)}, r"Unknown task 'atlas-choise'\. Did you mean 'atlas-choice'"),
        ({"preset": "papr"}, r"Unknown preset 'papr'.*Did you mean 'paper'"),
        ({"preset": "nothing like it"}, "expected one of fixed, paper, refcode, demo"),
        ({"limit": 0}, "--limit: expected at least 1, got 0"),
        ({"limit": -5}, "--limit: expected at least 1, got -5"),
        ({"token_budget": 0}, "--token-budget: expected at least 1, got 0"),
        ({"training_budget": 0}, "--training-budget: expected at least 1, got 0"),
        ({"seed": -1}, "--seed: expected at least 0, got -1"),
        ({"seed": 2**63}, f"--seed: expected at most {2**63 - 1}, got {2**63}"),
        ({"limit": 2**63}, f"--limit: expected at most {2**63 - 1}"),
        ({"exemplar_sets": -1}, "--exemplar-sets: expected at least 0, got -1"),
        ({"train_on": "nothing.jsonl"}, "Expected a file of questions at nothing.jsonl"),
        ({"train_on": "atlass"}, "Unknown task 'atlass'"),
        ({"train_on": "atlas-choice:trian"}, "expected a split of train, validation, test, dev, got 'trian'"),
        (
            {"tasks": ("atlas-choice",), "train_on": "atlas-choice:test"},
            "would learn the labels that atlas-choice tests them on",
        ),
        ({"train_on": "atlas-oe"}, "its format is open, that of atlas-choice is choice"),
        ({"model": "org/model"}, "has no default tasks: name one with --task"),
    ],
)
def test_what_is_unknown_or_does_not_fit_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        resolved(**options)


def test_learning_elsewhere_is_part_of_the_configuration_of_learners_only() -> None:
    run = resolved(("ptrue", "ccps"), tasks=("atlas-choice",), train_on="atlas-choice:validation")
    assert run.config_of("ccps", "atlas-choice") == {"train_on": "atlas-choice:validation"}
    assert run.config_of("ptrue", "atlas-choice") == {}
    assert resolved(("ccps",), tasks=("atlas-choice",), train_on="atlas-choice").config_of("ccps", "atlas-choice") == {}


def test_another_task_may_be_learned_on_with_its_test_split() -> None:
    run = resolved(("ccps",), tasks=("mmlu-choice",), train_on="atlas-choice:test")
    assert str(run.learn_on["mmlu-choice"]) == "atlas-choice:test"
    assert set(run.tasks) == {"mmlu-choice", "atlas-choice"}


def test_tokenizer_and_training_budget_mark_the_result() -> None:
    assert resolved(tokenizer="org/x").config_of("ptrue", "atlas-choice") == {"tokenizer": "org/x"}
    fewer = resolved(("ct", "ptrue"), tasks=("atlas-choice",), training_budget=512)
    assert fewer.config_of("ct", "atlas-choice") == {"training_budget": 512}
    assert fewer.config_of("ptrue", "atlas-choice") == {}


def test_the_cache_folder_follows_option_then_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path / "named"))
    assert cache_folder() == tmp_path / "named"
    assert resolved().cache == tmp_path / "named"
    assert resolved(cache=tmp_path / "given").cache == tmp_path / "given"
    monkeypatch.delenv("CONFBENCH_CACHE")
    assert cache_folder().name == "confbench"


# --- questions --------------------------------------------------------------------------------------------------------

WHERE = TaskSplit("rivers", "test")


def asked(name: str = "q", options: int = 4, gold: int = 0) -> Question:
    return Question(name, "s", "Which?", tuple(map(str, range(options))), gold)


@pytest.mark.parametrize(
    ("questions", "complaint"),
    [
        ([], "expected at least one question"),
        ([asked("a"), asked("b"), asked("a")], "two questions 'a'"),
        ([asked("a", options=1)], "expected 2 to 26 options, got 1 in question 'a'"),
        ([asked("a", options=27)], "expected 2 to 26 options, got 27 in question 'a'"),
        ([asked("a", gold=4)], "expected an answer index from 0 to 3, got 4 in question 'a'"),
        ([asked("a", gold=-1)], "expected an answer index from 0 to 3, got -1"),
        ([asked("a", options=7)], r"a letter for each of the 7 options.*--set protocol.letters"),
        ([replace(asked("a"), text="W\ud800?")], "question 'a': expected text that UTF-8 can hold"),
        ([replace(asked("a"), accepted=("\ud800",))], "question 'a': expected text that UTF-8 can hold"),
    ],
)
def test_questions_that_can_not_be_asked_are_named(questions: list[Question], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as caught:
        check_questions(WHERE, questions, "abcdef")
    assert str(caught.value).startswith(("rivers/test: ", "rivers/test, question "))


def test_honest_questions_pass() -> None:
    check_questions(WHERE, [asked("a", 2), asked("b", 26, 25)], "abcdefghijklmnopqrstuvwxyz")
    check_questions(WHERE, [asked("a", 1), asked("b", 40)], None)  # open: options are never shown


@given(st.lists(st.sampled_from("xyz"), min_size=1, max_size=40), st.integers(1, 50))
def test_a_limit_takes_from_every_subject_in_turn_and_keeps_the_order(subjects: list[str], limit: int) -> None:
    questions = [Question(f"{i}", subject, "Which?", ("1", "2"), 0) for i, subject in enumerate(subjects)]
    kept = limit_by_subject(questions, limit)
    assert len(kept) == min(limit, len(questions))
    rows = [int(q.id) for q in kept]
    assert rows == sorted(rows)
    taken = {s: [int(q.id) for q in kept if q.subject == s] for s in set(subjects)}
    for subject, own in taken.items():
        available = [i for i, s in enumerate(subjects) if s == subject]
        assert own == available[: len(own)]  # the first of each subject
        for other in taken.values():  # no subject is ahead of one that still had questions
            assert len(own) == len(available) or len(other) <= len(own) + 1


class Quiet(ConfidenceMethod):
    name: ClassVar[str] = "quiet"
    reference: ClassVar[str] = "none"
    needs: ClassVar[Needs] = Needs()

    def predict(self, batch: Batch) -> FloatArray:
        raise NotImplementedError


def test_a_method_knows_whether_it_learns() -> None:
    assert not Quiet().trains()
    assert resolved(("ccps",)).methods["ccps"].trains()


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("ccps.learning_rate=nan", "expected a number, got nan"),
        ("ccps.unflipped_at_test=inf", "expected a number of at most 64 bits, got inf"),
        ("ccps.steps=9223372036854775808", "expected a number of at most 64 bits"),
        ("ccps.classifier_steps=-1", "expected at least 1, got -1"),
        ("ccps.batch_size=0", "expected at least 1, got 0"),
        ("ccps.weight_decay=-0.5", "expected at least 0, got -0.5"),
        ("ccps.classifier_dropout=1", r"ccps\.classifier_dropout: expected a number from 0 to below 1, got 1\.0"),
        ("ccps.radius=0", "expected more than 0"),
        ("it.dropout=1.5", "expected a number from 0 to below 1"),
        ("it.beta2=1", "expected a number from 0 to below 1"),
        ("protocol.validation_fraction=2", "expected a share from 0 to 1, got 2"),
        ("protocol.split_seed=-1", "expected at least 0, got -1"),
    ],
)
def test_a_number_that_nothing_can_be_computed_with_is_refused(override: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        resolved(("ccps", "it"), overrides=(override,))


def test_numbers_at_the_edge_are_taken() -> None:
    overrides = ("protocol.shots=0", "protocol.exemplar_seed=0", "ccps.weight_decay=0", "ccps.classifier_dropout=0")
    run = resolved(("ccps",), overrides=overrides, seed=2**63 - 1)
    assert (run.protocol.shots, run.methods["ccps"].params()["weight_decay"]) == (0, 0.0)
