"""The optimiser's step for one or several processes: AdamW of plain torch, or of DeepSpeed with ZeRO stage 2.

Both get the gradient of this process's share of the batch; the sum over all processes is what moves the parameters, so
that the number of processes changes nothing but the order of additions.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bench.store.files import write_whole
from bench.training.job import Recipe

Tensors = list[torch.Tensor]


class Processes:
    """The processes that train together; one is enough."""

    def __init__(self, device: str, *, grouped: bool) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.grouped = grouped or self.size > 1
        self.device = device
        if device == "cuda" and self.size > 1:
            self.device = f"cuda:{os.environ['LOCAL_RANK']}"
            torch.cuda.set_device(self.device)
        if self.grouped:
            backend = "nccl" if device.startswith("cuda") else "gloo"
            if self.size > 1:
                dist.init_process_group(backend)
            else:
                dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Add up over all processes."""
        if self.size == 1:
            return values
        moved = values.to(self.device)
        dist.all_reduce(moved)
        return moved

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            dist.barrier()

    def close(self) -> None:
        """Leave the group."""
        if self.grouped:
            dist.destroy_process_group()


class TorchOptimiser:
    """AdamW of torch; every process does the same step."""

    def __init__(self, parameters: list[torch.nn.Parameter], recipe: Recipe, processes: Processes) -> None:
        self.parameters = parameters
        self.processes = processes
        self.clip = recipe.clip
        betas = (recipe.beta1, recipe.beta2)
        self.adamw = torch.optim.AdamW(
            parameters, lr=recipe.learning_rate, betas=betas, weight_decay=recipe.weight_decay
        )

    def step(self, gradients: Tensors, learning_rate: float) -> None:
        """One step along the sum of the processes' gradients."""
        first = gradients[0].device  # of a model over several cards, each has its own
        flat = self.processes.sum(torch.cat([gradient.flatten().to(first) for gradient in gradients]))
        parts = torch.split(flat, [parameter.numel() for parameter in self.parameters])
        for parameter, part in zip(self.parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter).to(parameter)
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        for group in self.adamw.param_groups:
            group["lr"] = learning_rate
        self.adamw.step()

    def save(self, folder: Path) -> None:
        """Write parameters and state; called by all processes with one existing folder."""
        if self.processes.rank:
            return
        tensors = {f"{i}.parameter": parameter for i, parameter in enumerate(self.parameters)}
        for i, parameter in enumerate(self.parameters):
            tensors |= {f"{i}.{name}": value for name, value in self.adamw.state[parameter].items()}
        _write(folder / "optimiser.safetensors", tensors)

    def load(self, folder: Path) -> None:
        """Take them back."""
        read = _read(folder / "optimiser.safetensors")
        for own, parameter in zip(read, self.parameters, strict=True):
            parameter.data.copy_(own.pop("parameter"))
            self.adamw.state[parameter] = _on(parameter.device, own)


class DeepSpeedOptimiser:
    """AdamW of DeepSpeed, with gradients and moments spread over the processes (ZeRO stage 2).

    The engine holds the adapter's parameters alone: the frozen model needs neither its casts nor its broadcasts. It
    gets the gradient of a step in one backward pass over their inner product with it, so that processes may cut their
    shares into different numbers of forward passes.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], recipe: Recipe, processes: Processes) -> None:
        if not processes.device.startswith("cuda"):
            os.environ["DS_ACCELERATOR"] = "cpu"
        import deepspeed

        # No operator of its own: the first start would compile one for a minute, and gloo and torch serve as well.
        deepspeed.ops.__compatible_ops__ = defaultdict(bool)
        settings = json.loads(resources.files("bench.training").joinpath("ds_zero2.json").read_text(encoding="utf-8"))
        settings["gradient_clipping"] = recipe.clip
        settings["optimizer"]["params"] |= {
            "lr": recipe.learning_rate,
            "betas": [recipe.beta1, recipe.beta2],
            "weight_decay": recipe.weight_decay,
        }
        for key, value in {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "1"}.items():
            os.environ.setdefault(key, value)
        self.parameters = parameters
        self.processes = processes
        module = torch.nn.Module()
        module.parameter_list = torch.nn.ParameterList(parameters)
        self.engine: Any = deepspeed.initialize(model=module, model_parameters=parameters, config=settings)[0]

    def step(self, gradients: Tensors, learning_rate: float) -> None:
        """One step along the sum of the processes' gradients."""
        for group in self.engine.optimizer.param_groups:
            group["lr"] = learning_rate
        # The engine takes the mean over processes, and the sum is wanted.
        products = [(p * g).sum() for p, g in zip(self.parameters, gradients, strict=True)]
        self.engine.backward(self.processes.size * torch.stack(products).sum())
        self.engine.step()

    def save(self, folder: Path) -> None:
        """Write the partition of each process. DeepSpeed's own checkpoints would be pickles."""
        tensors: dict[str, torch.Tensor] = {}
        for i, partition in enumerate(self.engine.optimizer.single_partition_of_fp32_groups):
            state = self.engine.optimizer.optimizer.state[partition]
            tensors |= {f"{i}.parameter": partition, **{f"{i}.{name}": value for name, value in state.items()}}
        _write(self._file(folder), tensors)

    def load(self, folder: Path) -> None:
        """Take them back."""
        zero = self.engine.optimizer
        read = _read(self._file(folder))
        for own, partition in zip(read, zero.single_partition_of_fp32_groups, strict=True):
            partition.data.copy_(own.pop("parameter"))
            zero.optimizer.state[partition] = _on(partition.device, own)
        zero.update_lp_params()  # the parameters themselves, gathered from all partitions

    def _file(self, folder: Path) -> Path:
        return folder / f"optimiser-rank{self.processes.rank}.safetensors"


def _write(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors by names of the form `position.name`."""
    from safetensors.torch import save

    write_whole(path, save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))


def _on(device: torch.device, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """AdamW's state on a device; the number of steps stays in main memory, where AdamW has it."""
    return {name: tensor if name == "step" else tensor.to(device) for name, tensor in state.items()}


def _read(path: Path) -> list[dict[str, torch.Tensor]]:
    """Tensors of each position."""
    from safetensors.torch import load_file

    found: dict[int, dict[str, torch.Tensor]] = defaultdict(dict)
    for full, tensor in load_file(path).items():
        position, _, name = full.partition(".")
        found[int(position)][name] = tensor
    return [found[i] for i in sorted(found)]
