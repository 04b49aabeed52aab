"""Ops that are added to the tables, and names that are nearly right."""

import subprocess
import sys

import pytest

from allocsim.errors import EngineError, UnknownNameError
from engine import tensor
from engine.front import functions as fn
from engine.graph import Graph

BEFORE = """
from dataclasses import replace
from engine.ops import OPS
OPS["mine"] = replace(OPS["neg"], kind="mine")
OPS["mine_too"] = replace(OPS["reshape"], kind="mine_too")
from engine import tensor
from engine.front import functions as fn
x = tensor([1.0, 2.0], requires_grad=True)
(x * x).sum().backward()
assert x.grad.numpy().tolist() == [2.0, 4.0]
for kind, params in (("mine", {}), ("mine_too", {"shape": (1, 2)})):
    try:
        fn.op(kind, x, **params)
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_ops_in_the_table_before_the_front_is_imported_do_not_break_it():
    """One without a kernel is refused where it is asked for, in one line."""
    done = subprocess.run([sys.executable, "-c", BEFORE], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "EngineError mine has no kernel; the front cannot compute it",
        "EngineError mine_too is a view of a new kind; the front cannot compute it",
    ]


@pytest.mark.parametrize(("asked", "meant"), [("matmul", "mul_mat"), ("mat_mul", "mul_mat"), ("norm_rms", "rms_norm")])
def test_a_name_of_the_same_letters_is_suggested(asked, meant):
    graph = Graph("g")
    x = graph.input("x", (2, 2), "f32")
    for ask in (lambda: graph.op(asked, x, x), lambda: fn.op(asked, tensor([1.0]), tensor([1.0]))):
        with pytest.raises(UnknownNameError, match=rf"did you mean {meant}\?"):
            ask()


def test_an_op_that_writes_over_an_operand_is_refused_at_the_front():
    with pytest.raises(EngineError, match="writes over an operand"):
        fn.op("opt_step_sgd", tensor([1.0]), tensor([1.0]), tensor([1.0]))
