"""C05 to C08 and C14: what the host reads and writes, what is kept from run to run, plans that outlive their program."""

from power.fault import HISTORY, PINNED, TAKEN, shelf

from allocsim.model import Document, Role, Run
from repro.small.small_document import SmallDocument
from repro.small.words import belief, plan, program

FAULTS, add = shelf("belief")

PIN = {**TAKEN, "L": "MissingPin"}
TWO = "x = host.write; y = f x; z = g y; w = h z; host.read w; host.read y"

# --- C05: an output not pinned --------------------------------------------------------------------------------------------

add(
    "an output that is a view of another one",
    "pytorch/pytorch#187678",
    "C05 plan",
    "x = host.write; b = f x; v:b = view b; w:b = view v; t = g b; u = h t; host.read u; host.read w",
    {"slots": "b=0 u=0", "believed": {"b": (1, 5)}},
    slots="b=0 t=64 u=128 x=64",
    **{**PIN, **PINNED},
)
add(
    "an input is read back after the run",
    "tensorflow/tflite-micro#2290",
    "C05 caller",
    "x = host.write; a = f x; b = g a; host.read b; host.read x",
    {"slots": "x=0 b=0", "believed": {"x": (0, 2)}, "pinned": "b"},
    slots="x=0 a=64 b=128",
    where="caller",
    **PIN,
)
add(
    "a pin does not hold, and so far it costs padding",
    "ggml-org/ggml#700",
    "C05 plan",
    TWO,
    {"slots": "y=0 w=32", "believed": {"y": (1, 3)}},
    slots="y=0 z=64 w=128 x=64",
    S="Overlap PinIgnored",
    L="MissingPin",
)
add(
    "a pin is forgotten and nothing comes of it yet",
    "",
    "C05 caller",
    TWO,
    {"believed": {"y": (1, 3)}, "pinned": "w"},
    slots="y=0 z=64 w=128",
    where="caller",
    L="MissingPin",
)
add(
    "a graph output is written over in place",
    "pytorch/torchdynamo#1486",
    "C05 caller",
    "x = host.write; y = f x; z = relu! y; host.read z; host.read y",
    {"slots": "y=0 z=0", "believed": {"y": (1, 3)}, "pinned": "z"},
    slots="y=0 z=64",
    where="caller",
    **PIN,
)

# --- C06: the slot of an input recycled -----------------------------------------------------------------------------------


add(
    "the seed of a gradient is uploaded once",
    "ggml-org/ggml#1501 (the other cause)",
    "C06 caller",
    "x = host.write; s = host.write; a = f x s; b = g a; host.read b",
    {"runs": ((), (1,))},
    slots="x=0 s=64 b=64 a=128",
    runs=((), ()),
    where="caller",
    **HISTORY,
)

# --- C07: state in memory that is recycled --------------------------------------------------------------------------------


def _moved(planted):
    """A later plan puts a state elsewhere, where nobody has laid it."""
    made = program("y = f s; host.read y", roles={"s": Role.STATE})
    return Document.of(*(Run.of(plan(made, f"s={s} y=0", belief(made))) for s in (64, 128 if planted else 64)))


add(
    "a new plan moves a state and leaves its content behind",
    "ggml-org/ggml#999",
    "C07 plan",
    _moved,
    where="placement",
    S="StaleRead",
    R="StaleRead",
)

# --- C08: a plan for another program --------------------------------------------------------------------------------------


# --- C14: bytes nobody wrote in this run ----------------------------------------------------------------------------------

add(
    "an accumulator is zeroed before the first run only",
    "ggml-org/ggml#1501 (accumulators)",
    "C14 caller",
    "g = host.write; x = host.write; s:g = add! g x; host.read s",
    {"runs": ((), (0,))},
    slots="g=own x=0",
    runs=((), ()),
    where="caller",
    S="OverwrittenRead HistoryRead",
    R="OverwrittenRead",
    P="OverwrittenRead",
)
add(
    "a value is read that the run before has left",
    "ggml-org/ggml#988",
    "C14 caller",
    "x = host.write; old:e = put x; y = f before:e; after:e = g y; host.read y",
    {"text": "x = host.write; y = f before:e; after:e = g y; host.read y"},
    slots="e=0 y=64 x=128",
    roles={"e": Role.TEMPORARY},
    runs=((), ()),
    where="caller",
    S="UninitialisedRead HistoryRead",
    P="UninitialisedRead",
)
add(
    "a kernel leaves half of its result unwritten",
    "ggml-org/ggml#1131 (inside a kernel)",
    "C14 kernel",
    "x = host.write; a = f x; y = rows a; host.read y",
    {"kernels": {"rows": "half"}},
    slots="x=0 a=64 y=0",
    where="kernel",
    P="ResultUnwritten",
    D="result",
)
add(
    "a second run has larger inputs than the plan",
    "microsoft/onnxruntime#28359",
    "C08 plan",
    "x[16] = host.write; y = f x; host.read y",
    {"order": "p q/p"},
    slots="x=0 y=64",
    order="p p",
    others={"q": SmallDocument(text="x[32] = host.write; y = f x; host.read y", sizes="x=128")},
    where="size",
    S="Undersized UnsafeInPlace Overlap",
    R="UnsafeInPlace Overlap",
)
