"""A small GGUF file, written from a Llama folder whose tokenizer is that of `tiny`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import transformers

_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "model.layers": "blk",
}  # fmt: skip


def write_gguf(
    path: Path,
    folder: Path,
    fields: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray[Any, Any]] | None = None,
    arch: str = "llama",
    pre: str = "smollm",
) -> Path:
    """Write the model of a folder in float32; `fields` and `tensors` are further ones."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    config, tokenizer = model.config, json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_file_type(0)
    vocab = tokenizer["model"]["vocab"]
    special = {token["id"] for token in tokenizer["added_tokens"]}
    tokens = {**{i: token for token, i in vocab.items()}, **{t["id"]: t["content"] for t in tokenizer["added_tokens"]}}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([tokens[i] for i in range(len(tokens))])
    writer.add_token_types([3 if i in special else 1 for i in range(len(tokens))])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template((folder / "chat_template.jinja").read_text(encoding="utf-8"))
    for key, value in (fields or {}).items():
        (writer.add_string if isinstance(value, str) else writer.add_uint32)(key, value)
    for name, parameter in model.state_dict().items():
        array = parameter.numpy()
        if "q_proj" in name or "k_proj" in name:  # llama.cpp pairs the halves of each rotary head
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            rows = array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2)
            array = np.ascontiguousarray(rows.reshape(array.shape))
        renamed = name
        for old, new in _NAMES.items():
            renamed = renamed.replace(old, new)
        writer.add_tensor(renamed, array)
    for name, array in (tensors or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
