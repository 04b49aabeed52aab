"""A `.tflite` of 1,000 tensors with an offline plan, for `reading.py`.

    python benchmarks/reading_models.py FILE

A chain of ADDs, each of the two tensors before it, in three slots. Needs ai-edge-litert.
"""

import sys
from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from litert_models import NBYTES, SHAPES, packed

TENSORS = 1000
SLOTS = 3


def main() -> None:
    """Make the model, and write the plan into it."""
    rows = [{"op": "ADD", "ins": [max(at - 2, 0), at - 1], "outs": [at]} for at in range(1, TENSORS)]
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(packed([0] * TENSORS, rows, [TENSORS - 1]), 0))
    assert len(model.subgraphs[0].tensors) == TENSORS
    assert SHAPES[0] == [4, 4]
    words = np.array([1, 0, TENSORS, *(at % SLOTS * NBYTES for at in range(TENSORS))], "<i4")
    buffer, metadata = schema.BufferT(), schema.MetadataT()
    buffer.data = np.frombuffer(words.tobytes(), np.uint8)
    metadata.name, metadata.buffer = "OfflineMemoryAllocation", len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [metadata]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    Path(sys.argv[1]).write_bytes(bytes(builder.Output()))


if __name__ == "__main__":
    main()
