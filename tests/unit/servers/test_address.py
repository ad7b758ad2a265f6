"""A server's address is used whole and shown without what it hides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.api import UserError
from bench.model.specs import public_model
from bench.servers.address import KEY, Address, public_url

SECRET = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789", min_size=8, max_size=20)


@given(SECRET, SECRET, SECRET)
def test_password_and_query_stay_hidden_but_are_sent(user: str, password: str, token: str) -> None:
    address = Address.of(f"https://{user}:{password}@example.org:8000/v1?token={token}")
    assert address.public == "https://example.org:8000/v1"
    assert address.base == f"https://{user}:{password}@example.org:8000/v1"
    assert dict(address.query) == {"token": token}
    assert password not in repr(address)
    assert token not in repr(address)
    assert address.redact(f"bad {password} or {token}") == "bad *** or ***"


def test_user_and_query_are_hidden_as_sent_and_as_meant() -> None:
    address = Address.of("https://my%2Btoken@example.org/v1?code=abc%2Bdef&n=1")
    assert address.redact("my+token my%2Btoken abc+def abc%2Bdef 1") == "*** *** *** *** 1"


def test_key_of_one_letter_is_left_in_our_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "x")
    address = Address.of("https://example.org/v1")
    assert (address.redact("expected x", least=6), address.redact("expected x")) == ("expected x", "e***pected ***")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        (" http://localhost/v1/ ", "http://localhost/v1"),
        ("http://[::1]:9/v1", "http://[::1]:9/v1"),
        ("http://me@host/v1#part", "http://host/v1"),
        (None, "https://api.openai.com/v1"),
    ],
)
def test_public_url_is_one_of_each_server(url: str | None, shown: str) -> None:
    assert Address.of(url).public == shown


CLEAR = ["http://example.invalid/v1", "http://10.1.2.3:8000/v1", "http://0.0.0.0/v1", "http://localhost.example.org/v1",
         "http://127.0.0.1.example.org/v1", "http://[::2]/v1", "http://api.openai.com/v1",
         "http://2130706433/v1"]  # fmt: skip


@pytest.mark.parametrize("url", CLEAR)
def test_key_and_password_go_over_no_network_in_clear(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecret")
    with pytest.raises(UserError, match=r"the key in OPENAI_API_KEY over http.*https.*unset OPENAI_API_KEY.*ssh -L"):
        Address.of(url).key()
    Address.of(url.replace("http:", "https:")).key()
    monkeypatch.delenv("OPENAI_API_KEY")
    if "api.openai.com" not in url:
        assert Address.of(url).key() == "none"
        with pytest.raises(UserError, match="the user and password in --judge-url over http") as refused:
            Address.of(url.replace("://", "://me:hunter2@")).key()
        assert "hunter2" not in str(refused.value)


def test_key_is_needed_by_openai_and_sent_in_clear_here_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in (None, "https://api.openai.com/v1", "https://API.openai.com/v1/"):
        with pytest.raises(UserError, match="OPENAI_API_KEY, found none"):
            Address.of(url).key()
    assert Address.of("http://127.0.0.1:1/v1").key() == "none"
    assert Address.of("https://api.openai.com.example.org/v1").key() == "none"
    monkeypatch.setenv("OPENAI_API_KEY", " sk-abc\n")
    assert Address.of(None).key() == "sk-abc"
    for host in ("127.0.0.1", "127.3.2.1", "localhost", "LocalHost", "[::1]"):  # this machine
        assert Address.of(f"http://me:pw@{host}:8000/v1").key() == "sk-abc"
    for key, said in (
        ("  ", "found none"),
        *((key, "copy it again") for key in ("sk-a\u00e9b", "two words", "line\nbreak")),
    ):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        with pytest.raises(UserError, match=said) as refused:
            Address.of(None).key()
        assert key not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["gpt-4o-mini", "llama3.1:8b", "org/model", "accounts/fireworks/models/x", "org/m@main"]
)
def test_model_keeps_its_name_or_loses_its_folder(name: str) -> None:
    assert public_model(name) == name
    for folder in ("/home/me/tiny", "~/tiny", "./models/tiny", "../tiny", "C:\\me\\tiny"):
        assert public_model(folder).startswith("tiny-")
        assert "me" not in public_model(folder)


@given(st.text())
def test_public_model_and_url_are_printable(text: str) -> None:
    assert "\n" not in public_model(text)
    try:
        assert "@" not in public_url("http://" + text).partition("/v1")[0].split("/")[2]
    except UserError as refused:
        assert len(text) < 9 or text not in str(refused)  # noqa: PT017 - either is right
