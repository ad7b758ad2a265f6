"""The page as a file: nothing in it acts but its own script, it appears whole or not at all, and only it is served."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench.api import UserError
from bench.report import page
from bench.report.page.render import embedded, html
from bench.report.page.serving import serve, server
from tests.fixtures.pages import payload

HOSTILE = (
    "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "</style>", "<!--", "]]>",
    "\u2028\u2029&amp;", "{{script}}",
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


class Parsed(HTMLParser):
    """Elements of a page as a browser would see them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.content, self._open, self.text = [], {}, None, ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open = (tag, dict(attrs).get("type", "")) if tag in {"script", "style"} else None

    def handle_data(self, data):
        self.text += "" if self._open else data
        if self._open:
            self.content[self._open] = self.content.get(self._open, "") + data

    def handle_endtag(self, tag):
        self._open = None


@given(JSON)
@example([*HOSTILE])
@example("\ud800 alone")
def test_page_data_come_back_and_end_nothing(value):
    text = embedded(value)
    assert json.loads(text) == value
    assert not re.search("[<>&\u2028\u2029]", text)
    text.encode("utf-8")


def test_page_data_that_json_lacks_are_an_error():
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded({"mean": float("nan")})


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_adds_no_element_to_the_page(text):
    def with_text(text):
        built = payload()
        [block], [method], verdict = built["blocks"], built["methods"], built["verdict"]
        row = {**verdict["rows"][0], "texts": [text] * 6}
        return Parsed(html(payload(
            blocks=[{**block, "model": text, "task": text, "label": text, "facts": [text]}], texts=[text],
            methods=[{**method, "name": text}], footnotes=[text], provenance=[[text, [[text, 1]]]],
            verdict={**verdict, "title": text, "rows": [row], "words": [[text, [text, text], [text]]]},
        )))  # fmt: skip

    plain, hostile = with_text("plain"), with_text(text)
    assert hostile.tags == [
        (tag, {name: text if value == "plain" else value for name, value in attributes.items()})
        for tag, attributes in plain.tags
    ]
    assert hostile.text.count(text.strip()) >= 12
    assert json.loads(hostile.content["script", "application/json"])["texts"] == [text]


def test_page_policy_allows_its_own_script_alone():
    parsed = Parsed(html(payload(texts=[*HOSTILE])))
    (content,) = (a["content"] for tag, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.split(" ", 1) for rule in content.split("; "))
    for rule, key in (("script-src", ("script", "module")), ("style-src", ("style", ""))):
        digest = base64.b64encode(hashlib.sha256(parsed.content[key].encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"


def test_page_points_nowhere_else():
    parsed = Parsed(html(payload()))
    for _, attributes in parsed.tags:
        assert not {"src", "srcset", "action", "style"} & attributes.keys()
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("href", "#").startswith(("#", "data:,"))
    code = parsed.content["script", "module"] + parsed.content["style", ""]
    acting = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(|import |fetch\(|url\(|https?://"
    assert re.findall(acting, code) == []


def test_page_has_the_elements_that_its_script_names():
    parsed = Parsed(html(payload()))
    there = {attributes["id"] for _, attributes in parsed.tags if "id" in attributes}
    named = set(re.findall(r'byId\("([^"]+)"\)', parsed.content["script", "module"]))
    assert named
    assert named <= there


def test_page_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    path = page.write(tmp_path / "new" / "page.html", payload(a=1))
    assert path.read_text(encoding="utf-8") == html(payload(a=1))
    old = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match=r"No space left.*--out"):
        page.write(path, payload(a=2))
    assert path.read_bytes() == old
    with pytest.raises(UserError, match="can't be written"):
        page.write(tmp_path / "new", payload())
    assert [*tmp_path.rglob("*")] == [path.parent, path]


@contextmanager
def serving(path):
    """The port on which the page is served."""
    with server(path, 0) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield listening.server_address
        finally:
            listening.shutdown()
            thread.join()


def ask(address, target="/", method="GET", **headers):
    connection = http.client.HTTPConnection(*address, timeout=5)
    try:
        connection.request(method, target, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


@pytest.fixture
def written(tmp_path):
    (tmp_path / "secret.txt").write_text("no")
    return page.write(tmp_path / "page.html", payload(a=1))


def test_page_alone_is_served_on_loopback(written):
    with serving(written) as address:
        assert address[0] == "127.0.0.1"
        status, body, headers = ask(address)
        assert (status, body) == (200, written.read_bytes())
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert ask(address, method="HEAD")[:2] == (200, b"")
        assert ask(address, method="POST")[0] == 501
        for target in ("/secret.txt", "/../secret.txt", "/page.html", "/?a", "/favicon.ico"):
            assert ask(address, target)[0] == 404
        assert ask(address, Host=f"localhost:{address[1]}")[0] == 200
        for host in ("evil.example", f"evil.example:{address[1]}", "127.0.0.1.evil.example", ""):
            assert ask(address, Host=host)[0] == 403
        page.write(written, payload(a="second"))
        assert b"second" in ask(address)[1]
        written.unlink()
        assert ask(address)[0] == 404


def test_serving_ends_with_ctrl_c_without_a_word(written):
    script = (
        "import signal, sys; from pathlib import Path; from bench.report import page;"
        " signal.signal(signal.SIGINT, signal.default_int_handler);"
        " page.serve(Path(sys.argv[1]), 0, lambda url: print(url, flush=True)); print('after')"
    )
    command = [sys.executable, "-c", script, str(written)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        url = child.stdout.readline().strip()
        port = int(url.rstrip("/").rpartition(":")[2])
        assert url == f"http://127.0.0.1:{port}/"
        assert ask(("127.0.0.1", port))[0] == 200
        os.kill(child.pid, signal.SIGINT)
        said, complaint = child.communicate(timeout=20)
    assert (child.returncode, said, complaint) == (0, "after\n", "")


def test_serving_needs_a_free_port_and_a_page(written):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="can't be used"):
            serve(written, taken.getsockname()[1])
    with pytest.raises(UserError, match="can't be used"):
        serve(written, 99_999)
    with pytest.raises(UserError, match="bench report"):
        serve(written.with_name("other.html"), 0)
