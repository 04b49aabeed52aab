"""A run with its numbers written into the document, for pictures that show them.

`worked_document` runs a lowered graph once and notes of each value what an op left in it
(`meta.shown`: up to `ELEMENTS` numbers, of a larger tensor its length), and of each gradient whose
it is (`meta.adjoint_of`; one tensor may be the gradient of several). `allocsim plot --kind chain`
writes both beside the ops.

What this module does not see: pictures. No check reads these words.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from allocsim.model import Document, Plan
from engine.graph.lowering import Lowered
from engine.kernels.binding import Array
from engine.runtime import Runtime

ELEMENTS: Final = 4
"""Numbers of a tensor that are written out."""


def worked_document(
    lowered: Lowered, plan: Plan, inputs: Mapping[str, Array], *, parameters: Mapping[str, Array] | None = None
) -> Document:
    """Run once under the plan and return its document with the numbers; errors as of `Runtime`.

    O(ops + elements).
    """
    program = lowered.program
    meta = {value: dict(words) for value, words in program.values.meta.items()}
    whose: dict[int, list[str]] = {}
    for tensor, gradient in lowered.graph.adjoints.items():
        if gradient in lowered.value_of:
            whose.setdefault(lowered.value_of[gradient], []).append(tensor.name)
    for value, names in whose.items():
        meta.setdefault(value, {})["adjoint_of"] = ", ".join(names)

    def note(step: int, _operands: tuple[Array, ...], results: tuple[Array, ...]) -> None:
        for value, result in zip(program.ops[step].results, results, strict=True):
            meta.setdefault(value, {})["shown"] = in_numbers(result)

    with Runtime(lowered, plan, parameters=parameters) as runtime:
        runtime.run(inputs, observer=note)
    told = replace(program, values=replace(program.values, meta=meta))
    problem = None if plan.problem is None else replace(plan.problem, program=told)
    return Document.of(replace(plan, program=told, problem=problem))


def in_numbers(array: Array) -> str:
    """Return a tensor as a few numbers, or its length where it has more than `ELEMENTS`."""
    flat: Any = np.asarray(array, dtype=np.float64).reshape(-1)
    if len(flat) <= ELEMENTS:
        return ", ".join(f"{number:.4g}" for number in flat.tolist())
    return f"length {float(np.sqrt(np.square(flat).sum())):.4g}"
