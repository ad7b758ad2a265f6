"""Protection of one run from its plugins: their processes, their log, the output head, notes for the user."""

from __future__ import annotations

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
from bench.run.isolation.head import HeadGuard
from bench.run.isolation.log import RunLog
from bench.run.isolation.process import Process
from bench.store.folders import fresh_folder

if TYPE_CHECKING:
    from bench.backbone.model import Backbone

Arguments = Mapping[str, object]
_HEAD = "head.bin"


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
