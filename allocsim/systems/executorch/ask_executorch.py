"""Places buffers with ExecuTorch's planner (`executorch.exir.memory_planning.greedy`). Each buffer
is a tensor spec of bytes with a lifetime; each arena is a memory id.

The specs are passed as a set, as in ExecuTorch. `greedy` iterates over the set in its order, so
another call may order buffers of equal size differently. The planner's lifetimes are closed.

What this module does not see: submodules, storage bases and delegates.
"""

from collections.abc import Sequence

import torch
from asking import AskedBuffer, serve
from executorch.exir.memory_planning import greedy
from executorch.exir.tensor import TensorSpec

ALIGNMENT = 1 << 20


def plan(buffers: Sequence[AskedBuffer], _steps: int) -> list[int]:
    """Return the offset in bytes of each buffer in its arena, as placed by `greedy`."""
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
