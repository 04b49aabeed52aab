"""C09: several streams; list order is right there, another legal order is not. C10: a copy that meets the wrong instance of what there is one of for each run."""

from typing import Any

from power.fault import shelf

FAULTS, add = shelf("schedule")


def race(name: str, like: str, verdict: str, text: str, wait: str, **rest: Any) -> None:
    """Add a fault that is one wait left out: `wait` stands at the {} of the sound text, and nothing does in the planted one."""
    add(name, like, verdict, text.format(wait), {"text": text.format("")}, H="Race", **rest)


# --- C09: the order planned for is not that of execution ------------------------------------------------------------------

race(
    "in place over a value that a parallel branch reads",
    "microsoft/onnxruntime#7633",
    "C09 plan",
    "x = host.write; b = g x ~1 ^0; a = f! x{}; y = h a b ^1; host.read y",
    " ^1",
    slots="x=0 a=0 b=64 y=128",
    share="x>a",
    scenario="parallel in-place",
    where="placement",
    shows=True,
)
race(
    "a split without inputs does not wait for an asynchronous reader",
    "ggml-org/llama.cpp#26040",
    "C09 plan",
    "e0 = host.write; e = f e0; r = use e ~1 ^1; n = gen{}; o = mix n r ^2; host.read o",
    " ^2",
    slots="e0=64 e=0 n=0 r=128 o=192",
    scenario="inputless split",
    where="placement",
    shows=True,
)
race(
    "of two chains without a barrier one frees by list index",
    "ggml-org/llama.cpp#2757",
    "C09 plan",
    "x = host.write; y = host.write; a = f x; c = g y ~1 ^1; b = h a; d = k c ~1{}; e = join b d ^5; host.read e",
    " ^4",
    slots="a=0 d=0 x=64 y=128 c=192 b=256 e=320",
    where="placement",
    shows=True,
)
race(
    "the source of a copy on a side stream is freed and reused",
    "meta-pytorch/torchrec#4231",
    "C09 plan",
    "x = host.write; a = f x; d = copy a ~1 ^1; b = g x{}; o = h b d ^2; host.read o",
    " ^2",
    slots="a=0 b=0 x=64 d=128 o=192",
    where="placement",
    shows=True,
)
race(
    "a saved activation is changed while another stream may still reduce it",
    "nntile/nntile#371",
    "C09 schedule",
    "x = host.write; s = f x; g = reduce s x ~1 ^1; d:s = mul! s x{}; o = add d g ^2; host.read o",
    " ^2",
    slots="x=0 s=64 g=128 o=192",
    scenario="saved-activation order",
    shows=True,
)
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
    "the host rewrites an input that is still being read",
    "ggml-org/llama.cpp#25863",
    "C09 schedule",
    "x = host.write; y = f x ~1 ^0; n:x = host.write{}; z = g n; host.read z; host.read y ^1",
    " ^1",
    slots="x=0 y=64 z=128",
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
    "a slot is reused while its copy to the host is pending",
    "ggml-org/llama.cpp#27572",
    "C09 plan",
    "x = host.write; t = f x; d = copy t ~1 ^1; n = g x{}; o = h n d ^2; host.read o",
    " ^2",
    slots="x=64 t=0 n=0 d=0 o=128",
    gpu="d",
    shows=True,
)
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
add(
    "the copy index moves on before its reader",
    "ggml-org/llama.cpp#14855",
    "C10 schedule",
    "in0 = host.write; in1 = host.write; t = copy in0; y = f t; o = back y; host.read o",
    {"runs": ((1,), (0,))},
    slots="in0=0 in1=64 t=0 y=64 o=0",
    gpu="t y",
    runs=((), ()),
    where="caller",
    scenario="n_copies",
    S="StaleRead HistoryRead",
    R="StaleRead",
    P="StaleRead",
    D="operand",
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
    S="StaleRead HistoryRead",
    R="StaleRead",
    P="StaleRead",
    D="operand",
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
    S="StaleRead HistoryRead",
    R="StaleRead",
    P="StaleRead",
    D="operand",
)
