"""A head that is ready to score: `load_head(folder)`, then `head(question, answer)` or `head.score(questions, ...)`.

Questions go the way of a run, through prompts, reader and signals, so that a head says of an answer what the run said.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import registry
from bench.api import ConfidenceMethod, FloatArray, Format, Question, UserError
from bench.api.errors import TooLongError, fenced
from bench.api.methods import given
from bench.api.protocol import Protocol, changed
from bench.api.question import Answer, Released
from bench.backbone import models
from bench.data.asked_files import GIVEN
from bench.data.splits import TaskSplit
from bench.grading.grade import parse_letter
from bench.grading.judges import open_judge
from bench.progress import Progress, Silent
from bench.run.config import RunConfig
from bench.run.heads.asked import AskedWords, Strangers, read_words, task_of
from bench.run.heads.card import BackboneCard, Card, read_card
from bench.run.heads.learned import Output, adapter_of, read_method, read_output
from bench.run.heads.questions import questions_of, with_equal_options
from bench.run.preparation import relating_of
from bench.run.resolve import judge_options
from bench.signals.batches import Batches
from bench.signals.definition import definition, read_from_model, reads_own_adapter
from bench.signals.graded import Grader
from bench.signals.reader import Reader
from bench.signals.reading import Reading
from bench.store.folders import Store

_FEWEST, _MOST = 2, 26
"""Options that a question may have."""


@dataclass(frozen=True)
class Setting:
    """The model, how it is run, and where the method's code is."""

    model: str | None = None
    """Alias, Hub id or folder. Default: the name under which the run knew it."""
    device: str | None = None
    """cuda, mps or cpu. Default: the first of these that there is."""
    dtype: str | None = None
    """float32, bfloat16 or float16. Default: the head's."""
    attention: str | None = None
    """sdpa or eager. Default: the model's."""
    token_budget: int | None = None
    """Tokens of one forward pass. Default: the device's."""
    plain: bool = False
    """Whether each question is read alone, without a cache."""
    trust_remote_code: bool = False
    """Run code that comes with the model."""
    plugins: tuple[Path, ...] = ()
    """Files of methods."""


@dataclass(frozen=True, eq=False)
class Scored:
    """Answers to questions and how sure a head is of them."""

    questions: Sequence[Question]
    answers: Sequence[Answer | None]
    """None where a question is too long to be asked."""
    confidence: FloatArray
    """`(n,)`; NaN where a question is too long."""
    too_long: Mapping[str, str] = field(default_factory=dict)
    """Question id -> why it could not be asked."""
    strangers: Strangers = field(default_factory=Strangers)
    readings: Sequence[Reading] = ()
    """The questions as they were read."""


class Head:
    """A method with what it learned, on the model that it belongs to.

    Example: `head = load_head("heads/tiny/atlas-choice/lts--demo--s0"); head({"question": "…", "choices": [...]}, "a")`
    """

    def __init__(
        self, card: Card, method: ConfidenceMethod, words: AskedWords, output: Output, reader: Reader, grader: Grader
    ) -> None:
        """Put the parts together; `load_head` does."""
        self.card = card
        self.words = words
        self.model = reader.backbone.spec.source if reader.backbone.spec.local else reader.backbone.spec.name
        """Model that it is read on, as the command line names it."""
        self._method, self._output, self._reader, self._grader = method, output, reader, grader

    def __repr__(self) -> str:
        """Name and model."""
        return f"Head({self.name!r}, {self.card.backbone.model!r})"

    @property
    def name(self) -> str:
        """Its name, e.g. `tiny/atlas-choice/ccps--demo--s0`."""
        return self.card.name

    @property
    def format(self) -> Format:
        """Whether it is for questions with options or for open ones."""
        return Format(self.card.asked.format)

    @property
    def protocol(self) -> Protocol:
        """The numbers by which its questions are asked."""
        return self._reader.protocol

    @property
    def reader(self) -> Reader:
        """Reads questions with its model."""
        return self._reader

    def __call__(self, question: str | Mapping[str, Any], answer: str | None = None) -> float:
        """Confidence that an answer is right, within [0, 1].

        Args:
            question: its text, or a dict with `question`, and with `choices` where it has options; `subject` chooses
                the exemplars that the model is shown.
            answer: as the model would write it, of a question with options the letter, in either case; None: the model
                answers.

        Raises:
            UserError: question or answer is not as it must be.
        """
        return float(self.score([question], None if answer is None else [answer])[0])

    def score(
        self, questions: Sequence[str | Mapping[str, Any] | Question], answers: Sequence[str | None] | None = None
    ) -> FloatArray:
        """Confidences `(n,)` that answers are right, within [0, 1]; many at once are read faster than one by one.

        Args:
            questions: as for a single one.
            answers: one for each; None where the model is to answer. By default those in the questions' `given`.

        Raises:
            UserError: a question or an answer is not as it must be, or too long for the model.
        """
        asked, told = questions_of(questions, answers, self.words.subject, self.format)
        if not asked:
            return np.zeros(0)
        told = self.accepted(asked, told, strict=True)
        if repeated := with_equal_options(asked):
            warnings.warn(f"{len(repeated):,} questions have equal options, such as {repeated[0]!r}", stacklevel=2)
        scored = self.scored(asked, told)
        if scored.too_long:
            raise UserError(next(iter(scored.too_long.values())))
        return scored.confidence

    def accepted(
        self, questions: Sequence[Question], given: Mapping[str, Released], *, strict: bool = False
    ) -> dict[str, Released]:
        """Return given answers by question id as they are scored: texts that are an option's letter as that letter.

        Args:
            questions: whatever is asked.
            given: question id -> the answer as it came.
            strict: whether a text that is no option's letter is refused.

        Raises:
            UserError: a question has too few or too many options, answers are given to a method that reads none, or one
                is refused.
        """
        if given and not any(definition(signal).reads_answer(self.format) for signal in self._method.reads().predict):
            raise UserError(
                f"expected no answers, got {len(given):,}: method {self._method.name!r} of head {self.name} does not"
                " read the answer, so that all answers to a question would have one confidence; leave them out"
                f" ({GIVEN!r}, --answers), or take a head of a method that reads them"
            )
        if self.format is Format.OPEN:
            return dict(given)
        most = min(len(self.protocol.letters), _MOST)
        found = {}
        for question in questions:
            n = len(question.choices) if any(question.choices) else 0
            if not _FEWEST <= n <= most:
                raise UserError(
                    f"question {question.id!r}: expected {_FEWEST} to {most} options, got {n or 'none'};"
                    f" the head {self.name} is for questions with lettered options"
                )
            answer, letters = given.get(question.id), self.protocol.letters[:n]
            if answer is not None:
                letter = parse_letter(answer.text, letters) if isinstance(answer.text, str) else None
                if strict and answer.text and letter is None:
                    what = f"expected one of {', '.join(letters)} as its answer, got {answer.text!r:.60}"
                    raise UserError(f"question {question.id!r}: {what}")
                found[question.id] = answer if letter is None else replace(answer, text=letter)
        return found

    def scored(
        self, questions: Sequence[Question], answers: Mapping[str, Released], dev: Sequence[Question] = ()
    ) -> Scored:
        """Answers with confidences; what can't be asked is told and not raised.

        Args:
            questions: of the head's format, with ids of their own.
            answers: question id -> its answer, as it is; the model answers all others.
            dev: exemplars that came with the questions.

        Raises:
            UserError: nothing can be asked, or the model can't be read.
        """
        task, strangers = task_of(self.card.asked, self.words, self.protocol, questions, dev)
        parts = [[q for q in questions if (q.id in answers) == is_given] for is_given in (True, False)]
        found: dict[str, tuple[Answer, float]] = {}
        too_long: dict[str, str] = {}
        readings = []
        for part in filter(None, parts):
            told = {q.id: answers[q.id] for q in part if q.id in answers}
            kept, why = self._short_enough(task, part, told)
            too_long |= why
            if not kept:
                continue
            where = TaskSplit(task.name, "test")
            reading = self._reader.open(where, task, kept, {q.id: told[q.id] for q in kept} if told else None)
            reading, confidence = self._read(reading)
            readings.append(reading)
            for question, answer, sure in zip(kept, reading.answers, confidence.tolist(), strict=True):
                found[question.id] = answer, sure
        pairs = [found.get(q.id, (None, np.nan)) for q in questions]
        return Scored(
            questions, [a for a, _ in pairs], np.asarray([c for _, c in pairs]), too_long, strangers, readings
        )

    def _read(self, reading: Reading) -> tuple[Reading, FloatArray]:
        """The reading with its answers, and the confidences `(n,)` in them."""
        signals = self._method.reads().predict
        reading = self._grader.parsed(self._reader.read(reading, read_from_model(signals)))
        adapter = adapter_of(self._method) if reads_own_adapter(signals) else None
        through = None if adapter is None else self._reader.read_through(reading, adapter)
        confidence = np.full(len(reading.questions), self._output.empty)
        for rows, batch in Batches(self._reader).pieces(reading, signals, through):
            with fenced(f"method {self._method.name!r}, predict"):
                values = given(self._method, batch.own())
            confidence[rows] = self._output.confidence(values)
        return reading, confidence

    def _short_enough(
        self, task: Any, questions: list[Question], told: Mapping[str, Released]
    ) -> tuple[list[Question], dict[str, str]]:
        """The questions that the model's context can hold, and why it can't hold the others."""
        open_, where = self._reader.open, TaskSplit(task.name, "test")
        try:
            open_(where, task, questions, told)
        except TooLongError:
            why = {}
            for question in questions:
                try:
                    open_(where, task, [question], {question.id: told[question.id]} if told else None)
                except TooLongError as error:
                    why[question.id] = str(error)
            return [question for question in questions if question.id not in why], why
        return questions, {}


# --- heads of folders -------------------------------------------------------------------------------------------------


def load_head(
    folder: str | Path,
    model: str | None = None,
    device: str | None = None,
    *,
    dtype: str | None = None,
    plugins: Sequence[str | Path] = (),
    trust_remote_code: bool = False,
) -> Head:
    """A head that `bench run --save-heads` wrote, ready to score.

    What it reads lies in a temporary folder, which goes with the head.

    Args:
        folder: of the head.
        model: alias, Hub id or folder of its own model; by default the name under which the run knew it.
        device: cuda, mps or cpu; by default the first of these that there is.
        dtype: float32, bfloat16 or float16; by default the head's.
        plugins: files of the method, where it is a plugin's.
        trust_remote_code: run code that comes with the model.

    Raises:
        UserError: the head is damaged, or of another model, method or version; says what to do.
    """
    files = tuple(Path(each) for each in plugins)
    setting = Setting(model, device, dtype, trust_remote_code=trust_remote_code, plugins=files)
    made = tempfile.mkdtemp(prefix="confbench-head-")
    try:
        head = open_head(Path(folder), setting, Path(made))
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    weakref.finalize(head, shutil.rmtree, made, ignore_errors=True)
    return head


def open_head(
    folder: Path, setting: Setting, cache: Path, *, progress: Progress | None = None, same_model: bool = True
) -> Head:
    """A head with its model in some setting.

    Args:
        folder: of the head.
        setting: the model and how it is run.
        cache: where what is read is kept.
        progress: for people.
        same_model: whether another backbone than the head's own is refused.

    Raises:
        UserError: as `load_head`.
    """
    from bench.backbone.devices import default_budget
    from bench.backbone.model import Backbone, LoadOptions

    card = read_card(folder)
    words = read_words(folder)
    values = {key: value for key, value in card.asked.protocol.items() if key != "preset"}
    protocol = changed(str(card.asked.protocol.get("preset")), values)
    if protocol.digest() != card.asked.digest:
        raise UserError(
            f"--head {folder}: it was made with other words around questions than this version of confbench uses;"
            " use the version that made it, or make it again with bench run --save-heads."
        )
    known = registry.methods(setting.plugins)
    files = set(map(str, setting.plugins))
    origins = {entry.name: entry.origin for entry in known.entries() if entry.origin in files}
    method = read_method(folder, card.method, known, origins)
    output = read_output(folder, card)
    trusted, model = setting.trust_remote_code, card.backbone.model if setting.model is None else setting.model
    if setting.model is None:
        try:
            models.resolve(model)
        except UserError:
            raise UserError(
                f"--head {folder}: its model was a folder of this or another machine ({model}); name the folder:"
                " --model FOLDER, or model=FOLDER."
            ) from None
    config = RunConfig(
        methods=(card.method.name,), model=model, device=setting.device,
        trust_remote_code=trusted,
        **{name: value for name, value in card.asked.judge.items() if value is not None},  # type: ignore[arg-type]
    )  # fmt: skip
    options = LoadOptions(
        setting.device, setting.dtype or card.backbone.dtype, trusted, (), setting.attention, setting.plain
    )
    backbone = Backbone(models.resolve(config.model), options)
    own, other = card.backbone, BackboneCard.of(backbone, config.model)
    if same_model and (parts := own.differences(other)):
        raise UserError(
            f"--model {other.model}: the head in {folder} belongs to {own.model!r}, fingerprint {own.short}, not to"
            f" {other.model!r}, fingerprint {other.short}; other: {', '.join(parts)}. Name its own model, or make a"
            " head for this one with bench run --save-heads. How far this model's states are from the head's says bench"
            " head check."
        )
    store = Store(cache)
    store.prepare()
    budget = setting.token_budget or default_budget(*backbone.devices)
    reader = Reader(backbone, store, protocol, budget, progress or Silent(), card.asked.seed)
    judge = open_judge(judge_options(config), cache)
    grader = Grader(reader, judge, relating_of(config, backbone.device))
    return Head(card, method, words, output, reader, grader)
