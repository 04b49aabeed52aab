"""C03, C04 and C11: in place where it may not be, kernels that are not safe in place, one slot handed out twice."""

from dataclasses import replace

from power.fault import EARLY, IGNORED, TAKEN, shelf

from allocsim.model import Document, Problem, Role
from allocsim.programs.builder import ProgramBuilder, plan_of
from repro.small.words import belief, plan, program

FAULTS, add = shelf("belief")

PAIR = {**TAKEN, "L": "BadShare"}
UNSAFE = {"D": "result", "K": "unsafe"}

# --- C03: in place while the old value is needed --------------------------------------------------------------------------

add(
    "a pair is used that the kernel does not offer",
    "llvm/llvm-project#213241",
    "C03 plan",
    "x = host.write; a = f x; y = g a; host.read y",
    {"slots": "a=0 y=0", "share": "a>y"},
    slots="a=0 y=64",
    S="UnsafeInPlace Overlap",
    L="BadShare",
)
add(
    "a result is shifted against the operand it replaces",
    "tinygrad/tinygrad#15698",
    "C12 plan",
    "x = host.write; b[16] = f x; y[16] = shift! b; host.read y",
    {"slots": "b=0 y=32"},
    slots="b=0 y=0",
    share="b>y",
    where="placement",
    S="UnsafeInPlace Overlap LifetimeIgnored",
)
add(
    "a result grows past the operand it replaces",
    "dsharlet/slinky#821",
    "C12 plan; C03 plan",
    "x = host.write; a = f x; n = g x; y[16] = copy! a; w = use y n; host.read w",
    {"slots": "a=0 n=32 y=0", "share": "a>y"},
    slots="a=0 n=32 y=64",
    sizes="a=32 n=32",
    S="UnsafeInPlace Overlap StaleRead LifetimeIgnored",
    L="BadShare",
    P="StaleRead",
    D="operand",
)
add(
    "a program mutates through a kernel that does not offer it",
    "ggml-org/ggml#475",
    "C03 caller",
    "x = host.write; a = f x; n:a = add! a x; host.read n",
    {"text": "x = host.write; a = f x; n:a = add a x; host.read n"},
    slots="a=0",
    where="caller",
    S="UnsafeInPlace",
)
add(
    "a foreign kernel is taken to be safe in place and is not",
    "apache/mxnet#10591 (undeclared)",
    "C03 plan",
    "x = host.write; a = f x; y = foreign? a; host.read y",
    {"slots": "a=0 y=0", "share": "a>y", "kernels": {"foreign": "neighbours"}},
    slots="a=0 y=64",
    S="AssumedInPlace",
    D="result",
)

# --- C04: the plan is legal, the kernel is not safe in place --------------------------------------------------------------


def kernel(name, like, kinds_text, kind, misdeed, **sketch):
    """A kernel that breaks what it declares, under a legal plan that relies on it."""
    add(name, like, "C04 kernel", kinds_text, {"kernels": {kind: misdeed}}, where="kernel", **{**UNSAFE, **sketch})


kernel(
    "a fallback path ignores that it runs in place",
    "apache/mxnet#10591",
    "x = host.write; a = f x; y = sum!01 a x; host.read y",
    "sum",
    "two_pass",
    share="a>y",
    slots="a=0 y=0",
)
kernel(
    "a kernel reads its neighbour after writing it",
    "Xilinx/mlir-aie#3656",
    "x = host.write; a = f x; y = scan! a; host.read y",
    "scan",
    "neighbours",
    share="a>y",
    slots="a=0 y=0",
)
kernel(
    "a mutation whose kernel reads again what it has overwritten",
    "ggml-org/ggml#1197",
    "x = host.write; a = f x; n:a = accumulate! a x; host.read n",
    "accumulate",
    "two_pass",
    D="",  # the mutation is there in the reference too
    slots="a=0",
)

# --- C11: one buffer handed out twice -------------------------------------------------------------------------------------


add(
    "a subgraph donates what its caller still reads",
    "pytorch/pytorch#192840",
    "C11 plan",
    "s = host.write; o = f! s; p = g s; host.read o; host.read p",
    {"slots": "s=0 o=0", "share": "s>o"},
    slots="s=0 o=64",
    **PAIR,
)
add(
    "two fields of a state share one buffer",
    "learnsyslab/crazyflow#110",
    "C11 plan",
    "y = f p q; n:q = upd! q y; host.read y; host.read n",
    {"slots": "p=0 q=0 y=64"},
    slots="p=0 q=128 y=64",
    roles={"p": Role.STATE, "q": Role.STATE},
    runs=((), ()),
    where="placement",
    **IGNORED,
)
add(
    "an output may not take what was uploaded into another input's slot",
    "ggml-org/llama.cpp#5100",
    "C11 plan",
    "a = host.write; b = host.write; c = host.write; d = f a b; e = g d c; host.read e",
    {"slots": "a=0 c=0"},
    slots="a=0 b=64 c=128 d=192 e=0",
    where="placement",
    **IGNORED,
)
add(
    "an op writes weights that are read-only",
    "pytorch/pytorch#51342",
    "C11 caller",
    "x = host.write; y = f x w; n:w = step! w y; host.read y",
    {"read_only": "w"},
    slots="x=0 y=64",
    roles={"w": Role.STATE},
    where="caller",
    S="WriteToReadOnly",
)

# --- two operands that are one buffer, two results that are exchanged -----------------------------------------------------

add(
    "what an op reads twice is counted once and given back twice",
    "",
    "C01 plan",
    "x = host.write; a = f x; b = mul a a; d = g x; c = use b d a; host.read c",
    {"slots": "a=0 b=64 d=0", "believed": {"a": (1, 3)}},
    slots="a=0 b=64 d=128",
    **EARLY,
)
add(
    "of two operands that are one buffer the kernel offers one, and the plan takes it",
    "",
    "C03 plan",
    "x = host.write; a = f x; y = sub! a a; host.read y",
    {"slots": "a=0 y=0", "share": "a>y"},
    slots="a=0 y=64",
    S="UnsafeInPlace Overlap",
    L="BadShare",
)


def donated(planted):
    """Both results of a step take a donated input each: their own, or each the other's, which is as large."""
    b = ProgramBuilder("step")
    s, t = (b.tensor(name, "f32", (8,), role=Role.INPUT) for name in "st")
    u, v = (b.tensor(name, "f32", (8,)) for name in "uv")
    b.op("host.write", (), (s,))
    b.op("host.write", (), (t,))
    b.op("step", (s, t), (u, v), in_place=((0, 0), (1, 1)))
    b.op("host.read", (u,), ())
    b.op("host.read", (v,), ())
    made = b.build()
    pairs = [[s, v], [t, u]] if planted else [[s, u], [t, v]]
    problem = Problem.of(made, start=[0, 1, 2, 2], stop=[3, 3, 5, 5], pinned=[u, v], may_share=pairs)
    return Document.of(plan_of(made, [0, 64, 64, 0] if planted else [0, 64, 0, 64], problem=problem))


add(
    "donated inputs are matched to the results in the other order",
    "",
    "C03 plan",
    donated,
    S="UnsafeInPlace Overlap",
    L="BadShare",
)


def exchanged(planted):
    """Two results, one of 64 bytes and one of 32, each in its own slot or each in the other's."""
    made = program("x = host.write; k[16] v = split x; n = use k v; host.read n", sizes="v=32")
    right = plan(made, "x=256 k=0 v=64 n=128", belief(made))
    _, k, v, _ = range(4)
    order = [0, v, k, 3] if planted else [0, k, v, 3]
    return Document.of(replace(right, offset=right.offset[order], nbytes=right.nbytes[order]))


add(
    "two results of different sizes are bound to each other's slots",
    "iree-org/iree#20819",
    "C12 plan",
    exchanged,
    where="placement",
    S="Undersized",
)
add(
    "a kernel writes its results in the other order, and one is shorter",
    "iree-org/iree#20819",
    "C12 kernel; C14 kernel",
    "x = host.write; k[9] v = split x; n = use k v; host.read n",
    {"kernels": {"split": "exchanged"}},
    where="kernel",
    slots="k=0 v=64",
    sizes="v=32",
    P="Overrun ResultUnwritten",
)
add(
    "a runtime hands a kernel two equal results in the other order",
    "iree-org/iree#14566",
    "unknown unknown",
    "x = host.write; k v = split x; n = use k v; host.read n",
    {"calls": {"split": "exchanged"}},
    where="kernel",
    slots="k=0 v=64",
    D="result",
)
