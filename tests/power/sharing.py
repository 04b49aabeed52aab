"""C03, C04 and C11: in place where it may not be, kernels that are not safe in place, one slot handed out twice."""

from dataclasses import replace

from power.fault import EARLY, IGNORED, PINNED, TAKEN, shelf
from tiny import belief, plan, program

from allocsim.model import Document, Problem, Role
from allocsim.programs.builder import ProgramBuilder, plan_of

FAULTS, add = shelf("belief")

PAIR = {**TAKEN, "L": "BadShare"}
UNSAFE = {"D": "result", "K": "unsafe"}

# --- C03: in place while the old value is needed --------------------------------------------------------------------------

add(
    "x + x in place although x is read again",
    "libxsmm/tpp-mlir#588",
    "C03 plan",
    "x = host.write; a = f x; y = add!01 a a; z = mul y a; host.read z",
    {"slots": "a=0 y=0", "share": "a>y"},
    slots="a=0 y=64",
    scenario="duplicate operand",
    **PAIR,
)
add(
    "of two permitted donors the one still read is taken",
    "dmlc/nnvm#67",
    "C03 plan",
    "x = host.write; a = f x; b = g x; y = op!01 a b; c = use y b; host.read c",
    {"slots": "b=0 y=0", "share": "b>y"},
    slots="a=0 b=64 y=0",
    share="a>y",
    **PAIR,
)
add(
    "an identity in place over a value with a second reader",
    "dmlc/nnvm#124",
    "C03 plan",
    "x = host.write; a = f x; y = identity! a; u = use a; w = use2 y u; host.read w",
    {"slots": "a=0 y=0", "share": "a>y"},
    slots="a=0 y=64",
    **PAIR,
)
add(
    "a tied operand is read after the tied call",
    "iree-org/iree#13003",
    "C03 plan",
    "x = host.write; e = empty x; p = fill! e; q = g p e; host.read q",
    {"slots": "e=0 p=0", "share": "e>p"},
    slots="e=0 p=64",
    **PAIR,
)
add(
    "an accumulator is written in place and returned as well",
    "iree-org/iree#16168",
    "C03 plan",
    "x = host.write; acc = f x; r = matmul! acc x; host.read r; host.read acc",
    {"slots": "acc=0 r=0", "share": "acc>r"},
    slots="acc=0 r=64",
    **{**PAIR, **PINNED},
)
add(
    "a loop-invariant destination is written in each iteration",
    "llvm/llvm-project#90019",
    "C03 plan",
    "x = host.write; e = f x; r1 = map! e; s = keep r1; r2 = map! e; o = add s r2; host.read o",
    {"slots": "e=0 r1=0", "share": "e>r1"},
    slots="e=0 r1=64 r2=0",
    share="e>r2",
    **PAIR,
)
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
    "an in-place op runs over a parameter seen through a view",
    "ggml-org/whisper.cpp#1677",
    "C03 plan",
    "x = host.write; v:w = view w; y = relu! v; z = add y x; host.read z",
    {"slots": "w=0 y=0", "share": "w>y"},
    slots="w=0 y=64",
    roles={"w": Role.PARAMETER},
    runs=((), ()),
    S="StaleRead Overlap",
    L="BadShare",
    R="StaleRead",
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
    "a slice of a concatenation is read after the concatenation was changed",
    "pytorch/pytorch#178032",
    "program caller",
    "x = host.write; c = cat x x; n:c = put! c; u = use n; host.read u",
    {"text": "x = host.write; c = cat x x; n:c = put! c; u = use c; host.read u"},
    slots="c=0 u=64",
    where="caller",
    S="OverwrittenRead",
    P="OverwrittenRead",
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

NORM = "z = host.write; x = host.write; dz = f z; dx = norm! dz x; host.read dx"


def kernel(name, like, kinds_text, kind, misdeed, **sketch):
    """A kernel that breaks what it declares, under a legal plan that relies on it."""
    add(name, like, "C04 kernel", kinds_text, {"kernels": {kind: misdeed}}, where="kernel", **{**UNSAFE, **sketch})


kernel(
    "a kernel writes x and then reads dz again",
    "ggml-org/ggml#1491",
    NORM,
    "norm",
    "two_pass",
    share="dz>dx",
    slots="dz=0 dx=0",
)
kernel(
    "over its second operand only is a kernel unsafe, and a pin makes the planner choose that",
    "ggml-org/ggml#1521",
    "p = host.write; q = host.write; dy = f p; y = g q; dx = soft!01 dy y; host.read dx; host.read dy",
    "soft",
    "second_again",
    share="y>dx",
    slots="y=0 dx=0",
)
kernel(
    "a sum of five fills its output with zeros first",
    "apache/mxnet#14858",
    "x = host.write; a = f x; b = g x; c = h x; d = k x; e = l x; y = add_n! a b c d e; host.read y",
    "add_n",
    "zero_first",
    share="a>y",
    slots="a=0 y=0",
)
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
    "a fused kernel looks at one of two equal operands",
    "ggml-org/llama.cpp#22266",
    "x = host.write; a = f x; y = rms!01 a a; host.read y",
    "rms",
    "second_again",
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

DONATED = "s = host.write; v = host.write; o = sub! v v; p = copy s; host.read o; host.read p"

add(
    "an output takes a donated input that is still read",
    "jax-ml/jax#39625",
    "C11 plan",
    DONATED,
    {"slots": "s=0 o=0", "share": "s>o"},
    slots="s=0 o=64",
    scenario="donation order",
    **PAIR,
)
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
    "two updates of one fusion share a result slot",
    "jax-ml/jax#39100",
    "C11 plan",
    "z = host.write; t1 t2 = dus z; o = add t1 t2; host.read o",
    {"slots": "t1=0 t2=0"},
    slots="t1=0 t2=64",
    where="placement",
    S="ResultsOverlap Overlap StaleRead LifetimeIgnored",
    P="StaleRead",
    D="operand result",
)
add(
    "two empty outputs are merged as equal",
    "ROCm/hip-ep#421",
    "C11 plan",
    "x = host.write; k v = qkv x; a = f k; b = g v; host.read a; host.read b",
    {"slots": "k=0 v=0"},
    slots="k=0 v=64",
    where="placement",
    S="ResultsOverlap Overlap StaleRead LifetimeIgnored",
    P="StaleRead",
    D="operand result",
)
add(
    "one buffer is donated and passed twice",
    "jax-ml/jax#9635",
    "C11 plan",
    "a = host.write; b = host.write; c = f a b; host.read c",
    {"slots": "a=0 b=0"},
    slots="a=0 b=64",
    where="placement",
    **IGNORED,
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
add(
    "a kernel is bound one buffer for two operands and reads it for the first alone",
    "ggml-org/llama.cpp#22456",
    "C04 kernel",
    "x = host.write; a = f x; y = scan a a; host.read y",
    {"kernels": {"scan": "one_binding"}},
    where="kernel",
    slots="a=0 y=64",
    K="unsafe",
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
