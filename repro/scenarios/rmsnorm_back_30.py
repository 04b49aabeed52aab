"""Thirty norms in a row run backward in place, and no gradient is right."""

from repro import SmallDocument, SmallScenario

LAYERS = 30

TEXT = "; ".join(
    [
        "z = host.write",
        *(f"x{n} = host.write" for n in range(LAYERS)),
        "dz = f z",
        "g0 = norm! dz x0",
        *(f"g{n} = norm! g{n - 1} x{n}" for n in range(1, LAYERS)),
        f"host.read g{LAYERS - 1}",
    ]
)

SCENARIO = SmallScenario(
    name="rmsnorm-back-30",
    title="thirty norms in a row run backward in place, and no gradient is right",
    source="https://github.com/ggml-org/ggml/issues/1501",
    story=(
        "A backward pass goes through thirty layers. Each layer has a norm whose result takes the memory of the "
        "incoming gradient. The kernel writes x into the result before it reads the gradient. The plan is legal, and "
        "pinning every node cures it."
    ),
    sound=SmallDocument(
        text=TEXT,
        slots="dz=0 " + " ".join(f"g{n}=0" for n in range(LAYERS)),
        share="dz>g0 " + " ".join(f"g{n}>g{n + 1}" for n in range(LAYERS - 1)),
        runs=((), ()),
    ),
    place="kernel",
    change={"kernels": {"norm": "two_pass"}},
    expected=(("C04", "kernel"),),
    reports={"D": "result", "K": "unsafe"},
    not_run="H",
    caught=(
        "An audit of the kernel in place. Pinning cures the bug but names no fault: it only stops the use of the pair."
    ),
    reasons={"R": "the first run is already wrong; R reports only faults that a later run shows first"},
)
