"""Untrained methods at their edges: equal and different samples, uniform draws, certain tokens, replies, arguments."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import registry
from bench.api import (
    At,
    AttentionRows,
    Batch,
    ChoiceLogits,
    ConfidenceMethod,
    ContractError,
    Format,
    Hidden,
    QueryLogits,
    Ragged,
    Related,
    RunFacts,
    Samples,
    TokenScores,
    UserError,
)
from bench.api.signals import By
from bench.run.config import RunConfig
from bench.run.pipeline import run
from bench.signals.grading import match_relations
from bench.signals.synthetic import MODEL, planted
from methods._shared.meaning import group_by_meaning
from methods._shared.sampled import SampledMethod
from methods.cocoa import CoCoA
from methods.eigenscore import EigenScore
from methods.kernel_language_entropy import KernelLanguageEntropy, graph_kernel, von_neumann
from methods.ptrue import PTrue
from methods.rauq import RAUQ, token_confidences
from methods.semantic_entropy import SemanticEntropy
from methods.sentence_sar import SentenceSAR
from methods.sequence_probability import SequenceProbability
from methods.similarity_graph import DegreeMatrix, Eccentricity, Eigenvalues
from methods.verbalised import Verbalised, parse_probability
from tests.kit.methods import hard_batch

M = 5
"""Samples of a question."""
ENTAILMENT, SIMILARITY = Related(question=True, samples=Samples(M)), Related(by="similarity", samples=Samples(M))
OF_MEANINGS = (SemanticEntropy(n=M), DegreeMatrix(n=M), Eccentricity(n=M), Eigenvalues(n=M))
NAMES = (
    "perplexity", "mean-token-entropy", "token-margin", "self-certainty", "semantic-entropy", "degree-matrix",
    "eccentricity", "eigenvalues", "sentence-sar", "eigenscore", "verbalised", "cocoa", "kernel-language-entropy",
    "rauq",
)  # fmt: skip


def batch(columns: dict[Any, Any]) -> Batch:
    return Batch([str(i) for i in range(len(next(iter(columns.values()))))], columns)


# --- tokens of the answer ---------------------------------------------------------------------------------------------


def ptrue(logits: list[list[float]]) -> Any:
    return PTrue().predict(batch({QueryLogits(): np.array(logits, dtype=np.float32)}))


def test_ptrue_of_large_logits_neither_overflows_nor_ties() -> None:
    low, high, sure, surer = ptrue([[1e4, -1e4], [-1e4, 1e4], [0.0, 20.0], [0.0, 25.0]])
    assert (low, high) == (0, 1)
    assert sure < surer < 1  # float32 would give 1.0 twice


def test_ptrue_reads_only_the_query() -> None:
    with pytest.raises(ContractError, match=r"QueryLogits\(\) was read"):
        PTrue().predict(batch({ChoiceLogits(): np.zeros((1, 4), dtype=np.float32)}))


def tokens(rows: list[list[float]]) -> Batch:
    """Answers whose tokens have these probabilities."""
    column = Ragged.of([np.array([(math.log(p), 0) for p in row], dtype=TokenScores().dtype) for row in rows])
    return batch({TokenScores(): column})


def test_sequence_probability_of_a_long_unlikely_answer_is_zero() -> None:
    assert SequenceProbability(length_normalised=False).predict(tokens([[1e-30] * 40])).tolist() == [0.0]


@pytest.mark.parametrize("task", [pytest.param("atlas-choice", marks=pytest.mark.slow), "atlas-oe"])
def test_sequence_probability_costs_a_run_its_answers_alone(tmp_path: Path, task: str) -> None:
    options: Any = {"limit": 16, "device": "cpu", "out": tmp_path / "out", "cache": tmp_path / "cache"}
    report = run(RunConfig(("sequence-probability",), "tiny", tasks=(task,), **options))
    (row,) = report.rows
    assert (row.status, row.train_on, row.labels_seen.train, row.n_parameters) == ("ok", None, 0, 0)
    read = {stage: cost for stage, cost in row.cost.items() if cost.forward_tokens or cost.forward_tokens_floor}
    assert set(read) == {"answers"}
    assert row.forward_tokens_alone == read["answers"].forward_tokens_floor
    changed = ("sequence-probability.length_normalised=false",)
    again = run(RunConfig(("sequence-probability",), "tiny", tasks=(task,), overrides=changed, **options))
    assert again.forward_tokens == 0
    assert (again.rows[0].metrics == row.metrics) == (task == "atlas-choice")  # a letter is one token


# --- samples ----------------------------------------------------------------------------------------------------------


def related(texts: Sequence[Sequence[str]], by: By) -> np.ndarray:
    """The relations of samples and answer where no model relates them."""
    found = np.stack([match_relations(by, [(one, other) for one in own for other in own]) for own in texts])
    m = len(texts[0])
    return found.reshape(len(texts), m, m, *found.shape[2:])


def meanings(texts: Sequence[Sequence[str]]) -> Batch:
    """Samples and answers, the last texts; each sample is of one token."""
    drawn = np.zeros(M * len(texts), dtype=Samples().dtype)
    column = Ragged(drawn, M * np.arange(len(texts) + 1), np.tile(np.arange(M), len(texts)))
    return batch({ENTAILMENT: related(texts, "entailment"), Samples(M): column})


EXTREMES = {
    "equal": ["b"] * (M + 1),
    "different": list("abcdef"),
    "silent": ["", *"bbbbb"],
    "all silent": [*[""] * M, "b"],
}


def test_meanings_of_equal_different_and_silent_samples() -> None:
    found = np.stack([method.predict(meanings(list(EXTREMES.values()))) for method in OF_MEANINGS], axis=1)
    np.testing.assert_allclose(found[0], [0, 0, 0, -1], atol=1e-9)
    np.testing.assert_allclose(found[1], [-math.log(M), 1 / M - 1, -math.sqrt(M - 1), -M], atol=1e-8)
    assert (found[2] < found[0]).all()  # silence is a meaning of its own
    assert (found[2] > found[1]).all()
    assert found[3].tolist() == found[0].tolist()  # as is silence alone


def test_meanings_in_another_order_score_the_same_to_the_bit() -> None:
    orders = [np.random.default_rng(seed).permutation(M) for seed in range(30)]
    given = meanings([[*(["a", "a", "b", "c", "b"][k] for k in order), "a"] for order in orders])
    assert [len(set(method.predict(given).tolist())) for method in OF_MEANINGS] == [1] * 4


def test_meanings_leave_the_answer_out() -> None:
    given = hard_batch({ENTAILMENT, Samples(M)})
    other = given[ENTAILMENT].copy()
    other[:, -1], other[:, :, -1] = other[:, 0], other[:, :, 0]
    for method in OF_MEANINGS:
        found = [
            method.predict(batch({ENTAILMENT: e, Samples(M): given[Samples(M)]})) for e in (given[ENTAILMENT], other)
        ]
        assert found[0].tolist() == found[1].tolist()


def test_meanings_are_the_same_only_if_both_entail_each_other() -> None:
    entailment = np.zeros((3, 3, 3), dtype=np.float32)
    entailment[..., 1] = 1.0
    entailment[0, 1] = entailment[1, 2] = entailment[2, 1] = (0.1, 0.1, 0.8)
    assert group_by_meaning(entailment[None]).tolist() == [[0, 1, 1]]


def test_graph_of_a_text_that_entails_nothing_has_a_score() -> None:
    entailment = np.zeros((1, M + 1, M + 1, 3), dtype=np.float32)
    entailment[..., 1] = 1.0
    for method in OF_MEANINGS[1:]:
        assert np.isfinite(method.predict(batch({ENTAILMENT: entailment}))).all()


def test_sentence_sar_of_samples_too_unlikely_for_a_float() -> None:
    drawn = np.zeros(2 * M, dtype=Samples().dtype)
    drawn["log_probability"] = np.arange(-1000, -1000 - 2 * M, -1)
    given = {SIMILARITY: related([EXTREMES["different"]], "similarity")}
    column = Ragged(drawn, np.array([0, 2 * M]), np.repeat(np.arange(M), 2))
    found = SentenceSAR(n=M).predict(batch({**given, Samples(M): column}))
    np.testing.assert_allclose(found, drawn["log_probability"].astype(float).sum() / M)  # nothing raises another


def test_cocoa_is_zero_if_all_samples_say_the_answer() -> None:
    column = tokens([[0.5, 0.2]] * 2)[TokenScores()]
    texts = [EXTREMES["equal"], EXTREMES["different"]]
    found = CoCoA(n=M).predict(batch({SIMILARITY: related(texts, "similarity"), TokenScores(): column}))
    assert found[0] == 0
    assert found[1] < -1


def test_eigenscore_ignores_order_and_a_common_shift() -> None:
    signal = Hidden(0.5, At.SAMPLE_END, samples=Samples(M))
    states = hard_batch({signal})[signal]  # the second question's samples end alike
    orders = states, states[:, np.random.default_rng(1).permutation(M)], states + np.float32(2.0)
    found, shuffled, shifted = (EigenScore(n=M).predict(batch({signal: each})) for each in orders)
    assert found.argmax() == 1
    np.testing.assert_allclose(shuffled, found, rtol=1e-9)
    np.testing.assert_allclose(shifted, found, rtol=1e-3)


@pytest.mark.parametrize(
    ("edges", "t", "entropy"),
    [
        ([2, 1, 0], 0.3, 0.970356), ([2, 1, 0], None, 0.994160), ([0, 0, 0], 0.3, 1.098612), ([2, 2, 2], 0.3, 0.732853),
        ([1, 1, 1], 0.3, 0.998683),
    ],
)  # fmt: skip
def test_kernel_entropy_of_three_samples(edges: list[float], t: float | None, entropy: float) -> None:
    weights = np.zeros((1, 3, 3))
    weights[0, [0, 0, 1], [1, 2, 2]] = edges
    kernel = graph_kernel(weights + weights.transpose(0, 2, 1), t)
    assert von_neumann(kernel) == pytest.approx(entropy, abs=1e-6)
    same = np.array([[[1, 1, 0], [1, 1, 0], [0, 0, 1]]]) / 3
    if (edges, t) == ([2, 1, 0], 0.3):
        assert np.diagonal(kernel[0]) == pytest.approx(1 / 3)
        assert 3 * kernel[0][[0, 0, 1], [1, 2, 2]] == pytest.approx([0.533733, 0.284735, 0.073383], abs=1e-6)
        assert [von_neumann(each)[0] for each in (same, (kernel + same) / 2)] == pytest.approx(
            [0.636514, 0.868997], abs=1e-6
        )


@pytest.mark.parametrize(
    ("n", "equal", "neutral", "equal_by_n"),
    [(2, 0.780574, 0.937888, 0.024975), (10, 0.066445, 0.563948, 0.066445), (20, 0.000507, 0.105446, 0.105446)],
)
def test_kernel_entropy_of_equal_samples_has_a_floor(n: int, equal: float, neutral: float, equal_by_n: float) -> None:
    ones = np.ones((1, n, n))
    found = [von_neumann(graph_kernel(w * ones, t))[0] for w, t in ((2, 0.3), (1, 0.3), (2, 3 / n))]
    assert np.array(found) / math.log(n) == pytest.approx([equal, neutral, equal_by_n], abs=1e-6)


@pytest.mark.parametrize("n", [2, 3, 10, 20])
@pytest.mark.parametrize("kernel", ["heat", "matern", "full"])
def test_kernel_entropy_is_from_equal_to_contrary_samples(n: int, kernel: Any) -> None:
    entailment = np.zeros((3, n + 1, n + 1, 3), dtype=np.float32)
    entailment[0, ..., 2] = entailment[1, ..., 0] = entailment[2, ..., 1] = 1
    given = batch({Related(question=True, samples=Samples(n)): entailment})
    equal, contrary, neutral = KernelLanguageEntropy(n=n, kernel=kernel).predict(given)
    assert (equal, contrary) == (0, -1)
    assert contrary < neutral < equal


@pytest.mark.parametrize("plugin", [RAUQ, KernelLanguageEntropy])
def test_methods_that_letters_make_another_one_are_skipped(plugin: type[ConfidenceMethod]) -> None:
    open_, choice = (plugin().skip(RunFacts(MODEL, "t", fmt, 0)) for fmt in (Format.OPEN, Format.CHOICE))
    assert open_ is None
    assert choice is not None
    assert ("perplexity" in choice) != ("semantic-entropy" in choice)


# --- attention --------------------------------------------------------------------------------------------------------

HEADS = [
    [[0.1, 0.2, 0.7], [0.1, 0.1, 0.5, 0.3], [0.1, 0.1, 0.1, 0.4, 0.3], [0.1, 0.1, 0.1, 0.1, 0.5, 0.1]],
    [[0.3, 0.1, 0.6], [0.2, 0.1, 0.1, 0.6], [0.2, 0.1, 0.1, 0.1, 0.5], [0.2, 0.1, 0.1, 0.1, 0.1, 0.4]],
]
"""Weights of the four tokens of an answer, after a prompt of two, in the heads of a layer."""
OTHER = [[0.2, 0.1], [0.4, 0.2], [0.3, 0.1]]
"""Weights on themselves of its first three tokens, in the heads of another layer."""
ITSELF = np.array([[row[-1] for row in head] for head in HEADS]).T[:, None]
BEFORE = np.array([[row[-2] for row in head] for head in HEADS]).T[:, None]


@pytest.mark.parametrize(
    ("weights", "alpha", "last", "uncertainty"),
    [
        (ITSELF[:3], 0.2, 0.286144, 0.716586), (np.array(OTHER)[:, None], 0.2, 0.177139, 1.170479),
        (BEFORE[1:], 0.2, 0.242880, 0.869333), (ITSELF[:3], 1.0, 0.6, 0.383119), (ITSELF[:3], 0.0, 0.162, 0.917179),
    ],
)  # fmt: skip
def test_rauq_of_four_tokens(weights: Any, alpha: float, last: float, uncertainty: float) -> None:
    found = token_confidences(np.log([0.9, 0.5, 0.8, 0.6]), weights, alpha)[:, 0]
    assert math.exp(found[-1]) == pytest.approx(last, abs=1e-6)
    assert -found.mean() == pytest.approx(uncertainty, abs=1e-6)


@pytest.mark.parametrize(("weights", "uncertainty"), [(ITSELF[:3], 0.310895), (np.array(OTHER)[:, None], 0.341306)])
def test_rauq_of_entropies(weights: Any, uncertainty: float) -> None:
    own = np.log(math.log(4) - np.array([0.2, 0.7, 1.0, 0.4]))
    assert -token_confidences(own, weights, 0.9).mean() == pytest.approx(uncertainty, abs=1e-6)


def test_rauq_takes_the_least_sure_layer_and_bears_one_token_and_no_weight() -> None:
    rows = np.zeros(4, dtype=[("itself", np.float32, (2, 2)), ("before", np.float32, (2, 2))])
    rows["itself"][:, :1], rows["itself"][:3, 1] = ITSELF, OTHER
    given = {
        AttentionRows(): Ragged.of([rows, rows[:1], rows]),
        TokenScores(): tokens([[0.9, 0.5, 0.8, 0.6], [0.3], [0.9] * 4])[TokenScores()],
    }
    assert RAUQ().predict(batch(given))[:2] == pytest.approx([-1.170479, math.log(0.3)], abs=1e-6)
    rows["itself"] = 0
    assert np.isfinite(RAUQ(alpha=0.0).predict(batch(given))).all()


# --- replies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("85", 0.85), ("85%", 0.85), ("0.85", 0.85), ("8/10", 0.8), ("8.5 / 10", 0.85), ("85 out of 100", 0.85),
        ("85 percent.", 0.85), ("0,85", 0.85), ("**85**", 0.85), ("Confidence: 85", 0.85), ("85.", 0.85),
        ("85 85 85", 0.85), ("On a scale of 0 to 100, 85%", 0.85), ("100", 1.0), ("0", 0.0), ("1", 0.01),
        ("1.0", 1.0), ("0.0", 0.0), ("0.5%", 0.005), ("1%", 0.01), ("99.5", 0.995), ("085", 0.85),
        ("Confidence - 85", 0.85), ("It's 50/50.", 0.5), ("50 / 50", 0.5), ("85percent", 0.85), ("150/50", None),
        ("", None), ("quite sure", None), ("150", None), ("12/10", None), ("-5", None), ("80-90", None),
        ("80 - 90%", None), ("80\u201390", None), ("70 or 80", None), ("90% or 10%", None), ("8/0", None), ("b2", None),
        ("7B", None), ("1st", None), ("85th", None), ("0.85x", None), ("my 1st guess: 85.", 0.85),
        ("0.57 or 57", 0.57), ("57.1/100 (57%)", None), (".85", 0.85), (".9", 0.9), ("about .5%", 0.005), ("-.5", None),
        (".80-.90", None), ("..9", None), ("1,000", None), ("85,000", None), ("1,000,000", None), ("0,855", 0.855),
        ("85,5", 0.855), ("85, 85", 0.85),
    ],
)  # fmt: skip
def test_verbalised_reads_the_probability_of_a_reply(reply: str, value: float | None) -> None:
    assert parse_probability(reply) == (None if value is None else pytest.approx(value))


def test_probability_said_twice_is_one() -> None:
    """Tenths and percentages of one number differ in the last bit."""
    found = [parse_probability(f"{k / 10:g}/10 ({k}%)") for k in range(101)]
    assert found == pytest.approx([k / 100 for k in range(101)])


def test_verbalised_counts_replies_without_a_number_and_gives_them_one() -> None:
    (signal,) = Verbalised.needs.predict
    given = batch({signal: np.asarray(["90%", "no idea", "150"], dtype=np.object_)})
    assert Verbalised().predict(given).tolist() == [0.9, 0.5, 0.5]
    assert Verbalised(unparsed=0.0).predict(given).tolist() == [0.9, 0.0, 0.0]
    assert Verbalised().oddities(given) == {"replies that name no probability": 2}
    assert Verbalised().oddities(given.take(np.array([0]))) == {}


PLUGIN = '''
from methods.verbalised import Verbalised
from bench.api import method


@method("mine")
class Mine(Verbalised):
    """The same, as a plugin."""
'''


@pytest.mark.parametrize(
    "name", ["verbalised", pytest.param("mine", marks=pytest.mark.slow)], ids=["built in", "in a process of its own"]
)
def test_result_counts_replies_without_a_number(tmp_path: Path, name: str) -> None:
    """The stand-in model was never taught numbers."""
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    config = RunConfig(
        (name,), "tiny", tasks=("atlas-oe",), plugins=(plugin,) if name == "mine" else (), limit=16, device="cpu",
        out=tmp_path / "out", cache=tmp_path / "cache",
    )  # fmt: skip
    (row,) = run(config).rows
    assert row.status == "ok"
    assert row.counts[f"atlas-oe/test, {name}: replies that name no probability"] == 16
    assert row.metrics["auroc"].mean == 0.5


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "told"),
    [
        (SemanticEntropy(weighting="mean"), "expected count or likelihood, got 'mean'"),  # type: ignore[arg-type]
        (CoCoA(uncertainty="msp"), "expected probability, perplexity or entropy, got 'msp'"),  # type: ignore[arg-type]
        (SentenceSAR(t=0.0), "expected a positive number, got 0.0"),
        (EigenScore(alpha=-1.0), "expected a positive number, got -1.0"),
        (RAUQ(alpha=1.5), "alpha: expected a number from 0 to 1, got 1.5"),
        (RAUQ(entry="after"), "entry=itself or before, got 'probability' and 'after'"),  # type: ignore[arg-type]
        (KernelLanguageEntropy(n=1), "expected n of at least 2 and t above 0, got 1 and 0.3"),
        (KernelLanguageEntropy(kernel="cold"), "kernel=heat, matern or full"),  # type: ignore[arg-type]
    ],
)
def test_untrained_methods_refuse_arguments(method: ConfidenceMethod, told: str) -> None:
    with pytest.raises(UserError, match=told):
        method.predict(planted(method.reads().predict, 3, seed=0))


def test_arguments_choose_the_samples_that_are_read() -> None:
    for name in NAMES:
        cls: Any = registry.built_in()[0].get(name)
        assert cls().reads() == cls.needs, name
        if issubclass(cls, SampledMethod):
            read = {getattr(signal, "samples", signal) for signal in cls(n=3, top_p=0.9).reads().predict}
            assert read - {Samples()} == {Samples(3, 1.0, 0.9)}, name


@pytest.mark.parametrize("name", NAMES)
def test_methods_page_names_every_constant_with_its_default(name: str) -> None:
    """In the section of the method; those of samples stand above them all."""
    page = (Path(__file__).parents[3] / "docs/methods.md").read_text(encoding="utf-8")
    sections = re.split(r"^### ", page, flags=re.MULTILINE)
    (own,) = [section for section in sections if f"`{name}`" in section.partition("\n")[0]]
    (shared,) = [section for section in sections if section.startswith("2.17 ")]
    method = registry.built_in()[0].get(name)()
    for constant, value in method.params().items():
        text = " ".join((shared if constant in {"n", "temperature", "top_p"} else own).split())
        shown = f"{value:g}" if isinstance(value, int | float) else f"`{value}`"
        named = re.search(rf"`{constant}` (?:is|=) {re.escape(shown)}\b", text)
        assert named or f"`{constant}` is {shown}" in text, constant
    assert method.reference in own
