"""Gets buffer assignments of XLA's CPU compiler through jax. For each arena of a request, this
module compiles a function with arrays that have the requested lifetimes and sizes.

XLA accepts no allocation problem as input, so the function encodes the problem. Each array of bytes
is the result of a sort at the step where its lifetime begins, because XLA fuses nothing with a
sort. Each step computes a number from one element of each array that begins or ends there. The
sorts of the next step depend on that number, so XLA must keep the requested order. A pinned array
is a result of the function. The function is not run; the slots come from XLA's dump of the
assignment.

In XLA's assignment the arrays have the requested lifetimes. The assignment also has a few other
arrays: the numbers, and the operand of each sort.

What this module does not see: in-place pairs, memory spaces, and arrays of 0 bytes.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from asking import AskedBuffer, RefusedError, arena_by_arena, serve

FOLDER = tempfile.TemporaryDirectory()
jax.config.update("jax_platforms", "cpu")
os.environ["XLA_FLAGS"] = (
    f"--xla_dump_to={FOLDER.name} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=jit_asked"
    " --xla_backend_optimization_level=0"
)

ALIGNMENT = 64
"""Alignment in bytes of XLA's allocations (`MinAlign` in `cpu_function_runtime.h`)."""

MOST = (1 << 31) - 1
"""The most elements of a sort: XLA's sort addresses elements with 32 bits."""

ALLOCATION = re.compile(r"allocation \d+: size (\d+)")
VALUE = re.compile(r" value: <\d+ ([\w.\-]+) @0> \(size=\d+,offset=(\d+)\)")
SORTED = re.compile(r"%?([\w.\-]+) = s8\[\d+\]\{0\} sort\(.*op_name=\"[^\"]*/buffer(\d+)/")


def plan(buffers: Sequence[AskedBuffer], steps: int) -> list[int]:
    """Return the offset of each array in bytes; XLA's allocations are placed end to end."""
    if any(row.nbytes > MOST for row in buffers):
        raise RefusedError(f"an array has more than {MOST} bytes, the most that XLA can sort")
    offsets: list[int] = arena_by_arena(_arena, buffers, steps)
    return offsets


def _arena(rows: Sequence[AskedBuffer], steps: int) -> list[int]:
    def asked(number: Any) -> Any:
        made: dict[int, Any] = {}
        for step in range(steps):
            begin = [place for place, row in enumerate(rows) if row.start == step]
            for place in begin:
                with jax.named_scope(f"buffer{place}"):
                    # a sort needs at least 2 elements
                    given = jnp.arange(max(rows[place].nbytes, 2), dtype=jnp.int32) ^ (number + place)
                    made[place] = jax.lax.sort(given.astype(jnp.int8))
            end = [place for place, row in enumerate(rows) if row.stop - 1 == step and place not in begin]
            for place in begin + end:
                number = number ^ made[place][0].astype(jnp.int32)
        return number, [made[place] for place, row in enumerate(rows) if row.pinned]

    jax.jit(asked).lower(jax.ShapeDtypeStruct((), jnp.int32)).compile()
    folder = Path(FOLDER.name)
    (assigned,) = folder.glob("*after_optimizations-buffer-assignment.txt")
    module = assigned.with_name(assigned.name.replace("-buffer-assignment.txt", ".txt"))
    names = {name: int(place) for name, place in SORTED.findall(module.read_text())}
    found = _slots(assigned.read_text(), names)
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    jax.clear_caches()
    if found.keys() != set(range(len(rows))):
        raise RefusedError(f"XLA's assignment has {len(found)} of the {len(rows)} sorts that represent the buffers")
    return [found[place] for place in range(len(rows))]


def _slots(text: str, names: dict[str, int]) -> dict[int, int]:
    """Read array -> offset in bytes from an assignment; `names` maps sort names to arrays."""
    found: dict[int, int] = {}
    size = base = end = 0
    for line in text.splitlines():
        allocation, value = ALLOCATION.match(line), VALUE.match(line)
        if allocation is not None:
            base, size = end, int(allocation[1])
        elif value is not None and value[1] in names:
            end = base + -(-size // ALIGNMENT) * ALIGNMENT
            found[names[value[1]]] = base + int(value[2])
    return found


if __name__ == "__main__":
    serve(plan, alignment=ALIGNMENT)
    FOLDER.cleanup()
