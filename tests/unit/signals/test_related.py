"""Relations among samples and the answer are those of the model itself, stored, named in results, and never needed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers

from bench.api import Of, Related, Samples, Task, Text, UserError
from bench.grading.grade import JudgeCase, MatchJudge, same_text
from bench.model.text_pairs import PairModel
from bench.progress import Silent
from bench.signals import grading
from bench.signals.grading import Grader, PairModels, match_relations
from bench.store.disk_cache import Store
from tests.fixtures import models
from tests.kit.splits import TASKS, FewRivers, OpenRivers, batch_of, read

LABELS = {0: "ENTAILMENT", 1: "NEUTRAL", 2: "CONTRADICTION"}
DRAWN = Samples(3)
TEXTS = ["w40 w41", "w52", "w63 w64 w65 w66", "", "w40 w41"]


def saved(folder: Path, labels: dict[int, str], seed: int = 0) -> Path:
    """A small Bert that reads two texts at once, with random weights."""
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(
        vocab_size=120, max_position_embeddings=64, id2label=labels, label2id={v: k for k, v in labels.items()},
        initializer_range=0.5, **shape,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = transformers.BertForSequenceClassification(config)
    model.save_pretrained(folder)
    words = models.words(120, pad_token="w0")
    words.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="w1 $A w2", pair="w1 $A w2 $B:1 w2:1", special_tokens=[("w1", 1), ("w2", 2)]
    )
    words.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def nli(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("nli") / "nli", LABELS)


@pytest.fixture(scope="module")
def similar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("similar") / "similar", {0: "LABEL_0"}, 1)


def logits_by_hand(folder: Path, some: list[tuple[str, str]]) -> Iterator[torch.Tensor]:
    """Logits of each pair alone, by the library's own classes."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for one, other in some:
        with torch.inference_mode():
            yield model(**tokenizer([one], [other], return_tensors="pt", truncation=True, max_length=62)).logits[0]


def pairs(texts: Sequence[str] = TEXTS) -> list[tuple[str, str]]:
    return [(one, other) for one in texts for other in texts]


def test_entailment_is_of_each_pair_alone(nli: Path) -> None:
    texts = [*TEXTS, "w70 " * 100]
    told: list[int] = []
    found = PairModel("--nli", str(nli), "cpu").relate(pairs(texts), told.append)
    assert (found.shape, found.dtype, sum(told)) == ((36, 3), np.float32, 36)
    for row, logits in zip(found, logits_by_hand(nli, pairs(texts)), strict=True):
        np.testing.assert_allclose(row, logits.softmax(-1)[[2, 1, 0]], atol=1e-5)


def test_similarity_is_the_sigmoid_of_a_cross_encoder(similar: Path) -> None:
    found = PairModel("--similarity", str(similar), "cpu").relate(pairs(), lambda _: None)
    expected = [float(logits.sigmoid()) for logits in logits_by_hand(similar, pairs())]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_pair_models_for_something_else_are_refused(tmp_path: Path, nli: Path, similar: Path) -> None:
    plain = saved(tmp_path / "plain", {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"})
    refused = [
        (
            "--nli",
            plain,
            "plain: expected a model with the labels contradiction, neutral and entailment .* got label_0",
        ),
        ("--similarity", nli, "expected a cross-encoder with one number for two texts, got a model with 3"),
        ("--nli", "nowhere/at/all", r"--nli nowhere/at/all: Unknown model"),
    ]
    for option, folder, said in refused:
        with pytest.raises(UserError, match=said):
            PairModel(option, str(folder), "cpu").check()
    PairModel("--nli", str(nli), "cpu").check()
    PairModel("--similarity", str(similar), "cpu").check()


def test_pair_models_need_all_weights(tmp_path: Path, small_model: Path) -> None:
    shutil.copytree(small_model, tmp_path, dirs_exist_ok=True)
    settings = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    settings |= {"id2label": {str(k): label for k, label in LABELS.items()}, "num_labels": 3}
    (tmp_path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(UserError, match=r"can't be loaded: \d+ weights are missing from its files, e.g. score"):
        PairModel("--nli", str(tmp_path), "cpu").relate([("a", "b")], lambda _: None)


WAYS = [Related(by, samples=DRAWN) for by in ("entailment", "similarity", "judge", "match")]
TOLD = Text(Of.SAMPLES, samples=DRAWN)


def texts_of(batch: Any, i: int) -> list[str]:
    return [*batch[TOLD][i], batch[Text()][i]]


@TASKS
def test_related_without_model_are_equal_texts(small_model: Path, tmp_path: Path, task: type[Task]) -> None:
    reader, split_data = read(small_model, tmp_path, task, {*WAYS, TOLD})
    batch, n = batch_of(reader, split_data, *WAYS, TOLD, Text()), int(split_data.usable.sum())
    assert [batch[way].shape for way in WAYS] == [(n, 4, 4, 3), *[(n, 4, 4)] * 3]
    for i in range(n):
        texts = texts_of(batch, i)
        same = np.asarray([[same_text(one, other) for other in texts] for one in texts])
        for way in WAYS[1:]:
            np.testing.assert_array_equal(batch[way][i], same)
        np.testing.assert_array_equal(batch[WAYS[0]][i], np.stack([0 * same, ~same, same], axis=-1))
    assert set(split_data.related_by.values()) == {"match"}
    assert not split_data.compared_by  # that is of agreement, which nobody reads here


class Vowels:
    """A judge by which texts say the same whose first letters are both vowels; it remembers what it was asked."""

    name = "vowels"

    def __init__(self) -> None:
        self.asked: list[JudgeCase] = []
        self.measured: list[JudgeCase] = []

    def verdicts(self, asked: Sequence[JudgeCase], what: str, progress: object) -> list[bool | None]:
        if what.startswith("measure the judge"):
            assert not self.asked, "a judge is measured before it grades"
            self.measured += asked
        else:
            self.asked += asked
        return [self.same(one.gold, one.answer) for one in asked]

    @staticmethod
    def same(one: str, other: str) -> bool:
        return (one[:1].lower() in "aeiou") == (other[:1].lower() in "aeiou")

    def pairwise_judge(self) -> Vowels:
        return self


def test_related_judge_is_asked_once_a_pair(small_model: Path, tmp_path: Path) -> None:
    judge = Vowels()
    way = Related("judge", samples=DRAWN)
    reader, split_data = read(small_model, tmp_path, OpenRivers, {way, TOLD}, judge=judge)
    batch = batch_of(reader, split_data, way, TOLD, Text())
    asked = [one for one in judge.asked[len(split_data.answers) :] if one.gold != one.answer]
    assert len({(one.question, *sorted((one.gold, one.answer))) for one in asked}) == len(asked) > 0
    for i in range(len(batch)):
        texts = texts_of(batch, i)
        expected = [[same_text(one, other) or Vowels.same(one, other) for other in texts] for one in texts]
        np.testing.assert_array_equal(batch[way][i], np.asarray(expected))
    assert split_data.related_by == {way: "vowels"}


@pytest.mark.parametrize("most", [100, 5])
def test_judge_is_measured_on_right_and_wrong_options(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(grading, "MEASURED", most)
    judge = Vowels()
    _, split_data = read(small_model, tmp_path, OpenRivers, {TOLD}, judge=judge)
    questions = [split_data.questions[k] for k in (range(14) if most == 100 else (0, 3, 6, 10, 13))]
    options = [(q, option) for q in questions for option in q.choices]
    assert [(case.gold, case.answer) for case in judge.measured] == [(q.answer, option) for q, option in options]
    assert {case.question for case in judge.measured} <= {case.question for case in judge.asked}
    wrong = [(q.answer, option) for q, option in options if option != q.answer]
    assert split_data.counts == {
        f"right options that the judge accepts, of {len(questions)}": len(questions),
        f"wrong options that it refuses, of {len(wrong)}": sum(not Vowels.same(*pair) for pair in wrong),
    }
    assert most < 100 or 0 < list(split_data.counts.values())[1] < len(wrong)
    assert read(small_model, tmp_path, OpenRivers, {TOLD})[1].counts == {}  # matching texts need no measure


@pytest.mark.parametrize("question", [pytest.param(False, marks=pytest.mark.slow), True])
def test_related_pairs_are_computed_once_and_stored(
    small_model: Path, tmp_path: Path, nli: Path, question: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = Related(question=question, samples=DRAWN)
    reader, split_data = read(small_model, tmp_path, OpenRivers, {way, TOLD})
    relating = PairModels(PairModel("--nli", str(nli), "cpu"))
    asked: list[tuple[str, str]] = []
    plain = PairModel.relate

    def noted(self: PairModel, some: Sequence[tuple[str, str]], advance: Any, **cut: bool) -> Any:
        asked.extend(some)
        return plain(self, some, advance, **cut)

    monkeypatch.setattr(PairModel, "relate", noted)
    graded = Grader(reader, MatchJudge(), relating).grade(split_data)
    assert len(asked) == len(set(asked)) > 0
    again = Grader(reader, MatchJudge(), relating).grade(split_data)
    batch = batch_of(reader, graded, way, TOLD, Text(), Text(Of.QUESTION))
    stored = batch_of(reader, again, way)[way]
    assert len(asked) == len(set(asked))
    assert batch[way].tobytes() == stored.tobytes()
    model = PairModel("--nli", str(nli), "cpu")
    for i in (0, len(batch) - 1):
        before = f"{batch[Text(Of.QUESTION)][i]} " if question else ""
        texts = [before + text for text in texts_of(batch, i)]
        np.testing.assert_allclose(batch[way][i].reshape(16, 3), plain(model, pairs(texts), lambda _: None), atol=1e-5)
    assert graded.related_by[way] == model.name
    assert graded.digest() != split_data.digest()


def test_long_question_loses_its_beginning_not_its_samples(
    small_model: Path, tmp_path: Path, nli: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = Related(question=True, samples=DRAWN)
    reader, split_data = read(small_model, tmp_path, OpenRivers, {way, TOLD})
    monkeypatch.setattr(grading, "shown_questions", lambda _task, questions, _letters: ["w70 " * 100] * len(questions))
    graded = Grader(reader, MatchJudge(), PairModels(PairModel("--nli", str(nli), "cpu"))).grade(split_data)
    batch = batch_of(reader, graded, way, TOLD, Text())
    words = transformers.AutoTokenizer.from_pretrained(nli).tokenize
    for i in range(len(batch)):
        full = [words("w70 " * 100 + text) for text in texts_of(batch, i)]
        kept = [  # 59 words fit; the longer text has 30 of them
            (" ".join(one[-29 - (len(one) > len(other)) :]), " ".join(other[-29 - (len(one) <= len(other)) :]))
            for one in full
            for other in full
        ]
        expected = PairModel("--nli", str(nli), "cpu").relate(kept, lambda _: None)
        np.testing.assert_allclose(batch[way][i].reshape(16, 3), expected, atol=1e-5)
    assert len(np.unique(batch[way].round(4))) > 3  # were samples lost, all pairs would be the same


def test_related_pairs_are_stored_by_device(tmp_path: Path) -> None:
    """A second card takes what the first one computed; a CPU computes its own."""
    computed: list[str] = []

    def relate(some: Sequence[tuple[str, str]], _advance: object, **_cut: bool) -> Any:
        computed.append(model.device)
        return np.zeros(len(some), dtype=np.float32)

    model: Any = SimpleNamespace(name="m", option="--similarity", relate=relate)
    model.files = SimpleNamespace(fingerprint="f")
    for model.device in ("cuda", "cuda:1", "cpu"):
        PairModels(similarity=model).relate("similarity", [("a", "b")], Store(tmp_path), Silent(), "relate")
    assert computed == ["cuda", "cpu"]


def test_related_letters_are_matched(small_model: Path, tmp_path: Path, nli: Path) -> None:
    way = Related(samples=DRAWN)
    reader, split_data = read(small_model, tmp_path, FewRivers, {way})
    graded = Grader(reader, MatchJudge(), PairModels(PairModel("--nli", str(nli), "cpu"))).grade(split_data)
    assert graded.related_by == {way: "match"}


def test_match_relations_of_texts() -> None:
    assert match_relations("match", [("The 1,000", "1000"), ("c b", "b")]).tolist() == [1.0, 0.0]
    assert match_relations("entailment", [("x", "x"), ("x", "y")]).tolist() == [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    assert match_relations("entailment", []).shape == (0, 3)
