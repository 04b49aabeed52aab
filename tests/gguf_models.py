"""Small models in GGUF files, of drawn weights, that llama.cpp runs: dense and with experts, of any type."""

from pathlib import Path

import numpy as np
import pytest

SMALL = (64, 96, 4, 2, 96)
"""Hidden, feed-forward, query heads, key heads, vocabulary."""


def word(token: int) -> str:
    """Return the text of a token of a model with words."""
    return chr(30 + token) if 3 <= token < 96 else f"<{token}>"


def write_model(
    path: Path,
    kind: str = "F32",
    *,
    experts: int = 0,
    layers: int = 2,
    words: bool = False,
    sizes: tuple[int, ...] = SMALL,
    tied: bool = False,
) -> Path:
    """Write a llama of `kind` weights, each feed-forward one of so many experts, with a vocabulary or numbers alone; skip the test where gguf is missing."""
    gguf = pytest.importorskip("gguf")
    embd, ff, heads, kv, vocab = sizes
    head, quant, rng = embd // heads, gguf.GGMLQuantizationType[kind], np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(embd)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ff)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(head)
    writer.add_vocab_size(vocab)
    writer.add_tokenizer_model("llama" if words else "no_vocab")
    if words:
        writer.add_token_list([b"<unk>", b"<s>", b"</s>", *(word(token).encode() for token in range(3, vocab))])
        writer.add_token_scores([0.0] * vocab)
        writer.add_token_types([2, 3, 3] + [1] * (vocab - 3))
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(2)

    def add(name, *shape):
        drawn = rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", np.abs(drawn) + 1)
        else:
            writer.add_tensor(f"{name}.weight", gguf.quants.quantize(drawn, quant), raw_dtype=quant)

    add("token_embd", vocab, embd)
    add("output_norm", embd)
    if not tied:
        add("output", vocab, embd)
    for layer in (f"blk.{number}." for number in range(layers)):
        for name, shape in {
            "attn_norm": (embd,), "ffn_norm": (embd,), "attn_q": (heads * head, embd), "attn_k": (kv * head, embd),
            "attn_v": (kv * head, embd), "attn_output": (embd, heads * head),
        }.items():  # fmt: skip
            add(layer + name, *shape)
        if experts:
            add(f"{layer}ffn_gate_inp", experts, embd)
        part, rest = ("_exps", (experts,)) if experts else ("", ())
        for name, shape in {"gate": (ff, embd), "up": (ff, embd), "down": (embd, ff)}.items():
            add(f"{layer}ffn_{name}{part}", *rest, *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
