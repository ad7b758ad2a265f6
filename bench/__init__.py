"""confbench: the harness. It knows no method and no task by name; start reading at `bench/run/pipeline.py`.

In Python, and so in a notebook, this is the door:

    from bench import load_results, report, run

    results = run(methods="ptrue,lts", model="tiny", tasks="atlas-choice", limit=50)
    results.table(), results.frame(), results.figures.reliability()
    report(load_results("results"), out="report.html")
    load_head("heads/ccps")("Which gas do plants take in?", "carbon dioxide")

`run` and `report` are also rooms of this package: packages that can be called. Nothing heavy is imported before a call.
What type checkers read is `__init__.pyi`.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import inspect

__all__ = ["Results", "UserError", "load_head", "load_results", "report", "run"]  # noqa: F822 - __getattr__ has them

_PLACES = {
    "Results": "bench.report.notebook",
    "UserError": "bench.api",
    "load_head": "bench.run.scorers.scorer",
    "load_results": "bench.cli.python",
    "report": "bench.cli.python",
    "run": "bench.cli.python",
}
"""Name -> module that has it."""


def __getattr__(name: str) -> Any:
    """A name of the door, imported when it is first asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _imported(name)


def __dir__() -> list[str]:
    """The door's names, and those that every module has."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def _imported(name: str) -> Any:
    return getattr(importlib.import_module(_PLACES[name]), name)


class _Callable(ModuleType):
    """A room of which the main function may be called by the room's name.

    A package of the name of a function is bound over it as soon as one of its modules is imported, whoever does that:
    so what has the name is both.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _imported(self.__name__.rpartition(".")[2])(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        """Parameters of the function, for people and editors that ask."""
        import inspect

        return inspect.signature(_imported(self.__name__.rpartition(".")[2]))


for _room in ("run", "report"):
    importlib.import_module(f"{__name__}.{_room}").__class__ = _Callable
