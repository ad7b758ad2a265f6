"""Run files: the options of `bench run` as TOML, read and written.

A key is an option's name without its dashes. Relative paths begin at the file's folder, so that a file means the same
run wherever the command is started. What stands on the command line wins.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import typer

from bench.api import UserError
from bench.api.errors import did_you_mean
from bench.cli.options import Field, fields_of
from bench.model.specs import aliases
from bench.run.config import RunConfig

SUFFIX = ".toml"
NO_OPTIONS = ("cache",)
"""Fields of a run that are no options."""
_HEAD = "# Options of `bench run`; start it with: bench run FILE. Relative paths begin at this file's folder.\n\n"
_NAME_OR_PLACE = ("model", "answers", "train_on", "judge_model", "nli", "similarity")
"""Fields whose text is a name, or a file or folder."""
_MODELS = ("model", "judge_model", "nli", "similarity")
"""Those of them that name a model, or its folder."""
_PLACE = re.compile(r"\.{1,2}/.*|.*\.(jsonl?|csv|parquet)(:\w+)?", flags=re.DOTALL)
"""Text of such a field that is a file or folder, whatever lies there."""
_WORDS: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "text",
}
Value = str | int | float | bool | list[str]


def options() -> dict[str, Field]:
    """Key of a run file -> the option."""
    return {field.option().removeprefix("--"): field for field in fields_of(RunConfig) if field.name not in NO_OPTIONS}


# --- reading ----------------------------------------------------------------------------------------------------------


def take_defaults(ctx: typer.Context, path: Path | None) -> Path | None:
    """Let the options of a run file stand in for those that the command line leaves out.

    Raises:
        UserError: the file can't be read, or is not as it must be.
    """
    if path is not None and not ctx.resilient_parsing:  # a shell that completes a name sees no error
        ctx.default_map = read(path)
    return path


def read(path: Path) -> dict[str, Value]:
    """Field -> value as the command line would have it.

    Raises:
        UserError: the file can't be read, is no TOML, has an unknown key, or a value of another type.
    """
    if path.suffix != SUFFIX:
        raise UserError(f"expected a run file that ends in {SUFFIX}, or options that begin with --, got {str(path)!r}")
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"run file {path} can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"run file {path}: expected TOML: {error or type(error).__name__}") from error
    known, folder = options(), _folder_of(path)
    found: dict[str, Value] = {}
    for key, value in given.items():
        if key not in known:
            hint = did_you_mean(key, known) or f" Keys are the options of `bench run`: {', '.join(known)}."
            raise UserError(f"run file {path}: unknown key {key!r}.{hint}")
        try:
            field, text = known[key], _checked(known[key], value)
            is_path = _kind(field) is Path  # relative ones begin at the file's folder
            is_place = is_path or (field.name in _NAME_OR_PLACE and _PLACE.fullmatch(str(text)) is not None)
            if folder is not None and isinstance(text, list) and is_path:
                text = [str(folder / each) for each in text]
            elif folder is not None and isinstance(text, str) and is_place:
                text = str(folder / text)
            found[field.name] = text
        except ValueError as error:
            raise UserError(f"run file {path}: {key}: expected {error}, got {str(value)[:60]!r}") from None
    return found


def _folder_of(path: Path) -> Path | None:
    """Folder that relative paths begin at; None where it is the current one."""
    folder = path.parent
    return None if folder.absolute().resolve() == Path.cwd().resolve() else folder


def _kind(field: Field) -> type:
    """Type of an option's value, or of one of them."""
    kinds = [kind for kind in (field.type, *get_args(field.type)) if isinstance(kind, type) and kind in _WORDS]
    return kinds[0]


def _checked(field: Field, value: Any) -> Value:
    """The value of a key as the command line has it.

    Raises:
        ValueError: it is of another type; says what was expected.
    """
    kind = _kind(field)
    types = {int, float} if kind is float else {str if kind is Path else kind}
    if field.name == "overrides" and isinstance(value, dict):
        return [f"{name}={text}" for name, text in _settings(value)]
    if field.several or field.name == "seed":
        values = value if isinstance(value, list) else [value]
        if not all(type(each) in types for each in values):
            table = ", or a table of METHOD.FIELD = VALUE" if field.name == "overrides" else ""
            raise ValueError(f"{_WORDS[kind]}, or a list of it{table}")
        return [str(each) for each in values]
    if type(value) not in types:
        raise ValueError(_WORDS[kind])
    return value if isinstance(value, bool) else str(value)


def _settings(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names of a table's values, with these as `--set` has them."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _settings(value, f"{before}{name}.")
        elif isinstance(value, bool):
            yield f"{before}{name}", str(value).lower()
        elif isinstance(value, str | int | float):
            yield f"{before}{name}", str(value)
        else:
            raise ValueError(f"text, a number, true or false for {before}{name}")  # noqa: TRY004 - a user's value


# --- writing ----------------------------------------------------------------------------------------------------------


def dump(configs: Sequence[RunConfig], target: str) -> None:
    """Write requests that differ in their seeds alone as a run file; `-` prints it.

    Raises:
        UserError: the file is there already, or can't be written.
    """
    from bench.cli.printing import print_written

    path = Path(target)
    if target == "-":
        sys.stdout.write(text_of(configs, None))
        return
    if path.suffix != SUFFIX:
        raise UserError(f"--dump-config {target}: expected a file that ends in {SUFFIX}, or - to print it")
    text = text_of(configs, _folder_of(path))
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


def text_of(configs: Sequence[RunConfig], folder: Path | None = None) -> str:
    """The run file of requests that differ in their seeds alone: every option that is not its default.

    Args:
        configs: one for each seed.
        folder: of the file, where it is not the current one: relative paths become absolute.
    """
    import tomli_w

    table: dict[str, Any] = {}
    for key, field in options().items():
        value = getattr(configs[0], field.name)
        if field.name == "seed" and len(configs) > 1:
            table[key] = [config.seed for config in configs]
        elif value != field.default:
            table[key] = _written(field, value, folder)
    return _HEAD + tomli_w.dumps(table)


def _written(field: Field, value: Any, folder: Path | None) -> Any:
    if isinstance(value, tuple):
        return [_written(field, each, folder) for each in value]
    is_place = _kind(field) is Path
    if field.name in _NAME_OR_PLACE:  # a name wins, whatever lies there
        is_folder = field.name in _MODELS and value not in aliases() and Path(value).is_dir()
        is_place = is_folder or _PLACE.fullmatch(value) is not None
    if not is_place:
        return value
    return str(value) if folder is None else str(Path(value).absolute())
