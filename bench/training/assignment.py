"""The training of an adapter as a picklable value, which any machine that shares the store can carry out."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy.typing as npt

from bench.api import Ragged, UserError
from bench.model.specs import ModelSpec, label_of
from bench.progress import Progress, Silent
from bench.store.disk_cache import Entry, Store
from bench.store.files import NO_SPACE, named_errors
from bench.store.locks import adapter_claim, file_lock
from bench.store.processes import describe_exit
from bench.store.usage import ADAPTERS
from bench.training import child
from bench.training.job import ADAPTER, EXAMPLES, REPORT, VALIDATION, Job, write_examples

Examples = Mapping[str, Ragged | npt.NDArray[Any]]
_RANK = re.compile(r"^\[rank\d+\]: ")
"""Pattern of the prefix, e.g. `[rank0]: `, that torch puts before each line of a traceback."""
_LOG = "train.log"
_LOG_TAIL_BYTES = 8192
"""Number of bytes at the end of a training log in which the last finished step is looked for."""
_LOG_LINES = 30
"""Number of the log's last lines that the error message shows when a child process fails."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Assignment:
    """All that is needed to train one adapter: its job and examples, its devices, and its key in the store."""

    method: str
    """Name of the method that uses the adapter, for messages."""
    key: str
    """Cache key of the adapter in the store."""
    fields: Mapping[str, Any]
    """All that the adapter depends on; `key` is a digest of these fields."""
    job: Job
    examples: Examples
    validation: Examples
    processes: int
    """Number of processes that train together. Several processes on GPUs have one GPU each; a single process may have
    several, over which its model is split."""
    devices: tuple[str, ...]
    """Names of the devices on the machine that trains, e.g. `cuda:0`."""

    @property
    def steps(self) -> int:
        """Total number of training steps."""
        return self.job.recipe.steps

    def steps_done(self, store: Store) -> int:
        """Return the number of finished training steps, read from the log; 0 before the start and after the end."""
        try:
            with (store.root / "training" / self.key / _LOG).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:  # the training has not begun, or has ended
            return 0
        return next((report["step"] for line in reversed(lines) if "step" in (report := _parse_report(line))), 0)

    def carry_out(
        self, store: Store, progress: Progress | None = None, make_room: Callable[[], None] = lambda: None
    ) -> Entry:
        """Return the store entry of the adapter; train it here unless another process has stored it meanwhile.

        Args:
            store: store that receives the adapter and holds the checkpoints of an interrupted training.
            progress: shows how many steps are done.
            make_room: function that is called before the training starts, to free the devices for the child process.

        Raises:
            UserError: the training failed, the store can't be read or written, or other users can write into the
                training's folder.
        """
        listener = progress or Silent()

        def say_waiting(holder: str) -> None:
            listener.say(f"the adapter of {self.method} is being trained by {holder}; waiting for it")

        with file_lock(adapter_claim(store.root, self.key), say_waiting):
            cached = store.get(ADAPTERS, self.key)
            if cached is not None:
                return cached
            with named_errors(f"What {self.method} is trained on could not be written into the cache", NO_SPACE):
                folder = self.folder(store).resolve()
                write_examples(folder / EXAMPLES, self.examples)
                write_examples(folder / VALIDATION, self.validation)
                config = self.job.write(folder)
            make_room()
            self._run(config, store, listener)
            fill = partial(shutil.copytree, folder / ADAPTER, dirs_exist_ok=True)
            names = {"method": self.method, "model": label_of(ModelSpec(**self.job.model))}
            entry = store.put(ADAPTERS, self.key, self.fields, fill, **names)
            shutil.rmtree(folder, ignore_errors=True)
            return entry

    def folder(self, store: Store) -> Path:
        """Create and return the private folder of the training, which holds its inputs, log and checkpoints.

        Raises:
            UserError: the folder belongs to another user, or other users can write into it.
        """
        folder = store.root / "training" / self.key
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
        if hasattr(os, "getuid") and (state.st_uid != os.getuid() or state.st_mode & 0o022):
            raise UserError(
                f"The folder of a training that was begun, training/{self.key[:12]} in the cache, can be written by"
                " others, so its checkpoints can't be trusted. Remove it."
            )
        return folder

    def _run(self, config: Path, store: Store, progress: Progress) -> None:
        """Start the child process, report its progress and wait until it ends.

        Raises:
            UserError: the child failed, or left no adapter.
        """
        recipe = self.job.recipe
        tail: deque[str] = deque(maxlen=_LOG_LINES)
        with (
            (config.parent / _LOG).open("a", encoding="utf-8", buffering=1) as log,
            progress.stage(f"train {self.method}", recipe.steps, unit="steps") as advance,
            child.start_child(config, self.processes, self.devices) as process,
        ):
            done = 0
            for line in process.stdout or ():
                log.write(line)
                report = _parse_report(line)
                if "step" in report:
                    advance(report["step"] - done)
                    done = report["step"]
                elif "note" in report:
                    store.notes.append(f"{self.method}: {report['note']}")
                elif line.strip():
                    tail.append(_RANK.sub("", line.rstrip()))
            code = process.wait()
        if code or not (config.parent / ADAPTER / REPORT).is_file():
            advice = f"\n{way_out(self.method)}." if recipe.deepspeed else ""
            ending = describe_exit(code) if code else "it ended without an adapter"
            raise UserError(
                f"Training the adapter of {self.method} failed ({ending}):"
                f" {tail[-1] if tail else 'it printed nothing'}{advice}\nThe end of its log:\n" + "\n".join(tail)
            )


def way_out(method: str) -> str:
    """Return advice for the user of a method whose training fails with DeepSpeed."""
    return f"Train without it: --set {method}.deepspeed=false"


def _parse_report(line: str) -> dict[str, Any]:
    """Return the JSON object in a line of the child's log; empty if the line is no report.

    A report has the field `step`, or a `note` for the user.
    """
    if not line.startswith(('{"step": ', '{"note": ')):
        return {}
    try:
        report = json.loads(line)
    except ValueError:
        return {}
    kind = int if "step" in report else str
    return report if isinstance(report.get("step", report.get("note")), kind) else {}
