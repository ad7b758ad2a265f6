"""A head on disk: its card (`head.json`), what goes with it, and whether it is whole.

A head is a folder of JSON and safetensors files, without pickle: whoever reads it executes nothing of it. `head.json`
names every other file by its SHA-256 and is sealed itself, so that no change goes unnoticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from bench.api import UserError
from bench.model.specs import NAME, model_label
from bench.results.row import LabelsSeen
from bench.store.decoding import decoded, parsed
from bench.store.files import write_json
from bench.store.folders import DIGEST, digest_file, sealed
from bench.store.locks import folder_lock

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel

FORMAT = 1
"""Version of the folder; raised by every change of its files or fields."""
KIND = "confbench head"
CARD = "head.json"
ASKED, KEPT, KEPT_ARRAYS, OUTPUT = "asked.json", "kept.json", "kept.safetensors", "output.safetensors"
METHOD, ADAPTER = "method", "adapter"
"""Folders: what the method learned, and the adapter that it trained."""
_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt", "tokenizer_config.json")
_DIGITS = 16
"""Hex digits of a fingerprint that are shown."""
_ENDINGS = frozenset({".json", ".safetensors"})
_NAME = f"(?:{NAME.pattern})"
Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
Count = Annotated[int, Meta(ge=0, description="a whole number of at least 0")]
Name = Annotated[str, Meta(pattern=rf"\A{_NAME}\Z", description="a name of letters, digits and single . _ + -")]
ModelName = Annotated[str, Meta(pattern=rf"\A{_NAME}(/{_NAME})?\Z", description="an alias or an id 'org/model'")]
HeadName = Annotated[str, Meta(pattern=rf"\A{_NAME}_?((/|--){_NAME}_?)*\Z", description="a head's name")]
_WAY_OUT = "copy the whole folder again, or make it again with bench run --save-heads"


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """The model that the head belongs to."""

    model: ModelName
    """Alias or Hub id; of a local folder its label, never its path."""
    revision: str | None
    """Commit on the Hub; None of a local folder."""
    fingerprint: str
    """Identity of all that answers depend on: weights, tokenizer, chat template, stop tokens."""
    weights: str
    """Identity of the weights alone."""
    tokenizer: str
    """SHA-256 of the tokenizer's files."""
    chat_template: str
    """SHA-256 of the chat template."""
    dtype: str
    attention: str
    trust_remote_code: bool = False
    """Whether code that comes with the model was run."""

    @classmethod
    def of(cls, lm: LanguageModel, model: str) -> ModelCard:
        """The model as a head names it; `model`: as it was named on the command line."""
        tokenizer = hashlib.sha256()
        for path in (lm.folder / name for name in _TOKENIZER):
            if path.is_file():
                tokenizer.update(f"{path.name} {digest_file(path)}\n".encode())
        template = lm.chat.template or lm.chat.tokenizer.chat_template
        return cls(
            model=model_label(model),
            revision=lm.files.commit,
            fingerprint=lm.fingerprint,
            weights=lm.files.weights,
            tokenizer=tokenizer.hexdigest(),
            chat_template=hashlib.sha256(str(template).encode("utf-8", "surrogatepass")).hexdigest(),
            dtype=lm.dtype_name,
            attention=lm.attention,
            trust_remote_code=lm.options.trust_remote_code,
        )

    def differences(self, other: ModelCard) -> list[str]:
        """Parts in which two models differ, in words; empty where they are the same."""
        if self.fingerprint == other.fingerprint:
            return []
        names = ("weights", "tokenizer", "chat_template")
        parts = [name.replace("_", " ") for name in names if getattr(self, name) != getattr(other, name)]
        return parts or ["other files that change what is asked or answered"]

    @property
    def short(self) -> str:
        """Its fingerprint as messages show it: a Hub id with the beginning of its commit, or of a digest."""
        name, at, commit = self.fingerprint.rpartition("@")
        return f"{name}{at}{commit[:_DIGITS]}"


@dataclass(frozen=True, kw_only=True)
class MethodCard:
    """The method, with its constants."""

    name: Name
    recalibration: str | None
    """Map that its confidences go through at last, e.g. isotonic; None: none."""
    plugin: str
    """`built-in`, a distribution with its version, or the name of a file of `--plugin`."""
    version: str
    """Version of confbench that made the head."""
    code: str
    """Digest of the method's source."""
    preset: Name
    constants: Mapping[str, Any]
    """Arguments of the method."""
    signals: tuple[str, ...]
    """Signals that it reads of the model, in the words of `bench.api`."""
    trains: bool
    adapter: bool
    """Whether it reads through an adapter of its own, which is in the head."""
    parameters: Count | None
    """Trained parameters."""


@dataclass(frozen=True, kw_only=True)
class ProtocolCard:
    """Numbers by which questions are asked; words and exemplars are in `asked.json`."""

    task: Name
    task_version: Count
    format: Literal["choice", "open"]
    letters: str
    """Letters of the options that its questions had; empty for open questions."""
    protocol: Mapping[str, Any]
    """Shared numbers; see `bench show protocol`."""
    digest: str
    """Digest of these and of the wordings."""
    prompt_tokens: Count | None
    """Length above which a prompt loses exemplars; None: the model's context alone."""
    answers: str
    """Source of the answers that it learned from and was tested on."""
    seed: int
    """Seed of the run, by which samples are drawn."""
    judge: Mapping[str, str | None]
    """Judge that says whether samples agree, and models that relate them; options of `bench run`."""


@dataclass(frozen=True, kw_only=True)
class LearnedCard:
    """Answers that the method learned from."""

    train_on: str | None
    """Task and split; None where it learns nothing."""
    task_version: int | None
    rows: Count
    """Answers that it learned from."""
    labels: LabelsSeen
    base_rate: Share | None
    """Share of right answers among them."""


@dataclass(frozen=True, kw_only=True)
class TestMetric:
    """A metric of the test with its interval."""

    value: float | None
    """Of all questions, as in tables."""
    low: float | None
    """Lower end of the 95 % interval, for these subjects and other questions; None where there is none."""
    high: float | None


@dataclass(frozen=True, kw_only=True)
class TestCard:
    """Numbers of the head's test."""

    n: Count
    limit: Count | None
    """Questions asked for with `--limit`; None for the whole task."""
    accuracy: Share | None
    """Share of right answers: the model's, not the head's."""
    metrics: Mapping[str, TestMetric]
    records: str | None
    """SHA-256 of the cell's Parquet file."""


@dataclass(frozen=True, kw_only=True)
class OutputCard:
    """Maps that turn the method's numbers into confidences."""

    empty: Share
    """Confidence in an answer without text."""
    scale: tuple[float, ...]
    """Slope and level by which scores become confidences; empty where the method gives these. The labelled scores are
    in `output.safetensors`."""
    labelled: Count
    """Validation answers by which it was scaled."""
    parameters: Mapping[str, float]
    """Parameters of the recalibration; its steps are in `output.safetensors`."""


@dataclass(frozen=True, kw_only=True)
class GuardCard:
    """Confidence from which on its answers are trusted, by `bench guard`."""

    threshold: Share
    """Answers with this confidence or more are trusted."""
    risk: Share
    """Largest share of mistakes among them."""
    level: Share
    """Least chance with which that holds."""
    bound: Share
    """Upper bound of the mistakes at this level, of this threshold by itself."""
    task: Name
    """Task whose test questions chose it; the head learned nothing from them."""
    answers: Count
    """Answers to these questions."""
    kept: Count
    """Those at the threshold or above."""
    mistakes: Count
    """Wrong ones among these."""
    share: Share | None
    """Share of the test's questions that chose it; None where it was another task's, all of them."""
    split_seed: int | None
    """Seed of that division."""

    @property
    def name(self) -> str:
        """The guard by which a line of `bench score` says trusted or not.

        >>> guard = GuardCard(threshold=0.7, risk=0.05, level=0.9, bound=0.048, task="bees", answers=600, kept=300,
        ...                   mistakes=8, share=0.5, split_seed=0)
        >>> guard.name
        'bees: risk 0.05, level 0.9, threshold 0.7'
        """
        return f"{self.task}: risk {self.risk:g}, level {self.level:g}, threshold {self.threshold:.6g}"

    @property
    def terms(self) -> str:
        """The guard in words."""
        return (
            f"answers with a confidence of {self.threshold:.6g} or more (at most {100 * self.risk:.6g} % of them wrong,"
            f" with a chance of {100 * self.level:.6g} %)"
        )

    def trusts(self, confidence: float, *, own: bool) -> bool | None:
        """Return whether an answer with this confidence is trusted; one without a confidence (NaN) never is.

        Args:
            confidence: of the answer.
            own: whether the model gave the answer itself, and it can be read; the guard says nothing of others: None.
        """
        return bool(confidence >= self.threshold) if own else None


@dataclass(frozen=True, kw_only=True)
class Card:
    """All that is known of a head."""

    name: HeadName
    """Name in the files that it scores, e.g. `tiny/atlas-choice/ccps--demo--s0`."""
    backbone: ModelCard
    method: MethodCard
    asked: ProtocolCard
    learned: LearnedCard
    test: TestCard
    output: OutputCard
    kept: Count
    """Test questions that are kept for `bench head check`."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Code, packages and hardware."""
    guard: GuardCard | None = None
    """None until `bench guard --head` has written one."""


def write_card(card: Card, folder: Path) -> None:
    """Write the card of a folder in which everything else is.

    Raises:
        UserError: a file is neither JSON nor safetensors: another kind may execute code when it is read.
    """
    files = {}
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        if path.suffix not in _ENDINGS:
            raise UserError(f"it saves {name}; a head holds JSON and safetensors only")
        files[name] = digest_file(path)
    values = {"kind": KIND, "format": FORMAT, **asdict(card), "files": files}
    write_json(folder / CARD, sealed(json.loads(json.dumps(values))), sort_keys=True)


def write_guard(folder: Path, guard: GuardCard) -> None:
    """Put a guard into the card of a head, in the place of the one before; whole or not at all.

    Raises:
        UserError: as `read_card`, or the card can't be written.
    """
    try:
        with folder_lock(folder):
            write_card(replace(read_card(folder), guard=guard), folder)
    except OSError as error:
        raise UserError(f"--head {folder}: {CARD} can't be written ({error.strerror or error}).") from error


def is_head(folder: Path) -> bool:
    """Whether a folder holds a head, whole or not: something of ours, that may be replaced."""
    try:
        values = parsed((folder / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(values, dict) and values.get("kind") == KIND


def read_card(folder: Path) -> Card:
    """The card of a head, of which every file is as it was written.

    Raises:
        UserError: there is none, it is of another format, or a file is missing, damaged or too much.
    """
    if not folder.is_dir():
        # heads of the same model and task; a run with `--limit` puts them below `partial`
        *root, model, task, _ = ("", "", "", *folder.parts)
        places = (Path(*root, model, task), Path(*root, "partial", model, task))
        near = _listed("; there is", [path.parent.as_posix() for place in places for path in place.glob(f"*/{CARD}")])
        raise UserError(f"--head {folder}: expected a folder that bench run --save-heads wrote, found none{near}.")
    try:
        values = parsed((folder / CARD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        below = [path.parent.relative_to(folder).as_posix() for path in folder.glob(f"**/{CARD}")]
        inside = _listed("; it has heads in", below)
        raise UserError(f"--head {folder}: expected {CARD} in it, found none{inside}.") from None
    except OSError as error:
        raise UserError(f"--head {folder}: {CARD} can't be read ({error.strerror or error}); try again.") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"--head {folder}: {CARD} is damaged ({str(error)[:100]}); {_WAY_OUT}.") from error
    if not isinstance(values, dict) or values.get("kind") != KIND:
        raise UserError(f"--head {folder}: its {CARD} is not that of a head; {_WAY_OUT}.")
    if values.get("format") != FORMAT:
        raise UserError(
            f"--head {folder}: expected format {FORMAT}, which this version of confbench reads, got"
            f" {values.get('format')!r:.40}; use the version that made it, or make it again: bench run --save-heads."
        )
    if values.get(DIGEST) != sealed(values)[DIGEST]:
        raise UserError(f"--head {folder}: {CARD} was changed since it was written; {_WAY_OUT}.")
    try:
        card = decoded({name: values[name] for name in values.keys() - {"kind", "format", "files", DIGEST}}, Card)
    except ValueError as error:
        raise UserError(f"--head {folder}: {CARD}: {error}; {_WAY_OUT}.") from error
    named: Any = values.get("files")
    named = named if isinstance(named, dict) else {}
    found = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    for name in sorted(named.keys() | found.keys()):
        if name not in found:
            raise UserError(f"--head {folder}: {name} is missing; {_WAY_OUT}.")
        if name not in named:
            raise UserError(f"--head {folder}: {name} is no file of this head; take it out, or {_WAY_OUT}.")
        try:
            same = digest_file(found[name]) == named[name]
        except OSError as error:
            raise UserError(f"--head {folder}: {name} can't be read ({error.strerror or error}).") from error
        if not same:
            raise UserError(f"--head {folder}: {name} was altered or cut short; {_WAY_OUT}.")
    return card


def _listed(what: str, heads: Iterable[str]) -> str:
    """Hint to the first of some heads."""
    found = sorted(heads)
    return f"{what} {', '.join(found[:3])}{' ...' if len(found) > 3 else ''}" if found else ""  # noqa: PLR2004


def _files(folder: Path) -> Iterator[Path]:
    """All files but the card, in order, and but what a killed process left of a new card."""
    left = set(folder.glob(".*.tmp"))
    yield from (path for path in sorted(folder.rglob("*")) if path.is_file() and path not in {folder / CARD, *left})
