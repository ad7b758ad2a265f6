"""The cost model: its arithmetic by hand, its counts on small work, budgets for the code, and the committed figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from benchmarks.cost_model import __main__ as program
from benchmarks.cost_model import stages, workload
from benchmarks.cost_model.arithmetic import Ideal, Machine
from benchmarks.cost_model.dry import DECODE, OTHER, PREFILL, Counter, Section, Trace, counted

MODEL = "llama8b"
SLACK = 1.05
CHOICE_LAUNCHES, CHOICE_COPIES, CHOICE_SECTIONS, CHOICE_PACK_COPIES = 44.0, 1.0, 6, 4
DECODE_LAUNCHES, DECODE_COPIES = 41.8, 2.0
"""What the code does today; lower is better, and then these are lowered."""


def test_machine_and_ideal_by_hand() -> None:
    machine = Machine(flops=1e12, flops32=1e11, bytes=1e9, launch=1e-3, copy=1e-4)
    launching = Section(launches=5, flops=1e9, bytes=1e6)  # 5 ms, 1 ms, 1 ms
    computing = Section(launches=1, flops=2e9, flops32=3e8, bytes=1e6, down=2, up=1)  # 1 ms, 2 + 3 ms, 1 ms; 0.3 ms
    moving = Section(launches=1, bytes=7e6)  # 1 ms, 0, 7 ms
    assert machine.seconds([launching, computing, moving]) == pytest.approx(0.005 + 0.005 + 0.0003 + 0.007)
    ideal = Ideal(machine, blocks=1_000_000, head=500_000)
    assert ideal.prefill(1000) == pytest.approx(2e6 * 1000 / 1e12)
    assert ideal.training(1000) == pytest.approx(4e6 * 1000 / 1e12)
    # 256 tokens together: 3 MB of weights take 3 ms, and 0.768 GFLOP less than 1 ms.
    assert ideal.decode(512) == pytest.approx(2 * 0.003)
    # Per weight 2 bytes of the head, 4 to read, 4 to write, 28 for AdamW.
    assert ideal.layer_step(10, 500_000) == pytest.approx(38 * 500_000 / 1e9)
    whole = stages._ideal(MODEL)
    assert (whole.head, whole.blocks + 2 * whole.head) == (4096 * 128_256, 8_030_261_248)


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def mixed() -> None:
    b = torch.as_tensor(torch.zeros(16, 4).numpy(), device="meta")  # a copy up
    c = empty(8, 16, dtype=torch.bfloat16).float() @ b.view(16, 4)  # a conversion and a product in float32
    c[torch.tensor([0, 1])].cpu()  # an index from the host, a copy up; one down
    c.sum().item()


def attention() -> None:
    query, mask = empty(1, 4, 10, 16, dtype=torch.bfloat16), empty(1, 1, 10, 10, dtype=torch.bfloat16)
    torch.nn.functional.scaled_dot_product_attention(query, query, query, mask)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (mixed, {"up": 2, "down": 2, "flops": 0, "flops32": 2 * 8 * 16 * 4, "launches": 4, "bytes":
                 8 * 16 * (2 + 4) + 4 * (8 * 16 + 16 * 4 + 8 * 4) + 4 * 2 * (2 * 4) + 4 * (8 * 4 + 1)}),
        # so the output head's derivative is taken
        (lambda: empty(8, 4).addmm_(empty(8, 16), empty(16, 4)),
         {"launches": 1, "flops32": 2 * 8 * 16 * 4, "bytes": 4 * (2 * 8 * 4 + 8 * 16 + 16 * 4)}),
        (attention, {"launches": 1, "flops": 4 * 4 * 10 * 10 * 16}),
    ],
    ids=["products, copies, views", "product in place", "attention"],
)  # fmt: skip
def test_counts_of_small_work(work: Callable[[], object], expected: dict[str, Any]) -> None:
    (section,) = counted(work, Counter()).sections
    assert {name: getattr(section, name) for name in expected} == expected


@pytest.mark.slow
def test_longer_models_follow_from_two_short_ones() -> None:
    """All counts are affine in the number of blocks: what two models say of a third is what it does."""
    work = workload.workloads()["medmcqa-choice"]
    three, four, six = (stages.pack_trace(MODEL, work, 1024, blocks)[1] for blocks in (3, 4, 6))
    for said, done in zip(three.extended(four, 1, 3).sections, six.sections, strict=True):
        for one in fields(Section):
            assert getattr(said, one.name) == pytest.approx(getattr(done, one.name)), one.name


@pytest.mark.slow
def test_checkpointing_is_chosen_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward are as much; of the second forward pass the last product of a block is not needed."""
    assert [stages.computes_again(model) for model in ("llama8b", "qwen32b")] == [False, True]
    flops = {}
    for again in (False, True):
        monkeypatch.setattr(stages, "computes_again", lambda _, again=again: again)
        works = workload.workloads()["ct-local-oe"]
        two, three = (stages._step_trace(MODEL, "IT", works, blocks).sections for blocks in (2, 3))
        flops[again] = sum(one.flops for one in three) - sum(one.flops for one in two)
    wide, keys, inner = 4096, 1024, 14336
    block = 2 * wide * wide + 2 * wide * keys + 3 * wide * inner
    assert flops[True] / flops[False] == pytest.approx(1 + (1 - wide * inner / block) / 2, rel=0.02)


# --- budgets of the code ----------------------------------------------------------------------------------------------


def mean(trace: Trace, kind: str, what: str) -> float:
    values = [getattr(one, what) for one in trace.of(kind).sections]
    return float(sum(values) / len(values))


def test_choice_pack_keeps_to_its_budgets() -> None:
    """Launches of a block, copies of a forward pass, and copies of a pack of eight questions."""
    work = workload.workloads()["mmlu-choice"]
    three, four = (stages.pack_trace(MODEL, work, 1024, blocks)[1] for blocks in (3, 4))
    assert mean(four, PREFILL, "launches") - mean(three, PREFILL, "launches") <= SLACK * CHOICE_LAUNCHES
    assert mean(three, PREFILL, "copies") <= SLACK * CHOICE_COPIES
    assert len(three.tokens) <= CHOICE_SECTIONS
    assert three.tokens[-2] == 8 * (1 + work.query)  # every letter, and the query after it
    assert sum(one.copies for one in three.sections) <= CHOICE_PACK_COPIES  # two a pass


@pytest.mark.slow
def test_decoding_keeps_to_its_budgets() -> None:
    """Launches of a block and copies of a step: the pass and what follows it."""
    packs = {"1024": workload.Packs(4, 160, 280, 40)}
    work = replace(workload.workloads()["mmlu-oe"], packs=packs, answers=[2, 4], questions=4)
    three, four = (stages.pack_trace(MODEL, work, 1024, blocks)[1] for blocks in (3, 4))
    assert mean(four, DECODE, "launches") - mean(three, DECODE, "launches") <= SLACK * DECODE_LAUNCHES
    assert mean(three, DECODE, "copies") + mean(three, OTHER, "copies") <= SLACK * DECODE_COPIES


@pytest.mark.slow
def test_groves_keep_to_their_budgets() -> None:
    """What ten packs of open questions do together: a step advances at least 128, and copies are two a pass at most."""
    work = workload.workloads()["ct-local-oe"]
    trace = stages.pack_trace(MODEL, work, 8192, 3, learning=True, packs=10)[1]
    fed, decoding = [tokens for tokens in trace.tokens if tokens], trace.of(DECODE).tokens
    questions = round(10 * work.packs["8192"].questions)
    assert questions >= 128
    assert len(fed) == 10 + len(decoding) + 2  # packs one by one; then answers with queries, and options
    assert len(decoding) < stages.LONGEST
    assert 0.75 * questions <= decoding[0] <= questions  # some answers end at once
    assert sum(one.copies for one in trace.sections) <= 2 * len(fed)


# --- the committed figures --------------------------------------------------------------------------------------------

QUICK, SLOW = ("LitCab, choice", "LitCab, open"), ("read medmcqa-choice", "CCPS features", "train IT, open")


@pytest.mark.parametrize("stage", [*QUICK, *(pytest.param(stage, marks=pytest.mark.slow) for stage in SLOW)])
def test_figures_committed_are_those_of_the_code(stage: str) -> None:
    """Some of them: all take minutes. `make cost-model` counts again."""
    committed = program.read()["models"][MODEL][stage]
    assert stages.stages(MODEL)[stage](1024).record() == pytest.approx(committed["1024"], rel=0.01)


def test_table_committed_has_the_figures_and_litcab_its_target() -> None:
    figures, (most, lines) = program.read(), program.TARGETS["LitCab"]
    assert program.TABLE.read_text(encoding="utf-8") == program.table(figures)
    assert [model for model in figures["models"] if program.ratio(figures, model, 1024, lines) > most] == []
    listed = [name for chosen in {**program.GROUPS, **program.ADAPTERS}.values() for name in chosen]
    assert sorted(listed) == sorted(stages.stages(MODEL))
