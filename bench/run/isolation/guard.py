"""Protection of one run from its plugins: their processes, their log, the output head, notes for the user."""

from __future__ import annotations

import hashlib
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.api import ConfidenceMethod, UserError
from bench.api.errors import PluginError
from bench.run.isolation.log import RunLog
from bench.run.isolation.process import Process
from bench.store.folders import fresh_folder

if TYPE_CHECKING:
    import torch

    from bench.backbone.model import Backbone

Arguments = Mapping[str, object]
_HEAD = "head.bin"
_TOGETHER = 8192
"""Rows that are copied to the host at once."""


@dataclass
class HeadGuard:
    """Compares the weights of the output head with what they were, and loads them again where they differ."""

    backbone: Backbone | None = None
    _version: int = 0
    _digest: bytes = b""
    """Of all weights; empty as long as no method of this process was given them."""
    seen_by: list[str] = field(default_factory=list)
    """Methods of this process that were given the head, in order."""

    def given_to(self, name: str) -> None:
        """Note that a method of this process gets the head; the first time, what it is like."""
        if self.backbone is None:
            return
        if not self._digest:
            weight = self.backbone.head.weight
            self._version, self._digest = weight._version, _digest(weight)  # noqa: SLF001
        if name not in self.seen_by:
            self.seen_by.append(name)

    def intact(self, *, whole: bool) -> bool:
        """Whether the weights are what they were; if not, they are loaded again.

        Args:
            whole: compare all of them, else only the version that torch counts, which views of numpy don't raise.

        Raises:
            UserError: the files on the disk are not what was loaded, either.
        """
        if self.backbone is None or not self._digest or "head" not in vars(self.backbone):
            return True
        weight = self.backbone.head.weight
        if not whole and weight._version == self._version:  # noqa: SLF001
            return True
        if _digest(weight) == self._digest:
            self._version = weight._version  # noqa: SLF001 - weights that were moved to another device and back
            return True
        self.backbone.release()
        weight = self.backbone.head.weight
        self._version = weight._version  # noqa: SLF001
        if _digest(weight) != self._digest:
            raise UserError("The model's weights were changed by a method, and those on the disk are others: run again")
        return False


def _digest(weight: torch.Tensor) -> bytes:
    """Digest of a matrix; a part of it at a time is on the host."""
    import torch

    found = hashlib.blake2b()
    for start in range(0, len(weight), _TOGETHER):
        found.update(weight[start : start + _TOGETHER].detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return found.digest()


@dataclass
class Isolation:
    """Keeps the plugins of one run from harming it and each other."""

    seconds: float = math.inf
    """The longest that one call of a method of a file may take."""
    log: RunLog | None = None
    notes: list[str] = field(default_factory=list)
    """Notes for the user on what was put right."""
    head: HeadGuard = field(default_factory=HeadGuard)
    busy: bool = False
    """Whether a method of this process is being called: what it calls itself is part of that call."""
    _spare: dict[Path, Process] = field(default_factory=dict)
    """Processes that have tried a file, and have no method of it yet."""
    _all: list[Process] = field(default_factory=list)
    _folder: Path | None = None
    """For files that processes read."""

    def probe(self, path: Path) -> None:
        """Execute a plugin file in a process of its own, before it is executed here.

        Raises:
            UserError: it raises, exits, or takes too long.
        """
        try:
            self._tries(path).ask(f"--plugin {path}", "run_file")
        except PluginError as error:
            raise UserError(f"{error}; correct the file, or leave it out") from None

    def declare(self, plugin: type[ConfidenceMethod], path: Path, arguments: Arguments) -> None:
        """Have a method made in its own process, and asked all that it says of itself, before that is done here.

        Raises:
            PluginError: it exits or takes too long; so do its exceptions.
        """
        self._tries(path).ask(f"method {plugin.name!r}", "declare", plugin.name, dict(arguments))

    def process(self, path: Path) -> Process:
        """A process for one method of a file; the first method gets the one that tried the file."""
        return self._spare.pop(path, None) or self._new(path)

    def attach(self, backbone: Backbone, cache: Path) -> None:
        """Guard the weights of this backbone; what processes need of them lies in the cache meanwhile."""
        self.head.backbone = backbone
        self._folder = fresh_folder(cache)

    @property
    def head_file(self) -> Path:
        """File of the output head's weights."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="confbench-"))
        return self._folder / _HEAD

    def note(self, text: str) -> None:
        """Note something once."""
        if text not in self.notes:
            self.notes.append(text)

    def check_weights(self, when: str) -> None:
        """Check all weights of the output head at a moment when no method is called.

        Raises:
            UserError: they were changed; what was read last may be wrong.
        """
        if not self.head.intact(whole=True):
            names = ", ".join(self.head.seen_by)
            raise UserError(
                f"The weights of the model were changed {when}, by something that one of these methods left running:"
                f" {names}. Leave it out, and remove the cache folder, which may hold what was read meanwhile."
            )

    @contextmanager
    def weights_watched(self, what: str) -> Iterator[None]:
        """Check all weights before and after something that is done with them, e.g. `test was read`.

        Raises:
            UserError: as `check_weights`.
        """
        self.check_weights(f"before {what}")
        yield
        self.check_weights(f"while {what}")

    def close(self) -> None:
        """End all processes."""
        for process in self._all:
            process.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _tries(self, path: Path) -> Process:
        return self._spare.get(path) or self._spare.setdefault(path, self._new(path))

    def _new(self, path: Path) -> Process:
        self._all.append(Process(path, self.seconds, self.log, self.note))
        return self._all[-1]
