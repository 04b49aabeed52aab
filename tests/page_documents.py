"""Documents of which pages are made in tests."""

from allocsim.model import Document
from allocsim.programs.builder import ProgramBuilder, plan_of

TEXT = "x = host.write; a = f x; y = g! a; b = h y; host.read b"
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1)) | `b` *c*",
    "x\u2028y & <b> \u202e\u6f22\u5b57\U0001f600",
)


def hostile():
    b = ProgramBuilder(HOSTILE[0])
    x, h, y, z = (b.tensor(name, "f32", (64,)) for name in HOSTILE)
    b.op("host.write", (), (x,))
    b.op("exp", (x,), (h,), name=HOSTILE[0])
    b.op("neg", (h,), (y,))
    b.op("add", (y, x), (z,))
    b.op("host.read", (z,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 256, 2: 0, 3: 512}, source=HOSTILE[1]))


def many_causes(count):
    """A chain whose every second result lies on bytes that are read once more at its end: each a cause of its own."""
    b = ProgramBuilder("many causes")
    x = b.tensor("x", "f32", (16,))
    b.op("host.write", (), (x,))
    kept, slots = [], {0: 0}
    for index in range(count):
        y, z = (b.tensor(f"{name}{index}", "f32", (16,)) for name in "yz")
        b.op("f", (x,), (y,), name=f"f{index}")
        b.op("g", (x,), (z,), name=f"g{index}")
        b.op("h", (y,), (b.tensor(f"w{index}", "f32", (16,)),), name=f"h{index}")
        slots |= {3 * index + 1: 64 + 128 * index, 3 * index + 2: 64 + 128 * index, 3 * index + 3: 128 + 128 * index}
        kept.append(z)
    b.op("host.read", kept, ())
    return Document.of(plan_of(b.build(), slots))
