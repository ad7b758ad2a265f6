"""`bench head check`: does a head give the same confidences on another device, or with another dtype or attention?

The head's reference questions are read again with their answers. Prompts, hidden states and confidences are compared
with those of the run that made the head. The check fails if a difference exceeds its tolerance.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.api import FloatArray, UserError
from bench.progress import Progress
from bench.run.config import HeadSetting
from bench.run.scorers import reference_questions
from bench.run.scorers.card import ModelCard, ServerCheckCard, read_card, write_check
from bench.run.scorers.scorer import open_head

CONFIDENCE = 0.02
"""Largest tolerated difference of a confidence."""
STATES = 0.02
"""Largest tolerated mean relative difference of hidden states. (Rounding to bfloat16 changes a number by up to
0.004.)"""
_SURE = 0.5
"""Smallest confidence with which an answer counts as right."""


@dataclass(frozen=True)
class StateDifference:
    """Relative differences of a signal's hidden states: norm of the difference divided by the norm of the state."""

    mean: float
    largest: float


@dataclass(frozen=True)
class ScorerCheck:
    """Result of `bench head check`: how far a head's outputs in a setting are from those in its own run."""

    head: str
    setting: str
    """In words: model, device, dtype, attention implementation and size of the forward passes."""
    questions: int
    """Number of reference questions that were compared."""
    prompts_differ: int
    """Number of prompts whose token ids differ from those in the run."""
    answers_differ: int
    """Number of answers whose token ids differ from those in the run."""
    states: Mapping[str, StateDifference]
    """Layer and position of hidden states, in words -> differences of these states."""
    confidence_max: float
    confidence_mean: float
    rank_correlation: float | None
    """Spearman correlation between the confidences of the run and of the check; None if all confidences of the run, or
    all of the check, are equal."""
    flips: int
    """Number of answers whose confidence crossed 0.5 between run and check."""
    tolerance: Mapping[str, float]
    """Quantity ("confidence", "states") -> its largest tolerated difference."""
    complaints: tuple[str, ...]
    """Differences that exceed their tolerances, in words; empty if the check passes."""
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all differences are within the tolerances."""
        return not self.complaints

    def lines(self) -> Iterator[str]:
        """Yield the lines that show the result to the user."""
        yield f"head      {self.head}"
        yield f"setting   {self.setting}"
        yield f"questions {self.questions} of its test, with the answers of then"
        same = self.questions - self.prompts_differ
        yield f"prompts   {same} of {self.questions} are the same token by token"
        for place, drift in self.states.items():
            yield f"states    {place}: relative difference {drift.mean:.2g} on average, {drift.largest:.2g} at most"
        order = "" if self.rank_correlation is None else f", rank correlation {self.rank_correlation:.4f}"
        yield (
            f"confidences differ by {self.confidence_mean:.2g} on average, {self.confidence_max:.2g} at most{order};"
            f" {self.flips} change sides at {_SURE}"
        )
        yield from (f"note      {note}" for note in self.notes)
        allowed = ", ".join(f"{name} {value:g}" for name, value in self.tolerance.items())
        if self.passed:
            yield f"OK: in this setting the head says what it said in its run (tolerated: {allowed})"
        else:
            yield f"NOT OK: {'; '.join(self.complaints)} (tolerated: {allowed})"


def check(
    folder: Path,
    setting: HeadSetting,
    progress: Progress,
    *,
    tolerance: float = CONFIDENCE,
    state_tolerance: float = STATES,
) -> ScorerCheck:
    """Compute prompts, hidden states and confidences of a head in a setting, and compare them with the stored ones.

    The model may also be another than the head's, e.g. a converted copy. Of a server, the head's card keeps the result.

    Args:
        folder: folder of the head.
        setting: the model, and how it is run.
        progress: reports how far the check is.
        tolerance: largest tolerated difference of a confidence.
        state_tolerance: largest tolerated mean relative difference of hidden states.

    Raises:
        UserError: a tolerance is negative, the head can't be read or has no reference questions, the model's hidden
            states have another width or other layers, or a question is too long for the model.
    """
    if not (tolerance >= 0 and state_tolerance >= 0):
        raise UserError("--tolerance and --state-tolerance: expected numbers of at least 0.")
    read_card(folder)  # checks all files before one is read
    run = reference_questions.read(folder)
    if not run.questions:
        raise UserError(f"--head {folder}: it keeps no questions, so that nothing can be compared.")
    with tempfile.TemporaryDirectory(prefix="confbench-check-") as cache:  # an empty store: everything is read again
        head = open_head(folder, setting, Path(cache), progress=progress, same_model=False)
        lm = head.reader.lm
        places = {repr(signal): place for place, signal in reference_questions.state_signals(lm.blocks).items()}
        widths = {states.shape[1] for states in run.states.values()}
        if places.keys() != run.states.keys() or widths != {lm.facts.hidden_size}:
            raise UserError(
                f"--model {lm.spec.name}: expected states of {max(widths)} numbers, as the head's model has them,"
                f" got {lm.facts.hidden_size}; name the head's own model, {head.card.backbone.model!r}, or a copy"
                " of it."
            )
        scored = head.score_questions(run.questions, run.given)
        if scored.too_long:
            raise UserError(f"--model {lm.spec.name}: {next(iter(scored.too_long.values()))}")
        (split_data,) = scored.data_by_split
        states_now = reference_questions.read_states(split_data, head.reader)
    drifts = {places[name]: _compare_states(states, states_now[name]) for name, states in run.states.items()}
    confidence, n = scored.confidence, len(run.questions)
    pairs, order = list(split_data.pairs()), split_data.order
    prompts = sum(not np.array_equal(pairs[order[i]][0], run.prompts[i]) for i in range(n))
    answers = sum(not np.array_equal(pairs[order[i]][1], run.answers[i]) for i in range(n))
    difference = np.abs(confidence - run.confidence)
    largest = float(difference.max())
    worst = max(drifts, key=lambda place: np.nan_to_num(drifts[place].mean, nan=np.inf))
    mean = drifts[worst].mean
    problems = {
        f"{prompts} prompts are other tokens: tokenizer or chat template are not those of the head": prompts > 0,
        f"{answers} answers are other tokens": answers > 0,
        f"a confidence differs by {largest:.2g}": not largest <= tolerance,
        f"states of the {worst} differ by {mean:.2g} on average": not mean <= state_tolerance,
    }
    complaints, notes = tuple(problem for problem, is_met in problems.items() if is_met), []
    saved, model = head.card.backbone, ModelCard.of(lm, head.model)
    if parts := saved.differences(model):
        notes.append(
            f"this is not the head's own model ({saved.model!r} {saved.short}) but {model.model!r} {model.short};"
            f" other: {', '.join(parts)}. bench score refuses it"
        )
    if lm.spec.is_server:
        said = ServerCheckCard(model=lm.label, passed=not complaints, questions=n, confidence=largest, states=mean)
        write_check(folder, said)
        notes.append(f"the head's card says so of {lm.label}")
    passes = "each question alone" if lm.options.plain else f"passes of {head.reader.budget:,} tokens"
    description = f"{lm.device}, {lm.dtype_name}, {lm.attention} attention, {passes}"
    return ScorerCheck(
        head=head.name, setting=f"{lm.spec.name} on {description}", questions=n, prompts_differ=prompts,
        answers_differ=answers, states=drifts, confidence_max=largest, confidence_mean=float(difference.mean()),
        rank_correlation=_rank_correlation(run.confidence, confidence),
        flips=int(((confidence >= _SURE) != (run.confidence >= _SURE)).sum()),
        tolerance={"confidence": tolerance, "states": state_tolerance}, complaints=complaints, notes=tuple(notes),
    )  # fmt: skip


def _compare_states(before: FloatArray, now: FloatArray) -> StateDifference:
    """Return the differences of hidden states `(n, d)`, relative to the norms of those before."""
    lengths = np.linalg.norm(before.astype(np.float64), axis=1)
    distance = np.linalg.norm(now.astype(np.float64) - before.astype(np.float64), axis=1)
    relative = distance / np.where(lengths > 0, lengths, 1.0)
    return StateDifference(float(relative.mean()), float(relative.max()))


def _rank_correlation(one: FloatArray, other: FloatArray) -> float | None:
    """Return Spearman's correlation; None if all values on one side are equal."""
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(one), rankdata(other))[0, 1]) if np.ptp(one) and np.ptp(other) else None


def as_record(check: ScorerCheck) -> dict[str, object]:
    """Return the result of a check as JSON values."""
    values = {name: value for name, value in vars(check).items() if name != "states"}
    return {"passed": check.passed, **values, "states": {place: vars(drift) for place, drift in check.states.items()}}
