"""A method in a file reads samples, texts, replies and relations in its own process, and results say how they came."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.place import Place, Rows
from tests.unit.signals.test_related import LABELS, saved

IMPORTS = '''"""A method that reads what others have said of an answer."""
import numpy as np

from bench.api import (
    At, AttentionRows, ConfidenceMethod, Followup, Hidden, Needs, Of, Related, Samples, Text, TokenScores, Unembedding,
    method,
)
'''
ENTROPY = """
DRAWN = Samples(3)


@method("said-entropy")
class SemanticEntropy(ConfidenceMethod):
    "Entropy over the meanings of samples."
    reference = "arXiv:2302.09664"
    related, scores = Related(samples=DRAWN), TokenScores(Of.SAMPLES, samples=DRAWN)
    needs = Needs(predict=frozenset({related, scores, DRAWN, AttentionRows()}))

    def predict(self, batch):
        related, scores, samples = (batch[each] for each in (self.related, self.scores, DRAWN))
        assert (samples.owner == scores.owner).all()
        rows = batch[AttentionRows()]
        prompt_share = rows.values["prompt"].mean(axis=(1, 2))
        assert ((0 < prompt_share) & (prompt_share < 1)).all() and len(rows) == len(batch)
        sure = []
        for i in range(len(batch)):
            owner = scores.owner[scores.offsets[i] : scores.offsets[i + 1]]
            log_p = np.bincount(owner, scores[i]["log_probability"], minlength=DRAWN.n)
            same = (related[i].argmax(-1) == 2) & (related[i].argmax(-1) == 2).T
            meaning = same[: DRAWN.n, : DRAWN.n].argmax(axis=1)
            p = np.bincount(meaning, np.exp(log_p - log_p.max()), minlength=DRAWN.n)
            p = p[p > 0] / p.sum()
            sure.append(1 + (p * np.log(p)).sum() / np.log(DRAWN.n))
        return np.clip(np.asarray(sure, dtype=np.float64), 0, 1)
"""
VERBALISED = """
WORDING = "How sure are you, from 0 to 100? Say the number."


@method("said-confidence")
class Verbalised(ConfidenceMethod):
    "The number that the model says when it is asked."
    reference = "arXiv:2305.14975"
    needs = Needs(predict=frozenset({
        Followup(WORDING, say=6), Text(), Text(Of.QUESTION), Hidden(0.5, At.QUERY_END), Unembedding(),
    }))

    def predict(self, batch):
        import torch
        head = batch[Unembedding()]
        states = torch.tensor(batch[Hidden(0.5, At.QUERY_END)])
        assert head.logits(head.norm(states)).isfinite().all()
        assert all(isinstance(text, str) and text for text in batch[Text(Of.QUESTION)])
        numbers = ["".join(c for c in text if c.isdigit()) for text in batch[Followup(WORDING, say=6)]]
        return np.asarray([min(int(number), 100) / 100 if number else 0.5 for number in numbers], dtype=np.float64)
"""


METHODS = {"entropy": ENTROPY, "verbalised": VERBALISED}


@pytest.mark.slow
def test_plugins_read_samples_texts_replies_and_relations(place: Place, small_model: Path) -> None:
    """The process of a file that imports torch does so first, which takes most of a second: so each has its own."""
    plugins = {name: place.write(f"{name}.py", IMPORTS + text) for name, text in METHODS.items()}
    nli = saved(place / "nli", LABELS)

    def run(out: str, methods: str, *more: object) -> Rows:
        asked = ("--method", methods, "--model", small_model, "--task", "atlas-oe", "--limit", 8, *more)
        place.run(*asked, "--set", "protocol.max_new_tokens_open=3", out=out)
        return place.rows(out)

    entropy = ("--plugin", plugins["entropy"])
    plain = run("plain", "said-entropy,said-confidence", *entropy, "--plugin", plugins["verbalised"])
    related = run("related", "said-entropy", *entropy, "--nli", nli)
    assert {row["status"] for rows in (plain, related) for row in rows.values()} == {"ok"}
    named = related["said-entropy"]["config"]["nli"]
    assert named.startswith("nli-")
    assert {row["config"].get("nli") for row in plain.values()} == {None}
    assert "its samples are related by match" in plain["said-entropy"]["notes"]
    assert f"its samples are related by {named}@" in str(related["said-entropy"]["notes"])
    said = 'it asks after the answer: "How sure are you, from 0 to 100? Say the number."'
    assert said in plain["said-confidence"]["notes"]


def test_models_that_relate_nothing_are_refused(place: Place) -> None:
    folder = saved(place / "other", {0: "POSITIVE", 1: "NEGATIVE"})
    said = place.refused("run", "--method", "ptrue", "--model", "tiny", "--nli", folder)
    assert "expected a model with the labels contradiction, neutral and entailment in its" in said


@pytest.mark.slow
def test_plugins_of_all_signals_pass_the_checks(place: Place) -> None:
    place.done("check", place.write("said.py", IMPORTS + "".join(METHODS.values())))
