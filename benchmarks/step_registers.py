"""The yardstick of the step benchmark: a loop of multiply-adds that never leaves the registers of one core, timed on request over a pipe (`step_serving`).

Each turn multiplies 24 vectors of 16 float32, as many as a tile of the engine's products sums up in, by one vector and adds another: the fastest that one core can
go at float32, at the frequency that it has in that round.
"""

from typing import Any

import numba
import step_serving  # beside this file
from llvmlite import ir
from numba import extending, types

from engine.kernels.compiled.vectors import splat

SUMS, LANES = 24, 16
TURNS = 2_000_000
MULTIPLY_ADDS = SUMS * LANES * TURNS
"""Of one step: some ten milliseconds."""

_intrinsic: Any = extending.intrinsic
_njit: Any = numba.njit


@_intrinsic
def _spin(_: Any, turns: Any, factor: Any) -> Any:
    """Return a number that hangs on every multiply-add of `turns` turns."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        word, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)
        fused = ir.Function(builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{LANES}f32")
        step, start = splat(builder, args[1], vector), ir.Constant(vector, [1.0] * LANES)
        before, body, after = builder.block, builder.append_basic_block("body"), builder.append_basic_block("after")
        builder.branch(body)
        builder.position_at_end(body)
        left, sums = builder.phi(word), [builder.phi(vector) for _ in range(SUMS)]
        found = [builder.call(fused, [each, step, step]) for each in sums]
        fewer = builder.sub(left, ir.Constant(word, 1))
        left.add_incoming(args[0], before)
        left.add_incoming(fewer, body)
        for phi, again in zip(sums, found, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(again, body)
        builder.cbranch(builder.icmp_signed(">", fewer, ir.Constant(word, 0)), body, after)
        builder.position_at_end(after)
        total = found[0]
        for each in found[1:]:
            total = builder.fadd(total, each)
        return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

    return types.float32(turns, factor), codegen


@_njit
def spin(turns: int, factor: Any) -> Any:
    """Do `turns` turns; the factor is known at run time alone, so that none is worked out before."""
    return _spin(turns, numba.float32(factor))


def main() -> None:
    """Serve loops until standard input ends."""
    about = {"multiply_adds": MULTIPLY_ADDS, "versions": {}}
    step_serving.serve(step_serving.job()["warmup"], lambda: float(spin(TURNS, 0.5)), lambda: about)


if __name__ == "__main__":
    main()
