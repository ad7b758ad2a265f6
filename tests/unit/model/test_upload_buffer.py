"""What goes to a device goes up in one copy, and what comes from it comes down in one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bench.model import upload_buffer
from bench.model.upload_buffer import UploadBuffer, copy_to_host, copy_together


def test_uploads_that_wait_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    copies, as_tensor = [], torch.as_tensor

    def counted(*args: object, **settings: object) -> torch.Tensor:
        copies.append(args)
        return as_tensor(*args, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(upload_buffer.torch, "as_tensor", counted)
    there = UploadBuffer("cpu")
    given: list[Any] = [
        np.asarray([3, 1], dtype=np.int32),
        [[1, 2, 3], [4, 5, 6]],
        np.asarray([[0.1], [1 / 3]]),
        np.zeros(0, int),
    ]
    uploads = [there.add(array) for array in given]
    for upload, array, dtype in zip(uploads, given, ["int64", "int64", "float64", "int64"], strict=True):
        assert upload.tensor.tolist() == np.asarray(array).tolist()
        assert str(upload.tensor.dtype) == f"torch.{dtype}"
    assert len(copies) == 1
    later = there.add([7])
    assert later.tensor.tolist() == [7]
    assert len(copies) == 2


def test_uploads_forgotten_go_alone_when_needed() -> None:
    there = UploadBuffer("cpu")
    kept, other = there.add([1]), there.add([2])
    there.clear()
    assert kept.tensor.tolist() == [1]
    assert other.array is not None  # still here
    assert other.tensor.tolist() == [2]


def test_tensors_of_all_kinds_come_down_unchanged() -> None:
    rng = np.random.default_rng(0)
    wide = torch.from_numpy(rng.normal(size=(5, 7)).astype(np.float32))
    tensors = [
        torch.tensor([True, False, True]),
        wide.to(torch.bfloat16)[1:3],
        wide[:, 2],  # with gaps
        torch.arange(3),
        wide.new_empty(0, 7),
        torch.tensor(2.5),
        wide.to(torch.float64).T,
        torch.tensor([7], dtype=torch.uint8),
        wide,
    ]
    for before, after in zip(tensors, copy_together(tensors), strict=True):
        assert (after.dtype, after.shape) == (before.dtype, before.shape)
        assert torch.equal(after, before)
    assert copy_together([]) == []


def test_tensors_of_the_host_stay() -> None:
    here, there = torch.ones(2), torch.empty(0, 3, dtype=torch.bfloat16, device="meta")
    found = copy_to_host([here, there, here])
    assert found[0] is found[2] is here
    assert (found[1].device.type, found[1].shape, found[1].dtype) == ("cpu", (0, 3), torch.bfloat16)
