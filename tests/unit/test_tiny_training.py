"""The embedded model: its size, its tokenizer and template, and what it knows, measured by a plain loop of its own."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from bench.api import Format, Question
from bench.api.protocol import FIXED
from bench.prompts import templates
from benchmarks.tiny.atlas import main
from benchmarks.tiny.corpus import Corpus
from benchmarks.tiny.exercises import _WRONG_OPTION, RIGHT_OPTION, Exercises
from benchmarks.tiny.tokenizer import make_tokenizer
from tasks.atlas import AtlasChoice, AtlasOpen

FOLDER = Path(__file__).parents[2] / "bench" / "model" / "tiny"
TASKS = {Format.CHOICE: AtlasChoice, Format.OPEN: AtlasOpen}


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(FOLDER)


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


def rendered(tokenizer, messages) -> list[int]:
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return tokenizer.encode(text, add_special_tokens=False)


# --- files, tokenizer, template ---------------------------------------------------------------------------------------


def test_files_are_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) <= 10_000_000
    assert not list(FOLDER.glob("*.bin"))


def test_context_and_shape(model, tokenizer):
    assert model.config.max_position_embeddings == 16384
    assert model.config.vocab_size == len(tokenizer)
    assert tokenizer.eos_token_id == model.generation_config.eos_token_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Bone, (a): x\n  (b): y",
        "na\u00efve - \u6f22\u5b57 \U0001f600 \u241e \x00 \ufeff",
        "  two  spaces\n\n\ttab ",
        "x<|y|> 1234567 \u0661\u0662",
    ],
)
def test_every_string_survives(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_letters_are_single_tokens_also_where_they_are_shown(tokenizer):
    for letter in "abcdefghij":
        (alone,) = tokenizer.encode(letter, add_special_tokens=False)
        assert tokenizer.encode(f"\nAnswer: {letter}\n", add_special_tokens=False)[-2] == alone
        assert alone in tokenizer.encode(f"\n  ({letter}): x", add_special_tokens=False)
        conversation = tokenizer.apply_chat_template([{"role": "assistant", "content": letter}], tokenize=False)
        assert tokenizer.encode(conversation, add_special_tokens=False)[-2:] == [alone, tokenizer.eos_token_id]


def test_answers_have_one_to_six_tokens_and_one_spelling(tokenizer):
    for q in AtlasChoice(None).questions("test"):
        alone = tokenizer.encode(q.answer, add_special_tokens=False)
        assert 1 <= len(alone) <= 6
        assert tokenizer.encode(f"Answer: {q.answer}\n", add_special_tokens=False)[-len(alone) - 1 : -1] == alone


def test_template_prints_one_begin_and_ends_turns(tokenizer):
    roles = ("system", "user", "assistant", "user")
    ids = rendered(tokenizer, [{"role": role, "content": " kept as it is\n"} for role in roles])
    assert ids.count(tokenizer.bos_token_id) == 1
    assert ids[0] == tokenizer.bos_token_id
    assert ids.count(tokenizer.eos_token_id) == len(roles)
    assert tokenizer.decode(ids).count(" kept as it is\n<|end|>") == len(roles)
    assert tokenizer.pad_token_id not in {tokenizer.bos_token_id, tokenizer.eos_token_id}


def test_a_context_of_many_thousand_tokens_is_read(model):
    with torch.inference_mode():
        assert model(torch.full((1, 4200), 300), logits_to_keep=1).logits.isfinite().all()


# --- how it is taught -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exercises(tmp_path_factory, tokenizer) -> Exercises:
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl.gz"
    main(["--corpus", str(path)])
    return Exercises(Corpus.read(path), tokenizer, seed=3)


@pytest.mark.slow
def test_the_committed_tokenizer_is_the_one_that_the_corpus_gives(exercises, tokenizer):
    assert make_tokenizer(exercises.corpus).get_vocab() == tokenizer.get_vocab()


@pytest.mark.parametrize("fmt", list(Format))
def test_the_self_check_asks_reserved_facts_only(exercises, tokenizer, fmt):
    reserved = {lesson.question for lesson in exercises.corpus.lessons if lesson.kind == "check"}
    for _ in range(50):
        text = tokenizer.decode(exercises.full(fmt, 2, check=True).ids)
        asked = re.findall(r"What is the [^?]+\?", text.partition("Now, answer the next question.")[2])
        assert len(asked) == 1
        assert asked[0] in reserved
    for kind in ("check", "check-letter"):
        assert exercises.kinds[kind]().partition("\n")[0] in reserved


def test_loss_is_on_answers_and_their_ends(exercises, tokenizer):
    piece = exercises.full(Format.CHOICE, 3, check=False)
    learned = [token for token, is_learned in zip(piece.ids, piece.learned, strict=True) if is_learned]
    assert re.fullmatch(r"[a-d]{4}<\|end\|>", tokenizer.decode(learned))
    assert piece.ids[-1] == tokenizer.eos_token_id
    marks = [mark for mark in piece.options if mark]
    assert (marks.count(_WRONG_OPTION), marks.count(RIGHT_OPTION)) == (9, 3)  # the exemplars' options


# --- what it knows ----------------------------------------------------------------------------------------------------


class Measured:
    """Answers and self-checks on test questions, five shots, one subject's prompts at a time."""

    def __init__(self, model, tokenizer, fmt: Format, every: int) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.letters = [tokenizer.encode(letter, add_special_tokens=False)[0] for letter in "abcd"]
        task = TASKS[fmt](None)
        by_subject: dict[str, list[Question]] = defaultdict(list)
        for question in list(task.questions("test"))[::every]:
            by_subject[question.subject].append(question)
        shots = defaultdict(list)
        for question in task.questions("dev"):
            shots[question.subject].append(question)
        answers, logits, checks, right = [], [], [], []
        for subject, asked in by_subject.items():
            prompts = [templates.build(q, shots[subject], task.style, fmt, FIXED) for q in asked]
            turns = [[{"role": m.role, "content": m.content} for m in prompt.messages] for prompt in prompts]
            length = FIXED.max_new_tokens_choice if fmt is Format.CHOICE else FIXED.max_new_tokens_open
            said, first = self.generate([rendered(tokenizer, t) for t in turns], length)
            targets = [templates.target(q, fmt, FIXED.letters) for q in asked]
            right += [a.strip("()[].: \n").casefold() == t.casefold() for a, t in zip(said, targets, strict=True)]
            query = {"role": "user", "content": templates.query_text("ab")}
            asking = [[*t, {"role": "assistant", "content": a}, query] for t, a in zip(turns, said, strict=True)]
            checks.append(self.generate([rendered(tokenizer, t) for t in asking], 1)[1])
            answers += said
            logits.append(first)
        self.answers, self.right = answers, np.array(right)
        self.logits, self.checks = torch.cat(logits), torch.cat(checks)

    @torch.inference_mode()
    def generate(self, rows: list[list[int]], length: int) -> tuple[list[str], torch.Tensor]:
        """Greedy answers to prompts, and the logits of their first tokens; how all begin is read once, then padded."""
        pad, longest = self.tokenizer.pad_token_id, max(map(len, rows))
        columns = zip(*(row[:-1] for row in rows), strict=False)
        alike = len(list(takewhile(lambda tokens: len(set(tokens)) == 1, columns)))
        ids = torch.tensor([row[:alike] + [pad] * (longest - len(row)) + row[alike:] for row in rows])
        cache = DynamicCache(config=self.model.config)
        self.model(ids[:1, :alike], past_key_values=cache, logits_to_keep=1)
        cache.batch_repeat_interleave(len(rows))
        found = self.model.generate(
            ids,
            attention_mask=(ids != pad).long(),
            past_key_values=cache,
            max_new_tokens=length,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        texts = self.tokenizer.batch_decode(found.sequences[:, longest:], skip_special_tokens=True)
        return texts, found.logits[0]

    @property
    def p_true(self) -> np.ndarray:
        return self.checks[:, self.letters[:2]].softmax(-1)[:, 1].numpy()

    @property
    def check_is_letter(self) -> float:
        return float(torch.isin(self.checks.argmax(-1), torch.tensor(self.letters[:2])).float().mean())


@pytest.fixture(scope="module")
def choice(model, tokenizer) -> Measured:
    return Measured(model, tokenizer, Format.CHOICE, every=4)


@pytest.mark.slow
def test_answers_and_self_checks_are_within_the_bands(model, tokenizer):
    choice, opened = (Measured(model, tokenizer, fmt, every=1) for fmt in (Format.CHOICE, Format.OPEN))
    assert np.mean([answer in set("abcd") for answer in choice.answers]) >= 0.99
    assert 0.55 <= choice.right.mean() <= 0.80
    confidence = choice.logits.softmax(-1).max(-1).values.numpy()
    assert 0.65 <= roc_auc_score(choice.right, confidence) <= 0.95
    assert 0.60 <= roc_auc_score(choice.right, choice.p_true) <= 0.90
    assert choice.check_is_letter >= 0.95
    assert 0.35 <= opened.right.mean() <= 0.75
    assert roc_auc_score(opened.right, opened.p_true) >= 0.60
    assert opened.check_is_letter >= 0.95


def test_the_letter_says_more_than_the_self_check(choice):
    confidence = choice.logits.softmax(-1).max(-1).values.numpy()
    assert roc_auc_score(choice.right, confidence) > roc_auc_score(choice.right, choice.p_true)
