"""`Protocol`, a frozen dataclass of the settings that all methods share, and its presets."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from bench.api.errors import UserError, did_you_mean

NLL_CLIP = 2.0**-24
"""Smallest probability in a log loss; smaller probabilities are raised to it.

2^-24 is the difference between 1 and the largest float32 below 1. So a mistake at confidence 1 costs no more than a
mistake at that float32.
"""


_MOST_BINS = 10_000
"""Largest allowed number of bins of the expected calibration error; test sets have too few answers for more."""


ECE_BINS = 10
"""Default number of bins of the expected calibration error."""


class ExemplarOrder(enum.Enum):
    """Order in which a prompt shows the exemplars of the question's subject."""

    DATASET = "dataset"
    """Order of the data set. All prompts of a subject then begin with the same exemplars (docs/methods.md §0.3)."""
    PERMUTED = "permuted"
    """Each question gets its own order, as in the official code (docs/methods.md §1.4). It is the first k of
    `default_rng(exemplar_seed + row).permutation(pool)`."""


class LetterRule(enum.Enum):
    """Rule by which an answer to a choice question counts as right."""

    EXACT = "exact"
    """The answer equals the right letter, after normalisation (docs/methods.md §1.7)."""
    SUBSTRING = "substring"
    """The right letter occurs anywhere in the answer, case-sensitively, as the official code checks (docs/methods.md §6
    #44)."""


class EmptyRule(enum.Enum):
    """Confidence for an empty answer; methods never get empty answers."""

    ZERO = "zero"
    """Confidence 0 (docs/methods.md §0.6)."""
    BASE_RATE = "base_rate"
    """The share of right answers among the method's training answers; 0 for a method without any (docs/methods.md
    §1.5)."""


class ValidationRule(enum.Enum):
    """Which questions of the training corpora (data sets pooled for training) become the validation split."""

    STRATIFIED = "stratified"
    """A random sample with `split_seed`, from each data set in proportion to its training rows."""
    PUBLISHED = "published"
    """As in the official code: the first rows of each data set's validation split, in proportion to its size. The first
    2,000 of these rows are kept and then permuted; 70 % of them are BoolQ's (docs/methods.md §1.2)."""


class KeptStep(enum.Enum):
    """Training step whose weights a method keeps."""

    LAST = "last"
    """The last step, as in papers and official code."""
    VALIDATION = "validation"
    """The step with the smallest loss on the validation answers (`bench.api.early_stopping`)."""


TEMPLATES: Mapping[str, str] = MappingProxyType({"choice": "choice/1", "open": "open/1", "query": "query/1"})
"""Kind of prompt -> name and version of its wording in `bench.prompts.templates`.

The versions are part of every protocol digest; a changed wording needs a new version.
"""


@dataclass(frozen=True)
class Protocol:
    """Settings that are equal for all methods; every result records their digest."""

    preset: str = "fixed"
    """Name of the preset on which these settings are based."""
    shots: int = 5
    """Number of exemplars before the question (paper, appendix on prompts)."""
    exemplar_order: ExemplarOrder = ExemplarOrder.DATASET
    """Order in which a prompt shows its exemplars (docs/methods.md §0.3)."""
    exemplar_seed: int = 23
    """Seed for permuting exemplars; 23 is the global seed of the official code (docs/methods.md §1.1)."""
    exemplar_sets: int = 0
    """Number of fixed exemplar sets per data set that prompts use in rotation, for tasks that sample exemplars. 0: each
    prompt samples its own exemplars (docs/methods.md §1.4)."""
    letters: str = "abcdefghijklmnopqrstuvwxyz"
    """Option letters in order; each must be one token of the model's tokenizer."""
    query_letters: str = "ab"
    """Letters of the two options of the self-check query: no, then yes (docs/methods.md §2.0)."""
    letter_rule: LetterRule = LetterRule.EXACT
    """Rule by which choice answers are graded (docs/methods.md §1.7)."""
    empty_rule: EmptyRule = EmptyRule.ZERO
    """Which confidence an empty answer gets (docs/methods.md §0.6)."""
    max_new_tokens_choice: int = 1
    """Number of tokens that are generated as an answer to a choice question (docs/methods.md §1.6)."""
    max_new_tokens_open: int = 30
    """Largest number of tokens generated as an answer to an open question (docs/methods.md §1.6)."""
    ece_bins: int = ECE_BINS
    """Number of equal-width bins of the expected calibration error (docs/methods.md §4)."""
    std_ddof: int = 0
    """Delta degrees of freedom of the standard deviation over subjects (docs/methods.md §4)."""
    validation_fraction: float = 0.1
    """Share of the train split that is held out as validation, for tasks without a validation split (docs/methods.md
    §1.2)."""
    split_seed: int = 23
    """Seed for holding out validation questions. The run's seed is not used, so that all seeds share the generated
    answers."""
    validation_rule: ValidationRule = ValidationRule.STRATIFIED
    """Which questions of the training corpora become the validation split (docs/methods.md §1.2)."""
    kept_step: KeptStep = KeptStep.VALIDATION
    """Training step whose weights are kept, for all methods (docs/methods.md §0.19)."""
    drop_contaminated: bool = True
    """Whether training questions that are also in a test set, or in the validation split by which steps are chosen, are
    left out (docs/methods.md §0.18). They are counted anyway."""

    def digest(self) -> str:
        """Return the first 16 hex digits of the SHA-256 over all fields and the versions of the prompt wordings."""
        fields = {k: v.value if isinstance(v, enum.Enum) else v for k, v in asdict(self).items()}
        fields["templates"] = dict(TEMPLATES)
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


FIXED = Protocol()
PAPER = replace(
    FIXED,
    preset="paper",
    exemplar_order=ExemplarOrder.PERMUTED,
    empty_rule=EmptyRule.BASE_RATE,
    validation_rule=ValidationRule.PUBLISHED,
    kept_step=KeptStep.LAST,
    drop_contaminated=False,
)
REFCODE = replace(PAPER, preset="refcode", letter_rule=LetterRule.SUBSTRING)
DEMO = replace(FIXED, preset="demo")

PRESETS: Mapping[str, Protocol] = MappingProxyType({p.preset: p for p in (FIXED, PAPER, REFCODE, DEMO)})

NOT_REPRODUCED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "paper": ("The self-check query in one line: the code's wording of it is taken (docs/methods.md §6 #47).",),
        "refcode": (
            "A judge at the server's temperature, and yes found anywhere in its text (docs/methods.md §1.7, §6 #45).",
            "A second begin token before what features are read from (docs/methods.md §6 #33).",
            (
                "Line ends deleted within answers of Qwen: only end tokens are taken off, at the end"
                " (docs/methods.md §6 #32)."
            ),
        ),
    }
)
"""Name of a preset -> what its source does and this protocol doesn't; `bench show protocol` lists these sentences."""


def get_preset(preset: str) -> Protocol:
    """Return the protocol of a preset.

    Raises:
        UserError: no preset has this name.
    """
    if preset not in PRESETS:
        hint = did_you_mean(preset, PRESETS)
        raise UserError(f"Unknown preset {preset!r}: expected one of {', '.join(PRESETS)}.{hint}")
    return PRESETS[preset]


def with_fields(preset: str, values: Mapping[str, object]) -> Protocol:
    """Return the protocol of a preset with some fields replaced.

    Args:
        preset: name of the preset.
        values: name of a field -> new value, of a JSON type.

    Raises:
        UserError: the preset or a field is unknown, or a value is invalid.
    """
    protocol = get_preset(preset)
    protocol = replace(protocol, **{key: _convert(protocol, key, value) for key, value in values.items()})
    minimum = dict.fromkeys(("shots", "exemplar_seed", "exemplar_sets", "std_ddof", "split_seed"), 0)
    minimum |= dict.fromkeys(("max_new_tokens_choice", "max_new_tokens_open", "ece_bins"), 1)
    for key, bound in minimum.items():
        if getattr(protocol, key) < bound:
            raise UserError(f"--set protocol.{key}: expected at least {bound}, got {getattr(protocol, key)}.")
    if protocol.ece_bins > _MOST_BINS:
        raise UserError(f"--set protocol.ece_bins: expected at most {_MOST_BINS:,}, got {protocol.ece_bins}.")
    if not 0 <= protocol.validation_fraction < 1:
        raise UserError(
            f"--set protocol.validation_fraction: expected a share from 0 to 1, got {protocol.validation_fraction}."
        )
    for key, letters in (("letters", protocol.letters), ("query_letters", protocol.query_letters)):
        if len(set(letters.casefold())) != len(letters) or len(letters) < 2 or not letters.isalnum():
            raise UserError(f"--set protocol.{key}: expected different letters, two at least, got {letters!r}.")
    if len(protocol.query_letters) != 2:
        raise UserError(f"--set protocol.query_letters: expected two letters, got {protocol.query_letters!r}.")
    return protocol


def _convert(protocol: Protocol, key: str, value: object) -> Any:
    """Convert a JSON value to the type of the protocol's field `key`."""
    fields = {name: default for name, default in vars(protocol).items() if name != "preset"}
    if key not in fields:
        raise UserError(
            f"protocol has no field {key!r}: expected one of {', '.join(fields)}.{did_you_mean(key, fields)}"
        )
    kind = type(fields[key])
    if not issubclass(kind, enum.Enum):
        if type(value) is kind:
            return value
        raise UserError(f"protocol.{key}: expected a value of type {kind.__name__}, got {value!r}.")
    members = {member.value: member for member in kind}
    if not isinstance(value, str) or value not in members:
        raise UserError(f"protocol.{key}: expected one of {', '.join(members)}, got {value!r}.")
    return members[value]
