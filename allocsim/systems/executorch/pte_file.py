"""Reads a `.pte` file: methods with values, instructions and planned memory. Checks every number.

`values` of a method has its EValues by index: tensors, booleans and lists of tensors. Any other
EValue is None, because it has no memory. Instructions keep their positions, because jumps name
positions. An offset is combined from its two halves. Memory id k of a file is arena k - 1 here.

Source: ExecuTorch's `schema/program.fbs` and `schema/scalar_type.fbs` (identifier `ET12`).
"""

from dataclasses import dataclass
from typing import Final

from allocsim.errors import DocumentError
from allocsim.formats.flatbuffer import Table, identifier, open_buffer
from allocsim.model import WIDTHS
from allocsim.model.layout import LIMIT, dense_nbytes
from allocsim.programs.dtype_names import dtype_code

IDENTIFIER: Final = b"ET12"

DTYPES: Final = {
    0: "u8", 1: "i8", 2: "i16", 3: "i32", 4: "i64", 5: "f16", 6: "f32", 7: "f64", 9: "c64", 10: "c128", 11: "bool",
    12: "i8", 13: "u8", 14: "i32", 15: "bf16", 23: "f8_e5m2", 24: "f8_e4m3", 27: "u16", 28: "u32", 29: "u64",
}  # fmt: skip
"""ScalarType -> dtype; the numbers are the same as torch's."""

TENSOR, BOOL, LISTS = 5, 3, (10, 11)
"""Numbers of members of the union KernelTypes."""

UNBOUNDED: Final = 2
"""TensorShapeDynamism of tensors for which the runtime allocates memory during a run."""

MAX_RANK: Final = 64
"""The most dimensions of a tensor, as in torch."""

EXTERNAL: Final = 1
"""TensorDataLocation of weights in another file."""


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor among the values of a method."""

    dtype: str
    shape: tuple[int, ...]
    slot: tuple[int, int] | None
    """Arena and offset in bytes; None if the file plans no memory for the tensor."""
    content: bool
    """Whether the file, or a separate file of weights, has the content of the tensor."""
    name: str = ""
    """The qualified name of the tensor; "" if the file has none."""

    @property
    def nbytes(self) -> int:
        """The size of all elements of the tensor in bytes."""
        return dense_nbytes(self.shape, int(WIDTHS[dtype_code("dtype", self.dtype)]))


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of tensors by value index; -1 is an omitted tensor."""

    items: tuple[int, ...]


Held = PlannedTensor | Listed | bool | None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a kernel or delegate; the arguments are indices of values."""

    kind: str
    args: tuple[int, ...]
    delegate: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """Assigns the value `source` to the value `target`; for tensors, the pointer is assigned."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Jump:
    """Continues at the instruction `target` if the value `condition` is false."""

    condition: int
    target: int


@dataclass(frozen=True, slots=True)
class Free:
    """Frees the memory of an unbounded tensor."""

    value: int


Instruction = Call | Move | Jump | Free


@dataclass(frozen=True, slots=True)
class Method:
    """A method: one entry point of the program."""

    name: str
    values: tuple[Held, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    sizes: tuple[int, ...]
    """The size of each arena in bytes."""


def parse(data: bytes, source: str) -> list[Method]:
    """Return the methods of a file that have instructions.

    Raises DocumentError, which names place and rule. O(size of the file).
    """
    if identifier(data) != IDENTIFIER:
        raise DocumentError(source, "", f"is not an ExecuTorch program of schema {IDENTIFIER.decode()}")
    root = open_buffer(data, source)
    version = root.scalar(0, "version", "u32")
    if version != 0:
        raise root.refuse(f"version {version} is not supported; version 0 is", "version")
    plans = root.tables(1, "execution_plan")
    return [
        _method(plan)
        for plan in plans
        if any(chain.numbers(2, "instructions", "<u4").size for chain in plan.tables(5, "chains"))
    ]


def _method(plan: Table) -> Method:
    chains = plan.tables(5, "chains")
    if len(chains) != 1:
        raise plan.refuse(f"has {len(chains)} chains; one is supported", "chains")
    sizes = tuple(plan.numbers(8, "non_const_buffer_sizes", "<i8").tolist())[1:]
    if any(not 0 <= size <= LIMIT for size in sizes):
        raise plan.refuse("a size is negative or exceeds 2^62", "non_const_buffer_sizes")
    values = tuple(_value(row, len(sizes)) for row in plan.tables(2, "values"))
    names = [_operator(row) for row in plan.tables(6, "operators")]
    delegates = [row.text(0, "id") for row in plan.tables(7, "delegates")]
    rows = chains[0].tables(2, "instructions")
    for row in values:
        for item in row.items if isinstance(row, Listed) else ():
            if not -1 <= item < len(values) or (item >= 0 and isinstance(values[item], Listed)):
                raise plan.refuse(
                    f"a list has item {item}, which is a list or not one of {len(values)} values", "values"
                )
    return Method(
        name=plan.text(0, "name") or "method",
        values=values,
        inputs=_indices(plan, 3, "inputs", len(values)),
        outputs=_indices(plan, 4, "outputs", len(values)),
        instructions=tuple(_instruction(row, len(values), len(rows), names, delegates) for row in rows),
        sizes=sizes,
    )


def _operator(row: Table) -> str:
    overload = row.text(1, "overload")
    return row.text(0, "name") + (f".{overload}" if overload else "")


def _indices(table: Table, slot: int, name: str, count: int) -> tuple[int, ...]:
    found = tuple(table.numbers(slot, name, "<i4").tolist())
    for index in found:
        if not 0 <= index < count:
            raise table.refuse(f"value {index} does not exist; there are {count}", name)
    return found


def _value(row: Table, arenas: int) -> Held:
    member, held = row.scalar(0, "val_type", "u8"), row.table(1, "val")
    if held is None:
        return None
    if member == TENSOR:
        return _tensor(held, arenas)
    if member == BOOL:
        return bool(held.scalar(0, "bool_val", "bool", False))
    return Listed(tuple(held.numbers(0, "items", "<i4").tolist())) if member in LISTS else None


def _tensor(row: Table, arenas: int) -> PlannedTensor:
    dtype = row.scalar(0, "scalar_type", "i8")
    if dtype not in DTYPES:
        raise row.refuse(f"element type {dtype} is not supported", "scalar_type")
    shape = tuple(row.numbers(2, "sizes", "<i4").tolist())
    if len(shape) > MAX_RANK:
        raise row.refuse(f"has {len(shape)} dimensions; at most {MAX_RANK} are read", "sizes")
    order = row.numbers(3, "dim_order", "u1").tolist()
    if len(order) not in (0, len(shape)):
        raise row.refuse(f"has {len(order)} dimensions; the tensor has {len(shape)}", "dim_order")
    if order and sorted(order) != list(range(len(shape))):
        raise row.refuse(f"{order} is not a permutation of {len(shape)} dimensions", "dim_order")
    if any(length < 0 for length in shape):
        raise row.refuse(f"{min(shape)} is negative; a length is 0 or more", "sizes")
    if row.scalar(1, "storage_offset", "i32"):
        raise row.refuse("only 0 is supported, as in the runtime", "storage_offset")
    extra = row.table(9, "extra_tensor_info")
    outside = extra is not None and extra.scalar(2, "location", "i8") == EXTERNAL
    found = PlannedTensor(
        DTYPES[dtype],
        tuple(shape[axis] for axis in order) if order else shape,
        None if row.scalar(8, "shape_dynamism", "i8") == UNBOUNDED else _slot(row, arenas),
        row.scalar(5, "data_buffer_idx", "u32") > 0 or outside,
        "" if extra is None else extra.text(1, "fully_qualified_name"),
    )
    if found.nbytes > LIMIT:
        raise row.refuse("the tensor exceeds 2^62 bytes", "sizes")
    return found


def _slot(row: Table, arenas: int) -> tuple[int, int] | None:
    memory = row.table(6, "allocation_info")
    if memory is None:
        return None
    number = memory.scalar(0, "memory_id", "u32")
    if not 1 <= number <= arenas:
        raise memory.refuse(f"memory {number} does not exist; there are {arenas}, counted from 1", "memory_id")
    offset = memory.scalar(1, "memory_offset_low", "u32") + (memory.scalar(2, "memory_offset_high", "u32") << 32)
    if offset > LIMIT:
        raise memory.refuse(f"{offset} exceeds 2^62", "memory_offset_high")
    return number - 1, offset


def _instruction(row: Table, values: int, rows: int, names: list[str], delegates: list[str]) -> Instruction:
    member, held = row.scalar(0, "instr_args_type", "u8"), row.table(1, "instr_args")
    if held is None or member not in _MEMBERS:
        raise row.refuse(f"instruction type {member} is not supported", "instr_args")

    def value(slot: int, name: str) -> int:
        index: int = held.scalar(slot, name, "i32")
        if not 0 <= index < values:
            raise held.refuse(f"value {index} does not exist; there are {values}", name)
        return index

    if member in (1, 2):
        known, field = (names, "op_index") if member == 1 else (delegates, "delegate_index")
        index = held.scalar(0, field, "i32")
        if not 0 <= index < len(known):
            raise held.refuse(f"{index} does not exist; there are {len(known)}", field)
        return Call(known[index] or "unnamed", _indices(held, 1, "args", values), member == 2)
    if member == 3:
        return Move(value(0, "move_from"), value(1, "move_to"))
    if member == 5:
        return Free(value(0, "value_index"))
    target = held.scalar(1, "destination_instruction", "i32")
    if not 0 <= target <= rows:
        raise held.refuse(f"instruction {target} does not exist; there are {rows}", "destination_instruction")
    return Jump(value(0, "cond_value_index"), target)


_MEMBERS: Final = frozenset((1, 2, 3, 4, 5))
"""Numbers of the instructions KernelCall, DelegateCall, MoveCall, JumpFalseCall and FreeCall."""

__all__ = [
    "DTYPES", "IDENTIFIER", "Call", "Free", "Instruction", "Jump", "Listed", "Method", "Move", "PlannedTensor", "parse",
]  # fmt: skip
