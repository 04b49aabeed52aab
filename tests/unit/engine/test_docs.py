"""The engine's pages beside their blocks, which run in `tests/unit/test_documented_blocks.py`: configurations, commands, tables."""

import re
import shlex
from pathlib import Path

import numpy as np
from documented import agrees, blocks, pick, run, said_to_print, sessions, shows

import engine
from allocsim.allocators import find
from allocsim.cli import main
from engine.graph.lowering import lower

ROOT = Path(__file__).parents[3]


def test_every_row_of_the_five_texts_is_shown():
    """The table names the number of each piece of the blocks, and no other."""
    page = (ROOT / "docs/texts.md").read_text(encoding="utf-8")
    numbers = [
        int(number) for block in blocks("docs/texts.md") for number in re.findall(r"^# (\d+)$", block, re.MULTILINE)
    ]
    rows = re.findall(r"^\| [A-E](?:, [A-E])* \|.*\| ([^|]+) \|$", page, re.MULTILINE)
    named = {int(number) for row in rows for number in re.findall(r"\b\d+\b", row) if "`" not in row}

    assert numbers == list(range(1, len(numbers) + 1)) == sorted(named)


def test_the_autodiff_page(tmp_path):
    space, _ = run(pick("docs/autodiff.md", "backward(graph"), tmp_path)
    first_bad = run(pick("docs/autodiff.md", "FiniteWatch"), tmp_path)[0]["first_bad"]
    graph, (gradient,) = space["graph"], space["grads"].values()
    lowered = lower(graph, [gradient])
    values = {name: np.full(1, value, np.float32) for name, value in (("x", 2), ("a", 3), ("b", 4))}
    with engine.Runtime(lowered, find("ggml").plan(lowered.program), parameters=values) as runtime:
        assert runtime.run({"loss_grad": np.ones(1, np.float32)})[gradient.name] == 12
        assert first_bad(runtime, {"loss_grad": np.ones(1, np.float32)}) == []


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
    (session,) = sessions("docs/generation.md", whole=True)
    said = []
    for command in session.commands:
        assert main(shlex.split(command.typed.removeprefix("allocsim "))) == 0
        said.append(capsys.readouterr().out)
        assert shows(command, said[-1]), said[-1]

    assert len(session.commands) == 6
    assert said[3].splitlines()[0] == said[5].splitlines()[0]  # merged or not
    block = pick("docs/generation.md", "read_llama")
    lines = run(block, tmp_path)[1].splitlines()
    assert [agrees(*pair) for pair in zip(said_to_print(block), lines, strict=True)] == [True], lines
