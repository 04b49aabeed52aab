"""The layer of each buffer: a word of its meta, else of its name.

A layer is `meta.layer` (a whole number) of the buffer, of a value in it or of the op that made it;
failing that, a number after `L`, `layer`, `blk`, `block` or `h` in a name (`L12.wq`,
`blk.3.attn_q`). Names mean nothing to a check; here they only choose a colour or a filter.

What this module does not see: colours.
"""

import re
from typing import Any, Final

import numpy as np

from allocsim.model import VIEW, Program
from allocsim.model.layout import Int64s

_LAYER: Final = re.compile(r"(?:^|[^A-Za-z0-9])(?:L|layers?|blk|block|h)[._-]?(\d{1,6})(?![0-9A-Za-z])")

NO_LAYER: Final = -1


def layer_of(program: Program) -> Int64s:
    """Return the layer of each buffer, `NO_LAYER` where there is none. O(values + buffers)."""
    layers = np.full(len(program.buffers), NO_LAYER, dtype=np.int64)
    makers = program.producer
    for index in range(len(program.values) - 1, -1, -1):  # the first value of a buffer has the last word
        step = int(makers[index])
        found = _layer(program.values.meta.get(index), program.values.names[index])
        if found == NO_LAYER and step >= 0 and program.ops.kinds[program.ops.kind[step]] != VIEW:
            found = _layer(program.ops.meta.get(step), program.ops.names[step])
        if found != NO_LAYER:
            layers[program.values.buffer[index]] = found
    for index, name in enumerate(program.buffers.names):
        found = _layer(program.buffers.meta.get(index), name)
        layers[index] = found if found != NO_LAYER else layers[index]
    return layers


def _layer(meta: Any, name: str) -> int:
    told = (meta or {}).get("layer")
    if isinstance(told, int) and not isinstance(told, bool) and 0 <= told < 10_000:
        return told
    match = _LAYER.search(name[:200])
    return int(match[1]) if match else NO_LAYER
