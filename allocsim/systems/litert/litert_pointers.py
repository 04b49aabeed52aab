"""Reads the pointers that a LiteRT interpreter gave its tensors, from the JSON of `record_litert`.

    {"versions": "ai-edge-litert 2.3.0",
     "tensors": [{"id": 0, "name": "x", "size": 256, "first": 0, "last": 4, "offset": 512}],
     "ops": [{"op": "RESHAPE", "ins": [0], "outs": [1]}]}

Time: one operator runs at each step. `first` and `last` are the first and last operators that
access a tensor. They come from the graph and are not a planner's belief. The host uploads the
tensors that operators read and that no operator writes. At the end it reads each written tensor
with a `last` that is at least the number of operators. This module uses `first` and `last` for
nothing else.

All pointers are in one arena; an offset is the distance from the lowest pointer. The in-place pairs
come from `allocsim.systems.litert.tflite_in_place`. The file has no dtypes: tensors are bytes.

The file has no control flow. If the model has control flow, it is read from the `.tflite` with the
same name in the same folder (`x.json`, `x.tflite`). Without that model the file is refused.

What this module does not see: constants, which have no offset, and temporaries of kernels.
"""

import re
from pathlib import Path
from typing import Annotated, Final

import msgspec

from allocsim.allowances import metered
from allocsim.errors import DocumentError, ModelError
from allocsim.formats.placing import APART, Placing
from allocsim.model import HOST_READ, HOST_WRITE, SAME, Arena, Document, Role
from allocsim.model.layout import LIMIT
from allocsim.systems.litert import tflite
from allocsim.systems.litert.tflite_file import CALLS
from allocsim.systems.litert.tflite_in_place import UNMODIFIED, pairs

Count = Annotated[int, msgspec.Meta(ge=0, le=LIMIT)]

MAX_ROWS: Final = 1 << 22
"""The most tensors in one file, and also the most operators."""


class PointedTensor(msgspec.Struct, frozen=True):
    """A tensor; its size and offset are in bytes."""

    id: Count
    size: Count
    first: Count
    last: Count
    name: str = ""
    offset: Count | None = None


class PointedOp(msgspec.Struct, frozen=True):
    """An operator; its tensors are given by `id`, and -1 is an omitted optional tensor."""

    op: str
    ins: list[int]
    outs: list[int]


class PointedModel(msgspec.Struct, frozen=True):
    """The tensors and operators of an interpreter."""

    tensors: Annotated[list[PointedTensor], msgspec.Meta(max_length=MAX_ROWS)]
    ops: Annotated[list[PointedOp], msgspec.Meta(max_length=MAX_ROWS)]
    versions: str = ""


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a recording of pointers."""
    return head.lstrip()[:1] == b"{" and re.search(rb'"versions"\s*:\s*"(ai-edge-litert|tflite)', head) is not None


@metered
def loads(data: bytes, source: str = "pointers") -> Document:
    """Return the program and plan of a file.

    Raises DocumentError, which names place and rule. O(size of the file).
    """
    try:
        model = msgspec.json.decode(data, type=PointedModel)
    except msgspec.ValidationError as error:
        rule, _, path = str(error).partition(" - at `$")
        raise DocumentError(source, path.strip(".`"), rule[:1].lower() + rule[1:]) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DocumentError(source, "", f"is not JSON: {str(error)[:200]}") from None
    by_id = {tensor.id: tensor for tensor in model.tensors}
    if len(by_id) != len(model.tensors):
        raise DocumentError(source, "tensors", "two tensors have the same id")
    for at, op in enumerate(model.ops):
        for index in (*op.ins, *op.outs):
            if index not in by_id and index != -1:
                raise DocumentError(source, f"ops[{at}]", f"tensor {index} does not exist; there are {len(by_id)}")
    try:
        inside = [at for at, op in enumerate(model.ops) if op.op.lower() in CALLS]
        return _in_line(model, source, inside[0]) if inside else _document(model, by_id)
    except ModelError as error:
        raise DocumentError(source, error.place, error.rule) from None


def _in_line(model: PointedModel, source: str, first: int) -> Document:
    """Return the document of the `.tflite` in the folder, its first subgraph at the pointers."""
    beside = Path(source).with_suffix(".tflite")
    try:
        data = beside.read_bytes()
    except OSError:
        rule = f"not judged: the subgraphs that {model.ops[first].op} runs are read from {beside.name}, which is not in the folder"
        raise DocumentError(source, f"ops[{first}]", rule) from None
    offsets = {tensor.id: tensor.offset for tensor in model.tensors if tensor.offset is not None}
    kinds = [op.op.lower() for op in model.ops]
    return tflite.loads(data, str(beside), pointers=tflite.Pointers(model.versions or "litert", kinds, offsets))


def _document(model: PointedModel, by_id: dict[int, PointedTensor]) -> Document:
    growing = Placing("main", (Arena(name="arena", alignment=1),))
    now: dict[int, int] = {}

    def fresh(index: int, role: Role = Role.TEMPORARY) -> int:
        tensor = by_id[index]
        slot = APART if tensor.offset is None else (0, tensor.offset)
        name = tensor.name or f"tensor {index}"
        buffer = growing.buffer(name, tensor.size, slot, alignment=1, role=role, meta={"tensor": index})
        now[index] = growing.value(name, buffer, "u8", (tensor.size,))
        return now[index]

    made = {index for op in model.ops for index in op.outs}
    read = dict.fromkeys(index for op in model.ops for index in op.ins if index >= 0)
    for index in read:
        if index not in made:
            growing.builder.op(HOST_WRITE, (), (fresh(index, Role.INPUT),))
    for at, op in enumerate(model.ops):
        operands = [now[index] if index in now else fresh(index) for index in op.ins if index >= 0]
        results = [fresh(index) for index in op.outs if index >= 0]
        _kernel(growing, f"{op.op.lower()} {at}", op.op.lower(), operands, results)
    kept = [now[index] for index in now if index in made and by_id[index].last >= len(model.ops)]
    growing.builder.op(HOST_READ, kept, ())
    return Document.of(growing.plan(model.versions or "litert"))


def _kernel(growing: Placing, name: str, kind: str, operands: list[int], results: list[int]) -> None:
    """Add an op. An operator of `UNMODIFIED` is a `same` if operand and result have equal sizes."""
    same = (
        kind in UNMODIFIED
        and operands
        and len(results) == 1
        and growing.nbytes_of(operands[0]) == growing.nbytes_of(results[0])
    )
    if same:
        growing.builder.op(SAME, operands[:1], results, name=name, in_place=())
    else:
        growing.builder.op(kind, operands, results, name=name, in_place=pairs(kind, len(operands)))


__all__ = ["PointedModel", "PointedOp", "PointedTensor", "loads", "looks_like"]
