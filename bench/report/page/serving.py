"""Serve one HTML file on 127.0.0.1; other files can't be requested, nor can other machines connect."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bench.api import UserError

_LOOPBACK = "127.0.0.1"
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def serve(path: Path, port: int, ready: Callable[[str], None] | None = None) -> None:
    """Serve an HTML file on 127.0.0.1 until Ctrl-C; each request reads the file again.

    Args:
        path: path of the HTML file.
        port: port on 127.0.0.1; 0 takes a free one.
        ready: called with the page's address once the server accepts requests.

    Raises:
        UserError: there is no such file, or the port can't be used.
    """
    with server(path, port) as listening:
        if ready is not None:
            ready(f"http://{_LOOPBACK}:{listening.server_port}/")
        try:
            listening.serve_forever()
        except KeyboardInterrupt:
            return


def server(path: Path, port: int) -> ThreadingHTTPServer:
    """Return an HTTP server for one file on 127.0.0.1: its port is bound, but it doesn't answer requests yet.

    Raises:
        UserError: there is no such file, or the port can't be used.
    """
    if not path.is_file():
        raise UserError(f"there is no page {str(path)!r} to show; write it first: bench report")

    class Handler(BaseHTTPRequestHandler):
        """Answers GET and HEAD requests for `/` with the file; all other paths are not found."""

        def do_GET(self) -> None:
            host = (self.headers.get("Host") or "").rpartition(":")[0]
            if host not in {_LOOPBACK, "localhost"}:  # DNS rebinding: another site's name that resolves to this machine
                self.send_error(HTTPStatus.FORBIDDEN)
                return
            try:
                body = path.read_bytes() if self.path == "/" else None
            except OSError:
                body = None
            if body is None:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            self.send_response(HTTPStatus.OK)
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the parent's way of naming

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
            """Override: log no requests."""

    try:
        return ThreadingHTTPServer((_LOOPBACK, port), Handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"port {port} of {_LOOPBACK} can't be used ({reason}); name another one") from error
