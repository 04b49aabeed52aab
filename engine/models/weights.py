"""Weights from GGUF and safetensors files, as float32 arrays by the names of the engine.

Of GGUF: F32, F16, BF16, Q8_0 and whatever else the `gguf` library decodes.

    found = read("SmolLM2-135M-Q8_0.gguf")         # a file, or a folder with config.json and *.safetensors
    found.config, found.weights                    # a LlamaConfig or a GPT2Config, and the arrays its graph asks for

A file says which architecture it holds (`general.architecture`, or `model_type` of the config.json
beside a safetensors file) and its sizes. `ARCHITECTURES` maps names, file by file kind. GGUF's q
and k of llama are already in the pairwise order our rope reads; safetensors' are in halves and are
reordered here. GPT-2's projections are stored [in, out] in safetensors and transposed here.

A file that asks for what these graphs do not compute (scaled rotary positions, another activation,
heads of another size) is refused: its logits would be wrong without a word. Dequantising is the
`gguf` library's; both libraries are imported when a file is read. What this module does not see:
graphs.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.files.gate import CEILINGS, content, record_of, refused_with, refusing
from engine.models.gguf_header import check_header
from engine.models.gpt2 import GPT2Config
from engine.models.llama import LlamaConfig
from engine.runtime.plan_memory import together

Array = NDArray[Any]
Config = LlamaConfig | GPT2Config
Sizes = TypeVar("Sizes", bound=Config)
Tensors = Iterator[tuple[str, Callable[[], Array]]]
"""Name in the file and how to get the float32 array, one after the other."""
Opened = tuple[str, Mapping[str, Any], Tensors]
"""Architecture, what the file says of sizes, and the tensors."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightsFile(Generic[Sizes]):
    """A model read from a file: its sizes, and every weight the graph of these sizes asks for."""

    path: str
    architecture: str
    config: Sizes
    """Without adapters; `seq` and `batch` are the caller's business."""
    weights: Mapping[str, Array]
    ends: tuple[int, ...] = ()
    """Tokens that end a text, where the file says so."""


def read(path: str | Path) -> WeightsFile[Config]:
    """Return the model in a GGUF file, in a safetensors file, or in a folder. O(bytes).

    A safetensors file needs its config.json in the same folder.

    Raises EngineError, with file and rule, for what is no such file, an architecture that is not in
    the table, a tensor that is missing, unknown or misshapen, and a quantisation that cannot be
    decoded.
    """
    place = Path(path)
    if not place.exists():
        raise EngineError(f"{path}: there is no such file")
    kind = "gguf" if place.is_file() and place.suffix == ".gguf" else "safetensors"
    name, sizes, tensors = _gguf(place) if kind == "gguf" else _safetensors(place)
    row = ARCHITECTURES.get((kind, name))
    if row is None:
        known = ", ".join(sorted({architecture for _, architecture in ARCHITECTURES}))
        raise EngineError(f"{path}: holds {name!r}; this reads {known}")
    weights: dict[str, Array] = {}
    with refusing(str(path), "model", refusal=_refused):
        try:
            for stored, load in tensors:
                ours = row.name_of(stored)
                if ours == "":
                    raise EngineError(f"{path}: tensor {stored!r} has no place in a {name} model")
                if ours is not None:
                    weights[ours] = np.ascontiguousarray(row.arranged(ours, load(), sizes), dtype=np.float32)
            config = row.config(sizes, weights)
        except KeyError as error:
            raise EngineError(f"{path}: does not say {error.args[0]}") from None
        except (ValueError, TypeError) as error:
            raise EngineError(f"{path}: {' '.join(str(error).split())[:300]}") from None
    if config.layers > len(weights):  # before anything is made for each of them
        raise EngineError(f"{path}: says {config.layers} layers and has {len(weights)} tensors")
    _check(str(path), row.expected(config), weights)
    placed = together({name: array.shape for name, array in weights.items()}, np.float32)
    for ours, array in placed.items():
        array[...] = weights.pop(ours)  # one at a time, so that memory is not doubled
    return WeightsFile(path=str(path), architecture=name, config=config, weights=placed, ends=_ends(sizes))


def _ends(sizes: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the tokens that end a text, as either kind of file says them."""
    said = sizes.get("eos_token_id", sizes.get(EOS))
    listed = said if isinstance(said, list) else [said]
    return tuple(int(one) for one in listed if isinstance(one, int | np.integer) and not isinstance(one, bool))


def read_llama(path: str | Path) -> WeightsFile[LlamaConfig]:
    """Return the llama in a file or folder; EngineError as `read`, and for other architectures."""
    found = read(path)
    if not isinstance(found.config, LlamaConfig):
        raise EngineError(f"{path}: holds {found.architecture}, not llama")
    config = replace(found.config, rank=0)
    return WeightsFile(
        path=found.path, architecture=found.architecture, config=config, weights=found.weights, ends=found.ends
    )


_refused: Final = refused_with(EngineError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One row of the table."""

    names: Mapping[str, str | None]
    """Name in the file, N for a layer's number -> our name with N; None: not needed."""
    config: Callable[[Mapping[str, Any], Mapping[str, Array]], Config]
    expected: Callable[[Any], Mapping[str, tuple[int, ...]]]
    """Sizes -> our name -> shape of every weight."""
    arranged: Callable[[str, Array, Mapping[str, Any]], Array] = lambda _name, array, _sizes: array
    prefixes: tuple[str, ...] = ()
    """Prefixes of names in the file that mean nothing."""

    def name_of(self, stored: str) -> str | None:
        """Return our name, None for what is not needed, empty for what is unknown."""
        for prefix in self.prefixes:
            stored = stored.removeprefix(prefix)
        number = re.search(r"\.(\d+)\.", f".{stored}")
        pattern = stored if number is None else stored.replace(f"{number[1]}.", "N.", 1)
        if pattern not in self.names:
            return ""
        ours = self.names[pattern]
        return ours if ours is None or number is None else ours.replace("N", number[1], 1)

    def stored_as(self, ours: str) -> str:
        """Return the name in the file, without a prefix, of what has our name."""
        number = re.match(r"layer\.(\d+)\.", ours)
        pattern = ours if number is None else ours.replace(number[1], "N", 1)
        stored = next(stored for stored, name in self.names.items() if name == pattern)
        return stored if number is None else stored.replace("N", number[1], 1)


def _gguf(path: Path) -> Opened:
    from gguf import GGUFReader  # noqa: PLC0415 - only who reads such a file needs it
    from gguf.quants import dequantize  # noqa: PLC0415 - as above

    with refusing(str(path), "GGUF file", refusal=_refused):
        check_header(path)
        reader = GGUFReader(path)
        fields = {
            name: field.contents()
            for name, field in reader.fields.items()
            if name == EOS or not name.startswith("tokenizer.")
        }
    architecture = str(fields.get("general.architecture", ""))
    sizes = {name.removeprefix(f"{architecture}."): value for name, value in fields.items()}

    def load(tensor: Any) -> Array:
        try:
            made: Array = dequantize(tensor.data, tensor.tensor_type)
        except (NotImplementedError, ValueError) as error:
            raise EngineError(
                f"{path}: tensor {tensor.name!r} of type {tensor.tensor_type.name} is not decoded: {error}"
            ) from None
        return made.reshape(tuple(int(n) for n in reversed(tensor.shape)))

    tensors = ((tensor.name, partial(load, tensor)) for tensor in reader.tensors)
    return architecture, sizes, tensors


def _safetensors(path: Path) -> Opened:
    folder = path if path.is_dir() else path.parent
    files = _model_files(path) if path.is_dir() else [path]
    if not files:
        raise EngineError(f"{path}: holds no *.safetensors")
    said = folder / "config.json"  # it says what the tensors are
    data = content(said, CEILINGS["settings"], refusal=_refused)
    sizes: dict[str, Any] = record_of(data, dict[str, Any], str(said), what="JSON object", refusal=_refused)
    return str(sizes.get("model_type", "")), sizes, _stored(files)


def _model_files(folder: Path) -> list[Path]:
    """Return the files of a model in a folder: those named `model*.safetensors`, else all."""
    return sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("*.safetensors"))


def _stored(files: list[Path]) -> Tensors:
    import ml_dtypes  # noqa: F401, PLC0415 - gives numpy the bfloat16 that safetensors asks it for
    from safetensors import safe_open  # noqa: PLC0415 - as above

    for path in files:
        with refusing(str(path), "safetensors file", refusal=_refused), safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                yield name, partial(_stored_as_f32, file, name)


def _stored_as_f32(file: Any, name: str) -> Array:
    stored: Array = file.get_tensor(name)
    if stored.dtype.name not in ("float16", "bfloat16", "float32", "float64"):
        raise ValueError(f"tensor {name!r} holds {stored.dtype.name}, no floating numbers")
    return stored.astype(np.float32)


def _check(path: str, expected: Mapping[str, tuple[int, ...]], weights: Mapping[str, Array]) -> None:
    if missing := next((name for name in expected if name not in weights), None):
        raise EngineError(f"{path}: has no {missing}")
    for name, array in weights.items():
        if name not in expected:
            raise EngineError(f"{path}: {name} {list(array.shape)} has no place in a model of these sizes")
        if array.shape != expected[name]:
            raise EngineError(f"{path}: {name} is {list(array.shape)}; {list(expected[name])} is needed")


def _llama_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    d, kv = config.hidden, config.kv_heads * config.head_size
    made: dict[str, tuple[int, ...]] = {"token_embd": (config.vocab, d), "output_norm": (d,)}
    if not config.tied:
        made["output.weight"] = (config.vocab, d)
    of_layer = {
        "attn_norm": (d,), "attn_q.weight": (d, d), "attn_k.weight": (kv, d), "attn_v.weight": (kv, d), "attn_output.weight": (d, d),
        "ffn_norm": (d,), "ffn_gate.weight": (config.ffn, d), "ffn_up.weight": (config.ffn, d), "ffn_down.weight": (d, config.ffn),
    }  # fmt: skip
    return made | {f"layer.{layer}.{name}": shape for layer in range(config.layers) for name, shape in of_layer.items()}


def _gpt2_shapes(config: GPT2Config) -> dict[str, tuple[int, ...]]:
    c = config.channels
    made: dict[str, tuple[int, ...]] = {"token_embd": (config.vocab, c), "position_embd": (config.positions, c)}
    made |= {"output_norm.gain": (c,), "output_norm.bias": (c,)}
    of_layer: dict[str, tuple[int, ...]] = {
        f"{norm}.{part}": (c,) for norm in ("attn_norm", "ffn_norm") for part in ("gain", "bias")
    }
    for name, fan_out, fan_in in (
        ("attn_qkv", 3 * c, c),
        ("attn_output", c, c),
        ("ffn_up", 4 * c, c),
        ("ffn_down", c, 4 * c),
    ):
        of_layer |= {f"{name}.weight": (fan_out, fan_in), f"{name}.bias": (fan_out,)}
    return made | {f"layer.{layer}.{name}": shape for layer in range(config.layers) for name, shape in of_layer.items()}


EOS: Final = "tokenizer.ggml.eos_token_id"
"""Where a GGUF file says which token ends a text."""

_LARGEST: Final = 1 << 31
"""Of any size that a file says."""


def _whole(sizes: Mapping[str, Any], name: str, otherwise: str | None = None) -> int:
    """Return a size, that of `otherwise` where there is none.

    KeyError if it is missing, ValueError if it is none.
    """
    value = sizes.get(name)
    if value is None and otherwise is not None:
        return _whole(sizes, otherwise)
    if value is None:
        raise KeyError(name)
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}; a whole number of at least 1 is needed")
    if value > _LARGEST:
        raise ValueError(f"{name} is {value!r}; {_LARGEST} is the most")
    return int(value)


def _real(sizes: Mapping[str, Any], name: str, otherwise: float | None = None) -> float:
    """Return a positive number, or `otherwise`; KeyError if missing, ValueError if it is none."""
    value = sizes.get(name)
    if value is None and otherwise is not None:
        return otherwise
    if value is None:
        raise KeyError(name)
    if not isinstance(value, (int, float, np.floating)) or not 0 < value < inf:
        raise ValueError(f"{name} is {value!r}; a number above 0 is needed")
    return float(value)


def _only(sizes: Mapping[str, Any], **known: Any) -> None:
    """Raise ValueError where the file asks for what the graph does not compute.

    What it leaves out or leaves null is as we have it.
    """
    for name, value in known.items():
        if sizes.get(name) not in (None, value):
            raise ValueError(f"{name} is {sizes[name]!r}; only {value!r} is computed")


def _llama_gguf(sizes: Mapping[str, Any], weights: Mapping[str, Array]) -> LlamaConfig:
    size = _whole(sizes, "embedding_length") // _whole(sizes, "attention.head_count")
    _only(sizes, **{"rope.scaling.type": "none", "rope.dimension_count": size, "attention.key_length": size})
    return LlamaConfig(
        layers=_whole(sizes, "block_count"),
        hidden=_whole(sizes, "embedding_length"),
        ffn=_whole(sizes, "feed_forward_length"),
        heads=_whole(sizes, "attention.head_count"),
        kv_heads=_whole(sizes, "attention.head_count_kv", "attention.head_count"),
        vocab=len(_needed(weights, "token_embd")),
        rope_theta=_real(sizes, "rope.freq_base", 10000.0),
        eps=_real(sizes, "attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in weights,
    )


def _llama_hf(sizes: Mapping[str, Any], weights: Mapping[str, Array]) -> LlamaConfig:
    rope = {**(sizes.get("rope_parameters") or {}), **(sizes.get("rope_scaling") or {})}
    scaled = rope.get("rope_type", rope.get("type", "default"))
    _only({**sizes, "rope_scaling": scaled}, rope_scaling="default", hidden_act="silu", partial_rotary_factor=1)
    if sizes.get("head_dim") is not None:
        _only(sizes, head_dim=_whole(sizes, "hidden_size") // _whole(sizes, "num_attention_heads"))
    if sizes.get("tie_word_embeddings") is False:
        _needed(weights, "output.weight")
    return LlamaConfig(
        layers=_whole(sizes, "num_hidden_layers"),
        hidden=_whole(sizes, "hidden_size"),
        ffn=_whole(sizes, "intermediate_size"),
        heads=_whole(sizes, "num_attention_heads"),
        kv_heads=_whole(sizes, "num_key_value_heads", "num_attention_heads"),
        vocab=len(_needed(weights, "token_embd")),
        rope_theta=_real({**rope, **sizes}, "rope_theta", 10000.0),
        eps=_real(sizes, "rms_norm_eps"),
        tied="output.weight" not in weights,
    )


def _gpt2_gguf(sizes: Mapping[str, Any], weights: Mapping[str, Array]) -> GPT2Config:
    return GPT2Config(
        layers=_whole(sizes, "block_count"),
        channels=_whole(sizes, "embedding_length"),
        heads=_whole(sizes, "attention.head_count"),
        vocab=len(_needed(weights, "token_embd")),
        positions=len(_needed(weights, "position_embd")),
        eps=_real(sizes, "attention.layer_norm_epsilon"),
    )


def _gpt2_hf(sizes: Mapping[str, Any], weights: Mapping[str, Array]) -> GPT2Config:
    _only(sizes, activation_function="gelu_new", scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False)
    return GPT2Config(
        layers=_whole(sizes, "n_layer"),
        channels=_whole(sizes, "n_embd"),
        heads=_whole(sizes, "n_head"),
        vocab=len(_needed(weights, "token_embd")),
        positions=len(_needed(weights, "position_embd")),
        eps=_real(sizes, "layer_norm_epsilon", 1e-5),
    )


def _needed(weights: Mapping[str, Array], name: str) -> Array:
    if name not in weights:
        raise KeyError(f"its {name}")
    return weights[name]


def _in_pairs(name: str, array: Array, sizes: Mapping[str, Any]) -> Array:
    """Return q and k with the two halves of each head interleaved."""
    if not name.endswith(("attn_q.weight", "attn_k.weight")):
        return array
    q = name.endswith("attn_q.weight")
    heads = _whole(sizes, *(("num_attention_heads",) if q else ("num_key_value_heads", "num_attention_heads")))
    rows = array.shape[0] if array.ndim == 2 else 0
    if heads < 1 or not rows or rows % (2 * heads):
        raise ValueError(f"{name} is {list(array.shape)}; {heads} heads cannot share its rows in pairs")
    return pairwise(array, heads)


def heads_in_rows(config: LlamaConfig, name: str) -> int | None:
    """Return how many heads the rows of one of our weights are shared by, if safetensors has them
    in halves: those of q and k.
    """
    of_heads = {".attn_q.": config.heads, ".attn_k.": config.kv_heads}
    return next((heads for part, heads in of_heads.items() if part in name), None)


def pairwise(array: Array, heads: int) -> Array:
    """Return rows [heads * hd, n] with the two halves of each head interleaved.

    Rope by halves becomes rope by pairs.
    """
    rows, columns = array.shape
    return array.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def halves(array: Array, heads: int) -> Array:
    """Return what `pairwise` makes the same rows of."""
    rows, columns = array.shape
    return array.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _transposed(name: str, array: Array, sizes: Mapping[str, Any]) -> Array:
    del sizes
    return array.T if name.startswith("layer.") and name.endswith(".weight") else array


_LLAMA_GGUF: Final = {
    "token_embd.weight": "token_embd",
    "output_norm.weight": "output_norm",
    "output.weight": "output.weight",
    **{f"blk.N.{norm}.weight": f"layer.N.{norm}" for norm in ("attn_norm", "ffn_norm")},
    **{
        f"blk.N.{name}.weight": f"layer.N.{name}.weight"
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    },
}

_LLAMA_HF: Final = {
    "embed_tokens.weight": "token_embd",
    "norm.weight": "output_norm",
    "lm_head.weight": "output.weight",
    "layers.N.self_attn.rotary_emb.inv_freq": None,
    "layers.N.input_layernorm.weight": "layer.N.attn_norm",
    "layers.N.post_attention_layernorm.weight": "layer.N.ffn_norm",
    "layers.N.self_attn.q_proj.weight": "layer.N.attn_q.weight",
    "layers.N.self_attn.k_proj.weight": "layer.N.attn_k.weight",
    "layers.N.self_attn.v_proj.weight": "layer.N.attn_v.weight",
    "layers.N.self_attn.o_proj.weight": "layer.N.attn_output.weight",
    "layers.N.mlp.gate_proj.weight": "layer.N.ffn_gate.weight",
    "layers.N.mlp.up_proj.weight": "layer.N.ffn_up.weight",
    "layers.N.mlp.down_proj.weight": "layer.N.ffn_down.weight",
}


def _with_bias(stored: str, ours: str, weight: str = "weight") -> dict[str, str | None]:
    return {f"{stored}.weight": f"{ours}.{weight}", f"{stored}.bias": f"{ours}.bias"}


_GPT2_GGUF: Final[dict[str, str | None]] = {
    "token_embd.weight": "token_embd",
    "position_embd.weight": "position_embd",
    "output.weight": None,
    **_with_bias("output_norm", "output_norm", "gain"),
    **_with_bias("blk.N.attn_norm", "layer.N.attn_norm", "gain"),
    **_with_bias("blk.N.ffn_norm", "layer.N.ffn_norm", "gain"),
    **_with_bias("blk.N.attn_qkv", "layer.N.attn_qkv"),
    **_with_bias("blk.N.attn_output", "layer.N.attn_output"),
    **_with_bias("blk.N.ffn_up", "layer.N.ffn_up"),
    **_with_bias("blk.N.ffn_down", "layer.N.ffn_down"),
}

_GPT2_HF: Final[dict[str, str | None]] = {
    "wte.weight": "token_embd",
    "wpe.weight": "position_embd",
    "lm_head.weight": None,
    "h.N.attn.bias": None,
    "h.N.attn.masked_bias": None,
    **_with_bias("ln_f", "output_norm", "gain"),
    **_with_bias("h.N.ln_1", "layer.N.attn_norm", "gain"),
    **_with_bias("h.N.ln_2", "layer.N.ffn_norm", "gain"),
    **_with_bias("h.N.attn.c_attn", "layer.N.attn_qkv"),
    **_with_bias("h.N.attn.c_proj", "layer.N.attn_output"),
    **_with_bias("h.N.mlp.c_fc", "layer.N.ffn_up"),
    **_with_bias("h.N.mlp.c_proj", "layer.N.ffn_down"),
}

ARCHITECTURES: Final[dict[tuple[str, str], Architecture]] = {
    ("gguf", "llama"): Architecture(names=_LLAMA_GGUF, config=_llama_gguf, expected=_llama_shapes),
    ("gguf", "gpt2"): Architecture(names=_GPT2_GGUF, config=_gpt2_gguf, expected=_gpt2_shapes),
    ("safetensors", "llama"): Architecture(
        names=_LLAMA_HF, config=_llama_hf, expected=_llama_shapes, arranged=_in_pairs, prefixes=("model.",)
    ),
    ("safetensors", "gpt2"): Architecture(
        names=_GPT2_HF, config=_gpt2_hf, expected=_gpt2_shapes, arranged=_transposed, prefixes=("transformer.",)
    ),
}
"""(kind of file, architecture) -> how to read it."""
