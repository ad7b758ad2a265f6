"""The example for SLURM starts Ray on every machine, waits for it, and passes on what `bench run` is given."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "docs" / "slurm.sh"
COMMANDS = {
    "scontrol": 'printf "alpha\\nbeta\\ngamma\\n"',
    "srun": 'echo "srun $*" >> "$CALLS"; while [[ $1 == --* ]]; do shift; done; exec "$@"',
    "hostname": 'echo "fe80::1 127.0.0.1 10.0.0.7 "',
    "ray": 'if [[ $1 == status ]]; then [[ -e $CALLS.up ]] || { touch "$CALLS.up"; exit 1; }; exit 0; fi\n'
    'echo $$ >> "$CALLS.pids"; exec /bin/sleep 60',
    "sleep": 'echo "sleep $*" >> "$CALLS"',
    # The machines start in the background: it is not over before both have.
    "bench": 'until [[ $(cat "$CALLS.pids" | wc -l) == 2 ]]; do /bin/sleep 0.02; done 2>/dev/null\n'
    'echo "bench $*" >> "$CALLS"; exit 3',
}


def ran(folder: Path, **more: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The script among commands that only note how they are called."""
    for name, text in COMMANDS.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    calls = folder / "calls"
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "CALLS": str(calls), "USER": "x", **more}
    command = ["bash", str(SCRIPT), "--method", "all", "--model", "my model"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50, check=False)
    return done, calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []


def test_it_starts_ray_everywhere_and_gives_back_what_bench_says(tmp_path: Path) -> None:
    allocation = {"SLURM_JOB_NODELIST": "x", "SLURM_GPUS_ON_NODE": "4", "SLURM_CPUS_PER_TASK": "32"}
    done, calls = ran(tmp_path, CONFBENCH_CACHE="/shared", **allocation)
    assert done.returncode == 3, done.stderr
    (head,) = [call for call in calls if "ray start --head" in call]
    assert "--nodelist=alpha ray start --head --node-ip-address=10.0.0.7 --port=6379" in head
    (others,) = [call for call in calls if "ray start --address" in call]
    assert "--nodes=2 --ntasks-per-node=1 --overlap --nodelist=beta,gamma" in others
    assert "--num-cpus=32 --num-gpus=4" in others
    assert [call for call in calls if call.startswith("sleep ")] == ["sleep 2"]  # Ray is up when it is asked again
    (bench,) = [call for call in calls if call.startswith("bench ")]
    assert bench == "bench run --engine ray --address 10.0.0.7:6379 --workers 12 --method all --model my model"
    started = (tmp_path / "calls.pids").read_text(encoding="utf-8").split()
    assert len(started) == 2
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_asks_for_a_shared_cache(tmp_path: Path) -> None:
    done, calls = ran(tmp_path)
    assert done.returncode
    assert "CONFBENCH_CACHE: name a folder that all machines share" in done.stderr
    assert not calls
