"""Rows from Parquet folders and from the Hub: every bad input is one sentence; the Hub here is a local HTTP server."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import http.server
import io
import itertools
import json
import os
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from bench.api import Row, TaskCard, UserError
from bench.data import sources
from bench.data.sources import ENVIRONMENT, FolderSource, HubSource, open_source
from bench.data.tables import TableRows
from tasks import _choices
from tasks.mmlu import MMLUChoice

SHA = "0123456789abcdef0123456789abcdef01234567"
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


def test_folder_yields_the_wanted_columns_in_order(folder: Path) -> None:
    rows = list(FolderSource(folder).rows(CARD, "test", COLUMNS))
    assert rows == [
        Row(0, "quiz/validation.parquet row 0", {"question": "a?", "answer": 0}),
        Row(1, "quiz/validation.parquet row 1", {"question": "b?", "answer": 1}),
    ]


def test_row_numbers_go_on_over_chunks(folder: Path) -> None:
    table = pa.table({"question": [str(i) for i in range(3000)], "answer": list(range(3000))})
    parquet.write_table(table, folder / "quiz" / "validation.parquet", row_group_size=700)
    assert [(r.index, r.values["answer"]) for r in FolderSource(folder).rows(CARD, "test", COLUMNS)] == [
        (i, i) for i in range(3000)
    ]


def test_folder_is_described_by_the_digest_of_the_file(folder: Path) -> None:
    content = (folder / "quiz" / "validation.parquet").read_bytes()
    assert FolderSource(folder).describe(CARD, "test") == {
        "source": "folder", "file": "quiz/validation.parquet", "sha256": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip


def _fails(source: FolderSource | HubSource, *words: str, card: TaskCard = CARD, absent: str = "\0") -> None:
    with pytest.raises(UserError) as caught:
        list(source.rows(card, "test", COLUMNS))
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert absent not in message
    assert "\n" not in message


def test_missing_file_is_named(folder: Path) -> None:
    (folder / "quiz" / "validation.parquet").unlink()
    _fails(FolderSource(folder), "quiz/validation.parquet", "--data-dir", absent=str(folder))


def test_missing_column_is_named_with_those_that_are_there(folder: Path) -> None:
    parquet.write_table(TABLE.drop_columns(["answer"]), folder / "quiz" / "validation.parquet")
    _fails(FolderSource(folder), "quiz/validation.parquet", "column answer", "question, other")


@pytest.mark.parametrize("keep", [0, 3, 100, -1, -200])
def test_file_that_was_cut_short_is_named(folder: Path, keep: int) -> None:
    path = folder / "quiz" / "validation.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    _fails(FolderSource(folder), "quiz/validation.parquet", "can't be read", absent=str(folder))


def test_file_with_damaged_pages_is_named(folder: Path) -> None:
    path = folder / "quiz" / "validation.parquet"
    content = bytearray(path.read_bytes())
    content[4:80] = b"\xff" * 76
    path.write_bytes(content)
    _fails(FolderSource(folder), "quiz/validation.parquet", "can't be read")


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


def test_file_without_rows_is_named(folder: Path) -> None:
    parquet.write_table(TABLE.slice(0, 0), folder / "quiz" / "validation.parquet")
    _fails(FolderSource(folder), "quiz/validation.parquet", "at least one row", "empty")


# --- the Hub's own parts, in a folder ---------------------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """Three parts of a split, the one in the middle without a row, beside a split whose name begins alike."""
    (tmp_path / "quiz").mkdir()
    for part, rows in enumerate((["a?", "b?"], [], ["c?"])):
        table = pa.table({"question": pa.array(rows, pa.string()), "answer": pa.array([part] * len(rows), pa.int64())})
        parquet.write_table(table, tmp_path / "quiz" / f"validation-{part:05d}-of-00003.parquet")
    parquet.write_table(TABLE, tmp_path / "quiz" / "validation-small-00000-of-00001.parquet")
    return tmp_path


def test_parts_are_read_one_after_the_other(parts: Path) -> None:
    (parts / "quiz" / "validation-00001-of-00003.parquet").unlink()
    for old, new in (("00000-of-00003", "00000-of-00002"), ("00002-of-00003", "00001-of-00002")):
        (parts / "quiz" / f"validation-{old}.parquet").rename(parts / "quiz" / f"validation-{new}.parquet")
    source = FolderSource(parts)
    assert source.has(CARD, "test")
    assert list(source.rows(CARD, "test", COLUMNS)) == [
        Row(0, "quiz/validation-00000-of-00002.parquet row 0", {"question": "a?", "answer": 0}),
        Row(1, "quiz/validation-00000-of-00002.parquet row 1", {"question": "b?", "answer": 0}),
        Row(2, "quiz/validation-00001-of-00002.parquet row 0", {"question": "c?", "answer": 2}),
    ]
    files = [f"quiz/validation-{part}-of-00002.parquet" for part in ("00000", "00001")]
    digests = [hashlib.sha256((parts / name).read_bytes()).hexdigest() for name in files]
    assert source.describe(CARD, "test") == {
        "source": "folder", "file": ", ".join(files), "sha256": ", ".join(digests),
    }  # fmt: skip


def test_a_part_without_rows_is_named(parts: Path) -> None:
    _fails(FolderSource(parts), "quiz/validation-00001-of-00003.parquet", "at least one row")


@pytest.mark.parametrize("missing", ["00000", "00001", "00002"])
def test_a_missing_part_is_named(parts: Path, missing: str) -> None:
    (parts / "quiz" / f"validation-{missing}-of-00003.parquet").unlink()
    _fails(FolderSource(parts), "expected the 3 parts", "found 2", f"quiz/validation-{missing}-of-00003.parquet")


def test_parts_of_two_downloads_are_not_mixed(parts: Path) -> None:
    parquet.write_table(TABLE, parts / "quiz" / "validation-00000-of-00001.parquet")
    _fails(FolderSource(parts), "parts that", "found 4", "copy the folder again")


def test_a_file_with_the_splits_name_goes_before_parts(parts: Path) -> None:
    parquet.write_table(TABLE, parts / "quiz" / "validation.parquet")
    assert [row.where for row in FolderSource(parts).rows(CARD, "test", COLUMNS)] == [
        "quiz/validation.parquet row 0", "quiz/validation.parquet row 1",
    ]  # fmt: skip


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


class Counted:
    """A table that counts the rows of which Python objects are made."""

    made = 0

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def slice(self, *where: int) -> Counted:
        return Counted(self.table.slice(*where))

    def to_pylist(self) -> list[dict[str, Any]]:
        Counted.made += len(self)
        return self.table.to_pylist()


def test_rows_of_a_large_table_are_made_when_asked_for() -> None:
    rows = TableRows({"t": Counted(pa.table({"question": [f"what is {i}?" for i in range(100_000)]}))})
    found = [rows[i * 7919 % 100_000].values["question"] for i in range(50)]
    assert found[1] == "what is 7919?"
    assert Counted.made == 50


# --- rows that are not as they must be --------------------------------------------------------------------------------

GOOD = {"question": "Q?", "subject": "anatomy", "choices": ["a", "b", "c", "d"], "answer": 3}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("answer", 4, ("answer index from 0 to 3", "got int 4")),
        ("answer", -1, ("answer index", "got int -1")),
        ("answer", None, ("answer index", "got null")),
        ("answer", "b", ("answer index", "got str 'b'")),
        ("answer", True, ("answer index", "got bool True")),
        ("question", None, ("not empty", "'question'", "got null")),
        ("question", "", ("not empty", "'question'")),
        ("question", " \n", ("not empty", "'question'")),
        ("question", 7, ("a text", "got int 7")),
        ("subject", None, ("'subject'", "got null")),
        ("choices", ["only"], ("2 to 26 options", "got 1")),
        ("choices", [], ("2 to 26 options", "got 0")),
        ("choices", ["x"] * 27, ("2 to 26 options", "got 27")),
        ("choices", None, ("a list of options", "got null")),
        ("choices", "abcd", ("a list of options", "got str")),
        ("choices", ["a", None, "c"], ("option 1", "got null")),
        ("choices", ["a", "b", 3], ("option 2", "got int 3")),
    ],
)
def test_bad_row_is_named_with_file_row_and_column(field: str, value: object, words: tuple[str, ...]) -> None:
    row = Row(12, "mmlu/test.parquet row 12", GOOD | {field: value})
    fields = _choices.Fields("subject", "question", "choices", "answer")
    with pytest.raises(UserError) as caught:
        _choices.question(row, fields, "mmlu/test/12")
    message = str(caught.value)
    assert message.startswith("mmlu/test.parquet row 12: expected ")
    assert f"column {field!r}" in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize("n", [2, 26])
def test_fewest_and_most_options_are_accepted(n: int) -> None:
    row = Row(0, "f row 0", GOOD | {"choices": ["x"] * n, "answer": n - 1})
    read = _choices.question(row, _choices.Fields("subject", "question", "choices", "answer"), "id")
    assert len(read.choices) == n
    assert read.gold == n - 1


def test_two_rows_with_one_id_are_both_named() -> None:
    rows = [Row(i, f"f.parquet row {i}", GOOD) for i in range(3)]
    fields = _choices.Fields("subject", "question", "choices", "answer")
    pairs = [(row, _choices.question(row, fields, f"id-{row.index % 2}")) for row in rows]
    with pytest.raises(UserError, match=r"^f.parquet row 2: .*'id-0', which f.parquet row 0 has too"):
        list(_choices.require_unique_ids(pairs))


def test_bad_row_surfaces_through_the_task(tmp_path: Path) -> None:
    (tmp_path / "mmlu").mkdir()
    table = pa.table({key: [value, value] for key, value in (GOOD | {"answer": 9}).items()})
    parquet.write_table(table, tmp_path / "mmlu" / "test.parquet")
    with pytest.raises(UserError, match=r"^mmlu/test.parquet row 0: .*answer index"):
        list(MMLUChoice(FolderSource(tmp_path)).questions("test"))


# --- Hub --------------------------------------------------------------------------------------------------------------

README = b"---\nconfigs:\n- config_name: all\n  data_files:\n  - split: validation\n    path: all/validation-*\n---\n"
PARQUET_NAME = "all/validation-00000-of-00001.parquet"


def _parquet(table: pa.Table = TABLE) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    return buffer.getvalue()


def _files(content: bytes) -> dict[str, bytes]:
    """A data set that can be loaded by its configuration, and by the name of its file."""
    return {"README.md": README, PARQUET_NAME: content, "default/validation/0000.parquet": content}


REPOSITORIES = {
    "someone/quiz": _files(_parquet()),
    "someone/cut": _files(_parquet()[:-50]),
    "someone/empty": _files(_parquet(TABLE.slice(0, 0))),
    "someone/short": _files(_parquet(TABLE.drop_columns(["answer"]))),
    "someone/gated": {},
    "someone/moved": _files(_parquet()),
}
MOVED = "f" * 40
"""The commit of the main branch of `someone/moved`, where the table lacks a column; others' is still `SHA`."""


class _Hub(http.server.BaseHTTPRequestHandler):
    """As much of the Hub's HTTP interface as loading Parquet files takes."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep quiet."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
        name = "/".join(path.removeprefix("/api").split("/")[2:4])
        on_main = name == "someone/moved" and SHA not in path.split("/")
        self.commit, self.files = (
            (MOVED, REPOSITORIES["someone/short"]) if on_main else (SHA, REPOSITORIES.get(name, {}))
        )
        if name not in REPOSITORIES:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif "/resolve/" in path:
            self._file(name, path.split("/resolve/")[1].split("/", 1)[1])
        elif "/tree/" in path:
            self._tree("/".join(path.split("/tree/")[1].split("/")[1:]))
        else:
            self._send(200, json.dumps({"id": name, "sha": self.commit, "siblings": []}).encode(), {})

    def _tree(self, under: str) -> None:
        files = [
            {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}  # noqa: S324
            for path, data in self.files.items()
            if str(Path(path).parent) == (under or ".")
        ]
        top = [{"type": "directory", "path": "all", "oid": "0" * 40, "size": 0}]
        self._send(200, json.dumps(files + ([] if under else top)).encode(), {})

    def _file(self, name: str, path: str) -> None:
        data = self.files.get(path)
        if name == "someone/gated":
            self._send(401, b"", {"X-Error-Code": "GatedRepo"})
        elif data is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": self.commit})
        else:
            self._send(200, data, {"X-Repo-Commit": self.commit, "ETag": f'"{hashlib.sha256(data).hexdigest()}"'})

    def _send(self, code: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for key, value in (headers | {"Content-Length": str(len(data))}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextlib.contextmanager
def _serve() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


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
    """Load in a process of its own: `datasets` reads its environment once, at import."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps({name: dataclasses.asdict(card) for name, card in cards.items()})],
        env={**inherited, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "NO_PROXY": "127.0.0.1", **environment},
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    read: Read = json.loads(done.stdout)
    return read


NOBODY = "http://127.0.0.1:9"
"""The discard port: refuses connections."""

NAMED = dataclasses.replace(CARD, files="default/{split}/0000.parquet")
"""A split that is one named file, as in the Parquet branch of a data set that was a script."""
UNPINNED = {"revision": None, "unpinned_reason": "no record of one"}
CARDS = {
    "plain": CARD,
    "named": NAMED,
    "plain moved": dataclasses.replace(CARD, hub="someone/moved"),
    "named moved": dataclasses.replace(NAMED, hub="someone/moved"),
    **{
        f"plain {name}": dataclasses.replace(CARD, hub=f"someone/{name}") for name in ("cut", "empty", "short", "gated")
    },
    **{
        f"named {name}": dataclasses.replace(NAMED, hub=f"someone/{name}")
        for name in ("cut", "empty", "short", "gated")
    },
    "plain nobody's": dataclasses.replace(CARD, hub="someone/nothing"),
    "named nobody's": dataclasses.replace(NAMED, hub="someone/nothing"),
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
    with _serve() as endpoint:
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
    return _load_from(NOBODY, home, {name: CARDS[name] for name in names} | other)


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
def test_rows_are_those_of_the_pin_after_main_moved(online: Read, name: str) -> None:
    assert [values for _, _, values in online[name]["rows"]] == TABLE.select(COLUMNS).to_pylist()
    assert online[name]["about"]["revision"] == SHA


def test_a_cached_copy_of_another_revision_is_not_taken(offline: Read) -> None:
    # `datasets` would give the cached copy for any revision; a pinned task must not take it
    said = offline["plain of another revision"]["error"]
    assert f"at revision {'f' * 40}" in said
    assert SHA in said
    said = offline["named of another revision"]["error"]
    assert "can't be reached and nothing fitting is cached" in said


@pytest.mark.parametrize(
    "environment", [{}, {"HF_HUB_OFFLINE": "1"}, pytest.param({"HF_DATASETS_OFFLINE": "1"}, marks=pytest.mark.slow)]
)
def test_unreachable_hub_with_nothing_cached_is_told_at_once(tmp_path: Path, environment: dict[str, str]) -> None:
    for read in _load_from(NOBODY, tmp_path, {"plain": CARD, "named": NAMED}, **environment).values():
        assert "someone/quiz" in read["error"]
        assert "can't be reached and nothing fitting is cached" in read["error"]
        assert "--data-dir" in read["error"]
        assert read["took"] < 10


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("plain gated", ["someone/gated is gated", "hf auth login", "--data-dir"]),
        ("named gated", ["someone/gated is gated", "hf auth login", "--data-dir"]),
        ("plain nobody's", ["Can't load someone/nothing", "--data-dir"]),
        ("named nobody's", ["Can't load someone/nothing", "--data-dir"]),
        ("no such config", ["Can't load someone/quiz (config nope, revision 0123", "nope", "--data-dir"]),
        ("no such file", ["Can't load someone/quiz (default/validation/0001.parquet, revision 0123", "--data-dir"]),
        ("plain short", ["someone/short@01234567 validation: expected the column answer, found only question, other"]),
        ("named short", ["someone/short@01234567 validation: expected the column answer, found only question, other"]),
        ("plain empty", ["someone/empty", "expected at least one row"]),
        ("named empty", ["someone/empty@01234567 validation: expected at least one row"]),
        ("plain cut", ["someone/cut", "whole Parquet file", "can't be read", "HOME/hub/datasets--someone--cut"]),
        ("named cut", ["someone/cut", "whole Parquet file", "can't be read", "HOME/hub/datasets--someone--cut"]),
    ],
)
def test_what_is_wrong_on_the_hub_is_one_sentence(online: Read, home: Path, name: str, words: list[str]) -> None:
    said = online[name]["error"]
    for word in words:
        assert word.replace("HOME", str(home)) in said
    assert "\n" not in said
    assert len(said) < 500 + len(str(home))


def test_the_folder_to_remove_is_the_one_with_the_damaged_file(online: Read, home: Path) -> None:
    assert "error" in online["plain cut"]
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
def test_a_full_disk_names_the_folder_and_how_to_choose_another(
    monkeypatch: pytest.MonkeyPatch, card: TaskCard, loader: str, fails: Callable[[], None]
) -> None:
    import datasets

    monkeypatch.setattr(sources, "probe", lambda *_: object())
    monkeypatch.setattr(loader, lambda *_, **__: fails())
    monkeypatch.setattr(datasets.config, "HF_CACHE_HOME", "/somewhere/huggingface")
    _fails(
        HubSource(), "No space is left", "someone/quiz", "/somewhere/huggingface", "HF_HOME", "--data-dir", card=card
    )  # fmt: skip
