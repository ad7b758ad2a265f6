"""What a plugin of this process changes is noticed, put back, and told of."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import pickle
import random
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

from bench.api import (
    AdapterRef,
    Batch,
    ConfidenceMethod,
    ContractError,
    FloatArray,
    Needs,
    OutputHead,
    QueryLogits,
    Unembedding,
)
from bench.api.errors import Interrupted, PluginError, attempted, home_of, interrupts_told_apart, reason_of
from bench.run.isolation import log, process, state
from bench.run.isolation.guard import Isolation
from bench.run.isolation.messages import lent_head
from bench.run.isolation.methods import guarded
from bench.run.isolation.pipe import Pipe
from bench.run.isolation.process import Child, Process
from bench.run.isolation.worker import Host
from bench.store.folders import Store

HEAD = torch.arange(12.0 * 4).reshape(12, 4)


class Model:
    """A backbone as far as the guard knows it."""

    device = "cpu"

    @cached_property
    def head(self) -> OutputHead:
        return OutputHead(HEAD.clone())

    def release(self) -> None:
        """See `Backbone.release`."""
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
    isolation.head.backbone = model  # type: ignore[assignment]
    plugin = type("Harms", (Does,), {"harm": staticmethod(harm), "__module__": __name__})
    batch = Batch(["a", "b"], {QueryLogits(): np.zeros((2, 2), np.float32), Unembedding(): model.head}).take([0, 1])
    return attempted(guarded(plugin, isolation, None)().predict, batch), isolation, model


def weight(batch: Batch) -> torch.Tensor:
    return batch[Unembedding()].weight


def set_a_number(batch: Batch) -> None:
    weight(batch).numpy()[7, 2] += 1


@pytest.mark.parametrize(
    "harm",
    [
        lambda b: weight(b).zero_(),
        lambda b: weight(b).data.mul_(2),
        set_a_number,
        lambda b: weight(b)[11].fill_(3),
    ],
)
def test_a_written_output_head_fails_the_cell_and_is_loaded_again(harm: Callable[[Batch], object]) -> None:
    outcome, isolation, model = predicted(harm)
    assert isinstance(outcome, ContractError)
    assert "does wrote into the weights of the model's output head in predict" in str(outcome)
    assert torch.equal(model.head.weight, HEAD)
    assert isolation.head.intact(whole=True)


def test_a_view_of_the_head_that_was_kept_fails_the_call_that_writes_through_it() -> None:
    isolation, model = Isolation(), Model()
    isolation.head.backbone = model  # type: ignore[assignment]
    kept: list[Any] = []
    plugin = type("Keeps", (Does,), {"harm": staticmethod(lambda b: kept.append(weight(b).numpy()))})
    plugin.skip = lambda *_: kept[0].__setitem__((7, 2), 1)  # type: ignore[method-assign, assignment]
    method = guarded(plugin, isolation, None)()
    method.predict(Batch(["a"], {QueryLogits(): np.zeros((1, 2), np.float32), Unembedding(): model.head}))
    with pytest.raises(ContractError, match="does wrote into the weights of the model's output head in skip"):
        method.skip(None)  # type: ignore[arg-type]
    assert torch.equal(model.head.weight, HEAD)


def test_weights_that_change_while_nothing_is_called_stop_the_run() -> None:
    _, isolation, model = predicted(lambda _: None)
    isolation.check_weights("before")
    model.head.weight.numpy()[3, 3] = 0
    with pytest.raises(Exception, match=r"changed after, by something that one of these methods left running: does"):
        isolation.check_weights("after")


def test_what_a_method_writes_into_its_batch_nobody_else_sees() -> None:
    def write(batch: Batch) -> None:
        batch[QueryLogits()][:] = 1
        torch.from_numpy(batch[QueryLogits()]).add_(1)
        assert batch[QueryLogits()].min() == 2

    plugin = type("Writes", (Does,), {"harm": staticmethod(write), "__module__": __name__})
    batch = Batch(["a", "b"], {QueryLogits(): np.zeros((2, 2), np.float32)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch's, of an array that can't be written
        outcome = attempted(guarded(plugin, Isolation(), None)().predict, batch)
    assert not isinstance(outcome, BaseException), outcome
    assert not batch[QueryLogits()].any()


ENTERED = torch.inference_mode()


@pytest.mark.parametrize(
    ("harm", "told", "now"),
    [
        (lambda _: np.seterr(all="raise"), "numpy's error state", np.geterr),
        (lambda _: torch.set_default_dtype(torch.float64), "torch's default dtype", torch.get_default_dtype),
        (lambda _: torch.set_grad_enabled(False), "torch's gradient mode", torch.is_grad_enabled),
        (lambda _: os.chdir("/"), "the working directory", Path.cwd),
        (lambda _: os.environ.update(HARM="1"), "the environment", lambda: dict(os.environ)),
        (lambda _: torch.set_default_device("meta"), "torch's default device", torch.get_default_device),
        (lambda _: torch.set_num_threads(7), "torch's number of threads", torch.get_num_threads),
        (lambda _: ENTERED.__enter__(), "torch's inference mode", torch.is_inference_mode_enabled),
        (
            lambda _: setattr(torch.backends.cudnn, "benchmark", True),
            "cuDNN's settings",
            lambda: torch.backends.cudnn.benchmark,
        ),
        (
            lambda _: torch.set_float32_matmul_precision("medium"),
            "torch's precision of products",
            torch.get_float32_matmul_precision,
        ),
        (lambda _: np.random.seed(1), "", lambda: list(np.random.get_state()[1])),  # noqa: NPY002
        (lambda _: random.seed(1), "", random.getstate),
        (lambda _: torch.manual_seed(1), "", lambda: torch.get_rng_state().tolist()),
    ],
)
def test_what_is_changed_is_put_back_and_named(
    harm: Callable[[Batch], object], told: str, now: Callable[[], object]
) -> None:
    before = now()
    outcome, isolation, _ = predicted(harm)
    assert isinstance(outcome, np.ndarray)
    assert now() == before
    assert isolation.notes[:1] == ([f"does changed {told} in predict; that was put back"] if told else [])


def test_what_can_not_be_put_back_is_named_and_all_else_is_put_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    def harm(_: Batch) -> None:
        os.chdir("/")
        here.rmdir()
        np.seterr(all="raise")

    before = np.geterr()
    _, isolation, _ = predicted(harm)
    assert np.geterr() == before
    assert "does changed the working directory in predict; it can't be put back" in " ".join(isolation.notes)


class Own(BaseException):
    """No `Exception`."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit, Own, SystemExit])
def test_what_a_plugin_raises_never_ends_the_run(kind: type[BaseException]) -> None:
    def harm(_: Batch) -> None:
        raise kind("mine")

    with interrupts_told_apart():
        outcome, *_ = predicted(harm)
    assert isinstance(outcome, PluginError)
    assert str(outcome).startswith(f"{kind.__name__}: mine (test_isolation.py:")


def test_a_run_that_is_deaf_to_the_user_is_not_ended_by_a_plugin() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `nohup` and the jobs of a shell have it
    try:
        outcome, *_ = predicted(lambda _: raised(KeyboardInterrupt("mine")))
    finally:
        signal.signal(signal.SIGINT, before)
    assert isinstance(outcome, PluginError)


def raised(error: BaseException) -> None:
    raise error


def test_an_interrupt_of_the_user_ends_it() -> None:
    with interrupts_told_apart(), pytest.raises(Interrupted):
        predicted(lambda _: os.kill(os.getpid(), signal.SIGINT))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_reason_is_one_line_that_a_file_can_hold() -> None:
    """What would steer a terminal is shown with its escape where people see it, and not before."""
    assert reason_of(ValueError("a\n\x1b[2Jb\ud800 \u0645\u06cc\u200c")) == "ValueError: a \x1b[2Jb? \u0645\u06cc\u200c"


def test_a_method_that_was_typed_in_has_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    assert home_of(Does) == Path(__file__).parents[2]  # the folder of its package, `tests`
    monkeypatch.setattr(Does, "__module__", "__main__")
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    assert home_of(Does) is None


def test_the_newest_logs_are_kept_and_empty_ones_are_not(tmp_path: Path) -> None:
    with log.RunLog(tmp_path / "cache" / "logs" / "0.log").opened():
        pass
    assert not (tmp_path / "cache").exists()
    (tmp_path / "own").mkdir()
    empty = log.RunLog(tmp_path / "own" / "logs" / "0.log")
    with empty.opened():
        empty.for_child()
    assert list((tmp_path / "own").iterdir()) == []  # a folder that was there stays
    for number in range(log.KEPT + 2):
        with log.RunLog(tmp_path / "logs" / f"{number:02}.log").opened():
            sys.stdout.write("said")
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert names == [f"{n:02}.log" for n in range(2, log.KEPT + 2)]


def test_nothing_is_said_where_nothing_changed() -> None:
    said: list[str] = []
    with state.kept(lambda what, end: said.append(what + end)):
        np.random.default_rng(0).normal()
    assert not said


def test_weights_that_a_killed_run_left_for_its_processes_are_swept(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        Isolation().attach(Model(), tmp_path)  # type: ignore[arg-type]
        os._exit(0)  # as if killed: nothing is closed
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 1
    Store(tmp_path).prepare()
    assert [path.name for path in tmp_path.iterdir()] == [".writable"]


def test_a_process_that_can_not_be_started_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", fails)
    before = os.dup(0)
    os.close(before)
    with pytest.raises(PluginError, match="could not be started"):
        Process(tmp_path / "plugin.py", 10.0, None).ask("method 'a'", "run_file")
    after = os.dup(0)
    os.close(after)
    assert after == before  # the lowest free number


def test_half_a_head_is_no_head(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def ends_early(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    head, path = OutputHead(HEAD), tmp_path / "head.bin"
    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "numpy", lambda _: SimpleNamespace(tofile=ends_early))
        with pytest.raises(OSError, match="No space"):
            lent_head(head, path)
    assert torch.equal(pickle.loads(pickle.dumps(lent_head(head, path))).weight, HEAD)  # noqa: S301


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
    def limited(seconds: float) -> Iterator[None]:
        limits.append(seconds)
        yield
        now[0] += 3

    def trained(**_: Any) -> Any:
        now[0] += 3600
        return "adapter"

    ours, its = map(Pipe, multiprocessing.Pipe())
    plugin = Process(tmp_path / "plugin.py", 10.0, None)
    plugin._running = SimpleNamespace(pipe=ours, limited=limited)  # type: ignore[assignment]
    its.send(("train_adapter", {}))
    its.send(("answer", "fitted"))
    assert plugin.ask("method 'a'", "fit", serve=trained) == "fitted"
    assert (its.receive(), its.receive()) == (("fit",), "adapter")
    assert limits == [10.0, 7.0]


STUCK = """
import os, signal
from bench.run.isolation.pipe import begin

def main():
    pipe, arguments = begin()
    {what}
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize("what", ["pass", "pipe.connection._send(bytes([0, 0, 0, 99, 1]))"])
def test_a_stopped_process_is_ended_in_time(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads nothing, so that no large message gets through, or it has sent half of one."""
    (tmp_path / "stuck_child.py").write_text(STUCK.format(what=what), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    child = Child("stuck_child", [], None)
    try:
        with pytest.raises(TimeoutError), child.limited(1.0):
            child.pipe.send(np.zeros(10**6))
        assert child.own_ending() == "killed by SIGKILL"
    finally:
        child.end()


LEFT = """
import os, signal, time
from bench.run.isolation.pipe import begin

def main():
    pipe, arguments = begin()
    if not os.fork():
        os.setsid()
        time.sleep(10)
        os._exit(0)
    pipe.connection._send(bytes([0, 0, 0, 99, 1]))
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
        with pytest.raises(error), child.limited(1.5 if sign == "SIGSTOP" else 60.0):
            child.pipe.receive()
        assert time.monotonic() - begun < 8
    finally:
        child.end()


REMEMBERS = """
from bench.api import ConfidenceMethod, EarlyStopping, Needs, method

@method("remembers")
class Remembers(ConfidenceMethod):
    needs = Needs()

    def fit(self, train, ctx):
        return self

    def predict(self, batch):
        return lambda: 0

    def skip(self, facts):
        return None

    def save(self, folder):
        (folder / "saved").write_text("nothing was learned")
"""


def test_a_process_that_has_not_learned_a_method_saves_nothing_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(REMEMBERS, encoding="utf-8")
    asked = Process(tmp_path / "plugin.py", 40.0, None)
    try:
        for verb, more in (("save", [tmp_path]), ("fitted", [])):
            with pytest.raises(ContractError, match=f"remembers has nothing to {verb}"):
                asked.ask("remembers", verb, 0, "remembers", {}, [0], *more)
        assert not (tmp_path / "saved").exists()
    finally:
        asked.close()


def test_of_what_a_method_learned_its_process_sends_the_adapters_alone(tmp_path: Path) -> None:
    method: Any = Does()
    method.adapter_, method.weights_ = AdapterRef(tmp_path, "f"), np.zeros(3)
    host = Host(cast("Any", None), tmp_path, {0: method})
    assert host.call("fitted", 0, "does", {}, [0]) == {"adapter_": method.adapter_}
