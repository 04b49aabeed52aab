"""C09: several streams; list order is right there, another legal order is not. C10: a copy that meets the wrong instance of what there is one of for each run."""

from typing import Any

from power.fault import HISTORY, shelf

FAULTS, add = shelf("schedule")


def race(name: str, like: str, verdict: str, text: str, wait: str, **rest: Any) -> None:
    """Add a fault that is one wait left out: `wait` stands at the {} of the sound text, and nothing does in the planted one."""
    add(name, like, verdict, text.format(wait), {"text": text.format("")}, H="Race", **rest)


# --- C09: the order planned for is not that of execution ------------------------------------------------------------------

race(
    "a join does not wait for one of its branches",
    "pytorch/pytorch#188655",
    "C09 schedule",
    "x = host.write; b = g x ~1 ^0; a = f x; y = h a b{}; host.read y",
    " ^1",
    slots="x=0 a=64 b=128 y=192",
    shows=True,
)
race(
    "compute on another stream does not wait for the upload",
    "microsoft/onnxruntime#5769",
    "C09 schedule",
    "x = host.write; y = f x ~1{}; z = g x; host.read z; host.read y ^1",
    " ^0",
    slots="x=0 y=64 z=128",
    shows=True,
)
race(
    "workspaces of two streams lie on each other",
    "NVIDIA/cub#373",
    "C09 plan",
    "x = host.write; a w = f x; b v = g x ~1 ^0{}; y = h a b ^2; host.read y",
    " ^1",
    slots="x=0 a=64 b=128 w=192 v=192 y=256",
    where="placement",
    shows=False,
)

# --- C10: a copy between memories out of step -----------------------------------------------------------------------------

race(
    "a kernel runs before the copy it reads has arrived",
    "ggml-org/llama.cpp#27311",
    "C09 schedule",
    "x = host.write; t = copy x ~1 ^0; y = f t{}; host.read y",
    " ^1",
    slots="x=0 t=0 y=64",
    gpu="t y",
    shows=True,
)
race(
    "a block in use on another stream is given back, and given out again on its own",
    "pytorch/pytorch#180665 (in small)",
    "C09 schedule",
    "x = host.write; a = f x; c = copy a ~1 ^1; b = g x{}; o = h c b ^2; host.read o",
    " ^2",
    slots="a=0 b=0 c=64 x=128 o=192",
    believed=None,
    events="1+a 2-a 3+b 4-b",
    shows=True,
)
add(
    "of three copies in flight the one of the run before last is read",
    "",
    "C10 schedule",
    "in0 = host.write; in1 = host.write; in2 = host.write; t = copy in0; y = f t; o = back y; host.read o",
    {"runs": ((1, 2), (0, 2), (0, 1))},
    slots="in0=0 in1=64 in2=128 t=0 y=64 o=0",
    gpu="t y",
    runs=((), (), ()),
    where="caller",
    **HISTORY,
)
add(
    "the copy index has moved on before the first run, and its copy is not filled yet",
    "",
    "C10 schedule",
    "in0 = host.write; in1 = host.write; t = copy in1; y = f t; o = back y; host.read o",
    {"runs": ((1,),)},
    slots="in0=0 in1=64 t=0 y=64 o=0",
    gpu="t y",
    runs=((),),
    where="caller",
    S="UninitialisedRead",
    P="UninitialisedRead",
)
add(
    "two devices read one copy, and the host has filled the other",
    "",
    "C10 schedule",
    "in0 = host.write; in1 = host.write; t = copy in0; u = copy in0; y = f t u; o = back y; host.read o",
    {"runs": ((1,), (0,))},
    slots="in0=0 in1=64 t=0 u=64 y=128 o=0",
    gpu="t u y",
    runs=((), ()),
    where="caller",
    **HISTORY,
)
