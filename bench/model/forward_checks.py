"""Whether a model does what passes take it to do, measured on a few short sequences after loading.

Two things are asked: are the last hidden states times the output head the model's own logits, and are the logits of
sequences that share a cache those of each sequence alone? Neither is asked for equality. Arithmetic below float32
differs with the shape of a pass, in deep models by more than any constant would allow; so the second question is
answered in units of what the model's own cache does to the same sequences, without packs.
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
REFUSALS = (RuntimeError, TypeError, ValueError, AttributeError, KeyError, IndexError)
"""Errors that the code of architectures raises where it is used in a way that it does not know."""

_FLOOR = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.05}
"""Difference that is always allowed, between logits or their log-softmax."""
_NOISE = 3.0
"""Multiple of the model's own noise that is allowed between packed and plain log-softmax."""
_NOISIEST = {torch.float32: 1e-2, torch.float16: 0.5, torch.bfloat16: 1.0}
"""Noise beyond which nothing is taken for noise: the model's own cache changes what it says."""
_SPREAD = 2.5
"""Standard deviation of logits up to which that holds; wider ones have as much more noise."""
_ROUNDINGS = 2.0
"""Spacings of a dtype, at the size of the largest logit, by which rounding may move a logit."""

_BUDGET, _CHUNK = 24, 7
"""Such that the sequences share a cached piece read in chunks, and branches stand beside each other in a pack."""
_PLACES = (7, 16, -1)
"""Where the sequences are cut to measure the noise."""


@dataclass(frozen=True)
class Probe:
    """A model, and what its passes are compared on."""

    session: Session
    head: OutputHead
    blocks: int
    """Number of blocks; the state after the last one is what the head maps to logits."""

    @property
    def sequences(self) -> list[Ids]:
        """Four sequences: one begins another, three branch off at different places."""
        ids = np.arange(2, 42, dtype=np.int32) % min(len(self.head.weight), 40)
        first = ids[:18]
        return [ids[:20], ids[:30], np.concatenate([first, ids[30:38]]), np.concatenate([first[:10], ids[20:38]])]

    @torch.inference_mode()
    def wrong_head(self) -> float | None:
        """Largest difference between states times head and the model's logits; None where rounding explains it.

        A model rounds its logits to its dtype, which between 64 and 128 has steps of 0.5 in bfloat16.
        """
        plain, own = self._plain(), []
        for ids in self.sequences:
            inputs = torch.as_tensor(ids, dtype=torch.long, device=self.session.device)[None]
            own.append(self.session.model(input_ids=inputs, use_cache=False).logits[0, -1].float())
        said = torch.stack(own).to(plain.device)  # (n, v); a split model gives them elsewhere
        apart = (plain - said).abs().amax(dim=-1)
        dtype = self.session.dtype
        rounding = _ROUNDINGS * torch.finfo(dtype).eps * said.abs().amax(dim=-1)
        fine = apart <= _FLOOR[dtype] + rounding  # false for NaN
        return None if bool(fine.all()) else float(apart[~fine].max())

    @torch.inference_mode()
    def hindrance(self) -> str | None:
        """Why branches can't share a cache on this model; None where they can.

        Raises:
            RuntimeError: the device fails or has no memory left, which says nothing about the model.
        """
        plain = self._plain()
        packed = torch.empty_like(plain)
        try:
            for pack in plan_packs(self.sequences, _BUDGET):
                _, states = read_pack(self.session, pack, _CHUNK, [self.blocks])
                packed[pack.rows] = self.head.logits(states[self.blocks])
            apart = _apart(packed, plain)
            if apart <= _FLOOR[self.session.dtype]:
                return None
            noise = self._noise(plain)
        except REFUSALS as error:
            if isinstance(error, torch.AcceleratorError) or is_out_of_memory(error):
                raise
            return f"it refuses the cache or the mask of a pack ({type(error).__name__})"
        finally:
            self.session.reset()
        most = _NOISIEST[self.session.dtype] * max(1.0, float(plain.std()) / _SPREAD)
        if noise <= most and apart <= _NOISE * noise:
            return None
        return (
            f"log-probabilities of packed and plain passes differ by {apart:.2g},"
            f" those of plain passes among themselves by {noise:.2g}"
        )

    def _plain(self) -> torch.Tensor:
        """`(n, v)` logits after each sequence, read whole and without a cache."""
        ends = [{self.blocks: np.asarray([len(ids) - 1])} for ids in self.sequences]
        read = [self.session.read_alone(ids, end) for ids, end in zip(self.sequences, ends, strict=True)]
        return self.head.logits(torch.cat([states[self.blocks] for states in read]))

    def _noise(self, plain: torch.Tensor) -> float:
        """Largest difference to `plain` that rounding makes without packs: sequences in two pieces, or inputs nudged.

        The second is for devices and models on which pieces happen to give the same bits.
        """
        model, last = self.session.model, {self.blocks: np.asarray([-1])}
        with model.get_input_embeddings().register_forward_hook(_nudge):
            noises = [_apart(self._plain(), plain)]
        for at in _PLACES:  # with the model's own cache and mask
            ends = []
            for ids in self.sequences:
                cache, states = DynamicCache(config=model.config), {}
                for piece in (ids[:at], ids[at:]):
                    inputs = torch.as_tensor(piece, dtype=torch.long, device=self.session.device)[None]
                    states = run_blocks(model, last, input_ids=inputs, past_key_values=cache, use_cache=True)
                ends.append(states[self.blocks])
            noises.append(_apart(self.head.logits(torch.cat(ends)), plain))
        return max(noises)


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference of two log-softmaxes; infinite where something is not a number."""
    differences = one.log_softmax(dim=-1) - other.log_softmax(dim=-1)
    return float(differences.abs().nan_to_num(float("inf")).max())


def _nudge(_module: object, _inputs: object, output: torch.Tensor) -> torch.Tensor:
    """`(..., d)` embeddings, every eighth number moved by one spacing of its dtype, up and down in turn."""
    signs = torch.zeros_like(output)
    signs[..., ::16], signs[..., 8::16] = 1, -1
    return output + output * torch.finfo(output.dtype).eps * signs
