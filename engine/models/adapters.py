"""Adapters (LoRA) of a llama in files: PEFT's folder and llama.cpp's GGUF, in and out; and merged.

    found = read("out/adapter", config)             # a folder with adapter_config.json, or a .gguf
    found.config, found.weights                     # the config with rank, alpha and targets; the factors
    config, weights = merged(found.config, {**base, **found.weights})

A projection p(h) with an adapter is p(h) + alpha / rank * lora_b(lora_a(h)). In a file each target
of each layer has both factors, `lora_a` [rank, in] and `lora_b` [out, rank]. PEFT names modules as
transformers does and keeps rows of q and k in halves, GGUF's are in pairs, as ours are
(`engine.models.weights`). What PEFT can say and this does not compute (DoRA, ranks of their own,
biases, adapters of some layers or other modules, other weights below) is refused.

What this module does not see: graphs, training.
"""

import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, sqrt
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.files.gate import CEILINGS, content, record_of, refused_with, refusing
from engine.models.gguf_header import check_header
from engine.models.llama import PROJECTIONS, LlamaConfig
from engine.models.weights import ARCHITECTURES, halves, heads_in_rows, pairwise

Array = NDArray[Any]

PEFT_CONFIG: Final = "adapter_config.json"
PEFT_WEIGHTS: Final = "adapter_model.safetensors"
GGUF: Final = "adapter.gguf"
FACTORS: Final = ("lora_a", "lora_b")

_refused: Final = refused_with(EngineError)
_HF: Final = ARCHITECTURES["safetensors", "llama"]
_TARGET_OF: Final = {name: target for target, name in PROJECTIONS.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdapterFile:
    """Adapters read from a file."""

    path: str
    config: LlamaConfig
    """The model's, with rank, alpha and targets of the adapters."""
    weights: Mapping[str, Array]
    """`layer.N.attn_q.lora_a` and so on, f32."""


def read(path: str | Path, config: LlamaConfig) -> AdapterFile:
    """Return the adapters in a folder of PEFT or a GGUF file, for a model of these sizes. O(bytes).

    Raises EngineError, with file and rule, for what is no such file, a factor that is missing or
    misshapen, and what is not computed here.
    """
    place = Path(path)
    if not place.exists():
        raise EngineError(f"{path}: there is no such file")
    load = _from_gguf if place.suffix == ".gguf" else _from_peft
    with refusing(str(path), "adapter", refusal=_refused):
        alpha, weights = load(place, config)
    ranks = {array.shape[0] for name, array in weights.items() if name.endswith(".lora_a")}
    targets = {_TARGET_OF[name.split(".")[2]] for name in weights}
    if len(ranks) != 1:
        raise EngineError(f"{path}: adapters of ranks {sorted(ranks)}; those of one rank are computed")
    (rank,) = ranks
    if not rank or not 0 < alpha < inf:
        raise EngineError(f"{path}: rank {rank} and alpha {alpha}; both must be above 0")
    adapted = replace(config, rank=rank, alpha=alpha, targets=tuple(t for t in PROJECTIONS if t in targets))
    wanted = shapes(adapted)
    for name, shape in wanted.items():
        if name not in weights:
            raise EngineError(f"{path}: has no {name}; a target is adapted in all {config.layers} layers")
        if weights[name].shape != shape:
            raise EngineError(f"{path}: {name} is {list(weights[name].shape)}; {list(shape)} is needed")
    if extra := next((name for name in weights if name not in wanted), None):
        raise EngineError(f"{path}: {extra} has no place in a model of {config.layers} layers")
    return AdapterFile(path=str(path), config=adapted, weights=weights)


def shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each factor of a model with adapters."""
    sizes = _HF.expected(config)
    made: dict[str, tuple[int, ...]] = {}
    for layer in range(config.layers):
        for target in config.targets if config.rank else ():
            name = f"layer.{layer}.{PROJECTIONS[target]}"
            wide, deep = sizes[f"{name}.weight"]
            made |= {f"{name}.lora_a": (config.rank, deep), f"{name}.lora_b": (wide, config.rank)}
    return made


def merged(config: LlamaConfig, weights: Mapping[str, Array]) -> tuple[LlamaConfig, dict[str, Array]]:
    """Return the model without adapters that computes the same: p + alpha / rank * lora_b @ lora_a.

    Sums are taken in float64 and rounded once.
    """
    adapters = shapes(config)
    made = {name: array for name, array in weights.items() if name not in adapters}
    for name in adapters:
        stem, _, factor = name.rpartition(".")
        if factor == "lora_b":
            low, high = (weights[f"{stem}.{each}"].astype(np.float64) for each in FACTORS)
            full = made[f"{stem}.weight"]
            made[f"{stem}.weight"] = (full + config.alpha / config.rank * (high @ low)).astype(full.dtype)
    return replace(config, rank=0, alpha=1.0, dropout=0.0), made


def files(config: LlamaConfig, weights: Mapping[str, Array]) -> dict[str, bytes]:
    """Return PEFT's two files and the GGUF one, by name: float32, for any base of these sizes."""
    factors = {name: np.ascontiguousarray(weights[name], np.float32) for name in shapes(config)}
    return {**_peft(config, factors), GGUF: _gguf(config, factors)}


# ---------------------------------------------------------------------------------------------------------------- PEFT

_PREFIX: Final = "base_model.model.model."


def _arranged(config: LlamaConfig, name: str, array: Array, how: Callable[[Array, int], Array]) -> Array:
    """Return a factor with rows of q and k rearranged; only `lora_b` has one for each."""
    heads = heads_in_rows(config, name)
    return array if heads is None or name.endswith(".lora_a") else np.ascontiguousarray(how(array, heads))


def _module(projection: str) -> str:
    return _HF.stored_as(f"{projection}.weight").removesuffix(".weight")


def _peft(config: LlamaConfig, factors: Mapping[str, Array]) -> dict[str, bytes]:
    from safetensors.numpy import save  # noqa: PLC0415 - only who writes such a file needs it

    said = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": None, "inference_mode": True,
        "r": config.rank, "lora_alpha": config.alpha, "lora_dropout": config.dropout, "bias": "none", "fan_in_fan_out": False,
        "target_modules": [_module(f"layer.0.{PROJECTIONS[target]}").rpartition(".")[2] for target in config.targets],
    }  # fmt: skip
    tensors = {}
    for name, array in factors.items():
        projection, _, factor = name.rpartition(".")
        stored = (
            f"{_PREFIX}{_module(projection)}.{factor.replace('lora_a', 'lora_A').replace('lora_b', 'lora_B')}.weight"
        )
        tensors[stored] = _arranged(config, name, array, halves)
    return {
        PEFT_CONFIG: (json.dumps(said, indent=1) + "\n").encode(),
        PEFT_WEIGHTS: save(dict(sorted(tensors.items())), metadata={"format": "pt"}),
    }


SILENT: Final = frozenset({
    *("auto_mapping", "base_model_name_or_path", "base_model_class", "parent_library", "revision", "task_type", "peft_type", "peft_version"),
    *("r", "lora_alpha", "lora_dropout", "use_rslora", "target_modules", "init_lora_weights", "inference_mode"),
    *("eva_config", "megatron_core", "qalora_group_size", "layers_pattern"),
})  # fmt: skip
"""Entries of PEFT's file that are looked at by name, or say nothing of what an adapter computes."""

STARTS: Final = (None, True, False, "gaussian", "orthogonal", "eva")
"""Ways to begin an adapter that leave the weights below it as they are."""


def _from_peft(folder: Path, config: LlamaConfig) -> tuple[float, dict[str, Array]]:
    from safetensors.numpy import load_file  # noqa: PLC0415 - as above

    place = folder / PEFT_CONFIG
    data = content(place, CEILINGS["settings"], refusal=_refused)
    said: dict[str, Any] = record_of(data, dict[str, Any], str(place), what="JSON object", refusal=_refused)
    if said.get("peft_type") != "LORA":
        raise EngineError(f"{place}: peft_type is {said.get('peft_type')!r}; LORA is read")
    for name, value in said.items():
        if name not in SILENT and value and (name, value) != ("bias", "none"):
            raise EngineError(f"{place}: {name} is {value!r}; it is not computed")
    if said.get("init_lora_weights") not in STARTS:
        raise EngineError(
            f"{place}: init_lora_weights is {said['init_lora_weights']!r}, which changes the weights below it"
        )
    rank, alpha = (_positive(place, name, said.get(name)) for name in ("r", "lora_alpha"))
    by_root = said.get("use_rslora") or False
    if not isinstance(by_root, bool):
        raise EngineError(f"{place}: use_rslora is {by_root!r}; true or false is needed")
    weights: dict[str, Array] = {}
    modules = set()
    for stored, array in load_file(folder / PEFT_WEIGHTS).items():
        found = re.fullmatch(r"base_model\.model\.(.+)\.lora_([AB])(?:\.default)?\.weight", stored)
        ours = _HF.name_of(f"{found[1]}.weight") if found else ""
        if not found or not ours or ours.split(".")[-2] not in _TARGET_OF:
            raise EngineError(f"{folder}: tensor {stored!r} is no adapter of a llama")
        name = f"{ours.removesuffix('.weight')}.lora_{found[2].lower()}"
        if name in weights:
            raise EngineError(f"{folder}: has two tensors for {name}, one of them {stored!r}")
        weights[name] = _factor(config, name, array, pairwise)
        modules.add(found[1])
        if name.endswith("lora_a") and len(array) != rank:
            raise EngineError(f"{folder}: r is {rank:g}, and {stored!r} is {list(array.shape)}")
    _check_modules(place, said.get("target_modules"), modules)
    return (alpha * sqrt(rank) if by_root else alpha), weights


def _check_modules(place: Path, asked: object, modules: set[str]) -> None:
    """Raise EngineError where PEFT would not lay the tensors over the modules that they name."""
    if isinstance(asked, str):
        unasked = [] if asked == "all-linear" else [one for one in sorted(modules) if not re.fullmatch(asked, one)]
    elif isinstance(asked, list) and all(isinstance(one, str) for one in asked):
        unasked = [one for one in sorted(modules) if not any(one == end or one.endswith(f".{end}") for end in asked)]
    else:
        raise EngineError(f"{place}: target_modules is {asked!r}; names of modules are needed")
    if unasked:
        raise EngineError(f"{place}: target_modules is {asked!r}, and there is an adapter of {unasked[0]}")


def _positive(place: Path, name: str, number: object) -> float:
    if not isinstance(number, int | float) or isinstance(number, bool) or not 0 < number < inf:
        raise EngineError(f"{place}: {name} is {number!r}; a number above 0 is needed")
    return float(number)


def _factor(config: LlamaConfig, name: str, array: Array, how: Callable[[Array, int], Array] | None) -> Array:
    """Return a factor of a file as float32, its rows as ours are."""
    if array.ndim != 2 or array.dtype.name not in ("float16", "bfloat16", "float32", "float64"):
        raise EngineError(f"{name} is {array.dtype}{list(array.shape)}; a matrix of floating numbers is needed")
    plain = array.astype(np.float32)
    if not np.isfinite(plain).all():
        raise EngineError(f"{name} holds numbers that are not finite")
    return np.ascontiguousarray(plain if how is None else _arranged(config, name, plain, how))


# ---------------------------------------------------------------------------------------------------------------- GGUF


def _gguf(config: LlamaConfig, factors: Mapping[str, Array]) -> bytes:
    from gguf import GGUFWriter  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / GGUF
        writer = GGUFWriter(place, "llama")
        writer.add_type("adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", config.alpha)
        for name, array in factors.items():
            _, layer, projection, factor = name.split(".")
            writer.add_tensor(f"blk.{layer}.{projection}.weight.{factor}", array)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return content(place, CEILINGS["stream"], refusal=_refused)


def _from_gguf(path: Path, config: LlamaConfig) -> tuple[float, dict[str, Array]]:
    from gguf import GGUFReader  # noqa: PLC0415 - as above
    from gguf.quants import dequantize  # noqa: PLC0415 - as above

    check_header(path)
    reader = GGUFReader(path)
    said = {name: field.contents() for name, field in reader.fields.items()}
    kind = tuple(said.get(name) for name in ("general.type", "adapter.type", "general.architecture"))
    if kind != ("adapter", "lora", "llama"):
        raise EngineError(f"{path}: is {' '.join(map(str, kind))}; a LoRA adapter of a llama is read")
    if "adapter.lora.alpha" not in said:
        raise EngineError(f"{path}: does not say adapter.lora.alpha")
    weights: dict[str, Array] = {}
    for tensor in reader.tensors:
        found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight\.(lora_[ab])", tensor.name)
        if not found or found[2] not in _TARGET_OF:
            raise EngineError(f"{path}: tensor {tensor.name!r} is no adapter of a llama")
        name = f"layer.{found[1]}.{found[2]}.{found[3]}"
        if name in weights:
            raise EngineError(f"{path}: has two tensors for {name}")
        whole = dequantize(tensor.data, tensor.tensor_type).reshape(tuple(int(n) for n in reversed(tensor.shape)))
        weights[name] = _factor(config, name, whole, None)
    return float(said["adapter.lora.alpha"]), weights
