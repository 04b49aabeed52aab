"""Random models of ADD, RESHAPE, RELU and SOFTMAX in a LiteRT interpreter, for `random_models.py`.

    python benchmarks/litert_models.py FIRST LAST
    python benchmarks/litert_models.py FILE        # for `answers.py`

One line of JSON for each seed: the pointers that the interpreter gave its tensors (`allocsim/systems/litert/record_litert.py`),
and the largest difference of an output from the run with `preserve_all_tensors`. Kernels (those of today or plain ones) and
threads are drawn. `loop_model` is a WHILE with permuted carries. Into FILE goes a chain of `TENSORS` ADDs, each of the two tensors
before it, with an offline plan in three slots. Needs ai-edge-litert.
"""

import json
import sys
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import OpResolverType

sys.path.append(str(Path(__file__).parents[1] / "allocsim" / "systems" / "litert"))
from record_litert import interpreter, recorded

CODES = {"ADD": 0, "RESHAPE": 22, "RELU": 19, "SOFTMAX": 25, "LESS": 58, "WHILE": 119}
NAMES = list(CODES)
SHAPES = ([4, 4], [16], [2, 8])
NBYTES = 64
"""Of a tensor of each shape."""


def made(kind: str, **fields: Any) -> Any:
    """Return a record of the schema."""
    one = getattr(schema, f"{kind}T")()
    vars(one).update(fields)
    return one


def tensor(name: str, shape: list[int], buffer: int = 0, kind: int = 0) -> Any:
    """Return a tensor of the schema."""
    return made("Tensor", name=name, shape=shape, buffer=buffer, type=kind)


def operator(kind: str, inputs: list[int], outputs: list[int], options: str = "", **fields: Any) -> Any:
    """Return an operator of the schema, with its options of a name."""
    given = made(options, **fields) if options else None
    about = {"builtinOptions": given, "builtinOptionsType": getattr(schema.BuiltinOptions, options or "NONE")}
    return made("Operator", opcodeIndex=NAMES.index(kind), inputs=inputs, outputs=outputs, **about)


def subgraph(tensors: list[Any], inputs: list[int], outputs: list[int], operators: list[Any]) -> Any:
    """Return a subgraph of the schema."""
    return made("SubGraph", name="main", tensors=tensors, inputs=inputs, outputs=outputs, operators=operators)


def random_model(seed: int) -> tuple[bytes, list[dict[str, Any]], list[int]]:
    """Return a model, its operators and its outputs."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 14))
    shape, rows = [0], []
    for step in range(count):
        kind = NAMES[int(rng.choice(4, p=[0.4, 0.35, 0.15, 0.1]))]
        first = int(rng.integers(max(0, step - 4), step + 1))
        given = [first]
        if kind == "ADD":
            given.append(int(rng.choice([j for j in range(step + 1) if shape[j] == shape[first]])))
        shape.append(int(rng.integers(3)) if kind == "RESHAPE" else shape[first])
        rows.append({"op": kind, "ins": given, "outs": [step + 1]})
    read = {index for row in rows for index in row["ins"]}
    outputs = [index for index in range(1, count + 1) if index not in read]
    outputs += [int(index) + 1 for index in rng.permutation(count)[:2] if int(index) + 1 not in outputs][:1]
    return packed(shape, rows, outputs), rows, outputs


def packed(shape: list[int], rows: list[dict[str, Any]], outputs: list[int]) -> bytes:
    """Return the bytes of a model."""
    tensors = [tensor(f"t{index}", SHAPES[of]) for index, of in enumerate(shape)]
    buffers: list[Any] = [None]
    operators = []
    for row in rows:
        into = SHAPES[shape[row["outs"][0]]]
        options: dict[str, Any] = {
            "ADD": {"options": "AddOptions"},
            "RESHAPE": {"options": "ReshapeOptions", "newShape": into},
            "SOFTMAX": {"options": "SoftmaxOptions", "beta": 1.0},
        }.get(row["op"], {})
        operators.append(operator(row["op"], list(row["ins"]), row["outs"], **options))
        if row["op"] == "RESHAPE":
            buffers.append(np.array(into, "<i4"))
            tensors.append(tensor(f"shape{len(buffers)}", [len(into)], len(buffers) - 1, 2))
            operators[-1].inputs.append(len(tensors) - 1)
    return finished([subgraph(tensors, [0], outputs, operators)], buffers)


def loop_model(carries: list[int | None]) -> bytes:
    """Return `while i < 3` over a counter and arrays of four, one more in turn: the array at a place becomes the one at
    `carries` of it, None: twice itself.
    """
    count = len(carries)
    places = [*range(count + 1)]

    def arrays(suffix: str) -> list[Any]:
        return [tensor(f"i{suffix}", [1], 0, 2), *(tensor(f"t{place}{suffix}", [1, 4]) for place in places[1:])]

    after = [place + count + 1 for place in places]
    loop = operator("WHILE", places, after, "WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2)
    main = subgraph([*arrays(""), *arrays(" after")], places, after, [loop])
    asks = operator("LESS", [0, count + 1], [count + 2], "LessOptions")
    condition = subgraph(
        [*arrays(""), tensor("three", [1], 1, 2), tensor("more", [1], 0, 6)], places, [count + 2], [asks]
    )
    doubled = [place for place, source in enumerate(carries) if source is None]
    rows = [operator("ADD", [0, count + 1], [count + 2], "AddOptions")]
    rows += [operator("ADD", [place + 1] * 2, [count + 3 + row], "AddOptions") for row, place in enumerate(doubled)]
    new = {place: count + 3 + row for row, place in enumerate(doubled)}
    outputs = [count + 2, *(new[place] if source is None else source + 1 for place, source in enumerate(carries))]
    more = [tensor("one", [1], 2, 2), tensor("next", [1], 0, 2), *(tensor(f"twice {at}", [1, 4]) for at in doubled)]
    body = subgraph([*arrays(""), *more], places, outputs, rows)
    return finished([main, condition, body], [None, np.array([3], "<i4"), np.array([1], "<i4")])


def chain_model(count: int = 1000, slots: int = 3) -> bytes:
    """Return a chain of ADDs of so many tensors, each of the two before it, with an offline plan in so many slots."""
    rows = [{"op": "ADD", "ins": [max(at - 2, 0), at - 1], "outs": [at]} for at in range(1, count)]
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(packed([0] * count, rows, [count - 1]), 0))
    words = np.array([1, 0, count, *(at % slots * NBYTES for at in range(count))], "<i4")
    model.metadata = [made("Metadata", name="OfflineMemoryAllocation", buffer=len(model.buffers))]
    model.buffers.append(made("Buffer", data=np.frombuffer(words.tobytes(), np.uint8)))
    return written(model)


def finished(subgraphs: list[Any], buffers: list[Any]) -> bytes:
    """Return the bytes of a model."""
    codes = [made("OperatorCode", builtinCode=code, deprecatedBuiltinCode=code, version=1) for code in CODES.values()]
    data = [None if words is None else np.frombuffer(words.tobytes(), np.uint8) for words in buffers]
    rows = [made("Buffer", data=one) for one in data]
    about = {"version": 3, "description": "", "metadata": [], "operatorCodes": codes}
    return written(made("Model", subgraphs=subgraphs, buffers=rows, **about))


def written(model: Any) -> bytes:
    """Return the bytes of a record of a whole model."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


RESOLVERS = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, OpResolverType.BUILTIN_REF
"""Kernels of today, and plain ones; both plan by the same planner."""


def run(model: bytes, switches: dict[str, Any], *, preserve: bool) -> tuple[Any, list[Any]]:
    """Return an interpreter after a run, and its outputs."""
    made = interpreter(
        model,
        experimental_preserve_all_tensors=preserve,
        experimental_op_resolver_type=RESOLVERS[switches["plain kernels"]],
        num_threads=switches["threads"],
    )
    made.set_tensor(0, np.random.default_rng(1).standard_normal((4, 4)).astype("f4"))
    made.invoke()
    return made, [made.get_tensor(row["index"]).copy() for row in made.get_output_details()]


def pointers(seed: int) -> dict[str, Any]:
    """Return what `random_models.py` reads of one seed."""
    model, *_ = random_model(seed)
    rng = np.random.default_rng((seed, 2))
    switches = {"plain kernels": int(rng.integers(2)), "threads": int(rng.integers(1, 3))}
    planned, found = run(model, switches, preserve=False)
    _, wanted = run(model, switches, preserve=True)
    differs = max(float(np.abs(one - other).max()) for one, other in zip(found, wanted, strict=True))
    return {"seed": seed, "switches": switches, "differs": differs, "dump": recorded(planned)}


if __name__ == "__main__":
    if len(sys.argv) == 2:
        Path(sys.argv[1]).write_bytes(chain_model())
    for number in range(*map(int, sys.argv[1:3] if len(sys.argv) > 2 else (0,))):
        print(json.dumps(pointers(number)), flush=True)
