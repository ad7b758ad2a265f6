"""The numbers of docs/findings.md, from the committed results and claims alone: `python -m benchmarks.findings`.

Tables stand between comments of the page that name them; figures are `docs/pictures/findings-*.svg`. Claims are in
`results/claims.toml`. Each was written down before the hold-out task of its task was run, is tested on both, and stands
on the page whatever comes of it.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from bench.api import FloatArray
from bench.metrics import METRICS
from bench.registry import resources_of
from bench.report import style
from bench.report.competition import displayed_value
from bench.report.figures.drawing import new_figure, save, use_style
from bench.report.figures.overview import reliability_overview
from bench.report.figures.risk import risk_coverage
from bench.report.selection import Selection, View
from bench.report.tables import formats
from bench.report.tables.request import build_views, tables_of
from bench.report.text import MINUS
from bench.results import cells, files
from bench.results.row import ResultRow
from bench.stats.comparison import Comparison
from bench.stats.holm import holm
from bench.stats.summary import Summary, summary
from benchmarks import beside_lm_eval
from benchmarks.committed import MODEL, PLAIN, RESULTS, ROOT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = ROOT / "docs" / "pictures"
PAGE, README = ROOT / "docs" / "findings.md", ROOT / "README.md"
CLAIMS = RESULTS / "claims.toml"
TASKS = {"mmlu-1k-choice": "MMLU", "mmlu-pro-1k-choice": "MMLU-Pro", "medmcqa-1k-choice": "MedMCQA"}
SOURCES = {"home": "labels from home", "elsewhere": "labels from elsewhere"}
TOY = "tiny"
TOY_TASKS = {"atlas-choice": "with options", "atlas-oe": "without"}
SMALL = {
    "smollm2-135m-instruct-q4_1.gguf-b179c952": "SmolLM2-135M-Instruct Q4_1",
    "gemma-3-270m-q4_k_m.gguf-a5fd3b62": "Gemma 3 270M Q4_K_M",
}
SMALL_METHODS = ("sequence-probability", "self-consistency", "ptrue", "verbalised")
OPEN, TRACED = "mmlu-1k-oe", "mmlu-pro-1k-choice"
"""Tasks of partial results: open answers, and letters after reasoning traces."""
BUDGET = 320
"""Largest number of tokens of a reasoning trace; a control has one of a single token."""
ELSEWHERE = "ct-local-choice"
TRAIN_LIMIT = {"any": None, "home": None, "elsewhere": "1000+250"}
"""`--train-limit` with which methods learn from 1,250 labels; results of other numbers are not in these tables."""
LEVEL = 0.05
DRAWN = ("brier", "auroc")
"""Metrics that have a figure."""
CURVES = {"reliability": reliability_overview, "risk": risk_coverage}
"""Figures of curves: which is drawn of CURVED with labels from home."""
CURVED = (PLAIN, "combined", "ccps", "pik", "self-consistency", "ptrue")
VOTES = "self-consistency"
PAIRED = (PLAIN, "perplexity", "combined", "ccps", "saplma-f", VOTES, "ptrue")
"""Methods of which the page shows what a trace changes."""
SCALED = "the first none; others 250, to scale their scores"
FAMILIES = {
    "probability of the answer": (
        "sequence-probability perplexity token-margin mean-token-entropy self-certainty",
        SCALED,
        "nothing",
        "always: compare others with the first",
    ),
    "asking the model whether it is right": (
        "ptrue lts",
        "none; 250 for `lts`",
        "a question after the answer",
        "not with this model; a larger one may know better",
    ),
    "asking for a number": ("verbalised", "none", "a question after the answer", "never with this model: it says 100"),
    "sampling": (
        "self-consistency semantic-entropy degree-matrix eccentricity eigenvalues sentence-sar cocoa eigenscore",
        SCALED,
        "ten sampled answers",
        "answers are texts (not measured here)",
    ),
    "probes of hidden states": (
        "pik saplma-f saplma-m saplma-um logistic-probe relative-mahalanobis semantic-entropy-probe",
        "1,250",
        "nothing",
        "`bench table` shows on questions of yours that they are better",
    ),
    "states under perturbation": ("ccps litcab", "1,250", "passes of the output head", "to compare, with 1,000 labels"),
    "combined": ("combined", "1,250", "a question after the answer", "to compare, with some hundred labels"),
    "fine-tuned adapters": ("it ct", "thousands", "a pass with the adapter", "with a GPU; not run here"),
}  # fmt: skip
"""Family -> its methods, their labels here, what they cost beyond the answer, and when to use them."""


def holdout(task: str) -> str:
    """Return the name of a task's hold-out task."""
    return task.replace("-1k-", "-1k-holdout-")


def source_of(row: ResultRow) -> str | None:
    """Return where a method learned: `home`, `elsewhere`, or `any` if it learns nothing; None for other settings."""
    if row.train_on is None:
        return "any"
    corpus = row.train_on.partition("/")[0]
    home = corpus == row.task.replace("-1k-holdout-", "-1k-")
    return "home" if home else "elsewhere" if corpus == ELSEWHERE else None


class Cells:
    """Confidences of one task whose methods learned at one source: method -> confidences of all seeds."""

    learned_right = float("nan")
    """Share of right answers among those that the method with most labels learned on."""
    scaled: frozenset[str] = frozenset()
    """Methods that learn nothing, whose scores became probabilities by labels of the task's own validation split."""

    def __init__(self, rows: Iterable[ResultRow]) -> None:
        """Read the records of all seeds of all methods, in the order of question ids."""
        by_method = defaultdict[str, list[Any]](list)
        most = 0
        for row in sorted(rows, key=lambda row: row.seed):
            by_method[row.method].append(files.records_of(row, RESULTS).by_id())
            if row.base_rate is not None and (n := sum(astuple(row.labels_seen))) > most:
                self.learned_right, most = row.base_rate, n
            if row.train_on is None and row.labels_seen.validation:
                self.scaled |= {row.method}
        first = next(iter(by_method.values()))[0]
        self.correct, self.subjects = first.correct, list(first.subject)
        self.confidence = {name: np.stack([run.confidence for run in runs]) for name, runs in by_method.items()}
        self.order = {name: np.stack([run.ranking_values for run in runs]) for name, runs in by_method.items()}

    @cached_property
    def summary(self) -> Summary:
        """Metrics of all methods, with intervals and paired tests of all pairs."""
        return summary(self.confidence, self.correct, self.subjects, score=self.order)

    @cached_property
    def unscaled(self) -> Summary:
        """As `summary`, without the methods in `scaled`, for metrics of confidences."""
        confidence = {name: runs for name, runs in self.confidence.items() if name not in self.scaled}
        return summary(confidence, self.correct, self.subjects)

    @property
    def constant(self) -> float:
        """Brier score of the best constant confidence, the share of right answers."""
        return float(self.correct.mean() * (1 - self.correct.mean()))


def read(model: str = MODEL) -> dict[tuple[str, str], Cells]:
    """Read the results of a model: (task, source of labels) -> confidences."""
    grouped = defaultdict[tuple[str, str], list[ResultRow]](list)
    for row in cells.read_all(RESULTS):
        source = source_of(row) if row.model == model and row.status == "ok" else None
        if source and row.config.get("train_limit") == TRAIN_LIMIT[source]:
            for each in SOURCES if source == "any" else [source]:
                grouped[row.task, each].append(row)
    return {key: Cells(rows) for key, rows in grouped.items() if any(source_of(row) == key[1] for row in rows)}


# --- claims -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """That one method is better than another by one metric, on each of several tasks."""

    says: str
    metric: str
    better: str
    """Method, or METHOD@SOURCE."""
    worse: str
    tasks: Sequence[str]

    def test(self, task: str, data: Mapping[tuple[str, str], Cells]) -> Comparison[str] | None:
        """Compare both methods on one task; None if there is no result of one of them."""
        confidence, order, first = dict[str, FloatArray](), dict[str, FloatArray](), data.get((task, "home"))
        for side in (self.better, self.worse):
            method, _, source = side.partition("@")
            cell = data.get((task, source or "home"))
            if first is None or cell is None or method not in cell.confidence:
                return None
            confidence[side], order[side] = cell.confidence[method], cell.order[method]
        assert first is not None
        (comparison,) = summary(confidence, first.correct, first.subjects, score=order).comparisons[self.metric]
        return comparison


def read_claims() -> list[Claim]:
    """Read the claims from their file."""
    return [Claim(**each) for each in tomllib.loads(CLAIMS.read_text(encoding="utf-8"))["claim"]]


def claims_table(data: Mapping[tuple[str, str], Cells]) -> list[str]:
    """Return the rows of the table of claims, p values corrected by Holm's rule over all tests of a column."""
    claims = read_claims()
    places = [(claim, task) for claim in claims for task in claim.tasks]
    columns = []
    for name in (str, holdout):
        tests = [claim.test(name(task), data) for claim, task in places]
        corrected = iter(holm([test.p for test in tests if test is not None and test.p is not None]))
        columns.append(
            [
                _outcome(claim, test, None if test is None or test.p is None else next(corrected))
                for (claim, _), test in zip(places, tests, strict=True)
            ]
        )
    lines = ["| | claim | on | test questions | hold-out questions |", "|--:|:--|:--|:--|:--|"]
    for (claim, task), *outcomes in zip(places, *columns, strict=True):
        number, says = (f"{claims.index(claim) + 1}", claim.says) if task == claim.tasks[0] else ("", "")
        lines.append(f"| {number} | {says} | {TASKS[task]} | {' | '.join(outcomes)} |")
    return lines


def _outcome(claim: Claim, test: Comparison[str] | None, p: float | None) -> str:
    if test is None or p is None:
        return "not run"
    gain = 100 * (test.difference if METRICS[claim.metric].higher_is_better else -test.difference)
    word = "holds" if gain > 0 and p < LEVEL else "**reversed**" if gain < 0 and p < LEVEL else "**not shown**"
    low, high = test.fixed.ends or (test.difference, test.difference)
    half = 100 * (high - low) / 2
    return f"{word}: {gain:+.1f} ±{half:.1f}, p {'< 0.001' if p < 0.001 else f'{p:.3f}'}".replace("-", MINUS)


# --- tables and figures -----------------------------------------------------------------------------------------------


def methods_by_score(data: Mapping[tuple[str, str], Cells]) -> list[str]:
    """Return all methods by their mean Brier score over tasks, with labels from home, the best first."""
    home = [cell for (_, source), cell in data.items() if source == "home"]
    names = sorted({name for cell in data.values() for name in cell.confidence})
    means = {name: np.nanmean([value(cell, name, "brier") for cell in home]) for name in names}
    return sorted(names, key=lambda name: round(float(means[name]), 9))  # equal ones stay in the order of names


def value(cell: Cells, method: str, metric: str) -> float:
    """Return a method's metric, mean over seeds; NaN if there is no result."""
    if method not in cell.summary.methods:
        return float("nan")
    found = cell.summary.methods[method].estimates[metric].value
    return float("nan") if found is None else found


def scores_table(data: Mapping[tuple[str, str], Cells], metric: str) -> list[str]:
    """Return a table of one metric: methods by Brier score, a column for each task and source of labels.

    A plus or a minus marks methods that are significantly better or worse than the column's plain probability. Scores
    that labels of home made probabilities are left out elsewhere, and of its tests, unless the metric looks at their
    order alone.
    """
    places = [(task, source) for task in TASKS for source in SOURCES if (task, source) in data]
    lines = ["| method | " + " | ".join(f"{TASKS[task]}, {source}" for task, source in places) + " |",
             "|:--|" + "--:|" * len(places)]  # fmt: skip
    for method in methods_by_score({place: data[place] for place in places}):
        texts = []
        for place in places:
            cell = data[place]
            found = cell.summary if place[1] == "home" or metric == "auroc" else cell.unscaled
            number, mark = value(cell, method, metric) if method in found.methods else float("nan"), ""
            for pair in found.comparisons[metric]:
                if {pair.first, pair.second} == {method, PLAIN}:
                    winner = pair.winner(LEVEL)
                    mark = "" if winner is None else "+" if winner == method else MINUS
            texts.append("" if np.isnan(number) else f"{100 * displayed_value(metric, number):.1f}{mark}")
        lines.append(f"| {method} | " + " | ".join(texts) + " |")
    if metric == "brier":
        texts = [f"{100 * data[p].constant:.1f}" for p in places]
        lines.append(f"| *a constant: the share of these that is right* | {' | '.join(texts)} |")
        texts = [f"{100 * ((data[p].learned_right - data[p].correct) ** 2).mean():.1f}" for p in places]
        lines.append(f"| *a constant: the share of those learned on* | {' | '.join(texts)} |")
        shares = [(data[place].learned_right, data[place].correct.mean()) for place in places]
        texts = [f"{100 * learned:.0f}, {100 * tested:.0f} %" for learned, tested in shares]
        lines.append(f"| *right answers: learned on, tested* | {' | '.join(texts)} |")
    return lines


def surest_table(data: Mapping[tuple[str, str], Cells]) -> list[str]:
    """Return a table of the methods of CURVED, learned at home: shares of right answers among the most confident ones.

    Equally confident answers count with their mean. The last columns are mean confidence, share of right answers and
    number of answers of a seed, where the confidence is above one half.
    """
    lines = [
        "| benchmark | method | surest 10 % | 20 % | 50 % | above ½: says | right | answers |",
        "|:--|:--|--:|--:|--:|--:|--:|--:|",
    ]
    for task, cell in ((task, data[task, "home"]) for task in TASKS if (task, "home") in data):
        for method in CURVED:
            order, confidence = cell.order[method], cell.confidence[method]
            right = np.stack([_sorted_by(seed, cell.correct) for seed in order])
            numbers = [right[:, : round(share * right.shape[1])].mean() for share in (0.1, 0.2, 0.5)]
            above = confidence > 0.5
            numbers += [confidence[above].mean(), np.broadcast_to(cell.correct, above.shape)[above].mean()]
            texts = " | ".join(f"{100 * number:.0f}" for number in numbers)
            lines.append(f"| {TASKS[task]} | {method} | {texts} | {above.sum() / len(above):.0f} |")
    return lines


def few_table(corner: str, columns: Mapping[str, Cells], methods: Iterable[str] = CURVED) -> list[str]:
    """Return a table of some methods, with labels from home: Brier score and AUROC for each column, and a constant."""
    heads = [f"{METRICS[metric].label}, {name}" for name in columns for metric in DRAWN]
    lines = [f"| {corner} | " + " | ".join(heads) + " |", "|:--|" + "--:|" * len(heads)]
    for method in methods:
        values = [value(cell, method, metric) for cell in columns.values() for metric in DRAWN]
        lines.append(f"| {method} | " + " | ".join(f"{100 * number:.1f}" for number in values) + " |")
    constants = [text for cell in columns.values() for text in (f"{100 * cell.constant:.1f}", "50.0")]
    return [*lines, f"| *a constant: the share of these that is right* | {' | '.join(constants)} |"]


def partial_tables(**chosen: Any) -> list[str]:
    """Return the tables that `bench table --partial` prints of the model, as Markdown without the legend."""
    view = View(RESULTS, models=(MODEL,), partial=True, deviations=True, **chosen)
    return formats.render(build_views(view, None), "md").strip().rpartition("\n\n")[0].splitlines()


def traces_tables() -> list[str]:
    """Return tables of answers without a reasoning trace, after one of a single token, and after one of `BUDGET`.

    These are the scores of all methods; right answers and the plain probability, in percent, by how the longer trace
    ended; and what `bench table` says of the methods after it, and of the differences that it makes to PAIRED.
    """
    rows = [row for row in cells.read_all(RESULTS, partial=True) if row.model == MODEL and row.task == TRACED]
    arms = {
        name: Cells(row for row in rows if row.limit and row.config.get("think_budget") == budget)
        for name, budget in {"no trace": None, "1 token": 1, f"{BUDGET} tokens": BUDGET}.items()
    }
    traced, columns = arms[f"{BUDGET} tokens"], "--:|" * (1 + 2 * len(arms))
    labels = {row.method: row.labels_seen.train + row.labels_seen.validation for row in rows if row.limit}
    heads = [f"{head}, {name}" for name in arms for head in ("Brier", "AUROC")]
    lines = [f"| method | labels | {' | '.join(heads)} |", f"|:--|{columns}"]
    for method in methods_by_score({(name, "home"): cell for name, cell in arms.items()}):
        texts = [f"{labels[method]:,}"]
        for cell in arms.values():
            gain, order = value(cell, method, "brier") - cell.constant, value(cell, method, "auroc")
            texts += ["", ""] if np.isnan(gain) else [f"{100 * gain:+.1f}".replace("-", MINUS), f"{100 * order:.1f}"]
        lines.append(f"| {method} | {' | '.join(texts)} |")
    length = -traced.order["trace-length"][0]
    cut, empty = length >= max(length[np.isfinite(length)]), length == 0
    kinds = {"all": cut | ~cut, "ended by itself": ~(cut | empty), "cut": cut, "empty": empty}
    heads = [f"{head}, {name}" for name in arms for head in ("right", "says")]
    lines += ["", f"| trace of {BUDGET} tokens | answers | {' | '.join(heads)} |", f"|:--|{columns}"]
    for kind, of in kinds.items():
        shares = [x[of].mean() for cell in arms.values() for x in (cell.correct, cell.confidence[PLAIN][0])]
        lines.append(f"| {kind} | {of.sum()} | {' | '.join(f'{100 * share:.0f}' for share in shares)} |")
    orders = [roc_auc_score(traced.correct, ~cut), roc_auc_score(traced.correct[~cut], -length[~cut])]
    whole, within = (f"{100 * order:.1f}" for order in orders)
    votes = [cell.confidence[VOTES][0] for cell in arms.values() if VOTES in cell.confidence]
    voted = " and ".join(f"{100 * each.mean():.0f} %" for each in votes)
    lines += [
        "",
        f"AUROC of whether the trace was not cut: {whole}; of the length of those that weren't: {within}.",
        "",
        f"`{VOTES}` says, without traces and after them: {voted}.",
        "",
    ]
    tables = "\n".join(partial_tables(tasks=(TRACED,), methods=PAIRED)).split("\n### ")
    of_budget = (part.splitlines() for part in tables if f"of at most {BUDGET} tokens" in part.partition("\n")[0])
    verdict, pairs = of_budget
    return [*lines, *verdict[2:4], "", f"### {pairs[0]}", *pairs[1:]]


def labels_table() -> list[str]:
    """Return a table of the Brier score by the number of labels, from the files that `bench analyze labels` wrote.

    A minus marks methods that are significantly worse than the plain probability, a plus those that are better.
    """
    lines = list[str]()
    for task in TASKS:
        if not (path := RESULTS / "analyses" / f"{MODEL}--labels--{task}.csv").is_file():
            continue
        brier = pd.read_csv(path, keep_default_na=False, na_values=[""]).query("metric == 'brier'")
        values = brier[brier.untrained.isna()].pivot_table(index="method", columns="labels", values="value")
        pairs = brier[brier.untrained == PLAIN].set_index(["method", "labels"])
        sizes = " | ".join(f"{n:,}" for n in values.columns)
        lines += [f"| {TASKS[task]}, home | {sizes} |", "|:--|" + "--:|" * len(values.columns)]
        for method in values.mean(axis=1).sort_values().index:
            texts = []
            for n, number in values.loc[method].items():
                mark = ""
                if (method, n) in pairs.index and pairs.p_holm[method, n] < LEVEL:
                    mark = "+" if pairs.value[method, n] > 0 else MINUS
                texts.append(f"{100 * number:.1f}{mark}")
            if len({*texts}) == 1:  # it does not depend on labels
                texts[1:] = ["same"] * (len(texts) - 1)
            lines.append(f"| {method} | {' | '.join(texts)} |")
    return lines


def _sorted_by(order: FloatArray, correct: Any) -> FloatArray:
    _, groups, sizes = np.unique(-order, return_inverse=True, return_counts=True)
    return np.repeat(np.bincount(groups, correct) / sizes, sizes)


def families_table(data: Mapping[tuple[str, str], Cells]) -> list[str]:
    """Return a table of families of methods: what they need and cost, and how far off the plain probability they are.

    That is the range, over methods and tasks, of their Brier score minus that of the plain probability; one column for
    each source of labels. Who has labels from elsewhere alone can't scale scores by labels from home.
    """
    sources = {source: [task for task in TASKS if (task, source) in data] for source in SOURCES}
    heads = [SOURCES[source] for source, tasks in sources.items() if tasks]
    lines = ["| family | reads | labels | extra cost | use it when | " + " | ".join(heads) + " |"]
    lines.append("|:--|:--|:--|:--|:--|" + "--:|" * len(heads))
    for family, (names, *told) in FAMILIES.items():
        methods, ranges = names.split(), []
        for source, tasks in sources.items():
            above = {
                (name, task): 100
                * (value(data[task, source], name, "brier") - value(data[task, source], PLAIN, "brier"))
                for task in tasks
                for name in methods
                if source == "home" or name not in data[task, source].scaled
            }
            known = [round(number, 1) + 0.0 for number in above.values() if not np.isnan(number)]  # -0.0 is 0.0
            missing = dict.fromkeys(f"`{name}`" for (name, _), number in above.items() if np.isnan(number))
            ends = [f"{end:+.1f}".replace("-", MINUS) for end in (min(known), max(known))] if known else ["not run"]
            without = f" ({', '.join(missing)} not run)" * bool(known and missing)
            ranges += [" to ".join(dict.fromkeys(ends)) + without] * bool(tasks)
        reads = ", ".join(dict.fromkeys(need for name in methods for need in resources_of(name))) or "text"
        listed = ", ".join(f"`{name}`" for name in methods)
        lines.append(f"| **{family}**: {listed} | " + " | ".join([reads, *told, *ranges]) + " |")
    return lines


@use_style()
def dot_plot(data: Mapping[tuple[str, str], Cells], metric: str) -> Figure:
    """Draw one metric of each method at both sources, beside the plain probability and a constant confidence.

    Methods are in the order of the Brier score. What lies far off stands as a number at the edge.
    """
    tasks = [task for task in TASKS if any(key[0] == task for key in data)]
    names, label = methods_by_score(data), METRICS[metric].label
    better = "higher" if METRICS[metric].higher_is_better else "lower"
    note = (
        "Filled: with no labels or up to 1,250 of the same benchmark; hollow: with 1,250 of other corpora. Bars:"
        " 95 % intervals. Grey: the plain probability of the answer; dashed: a constant confidence."
    )
    figure, axes = new_figure(
        (1, len(tasks)), (style.PANEL_WIDTH if len(tasks) == 1 else style.TEXT_WIDTH, 0.13 * len(names) + 0.5),
        title=f"{label}, {MODEL.partition('-q4')[0]}, {better} is better", note=note,
    )  # fmt: skip
    for k, task in enumerate(tasks):
        here, constants = axes[0, k], list[float]()
        here.set_title(TASKS[task])
        here.set_yticks(range(len(names)), names if not k else [])
        here.set_ylim(len(names) - 0.4, -0.6)
        scores = sorted(value(cell, name, metric) for key, cell in data.items() for name in names if key[0] == task)
        edge = 1.1 * scores[int(0.9 * len(scores))]  # a tenth of the methods at most lies beyond
        drawn = dict[str, float]()
        for source, fill, shift in (("home", style.INK, -0.15), ("elsewhere", "white", 0.15)):
            if (cell := data.get((task, source))) is None:
                continue
            constants.append(cell.constant if metric == "brier" else 0.5)
            here.axvline(100 * value(cell, PLAIN, metric), color=style.FAINT, linewidth=1.2, zorder=0)
            for row, name in enumerate(names):
                score = value(cell, name, metric)
                if np.isnan(score) or drawn.get(name) == score:  # it learns nothing: the same at both sources
                    continue
                drawn[name] = score
                if score > edge:
                    here.text(
                        1, row, f"{100 * score:.0f} →", ha="right", va="center", transform=here.get_yaxis_transform()
                    )
                    continue
                low, high = cell.summary.methods[name].estimates[metric].fixed.ends or (score, score)
                here.plot([100 * low, 100 * high], [row + shift] * 2, color=style.MUTED, linewidth=0.6)
                here.plot(100 * score, row + shift, "o", markersize=2.6, markerfacecolor=fill,
                          markeredgecolor=style.INK, markeredgewidth=0.5)  # fmt: skip
        here.axvline(100 * constants[0], color=style.MUTED, linewidth=0.6, linestyle=(0, (4, 2)))
    return figure


def curves() -> Iterator[tuple[str, Figure]]:
    """Draw calibration, and mistakes among the most confident answers, of the methods of CURVED, learned at home."""
    chosen = Selection(RESULTS, methods=CURVED, models=(MODEL,), train_on="own")
    tables = [table for table in tables_of(chosen, cache=None) if table.rows[0].task in TASKS]
    for kind, draw in CURVES.items():
        yield kind, draw(tables, lambda row: files.records_of(row, RESULTS))


def tested(data: Mapping[tuple[str, str], Cells]) -> dict[tuple[str, str], Cells]:
    """Return the results on test questions alone, without those that are held out."""
    return {key: cell for key, cell in data.items() if key[0] in TASKS}


def page(text: str, blocks: Mapping[str, Sequence[str]]) -> str:
    """Return a page with its generated blocks replaced: the lines between `<!-- NAME -->` and `<!-- end -->`."""
    for name, lines in blocks.items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        assert end, f"expected a block {name} in the page, found none"
        text = "\n".join([before + begin, *lines, "", end + after])
    return text


def pages(data: Mapping[tuple[str, str], Cells]) -> dict[Path, str]:
    """Return the pages with their generated blocks as the results give them: path -> text."""
    tables = {name: scores_table(data, name) for name in ("brier", "auroc", "rmsce")}
    toy, rows = read(TOY), [row for row in cells.read_all(RESULTS) if row.model in SMALL and row.status == "ok"]
    small = {name: Cells(row for row in rows if row.model == model) for model, name in SMALL.items()}
    tables["toy"] = few_table(f"`{TOY}`", {name: toy[task, "home"] for task, name in TOY_TASKS.items()})
    tables["small"] = few_table("MMLU", small, SMALL_METHODS)
    tables["letters"] = [str(beside_lm_eval.beside(beside_lm_eval.kept()["scores"]))]
    tables["open"], tables["traces"] = partial_tables(tasks=(OPEN,)), traces_tables()
    blocks = {
        PAGE: {"claims": claims_table(data), "surest": surest_table(data), "labels": labels_table(), **tables},
        README: {"families": families_table(data)},
    }
    return {path: page(path.read_text(encoding="utf-8"), of) for path, of in blocks.items()}


def main() -> None:
    """Write the tables into the pages, and the figures."""
    data = read()
    for path, text in pages(data).items():
        path.write_text(text, encoding="utf-8")
    for metric in DRAWN:
        save(dot_plot(tested(data), metric), PICTURES / f"findings-{metric}.svg")
    for kind, figure in curves():
        save(figure, PICTURES / f"findings-{kind}.svg")


if __name__ == "__main__":
    main()
