"""Rows from Parquet folders and from the Hub: every bad input is one sentence; the Hub here is a local HTTP server."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import http.server
import io
import json
import os
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from bench.api import Row, TaskCard, UserError
from bench.sources import ENVIRONMENT, FolderSource, HubSource, open_source
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
        list(_choices.unique(pairs))


def test_bad_row_surfaces_through_the_task(tmp_path: Path) -> None:
    (tmp_path / "mmlu").mkdir()
    table = pa.table({key: [value, value] for key, value in (GOOD | {"answer": 9}).items()})
    parquet.write_table(table, tmp_path / "mmlu" / "test.parquet")
    with pytest.raises(UserError, match=r"^mmlu/test.parquet row 0: .*answer index"):
        list(MMLUChoice(FolderSource(tmp_path)).questions("test"))


# --- Hub --------------------------------------------------------------------------------------------------------------

README = b"---\nconfigs:\n- config_name: all\n  data_files:\n  - split: validation\n    path: all/validation-*\n---\n"
PARQUET_NAME = "all/validation-00000-of-00001.parquet"


class _Hub(http.server.BaseHTTPRequestHandler):
    """As much of the Hub's HTTP interface as loading one Parquet file takes."""

    gated = False

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep quiet."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    @staticmethod
    def _files() -> dict[str, bytes]:
        buffer = io.BytesIO()
        parquet.write_table(TABLE, buffer)
        return {"README.md": README, PARQUET_NAME: buffer.getvalue()}

    def _answer(self) -> None:
        path = urllib.parse.urlparse(self.path).path
        if "/resolve/" in path:
            self._file(path.split("/resolve/")[1].split("/", 1)[1])
        elif "/tree/" in path:
            under = "/".join(path.split("/tree/")[1].split("/")[1:])
            files = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}  # noqa: S324
                for name, data in self._files().items()
                if str(Path(name).parent) == (under or ".")
            ]
            top = [{"type": "directory", "path": "all", "oid": "0" * 40, "size": 0}]
            self._send(200, json.dumps(files + ([] if under else top)).encode(), {})
        elif path.startswith("/api/datasets/someone/quiz"):
            self._send(200, json.dumps({"id": "someone/quiz", "sha": SHA, "siblings": []}).encode(), {})
        else:
            self._send(404, b"{}", {})

    def _file(self, name: str) -> None:
        data = self._files().get(name)
        if self.gated:
            self._send(401, b"", {"X-Error-Code": "GatedRepo"})
        elif data is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": SHA})
        else:
            self._send(200, data, {"X-Repo-Commit": SHA, "ETag": f'"{hashlib.sha256(data).hexdigest()}"'})

    def _send(self, code: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for key, value in (headers | {"Content-Length": str(len(data))}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextlib.contextmanager
def _serve(*, gated: bool = False) -> Iterator[str]:
    handler = type("Handler", (_Hub,), {"gated": gated})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
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
from bench.sources import HubSource
card = TaskCard(**json.loads(sys.argv[1]))
started = time.monotonic()
try:
    source = HubSource()
    rows = [(r.index, r.where, r.values) for r in source.rows(card, "test", ["question", "answer"])]
    print(json.dumps({"rows": rows, "about": source.describe(card, "test"), "took": time.monotonic() - started}))
except UserError as error:
    print(json.dumps({"error": str(error), "took": time.monotonic() - started}))
"""


def _load_from(endpoint: str, home: Path, card: TaskCard = CARD, **environment: str) -> dict[str, object]:
    """Load in a process of its own: `datasets` reads its environment once, at import."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(dataclasses.asdict(card))],
        env={**inherited, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "NO_PROXY": "127.0.0.1", **environment},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    read: dict[str, object] = json.loads(done.stdout)
    return read


NOBODY = "http://127.0.0.1:9"
"""The discard port: refuses connections."""


def test_hub_rows_are_read_then_found_in_the_cache_without_it(tmp_path: Path) -> None:
    with _serve() as endpoint:
        online = _load_from(endpoint, tmp_path)
    assert online["rows"] == [
        [0, "someone/quiz@01234567 validation row 0", {"question": "a?", "answer": 0}],
        [1, "someone/quiz@01234567 validation row 1", {"question": "b?", "answer": 1}],
    ]
    assert online["about"] == {"source": "hub", "hub": "someone/quiz", "split": "validation", "revision": SHA}
    offline = _load_from(NOBODY, tmp_path)
    assert offline["rows"] == online["rows"]
    assert offline["about"] == online["about"]
    # `datasets` would give the cached copy for any revision; a pinned task must not take it
    other = _load_from(NOBODY, tmp_path, dataclasses.replace(CARD, revision="f" * 40))
    assert f"at revision {'f' * 40}" in str(other["error"])
    assert SHA in str(other["error"])


@pytest.mark.parametrize("environment", [{}, {"HF_HUB_OFFLINE": "1"}, {"HF_DATASETS_OFFLINE": "1"}])
def test_unreachable_hub_with_nothing_cached_is_told_at_once(tmp_path: Path, environment: dict[str, str]) -> None:
    read = _load_from(NOBODY, tmp_path, **environment)
    assert "someone/quiz" in str(read["error"])
    assert "can't be reached and nothing fitting is cached" in str(read["error"])
    assert "--data-dir" in str(read["error"])
    assert float(str(read["took"])) < 10


def test_gated_data_set_asks_for_a_token(tmp_path: Path) -> None:
    with _serve(gated=True) as endpoint:
        read = _load_from(endpoint, tmp_path)
    assert "someone/quiz is gated" in str(read["error"])
    assert "hf auth login" in str(read["error"])
    assert "--data-dir" in str(read["error"])


def test_config_that_the_hub_does_not_have_is_named(tmp_path: Path) -> None:
    with _serve() as endpoint:
        read = _load_from(endpoint, tmp_path, dataclasses.replace(CARD, config="nope"))
    assert "config nope" in str(read["error"])
