"""A Parquet file whose texts are no UTF-8 is named, not decoded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from bench.api import UserError
from bench.data.question_files import task_of_file


def test_texts_that_are_no_utf_8_are_one_sentence(tmp_path: Path) -> None:
    damaged = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xfbx")])
    table = pa.table({"question": damaged, "answer": ["here"]})
    parquet.write_table(table, tmp_path / "mine.parquet", store_schema=False)
    with pytest.raises(UserError, match=r"mine.parquet: expected whole values.*UTF-?8.*copy it again"):
        task_of_file(tmp_path / "mine.parquet", {})
