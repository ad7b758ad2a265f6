"""Trained parameters from real module shapes, against the formulas of docs/methods.md and the paper's numbers."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from bench.api import UserError
from bench.cli.parameter_counts import facts_of, parameter_records

MODELS = {"llama8b": (4096, 128256), "qwen14b": (5120, 152064), "mistral24b": (5120, 131072), "qwen32b": (5120, 152064)}
LORA = {"llama8b": 3_407_872, "qwen14b": 6_291_456, "mistral24b": 4_915_200, "qwen32b": 8_388_608}
NAMES = {
    "llama8b": "Meta-Llama-3.1-8B-Instruct", "qwen14b": "Qwen2.5-14B-Instruct",
    "mistral24b": "Mistral-Small-24B-Instruct-2501", "qwen32b": "Qwen2.5-32B-Instruct",
}  # fmt: skip
COLUMNS = {
    "ptrue": "ptrue", "lts": "lts", "pik": "pik", "saplma-f": "saplma", "saplma-m": "saplma", "saplma-um": "saplma",
    "it": "lora_r8", "ct": "lora_r8", "litcab": "litcab", "ccps:choice": "ccps_mc",
}  # fmt: skip
UNTRAINED = (
    "perplexity", "mean-token-entropy", "token-margin", "self-certainty", "semantic-entropy", "degree-matrix",
    "eccentricity", "eigenvalues", "sentence-sar", "eigenscore", "verbalised", "cocoa",
)  # fmt: skip
PRINTED = Path(__file__).parents[4] / "shared" / "paper" / "parameter_counts.csv"


@pytest.mark.parametrize("model", MODELS)
def test_counts_are_those_of_the_formulas(model: str) -> None:
    width, vocabulary = MODELS[model]
    counts = {record["method"]: record["parameters"] for record in parameter_records([model])}
    saplma = 256 * width + 41_538
    assert counts == {
        "ptrue": 0, "sequence-probability": 0, "self-consistency": 0, "lts": 1, "pik": 2 * width + 2,
        "saplma-f": saplma, "saplma-m": saplma, "saplma-um": saplma, "it": LORA[model], "ct": LORA[model],
        "litcab": width * vocabulary + vocabulary,
        "ccps:choice": 9_542, "ccps:open": 21_778, **dict.fromkeys(UNTRAINED, 0),
        "combined": 9, "logistic-probe": width + 1, "semantic-entropy-probe": width + 3,
        "relative-mahalanobis": width * width + 3 * width + 2,
    }  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_the_papers_numbers_stand_beside_ours_with_the_reason_where_they_differ(model: str) -> None:
    if not PRINTED.is_file():
        pytest.skip("../shared/paper is not there")
    with PRINTED.open(encoding="utf-8") as file:
        (row,) = [row for row in csv.DictReader(file) if row["model"] == NAMES[model]]
    for record in parameter_records([model]):
        column = COLUMNS.get(record["method"])
        assert record["in the paper"] == (None if column is None else int(row[column]))
        differs = record["in the paper"] not in {None, record["parameters"]}
        assert bool(record["why they differ"]) == differs
        assert record["why they differ"] != "not known"


def test_any_model_has_sizes() -> None:
    assert facts_of("tiny").hidden_size > 0
    assert {record["model"] for record in parameter_records(["tiny"])} == {"tiny"}


def test_a_model_must_be_named() -> None:
    with pytest.raises(UserError, match="--model"):
        parameter_records([])
