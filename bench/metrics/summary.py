"""The registry of metrics (`METRICS`), and `summarise`, which computes all of them per subject, averaged and pooled.

An undefined metric is None, never 0 and never NaN. Subjects where a metric is undefined are left out of its mean and
counted. Example: `summarise(confidence, correct, subjects, protocol).metrics["brier"].mean`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray, IntArray
from bench.api.protocol import Protocol
from bench.metrics import calibration, paper, selection
from bench.metrics.validation import normalised_ranks, validate

Average = Literal["questions", "subjects"]
"""How a metric is averaged: `questions` pools all questions, `subjects` is the unweighted mean over subjects."""


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """One metric on a task: its mean over subjects, and its value for all questions pooled.

    Values are fractions, not percent; `nll` is in nats.
    """

    mean: float | None
    """Unweighted mean over the subjects where the metric is defined (see `Metric.mean`); None if it is defined in
    none."""
    std: float | None
    """Standard deviation over the subjects where the metric is defined (`Protocol.std_ddof`); None with too few
    subjects."""
    pooled: float | None
    """The metric computed on all questions together; None where undefined."""
    n_undefined: int
    """Number of subjects left out of `mean` and `std` because the metric is undefined there, e.g. AUROC with one
    class."""

    def of(self, average: Average) -> float | None:
        """Return `pooled` if `average` is `questions`, `mean` if it is `subjects`."""
        return self.pooled if average == "questions" else self.mean


HIGHER = True
LOWER = False


@dataclass(frozen=True)
class Metric:
    """Definition of a metric, with its label, direction and bounds for tables and figures."""

    name: str
    """Key of the metric in `METRICS` and in results."""
    label: str
    """Heading of the metric's column in tables."""
    compute: Callable[..., float | None]
    """Function `(confidence, correct[, bins=][, seed=])` that returns the metric, or None where the metric is
    undefined."""
    reference: str
    """Publication, or section of docs/methods.md, that defines the metric."""
    higher_is_better: bool | None
    """Whether a larger value is better; None for a reference value, e.g. the ECE floor, which has no direction."""
    binned: bool = False
    """Whether `compute` takes `bins`."""
    seeded: bool = False
    """Whether `compute` takes `seed`, as it redraws labels at random."""
    bounds: tuple[float, float] = (0.0, 1.0)
    """Smallest and largest possible value of the metric."""
    is_fraction: bool = True
    """Whether the metric is a fraction, which can be shown in percent; False for `nll`, in nats."""
    is_rank_based: bool = False
    """Whether the metric depends only on the order of the confidences; then the ranks of scores, scaled to [0, 1], can
    replace confidences."""
    is_root: bool = False
    """Whether the metric is the signed root of an estimated square. Its mean over subjects or seeds is then the root of
    the mean square."""

    def value(self, values: FloatArray, correct: BoolArray, bins: int, seed: int) -> float | None:
        """Compute the metric of n answers; `bins` and `seed` are passed on if `compute` takes them.

        Args:
            values: shape (n,), within [0, 1]: confidences, or for a rank-based metric `normalised_ranks` of scores.
            correct: shape (n,), bool.
            bins: number of bins.
            seed: seed of the label draws.
        """
        options = ({"bins": bins} if self.binned else {}) | ({"seed": seed} if self.seeded else {})
        return self.compute(values, correct, **options)

    def mean(self, values: Iterable[float]) -> float | None:
        """Return the mean of this metric's values in several subjects or seeds; None without values.

        For a root metric (see `is_root`), the root of the mean square is returned instead.

        >>> METRICS["brier"].mean([0.1, 0.3]), METRICS["rmsce"].mean([0.7, -0.1])
        (0.2, 0.4898979485566356)
        """
        valid = np.array([*values])
        if not valid.size:
            return None
        return calibration.signed_root(float((valid * np.abs(valid)).mean())) if self.is_root else float(valid.mean())


_METRICS = (
    Metric("ece", "ECE", paper.ece, "doi:10.1609/aaai.v29i1.9602; docs/methods.md §4", LOWER, binned=True),
    Metric("ece_ref", "ECE (ref)", paper.ece_ref, "docs/methods.md §4", LOWER, binned=True),
    Metric("ece_ref_closed", "ECE (ref, closed)", paper.ece_ref_closed, "docs/methods.md §4", LOWER, binned=True),
    Metric("ece_floor", "ECE floor", paper.ece_floor, "docs/methods.md §0.17", None, binned=True, seeded=True),
    Metric("brier", "Brier", paper.brier, "doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2", LOWER),
    Metric("acc", "ACC", paper.accuracy, "docs/methods.md §4", HIGHER),
    Metric("aucpr", "AUCPR", paper.aucpr, "doi:10.1145/1143844.1143874", HIGHER, is_rank_based=True),
    Metric("auroc", "AUROC", paper.auroc, "doi:10.1148/radiology.143.1.7063747", HIGHER, is_rank_based=True),
    Metric(
        "ece_debiased", "ECE - floor", paper.ece_debiased, "docs/methods.md §0.17", LOWER,
        binned=True, seeded=True, bounds=(-1.0, 1.0),
    ),
    Metric("rmsce", "RMSCE", calibration.rmsce, "arXiv:1909.10155", LOWER, bounds=(-1.0, 1.0), is_root=True),
    Metric("ece_mass", "ECE (equal mass)", calibration.ece_mass, "doi:10.18653/v1/D15-1182", LOWER, binned=True),
    Metric("smece", "smECE", calibration.smece, "arXiv:2309.12236", LOWER),
    Metric(
        "nll", "NLL", calibration.nll, "doi:10.1111/j.2517-6161.1952.tb00104.x", LOWER,
        bounds=(0.0, calibration.NLL_WORST), is_fraction=False,
    ),
    Metric("brier_mcb", "Brier MCB", calibration.brier_mcb, "doi:10.1073/pnas.2016191118", LOWER),
    Metric("brier_dsc", "Brier DSC", calibration.brier_dsc, "doi:10.1073/pnas.2016191118", HIGHER, bounds=(0.0, 0.25)),
    Metric("brier_unc", "Brier UNC", calibration.brier_unc, "doi:10.1073/pnas.2016191118", None, bounds=(0.0, 0.25)),
    Metric("aurc", "AURC", selection.aurc, "arXiv:1805.08206", LOWER, is_rank_based=True),
    Metric("eaurc", "E-AURC", selection.eaurc, "arXiv:1805.08206", LOWER, is_rank_based=True),
    Metric("prr", "PRR", selection.prr, "arXiv:2406.15627", HIGHER, bounds=(-math.inf, 1.0), is_rank_based=True),
    Metric("coverage95", "Coverage at 95 %", selection.coverage95, "jmlr:v11/el-yaniv10a", HIGHER, is_rank_based=True),
)  # fmt: skip
METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _METRICS})


# --- over subjects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scores:
    """All metrics of one method on one task."""

    metrics: Mapping[str, MetricSummary]
    """Name of a metric -> its summary, in the order of METRICS; without confidences, rank-based metrics only."""
    per_subject: Mapping[str, Mapping[str, float | None]]
    """Subject (sorted) -> its number of answers under `n`, and each metric under its name."""
    n_excluded: int | None
    """Number of answers that the metric `ece_ref` leaves out; None without confidences."""
    n_clipped: int | None
    """Number of answers whose loss the metric `nll` clips; None without confidences."""


def summarise(
    confidence: npt.ArrayLike | None,
    correct: npt.ArrayLike,
    subjects: Sequence[str],
    protocol: Protocol,
    score: npt.ArrayLike | None = None,
) -> Scores:
    """Compute all metrics for each subject, their mean and standard deviation over subjects, and their pooled values.

    Subjects where a metric is undefined are left out of its mean and counted (docs/methods.md §4).

    Args:
        confidence: shape (n,), float in [0, 1]; None if there are scores alone.
        correct: shape (n,), bool.
        subjects: subject name of each answer, n of them.
        protocol: gives the number of bins and the standard deviation's ddof.
        score: shape (n,), input of rank-based metrics; by default the confidence.

    Raises:
        ValueError: there are neither confidences nor scores, the numbers of answers and subjects differ, or the input
            is invalid by the rules of `accuracy`.

    >>> scores = summarise([1.0, 0.0, 0.5], [True, False, True], ["art", "art", "biology"], Protocol())
    >>> scores.metrics["brier"].mean, scores.metrics["auroc"].n_undefined
    (0.125, 1)
    """
    values = confidence if score is None else normalised_ranks(score)
    if values is None:
        raise ValueError("expected confidences or scores, got neither")
    order, o = validate(values, correct)
    p = None if confidence is None else validate(confidence, correct)[0]
    if len(subjects) != o.size:
        raise ValueError(f"expected one subject for each of {o.size} answers, got {len(subjects)}")
    per_subject = {
        subject: {
            "n": rows.size,
            **_all_metrics(None if p is None else p[rows], order[rows], o[rows], protocol, seed_of(subject)),
        }
        for subject, rows in rows_of_subjects(subjects)
    }
    pooled = _all_metrics(p, order, o, protocol, 0)
    metrics: dict[str, MetricSummary] = {}
    for name, value in pooled.items():
        defined = np.array([s[name] for s in per_subject.values() if s[name] is not None], dtype=np.float64)
        std = float(defined.std(ddof=protocol.std_ddof)) if defined.size > protocol.std_ddof else None
        metrics[name] = MetricSummary(METRICS[name].mean(defined), std, value, len(per_subject) - defined.size)
    if p is None:
        return Scores(metrics, per_subject, None, None)
    return Scores(metrics, per_subject, paper.n_excluded(p, o), calibration.n_clipped(p, o))


def _all_metrics(
    p: FloatArray | None, order: FloatArray, o: BoolArray, protocol: Protocol, seed: int
) -> dict[str, float | None]:
    """Compute each metric: rank-based ones from scores `order`, all others from confidences `p`.

    If `p` is None, there are rank-based metrics only. `seed` differs between subjects, so that their ECE floors are
    independent.
    """
    values = {name: order if metric.is_rank_based else p for name, metric in METRICS.items()}
    return {
        name: METRICS[name].value(value, o, protocol.ece_bins, seed)
        for name, value in values.items()
        if value is not None
    }


def seed_of(subject: str) -> int:
    """Return the seed of a subject's label draws, a hash of its name.

    So the subject's ECE floor does not depend on the other subjects.
    """
    return zlib.crc32(subject.encode())


def rows_of_subjects(subjects: Sequence[str]) -> Iterator[tuple[str, IntArray]]:
    """Yield each subject, sorted by name, with the indices of its n_s questions, shape (n_s,), ascending."""
    names = sorted(set(subjects))
    index = {name: k for k, name in enumerate(names)}  # ten times as fast as np.unique of texts
    group = np.fromiter(map(index.__getitem__, subjects), np.int64, len(subjects))
    order = np.argsort(group, kind="stable")
    yield from zip(map(str, names), np.split(order, np.cumsum(np.bincount(group))[:-1]), strict=True)
