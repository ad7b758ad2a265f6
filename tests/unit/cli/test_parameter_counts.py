"""`bench params`: sizes from module shapes, against docs/methods.md and the paper, and the memory that they take."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from bench.api import UserError
from bench.cli.parameter_counts import config_and_facts, memory_records, parameter_records
from tests.kit.command import bench

MODELS = {  # width, vocabulary, parameters of its adapters, attention heads, name in the paper
    "llama8b": (4096, 128256, 3_407_872, 32 * 32, "Meta-Llama-3.1-8B-Instruct"),
    "qwen14b": (5120, 152064, 6_291_456, 48 * 40, "Qwen2.5-14B-Instruct"),
    "mistral24b": (5120, 131072, 4_915_200, 40 * 32, "Mistral-Small-24B-Instruct-2501"),
    "qwen32b": (5120, 152064, 8_388_608, 64 * 40, "Qwen2.5-32B-Instruct"),
}
COLUMNS = {
    "ptrue": "ptrue", "lts": "lts", "pik": "pik", "saplma-f": "saplma", "saplma-m": "saplma", "saplma-um": "saplma",
    "it": "lora_r8", "ct": "lora_r8", "litcab": "litcab", "ccps:choice": "ccps_mc",
}  # fmt: skip
UNTRAINED = (
    "ptrue", "sequence-probability", "self-consistency", "perplexity", "mean-token-entropy", "token-margin",
    "self-certainty", "semantic-entropy", "degree-matrix", "eccentricity", "eigenvalues", "sentence-sar", "eigenscore",
    "verbalised", "cocoa", "rauq", "kernel-language-entropy", "trace-length", "deepconf-mean", "deepconf-tail",
    "deepconf-lowest", "answer-stability",
)  # fmt: skip
PRINTED = Path(__file__).parents[4] / "shared" / "paper" / "parameter_counts.csv"


@pytest.mark.parametrize("model", MODELS)
def test_parameters_are_those_of_the_formulas(model: str) -> None:
    width, vocabulary, lora, heads, _ = MODELS[model]
    assert {record["method"]: record["parameters"] for record in parameter_records([model])} == {
        **dict.fromkeys(UNTRAINED, 0), "lts": 1, "pik": 2 * width + 2,
        **dict.fromkeys(("saplma-f", "saplma-m", "saplma-um"), 256 * width + 41_538), "it": lora, "ct": lora,
        "litcab": width * vocabulary + vocabulary, "ccps:choice": 9_542, "ccps:open": 21_778,
        "lookback-lens": heads + 1, "attention-score": 2, "trace-probe": width + 2,
        "combined": 9, "logistic-probe": width + 1, "semantic-entropy-probe": width + 3,
        "relative-mahalanobis": width * width + 3 * width + 2,
    }  # fmt: skip


@pytest.mark.skipif(not PRINTED.is_file(), reason="../shared/paper is not there")
@pytest.mark.parametrize("model", MODELS)
def test_parameters_that_differ_from_the_paper_have_a_reason(model: str) -> None:
    with PRINTED.open(encoding="utf-8") as file:
        (row,) = [row for row in csv.DictReader(file) if row["model"] == MODELS[model][-1]]
    for record in parameter_records([model]):
        column = COLUMNS.get(record["method"])
        assert record["in the paper"] == (None if column is None else int(row[column]))
        differs = record["in the paper"] not in {None, record["parameters"]}
        assert bool(record["why they differ"]) == differs
        assert record["why they differ"] != "not known"


def test_parameters_are_told_of_any_named_model() -> None:
    assert config_and_facts("tiny")[1].hidden_size > 0
    assert {record["model"] for record in parameter_records(["tiny"])} == {"tiny"}
    with pytest.raises(UserError, match="--model"):
        parameter_records([])


def test_memory_is_told_of_reading_and_large_fits() -> None:
    records = {record["work"]: record for record in memory_records(["llama8b"])}
    assert list(records) == ["reading, 1,024 tokens a pass", "fit of litcab", "fit of ct, it, 2,048 tokens a pass"]
    litcab, adapters = records["fit of litcab"], records["fit of ct, it, 2,048 tokens a pass"]
    assert litcab["trained"] == 16 * (4096 * 128_256 + 128_256) / 1e9
    assert litcab["checkpointed"] is None
    assert adapters["checkpointed"] < adapters["GB"]
    for record in records.values():
        assert record["GB"] == pytest.approx(sum(record[part] for part in ("weights", "blocks", "rest", "trained")))


def test_memory_is_printed() -> None:
    done = bench("params", "--memory", "--model", "tiny")
    assert done.returncode == 0
    assert "checkpointed" in done.stdout
    assert "computed from shapes" in " ".join(done.stdout.split())
    asked = bench("params", "--memory", "--model", "tiny", "--json")
    assert {record["model"] for record in json.loads(asked.stdout)} == {"tiny"}
