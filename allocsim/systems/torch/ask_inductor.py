"""Places buffers with TorchInductor's pools
(`torch._inductor.codegen.memory_planning.AllocationPools`, which TorchInductor uses if
`config.memory_planning` is on). The buffers are allocated in the order in which their lifetimes
begin. Each arena of the request is a device; the pools of a device are placed end to end.

Pinned buffers are outputs, for which TorchInductor makes separate pools. Offsets are multiples of
64 bytes.

What this module does not see: sizes that are known only at run time, and the reuse of buffers of
equal size, which TorchInductor does while this planner is off (docs/plans.md, TorchInductor).
"""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from asking import AskedBuffer, serve
from torch._inductor.codegen.memory_planning import Allocation, AllocationPools, LiveRange

ALIGNMENT = 64


def plan(buffers: Sequence[AskedBuffer], _steps: int) -> list[int]:
    """Return the offset in bytes of each buffer from the start of its device's first pool."""
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
    """Return a stand-in for a graph node; `Allocation` reads its size, device and name."""
    layout = SimpleNamespace(size=(row.nbytes,))
    device = torch.device("cuda", row.arena)
    return SimpleNamespace(get_layout=lambda: layout, get_device=lambda: device, get_name=lambda: str(row.index))


if __name__ == "__main__":
    serve(plan, alignment=ALIGNMENT)
