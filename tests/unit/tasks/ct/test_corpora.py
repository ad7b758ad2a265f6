"""The corpora as a whole: which rows they hold, which validate, what prompts may show, the contract, real rows."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from bench.api import Format, Question, UserError, ValidationRule
from bench.api.protocol import PAPER, Protocol
from bench.data.contamination import contaminated_ids
from bench.data.sources import FolderSource
from bench.prompts.exemplars import indices_in_subject
from bench.testing import MakeTask, checks_for
from tasks.ct import CTChoice, CTLocalChoice, CTLocalOpen, CTOpen
from tasks.ct.composer import CHOICE_SETS, LOCAL_SETS, OPEN_SETS, CtCorpus, proportional
from tasks.mmlu import MMLUChoice

CORPORA: tuple[type[CtCorpus], ...] = (CTChoice, CTOpen, CTLocalChoice, CTLocalOpen)
SMALL = {f"{each.card.folder}/{each.card.splits['train']}": 1_500 for each in CHOICE_SETS if each.filter is not None}
"""Where all rows are looked through often; the first ones are the same."""


@pytest.fixture(params=CORPORA, ids=[corpus.name for corpus in CORPORA])
def corpus(request: pytest.FixtureRequest) -> type[CtCorpus]:
    return request.param


def per_set(questions: Sequence[Question]) -> dict[str, int]:
    return dict(Counter(question.subject for question in questions))


def origin(question: Question) -> str:
    return question.id.split("/")[2]


# --- train ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("corpus", "total", "quota"), [(CTChoice, 18_650, 1_000), (CTOpen, 18_534, 1_052)])
def test_train_sizes_are_those_of_the_paper(
    hub: SimpleNamespace, corpus: type[CtCorpus], total: int, quota: int
) -> None:
    questions = list(corpus(hub.like()).questions("train"))
    sets = CHOICE_SETS if corpus is CTChoice else OPEN_SETS
    assert len(questions) == corpus.card.sizes["train"] == total
    assert per_set(questions) == {each.name: {"cb": 250, "copa": 400}.get(each.name, quota) for each in sets}
    assert list(per_set(questions)) == sorted(per_set(questions))


def test_first_rows_that_a_filter_keeps_are_taken(hub: SimpleNamespace) -> None:
    source = hub.like()
    task = CTChoice(source)
    rows = [q.id for q in task.questions("train") if q.subject in {"winogrande", "snli", "arc"}]
    assert source.made("ct/snli/plain_text/train") < 2_100
    assert source.made("ct/anli/plain_text/train_r3") < 2_100
    assert rows[:1_000] == [f"ct/arc/train/{i}" for i in range(1_000)]
    unlabelled = {i for i in range(1_016) if i % 63 == 50}
    assert rows[1_000:2_000] == [f"ct/snli/train/{i}" for i in range(1_016) if i not in unlabelled]
    assert rows[2_000:] == [f"ct/winogrande/train/{i}" for i in range(1_003) if i not in {3, 4, 5}]
    assert task.counts["snli train: rows without a label, left out"] == len(unlabelled)
    assert task.counts["anli_r2 train: rows without a label, left out"] == 1


def test_corpora_without_options_hold_the_same_rows(hub: SimpleNamespace) -> None:
    lettered, asked = (list(corpus(hub.like()).questions("train")) for corpus in (CTLocalChoice, CTLocalOpen))
    assert lettered == asked
    assert per_set(asked) == {"arc": 1000, "arc_challenge": 1000, "cb": 250, "obqa": 1000, "trec": 1000}


# --- validation -------------------------------------------------------------------------------------------------------


def naive_shares(total: int, sizes: dict[str, int]) -> dict[str, int]:
    exact = {name: total * n / sum(sizes.values()) for name, n in sizes.items()}
    shares = {name: int(share) for name, share in exact.items()}
    left = sorted(exact, key=lambda name: (shares[name] - exact[name], list(exact).index(name)))
    return {name: shares[name] + (name in left[: total - sum(shares.values())]) for name in shares}


def test_validation_is_stratified_like_train(hub: SimpleNamespace, corpus: type[CtCorpus]) -> None:
    task = corpus(hub.like(SMALL))
    train, validation = (list(task.questions(split)) for split in ("train", "validation"))
    total = corpus.card.sizes["validation"]
    assert len(validation) == total == (2_000 if corpus.is_published else round(4_250 * 2_000 / 18_650))
    assert per_set(validation) == naive_shares(total, per_set(train))
    assert not {q.id for q in train} & {q.id for q in validation}
    assert len({q.id for q in validation}) == total


def test_validation_from_train_rows_is_the_last_resort(hub: SimpleNamespace) -> None:
    task = CTChoice(hub.like(SMALL))
    validation = list(task.questions("validation"))
    assert {q.subject for q in validation if origin(q) == "train"} == {"trec", "anli_r1", "anli_r2", "anli_r3"}
    for question in validation:
        if origin(question) == "train":
            assert int(question.id.rpartition("/")[2]) >= 1_000
    assert task.counts["trec: validation questions from train rows that are not trained on"] == 107
    rows = [int(q.id.rpartition("/")[2]) for q in validation if q.subject == "boolq"]
    expected = np.sort(np.random.default_rng(Protocol().split_seed).choice(3_270, len(rows), replace=False))
    assert rows == expected.tolist()


def test_validation_files_may_be_absent(hub: SimpleNamespace) -> None:
    absent = [f"ct/ai2_arc/{name}/validation" for name in ("ARC-Easy", "ARC-Challenge")]
    whole, part = CTLocalChoice(hub.like()), CTLocalChoice(hub.like(absent=absent))
    validation = list(part.questions("validation"))
    assert per_set(validation) == per_set(list(whole.questions("validation")))
    assert {q.subject for q in validation if origin(q) == "train"} == {"arc", "arc_challenge", "trec"}
    assert part.counts["arc_challenge: validation questions from train rows that are not trained on"] == 107
    others = [q for q in validation if q.subject in {"cb", "obqa"}]
    assert others == [q for q in whole.questions("validation") if q.subject in {"cb", "obqa"}]


def test_validation_that_lacks_rows_is_counted(hub: SimpleNamespace) -> None:
    task = CTLocalChoice(hub.like({"ct/super_glue/cb/validation": 9}))
    validation = list(task.questions("validation"))
    assert per_set(validation)["cb"] == 9
    assert len(validation) == 456 - 18
    assert task.counts["cb: validation questions that its rows don't suffice for"] == 18


def test_validation_follows_the_seed_of_splits_alone(hub: SimpleNamespace) -> None:
    drawn = [
        [q.id for q in CTLocalChoice(hub.like(), dataclasses.replace(Protocol(), **changes)).questions("validation")]
        for changes in ({}, {"exemplar_seed": 5}, {"split_seed": 24})
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


@given(st.integers(0, 3_000), st.lists(st.integers(0, 2_000), min_size=1, max_size=20).filter(any))
def test_shares_add_up_and_are_fair(total: int, sizes: list[int]) -> None:
    shares = proportional(total, sizes)
    assert sum(shares) == total
    assert all(abs(share - total * size / sum(sizes)) < 1 for share, size in zip(shares, sizes, strict=True))


def test_published_validation_is_mostly_boolq(hub: SimpleNamespace) -> None:
    task = CTChoice(hub.like(), PAPER)
    validation = list(task.questions("validation"))
    expected = {"arc": 244, "arc_challenge": 128, "boolq": 1401, "cb": 24, "commonsense_qa": 203}
    assert per_set(validation) == {name: expected[name] for name in per_set(validation)}
    assert len(validation) == 2_000
    firsts = {f"ct/{name}/validation/{i}" for name, n in expected.items() for i in range(n)}
    assert {q.id for q in validation} == firsts
    assert [q.subject for q in validation] != sorted(q.subject for q in validation)
    assert validation == list(CTChoice(hub.like(), PAPER).questions("validation"))


def test_published_open_corpus_is_in_the_order_of_names(hub: SimpleNamespace) -> None:
    validation = list(CTOpen(hub.like(), PAPER).questions("validation"))
    ratio = 20_000 / (46_655 - 10_042)  # all validation rows, less HellaSwag's
    first, second = int(570 * ratio), int(299 * ratio)
    assert per_set(validation) == {"arc": first, "arc_challenge": second, "boolq": 2_000 - first - second}
    assert "hash" in CTOpen.card.why


def test_published_corpus_reads_math_options_at_commas(hub: SimpleNamespace) -> None:
    ours, theirs = (CTChoice(hub.like(SMALL), protocol) for protocol in (Protocol(), PAPER))
    rows = [[q.id for q in task.pools()["math_qa"][:5]] for task in (ours, theirs)]
    assert rows[0] == [f"ct/math_qa/train/{i}" for i in (0, 1, 2, 4, 5)]
    assert rows[1] == [f"ct/math_qa/train/{i}" for i in (0, 1, 2, 4, 6)]
    assert theirs.counts["math_qa train: rows whose right option is not among those that commas give, left out"] == 1
    numbers = theirs.pools()["math_qa"][3]  # of commas within numbers
    assert (numbers.choices, numbers.answer) == (("1", "000", "2", "500", "3", "45", "none of these"), "3")
    assert theirs.pools()["math_qa"][4].choices == ("", "9", "8", "7", "6")
    assert ours.pools()["math_qa"][5].choices == ("10 ( rounded )", "9", "8", "7", "6")


def test_published_corpus_fills_the_first_of_two_blanks(hub: SimpleNamespace) -> None:
    ours, theirs = (CTOpen(hub.like(SMALL), protocol) for protocol in (Protocol(), PAPER))
    rows = [[q.id for q in task.pools()["winogrande"][:4]] for task in (ours, theirs)]
    assert rows[0] == [f"ct/winogrande/train/{i}" for i in (0, 1, 2, 6)]
    assert rows[1] == [f"ct/winogrande/train/{i}" for i in (0, 1, 2, 4)]
    two = theirs.pools()["winogrande"][3]
    first, second = (dict(two.parts)[name] for name in ("first", "second"))
    assert "hid the _ ." in first
    assert "hid the _ ." in second
    assert first != second


def test_published_exemplars_are_drawn_by_row_of_split(hub: SimpleNamespace) -> None:
    validation = list(CTChoice(hub.like(), PAPER).questions("validation"))
    numbers = indices_in_subject(validation)
    assert all(question.id.endswith(f"/{numbers[question.id]}") for question in validation)  # whose filters keep all
    ours = list(CTChoice(hub.like(SMALL)).questions("validation"))
    assert all(question.index_in_subject is None for question in ours)


def test_part_of_a_corpus_has_no_published_validation(hub: SimpleNamespace) -> None:
    ours, theirs = (list(CTLocalOpen(hub.like(), p).questions("validation")) for p in (Protocol(), PAPER))
    assert ours == theirs
    assert PAPER.validation_rule is ValidationRule.PUBLISHED


# --- exemplars --------------------------------------------------------------------------------------------------------


def test_pools_hold_kept_train_rows_and_dev_rows_of_anli(hub: SimpleNamespace) -> None:
    source = hub.like(SMALL)
    pools = CTChoice(source).pools()
    assert source.tables == []  # not read before they are needed
    assert {name: len(pool) for name, pool in pools.items() if name.startswith("anli")} == {
        "anli_r1": 1_000, "anli_r2": 1_000, "anli_r3": 1_200,
    }  # fmt: skip
    assert pools["anli_r3"][1_199].id == "ct/anli_r3/dev/1199"
    assert len(pools["winogrande"]) == 1_500 - 3
    assert len(pools["snli"]) == 1_500 - len(range(50, 1_500, 63))
    assert len(pools["cb"]) == 250


# --- contract, origins, cards -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("corpus", [CTChoice, CTOpen])  # the small ones are checked on real rows
def test_contract_holds_on_rows_of_the_hub(hub: SimpleNamespace, corpus: type[CtCorpus]) -> None:
    made = list(checks_for(corpus, hub.like(SMALL)))
    assert {check.__name__ for _, check in made} == {
        "docstring", "card", "style", "origins", "sizes", "ids", "gold", "letters", "prompts", "provenance",
    }  # fmt: skip
    for make, check in made:
        assert isinstance(make, MakeTask)
        check(make)


@pytest.mark.parametrize(
    ("corpus", "protocol"),
    [(CTChoice, Protocol()), (CTOpen, PAPER), (CTLocalOpen, Protocol())],
    ids=["fixed", "paper", "local"],
)
def test_origins_are_what_is_read(hub: SimpleNamespace, corpus: type[CtCorpus], protocol: Protocol) -> None:
    for split in corpus.card.splits:
        source = hub.like(SMALL)
        task = corpus(source, protocol)
        pools = task.pools()
        for subject in {question.subject for question in task.questions(split)}:
            assert pools[subject][0].subject == subject
        named = {f"{card.folder}/{card.splits[part]}" for card, part in task.origins(split)}
        read = {path for path, _ in source.tables}
        for_shares = {f"{each.card.folder}/{each.card.splits['train']}" for each in corpus.sets}
        assert read - named <= (for_shares if split == "validation" else set())
        assert len(task.origins(split)) == len(named)
        assert named <= set(source.sizes)


def test_data_sets_have_their_style_and_folder(hub: SimpleNamespace, corpus: type[CtCorpus]) -> None:
    task = corpus(hub.like())
    for each in corpus.sets:
        question = Question("x", each.name, "?", ("a", "b"), 0)
        assert task.style_of(question) == (each.choice if corpus.format is Format.CHOICE else each.open)
        assert each.card.folder.startswith("ct/")
        assert each.card.folder.endswith(f"/{each.card.config}")


# --- rows in folders --------------------------------------------------------------------------------------------------

DATA = Path(__file__).parents[4] / ".." / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data is absent: real rows were not read")


def test_folders_of_other_files_or_columns_are_refused(hub: SimpleNamespace, tmp_path: Path) -> None:
    """Their labels have another order, so that guessing would be wrong without a sound."""
    for each in LOCAL_SETS:
        rows = [
            {key.replace("e_label", "e-label").replace("coarse-label", "label-coarse"): row[key] for key in row}
            for row in hub.rows[each.name]
        ]
        path = tmp_path / each.card.folder / "train.parquet"
        path.parent.mkdir(parents=True)
        parquet.write_table(pa.Table.from_pylist(rows), path)
    task = CTLocalChoice(FolderSource(tmp_path))
    with pytest.raises(UserError, match=r"ct/trec/default/train.parquet: expected the column coarse_label, found only"):
        list(task.questions("train"))
    with pytest.raises(UserError, match=r"train, validation of ct-.*got 'test'"):
        task.questions("test")
    with pytest.raises(UserError, match=r"ct/anli/plain_text/train_r1.parquet in the folder given by --data-dir"):
        next(CTChoice(FolderSource(tmp_path)).questions("train"))


@needs_data
@pytest.mark.parametrize("corpus", [CTLocalChoice, CTLocalOpen])
def test_real_rows_of_local_corpora(corpus: type[CtCorpus]) -> None:
    task = corpus(FolderSource(DATA))
    train, validation = list(task.questions("train")), list(task.questions("validation"))
    assert (len(train), len(validation)) == (4_250, 456)
    assert Counter(len(q.choices) for q in train if q.subject.startswith("arc"))[4] > 1_980
    kinds = Counter(q.answer for q in train if q.subject == "trec")
    assert set(kinds) == set(train[-1].choices)
    assert kinds["Abbreviation"] == min(kinds.values())  # 86 of 5,452 in the whole file


@needs_data
def test_training_rows_that_mmlu_asks_too_are_found() -> None:
    source = FolderSource(DATA)
    tested = list(MMLUChoice(source).questions("test"))
    task = CTLocalChoice(source)
    pool = [question for each in task.pools().values() for question in each]
    everywhere, trained = contaminated_ids(pool, tested), contaminated_ids(task.questions("train"), tested)
    assert Counter(name.split("/")[1] for name in everywhere) == {"obqa": 7, "arc_challenge": 1}
    assert trained == {
        name for name in everywhere if name.startswith("ct/arc_challenge")
    }  # the others lie behind 1,000
