"""TorchInductor's pools (`torch._inductor.codegen.memory_planning.AllocationPools`, turned on by
`config.memory_planning`), asked for each buffer in the order in which lifetimes begin. An arena of
the question is a device; the pools of a device are laid one after another.

Pinned buffers are outputs, which get pools of their own. Offsets are multiples of 64 bytes.

What this module does not see: sizes that are known only at run time, and the reuse by equal size
that TorchInductor does while this planner is off (docs/plans.md, TorchInductor).
"""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from asking import AskedBuffer, serve
from torch._inductor.codegen.memory_planning import Allocation, AllocationPools, LiveRange

ALIGNMENT = 64


def plan(buffers: Sequence[AskedBuffer], _steps: int) -> list[int]:
    """Return the offset of each buffer in bytes, in its device's pools laid end to end."""
    pools = AllocationPools()
    blocks = [Allocation(_node(row), LiveRange(row.start, row.stop), row.nbytes, row.nbytes) for row in buffers]
    for number in sorted(range(len(blocks)), key=lambda n: (buffers[n].start, n)):
        (pools.allocate_output if buffers[number].pinned else pools.allocate)(blocks[number])
    pools.finalize()
    base: dict[str, int] = {}
    for found in pools.device_to_pools.values():
        end = 0
        for pool in found:
            base[pool.name] = end
            end += -(-int(pool.root.get_symbolic_size()) // ALIGNMENT) * ALIGNMENT
    return [base[block.pool.name] + int(block.offset) for block in blocks]


def _node(row: AskedBuffer) -> SimpleNamespace:
    """Return a stand-in for the graph node that an allocation asks for size, device and name."""
    layout = SimpleNamespace(size=(row.nbytes,))
    device = torch.device("cuda", row.arena)
    return SimpleNamespace(get_layout=lambda: layout, get_device=lambda: device, get_name=lambda: str(row.index))


if __name__ == "__main__":
    serve(plan, alignment=ALIGNMENT)
