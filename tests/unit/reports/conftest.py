"""Documents to draw: tiny ones with one fault each, and a training step of the size that figures must stay readable at."""

import numpy as np
import pytest

from allocsim import liveness
from allocsim.judge.violations import Report, Stats, Violation
from allocsim.model import Document, Plan, Problem, Program, Role
from allocsim.programs.builder import ProgramBuilder, plan_of


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
            b.op(
                kind,
                (grad, saved) if index < 12 else (grad, weight),
                (y,),
                in_place=((0, 0),) if kind != "out_prod" else (),
            )
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
    donors = {recipient: donor for _, donor, recipient in liveness.permissible_pairs(program).tolist()}
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


@pytest.fixture(scope="session")
def broken() -> Document:
    """The same with every tenth lifetime believed 300 steps too short: hundreds of conflicts."""
    return Document.of(first_fit(training_program(40), cut=300))


def five_ops() -> Program:
    """Upload, two ops that could share one address, a third that reads the first's result late, and a read by the host."""
    b = ProgramBuilder("five ops")
    x = b.tensor("x", "f32", (16,), role=Role.INPUT)
    y, z, out = (b.tensor(name, "f32", (16,)) for name in ("y", "z", "out"))
    b.op("host.write", (), (x,))
    b.op("relu", (x,), (y,), in_place=((0, 0),))
    b.op("exp", (y,), (z,), in_place=((0, 0),))
    b.op("add", (z, y), (out,))
    b.op("host.read", (out,), ())
    return b.build()


def stale() -> Document:
    """`exp` takes the memory of `y`, which `add` reads afterwards: one stale read, one overlap."""
    program = five_ops()
    problem = Problem.of(program, start=[0, 1, 2, 3], stop=[2, 3, 4, 4], pinned=[3])
    return Document.of(plan_of(program, {0: 0, 1: 0, 2: 0, 3: 64}, source="one reader forgotten", problem=problem))


def without_ops() -> Document:
    """As a minimalloc file: buffers with lifetimes, sizes and places, and no ops."""
    b = ProgramBuilder("no ops")
    for index, size in enumerate((64, 32, 96, 16)):
        b.buffer(f"b{index}", size)
    program = b.build()
    problem = Problem.of(program, start=[0, 2, 5, 1], stop=[4, 6, 9, 9], may_share=[[0, 2]])
    return Document.of(plan_of(program, {0: 0, 1: 64, 2: 96, 3: 200}, source="by hand", problem=problem))


def edge_documents() -> dict[str, Document]:
    """Documents at the ends: nothing, no plan, no ops, one op, nothing placed, sizes of zero."""
    one = ProgramBuilder("one op")
    one.op("host.write", (), (one.tensor("x", "f32", (4,), role=Role.INPUT),))
    single = one.build()
    hollow = ProgramBuilder("empty shapes")
    hollow.op("host.write", (), (hollow.tensor("nothing", "f32", (0, 8)),))
    empty = hollow.build()
    bare = ProgramBuilder("no buffers").build()
    unplaced = plan_of(five_ops(), {})
    return {
        "no program": Document(programs=()),
        "no plan": Document.of(five_ops()),
        "no plan, a belief": Document.of(Problem.of(five_ops())),
        "no buffers": Document.of(plan_of(bare, {})),
        "no ops": without_ops(),
        "no ops, no belief": Document.of(plan_of(without_ops().programs[0], {0: 0})),
        "one op": Document.of(plan_of(single, {0: 0})),
        "zero bytes": Document.of(plan_of(empty, {0: 0})),
        "nothing placed": Document.of(unplaced),
        "five ops": Document.of(plan_of(five_ops(), {0: 0, 1: 0, 2: 64, 3: 128})),
        "below zero": Document.of(plan_of(five_ops(), {0: -64, 1: 0, 2: 64, 3: 1 << 40})),
        "stale": stale(),
        "$names$": _hostile(),
    }


def _hostile() -> Document:
    b = ProgramBuilder("$\\frac{1}$ `|` \x00\n🙂" * 20)
    x = b.tensor("$\\alpha_{", "f32", (8,), role=Role.INPUT)
    b.op("host.write", (), (x,), name="[x](y)\n|")
    b.op("$kind^", (x,), (b.tensor("漢字 \ud800"[:2] + "\u202e<b>", "f32", (8,)),), name="")
    return Document.of(plan_of(b.build(), {0: 0, 1: 32}, source="_<script>_ $x$"))


def run_record() -> dict[str, object]:
    """A record as the command line's `--json` gives it, of a kernel fault."""
    party = {
        "run": 0, "op": 2, "op_name": "exp", "kind": "exp", "value": 1, "value_name": "y", "buffer": 1, "buffer_name": "y",
        "bytes": [[0, 64]], "address": 0,
    }  # fmt: skip
    loss = [7.5194, 5.0, 2.0, 0.2110]
    return {
        "scenario": "ggml-1501",
        "matches": True,
        "expected": {"class": "C04", "fault": "kernel"},
        "verdict": {
            "class": "C04", "fault": "kernel", "victim": party, "writer": party, "reader": {**party, "op": 3, "op_name": "add"},
            "belief": "exp is safe in place", "also": [{"class": "C06", "fault": "caller", "text": "the seed is set once"}],
            "cure": "forbid the in-place pair of exp (result 0 over operand 0)", "cure_bytes": 64, "pin_all_bytes": 4 << 20,
            "text": "The plan is legal (0 conflicts in 5 ops); the kernel of exp is not safe with its result over operand 0.",
        },
        "detectors": {
            "S": {"status": "clean", "count": 0},
            "K": {"status": "violations", "count": 1, "kinds": ["exp"]},
            "H": {"status": "not run", "why": "one stream"},
        },
        "modes": {
            "default": {
                "loss": [7.5194, 7.519, 7.5187, 7.5184],
                "arena_bytes": 128,
                "gradients": [
                    {"step": 1, "layer": layer, "tensor": f"L{layer}.{tensor}", "ratio": 10.0**layer, "cosine": 1 - 0.4 * layer}
                    for layer in range(4)
                    for tensor in ("q.a", "q.b")
                ]
                + [{"step": 1, "layer": 3, "tensor": "L3.v.a", "ratio": None, "cosine": None}],
            },
            "pinned": {"loss": loss, "arena_bytes": 4 << 20},
            "reference": {"loss": loss, "arena_bytes": 5 << 20},
        },
    }  # fmt: skip


@pytest.fixture(scope="session")
def edges() -> dict[str, Document]:
    """Documents at the ends of what a figure must stand."""
    return edge_documents()


@pytest.fixture
def stale_read() -> Document:
    """Five ops with one forgotten reader."""
    return stale()


@pytest.fixture
def legal() -> Document:
    """The same ops under a sound plan."""
    return Document.of(plan_of(five_ops(), {0: 0, 1: 0, 2: 64, 3: 128}, source="sound"))


@pytest.fixture
def record() -> dict[str, object]:
    """The record of a run with a kernel fault."""
    return run_record()
