"""Adapters and models in files: what is written is read back to the same bits, by us and by the libraries of others, and merged adapters compute the same."""

import json
from dataclasses import replace

import numpy as np
import pytest
from gguf import GGUFReader
from gguf_models import write_model
from safetensors.numpy import load, load_file, save_file

from allocsim.errors import EngineError
from engine.generation import Decoder
from engine.models import adapters, gpt2, llama, model_files, weights

SIZES = llama.LlamaConfig(layers=2, hidden=24, ffn=20, heads=4, kv_heads=2, vocab=30, rank=3, alpha=5.0)
EVERY = tuple(llama.PROJECTIONS)


def drawn(config, seed=1):
    made = llama.init_parameters(config, seed=seed)
    del made[llama.HYPER]
    return made


def written(folder, files):
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("targets", [("q", "v"), ("k",), EVERY])
@pytest.mark.parametrize("name", [".", adapters.GGUF])
def test_adapters_come_back_to_the_same_bits(tmp_path, targets, name):
    config = replace(SIZES, targets=targets)
    given = drawn(config)
    read = adapters.read(written(tmp_path, adapters.files(config, given)) / name, replace(SIZES, rank=0))

    assert read.config == config
    assert set(read.weights) == set(adapters.shapes(config))
    assert all(np.array_equal(array, given[name]) for name, array in read.weights.items())


def test_the_files_are_what_other_programs_read(tmp_path):
    """PEFT's names, q and k by halves as transformers has them; llama.cpp's names and keys."""
    config = replace(SIZES, targets=("q", "down"))
    given = drawn(config)
    folder = written(tmp_path, adapters.files(config, given))
    said, stored = (
        json.loads((folder / "adapter_config.json").read_text()),
        load_file(folder / "adapter_model.safetensors"),
    )
    reader = GGUFReader(folder / "adapter.gguf")

    assert (said["peft_type"], said["r"], said["lora_alpha"], said["target_modules"]) == (
        "LORA",
        3,
        5.0,
        ["q_proj", "down_proj"],
    )
    prefix = "base_model.model.model.layers.1."
    assert {name for name in stored if name.startswith(prefix)} == {
        f"{prefix}{module}.lora_{factor}.weight" for module in ("self_attn.q_proj", "mlp.down_proj") for factor in "AB"
    }
    ours = given["layer.1.attn_q.lora_b"].reshape(4, 3, 2, 3)  # heads, pairs, two of a pair, rank
    theirs = stored[f"{prefix}self_attn.q_proj.lora_B.weight"].reshape(4, 2, 3, 3)
    assert np.array_equal(ours.swapaxes(1, 2), theirs)
    keys = {
        name: reader.fields[name].contents()
        for name in ("general.type", "general.architecture", "adapter.type", "adapter.lora.alpha")
    }
    assert keys == {
        "general.type": "adapter",
        "general.architecture": "llama",
        "adapter.type": "lora",
        "adapter.lora.alpha": 5.0,
    }
    tensors = {tensor.name: np.array(tensor.data) for tensor in reader.tensors}
    assert len(tensors) == 8
    assert np.array_equal(tensors["blk.1.attn_q.weight.lora_b"], given["layer.1.attn_q.lora_b"])


def logits(config, given):
    with Decoder(config, given, pages=4) as decoder:
        return decoder.step([decoder.sequence([3, 1, 4, 1, 5, 9, 2, 6])])


def test_merged_adapters_compute_the_same():
    config = replace(SIZES, targets=EVERY)
    given = drawn(config)
    plain, merged = adapters.merged(config, given)

    assert plain.rank == 0
    assert set(merged) == set(drawn(replace(SIZES, rank=0)))
    np.testing.assert_allclose(logits(plain, merged), logits(config, given), rtol=0, atol=3e-5)
    assert np.abs(logits(plain, merged) - logits(replace(config, alpha=1.0), given)).max() > 1e-3


@pytest.mark.parametrize("tied", [True, False])
def test_a_llama_comes_back_to_the_same_bits(tmp_path, tied):
    config = replace(SIZES, rank=0, tied=tied)
    given = drawn(config)
    found = weights.read_llama(written(tmp_path, model_files.files(config, given)))

    assert replace(found.config, targets=config.targets, alpha=config.alpha) == config
    assert set(found.weights) == set(given)
    assert all(np.array_equal(array, given[name]) for name, array in found.weights.items())
    assert ("lm_head.weight" in load((tmp_path / "model.safetensors").read_bytes())) != tied


def test_a_gpt2_comes_back_to_the_same_bits(tmp_path):
    config = gpt2.GPT2Config(layers=2, channels=16, heads=2, vocab=20, positions=12)
    given = gpt2.init_parameters(config, seed=3)
    found = weights.read(written(tmp_path, model_files.files(config, given)))

    assert found.config == config
    assert all(np.array_equal(array, given[name]) for name, array in found.weights.items())
    assert len(found.weights) == len(given)


def test_scaling_by_the_root_of_the_rank_is_an_alpha(tmp_path):
    config = replace(SIZES, rank=4)
    folder = written(tmp_path, adapters.files(config, drawn(config)))
    said = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**said, "use_rslora": True}))

    assert adapters.read(folder, SIZES).config.alpha == 10.0


WRONG = [
    ({"peft_type": "IA3"}, "peft_type is 'IA3'; LORA is read"),
    ({"use_dora": True}, "use_dora is True; it is not computed"),
    ({"bias": "all"}, "bias is 'all'; it is not computed"),
    ({"rank_pattern": {"q_proj": 2}}, "rank_pattern is {'q_proj': 2}; it is not computed"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save is ['lm_head']; it is not computed"),
    ({"layers_to_transform": [0]}, "layers_to_transform is [0]; it is not computed"),
    ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens is [1]; it is not computed"),
    ({"of_a_later_version": 1}, "of_a_later_version is 1; it is not computed"),
    ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa', which changes the weights below it"),
    (
        {"target_modules": ["q_proj"]},
        "target_modules is ['q_proj'], and there is an adapter of model.layers.0.self_attn.v_proj",
    ),
    ({"target_modules": ".*mlp.*"}, "and there is an adapter of model.layers.0.self_attn.q_proj"),
    ({"target_modules": None}, "target_modules is None; names of modules are needed"),
    ({"use_rslora": "false"}, "use_rslora is 'false'; true or false is needed"),
    ({"r": 64}, "r is 64, and "),
    ({"r": 0}, "r is 0; a number above 0 is needed"),
    ({"lora_alpha": "16"}, "lora_alpha is '16'; a number above 0 is needed"),
]


@pytest.mark.parametrize(("change", "line"), WRONG)
def test_what_is_not_computed_is_refused(tmp_path, change, line):
    folder = written(tmp_path, adapters.files(SIZES, drawn(SIZES)))
    said = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**said, **change}))
    with pytest.raises(EngineError) as refused:
        adapters.read(folder, SIZES)

    assert line in str(refused.value)


Q = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({Q: None}, "has no layer.0.attn_q.lora_a; a target is adapted in all 2 layers"),
        ({Q: np.zeros((3, 23), "f4")}, "layer.0.attn_q.lora_a is [3, 23]; [3, 24] is needed"),
        ({Q: np.zeros((2, 24), "f4")}, "r is 3, and "),
        ({Q: np.zeros((3, 24), "i4")}, "layer.0.attn_q.lora_a is int32[3, 24]; a matrix of floating numbers is needed"),
        (
            {Q.replace(".0.", ".7."): np.zeros((3, 24), "f4")},
            "layer.7.attn_q.lora_a has no place in a model of 2 layers",
        ),
        (
            {"base_model.model.lm_head.lora_A.weight": np.zeros((3, 24), "f4")},
            "lm_head.lora_A.weight' is no adapter of a llama",
        ),
        ({Q: np.full((3, 24), np.nan, "f4")}, "layer.0.attn_q.lora_a holds numbers that are not finite"),
        ({Q.replace("lora_A", "lora_A.default"): np.zeros((3, 24), "f4")}, "has two tensors for layer.0.attn_q.lora_a"),
        ({"other": np.zeros(3, "f4")}, "tensor 'other' is no adapter of a llama"),
    ],
)
def test_factors_that_do_not_fit_are_refused_by_name(tmp_path, change, line):
    folder = written(tmp_path, adapters.files(SIZES, drawn(SIZES)))
    tensors = {**load_file(folder / "adapter_model.safetensors"), **change}
    save_file(
        {name: array for name, array in tensors.items() if array is not None}, folder / "adapter_model.safetensors"
    )
    with pytest.raises(EngineError) as refused:
        adapters.read(folder, SIZES)

    assert line in str(refused.value)


@pytest.mark.parametrize("damage", ["nothing", "cut", "model"])
def test_a_file_that_is_no_adapter_is_refused_in_a_line(tmp_path, damage):
    folder = written(tmp_path, adapters.files(SIZES, drawn(SIZES)))
    if damage == "model":
        place = write_model(tmp_path / "model.gguf")
    else:
        place = folder / ("none.gguf" if damage == "nothing" else "adapter.gguf")
        if damage == "cut":
            place.write_bytes(place.read_bytes()[:100])
    with pytest.raises(EngineError, match=place.name) as refused:
        adapters.read(place, SIZES)

    assert "\n" not in str(refused.value)
