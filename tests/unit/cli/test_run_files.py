"""Run files: what is written is read as the same run, the command line wins, and mistakes are named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.api import UserError
from bench.cli import run_files
from bench.cli.options import options_from
from bench.cli.run import File
from bench.run.config import RunConfig

SEEN: list[tuple[RunConfig, ...]] = []
APP = typer.Typer(rich_markup_mode=None, add_completion=False)


@APP.command()
@options_from(RunConfig, without=run_files.NO_OPTIONS, each="seed")
def run(configs: Sequence[RunConfig], *, file: File = None) -> None:
    """Run."""
    SEEN.append(tuple(configs))


def asked(*words: str) -> tuple[RunConfig, ...]:
    result = CliRunner().invoke(APP, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.stderr
    return SEEN.pop()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


NAMES = st.text(st.characters(codec="utf-8", exclude_characters=",", exclude_categories=["Cs", "Cc", "Z"]), min_size=1)
TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60
)
PATHS = NAMES.map(Path)
SETTINGS = st.builds(
    lambda owner, key, value: f"{owner}.{key}={value}",
    st.sampled_from(["ccps", "protocol", "a b"]), st.sampled_from(["radius", "shots", "x"]),
    st.sampled_from(["10", "1.0", "1e5", "true", "True", "none", "007", "inf", "nan", "", "a=b", "9" * 30, '"']),
) | st.sampled_from(["radius=10", "ccps=1", "ccps.radius.deep=3", "=", "x"])  # fmt: skip
CONFIGS = st.builds(
    RunConfig, methods=st.lists(NAMES, min_size=1, unique=True).map(tuple), model=TEXTS,
    tasks=st.lists(NAMES).map(tuple), task_files=st.lists(PATHS).map(tuple), plugins=st.lists(PATHS).map(tuple),
    preset=st.none() | TEXTS, overrides=st.lists(SETTINGS, max_size=4).map(tuple), limit=st.none() | st.integers(),
    train_limit=st.none() | TEXTS, answers=TEXTS, data_dir=st.none() | PATHS, out=PATHS,
    method_timeout=st.floats(allow_nan=False), dry_run=st.booleans(), devices=st.lists(NAMES).map(tuple),
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=CONFIGS, seeds=st.lists(st.integers(min_value=-9, max_value=2**70), min_size=1, max_size=3, unique=True))
def test_file_is_read_as_the_runs_written(config: RunConfig, seeds: list[int], folder: Path) -> None:
    configs = tuple(replace(config, seed=seed) for seed in seeds)
    Path("a.toml").write_text(run_files.to_toml(configs), encoding="utf-8")
    assert asked("a.toml") == configs


def test_file_elsewhere_means_the_same_places(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there"):
        (folder / name).mkdir()
    monkeypatch.chdir(here := folder / "here")
    config = RunConfig(("ptrue",), "./mine", plugins=(Path("p.py"),), answers="made.jsonl", train_on="q.csv:train")
    run_files.dump([config], "../there/a.toml")
    monkeypatch.chdir(folder)
    (read,) = asked("there/a.toml")
    assert (read.plugins, Path(read.model)) == ((here / "p.py",), here / "mine")
    assert (read.answers, read.train_on) == (str(here / "made.jsonl"), str(here / "q.csv:train"))
    Path("there/b.toml").write_text('method = "ptrue"\nmodel = "m.gguf"\ntokenizer = "./original"\n', encoding="utf-8")
    (local,) = asked("there/b.toml")
    assert (Path(local.model), Path(local.tokenizer or "")) == (Path("there/m.gguf"), Path("there/original"))
    assert read.out == Path("runs")  # as without a file: a default is not written


def test_file_that_is_printed_is_the_same_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = RunConfig(("ptrue",), "tiny", plugins=(Path("p.py"),))
    run_files.dump([config], "-")
    assert list(folder.iterdir()) == []
    Path("a.toml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert asked("a.toml") == (config,)


def test_file_takes_a_known_name_for_no_folder(folder: Path) -> None:
    """A run knows the alias first; a run file elsewhere must not make the folder's model of it."""
    for name in ("tiny", "atlas-oe", "mine", "there"):
        (folder / name).mkdir()
    config = RunConfig(methods=("lts",), model="tiny", train_on="atlas-oe")
    run_files.dump([config], "there/x.toml")
    run_files.dump([replace(config, model="mine")], "there/y.toml")
    assert asked("there/x.toml") == (config,)
    assert asked("there/y.toml")[0].model == str(folder / "mine")


def test_file_has_paths_that_begin_at_its_folder(folder: Path) -> None:
    (folder / "sub").mkdir()
    text = 'method = "ptrue, lts"\nmodel = "org/name"\nplugin = "p.py"\nout = "o"\nanswers = "released@abc"\n'
    Path("sub/a.toml").write_text(text, encoding="utf-8")
    assert asked("sub/a.toml") == (
        RunConfig(
            ("ptrue", "lts"), "org/name", plugins=(Path("sub/p.py"),), out=Path("sub/o"), answers="released@abc"
        ),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["a.toml", "sub/a.toml"])
def test_home_in_a_file_is_expanded(folder: Path, name: str) -> None:
    (folder / "sub").mkdir()
    text = 'method = "ptrue"\nmodel = "./m"\nplugin = ["~/p.py", "~nobody-here"]\nout = "~/x"\nanswers = "~/a.jsonl"\n'
    text += 'tokenizer = "~/m/t"\nnli = "~/m/n"\njudge-model = "~nobody-here"\n'
    Path(name).write_text(text, encoding="utf-8")
    (read,) = asked(name)
    assert (read.out, read.answers) == (Path.home() / "x", str(Path.home() / "a.jsonl"))
    assert (read.tokenizer, read.nli) == (str(Path.home() / "m/t"), str(Path.home() / "m/n"))
    assert read.judge_model == "~nobody-here"
    assert read.plugins == (Path.home() / "p.py", Path(name).parent / "~nobody-here")
    run_files.dump([config := RunConfig(("ptrue",), "./m", out=Path("~"))], "b.toml")
    assert asked("b.toml") == (config,)


def test_command_line_wins_over_the_file(folder: Path) -> None:
    text = 'method = ["ptrue"]\nmodel = "tiny"\nseed = [1, 2]\nlimit = 3\ndebug = true\n'
    Path("a.toml").write_text(text, encoding="utf-8")
    assert [(c.seed, c.limit, c.debug) for c in asked("a.toml")] == [(1, 3, True), (2, 3, True)]
    (read,) = asked("--seed", "7", "a.toml", "--limit", "5", "--method", "lts")
    assert (read.methods, read.model, read.seed, read.limit) == (("lts",), "tiny", 7, 5)


def test_table_of_settings_is_what_set_takes(folder: Path) -> None:
    text = 'method = "ccps"\nmodel = "tiny"\n[set]\nradius = 2.5\nccps.steps = 10\nprotocol.drop_contaminated = false\n'
    Path("a.toml").write_text(text, encoding="utf-8")
    assert asked("a.toml")[0].overrides == ("radius=2.5", "ccps.steps=10", "protocol.drop_contaminated=false")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('metod = "ptrue"', ["unknown key 'metod'", "Did you mean 'method'?"]),
        ('zzzzzz = "ptrue"', ["unknown key 'zzzzzz'", "method, model, task"]),
        ("cache = 'x'", ["unknown key 'cache'"]),
        ("limit = 'many'", ['limit: expected a whole number, got "many"; correct it']),
        ("limit = true", ["limit: expected a whole number, got true"]),
        ("seed = [0, 'x']", ["seed: expected a whole number, or a list of it"]),
        ("debug = 'yes'", ["debug: expected true or false"]),
        ("model = 3", ["option model: expected text in quotes, got 3; correct it"]),
        ("method = [1]", ["method: expected text in quotes, or a list of it", "got [1]"]),
        ("set = 3", ["or a table of METHOD.FIELD = VALUE"]),
        ("[set]\nccps.radius = [1]", ["set: expected text in quotes, a number, true or false for ccps.radius"]),
        ("method_timeout = 3", ["Did you mean 'method-timeout'?"]),
        ("method = [", ["expected TOML"]),
    ],
)
def test_file_with_a_mistake_is_refused(folder: Path, text: str, words: list[str]) -> None:
    path = folder / "x.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as found:
        run_files.read(path)
    assert [word for word in [str(path), *words] if word not in str(found.value)] == []


@pytest.mark.parametrize(("name", "word"), [("ptrue", "ends in .toml"), ("none.toml", "can't be read")])
def test_file_of_toml_alone_is_taken(folder: Path, name: str, word: str) -> None:
    with pytest.raises(UserError, match=word):
        run_files.read(Path(name))


def test_file_is_not_overwritten(folder: Path) -> None:
    Path("a.toml").write_text("# mine", encoding="utf-8")
    with pytest.raises(UserError, match="not overwritten"):
        run_files.dump([RunConfig(("ptrue",), "tiny")], "a.toml")
    assert Path("a.toml").read_text(encoding="utf-8") == "# mine"


def test_file_may_have_a_byte_order_mark(folder: Path) -> None:
    Path("x.toml").write_bytes(b'\xef\xbb\xbfmodel = "tiny"\r\nmethod = "lts"\r\n')
    assert run_files.read(Path("x.toml")) == {"model": "tiny", "methods": ["lts"]}


def test_seeds_are_whole_numbers_each_once() -> None:
    assert [config.seed for config in asked("--method", "a", "--model", "b", "--seed", "3, 1", "--seed", "3")] == [3, 1]
    for wrong in ("1,x", "", "1.5", "٣"):
        result = CliRunner().invoke(APP, ["--method", "a", "--model", "b", "--seed", wrong])
        assert result.exit_code == 2
        assert "expected whole numbers separated by commas" in result.stderr
