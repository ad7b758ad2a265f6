"""The child process: how the parent starts and ends it, what it is given, and how it ends with its parent.

Nothing of the current folder is executed, no key or token is passed on, and a child never outlives its parent.
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

from bench.model.devices import alone_visible
from bench.store.processes import end_group, end_with

_PARENT = "CONFBENCH_PARENT"
"""Environment variable with the number of the process without which a child ends."""
_STOP_SECONDS = 2.0
"""Time that a child has to end by itself."""
_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|^(OPENAI|ANTHROPIC|WANDB|AWS|AZURE|GOOGLE)_",
    re.IGNORECASE,
)
_WITH_PASSWORD = re.compile(r"://[^/\s]*:[^/\s]*@")
_FOLDERS = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "TMPDIR")


# --- in the parent ----------------------------------------------------------------------------------------------------


@contextmanager
def started(config: Path, processes: int, devices: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A child, or several of them, in a process group of which nothing is left afterwards.

    Args:
        config: absolute path of the job's configuration.
        processes: number of those that train together.
        devices: as they are called here; of numbered cards the child sees no others, as `cuda:0`, `cuda:1`, ...
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "bench.training", str(config), str(processes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        cwd=Path(os.sep).resolve(),
        env=environment(os.environ, processes) | alone_visible(devices, os.environ),
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            end_group(process, _STOP_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def environment(of: Mapping[str, str], processes: int) -> dict[str, str]:
    """The parent's, without the network, keys and tokens, and with this package's folder where it is not installed."""
    kept = {name: value for name, value in of.items() if not (_SECRET.search(name) or _WITH_PASSWORD.search(value))}
    kept |= {name: str(Path(of[name]).resolve()) for name in _FOLDERS if of.get(name)}
    kept |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    kept |= {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1", _PARENT: str(os.getpid())}
    kept.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    root = str(Path(__file__).resolve().parents[2])
    before = [] if root in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")} else [root]
    named = [str(Path(path).resolve()) for path in of.get("PYTHONPATH", "").split(os.pathsep) if path]
    kept["PYTHONPATH"] = os.pathsep.join([*before, *named])
    return kept


# --- in the child -----------------------------------------------------------------------------------------------------


def end_with_parent() -> None:
    """Let this process end at once when its parent does, however that ends."""
    end_with(int(os.environ.get(_PARENT, os.getppid())))


def train_together(config: Path, processes: int) -> None:
    """Start so many processes of a job by torchrun, and follow them to their end."""
    from torch.distributed.run import main

    os.environ[_PARENT] = str(os.getpid())
    own = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--nproc-per-node={processes}"]
    main([*own, "-m", "bench.training", str(config)])
