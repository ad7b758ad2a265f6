"""The page as a file: nothing in it acts but its own script, and it appears whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench.api import UserError
from bench.report import page
from bench.report.page.render import embedded, html
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
