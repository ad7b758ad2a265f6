"""Address of a server: the URL that is called, with its secrets, and the URL that results and messages show."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from bench.api import UserError

_OPENAI = "https://api.openai.com/v1"
KEY = "OPENAI_API_KEY"
_NO_KEY = "none"
"""API key that is sent to a server other than OpenAI's if the user has set none. The `openai` client requires a key,
and such servers ignore its value."""

SECRET_MIN_LENGTH = 6
"""If a URL's user, or a value of its query, has at least this many characters, it is treated as a secret."""

_MAX_URL_LENGTH = 2_000
_MAX_HOST_LENGTH = 253
"""Largest length in characters of a name in the domain name system."""


@dataclass(frozen=True)
class Words:
    """Words of messages about a server."""

    server: str
    """Subject of sentences about it, e.g. `The judge's server`."""
    url: str
    """Option that names its URL."""
    model: str
    """Option that names its model."""
    keyless: str
    """Option with which OpenAI's server is chosen, whose key is missing."""
    remedy: str
    """What to do if OpenAI's key is missing, after `Set it, or `."""


JUDGE = Words(
    "The judge's server", "--judge-url", "--judge-model", "--judge openai", "name a server of your own with --judge-url"
)
MODEL = Words("The server", "--model", "--served", "--model https://api.openai.com/v1", "name a server of your own")


@dataclass(frozen=True)
class Address:
    """Parsed base URL of a server."""

    base: str = field(repr=False)
    """Base URL for calls, with user and password if it has them; never shown."""
    query: Mapping[str, str] = field(repr=False)
    """Query parameters sent with every call; never shown."""
    public: str
    """The base URL without user, password and query; shown in results and messages."""
    words: Words = JUDGE

    @classmethod
    def of(cls, url: str | None, words: Words = JUDGE) -> Address:
        """Parse the URL of a server; None means OpenAI.

        Raises:
            UserError: the value is no URL of a server. The message does not repeat the value, which may hold a
                password.
        """
        parts = _split(_OPENAI if url is None else url.strip(), words.url)
        bare = parts._replace(query="", fragment="")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return cls(bare.geturl(), query, public_url(bare.geturl()), words)

    @property
    def is_openai(self) -> bool:
        """Return whether the server is OpenAI's own."""
        return _split(self.base).hostname == _split(_OPENAI).hostname

    @property
    def is_loopback(self) -> bool:
        """Return whether the host is this machine (a loopback address)."""
        host = _split(self.base).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def key(self) -> str:
        """Return the API key from the environment.

        Raises:
            UserError: the key is missing but required, can't be sent, or would be sent unencrypted over a network.
        """
        key = os.environ.get(KEY, "").strip()
        if not key and self.is_openai:
            raise UserError(
                f"{self.words.keyless}: expected a key in the environment variable {KEY}, found none. Set it, or"
                f" {self.words.remedy}."
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise UserError(f"{KEY}: expected one word of plain letters and digits, got something else; copy it again.")
        parts = _split(self.base)
        secrets = {
            f"the key in {KEY}": key,
            f"the user and password in {self.words.url}": parts.username or parts.password,
        }
        exposed = [name for name, secret in secrets.items() if secret]
        if exposed and parts.scheme != "https" and not self.is_loopback:
            remedy = f"unset {KEY}" if key else "leave them out of it"
            raise UserError(
                f"{self.words.server} {self.public} would get {' and '.join(exposed)} over http, which everyone on the"
                f" way can read. Name an https address with {self.words.url}, or {remedy} if it wants none; a tunnel"
                " (ssh -L) makes it http://127.0.0.1:PORT, which is safe."
            )
        return key or _NO_KEY

    def redact(self, text: str, least: int = 1) -> str:
        """Return a text in which `***` replaces the API key, the password, secret users and values.

        Args:
            text: a text from the server, or one that quotes it.
            least: least length of what is replaced: keys of local servers are often `x`, which also stands in words.
        """
        parts = _split(self.base)
        secrets = {os.environ.get(KEY, "").strip(), parts.password or "", unquote(parts.password or "")}
        for value in (*self.query.values(), unquote(parts.username or "")):
            if len(value) >= SECRET_MIN_LENGTH:
                secrets |= {value, quote(value, safe="")}
        for secret in sorted((s for s in secrets if len(s) >= least), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def public_url(url: str) -> str:
    """Return the URL without user, password, query and fragment, as results may show it.

    >>> public_url("https://me:secret@example.org:8000/v1/?token=abc#x")
    'https://example.org:8000/v1'
    """
    parts = _split(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl().rstrip("/")


def _split(url: str, option: str = JUDGE.url) -> SplitResult:
    not_a_url = UserError(
        f"{option}: expected the base URL of a server, like http://127.0.0.1:8000/v1, got something else; correct it."
    )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise not_a_url from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise not_a_url
    if not url.isprintable() or " " in url or len(url) > _MAX_URL_LENGTH or len(parts.hostname) > _MAX_HOST_LENGTH:
        raise not_a_url
    return parts
