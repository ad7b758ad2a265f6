"""The parsers of what comes from outside: each with inputs that it must take, and a call that may only refuse."""

from __future__ import annotations

from bench.api import ContractError, UserError
from tests.fuzz import files, rows, texts
from tests.fuzz.inputs import Target

REFUSALS = (UserError, ContractError)

TARGETS: dict[str, Target] = {**texts.TARGETS, **files.TARGETS, **rows.TARGETS}
