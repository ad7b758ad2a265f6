"""Sequence-classification models that read two texts at once: entailment, and similarity by a cross-encoder."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import transformers

from bench.api import FloatArray, UserError
from bench.model import specs
from bench.model.folder import ModelFolder, find_model_folder

_AT_ONCE = 32
"""Pairs of one pass, all of one length: none is padded."""
_SHORT = 8
"""Hex digits of a revision in the model's name."""
_ENTAILMENT = ("contradict", "neutral", "entail")
"""Beginnings of the labels, in the order in which their probabilities are given."""


@dataclass(frozen=True)
class PairModel:
    """A model that says something about each of many pairs of texts; in memory only while it does."""

    option: str
    """Option that named it, e.g. `--nli`."""
    source: str
    """Hub id or folder."""
    device: str
    trust_remote_code: bool = False

    @cached_property
    def files(self) -> ModelFolder:
        """The model's files.

        Raises:
            UserError: they can't be had.
        """
        try:
            return find_model_folder(specs.resolve(self.source), trust_remote_code=self.trust_remote_code)
        except UserError as error:
            raise UserError(f"{self.option} {self.source}: {error}") from error

    @cached_property
    def labels(self) -> list[str]:
        """The labels of its configuration, in lower case."""
        config = self.files.config()
        return [str(config.id2label[k]).lower() for k in range(int(config.num_labels))]

    @property
    def name(self) -> str:
        """The model with the beginning of its revision, or of a digest of its files."""
        return f"{specs.model_label(self.source)}@{self.files.fingerprint.rpartition('@')[2][:_SHORT]}"

    def check(self) -> None:
        """Refuse a model that was trained for something else.

        Raises:
            UserError: a label is missing, or there is more than one number.
        """
        if self.option == "--similarity":
            if len(self.labels) != 1:
                raise UserError(
                    f"--similarity {self.source}: expected a cross-encoder with one number for two texts, got a model"
                    f" with {len(self.labels)} labels; name another, such as cross-encoder/stsb-roberta-large."
                )
            return
        self._entailment_rows()

    def relate(self, pairs: Sequence[tuple[str, str]], advance: Callable[[int], None]) -> FloatArray:
        """Probabilities `(k, 3)` of contradiction, neutral and entailment, or similarities `(k,)` by the sigmoid.

        What is longer than the model can read is cut, the longer text first.

        Raises:
            UserError: its weights or its tokenizer can't be read.
        """
        tokenizer = self.files.tokenizer()
        with self.files.wrap_errors("it can't be loaded"):
            self.files.check_weights()
            transformers.utils.logging.disable_progress_bar()  # a run has its own
            model, found = transformers.AutoModelForSequenceClassification.from_pretrained(
                self.files.path, dtype=torch.float32, use_safetensors=True, output_loading_info=True,
                trust_remote_code=self.trust_remote_code,
            )  # fmt: skip
            missing = sorted(found["missing_keys"])
            if missing:  # they would be drawn at random
                raise ValueError(f"{len(missing)} weights are missing from its files, e.g. {missing[0]}")
            model = model.to(self.device).eval()
        try:
            logits = np.zeros((len(pairs), len(self.labels)), dtype=np.float32)
            # tokens that it can read; some models count positions from 2 on
            positions = int(getattr(model.config, "max_position_embeddings", None) or 514) - 2
            texts, most = [*map(list, zip(*pairs, strict=True))], min(int(tokenizer.model_max_length), positions)
            encoded = tokenizer(*texts, truncation="longest_first", max_length=most) if pairs else {"input_ids": []}
            same: dict[int, list[int]] = defaultdict(list)
            for row, ids in enumerate(encoded["input_ids"]):
                same[len(ids)].append(row)
            for _, group in sorted(same.items()):
                for rows in (group[start : start + _AT_ONCE] for start in range(0, len(group), _AT_ONCE)):
                    given = {
                        name: torch.as_tensor(np.asarray([values[row] for row in rows]), device=self.device)
                        for name, values in encoded.items()
                    }
                    with torch.inference_mode():
                        logits[rows] = model(**given).logits.float().cpu().numpy()
                    advance(len(rows))
        finally:
            del model
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        if self.option == "--similarity":
            return torch.from_numpy(logits[:, 0]).sigmoid().numpy()
        rows = self._entailment_rows()
        return torch.from_numpy(logits).softmax(dim=-1)[:, rows].numpy()

    def _entailment_rows(self) -> list[int]:
        """Rows of contradiction, neutral and entailment among the labels."""
        rows = [[k for k, label in enumerate(self.labels) if label.startswith(word)] for word in _ENTAILMENT]
        if len(self.labels) != len(rows) or any(len(found) != 1 for found in rows):
            raise UserError(
                f"{self.option} {self.source}: expected a model with the labels contradiction, neutral and entailment"
                f" in its config.json, got {', '.join(self.labels[:5]) or 'none'}; name another, such as"
                " microsoft/deberta-large-mnli."
            )
        return [row for (row,) in rows]
