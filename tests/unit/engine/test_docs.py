"""The examples of the engine's pages run as they stand, one after the other, and give what the comments beside them say."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import engine
from allocsim.allocators import find
from allocsim.cli import main
from engine.graph import Graph
from engine.graph.lowering import lower

ROOT = Path(__file__).parents[3]


def blocks(page, kind="python"):
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def run(page, space, only=None):
    for number, block in enumerate(blocks(page)):
        if only is None or number in only:
            exec(compile(block, f"{page}[{number}]", "exec"), space)
    return space


def test_the_front_page(capsys):
    space = run("docs/front.md", {})
    said = capsys.readouterr().out.splitlines()

    assert (space["slope"].item(), said[:4]) == (
        108,
        ["[0.8 1.6]", "[  0. 400. 600.]", "[3. 0. 7.] [1. 0. 3.]", "108.0"],
    )
    assert said[4].startswith("within tolerance: 6 entries")


def test_every_row_of_the_five_texts_is_shown():
    """The blocks run and hold what they assert; the table names each of them, and no other."""
    page = (ROOT / "docs/texts.md").read_text(encoding="utf-8")
    numbers = [int(block.splitlines()[0].removeprefix("# ")) for block in blocks("docs/texts.md")]
    rows = re.findall(r"^\| [A-E](?:, [A-E])* \|.*\| ([^|]+) \|$", page, re.MULTILINE)
    named = {int(number) for row in rows for number in re.findall(r"\b\d+\b", row) if "`" not in row}

    assert numbers == list(range(1, len(numbers) + 1)) == sorted(named)
    run("docs/texts.md", {})


def test_the_sharding_page():
    """Losses fall over four ranks, and a caching allocator of one of them races nowhere."""
    space = run("docs/sharding.md", {})
    assert space["found"].count == len(space["found"].violations)


def test_the_autodiff_page():
    space = run("docs/autodiff.md", {})
    graph, (gradient,) = space["graph"], space["grads"].values()
    lowered = lower(graph, [gradient])
    values = {name: np.full(1, value, np.float32) for name, value in (("x", 2), ("a", 3), ("b", 4))}
    with engine.Runtime(lowered, find("ggml").plan(lowered.program), parameters=values) as runtime:
        assert runtime.run({"loss_grad": np.ones(1, np.float32)})[gradient.name] == 12
        assert space["first_bad"](runtime, {"loss_grad": np.ones(1, np.float32)}) == []


def test_the_executors_page():
    """Both runtimes of the example, with the same bits."""
    graph = Graph("page")
    w = graph.parameter("w", (3,), trainable=True)
    y = graph.op("tanh", graph.op("scale", w, s=2.0), name="y")
    graph.expand(y)
    lowered = lower(graph, [y])
    space = {
        "engine": engine,
        "lowered": lowered,
        "plan": find("ggml").plan(lowered.program),
        "weights": {"w": np.ones(3, "f4")},
    }
    lines = blocks("docs/executors.md")[0].splitlines()
    runtimes = [eval(line.split("#")[0], space) for line in lines]

    assert len(runtimes) == 2
    assert runtimes[0].run({})["y"].tobytes() == runtimes[1].run({})["y"].tobytes()


def test_the_readme_types_and_trains():
    space = run("README.md", {}, only=(2, 3))

    assert [space[name].grad.item() for name in ("W", "x", "b")] == [42, 28, 14]
    assert space["fitted"].history[-1].validation.accuracy > 0.9


def test_the_training_page(tmp_path, monkeypatch):
    gguf = pytest.importorskip("gguf")
    monkeypatch.chdir(tmp_path)
    writer = gguf.GGUFWriter("SmolLM2-135M-Q8_0.gguf", "llama")
    for say, value in (("block_count", 1), ("embedding_length", 32), ("feed_forward_length", 64), ("head_count", 2), ("head_count_kv", 1)):  # fmt: skip
        getattr(writer, f"add_{say}")(value)
    writer.add_layer_norm_rms_eps(1e-5)
    rng = np.random.default_rng(0)
    layer = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32), "ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64)}  # fmt: skip
    for name, shape in {"token_embd": (64, 32), **{f"blk.0.{name}": shape for name, shape in layer.items()}}.items():
        quantised = gguf.quants.quantize(rng.standard_normal(shape, np.float32), gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(f"{name}.weight", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    space = run("docs/training.md", {})

    assert (tmp_path / "moons.safetensors").exists()
    assert space["fitted"].history[-1].validation.accuracy > 0.9
    assert space["found"].config.layers == 1


def test_the_configuration_of_the_training_page_trains(tmp_path, monkeypatch, capsys):
    """As it stands, beside a README to read."""
    monkeypatch.chdir(tmp_path)
    (text,) = blocks("docs/training.md", "toml")
    Path("text.toml").write_text(text)
    Path("README.md").write_bytes((ROOT / "README.md").read_bytes()[:4000])

    assert main(["train", "text.toml", "--out", "out/text", "--steps", "3"]) == 0
    assert "3 steps" in capsys.readouterr().out
    assert {path.name for path in Path("out/text").iterdir()} == {
        *("checkpoint.safetensors", "weights.safetensors", "history.json", "losses.csv"),
        *("config.json", "model.safetensors"),
    }


def test_the_page_on_generation_runs_from_its_first_line_to_its_last(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("README.md").write_bytes((ROOT / "README.md").read_bytes()[:3000])
    for text, name in zip(blocks("docs/generation.md", "toml"), ("text.toml", "lora.toml"), strict=True):
        assert text.startswith(f"# {name}")
        Path(name).write_text(text)
    page = (ROOT / "docs" / "generation.md").read_text()
    commands = re.findall(r"^    \$ allocsim (.*)$", page, re.MULTILINE)
    said = []
    for command in commands:
        assert main(shlex.split(command)) == 0
        said.append(capsys.readouterr().out.splitlines())
    printed = page.partition("    s0: ...\n")[2].splitlines()[:2]

    assert len(commands) == 6
    assert [line.strip() for line in printed] == said[1][-2:]
    assert said[3][0] == said[5][0]  # merged or not
    run("docs/generation.md", {})
