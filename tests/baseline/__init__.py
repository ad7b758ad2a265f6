"""What a change of the code's structure must leave as it is: tables, numbers, fields, options, names, confidences.

`python -m tests.baseline` records it here, where a diff shows what a change did. Numbers have nine significant
digits. `tests/unit/test_baseline.py` compares.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import inspect
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, ValuesView
from pathlib import Path
from typing import Any

import typer.main
from typer import Context
from typer.testing import CliRunner

import bench.api
from bench import registry
from bench.cli.app import app
from bench.report.recomputed import read_recomputed
from bench.results.files import read_records
from tests.faults.workload import SIZES, questions_file

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "results"
TASKS = ("atlas-choice", "atlas-oe", "mmlu-1k-choice")
"""Tasks whose committed results stand in the baseline; on further ones tables of the same layout would repeat."""
PLUGIN = ROOT / "tests" / "fixtures" / "rivers.py"
VIEWS = (
    "--format md --stats",
    "--format csv --stats --metrics all",
    "--format tex",
    "--format md --sort auroc",
    "--format md --sort rmsce",
    "--format md --against paper",
    "--format md --compare ccps,pik,sequence-probability",
    "--format terminal --method trained",
)
QUICK = (
    "protocol.shots=0", "ccps.contrastive_steps=20", "ccps.classifier_steps=20", "it.steps=4", "it.deepspeed=false",
    "ct.steps=4", "ct.deepspeed=false", "litcab.steps=10", "lts.steps=50", "pik.steps=50",
    *(f"saplma-{layer}.steps=50" for layer in ("f", "m", "um")),
)  # fmt: skip


def called(*arguments: object) -> str:
    """What the command prints on standard output."""
    environment = {"COLUMNS": "160", "CONFBENCH_CACHE": str(_cache())}
    done = CliRunner().invoke(app, [str(part) for part in arguments], env=environment)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


@functools.cache
def _cache() -> Path:
    """An empty cache folder, the same for all commands."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return Path(folder)


def rounded(value: Any) -> Any:
    """The same JSON value with numbers of nine significant digits."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, Mapping):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list | tuple | ValuesView) else value


def line(value: Any) -> str:
    """One line of JSON."""
    return json.dumps(rounded(value), ensure_ascii=False)


def tables() -> Iterator[str]:
    """Views of the committed comparison on TASKS, as printed."""
    for view in VIEWS:
        yield f"$ bench table {view}"
        yield from called("table", "--results", RESULTS, "--tasks", ",".join(TASKS), *view.split()).splitlines()


def standings() -> Iterator[str]:
    """Verdicts, lines and paired differences of the paper's methods, as `bench table --format json` has them."""
    chosen = ("--results", RESULTS, "--tasks", ",".join(TASKS), "--method", "paper")
    for table in json.loads(called("table", *chosen, "--format", "json")):
        lines, comparisons = table.pop("lines"), table.pop("comparisons")
        yield line(table)
        yield from map(line, lines)
        for each in comparisons:
            interval, clustered = each.pop("interval"), each.pop("clustered")
            yield line([*(of.values() for of in (each, interval, clustered))])


def metrics() -> Iterator[str]:
    """Metrics of every committed result on TASKS, computed from its records."""
    for row in (row for row in read_recomputed(RESULTS) if row.task in TASKS):
        yield line(
            [row.model, row.task, row.method, row.seed, {k: dataclasses.astuple(v) for k, v in row.metrics.items()}]
        )


def fields() -> Iterator[str]:
    """Paths of keys in the JSON files and outputs that others read; `*` stands for names of data, `[]` for an index."""
    kinds: dict[str, Any] = {"table": json.loads(called("table", "--results", RESULTS, "--format", "json"))}
    for path in sorted([*RESULTS.glob("tiny/*/ccps--*--s0.json"), *RESULTS.glob("analyses/*.json")]):
        kinds[str(path.relative_to(RESULTS))] = json.loads(path.read_text(encoding="utf-8"))
    for kind, value in kinds.items():
        yield kind
        yield from (f"  {path}" for path in sorted(set(_paths(value))))


def _paths(value: Any, at: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        data = at.endswith(("per_subject", "origins", "sha256"))
        for key, each in value.items():
            yield from _paths(each, f"{at}.{'*' if data else key}")
    elif isinstance(value, list):
        for each in value or [None]:
            yield from _paths(each, f"{at}[]")
    else:
        yield at


def options() -> Iterator[str]:
    """Every option and argument of every command, with type and default."""
    yield from _options(typer.main.get_command(app), "bench")


def _options(command: Any, name: str) -> Iterator[str]:
    for each in command.params:
        names = "/".join([*each.opts, *each.secondary_opts])
        yield f"{name} {names} {each.type.name} {each.default!r}{' ...' if each.multiple else ''}"
    if hasattr(command, "commands"):
        for sub in command.list_commands(Context(command)):
            yield from _options(command.get_command(Context(command), sub), f"{name} {sub}")


def names() -> Iterator[str]:
    """Names of `bench.api` with their signatures, and what is registered."""
    for name in sorted(bench.api.__all__):
        thing = getattr(bench.api, name)
        members = sorted(key for key in vars(thing) if not key.startswith("_")) if inspect.isclass(thing) else []
        signature = (
            str(inspect.signature(thing)) if inspect.isfunction(thing) or dataclasses.is_dataclass(thing) else ""
        )
        yield re.sub(r" at 0x\w+", "", f"{name}{signature} {' '.join(members)}".rstrip())
    for kind in (registry.methods(), registry.tasks()):
        yield from kind.names()


def check() -> Iterator[str]:
    """What `bench check` says of a plugin, without seconds."""
    yield from re.sub(r"\d+(\.\d+)? s\b", "N s", called("check", PLUGIN)).splitlines()


def confidences() -> Iterator[str]:
    """Confidences of all methods on forty questions of the embedded model, with options and open, from nothing."""
    with tempfile.TemporaryDirectory() as folder:
        out, common = (
            Path(folder, "out"),
            ("--method", "all", "--model", "tiny", "--device", "cpu", "--dtype", "float32"),
        )
        quick = [part for setting in QUICK for part in ("--set", setting)]
        file = questions_file(Path(folder), sizes=SIZES)
        for task in (("--task-file", file), ("--task", "atlas-oe", "--limit", 40, "--train-limit", "43+32")):
            called("run", *common, *task, *quick, "--out", out)
        for path in sorted(out.rglob("*--s0*.parquet")):
            records = read_records(path)
            for key, sure in zip(records.id, records.confidence.tolist(), strict=True):
                yield f"{path.parent.name} {path.name.partition('--')[0]} {key} {sure:.9g}"


PARTS: Mapping[str, Callable[[], Iterator[str]]] = {
    part.__name__: part for part in (tables, standings, metrics, fields, options, names, check, confidences)
}
