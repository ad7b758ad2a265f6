"""Contract checks for methods and tasks: each small function checks one rule.

With pytest::

    @pytest.mark.parametrize(("make", "check"), list(checks_for(Margin)))
    def test_contract(make, check):
        check(make)

Without pytest, run `bench check margin.py`. Methods get synthetic signals with known labels, and are trained with the
constants in their attribute `small`. A method that has a reason to break a rule lists the check's name in
`expected_failures`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench import registry
from bench.api import ConfidenceMethod, Format, RunFacts, Source, Task, UserError
from bench.api.errors import did_you_mean, fold_name, home_of, reason_of
from bench.api.tasks import NO_SOURCE
from bench.signals.definition import definition
from bench.signals.synthetic import MODEL, planted
from bench.testing.check import Check, MakeMethod, MakeTask
from bench.testing.method_checks import METHOD_CHECKS, METHOD_DATA_CHECKS
from bench.testing.observing import TRAIN
from bench.testing.task_checks import TASK_CHECKS, TASK_ROW_CHECKS

__all__ = ["NO_SOURCE", "Check", "CheckResult", "MakeMethod", "MakeTask", "check_plugin", "checks_for", "checks_of",
           "planted", "without_repeats"]  # fmt: skip


class CheckResult(NamedTuple):
    """Outcome of one check of a method or task; `bench check` shows it in one line."""

    name: str
    """Name of the method or task, question format (of a method), and name of the rule."""
    ok: bool
    message: str
    """Reason of the failure. If the check passed, it is a remark or an empty string."""
    raised: str = ""
    """If the method or task raised an exception, its name and the exception in one line; otherwise empty."""


Made = tuple[MakeMethod | MakeTask, Check]


def checks_for(plugin: type[ConfidenceMethod] | type[Task], source: Source | None = None) -> Iterator[Made]:
    """Yield pairs (factory, check) for all checks that apply to a method or task; call the check with the factory.

    Checks on synthetic data run once for each question format that the method does not skip. A task's questions are
    checked only if they can be read from `source`.
    """
    if issubclass(plugin, ConfidenceMethod):
        for i, fmt in enumerate(_formats(plugin)):
            for body in (METHOD_CHECKS if i == 0 else ()) + METHOD_DATA_CHECKS:
                failure = plugin.expected_failures.get(Check(body).__name__, "")
                yield MakeMethod(plugin, fmt), Check(body, failure)
        return
    make = MakeTask(plugin, source or NO_SOURCE)
    available = False  # whether every split can be read from the source
    try:
        origins = [origin for split in plugin.card.splits for origin in make().origins(split)]
        available = all(make.source.has(card, split) for card, split in origins)
    except BaseException as error:  # `check_origins` reports it; collecting checks must go on
        if isinstance(error, KeyboardInterrupt):
            raise
    for body in TASK_CHECKS + (TASK_ROW_CHECKS if available else ()):
        yield make, Check(body)


def check_plugin(target: str | Path, source: Source | None = None) -> list[CheckResult]:
    """Run all checks on the methods and tasks in a file, or on the built-in or installed one of this name.

    A failure with an exception that was already reported is left out and counted.

    Raises:
        UserError: the file can't be used, or no method or task has this name.
    """
    return without_repeats([outcome() for _, outcome in checks_of(target, source)])


def checks_of(target: str | Path, source: Source | None = None) -> Iterator[tuple[str, Callable[[], CheckResult]]]:
    """Yield (name, function) for each check that `check_plugin` runs; the function runs the check."""
    for plugin in _plugins(target):
        for make, check in checks_for(plugin, source):
            name = f"{make.__name__} {check.__name__}"
            yield name, partial(_result, name, make, check)


def without_repeats(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Drop failures with an exception that was already reported for another rule.

    The number of dropped failures is added to the message of the first one.
    """
    failures_by_cause = Counter(result.raised for result in results if result.raised)
    reported: dict[str, CheckResult] = {}
    distinct = []
    for result in results:
        if result.raised in reported:
            continue
        others = failures_by_cause[result.raised] - 1 if result.raised else 0
        if others > 0:
            result = result._replace(message=f"{result.message} ({others} other rules fail by this alone)")  # noqa: PLW2901
        if result.raised:
            reported[result.raised] = result
        distinct.append(result)
    return distinct


def _result(name: str, make: MakeMethod | MakeTask, check: Check) -> CheckResult:
    try:
        remark = check(make)
    except AssertionError as error:
        cause = error.__cause__
        direct = cause is None or isinstance(cause, AssertionError)
        raised = "" if direct or cause is None else f"{make.plugin.name}: {reason_of(cause, home_of(make.plugin))}"
        return CheckResult(name, ok=False, message=str(error), raised=raised)
    return CheckResult(name, ok=True, message=remark)


def _plugins(target: str | Path) -> list[Any]:
    path = Path(target)
    is_file = path.suffix == ".py" or path.is_file()
    files = [path] if is_file else []
    entries: list[registry.PluginEntry[Any]] = [*registry.methods(files).entries(), *registry.tasks(files).entries()]
    if is_file:
        return [entry.plugin for entry in entries if entry.origin == str(path)]
    plugins = [entry.plugin for entry in entries if entry.name == fold_name(str(target)) and entry.plugin is not None]
    if not plugins:
        meant = did_you_mean(str(target), [entry.name for entry in entries])
        raise UserError(
            f"Expected a .py file, or the name of a method or a task, got {str(target)!r}.{meant}"
            " See: bench list methods, bench list tasks"
        )
    return plugins


def _formats(plugin: type[ConfidenceMethod]) -> list[Format]:
    """Return the question formats that a method does not skip, and in which all its signals exist.

    Multiple choice is returned if there is no such format, or if the method raises.
    """
    try:
        method = MakeMethod(plugin)()
        needs = method.reads()
        definitions = [definition(signal) for signal in needs.fit | needs.predict]
        usable = [f for f in Format if method.skip(RunFacts(MODEL, "planted", f, TRAIN)) is None]
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a check will report the error; collecting checks must go on
        return [Format.CHOICE]
    return [f for f in usable if all(signal.unsupported(f) is None for signal in definitions)] or [Format.CHOICE]
