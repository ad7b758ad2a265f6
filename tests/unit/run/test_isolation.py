"""What a plugin does costs its own cell: in this process it may not write into the head; its own process may end."""

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
from bench.run.isolation import log, process
from bench.run.isolation.methods import isolated_class
from bench.run.isolation.process import Child, Process, send
from bench.run.isolation.sandbox import Isolation
from bench.run.isolation.worker import Host

HEAD = torch.arange(12.0 * 4).reshape(12, 4)


class Model:
    """A model as far as the isolation knows it."""

    device = "cpu"

    @cached_property
    def head(self) -> OutputHead:
        return OutputHead(HEAD.clone())

    def release(self) -> None:
        """See `LanguageModel.release`."""
        del self.head


class Does(ConfidenceMethod):
    """Does something when it predicts."""

    name = "does"
    needs = Needs(predict=frozenset({QueryLogits(), Unembedding()}))
    harm: Callable[[Batch], object]

    def predict(self, batch: Batch) -> FloatArray:
        type(self).harm(batch)
        return np.zeros(len(batch))


def predicted(harm: Callable[[Batch], object]) -> tuple[Any, Isolation, Model]:
    """A guarded method's confidences or what it raised."""
    isolation, model = Isolation(), Model()
    isolation.lm = model  # type: ignore[assignment]
    plugin = type("Harms", (Does,), {"harm": staticmethod(harm), "__module__": __name__})
    batch = Batch(["a", "b"], {QueryLogits(): np.zeros((2, 2), np.float32), Unembedding(): model.head}).take([0, 1])
    return capture(isolated_class(plugin, isolation, None)().predict, batch), isolation, model


def weight(batch: Batch) -> torch.Tensor:
    return batch[Unembedding()].weight


def set_a_number(batch: Batch) -> None:
    weight(batch).numpy()[7, 2] += 1


@pytest.mark.parametrize(
    "harm",
    [lambda b: weight(b).zero_(), lambda b: weight(b).data.mul_(2), set_a_number, lambda b: weight(b)[11].fill_(3)],
)
def test_a_written_output_head_fails_the_cell_and_is_loaded_again(harm: Callable[[Batch], object]) -> None:
    outcome, isolation, model = predicted(harm)
    assert isinstance(outcome, ContractError)
    assert "does wrote into the weights of the model's output head in predict" in str(outcome)
    assert torch.equal(model.head.weight, HEAD)
    assert isolation.head_unchanged()


def test_a_view_of_the_head_that_was_kept_fails_the_call_that_writes_through_it() -> None:
    isolation, model = Isolation(), Model()
    isolation.lm = model  # type: ignore[assignment]
    kept: list[Any] = []
    plugin = type("Keeps", (Does,), {"harm": staticmethod(lambda b: kept.append(weight(b).numpy()))})
    plugin.skip = lambda *_: kept[0].__setitem__((7, 2), 1)  # type: ignore[method-assign, assignment]
    method = isolated_class(plugin, isolation, None)()
    method.predict(Batch(["a"], {QueryLogits(): np.zeros((1, 2), np.float32), Unembedding(): model.head}))
    with pytest.raises(ContractError, match="does wrote into the weights of the model's output head in skip"):
        method.skip(None)  # type: ignore[arg-type]
    assert torch.equal(model.head.weight, HEAD)


WRITES = """
from bench.api import ConfidenceMethod, Needs, Unembedding, method

@method("writes")
class Writes(ConfidenceMethod):
    "Writes."
    reference = "doi:10.1/x"
    needs = Needs(predict=frozenset({Unembedding()}))

    def predict(self, batch):
        batch[Unembedding()].weight.zero_()
        return [0.5] * len(batch)
"""


def test_a_method_of_a_file_has_a_head_of_its_own_but_on_an_accelerator_where_it_runs_here(tmp_path: Path) -> None:
    (tmp_path / "writes.py").write_text(WRITES, encoding="utf-8")
    outcomes = []
    for device in ("cpu", "cuda"):
        isolation, model = Isolation(60.0), Model()
        isolation.lm, model.device = model, device  # type: ignore[assignment]
        path = tmp_path / "writes.py"
        method = isolated_class(registry.methods([path]).get("writes"), isolation, path)()
        with contextlib.closing(isolation):
            outcomes.append(capture(method.predict, Batch(["a"], {Unembedding(): model.head})))
        assert torch.equal(model.head.weight, HEAD)
    assert outcomes[0].tolist() == [0.5]  # type: ignore[union-attr]
    assert "writes wrote into the weights" in str(outcomes[1])
    assert "--method-timeout doesn't hold" in " ".join(isolation.notes)


def test_what_a_method_writes_into_its_batch_nobody_else_sees() -> None:
    def write(batch: Batch) -> None:
        batch[QueryLogits()][:] = 1
        torch.from_numpy(batch[QueryLogits()]).add_(1)
        assert batch[QueryLogits()].min() == 2

    plugin = type("Writes", (Does,), {"harm": staticmethod(write), "__module__": __name__})
    batch = Batch(["a", "b"], {QueryLogits(): np.zeros((2, 2), np.float32)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch's, of an array that can't be written
        outcome = capture(isolated_class(plugin, Isolation(), None)().predict, batch)
    assert not isinstance(outcome, BaseException), outcome
    assert not batch[QueryLogits()].any()


class Own(BaseException):
    """No `Exception`."""


@pytest.mark.parametrize("kind", [GeneratorExit, Own, SystemExit])
def test_what_a_plugin_raises_never_ends_the_run(kind: type[BaseException]) -> None:
    def harm(_: Batch) -> None:
        raise kind("mine")

    outcome, *_ = predicted(harm)
    assert isinstance(outcome, PluginError)
    assert str(outcome).startswith(f"{kind.__name__}: mine (test_isolation.py:")


def test_an_interrupt_of_the_user_ends_it() -> None:
    with pytest.raises(KeyboardInterrupt):
        predicted(lambda _: os.kill(os.getpid(), signal.SIGINT))


def test_a_reason_is_one_line_that_a_file_can_hold() -> None:
    """What would steer a terminal is shown with its escape where people see it, and not before."""
    assert reason_of(ValueError("a\n\x1b[2Jb\ud800 \u0645\u06cc\u200c")) == "ValueError: a \x1b[2Jb? \u0645\u06cc\u200c"


def test_a_method_that_was_typed_in_has_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    assert home_of(Does) == Path(__file__).parents[2]  # the folder of its package, `tests`
    monkeypatch.setattr(Does, "__module__", "__main__")
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    assert home_of(Does) is None


def test_the_newest_logs_are_kept_and_empty_ones_are_not(tmp_path: Path) -> None:
    with log.RunLog(tmp_path / "cache" / "logs" / "0.log").redirect():
        pass
    assert not (tmp_path / "cache").exists()
    empty = log.RunLog(tmp_path / "cache" / "logs" / "0.log")
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


def test_a_process_that_can_not_be_started_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_a_process_that_ends_is_not_waited_for_while_another_one_holds_its_pipe(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(
        "import os, time\nif os.fork():\n    os._exit(3)\ntime.sleep(60)\n", encoding="utf-8"
    )
    with pytest.raises(PluginError, match="its process ended in run_file: exit code 3"):
        Process(tmp_path / "plugin.py", 40.0, None).ask("method 'a'", "run_file")


def test_adapter_training_does_not_count_against_the_timeout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


STUCK = """
import os, signal
from bench.run.isolation.process import begin

def main():
    connection, arguments = begin()
    {what}
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize("what", ["pass", "connection._send(bytes([0, 0, 0, 99, 1]))"])
def test_a_stopped_process_is_ended_in_time(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads nothing, so that no large message gets through, or it has sent half of one."""
    (tmp_path / "stuck_child.py").write_text(STUCK.format(what=what), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    child = Child("stuck_child", [], None)
    try:
        with pytest.raises(TimeoutError), child.kill_after(1.0):
            send(child.connection, np.zeros(10**6))
        assert child.describe_end().startswith("ended by SIGKILL")
    finally:
        child.end()


LEFT = """
import os, signal, time
from bench.run.isolation.process import begin

def main():
    connection, arguments = begin()
    if not os.fork():
        os.setsid()
        time.sleep(10)
        os._exit(0)
    connection._send(bytes([0, 0, 0, 99, 1]))
    os.kill(os.getpid(), signal.{sign})
"""


@pytest.mark.parametrize(("sign", "error"), [("SIGKILL", OSError), ("SIGSTOP", TimeoutError)])
def test_one_that_left_the_group_and_holds_the_pipe_amid_a_message_is_not_waited_for(
    sign: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "left_child.py").write_text(LEFT.format(sign=sign), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    child, begun = Child("left_child", [], None), time.monotonic()
    try:
        with pytest.raises(error), child.kill_after(1.5 if sign == "SIGSTOP" else 60.0):
            child.connection.recv()
        assert time.monotonic() - begun < 8
    finally:
        child.end()


REMEMBERS = """
import os
from bench.api import ConfidenceMethod, EarlyStopping, Needs, method

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
        return lambda: facts

    def save(self, folder):
        (folder / "saved").write_text(str(self.value_))
"""


@pytest.fixture
def remembers(tmp_path: Path) -> Iterator[type[ConfidenceMethod]]:
    path = tmp_path / "plugin.py"
    path.write_text(REMEMBERS, encoding="utf-8")
    isolation = Isolation(60.0)
    yield isolated_class(registry.methods([path]).get("remembers"), isolation, path)
    isolation.close()


def test_a_method_whose_process_is_gone_is_never_asked_in_a_new_one_that_has_not_learned_it(
    remembers: type[ConfidenceMethod], tmp_path: Path
) -> None:
    data, (first, crashes, last) = Batch(["a"], {}), (remembers() for _ in range(3))
    first.fit(data, Context(0, Format.CHOICE))
    with pytest.raises(PluginError, match="its process ended in fit: exit code 1"):
        crashes.fit(data, Context(1, Format.CHOICE))
    last.fit(data, Context(0, Format.CHOICE))
    assert last.predict(data).tolist() == [0.75]
    for ask in (lambda: first.predict(data), lambda: first.save(tmp_path), first.fitted):
        with pytest.raises(PluginError, match="its process ended in fit: exit code 1"):
            ask()
    assert not (tmp_path / "saved").exists()


def test_an_answer_that_can_not_be_sent_fails_its_own_call_alone(remembers: type[ConfidenceMethod]) -> None:
    data: Any = Batch(["a"], {})
    method = remembers().fit(data, Context(0, Format.CHOICE))
    with pytest.raises(PluginError, match="pickle"):
        method.skip(data)
    assert method.predict(data).tolist() == [0.75]


def test_of_what_a_method_learned_its_process_sends_the_adapters_alone(tmp_path: Path) -> None:
    method: Any = Does()
    method.adapter_, method.weights_ = AdapterRef(tmp_path, "f"), np.zeros(3)
    (tmp_path / "plugin.py").touch()
    host = Host(cast("Any", None), tmp_path / "plugin.py", {0: method})
    assert host.answer("fitted", "does", {}, 0, [0]) == {"adapter_": method.adapter_}
