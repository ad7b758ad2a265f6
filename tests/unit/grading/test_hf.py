"""A local judge says what the model's own probabilities of yes and no say, and leaves the memory afterwards."""

from __future__ import annotations

import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from bench.api import UserError
from bench.grading import hf, prompt
from bench.grading.grade import JudgeCase
from bench.grading.hf import LocalJudge
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import ModelSpec, resolve
from bench.progress import Silent
from tests.fixtures.models import TINY, TOKENIZER_FILES

ASKED = [JudgeCase(f"Where does the {name} end?", gold, answer) for name in ("Tove", "Kiru")
         for gold, answer in (("in the sea", "in a lake"), ("in the sea", "the sea"), ("Orro", "Orro"))]  # fmt: skip


def judge(cache: Path, folder: Path | None = None) -> LocalJudge:
    spec = resolve("tiny") if folder is None else ModelSpec(folder.name, str(folder), local=True)
    return LocalJudge(spec, LoadOptions(device="cpu"), cache)


@pytest.fixture(scope="module")
def expected() -> list[float]:
    """Log odds of yes, from the library alone: its chat template, its forward pass, words that are one token."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(TINY)
    model = transformers.AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float64)
    odds = []
    for asked in ASKED:
        turns = [{"role": m.role, "content": m.content} for m in prompt.messages(asked)]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            shares = model(ids).logits[0, -1].softmax(0)
        said = {"yes": 0.0, "no": 0.0}
        for word in said:
            for form in {word, word.capitalize(), word.upper(), f" {word}", f" {word.capitalize()}"}:
                (one, *more) = tokenizer(form, add_special_tokens=False)["input_ids"]
                said[word] += 0.0 if more else float(shares[one])
        odds.append(said["yes"] - said["no"])
    return odds


def test_verdicts_are_those_of_the_models_probabilities(tmp_path: Path, expected: list[float], heard: Any) -> None:
    one = judge(tmp_path)
    digest = LanguageModel(resolve("tiny"), LoadOptions(device="cpu")).fingerprint
    assert one.name == f"hf tiny@{digest[:8]}, judge/1"
    assert list(tmp_path.iterdir()) == []
    found = one.verdicts([*ASKED, JudgeCase("q", "gold", ""), ASKED[0]], "judge", heard)
    assert list(found) == [*(odds > 0 for odds in expected), False, expected[0] > 0]
    assert heard.done == len(ASKED) + 2


def test_verdict_adds_tokens_that_say_a_word() -> None:
    logits = torch.tensor([0.0, 2.0, 2.0, 2.5, -9.0])
    assert hf._verdict(logits, no=[3], yes=[1, 2]) is True  # 2 e^2 against e^2.5
    assert hf._verdict(logits, no=[3], yes=[1]) is False
    assert hf._verdict(logits, no=[0, 4], yes=[3]) is True
    assert hf._verdict(logits * float("nan"), no=[3], yes=[1, 2]) is None


def test_second_run_loads_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = judge(tmp_path)
    found = list(first.verdicts(ASKED, "judge", Silent()))

    def refuse(_self: LanguageModel) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(LanguageModel, "model", property(refuse))
    again = judge(tmp_path)
    assert list(again.verdicts(ASKED, "judge", Silent())) == found
    assert again.name == first.name


def test_weights_leave_the_memory_after_judging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[weakref.ref[Any]] = []
    load = LanguageModel._load

    def watched(self: LanguageModel, attention: str) -> Any:
        model = load(self, attention)
        loaded.append(weakref.ref(model))
        return model

    monkeypatch.setattr(LanguageModel, "_load", watched)
    one = judge(tmp_path)
    for n in (2, 4):
        one.verdicts(ASKED[:n], "judge", Silent())
        assert loaded.pop()() is None
    assert loaded == []


def test_pairs_are_kept_apart(tmp_path: Path) -> None:
    pairwise_judge = judge(tmp_path).pairwise_judge()
    pairwise_judge.verdicts(ASKED[:2], "compare", Silent())
    assert (len(pairwise_judge.cached), len(judge(tmp_path).cached)) == (2, 0)
    assert pairwise_judge.name.endswith(", pair/1")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "copy"
    folder.mkdir(parents=True)
    for path in TINY.iterdir():
        if path.suffix in {".json", ".safetensors", ".jinja", ".txt"}:
            shutil.copy(path, folder)
    return folder


def test_verdicts_belong_to_the_content_of_a_model(tmp_path: Path, copied: Path) -> None:
    judge(tmp_path).verdicts(ASKED[:3], "judge", Silent())
    assert len(judge(tmp_path, copied).cached) == 3
    other = LocalJudge(resolve("tiny"), LoadOptions(device="cpu", dtype="bfloat16"), tmp_path)
    assert len(other.cached) == 0
    changes = {"chat_template.jinja": ("<|", "\n<|"), "config.json": ("1e-06", "1e-02")}
    for name, (old, new) in changes.items():
        text = (copied / name).read_text()
        assert old in text
        (copied / name).write_text(text.replace(old, new, 1))
        assert len(judge(tmp_path, copied).cached) == 0
        (copied / name).write_text(text)
    (copied / "model.safetensors").unlink()
    with pytest.raises(UserError, match="expected weights"):
        judge(tmp_path / "empty", copied).verdicts(ASKED, "judge", Silent())


def test_prompt_beyond_the_context_has_no_verdict(tmp_path: Path, copied: Path) -> None:
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 300}))
    long = JudgeCase("Where? " * 200, "gold", "answer")
    found = judge(tmp_path, copied).verdicts([ASKED[0], long], "judge", Silent())
    assert found[0] is not None
    assert found[1] is None


def test_tokenizer_without_yes_and_no_is_refused(tmp_path: Path, copied: Path) -> None:
    words = {word: i for i, word in enumerate(["<unk>", "Assistant", "User", "a", "b"])}
    plain = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    for name in TOKENIZER_FILES:
        (copied / name).unlink()
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="<unk>").save_pretrained(copied)
    with pytest.raises(UserError, match="words yes and no that are one token each"):
        judge(tmp_path, copied).verdicts(ASKED, "judge", Silent())


def test_model_that_does_not_fit_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: LanguageModel) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(LanguageModel, "model", property(full))
    with pytest.raises(UserError, match="does not fit into memory beside the model of the run"):
        judge(tmp_path).verdicts(ASKED, "judge", Silent())


def test_verdicts_before_an_interruption_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = hf._last_logits
    calls: list[int] = []

    def interrupted(lm: LanguageModel, ids: Any) -> Any:
        calls.append(len(ids))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return read(lm, ids)

    with monkeypatch.context() as patch:
        patch.setattr(hf, "_last_logits", interrupted)
        with pytest.raises(KeyboardInterrupt):
            judge(tmp_path).verdicts(ASKED, "judge", Silent())
    assert len(judge(tmp_path).cached) == 3
