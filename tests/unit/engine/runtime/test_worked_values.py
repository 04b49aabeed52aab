"""A document with the numbers of its run: what a student checks by hand."""

import numpy as np
from squared_line import squared_line

import allocsim
from engine.runtime.worked_values import in_numbers


def test_every_value_that_an_op_makes_has_its_number_and_gradients_say_whose_they_are():
    document = squared_line()
    values = document.programs[0].values
    shown = {name: meta.get("shown") for name, meta in ((values.names[v], m) for v, m in values.meta.items())}
    assert "49" in shown.values()
    told = [meta for meta in values.meta.values() if "adjoint_of" in meta]
    of = {name: meta["shown"] for meta in told for name in meta["adjoint_of"].split(", ")}
    assert (of["W"], of["x"], of["b"], of["sqr"]) == ("42", "28", "14", "1")
    assert allocsim.verify(document).clean


def test_a_large_tensor_is_its_length():
    assert in_numbers(np.array([3, 4], np.float32)) == "3, 4"
    assert in_numbers(np.array([[3, 0, 0], [0, 4, 0]], np.float32)) == "length 5"
