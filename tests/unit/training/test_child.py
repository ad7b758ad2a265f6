"""The child process: what it is given, whose files it executes, and that it ends with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.api import AdapterRef
from bench.progress import Silent
from bench.store.processes import describe_exit
from bench.training import child
from tests.unit.training.test_training import CT, SETTINGS, examples, folder, here, learnable, load, trainer, write_job

__all__ = ["folder"]
ROOT = Path(__file__).parents[3]
STEPS = {**SETTINGS, "steps": 3}


def trainers(config: Path) -> list[int]:
    """Processes of a training that live: those that were told its configuration."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            told = (path / "cmdline").read_bytes().split(b"\0")  # empty of one that has ended
        except (OSError, ValueError):
            continue
        if str(config).encode() in told and b"-c" not in told:
            found.append(int(path.name))
    return found


def all_gone(config: Path) -> bool:
    """Whether none is left after a while; what they do takes longer."""
    end = time.monotonic() + 30
    while trainers(config):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


# --- what it is given -------------------------------------------------------------------------------------------------


def test_child_gets_no_key_token_or_password() -> None:
    secrets = {
        "OPENAI_API_KEY": "sk-1", "OPENAI_ORG_ID": "org", "HF_TOKEN": "hf", "HUGGING_FACE_HUB_TOKEN": "hf",
        "WANDB_API_KEY": "w", "AWS_SECRET_ACCESS_KEY": "a", "AWS_PROFILE": "p", "my_password": "p",
        "GOOGLE_APPLICATION_CREDENTIALS": "/g.json", "GITHUB_TOKEN": "g", "HTTPS_PROXY": "http://me:word@proxy:1",
    }  # fmt: skip
    kept = {"PATH": "/bin", "LD_LIBRARY_PATH": "/cuda", "CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO", "HOME": "/h"}
    given = child.environment(secrets | kept, 1)
    assert not secrets.keys() & given.keys()
    assert kept.items() <= given.items()
    assert not set(secrets.values()) & set(given.values())
    assert (given["HF_HUB_OFFLINE"], given["PYTHONSAFEPATH"], given["TOKENIZERS_PARALLELISM"]) == ("1", "1", "false")


def test_child_gets_absolute_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    given = child.environment({"PYTHONPATH": os.pathsep.join(["", "plugins", ""]), "HF_HOME": "hub"}, 1)
    assert given["PYTHONPATH"].split(os.pathsep) == [str(ROOT), str(tmp_path.resolve() / "plugins")]
    assert given["HF_HOME"] == str(tmp_path.resolve() / "hub")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_child_finds_plugins_and_runs_no_current_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    here, ran = tmp_path / "here", tmp_path / "ran"
    here.mkdir()
    for name in ("torch", "json", "numpy", "peft", "re", "sitecustomize", "usercustomize", "bench", "methods"):
        (here / f"{name}.py").write_text(f"open({str(ran)!r}, 'w').write({name!r})\nraise SystemExit(3)\n")
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "sun_losses.py").write_text(
        "from methods._shared.lora import ct_loss\n\n\ndef loss(*a):\n    return ct_loss(*a)\n"
    )
    (plugins / "json.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(plugins)])
    train = trainer(load(folder), tmp_path / "cache", processes=processes)
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep)  # its empty parts mean the current folder
    ref = train(loss="sun_losses:loss", examples=examples(), settings=STEPS)
    assert ref.folder.is_dir()
    assert not ran.exists()


# --- how it ends ------------------------------------------------------------------------------------------------------

PARENT = """
import sys
from pathlib import Path
from bench.training import child
with child.start_child(Path(sys.argv[1]), int(sys.argv[2]), "cpu") as process:
    for line in process.stdout:
        print(line, end="", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_child_ends_with_a_killed_parent(folder: Path, tmp_path: Path, processes: int, sign: signal.Signals) -> None:
    told: dict[str, Any] = {}
    if processes == 1:  # it is asleep before the model is loaded
        (tmp_path / "asleep.py").write_text("import time\n\nprint('{\"step\": 2,', flush=True)\ntime.sleep(60)\n")
        told = {"loss": "asleep:loss", "search": (str(tmp_path),)}
    config = write_job(load(folder), tmp_path / "job", {**SETTINGS, "steps": 3_000}, **told)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(config), str(processes)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert parent.stdout is not None
    for line in parent.stdout:
        if line.startswith('{"step": 2,'):
            break
    assert len(trainers(config)) == processes + (processes > 1)
    parent.send_signal(sign)
    parent.wait(10)
    assert all_gone(config)
    parent.stdout.close()


def test_child_does_not_begin_without_its_parent(tmp_path: Path) -> None:
    environment = child.environment(os.environ, 1) | {"CONFBENCH_PARENT": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bench.training", str(tmp_path / "none.json")],
        env=environment, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_child_that_ignores_signals_is_ended(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stubborn.py").write_text(
        "import signal, time\n\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('here', flush=True)\ntime.sleep(60)\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(child, "_STOP_SECONDS", 0.2)
    config = write_job(load(folder), tmp_path / "job", SETTINGS, loss="stubborn:loss", search=(str(tmp_path),))
    with pytest.raises(KeyboardInterrupt), child.start_child(config, 1, "cpu") as process:  # noqa: PT012
        assert process.stdout is not None
        assert any(line == "here\n" for line in process.stdout)
        raise KeyboardInterrupt
    assert process.returncode == -signal.SIGKILL
    assert all_gone(config)


def test_exit_is_told_in_words() -> None:
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-9) == "ended by SIGKILL, perhaps for want of memory"
    assert describe_exit(-15) == "ended by SIGTERM"


# --- two at once ------------------------------------------------------------------------------------------------------


class SeedConfidences(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.said: list[str] = []

    def stage(self, name: str, total: int, unit: str = "questions") -> Any:
        self.stages.append(name)
        return super().stage(name, total, unit)

    def say(self, text: str) -> None:
        self.said.append(text)


def test_adapter_that_two_need_is_trained_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, refs = [SeedConfidences(), SeedConfidences()], [None, None]

    @contextmanager
    def started(config: Path, processes: int, devices: tuple[str, ...]) -> Iterator[Any]:
        end = time.monotonic() + 30
        while not (told[0].said or told[1].said) and time.monotonic() < end:
            time.sleep(0.01)
        with here(config, processes, devices) as process:
            yield process

    monkeypatch.setattr(child, "start_child", started)

    def need(i: int) -> None:
        train = trainer(load(folder), tmp_path / "cache", progress=told[i])
        refs[i] = train(loss=CT, examples=examples(), settings=STEPS, validation=learnable())  # type: ignore[call-overload]

    threads = [threading.Thread(target=need, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert isinstance(refs[0], AdapterRef)
    assert refs[0] == refs[1]
    assert [*told[0].stages, *told[1].stages] == ["train ct"]
    (said,) = [*told[0].said, *told[1].said]
    assert said.startswith(f"the adapter of ct is being trained by process {os.getpid()} on ")
