"""Who made the first NaN, and the first infinity: an observer of a run.

    watch = FiniteWatch(runtime)
    runtime.run(inputs, observer=watch)
    for finding in watch.findings:
        print(finding)           # nan first made by log at op 17, layer.3.log (3 of 64 elements, the first at [0, 5]); it read layer.3.x

Contract: after each op the results are looked at, and an op is named if a result holds a NaN (or an
infinity) that none of its operands holds; what only passes one on is not. What the host writes is
no op's doing: an input that is not finite is named as given by the host. One finding for NaN and
one for infinity at most: the first of each. Where an operand is infinite and a result is NaN, the
op made the NaN. What an operand held is remembered from when it was made, since an op may lay its
result over it.

Without an observer a run looks at nothing and costs what it cost; with one, each op costs a pass
over its operands and results.

What this module does not see: mutation after the op that made a value, and values that are
overwritten before anything reads them.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from allocsim.errors import EngineError
from allocsim.model import HOST_WRITE, Role
from engine.kernels.binding import Array
from engine.runtime import Runtime

What = Literal["nan", "infinity"]

PERSISTENT = (Role.PARAMETER, Role.STATE)
"""Roles of leafs that no op and no host.write makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NonfiniteOrigin:
    """The op whose result was the first to hold what no operand held."""

    what: What
    step: int
    name: str
    """Of the tensor."""
    kind: str
    """Of the op; `host.write` for an input."""
    layer: int | None
    stage: str
    count: int
    """Elements of that sort in the result."""
    size: int
    """Elements of the result."""
    index: tuple[int, ...]
    """The first of them."""
    operands: tuple[str, ...]
    """The tensors it read."""

    def __str__(self) -> str:
        read = f"; it read {', '.join(self.operands)}" if self.operands else ""
        maker = "given by the host as" if self.kind == HOST_WRITE else f"first made by {self.kind} at op {self.step},"
        return (
            f"{self.what} {maker} {self.name} ({self.count} of {self.size} elements, the first at "
            f"{list(self.index)}){read}"
        )


class FiniteWatch:
    """An observer for `engine.runtime.Runtime.run`; collects findings, or raises at the first."""

    def __init__(self, runtime: Runtime, *, fail: bool = False, infinity: bool = True) -> None:
        """Look at runs of `runtime`.

        Args:
            runtime: what runs; its parameters and states are looked at when a run begins.
            fail: raise EngineError at the first finding of an op, which stops the run.
            infinity: look for infinities too; a mask of them is none of an op's doing, but a model
                may make one on purpose.
        """
        self._runtime = runtime
        self._lowered = runtime.lowered
        self._fail = fail
        self._wanted: tuple[What, ...] = ("nan", "infinity") if infinity else ("nan",)
        self.findings: list[NonfiniteOrigin] = []
        """By step; at most one of an op for each of NaN and infinity, and those of the host."""
        self._done: set[What] = set()
        self._held: dict[int, frozenset[What]] = {}
        """What each value held when it was made."""
        self._leafs = [value for tensor, value in self._lowered.value_of.items() if tensor.role in PERSISTENT]

    def __call__(self, step: int, operands: tuple[Array, ...], results: tuple[Array, ...]) -> None:  # noqa: ARG002 - an observer's signature
        """Look at the op of `step`."""
        if not step:
            self._held = {value: self._look(self._runtime.array(value)) for value in self._leafs}
        op = self._lowered.program.ops[step]
        before = frozenset[What]().union(*(self._held.get(value, frozenset()) for value in op.operands))
        for value, result in zip(op.results, results, strict=True):
            held = self._held[value] = self._look(result)
            for what in self._wanted:
                if what in held and what not in before and what not in self._done:
                    self._report(self._finding(what, step, result))

    def _look(self, array: Array) -> "frozenset[What]":
        return frozenset(what for what in self._wanted if _any(what, array))

    def _report(self, finding: NonfiniteOrigin) -> None:
        self.findings.append(finding)
        if finding.kind == HOST_WRITE:
            return
        self._done.add(finding.what)
        if self._fail:
            raise EngineError(str(finding))

    def _finding(self, what: What, step: int, result: Array) -> NonfiniteOrigin:
        tensor = self._lowered.tensors[step]
        places = np.argwhere(_TESTS[what](result.astype(np.float64)))
        return NonfiniteOrigin(
            what=what,
            step=step,
            name=tensor.name,
            kind=tensor.kind or HOST_WRITE,
            layer=tensor.layer,
            stage=tensor.stage,
            count=len(places),
            size=result.size,
            index=tuple(int(i) for i in places[0]),
            operands=tuple(str(source) for source in tensor.operands) if not tensor.is_leaf else (),
        )


_TESTS: dict[What, Any] = {"nan": np.isnan, "infinity": np.isinf}


def _any(what: What, array: Array) -> bool:
    if array.dtype.kind in "iu" or not array.size:
        return False
    values = array if array.dtype.kind == "f" else array.astype(np.float32)
    return bool(_TESTS[what](values).any())
