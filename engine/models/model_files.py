"""A model as the folder that transformers writes: config.json and model.safetensors.

What `engine.models.weights` reads back to the same bits, and other programs read too: names and
order of rows are theirs, numbers float32.

What this module does not see: how adapters are written (`engine.models.adapters`), training.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.models import adapters
from engine.models.gpt2 import GPT2Config
from engine.models.llama import LlamaConfig
from engine.models.weights import ARCHITECTURES, halves, heads_in_rows

Array = NDArray[Any]

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
MODEL_FILES: Final = (CONFIG, WEIGHTS, adapters.PEFT_CONFIG, adapters.PEFT_WEIGHTS, adapters.GGUF)
"""What a folder of a model, or of its adapters, may hold."""


def files(config: LlamaConfig | GPT2Config, weights: Mapping[str, Array]) -> dict[str, bytes]:
    """Return both files by name, of every weight of the model without adapters. O(bytes)."""
    from safetensors.numpy import save  # noqa: PLC0415 - only who writes such a file needs it

    kind = "llama" if isinstance(config, LlamaConfig) else "gpt2"
    row = ARCHITECTURES["safetensors", kind]
    tensors = {}
    for name in row.expected(config):
        theirs = row.stored_as(name)
        outside = kind == "llama" and theirs == "lm_head.weight"
        tensors[theirs if outside else row.prefixes[0] + theirs] = _arranged(config, name, weights[name])
    said = _of_llama(config) if isinstance(config, LlamaConfig) else _of_gpt2(config)
    return {
        CONFIG: (json.dumps(said, indent=1) + "\n").encode(),
        WEIGHTS: save(dict(sorted(tensors.items())), metadata={"format": "pt"}),
    }


def trained(
    config: LlamaConfig | GPT2Config, given: Mapping[str, Array], weights: Mapping[str, Array], *, base: bool = True
) -> dict[str, bytes]:
    """Return the files of a trained model: adapters where only these were trained, else the model.

    Args:
        config: sizes and adapters.
        given: the weights that training began with.
        weights: those that it changed.
        base: whether the model stands in the folder beside its adapters.
    """
    adapted = isinstance(config, LlamaConfig) and config.rank > 0
    found = adapters.files(config, weights) if isinstance(config, LlamaConfig) and adapted else {}
    full = isinstance(config, GPT2Config) or not adapted or config.full
    return {**(files(config, {**given, **weights}) if base or full else {}), **found}


def _arranged(config: LlamaConfig | GPT2Config, name: str, array: Array) -> Array:
    if isinstance(config, LlamaConfig):
        heads = heads_in_rows(config, name)
        array = array if heads is None else halves(array, heads)
    elif name.startswith("layer.") and name.endswith(".weight"):
        array = array.T
    return np.ascontiguousarray(array, np.float32)


def _of_llama(config: LlamaConfig) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "float32",
        "num_hidden_layers": config.layers, "hidden_size": config.hidden, "intermediate_size": config.ffn,
        "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads, "vocab_size": config.vocab,
        "rope_theta": config.rope_theta, "rms_norm_eps": config.eps, "tie_word_embeddings": config.tied,
        "attention_bias": False, "mlp_bias": False,
    }  # fmt: skip


def _of_gpt2(config: GPT2Config) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new", "torch_dtype": "float32",
        "n_layer": config.layers, "n_embd": config.channels, "n_head": config.heads, "vocab_size": config.vocab,
        "n_positions": config.positions, "layer_norm_epsilon": config.eps, "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
    }  # fmt: skip
