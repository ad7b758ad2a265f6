"""Address of a judge's server: the URL that is called, with its secrets, and the URL that results and messages show."""

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
"""API key that is sent to a server other than OpenAI's if the user has set none. The `openai` client requires a key,
and such servers ignore its value."""

_SECRET_MIN_LENGTH = 6
"""If a URL's query parameter has a value of at least this many characters, the value is treated as a secret."""

_MAX_URL_LENGTH = 2_000
_MAX_HOST_LENGTH = 253
"""Largest length in characters of a name in the domain name system."""

_PATH = re.compile(r"[/\\~]|\.{1,2}[/\\]|[A-Za-z]:[/\\]")
"""Matches the start of a file path. A server's model may be named by the path of a folder, which results must not
show."""


@dataclass(frozen=True)
class Address:
    """Parsed base URL of a judge's server."""

    base: str = field(repr=False)
    """Base URL for calls, with user and password if it has them; never shown."""
    query: Mapping[str, str] = field(repr=False)
    """Query parameters sent with every call; never shown."""
    public: str
    """The base URL without user, password and query; shown in results and messages."""

    @classmethod
    def of(cls, url: str | None) -> Address:
        """Parse the value of `--judge-url`; None means OpenAI.

        Raises:
            UserError: the value is no URL of a server. The message does not repeat the value, which may hold a
                password.
        """
        parts = _split(_OPENAI if url is None else url.strip())
        bare = parts._replace(query="", fragment="")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return cls(bare.geturl(), query, public_url(bare.geturl()))

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
                f"--judge openai: expected a key in the environment variable {KEY}, found none. Set it, or name a"
                " server of your own with --judge-url."
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise UserError(f"{KEY}: expected one word of plain letters and digits, got something else; copy it again.")
        parts = _split(self.base)
        secrets = {f"the key in {KEY}": key, "the user and password in --judge-url": parts.username or parts.password}
        exposed = [name for name, secret in secrets.items() if secret]
        if exposed and parts.scheme != "https" and not self.is_loopback:
            remedy = f"unset {KEY}" if key else "leave them out of it"
            raise UserError(
                f"The judge's server {self.public} would get {' and '.join(exposed)} over http, which everyone on the"
                f" way can read. Name an https address with --judge-url, or {remedy} if it wants none; a tunnel"
                " (ssh -L) makes it http://127.0.0.1:PORT, which is safe."
            )
        return key or _NO_KEY

    def redact(self, text: str) -> str:
        """Return a text from the server in which `***` replaces the API key, the password and secret query values."""
        password = _split(self.base).password or ""
        secrets = {os.environ.get(KEY, "").strip(), password, unquote(password)}
        secrets |= {value for value in self.query.values() if len(value) >= _SECRET_MIN_LENGTH}
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
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


def public_model(name: str) -> str:
    """Return a server's model name as results may show it; the path of a folder becomes the folder's name and a digest.

    >>> public_model("gpt-4o-mini"), public_model("/home/me/models/tiny")[:-8]
    ('gpt-4o-mini', 'tiny-')
    """
    return model_label(name) if _PATH.match(name) else " ".join(name.split())


def _split(url: str) -> SplitResult:
    not_a_url = UserError(
        "--judge-url: expected the base URL of a server, like http://127.0.0.1:8000/v1, got something else; correct it."
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
