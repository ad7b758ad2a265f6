"""Rows from Parquet folders and from the Hub, which here is a local HTTP server."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from bench.api import Row, TaskCard, UserError
from bench.api.errors import AbsentError
from bench.data import sources
from bench.data.sources import ENVIRONMENT, FolderSource, HubSource, open_source
from bench.data.tables import TableRows, parquet_bytes
from tasks import _choices
from tests.kit import servers
from tests.kit.servers import SHA, Repository

CARD = TaskCard(
    license="MIT", version=1, splits={"test": "validation"}, sizes={"test": 2}, options=(2, 4), why="for tests",
    hub="someone/quiz", config="all", revision=SHA, folder="quiz",
)  # fmt: skip
COLUMNS = ("question", "answer")
TABLE = pa.table({"question": ["a?", "b?"], "other": [1.5, 2.5], "answer": [0, 1]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "quiz").mkdir()
    parquet.write_table(TABLE, tmp_path / "quiz" / "validation.parquet")
    return tmp_path


# --- folder -----------------------------------------------------------------------------------------------------------


def test_row_numbers_go_on_over_chunks(folder: Path) -> None:
    table = pa.table({"question": [str(i) for i in range(3000)], "answer": list(range(3000))})
    parquet.write_table(table, folder / "quiz" / "validation.parquet", row_group_size=700)
    rows = FolderSource(folder).rows(CARD, "test", COLUMNS)
    assert [(row.index, row.values["answer"]) for row in rows] == [(i, i) for i in range(3000)]


def test_split_that_the_card_does_not_have(folder: Path) -> None:
    with pytest.raises(UserError, match="splits test, got 'dev'"):
        list(FolderSource(folder).rows(CARD, "dev", COLUMNS))


def test_data_dir_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--data-dir .*nowhere, which is not a folder"):
        open_source(tmp_path / "nowhere")


def test_environment_names_the_folder_unless_an_argument_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(folder))
    assert len(list(open_source(None).rows(CARD, "test", COLUMNS))) == 2
    monkeypatch.setenv(ENVIRONMENT, str(folder / "nowhere"))
    with pytest.raises(UserError, match=r"\$CONFBENCH_DATA"):
        open_source(None)
    assert isinstance(open_source(folder), FolderSource)
    monkeypatch.setenv(ENVIRONMENT, "")
    assert isinstance(open_source(None), HubSource)


def test_split_is_absent_only_without_any_file(tmp_path: Path) -> None:
    """Which a run may do without; a damaged file or a lost part it may not."""
    (tmp_path / "quiz").mkdir()
    source = FolderSource(tmp_path)
    with pytest.raises(AbsentError, match="it is not there"):
        source.rows(CARD, "test", COLUMNS)
    parquet.write_table(TABLE, tmp_path / "quiz" / "validation-00000-of-00002.parquet")
    with pytest.raises(UserError, match="expected the 2 parts") as lost:
        source.rows(CARD, "test", COLUMNS)
    (tmp_path / "quiz" / "validation.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match="expected a whole Parquet file") as damaged:
        source.rows(CARD, "test", COLUMNS)
    assert not isinstance(lost.value, AbsentError)
    assert not isinstance(damaged.value, AbsentError)


def test_parts_are_read_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "quiz").mkdir()
    names = [f"quiz/validation-{part}-of-00002.parquet" for part in ("00000", "00001")]
    for name, table in zip(names, (TABLE, TABLE.slice(1)), strict=True):
        parquet.write_table(table, tmp_path / name)
    parquet.write_table(TABLE, tmp_path / "quiz" / "validation-small-00000-of-00001.parquet")
    source = FolderSource(tmp_path)
    assert source.has(CARD, "test")
    assert list(source.rows(CARD, "test", COLUMNS)) == [
        Row(0, f"{names[0]} row 0", {"question": "a?", "answer": 0}),
        Row(1, f"{names[0]} row 1", {"question": "b?", "answer": 1}),
        Row(2, f"{names[1]} row 0", {"question": "b?", "answer": 1}),
    ]
    digests = [hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in names]
    assert source.describe(CARD, "test") == {
        "source": "folder", "file": ", ".join(names), "sha256": ", ".join(digests),
    }  # fmt: skip
    parquet.write_table(TABLE, tmp_path / "quiz" / "validation.parquet")  # which goes before parts
    whole = [f"quiz/validation.parquet row {i}" for i in range(2)]
    assert [row.where for row in source.rows(CARD, "test", COLUMNS)] == whole


# --- rows of a table --------------------------------------------------------------------------------------------------


def _many(n: int, *cuts: int) -> TableRows:
    table = pa.table({"i": list(range(n))})
    return TableRows({f"t{a}": table.slice(a, b - a) for a, b in itertools.pairwise([0, *cuts, n])})


def test_rows_are_found_from_both_ends_and_by_slices() -> None:
    rows = _many(10, 3, 3, 7)
    assert len(rows) == 10
    assert [rows[i].values["i"] for i in range(10)] == list(range(10))
    assert [rows[i - 10] for i in range(10)] == list(rows)
    assert rows[3] == Row(3, "t3 row 0", {"i": 3})
    assert rows[-1] == Row(9, "t7 row 2", {"i": 9})
    for part in (slice(None), slice(2, 8, 3), slice(-3, None), slice(None, None, -1), slice(8, 2), slice(-99, 99)):
        assert list(rows[part]) == list(rows)[part]
    assert list(reversed(rows)) == list(rows)[::-1]
    assert rows[4] in rows
    for i in (10, -11, 99):
        with pytest.raises(IndexError):
            rows[i]


# --- options ----------------------------------------------------------------------------------------------------------

GOOD = {"question": "Q?", "subject": "anatomy", "choices": ["a", "b", "c", "d"], "answer": 3}
FIELDS = _choices.Fields("subject", "question", "choices", "answer")


@pytest.mark.parametrize("n", [2, 26])
def test_options_are_at_least_two_and_most_26(n: int) -> None:
    read = _choices.question(Row(0, "f row 0", GOOD | {"choices": ["x"] * n, "answer": n - 1}), FIELDS, "id")
    assert (len(read.choices), read.gold) == (n, n - 1)


def test_rows_with_one_id_are_both_named() -> None:
    rows = [Row(i, f"f.parquet row {i}", GOOD) for i in range(3)]
    pairs = [(row, _choices.question(row, FIELDS, f"id-{row.index % 2}")) for row in rows]
    with pytest.raises(UserError, match=r"^f.parquet row 2: .*'id-0', which f.parquet row 0 has too"):
        list(_choices.require_unique_ids(pairs))


# --- Hub --------------------------------------------------------------------------------------------------------------

README = b"---\nconfigs:\n- config_name: all\n  data_files:\n  - split: validation\n    path: all/validation-*\n---\n"


def _files(table: pa.Table, cut: int | None = None) -> dict[str, bytes]:
    """A data set that can be loaded by its configuration, and by the name of its file."""
    content = parquet_bytes(table)[:cut]
    names = ("all/validation-00000-of-00001.parquet", "default/validation/0000.parquet")
    return {"README.md": README, **dict.fromkeys(names, content)}


SHORT = _files(TABLE.drop_columns(["answer"]))
REPOSITORIES = {
    "someone/quiz": Repository(_files(TABLE)),
    "someone/cut": Repository(_files(TABLE, -50)),
    "someone/empty": Repository(_files(TABLE.slice(0, 0))),
    "someone/short": Repository(SHORT),
    "someone/gated": Repository({}, gated=True),
    "someone/moved": Repository(_files(TABLE), main=SHORT),
}

SCRIPT = """
import json, sys, time
from bench.api import TaskCard, UserError
from bench.data.sources import HubSource
read = {}
for name, card in json.loads(sys.argv[1]).items():
    started = time.monotonic()
    try:
        source, card = HubSource(), TaskCard(**card)
        rows = [(r.index, r.where, r.values) for r in source.rows(card, "test", ["question", "answer"])]
        read[name] = {"rows": rows, "about": source.describe(card, "test")}
    except UserError as error:
        read[name] = {"error": str(error)}
    read[name]["took"] = time.monotonic() - started
print(json.dumps(read))
"""

Read = dict[str, dict[str, Any]]
"""Name of a card -> the rows and what is said of them, or the error; and how long it took."""


def _load_from(endpoint: str, home: Path, cards: Mapping[str, TaskCard], **environment: str) -> Read:
    asked = {name: dataclasses.asdict(card) for name, card in cards.items()}
    read: Read = servers.answer_of(SCRIPT, asked, endpoint, home, **environment)
    return read


NAMED = dataclasses.replace(CARD, files="default/{split}/0000.parquet")
"""A split that is one named file, as in the Parquet branch of a data set that was a script."""
UNPINNED: dict[str, Any] = {"revision": None, "unpinned_reason": "no record of one"}
CARDS = {
    "plain": CARD,
    "named": NAMED,
    **{
        f"{kind} {name}": dataclasses.replace(card, hub=f"someone/{name}")
        for kind, card in (("plain", CARD), ("named", NAMED))
        for name in ("moved", "cut", "empty", "short", "gated", "nothing")
    },
    "no such config": dataclasses.replace(CARD, config="nope"),
    "no such file": dataclasses.replace(NAMED, files="default/{split}/0001.parquet"),
    "plain unpinned": dataclasses.replace(CARD, **UNPINNED),
    "named unpinned": dataclasses.replace(NAMED, **UNPINNED),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def online(home: Path) -> Read:
    with servers.hub(REPOSITORIES) as endpoint:
        return _load_from(endpoint, home, CARDS)


@pytest.fixture(scope="module")
def offline(online: Read, home: Path) -> Read:
    """The same without the Hub, after it was there; and other revisions than those that were loaded."""
    other = {
        f"{name} of another revision": dataclasses.replace(CARDS[name], revision="f" * 40)
        for name in ("plain", "named")
    }
    names = ("plain", "named", "plain unpinned", "named unpinned")
    assert all("rows" in online[name] for name in names)
    return _load_from(servers.NOBODY, home, {name: CARDS[name] for name in names} | other)


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("plain", {}),
        ("named", {"file": "default/validation/0000.parquet"}),
        ("plain unpinned", {"asked for": "main"}),
        ("named unpinned", {"file": "default/validation/0000.parquet", "asked for": "main"}),
    ],
)
def test_hub_rows_are_read_then_found_in_the_cache_without_it(
    online: Read, offline: Read, name: str, about: dict[str, str]
) -> None:
    where = f"someone/quiz@{'main' if 'unpinned' in name else SHA[:8]} validation"
    for read in (online[name], offline[name]):
        assert read["rows"] == [
            [0, f"{where} row 0", {"question": "a?", "answer": 0}],
            [1, f"{where} row 1", {"question": "b?", "answer": 1}],
        ]
        expected = {"source": "hub", "hub": "someone/quiz", "split": "validation", **about, "revision": SHA}
        assert read["about"] == expected


@pytest.mark.parametrize("name", ["plain moved", "named moved"])
def test_hub_rows_are_those_of_the_pinned_revision(online: Read, name: str) -> None:
    assert [values for _, _, values in online[name]["rows"]] == TABLE.select(COLUMNS).to_pylist()
    assert online[name]["about"]["revision"] == SHA


def test_cached_copy_of_another_revision_is_not_taken(offline: Read) -> None:
    # `datasets` would give the cached copy for any revision; a pinned task must not take it
    said = offline["plain of another revision"]["error"]
    assert f"at revision {'f' * 40}" in said
    assert SHA in said
    said = offline["named of another revision"]["error"]
    assert "can't be reached and nothing fitting is cached" in said


@pytest.mark.parametrize(
    "environment",
    [{}, *(pytest.param({name: "1"}, marks=pytest.mark.slow) for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"))],
)
def test_hub_out_of_reach_is_told_at_once(tmp_path: Path, environment: dict[str, str]) -> None:
    for read in _load_from(servers.NOBODY, tmp_path, {"plain": CARD, "named": NAMED}, **environment).values():
        assert "someone/quiz" in read["error"]
        assert "can't be reached and nothing fitting is cached" in read["error"]
        assert "--data-dir" in read["error"]
        assert read["took"] < 10


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("plain gated, named gated", ["someone/gated is gated", "hf auth login", "--data-dir"]),
        ("plain nothing, named nothing", ["Can't load someone/nothing", "--data-dir"]),
        ("no such config", ["Can't load someone/quiz (config nope, revision 0123", "nope", "--data-dir"]),
        ("no such file", ["Can't load someone/quiz (default/validation/0001.parquet, revision 0123", "--data-dir"]),
        ("plain short, named short", ["someone/short@01234567 validation: expected the column answer, found only que"]),
        ("plain empty", ["someone/empty", "expected at least one row"]),
        ("named empty", ["someone/empty@01234567 validation: expected at least one row"]),
        (
            "plain cut, named cut",
            ["someone/cut", "whole Parquet file", "can't be read", "HOME/hub/datasets--someone--cut"],
        ),
    ],
)
def test_hub_troubles_are_one_sentence(online: Read, home: Path, names: str, words: list[str]) -> None:
    for name in names.split(", "):
        said = online[name]["error"].replace(str(home), "HOME")
        assert all(word in said for word in words), said
        assert "\n" not in said
        assert len(said) < 500
    assert list((home / "hub" / "datasets--someone--cut").rglob("*.parquet"))


# --- a full disk ------------------------------------------------------------------------------------------------------


def _out_of_space() -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "/cache/file.arrow")


def _over_quota() -> None:
    raise OSError(errno.EDQUOT, "Disk quota exceeded")


def _in_words() -> None:
    raise OSError("Not enough disk space. Needed: 2.50 GiB (download: 1.00 GiB, generated: 1.50 GiB")


def _wrapped() -> None:
    """As `datasets` passes on what happens while it writes."""
    try:
        try:
            _out_of_space()
        except OSError as error:
            raise ValueError("while closing") from error
    except ValueError:
        raise RuntimeError("An error occurred while generating the dataset")  # noqa: B904 - a context, no cause


@pytest.mark.parametrize("fails", [_out_of_space, _over_quota, _in_words, _wrapped])
@pytest.mark.parametrize(
    ("card", "loader"), [(CARD, "datasets.load_dataset"), (NAMED, "huggingface_hub.hf_hub_download")]
)
def test_full_disk_names_its_folder(
    monkeypatch: pytest.MonkeyPatch, card: TaskCard, loader: str, fails: Callable[[], None]
) -> None:
    import datasets

    monkeypatch.setattr(sources, "probe", lambda *_: object())
    monkeypatch.setattr(loader, lambda *_, **__: fails())
    monkeypatch.setattr(datasets.config, "HF_CACHE_HOME", "/somewhere/huggingface")
    with pytest.raises(UserError) as caught:
        HubSource().rows(card, "test", COLUMNS)
    words = ("No space is left", "someone/quiz", "/somewhere/huggingface", "HF_HOME", "--data-dir")
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)
