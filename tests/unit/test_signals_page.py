"""The page about signals names every signal, argument and place that the interface has."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import bench.api
from bench.api import At, Of, Signal

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
    return "(" + ", ".join(f'"{part}"' for part in value) + ")"
