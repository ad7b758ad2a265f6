"""Who relates texts to each other: models for pairs of texts, or equal normalised texts in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bench.api.signals import By
from bench.grading.grade import same_text
from bench.store.folders import Store, key_of

if TYPE_CHECKING:
    from bench.backbone.pairs import PairModel
    from bench.progress import Progress

Pairs = Sequence[tuple[str, str]]

_AT_ONCE = 2_048
"""Pairs that are stored together: what is lost when a run is killed."""
_FILE = "relations.safetensors"


@dataclass(frozen=True)
class Relating:
    """The models that a run named for pairs of texts."""

    nli: PairModel | None = None
    similarity: PairModel | None = None

    def model(self, by: By) -> PairModel | None:
        """The model that relates texts in a way; None where matching texts stand in for it."""
        return {"entailment": self.nli, "similarity": self.similarity}.get(by)

    def relate(self, by: By, pairs: Pairs, store: Store, progress: Progress, what: str) -> npt.NDArray[np.float32]:
        """`(k, 3)` probabilities by entailment, else `(k,)`: see `Related`; what the store has is not computed again.

        Raises:
            UserError: the model can't be loaded.
        """
        model = self.model(by)
        if model is None:
            return matching(by, pairs)
        parts = [pairs[start : start + _AT_ONCE] for start in range(0, len(pairs), _AT_ONCE)]
        with progress.stage(f"{what} by {model.name}", len(pairs), unit="pairs") as advance:
            found = []
            for part in parts:
                kind = model.device.partition(":")[0]
                fields = {"model": model.files.fingerprint, "as": model.option, "device": kind}
                key = key_of({**fields, "pairs": [list(pair) for pair in part]})
                entry = store.get("relations", key)
                if entry is None:
                    related = model.relate(part, advance)
                    entry = store.put("relations", key, fields, partial(_write, related))
                else:
                    advance(len(part))
                found.append(_read(entry.folder))
        return np.concatenate(found) if found else matching(by, ())


def matching(by: By, pairs: Pairs) -> npt.NDArray[np.float32]:
    """Relations of texts by whether they are the same after normalising."""
    same = np.asarray([same_text(one, other) for one, other in pairs], dtype=np.float32)
    return np.stack([np.zeros_like(same), 1 - same, same], axis=-1) if by == "entailment" else same


def _write(related: npt.NDArray[np.float32], folder: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"values": related}, folder / _FILE)


def _read(folder: Path) -> npt.NDArray[np.float32]:
    from safetensors.numpy import load_file

    values: npt.NDArray[np.float32] = load_file(folder / _FILE)["values"]
    return values
