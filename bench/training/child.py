"""Start and stop the child process of a training, build its environment, and end it when its parent ends.

The child executes no code from the current folder, and gets no API keys or access tokens.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.model.devices import visible_devices_env
from bench.store.processes import exit_with_parent, kill_process_group

_PARENT = "CONFBENCH_PARENT"
"""Name of the environment variable with the parent's process ID; a child process ends when its parent does."""
_STOP_SECONDS = 2.0
"""Seconds that a child process gets to end by itself before it is killed."""
_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|^(OPENAI|ANTHROPIC|WANDB|AWS|AZURE|GOOGLE)_",
    re.IGNORECASE,
)
_WITH_PASSWORD = re.compile(r"://[^/\s]*:[^/\s]*@")
_FOLDERS = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "TMPDIR")


# --- in the parent ----------------------------------------------------------------------------------------------------


@contextmanager
def start_child(config: Path, processes: int, devices: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Start a child in its own process group, which is killed at the end of the context.

    Args:
        config: absolute path of the job's configuration.
        processes: number of processes that train together.
        devices: devices of the training, as this machine names them. If these are cards with numbers, the child sees no
            other cards, and names its own `cuda:0`, `cuda:1`, ... For `cuda` without a number it sees all cards.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "bench.training", str(config), str(processes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        cwd=Path(os.sep).resolve(),
        env=environment(os.environ, processes) | visible_devices_env(devices, os.environ),
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            kill_process_group(process, _STOP_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def environment(base: Mapping[str, str], processes: int) -> dict[str, str]:
    """Return the child's environment variables: the parent's, without secrets, and with this package importable.

    Hugging Face libraries are set to offline mode.
    """
    env = {name: value for name, value in base.items() if not (_SECRET.search(name) or _WITH_PASSWORD.search(value))}
    env |= {name: str(Path(base[name]).resolve()) for name in _FOLDERS if base.get(name)}
    env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    env |= {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1", _PARENT: str(os.getpid())}
    env.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    root = str(Path(__file__).resolve().parents[2])
    package_path = [] if root in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")} else [root]
    python_path = [str(Path(path).resolve()) for path in base.get("PYTHONPATH", "").split(os.pathsep) if path]
    env["PYTHONPATH"] = os.pathsep.join([*package_path, *python_path])
    return env


# --- in the child -----------------------------------------------------------------------------------------------------


def end_with_parent() -> None:
    """Make this process end as soon as its parent has ended, in whatever way the parent ended."""
    exit_with_parent(int(os.environ.get(_PARENT, os.getppid())))


def train_together(config: Path, processes: int) -> None:
    """Run the job of a configuration file in several processes by torchrun, and wait until they end."""
    from torch.distributed.run import main

    os.environ[_PARENT] = str(os.getpid())
    options = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--nproc-per-node={processes}"]
    main([*options, "-m", "bench.training", str(config)])
