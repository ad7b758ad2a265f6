"""Generated traces, and signals at their tokens, are those of plain passes over whole sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bench.api import At, ChoiceLogits, Hidden, Of, Samples, Signal, TokenScores, UserError
from bench.model import trace_decoder
from bench.model.continuation_specs import ModelInput
from bench.model.devices import ALONE, BatchLimits
from bench.model.extractor import Extractor
from bench.model.language_model import LanguageModel
from bench.model.session import Session
from bench.model.token_sampling import uniform_numbers
from bench.model.trace_decoder import TraceDecoder, Traces, TraceText, trace_texts
from bench.prompts.front_coding import Ids
from bench.prompts.traces import Thinking, TraceEnd
from bench.signals.definition import pass_definitions
from tests.kit import passes

BUDGET, LIMIT = 9, 3
DRAWN = Samples(3, 1.5)
CLOSED, CUT = passes.ids([90, 91], [92, 90, 91])


NAMES = sorted(set(passes.ARCHITECTURES) - passes.UNSHARED)
TOGETHER = {"alone": ALONE, "together": BatchLimits(1000, 10**12)}


def cases(**others: Any) -> Any:
    """Each architecture in each way; fast is llama in all of them, and of the others that are not alike each in one."""
    turns = [name for name in NAMES if name not in {*passes.ALIKE, "llama"}]
    ways = [(f"{a}-{b}", other, together) for a, other in others.items() for b, together in TOGETHER.items()]
    fast = {(name, ways[i % len(ways)][0]) for i, name in enumerate(turns)} | {("llama", way) for way, *_ in ways}
    return [
        pytest.param(name, *way[1:], id=f"{name}-{way[0]}", marks=() if (name, way[0]) in fast else pytest.mark.slow)
        for name in NAMES
        for way in ways
    ]


@pytest.fixture(scope="module", params=passes.distinct(NAMES))
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return passes.load(passes.save(tmp_path_factory.mktemp("model") / request.param, request.param))


def thinking(marker_id: int | None) -> Thinking:
    closed = CLOSED if marker_id is None else np.concatenate([[marker_id], CLOSED]).astype(np.int32)
    return Thinking(BUDGET, "" if marker_id is None else "</think>", marker_id, closed, CUT, "Answer:", " ")


def expected(lm: LanguageModel, prompt: Iterable[int], marker: int, numbers: Any, limit: int) -> TraceText:
    """A trace, and with a limit the answer after it, token by token in plain passes."""
    temperature, said, end, ids = DRAWN.temperature, [], TraceEnd.BUDGET, [*map(int, prompt)]
    start = len(ids)

    def token() -> int | None:
        number = None if numbers is None else numbers[len(ids) - start :]
        found = passes.say(lm, ids, 1, number, temperature)
        return found[0] if found else None

    while len(said) < BUDGET:
        found = token()
        if found is None or found == marker:
            end = TraceEnd.STOPPED if found is None else TraceEnd.MARKER
            break
        said.append(found)
        ids.append(found)
    answer: list[int] = []
    if limit:
        ids += thinking(marker).closing(end).tolist()
        while len(answer) < limit and (found := token()) is not None:
            answer.append(found)
            ids.append(found)
    fed = len(ids) - start - (len(answer) == limit if limit else end is TraceEnd.BUDGET)
    return TraceText(passes.ids(said)[0], end, fed, passes.ids(answer)[0])


def decoded(
    lm: LanguageModel, sampling: Samples | None, marker: int | None, budget: int = 64, together: BatchLimits = ALONE
) -> list[list[TraceText]]:
    lm.session.reset()
    traces = Traces(sampling)
    decoder = TraceDecoder(lm, passes.prompt_settings(LIMIT, budget), thinking(marker), traces)
    decoder.together = replace(together, sequences=max(1, together.sequences // traces.n))
    numbers = [uniform_numbers(3, f"question {i}", DRAWN.n, decoder.longest + 1) for i in range(7)]
    before = lm.session.tokens
    found = decoder.extract(passes.items(uniforms=numbers))
    assert found.costs["traces"].forward_tokens == lm.session.tokens - before
    column = found.columns[traces]
    return list(trace_texts(column["values"].numpy(), column["offsets"].numpy()))


def assert_same(found: TraceText, other: TraceText) -> None:
    assert (found.trace.tolist(), found.end, found.answer.tolist()) == (
        other.trace.tolist(), other.end, other.answer.tolist()
    )  # fmt: skip
    assert found.fed == other.fed


def markers(lm: LanguageModel) -> int:
    """A token that some traces have, so that it ends them."""
    said = [passes.say(lm, prompt, BUDGET) for prompt in passes.prompts()]
    return next(token for tokens in said if len(tokens) > 2 for token in tokens[2:])


@pytest.mark.parametrize(
    ("lm", "sampling", "together"), cases(greedy=None, sampled=DRAWN), indirect=["lm"], scope="module"
)
def test_traces_are_those_of_plain_passes(lm: LanguageModel, sampling: Samples | None, together: BatchLimits) -> None:
    marker = markers(lm)
    found = decoded(lm, sampling, marker, 30, together)
    numbers = [uniform_numbers(3, f"question {i}", DRAWN.n, 32) for i in range(7)]
    ends = set()
    for i, prompt in enumerate(passes.prompts()):
        rows: Sequence[Any] = [None] if sampling is None else numbers[i]
        assert len(found[i]) == len(rows)
        for text, row in zip(found[i], rows, strict=True):
            assert_same(text, expected(lm, prompt, marker, row, 0 if sampling is None else LIMIT))
            ends.add(text.end)
    assert len(ends) > 1 or lm.spec.name == "phi"  # else nothing is tested of the others


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return passes.load(passes.save(tmp_path_factory.mktemp("model") / "llama"))


def test_traces_are_generated_in_batches_that_fit(llama: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, marker = decoded(llama, DRAWN, 0, 4096, BatchLimits(1000, 1)), 0
    sizes: list[int] = []
    real = TraceDecoder._generate

    def counted(self: TraceDecoder, texts: Any, tree: Any) -> None:
        sizes.append(len(texts))
        real(self, texts, tree)

    monkeypatch.setattr(TraceDecoder, "_generate", counted)
    size, longest = llama.session.measure_bytes_per_token(), max(map(len, passes.prompts()))
    monkeypatch.setattr(trace_decoder, "LEAST_BYTES", 2 * DRAWN.n * (longest + BUDGET + len(CUT) + LIMIT) * size)
    parts = decoded(llama, DRAWN, marker, 4096, BatchLimits(1000, 1))
    assert max(sizes) <= 3 * DRAWN.n < sum(sizes)  # two prompts, of which one asks two questions
    for found, other in zip(parts, whole, strict=True):
        for text, same in zip(found, other, strict=True):
            assert_same(text, same)


@pytest.mark.parametrize("foreseen", [True, False])
def test_traces_of_one_question_are_generated_in_parts(
    llama: LanguageModel, monkeypatch: pytest.MonkeyPatch, *, foreseen: bool
) -> None:
    """As few at once as there is room for, as the limit or a failure tells."""
    whole = decoded(llama, DRAWN, 0, 4096)
    room = 2 * (max(map(len, passes.prompts())) + BUDGET + len(CUT) + LIMIT)
    divide, sizes, failed = Session.divide, list[int](), list[int]()

    def cramped(session: Session, seen: torch.Tensor, more: int) -> torch.Tensor:
        sizes.append(len(seen) * (int(seen.sum(dim=1).max()) + more))
        if sizes[-1] > room:
            failed.append(sizes[-1])
            raise torch.OutOfMemoryError("CUDA out of memory")
        return divide(session, seen, more)

    monkeypatch.setattr(Session, "divide", cramped)
    if foreseen:
        monkeypatch.setattr(trace_decoder, "LEAST_BYTES", room * llama.session.measure_bytes_per_token())
    parts = decoded(llama, DRAWN, 0, 4096)
    assert bool(failed) != foreseen
    for found, other in zip(parts, whole, strict=True):
        for text, same in zip(found, other, strict=True):
            assert_same(text, same)
    room = 0
    with pytest.raises(UserError, match=r"A single prompt of .* Use a smaller --think-budget, a smaller --dtype"):
        decoded(llama, DRAWN, 0, 4096)


def test_an_instructed_trace_ends_before_its_answer_s_line(llama: LanguageModel) -> None:
    """The tokens of the line are dropped, and a sampled answer goes on after them."""
    said = passes.say(llama, passes.prompts()[0], BUDGET)
    line = said[4]

    def pieces(ids: Sequence[int]) -> list[str]:
        return ["\nAnswer:" if token == line else f" w{token}" for token in ids]

    llama.chat.pieces = pieces  # type: ignore[method-assign]
    try:
        (text,) = decoded(llama, None, None)[0]
        first = said.index(line)
        assert text.trace.tolist() == said[:first]
        assert text.end is TraceEnd.MARKER
        assert text.fed == first
    finally:
        del llama.chat.pieces


def test_models_without_packs_are_refused(tmp_path: Any) -> None:
    lm = passes.load(passes.save(tmp_path, "llama"), plain=True)
    with pytest.raises(UserError, match="expected a model that generates texts side by side"):
        decoded(lm, None, 0)


# --- signals at the trace ---------------------------------------------------------------------------------------------

SIGNALS: list[Signal] = [
    TokenScores(Of.TRACE), TokenScores(Of.TRACE, top=3, mean_of=5, divergence=True), TokenScores(mean_of=2),
    *(Hidden(depth, At.STEP_END) for depth in (0.5, 1.0)), ChoiceLogits((0.25, 0.5, 0.75)), ChoiceLogits((0.0, 0.5)),
    Hidden(1.0, At.PROMPT_END), Hidden(0.5, At.ANSWER_END), Hidden(0.5, At.QUERY_END),
]  # fmt: skip
TRACES: list[Ids] = passes.ids([20, 21, 22, 23, 24], [], [30, 31], [40], [50] * 9, [20, 21, 25], [41, 42])


def traced(answers: Sequence[Sequence[int]] | None) -> list[ModelInput]:
    given = []
    for item, trace in zip(passes.items(answers), TRACES, strict=True):
        start, stop = len(item.prompt), len(item.prompt) + len(trace)
        whole = np.concatenate([item.prompt, trace, CUT]).astype(np.int32)
        steps = [start + k for k in (1, len(trace) - 1) if 0 < k < len(trace)]
        given.append(replace(item, prompt=whole, trace=(start, stop), steps=sorted(set(steps))))
    return given


@pytest.mark.parametrize(
    ("lm", "answers", "together"),
    cases(made=None, stored=[[20, 21], [30], [], [50], [60, 61], [70], [30]]),
    indirect=["lm"],
    scope="module",
)
def test_signals_of_traces_are_those_of_plain_passes(
    lm: LanguageModel, answers: Sequence[Sequence[int]] | None, together: BatchLimits
) -> None:
    assert_signals(lm, answers, together, 30)


@pytest.mark.parametrize("budget", [1, 4096])
def test_signals_of_traces_do_not_depend_on_packs(llama: LanguageModel, budget: int) -> None:
    assert_signals(llama, None, BatchLimits(3, 10**12), budget)


def test_signals_of_traces_are_the_same_without_packs(tmp_path: Any) -> None:
    assert_signals(passes.load(passes.save(tmp_path, "llama"), plain=True), None, ALONE, 64)


def assert_signals(
    lm: LanguageModel, answers: Sequence[Sequence[int]] | None, together: BatchLimits, budget: int
) -> None:
    given, settings = traced(answers), replace(passes.prompt_settings(4, budget), closing=CUT)
    lm.session.reset()
    extractor = Extractor(lm, settings, pass_definitions(SIGNALS))
    extractor.together = together
    found = extractor.extract(given)
    for i, item in enumerate(given):
        start, stop = item.trace
        prompt = item.prompt.tolist()
        asked = passes.Asked(lm, settings, prompt, found.answers[i].tolist())
        logits, states = passes.plain(lm, prompt)
        bare = passes.Asked(lm, settings, prompt[:start], prompt[start:stop])
        for signal in SIGNALS:
            column = passes.question(found.columns[signal], i)
            match signal:
                case TokenScores(of=Of.TRACE):
                    ranked = logits[start - 1 : stop - 1].double().log_softmax(-1).sort(-1, descending=True).values
                    wanted = bare._scores(replace(signal, of=Of.ANSWER, mean_of=0))
                    if signal.mean_of:
                        wanted["top_mean"] = ranked[:, : signal.mean_of].mean(-1)
                    passes.assert_close(column, wanted, (signal, i))
                case TokenScores():
                    assert set(column) == {"log_probability", "entropy", "top_mean"}
                case Hidden(at=At.STEP_END):
                    block = round(signal.depth * lm.blocks)
                    wanted = asked._states(signal.depth, prompt)[list(item.steps)]
                    passes.assert_close(column, wanted, (signal, i, block, len(states)))
                case ChoiceLogits():
                    rows = []
                    for share in signal.forced:
                        cut = prompt[: start + round(share * (stop - start))]
                        rows.append(passes.plain(lm, cut, CUT)[0][-1][passes.LETTERS.tolist()])
                    passes.assert_close(column, torch.stack(rows), (signal, i))
                case _:
                    passes.assert_close(column, asked.expected(signal), (signal, i))
