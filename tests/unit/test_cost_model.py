"""The cost model: budgets for the code, and the committed figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.cost_model import __main__ as program
from benchmarks.cost_model import stages, workload
from benchmarks.cost_model.dry import DECODE, OTHER, PREFILL, Trace

MODEL = "llama8b"
SLACK = 1.05
CHOICE_LAUNCHES, CHOICE_COPIES, CHOICE_SECTIONS, CHOICE_PACK_COPIES = 44.0, 1.0, 6, 4
DECODE_LAUNCHES, DECODE_COPIES = 41.8, 2.0
"""What the code does today; lower is better, and then these are lowered."""


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
