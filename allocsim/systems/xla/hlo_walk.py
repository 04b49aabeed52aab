"""Makes a program and its plan for one way through a scheduled HLO module.

Programs
    There is one program for each way through the conditionals (`allocsim.programs.ways`). The
    condition and body of a loop run twice, and then the condition runs once more.
Buffers
    Each execution of an instruction makes one buffer for each value that XLA's dataflow defines at
    the instruction, at the offset in the assignment. An allocation is an arena
    (`allocsim.systems.xla.hlo_assignment`). Constants have the role `parameter` and separate
    memory. A tuple is a table of pointers: `tuple` writes it, and `get-tuple-element` reads it.
Instructions
    `bitcast` is a view. A phi of a loop or conditional is the op `same`. XLA copies nothing there,
    so a phi gets no slot if its incoming value is in another slot. Every other instruction is a
    kernel of its opcode, which reads all arrays of its operands. For each kernel,
    `allocsim.systems.xla.hlo_in_place` lists the operands that may share bytes with the result.
    An instruction `*-start` runs on a second stream until its `*-done`. The `meta` of a collective
    lists the ranks that take part (`allocsim.systems.xla.hlo_collectives`).
Parameters
    The host writes the parameters first. If no output may take the memory of a parameter
    (`input_output_alias`), the parameter belongs to the caller: it is read-only, and the host reads
    it at the end.

What this module does not see: scratch memory of kernels; thread-local memory inside fusions,
reductions and other called kernels; the order of several asynchronous streams; the size of a memory
space (colour) beyond its allocations.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from allocsim.allowances import charge
from allocsim.errors import DocumentError
from allocsim.formats.placing import APART, Placing
from allocsim.model import HOST_READ, HOST_WRITE, SAME, UNPLACED, VIEW, WIDTHS, Bools, Plan, Role
from allocsim.model.layout import dense_nbytes
from allocsim.programs.dtype_names import dtype_code
from allocsim.programs.rank_meetings import in_meta
from allocsim.programs.routines import TIMES, Where, op_meta
from allocsim.systems.xla import hlo_in_place
from allocsim.systems.xla.hlo_assignment import ALIGNMENT, Assignment
from allocsim.systems.xla.hlo_collectives import UNREAD, Parts, meeting_of
from allocsim.systems.xla.hlo_live_range import Born, LiveRanges, believed, with_sharing
from allocsim.systems.xla.hlo_text import DTYPES, Index, Instruction, Leaf, ReadableModule

MAX_OPS: Final = 1 << 22
"""The most ops of all programs of a dump together."""

MAX_DEPTH: Final = 64
"""The largest depth of nested calls."""

CALLERS: Final = frozenset(("while", "conditional", "call"))
"""Instructions with called computations that are inlined; no event begins at the call itself."""

FORWARDS: Final = frozenset(("optimization-barrier", "opt-barrier", "add-dependency", "domain", "after-all"))
"""Instructions that return their first operand unchanged."""

Held = Mapping[Index, int | None]
"""The result of an instruction: index of a leaf -> value, or None if the leaf has no buffer."""


def _sides(row: Instruction) -> tuple[str, ...]:
    """Return the computations of a conditional, one for each branch."""
    return row.called("branch_computations") or row.called("true_computation") + row.called("false_computation")


def choices(module: ReadableModule) -> dict[Where, tuple[str, ...]]:
    """Return call path -> branches of each conditional. A path names the turns of loops."""
    found: dict[Where, tuple[str, ...]] = {}

    def visit(computation: str, where: Where, depth: int) -> None:
        if depth > MAX_DEPTH or len(found) > 1 << 12:
            raise DocumentError(
                module.source, computation[:80], "has calls or conditionals that are too deep or too many"
            )
        rows = module.instructions(computation)
        charge("instruction", len(rows) + 1)  # the number of copies multiplies with nested loops
        for row in rows:
            if row.opcode == "conditional":
                sides = _sides(row)
                names = tuple(f"branch {place}" for place in range(len(sides)))
                if not names:
                    raise DocumentError(module.source, row.name[:80], "is a conditional without branches")
                found[*where, row.name] = names
                for name, side in zip(names, sides, strict=True):
                    visit(side, (*where, row.name, name), depth + 1)
            elif row.opcode == "while":
                for turn in range(TIMES):
                    for part in (*row.called("condition"), *row.called("body")):
                        visit(part, (*where, row.name, str(turn)), depth + 1)
            elif row.opcode == "call":
                for part in row.called("to_apply"):
                    visit(part, (*where, row.name, "called"), depth + 1)

    visit(module.entry, (), 0)
    return found


class _Walk:
    """Translates one way through a module into ops, buffers and slots."""

    def __init__(
        self, module: ReadableModule, assignment: Assignment, taken: Mapping[Where, str], live: LiveRanges | None
    ) -> None:
        self.module, self.assignment, self.taken, self.live = module, assignment, taken, live
        self.times: list[int] = [-1]
        """XLA's time of each event."""
        self.steps: list[int] = [0]
        """For each event, the step of the first op after the event begins."""
        self.born: list[Born] = []
        self.layouts: dict[int, tuple[str, tuple[int, ...]]] = {}
        """Value -> its dtype and shape."""
        self.count = 0
        """The number of ops added so far."""
        streams = ("main", "async") if module.asynchronous else ("main",)
        self.growing = Placing(module.name, assignment.arenas, streams=streams)
        self.read_rows: dict[str, tuple[Instruction, ...]] = {}
        self.lines: dict[str, Instruction] = {}
        """Name -> instruction, for all instructions so far; names are unique in a module."""
        self.fusions: hlo_in_place.Fusions = {}
        self.said: list[str] = []
        self.call: tuple[str, ...] = ()
        self.suffix = ""
        self.latest = -1
        """The step of the last op on the main stream."""
        self.caller: list[int] = []
        """The values of the parameters that are not donated; no output may use their memory."""
        self.groups: dict[Parts, str] = {}
        """The parts of the ranks that take part in a collective -> the name of the group."""
        self.unread = False
        """Whether the participating ranks of some collective could not be read."""
        self.started: dict[int, int] = {}
        """Value -> the asynchronous op that writes it."""

    def plan(self) -> Plan:
        """Translate the entry computation; return its plan."""
        rows = self.rows(self.module.entry)
        given: dict[int, Held] = {}
        for row in rows:
            if row.opcode == "parameter":
                number = int(row.argument) if row.argument.isdigit() else -1
                mine = number not in self.module.donated
                given[number] = self.define(row, role=Role.INPUT, read_only=mine)
                made = [value for value in given[number].values() if value is not None]
                self.emit(HOST_WRITE, row.name, (), made)
                self.caller += made if mine else ()
        result = self.computation(self.module.entry, given, (), 0)
        out = [value for value in result.values() if value is not None]
        self.pass_on()
        self.emit(HOST_READ, "outputs", [*out, *(value for value in self.caller if value not in out)], ())
        told = {name: parts for parts, name in self.groups.items()}
        ranks = {"ranks": in_meta(self.module.ranks, told)} if told and not self.unread else {}
        program = replace(self.growing.builder.build(), path=", ".join(self.said), meta=ranks)
        live = self.live
        problem = None if live is None else believed(program, live, self.times, self.steps, self.born)
        plan = self.growing.plan_for(program, "xla", problem=problem)
        return plan if live is None else with_sharing(plan, self.cut(live))

    def cut(self, live: LiveRanges) -> Bools:
        """Return, for each buffer, whether its live range ends at the time at which the range of a
        value in the same slot begins, in any branch.
        """
        known = self.assignment.values
        begins = {(known[key].arena, known[key].offset, span[0]) for key, span in live.ranges.items() if key in known}
        spans = [(known.get(row.key), live.ranges.get(row.key)) for row in self.born]
        return np.array(
            [
                bool(slot and span and span[0] < span[1] and (slot.arena, slot.offset, span[1]) in begins)
                for slot, span in spans
            ],
            dtype=np.bool_,
        )

    def happen(self, time: int) -> None:
        """Begin an event at one of XLA's times."""
        self.times.append(time)
        self.steps.append(self.count)

    def pass_on(self) -> None:
        """Begin the event at which values enter or leave a loop or conditional."""
        self.happen(self.times[-1] + 1)

    def rows(self, computation: str) -> tuple[Instruction, ...]:
        """Return the instructions of a computation; they are cached."""
        if computation not in self.read_rows:
            self.read_rows[computation] = self.module.instructions(computation)
        return self.read_rows[computation]

    def computation(self, name: str, given: Mapping[int, Held], where: Where, depth: int) -> Held:
        """Translate a computation inline; return the values of its root."""
        if depth > MAX_DEPTH or len(self.growing.slots) > MAX_OPS:
            raise DocumentError(self.module.source, name[:80], "has calls that are too deep, or too many buffers")
        held: dict[str, Held] = {}
        root: Held = {}
        charge("instruction", len(self.rows(name)) + 1)
        for row in self.rows(name):
            if row.opcode not in CALLERS:
                self.happen(self.time_of(row))
            self.lines[row.name] = row
            made = self.instruction(row, held, given, where, depth)
            held[row.name] = made
            root = made if row.root else root
        return root

    def instruction(
        self, row: Instruction, held: Mapping[str, Held], given: Mapping[int, Held], where: Where, depth: int
    ) -> Held:
        """Translate an instruction; return its values."""
        if row.opcode == "parameter":
            return self.parameter(row, given)
        operands = [self.known(row, name, held) for name in row.operands]
        if row.opcode == "constant":
            return self.define(row, role=Role.PARAMETER, read_only=True)
        if row.opcode == "tuple":
            return self.table(row, operands)
        if row.opcode == "get-tuple-element":
            return self.element(row, operands[0] if operands else {})
        if row.opcode in FORWARDS:
            return operands[0] if operands else {(): None}
        if row.opcode == "bitcast":
            return self.bitcast(row, operands)
        if row.opcode == "while":
            return self.loop(row, operands, where, depth)
        if row.opcode == "conditional":
            return self.conditional(row, operands, where, depth)
        if row.opcode == "call":
            called = row.called("to_apply")
            return self.inside(row, called, dict(enumerate(operands)), (*where, row.name, "called"), depth, row.name)
        if row.opcode.endswith("-done") or row.opcode.endswith("-update"):
            return self.done(row, operands)
        return self.kernel(row, operands)

    def time_of(self, row: Instruction) -> int:
        """Return XLA's time of an instruction, or 0 if the dump has no live ranges."""
        if self.live is None:
            return 0
        if row.name not in self.live.time:
            raise DocumentError(
                self.live.source, row.name[:80], "is not in the sequence: the live ranges are of another module"
            )
        return self.live.time[row.name]

    def known(self, row: Instruction, name: str, held: Mapping[str, Held]) -> Held:
        if name not in held:
            raise DocumentError(self.module.source, row.name[:80], f"operand {name[:80]!r} is not defined before it")
        return held[name]

    def parameter(self, row: Instruction, given: Mapping[int, Held]) -> Held:
        number = int(row.argument) if row.argument.isdigit() else -1
        if number not in given:
            raise DocumentError(self.module.source, row.name[:80], f"parameter {row.argument[:9]!r} gets no value")
        return given[number]

    def define(self, row: Instruction, **columns: Any) -> Held:
        """Add a buffer for each leaf of an instruction that has a value in the assignment."""
        return {index: self.fresh(row, index, **columns) for index in row.shape}

    def fresh(self, row: Instruction, index: Index, **columns: Any) -> int | None:
        """Add a buffer for a leaf; return its value, or None if the assignment lacks the leaf."""
        known = self.assignment.values.get((row.name, index))
        if known is None:
            return None
        leaf = row.shape[index]
        kept = columns.get("role") is Role.PARAMETER
        slot = APART if kept else columns.pop("slot", (known.arena, known.offset))
        # `constant.1` may be the name of another constant
        turn = f" in turn {self.suffix[1:]}" if kept and self.suffix else self.suffix
        label = f"{row.name}{_braced(index)}{turn}"
        self.born.append(Born((row.name, index), len(self.times) - 1, self.count))
        buffer = self.growing.buffer(label, known.nbytes, slot, alignment=1 if kept else ALIGNMENT, **columns)
        return self.value(label, buffer, _layout(leaf, known.nbytes))

    def value(self, label: str, buffer: int, layout: tuple[str, tuple[int, ...]]) -> int:
        """Add a value at the start of a buffer."""
        made = self.growing.value(label, buffer, *layout)
        self.layouts[made] = layout
        return made

    def table(self, row: Instruction, operands: list[Held]) -> Held:
        """Translate a tuple: a table of pointers to its operands."""
        found: dict[Index, int | None] = {(): self.fresh(row, ())}
        for place, operand in enumerate(operands):
            found |= {(place, *index): value for index, value in operand.items()}
        if found[()] is not None:
            self.emit(row.opcode, row.name, (), (found[()],))
        return found

    def element(self, row: Instruction, operand: Held) -> Held:
        place = row.number("index")
        found = {index[1:]: value for index, value in operand.items() if index and index[0] == place}
        if not found:
            raise DocumentError(self.module.source, row.name[:80], f"its operand has no tuple element {place}")
        table = operand.get(())
        if table is not None:
            self.emit(row.opcode, row.name, (table,), ())
        return found

    def bitcast(self, row: Instruction, operands: list[Held]) -> Held:
        source = operands[0].get(()) if operands else None
        if source is None:
            return self.kernel(row, operands)
        leaf = row.shape[()]
        made = self.value(f"{row.name}{self.suffix}", self.growing.home[source], _layout(leaf, None))
        self.emit(VIEW, row.name, (source,), (made,))
        return {(): made}

    def kernel(self, row: Instruction, operands: list[Held]) -> Held:
        """Add the op of a kernel: it reads its operands' arrays and writes the assigned values."""
        read = [
            self.seen_as(value, row)
            for operand in operands
            for index, value in operand.items()
            if value is not None and not self.is_table(operand, index)
        ]
        made = self.define(row)
        started = row.opcode.endswith("-start")
        sources = [value for operand in operands for value in operand.values()]
        if started:
            made = {index: value if value is not None else self.sent(index, sources) for index, value in made.items()}
        written = [value for index, value in made.items() if value is not None and value not in sources]
        if not written and not read:
            return made
        if not started and any(
            made[index] is None
            for index in row.shape
            if row.shape[index].dims is not None and row.shape[index].kind != "token"
        ):
            raise DocumentError(self.module.source, row.name[:80], "has no value in the assignment")
        pairs = self.pairs(row, read, written, made)
        told = self.told_ranks(row)
        at = self.emit(row.opcode, row.name, read, written, in_place=pairs, stream=int(started), told=told)
        if started:
            self.started.update(dict.fromkeys(written, at))
        return made

    def seen_as(self, value: int, row: Instruction) -> int:
        """Return a view of an operand in a result's layout if both have the same slot and size;
        return any other operand unchanged. A bitcast changes only the layout. If a kernel's pairs
        are unknown, the judge treats only pairs of equal layout as unknown.
        """
        for index, leaf in row.shape.items():
            known, layout = self.assignment.values.get((row.name, index)), self.layouts[value]
            if known is None or self.growing.slot_of(value) != (known.arena, known.offset):
                continue
            if self.growing.nbytes_of(value) == known.nbytes and layout != (other := _layout(leaf, known.nbytes)):
                made = self.value(f"{row.name}, seen as its result{self.suffix}", self.growing.home[value], other)
                self.emit(VIEW, row.name, (value,), (made,))
                return made
        return value

    def sent(self, index: Index, sources: list[int | None]) -> int | None:
        """Return the operand that leaf (1,) of a started op represents; None for other leaves."""
        arrays = [value for value in sources if value is not None]
        return arrays[0] if index == (1,) and arrays else None

    def pairs(self, row: Instruction, read: list[int], written: list[int], made: Held) -> Any:
        tables = [
            value
            for index, value in made.items()
            if value is not None and value in written and self.is_table(made, index)
        ]
        arrays = [value for value in written if value not in tables]
        if not arrays:
            return ()
        sizes = [(self.growing.nbytes_of(value), self.growing.nbytes_of(arrays[0])) for value in read]
        leaves = [self.lines[name].shape.get(()) for name in row.operands]
        found = hlo_in_place.pairs(self.module, row, sizes, len(arrays), leaves, fusions=self.fusions)
        if found is None:
            return None
        moved = {place: written.index(value) for place, value in enumerate(arrays)}
        return tuple(
            (pair[0], moved[pair[1]], *pair[2:])
            for pair in found
            if pair[0] < len(read)
            and pair[1] in moved
            and self.growing.nbytes_of(read[pair[0]]) == self.growing.nbytes_of(arrays[pair[1]])
        )

    def is_table(self, held: Held, index: Index) -> bool:
        """Return whether a leaf is the pointer table of a tuple."""
        return any(len(other) > len(index) and other[: len(index)] == index for other in held)

    def done(self, row: Instruction, operands: list[Held]) -> Held:
        """Add the end of an asynchronous op; its results may be read from here on."""
        start = operands[0] if operands else {}
        part = (0,) if row.opcode == "copy-done" else (1,) if any(index[:1] == (1,) for index in start) else ()
        found = {index[len(part) :]: value for index, value in start.items() if index[: len(part)] == part}
        waits = sorted({self.started[value] for value in start.values() if value in self.started})
        self.emit(row.opcode, row.name, (), (), after=waits)
        return {index: value for index, value in found.items() if index in row.shape} or found

    def loop(self, row: Instruction, operands: list[Held], where: Where, depth: int) -> Held:
        """Translate a loop: condition and body twice, then the condition once more."""
        condition, body = row.called("condition"), row.called("body")
        if len(condition) != 1 or len(body) != 1 or len(operands) != 1:
            raise DocumentError(self.module.source, row.name[:80], "needs one condition, one body and one operand")
        carried, around = operands[0], self.suffix
        for turn in range(TIMES + 1):
            self.suffix = f"{around}.{turn}"
            for part in condition + (body if turn < TIMES else ()):
                here = self.phi(self.parameter_of(part), carried)
                left = self.inside(
                    row, (part,), {0: here}, (*where, row.name, str(min(turn, TIMES - 1))), depth, row.name
                )
                carried = left if part == body[0] else here
                if part != body[0]:
                    self.pass_on()  # as for a conditional
                    self.emit("predicate", row.name, [value for value in left.values() if value is not None], ())
        self.suffix = around
        return self.left_by(row, carried)

    def parameter_of(self, computation: str) -> Instruction:
        for row in self.rows(computation):
            if row.opcode == "parameter":
                return row
        raise DocumentError(self.module.source, computation[:80], "has no parameter")

    def conditional(self, row: Instruction, operands: list[Held], where: Where, depth: int) -> Held:
        here = (*where, row.name)
        side = self.taken[here]
        place = int(side.removeprefix("branch "))
        self.said.append(f"{'/'.join(here)}={side}")
        if place + 1 >= len(operands):
            raise DocumentError(self.module.source, row.name[:80], f"has no operand for {side}")
        self.pass_on()  # values that are not used later are dead when the branch is chosen
        self.emit("predicate", row.name, [value for value in operands[0].values() if value is not None], ())
        sides = _sides(row)
        left = self.inside(row, (sides[place],), {0: operands[place + 1]}, (*here, side), depth, row.name, side)
        return self.left_by(row, left)

    def left_by(self, row: Instruction, sides: Held) -> Held:
        """Pass values on to the results of a loop or conditional. Then begin an event at the time
        of the loop or conditional in XLA's sequence, which is after all times of its computations.
        """
        found = self.phi(row, sides)
        if self.live is not None and row.name in self.live.time:
            self.happen(self.live.time[row.name])
        return found

    def inside(
        self,
        row: Instruction,
        called: tuple[str, ...],
        given: Mapping[int, Held],
        where: Where,
        depth: int,
        *names: str,
    ) -> Held:
        if len(called) != 1:
            raise DocumentError(self.module.source, row.name[:80], f"calls {len(called)} computations; one is needed")
        around = self.call
        self.call = (*around, *names)
        result = self.computation(called[0], given, where, depth + 1)
        self.call = around
        return result

    def phi(self, row: Instruction, sides: Held) -> Held:
        """Pass values on to the phis of an instruction in one op; other leaves are unchanged."""
        self.pass_on()
        found: dict[Index, int | None] = {}
        given, made = [], []
        for index, value in sides.items():
            known = self.assignment.values.get((row.name, index))
            if known is None or not known.phi or value is None or index not in row.shape:
                found[index] = value
                continue
            here = (known.arena, known.offset)
            there = self.growing.slot_of(value)
            target = self.fresh(row, index, slot=here if here == there else (UNPLACED, 0))
            found[index] = target
            given.append(value)
            made.append(target)
        if given:
            self.emit(SAME, row.name, given, made)
        return found

    def told_ranks(self, row: Instruction) -> Mapping[str, Any]:
        """Return the `meta` of a collective's op, which names the group of participating ranks
        (`allocsim.programs.rank_meetings`). Adds a new group to `groups`.
        """
        met = meeting_of(row, self.module.ranks)
        if met is None:
            called = row.called("calls") if row.opcode == "async-start" else ()
            inside = (one.opcode for name in called for one in self.module.instructions(name))
            self.unread |= not UNREAD.isdisjoint((row.opcode, *inside))
            return {}
        group = self.groups.setdefault(met.parts, f"group {len(self.groups)}")
        return {"collective": group, "params": dict(met.params), "of": row.name}

    def emit(
        self,
        kind: str,
        name: str,
        read: Any,
        made: Any,
        *,
        stream: int = 0,
        after: Iterable[int] = (),
        told: Mapping[str, Any] | None = None,
        **op: Any,
    ) -> int:
        """Add an op; return its step. `told` is added to the `meta` of the op."""
        meta = {**op_meta(self.call, name if self.suffix else None), **(told or {})}
        waits = [*after, *([self.latest] if stream and self.latest >= 0 else ())]
        at = self.growing.builder.op(
            kind, read, made, name=f"{name}{self.suffix}", stream=stream, after=waits, meta=meta, **op
        )
        self.count = at + 1
        if not stream:
            self.latest = at
        return at


def _braced(index: Index) -> str:
    return "{" + ",".join(map(str, index)) + "}" if index else ""


def _layout(leaf: Leaf, nbytes: int | None) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and shape of a leaf in memory order, largest stride first. If the leaf is
    not a dense array of `nbytes` bytes, return the dtype u8 and the shape (nbytes,).
    """
    if leaf.dims is not None and leaf.kind in DTYPES and not leaf.tiled:
        dtype = DTYPES[leaf.kind]
        shape = tuple(leaf.dims[axis] for axis in reversed(leaf.minor_to_major))
        dense = dense_nbytes(shape, int(WIDTHS[dtype_code("dtype", dtype)]))
        if nbytes in (None, dense):
            return dtype, shape
    return "u8", (nbytes or 0,)


def plan_of_way(
    module: ReadableModule, assignment: Assignment, taken: Mapping[Where, str], live: LiveRanges | None = None
) -> Plan:
    """Return the plan of one way through a module; its belief has XLA's live ranges, if given.

    Raises DocumentError with the instruction, or ModelError for an invalid program. O(ops).
    """
    return _Walk(module, assignment, taken, live).plan()


__all__ = ["MAX_OPS", "choices", "plan_of_way"]
