"""The optimiser's step for one or several processes: AdamW of plain torch, or of DeepSpeed with ZeRO stage 2.

Both get the gradient of this process's share of the batch; the sum over all processes is what moves the parameters, so
that the number of processes changes nothing but the order of additions.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import MutableMapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bench.store.files import write_whole
from bench.training.job import Recipe

Tensors = list[torch.Tensor]


class ProcessGroup:
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


class _Optimiser(ABC):
    """What both have: parameters and AdamW's state in a file of safetensors; DeepSpeed's own would be pickles."""

    def save(self, folder: Path) -> None:
        """Write parameters and state; called by all processes with one existing folder."""
        from safetensors.torch import save

        tensors: dict[str, torch.Tensor] = {}
        parameters, state = self.held()
        for i, parameter in enumerate(parameters):
            tensors |= {f"{i}.parameter": parameter, **{f"{i}.{name}": t for name, t in state[parameter].items()}}
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_whole(self.file(folder), save(plain))

    def load(self, folder: Path) -> None:
        """Take them back; the number of steps stays in main memory, where AdamW has it."""
        from safetensors.torch import load_file

        read: dict[int, dict[str, torch.Tensor]] = defaultdict(dict)
        for full, tensor in load_file(self.file(folder)).items():
            position, _, name = full.partition(".")
            read[int(position)][name] = tensor
        parameters, state = self.held()
        for i, parameter in enumerate(parameters):
            parameter.data.copy_(read[i].pop("parameter"))
            state[parameter] = {name: t if name == "step" else t.to(parameter.device) for name, t in read[i].items()}

    @abstractmethod
    def held(self) -> tuple[Sequence[torch.Tensor], MutableMapping[Any, Any]]:
        """Parameters, and the state of each."""

    @abstractmethod
    def file(self, folder: Path) -> Path:
        """File of this process in the folder of a checkpoint."""


class TorchOptimiser(_Optimiser):
    """AdamW of torch; every process does the same step."""

    def __init__(self, parameters: list[torch.nn.Parameter], recipe: Recipe, processes: ProcessGroup) -> None:
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
        """See `_Optimiser.save`; the first process writes for all."""
        if not self.processes.rank:
            super().save(folder)

    def held(self) -> tuple[Sequence[torch.Tensor], MutableMapping[Any, Any]]:
        """See `_Optimiser.held`."""
        return self.parameters, self.adamw.state

    def file(self, folder: Path) -> Path:
        """See `_Optimiser.file`."""
        return folder / "optimiser.safetensors"


class DeepSpeedOptimiser(_Optimiser):
    """AdamW of DeepSpeed, with gradients and moments spread over the processes (ZeRO stage 2).

    The engine holds the adapter's parameters alone: the frozen model needs neither its casts nor its broadcasts. It
    gets the gradient of a step in one backward pass over their inner product with it, so that processes may cut their
    shares into different numbers of forward passes.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], recipe: Recipe, processes: ProcessGroup) -> None:
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

    def load(self, folder: Path) -> None:
        """See `_Optimiser.load`."""
        super().load(folder)
        self.engine.optimizer.update_lp_params()  # the parameters themselves, gathered from all partitions

    def held(self) -> tuple[Sequence[torch.Tensor], MutableMapping[Any, Any]]:
        """This process's partitions, and the state of each."""
        zero = self.engine.optimizer
        return zero.single_partition_of_fp32_groups, zero.optimizer.state

    def file(self, folder: Path) -> Path:
        """See `_Optimiser.file`."""
        return folder / f"optimiser-rank{self.processes.rank}.safetensors"
