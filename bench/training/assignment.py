"""The training of one adapter as a plain value: carried out by this process, or by a machine that has the store."""

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
from bench.store.folders import Entry, Store
from bench.store.locks import adapter_claim, file_lock
from bench.store.processes import ended
from bench.training import child
from bench.training.job import ADAPTER, EXAMPLES, REPORT, VALIDATION, Job, write_examples

Examples = Mapping[str, Ragged | npt.NDArray[Any]]

KIND = "adapters"
"""The part of the store."""
_RANK = re.compile(r"^\[rank\d+\]: ")
"""Prefix that torch puts before each line of a traceback."""
_LOG = "train.log"
_END_OF_LOG = 8192
"""Bytes among which there is a line about a step."""
_LOG_LINES = 30
"""Lines of a failed child's log in the error."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Assignment:
    """An adapter that is to be trained."""

    method: str
    """Name of the method, for messages."""
    key: str
    """Key of the adapter in the store."""
    fields: Mapping[str, Any]
    """Fields of which the key is made."""
    job: Job
    examples: Examples
    validation: Examples
    processes: int
    """Those that train together; on cards each has one of its own."""
    devices: tuple[str, ...]
    """Devices, as they are called where the training is carried out."""

    @property
    def steps(self) -> int:
        """Steps of the whole training."""
        return self.job.recipe.steps

    def taken(self, store: Store) -> int:
        """Steps that were taken so far, by the end of the log."""
        try:
            with (store.root / "training" / self.key / _LOG).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _END_OF_LOG))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:  # it has not begun, or is over
            return 0
        return next((told["step"] for line in reversed(lines) if "step" in (told := _told(line))), 0)

    def carry_out(
        self, store: Store, progress: Progress | None = None, make_room: Callable[[], None] = lambda: None
    ) -> Entry:
        """The adapter, trained here unless another process has put it into the store meanwhile.

        Args:
            store: where it goes; what is left of a training that was ended lies there as well.
            progress: for people.
            make_room: frees the devices for the child.

        Raises:
            UserError: the training failed, or the store can't be written.
        """
        told = progress or Silent()

        def waits(whom: str) -> None:
            told.say(f"the adapter of {self.method} is being trained by {whom}; waiting for it")

        with file_lock(adapter_claim(store.root, self.key), waits):
            found = store.get(KIND, self.key)
            if found is not None:
                return found
            try:
                folder = self.folder(store).resolve()
                write_examples(folder / EXAMPLES, self.examples)
                write_examples(folder / VALIDATION, self.validation)
                config = self.job.write(folder)
            except OSError as error:
                raise UserError(
                    f"What {self.method} is trained on could not be written into the cache: {error.strerror or error}."
                    " Free some disk space, or set CONFBENCH_CACHE to another folder."
                ) from error
            make_room()
            self._run(config, store, told)
            fill = partial(shutil.copytree, folder / ADAPTER, dirs_exist_ok=True)
            names = {"method": self.method, "model": label_of(ModelSpec(**self.job.model))}
            entry = store.put(KIND, self.key, self.fields, fill, **names)
            shutil.rmtree(folder, ignore_errors=True)
            return entry

    def folder(self, store: Store) -> Path:
        """The private folder of the job.

        Raises:
            UserError: others can write into it.
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
        """Start the child and follow it to its end."""
        recipe = self.job.recipe
        last: deque[str] = deque(maxlen=_LOG_LINES)
        with (
            (config.parent / _LOG).open("a", encoding="utf-8", buffering=1) as log,
            progress.stage(f"train {self.method}", recipe.steps, unit="steps") as advance,
            child.started(config, self.processes, self.devices) as process,
        ):
            done = 0
            for line in process.stdout or ():
                log.write(line)
                told = _told(line)
                if "step" in told:
                    advance(told["step"] - done)
                    done = told["step"]
                elif "note" in told:
                    store.notes.append(f"{self.method}: {told['note']}")
                elif line.strip():
                    last.append(_RANK.sub("", line.rstrip()))
            code = process.wait()
        if code or not (config.parent / ADAPTER / REPORT).is_file():
            way = f"\n{way_out(self.method)}." if recipe.deepspeed else ""
            how = ended(code) if code else "it ended without an adapter"
            raise UserError(
                f"Training the adapter of {self.method} failed ({how}):"
                f" {last[-1] if last else 'it printed nothing'}{way}\nThe end of its log:\n" + "\n".join(last)
            )


def way_out(method: str) -> str:
    """Advice where DeepSpeed is in the way."""
    return f"Train without it: --set {method}.deepspeed=false"


def _told(line: str) -> dict[str, Any]:
    """Report in a line of the child's log: a `step`, or a `note` for the user; empty for any other line."""
    if not line.startswith(('{"step": ', '{"note": ')):
        return {}
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    kind = int if "step" in told else str
    return told if isinstance(told.get("step", told.get("note")), kind) else {}
