"""C15 and its neighbours: branches, inlined calls and loop bodies whose arenas overlap; `@path` says which call an op comes from.

C15 it is where victim and taker lie in different calls, neither inside the other, or are carries of one loop; what happens between a call and its surroundings has the class of its mechanism.
"""

from power.fault import EARLY, IGNORED, shelf

FAULTS, add = shelf("belief")

add(
    "an output of a branch is copied onto a part of itself",
    "tensorflow/tflite-micro#853 (memcpy)",
    "C12 plan",
    "x = host.write; @if/then a[16] = f x; c[16] = copy a; host.read c",
    {"slots": "a=0 c=32"},
    slots="a=0 c=64",
    where="placement",
    S="UnsafeInPlace Overlap LifetimeIgnored",
)
add(
    "a graph called once is not planned",
    "tensorflow/tflite-micro#3698",
    "C12 plan",
    "x = host.write; @once a = f x; @once b = g a; y = k b; host.read y",
    {"slots": "a=none b=64"},
    slots="a=0 b=64",
    where="placement",
    S="Unplaced",
)
add(
    "an input that a body ignores has no slot, and the runtime copies into it",
    "tensorflow/tflite-micro#1194",
    "C12 plan",
    "x = host.write; d = host.write; @while i = copy x; @while j = copy d; @while k = f i; host.read k",
    {"slots": "j=none"},
    slots="x=0 d=64 i=128 j=192 k=256",
    where="placement",
    S="Unplaced",
)
add(
    "storage that one branch allocates is used by the other",
    "apache/tvm#20191",
    "C12 plan",
    "x = host.write; @if/else s = f x; @if/else y = g s; host.read y",
    {"slots": "s=none y=64"},
    slots="s=0 y=64",
    where="placement",
    S="Unplaced",
)
add(
    "one loop's body writes over what the loop before it hands on",
    "",
    "C15 plan",
    "x = host.write; @a/body r = f x; @a/body q = g r; @b/body t = h x; @b/body s = k t q; host.read s",
    {"slots": "r=64 q=0 t=0", "believed": {"q": (2, 3)}},
    slots="r=64 q=0 t=128 s=192",
    **EARLY,
)
add(
    "a loop's body writes over what its next turn is still to be handed",
    "",
    "C15 plan",
    "x = host.write; y = host.write; @while t = g x; @while u = g y; @while z = g t; s = h u z; host.read s",
    {"slots": "y=0 t=0", "believed": {"y": (1, 2)}},
    slots="x=64 y=0 t=128 u=192 z=256 s=320",
    **EARLY,
)
add(
    "carries of a loop are moved one after the other into each other's slots",
    "",
    "C15 plan",
    "x = host.write; a = f x; b = g x; c = same a; d = same b; y = h c d; host.read y",
    {"slots": "a=0 b=64 c=64 d=0"},
    slots="a=0 b=64 c=0 d=64 y=128",
    where="placement",
    **IGNORED,
)
add(
    "a placement lays a branch's result over another branch's",
    "",
    "C15 plan",
    "x = host.write; @1/then r = f x; @2/then t = g x; @2/then s = h t r; host.read s",
    {"slots": "r=0 t=0"},
    slots="r=0 t=64 s=128",
    where="placement",
    **IGNORED,
)
add(
    "padding of a branch's result is given to the next branch",
    "pytorch/executorch#21818",
    "C15 plan",
    "x = host.write; @1/then r = f x; @2/then t = g x; @2/then s = h t r; host.read s",
    {"slots": "r=0 t=32", "believed": {"r": (1, 2)}},
    slots="r=0 t=64 s=128",
    S="Overlap",
    L="LifetimeTooShort",
)
