"""Provenance: says what the code was, tells nothing about people or folders, and never fails."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from bench.api import UserError
from bench.results import provenance
from bench.run import pipeline
from bench.run.config import RunConfig

ROOT = Path(__file__).parents[3]

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(autouse=True)
def fresh_cache():
    provenance.code.cache_clear()
    yield
    provenance.code.cache_clear()


def git(folder, *arguments):
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    """A git repository laid out like ours, with one commit."""
    for name in ("bench/a.py", "methods/b.py", "tasks/c.py", "pyproject.toml", "README.md", "results/r.json"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path.resolve()


def strings(value):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from (key, *strings(item))
    elif isinstance(value, str):
        yield value


@needs_git
def test_clean_checkout_has_its_commit_wherever_one_is(checkout, tmp_path, monkeypatch):
    head = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, check=True, text=True)
    code = provenance.code(checkout)
    assert code["git_sha"] == head.stdout.strip()
    assert (code["dirty"], code["record_digest"], code["reason"]) == (False, None, None)
    provenance.code.cache_clear()
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert provenance.code(checkout) == code


@needs_git
def test_commit_is_known_to_whole_repositories(checkout, tmp_path_factory):
    (checkout / "README.md").write_text("2\n")
    git(checkout, "commit", "--quiet", "--all", "--message", "second")
    read = ["git", "-C", checkout, "rev-list", "HEAD"]
    last, first = subprocess.run(read, capture_output=True, check=True, text=True).stdout.split()
    assert provenance.has_commit(checkout / "results", first) is True
    assert provenance.has_commit(checkout, "0" * 40) is False
    assert provenance.has_commit(checkout, "--help") is False
    outside = tmp_path_factory.mktemp("outside")
    assert provenance.has_commit(outside, first) is None
    git(outside, "clone", "--quiet", "--depth", "1", checkout.as_uri(), outside / "clone")
    assert provenance.has_commit(outside / "clone", last) is True
    assert provenance.has_commit(outside / "clone", first) is None


CODE = ("bench/a.py", "methods/b.py", "tasks/c.py", "pyproject.toml", "bench/a.py, staged")
OTHER = ("README.md", "results/r.json", "bench/new.py")


@needs_git
@pytest.mark.parametrize(("name", "dirty"), [*((name, True) for name in CODE), *((name, False) for name in OTHER)])
def test_dirty_means_tracked_changes_in_the_code(checkout, name, dirty):
    if name == "bench/a.py, staged":
        (checkout / "bench/a.py").unlink()
        git(checkout, "add", "--all")
    else:
        (checkout / name).write_text("2\n")
    assert provenance.code(checkout)["dirty"] is dirty


@needs_git
def test_foreign_repository_gives_no_commit(checkout, tmp_path_factory):
    inside = checkout / ".venv" / "site-packages"
    (inside / "bench").mkdir(parents=True)
    empty = tmp_path_factory.mktemp("empty").resolve()
    git(empty, "init", "--quiet")
    for folder, reason in ((inside, "something else"), (empty, "no commit")):
        code = provenance.code(folder)
        assert (code["git_sha"], code["dirty"]) == (None, None)
        assert reason in code["reason"]


def test_git_may_be_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    code = provenance.code(tmp_path)
    assert (code["git_sha"], code["dirty"], code["record_digest"]) == (None, None, None)
    assert "git is missing" in code["reason"]


def install(folder, monkeypatch, *, hash_of_code="abc", extra=""):
    """An installed wheel in `folder`, as far as importlib.metadata looks."""
    info = folder / "confbench-9.9.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: confbench\nVersion: 9.9\n")
    (info / "RECORD").write_text(f"bench/api.py,sha256={hash_of_code},1\n{extra}confbench-9.9.dist-info/RECORD,,\n")
    (folder / "bench").mkdir(exist_ok=True)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    provenance.code.cache_clear()
    return provenance.code(folder.resolve())


def test_wheel_is_known_by_the_hashes_of_its_files(tmp_path, monkeypatch):
    code = install(tmp_path / "a", monkeypatch)
    assert (code["version"], code["git_sha"], code["dirty"], code["reason"]) == ("9.9", None, None, None)
    assert len(code["record_digest"]) == 64
    assert install(tmp_path / "b", monkeypatch, hash_of_code="xyz")["record_digest"] != code["record_digest"]
    assert provenance.record_digest((tmp_path / "other").resolve()) is None
    installers_own = "bench/__pycache__/api.pyc,,\n../../bin/bench,sha256=123,4\n"
    assert install(tmp_path / "c", monkeypatch, extra=installers_own)["record_digest"] == code["record_digest"]


def test_provenance_is_of_the_running_program():
    found = provenance.collect("cpu", {"cais/mmlu": "c" * 40})
    assert found["python"] == platform.python_version()
    assert found["packages"]["numpy"] == np.__version__
    assert found["packages"]["pyarrow"] == metadata.version("pyarrow")
    assert (found["hardware"]["cores"], found["hardware"]["device"]) == (os.cpu_count(), "cpu")
    assert found["revisions"] == {"cais/mmlu": "c" * 40}


def test_run_records_the_commit_of_its_start(tmp_path, monkeypatch):
    """Its first cell may come hours later, after another commit."""
    looked_up = []

    def resolve(*_):
        looked_up.extend(each.cache_info().currsize for each in (provenance.code, provenance.packages))
        raise UserError("enough")

    monkeypatch.setattr(pipeline, "resolve", resolve)
    provenance.packages.cache_clear()
    with pytest.raises(UserError, match="enough"):
        pipeline.run(RunConfig(("ptrue",), "tiny", cache=tmp_path))
    assert looked_up == [1, 1]


def test_provenance_tells_neither_who_nor_where():
    found = provenance.collect("cpu")
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    private = {str(ROOT), str(Path.home()), platform.node(), os.environ.get("USER", "")} - {""}
    for text in strings(found):
        assert not text.startswith(("/", "~", "\\"))
        assert all(word not in text for word in private if len(word) > 3), text


def test_threads_are_those_of_torch_without_loading_it():
    program = """
import json, sys
from bench.results.provenance import collect
before = collect("cuda:0")
assert "torch" not in sys.modules, "provenance loaded torch"
import torch
torch.set_num_threads(1)
print(json.dumps([before["threads"]["torch"], collect("cuda:99")["threads"]["torch"]]))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout) == [None, 1]


@needs_git
def test_tracked_files_are_those_below_the_folder(checkout, tmp_path_factory):
    (checkout / "results/new.json").write_text("1\n")
    assert provenance.tracked_files(checkout / "results") == {"r.json"}
    assert "r.json" not in provenance.tracked_files(checkout / "nowhere")
    latin = os.fsdecode(b"caf\xe9.json")
    (checkout / "results" / latin).write_text("1\n")
    git(checkout, "add", ".")
    assert provenance.tracked_files(checkout / "results") == {"r.json", "new.json", latin}
    assert provenance.tracked_files(tmp_path_factory.mktemp("outside")) == frozenset()
