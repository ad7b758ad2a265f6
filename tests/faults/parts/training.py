"""Adapters and their training: damaged files, deaths of either process, foreign files, two runs at once."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.store.disk_cache import digest_file, key_of
from bench.training import child, loop
from bench.training.job import ADAPTER, CHECKPOINTS, CONFIG, Job
from bench.training.optimisers import ProcessGroup
from bench.training.trainer import AdapterTrainer
from tests.faults import workload
from tests.faults.commands import FaultError, Outcome, Ran, Running, cells, finished, require, same, started
from tests.faults.parts.kills import processes
from tests.faults.parts.store import flip

TITLE = "adapters and their training"
STEPS, EVERY = 12, 3
"""Of a training, and between two checkpoints."""
DAMAGED = "was damaged"


def flipped(path: Path) -> None:
    flip(path, path.stat().st_size // 2 * 8 + 2)


def swapped(path: Path) -> None:
    """Put the next file of the folder in its place."""
    names = sorted(other for other in path.parent.iterdir() if other.is_file())
    shutil.copyfile(names[names.index(path) - 1], path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit flipped": flipped,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "emptied": lambda path: path.write_bytes(b""),
    "deleted": Path.unlink,
    "another file in its place": swapped,
}
FILES = (
    "adapter_model.safetensors", "adapter_config.json", "base_model.json", "confidences.safetensors", "training.json",
    "manifest.json",
)  # fmt: skip
OF_CHECKPOINT = ("optimiser.safetensors", "best.safetensors", "state.json", "manifest.json")


def cases(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    work = OpenRun(folder)
    for name in FILES:
        for damage in DAMAGES if name == FILES[0] else ["a bit flipped"]:
            yield f"adapter: {name}, {damage}", partial(work.adapter_damaged, name, damage)
    for name in OF_CHECKPOINT:
        for damage in DAMAGES:
            yield f"checkpoint: {name}, {damage}", partial(work.checkpoint_damaged, name, damage)
    yield "checkpoint: of another training", work.checkpoint_of_another
    for zero in (False, True):
        way = "DeepSpeed" if zero else "torch"
        for sign in (signal.SIGKILL, signal.SIGTERM):
            yield f"{way}: {sign.name} while it trains", partial(work.ended, zero, sign)
        yield f"{way}: killed, and the checkpoint damaged", partial(work.ended_and_damaged, zero)
        yield f"{way}: pickles beside the checkpoints", partial(work.pickles, zero)
    yield "the child killed while it trains", work.child_killed
    yield "modules in the current folder", work.modules_here
    yield "keys in the environment", work.keys
    yield "two runs that need one adapter", work.two_at_once


class OpenRun:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = workload.questions_file(folder)
        self.count = 0

    def arguments(self, folder: Path, zero: bool) -> list[str]:
        settings = {"steps": STEPS, "batch_size": 4, "deepspeed": str(zero).lower()}
        more = [text for name, value in settings.items() for text in ("--set", f"it.{name}={value}")]
        return workload.command(self.file, folder, "it", *more)

    def start(self, folder: Path, zero: bool = False, **how: Any) -> Running:
        environment = workload.cache(folder) | how.pop("env", {})
        return started(*self.arguments(folder, zero), folder=folder, env=environment, first=often, **how)

    def run(self, folder: Path, zero: bool = False, **how: Any) -> Ran:
        return finished(self.start(folder, zero, **how))

    @functools.cache  # noqa: B019 - one object lives as long as the part
    def whole(self, zero: bool) -> Path:
        folder = self.folder / f"whole-{zero}"
        self.run(folder, zero).expect(0)
        return folder

    def new(self) -> Path:
        self.count += 1
        folder = self.folder / f"case-{self.count}"
        folder.mkdir()
        return folder

    def right(self, folder: Path, ran: Ran, zero: bool, notes: int = 0) -> None:
        """Refuse a run that did not end well, with the undisturbed result, and with so many notes of damage."""
        ran.expect(0)
        same(cells(folder / "out"), cells(self.whole(zero) / "out"))
        require((ran.out + ran.err).count(DAMAGED) == notes, Outcome.WRONG, f"not {notes} notes of damage: {ran.err}")

    # --- damaged files ------------------------------------------------------------------------------------------------

    def adapter_damaged(self, name: str, damage: str) -> None:
        """A file of a stored adapter is damaged before the next run uses its fit."""
        folder = self.new()
        shutil.copytree(self.whole(False) / "cache", folder / "cache")
        for read in (folder / "cache" / "readings").glob("*-adapted"):
            shutil.rmtree(read)
        fits = folder / "cache" / "fits"
        for path in fits.rglob("*"):
            if path.is_file():
                content, old = path.read_bytes(), str(self.whole(False)).encode()
                path.write_bytes(content.replace(old, str(folder).encode()))  # folders as they are called now
        for manifest in fits.rglob("manifest.json"):
            resealed(manifest)
        (path,) = (folder / "cache" / "adapters").glob(f"??/*/{name}")
        DAMAGES[damage](path)
        self.right(folder, self.run(folder), False, notes=1)

    @functools.cached_property
    def begun(self) -> Path:
        """The folder of a training that was ended after two checkpoints; the whole training is beside it."""
        root = self.new()
        running = self.start(root)
        training = trained_until(running, root, 1)
        shutil.copytree(training, root / "whole")
        os.killpg(running.pid, signal.SIGKILL)
        finished(running)
        gone(root)
        for path in (root / "whole").iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        shutil.copytree(root / "whole", root / "begun")
        in_fork(lambda: loop.main(root / "whole" / CONFIG))
        in_fork(lambda: until(root / "begun" / CONFIG, 2 * EVERY + 1))
        return root / "begun"

    def checkpoint_damaged(self, name: str, damage: str) -> None:
        """A file of the newest checkpoint is damaged, and the training goes on; the child's code is loaded here."""
        folder = self.new() / "job"
        shutil.copytree(self.begun, folder)
        path = folder / CHECKPOINTS / f"step-{2 * EVERY}" / name
        DAMAGES[damage](path)
        said = in_fork(lambda: loop.main(folder / CONFIG))
        weights = [job / ADAPTER / FILES[0] for job in (folder, self.begun.parent / "whole")]
        require(weights[0].is_file(), Outcome.LOST, said)
        require(weights[0].read_bytes() == weights[1].read_bytes() and said.count(DAMAGED) == 1, Outcome.WRONG, said)

    def checkpoint_of_another(self) -> None:
        """The newest checkpoint is that of another seed's training."""
        folder = self.new() / "job"
        shutil.copytree(self.begun, folder)
        other = folder / CONFIG
        other.write_text(other.read_text(encoding="utf-8").replace('"seed": ', '"seed": 1'), encoding="utf-8")
        said = in_fork(lambda: loop.main(folder / CONFIG))
        require(said.count(DAMAGED) == 2 and '{"step": 1,' in said, Outcome.WRONG, said)

    # --- deaths -------------------------------------------------------------------------------------------------------

    def ended(self, zero: bool, sign: signal.Signals) -> Path:
        """A run is ended while it trains, and started again at once; returns its folder."""
        folder = self.new()
        self._end(folder, zero, sign)
        self.right(folder, self.run(folder, zero), zero)
        return folder

    def ended_and_damaged(self, zero: bool) -> None:
        """The newest checkpoint of a killed run is damaged before the next one."""
        folder = self.new()
        training = self._end(folder, zero, signal.SIGKILL)
        steps = sorted((training / CHECKPOINTS).glob("step-*"), key=lambda path: int(path.name[5:]))
        (path,) = steps[-1].glob("optimiser*")
        flipped(path)
        self.right(folder, self.run(folder, zero), zero, notes=1)

    def _end(self, folder: Path, zero: bool, sign: signal.Signals) -> Path:
        running = self.start(folder, zero)
        training = trained_until(running, folder, EVERY + 2)
        os.kill(running.pid, sign)
        start = time.monotonic()
        ran = finished(running)
        ended = ran.code in {-sign, 128 + sign} and "Traceback" not in ran.err
        require(ended, Outcome.TRACEBACK, f"exit {ran.code}: {ran.err[-280:]}")
        gone(folder, max(0.1, 5.0 - (time.monotonic() - start)) if sign == signal.SIGTERM else 1.0)
        return training

    def child_killed(self) -> None:
        """The child is killed, as for want of memory."""
        folder = self.new()
        running = self.start(folder)
        trained_until(running, folder, EVERY + 2)
        for pid in trainers(folder):
            os.kill(pid, signal.SIGKILL)
        ran = finished(running)
        told = "Traceback" not in ran.err and "ended by SIGKILL" in ran.out + ran.err
        require(told, Outcome.TRACEBACK, f"exit {ran.code}: {ran.err[-280:]}")
        self.right(folder, self.run(folder), False)

    # --- foreign files, keys, another run -----------------------------------------------------------------------------

    def pickles(self, zero: bool) -> None:
        folder = self.new()
        training = self._end(folder, zero, signal.SIGKILL)
        ran = folder / "ran"
        payload = f"cbuiltins\nexec\n(S'open({str(ran)!r},\"w\").close()'\ntR.".encode()
        names = ("deepspeed/mp_rank_00_model_states.pt", "latest", "optimiser.pt", "best.bin", "adapter_model.bin")
        checkpoints = list((training / CHECKPOINTS).glob("step-*"))
        for place in [training, *checkpoints]:
            for name in names:
                (place / name).parent.mkdir(exist_ok=True)
                (place / name).write_bytes(payload)
        result = self.run(folder, zero)
        require(not ran.exists(), Outcome.WRONG, "a pickle was executed")
        self.right(folder, result, zero, notes=len(checkpoints))  # what is too much in one makes it a damaged one

    def modules_here(self) -> None:
        """Modules of known names lie in the current folder."""
        folder = self.new()
        here, ran = folder / "here", folder / "ran"
        here.mkdir()
        for name in ("torch", "json", "numpy", "peft", "sitecustomize", "bench", "methods"):
            text = f"open({str(ran)!r}, 'w').close()\nraise SystemExit(3)\n"
            (here / f"{name}.py").write_text(text, encoding="utf-8")
        result = self.run(folder, cwd=here, env={"PYTHONPATH": os.pathsep})
        require(not ran.exists(), Outcome.WRONG, "a module of the current folder was executed")
        self.right(folder, result, False)

    def keys(self) -> None:
        """Keys in the environment of a run are looked for in that of its child."""
        folder = self.new()
        names = ("OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "MY_PASSWORD")
        running = self.start(folder, env=dict.fromkeys(names, "SECRET123"))
        trained_until(running, folder, 1)
        given = [Path(f"/proc/{pid}/environ").read_bytes() for pid in trainers(folder)]
        result = finished(running)
        require(given and not any(b"SECRET123" in each for each in given), Outcome.WRONG, "the child has a key")
        self.right(folder, result, False)

    def two_at_once(self) -> None:
        folder = self.new()
        log = folder / "started.txt"
        log.touch()

        def first() -> None:
            often()
            child.environment = counted(child.environment, log)

        one, two = folder / "one", folder / "two"
        environment = workload.cache(folder)
        both = [started(*self.arguments(each, False), folder=each, env=environment, first=first) for each in (one, two)]
        for each, running in zip((one, two), both, strict=True):
            self.right(each, finished(running), False)
        require(log.stat().st_size == 1, Outcome.PAID, f"{log.stat().st_size} trainings")


def often() -> None:
    """In a run's own process: checkpoints after few steps."""
    made = AdapterTrainer.__init__
    AdapterTrainer.__init__ = functools.partialmethod(made, checkpoint_every=EVERY)  # type: ignore[assignment,method-assign]


def counted(function: Callable[..., Any], log: Path) -> Callable[..., Any]:
    """The function, with a letter in the log for each call."""

    def called(*arguments: Any) -> Any:
        with log.open("a", encoding="utf-8") as file:
            file.write("x")
        return function(*arguments)

    return called


def resealed(manifest: Path) -> None:
    told = json.loads(manifest.read_text(encoding="utf-8"))
    del told["digest"]
    told["files"] = {name: digest_file(manifest.parent / name) for name in told["files"]}
    manifest.write_text(json.dumps(told | {"digest": key_of(told)}), encoding="utf-8")


def trained_until(running: Running, folder: Path, step: int) -> Path:
    """The training's folder, as soon as its log tells of this step."""
    end = time.monotonic() + 90
    while time.monotonic() < end:
        for log in (folder / "cache" / "training").glob("*/train.log"):
            if f'{{"step": {step},' in log.read_text(encoding="utf-8"):
                return log.parent
        time.sleep(0.005)
    os.killpg(running.pid, signal.SIGKILL)
    finished(running)
    raise FaultError(Outcome.HUNG, f"no step {step} of a training: {running.err.read_text(encoding='utf-8')[-300:]}")


def trainers(folder: Path) -> list[int]:
    return [*processes("bench.training", f"{folder.resolve()}/")]


def gone(folder: Path, within: float = 1.0) -> None:
    end = time.monotonic() + within
    while left := trainers(folder):
        require(time.monotonic() <= end, Outcome.HUNG, f"{len(left)} processes are left")
        time.sleep(0.01)


def until(config: Path, steps: int) -> None:
    """Train so many steps of a job, and end as if killed."""

    class Ended(loop._Training):
        def _step(self, step: int) -> None:
            if step == steps:
                os._exit(0)
            super()._step(step)

    Ended(Job.read(config), config.parent, ProcessGroup("cpu", grouped=False)).run()


def in_fork(work: Callable[[], None]) -> str:
    """Do something in a fork of this process; returns what it printed."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(write, 1)
            os.dup2(write, 2)
            work()
        except BaseException:  # noqa: BLE001 - it is shown
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8", errors="replace") as file:
        said = file.read()
    os.waitpid(pid, 0)
    return said
