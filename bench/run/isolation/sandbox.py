"""Protection of one run from its plugins: the processes of files, and the output head that methods here may change."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.api import ConfidenceMethod, UserError
from bench.api.errors import PluginError
from bench.run.isolation.log import RunLog
from bench.run.isolation.process import Process

if TYPE_CHECKING:
    import torch

    from bench.model.language_model import LanguageModel

_ROWS = 8192
"""Rows of the output head that are copied to the host at once."""


@dataclass
class Isolation:
    """Keeps the plugins of one run from harming it and each other."""

    seconds: float = math.inf
    """The longest that one call of a method of a file may take."""
    log: RunLog | None = None
    notes: dict[str, None] = field(default_factory=dict)
    """Notes for the user, each once."""
    lm: LanguageModel | None = None
    """Has the output head."""
    busy: bool = False
    """Whether a method of this process is being called: what it calls itself is part of that call."""
    head_digest: bytes = b""
    """Digest of the output head; empty until a method of this process may change it."""
    _processes: dict[tuple[Path, str], Process] = field(default_factory=dict)
    """File and method -> its process; the first method of a file gets the one that tried the file, named by ""."""

    def probe(self, path: Path) -> None:
        """Execute a plugin file in a process of its own, before it is executed here.

        Raises:
            UserError: it raises, exits, or takes too long.
        """
        try:
            self.process(path, "").ask(f"--plugin {path}", "run_file")
        except PluginError as error:
            raise UserError(f"{error}; correct the file, or leave it out") from None

    def declare(self, plugin: type[ConfidenceMethod], path: Path, arguments: Mapping[str, object]) -> None:
        """Have a method made in its own process, and asked all that it says of itself, before that is done here.

        Raises:
            PluginError: it exits or takes too long; so do its exceptions.
        """
        self.process(path, plugin.name).ask(f"method {plugin.name!r}", "declare", plugin.name, dict(arguments))

    def process(self, path: Path, name: str) -> Process:
        """The process of a method of a file."""
        if (path, name) not in self._processes:
            tried = self._processes.pop((path, ""), None)
            self._processes[path, name] = tried or Process(path, self.seconds, self.log)
        return self._processes[path, name]

    def note_head(self) -> None:
        """Remember what the output head is like, once it is loaded."""
        if not self.head_digest and self.lm is not None and "head" in vars(self.lm):
            self.head_digest = _digest(self.lm.head.weight)

    def head_unchanged(self) -> bool:
        """Whether the output head is as remembered; if not, it is loaded again.

        Raises:
            UserError: the files on the disk are not what was loaded, either.
        """
        if self.lm is None or not self.head_digest or "head" not in vars(self.lm):
            return True
        if _digest(self.lm.head.weight) == self.head_digest:
            return True
        self.lm.release()
        if _digest(self.lm.head.weight) != self.head_digest:
            raise UserError("The model's weights were changed by a method, and those on the disk are others: run again")
        return False

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.close()


def _digest(weight: torch.Tensor) -> bytes:
    import torch

    found = hashlib.blake2b()
    for start in range(0, len(weight), _ROWS):
        found.update(weight[start : start + _ROWS].detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return found.digest()
