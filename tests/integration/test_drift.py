"""Two ways to run one model: what was changed between them is found by name, and where nothing was, that is said.

A model is `tiny`, or a copy of its folder with one change; a server has llama.cpp's dialect.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from bench.api import UserError
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import resolve
from bench.progress import Silent
from bench.run import drift
from bench.run.config import RunConfig
from bench.run.drift import Side, compare_sides, read_sides
from bench.servers import client
from tests.kit.llama_cpp import LlamaServer
from tests.kit.openai_servers import ChatServer, VLLMServer
from tests.kit.place import Place

TINY = Path(resolve("tiny").source)


@pytest.fixture(scope="module")
def server() -> Iterator[LlamaServer]:
    made = LlamaServer(LanguageModel(resolve("tiny"), LoadOptions(device="cpu", dtype="float32")))
    yield made
    made.stop()


def edited(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new), encoding="utf-8")

    return edit


def rounded(folder: Path) -> None:
    """The weights on a grid of some four bits."""
    tensors = load_file(folder / "model.safetensors")
    for name, values in tensors.items():
        step = values.abs().amax() / 8
        tensors[name] = (values / step).round() * step if values.dim() > 1 else values
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def read(tmp_path: Path, *models: object, task: str = "atlas-choice", **options: Any) -> list[Side]:
    common = RunConfig(("ptrue",), "", (task,), preset="fixed", limit=6, cache=tmp_path / "cache", dtype=None)
    return read_sides([replace(common, model=str(model), **options) for model in models], Silent())


@pytest.mark.parametrize(
    ("change", "causes", "says"),
    [
        (lambda _: None, [], ""),
        (
            edited("chat_template.jinja", "message['role'] + '|>'", "message['role'] + '|> '"),
            ["template"],
            "6 of 6 prompts differ as text: A has '<|system|>",
        ),
        pytest.param(
            edited("chat_template.jinja", "{{ bos_token }}", "{{ bos_token }}{{ bos_token }}"),
            ["BOS"],
            "A's prompts begin with up to 1 begin tokens, B's with up to 2",
            marks=pytest.mark.slow,
        ),
        (edited("chat_template.jinja", "{{ bos_token }}", ""), ["BOS"], "B's with up to 0"),
        (
            edited("tokenizer_config.json", '"bos_token": "<|begin|>"', '"bos_token": "<|pad|>"'),
            ["BOS"],
            "A's prompts begin with up to 1 begin tokens, B's with up to 1: ids [1] and [0]",
        ),
        (
            edited("tokenizer.json", r"\\p{L}+ ?|", r"\\p{L}+|"),
            ["tokenizer"],
            "prompts have other token ids for the same text",
        ),
        (rounded, ["weights or precision"], "with weights in float32 and float32; compare SHA-256"),
        (
            edited("config.json", '"max_position_embeddings": 16384', '"max_position_embeddings": 260'),
            ["cut context"],
            "prompts show other exemplars; A's context holds 16,384 tokens, B's 260",
        ),
    ],
    ids=["none", "template", "two begins", "no begin", "other begin", "tokenizer", "weights", "context"],
)
def test_drift_names_the_change(tmp_path: Path, change: Any, causes: list[str], says: str) -> None:
    shutil.copytree(TINY, tmp_path / "copy")
    change(tmp_path / "copy")
    found = compare_sides(*read(tmp_path, TINY, tmp_path / "copy"))
    assert list(found["causes"]) == causes
    assert says in "".join(found["causes"].values())
    assert found["steps"]["prompts"]["equal"] == (
        6 if not causes or causes[0] not in {"template", "cut context"} else 0
    )
    (method,) = found["methods"]
    assert (method["worst"] == 0) == (not causes)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["samples", "answers"])
def test_drift_finds_another_sampler(
    tmp_path: Path, server: LlamaServer, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    letters = server.lm.chat.tokenizer(["a", "b"])["input_ids"]
    penalty = {"logit_bias": [[ids[0], -100] for ids in letters]}

    def complete(body: dict[str, Any]) -> dict[str, Any]:
        """Samples that are nearly greedy; or answers that are never a or b."""
        if what == "samples" and "seed" in body:
            body = {**body, "temperature": 0.05}
        elif what == "answers" and body["temperature"] == 0 and "grammar" not in body:
            body = {**body, **penalty}
        return LlamaServer.complete(server, body)

    monkeypatch.setattr(server, "complete", complete)
    task, limit = ("atlas-oe", 14) if what == "samples" else ("atlas-choice", 10)
    found = compare_sides(*read(tmp_path, "tiny", server.url, task=task, limit=limit))
    assert list(found["causes"]) == ["sampler"]
    says = {"samples": "tokens of B's own samples are +", "answers": "log-probabilities agree, and "}
    assert found["causes"]["sampler"].startswith(says[what])


def test_sampler_is_blamed_only_after_equal_texts(tmp_path: Path) -> None:
    """Tokens of one's own texts alone don't tell whether log-probabilities agree."""
    a, b = read(tmp_path, TINY, TINY)
    others = [np.append(ids, 9).astype(np.int32) for ids in b.answers]
    for kept, cause, says in (
        ({"letters", "answers"}, "sampler", "log-probabilities agree, and 6 of 6 answers differ"),
        ({"answers"}, "unknown", "log-probabilities of equal texts could not be compared, and 6 of 6 answers differ"),
    ):
        logs = {what: rows for what, rows in a.logs.items() if what in kept}
        found = compare_sides(replace(a, logs=logs), replace(b, logs=logs, answers=others))
        assert logs.keys() == kept
        assert found["causes"] == {cause: says}


@pytest.mark.slow
def test_drift_of_the_same_model_served_is_none(tmp_path: Path, server: LlamaServer) -> None:
    place, words = Place(tmp_path), ("drift", "tiny", server.url, "--task", "atlas-choice", "--limit", 20)
    said = place.done(*words, "--out", tmp_path / "new" / "drift.svg").stdout
    lines = said.splitlines()
    assert lines[0] == "A  tiny, float32"
    assert lines[1].startswith("B  tiny.served-")
    assert "  prompts       equal 20, exemplars 100 100" in lines
    assert "  token ids     equal 20, begin tokens 1 1, end tokens 2 not told" in lines
    assert "no difference but what float arithmetic makes" in lines
    assert len(lines) < 40
    assert max(map(len, lines)) < 130
    picture = (tmp_path / "new" / "drift.svg").read_text(encoding="utf-8")
    assert all(f">{name}<" in picture for name in ("letters", "ptrue", "self-consistency", "probability by A (%)"))
    asked = len(server.completions)
    found = json.loads(place.done(*words, "--json").stdout)
    again = [body for body in server.completions[asked:] if len(body["prompt"]) > 20]
    assert len(again) == 2 * 20, "only how far the server differs from itself is asked again"
    assert not found["causes"]
    assert found["steps"]["letters"]["worst"] < 1e-4
    assert found["steps"]["letters"]["server's own |d|"] < 1e-4
    assert "hidden states" in found["skipped"]["eigenscore"]
    for row in found["methods"]:
        assert row["equal"] == row["n"] == 20
        assert row["worst"] < 1e-4
        assert {"brier", "auroc", "crossed"} <= row.keys() or row["score"]
        assert row["above"][2] == 0
    assert len(found["values"]["ptrue"][0]) == 20


def test_drift_of_vllm_from_itself_is_none(tmp_path: Path) -> None:
    """It gives letters' log-probabilities among all tokens, llama.cpp's server those among the letters."""
    server = VLLMServer(LanguageModel(resolve("tiny"), LoadOptions(device="cpu", dtype="float32")), most=-1)
    try:
        found = compare_sides(*read(tmp_path, "tiny", server.url, limit=4))
    finally:
        server.stop()
    assert found["steps"]["letters"]["worst"] < 1e-4
    assert found["steps"]["letters"]["server's own |d|"] < 1e-4


def test_drift_is_felt_by_metrics(tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "copy")
    rounded(tmp_path / "copy")
    a, b = read(tmp_path, TINY, tmp_path / "copy", limit=60)
    (row,) = compare_sides(a, b)["methods"]
    p, q = (side.predictions["ptrue"].confidence for side in (a, b))
    losses = [np.square(side.predictions["ptrue"].confidence - side.data.correct) for side in (a, b)]
    one, other, difference, half = row["brier"]
    np.testing.assert_allclose([one, other, difference], [losses[0].mean(), losses[1].mean(), other - one], rtol=1e-6)
    spread = np.std(losses[1] - losses[0], ddof=1) / 60**0.5
    assert 1.5 * spread < half < 2.6 * spread, "an interval of the paired difference"
    equal = [np.array_equal(x, y) for x, y in zip(a.answers, b.answers, strict=True)]
    assert row["equal"] == sum(equal) < 60
    assert row["worst"] == pytest.approx(np.abs(p - q)[equal].max())
    at = row["threshold"][0]
    assert row["above"][:2] == [pytest.approx((values >= at).mean()) for values in (p, q)]


def test_drift_has_no_interval_of_two_right_answers() -> None:
    """Whichever side they are on: both are on top of B's order, which would vary between no questions."""
    half, two = np.arange(60) % 2 > 0, np.arange(60) > 57
    values, labels = (np.linspace(0.2, 0.8, 60)[::-1], np.linspace(0.1, 0.9, 60)), (half, two)
    for step in (1, -1):
        rows = drift._compare_metrics(values[::step], labels[::step], ["s"] * 60, is_score=False)
        assert {metric: row[3] for metric, row in rows.items()} == dict.fromkeys(("brier", "rmsce", "auroc"))


@pytest.mark.parametrize(
    ("n", "crossed", "known"), [(1, 1, False), (60, 0, False), (60, 4, False), (60, 5, True), (60, 60, False)]
)
def test_crossings_have_an_interval_once_they_vary(n: int, crossed: int, known: bool) -> None:
    """As the Brier score has one: five questions on which both differ, and not all alike."""
    mean, half = drift._mean(1.0 * (np.arange(n) < crossed))
    assert mean == crossed / n
    assert (half is not None) == known


def test_drift_of_calibration_errors_is_their_difference() -> None:
    """That of A is estimated below 0, which counts as 0."""
    right = np.arange(120) % 2 > 0
    values = [np.full(120, 0.5), np.full(120, 0.9)]
    a, b, difference, _ = drift._compare_metrics(values, [right, right], ["s"] * 120, is_score=False)["rmsce"]
    assert (a, difference) == (0, pytest.approx(b))


def reordered(folder: Path) -> None:
    """Other ids for the same tokens."""
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    special = {each["content"] for each in data["added_tokens"]}
    size = len(data["model"]["vocab"])
    vocabulary = data["model"]["vocab"].items()
    data["model"]["vocab"] = {k: i if k in special else size + len(special) - 1 - i for k, i in vocabulary}
    (folder / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")


def test_drift_refuses_what_it_can_not_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRIES", 0)
    shutil.copytree(TINY, tmp_path / "copy")
    reordered(tmp_path / "copy")
    place = Place(tmp_path)
    for words, says in (
        (("tiny", tmp_path / "copy"), "whose token ids stand for other texts; name copies of one model."),
        (
            ("tiny", "tiny", "--task", "ct-choice"),
            "--task ct-choice: expected a task with test questions, it has train",
        ),
        (("tiny", "http://127.0.0.1:9/v1"), "The server http://127.0.0.1:9/v1 can't be reached"),
        (("tiny", "tiny", "--served", "other"), "--served: expected one of the two to be a URL; leave it out."),
        (("tiny", "tiny", "--out", "drift.bmp"), "--out drift.bmp: expected a file that ends in .svg, .png or .pdf"),
    ):
        task = () if "--task" in words else ("--task", "atlas-choice")
        assert says in place.refused("drift", *words, *task)


def test_drift_of_a_server_of_messages_is_refused(tmp_path: Path, server: LlamaServer) -> None:
    chat = ChatServer(server.lm)
    with pytest.raises(UserError, match="whose server takes messages alone; serve it with"):
        read(tmp_path, TINY, chat.url)
    chat.stop()
