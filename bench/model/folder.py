"""The files of a model: find or download them, compute fingerprints, and check them before anything is loaded."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from safetensors import SafetensorError, safe_open

from bench.api import UserError
from bench.api.errors import first_line
from bench.model.specs import ModelSpec, is_path
from bench.store.disk_cache import digest_file

FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
"""Patterns of the files of a repository that are downloaded."""
_CODE = "*.py"
OTHER_COPIES = ["consolidated*", "original/*", "*.gguf"]
"""Patterns of files with further copies of the weights, which some repositories contain; they are not downloaded."""
_WEIGHTS = "*.safetensors"
_TEXT_FILES = ("*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken", "additional_chat_templates/*.jinja")
"""Files besides the weights that change prompts or answers: tokenizer, chat template, stop tokens."""
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")

LOADING = threading.RLock()
"""Held while transformers builds or loads a model: meanwhile it replaces `PreTrainedModel.tie_weights` and torch's
default dtype in the whole process, and the later of two threads would restore what the earlier had replaced."""

_LAYERS = frozenset({"num_hidden_layers", "n_layer", "n_layers", "num_layers"})
_HEADS = frozenset({"num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads"})
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_WIDTHS = (*_HIDDEN, "vocab_size", "intermediate_size", "n_inner", "ffn_dim")
_MOST_LAYERS = 10_000
_FEW_LAYERS = 200
"""A configuration with at most this many layers is accepted without counting the tensors in the weight files."""
_FEWEST_BITS = 0.5
"""Fewest bits that a weight takes in a weight file; the file's size then says how many weights it has at most."""


@dataclass(frozen=True)
class ModelFolder:
    """The files of a model on this machine."""

    name: str
    """Model name for messages."""
    path: Path
    commit: str | None
    """Commit hash on the Hub; None for a local folder."""
    source: str
    """Hub id or folder, as requested."""
    trust_remote_code: bool = False
    given_tokenizer: str = ""
    """Identity of the tokenizer that `--tokenizer` names, see `tokenizer_digest`; empty for the model's own."""

    @cached_property
    def weights(self) -> str:
        """Identity of the weights: the Hub commit, or a digest of configuration and weights. Random seeds use it."""
        if self.commit is not None:
            return f"{self.source}@{self.commit}"
        digest = hashlib.sha256()
        for path in sorted([self.path / "config.json", *self.path.glob(_WEIGHTS)]):
            digest.update(bytes.fromhex(digest_file(path)))
        return digest.hexdigest()

    @cached_property
    def fingerprint(self) -> str:
        """Identity of all that answers depend on: weights, tokenizer, chat template, stop tokens and model code."""
        if self.commit is None:
            return self._digest_texts(self.weights)
        # a commit has the repository's code, but not whether that runs instead of the code in transformers
        codes = self.trust_remote_code and any(b"auto_map" in f.read_bytes() for f in self.path.glob("*config.json"))
        return f"{self.weights}+code" if codes else self.weights

    def tokenizer_digest(self) -> str:
        """Return the identity of the files besides the weights: the Hub commit, or a digest of tokenizer and texts."""
        return f"{self.source}@{self.commit}" if self.commit is not None else self._digest_texts("")

    def _digest_texts(self, begin: str) -> str:
        paths = {path for pattern in _TEXT_FILES for path in self.path.glob(pattern) if path.is_file()}
        if self.trust_remote_code:
            paths.update(self.path.rglob(_CODE))
        digest = hashlib.sha256(begin.encode())
        for path in sorted(paths):
            name = str(path.relative_to(self.path)).encode("utf-8", "surrogateescape")
            digest.update(name + b"\0" + bytes.fromhex(digest_file(path)))
        return digest.hexdigest()

    def file_stats(self) -> tuple[tuple[str, int, int], ...]:
        """Return name, bytes and modification time of configuration and weight files, to notice if a file changes."""
        paths = sorted([self.path / "config.json", *self.path.glob(_WEIGHTS)])
        return tuple((path.name, stat.st_size, stat.st_mtime_ns) for path in paths for stat in [path.stat()])

    def config(self) -> Any:
        """Return the model's transformers configuration, after checks of its values.

        Raises:
            UserError: config.json can't be read, has impossible values, or does not fit the weight files.
        """
        path = self.path / "config.json"
        with self.wrap_errors("its config.json can't be used"):
            settings = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(settings, dict):
                raise TypeError(f"expected a JSON object, got a {type(settings).__name__}")
            text = settings.get("text_config")
            for part in (settings, text if isinstance(text, dict) else {}):
                for key in sorted({*_LAYERS, *_HEADS, *_WIDTHS, "head_dim"} & part.keys()):
                    most = _MOST_LAYERS if key in _LAYERS else None
                    for value in as_sequence(part[key]):
                        if type(value) is not int or value < 1 or (most is not None and value > most):
                            bounds = f"from 1 to {most:,}" if most else "of at least 1"
                            raise ValueError(f"expected a whole number {bounds} as {key}, got {value!r:.40}")
                self._check_size(part)
            config = transformers.AutoConfig.from_pretrained(self.path, trust_remote_code=self.trust_remote_code)
            config.get_text_config()
        return config

    def _check_size(self, settings: Mapping[str, Any]) -> None:
        """Check that the weight files are large enough for a model with the sizes in its configuration.

        Without this check, a configuration with absurd sizes would use up time or memory.

        Raises:
            ValueError: a size is too large for the weight files.
        """
        files = [file for file in self.path.glob(_WEIGHTS) if file.is_file()]
        size = sum(file.stat().st_size for file in files)
        widths = {key: max(as_sequence(settings.get(key)), default=0) for key in _WIDTHS}
        hidden = next(filter(None, map(widths.get, _HIDDEN)), 0)
        for key, width in widths.items():
            if size and hidden * width > size * 8 / _FEWEST_BITS:
                raise ValueError(f"{key} {width:,} is more than its weight files of {size:,} bytes can hold")
        layers = max((value for key in _LAYERS for value in as_sequence(settings.get(key))), default=0)
        if layers > _FEW_LAYERS and layers > (n := sum(map(_count_tensors, files))) > 0:
            raise ValueError(f"{layers:,} layers are more than the {n:,} tensors in its weight files")

    def tokenizer(self) -> Any:
        """Load the tokenizer.

        Raises:
            UserError: the tokenizer is missing, or can't be loaded.
        """
        if not any((self.path / name).is_file() for name in _TOKENIZERS):
            raise UserError(f"Model {self.name!r}: expected a tokenizer (tokenizer.json) in its folder, found none.")
        with self.wrap_errors("its tokenizer can't be loaded"):
            return transformers.AutoTokenizer.from_pretrained(self.path, trust_remote_code=self.trust_remote_code)

    def description(self, dtype: str) -> str:
        """Return a note on the model's files for readers of results; empty if there is nothing to say."""
        del dtype
        return ""

    def weights_folder(self, dtype: torch.dtype) -> Path:
        """Return a folder with configuration and weights, which transformers loads in the given dtype."""
        del dtype
        return self.path

    def check_weights(self) -> None:
        """Check that there are weight files, and that their index, if any, names only files in the model's folder.

        Raises:
            UserError: there are none, or the index can't be read or names another file.
        """
        if not any(self.path.glob(_WEIGHTS)):
            raise UserError(f"Model {self.name!r}: expected weights as *.safetensors in its folder, found none.")
        for index in sorted(self.path.glob(f"{_WEIGHTS}.index.json")):
            with self.wrap_errors(f"its {index.name} can't be used"):
                file_names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
                home = self.path.resolve()
                blobs = home.parent.parent / "blobs"  # where links in the Hub's cache point
                for name in dict.fromkeys(file_names):
                    if not isinstance(name, str) or not name.endswith(".safetensors") or {"/", "\\"} & set(name):
                        raise ValueError(
                            f"expected names of .safetensors files in the same folder, got {str(name)[:80]!r}"
                        )
                    target = (self.path / name).resolve()
                    if home not in target.parents and not (home.parent.name == "snapshots" and target.parent == blobs):
                        raise ValueError(f"{name} links to a file outside the folder; copy that file into it")

    @contextmanager
    def wrap_errors(self, what: str) -> Iterator[None]:
        """Turn errors that libraries raise within the context into a UserError of one sentence.

        Args:
            what: beginning of the sentence, which says what failed.

        Raises:
            UserError: a library raised an error in the context.
        """
        try:
            yield
        except UserError:
            raise
        except BaseException as error:
            # the Rust tokenizers panic with an exception that derives from BaseException
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            advice = " Run it with --trust-remote-code." if "trust_remote_code=" in str(error) else ""
            raise UserError(f"Model {self.name!r}: {what}: {first_line(error)[:300]}{advice}") from error


def find_model_folder(spec: ModelSpec, *, trust_remote_code: bool) -> ModelFolder:
    """Find the folder with the model's files, downloading it from the Hub if needed.

    Raises:
        UserError: the folder has no configuration, or the model can't be found or downloaded.
    """
    if spec.local:
        folder = Path(spec.source)
        if not (folder / "config.json").is_file():
            files = ", ".join(sorted(str(file) for file in folder.glob("*.gguf") if "mmproj" not in file.name))
            hint = f"name one of its GGUF files: {files}" if files else "copy the model's files into it"
            raise UserError(f"Model folder {spec.name!r}: expected config.json in it, found none; {hint}.")
        return ModelFolder(spec.name, folder, None, spec.source, trust_remote_code)
    return _download(spec, [*FILES, _CODE] if trust_remote_code else FILES, trust_remote_code=trust_remote_code)


def find_tokenizer_folder(name: str) -> ModelFolder:
    """Find the folder with the tokenizer that `--tokenizer` names: a folder, or `ID` or `ID@COMMIT` of the Hub.

    Raises:
        UserError: the folder has no tokenizer, or the repository can't be found or downloaded.
    """
    expected = f"--tokenizer {name}: expected a folder with a tokenizer (tokenizer.json), or a Hub id like 'org/model'"
    if Path(name).is_dir():
        if not any((Path(name) / file).is_file() for file in _TOKENIZERS):
            raise UserError(f"{expected}; that folder has none.")
        return ModelFolder(Path(name).resolve().name, Path(name), None, name)
    source, _, revision = name.partition("@")
    if Path(name).exists() or is_path(source):
        raise UserError(f"{expected}; there is no such folder.")
    return download_texts(ModelSpec(source, source, local=False, revision=revision or None), "--tokenizer")


def download_texts(spec: ModelSpec, option: str = "--model") -> ModelFolder:
    """Find or download a model's files on the Hub without its weights; `option` names the repository in errors.

    Raises:
        UserError: the repository can't be found or downloaded.
    """
    return _download(spec, [pattern for pattern in FILES if pattern != _WEIGHTS], option=option)


def _download(
    spec: ModelSpec, allowed: Sequence[str], *, trust_remote_code: bool = False, option: str = "--model"
) -> ModelFolder:
    named = "Model" if option == "--model" else option
    try:
        folder = Path(
            snapshot_download(
                spec.source, revision=spec.revision, allow_patterns=list(allowed), ignore_patterns=OTHER_COPIES
            )
        )
    except GatedRepoError as error:
        raise UserError(
            f"{named} {spec.source!r} is gated: accept its licence on the Hub and set HF_TOKEN to your token."
        ) from error
    except RepositoryNotFoundError as error:
        raise UserError(
            f"{named} {spec.source!r} was not found on the Hub. Check the name, or set HF_TOKEN."
        ) from error
    except HFValidationError as error:
        raise UserError(
            f"{named} {spec.source[:80]!r} is no folder here, and no name that the Hub can have"
            f" ({first_line(error)[:120]}); correct it."
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise UserError(
            f"{named} {spec.source!r} is not in the local cache and the Hub can't be reached ({first_line(error)})."
            f" Connect once, or name a local folder: {option} FOLDER"
            f"{'; --model tiny needs nothing' if option == '--model' else ''}."
        ) from error
    commit = folder.name if re.fullmatch(r"[0-9a-f]{40}", folder.name) else None
    return ModelFolder(spec.name, folder, commit, spec.source, trust_remote_code)


def load_full(kind: Any, folder: Path, **settings: Any) -> Any:
    """Return a model of an Auto class of transformers; all its weights must be in the folder.

    Raises:
        ValueError: weights are missing.
    """
    transformers.utils.logging.disable_progress_bar()  # a run shows its own
    transformers.utils.logging.set_verbosity_error()  # missing weights raise an error here instead
    with LOADING:
        model, info = kind.from_pretrained(folder, use_safetensors=True, output_loading_info=True, **settings)
    if missing := sorted(info["missing_keys"]):  # they would be initialised at random
        raise ValueError(f"{len(missing)} weights are missing from its files, e.g. {missing[0]}; copy them again")
    return model


def on_meta(config: Any, **settings: Any) -> Any:
    """Return a causal model with this configuration, built on the meta device: it has shapes and no weights."""
    with LOADING, torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config, **settings)


def as_sequence(value: Any) -> Sequence[Any]:
    """Return a setting's value as a sequence: a list as it is, a single number as one element, None as no element."""
    if value is None:
        return ()
    return value if isinstance(value, list) else (value,)


def _count_tensors(path: Path) -> int:
    """Return the number of tensors in a weight file; 0 if the file can't be read, which loading it will report."""
    try:
        with safe_open(path, framework="np") as file:
            return len(file.keys())
    except (OSError, SafetensorError):
        return 0
