"""Drift between two ways to run one model: where prompts, token ids, log-probabilities and confidences differ, and why.

Both are read as in a run, through the store. What comes first explains what follows: other prompts give other
log-probabilities, so these are compared after equal token ids alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.api import BoolArray, ChoiceLogits, FloatArray, Of, Samples, Signal, TokenScores, UserError
from bench.api.errors import capture, reason_of
from bench.data.loading import Loader
from bench.metrics import METRICS
from bench.metrics.calibration import signed_root
from bench.metrics.validation import average_ranks, normalised_ranks
from bench.model.language_model import LanguageModel
from bench.progress import Progress
from bench.prompts.front_coding import Ids
from bench.prompts.prompt_settings import PromptSettings
from bench.run.config import RunConfig
from bench.run.inputs import Inputs
from bench.run.pipeline import OpenRun, open_run
from bench.run.predicting import Prediction, Predictor
from bench.run.preparation import find_infeasible
from bench.signals.batch_builder import BatchBuilder
from bench.signals.definition import definition, read_from_model
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.stats.comparison import compare
from bench.stats.guard import grid, guard, held_out_mask, p_value
from bench.stats.influence import influence
from bench.stats.intervals import MIN_RARER, TINY, Sampling, quantile
from bench.stats.settings import Settings
from bench.stats.strata import strata_of

READ: Mapping[str, Signal] = {
    "letters": ChoiceLogits(), "right answers": TokenScores(Of.GOLD), "answers": TokenScores(), "samples": Samples(),
}  # fmt: skip
"""What is compared -> signal with its log-probabilities. Those of letters are of their shares among the letters."""
FLOAT, HALF = (0.005, 0.03), 0.1
"""Standard deviation and maximum of differences between engines with float weights, in nats; standard deviation if one
of them has 16-bit weights."""
SHIFT, NEAR, RARE, MOST_OTHER = 0.1, 0.02, 0.01, 0.05
"""Mean difference of a token's log-probability in own texts from which on it may be the sampler's, difference of one
question that counts in the sign test of it, and the test's level; share of answers that may differ by near-ties where
log-probabilities agree."""
CROSSED, RISKS, LEVEL = (0.5, 0.7, 0.9), (0.2, 0.1, 0.05), 0.9
"""Confidences whose crossing is counted; risks of guards, the last of which that has a threshold is taken."""
_OWN_TEXTS = {"answers", "samples"}
"""What each side has written itself, so that its tokens are not those of the other side."""
_REPEATED = 24
"""Number of prompts that a server reads twice, to tell how far it differs from itself."""


@dataclass(frozen=True, eq=False)
class Side:
    """One way to run the model, and what it gave for n questions, in their order."""

    lm: LanguageModel
    """The model, without its weights."""
    data: SplitData
    prompts: list[Ids]
    texts: list[str]
    """The prompts as text."""
    exemplars: list[list[str]]
    """Ids of the exemplars in each prompt."""
    answers: list[Ids]
    logs: Mapping[str, list[FloatArray]]
    """Key of `READ` -> log-probabilities of each question's letters or tokens."""
    predictions: Mapping[str, Prediction]
    """Method -> confidences or scores."""
    skipped: Mapping[str, str]
    """Method -> why it has none."""
    noise: float | None
    """How far letters' log-probabilities move on average if the server has read a prompt before; None without one."""


def read_sides(configs: Sequence[RunConfig], progress: Progress) -> list[Side]:
    """Read the test questions of two runs that differ in their model alone.

    Raises:
        UserError: a model or the task can't be used, or the models have other vocabularies.
    """
    with ExitStack() as stack:
        works = [stack.enter_context(open_run(config, progress)) for config in configs]
        skipped, signals = dict[str, str](), dict(READ)
        for work in works:
            lm, task = work.resources.reader.lm, work.resources.tasks[work.resolved.tests[0]]
            if "test" not in task.card.splits:
                has = f"it has {', '.join(task.card.splits)} alone; name another one."
                raise UserError(f"--task {task.name}: expected a task with test questions, {has}")
            works[0].resources.reader.lm.require_vocabulary_of(lm)
            skipped |= {name: why for (name, _), why in find_infeasible(work.resolved, work.resources).items()}
            for what, spec in {what: definition(signal) for what, signal in signals.items()}.items():
                if spec.unsupported(task.format) or lm.missing(spec.needs(task.format), spec.depths):
                    del signals[what]
        pairs = zip(works, configs, strict=True)
        return [_read(work, skipped, signals, config.limit, progress) for work, config in pairs]


def _read(
    work: OpenRun, skipped: Mapping[str, str], signals: Mapping[str, Signal], limit: int | None, progress: Progress
) -> Side:
    """Read the questions with one model, whose weights are released then."""
    resolved, reader, (where,) = work.resolved, work.resources.reader, work.resolved.test_splits
    task, lm = work.resources.tasks[where.task], reader.lm
    methods = {name: method for name, method in resolved.methods.items() if name not in skipped}
    needed = frozenset(signals.values()).union(*(read_from_model(m.reads().predict) for m in methods.values()))
    questions = Loader({where.task: task}, [where], resolved.protocol, limit).load(where).questions
    data = work.resources.grader.grade(reader.read(reader.open(where, task, questions), needed))
    predictor = Predictor(resolved, {}, BatchBuilder(reader), progress)
    outcomes = {name: capture(predictor.predict, name, Inputs(data)) for name in methods}
    failed = {name: reason_of(outcome) for name, outcome in outcomes.items() if isinstance(outcome, Exception)}
    pairs, shown = list(data.pairs()), [exemplars for shard in data.shards for exemplars in shard.shown]
    prompts, answers = ([pairs[i][k] for i in data.order] for k in range(2))
    exemplars = [shown[i] for i in data.order]
    asked = (reader.prompts.prompt(task, *each) for each in zip(questions, exemplars, strict=True))
    texts = [lm.chat.render(prompt.messages) for prompt in asked]
    logs = {what: _log_probabilities(what, signal, reader, data) for what, signal in signals.items()}
    noise = _measure_noise(lm, prompts, logs["letters"], reader.prompt_settings(data)) if "letters" in logs else None
    lm.release()
    ids = [[exemplar.id for exemplar in each] for each in exemplars]
    predictions = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Prediction)}
    return Side(lm, data, prompts, texts, ids, answers, logs, predictions, {**skipped, **failed}, noise)


def _log_probabilities(what: str, signal: Signal, reader: Reader, data: SplitData) -> list[FloatArray]:
    """Return the finite log-probabilities of each question's tokens, or of its letters' shares among the letters."""
    column: Any = definition(signal).column(reader.stored(data))
    values = [column[i] if what == "letters" else column[i]["log_probability"] for i in data.order]
    finite: list[FloatArray] = [np.asarray(row[np.isfinite(row)], dtype=np.float64) for row in values]
    return [row - np.logaddexp.reduce(row) for row in finite] if what == "letters" else finite


def _measure_noise(
    lm: LanguageModel, prompts: Sequence[Ids], letters: Sequence[FloatArray], settings: PromptSettings
) -> float | None:
    """Return how far a server's log-probabilities of letters move on average once it has read a prompt before."""
    from bench.model.server_model import ServerModel

    if not isinstance(lm, ServerModel):
        return None
    server, moved = ServerModel(lm.spec, lm.options, lm.dialect.model, parallel=1).dialect, []
    for ids, row in zip(prompts[:_REPEATED], letters, strict=False):
        _, repeated = (server.chosen(ids, settings.letter_ids[: len(row)]) for _ in range(2))
        moved.append(np.abs(repeated - np.logaddexp.reduce(repeated) - row).mean())
    return float(np.mean(moved)) if moved else None


def compare_sides(a: Side, b: Side) -> dict[str, Any]:
    """Return in JSON's types what differs, step by step, the causes, and the methods' confidences."""
    sides, same_answer = (a, b), _equal(a.answers, b.answers)
    rows = np.flatnonzero(_equal(a.prompts, b.prompts))
    steps, causes = _compare_prompts(a, b)
    for what in a.logs if rows.size else ():
        pairs = [(a.logs[what][i], b.logs[what][i]) for i in rows]
        if what in _OWN_TEXTS:
            steps[what], shift = _compare_own_texts(pairs)
            if shift is not None:
                causes["sampler"] = f"tokens of B's own {what} are {shift:+.2f} nats likelier than those of A's own"
            continue
        steps[what] = _compare_same_texts(pairs)
        if what == "letters":
            margins = [float(x.max() - x[y.argmax()]) for x, y in pairs if x.argmax() != y.argmax()]
            noise = max((side.noise for side in sides if side.noise is not None), default=None)
            steps[what] |= {"flips": len(margins), "margin": max(margins, default=0.0), "server's own |d|": noise}
        if why := _why_weights(steps[what], [side.lm.dtype_name for side in sides]):
            causes.setdefault("weights or precision", why)
    if rows.size and not causes and (~same_answer[rows]).mean() > MOST_OTHER:
        cause, why = "sampler", "log-probabilities agree"
        if not steps.keys() & (READ.keys() - _OWN_TEXTS):
            cause, why = "unknown", "log-probabilities of equal texts could not be compared"
        causes[cause] = f"{why}, and {(~same_answer[rows]).sum()} of {rows.size} answers differ"
    steps.setdefault("answers", {})["equal"] = int(same_answer.sum())
    steps["accuracy"] = {"of both": [float(side.data.correct.mean()) for side in sides]}
    methods = [_compare_method(name, a, b, same_answer) for name in a.predictions if name in b.predictions]
    probable = [row["method"] for row in methods if not row["score"]]
    values = {name: [side.predictions[name].confidence.tolist() for side in sides] for name in probable}
    if "letters" in a.logs:
        values["letters"] = [np.exp(np.concatenate(side.logs["letters"])).tolist() for side in sides]
    return {
        **{name: f"{s.lm.label}, {s.lm.dtype_name}" for name, s in zip("ab", sides, strict=True)},
        "test": str(a.data.where), "questions": len(a.prompts), "steps": steps, "causes": causes, "methods": methods,
        "skipped": {**a.skipped, **b.skipped}, "values": values,
    }  # fmt: skip


# --- prompts and token ids --------------------------------------------------------------------------------------------


def _compare_prompts(a: Side, b: Side) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return in how many prompts texts and token ids are equal, and the causes where they aren't."""
    sides, n, causes = (a, b), len(a.prompts), dict[str, str]()
    tokenizers = [side.lm.chat.tokenizer for side in sides]
    begins = "|".join({re.escape(text) for t in tokenizers if (text := getattr(t, "bos_token", None))})
    begin_ids = [t.bos_token_id for t in tokenizers if t.bos_token_id is not None]
    texts = [[re.sub(f"^(?:{begins})+", "", text) for text in side.texts] for side in sides]
    counts = [[int(np.argmin([*np.isin(ids, begin_ids), False])) for ids in side.prompts] for side in sides]
    rest = [[ids[k:] for ids, k in zip(s.prompts, each, strict=True)] for s, each in zip(sides, counts, strict=True)]
    same_exemplars = _equal(a.exemplars, b.exemplars)
    other_text = same_exemplars & ~_equal(*texts)
    other_ids = same_exemplars & ~other_text & ~_equal(*rest)
    if not same_exemplars.all():
        contexts = f"A's context holds {a.lm.context:,} tokens, B's {b.lm.context:,}"
        causes["cut context"] = f"{(~same_exemplars).sum()} of {n} prompts show other exemplars; {contexts}"
    if other_text.any():
        where = _first_difference(*(side[np.flatnonzero(other_text)[0]] for side in texts))
        causes["template"] = f"{other_text.sum()} of {n} prompts differ as text: {where}"
    begun = [(x[:j].tolist(), y[:k].tolist()) for x, y, j, k in zip(a.prompts, b.prompts, *counts, strict=True)]
    if other := [f"ids {x} and {y}" for x, y in begun if x != y]:
        most = f"A's prompts begin with up to {max(counts[0])} begin tokens, B's with up to {max(counts[1])}"
        causes["BOS"] = f"{most}: {other[0]}"
    if other_ids.any():
        causes["tokenizer"] = f"{other_ids.sum()} of {n} prompts have other token ids for the same text"
    equal, exemplars = int((same_exemplars & ~other_text).sum()), [sum(map(len, side.exemplars)) for side in sides]
    ends = ["not told" if s.lm.spec.is_server else ",".join(map(str, sorted(s.lm.stops))) for s in sides]
    same_ids = int(_equal(a.prompts, b.prompts).sum())
    steps = {
        "prompts": {"equal": equal, "exemplars": exemplars},
        "token ids": {"equal": same_ids, "begin tokens": list(map(max, counts)), "end tokens": ends},
    }
    return steps, causes


def _first_difference(a: str, b: str) -> str:
    """Quote two texts around the first character that differs."""
    k = next(k for k, (x, y) in enumerate(zip(f"{a}\0", f"{b}\1", strict=False)) if x != y)
    return f"A has {a[max(0, k - 12) : k + 28]!r} where B has {b[max(0, k - 12) : k + 28]!r}"


# --- log-probabilities ------------------------------------------------------------------------------------------------


def _compare_own_texts(pairs: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[dict[str, Any], float | None]:
    """Compare tokens of texts that each side has written itself.

    Returns:
        The step; and the mean difference in nats if it may be the sampler's, else None.
    """
    moved = np.asarray([y.mean() - x.mean() for x, y in pairs if x.size and y.size] or [0.0])
    far, mean = moved[np.abs(moved) > NEAR], float(moved.mean())
    p = 2 * p_value(min((far > 0).sum(), (far < 0).sum()), far.size, 0.5)
    return {"difference per token, ±": _mean(moved)}, mean if abs(mean) > SHIFT and p < RARE else None


def _compare_same_texts(pairs: Sequence[tuple[FloatArray, FloatArray]]) -> dict[str, Any]:
    d = np.concatenate([y - x for x, y in pairs if x.size == y.size] or [np.zeros(1)])
    numbers = {"mean": d.mean(), "sd": d.std(), "mean |d|": np.abs(d).mean(), "worst": np.abs(d).max()}
    return {name: float(number) for name, number in numbers.items()}


def _why_weights(found: Mapping[str, Any], dtypes: Sequence[str]) -> str | None:
    """Return why log-probabilities differ after equal token ids; None if they do by float arithmetic alone."""
    noise, what = found.get("server's own |d|"), f"log-probabilities differ by {found['mean |d|']:.3f} nats on average"
    if found["sd"] <= FLOAT[0] and found["worst"] <= FLOAT[1]:
        return None
    if noise and found["mean |d|"] <= 2 * noise and found["margin"] <= 4 * found["sd"]:
        return f"{what}, no more than quantised arithmetic explains: read again, the server's move by {noise:.3f}"
    if found["sd"] <= HALF and {name.lower() for name in dtypes} & {"bfloat16", "float16", "bf16", "f16"}:
        return f"{what}, no more than 16-bit arithmetic explains"
    known = f"and the server's by {noise:.3f} when read again" if noise else f"with weights in {' and '.join(dtypes)}"
    return f"{what}, {known}; compare SHA-256, or serve a float copy: what then stays is the weights"


# --- methods ----------------------------------------------------------------------------------------------------------


def _compare_method(name: str, a: Side, b: Side, same_answer: BoolArray) -> dict[str, Any]:
    """Return how a method's confidences differ on equal answers, and its metrics on all, as a user of B meets them."""
    pair, used = [side.predictions[name] for side in (a, b)], a.data.usable & b.data.usable
    is_score = pair[0].score is not None
    p, q = (each.confidence[used] if each.score is None else each.score[used] for each in pair)
    labels, same = [side.data.correct[used] for side in (a, b)], same_answer[used]
    row: dict[str, Any] = {"method": name, "score": is_score, "n": int(used.sum()), "equal": int(same.sum())}
    if same.any():
        row |= _compare_confidences(p[same], q[same], is_score=is_score)
    if not used.any():
        return row
    questions = [question for question, is_used in zip(a.data.questions, used, strict=True) if is_used]
    row |= _compare_metrics((p, q), labels, [question.subject for question in questions], is_score=is_score)
    row["threshold"] = _threshold([question.id for question in questions], p, labels[0], is_score=is_score)
    above = [values >= row["threshold"][0] for values in (p, q)]
    return row | {"above": [*(float(each.mean()) for each in above), *_mean(above[1] - 1.0 * above[0])]}


def _compare_confidences(p: FloatArray, q: FloatArray, *, is_score: bool) -> dict[str, Any]:
    """Compare the values of equal answers: their distance, their rank correlation, and how many cross a confidence."""
    d, ranks = np.abs(p - q), np.stack([average_ranks(values) for values in (p, q)])
    row: dict[str, Any] = {"mean |d|": float(d.mean()), "worst": float(d.max())}
    ranks -= ranks.mean(axis=1, keepdims=True)
    if scale := np.sqrt(np.square(ranks).sum(axis=1).prod()):
        row["rank"] = float(ranks[0] @ ranks[1] / scale)
    if not is_score:
        row["crossed"] = [float(((p > at) != (q > at)).mean()) for at in CROSSED]
    return row


def _compare_metrics(
    values: Sequence[FloatArray], labels: Sequence[BoolArray], subjects: Sequence[str], *, is_score: bool
) -> dict[str, list[float | None]]:
    """Return for each metric its values on both sides, if known, their difference, and half the difference's interval.

    Args:
        values: confidences or scores of A and B.
        labels: whether their answers are right.
        subjects: subjects of the questions.
        is_score: whether the values are no probabilities: only their order counts.
    """
    rows, strata, orders = dict[str, list[float | None]](), strata_of(subjects), list(map(normalised_ranks, values))
    # where there are too few right or wrong answers is told by the side that has fewest
    sampling = Sampling.of(strata, min(labels, key=lambda own: min(own.sum(), (~own).sum())), "questions")
    for metric in ("auroc",) if is_score else ("brier", "rmsce", "auroc"):
        found = [
            influence(metric, own, order, correct, strata, "questions")
            for own, order, correct in zip(orders if is_score else values, orders, labels, strict=True)
        ]
        # a calibration error below 0 counts as 0, as in the difference
        scale = (lambda square: signed_root(max(0.0, square))) if METRICS[metric].is_root else float
        for tested in compare(metric, {"b": found[1], "a": found[0]}, sampling, [], Settings()):
            known = [scale(each.value) for each in found if each]
            rows[metric] = [*known, tested.difference, tested.fixed.half(tested.difference)]
    return rows


def _threshold(ids: Sequence[str], p: FloatArray, correct: BoolArray, *, is_score: bool) -> tuple[float, str]:
    """Return the threshold that a user of A would take, and what it is: a guard's, or the median if there is none."""
    held_out, threshold = held_out_mask(ids, share=0.5, seed=0), (float(np.median(p)), "median")
    for risk in RISKS if held_out.any() and not held_out.all() else ():
        thresholds = grid(p[~held_out], int(held_out.sum()), risk=risk, level=LEVEL, floor=None if is_score else 0.0)
        certified = guard(thresholds, p[held_out], correct[held_out], risk=risk, level=LEVEL).threshold
        if certified is not None:
            threshold = certified, f"guard at {risk:g}"
    return threshold


def _equal(one: Sequence[Any], other: Sequence[Any]) -> BoolArray:
    return np.asarray([np.array_equal(x, y) for x, y in zip(one, other, strict=True)], dtype=np.bool_)


def _mean(d: FloatArray) -> tuple[float, float | None]:
    """Return the mean of paired differences, and half its 95 % interval; None if too few differ, or all alike."""
    varies = np.count_nonzero(d) >= MIN_RARER and np.ptp(d) > TINY
    return float(d.mean()), quantile(d.size - 1, 0.95) * float(d.std(ddof=1)) / d.size**0.5 if varies else None
