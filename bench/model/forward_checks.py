"""Checks of a loaded model on four short sequences: output head and packed forward passes.

First, the output head applied to the last hidden states must give the model's own logits. Second, sequences in a pack,
which share a KV cache, must get the same logits as each sequence read alone. Rounding makes small differences in both
checks, since below float32 results depend on the shape of a forward pass. In deep models these differences exceed any
constant tolerance. The tolerance of the second check is therefore a multiple of the noise, i.e. of the differences that
rounding makes on the same sequences without packs. What packs change in longer sequences alone is known from the
configuration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from transformers.cache_utils import DynamicCache

from bench.api import OutputHead
from bench.model.continuation_tree import read_pack
from bench.model.memory import is_out_of_memory
from bench.model.prefix_tree import plan_packs
from bench.model.session import Session, run_blocks
from bench.prompts.front_coding import Ids

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ARCHITECTURE_ERRORS = (RuntimeError, TypeError, ValueError, AttributeError, KeyError, IndexError)
"""Errors that a model's code raises if it does not support a mask or a cache."""

_FLOOR = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.05}
"""Difference that the checks allow for any model, by dtype: of logits in the first check, of log-softmax in the
second."""
_NOISE = 3.0
"""Multiple of the model's rounding noise by which log-softmax may differ between packed and single sequences."""
_MAX_NOISE = {torch.float32: 1e-2, torch.float16: 0.5, torch.bfloat16: 1.0}
"""Largest difference of log-softmax that counts as rounding noise, by dtype.

A larger difference means that the model gives other results with its own KV cache than without.
"""
_SPREAD = 2.5
"""Standard deviation of logits up to which `_MAX_NOISE` applies; for a larger one, the limit grows in proportion."""
_ROUNDINGS = 2.0
"""Largest rounding error of a logit, in units of machine epsilon times the largest logit."""

_BUDGET, _CHUNK = 24, 7
"""Maximum tokens of a pack, and of a pass over a shared prefix.

They are so small that even the short sequences make packs that branch, and that share a prefix read in several passes.
"""
_SPLIT_POINTS = (7, 16, -1)
"""Positions at which sequences are split in two, to measure how much rounding changes the logits."""


@dataclass(frozen=True)
class Probe:
    """A loaded model, whose forward passes are compared on four short sequences."""

    session: Session
    head: OutputHead
    blocks: int
    """Number of the model's blocks. The output head maps the hidden state after the last block to logits."""

    @property
    def sequences(self) -> list[Ids]:
        """Four sequences: one is a prefix of another, three branch off at different positions."""
        ids = np.arange(2, 42, dtype=np.int32) % min(len(self.head.weight), 40)
        first = ids[:18]
        return [ids[:20], ids[:30], np.concatenate([first, ids[30:38]]), np.concatenate([first[:10], ids[20:38]])]

    @torch.inference_mode()
    def head_error(self) -> float | None:
        """Return the largest difference of logits between output head and model; None if rounding explains it."""
        plain, model_logits = self._plain(), []
        for ids in self.sequences:
            inputs = torch.as_tensor(ids, dtype=torch.long, device=self.session.device)[None]
            model_logits.append(self.session.model(input_ids=inputs, use_cache=False).logits[0, -1].float())
        expected = torch.stack(model_logits).to(plain.device)  # (n, v); a split model may have them on another device
        differences = (plain - expected).abs().amax(dim=-1)
        dtype = self.session.dtype
        rounding = _ROUNDINGS * torch.finfo(dtype).eps * expected.abs().amax(dim=-1)
        within_tolerance = differences <= _FLOOR[dtype] + rounding  # false for NaN
        return None if bool(within_tolerance.all()) else float(differences[~within_tolerance].max())

    @torch.inference_mode()
    def unsupported_reason(self) -> str | None:
        """Return why packs, whose branches share a KV cache, can't be used on this model; None if they can.

        Raises:
            RuntimeError: the device failed or has no memory left, so that the check is undecided.
        """
        # beyond these short sequences, GPT-Neo's local layers count columns of the row
        if "local" in getattr(self.session.model.config.get_text_config(), "attention_layers", ()):
            return "attention of its long texts depends on what else is in a pass"
        plain = self._plain()
        packed = torch.empty_like(plain)
        try:
            for pack in plan_packs(self.sequences, _BUDGET):
                _, states = read_pack(self.session, pack, _CHUNK, [self.blocks])
                packed[pack.rows] = self.head.logits(states[self.blocks])
            difference = _max_difference(packed, plain)
            if difference <= _FLOOR[self.session.dtype]:
                return None
            noise = self._noise(plain)
        except ARCHITECTURE_ERRORS as error:
            if isinstance(error, torch.AcceleratorError) or is_out_of_memory(error):
                raise
            return f"it refuses the cache or the mask of a pack ({type(error).__name__})"
        finally:
            self.session.reset()
        most = _MAX_NOISE[self.session.dtype] * max(1.0, float(plain.std()) / _SPREAD)
        if noise <= most and difference <= _NOISE * noise:
            return None
        return (
            f"log-probabilities of packed and plain passes differ by {difference:.2g},"
            f" those of plain passes among themselves by {noise:.2g}"
        )

    def _plain(self) -> torch.Tensor:
        """Return the logits `(n, v)` after each of the n sequences, read whole and without a KV cache."""
        ends = [{self.blocks: np.asarray([len(ids) - 1])} for ids in self.sequences]
        read = [self.session.read_alone(ids, end) for ids, end in zip(self.sequences, ends, strict=True)]
        return self.head.logits(torch.cat([states[self.blocks] for states in read]))

    def _noise(self, plain: torch.Tensor) -> float:
        """Return the largest difference of log-softmax from `plain` that rounding alone makes, without packs.

        Each sequence is read in two more ways: whole, with slightly perturbed embeddings; and in two pieces, split at
        one of several positions. On some models reading in pieces changes nothing, so that only the perturbation shows
        the noise.
        """
        model, last = self.session.model, {self.blocks: np.asarray([-1])}
        with model.get_input_embeddings().register_forward_hook(_perturb):
            noises = [_max_difference(self._plain(), plain)]
        for at in _SPLIT_POINTS:  # with the model's own cache and mask
            ends = []
            for ids in self.sequences:
                cache, states = DynamicCache(config=model.config), {}
                for piece in (ids[:at], ids[at:]):
                    inputs = torch.as_tensor(piece, dtype=torch.long, device=self.session.device)[None]
                    states = run_blocks(model, last, input_ids=inputs, past_key_values=cache, use_cache=True)
                ends.append(states[self.blocks])
            noises.append(_max_difference(self.head.logits(torch.cat(ends)), plain))
        return max(noises)


def _max_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference between the log-softmaxes of two tensors of logits; infinite if any is NaN."""
    differences = one.log_softmax(dim=-1) - other.log_softmax(dim=-1)
    return float(differences.abs().nan_to_num(float("inf")).max())


def _perturb(_module: object, _inputs: object, output: torch.Tensor) -> torch.Tensor:
    """Return embeddings `(..., d)` with every eighth dimension scaled, in turn by 1 + and by 1 - machine epsilon."""
    signs = torch.zeros_like(output)
    signs[..., ::16], signs[..., 8::16] = 1, -1
    return output + output * torch.finfo(output.dtype).eps * signs
