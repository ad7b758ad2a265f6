"""Drift between two ways to run one model: where prompts, token ids, log-probabilities and confidences differ, and why.

Both are read as in a run, through the store. What comes first explains what follows: other prompts give other
log-probabilities, so these are compared after equal token ids alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import BoolArray, ChoiceLogits, FloatArray, Of, Samples, Signal, TokenScores, UserError
from bench.api.errors import capture, reason_of
from bench.data.loading import Loader
from bench.metrics import METRICS
from bench.metrics.calibration import signed_root
from bench.metrics.validation import average_ranks, normalised_ranks
from bench.progress import Progress
from bench.prompts.front_coding import Ids
from bench.run.config import RunConfig
from bench.run.inputs import Inputs
from bench.run.pipeline import OpenRun, open_run
from bench.run.predicting import Prediction, Predictor
from bench.run.preparation import find_infeasible
from bench.signals.batch_builder import BatchBuilder
from bench.signals.definition import definition, read_from_model
from bench.signals.split_data import SplitData
from bench.stats.comparison import compare
from bench.stats.guard import grid, guard, held_out_mask, p_value
from bench.stats.influence import influence
from bench.stats.intervals import Sampling, quantile
from bench.stats.settings import Settings
from bench.stats.strata import strata_of

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel

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
    from bench.model.server_model import ServerModel

    resolved, reader, (where,) = work.resolved, work.resources.reader, work.resolved.test_splits
    task, lm, logs, moved = work.resources.tasks[where.task], reader.lm, dict[str, list[FloatArray]](), []
    methods = {name: method for name, method in resolved.methods.items() if name not in skipped}
    needed = frozenset(signals.values()).union(*(read_from_model(m.reads().predict) for m in methods.values()))
    questions = Loader({where.task: task}, [where], (), resolved.protocol, limit).load(where).questions
    data = work.resources.grader.grade(reader.read(reader.open(where, task, questions), needed))
    predictor = Predictor(resolved, {}, BatchBuilder(reader), progress)
    outcomes = {name: capture(predictor.predict, name, Inputs(data)) for name in methods}
    for what, signal in signals.items():
        column: Any = definition(signal).column(reader.stored(data))
        rows = [column[i] if what == "letters" else column[i]["log_probability"] for i in data.order]
        logs[what] = [np.asarray(row[np.isfinite(row)], dtype=np.float64) for row in rows]
    if "letters" in logs:
        logs["letters"] = [row - np.logaddexp.reduce(row) for row in logs["letters"]]
    asked, flat = list(data.pairs()), [each for shard in data.shards for each in shard.shown]
    prompts, answers, shown = zip(*((*asked[i], flat[i]) for i in data.order), strict=True)
    asked_of = (reader.prompts.prompt(task, *pair) for pair in zip(questions, shown, strict=True))
    texts = [lm.chat.render(prompt.messages) for prompt in asked_of]
    if isinstance(lm, ServerModel) and "letters" in logs:
        again = ServerModel(lm.spec, lm.options, lm.dialect.model, parallel=1).dialect
        for ids, row in zip(prompts[:_REPEATED], logs["letters"], strict=False):
            letters = reader.prompt_settings(data).letter_ids[: len(row)]
            repeated = [again.chosen(ids, letters) for _ in range(2)][1]
            moved.append(np.abs(repeated - np.logaddexp.reduce(repeated) - row).mean())
    lm.release()
    predictions = {name: each for name, each in outcomes.items() if isinstance(each, Prediction)}
    failed = {name: reason_of(each) for name, each in outcomes.items() if isinstance(each, Exception)}
    noise, exemplars = float(np.mean(moved)) if moved else None, [[each.id for each in shots] for shots in shown]
    skipped = {**skipped, **failed}
    return Side(lm, data, list(prompts), texts, exemplars, list(answers), logs, predictions, skipped, noise)


def compare_sides(a: Side, b: Side) -> dict[str, Any]:
    """Return in JSON's types what differs, step by step, the causes, and the methods' confidences."""
    sides, n, tokenizers = (a, b), len(a.prompts), [side.lm.chat.tokenizer for side in (a, b)]
    begins = "|".join({re.escape(text) for t in tokenizers if (text := getattr(t, "bos_token", None))})
    begin_ids = [t.bos_token_id for t in tokenizers if t.bos_token_id is not None]
    texts = [[re.sub(f"^(?:{begins})+", "", text) for text in side.texts] for side in sides]
    counts = [[int(np.argmin([*np.isin(ids, begin_ids), False])) for ids in side.prompts] for side in sides]
    rest = [[ids[k:] for ids, k in zip(s.prompts, each, strict=True)] for s, each in zip(sides, counts, strict=True)]
    same_ids, same_answer = _equal(a.prompts, b.prompts), _equal(a.answers, b.answers)
    shown, rows, causes = _equal(a.exemplars, b.exemplars), np.flatnonzero(same_ids), dict[str, str]()
    other_text = shown & ~_equal(*texts)
    other_ids = shown & ~other_text & ~_equal(*rest)
    if not shown.all():
        held = f"A's context holds {a.lm.context:,} tokens, B's {b.lm.context:,}"
        causes["cut context"] = f"{(~shown).sum()} of {n} prompts show other exemplars; {held}"
    if other_text.any():
        one, other = (side[np.flatnonzero(other_text)[0]] for side in texts)
        k = next(k for k, (x, y) in enumerate(zip(f"{one}\0", f"{other}\1", strict=False)) if x != y)
        where = f"A has {one[max(0, k - 12) : k + 28]!r} where B has {other[max(0, k - 12) : k + 28]!r}"
        causes["template"] = f"{other_text.sum()} of {n} prompts differ as text: {where}"
    if counts[0] != counts[1]:
        causes["BOS"] = f"A's prompts begin with up to {max(counts[0])} begin tokens, B's with up to {max(counts[1])}"
    if other_ids.any():
        causes["tokenizer"] = f"{other_ids.sum()} of {n} prompts have other token ids for the same text"
    exemplars, stops = [sum(map(len, side.exemplars)) for side in sides], [sorted(side.lm.stops) for side in sides]
    ends = ["not told" if s.lm.spec.is_server else ",".join(map(str, e)) for s, e in zip(sides, stops, strict=True)]
    steps: dict[str, dict[str, Any]] = {
        "prompts": {"equal": int((shown & ~other_text).sum()), "exemplars": exemplars},
        "token ids": {"equal": rows.size, "begin tokens": list(map(max, counts)), "end tokens": ends},
    }
    for what in a.logs if rows.size else ():
        pairs = [(a.logs[what][i], b.logs[what][i]) for i in rows]
        if what in {"answers", "samples"}:  # each side's own texts
            moved = np.asarray([y.mean() - x.mean() for x, y in pairs if x.size and y.size] or [0.0])
            far, mean = moved[np.abs(moved) > NEAR], float(moved.mean())
            steps[what] = {"difference per token, ±": _mean(moved)}
            least = min((far > 0).sum(), (far < 0).sum())
            if abs(mean) > SHIFT and 2 * p_value(least, far.size, 0.5) < RARE:
                causes["sampler"] = f"tokens of B's own {what} are {mean:+.2f} nats likelier than those of A's own"
            continue
        d = np.concatenate([y - x for x, y in pairs if x.size == y.size] or [np.zeros(1)])
        found = {"mean": d.mean(), "sd": d.std(), "mean |d|": np.abs(d).mean(), "worst": np.abs(d).max()}
        steps[what] = {name: float(number) for name, number in found.items()}
        if what == "letters":
            margins = [float(x.max() - x[y.argmax()]) for x, y in pairs if x.argmax() != y.argmax()]
            noise = max((side.noise for side in sides if side.noise is not None), default=None)
            steps[what] |= {"flips": len(margins), "margin": max(margins, default=0.0), "server's own |d|": noise}
        if why := _why_weights(steps[what], [side.lm.dtype_name for side in sides]):
            causes.setdefault("weights or precision", why)
    if rows.size and not causes and (~same_answer[rows]).mean() > MOST_OTHER:
        causes["sampler"] = f"log-probabilities agree, and {(~same_answer[rows]).sum()} of {rows.size} answers don't"
    steps.setdefault("answers", {})["equal"] = int(same_answer.sum())
    steps["accuracy"] = {"of both": [float(side.data.correct.mean()) for side in sides]}
    methods = [_method(name, a, b, same_answer) for name in a.predictions if name in b.predictions]
    probable = [row["method"] for row in methods if not row["score"]]
    values = {name: [side.predictions[name].confidence.tolist() for side in sides] for name in probable}
    if "letters" in a.logs:
        values["letters"] = [np.exp(np.concatenate(side.logs["letters"])).tolist() for side in sides]
    return {
        **{name: f"{s.lm.label}, {s.lm.dtype_name}" for name, s in zip("ab", sides, strict=True)},
        "test": str(a.data.where), "questions": n, "steps": steps, "causes": causes, "methods": methods,
        "skipped": {**a.skipped, **b.skipped}, "values": values,
    }  # fmt: skip


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


def _method(name: str, a: Side, b: Side, same_answer: BoolArray) -> dict[str, Any]:
    """Return how a method's confidences differ on equal answers, and its metrics on all, as a user of B meets them."""
    pair, used = [side.predictions[name] for side in (a, b)], a.data.usable & b.data.usable
    p, q = (each.confidence[used] if each.score is None else each.score[used] for each in pair)
    labels, same, is_score = [side.data.correct[used] for side in (a, b)], same_answer[used], pair[0].score is not None
    row: dict[str, Any] = {"method": name, "score": is_score, "n": int(used.sum()), "equal": int(same.sum())}
    if same.any():
        d, ranks = np.abs(p - q)[same], np.stack([average_ranks(values[same]) for values in (p, q)])
        ranks -= ranks.mean(axis=1, keepdims=True)
        row |= {"mean |d|": float(d.mean()), "worst": float(d.max())}
        if scale := np.sqrt(np.square(ranks).sum(axis=1).prod()):
            row["rank"] = float(ranks[0] @ ranks[1] / scale)
        if not is_score:
            row["crossed"] = [float(((p > at) != (q > at))[same].mean()) for at in CROSSED]
    if not used.any():
        return row
    questions = [question for question, is_used in zip(a.data.questions, used, strict=True) if is_used]
    strata, orders = strata_of([question.subject for question in questions]), list(map(normalised_ranks, (p, q)))
    for metric in ("auroc",) if is_score else ("brier", "rmsce", "auroc"):
        triples = zip(orders if is_score else (p, q), orders, labels, strict=True)
        found = [influence(metric, values, order, correct, strata, "questions") for values, order, correct in triples]
        methods, sampling = {"b": found[1], "a": found[0]}, Sampling.of(strata, labels[0], "questions")
        for tested in compare(metric, methods, sampling, [], Settings()):
            values = [(signed_root if METRICS[metric].is_root else float)(each.value) for each in found if each]
            row[metric] = [*values, tested.difference, tested.fixed.half(tested.difference)]
    held = held_out_mask([question.id for question in questions], share=0.5, seed=0)
    row["threshold"] = [float(np.median(p)), "median"]
    for risk in RISKS if held.any() and not held.all() else ():
        thresholds = grid(p[~held], int(held.sum()), risk=risk, level=LEVEL, floor=None if is_score else 0.0)
        if (at := guard(thresholds, p[held], labels[0][held], risk=risk, level=LEVEL).threshold) is not None:
            row["threshold"] = [at, f"guard at {risk:g}"]
    above = [values >= row["threshold"][0] for values in (p, q)]
    return row | {"above": [*(float(each.mean()) for each in above), *_mean(above[1] - 1.0 * above[0])]}


def _equal(one: Sequence[Any], other: Sequence[Any]) -> BoolArray:
    return np.asarray([np.array_equal(x, y) for x, y in zip(one, other, strict=True)], dtype=np.bool_)


def _mean(d: FloatArray) -> tuple[float, float]:
    """Return the mean of paired differences, and half its 95 % interval."""
    return float(d.mean()), quantile(d.size - 1, 0.95) * float(d.std(ddof=1)) / d.size**0.5 if d.size > 1 else 0.0
