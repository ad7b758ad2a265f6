"""A Hub of data sets on this machine, and a process that reads from it."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SHA = "0123456789abcdef0123456789abcdef01234567"
NOBODY = "http://127.0.0.1:9"
"""The discard port: refuses connections."""


@dataclass(frozen=True)
class Repository:
    """A data set; `main` is what its main branch holds if that has moved on since commit `SHA`."""

    files: Mapping[str, bytes]
    main: Mapping[str, bytes] | None = None
    branches: tuple[str, ...] = ("main", SHA)
    gated: bool = False


@contextlib.contextmanager
def served(repositories: Mapping[str, Repository]) -> Iterator[str]:
    """Give the address of a Hub with these data sets, by name."""

    class Hub(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep quiet."""

        def do_GET(self) -> None:
            path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path).removeprefix("/api")
            owner, name, *rest = path.removeprefix("/datasets/").split("/")
            repository = repositories.get(f"{owner}/{name}")
            kind, revision, *below = rest if len(rest) > 1 else ("", "main")
            if repository is None:
                return self.send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            if revision not in repository.branches:
                return self.send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            moved = repository.main is not None and revision == "main"
            commit, files = ("f" * 40, repository.main or {}) if moved else (SHA, repository.files)
            if kind == "tree":
                return self.send(200, json.dumps(listed(files, "/".join(below))).encode(), {})
            if kind != "resolve":
                names = [{"rfilename": file} for file in files]
                return self.send(
                    200, json.dumps({"id": f"{owner}/{name}", "sha": commit, "siblings": names}).encode(), {}
                )
            data = files.get("/".join(below))
            if repository.gated:
                return self.send(401, b"", {"X-Error-Code": "GatedRepo"})
            if data is None:
                return self.send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
            tag = hashlib.sha256(data).hexdigest()
            return self.send(200, data, {"X-Repo-Commit": commit, "ETag": f'"{tag}"'})

        do_HEAD = do_GET  # noqa: N815 - so named in http.server

        def send(self, code: int, data: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(code)
            for key, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def listed(files: Mapping[str, bytes], folder: str) -> list[dict[str, Any]]:
    """Entries of a folder: its files, and folders in it."""
    found: dict[str, dict[str, Any]] = {}
    for path, data in files.items():
        if path.startswith(f"{folder}/" if folder else ""):
            first, _, below = path.removeprefix(folder).strip("/").partition("/")
            name, digest = f"{folder}/{first}".strip("/"), hashlib.sha1(data).hexdigest()  # noqa: S324
            entry = {"type": "directory", "size": 0} if below else {"type": "file", "size": len(data)}
            found[name] = {"path": name, "oid": digest, **entry}
    return list(found.values())


def answer_of(script: str, argument: object, endpoint: str, home: Path, **environment: str) -> Any:
    """What a script prints in JSON that gets an argument in JSON, in a process of its own.

    The Hub's libraries read the environment once, at import.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "CONFBENCH_"))}
    hub = {"HF_HOME": str(home), "HF_ENDPOINT": endpoint, "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(argument)], env={**inherited, **hub, **environment}, cwd=ROOT,
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return json.loads(done.stdout)
