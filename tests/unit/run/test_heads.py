"""A head says of an answer what the run said, wherever it is read; whatever is wrong with it is told in a sentence."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta
from typer.testing import CliRunner, Result

from bench import registry
from bench.api import Question, UserError
from bench.api.question import Answer
from bench.cli.app import app
from bench.data.question_files import task_of_file
from bench.data.sources import open_source
from bench.model import specs
from bench.progress import Silent
from bench.results import files
from bench.run.config import RunConfig
from bench.run.pipeline import run
from bench.run.scorers import load_head, reference_questions, score_file
from bench.run.scorers.card import CARD, FORMAT, GuardCard, read_card, write_guard
from bench.run.scorers.checking import as_record, check
from bench.run.scorers.score_file import guard_notes, score
from bench.run.scorers.scorer import HeadSetting
from bench.stats.guard import held_out_mask
from bench.store.disk_cache import DIGEST, with_digest
from bench.store.files import write_folder_atomic
from bench.store.processes import machine_id
from tests.fixtures.whole_run import METHODS, SEEDED, SEEDS, SUBJECTS, TRAINED, WholeRun

CPU = HeadSetting(device="cpu")
ASKED: dict[str, Any] = {"question": "Which?", "choices": ["a thing", "another"]}


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


def allowed(name: str) -> float:
    """Largest difference of a confidence: passes of other shapes differ in last bits, which a steep step enlarges."""
    return 1e-4 if "isotonic" in name else 1e-6


def questions(whole_run: WholeRun) -> dict[str, Question]:
    task = task_of_file(whole_run.file)(open_source(None))
    return {question.id: question for question in task.questions("test")}


@pytest.fixture
def copy(whole_run: WholeRun, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole_run.head(), tmp_path / "copy"))


@pytest.fixture
def cache(whole_run: WholeRun, tmp_path: Path) -> Path:
    """What the run has read."""
    return Path(shutil.copytree(whole_run.cache, tmp_path / "cache"))


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of what is scored."""
    return tmp_path_factory.mktemp("scores")


def test_every_cell_has_a_head(whole_run: WholeRun) -> None:
    names = [f"{method}{kind}--demo--s0" for method in METHODS for kind in ("", "+isotonic", "+temperature")]
    names += [f"{method}--demo--s{seed}--n10" for method in SEEDED for seed in SEEDS]
    assert sorted(card.parent.name for card in whole_run.heads.rglob(CARD)) == sorted(names)
    assert set(whole_run.cells()) == set(names)


@pytest.mark.parametrize(
    "name",
    [
        *(f"{method}{kind}--demo--s0" for method in ("lts", "pik", "logistic-probe") for kind in ("", "+isotonic")),
        "saplma-m+temperature--demo--s0", "pik--demo--s1--n10",
    ],
)  # fmt: skip
def test_a_head_says_what_the_run_said(whole_run: WholeRun, name: str) -> None:
    known = questions(whole_run)
    head, records = load_head(whole_run.head(name), device="cpu"), files.read_records(whole_run.cell(name))
    asked = [known[key] for key in records.id]
    ways = [head.score(asked)] if name.startswith("pik") else [head.score(asked), head.score(asked, [*records.answer])]
    for confidence in ways:
        np.testing.assert_allclose(confidence, records.confidence, atol=allowed(name), rtol=0)


def test_one_question_as_a_dict_is_what_the_run_said(whole_run: WholeRun) -> None:
    folder = whole_run.head("lts--demo--s0")
    records = files.read_records(whole_run.cell(folder.name))
    question = questions(whole_run)[records.id[5]]
    asked = {"question": question.text, "choices": list(question.choices), "subject": question.subject}
    assert load_head(folder, device="cpu")(asked, records.answer[5]) == pytest.approx(records.confidence[5], abs=1e-6)


def test_a_card_tells_model_method_learning_and_test(whole_run: WholeRun) -> None:
    card, row = read_card(whole_run.head()), files.read(whole_run.cell())
    assert (card.backbone.model, card.backbone.dtype, card.method.name) == ("tiny", "float32", "pik")
    assert (card.asked.format, card.asked.letters, card.method.plugin) == ("choice", "abcd", "built-in")
    assert (card.learned.rows, card.learned.labels) == (TRAINED, row.labels_seen)
    brier = card.test.metrics["brier"]
    assert brier.value == row.metrics["brier"].pooled
    assert brier.low is not None
    assert brier.high is not None
    assert brier.low < brier.value < brier.high
    assert card.test.metrics["rmsce"].value is row.metrics["rmsce"].pooled is None  # of 24 answers
    assert card.method.constants == {
        k: list(v) if isinstance(v, tuple) else v
        for k, v in registry.methods().get("pik")(**registry.methods().get("pik").small).params().items()
    }
    text = (whole_run.head() / CARD).read_text(encoding="utf-8")
    assert str(whole_run.folder) not in text


def test_a_scaled_score_keeps_its_scale(whole_run: WholeRun, cache: Path, tmp_path: Path) -> None:
    report = run(
        RunConfig(
            ("perplexity",), "tiny", task_files=(whole_run.file,), recalibrate=("platt", "temperature"),
            device="cpu", out=tmp_path / "out", cache=cache, save_heads=tmp_path / "heads",
        )
    )  # fmt: skip
    known = questions(whole_run)
    assert len(report.heads) == 3
    for folder, cell in zip(report.heads, report.paths, strict=True):
        records = files.read_records(cell)
        confidence = load_head(folder, device="cpu").score([known[key] for key in records.id])
        np.testing.assert_allclose(confidence, records.confidence, atol=1e-6, rtol=0)
    assert read_card(report.heads[0]).output.labelled == 2 * 24


def test_heads_hold_no_pickle(whole_run: WholeRun) -> None:
    endings = {path.suffix for path in whole_run.heads.rglob("*") if path.is_file()}
    assert endings == {".json", ".safetensors"}


def test_what_is_no_head_is_never_overwritten(whole_run: WholeRun, tmp_path: Path) -> None:
    config = RunConfig(
        ("ptrue",), "tiny", task_files=(whole_run.file,), limit=4, device="cpu", out=tmp_path / "out",
        cache=tmp_path / "cache", save_heads=tmp_path / "heads",
    )  # fmt: skip
    (folder,) = run(config).heads
    before = read_card(folder)
    assert run(config).heads == [folder]  # a head is
    assert read_card(folder) == before
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "novel.txt").write_text("mine", encoding="utf-8")
    report = run(config)
    assert report.heads == []
    assert not report.any_failed
    assert any("is there already and is no head; it is not overwritten" in note for note in report.notes)
    assert [path.name for path in folder.iterdir()] == ["novel.txt"]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_dry_run_says_where_heads_would_go(whole_run: WholeRun, tmp_path: Path) -> None:
    config = RunConfig(
        ("ptrue",), "tiny", task_files=(whole_run.file,), limit=4, device="cpu", out=tmp_path / "out",
        cache=tmp_path / "cache", save_heads=tmp_path / "heads", dry_run=True,
    )  # fmt: skip
    assert f"heads: one for each cell that ends ok, below {tmp_path / 'heads'}" in run(config).plan
    assert not (tmp_path / "heads").exists()


def test_a_folder_that_cannot_be_written_is_said_before_the_work(whole_run: WholeRun, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    config = RunConfig(
        ("ptrue",), "tiny", task_files=(whole_run.file,), limit=4, out=tmp_path / "out", cache=tmp_path / "cache",
        save_heads=tmp_path / "file" / "heads",
    )  # fmt: skip
    with pytest.raises(UserError, match="file"):
        run(config)
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


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (altered("method/fitted.safetensors"), "method/fitted.safetensors was altered or cut short"),
        (cut("method/fitted.safetensors"), "method/fitted.safetensors was altered or cut short"),
        (altered("kept.json"), "kept.json was altered"),
        (cut(CARD), "head.json is damaged"),
        (lambda folder: (folder / CARD).write_text("[1]", encoding="utf-8"), "not that of a head"),
        (lambda folder: (folder / "output.safetensors").unlink(), "output.safetensors is missing"),
        (lambda folder: (folder / CARD).unlink(), "expected head.json in it, found none"),
        (lambda folder: (folder / "method" / "more.json").write_text("{}"), "method/more.json is no file of this head"),
        (changed_card(format=FORMAT + 1), f"expected format {FORMAT}.*got {FORMAT + 1}; use the version that made it"),
        (changed_card(kept="many"), "head.json: kept: expected a whole number of at least 0"),
        (changed_card(colour="red"), "unknown key 'colour'"),
        (changed_card(output__empty=5.0), "output.empty: expected a number from 0 to 1, got '5.0'"),
        (changed_card(test__accuracy=-0.1), "test.accuracy: expected a number from 0 to 1"),
        (changed_card(kept=-1), "kept: expected a whole number of at least 0, got '-1'"),
        *(
            (changed_card(**{part: "../../../etc/passwd"}), f"{part.replace('__', '.')}: expected an? .*etc/passwd")
            for part in ("name", "backbone__model", "method__name", "method__preset", "asked__task")
        ),
        (changed_card(name="tiny/a\nb"), "head.json: name: expected a head's name, got 'tiny/a"),
        (changed_card(method__code="0" * 64), "another version of method 'pik' .*make it again"),
        (changed_card(method__name="pok"), "its method 'pok' is not here; it came from built-in"),
        (changed_card(asked__digest="0" * 16), "other words around questions"),
        (
            changed_card(backbone__fingerprint="0" * 64, backbone__weights="1" * 64),
            "other: weights. Name its own model",
        ),
        (changed_card(backbone__fingerprint="0" * 64, backbone__chat_template="1"), "other: chat template"),
    ],
)
def test_a_head_that_is_not_as_it_must_be(copy: Path, damage: Callable[[Path], None], told: str) -> None:
    damage(copy)
    with pytest.raises(UserError, match=told):
        load_head(copy, device="cpu")


@pytest.mark.parametrize(
    ("field", "value"),
    [("threshold", -1.0), ("threshold", 1.01), ("risk", 7.0), ("level", -0.5), ("bound", 2), ("answers", -3),
     ("share", 1.5), ("task", "../bees")],
)  # fmt: skip
def test_a_guard_beyond_its_range_is_refused(copy: Path, field: str, value: object) -> None:
    write_guard(copy, BEES)
    values = json.loads((copy / CARD).read_text(encoding="utf-8"))
    changed_card(guard={**values["guard"], field: value})(copy)
    with pytest.raises(UserError, match=rf"guard\.{field}: expected an? .*, got '{value}'"):
        read_card(copy)


@pytest.mark.parametrize(
    "name",
    ["tiny/mmlu-choice/ccps+isotonic--demo--s0--0a1b2c3d--n60", "partial_/x/a--b--s0",
     "Qwen--Qwen2.5-14B-Instruct/x/a--b--s0", "partial/my-llama-0a1b2c3d/x/a--b--s0"],
)  # fmt: skip
def test_names_that_runs_give_are_read(copy: Path, name: str) -> None:
    changed_card(name=name, backbone__model="Qwen/Qwen2.5-14B-Instruct")(copy)
    assert read_card(copy).name == name


def test_a_head_that_a_limit_put_elsewhere_is_named(copy: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "partial" / "tiny" / "atlas-choice" / "lts--demo--s0--n60"
    shutil.copytree(copy, kept)
    asked = tmp_path / "kept" / "tiny" / "atlas-choice" / "lts--demo--s0"
    with pytest.raises(UserError, match=rf"found none; there is {re.escape(kept.as_posix())}\.$"):
        load_head(asked)


def test_a_folder_of_heads_is_no_head(whole_run: WholeRun, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"found none; it has heads in .*s0"):
        load_head(whole_run.head().parent)
    with pytest.raises(UserError, match="expected a folder"):
        load_head(tmp_path / "nowhere")


def test_another_model_is_refused_with_both_fingerprints(whole_run: WholeRun, small_model: Path) -> None:
    own = read_card(whole_run.head()).backbone.fingerprint
    with pytest.raises(UserError) as raised:
        load_head(whole_run.head(), model=str(small_model), device="cpu")
    assert own[:16] in str(raised.value)
    assert str(raised.value).count("fingerprint") == 2
    assert "weights" in str(raised.value)
    assert str(small_model.parent) not in str(raised.value)


def test_the_same_model_in_another_folder_is_the_same(whole_run: WholeRun, tmp_path: Path) -> None:
    there = shutil.copytree(specs.resolve("tiny").source, tmp_path / "copied")
    question = next(iter(questions(whole_run).values()))
    one, other = (
        load_head(whole_run.head(), model=name, device="cpu").score([question]) for name in (None, str(there))
    )
    assert one == other


@pytest.mark.slow
def test_a_plugin_s_head_needs_its_plugin(whole_run: WholeRun, cache: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "far.py"
    plugin.write_text(PROBE, encoding="utf-8")
    config = RunConfig(
        ("far", "pickled"), "tiny", task_files=(whole_run.file,), plugins=(plugin,), device="cpu",
        out=tmp_path / "out", cache=cache, save_heads=tmp_path / "heads",
    )  # fmt: skip
    report = run(config)
    (note,) = [note for note in report.notes if note.startswith("no head of pickled on ")]
    assert "method/mean.pkl; a head holds JSON and safetensors only" in note
    (folder,) = report.heads
    records, known = files.read_records(next(p for p in report.paths if p.stem == folder.name)), questions(whole_run)
    confidence = load_head(folder, device="cpu", plugins=[plugin]).score([known[key] for key in records.id])
    np.testing.assert_allclose(confidence, records.confidence, atol=1e-6, rtol=0)
    with pytest.raises(UserError, match=r"it came from the file far.py: give it with --plugin FILE"):
        load_head(folder, device="cpu")
    other = tmp_path / "other" / "far.py"
    other.parent.mkdir()
    other.write_text(PROBE.replace("/ self.width", "/ 2 / self.width"), encoding="utf-8")
    with pytest.raises(UserError, match=r"another version of method 'far' .*here in far.py"):
        load_head(folder, device="cpu", plugins=[other])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "methods"), [("atlas-choice", ("saplma-f", "ccps")), ("atlas-oe", ("ptrue", "litcab", "ct"))]
)
def test_every_kind_of_method_says_what_its_run_said(task: str, methods: tuple[str, ...], tmp_path: Path) -> None:
    config = RunConfig(
        methods, "tiny", tasks=(task,), recalibrate=("isotonic",), limit=16, device="cpu", out=tmp_path / "out",
        cache=tmp_path / "cache", save_heads=tmp_path / "heads", overrides=("ct.steps=4",) if "ct" in methods else (),
    )  # fmt: skip
    report = run(config)
    known = {q.id: q for q in registry.tasks().get(task)(open_source(None)).questions("test")}
    assert len(report.heads) == len(report.paths) == 2 * len(methods)
    shutil.rmtree(tmp_path / "cache")  # a head needs nothing of it
    for folder, cell in zip(report.heads, report.paths, strict=True):
        records = files.read_records(cell)
        confidence = load_head(folder, device="cpu").score([known[key] for key in records.id], list(records.answer))
        np.testing.assert_allclose(
            confidence, records.confidence, atol=allowed(folder.name), rtol=0, err_msg=folder.name
        )


# --- files of questions -----------------------------------------------------------------------------------------------


Scored = Callable[..., list[dict[str, object]]]


@pytest.fixture
def scored(whole_run: WholeRun, scores: Path) -> Scored:
    """Scores a file; gives its lines, and then notes."""

    def of(path: Path, name: str = "lts--demo--s0", **options: Any) -> list[dict[str, object]]:
        report = score(path, whole_run.head(name), options.get("answers"), CPU, Silent(), scores)
        return [json.loads(line) for line in report.lines] + [{"notes": report.notes}]

    return of


def written(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_file_is_scored_line_by_line(scored: Scored, whole_run: WholeRun, tmp_path: Path) -> None:
    asked = list(questions(whole_run).values())[:3]
    records = files.read_records(whole_run.cell("lts--demo--s0"))
    rows = [{"id": q.id, "question": q.text, "choices": q.choices, "subject": q.subject} for q in asked]
    rows[1]["given"] = str(records.answer[1])
    path = written(
        tmp_path / "asked.jsonl",
        *rows,
        {"id": "new", "question": "Which?", "choices": ["a", "b"], "given": "the first"},
    )  # type: ignore[arg-type]
    *lines, told = scored(path)
    assert [line["id"] for line in lines] == [*(q.id for q in asked), "new"]
    np.testing.assert_allclose([line["confidence"] for line in lines[:3]], records.confidence[:3], atol=1e-5)  # type: ignore[arg-type]
    assert [line["answer"] for line in lines[:3]] == records.answer[:3]
    assert (lines[3]["note"], lines[3]["confidence"]) == ("the answer is no option's letter", None)
    assert {line["head"] for line in lines} == {read_card(whole_run.head("lts--demo--s0")).name}
    notes = " ".join(told["notes"])  # type: ignore[arg-type]
    assert "3 of 4 questions scored" in notes
    assert "answers given: 2, the model's: 2" in notes
    assert "given answers that are no option's letter, not scored: 1" in notes
    assert "1 questions are of subjects that the head has no exemplars of ('general knowledge')" in notes


def test_answers_may_be_in_a_file_of_their_own(scored: Scored, whole_run: WholeRun, tmp_path: Path) -> None:
    q = next(iter(questions(whole_run).values()))
    row: dict[str, object] = {"id": "one", "question": q.text, "choices": q.choices, "subject": q.subject}
    path = written(tmp_path / "asked.jsonl", row)
    answers = written(tmp_path / "answers.jsonl", {"id": "one", "text": "b"}, {"id": "two", "text": "c"})
    line, told = scored(path, answers=answers)
    inside, _ = scored(written(tmp_path / "inside.jsonl", {**row, "given": "b"}))
    assert line == inside
    assert "answers.jsonl: 1 answers are to no question of asked.jsonl" in told["notes"]  # type: ignore[operator]
    with pytest.raises(UserError, match="has answers of its own in column 'given'"):
        scored(tmp_path / "inside.jsonl", answers=answers)
    with pytest.raises(UserError, match="found none, but such as 'three'; give both files the same ids"):
        scored(path, answers=written(tmp_path / "others.jsonl", {"id": "three", "text": "c"}))


def test_what_cannot_be_asked_is_told_and_the_rest_is_scored(scored: Scored, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"question": "Which?", "choices": ["red", "blue"], "given": ""},
        {"question": "word " * 17_000, "choices": ["red", "blue"]},
        {"question": "Who?", "choices": ["red", "blue"], "given": "a"},
    ]
    empty, long, fine, told = scored(written(tmp_path / "asked.jsonl", *rows))
    assert (empty["confidence"], empty["note"]) == (0.0, "the answer has no text")
    assert (long["answer"], long["confidence"]) == (None, None)
    assert "context" in str(long["note"])
    assert isinstance(fine["confidence"], float)
    notes = " ".join(told["notes"])  # type: ignore[arg-type]
    assert "2 of 3 questions scored" in notes
    assert "not scored: 1" in notes
    assert "without text, scored as the protocol says: 1" in notes


@pytest.mark.parametrize(("dtype", "told"), [(None, False), ("bfloat16", True)])
def test_scores_in_another_dtype_say_so(
    whole_run: WholeRun, scores: Path, tmp_path: Path, dtype: str | None, *, told: bool
) -> None:
    path = written(tmp_path / "asked.jsonl", {**ASKED, "given": "a"})
    setting = replace(CPU, dtype=dtype)
    notes = score(path, whole_run.head("lts--demo--s0"), None, setting, Silent(), scores).notes
    note = "the head was made in float32, and its model is read in bfloat16; how far that moves its confidences says"
    assert any(each.startswith(note) for each in notes) is told
    assert any("float32" in each for each in notes) is told


@pytest.mark.parametrize(("name", "told"), [("pik--demo--s0", False), ("pik--demo--s1--n10", True)])
def test_scores_of_a_partial_run_say_so(scored: Scored, tmp_path: Path, name: str, *, told: bool) -> None:
    *_, last = scored(written(tmp_path / "asked.jsonl", ASKED), name)
    note = "the head was made by a run with --limit 10; it learned from few answers"
    assert (note in last["notes"]) is told  # type: ignore[operator]


def test_standard_input(scored: Scored, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps({"question": "Which?", "choices": ["red", "blue"]}) + "\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    line, _ = scored(Path("-"))
    assert line["id"] == "asked:0"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(UserError, match="standard input: expected at least one row"):
        scored(Path("-"))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (None, "expected at least one row, found none"),
        ({"question": "Which?"}, "it is for questions with options .* has open questions; add the options"),
        ({"qestion": "Which?", "choices": ["a", "b"]}, "nothing is known of column 'qestion'. Did you mean 'question'"),
        ({"question": "Which?", "choises": ["a", "b"]}, "column 'choises'. Did you mean 'choices'"),
        ({"question": "Which?", "choices": ["a", "b"], "givn": "a"}, "column 'givn'. Did you mean 'given'"),
        (
            {"question": "Which?", "choices": ["a", "b"], "model_answer": "a"},
            "'model_answer' is not read; name it 'given'",
        ),
        ({"question": "Which?", "split": ["test"]}, "expected split 'test' \\(to be scored\\) or 'dev'"),
        ({"question": "Which?", "choices": ["a", "b"], "given": 3}, "expected a text in column 'given', got int 3"),
        ({"question": "Which?", "choices": ["a", "b"], "split": "train"}, "expected split 'test' .* got 'train'"),
        ({"question": "Which?", "choices": ["a", "b"], "split": "dev", "answer": "b"}, "found only exemplars"),
        ({"question": " ", "choices": ["a", "b"]}, "a text that is not empty"),
    ],
)
def test_a_file_that_cannot_be_scored(scored: Scored, tmp_path: Path, row: dict[str, object], told: str) -> None:
    path = written(tmp_path / "asked.jsonl", *([row] if row else []))
    with pytest.raises(UserError, match=told):
        scored(path)


@pytest.mark.parametrize(
    ("question", "answers", "told"),
    [
        (3, None, "expected a question as text or as a dict, got int"),
        ("Which?", None, "expected 2 to 26 options, got 1|expected 2 to 26 options"),
        ({"question": "Which?", "choises": ["a"]}, None, "nothing is known of 'choises'.*Did you mean 'choices'"),
        ({"question": "Which?", "choices": "ab"}, None, "choices as a list of texts"),
        *(
            (
                {"question": "Which?", "choices": choices},
                None,
                f"choices as a list of texts, which letters name, got {shown}",
            )
            for shown, choices in (
                ("{'[xy]', '[xy]'}", {"x", "y"}),
                ("frozenset", frozenset("xy")),
                ("dict_keys", {"x": 1, "y": 2}.keys()),
                ("{'a': 'x'", {"a": "x", "b": "y"}),
                ("<generator", (each for each in "xy")),
            )
        ),
        (ASKED, {"a"}, "expected a list of answers, got set"),
        ({"question": "", "choices": ["a", "b"]}, None, "a text that is not empty"),
        ({"question": "Which?", "choices": ["a", "b"]}, ["a", "b"], "expected an answer to each of 1 questions, got 2"),
        ({"question": "Which?", "choices": ["a", "b"]}, [1], "expected answers as text, got int"),
        (ASKED, ["\ud800"], "the answer to question 0: expected text that UTF-8 can hold"),
        ({**ASKED, "id": ["x"]}, None, "expected an id as text or a whole number, got"),
        ({**ASKED, "subject": 3}, None, "expected a subject as text, got int 3"),
        ({**ASKED, "given": "a"}, ["b"], "it has the answer 'a' in 'given', and 'b' was given beside it"),
        (ASKED, "a", "expected a list of answers, got str 'a'"),
        ({"question": "word " * 17_000, "choices": ["a", "b"]}, None, "context"),
    ],
)
def test_what_python_refuses(whole_run: WholeRun, question: object, answers: object, told: str) -> None:
    head = load_head(whole_run.head(), device="cpu")
    assert head.score([]).shape == (0,)
    with pytest.raises(UserError, match=told):
        head.score([question], answers)  # type: ignore[list-item,arg-type]


def test_a_letter_that_is_written_otherwise_is_scored_as_that_letter(
    scored: Scored, whole_run: WholeRun, tmp_path: Path
) -> None:
    """The model reads `A` where its own answers are `a`, and would say another number of the same option."""
    spellings = ("A", "a", " (a) ", "b.", "B", "b")
    rows = [{**ASKED, "id": str(i), "given": each} for i, each in enumerate(spellings)]
    *lines, told = scored(written(tmp_path / "asked.jsonl", *rows))
    assert [line["answer"] for line in lines] == [*"aaabbb"]
    sure = [line["confidence"] for line in lines]
    assert sure[:3] == [sure[0]] * 3
    assert sure[3:] == [sure[3]] * 3
    assert "given answers that are a letter written otherwise (A for a), scored as it: 4" in told["notes"]  # type: ignore[operator]
    head = load_head(whole_run.head("lts--demo--s0"), device="cpu")
    np.testing.assert_allclose(head.score([ASKED] * 6, spellings), np.asarray(sure, dtype=float), atol=1e-6)


@pytest.mark.parametrize("answer", ["c", "zzz", "The answer is b", "another", "ab"])
def test_an_answer_that_is_no_option_gets_no_number(
    scored: Scored, whole_run: WholeRun, tmp_path: Path, answer: str
) -> None:
    with pytest.raises(UserError, match=rf"question 'asked:0': expected one of a, b as its answer, got '{answer}'"):
        load_head(whole_run.head("lts--demo--s0"), device="cpu")(ASKED, answer)
    line, told = scored(written(tmp_path / "asked.jsonl", {**ASKED, "given": answer}))
    assert (line["answer"], line["confidence"], line["note"]) == (answer, None, "the answer is no option's letter")
    assert "given answers that are no option's letter, not scored: 1" in told["notes"]  # type: ignore[operator]


def test_answers_are_not_given_to_a_head_that_does_not_read_them(
    scored: Scored, whole_run: WholeRun, tmp_path: Path
) -> None:
    """P(IK) reads the prompt's end: every answer, one that is no option too, would have one number."""
    told = (
        r"expected no answers, got 1: method 'pik' of head .*/pik--demo--s0 does not read the answer.* leave them out"
    )
    head = load_head(whole_run.head(), device="cpu")
    with pytest.raises(UserError, match=told):
        head(ASKED, "b")
    with pytest.raises(UserError, match=told):
        scored(written(tmp_path / "asked.jsonl", ASKED | {"given": "a"}, ASKED), "pik--demo--s0")
    own, _ = scored(written(tmp_path / "asked.jsonl", ASKED), "pik--demo--s0")
    assert head(ASKED) == pytest.approx(own["confidence"], abs=1e-6)


def test_equal_options_are_told(scored: Scored, whole_run: WholeRun, tmp_path: Path) -> None:
    """As in tasks, some of which have such questions, they stay."""
    twice = {**ASKED, "choices": ["red", "blue", " red"], "given": "a"}
    line, _, told = scored(written(tmp_path / "asked.jsonl", twice, {**ASKED, "given": "b"}))
    assert isinstance(line["confidence"], float)
    assert "questions with two equal options, scored all the same: 1" in told["notes"]  # type: ignore[operator]
    with pytest.warns(UserWarning, match="1 questions have equal options, such as 'asked:0'"):
        load_head(whole_run.head("lts--demo--s0"), device="cpu")(twice)


def test_two_questions_of_one_id_are_refused_in_python(whole_run: WholeRun) -> None:
    """The confidence of the second would stand at both."""
    head = load_head(whole_run.head(), device="cpu")
    for first in ("x", "asked:1"):
        other = ASKED if first == "asked:1" else {**ASKED, "id": "x"}
        with pytest.raises(UserError, match=rf"ids of their own, got '{first}' twice"):
            head.score([{**ASKED, "id": first}, other], ["a", "b"])


def test_an_answer_that_a_question_brings_is_scored(whole_run: WholeRun) -> None:
    """Rows of a file for `bench score` mean the same in Python; the model's own answer would be another number."""
    head = load_head(whole_run.head("lts--demo--s0"), device="cpu")
    a, b = head.score([ASKED, ASKED], ["a", "b"])
    brought = head.score([{**ASKED, "given": "a"}, {**ASKED, "given": "b", "choices": np.array(ASKED["choices"])}])
    assert brought.tolist() == [a, b]
    assert a != b


# --- fidelity ---------------------------------------------------------------------------------------------------------


def test_the_same_setting_changes_nothing(whole_run: WholeRun) -> None:
    found = check(whole_run.head("lts+isotonic--demo--s0"), CPU, Silent())
    assert (found.passed, found.questions, found.prompts_differ, found.flips) == (True, 24, 0, 0)
    assert found.confidence_max < 1e-6
    assert max(drift.largest for drift in found.states.values()) < 1e-5
    assert len(found.states) == 4


def test_another_setting_is_measured_and_judged(whole_run: WholeRun) -> None:
    folder = whole_run.head("logistic-probe--demo--s0")
    setting = replace(CPU, dtype="bfloat16", plain=True, attention="eager")
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


@pytest.mark.parametrize(
    ("confidence", "states", "complaint"),
    [
        (0.019, 0.019, ""),
        (0.021, 0.0, "a confidence differs by 0.021"),
        (0.0, 0.021, "states of the .* differ by 0.021 on average"),
    ],
)
def test_a_check_tolerates_two_percent(
    whole_run: WholeRun, monkeypatch: pytest.MonkeyPatch, confidence: float, states: float, complaint: str
) -> None:
    folder = whole_run.head()
    then = reference_questions.read(folder)
    moved = {name: values / (1 + states) for name, values in then.states.items()}
    monkeypatch.setattr(
        reference_questions, "read", lambda _: replace(then, confidence=then.confidence - confidence, states=moved)
    )
    found = check(folder, CPU, Silent())
    assert re.fullmatch(complaint, "; ".join(found.complaints))


def test_a_check_counts_confidences_that_change_sides(whole_run: WholeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the run are mirrored at 0.5, but for the first ten."""
    folder = whole_run.head()
    then = reference_questions.read(folder)
    mirrored = np.where(np.arange(24) < 10, then.confidence, 1 - then.confidence)
    monkeypatch.setattr(reference_questions, "read", lambda _: replace(then, confidence=mirrored))
    found = check(folder, CPU, Silent())
    assert found.flips == 14
    assert " 14 change sides at 0.5" in " ".join(found.lines())


def test_another_model_is_told_apart(whole_run: WholeRun, tmp_path: Path, small_model: Path) -> None:
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


def test_commands_print_scores_and_end_with_their_codes(whole_run: WholeRun, scores: Path, tmp_path: Path) -> None:
    head, env = whole_run.head("lts--demo--s0"), {"CONFBENCH_CACHE": str(scores)}
    asked = written(tmp_path / "asked.jsonl", {"question": "Which?", "choices": ["red", "blue"], "given": "a"})
    out = tmp_path / "scores.jsonl"
    device = ["--device", "cpu"]
    printed = CliRunner().invoke(app, ["score", str(asked), "--head", str(head), *device], env=env)
    kept = CliRunner().invoke(app, ["score", str(asked), "--head", str(head), "--out", str(out), *device], env=env)
    assert (printed.exit_code, kept.exit_code, kept.stdout) == (0, 0, "")
    assert printed.stdout == out.read_text(encoding="utf-8")
    assert json.loads(printed.stdout)["answer"] == "a"
    assert "1 of 1 questions scored" in printed.stderr
    same = CliRunner().invoke(app, ["score", str(asked), "--head", str(head), "--out", str(asked)])
    assert isinstance(same.exception, UserError)
    assert asked.read_text(encoding="utf-8").count("Which?") == 1
    nowhere = CliRunner().invoke(app, ["score", str(asked), "--head", str(head), "--out", str(tmp_path / "a" / "b")])
    assert "make it first" in str(nowhere.exception)
    well = CliRunner().invoke(app, ["head", "check", str(head), *device, "--json"])
    assert (well.exit_code, json.loads(well.stdout)["passed"]) == (0, True)
    badly = CliRunner().invoke(app, ["head", "check", str(head), *device, "--plain", "--tolerance", "-1"])
    assert isinstance(badly.exception, UserError)
    off = CliRunner().invoke(app, ["head", "check", str(head), *device, "--dtype", "bfloat16", "--tolerance", "1e-9"])
    assert off.exit_code == 1
    assert off.stdout.strip().splitlines()[-1].startswith("NOT OK")
    shown = CliRunner().invoke(app, ["head", "show", str(head), "--json"])
    assert json.loads(shown.stdout)["method"]["name"] == "lts"
    assert "95 % interval" in CliRunner().invoke(app, ["head", "show", str(head)]).stdout


# --- guards -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(whole_run: WholeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the run's: a guard is made of every result."""
    others = shutil.ignore_patterns("partial", "ptrue*", "sequence*", "saplma*", "*temperature*")
    return Path(shutil.copytree(whole_run.out, tmp_path_factory.mktemp("results") / "out", ignore=others))


def guard(results: Path, head: Path, *words: str) -> Result:
    words = ("--results", str(results), "--head", str(head), *words)
    return CliRunner().invoke(app, ["guard", *words], env={"CONFBENCH_CACHE": str(head.parent / "guards")})


def test_a_guard_enters_the_card_and_every_scored_line(
    whole_run: WholeRun, results: Path, scores: Path, copy: Path, tmp_path: Path
) -> None:
    before = (copy / CARD).read_text(encoding="utf-8")
    assert json.loads(before)["guard"] is None
    done = guard(results, copy, "--risk", "0.3", "--level", "0.5", "--share", "0.6", "--split-seed", "7")
    assert done.exit_code == 0, done.output
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
    values, older = json.loads((copy / CARD).read_text(encoding="utf-8")), json.loads(before)
    assert {key: value for key, value in values.items() if key not in {"guard", DIGEST}} == {
        key: value for key, value in older.items() if key not in {"guard", DIGEST}
    }
    middle = Path(shutil.copytree(whole_run.head("lts--demo--s0"), tmp_path / "middle"))
    write_guard(middle, replace(own, threshold=0.5))
    asked = list(questions(whole_run).values())[:8]
    rows: list[dict[str, object]] = [
        {"id": q.id, "question": q.text, "choices": q.choices, "subject": q.subject} for q in asked
    ]
    rows += [{"id": "long", "question": "word " * 17_000, "choices": ["red", "blue"], "subject": SUBJECTS[0]}]
    rows[0]["given"], rows[1]["given"], rows[2]["given"] = "a", "zzz", ""
    report = score(written(tmp_path / "asked.jsonl", *rows), middle, None, CPU, Silent(), scores)
    lines = [json.loads(line) for line in report.lines]
    assert [line["trusted"] for line in lines[:3]] == [None] * 3
    assert [line["trusted"] for line in lines[3:]] == [(line["confidence"] or 0) >= 0.5 for line in lines[3:]]
    assert lines[-1]["trusted"] is False
    assert {line["guard"] for line in lines} == {f"{own.task}: risk 0.3, level 0.5, threshold 0.5"}
    told = " ".join(report.notes)
    assert f": {sum(line['trusted'] is True for line in lines)}" in told
    assert "of 3 answers that were given to it it guarantees" in told
    assert "threshold" in CliRunner().invoke(app, ["head", "show", str(middle)]).stdout


def test_a_guard_says_nothing_of_an_answer_that_is_no_letter(copy: Path) -> None:
    write_guard(copy, replace(BEES, threshold=0.1))
    head = SimpleNamespace(card=read_card(copy), name="lts")
    answers = [Answer(text, letter, False, parsed=letter is not None) for text, letter in (("A", "A"), ("so", None))]
    questions = [SimpleNamespace(id=str(k)) for k in range(2)]
    scored = SimpleNamespace(questions=questions, answers=answers, confidence=np.array([0.9, 0.9]), too_long={})
    assert [line["trusted"] for line in score_file._output_lines(scored, head, {})] == [True, None]
    assert [line["trusted"] for line in score_file._output_lines(scored, head, {"0": None})] == [None, None]  # given


def test_a_guard_of_another_task_names_no_share(whole_run: WholeRun, copy: Path, tmp_path: Path) -> None:
    cell = whole_run.cell()
    row, records = files.read(cell), files.read_records(cell)
    place = tmp_path / "out" / cell.relative_to(whole_run.out).parent
    place.mkdir(parents=True)
    for path in (cell, cell.with_suffix(".parquet")):
        shutil.copy(path, place)
    other = replace(records, id=[f"other/{key}" for key in records.id])
    files.write(replace(row, task="other", questions_digest=None), other, tmp_path / "out")
    done = guard(tmp_path / "out", copy, "--risk", "0.3", "--level", "0.5", "--calibrate-on", "other")
    assert done.exit_code == 0, done.exception
    own = read_card(copy).guard
    assert own is not None
    assert (own.task, own.answers, own.share, own.split_seed) == ("other", 24, None, None)


BEES = GuardCard(
    threshold=0.7, risk=0.1, level=0.9, bound=0.09, task="bees", answers=50, kept=40, mistakes=1, share=0.5,
    split_seed=0,
)  # fmt: skip


def test_an_answer_at_the_threshold_is_trusted(whole_run: WholeRun) -> None:
    sure = np.array([0.7, np.nextafter(0.7, 0), np.nan])
    assert [BEES.trusts(each, own=True) for each in sure.tolist()] == [True, False, False]
    assert [BEES.trusts(each, own=False) for each in sure.tolist()] == [None, None, None]
    (note,) = guard_notes(BEES, 1, provided=0, unknown_subjects=0)
    assert note.endswith("calibrated on 50 answers of bees: 1")


@pytest.mark.parametrize(
    ("given", "unknown", "beyond"),
    [
        (3, 0, "of 3 answers that were given to it it guarantees nothing"),
        (0, 2, "of 2 questions of other subjects it guarantees nothing"),
        (3, 2, "of 3 answers that were given to it and 2 questions of other subjects it guarantees nothing"),
    ],
)
def test_a_guard_names_what_it_guarantees_nothing_of(
    whole_run: WholeRun, given: int, unknown: int, beyond: str
) -> None:
    _, note = guard_notes(BEES, 1, given, unknown)
    assert note.endswith(f"the model's own answers to questions like those of bees; {beyond}")


def test_a_guard_that_fails_leaves_the_head_as_it_was(results: Path, copy: Path) -> None:
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    for words, told in (
        (("--risk", "0.001"), "no threshold of .* keeps mistakes to 0.1 %"),
        (("--method", "lts"), "none of these guards is of the result of its run"),
        (("--level", "2"), "--level: expected a chance"),
    ):
        done = guard(results, copy, *words)
        assert isinstance(done.exception, UserError)
        assert re.search(told, str(done.exception)), done.exception
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_a_killed_guard_leaves_a_head_that_can_be_read(results: Path, copy: Path) -> None:
    """A new card that was not finished lies beside the old one, and goes with the next guard."""
    (copy / f".0a1b2c3d.{machine_id()}.999999999.tmp").write_text("half", encoding="utf-8")
    assert read_card(copy).guard is None
    assert guard(results, copy, "--risk", "0.6", "--level", "0.5").exit_code == 0
    assert read_card(copy).guard is not None
    assert not list(copy.glob(".*.tmp"))


def test_a_damaged_head_gets_no_guard(results: Path, copy: Path) -> None:
    altered("kept.json")(copy)
    done = guard(results, copy, "--risk", "0.6", "--level", "0.5")
    assert "kept.json was altered" in str(done.exception)
    assert json.loads((copy / CARD).read_text(encoding="utf-8"))["guard"] is None


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "head"

    def fails(folder: Path) -> None:
        (folder / "half").write_text("1", encoding="utf-8")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_folder_atomic(path, fails)
    assert list(tmp_path.iterdir()) == []
    write_folder_atomic(path, lambda folder: (folder / "whole").write_text("1", encoding="utf-8"))
    with pytest.raises(OSError, match="No space"):
        write_folder_atomic(path, fails)
    assert [file.name for file in path.iterdir()] == ["whole"]
    write_folder_atomic(path, lambda folder: (folder / "other").write_text("1", encoding="utf-8"))
    assert [file.name for file in path.iterdir()] == ["other"]


def test_what_a_killed_process_left_goes_with_the_next(tmp_path: Path) -> None:
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
    write_folder_atomic(tmp_path / "head", lambda folder: (folder / "whole").write_text("1", encoding="utf-8"))
    assert [path.name for path in tmp_path.iterdir()] == ["head"]
