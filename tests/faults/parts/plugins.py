"""Plugins that do harm, each together with two methods whose cells must be those of an undisturbed run.

Most are files, which live in a process of their own; those of `HERE` are also tried as installed packages, which don't.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from textwrap import indent

from bench.run import method_factory
from bench.run.isolation import methods
from tests.faults import workload
from tests.faults.commands import Outcome, Ran, Runs, bench, cells, limit, require, same

# ruff: noqa: E501 - lines of plugins

TITLE = "plugins that raise, hang, die and write"

TEMPLATE = '''"""Does harm."""
import logging, os, random, signal, subprocess, sys, threading, time
from pathlib import Path

import numpy as np
import torch

from bench.api import *


class Own(BaseException):
    "An exception that is no Exception."


class Speechless(Exception):
    def __str__(self):
        raise KeyError("no words")
{module}

@method("evil")
class Evil(ConfidenceMethod):
    """As sure as the self-check, after it has done harm."""
    reference = "arXiv:2410.00001"
    needs = Needs(
        fit=frozenset({{Hidden(), Unembedding()}}), predict=frozenset({{QueryLogits(), Unembedding()}})
    )
{members}

    def fit(self, train, ctx):
{fit}
        self.shift_ = 0.0
        return self

    def predict(self, batch):
{predict}
        z = batch[QueryLogits()].astype(np.float64)
        return 1 / (1 + np.exp(z[:, 0] - z[:, 1]))
'''


@dataclass(frozen=True)
class Harm:
    """What a plugin does, and what a user is told of it."""

    source: str
    told: str = ""
    """Pattern of the failed cell's reason; empty: its cell is fine."""
    where: str = "fit"
    seconds: float = 60.0
    """`--method-timeout`."""
    again: bool = False
    """Whether the harm comes when the stored fit is used."""


FAILS = {
    "ValueError": Harm("raise ValueError('x')", r"^ValueError: x \(evil.py:\d+\)$"),
    "in predict": Harm("raise OSError(5, 'x')", r"^OSError: \[Errno 5\] x \(evil.py:\d+\)$", "predict"),
    "GeneratorExit": Harm("raise GeneratorExit", "^GeneratorExit"),
    "SystemExit": Harm("sys.exit(3)", r"^SystemExit: 3 \(evil.py"),
    "BaseException": Harm("raise Own('mine')", r"^Own: mine \(evil.py"),
    "an exception without words": Harm("raise Speechless", "^Speechless: .*can't be shown"),
    "a message that steers the terminal": Harm(r"raise ValueError('\x1b[2J\x1b]0;x\x07 \u202e y')", "^ValueError: "),
    "a message of ten million letters": Harm("raise ValueError('x' * 10**7)", "^ValueError: x{1000,3000}"),
    "recursion": Harm("(lambda f: f(f))(lambda f: f(f))", "^RecursionError"),
    "MemoryError": Harm("bytearray(2**60)", "^MemoryError|^OverflowError"),
    "NaN": Harm("return np.full(len(batch), np.nan)", "NaN", "predict"),
    "values above 1": Harm("return np.full(len(batch), 7.0)", "within", "predict"),
    "wrong shape": Harm("return np.zeros((len(batch), 2))", "shape", "predict"),
    "objects": Harm("return [object()] * len(batch)", "expected real numbers", "predict"),
    "nothing": Harm("return None", ".", "predict"),
    "reading labels": Harm("batch.correct", "labels exist only in fit", "predict"),
    "reading what was not declared": Harm("train[TokenIds()]", "not declared"),
    "save raises": Harm("def save(self, folder):\n    raise ValueError('full')", "^ValueError: full", "members"),
    "save deletes its folder": Harm("def save(self, folder):\n    import shutil; shutil.rmtree(folder)", ".", "members"),
    "skip raises": Harm("def skip(self, facts):\n    raise ValueError('no')", "^ValueError: no", "members"),
    "size raises": Harm("def n_parameters(self, facts):\n    return 'many'", "^ValueError", "members"),
    "inference mode": Harm("self.mode = torch.inference_mode(); self.mode.__enter__(); raise ValueError('x')", "^ValueError"),
}  # fmt: skip
"""Here or apart: the plugin's cell fails, the others live."""
CHANGES = {
    "arrays of its batch": Harm("train[Hidden()].values[:] = 0"),
    "much printed": Harm("print('x' * 10**6); print('\\x1b[2J')"),
    "params lie": Harm("def params(self):\n    return {}", where="members"),
}
"""Here or apart: the plugin is fine."""
STATE = {
    "default dtype": Harm("torch.set_default_dtype(torch.float64)"),
    "np.seterr": Harm("np.seterr(all='raise')"),
    "grad mode": Harm("torch.set_grad_enabled(False)"),
    "threads": Harm("torch.set_num_threads(3)"),
    "determinism": Harm("torch.use_deterministic_algorithms(True)"),
    "chdir": Harm("os.chdir('/')"),
    "environment": Harm("os.environ.clear()"),
    "seeds": Harm("np.random.seed(1); torch.manual_seed(1); random.seed(1)"),
}
"""Apart the plugin changes its own process alone; here nothing is put back, as docs/faults.md says."""
HEAD = {
    "zero_": Harm("train[Unembedding()].weight.zero_()", "output head"),
    ".data": Harm("train[Unembedding()].weight.data[0, 0] += 1", "output head"),
    "numpy view": Harm("train[Unembedding()].weight.numpy()[-1, -1] = 3", "output head"),
    "in predict": Harm("batch[Unembedding()].weight.mul_(0.5)", "output head", "predict"),
    "and raises": Harm("train[Unembedding()].weight.zero_(); raise ValueError('x')", "output head"),
}
"""Here the cell fails; apart the weights are the plugin's own."""
APART = {
    "KeyboardInterrupt": Harm("raise KeyboardInterrupt", r"^KeyboardInterrupt: +\(evil.py"),
    "os._exit": Harm("os._exit(0)", "its process ended in fit: exit code 0"),
    "SIGKILL to itself": Harm("os.kill(os.getpid(), signal.SIGKILL)", "its process ended in fit: ended by SIGKILL"),
    "SIGSTOP to itself": Harm("os.kill(os.getpid(), signal.SIGSTOP)", "longer than 10 s in fit", seconds=10),
    "segfault": Harm("import ctypes; ctypes.string_at(0)", "its process ended in fit: ended by SIGSEGV"),
    "SIGALRM": Harm("signal.alarm(1); time.sleep(3)", "its process ended in fit: ended by SIGALRM"),
    "loop": Harm("while True: pass", r"evil took longer than 10 s in fit \(--method-timeout\)", seconds=10),
    "sleep in predict": Harm("time.sleep(99)", "longer than 10 s in predict", "predict", seconds=10),
    "hang in C": Harm("import re; re.match(r'(a+)+$', 'a' * 60 + 'b')", "longer than 10 s in fit", seconds=10),
    "memory": Harm("x = []\nwhile True: x.append(np.ones(10**7))", "^MemoryError|^.*MemoryError"),
    "closed descriptors": Harm("os.closerange(3, 1000)", "its process ended in fit"),
    "rubbish in the pipe": Harm("[os.write(n, b'x' * 99) for n in range(3, 12) if _pipe(n)]",
                                "its process ended in fit|longer than 10 s in fit", seconds=10),
    "thread left running": Harm("threading.Thread(target=time.sleep, args=(99,)).start()"),
    "child left running": Harm("subprocess.Popen(['sleep', '99'])"),
    "prints below Python": Harm("os.write(1, b'x' * 10**6); os.system('echo y; echo z >&2')"),
    "a pickle saved": Harm("def save(self, folder):\n    import pickle; (folder / 'x.pkl').write_bytes(pickle.dumps(1))\n"
                           "def load(self, folder):\n    return self", where="members"),
    "load raises": Harm("def load(self, folder):\n    raise Own('no')", where="members", again=True),
    "load hangs": Harm("def load(self, folder):\n    time.sleep(99)", "longer than 10 s in load", "members", seconds=10, again=True),
    "skip hangs": Harm("def skip(self, facts):\n    time.sleep(99)", "longer than 10 s in skip", "members", seconds=10),
}  # fmt: skip
"""Apart only: here nothing could be done."""
REFUSED = {
    "import hangs": Harm("while True: pass", "--plugin .* took longer than 10 s", "module", seconds=10),
    "import exits": Harm("os._exit(0)", "--plugin .* its process ended", "module"),
    "import raises": Harm("raise Own('x')", r"can't be imported: Own: x \(evil.py:\d+\)", "module"),
    "making it hangs": Harm("def __init__(self):\n    time.sleep(99)", "longer than 10 s", "members", seconds=10),
    "reads exits": Harm("def reads(self):\n    os._exit(1)", "its process ended", "members"),
}
"""Before any work: one sentence, exit code 2."""
PIPE = "\ndef _pipe(n):\n    try:\n        return os.write(n, b'') == 0 and (os.fstat(n).st_mode & 0o170000) == 0o140000\n    except OSError:\n        return False\n"


def cases(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    runs = Beside(folder / "undisturbed")
    groups: list[tuple[str, Mapping[str, Harm], bool]] = [
        ("file", {**FAILS, **CHANGES, **STATE, **APART}, False),
        ("file: head", {name: Harm(h.source, "^ValueError" if "raises" in name else "", h.where) for name, h in HEAD.items()}, False),
        ("file: refused", REFUSED, False),
        ("installed", {**dict(islice(FAILS.items(), 10)), **CHANGES}, True),
        ("installed: head", HEAD, True),
    ]  # fmt: skip
    for group, harms, here in groups:
        for name, harm in harms.items():
            place = folder / re.sub(r"\W+", "-", f"{group}-{name}")
            yield f"{group}: {name}", partial(_trial, place, harm, runs, here=here)


class Beside(Runs):
    """Cells without a plugin; their readings, but not their fits, stay in a cache that others start from."""

    @cached_property
    def cells(self) -> dict[str, dict[str, object]]:
        self.run(self.folder).expect(0)
        shutil.rmtree(self.folder / "cache" / "fits")
        return _cells(self.folder / "out")


def _trial(place: Path, harm: Harm, runs: Beside, *, here: bool) -> None:
    plugin = runs.copied(place, "cache") / "evil.py"
    plugin.write_text(_source(harm), encoding="utf-8")
    options = ("--plugin", plugin, "--json", "--method-timeout", harm.seconds)
    command = [*workload.command(runs.questions, place, "evil,ccps,ptrue"), *options]
    memory = partial(limit, resource.RLIMIT_DATA, 3 * 2**30)
    first = _installed if here else memory if "np.ones" in harm.source else None
    run = partial(bench, *command, folder=place, env=workload.cache(place), first=first)
    if harm.again:
        run()
    ran = run()
    if harm in REFUSED.values():
        text = " ".join(ran.expect(2).err.split())
        require(re.search(harm.told, text), Outcome.LOST, f"said {text[-280:]!r}")
        return
    ran.expect(int(bool(harm.told)))
    require(not {"\x1b", "\u202e"} & {*ran.out, *ran.err}, Outcome.WRONG, "what steers a terminal came to it")
    _said(ran, harm)
    same(_cells(place / "out"), runs.cells)
    runs.run(place, "--out", str(place / "after")).expect(0)
    same(_cells(place / "after"), runs.cells)


def _cells(results: Path) -> dict[str, dict[str, object]]:
    """Cells without what was read for them, which is shared with the plugin."""
    return {name: {k: value for k, value in row.items() if k != "cost"} for name, row in cells(results).items()}


def _installed() -> None:
    """Take files for installed plugins."""
    vars(method_factory)["isolated_class"] = lambda plugin, isolation, _: methods.isolated_class(
        plugin, isolation, None
    )


def _source(harm: Harm) -> str:
    parts = {"module": PIPE, "members": "", "fit": "pass", "predict": "pass"}
    parts[harm.where] = parts[harm.where].replace("pass", "") + "\n" + harm.source
    spaces = {"module": 0, "members": 4, "fit": 8, "predict": 8}
    return TEMPLATE.format(**{name: indent(text, " " * spaces[name]) for name, text in parts.items()})


def _said(ran: Ran, harm: Harm) -> None:
    """What is printed is JSON, and the plugin's cell says what happened."""
    require(ran.out.startswith("{"), Outcome.LOST, f"no JSON: {ran.out[:280]!r}")
    (row,) = (row for row in json.loads(ran.out)["rows"] if row["method"] == "evil")
    state, reason = "failed" if harm.told else "ok", row["reason"] or ""
    told = row["status"] == state and re.search(harm.told, reason)
    require(told, Outcome.LOST, f"its cell is {row['status']}: {reason[:280]!r}")
