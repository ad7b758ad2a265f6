"""A method in a file reads samples, texts, replies and relations in its own process, and results say how they came."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.signals.test_related import LABELS, saved

Command = Callable[..., "subprocess.CompletedProcess[str]"]

IMPORTS = '''"""A method that reads what others have said of an answer."""
import numpy as np

from bench.api import (
    At, ConfidenceMethod, Followup, Hidden, Needs, Of, Related, Samples, Text, TokenScores, Unembedding, method,
)
'''
ENTROPY = """
DRAWN = Samples(3)


@method("said-entropy")
class SemanticEntropy(ConfidenceMethod):
    "Entropy over the meanings of samples."
    reference = "arXiv:2302.09664"
    related, scores = Related(samples=DRAWN), TokenScores(Of.SAMPLES, samples=DRAWN)
    needs = Needs(predict=frozenset({related, scores, DRAWN}))

    def predict(self, batch):
        related, scores, samples = (batch[each] for each in (self.related, self.scores, DRAWN))
        assert (samples.owner == scores.owner).all()
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


def test_plugins_read_what_the_model_says_further(bench: Command, small_model: Path, tmp_path: Path) -> None:
    """The process of a file that imports torch does so first, which takes most of a second: so each has its own."""
    words: list[object] = []
    for name, text in (("entropy", ENTROPY), ("verbalised", VERBALISED)):
        (tmp_path / f"{name}.py").write_text(IMPORTS + text, encoding="utf-8")
        words += ["--plugin", tmp_path / f"{name}.py"]
    nli = saved(tmp_path / "nli", LABELS)

    def run(out: str, methods: str, *more: object) -> dict[str, dict[str, Any]]:
        result = bench(
            "run", "--method", methods, "--model", small_model, "--task", "atlas-oe", "--limit", 8,
            "--set", "protocol.max_new_tokens_open=3", "--out", tmp_path / out, *more,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        rows = [json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / out).rglob("*.json")]
        return {row["method"]: row for row in rows if row.get("method")}

    plain = run("plain", "said-entropy,said-confidence", *words)
    related = run("nli", "said-entropy", *words[:2], "--nli", nli)
    assert {row["status"] for rows in (plain, related) for row in rows.values()} == {"ok"}
    models = {row["config"].get("nli") for rows in (plain, related) for row in rows.values()}
    (named,) = models - {None}
    assert named.startswith("nli-")
    assert related["said-entropy"]["config"]["nli"] == named
    assert "its samples are related by match" in plain["said-entropy"]["notes"]
    assert f"its samples are related by {named}@" in str(related["said-entropy"]["notes"])
    said = 'it asks after the answer: "How sure are you, from 0 to 100? Say the number."'
    assert said in plain["said-confidence"]["notes"]


def test_what_can_not_relate_is_one_sentence(bench: Command, tmp_path: Path) -> None:
    folder = saved(tmp_path / "other", {0: "POSITIVE", 1: "NEGATIVE"})
    result = bench("run", "--method", "ptrue", "--model", "tiny", "--nli", folder, "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "expected a model with the labels contradiction, neutral and entailment in its" in " ".join(
        result.stderr.split()
    )
    assert "Traceback" not in result.stderr


def test_the_methods_pass_the_contract_checks(bench: Command, tmp_path: Path) -> None:
    plugin = tmp_path / "said.py"
    plugin.write_text(IMPORTS + ENTROPY + VERBALISED, encoding="utf-8")
    result = bench("check", plugin)
    assert result.returncode == 0, result.stdout
