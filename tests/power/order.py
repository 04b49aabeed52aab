"""C09 and C10: several streams. List order is right everywhere here; another legal order is not."""

from power.fault import shelf

FAULTS, add = shelf("schedule")

RACE = {"H": "Race"}
FORK = "x = host.write; b = g x ~1 ^0; a = f! x{}; y = h a b ^1; host.read y"

# --- C09: the order planned for is not that of execution ------------------------------------------------------------------

add(
    "in place over a value that a parallel branch reads",
    "microsoft/onnxruntime#7633",
    "C09 plan",
    FORK.format(" ^1"),
    {"text": FORK.format("")},
    slots="x=0 a=0 b=64 y=128",
    share="x>a",
    scenario="parallel in-place",
    where="placement",
    shows=True,
    **RACE,
)
INPUTLESS = "e0 = host.write; e = f e0; r = use e ~1 ^1; n = gen{}; o = mix n r ^2; host.read o"
add(
    "a split without inputs does not wait for an asynchronous reader",
    "ggml-org/llama.cpp#26040",
    "C09 plan",
    INPUTLESS.format(" ^2"),
    {"text": INPUTLESS.format("")},
    slots="e0=64 e=0 n=0 r=128 o=192",
    scenario="inputless split",
    where="placement",
    shows=True,
    **RACE,
)
CHAINS = "x = host.write; y = host.write; a = f x; c = g y ~1 ^1; b = h a; d = k c ~1{}; e = join b d ^5; host.read e"
add(
    "of two chains without a barrier one frees by list index",
    "ggml-org/llama.cpp#2757",
    "C09 plan",
    CHAINS.format(" ^4"),
    {"text": CHAINS.format("")},
    slots="a=0 d=0 x=64 y=128 c=192 b=256 e=320",
    where="placement",
    shows=True,
    **RACE,
)
SIDE = "x = host.write; a = f x; d = copy a ~1 ^1; b = g x{}; o = h b d ^2; host.read o"
add(
    "the source of a copy on a side stream is freed and reused",
    "meta-pytorch/torchrec#4231",
    "C09 plan",
    SIDE.format(" ^2"),
    {"text": SIDE.format("")},
    slots="a=0 b=0 x=64 d=128 o=192",
    where="placement",
    shows=True,
    **RACE,
)
SAVED = "x = host.write; s = f x; g = reduce s x ~1 ^1; d:s = mul! s x{}; o = add d g ^2; host.read o"
add(
    "a saved activation is changed while another stream may still reduce it",
    "nntile/nntile#371",
    "C09 schedule",
    SAVED.format(" ^2"),
    {"text": SAVED.format("")},
    slots="x=0 s=64 g=128 o=192",
    scenario="saved-activation order",
    shows=True,
    **RACE,
)
JOIN = "x = host.write; b = g x ~1 ^0; a = f x; y = h a b{}; host.read y"
add(
    "a join does not wait for one of its branches",
    "pytorch/pytorch#188655",
    "C09 schedule",
    JOIN.format(" ^1"),
    {"text": JOIN.format("")},
    slots="x=0 a=64 b=128 y=192",
    shows=True,
    **RACE,
)
UPLOAD = "x = host.write; y = f x ~1{}; z = g x; host.read z; host.read y ^1"
add(
    "compute on another stream does not wait for the upload",
    "microsoft/onnxruntime#5769",
    "C09 schedule",
    UPLOAD.format(" ^0"),
    {"text": UPLOAD.format("")},
    slots="x=0 y=64 z=128",
    shows=True,
    **RACE,
)
AGAIN = "x = host.write; y = f x ~1 ^0; n:x = host.write{}; z = g n; host.read z; host.read y ^1"
add(
    "the host rewrites an input that is still being read",
    "ggml-org/llama.cpp#25863",
    "C09 schedule",
    AGAIN.format(" ^1"),
    {"text": AGAIN.format("")},
    slots="x=0 y=64 z=128",
    **RACE,
)
SCRATCH = "x = host.write; a w = f x; b v = g x ~1 ^0{}; y = h a b ^2; host.read y"
add(
    "workspaces of two streams lie on each other",
    "NVIDIA/cub#373",
    "C09 plan",
    SCRATCH.format(" ^1"),
    {"text": SCRATCH.format("")},
    slots="x=0 a=64 b=128 w=192 v=192 y=256",
    where="placement",
    shows=False,
    **RACE,
)

# --- C10: a copy between memories out of step -----------------------------------------------------------------------------

PENDING = "x = host.write; t = f x; d = copy t ~1 ^1; n = g x{}; o = h n d ^2; host.read o"
add(
    "a slot is reused while its copy to the host is pending",
    "ggml-org/llama.cpp#27572",
    "C10 schedule",
    PENDING.format(" ^2"),
    {"text": PENDING.format("")},
    slots="x=64 t=0 n=0 d=0 o=128",
    gpu="d",
    shows=True,
    **RACE,
)
CARRIED = "x = host.write; t = copy x ~1 ^0; y = f t{}; host.read y"
add(
    "a kernel runs before the copy it reads has arrived",
    "ggml-org/llama.cpp#27311",
    "C10 schedule",
    CARRIED.format(" ^1"),
    {"text": CARRIED.format("")},
    slots="x=0 t=0 y=64",
    gpu="t y",
    shows=True,
    **RACE,
)


COPIES = "in0 = host.write; in1 = host.write; t = copy in0; y = f t; o = back y; host.read o"
add(
    "the copy index moves on before its reader",
    "ggml-org/llama.cpp#14855",
    "C10 schedule",
    COPIES,
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
