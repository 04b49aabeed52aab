"""`allocsim generate` and `allocsim merge`: what was trained is used, to the same bits after a stop; every wrong word is one line; llama.cpp says the same."""

import contextlib
import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from gguf_models import word, write_model

from allocsim.cli import main
from allocsim.files.folders import MANIFEST, NEW, SWAP
from allocsim.files.journal import sealed
from engine.generation import Decoder, generate
from engine.models import adapters, llama
from engine.models.weights import read_llama

FILE = """
[model]
kind = "llama"
{model}
[data]
kind = "text"
path = "words.txt"
seq = 16
[training]
epochs = 2
batch = 4
save_every = 3
hyper = {{alpha = {alpha}}}
"""
BASE = FILE.format(model="layers = 2\nhidden = 32\nffn = 48", alpha=0.01)
ADAPTED = 'weights = "out/base"\nrank = 2\nfull = false\ndropout = 0.2\ntargets = ["q", "down"]'
LORA = FILE.format(model=ADAPTED, alpha=0.05)


def ask(*words, fails=None):
    """Return what a command prints; with `fails` the line of its refusal."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(map(str, words)))
    said = err.getvalue()
    if fails is None:
        assert status == 0, said
        return out.getvalue()
    assert status == 2
    assert fails in said
    assert len(said.strip().splitlines()) == 1
    return said


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A llama of bytes, and adapters over it trained with dropout: once in one go, once stopped and resumed."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "words.txt").write_text("a plan is judged before it runs; " * 40)
        (folder / "base.toml").write_text(BASE)
        (folder / "lora.toml").write_text(LORA)
        ask("train", "base.toml", "--out", "out/base")
        ask("train", "lora.toml", "--out", "out/lora")
        ask("train", "lora.toml", "--out", "out/stopped", "--steps", "7")
        ask("train", "lora.toml", "--out", "out/stopped", "--resume")
    return folder


def continued(*words):
    return [one["tokens"] for one in json.loads(ask("generate", *words, "--json"))["continued"]]


HOW = ("--prompt", "a plan ", "--length", "24", "--temperature", "0.8", "--seed", "5")


def test_trained_stopped_resumed_merged_reloaded_and_generated_from_are_the_same(trained, monkeypatch):
    monkeypatch.chdir(trained)
    for name in (adapters.PEFT_WEIGHTS, adapters.GGUF, adapters.PEFT_CONFIG):
        assert (trained / "out/lora" / name).read_bytes() == (trained / "out/stopped" / name).read_bytes()
    ask("merge", "out/base", "out/lora", "--out", "out/merged")
    ask("merge", "out/base", "out/stopped/adapter.gguf", "--out", "out/other")
    ours = continued("out/base", "--adapter", "out/lora", *HOW)

    assert (trained / "out/merged/model.safetensors").read_bytes() == (
        trained / "out/other/model.safetensors"
    ).read_bytes()
    assert ours == continued("out/base", "--adapter", "out/stopped/adapter.gguf", *HOW)
    assert ours == continued("out/merged", *HOW)
    assert ours != continued("out/base", *HOW)
    assert len(ours[0]) == 24


def test_a_merge_that_was_stopped_between_its_two_files_is_finished_by_the_next_one(trained, monkeypatch, capsys):
    """That one is refused, since a model is there, and leaves it whole: config.json alone is no model."""
    monkeypatch.chdir(trained)
    ask("merge", "out/base", "out/lora", "--out", "out/whole")
    whole, halves = trained / "out/whole", trained / "out/halves"
    waiting = halves / SWAP / NEW
    waiting.mkdir(parents=True)
    shutil.copy(whole / "config.json", halves)
    shutil.copy(whole / "model.safetensors", waiting)
    names = ["config.json", "model.safetensors"]
    (halves / SWAP / MANIFEST).write_bytes(sealed({"put": names, "take": [], "made": []}))

    assert main(["merge", "out/base", "out/lora", "--out", "out/halves"]) == 2
    assert "holds config.json already" in capsys.readouterr().err
    assert sorted(path.name for path in halves.iterdir()) == names
    assert [(halves / name).read_bytes() for name in names] == [(whole / name).read_bytes() for name in names]


def test_training_goes_on_from_a_folder_of_adapters(trained, monkeypatch):
    monkeypatch.chdir(trained)
    more = LORA.replace("rank = 2", 'adapter = "out/lora"').replace('targets = ["q", "down"]', "")
    (trained / "more.toml").write_text(more)
    ask("train", "more.toml", "--out", "out/more")
    found = adapters.read(trained / "out/more", read_llama(trained / "out/base").config)

    assert (found.config.rank, found.config.targets) == (2, ("q", "down"))
    first = json.loads((trained / "out/lora/history.json").read_text())["epochs"]
    then = json.loads((trained / "out/more/history.json").read_text())["epochs"]
    assert then[0]["training"]["loss"] < first[0]["training"]["loss"]


def test_the_folder_of_results_is_what_check_and_trace_read(trained, monkeypatch):
    monkeypatch.chdir(trained)
    said = ask(
        "generate",
        "out/base",
        "-p",
        "a ",
        "-p",
        "b",
        "--samples",
        "2",
        "--length",
        "20",
        "--page",
        "4",
        "--out",
        "out/said",
    )

    assert "the cache: nothing found in" in said
    assert "80 tokens in " in said
    assert "S and L clean" in ask("check", "out/said/document.json")
    assert "nothing found in" in ask("trace", "out/said/events.jsonl")
    tokens = json.loads((trained / "out/said/tokens.json").read_text())
    assert [one["prompt"] for one in tokens["continued"]] == [[97, 32], [97, 32], [98], [98]]
    assert said.splitlines()[0] == f"s0: {tokens['continued'][0]['text']}"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["out/none", "-p", "a"], "out/none: there is no such file"),
        (["out/lora", "-p", "a"], "config.json"),
        (["out/base"], "nothing to continue"),
        (["out/base", "-p", ""], "at least one token"),
        (["out/base", "--tokens", "1,x"], "--tokens '1,x': whole numbers"),
        (["out/base", "--tokens", "256"], "each from 0 to 255"),
        (["out/base", "-p", "a", "--pages", "1"], "the cache of 1 pages with 16 positions each is full"),
        (["out/base", "-p", "a", "--top-p", "0"], "top_p is above 0"),
        (["out/base", "-p", "a", "--allocator", "none"], "allocator 'none' does not exist"),
        (["out/base", "-p", "a", "--adapter", "out/base"], "adapter_config.json"),
        (["out/lora/adapter.gguf", "-p", "a"], "lora_a"),
    ],
)
def test_what_cannot_be_generated_is_one_line(trained, monkeypatch, words, line):
    monkeypatch.chdir(trained)
    ask("generate", *words, fails=line)


LLAMA_CPP = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.cpuparams.n_threads, params.n_parallel = sys.argv[1], 256, 1, 1
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED  # it computes in 16 bits
params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
lora = xllamacpp.CommonAdapterLoraInfo()
lora.path, lora.scale = sys.argv[2], 1.0
params.lora_adapters = [lora]
asked = {"prompt": [5, 6, 7, 8], "n_predict": 24, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
print(xllamacpp.Server(params).handle_completions(asked)["choices"][0]["text"])
"""


def test_llama_cpp_continues_with_our_adapters_as_we_do(tmp_path):
    pytest.importorskip("xllamacpp")
    model = write_model(tmp_path / "model.gguf", words=True)
    base = read_llama(model)
    config = replace(base.config, rank=4, alpha=8.0, targets=tuple(llama.PROJECTIONS))
    factors = llama.init_adapters(config, seed=3, std=(None, 0.5))
    (tmp_path / "adapter.gguf").write_bytes(adapters.files(config, factors)["adapter.gguf"])
    ran = subprocess.run(
        [sys.executable, "-c", LLAMA_CPP, model, tmp_path / "adapter.gguf"], capture_output=True, text=True, check=True
    )
    with Decoder(config, {**base.weights, **factors}, pages=4) as decoder:
        logits = decoder.step([decoder.sequence([5, 6, 7, 8])])
        ours = generate(decoder, [[5, 6, 7, 8]], length=24).sequences[0].tokens[4:]
    with Decoder(base.config, base.weights, pages=4) as decoder:
        plain = decoder.step([decoder.sequence([5, 6, 7, 8])])

    assert ran.stdout.splitlines()[-1] == "".join(map(word, ours))
    assert np.abs(plain - logits).max() > 0.1


def test_no_model_is_written_over_another(trained, monkeypatch):
    monkeypatch.chdir(trained)
    ask("merge", "out/base", "out/lora", "--out", "out/base", fails="holds what is merged")
    ask("merge", "out/base", "out/lora", "--out", "out/lora", fails="holds what is merged")
    shutil.copytree("out/base", "mine")
    (trained / "mine/checkpoint.safetensors").unlink()
    before = {path.name: path.read_bytes() for path in (trained / "mine").iterdir()}
    ask("merge", "out/base", "out/lora", "--out", "mine", fails="mine: holds config.json already")
    ask("train", "base.toml", "--out", "mine", fails="mine: holds config.json of a model, and no checkpoint")
    assert {path.name: path.read_bytes() for path in (trained / "mine").iterdir()} == before


def test_what_is_said_twice_of_adapters_is_refused(trained, monkeypatch):
    monkeypatch.chdir(trained)
    shutil.copytree("out/base", "both")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy(f"out/lora/{name}", f"both/{name}")
    plain = LORA.replace('"out/base"', '"both"')
    (trained / "both.toml").write_text(plain)
    ask("train", "both.toml", "--out", "o1", fails="both: holds adapters beside the model")
    (trained / "two.toml").write_text(LORA.replace("rank = 2", 'rank = 2\nadapter = "out/lora"'))
    ask("train", "two.toml", "--out", "o2", fails="rank is 2; it is that of adapter 'out/lora'")
    (trained / "zero.toml").write_text(LORA.replace("rank = 2", "rank = 2\nalpha = 0.0"))
    ask("train", "zero.toml", "--out", "o3", fails="alpha is 0.0; adapters are scaled by a number above 0")


def test_an_adapter_of_another_alpha_is_not_gone_on_with(trained, monkeypatch):
    monkeypatch.chdir(trained)
    shutil.copytree("out/lora", "given")
    (trained / "alpha.toml").write_text(
        LORA.replace("rank = 2", 'adapter = "given"').replace('targets = ["q", "down"]', "")
    )
    ask("train", "alpha.toml", "--out", "o4", "--steps", "3")
    said = json.loads((trained / "given/adapter_config.json").read_text())
    (trained / "given/adapter_config.json").write_text(json.dumps({**said, "lora_alpha": 64}))
    ask("train", "alpha.toml", "--out", "o4", "--resume", fails="adapters")


def test_a_token_that_ends_a_text_is_taken_from_the_model(trained, monkeypatch):
    monkeypatch.chdir(trained)
    shutil.copytree("out/base", "ending")
    said = json.loads((trained / "ending/config.json").read_text())
    whole = continued("ending", "--prompt", "a plan ", "--length", "24")[0]
    (trained / "ending/config.json").write_text(json.dumps({**said, "eos_token_id": [whole[3], 999]}))

    assert continued("ending", "--prompt", "a plan ", "--length", "24")[0] == whole[: whole.index(whole[3]) + 1]
