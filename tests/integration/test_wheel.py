"""What users install: the wheel works outside the checkout, in an empty home, and the source archive has the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT

pytestmark = pytest.mark.slow


def done(*command: str | Path, cwd: Path, **environment: str) -> str:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "OMP_NUM_THREADS") if name in os.environ}
    ended = subprocess.run(
        command, cwd=cwd, env=kept | environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    return ended.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    done(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder, HOME=str(folder))
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return archive, wheel


@pytest.fixture(scope="module")
def bench(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, in an environment of its own; only the libraries are those of the tests."""
    environment = tmp_path_factory.mktemp("environment")
    done(sys.executable, "-m", "venv", "--without-pip", environment, cwd=environment)
    python = environment / "bin" / "python"
    install = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", built[1])
    done(*install, cwd=environment, HOME=str(environment))
    (packages,) = (environment / "lib").glob("python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return environment / "bin" / "bench"


def test_installed_command_lists_runs_and_shows(bench: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()

    def called(*words: str) -> str:
        return done(bench, *words, cwd=tmp_path, HOME=str(home), HF_HUB_OFFLINE="1")

    assert "ccps" in called("list", "methods")
    rows = json.loads(called("run", "--method", "ptrue", "--model", "tiny", "--limit", "8", "--json"))["rows"]
    assert {row["task"] for row in rows} == {"atlas-choice", "atlas-oe"}
    code = rows[0]["provenance"]["code"]
    assert code["git_sha"] is None
    assert code["record_digest"]
    assert "ptrue" in called("table", "--partial")
    called("report", "--partial", "--out", "report.html")
    assert "ptrue" in (tmp_path / "report.html").read_text(encoding="utf-8")
    where = done(bench.parent / "python", "-c", "import methods; print(methods.__file__)", cwd=tmp_path)
    assert str(bench.parents[1]) in where


def test_foreign_package_in_its_place_is_told(bench: Path, tmp_path: Path) -> None:
    (packages,) = (bench.parents[1] / "lib").glob("python*/site-packages")
    ours = packages / "methods" / "__init__.py"
    kept = ours.read_bytes()
    try:
        ours.write_text('"""Recipes."""\n', encoding="utf-8")
        ended = subprocess.run([bench, "list", "methods"], capture_output=True, text=True, check=False, cwd=tmp_path)
    finally:
        ours.write_bytes(kept)
    assert ended.returncode == 2
    assert f"{ours} is not the file that confbench installed: another package with a folder `methods`" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_archives_hold_tests_and_code(built: tuple[Path, Path]) -> None:
    archive, wheel = built
    tracked = done("git", "ls-files", cwd=ROOT).splitlines()
    with tarfile.open(archive) as tar:
        packed = {name.partition("/")[2] for name in tar.getnames()}
    assert set(tracked) <= packed | {".gitattributes"}  # the tests, and all that they read
    with zipfile.ZipFile(wheel) as zipped:
        names = zipped.namelist()
    assert {"bench/py.typed", "methods/py.typed", "tasks/py.typed"} <= set(names)
    metadata = next(name for name in names if name.endswith(".dist-info/METADATA")).partition("/")[0]
    assert {name.partition("/")[0] for name in names} == {"bench", "methods", "tasks", metadata}
