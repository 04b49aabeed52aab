"""Documents to draw: tiny ones with one fault each, and a training step of the size that figures must stay readable at."""

import numpy as np
import pytest

from allocsim import liveness
from allocsim.builder import ProgramBuilder, plan_of
from allocsim.checks.violations import Report, Stats, Violation
from allocsim.model import Document, Plan, Problem, Program, Role


def training_program(layers: int, width: int = 64) -> Program:
    """A forward, backward and update pass, about 100 ops a layer: values of many sizes, views, in-place chains, weights."""
    b = ProgramBuilder(f"training step, {layers} layers")
    rng = np.random.default_rng(layers)
    target = b.tensor("target", "f32", (width, 32), role=Role.INPUT)
    b.op("host.write", (), (target,))
    x = b.tensor("tokens", "f32", (width, 32), role=Role.INPUT)
    b.op("host.write", (), (x,))
    kept: list[tuple[int, int, int, list[int]]] = []
    for layer in range(layers):
        weight = b.tensor(f"L{layer}.w", "f32", (width, width), role=Role.PARAMETER)
        lora = b.tensor(f"L{layer}.lora", "f32", (width, 8), role=Role.STATE)
        inner = [x]
        for index in range(32):
            kind = ("mul_mat", "add", "rope", "soft_max", "mul", "silu", "rms_norm", "scale")[index % 8]
            wide = (32, 96, 32, 256, 32, 64)[int(rng.integers(6))] if kind == "mul_mat" else 32
            y = b.tensor(f"L{layer}.{kind}_{index}", "f32", (width, wide))
            if kind == "mul_mat":
                b.op(kind, (inner[-1], weight, lora), (y,))
            else:
                b.op(kind, (inner[-1],), (y,), in_place=((0, 0),) if kind not in {"rope", "rms_norm"} else ())
            inner.append(y)
            if index % 8 == 3:
                inner.append(b.view(y, f"L{layer}.view_{index}", (8, width)))
        kept.append((layer, weight, lora, inner[::5]))
        x = inner[-1]
    grad = b.tensor("grad", "f32", (width, 32))
    b.op("cross_entropy_back", (x, target), (grad,))
    for layer, weight, lora, inner in reversed(kept):
        for index, saved in enumerate(inner * 7):
            kind = ("out_prod", "rms_norm_back", "silu_back", "add", "mul")[index % 5]
            y = b.tensor(f"L{layer}.{kind}_{index}", "f32", (width, 32))
            b.op(kind, (grad, saved) if index < 12 else (grad, weight), (y,), in_place=((0, 0),) if kind != "out_prod" else ())
            grad = y
        delta = b.tensor(f"L{layer}.delta", "f32", (width, 8))
        b.op("out_prod", (grad, weight), (delta,))
        b.op("opt_step", (delta, lora), (b.tensor(f"L{layer}.lora_next", "f32", (width, 8)),))
    b.op("host.read", (grad,), ())
    return b.build()


def first_fit(program: Program, *, source: str = "first fit", cut: int = 0) -> Plan:
    """Lowest free address in order of birth, a dying operand of equal size taken in place where the op declares it.

    `cut`: steps by which every tenth lifetime is believed too short; more than 0 plants conflicts.
    """
    start, stop = liveness.lifetimes(program).T
    believed = stop.copy()
    believed[::10] = np.maximum(believed[::10] - cut, start[::10] + 1)
    sizes = (program.buffers.nbytes + 31) // 32 * 32
    donors: dict[int, int] = {}
    for op in program.ops:
        for operand, result in op.in_place or ():
            a, b = int(program.values.buffer[op.operands[operand]]), int(program.values.buffer[op.results[result]])
            if believed[a] == op.step + 1 and start[b] == op.step and sizes[a] == sizes[b] and not program.buffers.persistent[a]:
                donors[b] = a
    slots: dict[int, int] = {}
    live: list[int] = []
    for buffer in np.argsort(start, kind="stable").tolist():
        if program.buffers.persistent[buffer] or stop[buffer] == 0:
            continue
        live = [other for other in live if believed[other] > start[buffer]]
        donor = donors.get(buffer)
        if donor in live:
            slots[buffer] = slots[donor]
            live.remove(donor)
        else:
            at = 0
            for low, high in sorted((slots[other], slots[other] + int(sizes[other])) for other in live):
                if at + sizes[buffer] <= low:
                    break
                at = max(at, high)
            slots[buffer] = int(at)
        live.append(buffer)
    return plan_of(program, slots, source=source, problem=Problem.of(program, start=start, stop=believed))


def report_of(*violations: Violation, warnings: tuple[Violation, ...] = ()) -> Report:
    """A report as a check would give it, its sizes left empty."""
    return Report(
        violations=violations,
        warnings=warnings,
        count=len(violations),
        truncated=False,
        stats=Stats(ops=0, buffers=0, peak_bytes=0, lower_bound_bytes=0),
    )


@pytest.fixture(scope="session")
def large() -> Document:
    """A sound plan of 3,000 ops."""
    return Document.of(first_fit(training_program(40)))
