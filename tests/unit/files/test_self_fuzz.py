"""Every kind of input in a few mutants; `benchmarks/self_fuzz.py` has thousands of each."""

import pytest
from hostile import KINDS, mutants

COUNT = 40
NEEDS = {"safetensors": "safetensors", "config.json": "safetensors", "checkpoint": "safetensors", "GGUF": "gguf"}


@pytest.mark.parametrize("name", KINDS)
def test_mutants_are_read_or_refused_in_a_line(name, tmp_path, capsys):
    pytest.importorskip(NEEDS.get(name, "msgspec"))
    (_, _, as_it_is), *found = mutants(name, tmp_path, COUNT, seed=1)
    assert as_it_is.answer == "read", as_it_is.words
    assert [(number, mutant.words) for number, _, mutant in found if mutant.answer == "bad"] == []
    assert any(mutant.answer == "refused" for _, _, mutant in found)
