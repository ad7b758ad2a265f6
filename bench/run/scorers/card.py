"""Read and write the card of a head (a fitted method on disk), the file `head.json`, and check the head's other files.

A head is a folder of JSON and safetensors files without pickle, so that reading a head executes no code. `head.json`
holds the SHA-256 of every other file and a digest of itself, so that every change is detected.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from bench.api import UserError
from bench.model.language_model import LanguageModel
from bench.model.specs import NAME, model_label
from bench.results.row import Count, LabelsSeen, Share
from bench.store.decoding import decode_record, parse_json
from bench.store.disk_cache import DIGEST, digest_file, with_digest
from bench.store.files import named_errors, write_json
from bench.store.locks import folder_lock

FORMAT = 1
"""Version of the file format of heads; raised whenever their files or fields change."""
KIND = "confbench head"
CARD = "head.json"
WORDS, ITEMS, ARRAYS, OUTPUT = "asked.json", "kept.json", "kept.safetensors", "output.safetensors"
METHOD, ADAPTER = "method", "adapter"
"""Subfolders of a head: one for the fitted method, one for the adapter that the method trained."""
_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt", "tokenizer_config.json")
_DIGITS = 16
"""Number of hex digits that messages show of a fingerprint."""
_ENDINGS = frozenset({".json", ".safetensors"})
_NAME = f"(?:{NAME.pattern})"
Name = Annotated[str, Meta(pattern=rf"\A{_NAME}\Z", description="a name of letters, digits and single . _ + -")]
ModelName = Annotated[str, Meta(pattern=rf"\A{_NAME}(/{_NAME})?\Z", description="an alias or an id 'org/model'")]
HeadName = Annotated[str, Meta(pattern=rf"\A{_NAME}_?((/|--){_NAME}_?)*\Z", description="a head's name")]
_WAY_OUT = "copy the whole folder again, or make it again with bench run --save-heads"


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """The model with which a head was made."""

    model: ModelName
    """Alias or Hub id of the model; for a model in a local folder a label, never the path."""
    revision: str | None
    """Commit of the model on the Hub; None for a local folder."""
    fingerprint: str
    """Identity of all that answers depend on: weights, tokenizer, chat template and stop tokens."""
    weights: str
    """Identity of the model's weights alone."""
    tokenizer: str
    """SHA-256 of the tokenizer's files."""
    chat_template: str
    """SHA-256 of the chat template."""
    text_before_answers: str = ""
    """Text that the chat template writes between its generation prompt and answers, which heads once left out."""
    dtype: str
    attention: str
    trust_remote_code: bool = False
    """Whether code that comes with the model's files was executed."""

    @classmethod
    def of(cls, lm: LanguageModel, model: str) -> ModelCard:
        """Describe a loaded model.

        Args:
            lm: the model.
            model: its name on the command line.
        """
        tokenizer = hashlib.sha256()
        for path in (lm.folder / name for name in _TOKENIZER):
            if path.is_file():
                tokenizer.update(f"{path.name} {digest_file(path)}\n".encode())
        template = lm.chat.template or lm.chat.tokenizer.chat_template
        return cls(
            model=model_label(model),
            revision=lm.files.commit,
            fingerprint=lm.files.fingerprint,
            weights=lm.files.weights,
            tokenizer=tokenizer.hexdigest(),
            chat_template=hashlib.sha256(str(template).encode("utf-8", "surrogatepass")).hexdigest(),
            text_before_answers=lm.chat.gap,
            dtype=lm.dtype_name,
            attention=lm.attention,
            trust_remote_code=lm.options.trust_remote_code,
        )

    def differences(self, other: ModelCard) -> list[str]:
        """Return in words the parts that two models don't share, e.g. "tokenizer"; empty if the models are the same."""
        same = self.fingerprint == other.fingerprint
        names = [*["weights", "tokenizer", "chat_template"] * (not same), "text_before_answers"]
        parts = [name.replace("_", " ") for name in names if getattr(self, name) != getattr(other, name)]
        return parts or ["other files that change what is asked or answered"] * (not same)

    @property
    def short(self) -> str:
        """Short fingerprint for messages: a Hub id with the first digits of its commit, or the start of a digest."""
        name, at, commit = self.fingerprint.rpartition("@")
        return f"{name}{at}{commit[:_DIGITS]}"


@dataclass(frozen=True, kw_only=True)
class MethodCard:
    """The method of a head, with its constants."""

    name: Name
    recalibration: str | None
    """Recalibrator of the method's confidences, e.g. isotonic; None if they are not recalibrated."""
    plugin: str
    """Origin of the method: `built-in`, an installed distribution with its version, or the name of a plugin file."""
    version: str
    """Version of confbench with which the head was made."""
    code: str
    """Digest of the source code of the method's class."""
    preset: Name
    constants: Mapping[str, Any]
    """Name of a constant -> value, as arguments of the method's constructor."""
    signals: tuple[str, ...]
    """Signals that the method predicts from, as `repr` of `bench.api` classes."""
    trains: bool
    adapter: bool
    """Whether the method runs the model with an adapter that it trained; if so, the head holds the adapter."""
    parameters: Count | None
    """Number of trained parameters; None if unknown."""


@dataclass(frozen=True, kw_only=True)
class ProtocolCard:
    """Settings of a head's prompts and samples; their wording and exemplars are in `asked.json`."""

    task: Name
    task_version: Count
    format: Literal["choice", "open"]
    letters: str
    """Letters of a question's options, such as "abcd"; empty for open questions."""
    protocol: Mapping[str, Any]
    """Constants of the protocol, which all methods share; see `bench show protocol`."""
    digest: str
    """Digest of the protocol's constants and of the prompts' wording."""
    prompt_tokens: Count | None
    """Largest length of a prompt in tokens; longer prompts drop exemplars. None: the model's context length."""
    answers: str
    """Source of the answers on which the method was trained and tested."""
    traces: bool = False
    """Whether answers of its test follow reasoning traces."""
    seed: int
    """Seed of the run, by which samples are drawn."""
    judge: Mapping[str, str | None]
    """Option of `bench run` -> value, for the judge or models that compare the method's samples; empty without any."""


@dataclass(frozen=True, kw_only=True)
class LearnedCard:
    """Training data of a head's method."""

    train_on: str | None
    """Task and split of the training answers; None if the method is untrained."""
    task_version: int | None
    rows: Count
    """Number of training answers."""
    labels: LabelsSeen
    base_rate: Share | None
    """Share of right answers among the training answers."""


@dataclass(frozen=True, kw_only=True)
class TestMetric:
    """Value of one metric on the test split, with its interval."""

    value: float | None
    """Value over all questions, with a negative RMSCE set to 0 as in tables; None if the metric is undefined."""
    low: float | None
    """Lower end of the 95 % interval for fixed subjects, within which questions are sampled; None without an
    interval."""
    high: float | None


@dataclass(frozen=True, kw_only=True)
class TestCard:
    """Results of a head on the test split of its run."""

    n: Count
    limit: Count | None
    """Value of `--limit`, the largest number of test questions; None for the whole task."""
    accuracy: Share | None
    """Share of the model's answers that are right."""
    metrics: Mapping[str, TestMetric]
    records: str | None
    """SHA-256 of the Parquet file with the cell's per-question records."""


@dataclass(frozen=True, kw_only=True)
class OutputMapsCard:
    """Maps from the output of a head's method to confidences."""

    empty: Share
    """Confidence in an answer without text."""
    scale: tuple[float, ...]
    """Slope and level of the map from scores to confidences; empty if the method outputs confidences. The labelled
    scores that the map also needs are in `output.safetensors`."""
    labelled: Count
    """Number of labelled validation answers to which the map from scores to confidences was fitted."""
    parameters: Mapping[str, float]
    """Parameter of the recalibrator -> value; the recalibrator's arrays are in `output.safetensors`."""


@dataclass(frozen=True, kw_only=True)
class GuardCard:
    """Guard of a head, chosen by `bench guard`: answers with a confidence of at least its threshold are trusted."""

    threshold: Share
    """Smallest confidence of an answer that is trusted."""
    risk: Share
    """Largest allowed share of wrong answers among the trusted ones."""
    level: Share
    """Smallest probability with which the share of wrong answers is at most `risk`."""
    bound: Share
    """Upper confidence bound of the share of wrong answers among the trusted ones, for this threshold alone. Its
    confidence level is `level`."""
    task: Name
    """Task whose test questions calibrated the threshold; the head's method was not trained on these questions."""
    answers: Count
    """Number of answers on which the threshold was calibrated."""
    kept: Count
    """Number of calibration answers whose confidence is at least the threshold."""
    mistakes: Count
    """Number of wrong answers among the calibration answers whose confidence is at least the threshold."""
    share: Share | None
    """Share of the test questions that was used for calibration; None if all questions of another task were used."""
    split_seed: int | None
    """Seed by which the calibration questions were drawn; None if all questions of the task were used."""

    @property
    def name(self) -> str:
        """Name of the guard in the output lines of `bench score`.

        >>> guard = GuardCard(threshold=0.7, risk=0.05, level=0.9, bound=0.048, task="bees", answers=600, kept=300,
        ...                   mistakes=8, share=0.5, split_seed=0)
        >>> guard.name
        'bees: risk 0.05, level 0.9, threshold 0.7'
        """
        return f"{self.task}: risk {self.risk:g}, level {self.level:g}, threshold {self.threshold:.6g}"

    @property
    def terms(self) -> str:
        """The guard in words: threshold, allowed share of wrong answers, and probability that the share is kept."""
        return (
            f"answers with a confidence of {self.threshold:.6g} or more (at most {100 * self.risk:.6g} % of them wrong,"
            f" with a chance of {100 * self.level:.6g} %)"
        )

    def trusts(self, confidence: float, *, own: bool) -> bool | None:
        """Return whether an answer is trusted; None if the guard says nothing about the answer.

        Args:
            confidence: confidence in the answer; NaN is never trusted.
            own: whether the model itself generated the answer, and it could be parsed; the guard covers only such
                answers.
        """
        return bool(confidence >= self.threshold) if own else None


@dataclass(frozen=True, kw_only=True)
class ServerCheckCard:
    """Whether a head says on a server what it said in its run, by `bench head check`."""

    model: ModelName
    """Name of the server's model in results."""
    passed: bool
    questions: Count
    """Number of reference questions that were compared."""
    confidence: float
    """Largest difference of a confidence."""
    states: float
    """Largest mean relative difference of hidden states at one place."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """Contents of `head.json`: from what a head was made, and its results on the test split of its run."""

    name: HeadName
    """Name of the head in the output of `bench score`, e.g. `tiny/atlas-choice/ccps--demo--s0`."""
    backbone: ModelCard
    method: MethodCard
    asked: ProtocolCard
    learned: LearnedCard
    test: TestCard
    output: OutputMapsCard
    kept: Count
    """Number of reference questions in the head, which `bench head check` reads again."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Code version, packages and hardware of the run that made the head."""
    guard: GuardCard | None = None
    """Guard that `bench guard --head` wrote; None if there is none."""
    servers: tuple[ServerCheckCard, ...] = ()
    """Servers on which the head was checked."""


def write_card(card: Card, folder: Path) -> None:
    """Write the card of a head into its folder; all other files must be there, since the card holds their digests.

    Raises:
        UserError: a file is neither JSON nor safetensors; reading files of other types may execute code.
    """
    files = {}
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        if path.suffix not in _ENDINGS:
            raise UserError(f"it saves {name}; a head holds JSON and safetensors only")
        files[name] = digest_file(path)
    values = {"kind": KIND, "format": FORMAT, **asdict(card), "files": files}
    write_json(folder / CARD, with_digest(json.loads(json.dumps(values))), sort_keys=True)


def write_guard(folder: Path, guard: GuardCard) -> None:
    """Replace the guard in the card of a head.

    Raises:
        UserError: see `_rewrite`.
    """
    _rewrite(folder, lambda card: replace(card, guard=guard))


def write_check(folder: Path, check: ServerCheckCard) -> None:
    """Put the check of a head on a server into its card, in place of an earlier one on this server.

    Raises:
        UserError: see `_rewrite`.
    """
    _rewrite(folder, lambda card: replace(card, servers=(*(c for c in card.servers if c.model != check.model), check)))


def _rewrite(folder: Path, change: Callable[[Card], Card]) -> None:
    """Change the card of a head; readers see either the old or the new card.

    Raises:
        UserError: the head can't be read (see `read_card`), or its card can't be written.
    """
    with named_errors(f"--head {folder}: {CARD} can't be written", "."), folder_lock(folder):
        write_card(change(read_card(folder)), folder)


def is_head(folder: Path, kind: str = KIND) -> bool:
    """Return whether a folder holds a head; its files may be damaged, but `head.json` must be valid JSON.

    A run that writes a head overwrites an existing folder only if the folder holds a head; `bench head export` does so
    with an exported head, which is of another kind.
    """
    try:
        values = parse_json((folder / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(values, dict) and values.get("kind") == kind


def read_card(folder: Path) -> Card:
    """Read the card of a head, and check the digest of every file of the head.

    Raises:
        UserError: there is no head, its format has another version, or a file is missing, damaged or not listed.
    """
    if not folder.is_dir():
        # suggest heads of the same model and task; a run with `--limit` puts its heads below `partial`
        *root, model, task, _ = ("", "", "", *folder.parts)
        places = (Path(*root, model, task), Path(*root, "partial", model, task))
        hint = _hint("; there is", [path.parent.as_posix() for place in places for path in place.glob(f"*/{CARD}")])
        raise UserError(f"--head {folder}: expected a folder that bench run --save-heads wrote, found none{hint}.")
    try:
        values = parse_json((folder / CARD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        below = [path.parent.relative_to(folder).as_posix() for path in folder.glob(f"**/{CARD}")]
        inside = _hint("; it has heads in", below)
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
    if values.get(DIGEST) != with_digest(values)[DIGEST]:
        raise UserError(f"--head {folder}: {CARD} was changed since it was written; {_WAY_OUT}.")
    try:
        card = decode_record({name: values[name] for name in values.keys() - {"kind", "format", "files", DIGEST}}, Card)
    except ValueError as error:
        raise UserError(f"--head {folder}: {CARD}: {error}; {_WAY_OUT}.") from error
    digests: Any = values.get("files")
    digests = digests if isinstance(digests, dict) else {}
    files = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    for name in sorted(digests.keys() | files.keys()):
        if name not in files:
            raise UserError(f"--head {folder}: {name} is missing; {_WAY_OUT}.")
        if name not in digests:
            raise UserError(f"--head {folder}: {name} is no file of this head; take it out, or {_WAY_OUT}.")
        with named_errors(f"--head {folder}: {name} can't be read", "."):
            same = digest_file(files[name]) == digests[name]
        if not same:
            raise UserError(f"--head {folder}: {name} was altered or cut short; {_WAY_OUT}.")
    return card


def _hint(what: str, folders: Iterable[str]) -> str:
    """Return a hint for an error message: the text `what`, and the first three of `folders`; empty without folders."""
    names = sorted(folders)
    return f"{what} {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}" if names else ""


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a head, sorted, except its card and temporary files that a killed process left."""
    left = set(folder.glob(".*.tmp"))
    yield from (path for path in sorted(folder.rglob("*")) if path.is_file() and path not in {folder / CARD, *left})
