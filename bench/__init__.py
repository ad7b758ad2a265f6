"""The harness of confbench. It knows no method and no task by name; start reading at `bench/run/pipeline.py`.

These are the public names, in Python files and notebooks:

    from bench import load_results, report, run

    results = run(methods="ptrue,lts", model="tiny", tasks="atlas-choice", limit=50)
    results.table(), results.frame(), results.figures.reliability()
    report(load_results("runs"), out="report.html")
    audit("scores.csv", confidences="verbal").verdict()
    load_head("heads/ccps")("Which gas do plants take in?", "carbon dioxide")

`run` and `report` are subpackages that can also be called as functions. Nothing heavy is imported before a call. Type
checkers read `__init__.pyi`.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import inspect

# Before torch loads libgomp. By default its threads spin at each barrier, up to 60 times as slow beside other work.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__all__ = ["Results", "UserError", "audit", "load_head", "load_results", "report", "run"]  # noqa: F822 - __getattr__ has them

_PLACES = {
    "Results": "bench.report.notebook",
    "UserError": "bench.api",
    "audit": "bench.cli.python",
    "load_head": "bench.run.scorers.scorer",
    "load_results": "bench.cli.python",
    "report": "bench.cli.python",
    "run": "bench.cli.python",
}
"""Public name -> module that defines it."""


def __getattr__(name: str) -> Any:
    """Return a public name of the package; its module is imported at the first access."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _imported(name)


def __dir__() -> list[str]:
    """Return the public names of the package, and the names that every module has."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def _imported(name: str) -> Any:
    return getattr(importlib.import_module(_PLACES[name]), name)


class _Callable(ModuleType):
    """A subpackage that can be called as the public function of the same name, e.g. `bench.run`.

    When a module of the subpackage is imported, Python binds the subpackage to its name in `bench`, where the function
    would be. Therefore one object is both.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _imported(self.__name__.rpartition(".")[2])(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        """Signature of the public function, for `help` and editors."""
        import inspect

        return inspect.signature(_imported(self.__name__.rpartition(".")[2]))


for _room in ("run", "report"):
    importlib.import_module(f"{__name__}.{_room}").__class__ = _Callable
