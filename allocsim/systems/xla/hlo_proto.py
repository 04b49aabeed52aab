"""Reads XLA's `*.hlo.pb` (`--xla_dump_hlo_as_proto`): an HloProto, which has the scheduled module
and the BufferAssignmentProto in one file.

The reader returns the same records as the reader of the texts: a module with computations that are
parsed on demand, and the assignment of its values. Instructions are in the order of the schedule.
The proto does not mark phis. A value is treated as a phi if a loop, a conditional, or a parameter
of a computation other than the entry defines the value.

What this module does not see: literals, tiled layouts (the size comes from the assignment), and
traces of the heap simulator.

Source: XLA `hlo.proto`, `xla_data.proto` (numbers of fields), `hlo_instruction.cc` (the order of
called computations: the body of a loop comes before its condition).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from allocsim.errors import DocumentError
from allocsim.formats.protobuf import Message, varint
from allocsim.systems.xla.hlo_assignment import Assignment, ListedAllocation, ListedValue, assigned
from allocsim.systems.xla.hlo_text import MAX_LEAVES, Index, Instruction, Leaf

ELEMENT_TYPES: Final = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16", 11: "f32",
    12: "f64", 13: "tuple", 14: "opaque", 15: "c64", 16: "bf16", 17: "token", 18: "c128", 19: "f8e5m2",
    20: "f8e4m3fn", 21: "s4", 22: "u4", 26: "s2", 27: "u2", 28: "f8e4m3", 32: "f4e2m1fn",
}  # fmt: skip
"""PrimitiveType -> name; an element of any other type is read as bytes."""

TUPLE: Final = 13

ATTRIBUTES: Final[Mapping[str, str]] = {
    "fusion": "calls={0}",
    "while": "condition={1}, body={0}",
    "conditional": "branch_computations={{{all}}}",
}
"""Opcode -> the attributes that name called computations in the text; otherwise `to_apply`."""

T = TypeVar("T")


class HloProtoModule:
    """The HLO module in an HloProto."""

    scheduled: bool
    donated: frozenset[int]
    ranks = 0
    """0, because the number of ranks is not read from a proto."""

    def __init__(self, module: Message, source: str) -> None:
        self.source, self.name = source, module.text(1)
        self.rows = {row.number(5): row for row in module.messages(3)}
        self.names = {number: row.text(1) for number, row in self.rows.items()}
        self.places = {name: number for number, name in self.names.items()}
        self.entry = self.names.get(module.number(6), "")
        if not self.entry:
            raise ValueError("the module has no entry computation")
        self.order = {row.number(1): row.message(2).numbers(1) for row in module.message(7).messages(1)}
        self.scheduled = module.number(6) in self.order
        self.donated = frozenset(row.number(2) for row in module.message(8).messages(1))
        self.asynchronous = any(
            line.text(2).endswith("-start") for row in self.rows.values() for line in row.messages(2)
        )

    def instructions(self, computation: str) -> tuple[Instruction, ...]:
        """Return the instructions of a computation in the order of its schedule, else of the file.

        Raises DocumentError for an unknown computation and for bytes that are not instructions.
        """
        if computation not in self.places:
            raise DocumentError(self.source, f"computation {computation[:80]!r}", "does not exist")
        return said(self.source, lambda: tuple(self._instructions(self.places[computation])))

    def _instructions(self, number: int) -> Iterator[Instruction]:
        row = self.rows[number]
        lines = {line.number(35): line for line in row.messages(2)}
        names = {place: line.text(1) for place, line in lines.items()}
        for place in self.order.get(number, names):
            if place not in lines:
                raise ValueError(f"computation {self.names[number][:80]!r} schedules an instruction that is missing")
            line = lines[place]
            opcode = line.text(2)
            operands = tuple(names.get(other, "") for other in line.numbers(36))
            argument = str(line.number(9)) if opcode == "parameter" else ""
            shape = dict(leaves(line.message(3)))
            yield Instruction(
                names[place], opcode, shape, operands, self._attributes(line, opcode), argument, place == row.number(6)
            )

    def _attributes(self, line: Message, opcode: str) -> str:
        """Return the attributes of an instruction that are used here, as the text spells them."""
        called = [self.names.get(number, "") for number in line.numbers(38)]
        form = ATTRIBUTES.get(opcode, "to_apply={0}")
        most = 2 if opcode == "while" else 1
        words = [form.format(*called, all=", ".join(called))] if len(called) >= most else []
        if opcode == "fusion":
            words.append(f"kind={line.text(11)}")
        if opcode == "get-tuple-element":
            words.append(f"index={line.number(13)}")
        shared = [
            f"{{{','.join(map(str, row.numbers(1)))}}}: ({row.number(2)}, {{{','.join(map(str, row.numbers(3)))}}})"
            for row in line.messages(74)
        ]
        if shared:
            words.append(f"output_to_operand_aliasing={{{', '.join(shared)}}}")
        return ", ".join(words)


def leaves(shape: Message, index: Index = ()) -> Iterator[tuple[Index, Leaf]]:
    """Yield the leaves of a ShapeProto. Raises ValueError if the shape is too deep or too large."""
    kind = shape.number(2)
    if len(index) > 32:
        raise ValueError("a shape is nested too deeply")
    if kind != TUPLE:
        dims = tuple(shape.numbers(3))
        order = tuple(shape.message(5).numbers(1))
        if sorted(order) != list(range(len(dims))):
            order = tuple(reversed(range(len(dims))))
        tiled = any(True for _ in shape.message(5).messages(6))
        yield index, Leaf(ELEMENT_TYPES.get(kind, "opaque"), dims, order, tiled)
        return
    yield index, Leaf("tuple", None)
    for place, part in enumerate(shape.messages(4)):
        if place >= MAX_LEAVES:
            raise ValueError("a shape has too many parts")
        yield from leaves(part, (*index, place))


def read_proto(data: bytes, source: str) -> tuple[HloProtoModule, Assignment]:
    """Return the module and assignment of an HloProto. Raises DocumentError. O(bytes)."""
    whole = said(source, lambda: Message(data))
    module = said(source, lambda: HloProtoModule(whole.message(1), source))
    rows = said(source, lambda: list(_allocations(whole.message(3), module)))
    if not rows:
        raise DocumentError(
            source, "", "no plan here: it has no buffer assignment (XLA makes it after optimizing the module)"
        )
    return module, assigned(rows, source)


def _allocations(assignment: Message, module: HloProtoModule) -> Iterator[ListedAllocation]:
    """Yield the allocations of a BufferAssignmentProto with their values."""
    opcodes = {
        line.number(35): (line.text(1), line.text(2), number)
        for number, row in module.rows.items()
        for line in row.messages(2)
    }
    entry = module.places[module.entry]
    buffers: dict[int, tuple[str, Index, bool, int]] = {}
    for row in assignment.messages(1):
        where = row.message(3)
        name, opcode, number = opcodes.get(where.number(4), ("", "", -1))
        if not name:
            raise ValueError(f"logical buffer {row.number(1)} has no instruction that defines it")
        phi = opcode in ("while", "conditional") or (opcode == "parameter" and number != entry)
        buffers[row.number(1)] = name, tuple(where.numbers(3)), phi, row.number(4)
    for allocation in assignment.messages(3):
        values = []
        for row in allocation.messages(9):
            if row.number(1) not in buffers:
                raise ValueError(f"logical buffer {row.number(1)} does not exist")
            name, index, phi, colour = buffers[row.number(1)]
            values.append(ListedValue((name, index), colour, row.number(2), row.number(3), phi))
        yield ListedAllocation(
            allocation.number(1), allocation.number(2), constant=bool(allocation.number(12)), values=tuple(values)
        )


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` is an HloProto. The first field of an HloProto
    is a message that begins with the names of the module and of its entry computation.
    """
    try:
        key, at = varint(head, 0, len(head))
        _, at = varint(head, at, len(head))
        for wanted in (0x0A, 0x12):
            inner, at = varint(head, at, len(head))
            size, at = varint(head, at, len(head))
            text = head[at : at + size]
            if (
                key != 0x0A
                or inner != wanted
                or len(text) != size
                or not text.isascii()
                or not text.decode().isprintable()
            ):
                return False
            at += size
    except ValueError:
        return False
    return size > 0


def said(source: str, read: Callable[[], T]) -> T:
    """Return the result of `read`. If `read` raises ValueError, raise DocumentError instead."""
    try:
        return read()
    except ValueError as error:
        raise DocumentError(source, "", str(error)) from None


__all__ = ["HloProtoModule", "looks_like", "read_proto"]
