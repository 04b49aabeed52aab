"""PyTorch's own CPU allocator, asked block by block where PyTorch is installed."""

import pytest

from allocsim.online import Judge, drawn


def test_tensors_of_pytorch_break_no_promise():
    pytest.importorskip("torch", reason="no PyTorch")
    from examples.torch_cpu import tensors  # noqa: PLC0415 - it needs PyTorch

    judge = Judge(make=tensors)
    abilities = judge.abilities()
    assert {"realloc"} == abilities.calls
    for index in range(40):
        sequence = drawn(0, index, abilities)
        if all(call[0] != "fork" for call in sequence.calls):  # a process that runs tests forks badly
            assert judge.judge(sequence) is None, index
