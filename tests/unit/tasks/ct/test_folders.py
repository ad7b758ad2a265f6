"""The corpora read from folders of Parquet files: what is missing is named, and real rows are as they should be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from bench.api import UserError
from bench.data.contamination import contaminated_ids
from bench.data.sources import FolderSource
from tasks.ct import CTChoice, CTLocalChoice, CTLocalOpen
from tasks.ct.composer import LOCAL_SETS, CtCorpus
from tasks.mmlu import MMLUChoice

DATA = Path(__file__).parents[4] / ".." / "shared" / "data"

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data is absent: real rows were not read")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ct/anli/plain_text/train_r1.parquet in the folder given by --data-dir"):
        next(CTChoice(FolderSource(tmp_path)).questions("train"))


def _write(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    path = folder / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), path)


def test_old_column_names_of_trec_are_refused(hub: SimpleNamespace, tmp_path: Path) -> None:
    """Their labels have another order, so that guessing would be wrong without a sound."""
    for each in LOCAL_SETS:
        rows = [
            {key.replace("e_label", "e-label").replace("coarse-label", "label-coarse"): row[key] for key in row}
            for row in hub.rows[each.name]
        ]
        _write(tmp_path, f"{each.card.folder}/train", rows)
    with pytest.raises(UserError, match=r"ct/trec/default/train.parquet: expected the column coarse_label, found only"):
        list(CTLocalChoice(FolderSource(tmp_path)).questions("train"))


@needs_data
@pytest.mark.parametrize("corpus", [CTLocalChoice, CTLocalOpen])
def test_real_rows(corpus: type[CtCorpus]) -> None:
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
