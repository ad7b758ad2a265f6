"""Typer commands that all accept --verbose and --quiet, before or after the command's name; also `bench --version`."""

from __future__ import annotations

import functools
import inspect
import platform
from collections.abc import Callable
from typing import Annotated, Any

import typer

from bench.cli import verbosity

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also say what is decided: device, budgets, revisions.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel="Output")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors alone.")]


class Commands(typer.Typer):
    """Typer app whose commands accept --verbose and --quiet."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # type: ignore[override]
        """Register a function as a command, as `typer.Typer.command` does."""
        register = super().command(name, **settings)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            register(with_verbosity(function))
            return function

        return decorate


def with_verbosity(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a command's function so that it also accepts --verbose and --quiet."""

    @functools.wraps(function)
    def called(*, verbose: bool, quiet: bool, **values: Any) -> Any:
        if verbose or quiet:  # else the options before the command's name apply
            verbosity.set_level(verbose=verbose, quiet=quiet)
        return function(**values)

    parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=option, default=False)
        for name, option in (("verbose", Verbose), ("quiet", Quiet))
    ]
    keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    called.__signature__ = inspect.Signature([*keyword_only, *shared])  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in (*keyword_only, *shared)}
    return called


def _print_version(value: bool) -> None:  # noqa: FBT001 - typer calls it so
    if value:
        from bench.cli.printing import print_line
        from bench.results import provenance

        code, packages = provenance.code(), provenance.packages()  # read from metadata, without imports
        changed = ", with changes" if code["dirty"] else ""
        commit = f" (commit {code['git_sha'][:12]}{changed})" if code["git_sha"] else ""
        print_line(f"{provenance.DISTRIBUTION} {code['version'] or 'not installed'}{commit}")
        for name in ("torch", "transformers"):  # these affect numbers most
            print_line(f"{name} {packages.get(name, 'is not installed')}")
        print_line(f"Python {platform.python_version()}")
        raise typer.Exit


def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Compare confidence methods for LLMs: same model, same answers, same questions."""
    del version
    verbosity.set_level(verbose=verbose, quiet=quiet)
