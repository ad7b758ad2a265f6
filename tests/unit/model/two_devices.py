"""Cases of a model over two devices, which `test_language_model.py` runs in a process: numbers are those on one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bench.api import AdapterRef, At, ChoiceLogits, Hidden, QueryLogits, Ragged, Samples, TokenScores, Validation
from bench.model import session as checkpointed
from bench.model.adapter import apply_adapter, fingerprint
from bench.model.continuation_specs import ModelInput
from bench.model.extractor import Extractor, ShardOutput
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.session import blocks
from bench.model.specs import ModelSpec
from bench.prompts.prompt_settings import PromptSettings
from bench.signals.definition import pass_definitions
from bench.store.disk_cache import Store
from bench.training import loop
from bench.training.job import ADAPTER, EXAMPLES, VALIDATION, Job, write_examples
from bench.training.trainer import AdapterTrainer
from tests.fixtures import models
from tests.fixtures.cards import CARD, SplitBackbone, card, split
from tests.kit.passes import load

SIGNALS = [
    ChoiceLogits(), QueryLogits(), TokenScores(), Samples(3),
    *(Hidden(depth, At.ANSWER_END) for depth in (0.25, 0.5, 0.75, 1.0)),
    *(Hidden(1.0, at) for at in (At.PROMPT_END, At.GOLD_PREDICTING, At.WRONG_PREDICTING)),
]  # fmt: skip
LLAMA = models.llama(num_hidden_layers=4)
CONFIGURATIONS = {
    "llama": LLAMA, "tied": transformers.Qwen2Config(**LLAMA.to_diff_dict() | {"tie_word_embeddings": True}),
}  # fmt: skip
ORDERS = [("cpu", CARD), (CARD, "cpu")]
VOCABULARY, N = 80, 12
SETTINGS: dict[str, Any] = {
    "rank": 4, "alpha": 16, "dropout": 0.5, "target_modules": "", "steps": 4, "batch_size": 6, "learning_rate": 1e-2,
    "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.999, "clip": 1.0, "seed": 3, "deepspeed": True, "divergence": "jsd",
    "divergence_weight": 1.0,
}  # fmt: skip
CT = "methods._shared.lora:ct_loss"
CONFIDENCE = "methods._shared.lora:verdict_confidence"


def items() -> list[ModelInput]:
    """Two with given answers, two whose answers are generated."""
    rng = np.random.default_rng(0)

    def ids(*tokens: int) -> Any:
        return np.asarray(tokens, dtype=np.int32)

    return [
        ModelInput(
            np.concatenate([np.arange(10, 90), rng.integers(100, 200, 3 + i)]).astype(np.int32), 4,
            ids(5, 6, 7)[: i + 1] if i < 2 else None, gold=ids(5, 6), wrong=(ids(7, 8), ids(7, 9, 10)),
            uniforms=rng.random((3, 6)),
        )
        for i in range(4)
    ]  # fmt: skip


def measured(lm: LanguageModel) -> list[ShardOutput]:
    asking = PromptSettings(6, np.arange(1, 5, dtype=np.int32), np.asarray([11, 12, 13]), np.asarray([1, 2]), 64)
    given = items()
    return [Extractor(lm, asking, pass_definitions(SIGNALS)).extract(group) for group in (given[:2], given[2:])]


@pytest.mark.parametrize("devices", ORDERS, ids=["head on the card", "head on the CPU"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_signals_are_those_of_one_device(name: str, devices: tuple[str, str], tmp_path: Path) -> None:
    there = models.save(tmp_path, CONFIGURATIONS[name])
    plain = measured(load(there))
    with card():
        lm = split(there, devices)
        homes = {block.input_layernorm.weight.device.type for block in blocks(lm.model)}
        assert homes == {"cpu", "card"}
        assert lm.uses_packs
        found = measured(lm)
        compared = 0
        for ours, theirs in zip(found, plain, strict=True):
            assert [answer.tolist() for answer in ours.answers] == [answer.tolist() for answer in theirs.answers]
            for signal, column in theirs.columns.items():
                for key, tensor in column.items():
                    here = ours.columns[signal][key].cpu()
                    torch.testing.assert_close(here, tensor, atol=1e-4, rtol=1e-4, equal_nan=True)
                    compared += 1
    assert compared > 2 * len(SIGNALS)


def test_mixing_devices_raises() -> None:
    """So a tensor that is not moved would be seen."""
    with card():
        there = torch.ones(2, device=CARD)
        with pytest.raises(RuntimeError, match="both devices"):
            there + torch.ones(2)
        assert (there + torch.ones(2).to(CARD)).cpu().tolist() == [2, 2]


def examples() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    beginning = rng.integers(12, VOCABULARY, 9)
    prompts = [np.asarray([1, *beginning, *rng.integers(12, VOCABULARY, 2 + i % 4)]) for i in range(N)]
    answers = rng.integers(12, VOCABULARY, N)
    return {
        "query": Ragged.of([np.asarray([*p, a, 7, 8]) for p, a in zip(prompts, answers, strict=True)]),
        "correct": answers % 2 == 0,
        "prompt": Ragged.of(prompts),
        "gold": Ragged.of([rng.integers(12, VOCABULARY, 1 + i % 3) for i in range(N)]),
    }


def job(lm: LanguageModel, folder: Path, **changes: Any) -> Path:
    """A job as the parent writes it for a model over two cards."""
    given = examples()
    validation = Validation(CONFIDENCE, {"query": given["query"], "correct": given["correct"]})
    split = LanguageModel(lm.spec, lm.options)
    split.devices = ("cpu", "cpu")
    split.options = LoadOptions(devices=("3", "1"))
    made = AdapterTrainer(split, Store(folder / "cache"), "ct", (10, 11))._job(CT, given, SETTINGS, validation)
    assert (made.load["devices"], made.settings["deepspeed"]) == (["0", "1"], False)
    write_examples(folder / EXAMPLES, given)
    write_examples(folder / VALIDATION, validation.examples)
    load = {**made.load, "devices": changes.pop("devices")}
    return Job(**{**vars(made), "load": load, **changes}).write(folder)


def steps(output: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith('{"step"')]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    config = models.llama(vocab_size=VOCABULARY, num_hidden_layers=4, max_position_embeddings=128)
    return load(models.save(tmp_path_factory.mktemp("small"), config, models.words(VOCABULARY)))


@pytest.mark.parametrize(
    ("devices", "checkpointing"), [(ORDERS[0], True), (ORDERS[1], False), (ORDERS[1], True)],
    ids=["head on the card, checkpointed", "head on the CPU", "head on the CPU, checkpointed"],
)  # fmt: skip
def test_steps_are_those_of_one_device_when_resumed(
    small: LanguageModel, devices: tuple[str, str], checkpointing: bool, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    changes: dict[str, Any] = {"checkpointing": checkpointing, "checkpoint_every": 2}
    folders = [tmp_path / name for name in ("one", "two")]
    for each in folders:
        each.mkdir()
    loop.main(job(small, folders[0], devices=[], **changes))
    plain = steps(capsys.readouterr().out)
    given = []

    def over_both(spec: ModelSpec, options: LoadOptions) -> LanguageModel:
        given.append(options.devices)
        return SplitBackbone(spec, options, devices)

    on, again = [], checkpointed.checkpoint

    def noted(forward: Any, states: torch.Tensor, *args: Any, **settings: Any) -> Any:
        """By the device of these it is told whose random numbers are to be drawn again."""
        on.append(states.device.type)
        return again(forward, states, *args, **settings)

    monkeypatch.setattr(loop, "LanguageModel", over_both)
    config = job(small, folders[1], devices=["0", "1"], **changes)
    with card():
        monkeypatch.setattr(checkpointed, "checkpoint", noted)
        with pytest.MonkeyPatch.context() as ending:
            ending.setattr(loop._Training, "_save", lambda _training: None)  # as if it were killed before
            loop.main(config)
        loop.main(config)
    lines = steps(capsys.readouterr().out)
    assert given == [("0", "1")] * 2
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 3, 4]  # the second time from the checkpoint on
    np.testing.assert_allclose([line["loss"] for line in lines[:4]], [line["loss"] for line in plain], rtol=1e-4)
    assert lines[2]["loss"] == lines[4]["loss"]
    homes = [torch.device(device).type for device in devices for _ in range(2)]
    assert on == (
        homes * (len(on) // 4) if checkpointing else []
    )  # of one whose states come from the other device, too
    assert bool(on) is checkpointing
    ref = AdapterRef(folders[1] / ADAPTER, fingerprint(folders[1] / ADAPTER))
    ids, read = np.arange(12, 40, dtype=np.int32), {4: np.arange(28)}
    with apply_adapter(small, ref):
        one = small.session.read_alone(ids, read)[4]
    with card():
        both = SplitBackbone(small.spec, LoadOptions(), devices)
        frozen = both.session.read_alone(ids, read)[4].cpu()
        with apply_adapter(both, ref):
            torch.testing.assert_close(both.session.read_alone(ids, read)[4].cpu(), one, atol=1e-4, rtol=1e-4)
        assert torch.equal(both.session.read_alone(ids, read)[4].cpu(), frozen)
        assert not torch.allclose(frozen, one, atol=1e-3)
