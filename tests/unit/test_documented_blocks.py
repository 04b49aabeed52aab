"""Every Python block of README, CONTRIBUTING and the pages runs alone: in names of its own, in an empty folder, and prints what it says.

What a block asserts holds. What a page says beside it that no line of it asserts is in `HELD`. Tests that a block defines are
called with their fixtures. Here `NEEDS`, `OWN_PROCESS`, `FILES` and `ELSEWHERE` name all that is not run like the others.
"""

import inspect
import shutil
from importlib.util import find_spec

import pytest
from documented import ROOT, agrees, every, run, said_to_print
from ggml_live import missing
from gguf_models import write_model

from allocsim.p_sanitizer.guard import why_not

NEEDS = {
    ("docs/plans.md", "executorch.exir"): "executorch",
    ("docs/plans.md", "torch.optim"): "torch",
    ("docs/plans.md", "tinygrad"): "tinygrad",
    ("docs/ggml.md", "rms_norm_back"): "ggml before",
    ("docs/ggml.md", "second_backend"): "ggml after",
    ("docs/training.md", "read_llama"): "gguf",
    ("docs/sanitizer.md", "pages="): "guard pages",
}
"""Blocks by their page and a word of theirs, and what has to be here for them."""

OWN_PROCESS = {("docs/ggml.md", ""), ("docs/plans.md", "tinygrad"), ("docs/plans.md", "executorch.exir")}
"""These map a library, or choose a device, for the whole process, or draw warnings of others, which are errors here."""

ELSEWHERE = {
    ("docs/plans.md", "torch.cuda.memory"): "not run: it needs a GPU, and a step of the reader's",
    ("docs/generation.md", "read_llama"): "run after the commands of its page (tests/unit/engine/test_docs.py)",
    ("docs/ggml.md", "xllamacpp"): "run beside a model file (tests/unit/systems/ggml/capture/test_computed_graphs.py)",
}

CAMPAIGN = {("docs/fuzzing.md", "exercised")}
"""42 mutants, each fuzzed for seconds."""

FILES = {
    "step.json": lambda path: shutil.copy(ROOT / "examples" / "tour" / "step.json", path),
    "SmolLM2-135M-Q8_0.gguf": lambda path: write_model(path, "Q8_0", layers=1),
}
"""Files that a block reads, by their name in it, and how they come into its folder."""

HELD = {
    ("README.md", "W.grad"): lambda space: [space[name].grad.item() for name in "Wxb"] == [42, 28, 14],
    ("README.md", "fit("): lambda space: space["fitted"].history[-1].validation.accuracy > 0.9,
    ("docs/front.md", "create_graph"): lambda space: space["slope"].item() == 108,
    ("docs/fuzzing.md", "print("): lambda space: space["result"].findings == (),
    ("docs/sharding.md", "events_of("): lambda space: space["found"].count == len(space["found"].violations),
    ("docs/training.md", "moons.safetensors"): lambda space: space["fitted"].history[-1].validation.accuracy > 0.9,
    ("docs/training.md", "read_llama"): lambda space: space["found"].config.layers == 1,
}


def of(table, block):
    """Return what a table has for a block: at most one row."""
    rows = [row for row in table if row[0] == block.page and row[1] in block.text]
    assert len(rows) <= 1, (str(block), rows)
    return (table[rows[0]] if isinstance(table, dict) else True) if rows else None


def lacking(what):
    """Return why a block cannot run here; None where it can."""
    if what == "guard pages":
        return why_not()
    if what.startswith("ggml"):
        return missing(what.split()[1])
    return None if find_spec(what) else f"needs {what}"


BLOCKS = [
    pytest.param(block, id=str(block), marks=[pytest.mark.campaign] if of(CAMPAIGN, block) else []) for block in every()
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs_alone_and_prints_what_it_says(block, tmp_path, request, monkeypatch):
    if away := of(ELSEWHERE, block):
        pytest.skip(away)
    if (needed := of(NEEDS, block)) and (why := lacking(needed)):
        pytest.skip(why)
    for name, brought in FILES.items():
        if f'"{name}"' in block.text:
            brought(tmp_path / name)
    space, printed = run(block, tmp_path, own_process=bool(of(OWN_PROCESS, block)))
    said, lines = said_to_print(block), printed.splitlines()

    assert len(lines) == len(said), printed
    assert [(words, line) for words, line in zip(said, lines, strict=True) if not agrees(words, line)] == []
    assert (of(HELD, block) or bool)(space) or not of(HELD, block)
    monkeypatch.chdir(tmp_path)
    for name, one in space.items():
        if name.startswith("test_"):
            one(*(request.getfixturevalue(fixture) for fixture in inspect.signature(one).parameters))


@pytest.mark.parametrize(
    "table",
    [NEEDS, OWN_PROCESS, ELSEWHERE, CAMPAIGN, HELD],
    # Not the tables themselves: a function's address differs in each of the runner's processes.
    ids=["needs", "own process", "elsewhere", "campaign", "held"],
)
def test_each_row_of_a_table_names_blocks(table):
    for page, word in table:
        assert any(block.page == page and word in block.text for block in every()), (page, word)
