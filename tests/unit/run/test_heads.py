"""A head says of an answer what the run said, wherever it is read; whatever is wrong with it is told in a sentence."""

from __future__ import annotations

import io
import json
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from bench import registry
from bench.api import Format, Question, Related, SampleAgreement, UserError
from bench.api.question import Answer
from bench.data.question_files import task_of_file
from bench.data.sources import open_source
from bench.model import folder as folders_of_models
from bench.model import specs
from bench.progress import Silent
from bench.results import files
from bench.run.config import Attention, HeadSetting, RunConfig
from bench.run.pipeline import run
from bench.run.scorers import load_head, reference_questions, saving, score_file
from bench.run.scorers.card import CARD, FORMAT, GuardCard, ServerCheckCard, read_card, write_check, write_guard
from bench.run.scorers.checking import as_record, check
from bench.run.scorers.score_file import guard_notes, score
from bench.stats.guard import held_out_mask
from bench.store.disk_cache import DIGEST, with_digest
from bench.store.files import write_folder_atomic
from tests.fixtures.whole_run import METHODS, SEEDED, SEEDS, SUBJECTS, TRAINED, WholeRun
from tests.kit.command import bench

CPU = HeadSetting(device="cpu")
ASKED: dict[str, Any] = {"question": "Which?", "choices": ["a thing", "another"]}
LONG: dict[str, Any] = {**ASKED, "question": "word " * 17_000}


PROBE = '''
"""A probe of a plugin, which may save what it likes."""
import pickle
from dataclasses import dataclass
import numpy as np
from bench.api import At, ConfidenceMethod, Hidden, Needs, method

STATE = Hidden(1.0, At.ANSWER_END)

@method("far")
@dataclass(kw_only=True, eq=False)
class Far(ConfidenceMethod):
    """Distance from the mean state."""
    reference = "none"
    needs = Needs(fit=frozenset({STATE}), predict=frozenset({STATE}))
    width: float = 20.0
    def fit(self, train, ctx):
        self.mean_ = train[STATE].mean(axis=0)
        return self
    def predict(self, batch):
        return np.exp(-np.linalg.norm(batch[STATE] - self.mean_, axis=1) / self.width)

@method("pickled")
class Pickled(Far):
    """The same, pickled."""
    reference = "none"
    def save(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "mean.pkl").write_bytes(pickle.dumps(self.mean_))
    def load(self, folder):
        self.mean_ = pickle.loads((folder / "mean.pkl").read_bytes())
        return self
'''


def agree(head: Path, cell: Path, known: dict[str, Question], *, answers: bool, **options: Any) -> None:
    """Differences of confidences are in last bits, as of passes of other shapes; a steep step enlarges them."""
    records = files.read_records(cell)
    asked, given = [known[key] for key in records.id], list(records.answer) if answers else None
    confidence = load_head(head, device="cpu", **options).score(asked, given)
    allowed = 1e-4 if "isotonic" in head.name else 1e-6
    np.testing.assert_allclose(confidence, records.confidence, atol=allowed, rtol=0, err_msg=head.name)


@pytest.fixture(scope="module")
def known(whole_run: WholeRun) -> dict[str, Question]:
    """The questions of the run by their ids."""
    task = task_of_file(whole_run.file)(open_source(None))
    return {question.id: question for question in task.questions("test")}


@pytest.fixture
def copy(whole_run: WholeRun, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole_run.head(), tmp_path / "copy"))


@pytest.fixture
def config(whole_run: WholeRun, tmp_path: Path) -> Callable[..., RunConfig]:
    """Settings of a run on the same questions that keeps heads; with `stored` it finds what was read before."""

    def of(*methods: str, stored: bool = False, **options: Any) -> RunConfig:
        cache = shutil.copytree(whole_run.cache, tmp_path / "cache") if stored else tmp_path / "cache"
        usual = {"task_files": (whole_run.file,), "out": tmp_path / "out", "save_heads": tmp_path / "heads"}
        return RunConfig(methods, "tiny", device="cpu", cache=cache, **{**usual, **options})

    return of


def test_head_is_made_of_every_cell_without_pickle(whole_run: WholeRun) -> None:
    names = [f"{method}{kind}--demo--s0" for method in METHODS for kind in ("", "+isotonic", "+temperature")]
    names += [f"{method}--demo--s{seed}--n10" for method in SEEDED for seed in SEEDS]
    assert sorted(card.parent.name for card in whole_run.heads.rglob(CARD)) == sorted(names)
    assert set(whole_run.cells()) == set(names)
    assert {path.suffix for path in whole_run.heads.rglob("*") if path.is_file()} == {".json", ".safetensors"}


@pytest.mark.parametrize(
    "name",
    ["lts--demo--s0", "logistic-probe+isotonic--demo--s0", "saplma-m+temperature--demo--s0", "pik--demo--s1--n10"],
)
def test_head_says_what_the_run_said(whole_run: WholeRun, known: dict[str, Question], name: str) -> None:
    for answers in (False,) if name.startswith("pik") else (False, True):
        agree(whole_run.head(name), whole_run.cell(name), known, answers=answers)


def test_head_takes_one_question_as_a_dict(whole_run: WholeRun, known: dict[str, Question]) -> None:
    folder = whole_run.head("lts--demo--s0")
    records = files.read_records(whole_run.cell(folder.name))
    question = known[records.id[5]]
    asked = {"question": question.text, "choices": list(question.choices), "subject": question.subject}
    assert load_head(folder, device="cpu")(asked, records.answer[5]) == pytest.approx(records.confidence[5], abs=1e-6)


def test_card_tells_model_method_learning_and_test(whole_run: WholeRun) -> None:
    card, row = read_card(whole_run.head()), files.read(whole_run.cell())
    assert (card.backbone.model, card.backbone.dtype, card.method.name) == ("tiny", "float32", "pik")
    assert (card.asked.format, card.asked.letters, card.method.plugin) == ("choice", "abcd", "built-in")
    assert (card.learned.rows, card.learned.labels, card.asked.judge) == (TRAINED, row.labels_seen, {})
    brier = card.test.metrics["brier"]
    assert brier.value == row.metrics["brier"].pooled
    assert brier.low is not None
    assert brier.high is not None
    assert brier.low < brier.value < brier.high
    assert card.test.metrics["rmsce"].value is row.metrics["rmsce"].pooled is None  # of 24 answers
    pik = registry.methods().get("pik")
    params = pik(**pik.small).params()
    assert card.method.constants == {k: list(v) if isinstance(v, tuple) else v for k, v in params.items()}
    assert str(whole_run.folder) not in (whole_run.head() / CARD).read_text(encoding="utf-8")


JUDGE = {"judge": "openai", "judge_model": "gpt-4o-mini", "judge_url": "http://127.0.0.1:9/v1/"}


@pytest.mark.parametrize(
    ("fmt", "signals", "kept"),
    [
        (Format.OPEN, {SampleAgreement()}, JUDGE),
        (Format.OPEN, {SampleAgreement(), Related("judge"), Related("match")}, JUDGE),
        (Format.OPEN, {Related("entailment"), Related("similarity")}, {"nli": "some/nli", "similarity": None}),
        (Format.OPEN, set(), {}),
        (Format.CHOICE, {SampleAgreement(), Related("judge"), Related("entailment")}, {}),
    ],
)
def test_head_keeps_what_compares_its_samples(fmt: Format, signals: Any, kept: dict[str, str | None]) -> None:
    """It asks for no key, and looks for no model, that its confidences don't need."""
    config = RunConfig((), "tiny", nli="some/nli", **JUDGE)  # type: ignore[arg-type]
    assert saving._comparing(config, fmt, signals) == kept


@pytest.mark.parametrize(
    ("options", "signal", "told"),
    [
        (
            {"judge": "openai", "judge_url": "https://me:secret@host/v1?token=ab"},
            SampleAgreement(),
            "'https://host/v1'",
        ),
        ({"judge": "openai", "judge_url": "https://host/v1?token=ab"}, Related("judge"), "'https://host/v1'"),
        ({"judge": "hf", "judge_model": "/home/me/judge"}, SampleAgreement(), "'judge-"),
        ({"nli": "/home/me/nli"}, Related("entailment"), "'nli-"),
        ({"similarity": "./me/nli"}, Related("similarity"), "'nli-"),
    ],
)
def test_head_tells_no_password_and_no_path(options: dict[str, Any], signal: Any, told: str) -> None:
    config = RunConfig((), "tiny", **options)
    with pytest.raises(UserError, match=f"of which a head can tell no more than {told}") as raised:
        saving._comparing(config, Format.OPEN, {signal})
    assert not re.search("secret|token|me/", str(raised.value))
    assert saving._comparing(config, Format.OPEN, set()) == {}


def test_head_of_a_score_keeps_its_scale(known: dict[str, Question], config: Callable[..., RunConfig]) -> None:
    report = run(config("perplexity", stored=True, recalibrate=("platt", "temperature")))
    assert len(report.heads) == 3
    for folder, cell in zip(report.heads, report.paths, strict=True):
        agree(folder, cell, known, answers=False)
    assert read_card(report.heads[0]).output.labelled == 2 * 24


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "methods"), [("atlas-choice", ("saplma-f", "ccps")), ("atlas-oe", ("ptrue", "litcab", "ct"))]
)
def test_head_of_every_kind_of_method_says_the_same(
    config: Callable[..., RunConfig], task: str, methods: tuple[str, ...], tmp_path: Path
) -> None:
    overrides = ("ct.steps=4",) if "ct" in methods else ()
    asked = config(*methods, task_files=(), tasks=(task,), recalibrate=("isotonic",), limit=16, overrides=overrides)
    report = run(asked)
    known = {q.id: q for q in registry.tasks().get(task)(open_source(None)).questions("test")}
    assert len(report.heads) == len(report.paths) == 2 * len(methods)
    shutil.rmtree(tmp_path / "cache")  # a head needs nothing of it
    for folder, cell in zip(report.heads, report.paths, strict=True):
        agree(folder, cell, known, answers=True)


def test_head_of_a_plugin_needs_its_plugin(
    known: dict[str, Question], config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    plugin, other = tmp_path / "far.py", tmp_path / "other" / "far.py"
    other.parent.mkdir()
    plugin.write_text(PROBE, encoding="utf-8")
    other.write_text(PROBE.replace("/ self.width", "/ 2 / self.width"), encoding="utf-8")
    report = run(config("far", "pickled", stored=True, plugins=(plugin,)))
    (note,) = [note for note in report.notes if note.startswith("no head of pickled on ")]
    assert "method/mean.pkl; a head holds JSON and safetensors only" in note
    (folder,) = report.heads
    agree(folder, next(p for p in report.paths if p.stem == folder.name), known, answers=False, plugins=[plugin])
    with pytest.raises(UserError, match=r"it came from the file far.py: give it with --plugin FILE"):
        load_head(folder, device="cpu")
    with pytest.raises(UserError, match=r"another version of method 'far' .*here in far.py"):
        load_head(folder, device="cpu", plugins=[other])


def test_head_names_the_code_that_made_it(
    config: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The digest when the run began: its file may be edited meanwhile."""
    monkeypatch.setattr("bench.run.resolve.plugin_digest", lambda _: "0" * 64)
    (folder,) = run(config("ptrue", limit=4)).heads
    assert read_card(folder).method.code == "0" * 64


def test_heads_never_overwrite_other_folders(config: Callable[..., RunConfig]) -> None:
    (folder,) = run(config("ptrue", limit=4)).heads
    before = read_card(folder)
    assert run(config("ptrue", limit=4)).heads == [folder]  # a head is
    assert read_card(folder) == before
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "novel.txt").write_text("mine", encoding="utf-8")
    report = run(config("ptrue", limit=4))
    assert (report.heads, report.any_failed) == ([], False)
    assert any("is there already and is no head; it is not overwritten" in note for note in report.notes)
    assert [path.name for path in folder.iterdir()] == ["novel.txt"]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_head_of_the_same_result_keeps_its_guard(config: Callable[..., RunConfig]) -> None:
    (folder,) = run(config("ptrue", limit=4)).heads
    write_guard(folder, BEES)
    write_check(folder, ServerCheckCard(model="m", passed=True, questions=4, confidence=0.0, states=0.0))
    guarded = read_card(folder)
    assert not any("guard" in note for note in run(config("ptrue", limit=4)).notes)
    assert read_card(folder) == guarded
    changed_card(test__records="0" * 64)(folder)
    (note,) = [note for note in run(config("ptrue", limit=4)).notes if "guard" in note]
    assert note.startswith(f"{folder}: the head of other confidences there had a guard or checks on servers")
    assert read_card(folder) == replace(guarded, guard=None, servers=())


def test_heads_are_planned_and_their_folder_is_tried_first(config: Callable[..., RunConfig], tmp_path: Path) -> None:
    plan = run(config("ptrue", limit=4, dry_run=True)).plan
    assert f"heads: one for each cell that ends ok, below {tmp_path / 'heads'}" in plan
    assert not (tmp_path / "heads").exists()
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="file"):
        run(config("ptrue", limit=4, save_heads=tmp_path / "file" / "heads"))
    assert not (tmp_path / "out").exists()


# --- damaged, foreign and other heads ---------------------------------------------------------------------------------


def altered(name: str) -> Callable[[Path], None]:
    def alter(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[-3] ^= 1
        (folder / name).write_bytes(bytes(content))

    return alter


def changed_card(**changes: object) -> Callable[[Path], None]:
    """Another card that is sealed all the same: a head of somebody else."""

    def change(folder: Path) -> None:
        values = json.loads((folder / CARD).read_text(encoding="utf-8"))
        for key, value in changes.items():
            part, _, field = key.partition("__")
            if field:
                values[part][field] = value
            else:
                values[part] = value
        (folder / CARD).write_text(json.dumps(with_digest(values)), encoding="utf-8")

    return change


def cut(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-20]) and None


OTHER_MODEL = {"backbone__fingerprint": "0" * 64, "backbone__weights": "1" * 64}
OTHER_TEMPLATE = {"backbone__fingerprint": "0" * 64, "backbone__chat_template": "1"}
PATHS = ("name", "backbone__model", "method__name", "method__preset", "asked__task")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (altered("method/fitted.safetensors"), "method/fitted.safetensors was altered or cut short"),
        (altered("kept.json"), "kept.json was altered"),
        (cut(CARD), "head.json is damaged"),
        (lambda folder: (folder / CARD).write_text("[1]", encoding="utf-8"), "not that of a head"),
        (lambda folder: (folder / "output.safetensors").unlink(), "output.safetensors is missing"),
        (lambda folder: (folder / CARD).unlink(), "expected head.json in it, found none"),
        (lambda folder: (folder / "method" / "more.json").write_text("{}"), "method/more.json is no file of this head"),
        (changed_card(format=FORMAT + 1), f"expected format {FORMAT}.*got {FORMAT + 1}; use the version that made it"),
        (changed_card(colour="red"), "unknown key 'colour'"),
        (changed_card(output__empty=5.0), "output.empty: expected a number from 0 to 1, got '5.0'"),
        (changed_card(test__accuracy=-0.1), "test.accuracy: expected a number from 0 to 1"),
        (changed_card(kept=-1), "kept: expected a whole number of at least 0, got '-1'"),
        *(
            (changed_card(**{part: "../../../etc/passwd"}), f"{part.replace('__', '.')}: expected an? .*etc/passwd")
            for part in PATHS
        ),
        (changed_card(name="tiny/a\nb"), "head.json: name: expected a head's name, got 'tiny/a"),
        (changed_card(method__code="0" * 64), "another version of method 'pik' .*make it again"),
        (changed_card(method__name="pok"), "its method 'pok' is not here; it came from built-in"),
        (changed_card(asked__digest="0" * 16), "other words around questions"),
        (changed_card(backbone__model="m.gguf-79d06997"), r"another machine \(m.gguf-.*: --model FILE or FOLDER, or"),
        (changed_card(backbone__model="m.served-79d06997"), r"behind a server \(m.served-.*: --model URL, or model=\."),
        (changed_card(**OTHER_MODEL), "other: weights. Name its own model"),
        (changed_card(**OTHER_TEMPLATE), "other: chat template"),
        (changed_card(backbone__text_before_answers="\n"), "other: text before answers. Name its own model"),
    ],
)
def test_head_that_is_not_as_it_must_be(copy: Path, damage: Callable[[Path], None], told: str) -> None:
    damage(copy)
    with pytest.raises(UserError, match=told):
        load_head(copy, device="cpu")


@pytest.mark.parametrize(
    "name",
    ["tiny/mmlu-choice/ccps+isotonic--demo--s0--0a1b2c3d--n60", "partial_/x/a--b--s0",
     "Qwen--Qwen2.5-14B-Instruct/x/a--b--s0", "partial/my-llama-0a1b2c3d/x/a--b--s0"],
)  # fmt: skip
def test_head_may_have_every_name_of_a_run(copy: Path, name: str) -> None:
    changed_card(name=name, backbone__model="Qwen/Qwen2.5-14B-Instruct")(copy)
    assert read_card(copy).name == name


def test_head_elsewhere_is_named(whole_run: WholeRun, copy: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "partial" / "tiny" / "atlas-choice" / "lts--demo--s0--n60"
    shutil.copytree(copy, kept)
    for folder, told in (
        (tmp_path / "kept" / "tiny" / "atlas-choice" / "lts--demo--s0", rf"there is {re.escape(kept.as_posix())}\.$"),
        (whole_run.head().parent, r"found none; it has heads in .*s0"),
        (tmp_path / "nowhere", "expected a folder"),
    ):
        with pytest.raises(UserError, match=told):
            load_head(folder)


def test_head_of_another_model_is_refused_with_both_fingerprints(whole_run: WholeRun, small_model: Path) -> None:
    own = read_card(whole_run.head()).backbone.fingerprint
    with pytest.raises(UserError) as raised:
        load_head(whole_run.head(), model=str(small_model), device="cpu")
    told = str(raised.value)
    assert own[:16] in told
    assert told.count("fingerprint") == 2
    assert "weights" in told
    assert str(small_model.parent) not in told


@pytest.mark.parametrize("named", [None, "org/m"])
def test_head_of_hub_model_loads_its_commit(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    """Every commit of the repository, one to its README too, is another fingerprint."""
    own, newest = "c" * 40, "d" * 40
    asked: list[str | None] = []
    for commit in (own, newest):
        (tmp_path / commit).symlink_to(specs.resolve("tiny").source)

    def snapshot_download(*_: object, revision: str | None, **__: object) -> str:
        asked.append(revision)
        return str(tmp_path / (revision or newest))

    monkeypatch.setattr(folders_of_models, "snapshot_download", snapshot_download)
    identity = {"backbone__fingerprint": f"org/m@{own}", "backbone__weights": f"org/m@{own}"}
    changed_card(backbone__model="org/m", backbone__revision=own, **identity)(copy)
    assert 0 <= load_head(copy, named, device="cpu")(ASKED) <= 1
    with pytest.raises(UserError, match="belongs to 'org/m'"):  # whose code it is, the user decides
        load_head(copy, named, device="cpu", trust_remote_code=True)
    assert asked == [own, None]


def test_head_takes_its_model_in_another_folder(
    whole_run: WholeRun, known: dict[str, Question], tmp_path: Path
) -> None:
    there = shutil.copytree(specs.resolve("tiny").source, tmp_path / "copied")
    one, other = (
        load_head(whole_run.head(), model=name, device="cpu").score([*known.values()][:1])
        for name in (None, str(there))
    )
    assert one == other


# --- files of questions -----------------------------------------------------------------------------------------------


Scored = Callable[..., tuple[list[dict[str, Any]], list[str]]]


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of what is scored."""
    return tmp_path_factory.mktemp("scores")


@pytest.fixture
def scored(whole_run: WholeRun, scores: Path, tmp_path: Path) -> Scored:
    """Scores these rows, or a file; gives lines and notes."""

    def of(*rows: Any, name: str = "lts--demo--s0", answers: Path | None = None, dtype: str | None = None) -> Any:
        path = Path("-") if rows == ("-",) else written(tmp_path / "asked.jsonl", *rows)
        report = score(path, whole_run.head(name), answers, replace(CPU, dtype=dtype), Silent(), scores)
        return [json.loads(line) for line in report.lines], report.notes

    return of


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def row_of(question: Question, **more: Any) -> dict[str, Any]:
    row = {"id": question.id, "question": question.text, "choices": question.choices, "subject": question.subject}
    return row | more


NO_LETTER = "the answer is no option's letter"


def test_file_is_scored_line_by_line(scored: Scored, whole_run: WholeRun, known: dict[str, Question]) -> None:
    """The model would read `A` where its own answers are `a`, and say another number of the same option."""
    asked = list(known.values())[:3]
    records = files.read_records(whole_run.cell("lts--demo--s0"))
    spelled, odd = ("A", "a", " (a) ", "b.", "B", "b"), ("c", "zzz", "The answer is b", "another", "ab")
    own = {"subject": SUBJECTS[0]}
    rows = [
        row_of(asked[0]), row_of(asked[1], given=str(records.answer[1])), row_of(asked[2]),
        *({**ASKED, **own, "id": f"spelled {i}", "given": given} for i, given in enumerate(spelled)),
        *({**ASKED, **own, "id": f"odd {i}", "given": given} for i, given in enumerate(odd)),
        {**ASKED, "id": "new", "given": "a"}, {**ASKED, **own, "id": "empty", "given": ""},
        {**LONG, **own, "id": "long"},
        {**ASKED, **own, "id": "equal", "choices": ["red", "blue", " red"], "given": "a"},
    ]  # fmt: skip
    lines, notes = scored(*rows)
    assert [line["id"] for line in lines] == [row["id"] for row in rows]
    assert {line["head"] for line in lines} == {read_card(whole_run.head("lts--demo--s0")).name}
    np.testing.assert_allclose([line["confidence"] for line in lines[:3]], records.confidence[:3], atol=1e-5)
    assert [line["answer"] for line in lines[:9]] == [*records.answer[:3], *"aaabbb"]
    sure = [line["confidence"] for line in lines[3:9]]
    assert sure == [sure[0]] * 3 + [sure[3]] * 3
    odd_lines = [(line["answer"], line["confidence"], line["note"]) for line in lines[9:14]]
    assert odd_lines == [(answer, None, NO_LETTER) for answer in odd]
    new, empty, long, equal = lines[14:]
    assert isinstance(new["confidence"], float)
    assert isinstance(equal["confidence"], float)
    assert (empty["confidence"], empty["note"]) == (None, "the answer has no text")
    assert (long["answer"], long["confidence"]) == (None, None)
    assert "context" in long["note"]
    others = "1 question of subjects that the head has no exemplars of ('general knowledge'): their prompts show 5"
    assert notes == [
        "given answers that are a letter written otherwise (A for a), scored as it: 4",
        f"scored with {new['head']}: 11 of 18; answers given: 15, the model's: 3",
        "too long for the model's context of 16,384 tokens, not scored: 1",
        "given answers without text, not scored: 1",
        "given answers that are no option's letter, not scored: 5",
        "questions with two equal options, scored all the same: 1",
        f"{others} of other subjects; add rows of split 'dev' to show your own",
    ]

    head = load_head(whole_run.head("lts--demo--s0"), device="cpu")
    np.testing.assert_allclose(head.score([ASKED | own] * 6, spelled), np.asarray(sure, dtype=float), atol=1e-5)
    for answer in odd:
        with pytest.raises(UserError, match=rf"question 'asked:0': expected one of a, b as its answer, got '{answer}'"):
            head(ASKED, answer)
    with pytest.warns(UserWarning, match="questions with equal options: 1, such as 'asked:0'"):
        head({**ASKED, "choices": ["red", "blue", " red"]})


def test_answers_may_be_in_a_file_of_their_own(scored: Scored, known: dict[str, Question], tmp_path: Path) -> None:
    row = row_of(next(iter(known.values())), id="one")
    answers = written(tmp_path / "answers.jsonl", {"id": "one", "text": "b"}, {"id": "two", "text": "c"})
    line, notes = scored(row, answers=answers)
    assert line == scored(row | {"given": "b"})[0]
    assert "answers.jsonl: left out: 1 answer to no question of asked.jsonl" in notes
    with pytest.raises(UserError, match="has answers of its own in column 'given'"):
        scored(row | {"given": "b"}, answers=answers)
    others = written(tmp_path / "others.jsonl", {"id": "three", "text": "c"})
    with pytest.raises(UserError, match="found none, but such as 'three'; give both files the same ids"):
        scored(row, answers=others)


@pytest.fixture(scope="module")
def consistency(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head that reads ten samples of each open question, whose exemplars are permuted by its place."""
    place = tmp_path_factory.mktemp("consistency")
    config = RunConfig(
        ("self-consistency",), "tiny", tasks=("atlas-oe",), limit=2, device="cpu", cache=place / "cache",
        out=place / "out", save_heads=place / "heads", overrides=("protocol.exemplar_order=permuted",),
    )  # fmt: skip
    (head,) = run(config).heads
    return head


@pytest.mark.parametrize(
    ("numbers", "told"),
    [((3, 3), "10 samples of each question, found 3 of one"), ((10, 0), "found none of one"), ((10, 11), None)],
)
def test_answers_with_fewer_samples_than_read_are_refused(
    consistency: Path, scores: Path, tmp_path: Path, numbers: tuple[int, ...], told: str | None
) -> None:
    """The share of three that agree is none of ten."""
    asked = written(tmp_path / "asked.jsonl", *({"id": str(n), "question": f"How many are {n}?"} for n in range(2)))
    rows = [
        {"id": str(i), "text": "many", **({"samples": [*"many", *["many"] * 9][-n:]} if n else {})}
        for i, n in enumerate(numbers)
    ]
    answers = written(tmp_path / "answers.jsonl", *rows)
    with nullcontext() if told is None else pytest.raises(UserError, match=told):
        lines = score(asked, consistency, answers, CPU, Silent(), scores).lines
        assert [json.loads(line)["confidence"] for line in lines] == [pytest.approx(0.9), pytest.approx(0.8)]


def test_confidence_is_the_same_at_every_place(consistency: Path, scores: Path, tmp_path: Path) -> None:
    """The place is no part of the question: exemplars and samples are drawn by its words, or by its id."""
    head, texts = load_head(consistency, device="cpu"), [f"How many are {n}?" for n in range(4)]
    first, *_, last = alone = [head(text) for text in texts]
    assert first != last
    assert head.score([*texts, texts[3]]).tolist() == pytest.approx([*alone, last])
    asked = written(tmp_path / "asked.jsonl", *({"question": text} for text in reversed(texts)))
    lines = [json.loads(line) for line in score(asked, consistency, None, CPU, Silent(), scores).lines]
    assert [line["id"] for line in lines] == [f"asked:{n}" for n in range(4)]
    assert [line["confidence"] for line in lines] == pytest.approx(alone[::-1])
    named = [Question(f"q/{n}", "some", text, ("",), 0) for n, text in enumerate(texts)]
    assert head.score(named)[3] == pytest.approx(head.score(named[3:])[0])


@pytest.mark.parametrize(("dtype", "told"), [(None, False), ("bfloat16", True)])
def test_scores_in_another_dtype_say_so(scored: Scored, dtype: str | None, *, told: bool) -> None:
    _, notes = scored({**ASKED, "given": "a"}, dtype=dtype)
    note = "the head was made in float32, and its model is read in bfloat16; how far that moves its confidences says"
    assert any(each.startswith(note) for each in notes) is told
    assert any("float32" in each for each in notes) is told


def test_scores_of_answers_unlike_the_heads_say_so(whole_run: WholeRun, scores: Path, tmp_path: Path) -> None:
    head = Path(shutil.copytree(whole_run.head("lts--demo--s0"), tmp_path / "of-others"))
    changed_card(asked__answers="file:others-0a1b2c")(head)
    own, given = ({**ASKED, "subject": SUBJECTS[0], **more} for more in ({"id": "own"}, {"id": "x", "given": "a"}))
    note = "the model's own answers, unlike those of the head, which are from file:others-0a1b2c: 1"
    for rows in ([own, given], [given]):
        report = score(written(tmp_path / "asked.jsonl", *rows), head, None, CPU, Silent(), scores)
        assert (note in report.notes) is (own in rows)


@pytest.mark.parametrize(("name", "told"), [("pik--demo--s0", False), ("pik--demo--s1--n10", True)])
def test_scores_of_a_partial_run_say_so(scored: Scored, name: str, *, told: bool) -> None:
    _, notes = scored(ASKED, name=name)
    assert ("the head was made by a run with --limit 10; its metrics are those of few answers" in notes) is told


def test_questions_come_from_standard_input(scored: Scored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(ASKED).encode()), encoding="utf-8"))
    ((line,), _) = scored("-")
    assert line["id"] == "asked:0"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b""), encoding="utf-8"))
    with pytest.raises(UserError, match="standard input: expected at least one row"):
        scored("-")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], "expected at least one row, found none"),
        ([{"question": "Which?"}], "it is for questions with options .* has open questions; add the options"),
        (
            [{"qestion": "Which?", "choices": ["a", "b"]}],
            "nothing is known of column 'qestion'. Did you mean 'question'",
        ),
        ([{"question": "Which?", "choises": ["a", "b"]}], "column 'choises'. Did you mean 'choices'"),
        ([{**ASKED, "givn": "a"}], "column 'givn'. Did you mean 'given'"),
        ([{**ASKED, "model_answer": "a"}], "'model_answer' is not read; name it 'given'"),
        ([{"question": "Which?", "split": ["test"]}], r"expected split 'test' \(to be scored\) or 'dev'"),
        ([{**ASKED, "given": 3}], "expected a text in column 'given', got int 3"),
        ([{**ASKED, "split": "train"}], "expected split 'test' .* got 'train'"),
        ([{**ASKED, "split": "dev", "answer": "b"}], "found only exemplars"),
        ([{**ASKED, "question": " "}], "a text that is not empty"),
    ],
)
def test_file_that_cannot_be_scored_is_refused(scored: Scored, rows: list[dict[str, object]], told: str) -> None:
    with pytest.raises(UserError, match=told):
        scored(*rows)


def lists_of(shown: str) -> str:
    return f"choices as a list of texts, which letters name, got {shown}"


@pytest.mark.parametrize(
    ("question", "answers", "told"),
    [
        (3, None, "expected a question as text or as a dict, got int"),
        ("Which?", None, "expected 2 to 26 options"),
        ({"question": "Which?", "choises": ["a"]}, None, "nothing is known of 'choises'.*Did you mean 'choices'"),
        ({**ASKED, "choices": "ab"}, None, "choices as a list of texts"),
        ({**ASKED, "choices": {"x", "y"}}, None, lists_of("{'[xy]', '[xy]'}")),
        ({**ASKED, "choices": frozenset("xy")}, None, lists_of("frozenset")),
        ({**ASKED, "choices": {"a": "x", "b": "y"}}, None, lists_of("{'a': 'x'")),
        ({**ASKED, "choices": (each for each in "xy")}, None, lists_of("<generator")),
        (ASKED, {"a"}, "expected a list of answers, got set"),
        (ASKED, "a", "expected a list of answers, got str 'a'"),
        (ASKED, ["a", "b"], r"expected an answer to each question \(1\), got 2"),
        (ASKED, [1], "expected answers as text, got int"),
        (ASKED, [""], "question 0: expected a non-empty answer, got ''; give None, and the model answers, or leave"),
        ({**ASKED, "given": " \n"}, None, r"question 0: expected a non-empty answer, got ' \\n'"),
        (ASKED, ["\ud800"], "the answer to question 0: expected text that UTF-8 can hold"),
        ({**ASKED, "question": ""}, None, "a text that is not empty"),
        ({**ASKED, "id": ["x"]}, None, "expected an id as text or a whole number, got"),
        ({**ASKED, "subject": 3}, None, "expected a subject as text, got int 3"),
        ({**ASKED, "given": "a"}, ["b"], "it has the answer 'a' in 'given', and 'b' was given beside it"),
        (LONG, None, "context"),
    ],
)
def test_question_that_python_can_not_ask(whole_run: WholeRun, question: object, answers: object, told: str) -> None:
    head = load_head(whole_run.head(), device="cpu")
    assert head.score([]).shape == (0,)
    with pytest.raises(UserError, match=told):
        head.score([question], answers)  # type: ignore[list-item,arg-type]


def test_head_that_reads_no_answers_takes_none(scored: Scored, whole_run: WholeRun) -> None:
    """P(IK) reads the prompt's end: every answer, one that is no option too, would have one number."""
    told = (
        r"expected no answers, got 1: method 'pik' of head .*/pik--demo--s0 does not read the answer.* leave them out"
    )
    head = load_head(whole_run.head(), device="cpu")
    with pytest.raises(UserError, match=told):
        head(ASKED, "b")
    with pytest.raises(UserError, match=told):
        scored(ASKED | {"given": "a"}, ASKED, name="pik--demo--s0")
    ((own,), _) = scored(ASKED, name="pik--demo--s0")
    assert head(ASKED) == pytest.approx(own["confidence"], abs=1e-6)


@pytest.mark.parametrize("first", ["x", "asked:1"])
def test_ids_of_two_questions_differ_in_python(whole_run: WholeRun, first: str) -> None:
    """The confidence of the second would stand at both."""
    other = ASKED if first == "asked:1" else {**ASKED, "id": "x"}
    with pytest.raises(UserError, match=rf"ids of their own, got '{first}' twice"):
        load_head(whole_run.head(), device="cpu").score([{**ASKED, "id": first}, other], ["a", "b"])


def test_answer_that_a_question_brings_is_scored(whole_run: WholeRun) -> None:
    """Rows of a file for `bench score` mean the same in Python; the model's own answer would be another number."""
    head = load_head(whole_run.head("lts--demo--s0"), device="cpu")
    a, b = head.score([ASKED, ASKED], ["a", "b"])
    brought = head.score([{**ASKED, "given": "a"}, {**ASKED, "given": "b", "choices": np.array(ASKED["choices"])}])
    assert brought.tolist() == [a, b]
    assert a != b


def test_head_may_be_called_by_threads_and_pickled(whole_run: WholeRun) -> None:
    """As a service does: its threads share the model, its workers get copies."""
    head = load_head(whole_run.head("lts--demo--s0"), device="cpu")
    rows = [{**ASKED, "question": f"Which {'of them ' * n}is it?"} for n in range(6)]
    expected = [head(row, "a") for row in rows]
    assert len(set(expected)) > 1
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda row: head(row, "a"), rows)) == pytest.approx(expected, abs=1e-6)
    again = pickle.loads(pickle.dumps(head))  # noqa: S301 - our own
    assert again(rows[0], "a") == pytest.approx(expected[0], abs=1e-6)


def test_scored_questions_leave_nothing_behind(
    whole_run: WholeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service would fill disk and memory."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    head = load_head(whole_run.head("lts--demo--s0"), device="cpu")
    before = sorted(tmp_path.rglob("*"))
    confidence = head(ASKED, "a")
    assert sorted(tmp_path.rglob("*")) == before
    assert head(ASKED, "a") == confidence


# --- fidelity ---------------------------------------------------------------------------------------------------------


def test_check_in_the_same_setting_finds_no_change(whole_run: WholeRun) -> None:
    found = check(whole_run.head("lts+isotonic--demo--s0"), CPU, Silent())
    assert (found.passed, found.questions, found.prompts_differ, found.flips) == (True, 24, 0, 0)
    assert found.confidence_max < 1e-6
    assert max(drift.largest for drift in found.states.values()) < 1e-5
    assert len(found.states) == 4


def test_check_measures_and_judges_another_setting(whole_run: WholeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four questions: processors without instructions for bfloat16 take ten times as long."""
    folder = whole_run.head("logistic-probe--demo--s0")
    all_ = reference_questions.read(folder)
    states = {name: values[:4] for name, values in all_.states.items()}
    few = replace(all_, questions=all_.questions[:4], states=states, confidence=all_.confidence[:4])
    monkeypatch.setattr(reference_questions, "read", lambda _: few)
    setting = replace(CPU, dtype="bfloat16", plain=True, attention=Attention.EAGER)
    found = check(folder, setting, Silent(), tolerance=1.0, state_tolerance=1.0)
    assert found.passed
    assert "bfloat16, eager attention, each question alone" in found.setting
    assert min(drift.mean for drift in found.states.values()) > 1e-3
    assert max(drift.mean for drift in found.states.values()) < 0.05
    strict = check(folder, setting, Silent(), tolerance=1e-7, state_tolerance=1e-4)
    assert not strict.passed
    assert len(strict.complaints) == 2
    assert list(strict.lines())[-1].startswith("NOT OK: a confidence differs by ")
    json.dumps(as_record(strict))


@pytest.mark.parametrize("budget", [0, -1])
def test_token_budgets_of_heads_are_at_least_one(budget: int) -> None:
    with pytest.raises(UserError, match=f"--token-budget: expected at least 1, got {budget}"):
        HeadSetting(token_budget=budget)


@pytest.mark.parametrize(
    ("confidence", "states", "complaint"),
    [
        (0.019, 0.019, ""),
        (0.021, 0.0, "a confidence differs by 0.021"),
        (0.0, 0.021, "states of the .* differ by 0.021 on average"),
    ],
)
def test_check_tolerates_two_percent(
    whole_run: WholeRun, monkeypatch: pytest.MonkeyPatch, confidence: float, states: float, complaint: str
) -> None:
    then = reference_questions.read(whole_run.head())
    moved = {name: values / (1 + states) for name, values in then.states.items()}
    changed = replace(then, confidence=then.confidence - confidence, states=moved)
    monkeypatch.setattr(reference_questions, "read", lambda _: changed)
    assert re.fullmatch(complaint, "; ".join(check(whole_run.head(), CPU, Silent()).complaints))


def test_check_counts_confidences_that_change_sides(whole_run: WholeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the run are mirrored at 0.5, but for the first ten."""
    then = reference_questions.read(whole_run.head())
    mirrored = np.where(np.arange(24) < 10, then.confidence, 1 - then.confidence)
    monkeypatch.setattr(reference_questions, "read", lambda _: replace(then, confidence=mirrored))
    found = check(whole_run.head(), CPU, Silent())
    assert found.flips == 14
    assert " 14 change sides at 0.5" in " ".join(found.lines())


def test_check_tells_another_model_apart(whole_run: WholeRun, tmp_path: Path, small_model: Path) -> None:
    from safetensors.torch import load_file, save_file

    there = Path(shutil.copytree(specs.resolve("tiny").source, tmp_path / "wrong"))
    (weights,) = there.glob("*.safetensors")
    tensors = load_file(weights)
    for name, tensor in tensors.items():
        if name.endswith("o_proj.weight"):
            tensor.mul_(0.5)
    save_file(tensors, weights, metadata={"format": "pt"})
    found = check(whole_run.head(), replace(CPU, model=str(there)), Silent())
    assert not found.passed
    assert "other: weights" in found.notes[0]
    with pytest.raises(UserError, match="expected states of"):
        check(whole_run.head(), replace(CPU, model=str(small_model)), Silent())


# --- the command line -------------------------------------------------------------------------------------------------


def test_command_prints_scores_to_the_terminal_or_a_file(whole_run: WholeRun, scores: Path, tmp_path: Path) -> None:
    asked, out = written(tmp_path / "asked.jsonl", {**ASKED, "given": "a"}), tmp_path / "scores.jsonl"
    words = ["score", asked, "--head", whole_run.head("lts--demo--s0"), "--device", "cpu"]
    printed, kept = (bench(*words, *more, env={"CONFBENCH_CACHE": str(scores)}) for more in ((), ("--out", out)))
    assert (printed.returncode, kept.returncode, kept.stdout) == (0, 0, "")
    assert printed.stdout == out.read_text(encoding="utf-8")
    assert json.loads(printed.stdout)["answer"] == "a"
    assert "1 of 1; answers given: 1" in printed.stderr
    assert bench(*words, "--out", asked).returncode == 2
    assert asked.read_text(encoding="utf-8").count("Which?") == 1
    assert "make it first" in bench(*words, "--out", tmp_path / "a" / "b").stderr


def test_commands_show_and_check_heads(whole_run: WholeRun) -> None:
    head = whole_run.head("lts--demo--s0")
    words = ["head", "check", head, "--device", "cpu"]
    well, badly = bench(*words, "--json"), bench(*words, "--plain", "--tolerance", "-1")
    assert (well.returncode, json.loads(well.stdout)["passed"], badly.returncode) == (0, True, 2)
    off = bench(*words, "--dtype", "bfloat16", "--tolerance", "1e-9")
    assert off.returncode == 1
    assert off.stdout.strip().splitlines()[-1].startswith("NOT OK")
    assert json.loads(bench("head", "show", head, "--json").stdout)["method"]["name"] == "lts"
    assert "95 % interval" in bench("head", "show", head).stdout


# --- guards -----------------------------------------------------------------------------------------------------------

BEES = GuardCard(
    threshold=0.7, risk=0.1, level=0.9, bound=0.09, task="bees", answers=50, kept=40, mistakes=1, share=0.5,
    split_seed=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [("threshold", -1.0), ("threshold", 1.01), ("risk", 7.0), ("level", -0.5), ("bound", 2), ("answers", -3),
     ("share", 1.5), ("task", "../bees")],
)  # fmt: skip
def test_guard_beyond_its_range_is_refused(copy: Path, field: str, value: object) -> None:
    write_guard(copy, BEES)
    values = json.loads((copy / CARD).read_text(encoding="utf-8"))
    changed_card(guard={**values["guard"], field: value})(copy)
    with pytest.raises(UserError, match=rf"guard\.{field}: expected an? .*, got '{value}'"):
        read_card(copy)


@pytest.fixture(scope="module")
def results(whole_run: WholeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the run's: a guard is made of every result."""
    others = shutil.ignore_patterns("partial", "ptrue*", "sequence*", "saplma*", "*temperature*")
    return Path(shutil.copytree(whole_run.out, tmp_path_factory.mktemp("results") / "out", ignore=others))


def guard(results: Path, head: Path, *words: str) -> subprocess.CompletedProcess[str]:
    cache = {"CONFBENCH_CACHE": str(head.parent / "guards")}
    return bench("guard", "--results", results, "--head", head, *words, env=cache)


def test_guard_enters_the_card(whole_run: WholeRun, results: Path, copy: Path) -> None:
    older = json.loads((copy / CARD).read_text(encoding="utf-8"))
    assert older["guard"] is None
    done = guard(results, copy, "--risk", "0.3", "--level", "0.5", "--share", "0.6", "--split-seed", "7")
    assert done.returncode == 0, done.stderr
    own = read_card(copy).guard
    assert own is not None
    assert (own.risk, own.level, own.share, own.split_seed) == (0.3, 0.5, 0.6, 7)
    assert own.task == read_card(copy).asked.task
    cell = files.read_records(whole_run.cell())
    decided = held_out_mask(cell.id, share=0.6, seed=7)
    is_kept = decided & (cell.confidence >= own.threshold)
    k, n = int((is_kept & ~cell.correct).sum()), int(is_kept.sum())
    assert (own.mistakes, own.kept, own.answers) == (k, n, decided.sum())
    assert own.bound == pytest.approx(beta.ppf(own.level, k + 1, n - k))
    values = json.loads((copy / CARD).read_text(encoding="utf-8"))
    assert values.keys() == older.keys()
    assert {key for key in values if values[key] != older[key]} == {"guard", DIGEST}
    assert "threshold" in bench("head", "show", copy).stdout


def test_guard_enters_every_scored_line(
    whole_run: WholeRun, known: dict[str, Question], scores: Path, tmp_path: Path
) -> None:
    head = Path(shutil.copytree(whole_run.head("lts--demo--s0"), tmp_path / "middle"))
    write_guard(head, replace(BEES, threshold=0.5))
    rows = [*map(row_of, list(known.values())[:8]), {**LONG, "id": "long", "subject": SUBJECTS[0]}]
    rows[0]["given"], rows[1]["given"], rows[2]["given"] = "a", "zzz", ""
    report = score(written(tmp_path / "asked.jsonl", *rows), head, None, CPU, Silent(), scores)
    lines = [json.loads(line) for line in report.lines]
    assert [line["trusted"] for line in lines[:3]] == [None] * 3
    assert [line["trusted"] for line in lines[3:]] == [(line["confidence"] or 0) >= 0.5 for line in lines[3:]]
    assert lines[-1]["trusted"] is False
    assert {line["guard"] for line in lines} == {"bees: risk 0.1, level 0.9, threshold 0.5"}
    told = " ".join(report.notes)
    assert f": {sum(line['trusted'] is True for line in lines)}" in told
    assert "of 3 answers given to it it guarantees" in told


def test_guard_says_nothing_of_no_letter(copy: Path) -> None:
    write_guard(copy, replace(BEES, threshold=0.1))
    head = SimpleNamespace(card=read_card(copy), name="lts")
    answers = [Answer(text, letter, False, parsed=letter is not None) for text, letter in (("A", "A"), ("so", None))]
    questions = [SimpleNamespace(id=str(k)) for k in range(2)]
    scored = SimpleNamespace(questions=questions, answers=answers, confidence=np.array([0.9, 0.9]), too_long={})
    assert [line["trusted"] for line in score_file._output_lines(scored, head, {})] == [True, None]
    assert [line["trusted"] for line in score_file._output_lines(scored, head, {"0": None})] == [None, None]  # given


def test_guard_of_another_task_names_no_share(whole_run: WholeRun, copy: Path, tmp_path: Path) -> None:
    cell = whole_run.cell()
    row, records = files.read(cell), files.read_records(cell)
    files.write(row, records, tmp_path / "out")
    other = replace(records, id=[f"other/{key}" for key in records.id])
    files.write(replace(row, task="other", questions_digest=None), other, tmp_path / "out")
    done = guard(tmp_path / "out", copy, "--risk", "0.3", "--level", "0.5", "--calibrate-on", "other")
    assert done.returncode == 0, done.stderr
    own = read_card(copy).guard
    assert own is not None
    assert (own.task, own.answers, own.share, own.split_seed) == ("other", 24, None, None)


def test_guard_trusts_an_answer_at_the_threshold() -> None:
    sure = np.array([0.7, np.nextafter(0.7, 0), np.nan])
    assert [BEES.trusts(each, own=True) for each in sure.tolist()] == [True, False, False]
    assert [BEES.trusts(each, own=False) for each in sure.tolist()] == [None, None, None]
    (note,) = guard_notes(BEES, 1, provided=0, unknown_subjects=0)
    assert note.endswith("calibrated on 50 answers of bees: 1")


@pytest.mark.parametrize(
    ("given", "unknown", "beyond"),
    [
        (3, 0, "of 3 answers given to it it guarantees nothing"),
        (0, 2, "of 2 questions of other subjects it guarantees nothing"),
        (3, 2, "of 3 answers given to it and 2 questions of other subjects it guarantees nothing"),
    ],
)
def test_guard_names_what_it_does_not_cover(given: int, unknown: int, beyond: str) -> None:
    _, note = guard_notes(BEES, 1, given, unknown)
    assert note.endswith(f"the model's own answers to questions like those of bees; {beyond}")


def damaged(head: Path) -> list[str]:
    altered("kept.json")(head)
    return ["--risk", "0.6", "--level", "0.5"]


def of_others(head: Path) -> list[str]:
    """Answers of a file chose the threshold, and bench score would trust the model's own."""
    changed_card(asked__answers="file:others-0a1b2c")(head)
    return ["--risk", "0.6", "--level", "0.5"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (lambda _: ["--risk", "0.001"], "no threshold of .* keeps mistakes to 0.1 %"),
        (lambda _: ["--method", "lts"], "none of these guards is .* add --partial if .* and --deviations if it"),
        (lambda _: ["--level", "2"], "--level: expected a chance"),
        (damaged, "kept.json was altered"),
        (of_others, "its answers are from file:others-0a1b2c, and bench score trusts none but the model's own"),
    ],
)
def test_guard_that_fails_leaves_the_head_alone(
    results: Path, copy: Path, words: Callable[[Path], list[str]], told: str
) -> None:
    more = words(copy)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    done = guard(results, copy, *more)
    assert done.returncode == 2
    assert re.search(told, " ".join(done.stderr.split()))
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


# --- writing ----------------------------------------------------------------------------------------------------------


def one_file(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text("1", encoding="utf-8")


def test_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "head"

    def fails(folder: Path) -> None:
        one_file("half")(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_folder_atomic(path, fails)
    assert list(tmp_path.iterdir()) == []
    write_folder_atomic(path, one_file("whole"))
    with pytest.raises(OSError, match="No space"):
        write_folder_atomic(path, fails)
    assert [file.name for file in path.iterdir()] == ["whole"]
    write_folder_atomic(path, one_file("other"))
    assert [file.name for file in path.iterdir()] == ["other"]


def test_folder_of_a_killed_process_goes_with_the_next(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from bench.store.files import write_folder_atomic;"
        "write_folder_atomic(Path(sys.argv[1]), lambda f: ((f / 'half').write_text('1'), print('now', flush=True),"
        " time.sleep(60)))"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "head")], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert not (tmp_path / "head").exists()
        child.kill()
    assert len(list(tmp_path.iterdir())) == 1
    write_folder_atomic(tmp_path / "head", one_file("whole"))
    assert [path.name for path in tmp_path.iterdir()] == ["head"]
