"""The page about signals names every signal, argument and place that the interface has."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import bench.api
from bench.api import At, Of, Signal
from bench.testing import check_plugin

PAGE = (Path(__file__).parents[2] / "docs" / "signals.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Each signal")[2]
KINDS = [kind for kind in Signal.__subclasses__() if kind.__name__ in bench.api.__all__]
"""Those of the interface: other tests make some of their own."""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_signal_has_a_row_with_its_arguments_and_defaults(kind: type[Signal]) -> None:
    (row,) = re.findall(rf"^\| `{kind.__name__}` \| (.+?) \|", SECTION, re.MULTILINE)
    expected = ", ".join(f"`{field.name}={_said(field.default)}`" for field in fields(kind))

    assert row == (expected or "none")


@pytest.mark.parametrize("place", [*At, *Of], ids=str)
def test_a_place_is_named(place: At | Of) -> None:
    assert f"`{place}`" in SECTION


def test_every_declaration_on_the_page_can_be_made() -> None:
    names = {name: getattr(bench.api, name) for name in bench.api.__all__}
    constants = {"depth": 0.5, "of": Of.ANSWER, "k": 3}
    kinds = "|".join(kind.__name__ for kind in KINDS)
    declared = re.findall(rf"`((?:{kinds})\([^`]*\))`", PAGE)

    assert len(declared) > 15
    for text in declared:
        assert isinstance(eval(text, {**names, **constants}), Signal)  # noqa: S307 - our own page


def _said(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value) if not isinstance(value, tuple) else _tuple(value)


def _tuple(value: tuple[object, ...]) -> str:
    return "(" + ", ".join(_said(part) for part in value) + ")"


def test_the_methods_on_the_page_keep_every_rule(tmp_path: Path) -> None:
    head = "\n".join((
        "from __future__ import annotations", "from dataclasses import dataclass", "from typing import ClassVar",
        "import numpy as np", "from sklearn.linear_model import LogisticRegression",
        "from sklearn.pipeline import make_pipeline", "from sklearn.preprocessing import StandardScaler",
        f"from bench.api import {', '.join(bench.api.__all__)}\n\n",
    ))  # fmt: skip
    written = [
        block for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if "@method" in block
    ]
    assert len(written) == 2
    for i, block in enumerate(written):
        path = tmp_path / f"of_page_{i}.py"
        path.write_text(head + block, encoding="utf-8")
        results = check_plugin(path)
        assert len(results) > 20
        assert [result for result in results if not result.ok] == []


def test_the_method_on_the_page_of_traces_is_short_and_keeps_every_rule(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")
    (written,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert written.count("\n") <= 30
    path = tmp_path / "trace_entropy.py"
    path.write_text(written, encoding="utf-8")
    assert [result for result in check_plugin(path) if not result.ok] == []
