"""What is read here of a model whose hidden states a server writes: output head, final norm and shapes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
import transformers
from huggingface_hub import snapshot_download

from bench.api import ModelFacts, OutputHead, UserError
from bench.api.errors import first_line
from bench.model.folder import FILES, OTHER_COPIES, ModelFolder, find_model_folder, load_full
from bench.model.language_model import facts_from_config, final_norm, output_head
from bench.model.specs import resolve
from bench.model.training_memory import with_n_blocks


def find_files(source: str) -> ModelFolder:
    """Find a model's files here, by the folder or Hub id that its server names; nothing is downloaded.

    Raises:
        UserError: they aren't here.
    """
    spec = resolve(source)
    if spec.local:
        return find_model_folder(spec, trust_remote_code=False)
    try:
        folder = snapshot_download(
            spec.source, allow_patterns=FILES, ignore_patterns=OTHER_COPIES, local_files_only=True
        )
    except Exception as error:
        raise UserError(f"{source} is not in the Hub's cache of this machine ({first_line(error)[:100]})") from error
    return ModelFolder(spec.name, Path(folder), Path(folder).name, spec.source)


def read_head(files: ModelFolder, dtype: torch.dtype, device: str) -> tuple[ModelFacts, OutputHead]:
    """Return a model's shapes and its output head with the final norm; of its blocks just one is loaded.

    Raises:
        UserError: the files can't be used, or the norm is of an unknown kind.
    """
    files.check_weights()
    config = files.config()
    with files.wrap_errors("its output head can't be loaded"):
        kind, small = transformers.AutoModelForCausalLM, with_n_blocks(config, 1)
        model = load_full(kind, files.weights_folder(dtype), config=small, dtype=dtype)
        model = model.eval().requires_grad_(requires_grad=False).to(device)
        norm = final_norm(model)
    if norm is None:
        raise UserError(f"Model {files.name!r}: its norm before the output head is of a kind that is not known here")
    return facts_from_config(files.name, config), replace(output_head(model), norm=norm)
