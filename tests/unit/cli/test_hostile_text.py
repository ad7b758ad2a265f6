"""Text of others never commands a terminal, turns the order of letters, or ends a command; other scripts stay."""

from __future__ import annotations

import io
import json
import re
import sys
from typing import Any

import pytest

from bench.api import UserError
from bench.cli import app, exit_codes, printing
from bench.progress import Bars, Lines, terminal, visible, visible_json
from bench.report.page.render import html
from bench.report.text import plain
from tests.fixtures.pages import payload
from tests.kit.command import bench

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m a\u202egpj.exe \u2066b \ud800 \x00\x7f\u200f"
SCRIPTS = "مرحبا שלום می\u200cخواهم 👩\u200d🔬 한국어 tab\tline\nend"  # noqa: RUF001 - letters of other scripts
BAD = set("\x00\x07\x1b\x7f\x9b\u200f\u202e\u2066\ud800")


def harmless(text: str) -> None:
    assert not BAD & set(text)
    assert "\\x1b]0;owned" in text
    text.encode()


def test_text_that_is_harmful_is_shown_as_its_escape() -> None:
    harmless(visible(HOSTILE))
    harmless(plain(HOSTILE))
    assert visible(SCRIPTS) == SCRIPTS
    assert plain(SCRIPTS) == SCRIPTS.replace("\t", " ").replace("\n", " ")


def test_json_stays_the_same_value(capsys: pytest.CaptureFixture[str]) -> None:
    value = {HOSTILE: [SCRIPTS, HOSTILE]}
    printing.print_json(value)
    for text in (visible_json(json.dumps(value, ensure_ascii=False)), capsys.readouterr().out):
        assert not BAD & set(text)
        assert json.loads(text) == value


def test_page_shows_escapes() -> None:
    page = html(payload(**{"answer": [HOSTILE, SCRIPTS], HOSTILE: {"n": 1}, "footnotes": [HOSTILE]}))
    (data,) = re.findall(r"<script[^>]*application/json[^>]*>(.*?)</script>", page, re.DOTALL)
    found = json.loads(data)
    harmless(found["answer"][0])
    assert not BAD & set(page.partition('<script type="application/json"')[0])
    assert found["answer"][1] == SCRIPTS
    assert not any(BAD & set(key) for key in found)


@pytest.mark.parametrize(
    "show",
    [
        lambda: printing.print_line(HOSTILE),
        lambda: printing.print_records([{"name": HOSTILE, "b": SCRIPTS}]),
        lambda: printing.print_fields({"name": HOSTILE, "constants": [{"a": HOSTILE}]}),
        lambda: Lines(sys.stdout).say(HOSTILE),
        lambda: printing.console().print(HOSTILE, markup=False, soft_wrap=True),
    ],
)
def test_terminal_is_guarded_at_every_door(
    show: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    show()
    harmless(capsys.readouterr().out)


def test_bars_are_guarded_and_know_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "300")
    bars = Bars()
    stream = io.StringIO()
    bars.console.file = stream
    bars.console._force_terminal = bars.console.is_interactive = True
    with bars.stage(f"[bold]judge {HOSTILE}", 3) as advance:
        advance(1)
    bars.say(HOSTILE)
    shown = stream.getvalue()
    assert "\x1b]0;owned" not in shown
    assert "\u202e" not in shown
    assert "[bold]judge \\x1b]0;owned" in shown


def test_terminal_keeps_our_own_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    console = terminal()
    console._force_terminal = True
    console._color_system = 1  # type: ignore[assignment]
    with console.capture() as captured:
        console.print("[bold]x[/bold]")
    assert "\x1b[1mx" in captured.get()


def refused(message: str) -> Any:
    def fail() -> None:
        raise UserError(message)

    return fail


def test_error_with_commands_is_one_harmless_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "app", refused(f"the server said {HOSTILE}"))
    done = bench()
    assert done.returncode == 2
    harmless(done.stderr)


def test_error_cuts_long_words_and_no_names(capsys: pytest.CaptureFixture[str]) -> None:
    names = ",".join(f"method-{i}" for i in range(40))
    assert exit_codes.exit_code(refused(f"{'x' * 5000} bench run --method {names}")) == 2
    said = capsys.readouterr().err
    assert f"{'x' * 100}... bench run --method {names}" in " ".join(said.split())
