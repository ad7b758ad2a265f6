"""`bench doctor`: each finding with its fix, whatever is broken."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from bench.cli import doctor
from bench.cli.finding import Finding, State
from tests.kit.command import bench

CPU_BUILD = {
    "version": "2.13.0+cpu", "cuda": None, "hip": None, "cards": [], "mps": False, "bf16": False, "computes": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({}, [("note", "NVIDIA H100: not used; torch 2.13.0+cpu is built for the CPU alone", "install torch for")]),
        ({"cuda": "13.0"}, [("note", "is built for CUDA 13.0", "install torch for the CUDA")]),
        ({"cuda": "12.8", "cards": [["H100", 80e9]]},
         [("ok", "H100 (80 GB)", ""), ("note", "not supported", "run with --dtype float16")]),
        ({"mps": True}, [("note", "Apple GPU: not used", "--device mps: never tried; without float64")]),
    ],
)  # fmt: skip
def test_torch_is_held_against_its_card(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], told: list[tuple[str, str, str]]
) -> None:
    monkeypatch.setattr(doctor, "python_json", lambda _: CPU_BUILD | found)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(doctor, "program_output", lambda *_: "NVIDIA H100\n")
    _, *cards = doctor.check_torch()
    for card, (state, what, fix) in zip(cards, told, strict=True):
        assert card.state == state
        assert what in card.what
        assert card.fix.startswith(fix)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise ImportError('libcudart.so.12: no such file')", "libcudart"),
        ("import os; os.abort()", "ended by SIGABRT"),
        ("print('hello')", "unexpected"),
    ],
)
def test_torch_that_crashes_is_a_finding(monkeypatch: pytest.MonkeyPatch, program: str, said: str) -> None:
    monkeypatch.setattr(doctor, "_TORCH", program)
    (found,) = doctor.check_torch()
    assert found.state is State.BAD
    assert said in found.what
    assert found.fix.startswith("pip install --force-reinstall torch")


def test_library_that_hangs_is_left() -> None:
    start = time.monotonic()
    with pytest.raises(doctor.FailedError, match="no answer within 1 s"):
        doctor.python_json("import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'], stdin=None)\n"
                      "import time; time.sleep(60)", 1.0)  # fmt: skip
    assert time.monotonic() - start < 10


def test_hub_whose_name_is_never_found_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(doctor, "_HUB_S", 0.2)
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: time.sleep(30))
    (found,) = doctor.check_hub()
    assert found.state is State.NOTE
    assert "no answer" in found.what


def test_hub_that_is_offline_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    (found,) = doctor.check_hub()
    assert "HF_HUB_OFFLINE is set (with a token)" in found.what
    assert "secret" not in str(found)


def test_package_that_is_called_bench_too_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"bench": ["confbench", "frappe-bench"]})
    (found,) = (each for each in doctor.other_bench() if each.state is State.BAD)
    assert "frappe-bench" in found.what
    assert "pip uninstall frappe-bench" in found.fix


def test_package_that_is_missing_or_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _: ["numpy>=999", "nosuch>=1", 'ray>=2; extra == "ray"'])
    (found,) = doctor.check_packages()
    assert (found.state, found.fix) == (State.BAD, "pip install 'numpy>=999' 'nosuch>=1'")


def test_folder_that_can_not_be_written_stops_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path / "file"))
    cache, results, _ = doctor.check_folders(tmp_path / "new" / "results")
    assert cache.state is State.BAD
    assert "CONFBENCH_CACHE" in cache.fix
    assert results.state is not State.BAD
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1e6}))  # a full disk
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path))
    assert {finding.state for finding in doctor.check_folders(tmp_path)} == {State.BAD}


@pytest.mark.parametrize(("state", "code"), [(State.OK, 0), (State.NOTE, 0), (State.BAD, 1)])
def test_exit_code_tells_whether_a_run_can_start(state: State, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "run_checks", lambda _: [Finding("torch", state, "broken", "mend it")])
    shown, data = bench("doctor"), bench("doctor", "--json")
    assert shown.returncode == data.returncode == code
    assert "mend it" in shown.stdout
    assert json.loads(data.stdout)["can_run"] is (code == 0)
    assert json.loads(data.stdout)["findings"][0]["fix"] == "mend it"


def test_check_that_fails_itself_hides_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def breaks() -> Any:
        raise RuntimeError("odd machine")
        yield

    monkeypatch.setattr(doctor, "check_memory", breaks)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("check_torch", "check_libraries", "other_bench"):
        monkeypatch.setattr(doctor, name, lambda: iter([Finding("torch", State.OK, sys.version)]))
    found = doctor.run_checks(tmp_path)
    assert any("odd machine" in each.what for each in found)
    assert {"Python", "cache", "Hub"} <= {each.about for each in found}
