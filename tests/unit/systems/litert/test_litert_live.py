"""A live LiteRT interpreter: what it plans is judged by its pointers, and the numbers say who is right."""

import json

import pytest

from allocsim.judge.fast import check
from allocsim.systems.litert import litert_pointers

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed; files of it are tested without")
pytest.importorskip("flatbuffers", reason="flatbuffers is not installed; the models are made with it")

from benchmarks.litert_models import pointers

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
