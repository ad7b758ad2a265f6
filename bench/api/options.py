"""Marks of a dataclass's fields that are the options of a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class Heading:
    """Heading in the help of the command, above this option and those after it."""

    text: str


@dataclass(frozen=True)
class Flag:
    """Name of an option that doesn't follow from the name of its field."""

    name: str


@dataclass(frozen=True)
class Separated:
    """Mark of an option that takes several values at once."""

    by: str = ","


Names = Annotated[tuple[str, ...], Separated()]
