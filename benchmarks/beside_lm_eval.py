"""Letters of lm-evaluation-harness beside those of the committed run, question by question: `beside_lm_eval.json`.

`python -m benchmarks.beside_lm_eval FILE.gguf` has lm-evaluation-harness score the four letters after each prompt of
`mmlu-1k-choice`, with the weights and dtype of the committed run; two cores take an hour with 1.5 billion weights.
Stopped, it goes on with what is left. `--print` shows what is committed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.api import FloatArray, Question
from bench.data.sources import open_source
from bench.model import specs
from bench.model.language_model import LanguageModel, LoadOptions
from bench.results.files import read_records
from benchmarks.committed import MODEL, PLAIN, RESULTS
from benchmarks.performance import sample
from benchmarks.performance.other_tools import LM_EVAL, as_folder, likeliest, texts, told_of, versions
from tasks.thousand import MMLUThousandChoice

TASK, KEPT = "mmlu-1k-choice", Path(__file__).with_suffix(".json")
BATCH = 2
"""Prompts that lm-evaluation-harness reads together; it keeps all their logits, 1.2 GB for one of 2,000 tokens."""
PIECE = 57
"""Questions that are kept at once, one of each subject, some five minutes."""


@dataclass(frozen=True)
class Beside:
    """Both sides on the same questions."""

    ours: str
    """The letter that answered each question."""
    theirs: str
    """The letter with the highest log-likelihood by lm-evaluation-harness."""
    correct: FloatArray
    """Share of right answers of ours, and of theirs."""
    differ: FloatArray
    """By how many nats lm-evaluation-harness prefers its letter to ours, where the two differ; 0 for equal scores."""
    margins: FloatArray
    """By how many nats it prefers its letter to the second one, for all questions."""

    def __str__(self) -> str:
        n, other = len(self.ours), self.differ.size
        ours, theirs = 100 * self.correct
        told = f"Letters are equal in {n - other:,} of {n:,} questions ({100 * (1 - other / n):.1f} %), and right in"
        told += f" {ours:.1f} % (ours) and {theirs:.1f} % (lm-evaluation-harness)."
        if other:
            told += f" Of the {other} others it has equal scores for both letters in {(self.differ == 0).sum()}"
        if self.differ.any():
            told += f"; elsewhere it prefers its own by at most {self.differ.max():.2f} nats (the first letter to the"
            told += f" second by {np.median(self.margins):.2f} in the median of all questions)"
        return told + "." * bool(other)


def beside(scores: dict[str, list[float]]) -> Beside:
    """Compare log-likelihoods of the letters, of some questions by id, with the committed answers."""
    (path,) = RESULTS.glob(f"{MODEL}/{TASK}/{PLAIN}--fixed--s0--*.parquet")
    records = read_records(path)
    answers, gold = dict(zip(records.id, map(str, records.answer), strict=True)), dict(zip(*golden(), strict=True))
    rows = np.array([*scores.values()])
    ours, theirs = "".join(map(answers.__getitem__, scores)), likeliest(rows.tolist())
    right = [[letter == gold[name] for letter, name in zip(side, scores, strict=True)] for side in (ours, theirs)]
    ordered = np.sort(rows, axis=1)
    lost = rows.max(axis=1) - rows[np.arange(len(rows)), ["abcd".index(letter) for letter in ours]]
    others = np.array([one != other for one, other in zip(ours, theirs, strict=True)])
    return Beside(ours, theirs, np.mean(right, axis=1), lost[others], ordered[:, -1] - ordered[:, -2])


def golden() -> tuple[list[str], list[str]]:
    """Ids and right letters of the questions, as committed."""
    import pandas as pd

    questions = pd.read_parquet(RESULTS / "questions" / f"{TASK}--v1.parquet", columns=["id", "gold"])
    return questions["id"].tolist(), questions["gold"].tolist()


def kept() -> dict[str, Any]:
    """What is committed: log-likelihoods of the letters by question id, versions and dtype."""
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {"scores": {}}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside_lm_eval", description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, help="the GGUF file of the committed run")
    parser.add_argument("--print", action="store_true", help="only show what is committed")
    options = parser.parse_args()
    found = kept()
    if not options.print:
        if options.model is None or not options.model.is_file():
            parser.error(f"expected the GGUF file of the committed run, got {options.model}; or give --print")
        lm = LanguageModel(specs.resolve(str(options.model)), LoadOptions("cpu"))
        if lm.label != MODEL:
            parser.error(f"expected the file of the committed run, {MODEL}, got {lm.label}")
        task = MMLUThousandChoice(open_source(sample.data_folder()))
        seen = Counter[str]()

        def place(question: Question) -> int:
            """Number of the question in its subject, so that a part of the run is of every subject."""
            seen[question.subject] += 1
            return seen[question.subject]

        asked = sorted(task.questions("test"), key=place)
        left = [question for question in asked if question.id not in found["scores"]]
        with as_folder(lm) as folder:
            for start in range(0, len(left), PIECE):
                piece = left[start : start + PIECE]
                told = told_of(LM_EVAL, "lm_eval", folder, texts(piece, lm.chat, task), "abcd", lm.dtype_name, BATCH)
                rows = ([round(score, 4) for score in row] for row in told["found"])
                found["scores"] |= dict(zip((question.id for question in piece), rows, strict=True))
                found |= {"versions": versions(told), "dtype": lm.dtype_name}
                KEPT.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
                print(
                    f"{len(found['scores']):,} questions, the last {len(piece)} in {told['seconds']:.0f} s", flush=True
                )
    print(beside(found["scores"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
