"""C12 and C13: sizes, alignment, bounds, kernels that overrun, free lists; and what an importer gets wrong."""

from dataclasses import replace

import numpy as np
from power.fault import IGNORED, shelf

from allocsim.allocators import find
from allocsim.model import Document, Plan, Problem, Run
from repro.small.words import belief, plan, program

FAULTS, add = shelf("size")

LATE = "x = host.write; a = f x; b = g x; c = h b a; host.read c"
WIDE = "x = host.write; a[16] = f x; b[16] = g x; c = h b a; host.read c"

# --- C12: placement and sizes ---------------------------------------------------------------------------------------------

add(
    "beliefs hold and two live buffers meet all the same",
    "apache/tvm#1012",
    "C12 plan",
    LATE,
    {"slots": "a=0 b=0"},
    slots="a=0 b=64",
    where="placement",
    **IGNORED,
)
add(
    "two live buffers meet in their padding",
    "apache/tvm#1012 (padding)",
    "C12 plan",
    LATE,
    {"slots": "a=0 b=32"},
    slots="a=0 b=64",
    where="placement",
    S="Overlap LifetimeIgnored",
)
add(
    "a size in elements is rounded down",
    "apache/tvm#891",
    "C12 plan",
    WIDE,
    {"slots": "a=0 b=32", "believed_nbytes": (64, 32, 64, 64)},
    slots="a=0 b=64",
    S="StaleRead Overlap",
    L="BadSize",
    P="StaleRead",
    D="operand",
)
add(
    "a size is believed too small and nothing comes of it yet",
    "apache/tvm#18663",
    "C12 plan",
    WIDE,
    {"believed_nbytes": (64, 32, 64, 64)},
    slots="a=0 b=64",
    L="BadSize",
)
add(
    "an offset between two multiples of the alignment",
    "ggml-org/llama.cpp#16396",
    "C12 plan",
    LATE,
    {"slots": "a=4 b=128"},
    slots="a=0 b=128",
    where="placement",
    S="Misaligned",
)
add(
    "a used tensor has no slot",
    "tensorflow/tflite-micro#1575 (no slot)",
    "C12 plan",
    LATE,
    {"slots": "a=none b=64"},
    slots="a=0 b=64",
    where="placement",
    S="Unplaced",
)
add(
    "a view of a view reaches past its buffer",
    "ggml-org/ggml#491",
    "C12 caller",
    "x = host.write; a[16] = f x; v:a[8@32] = view a; b = g v; host.read b",
    {"text": "x = host.write; a[16] = f x; v:a[8@48] = view a; b = g v; host.read b"},
    slots="a=0 b=64",
    S="OutOfBounds",
)


def _elsewhere(planted):
    """A buffer of the second memory gets a slot in the first."""
    made = program("x = host.write; a = copy x; b = f a; host.read b", gpu="a b")
    right = plan(made, "x=0 a=0 b=64", belief(made))
    arena = right.arena.copy()
    arena[1] = 0 if planted else arena[1]
    return Document.of(
        replace(right, arena=arena, offset=np.where(np.arange(3) == 1, 256 if planted else 0, right.offset))
    )


add(
    "a slot in another device's memory",
    "ggml-org/llama.cpp#13222",
    "C12 plan",
    _elsewhere,
    where="placement",
    S="WrongArena",
)

# --- C12: kernels ---------------------------------------------------------------------------------------------------------

OVER = "x = host.write; a[16] = f x; b[16] = scale a; c = h b x; host.read c"

add(
    "a kernel writes behind its result, where nobody is",
    "ggml-org/ggml#1492",
    "C12 kernel",
    OVER,
    {"kernels": {"scale": "overrun"}},
    slots="b=0 x=256 a=128",
    where="kernel",
    P="Overrun",
)
add(
    "a kernel writes before its result",
    "ggml-org/llama.cpp#2416",
    "C12 kernel",
    OVER,
    {"kernels": {"scale": "underrun"}},
    slots="x=0 b=64 a=128",
    sizes="x=64",
    where="kernel",
    P="Overrun",
)
add(
    "a kernel reads one element past its operand",
    "apache/tvm#8308 (inside a kernel)",
    "C12 kernel",
    "x = host.write; t[16] = f x; a[16] = g t; b[16] = scale a; c = h b; host.read c",
    {"kernels": {"scale": "read_beyond"}},
    slots="t=128 a=0 b=128 c=192 x=256",
    where="kernel",
    P="PoisonRead",
    D="result",
)
add(
    "a kernel uses its operand as scratch",
    "llvm/llvm-project#213241 (inside a kernel)",
    "C03 kernel",
    "x = host.write; a = f x; b = g a; c = h b a; host.read c",
    {"kernels": {"g": "writes_operand"}},
    slots="x=0 a=64 b=128",
    runs=((), ()),
    where="kernel",
    P="OperandWritten",
)

# --- C13: allocations and frees -------------------------------------------------------------------------------------------

RELU = "x = host.write; a = f x; b = relu! a; c = g b; d = h b; e = k c d; host.read e"
FREED = "0+x 1+a 1-x 2+b 2-a 3+c 4+d 4-b 5+e 5-c 5-d 6-e"

add(
    "a buffer is freed twice",
    "pytorch/pytorch#103720 (unharmed)",
    "C13 plan",
    RELU,
    {"events": FREED.replace("4-b", "4-b 4-b")},
    slots="x=0 a=64 b=64 c=0 d=128 e=192",
    share="a>b",
    events=FREED,
    where="placement",
    S="DoubleFree",
)
add(
    "a block is handed out that was not given back",
    "ggml-org/llama.cpp#16679",
    "C13 plan",
    RELU,
    {"events": FREED.replace("1-x ", "").replace("6-e", "6-e 6-x")},
    slots="x=0 a=64 b=64 c=0 d=128 e=192",
    share="a>b",
    events=FREED,
    where="placement",
    S="AllocOverLive",
)

# --- what an importer gets wrong ------------------------------------------------------------------------------------------


def _placed(text, change, planner="greedy_by_size"):
    """Return a document whose plan one of the planners made from a belief that was read wrongly."""
    made = program(text)
    right = belief(made)
    columns = {name: getattr(right, name).copy() for name in ("start", "stop")}
    change(columns)
    believed = Problem.of(made, pinned=np.flatnonzero(right.pinned).tolist(), **columns)
    placed = find(planner).place(believed)
    return Document.of(Run.of(placed))


def _inclusive(planted):
    """Inclusive ends are taken for half-open ones: every last reader is left out."""
    return _placed(LATE, lambda columns: columns.update(stop=columns["stop"] - planted))


def _elements(planted):
    """Offsets that count floats are taken for bytes."""
    made = program(LATE)
    scale = 4 if planted else 1
    return Document.of(plan(made, " ".join(f"{name}={64 * n // scale}" for n, name in enumerate("xabc")), belief(made)))


def _quarter(planted):
    """Sizes that count floats are taken for bytes, and the plan is packed by them."""
    made = program(WIDE)
    size = 16 if planted else 64
    right = belief(made, nbytes=[size] * 4)
    slots = plan(made, " ".join(f"{name}={32 * -(-size // 32) * n}" for n, name in enumerate("xabc")), right)
    return Document.of(Plan(program=made, problem=right, arena=slots.arena, offset=slots.offset, nbytes=right.nbytes))


add(
    "inclusive ends are read as half-open ones",
    "",
    "C01 plan; C05 plan",
    _inclusive,
    where="format",
    S="Overlap UnsafeInPlace",
    L="LifetimeTooShort MissingPin",
)
add(
    "offsets in elements are read as bytes",
    "apache/tvm#8308",
    "C12 plan",
    _elements,
    where="format",
    S="Misaligned StaleRead Overlap UnsafeInPlace LifetimeIgnored",
)
add(
    "sizes in elements are read as bytes",
    "apache/tvm#891 (importer)",
    "C12 plan",
    _quarter,
    where="format",
    S="Undersized StaleRead Overlap UnsafeInPlace",
    L="BadSize",
)
add(
    "padding wraps and a slot begins before its arena",
    "ggml-org/llama.cpp#26318",
    "C12 plan",
    LATE,
    {"slots": "a=-32 b=64"},
    slots="a=0 b=64",
    where="placement",
    S="OutOfBounds",
)
add(
    "an importer gives a view a buffer of its own",
    "apache/tvm#12349",
    "C14 caller",
    "x = host.write; s = f x; r = g x; o = add r v:s; host.read o",
    {"text": "x = host.write; s = f x; r = g x; o = add r v; host.read o"},
    where="format",
    S="UninitialisedRead",
    P="UninitialisedRead",
)
