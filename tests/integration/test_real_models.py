"""Real GGUF files beside llama.cpp: token ids, and the letters' log-probabilities; methods beside transformers alone.

`CONFBENCH_GGUF` names the folder of the files and `CONFBENCH_DATA` that of the questions; xllamacpp is the witness.
"""

from __future__ import annotations

import os
import random
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import torch
import transformers
from tokenizers import pre_tokenizers

from bench.api import At, Hidden, Of, QueryLogits, TokenIds, TokenScores, Unembedding
from bench.api.protocol import FIXED
from bench.api.question import Message, Prompt, Released
from bench.data.splits import TaskSplit
from bench.grading.grade import MatchJudge
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import resolve
from bench.progress import Silent
from bench.signals.grading import Grader
from bench.signals.reader import Reader
from bench.store.disk_cache import Store
from methods.ccps.features import FEATURES, perturbation_features
from methods.ptrue import PTrue
from methods.sequence_probability import SequenceProbability
from tests.kit.splits import OpenRivers, batch_of

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


# --- methods beside transformers alone --------------------------------------------------------------------------------

SYSTEM = "You answer in a few words."
ASKED = (
    "What is the capital of France?", "Which gas do plants take in?", "Who wrote Hamlet?",
    "How many legs has a spider?",
    "What is 17 plus 25?", "Which planet is the largest?", "What is H2O?",
    "In which year did the Second World War end?",
    "Which metal is liquid at room temperature?", "What do bees make?", "Who painted the Mona Lisa?",
    "What is the opposite of hot?", "Which ocean is the largest?", "How many days has a leap year?",
    "What is the square root of 81?", "Which language is spoken in Brazil?", "What is the currency of Japan?",
    "Which organ pumps blood?", "What is the chemical symbol of gold?", "Name a Python keyword that begins a loop.",
)  # fmt: skip
QUERY = "Is the proposed answer correct?\nChoices:\na) no\nb) yes\nAnswer: "


def features_of(state: torch.Tensor, token: int, weight: torch.Tensor) -> dict[str, float]:
    """The 75 features of a token in float64, by autograd and one state at a time."""
    state = state.detach().clone().requires_grad_()
    (-torch.log_softmax(weight @ state, 0)[token]).backward()  # type: ignore[no-untyped-call]
    gradient, state = state.grad, state.detach()
    assert gradient is not None

    def about(h: torch.Tensor) -> tuple[dict[str, float], torch.Tensor, torch.Tensor]:
        z = weight @ h
        log_p, top = torch.log_softmax(z, 0), z.topk(2).values
        values = {
            "log_prob_actual": log_p[token], "prob_actual": log_p[token].exp(), "logit_actual": z[token],
            "prob_argmax": log_p.max().exp(), "logit_argmax": z.max(), "entropy": -(log_p.exp() * log_p).sum(),
            "margin_logit_top1_top2": top[0] - top[1], "norm_logits_L2": z.norm(),
        }  # fmt: skip
        return {name: float(value) for name, value in values.items()}, z, log_p

    values, z_0, log_p_0 = about(state)
    found = {f"original_{name}": value for name, value in values.items()}
    two = log_p_0.exp().topk(2).values
    found["original_margin_prob_top1_top2"] = float(two[0] - two[1])
    found["original_std_logits"] = float(z_0.std())
    found["original_norm_hidden_state_L2"] = float(state.norm())
    found["is_actual_token_original_argmax"] = float(z_0.argmax() == token)
    found["jacobian_norm_token"] = float(gradient.norm())
    steps: dict[str, list[float]] = {}
    for epsilon in (4.0, 8.0, 12.0, 16.0, 20.0):
        moved = state + epsilon * gradient / gradient.norm()
        values, z, log_p = about(moved)
        m = (log_p.exp() + log_p_0.exp()) / 2
        own = {f"perturbed_{name}": value for name, value in values.items()} | {
            "delta_log_prob_actual_from_original": float(log_p_0[token] - log_p[token]),
            "did_argmax_change_from_original": float(z.argmax() != z_0.argmax()),
            "kl_div_perturbed_from_original": float((log_p_0.exp() * (log_p_0 - log_p)).sum()),
            "js_div_perturbed_from_original": float(
                sum((q.exp() * (q - m.log())).nan_to_num(0).sum() for q in (log_p, log_p_0)) / 2
            ),
            "cosine_sim_logits_perturbed_to_original": float(torch.cosine_similarity(z, z_0, 0)),
            "cosine_sim_hidden_perturbed_to_original": float(torch.cosine_similarity(moved, state, 0)),
            "l2_dist_hidden_perturbed_from_original": float((moved - state).norm()),
        }
        for name, value in own.items():
            steps.setdefault(name, []).append(value)
    flips = np.flatnonzero(steps["did_argmax_change_from_original"])
    found["epsilon_to_flip_token"] = 4.0 * (flips[0] + 1) if len(flips) else 20.0
    drops = np.maximum([0.0, *steps["delta_log_prob_actual_from_original"]], 0.0)
    found["pei_value_token"] = float((drops[1:] + drops[:-1]).mean() / 2)
    for name, values_of in steps.items():
        for what, statistic in (("min", np.min), ("max", np.max), ("mean", np.mean), ("std", np.std)):
            found[f"{name}_{what}"] = float(statistic(values_of))
    return found


def test_methods_say_what_plain_transformers_code_says(tmp_path: Path) -> None:
    file = FILES / f"{NAMES[0]}.gguf"
    if not os.environ.get("CONFBENCH_GGUF") or not file.is_file():
        pytest.skip(f"CONFBENCH_GGUF names no folder with {file.name}")
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # as SmolLM2's tokenizer.json has it
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    ends = [tokenizer.convert_tokens_to_ids(token) for token in ("<|im_end|>", "<|endoftext|>")]
    weight = model.lm_head.weight.detach().double()
    released, expected = {}, []
    task = OpenRivers(None)  # type: ignore[arg-type]
    questions = [
        replace(each, id=f"asked/{i}") for i, each in enumerate([*task.questions("test"), *task.questions("test")][:20])
    ]
    for question, text in zip(questions, ASKED, strict=True):
        turns = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
        said = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        prompt = tokenizer(said, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            whole = model.generate(
                torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=ends, pad_token_id=ends[0]
            )[0].tolist()
        said = tokenizer.decode(whole[len(prompt) :], skip_special_tokens=True)
        answer = tokenizer(said, add_special_tokens=False)["input_ids"]
        end = "<|im_end|>\n"
        query = f"{end}<|im_start|>user\n{QUERY}{end}<|im_start|>assistant\n"
        asked = prompt + answer + tokenizer(query, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            out = model(torch.tensor([prompt + answer]), output_hidden_states=True)
            verdict = model(torch.tensor([asked])).logits[0, -1].double()
        letters = [tokenizer(letter, add_special_tokens=False)["input_ids"][0] for letter in "ab"]
        states = out.hidden_states[-1][0].double()
        log_p = out.logits[0].double().log_softmax(-1)
        token_log_p = [float(log_p[len(prompt) - 1 + i, token]) for i, token in enumerate(answer)]
        rows = [features_of(states[len(prompt) - 1 + i], token, weight) for i, token in enumerate(answer)]
        expected.append((float(verdict[letters].softmax(0)[1]), float(np.exp(np.mean(token_log_p))),
                         states[len(prompt) - 1].numpy(), rows))  # fmt: skip
        conversation = Prompt((Message("system", SYSTEM), Message("user", text)))
        released[question.id] = Released(conversation, said, correct=True)
    lm = LanguageModel(resolve(str(file)), LoadOptions(device="cpu", dtype="float32", cache=str(tmp_path)))
    store = Store(tmp_path)
    reader = Reader(lm, store, FIXED, 512, Silent())
    predicting, prompt_end = Hidden(), Hidden(1.0, At.PROMPT_END)
    signals = (QueryLogits(), TokenScores(), predicting, prompt_end, TokenIds(Of.ANSWER), Unembedding())
    split = reader.open(TaskSplit("rivers-oe", "test"), task, questions, released)
    done = Grader(reader, MatchJudge()).grade(reader.read(split, frozenset(signals)))
    batch = batch_of(reader, done, *signals)
    hidden, ids = batch[predicting], batch[TokenIds(Of.ANSWER)]
    found = perturbation_features(torch.tensor(hidden.values), torch.tensor(ids.values), batch[Unembedding()]).numpy()
    p_true, p_sequence, p_states, p_rows = zip(*expected, strict=True)
    np.testing.assert_allclose(PTrue().predict(batch), p_true, rtol=0, atol=2e-5)
    np.testing.assert_allclose(SequenceProbability().predict(batch), p_sequence, rtol=0, atol=3e-5)
    np.testing.assert_allclose(batch[prompt_end], p_states, rtol=1e-4, atol=2e-4)
    every = [[row[name] for name in FEATURES] for rows in p_rows for row in rows]
    assert found.shape == (len(every), 75)
    np.testing.assert_allclose(found, every, rtol=1e-3, atol=5e-4)  # as states differ by up to 2e-4
