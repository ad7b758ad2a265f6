"""Load a head with its model: `head = load_head(folder)`, then `head(question, answer)` or `head.score(...)`.

Prompts, answers and signals are computed by the same code as in a run, so that confidences are the same.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
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
from bench.api import ConfidenceMethod, FloatArray, Format, Question, UserError
from bench.api.errors import TooLongError, did_you_mean, plugin_errors, require_text
from bench.api.methods import outputs_of
from bench.api.protocol import Protocol, with_fields
from bench.api.question import Answer, Released, Unnamed
from bench.data.question_files import FEWEST, GIVEN, MOST
from bench.data.splits import TaskSplit
from bench.grading.grade import parse_letter
from bench.grading.judges import open_judge
from bench.model import specs
from bench.progress import Progress, Silent
from bench.run.config import HeadSetting, RunConfig
from bench.run.plan import trained_adapter
from bench.run.preparation import open_pair_models
from bench.run.resolve import judge_options
from bench.run.scorers.card import Card, ModelCard, read_card
from bench.run.scorers.output_maps import OutputMaps, read_method, read_output
from bench.run.scorers.scoring_input import PromptWording, SubjectsWithoutExemplars, build_task, read_wording
from bench.signals.batch_builder import BatchBuilder
from bench.signals.definition import definition, read_from_model, uses_adapter
from bench.signals.grading import Grader
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.disk_cache import Store

FIELDS = ("question", "choices", "subject", "id")
"""Keys of a question that is given as a dict. Two more keys are known: `given` may hold the answer to score; `answer`,
the right answer, is ignored. So are all other keys, unless one looks misspelt or `question` is missing."""
_TURNS = threading.Lock()
"""Held while a model reads: threads of a service take turns."""


@dataclass(frozen=True, eq=False)
class ScoredAnswers:
    """Answers to questions, with a head's confidences in these answers."""

    questions: Sequence[Question]
    answers: Sequence[Answer | None]
    """Answer to each question; None if the question is too long for the model's context."""
    confidence: FloatArray
    """`(n,)`: confidence in each answer; NaN if the question is too long for the model's context."""
    too_long: Mapping[str, str] = field(default_factory=dict)
    """Id of each question that is too long for the model's context -> error message."""
    unknown_subjects: SubjectsWithoutExemplars = field(default_factory=SubjectsWithoutExemplars)
    data_by_split: Sequence[SplitData] = ()
    """The questions with answers and signals, in at most two parts: with provided answers, and with generated ones."""


@dataclass(eq=False, repr=False)
class Scorer:
    """A head loaded with its model: it returns confidences in answers to questions.

    Example: `head = load_head("heads/tiny/atlas-choice/lts--demo--s0"); head({"question": "…", "choices": [...]}, "a")`
    """

    card: Card
    method: ConfidenceMethod
    words: PromptWording
    output: OutputMaps
    reader: Reader
    """Computes the answers and signals of questions with the model."""
    grader: Grader

    def __repr__(self) -> str:
        """Return a text with the names of the head and of its model."""
        return f"Head({self.name!r}, {self.card.backbone.model!r})"

    @property
    def name(self) -> str:
        """Name of the head, e.g. `tiny/atlas-choice/ccps--demo--s0`."""
        return self.card.name

    @property
    def model(self) -> str:
        """Name of the loaded model, as the command line takes it; for a local model its folder."""
        spec = self.reader.lm.spec
        return spec.source if spec.local else spec.name

    @property
    def format(self) -> Format:
        """Format of the questions that the head can score: with options, or open."""
        return Format(self.card.asked.format)

    @property
    def protocol(self) -> Protocol:
        """Protocol (exemplars, wording, answer lengths) by which prompts and samples are made."""
        return self.reader.protocol

    def __call__(self, question: str | Mapping[str, Any], answer: str | None = None) -> float:
        """Return the confidence that an answer to a question is right, within [0, 1].

        Args:
            question: text of the question, or a dict with the key `question`; with `choices` if the question has
                options; and with `subject`, which selects the exemplars of the prompt.
            answer: text of the answer; for a question with options, the letter of an option in either case. None: the
                model answers.

        Raises:
            UserError: question or answer is invalid.
        """
        return float(self.score([question], None if answer is None else [answer])[0])

    def score(
        self, questions: Sequence[str | Mapping[str, Any] | Question], answers: Sequence[str | None] | None = None
    ) -> FloatArray:
        """Return the confidences `(n,)` that answers are right, within [0, 1]; faster than one call for each question.

        Args:
            questions: n questions, each a text, a `Question`, or a dict as for calling the scorer.
            answers: n answers, None for questions that the model answers. Default: the key `given` of each question.

        Raises:
            UserError: a question or an answer is invalid, or too long for the model.
        """
        parsed, provided = parse_questions(questions, answers, self.words.subject, self.format)
        if not parsed:
            return np.zeros(0)
        provided = self.check_answers(parsed, provided, strict=True)
        if repeated := with_equal_options(parsed):
            warnings.warn(f"questions with equal options: {len(repeated):,}, such as {repeated[0]!r}", stacklevel=2)
        if note := self.traces_note(parsed, provided):
            warnings.warn(note, stacklevel=2)
        # a service would fill a store for ever
        with _TURNS, tempfile.TemporaryDirectory(prefix="confbench-head-") as folder:
            reader = replace(self.reader, store=Store(Path(folder)))
            once = replace(self, reader=reader, grader=replace(self.grader, reader=reader))
            scored = once.score_questions(parsed, provided)
        if scored.too_long:
            raise UserError(next(iter(scored.too_long.values())))
        return scored.confidence

    def traces_note(self, questions: Sequence[Question], answers: Mapping[str, Released]) -> str:
        """Say how many answers follow a reasoning trace where the head's do not, or the reverse; empty if none does.

        Args:
            questions: all questions to score.
            answers: question id -> provided answer; the model answers all other questions without a trace.
        """
        traced = sum(q.id in answers and bool(answers[q.id].trace) for q in questions)
        other, word = (len(questions) - traced, "without") if self.card.asked.traces else (traced, "after")
        return f"answers {word} a reasoning trace, unlike those of the head: {other:,}" if other else ""

    def check_answers(
        self, questions: Sequence[Question], answers: Mapping[str, Released], *, strict: bool = False
    ) -> dict[str, Released]:
        """Check provided answers; return question id -> answer, with an option's letter in its normal spelling.

        Args:
            questions: all questions to score.
            answers: question id -> provided answer.
            strict: whether an answer that is no option's letter raises an error.

        Raises:
            UserError: a question has too few or too many options, an answer is invalid, or the method reads no answers.
        """
        if answers and not any(definition(signal).reads_answer(self.format) for signal in self.method.reads().predict):
            raise UserError(
                f"expected no answers, got {len(answers):,}: method {self.method.name!r} of head {self.name} does not"
                " read the answer, so that all answers to a question would have one confidence; leave them out"
                f" ({GIVEN!r}, --answers), or take a head of a method that reads them"
            )
        if self.format is Format.OPEN:
            return dict(answers)
        max_options = min(len(self.protocol.letters), MOST)
        accepted = {}
        for question in questions:
            n = len(question.choices) if any(question.choices) else 0
            if not FEWEST <= n <= max_options:
                raise UserError(
                    f"question {question.id!r}: expected {FEWEST} to {max_options} options, got {n or 'none'};"
                    f" the head {self.name} is for questions with lettered options"
                )
            answer, letters = answers.get(question.id), self.protocol.letters[:n]
            if answer is not None:
                letter = parse_letter(answer.text, letters) if isinstance(answer.text, str) else None
                if strict and letter is None:
                    what = f"expected one of {', '.join(letters)} as its answer, got {answer.text!r:.60}"
                    raise UserError(f"question {question.id!r}: {what}")
                accepted[question.id] = answer if letter is None else replace(answer, text=letter)
        return accepted

    def score_questions(
        self, questions: Sequence[Question], answers: Mapping[str, Released], dev: Sequence[Question] = ()
    ) -> ScoredAnswers:
        """Return answers to questions, with confidences; questions that are too long are listed without an error.

        Args:
            questions: questions in the head's format, with distinct ids.
            answers: question id -> provided answer; the model answers all other questions.
            dev: exemplars that came with the questions; they replace the head's exemplars of the same subjects.

        Raises:
            UserError: no prompt can be built, or the model can't be loaded.
        """
        task, unknown = build_task(self.card.asked, self.words, self.protocol, questions, dev)
        signals = self.method.reads().predict
        ref = trained_adapter(self.method) if uses_adapter(signals) else None
        groups = [[q for q in questions if (q.id in answers) == is_given] for is_given in (True, False)]
        by_id: dict[str, tuple[Answer, float]] = {}
        too_long: dict[str, str] = {}
        data_by_split = []

        def opened(part: list[Question]) -> SplitData:
            given = {question.id: answers[question.id] for question in part if question.id in answers}
            return self.reader.open(TaskSplit(task.name, "test"), task, part, given)

        for group in filter(None, groups):
            try:
                split_data = opened(group)
            except TooLongError:  # drop the questions that exceed the model's context
                for question in group:
                    try:
                        opened([question])
                    except TooLongError as error:
                        too_long[question.id] = str(error)
                short = [question for question in group if question.id not in too_long]
                if not short:
                    continue
                split_data = opened(short)
            split_data = self.grader.parsed(self.reader.read(split_data, read_from_model(signals)))
            adapted = None if ref is None else self.reader.read_adapted(split_data, ref)
            confidence = np.full(len(split_data.questions), self.output.empty)
            for rows, batch in BatchBuilder(self.reader).pieces(split_data, signals, adapted):
                with plugin_errors(f"method {self.method.name!r}, predict"):
                    confidence[rows] = self.output.confidence(outputs_of(self.method, batch.own()))
            data_by_split.append(split_data)
            answered = zip(split_data.answers, confidence.tolist(), strict=True)
            by_id |= zip((question.id for question in split_data.questions), answered, strict=True)
        pairs = [by_id.get(q.id, (None, np.nan)) for q in questions]
        return ScoredAnswers(
            questions, [a for a, _ in pairs], np.asarray([c for _, c in pairs]), too_long, unknown, data_by_split
        )


# --- loading ----------------------------------------------------------------------------------------------------------


def load_head(
    folder: str | Path,
    model: str | None = None,
    device: str | None = None,
    *,
    dtype: str | None = None,
    plugins: Sequence[str | Path] = (),
    trust_remote_code: bool = False,
    tokenizer: str | None = None,
    served: str | None = None,
) -> Scorer:
    """Load a head that `bench run --save-heads` wrote, with its model.

    Temporary folders hold the signals of questions until a call returns, and a judge's verdicts as long as the scorer.

    Args:
        folder: folder of the head.
        model: alias, Hub id, folder or GGUF file of the head's model; by default its name in the head's run.
        device: cuda, mps or cpu; by default cuda if there is one, else cpu.
        dtype: float32, bfloat16 or float16; by default that of the run that made the head.
        plugins: Python files that define the method, if it is neither built in nor installed.
        trust_remote_code: whether to run code that comes with the model.
        tokenizer: Hub id or folder of a GGUF file's tokenizer; by default the file's own.
        served: name of the model on a server; by default its only one.

    Raises:
        UserError: the head is damaged, or belongs to another model, method or version.
    """
    files = tuple(Path(path) for path in plugins)
    setting = HeadSetting(
        model, device, dtype, trust_remote_code=trust_remote_code, plugins=files, tokenizer=tokenizer, served=served
    )
    cache = tempfile.mkdtemp(prefix="confbench-head-")
    try:
        head = open_head(Path(folder), setting, Path(cache))
    except BaseException:
        shutil.rmtree(cache, ignore_errors=True)
        raise
    weakref.finalize(head, shutil.rmtree, cache, ignore_errors=True)
    return head


def open_head(
    folder: Path, setting: HeadSetting, cache: Path, *, progress: Progress | None = None, same_model: bool = True
) -> Scorer:
    """Load a head with a model in a given setting.

    Args:
        folder: folder of the head.
        setting: the model, and how it is run.
        cache: folder of the store.
        progress: reports how far loading and reading are.
        same_model: whether a model that is not the head's raises an error.

    Raises:
        UserError: the head is damaged, or belongs to another model, method or version.
    """
    from bench.model.devices import default_budget
    from bench.model.language_model import LoadOptions
    from bench.model.server_model import open_model

    card, words = read_card(folder), read_wording(folder)
    values = {key: value for key, value in card.asked.protocol.items() if key != "preset"}
    protocol = with_fields(str(card.asked.protocol.get("preset")), values)
    if protocol.digest() != card.asked.digest:
        raise UserError(
            f"--head {folder}: it was made with other words around questions than this version of confbench uses;"
            " use the version that made it, or make it again with bench run --save-heads."
        )
    methods, files = registry.methods(setting.plugins), set(map(str, setting.plugins))
    origins = {entry.name: entry.origin for entry in methods.entries() if entry.origin in files}
    method = read_method(folder, card.method, methods, origins)
    output = read_output(folder, card)
    trusted, model = setting.trust_remote_code, card.backbone.model if setting.model is None else setting.model
    if setting.model is None:
        try:
            specs.resolve(model)
        except UserError:
            was, wanted = "a file or folder of this or another machine", "FILE or FOLDER"
            if specs.SERVED in model:
                was, wanted = "behind a server", "URL"
            raise UserError(
                f"--head {folder}: its model was {was} ({model}); say where it is: --model {wanted}, or model=."
            ) from None
    config = RunConfig(
        methods=(card.method.name,), model=model, device=setting.device, trust_remote_code=trusted,
        **{name: value for name, value in card.asked.judge.items() if value is not None},  # type: ignore[arg-type]
    )  # fmt: skip
    options = LoadOptions(
        setting.device, setting.dtype or card.backbone.dtype, trusted, (), setting.attention, setting.plain,
        tokenizer=setting.tokenizer,
    )  # fmt: skip
    spec = specs.resolve(config.model)
    if model == card.backbone.model and not spec.local and not trusted:  # a head must not choose which code is run
        spec = replace(spec, revision=card.backbone.revision)  # its repository may have got other commits meanwhile
    lm = open_model(spec, options, setting.served)
    fmt, reads = Format(card.asked.format), map(definition, method.reads().predict)
    lacking = (lm.missing(each.needs(fmt), each.depths) for each in reads)
    if reason := next(filter(None, lacking), None):
        raise UserError(f"--model {spec.name}: the head's method can't be used with it: {reason}.")
    saved, other = card.backbone, ModelCard.of(lm, lm.label if spec.is_server else config.model)
    if same_model and (parts := saved.differences(other)):
        raise UserError(
            f"--model {other.model}: the head in {folder} belongs to {saved.model!r}, fingerprint {saved.short}, not to"
            f" {other.model!r}, fingerprint {other.short}; other: {', '.join(parts)}. Name its own model, or make a"
            " head for this one with bench run --save-heads. How far this model's states are from the head's says bench"
            " head check."
        )
    store = Store(cache)
    store.prepare()
    lm.check_identity(store)
    budget = setting.token_budget or default_budget(*lm.devices)
    reader = Reader(lm, store, protocol, budget, progress or Silent(), card.asked.seed)
    judge = open_judge(judge_options(config), cache)
    grader = Grader(reader, judge, open_pair_models(config, lm.device))
    return Scorer(card, method, words, output, reader, grader)


# --- questions of callers in Python -----------------------------------------------------------------------------------


def with_equal_options(questions: Sequence[Question]) -> list[str]:
    """Return the ids of the questions that have two equal options."""
    return [q.id for q in questions if len({choice.strip() for choice in q.choices}) < len(q.choices)]


def _is_sequence(value: object) -> bool:
    """Return whether a value can be indexed like a list, tuple, array or table column; false for texts and mappings."""
    return hasattr(type(value), "__getitem__") and not isinstance(value, str | Mapping)


def parse_questions(
    questions: Sequence[str | Mapping[str, Any] | Question],
    answers: Sequence[str | None] | None,
    subject: str,
    kind: Format,
) -> tuple[list[Question], dict[str, Released]]:
    """Parse questions and answers; return the questions, and question id -> provided answer.

    Args:
        questions: n texts, dicts or `Question` objects.
        answers: n answers, each None if the model answers the question. If the list itself is None, the answers are the
            values of key `given` in the questions.
        subject: subject of questions that name none.
        kind: format of the questions; open questions have no options.

    Raises:
        UserError: a question or answer is invalid, two questions have the same id, or a question has two answers.
    """
    for name, values in (("questions", questions), ("answers", answers)):
        if values is not None and not _is_sequence(values):
            raise UserError(f"expected a list of {name}, got {type(values).__name__} {values!r:.60}; make it a list")
    items = [_parse_question(question, i, subject, kind) for i, question in enumerate(questions)]
    if repeated := [key for key, n in Counter(question.id for question in items).items() if n > 1]:
        raise UserError(f"expected questions with ids of their own, got {repeated[0]!r:.60} twice; change one of them")
    embedded = [_check_answer(q.get(GIVEN), i) if isinstance(q, Mapping) else None for i, q in enumerate(questions)]
    provided = embedded if answers is None else [_check_answer(answer, i) for i, answer in enumerate(answers)]
    if len(provided) != len(items):
        raise UserError(f"expected an answer to each question ({len(items):,}), got {len(provided):,}")
    for i, (inside, text) in enumerate(zip(embedded, provided, strict=True)):
        if inside not in {None, text}:
            raise UserError(
                f"question {i}: it has the answer {inside!r:.60} in {GIVEN!r}, and {text!r:.60} was given beside it;"
                " leave one of them out"
            )
    pairs = zip(items, provided, strict=True)
    return items, {question.id: Released(None, text.strip(), None) for question, text in pairs if text is not None}


def _check_answer(answer: object, i: int) -> str | None:
    if answer is not None and not isinstance(answer, str):
        raise UserError(f"question {i}: expected answers as text, got {type(answer).__name__} {answer!r:.60}")
    if answer is not None:
        require_text(answer, f"the answer to question {i}")
        if not answer.strip():
            raise UserError(
                f"question {i}: expected a non-empty answer, got {answer!r:.60}; give None, and the model answers, or"
                " leave the question out"
            )
    return answer


def _parse_question(question: object, i: int, default: str, kind: Format) -> Question:
    """Parse a question that is a text, a dict or a `Question`.

    Args:
        question: the question.
        i: its index, for error messages.
        default: its subject if it names none.
        kind: format of the questions.
    """
    if isinstance(question, Question):
        return question if question.index_in_subject is not None else replace(question, index_in_subject=0)
    values = {"question": question} if isinstance(question, str) else question
    if not isinstance(values, Mapping):
        raise UserError(f"expected a question as text or as a dict, got {type(question).__name__} {question!r:.60}")
    for key in (str(key) for key in values if key not in (*FIELDS, "answer", GIVEN)):
        hint = did_you_mean(key, [name for name in (*FIELDS, GIVEN) if name not in values])
        if hint or "question" not in values:
            raise UserError(f"question {i}: nothing is known of {key!r}, expected {', '.join(FIELDS)}.{hint}")
    text, subject, id_ = values.get("question"), values.get("subject"), values.get("id")
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"question {i}: expected a text that is not empty, got {text!r:.60}")
    if not isinstance(subject, str | None):
        raise UserError(f"question {i}: expected a subject as text, got {type(subject).__name__} {subject!r:.60}")
    if not isinstance(id_, str | Integral | None) or isinstance(id_, bool):
        raise UserError(f"question {i}: expected an id as text or a whole number, got {id_!r:.60}")
    options = () if values.get("choices") is None else values["choices"]
    choices = tuple(options) if _is_sequence(options) else ("",)
    if not all(isinstance(choice, str) and choice.strip() for choice in choices):
        raise UserError(f"question {i}: expected choices as a list of texts, which letters name, got {options!r:.60}")
    if choices and kind is Format.OPEN:
        raise UserError(f"question {i}: expected no choices, got {len(choices)}; the head is for open questions")
    require_text("\n".join((text, subject or "", str(id_), *choices)), f"question {i}")
    name, asked = (f"asked:{i}", Unnamed) if id_ in {None, ""} else (str(id_), Question)
    return asked(name, subject or default, text, choices or ("",), 0, index_in_subject=0)
