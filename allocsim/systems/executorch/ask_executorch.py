"""ExecuTorch's planner (`executorch.exir.memory_planning.greedy`), asked for tensor specs of bytes
with lifetimes; an arena is a memory id.

The specs are passed as a set, as ExecuTorch passes them. greedy walks it in the set's order, so
another call may order buffers of one size differently. Its lifetimes are closed.

What this module does not see: submodules, storage bases and delegates.
"""

from collections.abc import Sequence

import torch
from asking import AskedBuffer, serve
from executorch.exir.memory_planning import greedy
from executorch.exir.tensor import TensorSpec

ALIGNMENT = 1 << 20


def plan(buffers: Sequence[AskedBuffer], _steps: int) -> list[int]:
    """Return the offset of each buffer in its arena, in bytes, as greedy places it."""
    empty = torch.fx.GraphModule({}, torch.fx.Graph())
    specs = [TensorSpec(dtype=torch.uint8, shape=torch.Size([row.nbytes])) for row in buffers]
    for spec, row in zip(specs, buffers, strict=True):
        spec.lifetime = [row.start, row.stop - 1]
        spec.mem_id = row.arena + 1
    alignment = max(row.alignment for row in buffers)
    result = greedy(alignment, set(specs), empty, None)
    return [result.spec_dict[spec].mem_offset for spec in specs]


if __name__ == "__main__":
    serve(plan, alignment=ALIGNMENT)
