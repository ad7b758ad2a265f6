"""Loading a Hugging Face causal LM: tokenizer, weights, head, and a check that passes do what we think."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import transformers

from bench.api import ModelFacts, OutputHead, UserError
from bench.backbone import projections
from bench.backbone.agreement import DTYPES, Probe
from bench.backbone.devices import kind_of
from bench.backbone.folder import find, first_line
from bench.backbone.memory import give_back, is_out_of_memory
from bench.backbone.models import ModelSpec
from bench.backbone.session import Session, blocks
from bench.prompts.chat import Chat

_DEVICES = ("cuda", "mps", "cpu")

_RATE_SIZE = 512
"""Side of the matrix product that measures a device's rate."""
_OVERHEAD = 3.0
"""Time of a forward pass over that of its matrix products alone, roughly: attention, norms, small shapes."""


@dataclass(frozen=True)
class LoadOptions:
    """Options of loading that a user sets."""

    device: str | None = None
    """Default: cuda, else mps, else cpu."""
    dtype: str | None = None
    """Default: the model's own on an accelerator, float32 on the CPU."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""


class Backbone:
    """A frozen model: tokenizer and configuration at once, weights when they are first needed."""

    def __init__(self, spec: ModelSpec, options: LoadOptions) -> None:
        self.spec = spec
        self.options = options
        self.device = _device(options.device)
        self.files = find(spec, trust_remote_code=options.trust_remote_code)
        self.folder = self.files.path
        self.config = self.files.config()
        text = self.config.get_text_config()
        self.blocks = int(text.num_hidden_layers)
        self.context = int(getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", 0) or 1 << 30)
        self.chat = Chat(self.files.tokenizer())
        self.chat.check()

    @property
    def fingerprint(self) -> str:
        """Identity of all that answers depend on: see `ModelFolder`."""
        return self.files.fingerprint

    @cached_property
    def dtype(self) -> torch.dtype:
        """The dtype of weights and hidden states."""
        name = self.options.dtype or ("float32" if self.device == "cpu" else self.spec.dtype)
        if name == "auto":
            name = str(getattr(self.config, "dtype", None) or "float32").removeprefix("torch.")
        dtype = getattr(torch, name, None)
        if dtype not in DTYPES:
            raise UserError(f"Unknown dtype {name!r}: expected float32, bfloat16 or float16.")
        return dtype  # type: ignore[no-any-return]

    @property
    def attention(self) -> str:
        """The attention implementation; a soft cap on attention scores needs the eager one."""
        return "eager" if getattr(self.config.get_text_config(), "attn_logit_softcapping", None) else "sdpa"

    @cached_property
    def model(self) -> Any:
        """The causal language model on its device.

        Raises:
            UserError: weights are missing or can't be read.
        """
        self.files.check_weights()
        with self.files.told("it can't be loaded"):
            return self._load(self.attention).to(self.device).eval().requires_grad_(requires_grad=False)

    def _load(self, attention: str) -> Any:
        transformers.utils.logging.disable_progress_bar()  # a run has its own
        transformers.utils.logging.set_verbosity_error()  # what it reports of missing weights is an error here
        # Straight to an accelerator, tensor by tensor: several processes would each hold a copy in main memory first.
        place = {} if kind_of(self.device) == "cpu" else {"device_map": {"": torch.device(self.device)}}
        try:
            model, found = transformers.AutoModelForCausalLM.from_pretrained(
                self.folder,
                **place,
                dtype=self.dtype,
                attn_implementation=attention,
                use_safetensors=True,
                trust_remote_code=self.options.trust_remote_code,
                output_loading_info=True,
            )
        except ValueError as error:
            if attention == "eager" or "scaled_dot_product_attention" not in str(error):
                raise
            return self._load("eager")  # older architectures have no other
        missing = sorted(found["missing_keys"])
        if missing:  # they would be drawn at random
            raise ValueError(f"{len(missing)} weights are missing from its files, e.g. {missing[0]}; copy them again")
        return model

    def put_away(self) -> None:
        """Give the memory of the weights back; whoever asks for them loads them again."""
        for name in ("model", "head", "session"):
            vars(self).pop(name, None)
        give_back()
        if kind_of(self.device) == "cuda":
            torch.cuda.empty_cache()

    @cached_property
    def facts(self) -> ModelFacts:
        """Shapes, from the configuration."""
        with self.files.told("it can't be built from its config.json"):
            return _facts_from(self.spec.name, self.config, trust_remote_code=self.options.trust_remote_code)

    @cached_property
    def head(self) -> OutputHead:
        """The output head, with the scale and soft cap that the configuration names."""
        layer = self.model.get_output_embeddings()
        text = self.config.get_text_config()
        scale = float(getattr(text, "logit_scale", None) or 1.0) / float(getattr(text, "logits_scaling", None) or 1.0)
        softcap = getattr(text, "final_logit_softcapping", None)
        bias = getattr(layer, "bias", None)
        return OutputHead(layer.weight.detach(), None if bias is None else bias.detach(), scale, softcap)

    @cached_property
    def session(self) -> Session:
        """The cache on which packs are read."""
        return Session(self.model, window=_window(self.config.get_text_config()))

    @cached_property
    def stops(self) -> frozenset[int]:
        """Ids that end an answer: those of the generation configuration and the tokenizer's own."""
        named = self.model.generation_config.eos_token_id
        ids = [named] if isinstance(named, int) else list(named or [])
        return frozenset(i for i in [*ids, self.chat.tokenizer.eos_token_id] if i is not None)

    @cached_property
    def seconds_per_token(self) -> float:
        """A rough estimate without loading weights: twice the parameters, at this device's rate of multiplication."""
        with self.files.told("it can't be built from its config.json"), torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(
                self.config, trust_remote_code=self.options.trust_remote_code
            )
        weights = sum(p.numel() for p in model.parameters())
        square = torch.ones(_RATE_SIZE, _RATE_SIZE, dtype=self.dtype, device=self.device)
        seconds = []
        for _ in range(4):
            start = time.perf_counter()
            (square @ square).sum().item()
            seconds.append(time.perf_counter() - start)
        return float(2 * weights * min(seconds) / (2 * _RATE_SIZE**3) * _OVERHEAD)

    @property
    def packed(self) -> bool:
        """Whether branches can share a cache on this architecture.

        Raises:
            UserError: as for `hindrance`.
        """
        return self.hindrance is None

    @cached_property
    def hindrance(self) -> str | None:
        """Why branches can't share a cache, measured once on a small example; None where they can.

        Raises:
            UserError: hidden states times output head are not the model's logits, so no signal would be right; or
                the device has no memory left for even this.
        """
        probe = Probe(self.session, self.head, self.blocks)
        try:
            wrong, hindrance = probe.wrong_head(), probe.hindrance()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise UserError(
                f"Model {self.spec.name!r} leaves no memory on {self.device} for passes of 30 tokens. Use a smaller"
                " --dtype or a larger device, or end what else runs on it."
            ) from error
        if wrong is not None:
            raise UserError(
                f"Model {self.spec.name!r}: last hidden states times the output head differ from its logits by"
                f" {wrong:.3g}; this architecture does more after its last block than is known here. Please report it."
            )
        self.session.tokens.forward = self.session.tokens.padded = 0
        return hindrance

    def block_of(self, depth: float) -> int:
        """The block that a depth fraction means; its output is what `Hidden(depth)` reads.

        Raises:
            UserError: outside (0, 1], or shallower than the first block.
        """
        block = self.blocks if depth == 1.0 else int(depth * self.blocks)
        if not 1 <= block <= self.blocks:
            raise UserError(f"Hidden depth {depth} means block {block} of {self.blocks}; expected at least block 1.")
        if block != self.blocks:
            blocks(self.model)
        return block


def _device(requested: str | None) -> str:
    """The device requested, if it is there, or the best one."""
    if requested is None:
        return _default_device()
    try:
        if requested.partition(":")[0] in _DEVICES:
            torch.zeros(1, device=requested)
            return requested
        reason = "no such kind of device"
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = first_line(error)
    raise UserError(f"--device {requested}: expected one of {', '.join(_DEVICES)} that this machine has; {reason}.")


def _facts_from(name: str, config: Any, *, trust_remote_code: bool = False) -> ModelFacts:
    """Shapes of a model from its configuration alone."""
    text = config.get_text_config()
    layers = projections.of_config(config, trust_remote_code=trust_remote_code)
    return ModelFacts(name, int(text.hidden_size), int(text.vocab_size), int(text.num_hidden_layers), layers)


def facts_from_settings(name: str, settings: Mapping[str, Any]) -> ModelFacts:
    """Facts like those of `_facts_from`, of a configuration's own settings, `model_type` among them."""
    others = {key: value for key, value in settings.items() if key != "model_type"}
    return _facts_from(name, transformers.AutoConfig.for_model(settings["model_type"], **others))


def _default_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _window(text_config: Any) -> int | None:
    kinds = getattr(text_config, "layer_types", None)
    width = getattr(text_config, "sliding_window", None)
    if width is None or (kinds is not None and "sliding_attention" not in kinds):
        return None
    return int(width)
