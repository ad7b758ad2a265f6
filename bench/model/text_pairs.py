"""Sequence-classification models for pairs of texts: entailment (NLI), or similarity by a cross-encoder."""

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
from bench.model.folder import ModelFolder, find_model_folder, load_full

_AT_ONCE = 32
"""Largest number of pairs of a batch. All pairs of a batch have the same length, so that none is padded."""
_SHORT = 8
"""Number of hex digits of the model's revision at the end of the model's name in results."""
_ENTAILMENT = ("contradict", "neutral", "entail")
"""First letters of the three NLI classes, in the order of the columns that `PairModel.relate` returns."""


@dataclass(frozen=True)
class PairModel:
    """A classifier of text pairs, loaded only while `relate` runs."""

    option: str
    """Command-line option that names the model: `--similarity` for a cross-encoder, other options such as `--nli` for
    an NLI model."""
    source: str
    """Hub id, or path of a local folder."""
    device: str
    trust_remote_code: bool = False

    @cached_property
    def files(self) -> ModelFolder:
        """Folder of the model's files on this machine.

        Raises:
            UserError: the files can't be found or downloaded.
        """
        try:
            return find_model_folder(specs.resolve(self.source), trust_remote_code=self.trust_remote_code)
        except UserError as error:
            raise UserError(f"{self.option} {self.source}: {error}") from error

    @cached_property
    def labels(self) -> list[str]:
        """Names of the classes in the model's configuration, in lower case."""
        config = self.files.config()
        return [str(config.id2label[k]).lower() for k in range(int(config.num_labels))]

    @property
    def name(self) -> str:
        """Name of the model in results; it ends with the first digits of its revision or of a digest of its files."""
        return f"{specs.model_label(self.source)}@{self.files.fingerprint.rpartition('@')[2][:_SHORT]}"

    def check(self) -> None:
        """Check that the model has the classes that its command-line option requires.

        Raises:
            UserError: an entailment label is missing, a similarity model does not have exactly one output, or the
                model's files can't be found or read.
        """
        if self.option == "--similarity":
            if len(self.labels) != 1:
                raise UserError(
                    f"--similarity {self.source}: expected a cross-encoder with one number for two texts, got a model"
                    f" with {len(self.labels)} labels; name another, such as cross-encoder/stsb-roberta-large."
                )
            return
        self._entailment_rows()

    def relate(
        self, pairs: Sequence[tuple[str, str]], advance: Callable[[int], None], *, question: bool = False
    ) -> FloatArray:
        """Return how the texts of k pairs are related.

        Pairs longer than the model's context are truncated, the longer text first: at its end, or at its beginning if
        that is a question.

        Args:
            pairs: the k pairs of texts.
            advance: called after each batch with the number of its pairs.
            question: whether each text begins with its question.

        Returns:
            For `--similarity`, similarities `(k,)`: sigmoid of the model's output. Otherwise probabilities `(k, 3)` of
            contradiction, neutral and entailment.

        Raises:
            UserError: the model's files can't be found or read, or an NLI model does not have the three classes.
        """
        tokenizer = self.files.tokenizer()
        tokenizer.truncation_side = "left" if question else "right"
        with self.files.wrap_errors("it can't be loaded"):
            self.files.check_weights()
            kind, trusted = transformers.AutoModelForSequenceClassification, self.trust_remote_code
            model = load_full(kind, self.files.path, dtype=torch.float32, trust_remote_code=trusted)
            model = model.to(self.device).eval()
        try:
            logits = np.zeros((len(pairs), len(self.labels)), dtype=np.float32)
            # tokens of the context; some models count positions from 2
            positions = int(getattr(model.config, "max_position_embeddings", None) or 514) - 2
            texts, limit = [*map(list, zip(*pairs, strict=True))], min(int(tokenizer.model_max_length), positions)
            encoded = tokenizer(*texts, truncation="longest_first", max_length=limit) if pairs else {"input_ids": []}
            rows_by_length: dict[int, list[int]] = defaultdict(list)
            for row, ids in enumerate(encoded["input_ids"]):
                rows_by_length[len(ids)].append(row)
            for _, group in sorted(rows_by_length.items()):
                for rows in (group[start : start + _AT_ONCE] for start in range(0, len(group), _AT_ONCE)):
                    inputs = {
                        name: torch.as_tensor(np.asarray([values[row] for row in rows]), device=self.device)
                        for name, values in encoded.items()
                    }
                    with torch.inference_mode():
                        logits[rows] = model(**inputs).logits.float().cpu().numpy()
                    advance(len(rows))
        finally:
            del model
            gc.collect()
            torch.cuda.empty_cache()
        if self.option == "--similarity":
            return torch.from_numpy(logits[:, 0]).sigmoid().numpy()
        rows = self._entailment_rows()
        return torch.from_numpy(logits).softmax(dim=-1)[:, rows].numpy()

    def _entailment_rows(self) -> list[int]:
        """Return the indices that contradiction, neutral and entailment have among the model's classes."""
        rows = [[k for k, label in enumerate(self.labels) if label.startswith(word)] for word in _ENTAILMENT]
        if len(self.labels) != len(rows) or any(len(matches) != 1 for matches in rows):
            raise UserError(
                f"{self.option} {self.source}: expected a model with the labels contradiction, neutral and entailment"
                f" in its config.json, got {', '.join(self.labels[:5]) or 'none'}; name another, such as"
                " microsoft/deberta-large-mnli."
            )
        return [row for (row,) in rows]
