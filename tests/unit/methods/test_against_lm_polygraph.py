"""Methods against values of LM-Polygraph's estimators for the same statistics, as `make peers` recorded them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import registry
from benchmarks.performance.measure import NotMeasured
from tests.peers import __main__ as peers
from tests.peers.drawn import Statistics, draw
from tests.peers.table import BOUND, COMPARED, NOT_COMPARED, Compared, key, markdown

RECORD: dict[str, Any] = json.loads(peers.RECORD.read_text(encoding="utf-8"))
VALUES = {name: np.asarray(values) for name, values in RECORD["values"].items()}


@pytest.fixture(scope="module")
def few() -> Statistics:
    return draw(*peers.FEW)


@pytest.mark.parametrize("row", COMPARED, ids=key)
def test_a_method_gives_the_values_of_the_estimator(row: Compared, few: Statistics) -> None:
    assert row.difference(few, VALUES) <= BOUND
    assert RECORD["largest"][key(row)] <= BOUND


@pytest.mark.parametrize("row", COMPARED, ids=key)
def test_one_value_that_is_off_is_found(row: Compared, few: Statistics) -> None:
    for off in (0.01, np.nan):
        theirs = {name: np.concatenate([values[:-1], values[-1:] + off]) for name, values in VALUES.items()}
        assert not row.difference(few, theirs) <= BOUND


@pytest.mark.parametrize(
    "row",
    [
        Compared("semantic-entropy", "SemanticEntropy", "-u"),
        Compared("eccentricity", "Eccentricity_NLI_score_entail", "-u", arguments={"threshold": 0.8}),
        Compared("sentence-sar", "SentenceSAR", "-u", arguments={"t": 0.002}),
        Compared("eigenscore", "EigenScore", "-u", arguments={"alpha": 0.002}),
        Compared("cocoa", "CocoaPPL", "-u"),
    ],
    ids=key,
)
def test_another_definition_gives_other_values(row: Compared, few: Statistics) -> None:
    assert row.difference(few, VALUES) > BOUND


def test_every_built_in_method_stands_in_the_table_on_one_side() -> None:
    compared = {row.method for row in COMPARED}
    others = [name for row in NOT_COMPARED for name in row.methods]
    built_in = {entry.name for entry in registry.methods().entries() if entry.origin == registry.BUILT_IN}
    assert sorted([*compared, *others]) == sorted(built_in)


def test_the_committed_table_is_that_of_the_record() -> None:
    assert peers.TABLE.read_text(encoding="utf-8") == markdown(RECORD)
    assert list(RECORD["largest"]) == list(map(key, COMPARED))
    assert RECORD["versions"]["lm-polygraph"] == "0.7.0"


@pytest.mark.parametrize("case", [peers.MANY, peers.FEW], ids=["many", "few"])
def test_the_statistics_have_what_is_hard(case: tuple[int, int]) -> None:
    drawn = draw(*case)
    assert (np.diff(drawn.offsets) == 1).any()
    assert (drawn.lengths == 0).any()
    assert np.isneginf(drawn.log_probabilities).any()
    kinds = [len(set(own)) for own in drawn.texts[:, :-1].tolist()]
    assert min(kinds) == 1
    assert max(kinds) > 5
    for i, own in enumerate(drawn.texts):
        one, other = np.nonzero(own[:, None] == own)
        np.testing.assert_array_equal(drawn.entailment[i, one], drawn.entailment[i, other])
        np.testing.assert_array_equal(drawn.similarity[i, :, one], drawn.similarity[i, :, other])
    assert (drawn.similarity != drawn.similarity.transpose(0, 2, 1)).any()
    np.testing.assert_allclose(drawn.entailment.sum(axis=-1), 1, atol=1e-6)


def told(drawn: Statistics, *, off: float = 0.0) -> Mapping[str, Any]:
    del drawn
    return {**RECORD, "values": {name: (values + off).tolist() for name, values in VALUES.items()}}


def test_the_command_fails_where_values_differ_and_names_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "MANY", peers.FEW)
    monkeypatch.setattr(peers, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(peers, "TABLE", tmp_path / "table.md")
    monkeypatch.setattr(peers, "_polygraph", told)
    assert peers.main() == 0
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == capsys.readouterr().out
    monkeypatch.setattr(peers, "_polygraph", lambda drawn: told(drawn, off=0.01))
    assert peers.main() == 1
    assert "perplexity ~ Perplexity: expected a difference of at most 0.0001, got 0.01" in capsys.readouterr().err


def test_without_the_other_tool_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(drawn: Statistics) -> None:
        raise NotMeasured("lm-polygraph==0.7.0 can't be installed: no network")

    monkeypatch.setattr(peers, "_polygraph", missing)
    assert peers.main() == 2
    assert capsys.readouterr().err == "Not compared: lm-polygraph==0.7.0 can't be installed: no network\n"


def test_a_comparison_is_told_by_its_arguments() -> None:
    row = replace(COMPARED[0], arguments={"length_normalised": False})
    assert row.name == "sequence-probability length_normalised=false"
