"""C05 to C08 and C14: what the host reads and writes, what is kept from run to run, plans that outlive their program."""

from power.fault import EARLY, IGNORED, PINNED, TAKEN, shelf
from tiny import belief, plan, program

from allocsim.model import Document, Role, Run

FAULTS, add = shelf("belief")

PIN = {**TAKEN, "L": "MissingPin"}
TWO = "x = host.write; y = f x; z = g y; w = h z; host.read w; host.read y"

# --- C05: an output not pinned --------------------------------------------------------------------------------------------

add(
    "a pin on a view does not reach its storage",
    "tetherto/qvac-fabric-llm.cpp#232",
    "C05 plan",
    "x = host.write; a = f x; v:a = view a; b = g v; d = h x; e = k b d; host.read e; host.read v",
    {"slots": "a=0 d=0", "believed": {"a": (1, 4)}},
    slots="a=0 b=64 d=128 x=192 e=192",
    scenario="pin on view",
    **{**PIN, **PINNED},
)
add(
    "an output that is read inside as well dies with its last reader",
    "apache/tvm#286",
    "C05 plan",
    TWO,
    {"slots": "y=0 w=0", "believed": {"y": (1, 3)}},
    slots="y=0 z=64 w=128 x=64",
    **{**PIN, **PINNED},
)
add(
    "what a yield hands out is planned as internal",
    "microsoft/onnxruntime#7767",
    "C05 plan",
    "x = host.write; h = f x; g = back h; w = step g; host.read w; host.read h",
    {"slots": "h=0 w=0", "believed": {"h": (1, 3)}},
    slots="h=0 g=64 w=128 x=64",
    **{**PIN, **PINNED},
)
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
    "a graph output is written over in place",
    "pytorch/torchdynamo#1486",
    "C05 caller",
    "x = host.write; y = f x; z = relu! y; host.read z; host.read y",
    {"slots": "y=0 z=0", "believed": {"y": (1, 3)}, "pinned": "z"},
    slots="y=0 z=64",
    where="caller",
    **PIN,
)
add(
    "an intermediate is looked at that nobody flagged",
    "ggml-org/ggml#1151",
    "C05 caller",
    TWO,
    {"slots": "y=0 w=0", "believed": {"y": (1, 3)}, "pinned": "w"},
    slots="y=0 z=64 w=128 x=64",
    where="caller",
    **PIN,
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

# --- C06: the slot of an input recycled -----------------------------------------------------------------------------------

INDEX = "i = host.write; h = rows i; loss = ce h; g = rows_back loss i; host.read g"

add(
    "an index leaf is let go between the passes",
    "matz/spinel#1449",
    "C06 plan",
    INDEX,
    {"slots": "i=0 loss=0", "believed": {"i": (0, 2)}},
    slots="i=0 h=64 loss=128 g=64",
    scenario="index leaf",
    **EARLY,
)
add(
    "a constant leaf is read late",
    "ggml-org/ggml#731",
    "C06 plan",
    "x = host.write; l = host.write; a = f x l; b = g a; c = h b l; host.read c",
    {"slots": "l=0 b=0", "believed": {"l": (1, 3)}},
    slots="l=0 a=64 b=128 x=128 c=64",
    **EARLY,
)
add(
    "the seed of a gradient is uploaded once",
    "ggml-org/ggml#1501 (the other cause)",
    "C06 caller",
    "x = host.write; s = host.write; a = f x s; b = g a; host.read b",
    {"runs": ((), (1,))},
    slots="x=0 s=64 b=64 a=128",
    runs=((), ()),
    where="caller",
    S="StaleRead HistoryRead",
    R="StaleRead",
    P="StaleRead",
    D="operand",
)
add(
    "an application keeps features in an input",
    "tensorflow/tensorflow#35117",
    "C06 caller",
    "f = host.write; a = one f; b = two a; host.read b",
    {"runs": ((), (0,), (0,))},
    slots="f=0 a=64 b=0",
    runs=((), (), ()),
    where="caller",
    S="StaleRead HistoryRead",
    R="StaleRead",
    P="StaleRead",
    D="operand",
)

# --- C07: state in memory that is recycled --------------------------------------------------------------------------------

CARRIED = "first:e = host.write; y = f before:e; after:e = g y; t = h y; host.read t"

add(
    "a gradient outside the graph is read after the next call",
    "tinygrad/tinygrad#16571",
    "C07 caller",
    CARRIED,
    {"runs": ((), (0,)), "slots": "e=0 y=64 t=0"},
    slots="e=0 y=64 t=128",
    roles={"e": Role.TEMPORARY},
    runs=((), ()),
    where="caller",
    scenario="escaping grad",
    S="StaleRead HistoryRead",
    R="StaleRead",
    P="StaleRead",
    D="operand",
)
add(
    "a state lies where a temporary goes",
    "ggml-org/llama.cpp#23170",
    "C07 plan",
    "x = host.write; a = f x; b = g a s; host.read b",
    {"slots": "s=0 a=0 b=64"},
    slots="s=0 a=64 b=128",
    roles={"s": Role.STATE},
    where="placement",
    **IGNORED,
)
add(
    "an output at a static address is poisoned by the next step",
    "pytorch/pytorch#188755",
    "C07 plan",
    "x = host.write; b = g x s; c = h b; host.read c",
    {"slots": "s=0 c=0"},
    slots="s=0 b=64 c=128",
    roles={"s": Role.STATE},
    runs=((), ()),
    where="placement",
    S="Overlap StaleRead",
    R="StaleRead",
    P="StaleRead",
    D="operand",
)


def _encoder(planted):
    """One graph leaves its result in a state, the next one reads it after planning a temporary there."""
    roles = {"e": Role.STATE}
    one = program("x = host.write; r:e = enc x; host.read r", name="encode", roles=roles)
    two = program("q = host.write; t = f q; y = dec t e; host.read y", name="decode", roles=roles)
    first, then = (
        plan(one, "e=0 x=64", belief(one)),
        plan(two, f"e=0 q=64 t={0 if planted else 128} y=192", belief(two)),
    )
    return Document.of(Run.of(first), Run.of(then))


add(
    "the result of an encoder lies in the arena of the decoder",
    "ggml-org/whisper.cpp#1964",
    "C07 plan",
    _encoder,
    where="placement",
    scenario="encoder result",
    S="StaleRead Overlap LifetimeIgnored",
    R="StaleRead Overlap",
)


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

STALE = "n0 = host.write; n1 = f n0; n2 = g n1; n3 = add n2 {}; host.read n3"

add(
    "counts and sizes are equal, the edges are not",
    "ggml-org/llama.cpp#28448",
    "C08 plan",
    STALE.format("n1"),
    {"runs": ((),), "other": STALE.format("n0")},
    slots="n0=0 n1=64 n2=0 n3=128",
    runs=((), ()),
    where="caller",
    scenario="stale plan",
    S="StaleRead Overlap",
    R="StaleRead Overlap",
    P="StaleRead",
    D="operand",
)
add(
    "a second run has larger inputs than the plan",
    "microsoft/onnxruntime#28359",
    "C08 plan",
    "x[16] = host.write; y = f x; host.read y",
    {"runs": ((),), "other": "x[32] = host.write; y = f x; host.read y", "other_sizes": "x=128"},
    slots="x=0 y=64",
    runs=((), ()),
    where="size",
    S="Undersized UnsafeInPlace Overlap",
    R="UnsafeInPlace Overlap",
)


def _train_infer_train(planted):
    """Three calls share one table of in-place indices, and the last plan made wins."""
    train, infer = (
        program(f"x = host.write; a = f x; b = relu! a; c = g b {last}; host.read c", name=last) for last in ("a", "b")
    )
    right = plan(train, "x=0 a=64 b=128 c=0", belief(train))
    wrong = plan(infer, "x=0 a=64 b=64 c=0", belief(infer, share="a>b"))
    return Document.of(Run.of(right), Run.of(wrong), Run.of(wrong, program=train) if planted else Run.of(right))


add(
    "an inference call leaves its plan to the next training step",
    "apache/mxnet#16553",
    "C08 plan",
    _train_infer_train,
    where="caller",
    scenario="train/infer/train",
    S="StaleRead Overlap",
    R="StaleRead Overlap",
)

# --- C14: bytes nobody wrote in this run ----------------------------------------------------------------------------------

add(
    "attention reads the padding behind the rows written",
    "ggml-org/whisper.cpp#3941",
    "C14 caller",
    "n = host.write; k:kv[8] = put n; y = attn w:kv[8]; host.read y",
    {"text": "n = host.write; k:kv[4] = put n; y = attn w:kv[8]; host.read y"},
    slots="kv=0 n=64 y=128",
    roles={"kv": Role.TEMPORARY},
    runs=((), ()),
    where="caller",
    scenario="padded attention",
    S="UninitialisedRead",
    P="UninitialisedRead",
)
add(
    "a copy into a view is not part of the graph",
    "ggml-org/ggml#1131",
    "C14 caller",
    "d = host.write; c:h = cpy d; y = f w:h; host.read y",
    {"text": "d = host.write; y = f w:h; host.read y"},
    slots="h=0 d=64",
    roles={"h": Role.TEMPORARY},
    where="caller",
    S="UninitialisedRead",
    P="UninitialisedRead",
)
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
