"""Whole runs on answers that somebody released: they are judged as they are, and nothing is generated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.place import Place

SYSTEM = "You answer with one letter."
NAMES = ["Tove", "Kiru", "Bamo", "Lun", "Vesk", "Orro", "Dalm", "Pirr"]
RELEASED = ("--model", "tiny", "--answers", "released")
TRAIN, TEST = "CCPS/CT-CHOICE-WRG/tiny/train.jsonl", "CCPS/MMLU-CHOICE/tiny/test.jsonl"


def record(i: int, *, test: bool) -> dict[str, Any]:
    """A record with lettered options in the shape of the release; every fourth answer is a sentence, one is empty."""
    options = [NAMES[(i + j) % 8] for j in range(4)]
    lines = "\n".join(f"  ({letter}): {text}" for letter, text in zip("abcd", options, strict=True))
    context = f"Question:\nWhere does the {'river' if test else 'road'} number {i} end?\n\nChoices:\n{lines}"
    shots = "The following are questions.\n\nQuestion:\nWho?\nAnswer: a\n\nNow, answer the next.\n\n"
    gold, said = "abcd"[i % 4], "abcd"[(i * 7) % 4]
    return {
        "prompt": shots, "context": context, "target_prompt": "\nAnswer:", "target": gold,
        "llm_output": "" if i == 5 else f"The answer is {said}" if i % 4 == 3 else said,
        "conversation": _conversation(shots + context),
        ("assessment" if test else "query_label"): int(i % 3 == 0 and i != 5),  # theirs, whatever the letters say
        ("task" if test else "dataset_name"): ["hills", "coasts"][i % 2],
        "hash_id": f"{'test' if test else 'train'}-{i:03d}",
        "wrong_targets": "<<OPJ>>".join(str(j) for j in range(4) if j != i % 4),
    }  # fmt: skip


def _conversation(asked: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{asked}\nAnswer:"}]


@pytest.fixture
def data(place: Place) -> Path:
    """A data folder with the answers of `tiny`: 48 to learn from, one of them without a label, and 20 to test on."""
    train = [record(i, test=False) for i in range(48)]
    train[7]["query_label"] = -1
    place.write(f"data/{TRAIN}", train)
    place.write(f"data/{TEST}", [record(i, test=True) for i in range(20)])
    return place / "data"


def test_released_answers_are_judged_as_they_are(place: Place, data: Path) -> None:
    command = (
        *RELEASED, "--method", "ptrue,ccps", "--task", "mmlu-choice", "--train-on", "ct-choice", "--data-dir", data,
        "--set", "ccps.contrastive_steps=20", "--set", "ccps.classifier_steps=20",
        "--set", "protocol.empty_rule=base_rate",
    )  # fmt: skip
    place.run(*command)
    rows = place.rows()
    assert {name: row["status"] for name, row in rows.items()} == {"ptrue": "ok", "ccps": "ok"}
    for row in rows.values():
        assert row["answers_source"] == "released"
        assert (row["n"], row["n_empty"], row["n_unparsed"]) == (20, 1, 1 + 5)  # the sentences are no letters
        assert row["llm_accuracy"] == 7 / 20
        assert row["deviations"]["answer_ids"] == "retokenised"
        assert {stage for stage, cost in row["cost"].items() if cost["forward_tokens"]} == {"query"}
        assert row["cost"]["query"]["forward_tokens"] >= row["cost"]["query"]["forward_tokens_floor"] > 0
    assert rows["ccps"]["labels_seen"]["train"] == 46  # without an answer: one; without a label: one
    assert rows["ccps"]["counts"]["ct-choice/train: train: records without a label, left out"] == 1
    without_text = {what: n for what, n in rows["ccps"]["counts"].items() if "without text" in what}
    assert without_text == {"ct-choice/train: answers without text, left out": 1}  # those of the test are `n_empty`
    learned = [record(i, test=False) for i in range(48) if i != 7]
    labels = [one["query_label"] for one in learned if one["llm_output"]]
    for method, base_rate in (("ccps", sum(labels) / len(labels)), ("ptrue", 0.0)):  # P(True) learns from none
        records = place.records(method)
        assert list(records.id) == [f"test-{i:03d}" for i in range(20)]
        assert records.correct.tolist() == [i % 3 == 0 and i != 5 for i in range(20)]
        assert list(records.answer) == [record(i, test=True)["llm_output"] for i in range(20)]
        assert list(records.subject) == ["hills", "coasts"] * 10
        assert records.confidence[list(records.answer).index("")] == base_rate
    before = {path: path.read_bytes() for path in (place / "out").rglob("*.parquet")}
    again = place.run(*command).stderr
    assert "to compute" not in again
    assert again.count("all stored") == 2
    assert {path: path.read_bytes() for path in (place / "out").rglob("*.parquet")} == before


def test_prompts_are_the_records_own(place: Place, data: Path) -> None:
    """The same records with another word in the conversation alone make other numbers."""
    text, confidences = (data / TEST).read_text(encoding="utf-8"), []
    for system in (SYSTEM, "You are a river."):
        (data / TEST).write_text(text.replace(SYSTEM, system), encoding="utf-8")
        place.run(*RELEASED, "--method", "ptrue", "--task", "mmlu-choice", "--data-dir", data, out=system[-3])
        confidences.append(place.records("ptrue", system[-3]).confidence)
    first, second = confidences
    assert (first != second).sum() == 19
    assert first[5] == second[5] == 0.0  # the empty answer


def test_open_answers_keep_labels_of_the_release(place: Place, data: Path) -> None:
    contexts = [f"Question: What flows past {NAMES[i % 8]} in year {i}?" for i in range(12)]
    place.write("data/CCPS/MMLU-OE/tiny/test.jsonl", [
        {
            "prompt": "", "context": context, "target_prompt": "\nAnswer:", "target": str(i), "assessment": i % 2,
            "llm_output": f"the {NAMES[i % 8]} river", "dataset_name": "hills", "id": i,
            "wrong_target_texts": f" lake {i} <<OPJ>><<OPJ>>sea", "conversation": _conversation(context),
        } for i, context in enumerate(contexts)
    ])  # fmt: skip
    place.run(*RELEASED, "--method", "ptrue", "--task", "mmlu-oe", "--data-dir", data)
    row = place.row()
    assert (row["judge"], row["llm_accuracy"], row["n"]) == ("release", 0.5, 12)
    assert place.records("ptrue").correct.tolist() == [False, True] * 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--answers", "released"), ["a revision of ledengary/CCPS", "released@COMMIT", "--data-dir"]),
        (("--answers", "released", "--data-dir", "EMPTY"), ["a folder CCPS in --data-dir", "found none"]),
        (
            ("--answers", "released", "--data-dir", "DATA", "--model", "SMALL"),
            ["tiny, llama8b, qwen14b, mistral24b, qwen32b"],
        ),
    ],
)
def test_releases_that_lack_something_are_told(
    place: Place, data: Path, small_model: Path, words: tuple[str, ...], said: list[str]
) -> None:
    (place / "empty").mkdir()
    places = {"DATA": data, "EMPTY": place / "empty", "SMALL": small_model}
    asked = [*("--method", "ptrue") * ("--method" not in words), "--model", "tiny", "--task", "mmlu-choice"]
    told = place.refused("run", *asked, *(places.get(word, word) for word in words), env={"CONFBENCH_DATA": ""})
    assert all(word in told for word in said), told
