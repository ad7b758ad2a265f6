"""Python API: `run(...)`, `load_results(...)`, `report(...)` and `audit(...)`, for scripts and notebooks.

Keyword arguments are the fields of `RunConfig` and `Selection`, with the meaning of the command's options. Example:
`run(methods="ptrue", model="tiny", tasks="atlas-choice", limit=50).frame()`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from bench.api import ConfidenceMethod, UserError
from bench.api.options import RUNS, from_keywords
from bench.progress import Lines, Progress, Silent, progress_on
from bench.report.notebook import Page, Results
from bench.report.selection import AuditRequest, Selection
from bench.run.config import RunConfig
from bench.store.disk_cache import cache_folder

if TYPE_CHECKING:
    from os import PathLike

    from bench.report.notebook.audit import Audit

    Text = str | PathLike[str]
    Methods = str | type[ConfidenceMethod] | Iterable[str | type[ConfidenceMethod]]

T = TypeVar("T")


def _with_fields_as_options(cls: type, *, without: Sequence[str] = ()) -> Callable[[T], T]:
    """Return a decorator for functions with `**options`: their signature then shows the fields of `cls`."""

    def decorate(function: Any) -> Any:
        parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        names, hints = {parameter.name for parameter in parameters}, get_type_hints(cls)
        options = [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[field.name],
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
            )
            for field in fields(cls)
            if field.name not in {*names, *without}
        ]  # fmt: skip
        function.__signature__ = inspect.Signature(
            [*parameters, *options], return_annotation=function.__annotations__["return"]
        )
        return function

    return decorate


@_with_fields_as_options(RunConfig)
def run(
    methods: Methods = (),
    model: Text = "",
    tasks: Text | Iterable[Text] = (),
    *,
    quiet: bool = False,
    **options: object,
) -> Results:
    """Run methods on a model over tasks, score them and write the results: `bench run` in Python.

    Args:
        methods: names and groups, one text or several, as on the command line; and classes with `@method`, which may be
            typed into a notebook. Such a class runs in this process, and is fitted in every run.
        model: alias, Hub id, folder, GGUF file or URL of a server.
        tasks: one or several; the model's own by default.
        quiet: print no progress.
        options: fields of `bench.run.config.RunConfig`, the options of `bench run`: `limit=50, seed=1, preset="fixed"`.

    Returns:
        The results that this run has written, including cells that failed or were skipped, with tables and figures.

    Raises:
        UserError: an argument or input is invalid; the message says what was expected.
    """
    names: list[object] = []
    classes: list[type[ConfidenceMethod]] = []
    for item in methods if isinstance(methods, Iterable) and not isinstance(methods, str) else [methods]:
        if isinstance(item, ConfidenceMethod):
            raise UserError(
                f"run(), methods: expected the class {type(item).__name__}, got an object of it; leave out ()"
            )
        if isinstance(item, type):
            if not issubclass(item, ConfidenceMethod) or "name" not in vars(item):
                raise UserError(
                    f"run(), methods: expected a ConfidenceMethod with a name, got the class {item.__name__}; write"
                    ' @method("name") above it'
                )
            classes.append(item)
        names.append(item.name if isinstance(item, type) else item)
    args: Mapping[str, Any] = {"methods": names, "model": model, "tasks": tasks}
    passed = {name: value for name, value in args.items() if not isinstance(value, str | Sequence) or len(value)}
    config = from_keywords(RunConfig, {**passed, **options}, "run()")
    progress = _progress(quiet=quiet)
    from bench.report import style
    from bench.run.pipeline import run as run_methods

    style.read(config.out)  # an unreadable colour file is reported before hours of work
    report = run_methods(config, progress, classes)
    cache = config.cache or cache_folder()
    selection = Selection(config.out, partial=True, deviations=True)
    results = Results.from_rows(selection, cache, report.rows, progress.say) if report.rows else Results(selection, ())
    return replace(results, notes=tuple(report.notes), plan=tuple(report.plan), paths=tuple(report.paths))


@_with_fields_as_options(AuditRequest)
def audit(data: Any, **options: object) -> Audit:
    """Judge confidences that somebody already has: `bench audit` in Python.

    Args:
        data: a pandas DataFrame with a row for each answer, or files as for the command.
        options: fields of `bench.report.selection.AuditRequest`, the options of `bench audit`:
            `confidences="verbal,logprob", by="category"`.

    Raises:
        UserError: a file can't be read, a column is missing, or a value isn't what its column needs.
    """
    from bench.data.confidence_files import read_sheet
    from bench.report.notebook.audit import Audit

    request = from_keywords(AuditRequest, options, "audit()")
    found = Audit.of(read_sheet(data), request)
    return found if request.out is None else replace(found, paths=tuple(found.write(request.out, Silent().say)))


@_with_fields_as_options(Selection, without=("results",))
def load_results(folder: Text = RUNS, *, quiet: bool = False, cache: Text | None = None, **options: object) -> Results:
    """Load results from a folder, with the intervals and tests that tables show.

    Args:
        folder: the results folder.
        quiet: don't announce work that takes long.
        cache: folder where intervals and tests are kept. Default: $CONFBENCH_CACHE, else the user's cache folder.
        options: fields of `bench.report.selection.Selection`, the options of `bench table` that say what is shown:
            `methods="ccps,lts", tasks="atlas-oe", partial=True`.

    Raises:
        UserError: there is no such folder, there is nothing to show, or a result is invalid.
    """
    selection = from_keywords(Selection, {"results": folder, **options}, "load_results()")
    cache_dir = cache_folder() if cache is None else Path(cache).expanduser()
    return Results.load(selection, cache_dir, _progress(quiet=quiet).say)


def report(
    results: Results | Text = RUNS, out: Text = "report.html", figures: Text | None = None, *, quiet: bool = False
) -> Page:
    """Write results as one HTML page and, where asked for, as figures: `bench report` in Python.

    Args:
        results: results from `run` or `load_results`, or the results folder.
        out: file to which the page is written.
        figures: folder to which the figures are written, too; None: no figures beside the page.
        quiet: don't announce work that takes long.

    Returns:
        The page's path, as an object that a notebook shows as the page itself.

    Raises:
        UserError: there is nothing to show, or a file can't be written.
    """
    loaded = results if isinstance(results, Results) else load_results(results, quiet=quiet)
    folder = None if figures is None else Path(figures).expanduser()
    return loaded.write_page(Path(out).expanduser(), folder, _progress(quiet=quiet).say)


def _progress(*, quiet: bool) -> Progress:
    """Return a progress display on stderr; in a notebook on stdout, because notebooks show stderr in red.

    With `quiet`, the display shows nothing.
    """
    if quiet:
        return Silent()
    in_notebook = type(sys.stderr).__module__.startswith("ipykernel")
    return Lines(sys.stdout) if in_notebook else progress_on(sys.stderr)
