"""Allocators of other systems, asked block by block where they are installed."""

import importlib

import pytest

from allocsim.online import Judge, drawn

MODULES = {
    "ctypes": "examples.python_objects:objects",
    "torch": "examples.torch_cpu:tensors",
    "onnxruntime": "examples.onnxruntime_arena:values",
}


@pytest.mark.parametrize("package", MODULES)
def test_an_allocator_of_another_system_breaks_no_promise(package: str):
    pytest.importorskip(package, reason=f"no {package}")
    module, _, name = MODULES[package].partition(":")
    judge = Judge(make=getattr(importlib.import_module(module), name))
    abilities = judge.abilities()
    assert abilities.calls <= {"realloc"}
    for index in range(40):
        sequence = drawn(0, index, abilities)
        if all(call[0] != "fork" for call in sequence.calls):  # a process that runs tests forks badly
            assert judge.judge(sequence) is None, index
