"""What a plugin does costs its own cell: here it may not write into the head; its own process may end or be edited."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from bench import registry
from bench.api import (
    AdapterRef,
    Batch,
    ConfidenceMethod,
    Context,
    ContractError,
    FloatArray,
    Format,
    Needs,
    OutputHead,
    QueryLogits,
    Unembedding,
)
from bench.api.errors import PluginError, capture, home_of, reason_of
from bench.report.grouping import Key
from bench.report.tables.origins import Origins
from bench.results.provenance import PLUGIN
from bench.run.config import RunConfig
from bench.run.isolation import log, process
from bench.run.isolation.methods import isolated_class
from bench.run.isolation.process import Child, Process, send
from bench.run.isolation.sandbox import Isolation
from bench.run.isolation.worker import Host
from bench.run.pipeline import run
from bench.store.disk_cache import Store
from bench.store.sources import source_digest
from tests.kit.world import result_row

HEAD = torch.arange(12.0 * 4).reshape(12, 4)
EMPTY = Batch(["a"], {})


class Model:
    """A model as far as the isolation knows it."""

    device = "cpu"

    @cached_property
    def head(self) -> OutputHead:
        return OutputHead(HEAD.clone())

    def release(self) -> None:
        """See `LanguageModel.release`."""
        del self.head


# --- in this process --------------------------------------------------------------------------------------------------


class Does(ConfidenceMethod):
    """Does something when it predicts."""

    name = "does"
    needs = Needs(predict=frozenset({QueryLogits(), Unembedding()}))
    harm: Callable[[Batch], object]

    def predict(self, batch: Batch) -> FloatArray:
        type(self).harm(batch)
        return np.zeros(len(batch))


def guarded(harm: Callable[[Batch], object], **body: Any) -> tuple[ConfidenceMethod, Batch, Isolation, Model]:
    """A guarded method that does this harm, and a batch for it."""
    isolation, model = Isolation(), Model()
    isolation.lm = model  # type: ignore[assignment]
    plugin = type("Harms", (Does,), {"harm": staticmethod(harm), "__module__": __name__, **body})
    batch = Batch(["a", "b"], {QueryLogits(): np.zeros((2, 2), np.float32), Unembedding(): model.head}).take([0, 1])
    return isolated_class(plugin, isolation, None)(), batch, isolation, model


def weight(batch: Batch) -> torch.Tensor:
    return batch[Unembedding()].weight


def set_a_number(batch: Batch) -> None:
    weight(batch).numpy()[7, 2] += 1


@pytest.mark.parametrize(
    "harm",
    [lambda b: weight(b).zero_(), lambda b: weight(b).data.mul_(2), set_a_number, lambda b: weight(b)[11].fill_(3)],
)
def test_head_that_was_written_fails_the_cell(harm: Callable[[Batch], object]) -> None:
    method, batch, isolation, model = guarded(harm)
    with pytest.raises(ContractError, match="does wrote into the weights of the model's output head in predict"):
        method.predict(batch)
    assert torch.equal(model.head.weight, HEAD)  # it is loaded again
    assert isolation.head_unchanged()


def test_head_written_through_a_view_fails_later() -> None:
    kept: list[Any] = []
    method, batch, _, model = guarded(
        lambda b: kept.append(weight(b).numpy()), skip=lambda *_: kept[0].__setitem__((7, 2), 1)
    )
    method.predict(batch)
    with pytest.raises(ContractError, match="does wrote into the weights of the model's output head in skip"):
        method.skip(None)  # type: ignore[arg-type]
    assert torch.equal(model.head.weight, HEAD)


def test_batch_that_a_method_writes_is_its_own() -> None:
    def write(batch: Batch) -> None:
        batch[QueryLogits()][:] = 1
        torch.from_numpy(batch[QueryLogits()]).add_(1)
        assert batch[QueryLogits()].min() == 2

    method, batch, isolation, _ = guarded(write)
    isolation.lm = None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch's, of an array that can't be written
        assert method.predict(batch).tolist() == [0, 0]
    assert not batch[QueryLogits()].any()


class Own(BaseException):
    """No `Exception`."""


@pytest.mark.parametrize("kind", [GeneratorExit, Own, SystemExit])
def test_plugin_that_raises_never_ends_the_run(kind: type[BaseException]) -> None:
    def harm(_: Batch) -> None:
        raise kind("mine")

    method, batch, *_ = guarded(harm)
    with pytest.raises(PluginError, match=rf"^{kind.__name__}: mine \(test_isolation.py:"):
        method.predict(batch)


def test_interrupt_of_the_user_ends_the_run() -> None:
    method, batch, *_ = guarded(lambda _: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        capture(method.predict, batch)


def test_reason_is_one_line_for_a_file() -> None:
    """What would steer a terminal is shown with its escape where people see it, and not before."""
    assert reason_of(ValueError("a\n\x1b[2Jb\ud800 \u0645\u06cc\u200c")) == "ValueError: a \x1b[2Jb? \u0645\u06cc\u200c"


def test_home_of_a_method_is_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert home_of(Does) == Path(__file__).parents[2]  # `tests`
    monkeypatch.setattr(Does, "__module__", "__main__")  # it was typed in
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    assert home_of(Does) is None


def test_logs_that_are_not_empty_are_kept(tmp_path: Path) -> None:
    empty = log.RunLog(tmp_path / "cache" / "logs" / "0.log")
    with empty.redirect():
        pass
    assert not (tmp_path / "cache").exists()
    with empty.redirect():
        empty.appended().close()
    assert not (tmp_path / "cache").exists()
    (tmp_path / "cache").mkdir()
    with empty.redirect():
        empty.appended().close()
    assert list(tmp_path.iterdir()) == [tmp_path / "cache"]  # it was there before, and stays
    for number in range(log.MAX_LOGS + 2):
        with log.RunLog(tmp_path / "logs" / f"{number:02}.log").redirect():
            sys.stdout.write("said")
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert names == [f"{n:02}.log" for n in range(2, log.MAX_LOGS + 2)]


def test_log_is_written_where_another_run_makes_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "exists", lambda _: False)  # as if it came right after
    with log.RunLog(tmp_path / "0.log").redirect():
        sys.stdout.write("said")
    assert (tmp_path / "0.log").read_text(encoding="utf-8") == "said"


# --- a process --------------------------------------------------------------------------------------------------------


def test_process_that_can_not_start_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", fails)
    before = os.dup(0)
    os.close(before)
    with pytest.raises(PluginError, match="Resource temporarily unavailable"):
        Process(tmp_path / "plugin.py", 10.0, None).ask("method 'a'", "run_file")
    after = os.dup(0)
    os.close(after)
    assert after == before  # the lowest free number


def test_process_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    """Another one holds its pipe."""
    code = "import os, time\nif os.fork():\n    os._exit(3)\ntime.sleep(60)\n"
    (tmp_path / "plugin.py").write_text(code, encoding="utf-8")
    with pytest.raises(PluginError, match="its process ended in run_file: exit code 3"):
        Process(tmp_path / "plugin.py", 40.0, None).ask("method 'a'", "run_file")


def test_timeout_is_an_hour_by_default() -> None:
    assert RunConfig(("ptrue",), "tiny").method_timeout == 3600.0


def test_timeout_does_not_count_adapter_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`fit` may take 10 seconds, the LoRA training that it asks for takes an hour; two messages wait in the pipe."""
    now, limits = [0.0], []
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: now[0]))

    @contextlib.contextmanager
    def kill_after(seconds: float) -> Iterator[None]:
        limits.append(seconds)
        yield
        now[0] += 3

    def trained(**_: Any) -> Any:
        now[0] += 3600
        return "adapter"

    ours, its = multiprocessing.Pipe()
    plugin = Process(tmp_path / "plugin.py", 10.0, None)
    plugin._child = SimpleNamespace(connection=ours, kill_after=kill_after)  # type: ignore[assignment]
    send(its, ("train_adapter", {}))
    send(its, ("answer", "fitted"))
    assert plugin.ask("method 'a'", "fit", serve=trained) == "fitted"
    assert (its.recv(), its.recv()) == (("fit",), "adapter")
    assert limits == [10.0, 7.0]


CHILD = """
import os, signal, time
from bench.run.isolation.process import begin

def main():
    connection, arguments = begin()
    {what}
    os.kill(os.getpid(), signal.{sign})
"""
HALF_A_MESSAGE = "connection._send(bytes([0, 0, 0, 99, 1]))"
ONE_LEAVES = f"""if not os.fork():
        os.setsid()
        time.sleep(10)
        os._exit(0)
    {HALF_A_MESSAGE}"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Child]]:
    monkeypatch.syspath_prepend(str(tmp_path))
    with contextlib.ExitStack() as stack:

        def start(name: str, what: str, sign: str) -> Child:
            (tmp_path / f"{name}.py").write_text(CHILD.format(what=what, sign=sign), encoding="utf-8")
            made = Child(name, [], None)
            stack.callback(made.end)
            return made

        yield start


@pytest.mark.parametrize("what", [pytest.param("pass", marks=pytest.mark.slow), HALF_A_MESSAGE])
def test_process_that_was_stopped_is_ended_in_time(child: Callable[..., Child], what: str) -> None:
    """It reads nothing, so that no large message gets through, or it has sent half of one."""
    stuck = child("stuck_child", what, "SIGSTOP")
    with pytest.raises(TimeoutError), stuck.kill_after(1.0):
        send(stuck.connection, np.zeros(10**6))
    assert stuck.describe_end().startswith("ended by SIGKILL")


@pytest.mark.parametrize(
    ("sign", "error"), [("SIGKILL", OSError), pytest.param("SIGSTOP", TimeoutError, marks=pytest.mark.slow)]
)
def test_process_that_left_is_not_waited_for(child: Callable[..., Child], sign: str, error: type[Exception]) -> None:
    """It holds the pipe amid a message."""
    left, begun = child("left_child", ONE_LEAVES, sign), time.monotonic()
    with pytest.raises(error), left.kill_after(1.5 if sign == "SIGSTOP" else 60.0):
        left.connection.recv()
    assert time.monotonic() - begun < 8


# --- methods of a file ------------------------------------------------------------------------------------------------

PLUGINS = """
import os
from bench.api import ConfidenceMethod, Needs, Unembedding, method

@method("writes")
class Writes(ConfidenceMethod):
    "Writes."
    reference = "doi:10.1/x"
    needs = Needs(predict=frozenset({Unembedding()}))

    def predict(self, batch):
        batch[Unembedding()].weight.zero_()
        return [0.5] * len(batch)

@method("remembers")
class Remembers(ConfidenceMethod):
    "Remembers."
    reference = "doi:10.1/x"
    needs = Needs()
    value_ = 0.25

    def fit(self, train, ctx):
        if ctx.seed == 1:
            os._exit(1)
        self.value_ = 0.75
        return self

    def predict(self, batch):
        return [self.value_] * len(batch)

    def skip(self, facts):
        return (lambda: facts) if facts else "first"

    def save(self, folder):
        (folder / "saved").write_text(str(self.value_))
"""


@contextlib.contextmanager
def isolated(path: Path, name: str = "remembers", text: str = PLUGINS) -> Iterator[tuple[Any, Isolation]]:
    """A class of a plugin file, whose instances live in a process of their own."""
    path.write_text(text, encoding="utf-8")
    with contextlib.closing(Isolation(60.0)) as isolation:
        yield isolated_class(registry.methods([path]).get(name), isolation, path), isolation


def test_method_of_a_file_has_its_head(tmp_path: Path) -> None:
    """But on an accelerator, where it runs here."""
    outcomes: list[Any] = []
    for device in ("cpu", "cuda"):
        with isolated(tmp_path / "writes.py", "writes") as (writes, isolation):
            isolation.lm = model = cast("Any", Model())
            model.device = device
            outcomes.append(capture(writes().predict, Batch(["a"], {Unembedding(): model.head})))
        assert torch.equal(model.head.weight, HEAD)
    assert outcomes[0].tolist() == [0.5]
    assert "writes wrote into the weights" in str(outcomes[1])
    assert "--method-timeout doesn't hold" in " ".join(isolation.notes)


def test_method_without_its_process_is_not_asked(tmp_path: Path) -> None:
    """A new process has not learned it."""
    with isolated(tmp_path / "plugin.py") as (remembers, _):
        first, crashes, last = (remembers() for _ in range(3))
        first.fit(EMPTY, Context(0, Format.CHOICE))
        with pytest.raises(PluginError, match="its process ended in fit: exit code 1"):
            crashes.fit(EMPTY, Context(1, Format.CHOICE))
        last.fit(EMPTY, Context(0, Format.CHOICE))
        assert last.predict(EMPTY).tolist() == [0.75]
        for ask in (lambda: first.predict(EMPTY), lambda: first.save(tmp_path), first.fitted):
            with pytest.raises(PluginError, match="its process ended in fit: exit code 1"):
                ask()
    assert not (tmp_path / "saved").exists()


def test_answer_that_cannot_be_sent_fails_alone(tmp_path: Path) -> None:
    with isolated(tmp_path / "plugin.py") as (remembers, _):
        method = remembers().fit(EMPTY, Context(0, Format.CHOICE))
        with pytest.raises(PluginError, match="pickle"):
            method.skip(EMPTY)
        assert method.predict(EMPTY).tolist() == [0.75]


def test_process_sends_adapters_alone_of_fitted_state(tmp_path: Path) -> None:
    method: Any = Does()
    method.adapter_, method.weights_ = AdapterRef(tmp_path, "f"), np.zeros(3)
    (tmp_path / "plugin.py").touch()
    host = Host(cast("Any", None), tmp_path / "plugin.py", {0: method})
    assert host.answer("fitted", "does", {}, 0, [0]) == {"adapter_": method.adapter_}


@pytest.mark.parametrize("edited", ["sure.py", "helper_of_sure.py"])
def test_file_that_is_edited_fails_its_cell(edited: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the old one learned would be kept as what the new one would have learned."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "helper_of_sure", raising=False)
    (tmp_path / "helper_of_sure.py").write_text("WORD = 'first'\n", encoding="utf-8")
    text = PLUGINS.replace('"first"', "helper_of_sure.WORD").replace("import os", "import helper_of_sure, os")
    with isolated(tmp_path / "sure.py", text=text) as (remembers, _):
        sure = remembers()
        assert sure.skip(None) == "first"
        with (tmp_path / edited).open("a", encoding="utf-8") as file:
            file.write("# edited\n")
        with pytest.raises(PluginError, match=r"sure\.py or a file that it imports has changed since the run began"):
            sure.skip(None)


def test_seeds_of_different_plugin_versions_are_marked() -> None:
    first, other = (
        result_row("sure+platt", seed=seed, provenance={"revisions": {f"{PLUGIN}sure": digest}})
        for seed, digest in enumerate(("sha256 a", "sha256 b"))
    )
    key = Key("sure+platt", "")
    notes = [list(Origins({key: rows}).notes(key)) for rows in ([first], [first, other], [first] * 3)]
    assert notes == [[], ["its seeds were run with different versions of the plugin"], []]


TWO = """
from pathlib import Path
import numpy as np
from bench.api import ChoiceLogits, ConfidenceMethod, Needs, method

LETTERS = frozenset({ChoiceLogits()})

class Constant(ConfidenceMethod):
    "A constant."
    reference = "doi:10.1/x"
    needs = Needs(fit=LETTERS, predict=LETTERS)

    def fit(self, train, ctx):
        Path(__file__).write_text("# edited", encoding="utf-8")
        self.share_ = 0.5
        return self

    def predict(self, batch):
        return np.full(len(batch), self.share_)

One = method("a-constant")(type("One", (Constant,), {"__module__": __name__, "__doc__": "One."}))
Other = method("b-constant")(type("Other", (Constant,), {"__module__": __name__, "__doc__": "Another."}))
"""


@pytest.mark.slow
def test_fit_of_edited_code_is_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class of an installed file that is edited, and that nobody imported again, runs as it was."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (info := tmp_path / "two_constants-1.0.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: two-constants\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[confbench.methods]\nconstants = two_constants\n", encoding="utf-8")
    path = tmp_path / "two_constants.py"
    path.write_text(TWO, encoding="utf-8")
    first = source_digest([path])
    folders: dict[str, Any] = {"out": tmp_path / "o", "cache": tmp_path / "cache"}
    config = RunConfig(("a-constant", "b-constant"), "tiny", ("atlas-choice",), limit=4, device="cpu", **folders)
    report = run(config)
    assert [row.reason for row in report.rows] == [None, None]
    assert path.read_text(encoding="utf-8") == "# edited"
    assert {e.manifest["fields"]["source"] for e in Store(tmp_path / "cache").entries("fits")} == {first}
