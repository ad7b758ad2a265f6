"""Result files are believed only as far as their records, their questions and what is registered bear them out."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import metrics, registry
from bench.api import Format, PromptStyle, Question, Split, Task, TaskCard, UserError
from bench.api.early_stopping import TrainingStage
from bench.api.protocol import FIXED, PRESETS, KeptStep
from bench.metrics.recalibration import create_recalibrator
from bench.model.cost import StageTokens
from bench.results import files, provenance, question_texts
from bench.results.question_records import QuestionRecords
from bench.results.row import LabelsSeen, Training
from bench.results.submissions import SubmissionVerdict, check_results, metadata_checks
from bench.results.submissions.recomputation import recompute_row
from bench.store.disk_cache import with_digest
from tests.kit import command, refusals, world

SHA = "a" * 40
summarise = metrics.summarise
SCORES: dict[object, metrics.Scores] = {}


@functools.wraps(summarise)
def remembered(confidence: Any, correct: Any, subjects: Any, protocol: Any, score: Any) -> metrics.Scores:
    """As it is; most cells of a folder that was tampered with are those of the honest one."""
    arrays = [None if array is None else array.tobytes() for array in (confidence, score, correct)]
    key = (*arrays, tuple(subjects), protocol)
    if key not in SCORES:
        SCORES[key] = summarise(confidence, correct, subjects, protocol, score)
    return SCORES[key]


N = 40
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
CARD = TaskCard(
    license="CC0-1.0", version=3, splits={s: s for s in SPLITS}, sizes={"train": 90, "validation": 30, "test": N},
    options=(4, 4), why="For tests.",
)  # fmt: skip


class Choice(Task):
    """Forty invented questions with four options."""

    name: ClassVar[str] = "rivers-choice"
    format: ClassVar[Format] = Format.CHOICE
    card: ClassVar[TaskCard] = CARD
    style: ClassVar[PromptStyle] = PromptStyle(header="{label}", footer="", context="{text}\n{options}")

    def questions(self, split: Split) -> Iterator[Question]:
        for i in range(self.card.sizes[split]):
            choices = tuple(f"{word} {i}" for word in ("Tove", "Kiru", "Bamo", "Lun"))
            yield Question(f"{split}/{i}", "hills" if i % 2 else "coasts", f"Where does {i} end?", choices, i % 4)


class Open(Choice):
    """The same without options."""

    name: ClassVar[str] = "rivers-oe"
    format: ClassVar[Format] = Format.OPEN
    style: ClassVar[PromptStyle] = PromptStyle(header="{label}", footer="", context="{text}")


class Elsewhere(Choice):
    """A task whose rows are on the Hub."""

    name: ClassVar[str] = "far-choice"
    card: ClassVar[TaskCard] = replace(CARD, hub="a/b", revision="0" * 40, folder="far")


TRAINED = Training((TrainingStage("", 100, 100, 50, 5.0, (25, 50, 100), (0.6, 0.5, 0.55)),), 0.45, 0.50001, 0.65)
"""Its validation loss differs from the smallest of its training in float32's last digits."""
TASKS: tuple[type[Choice], ...] = (Choice, Open, Elsewhere)


@pytest.fixture(scope="module")
def known() -> tuple[registry.Registry[Any], registry.Registry[Any]]:
    methods, _ = registry.built_in()
    entries = [registry.PluginEntry(task.name, task, task.__module__, registry.BUILT_IN) for task in TASKS]
    return methods, registry.Registry(registry.TASK, entries)


@pytest.fixture(autouse=True)
def _registered(known: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONFBENCH_DATA", raising=False)
    monkeypatch.setattr(registry, "built_in", lambda: known)
    monkeypatch.setattr(provenance, "has_commit", lambda _, sha: sha == SHA)
    monkeypatch.setattr(metrics, "summarise", remembered)


# --- an honest folder -------------------------------------------------------------------------------------------------


def questions_of(task: type[Choice]) -> list[Question]:
    return list(task(None).questions("test"))  # type: ignore[arg-type]


def answered(task: type[Choice], confidence: Any) -> QuestionRecords:
    """What one model says to the questions; two of three answers are right."""
    questions = questions_of(task)
    said = [q.gold if i % 3 else (q.gold + 1) % 4 for i, q in enumerate(questions)]
    correct = [k == q.gold for k, q in zip(said, questions, strict=True)]
    return world.question_records(
        confidence, correct, id=[q.id for q in questions], subject=[q.subject for q in questions],
        answer=["abcd"[k] if task.format is Format.CHOICE else questions[i].choices[k] for i, k in enumerate(said)],
    )  # fmt: skip


def put(folder: Path, method: str, task: type[Choice] = Choice, *, seed: int = 0, **changes: Any) -> Path:
    """A result as a run writes it."""
    drawn = np.random.default_rng([len(method), 0 if method in {"ptrue", "lts"} else seed]).random(N)
    records = answered(task, changes.pop("confidence", np.round(drawn, 3)))
    trains = method.partition("+")[0] not in {"ptrue", "self-consistency"}
    split = "validation" if method == "lts" else "train"
    labels = {split: 30} | ({"validation": 30} if method == "ccps" else {}) if trains else {}
    lettered = task.format is Format.CHOICE
    texts = [question_texts.of(q, task.style, task.format, FIXED.letters) for q in questions_of(task)]
    question_texts.write(task.name, task.card.version, texts, folder)
    usual: dict[str, Any] = {
        "task": task.name, "task_version": task.card.version, "train_on": f"{task.name}/{split}" if trains else None,
        "labels_seen": LabelsSeen(**labels), "base_rate": 0.6 if trains else None,
        "training": (TRAINED if method == "ccps" else Training()) if trains else None,
        "judge": None if lettered else "match", "n_undecided": None if lettered else 0,
        "letter_rule_disagreement": 0.0 if lettered else None, "chance_accuracy": 0.25 if lettered else None,
        "test_forward_tokens": 30, "test_generated_tokens": 20,
        "n_parameters": (1 if method == "lts" else 900) if trains else 0,
        "cost": {"answers": StageTokens(70, 80, 60)}, "forward_tokens_alone": 55,
        "generated_tokens_alone": 500 if method == "self-consistency" else 40,
        "questions_digest": question_texts.digest(texts), "provenance": {"code": {"git_sha": SHA, "dirty": False}},
    }  # fmt: skip
    row = world.result_row(method, seed=seed, **{**usual, **changes})
    return files.write(recompute_row(row, records), records, folder)


def put_recalibrated(folder: Path, path: Path, kind: str = "isotonic") -> Path:
    row, records = files.read(path), files.read_records(path)
    mended = create_recalibrator(kind).fit(records.confidence, records.correct).apply(records.confidence)
    records = replace(records, confidence=mended)
    row = replace(row, method=f"{row.method}+{kind}", labels_seen=replace(row.labels_seen, validation=30))
    return files.write(recompute_row(row, records), records, folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest")
    for seed in (0, 1):
        put(folder, "ptrue", seed=seed)
        put(folder, "self-consistency", seed=seed)
        path = put(folder, "ccps", seed=seed)
    put_recalibrated(folder, path)
    put(folder, "lts")
    put(folder, "lts", seed=1)
    put(folder, "ptrue", Open)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "results"))


def complaints(folder: Path) -> dict[str, str]:
    """File -> its problems."""
    return {verdict.file: "; ".join(verdict.problems) for verdict in check_results(folder) if verdict.problems}


def test_an_honest_folder_passes(folder: Path) -> None:
    verdicts = check_results(folder)
    assert not [verdict for verdict in verdicts if verdict.problems or verdict.unchecked]
    assert len(verdicts) == 10 + 2
    assert verdicts[0] == SubmissionVerdict("questions/rivers-choice--v3.parquet", ())


# --- tampering --------------------------------------------------------------------------------------------------------

CCPS = "tiny/rivers-choice/ccps--demo--s0"
OPEN = "tiny/rivers-oe/ptrue--demo--s0"
ISOTONIC = "tiny/rivers-choice/ccps+isotonic--demo--s1"
Tamper = Callable[[Path], object]
SAMPLED = "tiny/rivers-choice/self-consistency--demo--s0"
SECTION = "Submissions that were tampered with"


def change_value(values: dict[str, Any], keys: Sequence[str], change: Callable[[Any], Any]) -> None:
    for key in keys[:-1]:
        values = values[key]
    values[keys[-1]] = change(values.get(keys[-1]))


def edited(change: Callable[[dict[str, Any]], object], name: str = CCPS) -> Tamper:
    """The JSON file alone is changed."""

    def tamper(folder: Path) -> None:
        path = folder / f"{name}.json"
        values = json.loads(path.read_text(encoding="utf-8"))
        change(values)
        path.write_text(json.dumps(with_digest(values)), encoding="utf-8")

    return tamper


def said(*keys: str, to: Any, name: str = CCPS) -> Tamper:
    """One value of the JSON file is changed."""
    return edited(lambda values: change_value(values, keys, lambda _: to), name)


def nudged(*keys: str) -> Tamper:
    """One number of the JSON file is larger by a millionth."""
    return edited(lambda values: change_value(values, keys, lambda value: value + 1e-6))


def forged(
    change: Callable[[QuestionRecords], QuestionRecords] = lambda records: records, name: str = CCPS, **fields: Any
) -> Tamper:
    """Records and fields are changed, and every number that follows from them is computed again."""

    def tamper(folder: Path) -> None:
        path = folder / f"{name}.json"
        row, records = files.read(path), change(files.read_records(path))
        row = replace(row, **fields)
        if fields and files.path_of(row, folder) != path:
            path.unlink()
            path.with_suffix(".parquet").unlink()
        files.write(recompute_row(row, records), records, folder)

    return tamper


def columns(table: Callable[[pa.Table], pa.Table], name: str = CCPS) -> Tamper:
    """The Parquet file alone is changed; the JSON file has its digest."""

    def tamper(folder: Path) -> None:
        path = folder / f"{name}.parquet"
        pq.write_table(table(pq.read_table(path)), path)
        said("records_digest", to=hashlib.sha256(path.read_bytes()).hexdigest(), name=name)(folder)

    return tamper


def first_rows(records: QuestionRecords) -> QuestionRecords:
    return records.take(np.arange(30))


def jittered(size: float) -> Callable[[QuestionRecords], QuestionRecords]:
    """Every second confidence a little larger: what was a step of isotonic regression now falls here and there."""
    return lambda r: replace(r, confidence=np.minimum(r.confidence + size * (np.arange(len(r.id)) % 2), 1.0))


def invented(records: QuestionRecords) -> QuestionRecords:
    return replace(records, id=[f"mine/{i}" for i in range(N)])


def flipped(records: QuestionRecords) -> QuestionRecords:
    return replace(records, correct=np.concatenate([~records.correct[:9], records.correct[9:]]))


def copied(method: str = "ccps", seed: int = 0, name: str = CCPS, **fields: Any) -> Tamper:
    def tamper(folder: Path) -> None:
        path = folder / f"{name}.json"
        row = replace(files.read(path), method=method, seed=seed, **fields)
        files.write(row, files.read_records(path), folder)

    return tamper


def renamed(**fields: Any) -> Tamper:
    """The JSON file says something else, and its files are named accordingly."""

    def tamper(folder: Path) -> None:
        path = folder / f"{CCPS}.json"
        row, records = files.read(path), files.read_records(path)
        path.unlink()
        path.with_suffix(".parquet").unlink()
        files.write(replace(row, **fields), records, folder)

    return tamper


def other_questions(
    change: Callable[[question_texts.QuestionText], question_texts.QuestionText], *, sign: bool = False
) -> Tamper:
    """Kept questions are changed, and on demand the digests in all results with them."""

    def tamper(folder: Path) -> None:
        kept = [change(q) for q in question_texts.read(folder, "rivers-choice", 3).values()]
        question_texts.path_of("rivers-choice", 3, folder).unlink()
        question_texts.write("rivers-choice", 3, kept, folder)
        if sign:
            for path in folder.glob("tiny/rivers-choice/*.json"):
                said("questions_digest", to=question_texts.digest(kept), name=str(path.relative_to(folder))[:-5])(
                    folder
                )

    return tamper


def alone(tamper: Tamper) -> Tamper:
    """No other cell is there to compare with."""

    def only(folder: Path) -> None:
        for path in [*folder.glob("tiny/*/*.json"), *folder.glob("tiny/*/*.parquet")]:
            if path.stem not in {Path(CCPS).stem, Path(OPEN).stem}:
                path.unlink()
        tamper(folder)

    return only


def orphan(folder: Path) -> None:
    shutil.copy(folder / f"{CCPS}.parquet", folder / "tiny/rivers-choice/ghost--demo--s0.parquet")


def undo_question(q: question_texts.QuestionText) -> question_texts.QuestionText:
    return replace(q, gold="b") if q.id == "test/0" else q


TAMPERINGS: dict[str, Tamper] = {
    # training and labels, which decide marks and ranks
    "no training": forged(training=None),
    "other step": forged(training=replace(TRAINED, stages=(replace(TRAINED.stages[0], kept=100),))),
    "cut short": forged(training=replace(TRAINED, stages=(replace(TRAINED.stages[0], cut_short=True),))),
    "validation loss": forged(training=replace(TRAINED, validation_nll=0.501)),
    "base rate": forged(base_rate=0.05),
    "base rate above one": alone(forged(base_rate=5.0)),
    "base rate below zero": alone(forged(base_rate=-1.0)),
    "labels of others": forged(labels_seen=LabelsSeen(1, 30)),
    "gold": forged(labels_seen=LabelsSeen(30, 30, 30)),
    "negative labels": alone(forged(labels_seen=LabelsSeen(30, -29))),
    "labels beyond the limit": forged(config={"train_limit": "20+20"}),
    "no limit": forged(config={"train_limit": "few"}),
    "selection": forged(labels_seen=LabelsSeen(30, 0)),
    # numbers
    "metric": said("metrics", "auroc", "mean", to=0.99),
    "metric, a little": nudged("metrics", "ece", "mean"),
    "std": said("metrics", "ece", "std", to=None),
    "interval": said("metrics", "ece", "ci", to=[0.1, 0.2]),
    "metric of a subject": said("per_subject", "hills", "brier", to=0.001),
    "n of a subject": said("per_subject", "hills", "n", to=31),
    "subject gone": edited(lambda v: v["per_subject"].pop("hills")),
    "n": said("n", to=41),
    "accuracy": said("llm_accuracy", to=0.9),
    "unparsed": said("n_unparsed", to=3),
    "empty": said("n_empty", to=3),
    "less than nothing empty": said("n_empty", to=-1),
    "less than no exemplar dropped": said("n_shots_dropped", to=-1),
    "negative seconds": said("timings", to={"fit": -1.0}),
    "negative memory": said("peak_memory_mb", to=-0.5),
    "letter rule": said("letter_rule_disagreement", to=0.5),
    "accuracy by chance": said("chance_accuracy", to=0.9),
    "accuracy by chance without options": said("chance_accuracy", to=0.25, name=OPEN),
    # records
    "other Parquet file": lambda f: shutil.copy(f / f"{OPEN}.parquet", f / f"{CCPS}.parquet"),
    "digest gone": said("records_digest", to=None),
    "rows dropped": columns(lambda t: t.slice(0, 30)),
    "rows dropped, recomputed": forged(first_rows),
    "rows dropped and called undecided": forged(first_rows, n_undecided=10),
    "labels flipped": columns(lambda t: t.set_column(2, "correct", [[True] * N])),
    "labels flipped, recomputed": alone(forged(flipped)),
    "open labels flipped": alone(forged(flipped, OPEN)),
    "answers of others": forged(flipped),
    "all answers a": alone(forged(lambda r: replace(r, answer=["a"] * N))),
    "answers called unread": forged(lambda r: replace(r, parsed=~r.parsed)),
    "other subjects": forged(lambda r: replace(r, subject=["hills"] * N)),
    "confidence is the label": forged(lambda r: replace(r, confidence=r.correct.astype(float))),
    "confidence separates labels": forged(lambda r: replace(r, confidence=0.4 * r.confidence + 0.5 * r.correct)),
    "question twice": columns(lambda t: t.set_column(0, "id", [["test/1", *t["id"].to_pylist()[1:]]])),
    "foreign ids": forged(invented),
    "column added": columns(lambda t: t.append_column("x", [[1] * N])),
    "NaN": columns(lambda t: t.set_column(3, "confidence", [[float("nan")] * N])),
    "no rows": columns(lambda t: t.slice(0, 0)),
    "no UTF-8": columns(lambda t: t.set_column(4, "answer", pa.array([b"\xff"] * N, pa.binary()).view(pa.string()))),
    "Parquet file gone": lambda f: (f / f"{CCPS}.parquet").unlink(),
    # code
    "dirty": said("provenance", "code", "dirty", to=True),
    "unknown commit": said("provenance", "code", "git_sha", to="0" * 40),
    "no commit": said("provenance", "code", "git_sha", to="--help"),
    "no code": said("provenance", to={}),
    # what it says of itself
    "partial in place": said("limit", to=20),
    "failed": lambda f: files.write(replace(files.read(f / f"{CCPS}.json"), status="failed", reason="no"), None, f),
    "other preset, old name": said("preset", to="paper"),
    "other preset, renamed": renamed(preset="paper"),
    "invented preset": renamed(preset="mine"),
    "task version": said("task_version", to=99),
    "protocol digest": said("protocol", to="0" * 16),
    "deviations": said("deviations", to={"ccps.steps": 9}),
    "hidden deviations": renamed(config={"ccps.steps": 9}),
    "deviation of another": renamed(config={"pik.steps": 9}, deviations={"pik.steps": 9}),
    "deviation of nothing": renamed(config={"ccps.luck": 9}, deviations={"ccps.luck": 9}),
    "impossible deviation": renamed(config={"protocol.ece_bins": "x"}, deviations={"protocol.ece_bins": "x"}),
    "many bins": renamed(config={"protocol.ece_bins": 10**9}, deviations={"protocol.ece_bins": 10**9}),
    "released": said("answers_source", to="released"),
    "own answers called others'": alone(forged(invented, config={"answers": "generate"})),
    "released for other tasks": alone(
        forged(invented, config={"answers": "released@nowhere"}, answers_source="released@nowhere")
    ),
    "dtype its name lacks": said("dtype", to="bfloat16"),
    "dtype of its name alone": renamed(config={"dtype": "float16"}, dtype="float32"),
    "learned on test": said("train_on", to="rivers-choice/test"),
    "learned on test, by its name": renamed(train_on="rivers-choice/test", config={"train_on": "rivers-choice:test"}),
    "learned elsewhere": said("train_on", to="far-choice/train"),
    "untrained learned": said("train_on", to="x/train", name=OPEN),
    "judge of letters": said("judge", to="gpt-4o"),
    "other judge": said("judge", to="gpt-4o", name=OPEN),
    "no labels": said("labels_seen", "train", to=0),
    "labels of the untrained": said("labels_seen", "train", to=9, name=OPEN),
    "validation only": said("labels_seen", "train", to=9, name="tiny/rivers-choice/lts--demo--s0"),
    "labels of nobody": said("labels_seen", "train", to=9_999),
    "parameters": said("n_parameters", to=1),
    "parameters of the untrained": said("n_parameters", to=5, name=OPEN),
    "tokens alone": said("forward_tokens_alone", to=1_000),
    "nothing written": said("generated_tokens_alone", to=0),
    "more written than read": said("generated_tokens_alone", to=71),
    "tokens of the test": said("test_forward_tokens", to=56),
    "tokens written for the test": said("test_generated_tokens", to=41),
    "no tokens of the test": said("test_forward_tokens", to=0),
    "less than no tokens of the test": said("test_forward_tokens", to=-1),
    "nothing written for the test": said("test_generated_tokens", to=0),
    "less than nothing written": said("generated_tokens_alone", to=-1, name=SAMPLED),
    "tokens": said("cost", "answers", "padded_tokens", to=1),
    "schema": said("schema_version", to=1),
    "unknown field": said("surprise", to=1),
    "scores of probabilities": forged(lambda r: replace(r, score=np.arange(float(N)))),
    # copies
    "seed copied": copied(seed=99),
    "sampled seed copied": copied("self-consistency", 99, "tiny/rivers-choice/self-consistency--demo--s1"),
    "method copied": copied("pik"),
    "copied as of fewer labels": copied(config={"train_limit": "20+30"}, labels_seen=LabelsSeen(20, 30)),
    "copied as learned elsewhere": copied(
        config={"train_on": "far-choice:train"}, train_on="far-choice/train", labels_seen=LabelsSeen(30, 20)
    ),
    "file renamed": lambda f: [p.rename(p.with_name(p.name.replace("s0", "s7"))) for p in f.glob(f"{CCPS}.*")],
    # recalibration
    "recalibrated out of nothing": forged(lambda r: replace(r, confidence=r.confidence[::-1].copy()), ISOTONIC),
    "recalibrated a little otherwise": forged(jittered(1e-6), ISOTONIC),
    "recalibrated on other questions": forged(first_rows, ISOTONIC),
    "recalibrated after other labels": said("labels_seen", "train", to=29, name=ISOTONIC),
    "recalibrated with fewer labels": said("labels_seen", "validation", to=29, name=ISOTONIC),
    "recalibrated after another training": said("base_rate", to=0.5, name=ISOTONIC),
    "recalibrated with more parameters": said("n_parameters", to=901, name=ISOTONIC),
    "recalibrated without labels": said("labels_seen", "validation", to=0, name=ISOTONIC),
    "recalibrated by nothing": copied("ccps+luck", 1, ISOTONIC),
    "recalibration of nobody": copied("pik+isotonic", 1, ISOTONIC),
    # questions
    "right answer of a question": other_questions(undo_question),
    "right answer, all signed": other_questions(undo_question, sign=True),
    "text of a question": other_questions(lambda q: replace(q, text=q.text.upper())),
    "digest of questions gone": said("questions_digest", to=None),
    "digest of questions": said("questions_digest", to="0"),
    "orphan": orphan,
    "odd questions file": lambda f: shutil.copy(f / f"{CCPS}.parquet", f / "questions/mine.parquet"),
    "damaged questions": lambda f: question_texts.path_of("rivers-choice", 3, f).write_bytes(b"x"),
}  # fmt: skip


def told(verdict: SubmissionVerdict) -> str:
    """Problems of a file; if many numbers differ, how many."""
    numbers = sorted(text for text in verdict.problems if text.startswith(("metrics.", "per_subject.")))
    others = sorted(set(verdict.problems) - set(numbers))
    return f"{verdict.file}: " + "; ".join(others + (numbers if len(numbers) < 4 else [f"{len(numbers)} numbers"]))


@pytest.mark.parametrize("what", TAMPERINGS)
def test_tampering_is_found(folder: Path, what: str) -> None:
    TAMPERINGS[what](folder)
    found = [told(verdict) for verdict in check_results(folder) if verdict.problems]
    line = f"- {what}: {refusals.stable(' | '.join(found), folder)}"
    if refusals.UPDATING:
        others = [other for other in refusals.golden(SECTION) if not other.startswith(f"- {what}: ")]
        refusals.rewrite(SECTION, sorted([line, *others]))
    assert found
    assert line in refusals.golden(SECTION)


def test_tamperings_are_those_of_the_golden_file() -> None:
    assert len(refusals.golden(SECTION)) == len(TAMPERINGS)


def test_invented_confidences_are_not_found(folder: Path) -> None:
    """The page of results says so."""
    forged(lambda r: replace(r, confidence=0.9 * r.confidence + 0.1 * r.correct))(folder)
    forged(jittered(1e-12), ISOTONIC)(folder)  # recalibration may round otherwise
    assert not complaints(folder)


def test_equal_seeds_and_constants_prove_nothing(tmp_path: Path) -> None:
    for seed in (0, 1):
        put(tmp_path, "lts", seed=seed)
        put(tmp_path, "ccps", seed=seed, confidence=np.full(N, 0.6))
        put(tmp_path, "pik", seed=seed, confidence=np.full(N, 0.6))
    assert not complaints(tmp_path)


@pytest.mark.parametrize(("method", "n", "told"), [("lts", 1, False), ("lts", 900, True), ("ccps", 1, True)])
def test_equal_fits_of_few_parameters_prove_nothing(tmp_path: Path, method: str, n: int, *, told: bool) -> None:
    """LTS learns one number within bounds; at a bound, it is the same whatever it learned from. `ccps` draws."""
    for limit, labels in ({}, 30), ({"train_limit": "20+20"}, 20):
        seen = LabelsSeen(0 if method == "lts" else labels, labels)
        put(tmp_path, method, config=limit, labels_seen=seen, n_parameters=n)
    assert ("which learned from other labels" in "".join(complaints(tmp_path).values())) is told


@pytest.mark.parametrize(
    ("levels", "told"), [((0.4, 0.6), False), ((0.4, 0.6, 0.60001), False), ((0.4, 0.6, 0.7), True)]
)
def test_copies_are_told_by_three_levels(tmp_path: Path, levels: tuple[float, ...], *, told: bool) -> None:
    """Two methods that say yes or no may well agree on all questions."""
    for method in ("ccps", "pik"):
        put(tmp_path, method, confidence=np.resize(levels, N))
    assert any("two methods never have the same" in problems for problems in complaints(tmp_path).values()) is told


def test_other_bins_are_respected(tmp_path: Path) -> None:
    changed = {"protocol.ece_bins": 15}
    digest = replace(PRESETS["demo"], ece_bins=15).digest()
    path = put(tmp_path, "ccps", config=changed, deviations=changed, protocol=digest)
    assert not complaints(tmp_path)
    records = files.read_records(path)
    scores = summarise(records.confidence, records.correct, list(records.subject), FIXED)
    row = replace(files.read(path), metrics=scores.metrics)
    files.write(row, records, tmp_path)
    assert "metrics.ece.mean is" in complaints(tmp_path)[str(path.relative_to(tmp_path))]


def test_settings_of_the_model_are_no_deviations(tmp_path: Path) -> None:
    """Models whose template takes `enable_thinking` and GGUF files with `--tokenizer` record it; neither is refused."""
    config = {"enable_thinking": False, "tokenizer": "org/model@1a2b3c4d", "dtype": "bfloat16"}
    put(tmp_path, "ccps", config=config, dtype="bfloat16")
    assert not complaints(tmp_path)


def test_dtype_is_that_of_numbers_alone(tmp_path: Path) -> None:
    """A method that was skipped or failed says nothing of the weights; its file is named as the run's others."""
    world.write_failure(tmp_path, "ccps", "no", task="rivers-choice", task_version=3, config={"dtype": "float16"})
    assert "; only numbers are committed" in (told := "".join(complaints(tmp_path).values()))
    assert "dtype" not in told


def test_kept_step_is_that_of_the_changed_protocol(tmp_path: Path) -> None:
    changed = {"protocol.kept_step": "validation"}
    digest = replace(PRESETS["paper"], kept_step=KeptStep.VALIDATION).digest()
    put(tmp_path, "ccps", preset="paper", config=changed, deviations=changed, protocol=digest)
    assert "keeps the last step" not in "".join(complaints(tmp_path).values())


@pytest.mark.parametrize(
    "config", [{"tokenizer": "org/model@1a2b3c4d"}, {"parallel": 4}], ids=["tokenizer", "parallel"]
)
def test_other_tokenizer_or_parallel_requests_may_answer_otherwise(tmp_path: Path, config: dict[str, Any]) -> None:
    put(tmp_path, "ptrue")
    path = put(tmp_path, "ccps", config=config)
    records = flipped(files.read_records(path))
    files.write(recompute_row(files.read(path), records), records, tmp_path)
    assert "other cells of tiny" not in "".join(complaints(tmp_path).values())


@pytest.mark.parametrize("config", [{}, {"train_limit": "20+40"}, {"train_on": "far-choice:train"}], ids=str)
def test_base_of_a_recalibration_needs_no_labels(tmp_path: Path, config: dict[str, Any]) -> None:
    """A method that reads no label names no corpus; its recalibrated row names the one whose labels that read."""
    path = put(tmp_path, "ptrue")
    row, records = files.read(path), files.read_records(path)
    mended = create_recalibrator("isotonic").fit(records.confidence, records.correct).apply(records.confidence)
    labels = replace(row.labels_seen, validation=30)
    row = replace(row, method="ptrue+isotonic", labels_seen=labels, config={**row.config, **config})
    records = replace(records, confidence=mended)
    files.write(recompute_row(row, records), records, tmp_path)
    assert "is not beside it" not in "".join(complaints(tmp_path).values())


def test_recalibrations_of_equal_orders_are_no_copies(tmp_path: Path) -> None:
    """`eigenvalues` and `eccentricity` order answers alike where texts are equal or not; so their maps agree."""
    confidence = np.round(np.random.default_rng(3).random(N), 3)
    for method in ("ptrue", "self-consistency"):
        put_recalibrated(tmp_path, put(tmp_path, method, confidence=confidence))
    told = complaints(tmp_path)
    assert all("two methods never have the same" in told[f"tiny/rivers-choice/{m}--demo--s0.json"]
               for m in ("ptrue", "self-consistency"))  # fmt: skip
    assert not any("two methods" in text for name, text in told.items() if "isotonic" in name)


def test_letters_are_graded_by_the_rule_of_the_preset(tmp_path: Path) -> None:
    """By the substring rule an answer without the right letter in it is wrong, and one with it right."""
    put(tmp_path, "ccps", preset="refcode", protocol=PRESETS["refcode"].digest(), training=Training())
    name = "tiny/rivers-choice/ccps--refcode--s0"
    forged(lambda r: replace(r, answer=[f"{a})!" for a in r.answer], parsed=~r.parsed), name)(tmp_path)
    assert not complaints(tmp_path)
    forged(flipped, name)(tmp_path)
    assert "9 of its labels" in complaints(tmp_path)[f"{name}.json"]


def test_partial_results_are_checked_and_named(tmp_path: Path) -> None:
    for folder, said in ((tmp_path, "expected result files, found none"), (tmp_path / "nowhere", "expected a folder")):
        with pytest.raises(UserError, match=said):
            check_results(folder)
    path = put(tmp_path, "ccps", limit=40)
    verdicts = {verdict.file: verdict for verdict in check_results(tmp_path)}
    partial = verdicts.pop(str(path.relative_to(tmp_path)))
    assert partial.file == "partial/tiny/rivers-choice/ccps--demo--s0--n40.json"
    assert not partial.problems
    assert partial.unchecked == ("it is partial (--limit 40): only tables with --partial show it",)
    assert not any(verdict.problems for verdict in verdicts.values())
    texts = [*question_texts.read(tmp_path, Choice.name, Choice.card.version).values()]
    question_texts.path_of(Choice.name, Choice.card.version, tmp_path).unlink()
    question_texts.write(Choice.name, Choice.card.version, texts[:20], tmp_path)  # those of a partial run alone
    assert not complaints(tmp_path)


# --- what can't be checked --------------------------------------------------------------------------------------------


def unchecked(folder: Path) -> str:
    assert not complaints(folder)
    return "; ".join(text for verdict in check_results(folder) for text in verdict.unchecked)


def test_foreign_methods_and_tasks_are_named_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(registry.importlib, "import_module", seen.append)
    for seed in (0, 1):
        put(tmp_path, "ghost", seed=seed, task=Elsewhere)
    monkeypatch.setattr(Elsewhere, "name", "nowhere")
    put(tmp_path, "ptrue", task=Elsewhere)
    said = unchecked(tmp_path)
    assert "method ghost is not built in: what it declares" in said
    assert "task nowhere is not built in: its version, format and size" in said
    assert "questions of far-choice against the task's own: name its data with --data-dir" in said
    assert "questions of nowhere against the task's own: nowhere v3 is not built in" in said
    assert "whether two of its seeds may give the same" not in said
    put(tmp_path, "ghost", seed=2, task=Elsewhere)
    copied("ghost", 3, "tiny/nowhere/ghost--demo--s2")(tmp_path)
    assert "ghost is not built in: whether two of its seeds may give the same" in unchecked(tmp_path)
    assert not seen


def test_data_at_hand_are_compared(tmp_path: Path) -> None:
    put(tmp_path, "ptrue", task=Elsewhere)
    (tmp_path / "data").mkdir()
    said = [verdict.unchecked for verdict in check_results(tmp_path, tmp_path / "data") if verdict.unchecked]
    assert not said
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Elsewhere, "questions", lambda self, split: self.source.rows(self.card, split, ()))
        (said,) = (verdict.unchecked for verdict in check_results(tmp_path, tmp_path / "data") if verdict.unchecked)
    assert "Expected the file far/test.parquet in the folder given by --data-dir" in said[0]
    question_texts.path_of("far-choice", 3, tmp_path).unlink()
    assert (
        "questions/far-choice--v3.parquet is not there" in complaints(tmp_path)["tiny/far-choice/ptrue--demo--s0.json"]
    )


def test_answers_of_a_release_are_noted_and_of_a_file_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_checks, "task_folders", lambda: {Choice.name: "RIVERS"})
    code = {"git_sha": None, "record_digest": "0" * 64}
    released = {"answers_source": "released", "config": {"answers": "released"}, "questions_digest": None}
    put(tmp_path / "a", "ccps", provenance={"code": code}, **released)
    noted = unchecked(tmp_path / "a")
    assert "its answers and labels are a release's" in noted
    assert "made by an installed wheel" in noted
    (refused,) = complaints(put(tmp_path / "c", "ccps", model="mine", **released).parents[2]).values()
    assert "its config has answers released, which no run of mine on rivers-choice has" in refused
    source = {"answers_source": "file:qwen-3fa9c1", "config": {"answers": "file:qwen-3fa9c1"}}
    put(tmp_path / "b", "ccps", questions_digest=None, **source)
    (refused,) = complaints(tmp_path / "b").values()
    assert "its answers are file:qwen-3fa9c1, which nobody else can make again" in refused


def test_labels_and_gaps_of_other_judges_are_noted(tmp_path: Path) -> None:
    put(tmp_path, "lts", Open)
    path = put(tmp_path, "ptrue", Open, judge="hf mine", config={"judge": "hf"})
    assert unchecked(tmp_path) == "judge hf mine graded its answers: whether it gave its labels"
    forged(first_rows, str(path.relative_to(tmp_path))[:-5], n_undecided=10)(tmp_path)
    assert "it leaves out 10 answers (25.0 %) without a verdict: whether the judge gave none" in unchecked(tmp_path)


def test_without_the_whole_history_a_commit_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "ccps")
    told = {tmp_path: None}
    monkeypatch.setattr(provenance, "has_commit", lambda place, _: told.get(place))
    assert "no git repository with its whole history is here" in unchecked(tmp_path)


# --- hostile files ----------------------------------------------------------------------------------------------------

HOSTILE: dict[str, Tamper] = {
    "code a text": said("provenance", "code", to="x"),
    "code null": said("provenance", "code", to=None),
    "sha a list": said("provenance", "code", "git_sha", to=[["x"]]),
    "deep config": said("config", to=json.loads('{"a":' * 400 + "1" + "}" * 400)),
    "deviations of any kind": said("deviations", to={"protocol.ece_bins": [1], "protocol.": {}, "": 1, "a.b.c": None}),
    "negative bins": said("deviations", to={"protocol.ece_bins": -1, "protocol.std_ddof": -(10**300)}),
    "train_on a list": said("config", to={"train_on": ["x"], "judge": {}, "answers": 1, "dtype": []}),
    "surrogates": said("model", to="\ud800"),
    "surrogates in a subject": edited(lambda v: v["per_subject"].update({"\ud800\x1b[2J": {"n": 1}})),
    "method of a path": said("method", to="../../x"),
    "task of a path": said("task", to="../../x"),
    "huge numbers": said("seed", to=10**4000),
    "negative version": said("task_version", to=-1),
    "infinite": edited(lambda v: v.update(llm_accuracy=1e999)),
    "empty plus": said("method", to="+"),
    "method plus plus": said("method", to="ccps++isotonic"),
    "long": said("reason", to="x" * 10**6),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files_are_named_alone(folder: Path, what: str) -> None:
    HOSTILE[what](folder)
    if what == "infinite":
        path = folder / f"{CCPS}.json"
        path.write_text(path.read_text(encoding="utf-8").replace("Infinity", "1e999"), encoding="utf-8")
    verdicts = check_results(folder)
    (problems,) = (verdict.problems for verdict in verdicts if verdict.file == f"{CCPS}.json")
    assert bool(problems) != (what == "long")
    assert all(text.isprintable() and len(text) <= 400 for verdict in verdicts for text in verdict.problems)
    assert sum(bool(verdict.problems) for verdict in verdicts) <= 2  # its recalibration may miss it


def test_check_says_problems_and_what_it_could_not_check(tmp_path: Path) -> None:
    put(tmp_path, "ghost")
    passed = command.bench("check", "--results", tmp_path)
    assert passed.returncode == 0
    assert "2 of 2 files may be submitted" in passed.stdout
    assert "not checked: method ghost is not built in: what it declares (1 file)" in passed.stdout
    (tmp_path / "tiny/rivers-choice/x.parquet").write_bytes(b"")
    failed = command.bench("check", "--results", tmp_path, "--json")
    assert failed.returncode == 1
    told = json.loads(failed.stdout)[-1]
    assert (told["file"], told["not_checked"]) == ("tiny/rivers-choice/x.parquet", [])
    assert "it has no x.json beside it" in told["problems"][0]


# --- scores -----------------------------------------------------------------------------------------------------------

SCORE = np.random.default_rng(5).normal(size=N)
SCORED = {"method": "ptrue", "labels_seen": LabelsSeen(validation=30)}


def put_scores(folder: Path, score: Any, confidence: Any, **fields: Any) -> str:
    """A cell of a method that gives scores; returns what is wrong with it."""
    path = put(folder, "ptrue")
    row, records = replace(files.read(path), **{**SCORED, **fields}), files.read_records(path)
    records = replace(records, score=score, confidence=np.asarray(confidence))
    files.write(recompute_row(row, records), records, folder)
    return complaints(folder).get("tiny/rivers-choice/ptrue--demo--s0.json", "")


@pytest.fixture
def scorer(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known[0].get("ptrue"), "output", "score")


@pytest.mark.usefixtures("scorer")
def test_honest_scores_pass_scaled_or_not(tmp_path: Path) -> None:
    assert put_scores(tmp_path / "scaled", SCORE, 1 / (1 + np.exp(-np.round(SCORE)))) == ""
    assert put_scores(tmp_path / "alone", SCORE, np.full(N, np.nan), labels_seen=LabelsSeen()) == ""


@pytest.mark.usefixtures("scorer")
@pytest.mark.parametrize(
    ("score", "confidence", "fields", "complaint"),
    [
        (None, np.full(N, 0.5), {}, "has no column score"),
        (SCORE, 1 / (1 + np.exp(SCORE)), {}, "its confidences do not rise with its scores"),
        (SCORE, 0.5 - 1e-6 * SCORE, {}, "its confidences do not rise with its scores"),
        (SCORE, np.full(N, np.nan), {}, "its scores are no probabilities, but labels_seen has validation 30"),
        (SCORE, np.full(N, 0.5), {"labels_seen": LabelsSeen()}, "its scores are probabilities, but labels_seen"),
        (np.where(SCORE > 1, -np.inf, SCORE), np.full(N, 0.5), {}, "must be finite where there is an answer"),
    ],
)
def test_scores_that_do_not_fit_are_found(
    tmp_path: Path, score: Any, confidence: Any, fields: dict[str, Any], complaint: str
) -> None:
    assert complaint in put_scores(tmp_path, score, confidence, **fields)


@pytest.mark.usefixtures("scorer")
def test_metrics_of_order_are_those_of_the_scores(folder: Path) -> None:
    put_scores(folder, SCORE, np.full(N, 0.5))
    name = "tiny/rivers-choice/ptrue--demo--s0"
    said("metrics", "auroc", "pooled", to=0.5, name=name)(folder)
    assert "metrics.auroc.pooled is 0.5 in the JSON file" in complaints(folder)[f"{name}.json"]
