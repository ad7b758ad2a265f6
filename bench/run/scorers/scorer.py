"""A head that is ready to score: `load_head(folder)`, then `head(question, answer)` or `head.score(questions, ...)`.

Questions go the way of a run, through prompts, reader and signals, so that a head says of an answer what the run said.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from bench import registry
from bench.api import AdapterRef, ConfidenceMethod, FloatArray, Format, Question, UserError
from bench.api.errors import TooLongError, did_you_mean, fenced, require_text
from bench.api.methods import given
from bench.api.protocol import Protocol, changed
from bench.api.question import Answer, Released
from bench.data.question_files import FEWEST, GIVEN, MOST
from bench.data.splits import TaskSplit
from bench.grading.grade import parse_letter
from bench.grading.judges import open_judge
from bench.model import specs
from bench.progress import Progress, Silent
from bench.run.config import RunConfig
from bench.run.preparation import relating_of
from bench.run.resolve import judge_options
from bench.run.scorers.card import Card, ModelCard, read_card
from bench.run.scorers.output_maps import Output, read_method, read_output
from bench.run.scorers.scoring_input import PromptWording, UnknownSubjects, read_words, task_of
from bench.signals.batches import Batches
from bench.signals.definition import definition, read_from_model, reads_own_adapter
from bench.signals.grading import Grader
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.folders import Store

FIELDS = ("question", "choices", "subject", "id")
"""Keys of a question that is a dict; `given` beside them is its answer, and `answer`, the right one, is not read."""


@dataclass(frozen=True)
class HeadSetting:
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
    strangers: UnknownSubjects = field(default_factory=UnknownSubjects)
    data_by_split: Sequence[SplitData] = ()
    """The questions as they were read."""


class Scorer:
    """A method with what it learned, on the model that it belongs to.

    Example: `head = load_head("heads/tiny/atlas-choice/lts--demo--s0"); head({"question": "…", "choices": [...]}, "a")`
    """

    def __init__(
        self, card: Card, method: ConfidenceMethod, words: PromptWording, output: Output, reader: Reader, grader: Grader
    ) -> None:
        """Put the parts together; `load_head` does."""
        self.card = card
        self.words = words
        self.model = reader.lm.spec.source if reader.lm.spec.local else reader.lm.spec.name
        """Model that it is read on, as the command line names it."""
        self.reader = reader
        """Reads questions with its model."""
        self._method, self._output, self._grader = method, output, grader

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
        return self.reader.protocol

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
        most = min(len(self.protocol.letters), MOST)
        found = {}
        for question in questions:
            n = len(question.choices) if any(question.choices) else 0
            if not FEWEST <= n <= most:
                raise UserError(
                    f"question {question.id!r}: expected {FEWEST} to {most} options, got {n or 'none'};"
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
        signals, ref = self._method.reads().predict, self._method.fitted().get("adapter_")
        parts = [[q for q in questions if (q.id in answers) == is_given] for is_given in (True, False)]
        found: dict[str, tuple[Answer, float]] = {}
        too_long: dict[str, str] = {}
        data_by_split = []
        for part in filter(None, parts):
            told = {q.id: answers[q.id] for q in part if q.id in answers}
            where, kept = TaskSplit(task.name, "test"), part
            try:
                split_data = self.reader.open(where, task, kept, told or None)
            except TooLongError:  # those that the model's context can hold are asked
                for question in part:
                    try:
                        self.reader.open(where, task, [question], {question.id: told[question.id]} if told else None)
                    except TooLongError as error:
                        too_long[question.id] = str(error)
                kept = [question for question in part if question.id not in too_long]
                if not kept:
                    continue
                split_data = self.reader.open(where, task, kept, {q.id: told[q.id] for q in kept} if told else None)
            split_data = self._grader.parsed(self.reader.read(split_data, read_from_model(signals)))
            through = None
            if isinstance(ref, AdapterRef) and reads_own_adapter(signals):
                through = self.reader.read_through(split_data, replace(ref, folder=ref.folder.resolve()))
            confidence = np.full(len(split_data.questions), self._output.empty)
            for rows, batch in Batches(self.reader).pieces(split_data, signals, through):
                with fenced(f"method {self._method.name!r}, predict"):
                    confidence[rows] = self._output.confidence(given(self._method, batch.own()))
            data_by_split.append(split_data)
            for question, answer, sure in zip(kept, split_data.answers, confidence.tolist(), strict=True):
                found[question.id] = answer, sure
        pairs = [found.get(q.id, (None, np.nan)) for q in questions]
        return Scored(
            questions, [a for a, _ in pairs], np.asarray([c for _, c in pairs]), too_long, strangers, data_by_split
        )


# --- heads of folders -------------------------------------------------------------------------------------------------


def load_head(
    folder: str | Path,
    model: str | None = None,
    device: str | None = None,
    *,
    dtype: str | None = None,
    plugins: Sequence[str | Path] = (),
    trust_remote_code: bool = False,
) -> Scorer:
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
    setting = HeadSetting(model, device, dtype, trust_remote_code=trust_remote_code, plugins=files)
    made = tempfile.mkdtemp(prefix="confbench-head-")
    try:
        head = open_head(Path(folder), setting, Path(made))
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    weakref.finalize(head, shutil.rmtree, made, ignore_errors=True)
    return head


def open_head(
    folder: Path, setting: HeadSetting, cache: Path, *, progress: Progress | None = None, same_model: bool = True
) -> Scorer:
    """A head with its model in some setting.

    Args:
        folder: of the head.
        setting: the model and how it is run.
        cache: where what is read is kept.
        progress: for people.
        same_model: whether another model than the head's own is refused.

    Raises:
        UserError: as `load_head`.
    """
    from bench.model.devices import default_budget
    from bench.model.language_model import LanguageModel, LoadOptions

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
            specs.resolve(model)
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
    lm = LanguageModel(specs.resolve(config.model), options)
    own, other = card.backbone, ModelCard.of(lm, config.model)
    if same_model and (parts := own.differences(other)):
        raise UserError(
            f"--model {other.model}: the head in {folder} belongs to {own.model!r}, fingerprint {own.short}, not to"
            f" {other.model!r}, fingerprint {other.short}; other: {', '.join(parts)}. Name its own model, or make a"
            " head for this one with bench run --save-heads. How far this model's states are from the head's says bench"
            " head check."
        )
    store = Store(cache)
    store.prepare()
    budget = setting.token_budget or default_budget(*lm.devices)
    reader = Reader(lm, store, protocol, budget, progress or Silent(), card.asked.seed)
    judge = open_judge(judge_options(config), cache)
    grader = Grader(reader, judge, relating_of(config, lm.device))
    return Scorer(card, method, words, output, reader, grader)


# --- questions of callers in Python -----------------------------------------------------------------------------------


def with_equal_options(questions: Sequence[Question]) -> list[str]:
    """Return ids of questions of which two options are equal, so that two letters mean the same."""
    return [q.id for q in questions if len({choice.strip() for choice in q.choices}) < len(q.choices)]


def _is_list(value: object) -> bool:
    """Return whether a value has places, as lists, tuples, arrays and columns of tables have; sets have none."""
    return hasattr(type(value), "__getitem__") and not isinstance(value, str | Mapping)


def questions_of(
    questions: Sequence[str | Mapping[str, Any] | Question],
    answers: Sequence[str | None] | None,
    subject: str,
    kind: Format,
) -> tuple[list[Question], dict[str, Released]]:
    """Questions, and those answers that are given by question id.

    Args:
        questions: whatever they were given as.
        answers: one for each, None where the model is to answer; None: those that the questions bring.
        subject: of a question that names none.
        kind: of the questions; a dict with options is no open one.

    Raises:
        UserError: one of them is not as it must be, two questions have one id, or an answer was given twice.
    """
    for name, each in (("questions", questions), ("answers", answers)):
        if each is not None and not _is_list(each):
            raise UserError(f"expected a list of {name}, got {type(each).__name__} {each!r:.60}; make it a list")
    asked = [_question(question, i, subject, kind) for i, question in enumerate(questions)]
    if twice := [key for key, n in Counter(question.id for question in asked).items() if n > 1]:
        raise UserError(f"expected questions with ids of their own, got {twice[0]!r:.60} twice; change one of them")
    brought = [_answer(each.get(GIVEN), i) if isinstance(each, Mapping) else None for i, each in enumerate(questions)]
    told = brought if answers is None else [_answer(answer, i) for i, answer in enumerate(answers)]
    if len(told) != len(asked):
        raise UserError(f"expected an answer to each of {len(asked):,} questions, got {len(told):,}")
    for i, (own, text) in enumerate(zip(brought, told, strict=True)):
        if own not in {None, text}:
            raise UserError(
                f"question {i}: it has the answer {own!r:.60} in {GIVEN!r}, and {text!r:.60} was given beside it; leave"
                " one of them out"
            )
    pairs = zip(asked, told, strict=True)
    return asked, {question.id: Released(None, text.strip(), None) for question, text in pairs if text is not None}


def _answer(answer: object, i: int) -> str | None:
    if answer is not None and not isinstance(answer, str):
        raise UserError(f"question {i}: expected answers as text, got {type(answer).__name__} {answer!r:.60}")
    if answer is not None:
        require_text(answer, f"the answer to question {i}")
    return answer


def _question(question: object, i: int, usual: str, kind: Format) -> Question:
    """A question from whatever it was given as."""
    if isinstance(question, Question):
        return question
    values = {"question": question} if isinstance(question, str) else question
    if not isinstance(values, Mapping):
        raise UserError(f"expected a question as text or as a dict, got {type(question).__name__} {question!r:.60}")
    for key in (str(key) for key in values if key not in (*FIELDS, "answer", GIVEN)):
        hint = did_you_mean(key, [name for name in (*FIELDS, GIVEN) if name not in values])
        if hint or "question" not in values:
            raise UserError(f"question {i}: nothing is known of {key!r}, expected {', '.join(FIELDS)}.{hint}")
    text, subject, own = values.get("question"), values.get("subject"), values.get("id")
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"question {i}: expected a text that is not empty, got {text!r:.60}")
    if not isinstance(subject, str | None):
        raise UserError(f"question {i}: expected a subject as text, got {type(subject).__name__} {subject!r:.60}")
    if not isinstance(own, str | Integral | None) or isinstance(own, bool):
        raise UserError(f"question {i}: expected an id as text or a whole number, got {own!r:.60}")
    options = () if values.get("choices") is None else values["choices"]
    choices = tuple(options) if _is_list(options) else ("",)
    if not all(isinstance(each, str) and each.strip() for each in choices):
        raise UserError(f"question {i}: expected choices as a list of texts, which letters name, got {options!r:.60}")
    if choices and kind is Format.OPEN:
        raise UserError(f"question {i}: expected no choices, got {len(choices)}; the head is for open questions")
    require_text("\n".join((text, subject or "", str(own), *choices)), f"question {i}")
    return Question(f"asked:{i}" if own in {None, ""} else str(own), subject or usual, text, choices or ("",), 0)
