"""AdamW for one or several processes, in plain torch or with DeepSpeed ZeRO stage 2.

Each process computes the gradient of its own part of the batch. Both optimisers step along the sum of these gradients,
so that the number of processes changes only the order of additions.
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

from bench.store.files import write_atomic
from bench.training.job import Recipe

Tensors = list[torch.Tensor]


class ProcessGroup:
    """The processes that train together, or a single process, as seen from one of them."""

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
        """Return the sum of a tensor over all processes (all-reduce)."""
        if self.size == 1:
            return values
        total = values.to(self.device)
        dist.all_reduce(total)
        return total

    def wait(self) -> None:
        """Wait for all processes (barrier)."""
        if self.size > 1:
            dist.barrier()

    def close(self) -> None:
        """Destroy the process group of torch.distributed, if there is one."""
        if self.grouped:
            dist.destroy_process_group()


class _Optimiser(ABC):
    """Base class of both optimisers: saves and loads parameters and AdamW's state as safetensors.

    DeepSpeed's own checkpoints are not used, since they are pickles.
    """

    def save(self, folder: Path) -> None:
        """Write parameters and AdamW's state into a checkpoint folder, which exists; all processes call this."""
        from safetensors.torch import save

        tensors: dict[str, torch.Tensor] = {}
        parameters, state = self.parameters_and_state()
        for i, parameter in enumerate(parameters):
            tensors |= {f"{i}.parameter": parameter, **{f"{i}.{name}": t for name, t in state[parameter].items()}}
        on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_atomic(self.file(folder), save(on_cpu))

    def load(self, folder: Path) -> None:
        """Restore parameters and AdamW's state from a checkpoint folder; step counts stay on the CPU, as in AdamW."""
        from safetensors.torch import load_file

        saved: dict[int, dict[str, torch.Tensor]] = defaultdict(dict)
        for key, tensor in load_file(self.file(folder)).items():
            position, _, name = key.partition(".")
            saved[int(position)][name] = tensor
        parameters, state = self.parameters_and_state()
        for i, parameter in enumerate(parameters):
            parameter.data.copy_(saved[i].pop("parameter"))
            state[parameter] = {name: t if name == "step" else t.to(parameter.device) for name, t in saved[i].items()}

    @abstractmethod
    def parameters_and_state(self) -> tuple[Sequence[torch.Tensor], MutableMapping[Any, Any]]:
        """Return the parameters, and a mapping of each parameter to its optimiser state."""

    @abstractmethod
    def file(self, folder: Path) -> Path:
        """Return the path of this process's file in a checkpoint folder."""


class TorchOptimiser(_Optimiser):
    """AdamW of torch: every process updates all parameters, all processes in the same way."""

    def __init__(self, parameters: list[torch.nn.Parameter], recipe: Recipe, processes: ProcessGroup) -> None:
        self.parameters = parameters
        self.processes = processes
        self.clip = recipe.clip
        betas = (recipe.beta1, recipe.beta2)
        self.adamw = torch.optim.AdamW(
            parameters, lr=recipe.learning_rate, betas=betas, weight_decay=recipe.weight_decay
        )

    def step(self, gradients: Tensors, learning_rate: float) -> None:
        """Take one optimiser step along the sum of all processes' gradients."""
        first = gradients[0].device  # gradients of a model split over GPUs lie on several devices
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
        """Write parameters and AdamW's state into a checkpoint folder; the first process writes for all."""
        if not self.processes.rank:
            super().save(folder)

    def parameters_and_state(self) -> tuple[Sequence[torch.Tensor], MutableMapping[Any, Any]]:
        """Return all parameters, and a mapping of each parameter to its AdamW state."""
        return self.parameters, self.adamw.state

    def file(self, folder: Path) -> Path:
        """Return the path of the optimiser's file in a checkpoint folder; all processes share this file."""
        return folder / "optimiser.safetensors"


class DeepSpeedOptimiser(_Optimiser):
    """AdamW of DeepSpeed, with gradients and moments sharded over the processes (ZeRO stage 2).

    DeepSpeed's engine holds only the adapter's parameters: the frozen model needs neither casts nor broadcasts. The
    engine
    gets a step's gradient g by a backward pass through the inner product of parameters and g. So processes may split
    their
    parts of the batch into different numbers of forward passes.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], recipe: Recipe, processes: ProcessGroup) -> None:
        if not processes.device.startswith("cuda"):
            os.environ["DS_ACCELERATOR"] = "cpu"
        import deepspeed

        # Without DeepSpeed's operators, which the first start would compile for a minute; gloo and torch do as well.
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
        """Take one optimiser step along the sum of all processes' gradients."""
        for group in self.engine.optimizer.param_groups:
            group["lr"] = learning_rate
        # times `size`, as the engine averages over processes and the sum is needed
        products = [(p * g).sum() for p, g in zip(self.parameters, gradients, strict=True)]
        self.engine.backward(self.processes.size * torch.stack(products).sum())
        self.engine.step()

    def load(self, folder: Path) -> None:
        """Restore this process's parameters and AdamW's state from a checkpoint folder; then gather all parameters."""
        super().load(folder)
        self.engine.optimizer.update_lp_params()  # the parameters themselves, gathered from all partitions

    def parameters_and_state(self) -> tuple[Sequence[torch.Tensor], MutableMapping[Any, Any]]:
        """Return this process's partitions of the parameters, and a mapping of each partition to its AdamW state."""
        zero = self.engine.optimizer
        return zero.single_partition_of_fp32_groups, zero.optimizer.state

    def file(self, folder: Path) -> Path:
        """Return the path of this process's own file in a checkpoint folder."""
        return folder / f"optimiser-rank{self.processes.rank}.safetensors"
