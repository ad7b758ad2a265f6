"""`bench params --memory`: a line for reading and for each fit that takes much."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from bench.cli.app import app
from bench.cli.parameter_counts import memory_records


def test_each_model_has_a_line_for_reading_and_for_each_large_fit() -> None:
    records = {record["work"]: record for record in memory_records(["llama8b"])}
    assert list(records) == ["reading, 1,024 tokens a pass", "fit of litcab", "fit of ct, it, 2,048 tokens a pass"]
    litcab, adapters = records["fit of litcab"], records["fit of ct, it, 2,048 tokens a pass"]
    assert litcab["trained"] == 16 * (4096 * 128_256 + 128_256) / 1e9
    assert litcab["checkpointed"] is None
    assert adapters["checkpointed"] < adapters["GB"]
    for record in records.values():
        parts = ("weights", "blocks", "rest", "trained")
        assert record["GB"] == pytest.approx(sum(record[part] for part in parts))


def test_the_command_prints_them() -> None:
    done = CliRunner().invoke(app, ["params", "--memory", "--model", "tiny"])
    assert done.exit_code == 0
    assert "checkpointed" in done.stdout
    assert "computed from shapes" in " ".join(done.stdout.split())
    asked = CliRunner().invoke(app, ["params", "--memory", "--model", "tiny", "--json"])
    assert {record["model"] for record in json.loads(asked.stdout)} == {"tiny"}
