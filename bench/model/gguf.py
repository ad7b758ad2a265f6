"""A GGUF file as a model: checked, and converted once by transformers into folders of the cache.

Configuration and tokenizer are converted at once, and the weights, dequantised to a dtype, at first use. A GGUF file
lacks part of what the original's tokenizer.json says; `_mended_tokenizer` restores what is known, and refuses the rest.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import json
import math
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_model

from bench.api import UserError
from bench.api.errors import first_line
from bench.model.folder import LOADING, ModelFolder, as_sequence
from bench.model.specs import FileStats, file_label, file_metadata, file_sha256, file_stats
from bench.progress import DECISIONS
from bench.store.disk_cache import Store, cache_folder, key_of
from bench.store.usage import MODELS, format_size

_VERSION = 1
"""Version of the conversion; a new one gives converted models new keys in the store."""
_GPT2 = frozenset({"gpt-2", "gpt2"})
_SMOLLM = "smollm"
_WHOLE_WORDS = frozenset(
    {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken"}
)
"""Pre-tokenizers of models that take a word as one token if it is one, whether or not merges lead to it."""
_NFC = frozenset({"qwen2", "qwen35"})
"""Pre-tokenizers of models whose original tokenizer normalises text to Unicode NFC. A GGUF file doesn't say so."""
_TOKENIZER_KINDS = frozenset({"qwen2", "gemma3_text"})
"""Types of models that transformers takes as the names of their tokenizers, with the same result (compared)."""
_END_TOKENS = (
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|end_of_text|>", "<end_of_turn>", "<EOT>",
)  # fmt: skip
"""Tokens at which llama.cpp ends an answer, whether or not the file names them as such."""
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_PADDING = re.compile(r"\[PAD\d+\]|<unused\d+>|.*reserved.*| +")
"""Tokens that fill up a vocabulary, and tokens of blanks, which a GGUF file spells otherwise."""
_LLAMA3_FACTORS = (8.0, 32.0)
"""Scaling factors of rotary frequencies in Llama 3.1 and 3.2; the other constants are the same in both."""
_SAME_VALUE = {"attention.value_length": "attention.key_length"}
_HARMLESS = frozenset({"tensor_data_layout", "vocab_size", "rope.dimension_count"})
_MEMORY_FACTOR = 1.7
"""Peak memory of a conversion, as a multiple of the dequantised weights (measured: 1.6)."""


class UnknownSplittingError(UserError):
    """Raised if a GGUF file's own tokenizer can't be used, and another one must be named."""


@dataclass(frozen=True)
class GGUFFile(ModelFolder):
    """A GGUF file on this machine. `path` is the folder of the cache with its configuration and tokenizer."""

    file: Path = Path()
    sha256: str = ""
    quantisation: str = ""
    """Name of the file's most frequent kind of weights, e.g. `Q4_K_M`."""
    store: Store = field(default_factory=lambda: Store(cache_folder()))
    """Store of the converted models."""

    @cached_property
    def weights(self) -> str:
        """SHA-256 of the file."""
        return self.sha256

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the file's SHA-256, the given tokenizer and `_VERSION`; without the version of transformers."""
        return key_of({"sha256": self.sha256, "tokenizer": self.given_tokenizer, "version": _VERSION})

    def description(self, dtype: str) -> str:
        """Return a note on the model for readers of results."""
        return (
            f"the model is the file {self.name} (SHA-256 {self.sha256[:12]}…), {self.quantisation}, dequantised to"
            f" {dtype}: its numbers are not those of the model that it was made from"
        )

    def file_stats(self) -> tuple[FileStats, ...]:
        """Return path, bytes and modification time of the file."""
        return (file_stats(self.file),)

    def check_weights(self) -> None:
        """Check that the file is still the one that was opened.

        Raises:
            UserError: it was replaced or removed.
        """
        if not self.file.is_file() or file_sha256(str(self.file), file_stats(self.file)) != self.sha256:
            raise UserError(
                f"Model {self.name!r}: expected the file that was opened before, found another one in its place, or"
                " none. Run the command again; what was computed is kept."
            )

    def weights_folder(self, dtype: torch.dtype) -> Path:
        """Return a folder with the weights in a dtype; they are dequantised if the store does not have them.

        Raises:
            UserError: memory or disk have no room for them; or transformers doesn't load all of the file's weights.
        """
        self.check_weights()
        fields = {
            "gguf": self.sha256,
            "dtype": str(dtype),
            "version": _VERSION,
            "transformers": transformers.__version__,
        }
        if (entry := self.store.get(MODELS, key_of(fields))) is not None:
            return entry.folder
        tensors = _tensor_sizes(self.name, self.file)
        size = sum(tensors.values()) * dtype.itemsize
        _check_room(self.name, size, self.store.root)
        DECISIONS.warning(  # shown without --verbose too
            "%s: dequantising to %s once, which takes %s of memory and %s of the cache",
            self.name, str(dtype).removeprefix("torch."), format_size(size * _MEMORY_FACTOR), format_size(size),
        )  # fmt: skip

        def write(folder: Path) -> None:
            # a progress bar of transformers goes to standard error, where a run shows its own
            with (
                self.wrap_errors("its weights can't be dequantised"),
                contextlib.redirect_stderr(io.StringIO()),
                _alone(self.file) as where,
                LOADING,
            ):
                model = transformers.AutoModelForCausalLM.from_pretrained(**where, config=self.config(), dtype=dtype)
                _check_complete(model, tensors)
            shutil.copy(self.path / "config.json", folder)
            # transformers refuses to save a model that was loaded from GGUF, even if it is dequantised
            save_model(model, str(folder / "model.safetensors"), metadata={"format": "pt"})

        return self.store.put(MODELS, key_of(fields), fields, write, model=file_label(str(self.file))).folder


def open_gguf(name: str, file: Path, store: Store, tokenizer: ModelFolder | None = None) -> GGUFFile:
    """Check a GGUF file, and convert its configuration and tokenizer unless the store has them.

    Args:
        name: name of the file for messages.
        file: the file.
        store: store of the converted model.
        tokenizer: folder of a tokenizer to take in place of the file's own; its vocabulary must be the file's.

    Raises:
        UserError: the file is cut, damaged, or no language model that transformers can load; the package gguf is not
            installed; or the tokenizer's splitting is unknown here, or has another vocabulary.
    """
    metadata, tensors = _check_file(name, file)
    sha256 = file_sha256(str(file), file_stats(file))
    digest = "" if tokenizer is None else tokenizer.tokenizer_digest()
    fields = {"gguf": sha256, "tokenizer": digest, "version": _VERSION, "transformers": transformers.__version__}

    def write(folder: Path) -> None:
        with _one_sentence(name):
            config = _config(name, file, tensors)
            with _alone(file) as where:
                # else the whole header is read once more, 20 s for a vocabulary of 262,144, to learn the same kind
                kind = {"tokenizer_type": config.model_type} if config.model_type in _TOKENIZER_KINDS else {}
                own = transformers.AutoTokenizer.from_pretrained(**where, **kind)
            plain = (
                _mended_tokenizer(name, own, file) if tokenizer is None else _checked_tokenizer(name, tokenizer, file)
            )
        plain.chat_template = plain.chat_template or own.chat_template
        config.save_pretrained(folder)
        plain.save_pretrained(folder)
        ends = [*as_sequence(config.eos_token_id), metadata.get("tokenizer.ggml.eot_token_id")]
        ends += [plain.get_vocab().get(token) for token in _END_TOKENS]
        known = sorted({end for end in ends if end is not None})
        transformers.GenerationConfig(eos_token_id=known).save_pretrained(folder)

    entry = store.get(MODELS, key_of(fields))
    if entry is None:  # a cache that can't be written serves what it has
        store.prepare()
        entry = store.put(MODELS, key_of(fields), fields, write, model=file_label(str(file)))
    return GGUFFile(
        name, entry.folder, commit=None, source=str(file), file=file, sha256=sha256,
        quantisation=_quantisation(metadata), given_tokenizer=digest, store=store,
    )  # fmt: skip


def read_config(name: str, file: Path) -> Any:
    """Return the transformers configuration of a GGUF file, after the checks of `open_gguf`, without a tokenizer.

    Raises:
        UserError: as in `open_gguf`, but for the tokenizer.
    """
    _, tensors = _check_file(name, file)
    with _one_sentence(name):
        return _config(name, file, tensors)


def _check_file(name: str, file: Path) -> tuple[Mapping[str, Any], dict[str, int]]:
    """Return metadata of a GGUF file and the number of weights of each tensor, after all checks of its header."""
    if importlib.util.find_spec("gguf") is None:
        raise UserError(f"Model {name!r} is a GGUF file, for which gguf is needed: pip install gguf.")
    with _one_sentence(name):
        metadata = file_metadata(str(file), file_stats(file))
        _check_kind(name, metadata)
        return metadata, _tensor_sizes(name, file)


def _config(name: str, file: Path, tensors: Mapping[str, int]) -> Any:
    with _alone(file) as where:
        config = transformers.AutoConfig.from_pretrained(**where)
    config.dtype = torch.bfloat16  # of the dequantised weights, unless --dtype says otherwise
    if _ROPE_FACTORS in tensors:
        _scale_rotary(name, config, file)
    return config


@contextlib.contextmanager
def _alone(file: Path) -> Iterator[dict[str, str]]:
    """Yield the arguments by which transformers finds a GGUF file, in a temporary folder with nothing else in it.

    Of a tokenizer.json, tokenizer_config.json or adapter_config.json beside the file it would take what they say.
    """
    with tempfile.TemporaryDirectory() as folder, _plain_arrays():
        (Path(folder) / "model.gguf").symlink_to(file.resolve())
        yield {"pretrained_model_name_or_path": folder, "gguf_file": "model.gguf"}


@contextlib.contextmanager
def _plain_arrays() -> Iterator[None]:
    """Make the package gguf read plain arrays: parts of a memory map are maps, which take three times as long to make.

    A vocabulary has hundreds of thousands of parts, and transformers reads it with the configuration, the tokenizer and
    the weights.
    """
    from gguf import GGUFReader

    def view(reader: Any, data: np.memmap[Any, Any]) -> None:
        vars(reader)["data"] = data.view(np.ndarray)

    GGUFReader.data = property(lambda reader: vars(reader)["data"], view)  # type: ignore[assignment]
    try:
        yield
    finally:
        with contextlib.suppress(AttributeError):  # another thread was done before
            del GGUFReader.data  # type: ignore[misc]


@contextlib.contextmanager
def _one_sentence(name: str) -> Iterator[None]:
    """Turn errors of the readers within the context into a UserError: they mean a file that is cut or damaged."""
    try:
        yield
    except UserError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, ArithmeticError, MemoryError, struct.error) as error:
        raise UserError(
            f"Model {name!r}: expected a whole GGUF file, its header can't be read ({first_line(error)[:200]}); it was"
            " cut or is damaged, so fetch it again."
        ) from error


# --- checks before anything is allocated ------------------------------------------------------------------------------


def _tensor_sizes(name: str, file: Path) -> dict[str, int]:
    """Return the number of weights of each tensor, after a check that all tensors are in the file.

    Raises:
        UserError: the file ends before its tensors do, or has weights of an unknown kind.
    """
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    from transformers.integrations.gguf import reader

    with _one_sentence(name):  # transformers' own header refuses kinds of weights that its loader reads
        blob = reader._mapped(str(file))  # noqa: SLF001
        metadata, count, position = reader._read_metadata(blob, str(file))  # noqa: SLF001
        tensors, end = reader._read_tensor_table(blob, count, position)  # noqa: SLF001
        alignment = int(metadata.get("general.alignment", 32))
        needed = -(-end // alignment) * alignment
        for _, shape, kind, offset in tensors:
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
            needed = max(needed, -(-end // alignment) * alignment + offset + math.prod(shape) // block * size)
    if needed > (found := file.stat().st_size):
        raise UserError(
            f"Model {name!r}: expected {needed:,} bytes of tensors and header, the file has {found:,}; it was cut, so"
            " fetch it again."
        )
    return {tensor: math.prod(shape) for tensor, shape, _, _ in tensors}


def _check_kind(name: str, metadata: Mapping[str, Any]) -> None:
    """Check that transformers loads the file as a causal language model, and knows all fields that change its results.

    Raises:
        UserError: it does not.
    """
    from transformers.integrations import GGUF_CONFIG_MAPPING
    from transformers.integrations.gguf import GGUF_CONFIG_ARCHS, gguf_config_mapping

    architecture, kind = str(metadata["general.architecture"]), metadata.get("general.type", "model")
    if kind != "model" or architecture == "clip":
        raise UserError(f"Model {name!r}: expected a language model, the GGUF file holds a {kind} ({architecture}).")
    if metadata.get("split.count", 1) > 1:
        raise UserError(
            f"Model {name!r}: expected one file, this is one of {metadata['split.count']} parts; join them with"
            " llama-gguf-split --merge."
        )
    known = GGUF_CONFIG_MAPPING.get(architecture)
    model_type = str((known or {}).get("model_type") or architecture).replace("-", "_")
    text_type = {"gemma3": "gemma3_text", "gemma4": "gemma4_text", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe"}
    causal = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if architecture not in GGUF_CONFIG_ARCHS and (known is None or text_type.get(model_type, model_type) not in causal):
        raise UserError(
            f"Model {name!r}: expected a causal language model of an architecture that transformers"
            f" {transformers.__version__} reads from GGUF, got {architecture!r}; use the model's original repository."
        )
    if known is None:  # the fields that its own function in transformers reads
        known = dict.fromkeys(re.findall(r'([a-z][\w.]*)"', inspect.getsource(gguf_config_mapping)), "")
    fields = {key.removeprefix(f"{architecture}."): value for key, value in metadata.items()
              if key.startswith(f"{architecture}.")}  # fmt: skip
    unknown = [
        key for key, value in fields.items()
        if known.get(key) is None and key not in _HARMLESS
        and value != fields.get(_SAME_VALUE.get(key, ""), not value)
    ]  # fmt: skip
    if unknown:
        raise UserError(
            f"Model {name!r}: transformers {transformers.__version__} would ignore its {architecture}.{unknown[0]}"
            f" = {fields[unknown[0]]!r:.40}, so its answers would be wrong; use the model's original repository."
        )


def _check_room(name: str, size: int, root: Path) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size * _MEMORY_FACTOR > memory:
        raise UserError(
            f"Model {name!r}: dequantising takes {format_size(size * _MEMORY_FACTOR)} of memory, this machine has"
            f" {format_size(memory)}; use --dtype bfloat16 if you said float32, or a smaller model."
        )
    root.mkdir(parents=True, exist_ok=True)
    stat = os.statvfs(root)
    if size > (free := stat.f_bavail * stat.f_frsize):
        raise UserError(
            f"Model {name!r}: its dequantised weights take {format_size(size)} of the cache, whose disk has"
            f" {format_size(free)} left; free some, or set CONFBENCH_CACHE to a folder with room."
        )


def _check_complete(model: Any, sizes: Mapping[str, int]) -> None:
    """Check that the loaded model has as many weights as the file: transformers skips tensors that it doesn't know.

    Raises:
        ValueError: the numbers differ.
    """
    loaded = sum(parameter.numel() for parameter in model.parameters())
    expected = sum(size for name, size in sizes.items() if name != _ROPE_FACTORS)
    if loaded != expected:
        raise ValueError(f"expected the {expected:,} weights of its tensors in the model, found {loaded:,}")


def _quantisation(metadata: Mapping[str, Any]) -> str:
    from gguf import LlamaFileType

    kind = metadata.get("general.file_type", -1)
    with contextlib.suppress(ValueError):
        return LlamaFileType(kind).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    return f"file type {kind!r:.40}"


# --- what transformers does not restore -------------------------------------------------------------------------------

_ROPE_FACTORS = "rope_freqs.weight"


def _scale_rotary(name: str, config: Any, file: Path) -> None:
    """Restore the scaling of rotary frequencies of Llama 3.1 and later, which llama.cpp stores as a tensor of factors.

    Raises:
        UserError: the factors are not those of Llama 3.
    """
    from gguf import GGUFReader
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    (stored,) = (tensor.data for tensor in GGUFReader(file).tensors if tensor.name == _ROPE_FACTORS)
    theta = config.rope_parameters["rope_theta"]
    plain = dict(config.rope_parameters)
    for factor in _LLAMA3_FACTORS:
        config.rope_parameters = {
            "rope_type": "llama3", "rope_theta": theta, "factor": factor, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        }  # fmt: skip
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
        n = 2 * len(scaled)
        unscaled = 1.0 / theta ** (torch.arange(0, n, 2, dtype=torch.float32) / n)
        if stored.size == len(scaled) and torch.allclose(unscaled / scaled, torch.tensor(stored).flatten(), rtol=1e-3):
            return
    config.rope_parameters = plain
    raise UserError(
        f"Model {name!r}: its rotary frequencies are scaled by factors that are unknown here ({_ROPE_FACTORS}); use the"
        " model's original repository."
    )


def _tokens(file: Path) -> tuple[Mapping[str, Any], list[str]]:
    """Return the metadata of the file, and its tokens in the order of their ids."""
    from transformers.integrations.gguf import read_gguf_metadata

    metadata, _ = read_gguf_metadata(str(file), ("tokenizer.ggml.tokens",))
    return metadata, metadata["tokenizer.ggml.tokens"]


def _mended_tokenizer(name: str, tokenizer: Any, file: Path) -> Any:
    """Give a tokenizer that transformers built from a GGUF file what the original has and the file does not say.

    The result is of no particular class, since some classes replace a saved pre-tokenizer by that of their own model.

    Raises:
        UserError: the file names a splitting of words that is unknown here.
    """
    from tokenizers import Tokenizer, normalizers, pre_tokenizers
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    metadata, tokens = _tokens(file)
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    # GPT-2's class adds its <|endoftext|>, with an id that the model may not have
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < len(tokens)]
    if pre in _WHOLE_WORDS:
        state["model"]["ignore_merges"] = True
    backend, gemma = Tokenizer.from_str(json.dumps(state)), isinstance(tokenizer, transformers.GemmaTokenizer)
    if kind == "gpt2" and pre == _SMOLLM:  # transformers takes GPT-2's, which leaves digits together with blanks
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    elif not (
        (kind == "gpt2" and (pre in GGUF_PRE_TOKENIZER_SPLITS or pre in _GPT2))
        or (
            kind == "llama" and gemma
        )  # of others, where a blank is put before words after a special token is not known
        or kind == "gemma4"
    ):
        raise UnknownSplittingError(
            f"Model {name!r}: its tokenizer ({kind}, pre-tokenizer {pre!r}) splits words in a way that is unknown here,"
            " so its token ids could be wrong; name the original's: --tokenizer ORGANISATION/MODEL, or a folder."
        )
    if pre in _NFC:
        backend.normalizer = normalizers.NFC()
    ids = {role: metadata.get(f"tokenizer.ggml.{key}_token_id") for role, key in _SPECIAL.items()}
    special = {role: tokens[i] for role, i in ids.items() if i is not None}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, clean_up_tokenization_spaces=False, chat_template=tokenizer.chat_template, **special
    )


def _checked_tokenizer(name: str, folder: ModelFolder, file: Path) -> Any:
    """Load the tokenizer of `--tokenizer`; compare its vocabulary with the tokens of the file.

    Raises:
        UserError: a token has another id in the two.
    """
    tokenizer, (_, tokens) = folder.tokenizer(), _tokens(file)
    found = {i: token for token, i in tokenizer.get_vocab().items()}
    wrong = [i for i, token in enumerate(tokens) if found.get(i) != token and not _PADDING.fullmatch(token)]
    if wrong:
        raise UserError(
            f"--tokenizer {folder.source}: expected the vocabulary of {name!r} ({len(tokens):,} tokens), got another"
            f" one of {len(found):,}: token {wrong[0]} is {found.get(wrong[0])!r}, not {tokens[wrong[0]]!r}. Name the"
            " tokenizer of the model that the file was made from."
        )
    return tokenizer
