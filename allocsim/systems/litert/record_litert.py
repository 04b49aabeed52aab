"""Records the pointers that a LiteRT interpreter gives a model's tensors, for `allocsim check`.

    python allocsim/systems/litert/record_litert.py model.tflite > model.json

The script runs in a Python that has LiteRT and imports nothing of this project. It loads no
delegate, so the pointers are from LiteRT's planner. A tensor is a constant or a persistent variable
if no operator writes it and it is not an input. Such a tensor has separate memory and no offset. A
tensor with a size known only at run time has no offset either. The subgraphs of a WHILE or an IF
are not recorded. `check` reads them from the model with the same name in the same folder.

What this module does not see: tensors of other subgraphs, and temporaries of kernels.
"""

import json
import sys
from importlib.metadata import version
from typing import Any

Row = dict[str, Any]


def interpreter(model: "str | bytes", **options: Any) -> Any:
    """Return an interpreter without delegates after it has allocated its tensors.

    Args:
        model: a path, or the bytes of a file.
        options: further arguments of LiteRT's `Interpreter`.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # noqa: PLC0415 - optional

    given = {"model_path": model} if isinstance(model, str) else {"model_content": model}
    plain = {"experimental_op_resolver_type": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}
    made = Interpreter(**(given | plain | options))
    made.allocate_tensors()
    return made


def recorded(planned: Any) -> Row:
    """Return the record of an interpreter with allocated tensors. O(tensors + uses)."""
    ops = [
        {"op": row["op_name"], "ins": row["inputs"].tolist(), "outs": row["outputs"].tolist()}
        for row in planned._get_ops_details()  # noqa: SLF001 - LiteRT has no public call
    ]
    made = {index: step for step, row in reversed([*enumerate(ops)]) for index in row["outs"]}
    last = {index: step for step, row in enumerate(ops) for index in (*row["ins"], *row["outs"])}
    given = {row["index"] for row in planned.get_input_details()}
    last |= {row["index"]: len(ops) for row in planned.get_output_details()}
    tensors, at = [], {}
    for row in planned.get_tensor_details():
        index, size = row["index"], 0
        if index in last:
            try:
                held = planned.tensor(index)()
                size = held.nbytes
                if index in made or index in given:
                    at[index] = held.__array_interface__["data"][0]
            except ValueError:  # the tensor has no memory before the run
                size = int(row["shape"].prod()) * getattr(row["dtype"](), "itemsize", 1)
            tensors.append(
                {"id": index, "name": row["name"], "size": size, "first": made.get(index, 0), "last": last[index]}
            )
    start = min(at.values(), default=0)
    tensors = [row | ({"offset": at[row["id"]] - start} if row["id"] in at else {}) for row in tensors]
    return {"versions": f"ai-edge-litert {version('ai-edge-litert')}", "tensors": tensors, "ops": ops}


if __name__ == "__main__":
    json.dump(recorded(interpreter(sys.argv[1])), sys.stdout)
