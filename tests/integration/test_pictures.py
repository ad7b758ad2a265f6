"""The README's picture of the table is what the code prints of the committed results; `make pictures` draws it anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import pictures


@pytest.mark.slow
def test_table_picture_is_of_the_committed_results(tmp_path: Path) -> None:
    pictures.table(tmp_path / "table.svg")
    drawn = (tmp_path / "table.svg").read_text(encoding="utf-8")
    assert drawn == (pictures.PICTURES / "table.svg").read_text(encoding="utf-8"), "run: make pictures"
    assert "url(" not in drawn.replace("url(#", "")  # a font or a picture from elsewhere
