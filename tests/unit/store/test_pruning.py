"""What lies in the store, and removing it: nothing that is claimed or read, nothing outside, nothing half."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.api import UserError
from bench.run import pipeline
from bench.run.config import RunConfig
from bench.run.resolve import ResolvedRun
from bench.store.disk_cache import Store, key_of
from bench.store.lines import append_line, asked_path
from bench.store.locks import adapter_claim, mark_in_use, shard_claim, used_models
from bench.store.pruning import PruneResult, prune, select_entries
from bench.store.usage import UsageRow, format_size, list_usage

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
SHARD = "readings/" + "a" * 64


def put(root: Path, kind: str, name: str, model: str = "tiny", split: str = "mmlu/test") -> UsageRow:
    def write(folder: Path) -> None:
        (folder / "answers.safetensors").write_bytes(b"a" * 10)
        (folder / "signal.safetensors").write_bytes(b"s" * 100)

    fields = {"name": name}
    entry = Store(root).put(kind, key_of(fields), fields, write, model=model, split=split)
    (found,) = (use for use in list_usage(root) if use.path == entry.folder)
    return found


@contextmanager
def held_elsewhere(root: Path, program: str) -> Iterator[None]:
    """Within the context another process is in the `with` of this program."""
    lines = f"from pathlib import Path\nfrom bench.store.locks import *\nroot = Path({str(root)!r})\n{program}"
    lines += ":\n    print(flush=True)\n    input()"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", lines], stdin=pipe, stdout=pipe, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.communicate("\n")


def test_usage_is_told_by_kind_model_and_task(tmp_path: Path) -> None:
    reading = put(tmp_path, SHARD, "one", "llama", "mmlu/test")
    fit = put(tmp_path, "fits", "two", "", "")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_bytes(b"12345")
    assert (reading.kind, reading.model, reading.corpus, reading.answers) == ("readings", "llama", "mmlu", 10)
    assert reading.bytes > 110
    assert (reading.store_kind, fit.store_kind) == (SHARD, "fits")
    assert (fit.model, fit.corpus, fit.answers) == ("", "", 0)
    assert {use.kind: use.bytes for use in list_usage(tmp_path)}["logs"] == 5
    assert list_usage(tmp_path / "nowhere") == []
    sizes = {999: "999 B", 1000: "1.0 kB", 2_930_000: "2.9 MB", 1.2e16: "12000.0 TB"}
    assert {n: format_size(n) for n in sizes} == sizes


def test_damaged_entries_are_counted_and_can_go(tmp_path: Path) -> None:
    use = put(tmp_path, "fits", "one")
    (use.path / "manifest.json").write_text("{", encoding="utf-8")
    (found,) = select_entries(tmp_path, list_usage(tmp_path)).gone
    assert found.model == ""
    assert prune(tmp_path, [found]).gone
    assert not use.path.exists()


def test_entries_are_selected_as_wished(tmp_path: Path) -> None:
    made = [put(tmp_path, SHARD, "r", "tiny"), put(tmp_path, "fits", "f", "llama"), put(tmp_path, "adapters", "a")]
    old = time.time() - 10 * 86_400
    os.utime(made[1].path, (old, old))

    def kinds(**wish: Any) -> set[str]:
        return {use.kind for use in select_entries(tmp_path, list_usage(tmp_path), **wish).gone}

    assert kinds() == {"readings", "fits", "adapters"}
    assert kinds(model="tiny") == {"readings", "adapters"}
    assert kinds(kinds=("fits", "adapters")) == {"fits", "adapters"}
    assert kinds(seconds=9 * 86_400) == {"fits"}
    assert kinds(seconds=11 * 86_400) == set()


def test_entries_go_whole_and_others_stay(tmp_path: Path) -> None:
    first, second, other = put(tmp_path, SHARD, "1"), put(tmp_path, SHARD, "2"), put(tmp_path, "fits", "3")
    (tmp_path / "verdicts").mkdir()
    assert prune(tmp_path, [first]).gone == [first]
    assert Store(tmp_path).keys(SHARD) == [second.path.name]
    prune(tmp_path, [second])
    assert not (tmp_path / SHARD).exists()
    assert other.path.exists()
    assert (tmp_path / "verdicts").exists()
    assert list(tmp_path.glob("tmp-*")) == []
    put(tmp_path, SHARD, "1")  # can be made again


def test_server_answers_go_with_what_was_read(tmp_path: Path) -> None:
    other = "readings/" + "b" * 64
    reading, server = put(tmp_path, SHARD, "1", "one"), put(tmp_path, "servers", "2", "one")
    put(tmp_path, other, "3", "two")
    texts = tmp_path / "asked" / "tokens-0.jsonl"
    paths = [*(asked_path(tmp_path, kind) for kind in (SHARD, other, "readings/unfinished")), texts]
    for path in paths:
        append_line(path, {"key": "k", "value": 1})
    prune(tmp_path, [reading])
    assert [path.exists() for path in paths] == [False, True, True, True]
    claim = shard_claim(tmp_path, "readings/unfinished")
    with held_elsewhere(tmp_path, f"with file_lock(Path({str(claim)!r}), None)"):
        prune(tmp_path, [server])
        assert [path.exists() for path in paths] == [False, True, True, True]
    server, other_server = (put(tmp_path, "servers", name, model) for name, model in (("2", "one"), ("4", "two")))
    prune(tmp_path, [server])  # what is unfinished may be the other's
    assert [path.exists() for path in paths] == [False, True, True, True]
    prune(tmp_path, [other_server])
    assert [path.exists() for path in paths] == [False, True, False, True]
    assert not list((tmp_path / "claims").glob("shard-*"))


def test_server_identity_stays_with_its_readings(tmp_path: Path) -> None:
    rows = [put(tmp_path, SHARD, "1", "one"), put(tmp_path, "servers", "2", "one")]
    old = time.time() - 10 * 86_400
    os.utime(rows[1].path, (old, old))
    assert select_entries(tmp_path, list_usage(tmp_path), seconds=86_400).gone == []
    assert {*select_entries(tmp_path, list_usage(tmp_path)).gone} == {*list_usage(tmp_path)}


def test_entry_that_cannot_be_removed_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = put(tmp_path, "fits", "one")
    monkeypatch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(PermissionError))
    assert prune(tmp_path, [entry]) == PruneResult([], [entry])


@pytest.mark.parametrize("kind", [SHARD, "adapters"])
def test_entries_that_are_claimed_stay(tmp_path: Path, kind: str) -> None:
    use = put(tmp_path, kind, "one")
    path = shard_claim(tmp_path, kind) if kind == SHARD else adapter_claim(tmp_path, use.path.name)
    with held_elsewhere(tmp_path, f"with file_lock(Path({str(path)!r}), None)"):
        choice = select_entries(tmp_path, [use])
        assert (list(choice.gone), list(choice.held)) == ([], [use])
        assert prune(tmp_path, [use]).held == [use]  # also where it is claimed after it was chosen
        assert use.path.exists()
    assert prune(tmp_path, [use]).gone == [use]


def test_entries_that_a_run_reads_stay(tmp_path: Path) -> None:
    mine, other, unnamed = (put(tmp_path, "fits", name, name) for name in ("llama", "qwen", ""))
    with held_elsewhere(tmp_path, "with mark_in_use(root, 'llama')"):
        choice = select_entries(tmp_path, [mine, other, unnamed])
        assert (list(choice.gone), list(choice.held)) == ([other], [mine, unnamed])
        assert prune(tmp_path, [mine]).held == [mine]
    assert prune(tmp_path, [mine]).gone == [mine]


def run(root: Path, program: str) -> int:
    """Exit code of a process with this program."""
    lines = f"import os, shutil\nfrom pathlib import Path\nroot = Path({str(root)!r})\n{program}"
    return subprocess.run([sys.executable, "-c", lines], check=False, env=ENVIRONMENT).returncode


def test_model_is_in_use_before_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what is converted of a GGUF file could be pruned before the run has read it."""

    def opens(_config: object, resolved: ResolvedRun, *_: object) -> None:
        assert used_models(resolved.cache)("tiny")
        raise UserError("opened")

    monkeypatch.setattr(pipeline, "open_resources", opens)
    with pytest.raises(UserError, match="opened"):
        pipeline.run(RunConfig(("ptrue",), "tiny", ("atlas-choice",), cache=tmp_path))
    assert not used_models(tmp_path)("tiny")


def test_runs_that_were_killed_hold_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "from bench.store.locks import *\nwith mark_in_use(root, 'm'): os._exit(9)") == 9
    assert list((tmp_path / "claims").glob("run-*.lock"))
    assert not used_models(tmp_path)("m")
    assert not list((tmp_path / "claims").glob("run-*.lock"))


def test_runs_leave_no_claim_and_need_no_folder(tmp_path: Path) -> None:
    with mark_in_use(tmp_path, "m"):
        assert list((tmp_path / "claims").iterdir())
    assert not [path for path in (tmp_path / "claims").iterdir() if path.name.startswith("run-")]
    (tmp_path / "file").write_text("", encoding="utf-8")
    with mark_in_use(tmp_path / "file", "m"):
        pass


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "cache"
    outside.mkdir()
    root.mkdir()
    use = put(outside, "fits", "one")
    (root / "fits").symlink_to(outside / "fits")
    (root / "adapters" / "ab").mkdir(parents=True)
    (root / "adapters" / "ab" / "abc").symlink_to(use.path)
    (root / "logs").symlink_to(outside)
    assert [each for each in list_usage(root) if each.bytes] == []
    as_if = UsageRow("fits", root / "fits" / use.path.parent.name / use.path.name, 1, store_kind="fits")
    assert prune(root, [as_if]).held == [as_if]
    assert (use.path / "manifest.json").exists()


def test_folders_of_others_are_no_entries(tmp_path: Path) -> None:
    for name in ("fits/ab/suit", "readings/old/ab/novel"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "mine.txt").write_text("mine", encoding="utf-8")
    assert select_entries(tmp_path, list_usage(tmp_path)).gone == []


def test_pruning_that_was_killed_leaves_whole_entries(tmp_path: Path) -> None:
    uses = [put(tmp_path, "fits", str(number)) for number in range(3)]
    program = (
        "from bench.store.pruning import prune\nfrom bench.store.usage import list_usage\n"
        "shutil.rmtree = lambda *a, **k: os._exit(9)\nprune(root, list_usage(root))"
    )
    assert run(tmp_path, program) == 9
    store = Store(tmp_path)
    assert len(store.entries("fits")) == len(store.keys("fits")) == len(uses) - 1
    assert list(tmp_path.glob("tmp-*"))
    prune(tmp_path, [])
    assert not list(tmp_path.glob("tmp-*"))


def test_entries_read_under_another_name_stay(tmp_path: Path) -> None:
    """A copy of a model, or its Hub id beside its alias, has the same weights, so that the same entries are read."""
    use, other = put(tmp_path, "fits", "one", "alias"), put(tmp_path, "fits", "two", "elsewhere")
    program = (
        "from bench.store.disk_cache import Store\nstore = Store(root)\n"
        "def reading():\n    with mark_in_use(root, 'organisation/model') as store.reads:\n"
        f"        assert store.get('fits', {use.path.name!r})\n        yield\n"
        "from contextlib import contextmanager\nwith contextmanager(reading)()"
    )
    with held_elsewhere(tmp_path, program):
        choice = select_entries(tmp_path, [use, other])
        assert (list(choice.gone), list(choice.held)) == ([other], [use])
        assert prune(tmp_path, [use]).held == [use]
    assert prune(tmp_path, [use]).gone == [use]
    assert not list((tmp_path / "claims").glob("run-*"))
