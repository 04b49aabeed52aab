"""GPT-2 and llama: numbers of PyTorch on the same weights, weights from files, LoRA on any projection."""

import json
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from allocsim.errors import EngineError
from engine.models import gpt2, llama, weights
from engine.models.cnn import cnn
from engine.training import Dataset, Model, Settings, Trainer, fit
from engine.training.data import sequences, shapes

GPT2 = gpt2.GPT2Config(layers=2, channels=32, heads=4, vocab=48, positions=16)
LLAMA = llama.LlamaConfig(layers=2, hidden=32, ffn=48, heads=4, kv_heads=2, vocab=48, rank=0, full=True)
STREAM = np.random.default_rng(0).integers(0, 48, 3 * 8 + 1)
BATCH = dict(sequences(STREAM, seq=8).columns)
TOLERANCE = 1e-4


def lively(parameters, seed=1):
    """Return weights far from their tame beginnings: gains not 1, biases not 0."""
    rng = np.random.default_rng(seed)
    return {
        name: (array * 8 if array.ndim > 1 and array.std() < 0.05 else array + rng.normal(0, 0.2, array.shape)).astype(
            "f4"
        )
        if name != "sgd.hp"
        else array
        for name, array in parameters.items()
    }


def ours(model):
    """Return logits, loss and the gradient of every weight."""
    trainer = Trainer(model)
    outcome = trainer.run("gradient", BATCH)
    return outcome.outputs, outcome.loss, trainer.gradients()


def close(found, want, name):
    np.testing.assert_allclose(found, want, rtol=TOLERANCE, atol=TOLERANCE * float(np.abs(want).max()), err_msg=name)


def judged_by_torch(model, forward):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    given = {name: torch.tensor(array, requires_grad=True) for name, array in model.parameters.items()}
    logits = forward(torch, given, torch.tensor(BATCH["tokens"], dtype=torch.long))
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(BATCH["labels"], dtype=torch.long).reshape(-1))
    loss.backward()
    found, value, gradients = ours(model)
    close(found, logits.detach().numpy(), "logits")
    assert value == pytest.approx(loss.item(), rel=TOLERANCE)
    assert gradients.keys() == given.keys()
    for name, gradient in gradients.items():
        close(gradient, given[name].grad.numpy(), name)


def torch_gpt2(torch, w, tokens):
    f = torch.nn.functional
    sequences_, steps = tokens.shape
    x = w["token_embd"][tokens] + w["position_embd"][:steps]
    for n in range(GPT2.layers):
        p = f"layer.{n}."
        h = f.layer_norm(x, x.shape[-1:], w[p + "attn_norm.gain"], w[p + "attn_norm.bias"], GPT2.eps)
        q, k, v = f.linear(h, w[p + "attn_qkv.weight"], w[p + "attn_qkv.bias"]).split(GPT2.channels, -1)
        q, k, v = (t.view(sequences_, steps, GPT2.heads, -1).transpose(1, 2) for t in (q, k, v))
        a = f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + f.linear(a, w[p + "attn_output.weight"], w[p + "attn_output.bias"])
        h = f.layer_norm(x, x.shape[-1:], w[p + "ffn_norm.gain"], w[p + "ffn_norm.bias"], GPT2.eps)
        h = f.gelu(f.linear(h, w[p + "ffn_up.weight"], w[p + "ffn_up.bias"]), approximate="tanh")
        x = x + f.linear(h, w[p + "ffn_down.weight"], w[p + "ffn_down.bias"])
    x = f.layer_norm(x, x.shape[-1:], w["output_norm.gain"], w["output_norm.bias"], GPT2.eps)
    return (x @ w["token_embd"].T).reshape(-1, GPT2.vocab)


def torch_llama(config, rotate):
    def forward(torch, w, tokens):
        f = torch.nn.functional
        size, (sequences_, steps) = config.hidden // config.heads, tokens.shape

        def rms(x, gain):
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + config.eps) * gain

        def project(h, name):
            y = h @ w[f"{name}.weight"].T
            if f"{name}.lora_a" in w:
                y = y + config.alpha / config.rank * (h @ w[f"{name}.lora_a"].T @ w[f"{name}.lora_b"].T)
            return y

        x = w["token_embd"][tokens]
        for n in range(config.layers):
            p = f"layer.{n}."
            h = rms(x, w[p + "attn_norm"])
            q, k, v = (project(h, f"{p}attn_{t}").view(sequences_, steps, -1, size).transpose(1, 2) for t in "qkv")
            q, k = (rotate(torch, t, config.rope_theta) for t in (q, k))
            k, v = (t.repeat_interleave(config.heads // config.kv_heads, 1) for t in (k, v))
            a = f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
            x = x + project(a, f"{p}attn_output")
            h = rms(x, w[p + "ffn_norm"])
            x = x + project(f.silu(project(h, f"{p}ffn_gate")) * project(h, f"{p}ffn_up"), f"{p}ffn_down")
        x = rms(x, w["output_norm"])
        return (x @ w.get("output.weight", w["token_embd"]).T).reshape(-1, config.vocab)

    return forward


def angles(torch, x, theta):
    size, steps = x.shape[-1], x.shape[-2]
    turn = torch.arange(steps)[:, None] * theta ** (-2.0 * torch.arange(size // 2) / size)
    return torch.cos(turn), torch.sin(turn)


def by_pairs(torch, x, theta):
    cos, sin = angles(torch, x, theta)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def by_halves(torch, x, theta):
    cos, sin = angles(torch, x, theta)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def test_gpt2_is_pytorchs():
    judged_by_torch(gpt2.gpt2(GPT2, lively(gpt2.init_parameters(GPT2, seed=0))), torch_gpt2)


@pytest.mark.parametrize(("tied", "attention"), [(True, "parts"), (False, "parts"), (True, "fused")])
def test_llama_is_pytorchs(tied, attention):
    config = replace(LLAMA, tied=tied, attention=attention)
    judged_by_torch(llama.llama(config, lively(llama.init_parameters(config, seed=0))), torch_llama(config, by_pairs))


@pytest.mark.parametrize("targets", [("q", "v"), ("k", "o", "gate"), tuple(llama.PROJECTIONS)])
def test_adapters_on_any_projection_are_pytorchs(targets):
    config = replace(LLAMA, rank=3, targets=targets, full=True, alpha=6.0)
    judged_by_torch(llama.llama(config, lively(llama.init_parameters(config, seed=0))), torch_llama(config, by_pairs))


def test_only_adapters_are_trained_unless_all_is_asked_for():
    config = replace(LLAMA, rank=3, targets=("q", "down"), full=False)
    model = llama.llama(config, llama.init_parameters(config, seed=0))
    _, _, gradients = ours(model)
    assert sorted(gradients) == [
        f"layer.{n}.{name}.{part}" for n in (0, 1) for name in ("attn_q", "ffn_down") for part in ("lora_a", "lora_b")
    ]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_sequences_of_a_batch_do_not_see_each_other(name):
    model = {
        "gpt2": lambda: gpt2.gpt2(GPT2, lively(gpt2.init_parameters(GPT2, seed=0))),
        "llama": lambda: llama.llama(LLAMA, lively(llama.init_parameters(LLAMA, seed=0))),
    }[name]()
    together, _, _ = ours(model)
    apart = Trainer(model)
    for row in range(3):
        alone = apart.run("forward", {column: array[row : row + 1] for column, array in BATCH.items()})
        close(alone.outputs, together[8 * row : 8 * row + 8], str(row))


def test_a_transformer_learns_a_repeated_text():
    data = sequences(np.tile(STREAM[:13], 40), seq=8)
    fitted = fit(
        gpt2.gpt2(GPT2, gpt2.init_parameters(GPT2, seed=0)),
        Dataset(columns=data.columns),
        Settings(epochs=6, batch=8, hyper={"alpha": 1e-2}, validation=0.2),
    )
    # learning is not chaotic: kernels for SSE2, AVX2 and AVX-512 change the ratio (0.103) in its sixth digit, and no point changes sides
    assert fitted.history[-1].validation.loss < 0.2 * fitted.history[0].training.losses[0]
    assert fitted.history[-1].validation.accuracy > 0.9


def test_a_cnn_is_pytorchs():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    data = shapes(6, size=12, seed=2)
    model = cnn(size=12, classes=4, channels=(3, 5))
    model = Model(name="cnn", build=model.build, parameters=lively(model.parameters))
    trainer = Trainer(model)
    found = trainer.run("gradient", dict(data.columns))
    f, w = (
        torch.nn.functional,
        {name: torch.tensor(array, requires_grad=True) for name, array in model.parameters.items()},
    )
    x = torch.tensor(data.columns["data"])
    for layer in range(2):
        x = f.max_pool2d(f.relu(f.conv2d(x, w[f"conv.{layer}.weight"], w[f"conv.{layer}.bias"], padding=1)), 2)
    logits = f.linear(x.flatten(1), w["dense.weight"], w["dense.bias"])
    loss = f.cross_entropy(logits, torch.tensor(data.columns["labels"], dtype=torch.long))
    loss.backward()
    close(found.outputs, logits.detach().numpy(), "logits")
    assert found.loss == pytest.approx(loss.item(), rel=TOLERANCE)
    for name, gradient in trainer.gradients().items():
        close(gradient, w[name].grad.numpy(), name)


def test_a_cnn_learns_to_tell_shapes_apart():
    fitted = fit(
        cnn(size=12, classes=4),
        shapes(400, size=12),
        Settings(epochs=6, batch=20, validation=0.2, hyper={"alpha": 1e-2}),
    )
    # 76 of 80 points with kernels for SSE2, AVX2 and AVX-512; guessing gets 20, and other weights (20 seeds) get 72 or more
    assert fitted.history[-1].validation.accuracy > 0.9


# --------------------------------------------------------------------------------------------------------------- files

BASE = {
    name: array for name, array in llama.init_parameters(replace(LLAMA, full=True), seed=3).items() if name != "sgd.hp"
}
BOUND = {"F32": 0.0, "F16": 2.0**-11, "BF16": 2.0**-8, "Q8_0": 0.5 / 127 + 2.0**-11}
"""Largest error of an element, relative to it (F16, BF16) or to the largest of its block of 32 (Q8_0: half a step, and the scale's own rounding to
half precision)."""

SMALLEST = {"F16": 2.0**-25}
"""What numbers below the normal range add: half the smallest there is."""


def write_gguf(path, arrays, kind, config=LLAMA, **left_out):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.layers)
    writer.add_embedding_length(config.hidden)
    writer.add_feed_forward_length(config.ffn)
    if not left_out.get("head_count"):
        writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_layer_norm_rms_eps(config.eps)
    writer.add_rope_freq_base(config.rope_theta)
    quant = gguf.GGMLQuantizationType[kind]
    for name, array in arrays.items():
        stored = name.replace("layer.", "blk.")
        stored = stored if stored.endswith(".weight") else f"{stored}.weight"
        if array.ndim == 1:
            writer.add_tensor(stored, array)
        else:
            writer.add_tensor(stored, gguf.quants.quantize(array, quant), raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", BOUND)
def test_gguf_comes_back(tmp_path, kind):
    config = replace(LLAMA, hidden=64, ffn=96)
    base = {name: array for name, array in llama.init_parameters(config, seed=3).items() if name != "sgd.hp"}
    write_gguf(tmp_path / "m.gguf", base, kind, config)
    found = weights.read(tmp_path / "m.gguf")
    assert isinstance(found.config, llama.LlamaConfig)
    assert (found.config.layers, found.config.heads, found.config.kv_heads, found.config.tied) == (2, 4, 2, True)
    assert found.config.eps == pytest.approx(config.eps)
    assert found.weights.keys() == base.keys()
    for name, array in found.weights.items():
        assert array.dtype == np.float32
        scale, bound = np.abs(base[name]), BOUND[kind] if array.ndim > 1 else 0.0
        if kind == "Q8_0" and array.ndim > 1:
            scale = np.repeat(scale.reshape(-1, 32).max(-1), 32).reshape(scale.shape)
        assert (np.abs(array - base[name]) <= bound * scale + SMALLEST.get(kind, 0.0)).all(), name


def halved(array, heads):
    """Return rows by pairs reordered to rows by halves, as Hugging Face keeps them."""
    rows, columns = array.shape
    return array.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


HF_LLAMA = {
    "attn_norm": "input_layernorm.weight", "ffn_norm": "post_attention_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight", "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight", "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight", "ffn_up.weight": "mlp.up_proj.weight", "ffn_down.weight": "mlp.down_proj.weight",
}  # fmt: skip


def write_hf(folder, dtype="float32"):
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    stored = {"model.embed_tokens.weight": BASE["token_embd"], "model.norm.weight": BASE["output_norm"]}
    for name, array in BASE.items():
        if name.startswith("layer."):
            _, number, rest = name.split(".", 2)
            heads = {"attn_q.weight": LLAMA.heads, "attn_k.weight": LLAMA.kv_heads}.get(rest)
            stored[f"model.layers.{number}.{HF_LLAMA[rest]}"] = array if heads is None else halved(array, heads)
    save_file(
        {name: np.ascontiguousarray(array).astype(kind) for name, array in stored.items()}, folder / "model.safetensors"
    )
    said = {
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(said))
    return stored


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 0.0), ("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_safetensors_of_a_llama_come_back_by_pairs(tmp_path, dtype, bound):
    write_hf(tmp_path, dtype)
    for place in (tmp_path, tmp_path / "model.safetensors"):
        found = weights.read(place)
        assert found.config == replace(LLAMA, rank=4, full=False)
        for name, array in found.weights.items():
            assert (np.abs(array - BASE[name]) <= bound * np.abs(BASE[name]) + 2.0**-25 * (bound > 0)).all(), name


def test_rope_by_halves_on_the_file_is_rope_by_pairs_here(tmp_path):
    """The model read from a Hugging Face file computes what that file means, with rope by halves."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    write_hf(tmp_path)
    as_stored = dict(BASE)
    for name, array in BASE.items():
        heads = {"attn_q.weight": LLAMA.heads, "attn_k.weight": LLAMA.kv_heads}.get(name.split(".", 2)[-1])
        as_stored[name] = array if heads is None else halved(array, heads)
    tensors = {name: torch.tensor(array) for name, array in as_stored.items()}
    want = torch_llama(LLAMA, by_halves)(torch, tensors, torch.tensor(BATCH["tokens"], dtype=torch.long))
    read = weights.read(tmp_path)
    found, _, _ = ours(llama.llama(replace(LLAMA), read.weights))
    close(found, want.numpy(), "logits")


def test_safetensors_of_a_gpt2_come_back(tmp_path):
    base = lively(gpt2.init_parameters(GPT2, seed=0))
    names = {
        "attn_norm": "ln_1", "ffn_norm": "ln_2", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
    }  # fmt: skip
    stored = {"wte.weight": base["token_embd"], "wpe.weight": base["position_embd"]}
    stored |= {"ln_f.weight": base["output_norm.gain"], "ln_f.bias": base["output_norm.bias"]}
    for name, array in base.items():
        if name.startswith("layer."):
            _, number, part, what = name.split(".")
            stored[f"h.{number}.{names[part]}.{'weight' if what == 'gain' else what}"] = (
                array.T if array.ndim == 2 else array
            )
    save_file({name: np.ascontiguousarray(array) for name, array in stored.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4}))
    found = weights.read(tmp_path)
    assert found.config == GPT2
    assert found.weights.keys() == base.keys()
    assert all(np.array_equal(array, base[name]) for name, array in found.weights.items())


def bad_file(tmp_path, content):
    (tmp_path / "m.gguf").write_bytes(content)
    return tmp_path / "m.gguf"


def lacking(tmp_path, name):
    write_gguf(tmp_path / "m.gguf", {n: a for n, a in BASE.items() if n != name}, "F32")
    return tmp_path / "m.gguf"


def with_more(tmp_path, name, array):
    write_gguf(tmp_path / "m.gguf", {**BASE, name: array}, "F32")
    return tmp_path / "m.gguf"


def without_heads(tmp_path):
    write_gguf(tmp_path / "m.gguf", BASE, "F32", head_count=True)
    return tmp_path / "m.gguf"


def hf_of(tmp_path, said):
    write_hf(tmp_path)
    (tmp_path / "config.json").write_text(said)
    return tmp_path


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: p / "none.gguf", "there is no such file"),
        (lambda p: bad_file(p, b""), "is no readable GGUF file"),
        (lambda p: bad_file(p, b"GGUF" + b"\3\0\0\0" + b"\xff" * 40), "is no readable GGUF file"),
        (lambda p: bad_file(p, b"nonsense" * 20), "is no readable GGUF file"),
        (lambda p: lacking(p, "layer.1.ffn_up.weight"), "has no layer.1.ffn_up.weight"),
        (lambda p: lacking(p, "token_embd"), "does not say its token_embd"),
        (lambda p: with_more(p, "layer.0.extra.weight", np.zeros((2, 2), "f4")), "'blk.0.extra.weight' has no place"),
        (lambda p: with_more(p, "rope_freqs", np.ones(4, "f4")), "'rope_freqs.weight' has no place"),
        (lambda p: with_more(p, "output_norm", np.zeros(5, "f4")), r"output_norm is \[5\]; \[32\] is needed"),
        (without_heads, "does not say attention.head_count"),
        (lambda p: p, r"holds no \*\.safetensors"),
        (lambda p: hf_of(p, "{"), "config.json: is no JSON object: Input data was truncated"),
        (lambda p: hf_of(p, "[]"), "is no JSON object"),
        (lambda p: hf_of(p, '{"model_type": "mamba"}'), "holds 'mamba'; this reads gpt2, llama"),
        (lambda p: hf_of(p, '{"model_type": "llama"}'), "does not say num_attention_heads"),
    ],
)
def test_a_file_that_is_none_is_one_line(tmp_path, make, says):
    with pytest.raises(EngineError, match=says) as raised:
        weights.read(make(tmp_path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"hidden_size": "32"}, "hidden_size is '32'; a whole number of at least 1 is needed"),
        ({"hidden_size": 32.5}, r"hidden_size is 32\.5; a whole number"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0; a whole number of at least 1"),
        ({"num_attention_heads": 3}, r"attn_q\.weight is \[32, 32\]; 3 heads cannot share its rows in pairs"),
        ({"num_key_value_heads": 3}, r"attn_k\.weight is \[16, 32\]; 3 heads cannot share its rows"),
        ({"rms_norm_eps": "a"}, "rms_norm_eps is 'a'; a number above 0"),
        ({"rope_theta": -1.0}, r"rope_theta is -1\.0; a number above 0"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu' is computed"),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "rope_scaling is 'llama3'; only 'default' is computed",
        ),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling is 'linear'; only 'default' is computed"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_scaling is 'yarn'; only 'default' is computed"),
        ({"rope_scaling": "linear"}, "not a mapping"),
        ({"head_dim": 16}, "head_dim is 16; only 8 is computed"),
        ({"tie_word_embeddings": False}, r"does not say its output\.weight"),
    ],
    ids=str,
)
def test_a_file_that_means_another_function_is_refused(tmp_path, changed, says):
    """What the graph does not compute gives no wrong logits, and what is no size gives one line."""
    write_hf(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**said, **changed}))
    with pytest.raises(EngineError, match=says) as raised:
        weights.read(tmp_path)
    assert "\n" not in str(raised.value)


def test_what_a_file_leaves_null_is_as_usual(tmp_path):
    """Null is no value: heads of k and v are those of q, rope is the plain one."""
    write_hf(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    more = {
        "rope_scaling": None,
        "head_dim": None,
        "hidden_act": "silu",
        "rope_theta": None,
        "tie_word_embeddings": True,
    }
    (tmp_path / "config.json").write_text(json.dumps({**said, **more}))
    assert weights.read(tmp_path).config == replace(LLAMA, rank=4, full=False)


def test_tensors_of_whole_numbers_are_no_weights(tmp_path):
    stored = write_hf(tmp_path)
    save_file({name: np.zeros(array.shape, np.int8) for name, array in stored.items()}, tmp_path / "model.safetensors")
    with pytest.raises(EngineError, match="holds int8, no floating numbers"):
        weights.read(tmp_path)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: gpt2.GPT2Config(heads=3), "3 heads do not divide 64 channels"),
        (lambda: gpt2.GPT2Config(layers=0), "layers is 0"),
        (lambda: replace(LLAMA, targets=("x",)), "at least one of q, k, v, o, gate, up, down"),
        (lambda: replace(LLAMA, batch=0), "batch is 0"),
    ],
)
def test_sizes_that_make_no_model_are_one_line(make, says):
    with pytest.raises(EngineError, match=says):
        make()


def test_sequences_longer_than_the_positions_are_one_line():
    model = gpt2.gpt2(GPT2, gpt2.init_parameters(GPT2, seed=0))
    with pytest.raises(EngineError, match="sequences of 20 positions; the model has 16"):
        Trainer(model).run("forward", dict(sequences(np.zeros(41, int), seq=20).columns))
