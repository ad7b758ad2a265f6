"""Registry of methods and tasks: loads built-ins and installed plugins by entry point, and files given with `--plugin`.

One generic `Registry` serves methods and tasks. This module also expands group names, such as `trained`, to the names
of methods. Torch and transformers aren't imported.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from bench.api import (
    Adapter,
    AttentionRows,
    ChoiceLogits,
    ConfidenceMethod,
    ContractError,
    Hidden,
    Needs,
    QueryLogits,
    Task,
    TokenScores,
    Unembedding,
    UserError,
    registration,
)
from bench.api.configurations import refuse_search
from bench.api.errors import did_you_mean, fold_name, plugin_errors, reason_of
from bench.api.methods import refuse_gold, refuse_output
from bench.api.registration import PendingRegistration
from bench.api.signals import reads_trace

DISTRIBUTION = "confbench"
BUILT_IN = "built-in"
PLUGIN_FILE = f"{DISTRIBUTION}_plugin_"
"""Beginning of the module names of plugin files."""

T = TypeVar("T")


@dataclass(frozen=True)
class PluginKind:
    """One of the two kinds of plugin, method or task, with what is needed to load plugins of this kind."""

    word: str
    """The word `method` or `task`, as in messages and in `PendingRegistration.kind`."""
    base: type
    required: tuple[str, ...]
    """Class attributes that a plugin of this kind must set."""

    @property
    def group(self) -> str:
        """Name of the entry-point group under which packages register plugins of this kind."""
        return f"{DISTRIBUTION}.{self.word}s"


METHOD = PluginKind("method", ConfidenceMethod, ("needs",))
TASK = PluginKind("task", Task, ("format", "card", "style"))


@dataclass(frozen=True)
class PluginEntry(Generic[T]):
    """An entry of a registry: a plugin class, or a plugin that could not be loaded."""

    name: str
    """Name on the command line; for a broken plugin, the name of its entry point."""
    plugin: type[T] | None
    """The plugin class; None if the plugin could not be loaded."""
    module: str
    origin: str
    """Where the plugin comes from: `built-in`, a distribution with its version, the path after `--plugin`, or a
    description."""
    error: str = ""
    """Reason why the plugin is broken; empty if it is usable."""


class Registry(Generic[T]):
    """Immutable mapping from name to plugin class; it also knows the plugins that failed to load."""

    def __init__(self, kind: PluginKind, entries: Iterable[PluginEntry[T]], notes: Sequence[str] = ()) -> None:
        self._kind = kind
        self._usable: dict[str, PluginEntry[T]] = {}
        broken: list[PluginEntry[T]] = []
        for entry in entries:
            if entry.plugin is None:
                broken.append(entry)
            else:
                other = self._usable.get(entry.name)
                if other is not None:
                    raise UserError(
                        f"Two {self._kind.word}s are called {entry.name!r}:"
                        f" one in {other.module} ({other.origin}), one in {entry.module} ({entry.origin}); rename one"
                    )
                self._usable[entry.name] = entry
        self._broken = tuple(broken)
        self.notes = tuple(notes)
        """Notes for the user that are printed once, e.g. that a plugin file was executed."""

    def names(self) -> tuple[str, ...]:
        """Return the names of the plugins that were loaded without error, sorted."""
        return tuple(sorted(self._usable))

    def entries(self) -> tuple[PluginEntry[T], ...]:
        """Return the entries of all plugins: first usable plugins sorted by name, then broken ones."""
        return (*(self._usable[name] for name in self.names()), *self._broken)

    def find(self, name: str) -> type[T] | None:
        """Return the plugin class that is registered under a name, spelt as `fold_name` takes it; None without one."""
        entry = self._usable.get(fold_name(name))
        return None if entry is None else entry.plugin

    def get(self, name: str) -> type[T]:
        """Return the plugin class that is registered under a name; the name may be spelt as `fold_name` takes it.

        Raises:
            UserError: the name is unknown, or its plugin is broken.
        """
        if (plugin := self.find(name)) is not None:
            return plugin
        word = self._kind.word
        for entry in self._broken:
            if entry.name == name:
                raise UserError(f"{word.capitalize()} {name!r} of {entry.origin} is broken: {entry.error}")
        meant = did_you_mean(name, self.names())
        broken = f" Broken plugins: {', '.join(entry.name for entry in self._broken)}." if self._broken else ""
        known = ", ".join(self.names()) or "none"
        raise UserError(f"Unknown {word} {name!r}.{meant} Known: {known}.{broken} See: bench list {word}s")


def methods(plugins: Sequence[Path] = (), made: Sequence[type[ConfidenceMethod]] = ()) -> Registry[ConfidenceMethod]:
    """Load all methods: built-in methods, installed plugins, plugin files, and the classes in `made`.

    Raises:
        UserError: a plugin file or a class in `made` can't be used, two plugins share a name, another package named
            `methods` or `tasks` shadows ours, or confbench is not installed.
        ContractError: a built-in method breaks a rule of `bench.api`.
    """
    for cls in made:
        with plugin_errors(f"method {cls.name!r}"):
            _check(METHOD, PendingRegistration(METHOD.word, cls.name, cls, cls.__module__))
    return _load(METHOD, plugins, [PluginEntry(cls.name, cls, cls.__module__, "a class") for cls in made])


def tasks(plugins: Sequence[Path] = (), made: Sequence[tuple[type[Task], str]] = ()) -> Registry[Task]:
    """Load all tasks: built-in tasks, installed plugins, plugin files, and the classes in `made`.

    Args:
        plugins: paths of plugin files.
        made: further task classes, e.g. of question files, each with its `PluginEntry.origin`.

    Raises:
        UserError: a plugin file can't be used, two plugins share a name, another package named `methods` or `tasks`
            shadows ours, or confbench is not installed.
        ContractError: a built-in task breaks a rule of `bench.api`.
    """
    return _load(TASK, plugins, [PluginEntry(task.name, task, task.__module__, origin) for task, origin in made])


@cache  # scanning all installed packages takes 50 ms, and reports call this once per line
def built_in() -> tuple[Registry[ConfidenceMethod], Registry[Task]]:
    """Load the built-in methods and tasks alone; plugins of other packages are not imported.

    Raises:
        UserError: another package named `methods` or `tasks` shadows ours, or confbench is not installed.
        ContractError: a built-in plugin breaks a rule of `bench.api`.
    """
    return _load(METHOD, foreign=False), _load(TASK, foreign=False)


# --- groups of methods ------------------------------------------------------------------------------------------------

GROUPS = ("paper", "untrained", "trained", "all")
"""Names of groups of methods, which users may give instead of methods' names. No method may have such a name."""


@cache
def paper_methods() -> frozenset[str]:
    """Return the names of the built-in methods that the paper compares, from `methods/groups.toml`."""
    table = tomllib.loads((home() / "methods" / "groups.toml").read_text(encoding="utf-8"))
    return frozenset(table["paper"])


def groups_of(method: type[ConfidenceMethod]) -> tuple[str, ...]:
    """Return the names of the groups that a method belongs to, except `all`; tables show the method in the first."""
    return (*["paper"] * (method.name in paper_methods()), "trained" if method.trains() else "untrained")


@cache
def groups_built_in() -> Mapping[str, str]:
    """Return for each built-in method the name of the group in which tables show it."""
    known = built_in()[0]
    return {name: groups_of(known.get(name))[0] for name in known.names()}


@cache
def resources_of(name: str) -> tuple[str, ...]:
    """Return what a built-in method needs of a model for an answer: some of logits, states, samples and adapter.

    Attention counts as states.

    Of a method that is not built in nothing is known: the result is empty.
    """
    if name not in built_in()[0].names():
        return ()
    read = built_in()[0].get(name)().needs.predict
    needed = {
        "logits": any(isinstance(signal, TokenScores | ChoiceLogits | QueryLogits) for signal in read),
        "states": any(isinstance(signal, AttentionRows | Hidden | Unembedding) for signal in read),
        "samples": any(signal.drawn for signal in read),
        "adapter": any(signal == QueryLogits(Adapter.OWN) for signal in read),
    }
    return tuple(name for name, is_needed in needed.items() if is_needed)


def expand_groups(names: Sequence[str], known: Registry[ConfidenceMethod], *, traces: bool = True) -> tuple[str, ...]:
    """Replace names of groups by the names of their methods, and spellings by names; each method appears once.

    Args:
        names: names of methods and groups.
        known: all methods.
        traces: whether answers have reasoning traces; if not, groups lack methods that read them.

    Raises:
        UserError: a name is neither a method nor a group.
    """
    selected: dict[str, None] = {}
    for name in map(fold_name, names):
        meant = did_you_mean(name, (*GROUPS, *known.names()))
        if name not in (*GROUPS, *known.names()) and did_you_mean(name, GROUPS):
            raise UserError(f"Unknown method {name!r}.{meant} Groups: {', '.join(GROUPS)}. See: bench list methods")
        for candidate in known.names() if name in GROUPS else [name]:
            with plugin_errors(f"method {candidate!r}"):
                cls = known.get(candidate)
                fits = traces or not any(map(reads_trace, cls.needs.fit | cls.needs.predict))
                if name == candidate or (fits and (name == "all" or name in groups_of(cls))):
                    selected[cls.name] = None
    return tuple(selected)


# --- entry points and files -------------------------------------------------------------------------------------------


def _load(
    kind: PluginKind, plugins: Sequence[Path] = (), made: Sequence[PluginEntry[Any]] = (), *, foreign: bool = True
) -> Registry[Any]:
    points = _points()
    root = home()
    for plugin_kind in (METHOD, TASK):
        # a foreign `tasks.py` earlier on `sys.path` would be imported instead of our package
        if not (ours := list(filter(_is_ours, points[plugin_kind.group]))):
            raise UserError(
                f"Expected the package {DISTRIBUTION} to be installed, but no built-in {plugin_kind.word}s are"
                " registered; run: pip install -e ."
            )
        for point in ours:
            spec = importlib.util.find_spec(point.module)
            came_from = Path(spec.origin).resolve() if spec is not None and spec.origin else None
            if came_from != root / point.module / "__init__.py":
                raise UserError(
                    f"Expected the folder `{point.module}` beside `bench` in {root}, but Python finds"
                    f" {came_from or 'nothing'} under that name; rename or uninstall that one, or start from another"
                    " folder"
                )
    entries: list[PluginEntry[Any]] = []
    for point in sorted(points[kind.group], key=lambda p: (not _is_ours(p), p.name)):
        is_ours = _is_ours(point)
        if not foreign and not is_ours:
            continue
        dist = point.dist
        origin = BUILT_IN if is_ours else point.value if dist is None else f"{dist.name} {dist.version}"
        try:
            entries.extend(_entries_of(kind, point.module, origin))
        except BaseException as error:  # an error in another package must not stop the built-in plugins
            if is_ours or isinstance(error, KeyboardInterrupt):
                raise
            entries.append(PluginEntry(point.name, None, point.module, origin, reason_of(error)))
    for path in plugins:
        module = run_file(path)
        kinds = {d.kind for d in registration.DECLARED if _is_within(d.module, module)}
        if not kinds:
            raise UserError(
                f"{path} registers nothing; decorate a class with @method(...) or @task(...) from bench.api"
            )
        if kind.word in kinds:  # else the file registers tasks alone while methods are loaded, or the other way round
            try:
                entries.extend(_entries_of(kind, module, str(path)))
            except ContractError as error:
                raise UserError(f"{path}: {error}") from error
    return Registry(kind, [*entries, *made], [f"--plugin {path}: the code in this file was run" for path in plugins])


def _points() -> dict[str, list[importlib.metadata.EntryPoint]]:
    """Return the installed entry points of methods and tasks, by entry-point group.

    The call is slow: it reads a file of each installed package.
    """
    points = importlib.metadata.entry_points()
    return {kind.group: list(points.select(group=kind.group)) for kind in (METHOD, TASK)}


def _is_ours(point: importlib.metadata.EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == DISTRIBUTION


def import_built_ins() -> None:
    """Import the built-in plugin packages, before packages of the same name on `sys.path` can shadow them."""
    sys.path.insert(0, str(home()))
    try:
        for ours in [point for points in _points().values() for point in points if _is_ours(point)]:
            importlib.import_module(ours.module)
    except ImportError:  # `_load` reports it
        pass
    finally:
        sys.path.remove(str(home()))


def home() -> Path:
    """Return the folder that contains `bench` and the built-in plugin packages."""
    return Path(inspect.getfile(registration)).resolve().parents[2]


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        _forget(name)
        raise ContractError(f"{name} can't be imported: {reason_of(error)}") from error


def _entries_of(kind: PluginKind, module: str, origin: str) -> Iterator[PluginEntry[Any]]:
    """Yield an entry for each plugin of this kind that a module registers.

    If the module is a package, its public submodules are imported, and each must register a plugin.
    """
    children = pkgutil.iter_modules(getattr(_import(module), "__path__", ()))
    parts = [f"{module}.{child.name}" for child in children if not child.name.startswith("_")]
    for part in parts:
        _import(part)
    # by module name, not by what this import added: the module may have been imported before
    declared = [d for d in registration.DECLARED if d.kind == kind.word and _is_within(d.module, module)]
    for part in parts or [module]:
        if not any(_is_within(d.module, part) for d in declared):
            raise ContractError(
                f"{part} registers no {kind.word}; decorate a class with @{kind.word}(...),"
                " or start the file's name with an underscore"
            )
    for declaration in declared:
        _check(kind, declaration)
        yield PluginEntry(declaration.name, declaration.plugin, declaration.module, origin)


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _forget(module: str) -> None:
    """Forget the plugins that a module declared before its import failed, so that a retry does not find them twice."""
    registration.DECLARED[:] = [d for d in registration.DECLARED if d.module != module]


def _check(kind: PluginKind, declaration: PendingRegistration) -> None:
    plugin, name = declaration.plugin, declaration.name
    who = f"{kind.word} {name!r} in {declaration.module}"
    reserved = GROUPS if kind is METHOD else ("all",)
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) or name in reserved:
        # the name becomes a file name; reserved names stand for groups on the command line
        others = " and ".join(map(repr, reserved))
        raise ContractError(f"{who}: expected a name of lower-case words joined by '-', other than {others}")
    if not (isinstance(plugin, type) and issubclass(plugin, kind.base)):
        raise ContractError(f"{who}: expected a subclass of {kind.base.__name__}, got {plugin!r}")
    if vars(plugin)["name"] != name:
        raise ContractError(
            f"{who}: the class is also registered as {vars(plugin)['name']!r}; make a subclass for each"
        )
    missing = sorted(getattr(plugin, "__abstractmethods__", ())) + [a for a in kind.required if not hasattr(plugin, a)]
    if missing:
        raise ContractError(f"{who}: {plugin.__name__} lacks {', '.join(missing)}")
    if issubclass(plugin, ConfidenceMethod):
        if not isinstance(plugin.needs, Needs):
            raise ContractError(f"{who}: needs: expected Needs(...), got {plugin.needs!r}")
        refuse_gold(who, plugin.needs, plugin.fit_on)
        refuse_output(who, plugin)
        refuse_search(who, plugin)


# --- plugin files -----------------------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[str, bytes]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"Expected a Python file at {path}, given with --plugin: {error.strerror}") from error
    digest = hashlib.sha256(str(path.resolve()).encode() + content).hexdigest()[:12]
    return f"{PLUGIN_FILE}{path.stem}_{digest}", content


def run_file(path: Path) -> str:
    """Execute a plugin file, unless this content was executed before; return the module's name in `sys.modules`.

    Raises:
        UserError: the file can't be read, its name does not end in .py, or executing it raises.
    """
    name, content = _read(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise UserError(f"Expected a file ending in .py after --plugin, got {path}")
    if name not in sys.modules:
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # before execution: dataclasses look up their module here
        try:
            # run exactly the bytes that were hashed: a loader may reuse stale bytecode after an edit within one second
            exec(compile(content, path, "exec", dont_inherit=True), vars(module))  # noqa: S102
        except BaseException as error:
            sys.modules.pop(name, None)
            _forget(name)
            if isinstance(error, KeyboardInterrupt):
                raise
            raise UserError(f"{path} can't be imported: {reason_of(error, path)}") from error
    return name
