"""`bench head check`: does a model in some setting still say what it said when the head was made?

The head's kept questions are asked and answered again through that setting; prompts, states and confidences are
compared with what the run saw. The tolerances are stated and can be changed; beyond them the verdict is no.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.api import UserError
from bench.progress import Progress
from bench.run.scorers import reference_questions
from bench.run.scorers.card import ModelCard, read_card
from bench.run.scorers.scorer import HeadSetting, open_head

CONFIDENCE = 0.02
"""Largest difference of a confidence that is tolerated."""
STATES = 0.02
"""Largest mean relative difference of states that is tolerated: bfloat16 rounds by 0.004."""
_SURE = 0.5
"""From here on a confidence says that an answer is right."""


@dataclass(frozen=True)
class StateDrift:
    """Distances that states of one place moved, relative to their length."""

    mean: float
    largest: float


@dataclass(frozen=True)
class ScorerCheck:
    """Outcome of a check."""

    head: str
    setting: str
    """Device, dtype, attention and passes, in words."""
    questions: int
    prompts_differ: int
    """Prompts whose token ids are others."""
    answers_differ: int
    """Answers whose token ids are others."""
    states: Mapping[str, StateDrift]
    confidence_max: float
    confidence_mean: float
    rank_correlation: float | None
    """Spearman's; None where all confidences of a side are the same."""
    flips: int
    """Confidences on the other side of 0.5."""
    tolerance: Mapping[str, float]
    complaints: tuple[str, ...]
    """Findings beyond the tolerances; empty where all is well."""
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the head may be trusted in this setting."""
        return not self.complaints

    def lines(self) -> Iterator[str]:
        """The outcome for people."""
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
    """Compare a model in some setting with what a head's run saw.

    Another model than the head's own is measured as well: that is what one wants to know of a converted copy.

    Args:
        folder: of the head.
        setting: the model and how it is run.
        progress: for people.
        tolerance: largest difference of a confidence.
        state_tolerance: largest mean relative difference of states.

    Raises:
        UserError: the head can't be read, or the model has other states than can be compared.
    """
    if not (tolerance >= 0 and state_tolerance >= 0):
        raise UserError("--tolerance and --state-tolerance: expected numbers of at least 0.")
    read_card(folder)  # whole, before a part of it is read
    then = reference_questions.read(folder)
    if not then.questions:
        raise UserError(f"--head {folder}: it keeps no questions, so that nothing can be compared.")
    with tempfile.TemporaryDirectory(prefix="confbench-check-") as cache:  # nothing is taken from an earlier reading
        head = open_head(folder, setting, Path(cache), progress=progress, same_model=False)
        lm = head.reader.lm
        places = {repr(signal): place for place, signal in reference_questions.places(lm.blocks).items()}
        widths = {states.shape[1] for states in then.states.values()}
        if places.keys() != then.states.keys() or widths != {lm.facts.hidden_size}:
            raise UserError(
                f"--model {lm.spec.name}: expected states of {max(widths)} numbers, as the head's model has them,"
                f" got {lm.facts.hidden_size}; name the head's own model, {head.card.backbone.model!r}, or a copy"
                " of it."
            )
        scored = head.scored(then.questions, then.given)
        if scored.too_long:
            raise UserError(f"--model {lm.spec.name}: {next(iter(scored.too_long.values()))}")
        (split_data,) = scored.data_by_split
        now = reference_questions.states_of(split_data, head.reader)
        drifts = {}
        for name, states in then.states.items():  # differences (n,) relative to the lengths of then
            lengths = np.linalg.norm(states.astype(np.float64), axis=1)
            apart = np.linalg.norm(now[name].astype(np.float64) - states.astype(np.float64), axis=1)
            relative = apart / np.where(lengths > 0, lengths, 1.0)
            drifts[places[name]] = StateDrift(float(relative.mean()), float(relative.max()))
        confidence, n = scored.confidence, len(then.questions)
        pairs, order = list(split_data.pairs()), split_data.order
        prompts = sum(not np.array_equal(pairs[order[i]][0], then.prompts[i]) for i in range(n))
        answers = sum(not np.array_equal(pairs[order[i]][1], then.answers[i]) for i in range(n))
        difference = np.abs(confidence - then.confidence)
        largest = float(difference.max())
        worst = max(drifts, key=lambda place: np.nan_to_num(drifts[place].mean, nan=np.inf))
        complaints = []
        if prompts:
            complaints.append(
                f"{prompts} prompts are other tokens: tokenizer or chat template are not those of the head"
            )
        if answers:
            complaints.append(f"{answers} answers are other tokens")
        if not largest <= tolerance:
            complaints.append(f"a confidence differs by {largest:.2g}")
        if not drifts[worst].mean <= state_tolerance:
            complaints.append(f"states of the {worst} differ by {drifts[worst].mean:.2g} on average")
        own, other = head.card.backbone, ModelCard.of(lm, head.model)
        notes = []
        if parts := own.differences(other):
            notes.append(
                f"this is not the head's own model ({own.model!r} {own.short}) but {other.model!r} {other.short};"
                f" other: {', '.join(parts)}. bench score refuses it"
            )
        passes = "each question alone" if lm.options.plain else f"passes of {head.reader.budget:,} tokens"
        words = f"{lm.device}, {lm.dtype_name}, {lm.attention} attention, {passes}"
        correlation = None  # of ranks, where no side has one confidence alone
        if np.ptp(then.confidence) and np.ptp(confidence):
            from scipy.stats import rankdata

            correlation = float(np.corrcoef(rankdata(then.confidence), rankdata(confidence))[0, 1])
        return ScorerCheck(
            head=head.name, setting=f"{lm.spec.name} on {words}", questions=n, prompts_differ=prompts,
            answers_differ=answers, states=drifts, confidence_max=largest, confidence_mean=float(difference.mean()),
            rank_correlation=correlation, flips=int(((confidence >= _SURE) != (then.confidence >= _SURE)).sum()),
            tolerance={"confidence": tolerance, "states": state_tolerance}, complaints=tuple(complaints),
            notes=tuple(notes),
        )  # fmt: skip


def as_record(found: ScorerCheck) -> dict[str, object]:
    """The outcome as JSON has it."""
    values = {name: value for name, value in vars(found).items() if name != "states"}
    return {"passed": found.passed, **values, "states": {place: vars(drift) for place, drift in found.states.items()}}
