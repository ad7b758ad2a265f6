"""Untrained methods against loops and scipy, on small random inputs and on what can go wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.special

from bench import registry
from bench.api import At, Batch, ConfidenceMethod, Hidden, Ragged, Related, Samples, TokenScores, UserError
from bench.api.signals import By
from bench.run.config import RunConfig
from bench.run.pipeline import run
from bench.signals.grading import match_relations
from methods._shared.meaning import group_by_meaning
from methods._shared.sampled import SampledMethod
from methods.cocoa import CoCoA
from methods.eigenscore import EigenScore
from methods.mean_token_entropy import MeanTokenEntropy
from methods.perplexity import Perplexity
from methods.self_certainty import SelfCertainty
from methods.semantic_entropy import SemanticEntropy
from methods.sentence_sar import SentenceSAR
from methods.sequence_probability import SequenceProbability
from methods.similarity_graph import DegreeMatrix, Eccentricity, Eigenvalues
from methods.token_margin import TokenMargin
from methods.verbalised import Verbalised, parse_probability

N, M, V, D = 6, 5, 11, 7
"""Questions, samples, tokens of the vocabulary, width of a state."""
LENGTHS = (1, 3, 2, 4, 1, 5)
NAMES = (
    "perplexity", "mean-token-entropy", "token-margin", "self-certainty", "semantic-entropy", "degree-matrix",
    "eccentricity", "eigenvalues", "sentence-sar", "eigenscore", "verbalised", "cocoa",
)  # fmt: skip
ENTAILMENT, SIMILARITY = Related(question=True, samples=Samples(M)), Related(by="similarity", samples=Samples(M))


def batch(columns: Mapping[Any, Any]) -> Batch:
    n = len(next(iter(columns.values())))
    return Batch([str(i) for i in range(n)], columns)


# --- tokens of the answer ---------------------------------------------------------------------------------------------


def distributions(seed: int = 0) -> list[np.ndarray]:
    """Log-probabilities over the vocabulary, `(t, V)` for each answer; one with ties, one nearly certain."""
    rng = np.random.default_rng(seed)
    logits = [3 * rng.standard_normal((length, V)) for length in LENGTHS]
    logits[0][:] = 0.0
    logits[1][0, 4] += 60.0
    return [scipy.special.log_softmax(each, axis=1) for each in logits]


def chosen(logs: Sequence[np.ndarray]) -> list[list[int]]:
    rng = np.random.default_rng(7)
    return [[int(token) for token in rng.integers(0, V, len(own))] for own in logs]


def token_scores(signal: TokenScores, logs: Sequence[np.ndarray]) -> Ragged:
    """What the harness gives of these distributions."""
    rows = []
    for own, tokens in zip(logs, chosen(logs), strict=True):
        row = np.zeros(len(own), dtype=signal.dtype)
        row["log_probability"] = [position[token] for position, token in zip(own, tokens, strict=True)]
        row["entropy"] = [-(np.exp(position) * position).sum() for position in own]
        if signal.divergence:
            row["divergence"] = [sum(math.log(1 / V) - p for p in position) / V for position in own]
        if signal.top:
            row["top_log_probabilities"] = [sorted(position, reverse=True)[: signal.top] for position in own]
        rows.append(row)
    return Ragged.of(rows)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def own_log_probability(logs: Sequence[np.ndarray]) -> list[float]:
    pairs = zip(logs, chosen(logs), strict=True)
    return [mean([position[token] for position, token in zip(own, tokens, strict=True)]) for own, tokens in pairs]


TOKEN_METHODS: list[tuple[ConfidenceMethod, TokenScores, Callable[[list[np.ndarray]], list[float]]]] = [
    (Perplexity(), TokenScores(), own_log_probability),
    (
        MeanTokenEntropy(),
        TokenScores(),
        lambda logs: [-mean([scipy.stats.entropy(np.exp(position)) for position in own]) for own in logs],
    ),
    (
        TokenMargin(),
        TokenScores(top=2),
        lambda logs: [mean([np.subtract(*sorted(np.exp(p))[:-3:-1]) for p in own]) for own in logs],
    ),
    (
        SelfCertainty(),
        TokenScores(divergence=True),
        lambda logs: [mean([scipy.stats.entropy(np.full(V, 1 / V), np.exp(p)) for p in own]) for own in logs],
    ),
]


@pytest.mark.parametrize(("method", "signal", "expected"), TOKEN_METHODS)
def test_scores_of_tokens_are_those_of_the_distributions(
    method: ConfidenceMethod, signal: TokenScores, expected: Callable[[list[np.ndarray]], list[float]]
) -> None:
    logs = distributions()
    found = method.predict(batch({signal: token_scores(signal, logs)}))
    np.testing.assert_allclose(found, expected(logs), rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float64


def test_a_uniform_draw_is_the_least_sure_answer_of_all() -> None:
    for method, signal, _ in TOKEN_METHODS[1:]:
        found = method.predict(batch({signal: token_scores(signal, distributions())}))
        assert found.argmin() == 0  # all logits are equal there


def test_perplexity_is_the_logarithm_of_sequence_probability() -> None:
    given = batch({TokenScores(): token_scores(TokenScores(), distributions())})
    np.testing.assert_allclose(np.exp(Perplexity().predict(given)), SequenceProbability().predict(given), rtol=1e-12)


# --- meanings ---------------------------------------------------------------------------------------------------------


def entailment(seed: int, n: int = N) -> np.ndarray:
    """`(n, M + 1, M + 1, 3)` probabilities in which some samples entail each other and some only one way."""
    rng = np.random.default_rng(seed)
    return rng.dirichlet([0.5, 0.5, 1.0], size=(n, M + 1, M + 1)).astype(np.float32)


def of_texts(texts: Sequence[Sequence[str]], by: By) -> np.ndarray:
    """The relations of samples and answer where no model relates them."""
    pairs = [[(one, other) for one in own for other in own] for own in texts]
    found = np.stack([match_relations(by, own) for own in pairs])
    m = len(texts[0])
    return found.reshape(len(texts), m, m, *found.shape[2:])


def sampled(seed: int, lengths: Sequence[Sequence[int]]) -> tuple[Ragged, list[list[float]]]:
    """Samples of these lengths, and the log-probability of each by a loop."""
    rng = np.random.default_rng(seed)
    rows, sums = [], []
    for own in lengths:
        row = np.zeros(sum(own), dtype=Samples().dtype)
        row["log_probability"] = -rng.exponential(1.0, sum(own))
        ends = np.cumsum([0, *own])
        rows.append(row)
        sums.append([float(sum(row["log_probability"][a:b].astype(float))) for a, b in pairwise(ends)])
    joined = Ragged.of(rows)
    owner = np.concatenate([np.repeat(np.arange(len(own)), own) for own in lengths])
    return Ragged(joined.values, joined.offsets, owner), sums


SAMPLE_LENGTHS = [[1, 2, 3, 1, 1], [2, 0, 2, 4, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [3, 1, 0, 2, 2], [1, 0, 0, 0, 5]]


def clusters(related: np.ndarray) -> list[list[int]]:
    """Greedy clusters: a sample joins the first one whose first member it entails and is entailed by."""
    found: list[list[int]] = []
    for i in range(M):
        for own in found:
            if all(max(range(3), key=lambda c: related[a, b, c]) == 2 for a, b in ((own[0], i), (i, own[0]))):
                own.append(i)
                break
        else:
            found.append([i])
    return found


@pytest.mark.parametrize("seed", range(5))
def test_semantic_entropy_counts_meanings(seed: int) -> None:
    related = entailment(seed)
    drawn, sums = sampled(seed, SAMPLE_LENGTHS)
    given = batch({ENTAILMENT: related, Samples(M): drawn})
    counted = SemanticEntropy(n=M).predict(given)
    expected = [-scipy.stats.entropy([len(own) for own in clusters(each)]) for each in related]
    np.testing.assert_allclose(counted, expected, atol=1e-8)

    likely = SemanticEntropy(n=M, weighting="likelihood").predict(given)
    by_hand = []
    for each, logs in zip(related, sums, strict=True):
        total = 0.0
        for own in clusters(each):
            total += len(own) * math.log(sum(math.exp(logs[j]) for j in own))
        by_hand.append(total / M)
    np.testing.assert_allclose(likely, by_hand, atol=1e-6)


def test_the_answer_is_none_of_the_samples() -> None:
    """The last row and column are of no account for what is about samples alone."""
    related, other = entailment(1), entailment(1)
    other[:, -1], other[:, :, -1] = other[:, 0], other[:, :, 0]
    for method in (SemanticEntropy(n=M), DegreeMatrix(n=M), Eccentricity(n=M), Eigenvalues(n=M)):
        drawn = sampled(0, SAMPLE_LENGTHS)[0]
        found = [method.predict(batch({ENTAILMENT: each, Samples(M): drawn})) for each in (related, other)]
        assert found[0].tolist() == found[1].tolist()


def test_one_way_of_entailing_is_not_the_same_meaning() -> None:
    related = np.zeros((3, 3, 3), dtype=np.float32)
    related[..., 1] = 1.0
    related[0, 1] = related[1, 2] = related[2, 1] = (0.1, 0.1, 0.8)
    assert group_by_meaning(related[None]).tolist() == [[0, 1, 1]]


EXTREMES = {
    "equal": ["b"] * (M + 1),
    "different": list("abcdef"),
    "silent": ["", *"bbbbb"],
    "all silent": [""] * 5 + ["b"],
}


def test_samples_that_are_all_equal_or_all_different() -> None:
    drawn = sampled(0, [[1] * M] * 4)[0]
    given = batch({ENTAILMENT: of_texts(list(EXTREMES.values()), "entailment"), Samples(M): drawn})
    methods = (SemanticEntropy(n=M), DegreeMatrix(n=M), Eccentricity(n=M), Eigenvalues(n=M))
    found = np.stack([method.predict(given) for method in methods], axis=1)
    np.testing.assert_allclose(found[0], [0, 0, 0, -1], atol=1e-9)
    np.testing.assert_allclose(found[1], [-math.log(M), 1 / M - 1, -math.sqrt(M - 1), -M], atol=1e-8)
    assert (found[2] < found[0]).all()  # silence is a meaning of its own
    assert (found[2] > found[1]).all()
    assert found[3].tolist() == found[0].tolist()  # as is silence alone


def test_the_order_of_samples_breaks_no_ties() -> None:
    """The same groups in another order are the same score to the last bit."""
    texts = ["a", "a", "b", "c", "b"]
    orders = [np.random.default_rng(seed).permutation(M) for seed in range(30)]
    shuffled = [[*(texts[k] for k in order), "a"] for order in orders]
    drawn = sampled(0, [[1] * M] * len(orders))[0]
    given = batch({ENTAILMENT: of_texts(shuffled, "entailment"), Samples(M): drawn})
    for method in (SemanticEntropy(n=M), DegreeMatrix(n=M), Eccentricity(n=M), Eigenvalues(n=M)):
        assert len(set(method.predict(given).tolist())) == 1, method.name


# --- graphs -----------------------------------------------------------------------------------------------------------


def graph(related: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the samples' graph and its normalised Laplacian, entry by entry."""
    weights = np.array([[(related[i, j, 2] + related[j, i, 2]) / 2 for j in range(M)] for i in range(M)], dtype=float)
    degrees = [sum(row) for row in weights]
    laplacian = np.array(
        [[float(i == j) - weights[i, j] / math.sqrt(degrees[i] * degrees[j]) for j in range(M)] for i in range(M)]
    )
    return weights, laplacian


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("threshold", [0.9, 0.5])
def test_graphs_are_those_of_loops_and_scipy(seed: int, threshold: float) -> None:
    related = entailment(seed)
    given = batch({ENTAILMENT: related})
    degree, eccentricity, total = [], [], []
    for each in related:
        weights, laplacian = graph(each)
        values, vectors = scipy.linalg.eigh(laplacian)
        degree.append(-sum(M - sum(row) for row in weights) / M**2)
        kept = [vectors[:, k] - vectors[:, k].mean() for k in range(M) if values[k] < threshold]
        eccentricity.append(-math.sqrt(sum(float(x @ x) for x in kept)))
        total.append(-sum(max(0.0, 1 - value) for value in values))
    np.testing.assert_allclose(DegreeMatrix(n=M).predict(given), degree, atol=1e-6)
    np.testing.assert_allclose(Eccentricity(n=M, threshold=threshold).predict(given), eccentricity, atol=1e-6)
    np.testing.assert_allclose(Eigenvalues(n=M).predict(given), total, atol=1e-6)


def test_a_text_that_entails_nothing_is_still_a_number() -> None:
    related = np.zeros((1, M + 1, M + 1, 3), dtype=np.float32)
    related[..., 1] = 1.0
    for method in (DegreeMatrix(n=M), Eccentricity(n=M), Eigenvalues(n=M)):
        assert np.isfinite(method.predict(batch({ENTAILMENT: related}))).all()


# --- similarity -------------------------------------------------------------------------------------------------------


def similarity(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((N, M + 1, M + 1)).astype(np.float32)


@pytest.mark.parametrize("t", [0.001, 1.0])
def test_sentence_sar_raises_samples_by_similar_ones(t: float) -> None:
    related, (drawn, sums) = similarity(3), sampled(3, SAMPLE_LENGTHS)
    related[0, 0, 1] = 0.0
    expected = []
    for each, logs in zip(related.astype(float), sums, strict=True):
        p = [math.exp(log) for log in logs]
        own = [p[i] + sum(each[i, j] * p[j] for j in range(M) if j != i) / t for i in range(M)]
        expected.append(mean([math.log(value) for value in own]))
    found = SentenceSAR(n=M, t=t).predict(batch({SIMILARITY: related, Samples(M): drawn}))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_sentence_sar_of_samples_that_are_too_unlikely_for_a_float() -> None:
    drawn, _ = sampled(0, [[2] * M])
    drawn.values["log_probability"] = np.arange(-1000, -1000 - 2 * M, -1)
    related = of_texts([EXTREMES["different"]], "similarity")
    found = SentenceSAR(n=M).predict(batch({SIMILARITY: related, Samples(M): drawn}))
    np.testing.assert_allclose(found, drawn.values["log_probability"].astype(float).sum() / M)  # nothing raises another


@pytest.mark.parametrize("kind", ["probability", "perplexity", "entropy"])
def test_cocoa_is_a_product(kind: str) -> None:
    logs, related = distributions(2), similarity(2)
    given = batch({SIMILARITY: related, TokenScores(): token_scores(TokenScores(), logs)})
    means = own_log_probability(logs)
    uncertain = {
        "probability": [-value * length for value, length in zip(means, LENGTHS, strict=True)],
        "perplexity": [-value for value in means],
        "entropy": [mean([scipy.stats.entropy(np.exp(position)) for position in own]) for own in logs],
    }[kind]
    expected = []
    for each, value in zip(related.astype(float), uncertain, strict=True):
        unlike = mean([1 - (each[M, j] + each[j, M]) / 2 for j in range(M)])
        expected.append(-value * unlike)
    np.testing.assert_allclose(CoCoA(n=M, uncertainty=kind).predict(given), expected, rtol=1e-5)  # type: ignore[arg-type]


def test_cocoa_is_zero_where_all_samples_say_the_answer() -> None:
    related = of_texts([EXTREMES["equal"], EXTREMES["different"]], "similarity")
    logs = distributions()[2:4]
    found = CoCoA(n=M).predict(batch({SIMILARITY: related, TokenScores(): token_scores(TokenScores(), logs)}))
    assert found[0] == 0
    assert found[1] < -1


# --- states -----------------------------------------------------------------------------------------------------------


def test_eigenscore_is_the_mean_log_eigenvalue() -> None:
    states = np.random.default_rng(5).standard_normal((N, M, D)).astype(np.float32)
    states[1] = states[1, 0]  # all samples end alike
    states[2, 3] = states[2, 1]
    expected = []
    centring = np.eye(D) - np.full((D, D), 1 / D)
    for each in states.astype(float):
        covariance = np.array([[a @ centring @ b for b in each] for a in each]) + 1e-3 * np.eye(M)
        expected.append(-np.linalg.slogdet(covariance)[1] / M)
    signal = Hidden(0.5, At.SAMPLE_END, samples=Samples(M))
    found = EigenScore(n=M).predict(batch({signal: states}))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.argmax() == 1
    shuffled = states[:, np.random.default_rng(1).permutation(M)]
    np.testing.assert_allclose(EigenScore(n=M).predict(batch({signal: shuffled})), found, rtol=1e-9)
    shifted = states + np.float32(2.0)  # of all features alike: the mean of each state is taken off
    np.testing.assert_allclose(EigenScore(n=M).predict(batch({signal: shifted})), found, rtol=1e-3)


# --- replies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("85", 0.85), ("85%", 0.85), ("0.85", 0.85), ("8/10", 0.8), ("8.5 / 10", 0.85), ("85 out of 100", 0.85),
        ("85 percent.", 0.85), ("0,85", 0.85), ("**85**", 0.85), ("Confidence: 85", 0.85), ("85.", 0.85),
        ("85 85 85", 0.85), ("On a scale of 0 to 100, 85%", 0.85), ("100", 1.0), ("0", 0.0), ("1", 0.01),
        ("1.0", 1.0), ("0.0", 0.0), ("0.5%", 0.005), ("1%", 0.01), ("99.5", 0.995), ("085", 0.85),
        ("Confidence - 85", 0.85),
        ("", None), ("quite sure", None), ("150", None), ("12/10", None), ("-5", None), ("80-90", None),
        ("80 - 90%", None), ("80\u201390", None), ("70 or 80", None), ("90% or 10%", None), ("8/0", None), ("b2", None),
    ],
)  # fmt: skip
def test_what_a_reply_names(reply: str, value: float | None) -> None:
    assert parse_probability(reply) == (None if value is None else pytest.approx(value))


def test_a_reply_without_a_number_has_the_stated_value() -> None:
    (signal,) = Verbalised.needs.predict
    given = batch({signal: np.asarray(["90%", "no idea"], dtype=np.object_)})
    assert Verbalised().predict(given).tolist() == [0.9, 0.5]
    assert Verbalised(unparsed=0.0).predict(given).tolist() == [0.9, 0.0]


def test_replies_that_name_nothing_are_counted() -> None:
    (signal,) = Verbalised.needs.predict
    given = batch({signal: np.asarray(["90%", "no idea", "150"], dtype=np.object_)})
    assert Verbalised().oddities(given) == {"replies that name no probability": 2}
    assert Verbalised().oddities(given.take(np.array([0]))) == {}


PLUGIN = '''
from methods.verbalised import Verbalised
from bench.api import method


@method("mine")
class Mine(Verbalised):
    """The same, as a plugin."""
'''


@pytest.mark.parametrize("apart", [False, True], ids=["built in", "in a process of its own"])
def test_a_result_counts_replies_that_name_nothing(tmp_path: Path, apart: bool) -> None:
    """The stand-in model was never taught numbers."""
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    name = "mine" if apart else "verbalised"
    config = RunConfig(
        (name,), "tiny", tasks=("atlas-oe",), plugins=(plugin,) if apart else (), limit=16, device="cpu",
        out=tmp_path / "out", cache=tmp_path / "cache",
    )  # fmt: skip
    (row,) = run(config).rows
    assert row.status == "ok"
    assert row.counts[f"atlas-oe/test, {name}: replies that name no probability"] == 16
    assert row.metrics["auroc"].mean == 0.5


# --- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (SemanticEntropy(weighting="mean"), "expected count or likelihood, got 'mean'"),  # type: ignore[arg-type]
        (CoCoA(uncertainty="msp"), "expected probability, perplexity or entropy, got 'msp'"),  # type: ignore[arg-type]
        (SentenceSAR(t=0.0), "expected a positive number, got 0.0"),
        (EigenScore(alpha=-1.0), "expected a positive number, got -1.0"),
    ],
)
def test_arguments_that_mean_nothing_are_named(method: ConfidenceMethod, said: str) -> None:
    from bench.signals.synthetic import planted

    with pytest.raises(UserError, match=said):
        method.predict(planted(method.reads().predict, 3, seed=0))


def test_arguments_choose_the_samples_that_are_read() -> None:
    for name in NAMES:
        cls: Any = registry.built_in()[0].get(name)
        assert cls().reads() == cls.needs, name
        if issubclass(cls, SampledMethod):
            (found,) = {getattr(signal, "samples", signal) for signal in cls(n=3, top_p=0.9).reads().predict} - {
                Samples()
            }
            assert found == Samples(3, 1.0, 0.9), name


@pytest.mark.parametrize("name", NAMES)
def test_the_page_names_every_constant_with_its_default(name: str) -> None:
    """In the section of the method; those of samples stand above them all."""
    page = (Path(__file__).parents[3] / "docs/methods.md").read_text(encoding="utf-8")
    sections = re.split(r"^### ", page, flags=re.MULTILINE)
    (own,) = [section for section in sections if f"`{name}`" in section.partition("\n")[0]]
    (shared,) = [section for section in sections if section.startswith("2.17 ")]
    method = registry.built_in()[0].get(name)()
    for constant, value in method.params().items():
        text = " ".join((shared if constant in {"n", "temperature", "top_p"} else own).split())
        shown = f"{value:g}" if isinstance(value, int | float) else f"`{value}`"
        assert re.search(rf"`{constant}` (?:is|=) {re.escape(shown)}\b", text) or f"`{constant}` is {shown}" in text, (
            constant
        )
    assert method.reference in own
