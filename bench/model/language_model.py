"""A frozen Hugging Face causal LM: tokenizer, weights, output head, placement on devices, and checks after loading."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers

from bench.api import ModelFacts, OutputHead, UserError
from bench.api.batch import Norm, has_native_bfloat16
from bench.api.errors import first_line
from bench.model import linear_layers
from bench.model.attention import unrecorded_reason
from bench.model.devices import device_kind, shard_divisor
from bench.model.folder import ModelFolder, download_texts, find_model_folder, find_tokenizer_folder, load_full, on_meta
from bench.model.forward_checks import ARCHITECTURE_ERRORS, DTYPES, Probe
from bench.model.linear_layers import NamedLinear
from bench.model.memory import is_out_of_memory, release_free_memory
from bench.model.session import Session, blocks
from bench.model.specs import ModelSpec, is_gguf, label_of
from bench.model.speed import Speed, cached_speed
from bench.progress import DECISIONS
from bench.prompts.chat import Chat
from bench.servers.readings import Ability
from bench.store.disk_cache import Store, cache_folder

_DEVICES = ("cuda", "mps", "cpu")
_EPSILONS = ("eps", "variance_epsilon", "epsilon", "norm_eps")
"""Names of the attribute in which the norm classes of transformers have their epsilon."""
_CLOSE = 1e-4
"""Relative and absolute tolerance for differences between a model's norm and its copy as a `Norm`."""
_ANY_TEXT = "The 3 quick brown foxes jump over 12 lazy dogs; isn't that right?"
"""Text by whose token ids one vocabulary is told from another."""


@dataclass(frozen=True)
class LoadOptions:
    """The user's options for loading a model."""

    device: str | None = None
    """Device of the model: cuda, mps or cpu; by default cuda if there is one, else cpu."""
    dtype: str | None = None
    """Dtype of the weights. By default the model's own; but on the CPU float32, unless the model's own is bfloat16 and
    the CPU multiplies bfloat16 natively."""
    trust_remote_code: bool = False
    """Whether Python code that comes with the model may be run."""
    devices: tuple[str, ...] = ()
    """Indices of the cards over which the model is split; empty for one device."""
    attention: str | None = None
    """Attention implementation, sdpa or eager; None for sdpa. Models that do not support sdpa always get eager."""
    plain: bool = False
    """Whether each question is read alone, without a KV cache, even if the model supports packs."""
    tokenizer: str | None = None
    """Hub id or folder of the tokenizer of a GGUF file; None for the file's own."""
    cache: str | None = None
    """Folder of the store in which a GGUF file is converted; None for the default one."""
    weights: bool = True
    """Whether weights are downloaded together with a model's other files; without them the model can't be loaded."""


class LanguageModel:
    """A frozen model: loads tokenizer and configuration at once, weights at first use."""

    parallel: int | None = None
    """Requests at once to the model's server that may share what it has read; None for one at a time, or no server."""

    def __init__(self, spec: ModelSpec, options: LoadOptions) -> None:
        self.spec = spec
        self.options = options
        self.devices = gpu_devices(options.devices, options.device) or (_device(options.device),)
        self.files = _open_files(spec, options)
        self.label = label_of(spec)
        """Name in results. It stays that of the file that was opened, even if another one takes its place."""
        self.folder = self.files.path
        self.config = self.files.config()
        text = self.config.get_text_config()
        if "chunked_attention" in (getattr(text, "layer_types", None) or ()):
            expected = "expected layers that attend to all tokens or to a sliding window of them"
            raise UserError(f"Model {spec.name!r}: {expected}, its layers attend in chunks; use another model.")
        self.blocks = int(text.num_hidden_layers)
        self.context = int(getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", 0) or 1 << 30)
        # longrope turns all texts of a pass by other factors once one of them is longer than this
        rope, key = getattr(text, "rope_parameters", None) or {}, "original_max_position_embeddings"
        ropes = [each for each in (rope, *rope.values()) if isinstance(each, dict)]  # or one of each type of layer
        self.context = min([self.context, *(each[key] for each in ropes if each.get("rope_type") == "longrope")])
        self._file_stats: tuple[tuple[str, int, int], ...] | None = None
        self._generation: Any = None  # read at once: `bench cache prune` may remove a converted file's folder
        if (self.folder / "generation_config.json").is_file():
            with self.files.wrap_errors("its generation_config.json can't be used"):
                self._generation = transformers.GenerationConfig.from_pretrained(self.folder)
        self.chat = Chat(self.files.tokenizer())
        self.chat.check()

    @property
    def device(self) -> str:
        """Device of the input ids: the model's only device, or the first of several over which it is split."""
        return self.devices[0]

    @property
    def fingerprint(self) -> str:
        """Identity of the files on which answers depend: `HUB_ID@COMMIT`, or for a local folder a digest of them."""
        return self.files.fingerprint

    @cached_property
    def dtype(self) -> torch.dtype:
        """Dtype of weights and hidden states."""
        whole, text = self.config, self.config.get_text_config()  # composite models may have it in the second alone
        own = str(getattr(whole, "dtype", None) or getattr(text, "dtype", None) or "float32").removeprefix("torch.")
        name = self.options.dtype or self.spec.dtype
        if self.device == "cpu" and not self.options.dtype:
            name = own if own == "bfloat16" and has_native_bfloat16() else "float32"
        elif name == "auto":
            name = own
        dtype = getattr(torch, name, None)
        if dtype not in DTYPES:
            raise UserError(f"Unknown dtype {name!r}: expected float32, bfloat16 or float16.")
        return dtype  # type: ignore[no-any-return]

    @property
    def notes(self) -> list[str]:
        """Notes for readers of results: how the model's files were converted, and how prompts were made."""
        description, ends = self.files.description(self.dtype_name), self.chat.tokenizer.decode([*self.added_stops])
        told = f"its chat template ends turns with {ends}, which its files don't name as an end: answers end there too"
        return [*filter(None, [description]), *self.chat.notes, *[told] * bool(ends)]

    @property
    def dtype_name(self) -> str:
        """Name of the dtype, e.g. `bfloat16`."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def attention(self) -> str:
        """Name of the attention implementation; always `eager` if the model soft-caps attention scores.

        An architecture that lacks sdpa is loaded with eager, even if this name is `sdpa`.
        """
        capped = getattr(self.config.get_text_config(), "attn_logit_softcapping", None)
        return "eager" if capped else self.options.attention or "sdpa"

    @cached_property
    def model(self) -> Any:
        """The loaded transformers model, on its device or split over cards.

        Raises:
            UserError: weights are missing, can't be read, or have changed since they were first loaded.
        """
        self.files.check_weights()
        with self.files.wrap_errors("it can't be loaded"):
            file_stats = self.files.file_stats()
            if self._file_stats not in {None, file_stats}:
                raise UserError(
                    f"Model {self.spec.name!r}: expected the files that were loaded before, found others in its folder."
                    " Run the command again; what was computed is kept."
                )
            self._file_stats = file_stats
            model = self._load(self.attention)
            if len(self.devices) == 1:  # `to` would undo the device map
                model = model.to(self.device)
        return model.eval().requires_grad_(requires_grad=False)

    def release(self) -> None:
        """Free the memory of the weights; the next access to `model` loads them again from the same files."""
        for name in ("model", "head", "session"):
            vars(self).pop(name, None)
        gc.collect()  # blocks and their hooks refer to each other
        torch.cuda.empty_cache()
        release_free_memory()

    @cached_property
    def layers(self) -> list[NamedLinear]:
        """Linear layers of all transformer blocks, with their names."""
        return linear_layers.find_linear_layers(self.model)

    def _load(self, attention: str) -> Any:
        # Load directly to an accelerator, tensor by tensor: else each process would hold a copy in main memory first.
        place: dict[str, Any] = (
            {} if device_kind(self.device) == "cpu" else {"device_map": {"": torch.device(self.device)}}
        )
        if place and len(self.devices) > 1:
            model = on_meta(self.config, dtype=self.dtype, trust_remote_code=self.options.trust_remote_code)
            sizes = [torch.cuda.get_device_properties(device).total_memory for device in self.devices]
            device_map = build_device_map(model, self.devices, sizes)
            place = {"device_map": {name: torch.device(device) for name, device in device_map.items()}}
        asked = place | {"dtype": self.dtype, "attn_implementation": attention}
        folder, trusted = self.files.weights_folder(self.dtype), self.options.trust_remote_code
        try:
            return load_full(transformers.AutoModelForCausalLM, folder, trust_remote_code=trusted, **asked)
        except ValueError as error:
            if attention == "eager" or "scaled_dot_product_attention" not in str(error):
                raise
            return self._load("eager")  # the only one that older architectures support

    @cached_property
    def facts(self) -> ModelFacts:
        """Sizes and linear layers of the model, from its configuration alone."""
        with self.files.wrap_errors("it can't be built from its config.json"):
            return facts_from_config(self.spec.name, self.config, trust_remote_code=self.options.trust_remote_code)

    @cached_property
    def head(self) -> OutputHead:
        """Output head, with the logit scale and the soft cap that the configuration names."""
        return output_head(self.model)

    @cached_property
    def norm(self) -> Norm | None:
        """Final norm before the output head; None if it is neither an RMSNorm nor a LayerNorm."""
        return final_norm(self.model)

    @cached_property
    def session(self) -> Session:
        """Session that runs forward passes; packs are read into the session's KV cache."""
        text = self.config.get_text_config()
        kinds, width = getattr(text, "layer_types", None), getattr(text, "sliding_window", None)
        if width is None or (kinds is not None and "sliding_attention" not in kinds):
            return Session(self.model)
        # code in transformers, e.g. Llama's, ignores a window in config.json that its own configuration doesn't declare
        known = type(text)() if type(text).__module__.startswith("transformers.models.") else text
        return Session(self.model, window=int(width) if hasattr(known, "sliding_window") else None)

    @cached_property
    def stops(self) -> frozenset[int]:
        """Token ids that end an answer: EOS ids of the generation configuration and the tokenizer, `added_stops`."""
        return self._named_stops | self.added_stops

    @cached_property
    def added_stops(self) -> frozenset[int]:
        """Token id with which the chat template ends turns, where the files name another EOS; part of store keys."""
        return frozenset(token for token in [self.chat.turn_end] if token is not None) - self._named_stops

    @cached_property
    def _named_stops(self) -> frozenset[int]:
        named = (self._generation or transformers.GenerationConfig.from_model_config(self.config)).eos_token_id
        ids = [*(named if isinstance(named, list) else [named]), self.chat.tokenizer.eos_token_id]
        return frozenset(token for token in ids if token is not None)

    @cached_property
    def speed(self) -> Speed | str:
        """Speed of forward passes on this device; or a text that says why the speed can't be measured.

        The model's weights are not loaded for the measurement.
        """
        try:
            trusted = self.options.trust_remote_code
            return cached_speed(self.config, self.dtype, self.device, self.attention, trust_remote_code=trusted)
        except (*ARCHITECTURE_ERRORS, ImportError) as error:  # ImportError: a package that the model's own code needs
            if is_out_of_memory(error):
                return f"{self.device} has no room for a few of its blocks"
            return f"a few of its blocks can't be timed alone ({type(error).__name__}: {first_line(error)[:100]})"

    @property
    def uses_packs(self) -> bool:
        """Whether several questions are read together in a pack, with one KV cache for all.

        Raises:
            UserError: the output head does not give the model's logits; or the device has no memory left for the check.
        """
        return self.no_packs_reason is None

    @cached_property
    def no_packs_reason(self) -> str | None:
        """Why each question is read alone, instead of several in one pack; None if packs are used.

        Either the user asked for it (`LoadOptions.plain`); or in a check on four short sequences, packs changed the
        logits, or the model's code refused the cache or the mask of a pack; or packs would change longer sequences.

        Raises:
            UserError: the output head does not give the model's logits, so that signals would be wrong; or the device
                has no memory left for the check.
        """
        probe = Probe(self.session, self.head, self.blocks)
        try:
            wrong, packs_reason = probe.head_error(), probe.unsupported_reason()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise UserError(
                f"Model {self.spec.name!r} leaves no memory on {' + '.join(self.devices)} for passes of 30 tokens. Use"
                " a smaller --dtype or a larger device, or end what else runs on it."
            ) from error
        if wrong is not None:
            raise UserError(
                f"Model {self.spec.name!r}: last hidden states times the output head differ from its logits by"
                f" {wrong:.3g}; this architecture does more after its last block than is known here. Please report it."
            )
        self.session.tokens = 0
        if packs_reason is not None and not self.options.plain:
            DECISIONS.warning(  # shown without --verbose too
                "%s: each question is read alone, which takes several times as long as the plan says; %s",
                self.spec.name, packs_reason,
            )  # fmt: skip
        return "each question is to be read alone" if self.options.plain else packs_reason

    @property
    def shard_divisor(self) -> int:
        """How many times smaller shards are than usual, so that a killed run loses minutes of a slow model's work."""
        return shard_divisor(self.device, sum(each.inputs * each.outputs for each in self.facts.projections))

    def missing(self, needs: Ability, depths: frozenset[float] = frozenset()) -> str | None:
        """Return why the model can't give what a signal needs: attention, or states at depths; None if it can."""
        if getattr(self.config.get_text_config(), "altup_num_inputs", 1) > 1 and any(depth < 1 for depth in depths):
            return "it reads an inner layer, and those of this architecture have several states of each token"
        return unrecorded_reason(self.config) if Ability.ATTENTION in needs else None

    def require_vocabulary_of(self, other: LanguageModel) -> None:
        """Check that token ids stand for the same texts in another model, however it splits a text.

        Raises:
            UserError: they don't.
        """
        for lm in (self, other):
            if lm.missing(Ability.TRACES):
                what = f"{lm.label}, whose server takes messages alone; serve it with llama.cpp or vLLM"
                raise UserError(f"Expected prompts that are token ids of both ways to run a model, got {what}.")
        own, theirs = (lm.chat.encode([_ANY_TEXT])[0].tolist() for lm in (self, other))
        if max(theirs) >= len(self.chat.tokenizer) or self.chat.decode(theirs) != self.chat.decode(own):
            what = f"{self.label} and {other.label}, whose token ids stand for other texts; name copies of one model"
            raise UserError(f"Expected two ways to run one model, got {what}.")

    def check_identity(self, store: Store, *, dry_run: bool = False) -> None:
        """Check that the model is the one that it was before; a fingerprint of files needs no check."""

    def block_of(self, depth: float) -> int:
        """Return the number of the block at a fraction of the model's depth; signals `Hidden` read this block's output.

        Raises:
            UserError: the fraction is outside (0, 1], or too small for the first block.
            ValueError: the block is not the last, and the model has no list of blocks.
        """
        block = block_number(depth, self.blocks)
        if block != self.blocks:
            blocks(self.model)
        return block


def _open_files(spec: ModelSpec, options: LoadOptions) -> ModelFolder:
    """Find the model's files; a GGUF file is converted.

    Raises:
        UserError: they can't be found or used; or `--tokenizer` is given for a folder, which has its own.
    """
    if spec.is_server:
        raise UserError(
            f"Model {spec.name!r}: expected an alias, Hub id, folder or GGUF file here, got a server's URL."
        )
    if spec.local and is_gguf(spec.source):
        from bench.model.gguf import open_gguf

        store = Store(Path(options.cache) if options.cache else cache_folder())
        tokenizer = None if options.tokenizer is None else find_tokenizer_folder(options.tokenizer)
        return open_gguf(spec.name, Path(spec.source), store, tokenizer)
    if options.tokenizer is not None:
        raise UserError(
            f"--tokenizer {options.tokenizer}: expected a GGUF file as model, {spec.name!r} has a tokenizer of its own;"
            " leave the option out."
        )
    if not options.weights and not spec.local:
        return download_texts(spec)
    return find_model_folder(spec, trust_remote_code=options.trust_remote_code)


def block_number(depth: float, n: int) -> int:
    """Return the number of the block at a fraction of a model's n blocks.

    Raises:
        UserError: the fraction is outside (0, 1], or too small for the first block.
    """
    block = n if depth == 1.0 else int(depth * n)
    if not 1 <= block <= n:
        raise UserError(f"Hidden depth {depth} means block {block} of {n}; expected at least block 1.")
    return block


def output_head(model: Any) -> OutputHead:
    """Return a model's output head, with the logit scale and the soft cap that its configuration names."""
    layer, text = model.get_output_embeddings(), model.config.get_text_config()
    scale = float(getattr(text, "logit_scale", None) or 1.0) / float(getattr(text, "logits_scaling", None) or 1.0)
    softcap = getattr(text, "final_logit_softcapping", None)
    bias = getattr(layer, "bias", None)
    return OutputHead(layer.weight.detach(), None if bias is None else bias.detach(), scale, softcap)


@torch.inference_mode()
def final_norm(model: Any) -> Norm | None:
    """Return the norm between a model's last block and its output head; None if it is of an unknown kind.

    Known kinds are RMSNorm and LayerNorm, with or without weights.
    """
    module = _last_module(model)
    eps = next((float(getattr(module, name)) for name in _EPSILONS if hasattr(module, name)), None)
    if module is None or eps is None:
        return None
    exact = copy.deepcopy(module).float()
    states = torch.randn(5, int(model.config.get_text_config().hidden_size), generator=torch.Generator().manual_seed(0))
    states = states.to(next(exact.parameters(), states).device) + 0.5
    ones = torch.ones_like(states[0])
    ones[1::2] = -1.0  # mean 0, mean square 1
    up, down = exact(ones[None])[0], exact(-ones[None])[0]
    gain, shift = (up - down) / 2 * ones * (1.0 + eps) ** 0.5, (up + down) / 2
    candidates = [Norm(gain, eps, shift if bool(shift.any()) else None, centred) for centred in (False, True)]
    expected = exact(states)
    return next((norm for norm in candidates if torch.allclose(norm(states), expected, rtol=_CLOSE, atol=_CLOSE)), None)


def _last_module(model: Any) -> Any:
    """Return the module that maps the last block's output to the last hidden state; None if there is no such module."""
    seen: dict[str, torch.Tensor] = {}
    calls: list[tuple[Any, torch.Tensor, torch.Tensor]] = []

    def log(module: Any, inputs: Any, output: Any) -> None:
        if inputs and isinstance(inputs[0], torch.Tensor) and isinstance(output, torch.Tensor):
            calls.append((module, inputs[0], output))

    def last(_module: Any, _inputs: Any, output: Any) -> None:
        seen["block"] = output[0] if isinstance(output, tuple) else output

    layers = blocks(model)
    inner = {module for block in layers for module in block.modules()}
    outer = [module for module in model.base_model.modules() if module not in inner and not list(module.children())]
    handles = [module.register_forward_hook(log) for module in outer] + [layers[-1].register_forward_hook(last)]
    try:
        ids = torch.arange(2, 6, device=model.device)[None] % int(model.config.get_text_config().vocab_size)
        states = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    finally:
        for handle in handles:
            handle.remove()
    fitting = (m for m, inputs, out in calls if _same(inputs, seen["block"]) and _same(out, states))
    return next(fitting, None)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.numel() == other.numel() and bool((one.flatten() == other.to(one.device).flatten()).all())


# --- one model over several cards -------------------------------------------------------------------------------------


def gpu_devices(numbers: Sequence[str], device: str | None = None) -> tuple[str, ...]:
    """Return torch's names of the cards in `--devices`, e.g. `cuda:0` for `0`; empty without the option.

    Args:
        numbers: the values of `--devices`.
        device: the value of `--device`; the two options can't be used together.

    Raises:
        UserError: fewer than two cards are given, a card twice, or one that this machine lacks; or a value is no
            number; or both options are used.
    """
    if not numbers:
        return ()
    option = f"--devices {','.join(numbers)}"
    if device is not None:
        raise UserError(f"--device {device} {option}: expected one of the two; --devices names all cards of a model.")
    if len(numbers) == 1 or not all(number.isascii() and number.isdecimal() for number in numbers):
        raise UserError(
            f"{option}: expected the numbers of two or more cards, like 0,1; for a model on one device say --device."
        )
    indices = [int(number) for number in numbers]
    if len(set(indices)) < len(indices):
        raise UserError(f"{option}: expected each card once; name different ones.")
    n_cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if max(indices) >= n_cards:
        names = "none" if not n_cards else "card 0 alone" if n_cards == 1 else f"cards 0 to {n_cards - 1}"
        raise UserError(f"{option}: expected cards that this machine has; it has {names}. Use --device for one device.")
    return tuple(f"cuda:{number}" for number in indices)


def build_device_map(model: Any, devices: Sequence[str], sizes: Sequence[int]) -> dict[str, str]:
    """Return a device map, module name -> device. Each device gets consecutive blocks in proportion to its memory.

    The map depends on total memory, not on free memory, so that every machine with these cards gets the same map.

    Args:
        model: the causal language model, perhaps on the meta device.
        devices: devices in the order of the blocks.
        sizes: total memory of each device in bytes.
    """
    parts = dict(_parts(model, blocks(model)))
    weights = {name: sum(p.nbytes for p in part.parameters()) for name, part in parts.items()}
    whole, total = sum(weights.values()), sum(sizes)
    ends = [sum(sizes[: k + 1]) / total for k in range(len(sizes))]
    before, device_of = 0, {}
    for name, size in weights.items():
        middle = (before + size / 2) / max(whole, 1)
        device_of[name] = devices[next((k for k, end in enumerate(ends) if middle < end), len(ends) - 1)]
        before += size
    for name, part in parts.items():  # a tied output head is on the device of the embedding
        if part is model.get_output_embeddings() and part.weight is model.get_input_embeddings().weight:
            device_of[name] = device_of[next(n for n, other in parts.items() if other is model.get_input_embeddings())]
    return device_of


def _parts(module: Any, block_list: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield name and module of the parts of a model, in order.

    The parts are the blocks, and the largest modules that contain no block.
    """
    for name, child in module.named_children():
        if any(inner is block_list for inner in child.modules()):
            yield from _parts(child, block_list, f"{prefix}{name}.")
        else:
            yield prefix + name, child


# --- devices and shapes -----------------------------------------------------------------------------------------------


def _device(requested: str | None) -> str:
    """Return the requested device, or by default cuda if there is one, else cpu: Apple GPUs (mps) have no float64.

    Raises:
        UserError: this machine lacks the requested device.
    """
    if requested is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        if requested.partition(":")[0] in _DEVICES:
            torch.zeros(1, device=requested)
            return requested
        reason = "no such kind of device"
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = first_line(error)
    raise UserError(f"--device {requested}: expected one of {', '.join(_DEVICES)} that this machine has; {reason}.")


def facts_from_config(name: str, config: Any, *, trust_remote_code: bool = False) -> ModelFacts:
    """Return a model's sizes and linear layers from its configuration alone."""
    text = config.get_text_config()
    layers, count = linear_layers.of_config(config, trust_remote_code=trust_remote_code), int(text.num_hidden_layers)
    kinds = getattr(text, "layer_types", None) or ["attention"] * count
    attending = sum("attention" in kind and "linear" not in kind for kind in kinds)
    n_heads = attending * int(getattr(text, "num_attention_heads", None) or 0)
    return ModelFacts(name, int(text.hidden_size), int(text.vocab_size), count, layers, n_heads)
