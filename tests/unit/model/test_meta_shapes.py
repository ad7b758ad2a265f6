"""Passes over the four models of the paper in their true shapes, on the meta device, where mixing devices is an error.

Weights and states are never made; a copy to the CPU gives zeros.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from bench.api import At, ChoiceLogits, Hidden, OutputHead, QueryLogits, TokenScores
from bench.model import language_model as specs
from bench.model.continuation_specs import ModelInput
from bench.model.extractor import Extractor
from bench.model.session import Session
from bench.prompts.prompt_settings import PromptSettings
from bench.signals.definition import pass_definitions
from tests.kit.passes import ids

SHAPES = tomllib.loads((Path(specs.__file__).parents[1] / "cli" / "configs.toml").read_text(encoding="utf-8"))
SIGNALS = [
    ChoiceLogits(), QueryLogits(), TokenScores(),
    *(Hidden(depth, At.ANSWER_END) for depth in (0.5, 0.75, 1.0)),
    *(Hidden(1.0, at) for at in (At.PROMPT_END, At.ANSWER_PREDICTING, At.GOLD_PREDICTING, At.WRONG_PREDICTING)),
]  # fmt: skip
N = 3


def lm(name: str, blocks: int) -> Any:
    """What an extractor needs of a model of these widths."""
    settings = SHAPES[name] | {"num_hidden_layers": blocks}
    config = transformers.AutoConfig.for_model(settings.pop("model_type"), **settings)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    model.requires_grad_(requires_grad=False)
    made = SimpleNamespace(
        model=model, session=Session(model), head=OutputHead(model.lm_head.weight), blocks=blocks,
        uses_packs=True, dtype=model.dtype, stops=frozenset(), device="meta", devices=("meta",),
    )  # fmt: skip
    made.block_of = lambda depth: specs.LanguageModel.block_of(made, depth)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_signals_are_measured_in_the_true_shapes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(SHAPES) == 4
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: torch.zeros_like(tensor, device="cpu"))
    shape = SHAPES[name]
    prompts = ids(*([*range(10, 200), *[300 + i] * 20] for i in range(N)))
    items = [
        ModelInput(prompt, 4, answer[: i + 1], gold=answer[:2], wrong=tuple(ids([7, 8], [7, 9, 10])))
        for i, (prompt, answer) in enumerate(zip(prompts, ids(*[[5, 6, 7]] * N), strict=True))
    ]
    asking = PromptSettings(10, *ids([1, 2, 3, 4], [11, 12, 13], [1, 2]), 8192)
    measured = Extractor(lm(name, 4), asking, pass_definitions(SIGNALS)).extract(items)
    columns = measured.columns
    assert columns[ChoiceLogits()]["values"].shape == (N, 4)
    assert columns[QueryLogits()]["values"].shape == (N, 2)
    states = columns[Hidden(1.0, At.WRONG_PREDICTING)]["values"]
    assert (states.shape, states.dtype) == ((N * 5, shape["hidden_size"]), torch.bfloat16)
    assert columns[Hidden(1.0, At.ANSWER_PREDICTING)]["offsets"].tolist() == [0, 1, 3, 6]
