"""`bench new`: writes a method or task to start from, with tests, copied from the files in `templates`."""

from __future__ import annotations

import importlib.util
import keyword
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import typer

from bench.api import UserError
from bench.cli.commands import Commands

Kind = Literal["method", "task"]
Name = Annotated[str, typer.Argument(help="Lower-case words joined by '-', as it is named on the command line.")]
Out = Annotated[Path | None, typer.Option(help="File to write. Default: the name, here; its test file beside it.")]

_NO_PYTEST = "  (pytest is not installed here: pip install pytest)"

app = Commands(help="Write a method or a task to begin with, and its tests.", no_args_is_help=True)


@app.command()
def method(
    name: Name,
    out: Out = None,
    *,
    trained: Annotated[
        bool,
        typer.Option(
            "--trained/--untrained", help="Begin with a probe on a hidden state, or with an entropy of tokens."
        ),
    ] = False,
) -> None:
    """Write a method and its tests."""
    path = write("method", name, "trained" if trained else "untrained", out)
    file = shlex.quote(str(path))
    _print_next_steps(
        path, [f"bench run --plugin {file} --method {name} --model tiny"], "bench.api.methods, bench.api.signals"
    )


@app.command()
def task(
    name: Name,
    out: Out = None,
    *,
    choice: Annotated[bool, typer.Option("--choice/--open", help="Begin with lettered options, or with none.")] = True,
) -> None:
    """Write a task and its tests."""
    path = write("task", name, "choice" if choice else "open", out)
    file = shlex.quote(str(path))
    commands = [
        f"bench show {name} --plugin {file} --example 0",
        f"bench run --plugin {file} --task {name} --method ptrue --model tiny",
    ]
    _print_next_steps(path, commands, "bench.api.tasks, bench.api.question")


def write(kind: Kind, name: str, template: str, out: Path | None = None) -> Path:
    """Write the file of a new plugin, and its test file beside it; return the path of the plugin's file.

    Args:
        kind: method or task.
        name: name under which the plugin is registered.
        template: name of the folder with the template files.
        out: path of the plugin's file; by default the plugin's name, in the current folder.

    Raises:
        UserError: the name or the file is invalid or in use, or a file can't be written.
    """
    from bench import registry

    path = out or Path(f"{name.replace('-', '_')}.py")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UserError(f"expected a name of lower-case words joined by '-', e.g. my-{kind}, got {name!r}")
    for kind_name, registered in (("method", registry.methods()), ("task", registry.tasks())):
        if name in registered.names():
            raise UserError(f"there is a {kind_name} {name!r} already; choose another name")
    if name in registry.GROUPS:
        raise UserError(f"{name!r} means a group of methods; choose another name")
    if path.suffix != ".py" or not path.stem.isidentifier() or keyword.iskeyword(path.stem):
        raise UserError(f"expected a file that Python can import, e.g. my_{path.stem}.py, got {path}")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent}; make it first")
    for file in (path, _test_path(path)):
        if file.exists() or file.is_symlink():
            raise UserError(f"{file} is there already and is not overwritten; choose another name or --out")
    with suppress(ImportError, ValueError):
        if importlib.util.find_spec(path.stem) is not None:
            raise UserError(
                f"{path.name} would hide the module {path.stem!r} of Python or of a package from whatever is"
                " started beside it; choose another name or --out"
            )
    folder = resources.files("bench.cli.templates") / template
    sources = {
        path: (folder / f"my_{kind}.py").read_text(encoding="utf-8"),
        _test_path(path): (folder / f"test_my_{kind}.py").read_text(encoding="utf-8"),
    }
    placeholder_class = f"My{kind.title()}"
    used_names = {word for text in sources.values() for word in re.findall(r"\w+", text)} - {placeholder_class}
    class_name = "".join(part.capitalize() for part in name.split("-"))
    while class_name in used_names or keyword.iskeyword(class_name):  # the templates use this name
        class_name += kind.title()
    replacements = {f"my-{kind}": name, f"my_{kind}": path.stem, placeholder_class: class_name}
    placeholder = re.compile("|".join(map(re.escape, replacements)))
    written: list[Path] = []
    try:
        for file, text in sources.items():
            with file.open("x", encoding="utf-8") as stream:
                written.append(file)
                stream.write(placeholder.sub(lambda match: replacements[match[0]], text))
    except OSError as error:
        for file in written:
            file.unlink(missing_ok=True)
        raise UserError(f"{error.filename or 'a file'} can't be written: {error.strerror}") from error
    return path


def _test_path(path: Path) -> Path:
    return path.with_name(f"test_{path.name}")


def _print_next_steps(path: Path, commands: Sequence[str], modules: str) -> None:
    from bench.cli.printing import print_line

    has_pytest = importlib.util.find_spec("pytest") is not None
    print_line(f"wrote {path} and {_test_path(path)}; what you have to decide has a comment there. Next:")
    for command in (f"bench check {shlex.quote(str(path))}", *commands, f"pytest {shlex.quote(str(_test_path(path)))}"):
        print_line(f"  {command}{_NO_PYTEST if command.startswith('pytest') and not has_pytest else ''}")
    print_line(f"The interface: docs/signals.md, and python -m pydoc of {modules}")
