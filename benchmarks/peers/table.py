"""Which estimator of LM-Polygraph a method is held to, and the table that says by how much their values differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench import registry
from bench.api import FloatArray
from bench.report.tables.formats import markdown_table
from benchmarks.peers.drawn import N, Statistics, batch
from methods import relative_mahalanobis
from methods.kernel_language_entropy import graph_kernel, von_neumann

BOUND = 1e-4
"""Largest difference between values of one definition."""
Values = Mapping[str, FloatArray]
"""Estimator -> its values, `(n,)`."""


@dataclass(frozen=True)
class Compared:
    """A method whose values follow from those of an estimator."""

    method: str
    estimator: str
    told: str
    """How ours follows from theirs, `u`."""
    ours: Callable[[FloatArray], FloatArray] = np.negative
    """Our values as uncertainties of the estimator."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    note: str = "same"

    @property
    def name(self) -> str:
        """The method with its arguments."""
        return " ".join([self.method, *(f"{name}={value}".lower() for name, value in self.arguments.items())])

    def difference(self, drawn: Statistics, theirs: Values) -> float:
        """Largest difference of a value, as the estimator gives it."""
        method = registry.methods().get(self.method)(**self.arguments)
        found = method.predict(batch(drawn, method.reads().predict))
        return float(np.abs(self.ours(found) - theirs[self.estimator]).max())


@dataclass(frozen=True)
class Distances(Compared):
    """The Mahalanobis distances of which the relative one is made; the method itself goes on from there."""

    def difference(self, drawn: Statistics, theirs: Values) -> float:
        """Largest difference of right and wrong squared distances' difference, without a penalty."""
        states = drawn.ends.astype(np.float64)
        kinds = {"right": drawn.correct, "wrong": ~drawn.correct}
        normals = {kind: relative_mahalanobis._normal(states[rows])(0.0) for kind, rows in kinds.items()}
        found = relative_mahalanobis.distance_score(normals, states)
        squares: dict[str, FloatArray] = {}
        for kind, rows in kinds.items():
            unbiased = rows.sum() / (rows.sum() - 1)  # a covariance is divided by n here and by n - 1 there
            squares[kind] = theirs[f"MahalanobisDistanceSeq, {kind}"] ** 2 * unbiased
        return float(np.abs(found - (squares["wrong"] - squares["right"])).max())


@dataclass(frozen=True)
class Unsigned(Compared):
    """The score of a method that learns its sign."""

    def difference(self, drawn: Statistics, theirs: Values) -> float:
        """Largest difference of a score."""
        method: Any = registry.methods().get(self.method)(**self.arguments)
        found = method.score(batch(drawn, method.reads().predict))
        return float(np.abs(self.ours(found) - theirs[self.estimator]).max())


@dataclass(frozen=True)
class NotCompared:
    """Methods without an estimator of the same definition, or estimators without a method."""

    methods: Sequence[str]
    estimator: str
    why: str


def _logarithm(found: FloatArray) -> FloatArray:
    return np.asarray(-np.log(found))


def _of_the_maximum(found: FloatArray) -> FloatArray:
    """Kernel entropy over log N, of which the method's score is counted from that of equal samples."""
    least, most = von_neumann(graph_kernel(2 * np.ones((1, N, N)), 0.3))[0], np.log(N)
    return np.asarray((least - found * (most - least)) / most)


def _plus_one(found: FloatArray) -> FloatArray:
    return np.asarray(1 - found)


COMPARED: tuple[Compared, ...] = (
    Compared("sequence-probability", "Perplexity", "exp(-u)", _logarithm),
    Compared("sequence-probability", "MaximumSequenceProbability", "exp(-u)", _logarithm, {"length_normalised": False}),
    Compared("perplexity", "Perplexity", "-u"),
    Compared("mean-token-entropy", "MeanTokenEntropy", "-u"),
    Compared("self-certainty", "SelfCertainty", "-u"),
    Compared("semantic-entropy", "SemanticEntropyEmpirical", "-u"),
    Compared("semantic-entropy", "SemanticEntropy", "-u", arguments={"weighting": "likelihood"}),
    Compared("degree-matrix", "DegMat_NLI_score_entail", "-u"),
    Compared("eccentricity", "Eccentricity_NLI_score_entail", "-u"),
    Compared("eigenvalues", "EigValLaplacian_NLI_score_entail", "-u"),
    Compared("sentence-sar", "SentenceSAR", "-u"),
    Compared("eigenscore", "EigenScore", "-u"),
    Compared("cocoa", "CocoaMSP", "-u"),
    Compared("cocoa", "CocoaPPL", "-u", arguments={"uncertainty": "perplexity"}),
    Compared("cocoa", "CocoaMTE", "-u", arguments={"uncertainty": "entropy"}),
    Compared(
        "verbalised",
        "Verbalized2S",
        "1 - u",
        lambda found: np.asarray(1 - found),
        note="same of replies that are one decimal number; wording and pattern are the user's there, percentages are"
        " read here alone, and a reply without a number is 0.5 here and NaN there",
    ),
    Compared("kernel-language-entropy", "KernelLanguageEntropy", "-(u log N - m) / (log N - m)", _of_the_maximum),
    Compared("rauq", "RAUQ", "1 - u", _plus_one),
    Compared("rauq", "RAUQ (entropy)", "1 - u", _plus_one, {"by": "entropy", "alpha": 0.8}),
    Unsigned(
        "attention-score",
        "AttentionScore gen-only (layer=3)",
        "-u",
        arguments={"over": "sum"},
        note="same, but for the answer's last token, which counts here, and for the sign, which is learned here",
    ),
    Distances(
        "relative-mahalanobis",
        "MahalanobisDistanceSeq",
        "u² to wrong answers - u² to right ones",
        note="different: the distances are the same but for n or n - 1 below the covariance; here they are squared,"
        " penalised and mapped to a probability, and RelativeMahalanobisDistanceSeq sets training data against a"
        " background corpus where right answers stand against wrong ones here",
    ),
)
NO_ESTIMATOR = "0.7.0 has no such estimator"
NOT_COMPARED: tuple[NotCompared, ...] = (
    NotCompared(
        ("ptrue",), "PTrue",
        "different: the log-probability of one word, True, over the whole vocabulary after another wording; here the"
        " share of yes among yes and no",
    ),
    NotCompared(
        ("self-consistency",), "LabelProb",
        "different: the share of the largest meaning among samples; here the share that the judge finds equal to the"
        " greedy answer",
    ),
    NotCompared(
        ("token-margin", "logistic-probe", "semantic-entropy-probe", "combined", "lookback-lens"), "", NO_ESTIMATOR
    ),
    NotCompared(
        ("ccps", "ct", "it", "litcab", "lts", "pik", "saplma-f", "saplma-m", "saplma-um"), "", NO_ESTIMATOR
    ),
    NotCompared(
        ("trace-length", "deepconf-mean", "deepconf-tail", "deepconf-lowest", "answer-stability", "trace-probe"), "",
        NO_ESTIMATOR,
    ),
    NotCompared(
        (), "TokenSAR, SAR",
        "not compared: a cross-encoder relates each text to the same without one token; that is no signal here, so"
        " there is no method, and its weights can't be had",
    ),
    NotCompared((), "the other sequence estimators of 0.7.0, as LexicalSimilarity", "no method here computes them"),
)  # fmt: skip
OF_A_RUN = (
    "The token that ends an answer or a sample counts among its tokens there, and is none of them here.",
    "At least two tokens are generated there, and samples are drawn from the 50 likeliest; neither is so here.",
    "Entailment is asked of texts alone there, and of each after its question here.",
    "EigenScore reads the last step of a batch of samples there, padding where one ended before; here each one's end.",
    "RAUQ and AttentionScore read the whole matrix of eager attention there; here the rows of the answer's tokens.",
    "MahalanobisDistanceSeq reads the mean state over prompt and answer there; here over the answer.",
    "Entailment is by DeBERTa and similarity by RoBERTa there, whose weights can't be had and so are not compared.",
)
"""In what LM-Polygraph's own statistics of a run differ from ours."""


def differences(drawn: Statistics, theirs: Values) -> dict[str, float]:
    """Largest difference of each comparison, by method and estimator."""
    return {key(row): row.difference(drawn, theirs) for row in COMPARED}


def key(row: Compared) -> str:
    """Name of a comparison."""
    return f"{row.name} ~ {row.estimator}"


def markdown(told: Mapping[str, Any]) -> str:
    """The table of what `__main__` recorded."""
    versions = ", ".join(f"{name} {number}" for name, number in told["versions"].items())
    head = (
        f"Largest difference of a value on the same statistics of {told['questions']} seeded questions, between a"
        f" method, turned into LM-Polygraph's uncertainty u, and its estimator ({versions}). More than {BOUND:g} fails"
        " `make peers`, which writes this file."
    )
    columns = ("method", "LM-Polygraph", "ours", "largest difference", "definition")
    rows = [
        *((row.name, row.estimator, row.told, f"{told['largest'][key(row)]:.0e}", row.note) for row in COMPARED),
        *((", ".join(row.methods) or "-", row.estimator or "-", "", "", row.why) for row in NOT_COMPARED),
    ]
    table = markdown_table(columns, rows)
    told_of_runs = ["LM-Polygraph takes other statistics from a run:", "", *(f"- {line}" for line in OF_A_RUN)]
    lines = ["# Methods beside LM-Polygraph's estimators", "", head, "", *table, "", *told_of_runs]
    return "\n".join(lines) + "\n"
