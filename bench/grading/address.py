"""Address of a judge's server: the base URL with what it hides from results, and names that may stand in them."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from bench.api import UserError
from bench.model.specs import model_label

_OPENAI = "https://api.openai.com/v1"
KEY = "OPENAI_API_KEY"
_NO_KEY = "none"
"""Sent to an own server where there is no key: the client wants one, and such servers don't look at it."""

_LONG_ENOUGH = 6
"""Characters of a value in a query that may be a secret."""

_LONGEST_URL = 2_000
_LONGEST_HOST = 253
"""Characters of a name in the domain name system."""

_PATH = re.compile(r"[/\\~]|\.{1,2}[/\\]|[A-Za-z]:[/\\]")
"""Beginnings of a path; a model of a server may be named by the folder it lies in."""


@dataclass(frozen=True)
class Address:
    """A base URL, taken apart."""

    base: str = field(repr=False)
    """URL that is called, user and password included; never shown."""
    query: Mapping[str, str] = field(repr=False)
    """Sent with every call; never shown."""
    public: str
    """The URL without user, password and query, for results and messages."""

    @classmethod
    def of(cls, url: str | None) -> Address:
        """The address that `--judge-url` means; OpenAI's where it is None.

        Raises:
            UserError: no URL of a server; it is not repeated, for it may hold a password.
        """
        parts = _split(_OPENAI if url is None else url.strip())
        bare = parts._replace(query="", fragment="")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return cls(bare.geturl(), query, public_url(bare.geturl()))

    @property
    def official(self) -> bool:
        """Whether this is OpenAI's own server."""
        return _split(self.base).hostname == _split(_OPENAI).hostname

    @property
    def local(self) -> bool:
        """Whether the server is this machine, by an address that no network carries."""
        host = _split(self.base).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def key(self) -> str:
        """The key from the environment.

        Raises:
            UserError: it is missing where one is needed, can't be sent, or would be sent in clear over a network.
        """
        key = os.environ.get(KEY, "").strip()
        if not key and self.official:
            raise UserError(
                f"--judge openai: expected a key in the environment variable {KEY}, found none. Set it, or name a"
                " server of your own with --judge-url."
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise UserError(f"{KEY}: expected one word of plain letters and digits, got something else; copy it again.")
        parts = _split(self.base)
        secrets = {f"the key in {KEY}": key, "the user and password in --judge-url": parts.username or parts.password}
        found = [name for name, secret in secrets.items() if secret]
        if found and parts.scheme != "https" and not self.local:
            out = f"unset {KEY}" if key else "leave them out of it"
            raise UserError(
                f"The judge's server {self.public} would get {' and '.join(found)} over http, which everyone on the way"
                f" can read. Name an https address with --judge-url, or {out} if it wants none; a tunnel (ssh -L) makes"
                " it http://127.0.0.1:PORT, which is safe."
            )
        return key or _NO_KEY

    def hidden(self, text: str) -> str:
        """The text with key, password and query blotted out, should a server repeat them."""
        password = _split(self.base).password or ""
        secrets = {os.environ.get(KEY, "").strip(), password, unquote(password)}
        secrets |= {value for value in self.query.values() if len(value) >= _LONG_ENOUGH}
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def public_url(url: str) -> str:
    """The URL as results may show it: without user, password, query and fragment.

    >>> public_url("https://me:secret@example.org:8000/v1/?token=abc#x")
    'https://example.org:8000/v1'
    """
    parts = _split(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl().rstrip("/")


def public_model(name: str) -> str:
    """A server's name of a model as results may show it: a folder without its path, anything else as it is.

    >>> public_model("gpt-4o-mini"), public_model("/home/me/models/tiny")[:-8]
    ('gpt-4o-mini', 'tiny-')
    """
    return model_label(name) if _PATH.match(name) else " ".join(name.split())


def _split(url: str) -> SplitResult:
    wrong = UserError(
        "--judge-url: expected the base URL of a server, like http://127.0.0.1:8000/v1, got something else; correct it."
    )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise wrong
    if not url.isprintable() or " " in url or len(url) > _LONGEST_URL or len(parts.hostname) > _LONGEST_HOST:
        raise wrong
    return parts
