"""A live LiteRT interpreter: what it plans is judged by its pointers, and the numbers say who is right."""

import json
import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from allocsim import systems
from allocsim.errors import DocumentError
from allocsim.judge.fast import check
from allocsim.systems.litert import litert_pointers

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed; files of it are tested without")
pytest.importorskip("flatbuffers", reason="flatbuffers is not installed; the models are made with it")

from benchmarks.litert_models import interpreter, loop_model, pointers, random_model, recorded

FAULTY = (398, 1895)
"""Seeds whose numbers are wrong in ai-edge-litert 2.3.0 (`benchmarks/results/litert.json`)."""


@pytest.mark.parametrize("seeds", [range(100), FAULTY], ids=["first", "faulty"])
def test_a_model_is_convicted_where_its_numbers_are_wrong_and_nowhere_else(seeds):
    """An interpreter that mends the fault gives right numbers for its seeds, and is then not to be accused of them."""
    rows = [pointers(seed) for seed in seeds]
    convicted = [
        bool(check(litert_pointers.loads(json.dumps(row["dump"]).encode(), "live")).violations) for row in rows
    ]

    assert convicted == [row["differs"] > 0 for row in rows]


def test_the_release_that_is_installed_by_make_venv_shows_the_fault():
    row = pointers(FAULTY[0])
    if row["dump"]["versions"] != "ai-edge-litert 2.3.0":
        pytest.skip("the fault is told of ai-edge-litert 2.3.0")

    assert row["differs"] > 0


ROOT = Path(__file__).parents[4]


def test_the_recipe_of_the_documentation_runs_as_printed(tmp_path):
    section = (ROOT / "docs" / "plans.md").read_text(encoding="utf-8").partition("\n## LiteRT")[2]
    lines = [row.strip() for row in section.splitlines() if row.startswith("    ")]
    recipe = next(f"{one}\n{two}" for one, two in pairwise(lines) if "record_litert" in one)
    (tmp_path / "allocsim").symlink_to(ROOT / "allocsim")
    paths = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    answers = {}
    for name, model in {"clean": random_model(0)[0], "swap": loop_model([1, 0])}.items():
        (tmp_path / "model.tflite").write_bytes(model)
        done = subprocess.run(
            ["/bin/sh", "-ec", recipe], cwd=tmp_path, env=paths, capture_output=True, text=True, check=False
        )
        answers[name] = done.returncode, done.stdout.splitlines()[0]
    assert answers["clean"] == (0, "model.json: S clean; kernels not examined")
    assert answers["swap"][0] == 1


def carried(carries):
    """Return what an interpreter makes of a loop of three turns, and what it should."""
    given = [np.arange(4, dtype="f4").reshape(1, 4) + 10 * place for place in range(1, len(carries) + 1)]
    made = interpreter(loop_model(carries))
    for place, row in enumerate([np.array([0], "i4"), *given]):
        made.set_tensor(place, row)
    made.invoke()
    found = [made.get_tensor(row["index"]) for row in made.get_output_details()][1:]
    for _ in range(3):
        given = [2 * given[place] if source is None else given[source] for place, source in enumerate(carries)]
    return made, all(np.array_equal(one, other) for one, other in zip(found, given, strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_a_loop_whose_carries_lose_each_other_is_convicted_and_no_other_one(seed, tmp_path):
    """LiteRT copies outputs of a body to its inputs one after the other; each may be an input itself."""
    rng = random.Random(seed)
    carries = [1, 0] if seed == 0 else [rng.choice([None, *range(4)]) for _ in range(4)]
    made, right = carried(carries)
    (tmp_path / "loop.tflite").write_bytes(loop_model(carries))
    (tmp_path / "loop.json").write_text(json.dumps(recorded(made)))

    assert bool(check(systems.load(tmp_path / "loop.json")).violations) == (not right)
    (tmp_path / "loop.tflite").unlink()
    with pytest.raises(DocumentError, match=r"not judged: the subgraphs that WHILE runs are read from loop\.tflite"):
        systems.load(tmp_path / "loop.json")
