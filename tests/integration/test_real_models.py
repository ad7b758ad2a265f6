"""Real GGUF files beside llama.cpp: token ids, and the letters' log-probabilities.

`CONFBENCH_GGUF` names the folder of the files and `CONFBENCH_DATA` that of the questions; xllamacpp is the witness.
"""

from __future__ import annotations

import os
import random
import unicodedata
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import torch

from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import resolve

pytestmark = pytest.mark.slow
FILES, DATA = Path(os.environ.get("CONFBENCH_GGUF", "")), Path(os.environ.get("CONFBENCH_DATA", ""))
NAMES = (
    "smollm2-135m-instruct-q4_1",
    "gemma-3-270m-q4_k_m",
    "qwen2.5-coder-0.5b-instruct-q4_k_m",
    "qwen2.5-coder-1.5b-instruct-q4_k_m",
)

NOT_NFC = 2
"""Questions of MMLU-Pro that are not in Unicode NFC (an Ångström sign, combining diaereses); MMLU has none."""


class Witness:
    """llama.cpp's server with one file."""

    def __init__(self, file: Path) -> None:
        xllamacpp = pytest.importorskip("xllamacpp")
        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_parallel, params.warmup = str(file), 4096, 1, False
        self.server = xllamacpp.Server(params)

    def post(self, path: str, **body: Any) -> Any:
        return httpx2.post(self.server.listening_address + path, json=body, timeout=120).json()


@pytest.fixture(params=NAMES)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[LanguageModel, Witness]:
    """A file as model, in float32, and with llama.cpp."""
    file = FILES / f"{request.param}.gguf"
    if not os.environ.get("CONFBENCH_GGUF") or not file.is_file():
        pytest.skip(f"CONFBENCH_GGUF names no folder with {file.name}")
    options = LoadOptions(device="cpu", dtype="float32", cache=str(tmp_path))
    return LanguageModel(resolve(str(file)), options), Witness(file)


def questions() -> list[str]:
    """500 questions of MMLU and 200 of MMLU-Pro, with their options; and all that are not in Unicode NFC."""
    import pandas as pd

    if not (DATA / "mmlu" / "test.parquet").is_file():
        pytest.skip("CONFBENCH_DATA names no folder with the files of MMLU and MMLU-Pro")
    texts: list[str] = []
    for name, options, n in (("mmlu", "choices", 500), ("mmlu_pro", "options", 200)):
        rows = pd.read_parquet(DATA / name / "test.parquet")
        lines = [
            "\n".join(
                [question, *(f"  ({letter}): {choice}" for letter, choice in zip("abcdefghij", each, strict=False))]
            )
            for question, each in zip(rows["question"], rows[options], strict=True)
        ]
        chosen = random.Random(0).sample(lines, n)
        texts += [
            *chosen,
            *(text for text in lines if text not in chosen and not unicodedata.is_normalized("NFC", text)),
        ]
    return texts


def test_gguf_ids_equal_those_of_llama_cpp(pair: tuple[LanguageModel, Witness]) -> None:
    lm, witness = pair
    texts = [*questions(), "x  2 and y½\n\n1.", "<|im_start|>user<|im_end|> <|endoftext|><end_of_turn>"]
    own = lm.chat.tokenizer(texts, add_special_tokens=False)["input_ids"]
    theirs = [witness.post("/tokenize", content=t, add_special=False, parse_special=True)["tokens"] for t in texts]
    expected = []
    if lm.spec.name.startswith("qwen"):  # the original normalises to NFC, which llama.cpp leaves out
        expected = [text for text in texts if not unicodedata.is_normalized("NFC", text)]
        assert len(expected) == NOT_NFC
        composed = [unicodedata.normalize("NFC", text) for text in expected]
        theirs_composed = [witness.post("/tokenize", content=t, add_special=False)["tokens"] for t in composed]
        assert lm.chat.tokenizer(expected, add_special_tokens=False)["input_ids"] == theirs_composed
    assert [text for text, a, b in zip(texts, own, theirs, strict=True) if a != b] == expected
    assert lm.chat.tokenizer("x")["input_ids"] == witness.post("/tokenize", content="x", add_special=True)["tokens"]


def test_gguf_letters_have_the_probabilities_of_llama_cpp(pair: tuple[LanguageModel, Witness]) -> None:
    """Not equal: llama.cpp multiplies with activations of eight bits. Log-probabilities then differ by some 0.1."""
    lm, witness = pair
    prompts = [lm.chat.tokenizer(f"{text}\nAnswer: (")["input_ids"] for text in questions()[:40]]
    letters = [lm.chat.tokenizer(letter, add_special_tokens=False)["input_ids"][-1] for letter in "abcd"]
    found, expected = [], []
    for ids in prompts:
        with torch.inference_mode():
            found.append(lm.model(torch.tensor([ids])).logits[0, -1, letters].log_softmax(-1).numpy())
        answer = witness.post(
            "/completion", prompt=ids, n_predict=1, temperature=1, samplers=["temperature"], cache_prompt=False,
            logit_bias=[[i, 100] for i in letters], n_probs=4, post_sampling_probs=True,
        )  # fmt: skip
        probabilities = {each["id"]: each["prob"] for each in answer["completion_probabilities"][0]["top_probs"]}
        expected.append(np.log([probabilities[i] for i in letters]))
    difference = np.asarray(found) - np.asarray(expected)
    assert abs(difference.mean()) < 0.1
    assert difference.std() < 0.25
    assert np.mean(np.argmax(found, axis=1) == np.argmax(expected, axis=1)) > 0.8
