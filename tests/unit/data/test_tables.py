"""Values of rows: what no type can hold is one sentence that names the row."""

from typing import Annotated, Literal

import msgspec
import pytest

from bench.api import Row, UserError
from bench.data.tables import typed_value


@pytest.mark.parametrize("kind", [str, Literal["train", "test"], Annotated[str, msgspec.Meta(pattern="^t")]])
def test_half_a_surrogate_is_refused_whatever_text_is_expected(kind: object) -> None:
    with pytest.raises(UserError, match="line 3, column 'split'"):
        typed_value(Row(2, "line 3", {"split": "\ud800"}), "split", kind, "a split")
