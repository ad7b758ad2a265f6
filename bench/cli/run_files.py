"""Run files: TOML files with options of `bench run`, read and written.

A key in the file is an option's name without its dashes. Paths are relative to the file's folder, so that a file means
the same run wherever the command is started; `~` is the home folder. Options on the command line take precedence.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from bench.api import UserError
from bench.api.errors import did_you_mean
from bench.api.options import OptionField, options_of
from bench.model.specs import aliases, is_gguf
from bench.run.config import RunConfig

SUFFIX = ".toml"
NO_OPTIONS = ("cache",)
"""Fields of `RunConfig` that are not command-line options."""
_HEADER = "# Options of `bench run`; start it with: bench run FILE. Relative paths begin at this file's folder.\n\n"
_NAME_OR_PATH = ("model", "tokenizer", "answers", "train_on", "judge_model", "nli", "similarity")
"""Fields of `RunConfig` whose value is either a name or a path."""
_MODEL_FIELDS = ("model", "tokenizer", "judge_model", "nli", "similarity")
"""Fields of `RunConfig` whose value is either a model's name or a model's folder or file."""
_PATH = re.compile(r"(~|\.{1,2})/.*|.*\.(jsonl?|csv|parquet|gguf)(:\w+)?", flags=re.DOTALL)
"""Pattern of values that count as paths, even if nothing exists there, in fields that take a name or a path."""
_TYPE_NAMES: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text in quotes",
    Path: "a path in quotes",
}
Value = str | int | float | bool | list[str]


def options() -> dict[str, OptionField]:
    """Return the options that a run file may set: key in the file -> `OptionField`."""
    return {option.flag.removeprefix("--"): option for option in options_of(RunConfig) if option.name not in NO_OPTIONS}


# --- reading ----------------------------------------------------------------------------------------------------------


def load_defaults(ctx: typer.Context, path: Path | None) -> Path | None:
    """Typer callback that makes the options of a run file the defaults of the command line.

    Raises:
        UserError: the file can't be read or is invalid.
    """
    if path is not None and not ctx.resilient_parsing:  # no errors during shell completion
        ctx.default_map = read(path)
    return path


def read(path: Path) -> dict[str, Value]:
    """Read a run file; return field of `RunConfig` -> value in the form in which typer parses it.

    Raises:
        UserError: the file's name does not end in .toml, the file can't be read or is not TOML, a key is unknown, or a
            value has the wrong type.
    """
    if path.suffix != SUFFIX:
        raise UserError(f"expected a run file that ends in {SUFFIX}, or options that begin with --, got {str(path)!r}")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"run file {path} can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"run file {path}: expected TOML: {error or type(error).__name__}") from error
    fields, folder = options(), _base_folder(path) or ""
    values: dict[str, Value] = {}
    for key, value in table.items():
        if key not in fields:
            hint = did_you_mean(key, fields) or f" Keys are the options of `bench run`: {', '.join(fields)}."
            raise UserError(f"run file {path}: unknown key {key!r}.{hint}")
        try:
            field, parsed = fields[key], _parse_value(fields[key], value)
            is_path = field.kind is Path  # relative to the file's folder
            is_path_value = is_path or (field.name in _NAME_OR_PATH and _PATH.fullmatch(str(parsed)) is not None)
            # `Path` would make a model's name of the folder `./name`, and fail at `~name` if no user has that name
            if isinstance(parsed, list) and is_path:
                parsed = [os.path.join(folder, os.path.expanduser(each)) for each in parsed]  # noqa: PTH111, PTH118
            elif isinstance(parsed, str) and is_path_value:
                parsed = os.path.join(folder, os.path.expanduser(parsed))  # noqa: PTH111, PTH118
            values[field.name] = parsed
        except ValueError as error:
            shown = json.dumps(value, ensure_ascii=False, default=str)[:60]
            raise UserError(f"run file {path}: option {key}: expected {error}, got {shown}; correct it there") from None
    return values


def _base_folder(path: Path) -> Path | None:
    """Return the folder of a run file; None if it is the current folder."""
    folder = path.parent
    return None if folder.absolute().resolve() == Path.cwd().resolve() else folder


def _parse_value(field: OptionField, value: Any) -> Value:
    """Convert a value of a run file to the form it has on the command line: a text, a list of texts, or a bool.

    Raises:
        ValueError: the value has the wrong type; the message names the expected type.
    """
    kind = field.kind
    allowed_types = {int, float} if kind is float else {str if kind is Path else kind}
    allowed_types |= {int} if field.or_number else set()
    if field.name == "overrides" and isinstance(value, dict):
        return [f"{name}={text}" for name, text in _flatten(value)]
    if field.several or field.name == "seed":
        values = value if isinstance(value, list) else [value]
        if not all(type(each) in allowed_types for each in values):
            table = ", or a table of METHOD.FIELD = VALUE" if field.name == "overrides" else ""
            raise ValueError(f"{_TYPE_NAMES[kind]}, or a list of it{table}")
        return [str(each) for each in values]
    if type(value) not in allowed_types:
        raise ValueError(_TYPE_NAMES[kind])
    return value if isinstance(value, bool) else str(value)


def _flatten(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted name and text of each value in a nested TOML table, in the form of `--set NAME=VALUE`."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{before}{name}.")
        elif isinstance(value, bool):
            yield f"{before}{name}", str(value).lower()
        elif isinstance(value, str | int | float):
            yield f"{before}{name}", str(value)
        else:
            raise ValueError(f"text in quotes, a number, true or false for {before}{name}")  # noqa: TRY004 - a user's value


# --- writing ----------------------------------------------------------------------------------------------------------


def dump(configs: Sequence[RunConfig], target: str) -> None:
    """Write the settings of runs that differ only in their seeds as one run file; if `target` is `-`, print it.

    Raises:
        UserError: the file's name does not end in .toml, or the file exists or can't be written.
    """
    from bench.cli.printing import print_written

    path = Path(target)
    if target == "-":
        sys.stdout.write(to_toml(configs, None))
        return
    if path.suffix != SUFFIX:
        raise UserError(f"--dump-config {target}: expected a file that ends in {SUFFIX}, or - to print it")
    text = to_toml(configs, _base_folder(path))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UserError(
            f"--dump-config: {path} is there already and is not overwritten; choose another name"
        ) from error
    except OSError as error:
        raise UserError(f"--dump-config: {path} can't be written: {error.strerror}") from error
    print_written([path])


def to_toml(configs: Sequence[RunConfig], folder: Path | None = None) -> str:
    """Format configurations that differ only in their seeds as TOML, without options that have their default.

    Args:
        configs: one configuration for each seed.
        folder: the run file's folder. If it is another than the current folder, relative paths are made absolute. None
            stands for the current folder.
    """
    import tomli_w

    table: dict[str, Any] = {}
    for key, field in options().items():
        value = getattr(configs[0], field.name)
        if field.name == "seed" and len(configs) > 1:
            table[key] = [config.seed for config in configs]
        elif value != field.default:
            table[key] = _toml_value(field, value, folder)
    return _HEADER + tomli_w.dumps(table)


def _toml_value(field: OptionField, value: Any, folder: Path | None) -> Any:
    if isinstance(value, tuple):
        return [_toml_value(field, item, folder) for item in value]
    is_path_value = field.kind is Path
    if field.name in _NAME_OR_PATH:  # a name wins, whatever lies there
        is_folder = field.name in _MODEL_FIELDS and value not in aliases() and (Path(value).is_dir() or is_gguf(value))
        is_path_value = is_folder or _PATH.fullmatch(value) is not None
    if not is_path_value:
        return value
    return re.sub("^~", "./~", str(value)) if folder is None else str(Path(value).absolute())
