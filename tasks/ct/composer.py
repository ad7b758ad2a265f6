"""The training corpora CT-CHOICE and CT-OE (collection of Kapoor et al., arXiv:2406.08391), and a small part of them.

A corpus joins the first train rows of each data set that pass the data set's filter. The numbers of rows follow
from the paper's totals: 18 · 1,000 + 250 + 400 for CT-CHOICE and 17 · 1,052 + 250 + 400 for CT-OE
(docs/methods.md §1.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from typing import ClassVar

import numpy as np

from bench.api import DataCard, Format, PromptStyle, Question, Split, Task, TaskCard, UserError, ValidationRule, task
from tasks.ct import commonsense, comprehension, entailment, knowledge
from tasks.ct.data_set import DataSet, ReadOptions, SplitQuestions

ROWS = 20_000
"""Total number of rows, divided equally among the data sets. If a data set has fewer rows, no others replace them."""
VALIDATION = 2_000
PUBLISHED_BEHIND = 817 + 1_571
"""Numbers of validation rows of TruthfulQA and StoryCloze. Their rows are not used, but count when the published
validation set is divided among the data sets."""

CHOICE_SETS = (
    entailment.ANLI_R1, entailment.ANLI_R2, entailment.ANLI_R3, knowledge.ARC, knowledge.ARC_CHALLENGE,
    comprehension.BOOLQ, entailment.CB, commonsense.COMMONSENSE_QA, commonsense.COPA, comprehension.COSMOS_QA,
    commonsense.HELLASWAG, knowledge.MATH_QA, comprehension.MULTIRC, knowledge.OBQA, commonsense.PIQA, knowledge.SCIQ,
    comprehension.SIQA, entailment.SNLI, knowledge.TREC, commonsense.WINOGRANDE,
)  # fmt: skip
"""Data sets of CT-CHOICE in alphabetical order, the order in which they are published."""
OPEN_SETS = tuple(data_set for data_set in CHOICE_SETS if data_set.open is not None)
LOCAL_SETS = (knowledge.ARC, knowledge.ARC_CHALLENGE, entailment.CB, knowledge.OBQA, knowledge.TREC)


class CtCorpus(Task):
    """Base class of the four corpus tasks, each of which joins several data sets."""

    sets: ClassVar[tuple[DataSet, ...]]
    quota: ClassVar[int]
    """Largest number of train rows taken from each data set."""
    style = knowledge.ARC.style(Format.CHOICE)
    """Prompt style of ARC, for code that needs one style for the task; `style_of` returns the style of each
    question."""
    draws_exemplars = True
    prompt_tokens = 1600
    is_published = False
    """Whether this corpus was published; the small local corpora were not."""

    def questions(self, split: Split) -> Iterator[Question]:
        """Yield the questions of `train` or `validation`, one data set after the other.

        The published validation set is an exception: its questions are permuted as a whole. A question's id is
        `ct/<data set>/<split>/<row>`, where the split is that of the data set.

        Raises:
            UserError: the split is unknown, a file is missing, or a row is invalid.
        """
        if split not in self.card.splits:
            raise UserError(f"Expected one of the splits {', '.join(self.card.splits)} of {self.name}, got {split!r}")
        if split == "train":
            return chain.from_iterable(islice(self._questions(each, "train"), self.quota) for each in self._sets)
        return iter(self._published_validation() if self._as_published else self._stratified_validation())

    def pools(self) -> Mapping[str, Sequence[Question]]:
        """Return data set -> exemplar pool: its train questions; for ANLI its dev questions (docs/methods.md §1.4)."""
        return {each.name: self._questions(each, each.pool) for each in self._sets}

    def style_of(self, question: Question) -> PromptStyle:
        """Return the prompt style of the data set that a question comes from."""
        return next(each for each in self._sets if each.name == question.subject).style(self.format)

    def origins(self, split: Split) -> Sequence[tuple[DataCard, Split]]:
        """Return the cards of the data sets, each with a split from which questions or exemplars come."""
        return [(each.card, origin) for each, used in self._parts(split) for origin in dict.fromkeys((used, each.pool))]

    def _parts(self, split: Split) -> list[tuple[DataSet, Split]]:
        """Return the data sets of a split of the corpus, each with the split of its own that questions come from.

        If a data set has no validation split, or if the file of that split is missing, its validation questions come
        from train. For the published validation set, data sets without a validation split are left out instead.
        """
        if split == "train":
            return [(each, "train") for each in self._sets]
        if self._as_published:
            return [(each, "validation") for each in self._sets if "validation" in each.card.splits]
        return [(each, "validation" if self.source.has(each.card, "validation") else "train") for each in self._sets]

    @property
    def _as_published(self) -> bool:
        """Whether this corpus is to be reproduced as it was published."""
        return self.is_published and self.protocol.validation_rule is ValidationRule.PUBLISHED

    @cached_property
    def _sets(self) -> tuple[DataSet, ...]:
        # the protocol has no separate field for the reading of MathQA and WinoGrande
        return tuple((self._as_published and each.published) or each for each in self.sets)

    @cached_property
    def _cache(self) -> dict[tuple[str, Split], SplitQuestions]:
        return {}

    def _questions(self, data_set: DataSet, split: Split) -> SplitQuestions:
        """Return the questions of one split of a data set, cached so that filtered rows are counted once."""
        key = data_set.name, split
        if key not in self._cache:
            how = ReadOptions(self.format, self.protocol.exemplar_seed)
            self._cache[key] = SplitQuestions(self.source, data_set, split, how, self.counts)
        return self._cache[key]

    # --- validation ---------------------------------------------------------------------------------------------------

    def _stratified_validation(self) -> Iterator[Question]:
        """Yield validation questions of each data set, in proportion to the number of its train questions.

        They are sampled with `split_seed`, and yielded in the order of their rows.
        """
        train_counts = [self._questions(each, "train").count_up_to(self.quota) for each in self._sets]
        shares = proportional(self.card.sizes["validation"], train_counts)
        for (each, origin), n_train, share in zip(self._parts("validation"), train_counts, shares, strict=True):
            pool, first = self._questions(each, origin), n_train if origin == "train" else 0
            n = min(share, len(pool) - first)
            if origin == "train":
                self.counts[f"{each.name}: validation questions from train rows that are not trained on"] = n
            if n < share:
                self.counts[f"{each.name}: validation questions that its rows don't suffice for"] = share - n
            # one generator per data set, so that samples are independent of the other data sets
            rng = np.random.default_rng(self.protocol.split_seed)
            yield from (pool[first + i] for i in np.sort(rng.choice(len(pool) - first, n, replace=False)).tolist())

    def _published_validation(self) -> list[Question]:
        """Return the published validation set: the first rows of each validation split, in proportion to its size.

        The rows are joined, cut to 2,000 and permuted. About 70 % are from BoolQ, and most data sets have none
        (docs/methods.md §1.2). The choice of a question's exemplars is seeded with its index among the questions of its
        data set's split (rows that are filtered out don't count), as in the official code.
        """
        splits = [self._questions(each, origin) for each, origin in self._parts("validation")]
        sizes = [len(pool) for pool in splits]
        total = sum(sizes) + PUBLISHED_BEHIND
        firsts = (islice(pool, size * min(ROWS, total) // total) for pool, size in zip(splits, sizes, strict=True))
        numbered = (replace(question, index_in_subject=i) for first in firsts for i, question in enumerate(first))
        questions = list(islice(numbered, VALIDATION))
        order = np.random.default_rng(self.protocol.split_seed).permutation(len(questions))
        return [questions[i] for i in order.tolist()]


def proportional(total: int, sizes: Sequence[int]) -> list[int]:
    """Divide `total` in proportion to sizes by the largest-remainder method; if remainders are equal, earlier ones win.

    >>> proportional(10, [100, 100, 25])
    [5, 4, 1]
    """
    whole = sum(sizes)
    shares = [total * size // whole for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda i: -(total * sizes[i] % whole))
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return shares


def _card(train: int, validation: int, options: tuple[int, int], why: str, version: int = 1) -> TaskCard:
    return TaskCard(
        license="each data set's own; of some, research or non-commercial use",
        version=version,
        splits={"train": "train", "validation": "validation"},
        sizes={"train": train, "validation": validation},
        options=options,
        why=why,
    )


VALIDATION_WHY = (
    "Validation is stratified like train; TREC and ANLI have no split for it and give train rows beyond the quota."
)


@task("ct-choice")
class CTChoice(CtCorpus):
    """20 data sets with lettered options, to learn from: 1,000 rows of each, but 250 of CB and 400 of COPA."""

    format = Format.CHOICE
    sets = CHOICE_SETS
    quota = ROWS // len(CHOICE_SETS)
    card = _card(18_650, VALIDATION, (2, 6), VALIDATION_WHY, version=2)
    is_published = True


@task("ct-oe")
class CTOpen(CtCorpus):
    """19 data sets without options (no HellaSwag), to learn from: 1,052 rows of each, but 250 of CB and 400 of COPA.

    Under the validation rule `published`, data sets are taken in the order of their names. In the authors' code the
    order differs from run to run, so the rows of the published validation set are unknown.
    """

    format = Format.OPEN
    sets = OPEN_SETS
    quota = ROWS // len(OPEN_SETS)
    card = _card(
        18_534,
        VALIDATION,
        (2, 6),
        f"{VALIDATION_WHY} Which rows the published set held can't be told (order of a hash table); preset `paper`"
        " takes data sets by name.",
        version=2,
    )
    style = knowledge.ARC.style(Format.OPEN)
    is_published = True


LOCAL_WHY = (
    "A part of the corpora whose rows are small enough to lie beside a checkout; where there is no validation file,"
    " validation takes train rows beyond the quota."
)


@task("ct-local-choice")
class CTLocalChoice(CtCorpus):
    """ARC, CB, OpenBookQA and TREC out of ct-choice: 1,000 rows of each, but 250 of CB."""

    format = Format.CHOICE
    sets = LOCAL_SETS
    quota = 1_000
    card = _card(4_250, 456, (3, 6), LOCAL_WHY)


@task("ct-local-oe")
class CTLocalOpen(CTLocalChoice):
    """The questions of ct-local-choice without their options."""

    format = Format.OPEN
    style = knowledge.ARC.style(Format.OPEN)
