"""Model names of the command line: an alias of models.toml, a Hub id, a folder, a GGUF file, or a server's URL."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from bench.api import UserError
from bench.api.errors import did_you_mean, fold_name
from bench.servers.address import MODEL, Address, public_url
from bench.store.disk_cache import digest_file

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+]|-(?!-)){0,78}[A-Za-z0-9+]|[A-Za-z0-9]")
"""Pattern of names that are safe in a path: no separator, no `--`, no leading dot, at most 80 characters."""


FileStats = tuple[str, int, int]
_MAGIC = b"GGUF"
_PATH = re.compile(r"[/\\~]|\.{1,2}[/\\]|[A-Za-z]:[/\\]")
"""Matches the start of a file path. A server's model may be named by the path of a folder, which results must not
show."""
DIGITS = 8
"""Number of hex digits of a GGUF file's SHA-256 in its name in results."""
SERVED = ".served-"
"""Part of the name in results of a model that a server has, before hex digits of what the server says of it."""


@dataclass(frozen=True)
class ModelSpec:
    """A model of the command line: where its files come from, and the defaults of runs with it. Nothing is loaded."""

    name: str
    """Name as requested: an alias or a Hub id; the last part of a local path; or a server's URL without secrets."""
    source: str
    """Hub id, path of a local folder or GGUF file, or URL of a server."""
    local: bool
    """Whether the source is a folder or file on this machine."""
    revision: str | None = None
    """Commit on the Hub; None for the latest commit of the main branch. A run records the commit that it loaded."""
    dtype: str = "auto"
    """Default dtype of the weights on an accelerator; for the CPU see `LoadOptions.dtype`."""
    preset: str = "fixed"
    """Default preset of runs with this model."""
    tasks: tuple[str, ...] = ()
    """Default tasks of runs with this model."""
    note: str = ""
    """Note shown to the user before a download."""
    is_server: bool = False
    """Whether the source is the URL of a server that has the model."""
    released: str = ""
    """Folder of this model in the data that the paper's authors released; empty if they released none for it."""


@cache
def aliases() -> dict[str, ModelSpec]:
    """Return the models that models.toml lists, by alias."""
    package = resources.files("bench.model")
    table = tomllib.loads((package / "models.toml").read_text(encoding="utf-8"))
    specs = {}
    for name, entry in table.items():
        path = entry.pop("path", None)
        source = str(package / path) if path else entry.pop("hub")
        specs[name] = ModelSpec(name, source, path is not None, **{**entry, "tasks": tuple(entry.get("tasks", ()))})
    return specs


def resolve(name: str) -> ModelSpec:
    """Return the model that a name on the command line stands for; an alias may be spelt as `fold_name` takes it.

    The Hub id of an alias has the alias' default tasks, and none of its other settings.

    Raises:
        UserError: the name is no alias, no existing folder or GGUF file, and not of the form `organisation/model`
            without the suffix .gguf; or the user may not read it.
    """
    if name in aliases():
        return aliases()[name]
    if is_url(name):
        return ModelSpec(Address.of(name, MODEL).public, name, local=False, is_server=True)
    if is_gguf(name):
        return ModelSpec(Path(name).name, name, local=True)  # a link's own name: the Hub's cache links to digests
    if name and Path(name).is_dir():
        return ModelSpec(Path(name).resolve().name, name, local=True)
    if fold_name(name) in aliases():
        return aliases()[fold_name(name)]
    if Path(name).is_file():
        raise UserError(f"Model {name!r}: expected a folder or a GGUF file, got a file that doesn't begin with GGUF.")
    if re.search(rf"\.gguf-[0-9a-f]{{{DIGITS}}}$", name):
        raise UserError(
            f"Model {name!r} is the name of a GGUF file in results; a run needs the file itself: --model FILE."
        )
    if not is_path(name) and not name.casefold().endswith(".gguf"):
        tasks = next((spec.tasks for spec in aliases().values() if spec.source == name), ())
        return ModelSpec(name, name, local=False, tasks=tasks)
    hint = did_you_mean(name, aliases())
    raise UserError(
        f"Unknown model {name!r}: expected an alias ({', '.join(aliases())}), a Hub id like 'org/model', or an existing"
        f" folder or GGUF file.{hint} See: bench list models."
    )


def is_url(name: str) -> bool:
    """Return whether a name is the URL of a server."""
    return name.lower().startswith(("http://", "https://"))


def public_name(name: str) -> str:
    """Return a name as it may be shown: a URL without its password and query."""
    return public_url(name) if is_url(name) else name


def is_path(name: str) -> bool:
    """Return whether a name can only be a path, as it is not of the form `organisation/model`."""
    return name.startswith((".", "/", "~")) or name.count("/") != 1


def is_gguf(path: str | Path) -> bool:
    """Return whether a path is a GGUF file, by its first bytes; its name may have no suffix, as Ollama's files.

    Raises:
        UserError: the user may not read it.
    """
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except PermissionError as error:  # e.g. of Ollama's service, whose models are in another user's home
        raise UserError(
            f"Model {str(path)!r}: expected a file or folder that you may read, permission is denied; ask for it, or"
            " copy the file to a folder of yours."
        ) from error
    except (OSError, ValueError):  # a name with a NUL character
        return False


def file_label(path: str) -> str:
    """Return the name of a GGUF file in results, e.g. `smollm2-q4_1.gguf-b179c952`: with digits of its SHA-256.

    A file without the suffix .gguf, such as those of Ollama, is named by the model's name in it.
    """
    name = Path(path).name
    stem = name.removesuffix(".gguf")
    if stem == name:
        with contextlib.suppress(Exception):
            stem = str(file_metadata(path, file_stats(path)).get("general.name") or "model")
    words = re.findall(r"[A-Za-z0-9._]+", stem)
    return f"{'-'.join(words)[:60].strip('._-') or 'model'}.gguf-{file_sha256(path, file_stats(path))[:DIGITS]}"


def file_stats(path: str | Path) -> FileStats:
    """Return path, bytes and modification time of a file, by which a changed file is noticed."""
    stat = os.stat(path)  # noqa: PTH116 - a string is the cache's key
    return str(path), stat.st_size, stat.st_mtime_ns


@cache
def file_sha256(path: str, stats: FileStats) -> str:  # noqa: ARG001 - part of the cache's key
    """Return the SHA-256 of a file; computed once in a process, unless its `file_stats` change."""
    return digest_file(Path(path))


@cache
def file_metadata(path: str, stats: FileStats) -> Mapping[str, Any]:  # noqa: ARG001
    """Return the metadata of a GGUF file; of long arrays of texts only the length."""
    from transformers.integrations.gguf import read_gguf_metadata

    return dict(read_gguf_metadata(path)[0])


def model_label(model: str) -> str:
    """Return the name of a model in results: an alias or Hub id as it is, a folder or GGUF file without its path.

    A folder is named by the last part of its path and 8 hex digits of the hash of its absolute path. So folders that
    end alike have separate results, and results don't disclose paths. But a relative path that looks like an alias or
    a Hub id, e.g. `models/llama`, stays as it is.

    >>> model_label("tiny"), model_label("Qwen/Qwen2.5-14B-Instruct")
    ('tiny', 'Qwen/Qwen2.5-14B-Instruct')
    >>> model_label("/data/models/my llama")[:-8]
    'my-llama-'
    """
    if is_gguf(model):
        return file_label(model)
    parts = model.split("/")
    if len(parts) <= 2 and all(NAME.fullmatch(part) for part in parts):  # organisation/name
        return model
    absolute = os.path.abspath(model)  # noqa: PTH100 - must not follow links, which is what Path.resolve does
    words = re.findall(r"[A-Za-z0-9._]+", re.split(r"[/\\]", absolute)[-1])
    stem = "-".join(words)[:60].strip("._-") or "model"
    digest = hashlib.sha256(absolute.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{stem}-{digest[:8]}"


def public_model(name: str) -> str:
    """Return a server's model name as results may show it; the path of a folder becomes the folder's name and a digest.

    >>> public_model("gpt-4o-mini"), public_model("/home/me/models/tiny")[:-8]
    ('gpt-4o-mini', 'tiny-')
    """
    return model_label(name) if _PATH.match(name) else " ".join(name.split())


def label_of(spec: ModelSpec) -> str:
    """Return the name of a model in results: its alias or Hub id, or for a local folder the name by `model_label`."""
    return model_label(spec.source) if spec.local and spec.name not in aliases() else spec.name
