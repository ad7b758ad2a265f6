"""Isolation of a run from its plugins: child processes for plugin files, and a check of the output head's weights."""

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
"""Number of rows of the output head's weights that are copied to the CPU at a time, for the digest."""


@dataclass
class Isolation:
    """The plugin processes of a run, and the check that no plugin changed the output head."""

    seconds: float = math.inf
    """Time limit, in seconds, of one call to a method of a plugin file."""
    log: RunLog | None = None
    notes: dict[str, None] = field(default_factory=dict)
    """Notes for the user: the keys of this dict, so that each note occurs once."""
    lm: LanguageModel | None = None
    """Model whose output head is checked; None until the run has opened its model."""
    busy: bool = False
    """Whether a method is being called in this process. Calls that the method then makes itself are not isolated
    again."""
    head_digest: bytes = b""
    """Digest of the output head's weights; empty until a plugin in this process is first called with them."""
    _processes: dict[tuple[Path, str], Process] = field(default_factory=dict)
    """(plugin file, name of a method) -> process. The name is empty for the process of `probe`, which the first method
    of the file then takes over."""

    def probe(self, path: Path) -> None:
        """Execute a plugin file in a child process as a trial, before this process executes it.

        Raises:
            UserError: the file raises, exits, or takes too long.
        """
        try:
            self.process(path, "").ask(f"--plugin {path}", "run_file")
        except PluginError as error:
            raise UserError(f"{error}; correct the file, or leave it out") from None

    def declare(self, plugin: type[ConfidenceMethod], path: Path, arguments: Mapping[str, object]) -> None:
        """Build a method in its child process and call its declarations as a trial, before this process does so.

        Args:
            plugin: class of the method.
            path: plugin file that defines the class.
            arguments: arguments of the class's constructor.

        Raises:
            PluginError: the method raises, exits or takes too long.
            UserError, ContractError: the method raises this error itself.
        """
        self.process(path, plugin.name).ask(f"method {plugin.name!r}", "declare", plugin.name, dict(arguments))

    def process(self, path: Path, name: str) -> Process:
        """Return the process for a method of a plugin file; create it at the first call."""
        if (path, name) not in self._processes:
            probed = self._processes.pop((path, ""), None)
            self._processes[path, name] = probed or Process(path, self.seconds, self.log)
        return self._processes[path, name]

    def note_head(self) -> None:
        """Store the digest of the output head's weights, if they are loaded and no digest is stored yet."""
        if not self.head_digest and self.lm is not None and "head" in vars(self.lm):
            self.head_digest = _digest(self.lm.head.weight)

    def head_unchanged(self) -> bool:
        """Return whether the output head's weights still have the stored digest; if not, load the model again.

        Raises:
            UserError: the weights on disk have changed, too.
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
        """End the processes of all plugin files."""
        for process in self._processes.values():
            process.close()


def _digest(weight: torch.Tensor) -> bytes:
    import torch

    digest = hashlib.blake2b()
    for start in range(0, len(weight), _ROWS):
        digest.update(weight[start : start + _ROWS].detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.digest()
