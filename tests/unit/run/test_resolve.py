"""What a user asks for is checked before any work, and every refusal says what would do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.api import Question, UserError
from bench.api.protocol import FIXED, ExemplarOrder, LetterRule
from bench.data.loading import check_questions
from bench.data.splits import TaskSplit, limit_by_subject
from bench.run.config import RunConfig
from bench.run.method_factory import convert
from bench.run.resolve import ResolvedRun, resolve
from bench.store.disk_cache import cache_folder
from tests.kit.command import plugins_here

PLUGIN = '''"""A method with a field of every type, and a task whose corpus nobody registered."""
import numpy as np
from bench.api import ConfidenceMethod, Format, Needs, Of, PromptStyle, Task, TaskCard, TokenIds, method, task

@method("fields")
class Fields(ConfidenceMethod):
    "Nothing."
    reference = "none"
    needs = Needs()

    def __init__(self, *, steps=3, rate=0.1, name="x", careful=False, ceiling=None, peek=False):
        self.steps, self.rate, self.name = steps, rate, name
        self.careful, self.ceiling, self.peek = careful, ceiling, peek

    def reads(self):
        return Needs(predict=frozenset({TokenIds(Of.GOLD)} if self.peek else ()))

    def predict(self, batch):
        return np.zeros(len(batch))

@task("lost")
class Lost(Task):
    "Learns elsewhere."
    format = Format.CHOICE
    card = TaskCard(license="MIT", version=1, why="none", options=(2, 2), splits={"test": "t"}, sizes={"test": 1})
    style = PromptStyle(header="", footer="", context="{text}{options}")
    train_on = "nowhere-choice"

    def questions(self, split):
        return iter(())
'''


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    """A plugin file, which is run in this process alone."""
    path = tmp_path / "fields.py"
    path.write_text(PLUGIN, encoding="utf-8")
    with plugins_here():
        yield path


def resolved(methods: str = "ptrue", **options: Any) -> ResolvedRun:
    """The run of methods separated by commas."""
    return resolve(RunConfig(tuple(methods.split(",")) if methods else (), options.pop("model", "tiny"), **options))


def test_run_takes_the_rest_from_its_model() -> None:
    run = resolved()
    assert (run.preset, run.tests, list(run.methods)) == ("demo", ("atlas-choice", "atlas-oe"), ["ptrue"])
    assert run.config_of("ptrue", "atlas-choice") == {}


def test_methods_keep_their_order() -> None:
    assert {"ptrue", "ccps"} <= set(resolved("all").methods)
    assert list(resolved("ptrue,ccps,ptrue").methods) == ["ptrue", "ccps"]
    assert not resolved("ptrue").methods["ptrue"].trains()
    assert resolved("ccps").methods["ccps"].trains()


# --- where methods learn ----------------------------------------------------------------------------------------------


def learn_on(run: ResolvedRun) -> dict[str, str]:
    """Test -> where methods learn, without the digits of files."""
    plain = {str(test): str(target) for test, target in run.learn_on.items()}
    return {re.sub(r"-[0-9a-f]{6}\b", "", a): re.sub(r"-[0-9a-f]{6}\b", "", b) for a, b in plain.items()}


def bees(folder: Path, name: str, *splits: str) -> Path:
    folder.mkdir(exist_ok=True)
    row = {"question": f"What do {Path(name).stem} make?", "choices": ["honey", "silk"], "answer": "a"}
    lines = [json.dumps({**row, "split": split} if split else row) for split in splits or ("",)]
    (folder / name).write_text("\n".join(lines), encoding="utf-8")
    return folder / name


def test_file_without_train_rows_leaves_learners_without_work(tmp_path: Path) -> None:
    files: dict[str, Any] = {"tasks": (), "task_files": (bees(tmp_path, "bees.jsonl"),)}
    run = resolved("ccps,ptrue", **files)
    assert learn_on(run) == {"bees": "bees:train"}
    assert list(run.tasks) == list(run.tests)
    told = r"ccps, pik: nothing can be run, because it learns, and bees-\w{6} has no train rows; name some"
    with pytest.raises(UserError, match=told):
        resolved("ccps,pik", **files)


def test_files_are_tested_and_others_learned_on(tmp_path: Path) -> None:
    test, train = bees(tmp_path, "bees.jsonl"), bees(tmp_path, "wasps.jsonl")
    other = bees(tmp_path / "other", "bees.jsonl", "train", "test")
    run = resolved("ccps", tasks=(), task_files=(test,), train_on=str(train))
    (tested,) = run.tests
    assert learn_on(run) == {"bees": "wasps:train"}
    assert run.config_of("ccps", tested) == {"train_on": str(run.learn_on[tested])}
    run = resolved("ccps", tasks=(), task_files=(test,), train_on=str(other))
    assert learn_on(run) == {"bees": "bees:train"}
    assert str(run.learn_on[tested]) != f"{tested}:train"
    run = resolved("ccps", tasks=(), task_files=(test,), train_on=f"{other}:test")
    assert learn_on(run) == {"bees": "bees:test"}
    run = resolved("ccps", tasks=("atlas-choice",), task_files=(other,), train_on=str(other))
    assert learn_on(run) == dict.fromkeys(("atlas-choice", "bees"), "bees:train")
    with pytest.raises(UserError, match=r"would learn the labels that bees-\w{6} tests them on"):
        resolved("ccps", tasks=(), task_files=(other,), train_on=f"{other}:test")


def test_learning_on_the_test_file_is_refused(tmp_path: Path) -> None:
    test, copy = bees(tmp_path, "bees.jsonl"), tmp_path / "wasps.jsonl"
    copy.write_bytes(test.read_bytes())
    for train in (test, copy):
        with pytest.raises(UserError, match=r"that is the file of --task-file, and methods would learn the labels"):
            resolved("ccps", tasks=(), task_files=(test,), train_on=str(train))
    both = bees(tmp_path, "both.jsonl", "train", "test")
    assert learn_on(resolved("ccps", tasks=(), task_files=(both,), train_on=str(both))) == {"both": "both:train"}


def test_names_in_other_spellings_give_the_same_run() -> None:
    spelt = resolved("P(True),CCPS", model="Tiny", tasks=("Atlas-OE",), train_on="ATLAS", overrides=("CCPS.steps=3",))
    plain = resolved("ptrue,ccps", tasks=("atlas-oe",), train_on="atlas", overrides=("ccps.steps=3",))
    assert (list(spelt.methods), spelt.tests, spelt.learn_on) == (list(plain.methods), plain.tests, plain.learn_on)
    assert (spelt.model, spelt.deviations) == (plain.model, plain.deviations)


def test_corpora_may_be_named_without_a_format() -> None:
    run = resolved("ccps", train_on="atlas", tasks=("atlas-choice", "atlas-oe"))
    assert learn_on(run) == {"atlas-choice": "atlas-choice:train", "atlas-oe": "atlas-oe:train"}


def test_tasks_may_be_learned_on_by_test() -> None:
    run = resolved("ccps", tasks=("mmlu-choice",), train_on="atlas-choice:test")
    assert learn_on(run) == {"mmlu-choice": "atlas-choice:test"}
    assert set(run.tasks) == {"mmlu-choice", "atlas-choice"}


# --- settings of a cell -----------------------------------------------------------------------------------------------

RELEASED = {"judge": "openai", "judge_model": "m", "answers": "released@main", "exemplar_sets": 3}
OVERRIDES = ("protocol.shots=1", "protocol.shots=2", "protocol.letter_rule=substring")
ELSEWHERE = {"train_on": "atlas-choice:validation"}


@pytest.mark.parametrize(
    ("method", "task", "options", "config"),
    [
        ("ptrue", "atlas-choice", RELEASED, {"answers": "released@main", "protocol.exemplar_sets": 3}),
        ("ptrue", "atlas-oe", RELEASED,
         {"answers": "released@main", "judge": "openai", "judge_model": "m", "protocol.exemplar_sets": 3}),
        ("ptrue", "atlas-choice", {"overrides": OVERRIDES},
         {"protocol.shots": 2, "protocol.letter_rule": "substring"}),
        ("ccps", "atlas-choice", ELSEWHERE, ELSEWHERE),
        ("ptrue", "atlas-choice", ELSEWHERE, {}),
        ("ccps", "atlas-choice", {"train_on": "atlas-choice"}, {}),
        ("ct", "atlas-choice", {"training_budget": 512}, {"training_budget": 512}),
        ("ptrue", "atlas-choice", {"training_budget": 512}, {}),
    ],
)  # fmt: skip
def test_settings_of_a_cell_concern_it(
    method: str, task: str, options: dict[str, Any], config: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONFBENCH_DATA", raising=False)
    run = resolved(",".join(dict.fromkeys((method, "ct"))), tasks=(task,), **options)
    assert run.config_of(method, task) == config
    assert run.deviations_of(method) == {key: value for key, value in config.items() if "." in key}


@pytest.mark.parametrize(
    ("methods", "task", "idle"),
    [
        ("ptrue", "atlas-choice", "--judge, --nli, --similarity, --train-limit, --training-budget"),
        ("ptrue", "atlas-oe", "--nli, --similarity, --train-limit, --training-budget"),
        ("semantic-entropy", "atlas-choice", "--judge, --nli, --similarity, --training-budget"),
        ("semantic-entropy,ct", "atlas-oe", "--similarity"),
    ],
)
def test_options_that_nothing_uses_are_told(methods: str, task: str, idle: str) -> None:
    options = {"nli": "cross/one", "similarity": "cross/two", "judge": "openai", "train_limit": "90"}
    notes = resolved(methods, tasks=(task,), training_budget=512, **options).notes
    assert notes == [f"nothing in this run uses {idle}"]
    assert resolved(methods, tasks=(task,)).notes == []


def test_cache_follows_option_then_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path / "named"))
    assert cache_folder() == resolved().cache == tmp_path / "named"
    assert resolved(cache=tmp_path / "given").cache == tmp_path / "given"
    monkeypatch.delenv("CONFBENCH_CACHE")
    assert cache_folder().name == "confbench"


# --- overrides, presets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"steps=7": 7, "rate=1e-3": 1e-3, "name=a=b": "a=b", "careful=true": True, "ceiling=0.5": 0.5},
        {"fields.steps=7": 7, "rate=2": 2.0, "name=": "", "ceiling=high": "high"},
        {"careful=False": False, "ceiling=none": None},
        {"ceiling=2": 2},
        {"ceiling=2.0": 2.0},
    ],
)
def test_override_has_the_type_of_its_field(plugin: Path, given: dict[str, object]) -> None:
    run = resolved("fields", plugins=(plugin,), overrides=tuple(given))
    expected = {text.removeprefix("fields.").partition("=")[0]: value for text, value in given.items()}
    for field, value in expected.items():
        got = run.methods["fields"].params()[field]
        assert (got, type(got)) == (value, type(value))
    assert run.deviations_of("fields") == {f"fields.{field}": value for field, value in expected.items()}
    fresh = run.new_method("fields")
    assert fresh is not run.methods["fields"]
    assert fresh.params() == run.methods["fields"].params()


@pytest.mark.parametrize(
    ("methods", "override", "complaint"),
    [
        ("fields", "steps=many", "expected a value of type int, got 'many'"),
        ("fields", "steps=1.5", "expected a value of type int, got '1.5'"),
        ("fields", "rate=fast", "expected a value of type float"),
        ("fields", "careful=yes", "expected true or false, got 'yes'"),
        ("fields", "stps=3", "has no field 'stps'.*Did you mean 'steps'"),
        ("fields", "nothing=3", "expected one of steps, rate, name, careful, ceiling"),
        ("fields", "steps", "expected METHOD.FIELD=VALUE"),
        ("fields", "=3", "expected METHOD.FIELD=VALUE"),
        ("fields", "peek=true", r"'fields'.*TokenIds\(of=Of.GOLD\), which tells the right answer"),
        ("ptrue", "ccps.steps=3", "'ccps' is no chosen method"),
        ("ptrue,ccps", "shots=3", r"say which one: --set METHOD.shots=3"),
        ("ptrue", "protocol.shts=3", "Did you mean 'shots'"),
        ("ptrue", "protocol.shots=few", "expected a value of type int"),
        ("ptrue", "protocol.shots=-1", "expected at least 0, got -1"),
        ("ptrue", "protocol.split_seed=-1", "expected at least 0, got -1"),
        ("ptrue", "protocol.ece_bins=0", "expected at least 1, got 0"),
        ("ptrue", "protocol.max_new_tokens_choice=0", "expected at least 1, got 0"),
        ("ptrue", "protocol.validation_fraction=2", "expected a share from 0 to 1, got 2"),
        ("ptrue", "protocol.letter_rule=near", "expected one of exact, substring"),
        ("ptrue", "protocol.letters=aab", "expected different letters"),
        ("ptrue", "protocol.letters=abA", "expected different letters"),
        ("ptrue", "protocol.letters=a", "expected different letters, two at least"),
        ("ptrue", "protocol.letters=a b", "expected different letters"),
        ("ptrue", "protocol.query_letters=abc", "expected two letters"),
        ("ptrue", "protocol.query_letters=a", "expected different letters, two at least"),
        ("ptrue", "protocol.query_letters=", "expected different letters, two at least"),
        ("ccps", "ccps.learning_rate=nan", "expected a number, got nan"),
        ("ccps", "ccps.unflipped_at_test=inf", "expected a number of at most 64 bits, got inf"),
        ("ccps", "ccps.steps=9223372036854775808", "expected a number of at most 64 bits"),
        ("ccps", "ccps.classifier_steps=-1", "expected at least 1, got -1"),
        ("ccps", "ccps.batch_size=0", "expected at least 1, got 0"),
        ("ccps", "ccps.weight_decay=-0.5", "expected at least 0, got -0.5"),
        ("ccps", "classifier_dropout=1", r"ccps\.classifier_dropout: expected a number from 0 to below 1, got 1\.0"),
        ("ccps", "ccps.radius=0", "expected more than 0"),
        ("litcab", "litcab.negatives=0", r"litcab\.negatives: expected none or a count of at least 1, got 0"),
        ("litcab", "litcab.negatives=1.5", r"expected none or a count of at least 1, got 1\.5"),
        ("litcab", "litcab.negatives=many", "expected none or a count of at least 1, got 'many'"),
        ("it", "it.dropout=1.5", "expected a number from 0 to below 1"),
        ("it", "it.beta2=1", "expected a number from 0 to below 1"),
        ("ccps", "ccps.js=reference", r"ccps\.js: expected one of true, ref, got 'reference'"),
        ("ccps", "ccps.eps_flip=Grid", r"ccps\.eps_flip: expected one of grid, exact, got 'Grid'"),
        ("ccps", "ccps.optimiser=sgd", r"ccps\.optimiser: expected one of adamw, adam, got 'sgd'"),
        ("saplma-f", "schedule=linear", r"saplma-f\.schedule: expected one of constant, cosine, got 'linear'"),
        ("saplma-f", "initialisation=normal", r"initialisation: expected one of uniform, xavier, got 'normal'"),
        ("ccps", "encoder_channels=64,wide", r"ccps\.encoder_channels=wide: expected a value of type int, got 'wide'"),
        ("ccps", "encoder_channels=64,0", "expected at least 1, got 0"),
        ("ccps", "encoder_channels=", "expected a value of type int, got ''"),
        ("rauq", "rauq.by=log", r"rauq\.by: expected one of probability, entropy, got 'log'"),
        ("logistic-probe", "position=start", r"logistic-probe\.position: expected one of prompt_end, .*, got 'start'"),
    ],
)
def test_override_that_does_not_fit_is_refused(plugin: Path, methods: str, override: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        resolved(methods, plugins=(plugin,), overrides=(override,))


@pytest.mark.parametrize("text", ["64,32,16", "(64, 32, 16)", "[64, 32, 16]", "64, 32, 16,"])
def test_tuple_of_widths_is_read_as_one(text: str) -> None:
    run = resolved("ccps", overrides=(f"encoder_channels={text}",))
    assert run.methods["ccps"].params()["encoder_channels"] == (64, 32, 16)
    assert run.deviations_of("ccps") == {"ccps.encoder_channels": (64, 32, 16)}
    probe = resolved("saplma-f", overrides=("hidden_layers=(64,)",)).methods["saplma-f"]
    assert probe.params()["hidden_layers"] == (64,)


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [
        (("a", "b"), '["c", "d"]', ("c", "d")),
        (("a", "b"), """('c', "it's, e")""", ("c", "it's, e")),
        (("a",), "c, d ,e f", ("c", "d", "e f")),
        ((0, 0.5), "0.1, 0.7", (0.1, 0.7)),
        ((0.5, 0), "1", (1.0,)),
        ((True, False), "[true, False]", (True, False)),
    ],
)
def test_tuple_elements_have_their_types(default: tuple[object, ...], text: str, value: tuple[object, ...]) -> None:
    got = convert("fields", "several", text, {"several": default})
    assert (got, [type(each) for each in got]) == (value, [type(each) for each in value])


def test_nested_tuples_are_not_set() -> None:
    with pytest.raises(UserError, match=r"several=1,2: expected a value of type tuple, got '1,2'"):
        convert("fields", "several", "1,2", {"several": ((1, 2), (3, 4))})


def test_choices_of_plugins_are_checked_if_resolvable(plugin: Path) -> None:
    text = PLUGIN.replace("import numpy", "from typing import Literal\nimport numpy", 1)
    plugin.write_text(text.replace("    needs", "    name: Literal['x', 'y']\n    needs", 1), encoding="utf-8")
    with pytest.raises(UserError, match=r"fields\.name: expected one of x, y, got 'z'"):
        resolved("fields", plugins=(plugin,), overrides=("name=z",))
    plugin.write_text(PLUGIN.replace("    needs", "    rate: 'Unknown'\n    needs", 1), encoding="utf-8")
    assert resolved("fields", plugins=(plugin,), overrides=("name=z",)).methods["fields"].params()["name"] == "z"


def test_numbers_at_the_edge_are_taken() -> None:
    overrides = ("protocol.shots=0", "protocol.exemplar_seed=0", "ccps.weight_decay=0", "ccps.classifier_dropout=0")
    run = resolved("ccps", overrides=overrides, seed=2**63 - 1)
    assert (run.protocol.shots, run.methods["ccps"].params()["weight_decay"]) == (0, 0.0)


def test_overrides_reach_the_protocol_the_last_one_wins() -> None:
    run = resolved(overrides=(*OVERRIDES, "protocol.exemplar_order=permuted"))
    expected = replace(FIXED, preset="demo", shots=2, letter_rule=LetterRule.SUBSTRING)
    assert run.protocol == replace(expected, exemplar_order=ExemplarOrder.PERMUTED)
    assert run.deviations_of("ptrue")["protocol.exemplar_order"] == "permuted"


def test_preset_sets_methods_and_protocol_together() -> None:
    run = resolved("ccps", preset="refcode")
    assert run.protocol.letter_rule is LetterRule.SUBSTRING
    usual = resolved("ccps", preset="fixed").methods["ccps"].params()
    refcode = type(run.methods["ccps"]).presets["refcode"]
    assert run.methods["ccps"].params() == {**usual, **refcode} != usual


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"methods": "cpps"}, r"Unknown method 'cpps'\. Did you mean 'ccps'\?"),
        ({"methods": ""}, "No method was named"),
        ({"model": "tny"}, r"Unknown model 'tny'.*Did you mean 'tiny'"),
        ({"model": "org/model"}, "has no default tasks: name one with --task"),
        ({"tasks": ("atlas-choise",)}, r"Unknown task 'atlas-choise'\. Did you mean 'atlas-choice'"),
        ({"preset": "papr"}, r"Unknown preset 'papr'.*Did you mean 'paper'"),
        ({"preset": "nothing like it"}, "expected one of fixed, paper, refcode, demo"),
        ({"limit": 0}, "--limit: expected at least 1, got 0"),
        ({"max_time": "soon"}, "--max-time: expected hours, minutes or seconds, such as 2h, 90m or 1h30m; got 'soon'"),
        ({"max_time": "0h"}, "--max-time: expected hours, minutes or seconds, such as 2h, 90m or 1h30m; got '0h'"),
        ({"max_time": ""}, "--max-time: expected hours, minutes or seconds, such as 2h, 90m or 1h30m; got ''"),
        ({"limit": 2**63}, f"--limit: expected at most {2**63 - 1}"),
        *(
            ({"train_limit": text}, rf"which training and validation share, or N\+M .* got '{re.escape(text)}'")
            for text in ("1", "0", "-3", "9", "10+0", "0+10", "a+b", "64+", "6.5", "9" * 20)
        ),
        ({"recalibrate": ("magic",)}, "unknown recalibration 'magic'; expected one of isotonic, platt, beta, temper"),
        ({"tune": 1}, "expected at least 2 configurations, got 1"),
        ({"token_budget": 0}, "--token-budget: expected at least 1, got 0"),
        ({"training_budget": 0}, "--training-budget: expected at least 1, got 0"),
        ({"seed": -1}, "--seed: expected at least 0, got -1"),
        ({"seed": 2**63}, f"--seed: expected at most {2**63 - 1}, got {2**63}"),
        ({"exemplar_sets": -1}, "--exemplar-sets: expected at least 0, got -1"),
        (
            {"exemplar_sets": 3, "overrides": ("protocol.exemplar_sets=7",)},
            "--exemplar-sets: also given as --set protocol.exemplar_sets; leave out one of them",
        ),
        ({"train_on": "nothing.jsonl"}, "Expected a file of questions at nothing.jsonl"),
        ({"train_on": "atlass"}, "Unknown task 'atlass'"),
        ({"train_on": "atlas-choice:trian"}, "expected a split of train, validation, test, dev, got 'trian'"),
        ({"tasks": ("atlas-choice",), "train_on": "atlas-choice:test"}, "the labels that atlas-choice tests them on"),
        ({"train_on": "atlas-oe"}, "its format is open, that of atlas-choice is choice"),
        (
            {"tasks": ("atlas-choice",), "train_on": "atlas-choice:validation", "train_limit": "64+16"},
            r"--train-limit: expected N alone with --train-on atlas-choice:validation, got 64\+16; give N",
        ),
        ({"methods": "ccps", "tasks": ("lost",)}, r"learns on 'nowhere-choice'.*--train-on"),
    ],
)
def test_options_that_do_not_fit_are_refused(plugin: Path, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        resolved(plugins=(plugin,), **options)


def test_default_of_another_format_is_not_learned_on(tmp_path: Path) -> None:
    path = tmp_path / "open.py"
    path.write_text(PLUGIN.replace("Format.CHOICE", "Format.OPEN").replace("nowhere-choice", "atlas-choice"), "utf-8")
    with pytest.raises(UserError, match=r"'lost' learns on atlas-choice: its format is choice, that of lost is open"):
        resolved("ccps", tasks=("lost",), plugins=(path,))
    assert learn_on(resolved("ccps", tasks=("lost",), plugins=(path,), train_on="atlas")) == {"lost": "atlas-oe:train"}


def test_default_of_another_format_only_hinders_learners(tmp_path: Path) -> None:
    """Nobody reads the training task where nothing learns, and no score is scaled."""
    path = tmp_path / "open.py"
    path.write_text(PLUGIN.replace("Format.CHOICE", "Format.OPEN").replace("nowhere-choice", "atlas-choice"), "utf-8")
    run = resolved("ptrue", tasks=("lost",), plugins=(path,))
    assert (list(run.tasks), learn_on(run)) == (["lost"], {"lost": "atlas-choice:train"})
    for options in ({"methods": "token-margin"}, {"recalibrate": ("isotonic",)}):
        with pytest.raises(UserError, match="'lost' learns on atlas-choice: its format is choice"):
            resolved(**{"methods": "ptrue", **options}, tasks=("lost",), plugins=(path,))


@pytest.mark.parametrize("member", ["__init__", "reads", "trains", "params"])
def test_method_that_raises_is_named_with_its_reason(tmp_path: Path, member: str) -> None:
    raising = f"    def {member}(*_, **__):\n        raise KeyError('gone')\n\n    def predict"
    text = PLUGIN.replace("def __init__", "def unused").replace("def reads", "def not_read")
    path = tmp_path / "broken.py"
    path.write_text(text.replace("    def predict", raising), encoding="utf-8")
    with pytest.raises(UserError, match=r"method 'fields': KeyError: 'gone' \(broken.py:19\); correct it"):
        resolved("fields,ptrue", plugins=(path,))


# --- questions --------------------------------------------------------------------------------------------------------


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
        check_questions(TaskSplit("rivers", "test"), questions, "abcdef")
    assert str(caught.value).startswith(("rivers/test: ", "rivers/test, question "))


def test_honest_questions_pass() -> None:
    where = TaskSplit("rivers", "test")
    check_questions(where, [asked("a", 2), asked("b", 26, 25)], "abcdefghijklmnopqrstuvwxyz")
    check_questions(where, [asked("a", 1), asked("b", 40)], None)  # open: options are never shown


@given(st.lists(st.sampled_from("xyz"), min_size=1, max_size=40), st.integers(1, 50))
@settings(deadline=None)
def test_limit_takes_from_every_subject_in_turn(subjects: list[str], limit: int) -> None:
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
