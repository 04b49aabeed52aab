"""C01 and C02: last uses computed too early, views lost."""

from power.fault import EARLY, shelf

FAULTS, add = shelf("belief")

LATE = "x = host.write; a = f x; b = g x; c = h b a; host.read c"
LOOP = "x = host.write; a = f x; s = use a; u = keep s; t = use a; v = keep2 u t; host.read v"

# --- C01: a reader missed -------------------------------------------------------------------------------------------------

add(
    "a loop-wide index shares bytes with a temporary",
    "tile-ai/tilelang-ascend#1156",
    "C01 plan",
    "i = host.write; x = host.write; idx = init i; t = f x; u = rows idx t; t2 = f u; w = rows idx t2; host.read w",
    {"slots": "idx=0 t2=0", "believed": {"idx": (2, 5)}},
    slots="idx=0 t2=64 i=64 x=128",
    **EARLY,
)
add(
    "a kill is put where the scope opens",
    "tile-ai/tilelang-ascend#1765",
    "C01 plan",
    LOOP,
    {"slots": "a=0 s=64 u=0", "believed": {"a": (1, 3), "s": (2, 3)}},
    slots="a=0 s=64 u=128 t=64",
    **EARLY,
)
add(
    "a workspace without a lifetime lies on what its op reads",
    "tensorflow/tflite-micro#1614",
    "C01 plan",
    "x = host.write; a = f x; y u = sort a; z = g y a; host.read z",
    {"slots": "a=0 u=0", "believed": {"u": (2, 2)}},
    slots="a=0 u=64",
    S="UnsafeInPlace Overlap StaleRead",
    L="LifetimeTooShort",
    P="StaleRead",
    D="operand",
)
add(
    "a buffer is believed born after it is written",
    "tensorflow/tflite-micro#1575",
    "C01 plan",
    "x = host.write; a = f x; b = g x; c = h a; d = k b c; host.read d",
    {"slots": "a=0 b=0", "believed": {"b": (4, 5)}},
    slots="a=0 b=64 d=0",
    **EARLY,
)
add(
    "a gap in which the bytes are still needed",
    "apache/tvm#17375",
    "C01 plan",
    "x = host.write; a = f x; b = g x; c = h b; d = k c a; host.read d",
    {"slots": "a=0 b=0", "gaps": {1: ((2, 4),)}},
    slots="a=0 b=64 c=128 d=64",
    **EARLY,
)
add(
    "only the padding of a live buffer is taken",
    "pytorch/executorch#6971",
    "C01 plan",
    LATE,
    {"slots": "a=0 b=32", "believed": {"a": (1, 2)}},
    slots="a=0 b=64",
    S="Overlap",
    L="LifetimeTooShort",
)
add(
    "a reader is forgotten and nothing comes of it yet",
    "",
    "C01 plan",
    LATE,
    {"believed": {"a": (1, 2)}},
    slots="a=0 b=64 c=128",
    L="LifetimeTooShort",
)

# --- C02: a view lost -----------------------------------------------------------------------------------------------------

VIEWED = "x = host.write; s = f x; v:s = view s; r = g x; o = add r v; host.read o"

add(
    "operands of a concatenation are views of its result",
    "pytorch/pytorch#100314 (cat)",
    "C02 plan",
    "x = host.write; c = cat x x; a:c[4] = view c; b:c[4@16] = view c; t = f a; r = g t; u = use b r; host.read u",
    {"slots": "c=0 r=0", "believed": {"c": (1, 5)}},
    slots="c=0 t=64 r=128",
    **EARLY,
)
add(
    "of a value and its view the view's last use is missed",
    "PaddlePaddle/Paddle-Lite#5665",
    "C02 plan",
    "x = host.write; s = f x; v:s = view s; r = g x; o = add r s; p = mul o v; host.read p",
    {"slots": "s=0 r=0", "believed": {"s": (1, 2)}},
    slots="s=0 r=64 o=128",
    **EARLY,
)
add(
    "a lost view costs the padding only",
    "tinygrad/tinygrad#5278",
    "C02 plan",
    VIEWED,
    {"slots": "s=0 r=32", "believed": {"s": (1, 2)}},
    slots="s=0 r=64 o=128",
    S="Overlap",
    L="LifetimeTooShort",
)
