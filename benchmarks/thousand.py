"""Draws the rows of the tasks of one thousand (docs/methods.md §1.10) and writes `tasks/thousand.toml`.

`python -m benchmarks.thousand DATA`, with a folder of Parquet files as for `--data-dir`, writes the same file again.
Rows are drawn in the order of a hash of seed and question id, so no library's generator decides.
"""

from __future__ import annotations

import hashlib
import re
import sys
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

import tasks
from bench.api import Question, Source
from bench.data.sources import FolderSource
from tasks.ct.composer import proportional
from tasks.medmcqa import SINGLE, MedMCQAChoice
from tasks.mmlu import MMLUChoice
from tasks.mmlu_pro import MMLUProChoice
from tasks.thousand import FILE, SIZES, Part, digest, row_key

SEED = "thousand/1"
PATH = Path(tasks.__file__).with_name(FILE)
HEAD = f"""\
# Rows of the tasks of one thousand (docs/methods.md §1.10): row number in MMLU's test file, question_id in MMLU-Pro's,
# first part of the id in MedMCQA's validation file; after the colon, digits of a digest of the question
# (tasks/thousand.py). Written by benchmarks/thousand.py with the seed {SEED!r}; not to be edited.
"""
Drawn = Mapping[Part, Sequence[Question]]


def wording(text: str) -> str:
    r"""Return the letters and digits of a text, casefolded.

    Texts that the check for contamination calls equal are equal here, and so are those that differ in punctuation, or
    in blanks within a word, as copies in MMLU-Pro do.

    >>> wording("Skeletal  Muscles:\n") == wording("Skeletalmuscles")
    True
    """
    return re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", text).casefold())


def order(name: str) -> str:
    """Return the hash by which names are sorted to draw them."""
    return hashlib.sha256(f"{SEED}/{name}".encode()).hexdigest()


def eligible(questions: Sequence[Question], taken: Collection[str]) -> list[Question]:
    """Return questions with a wording of their own that is not `taken`, and with options that all differ."""
    counts = Counter(wording(question.text) for question in questions)
    return [
        question
        for question in questions
        if counts[wording(question.text)] == 1
        and wording(question.text) not in taken
        and len({" ".join(option.split()) for option in question.choices}) == len(question.choices)
    ]


def draw(questions: Sequence[Question], sizes: Mapping[str, int]) -> Drawn:
    """Divide questions into parts, each with as many of a subject as is proportional to the subject's size.

    Args:
        questions: eligible questions.
        sizes: subject -> its size; all equal to draw evenly.
    """
    ranked = sorted(questions, key=lambda question: order(question.id))
    pools = {subject: iter([question for question in ranked if question.subject == subject]) for subject in sizes}
    parts: dict[Part, list[Question]] = {}
    for part, size in SIZES.items():
        subjects = [subject for _, subject in sorted((order(f"{part}/{subject}"), subject) for subject in sizes)]
        shares = proportional(size, [sizes[subject] for subject in subjects])
        parts[part] = [q for subject, n in zip(subjects, shares, strict=True) for q in islice(pools[subject], n)]
        assert len(parts[part]) == size, f"{part}: a subject has too few questions"
    return parts


def exemplars(questions: Iterable[Question]) -> list[Question]:
    """Return five questions by MedMCQA's rule, in the order of the draw: each right option once, and one more."""
    ranked = sorted(questions, key=lambda question: order(question.id))
    firsts = {question.gold: question for question in reversed(ranked)}
    return [*firsts.values(), next(question for question in ranked if question not in firsts.values())]


def draw_all(source: Source) -> dict[str, Drawn]:
    """Draw the parts of all benchmarks: folder of the benchmark -> part -> questions."""
    mmlu, pro, medmcqa = MMLUChoice(source), MMLUProChoice(source), MedMCQAChoice(source)
    shown = {wording(question.text) for task in (mmlu, pro) for question in task.questions("dev")}
    from_mmlu = eligible(list(mmlu.questions("test")), shown)
    parts: dict[str, Drawn] = {"mmlu": draw(from_mmlu, dict.fromkeys({q.subject for q in from_mmlu}, 1))}

    taken = {wording(question.text) for part in parts["mmlu"].values() for question in part}
    answers = source.rows(pro.card, "test", ("question_id", "answer", "answer_index"))
    agreeing = {f"mmlu-pro/{row.values['question_id']}" for row in answers
                if ord(row.values["answer"]) - ord("A") == row.values["answer_index"]}  # fmt: skip
    from_pro = [q for q in eligible(list(pro.questions("test")), shown | taken) if q.id in agreeing]
    parts["mmlu_pro"] = draw(from_pro, dict.fromkeys({q.subject for q in from_pro}, 1))

    whole = list(medmcqa.questions("test"))
    sizes = Counter(question.subject for question in whole if question.subject != "Unknown")
    from_medmcqa = [question for question in eligible(whole, ()) if question.subject in sizes]
    drawn = draw(from_medmcqa, sizes)
    rows = source.rows(medmcqa.card, "test", ("id", "choice_type"))
    single = {f"medmcqa/{row.values['id']}" for row in rows if row.values["choice_type"] == SINGLE}
    used = {question.id for part in drawn.values() for question in part}
    parts["medmcqa"] = {**drawn, "dev": exemplars(q for q in from_medmcqa if q.id in single - used)}
    return parts


def to_toml(parts: Mapping[str, Drawn]) -> str:
    """Return the text of the file with the drawn rows, in which rows are sorted by key."""
    lines = [HEAD]
    for folder, drawn in parts.items():
        lines.append(f"[{folder}]")
        for part, questions in drawn.items():
            rows = sorted(questions, key=lambda question: (len(row_key(question)), row_key(question)))
            text = " ".join(f"{row_key(question)}:{digest(question)}" for question in rows)
            lines += [f'{part} = """', *textwrap.wrap(text, 120, break_on_hyphens=False), '"""', ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PATH.write_text(to_toml(draw_all(FolderSource(Path(sys.argv[1])))), encoding="utf-8")
