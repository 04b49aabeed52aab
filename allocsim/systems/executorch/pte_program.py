"""Makes programs and plans from an ExecuTorch `.pte` file, by its instructions and the memory
planned for each tensor. `allocsim.systems.executorch.pte_file` reads the fields of the file.

Time is the order in which the instructions run. One `host.write` for each input comes first, and
one `host.read` of the outputs comes last. The file has no lifetimes.

Programs
    There is one program for each way through a method's branches (`allocsim.programs.ways`). The
    body of a loop runs twice; the second turn represents all later turns. Methods are separate,
    each with separate memory, unless they share state.
Shared state
    `share_mutable_buffers` plans all buffers that a method writes in the second memory, which has
    the same size in all methods. Two methods with states in the second memory therefore share these
    states (`_share`). The runtime then gives all methods the same arenas, the arenas of the file. A
    state is one buffer in all methods, identified by its qualified name, or else by its slot. In
    the session each way runs directly after every way, itself included (`_session`), because a run
    may need the state of the run before.
Buffers
    Each write of a tensor by an instruction makes a new buffer, in the slot that the file has for
    the tensor. Mutations of a state, and the rows that a loop fills, share one buffer. A tensor
    with content and without planned memory is a `parameter`. A tensor with planned memory is a
    `state` if it is not an input and is listed before all computed tensors. A tensor without
    planned memory has separate memory, because its pointer comes from outside. The alignment is the
    width of an element, because the file states no alignment.
Instructions
    The last argument of a kernel is its result, a tensor or a list of tensors (`RETURNS` has the
    exceptions). The out-arguments before the last argument are the same tensors and are not
    operands. The results of a delegate are the arguments after the last one that has a value before
    the call. A jump reads its condition. A move assigns a pointer: it is a `same` into a buffer in
    the slot of the source. The runtime reads from that slot afterwards, even if another slot was
    planned for the target.
Views
    A view of planned memory has no instruction. It is a tensor that no instruction writes, inside
    the slot of an earlier tensor in the list of values. If several earlier tensors contain the
    slot, the last of them is the base, because values are listed in the order of the graph. A state
    is listed before all computed tensors, so a state is not a view; it may be a base before it is
    read. `executorch_prim::et_view` passes the pointer on; any other view has the address that was
    planned for its base. The bytes of a moved tensor are elsewhere, so its view is a `same` without
    a slot. A branch reads its operands through other tensors, which are not in the file. No
    instruction writes to their planned memory, so a view of such a tensor has no slot either.
In place
    By torch's schemas, a kernel writes its first operand if its name ends, and does not begin, with
    `_`. If the operand is a state, this is the user's mutation. For any other tensor, the result is
    a new buffer in the same slot with a declared in-place pair. An out-argument may not alias an
    operand, because the schemas give each out-argument a separate alias set. A later reader has the
    same index in the file, whether it needs the old value or the new value. If the graph is known,
    `meant` says which value it needs (`planned_program`). Otherwise the new value is assumed, and
    `unseen` in the program's `meta` names the assumption.

What this module does not see: whether methods without shared state get separate arenas (`unseen`
names the states that they could lose); the planner's lifetimes; the true base of a view if an
earlier tensor in its slot has the same size; the inside of a delegate.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import prod
from typing import Any, Final

from allocsim.allowances import charge, metered
from allocsim.errors import DocumentError, ModelError
from allocsim.formats.flatbuffer import identifier
from allocsim.formats.placing import APART, Placing, Slot
from allocsim.model import HOST_READ, HOST_WRITE, UNPLACED, VIEW, Arena, Document, Plan, Role, Run
from allocsim.programs.routines import TIMES, Where, op_meta
from allocsim.programs.ways import ways
from allocsim.systems.executorch.pte_blocks import SIDES, Block, Branch, Loop, blocks
from allocsim.systems.executorch.pte_file import IDENTIFIER, Call, Jump, Listed, Method, Move, PlannedTensor, parse

RETURNS: Final = {"executorch_prim::et_copy_index.tensor": 0}
"""Kernel -> the argument that it writes, if not the last. Source: `kernels/prim_ops`."""

HANDS_ON: Final = frozenset({"executorch_prim::et_view.default"})
"""Kernels that return the pointer of their first operand."""

COPY: Final = "aten::copy_"
"""The kernel that overwrites its first operand completely without reading it."""

SHARED: Final = 1
"""The arena of the states that methods share. Source: `MemoryPlanningPass.run_multimethod`."""

UNKNOWN_VIEW: Final = "view of an unknown tensor"
"""Kind of the op that makes a view of a tensor that is not in the file."""

OUTPUTS: Final = -1
"""The number used as the instruction that reads the method's outputs."""

Reading = tuple[int, int, int]
"""An instruction, the EValue of an operand, and the number of earlier reads of this EValue by the
instruction."""

READS_SHAPE: Final = frozenset({"aten::sym_size.int", "aten::sym_numel"})
"""Kernels that read only shapes and no bytes."""


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` is an ExecuTorch program."""
    return identifier(head) == IDENTIFIER


@metered
def loads(
    data: bytes,
    source: str = "program",
    *,
    meant: Mapping[str, Mapping[Reading, int]] | None = None,
    shared: bool | None = None,
) -> Document:
    """Return a program and a plan for each way through each method.

    `meant` has, for each method, the reads of overwritten values and the instructions that
    overwrote the values; None if only the file is known. `shared` says whether all methods use one
    set of arenas. If `shared` is None, the file's plan decides.

    Raises DocumentError, which names place and rule. O(size of the file x ways).
    """
    plans: list[Plan] = []
    methods = parse(data, source)
    shared = len(methods) > 1 and (_share(methods) if shared is None else shared)
    arenas = _arenas(methods, shared=shared)
    for method in methods if shared else _apart(methods):
        told, label = None if meant is None else meant.get(method.name), f"{method.name}, " if len(methods) > 1 else ""
        block = blocks(method, source)
        try:
            found: dict[str, Plan] = {}
            for taken in ways(_choices(block, ())):
                plan = _Walk(method, taken, told, arenas, label, shared=shared).plan(block)
                found[plan.program.path] = plan
            plans += found.values()
        except ModelError as error:
            raise DocumentError(source, f"{method.name}: {error.place}", error.rule) from None
    if not plans:
        raise DocumentError(source, "execution_plan", "no method has instructions")
    try:
        return Document.of(*plans, *(_session(plans) if shared else ()))
    except ModelError as error:
        raise DocumentError(source, error.place, error.rule) from None


def _share(methods: Sequence[Method]) -> bool:
    """Return whether two methods have states in the second memory, with equal sizes of it."""
    sizes = [one.sizes[SHARED] for one in methods if any(arena == SHARED for arena, _ in _kept(one).values())]
    return len(set(sizes)) < len(sizes)


def _session(plans: Sequence[Plan]) -> Iterator[Run]:
    """Return plans^2 + 1 runs in which each plan runs directly after each plan, itself included.
    The order is that of the Lyndon words of one and two letters, and then the first letter again.
    """
    ends = range(len(plans))
    charge("run", len(plans) ** 2 + 1)
    charge("op of a run", (len(plans) + 1) * sum(len(plan.program.ops) for plan in plans))
    order = [at for first in ends for at in (first, *(at for other in ends[first + 1 :] for at in (first, other)))]
    return (Run.of(plans[at]) for at in (*order, 0))


def _arenas(methods: Sequence[Method], *, shared: bool) -> tuple[Arena, ...]:
    """Return the arenas. If the methods share arenas, each arena has the largest size that a method
    needs. Otherwise each method has separate arenas, one method after another.
    """
    rows = [(f"{method.name}, " if len(methods) > 1 else "", method.sizes) for method in methods]
    if shared:
        rows = [("", tuple(map(max, zip_longest(*(method.sizes for method in methods), fillvalue=0))))]
    found = tuple(
        Arena(name=f"{whose}memory {place}", alignment=1, capacity=size)
        for whose, sizes in rows
        for place, size in enumerate(sizes, 1)
    )
    return found or (Arena(name="memory", alignment=1),)


def _apart(methods: Sequence[Method]) -> Iterator[Method]:
    """Yield the methods with slots in separate arenas for each method."""
    first = 0
    for method in methods:
        held = (
            replace(one, slot=(first + one.slot[0], one.slot[1]))
            if isinstance(one, PlannedTensor) and one.slot
            else one
            for one in method.values
        )
        yield replace(method, values=tuple(held))
        first += len(method.sizes)


def _choices(block: Block, where: Where) -> dict[Where, tuple[str, ...]]:
    """Return path -> sides for each branch. A path names the turn of each loop around it."""
    charge("op of a run", len(block) + 1)  # the number of copies multiplies with nested loops
    found: dict[Where, tuple[str, ...]] = {}
    for item in block:
        if isinstance(item, Branch):
            found[*where, f"cond {item.at}"] = SIDES
            for name, side in zip(SIDES, item.sides, strict=True):
                found |= _choices(side, (*where, f"cond {item.at}", name))
        elif isinstance(item, Loop):
            for turn in range(TIMES):
                found |= _choices(item.body, (*where, f"loop {item.at}", str(turn)))
    return found


class _Walk:
    """Translates one way through a method into ops, buffers and slots."""

    def __init__(
        self,
        method: Method,
        taken: dict[Where, str],
        meant: Mapping[Reading, int] | None,
        arenas: Sequence[Arena],
        label: str,
        *,
        shared: bool,
    ) -> None:
        self.method, self.taken, self.meant = method, taken, meant
        self.at = OUTPUTS
        """The instruction that is being translated."""
        self.reads: Counter[int] = Counter()
        """EValue -> how often the instruction `at` has read it so far."""
        self.before: dict[int, dict[int, int]] = {}
        """Instruction that overwrites a value still needed -> `now` before this instruction."""
        self.unseen: list[str] = []
        """Facts that the verdict depends on but the file does not state."""
        self.growing = Placing(method.name, arenas)
        self.label, self.shared = label, shared
        self.said: list[str] = []
        self.decided: dict[tuple[int, int], str] = {}
        """(EValue of a condition, how often it was written) -> the side that it selects."""
        self.written: Counter[int] = Counter()
        """EValue -> the number of kernels and moves that wrote it."""
        self.now: dict[int, int] = {}
        """EValue -> its latest value."""
        self.kept = _kept(method)
        self.states: set[int] = set()
        """Buffers that keep their content after a run."""
        self.moved: set[int] = set()
        """Results of moves; they are not in the slots that were planned for their EValues."""
        self.call: tuple[str, ...] = ()
        self.suffix = ""
        self.last = True
        """Whether this is the last turn of every enclosing loop."""
        self.rows: dict[int, int] = {}
        """EValue that a loop fills -> the number of rows written so far."""

    def plan(self, block: Block) -> Plan:
        """Add uploads, instructions and the host's read; return the plan."""
        for index in self.method.inputs:
            if isinstance(self.method.values[index], PlannedTensor):
                self.now[index] = self.fresh(index, f"input {index}", role=Role.INPUT)
                self.growing.builder.op(HOST_WRITE, (), (self.now[index],))
        self.block(block, ())
        self.at, self.reads = OUTPUTS, Counter()
        outputs = [
            self.operand(index) for index in self.method.outputs if isinstance(self.method.values[index], PlannedTensor)
        ]
        self.growing.builder.op(HOST_READ, outputs, ())
        if self.label and self.states and not self.shared:
            self.unseen.append(f"whether other methods use the arenas of {self.method.name}, which hold its state")
        meta = {"unseen": self.unseen} if self.unseen else {}
        program = replace(self.growing.builder.build(), path=", ".join(self.said), meta=meta)
        return self.growing.plan_for(program, "executorch")

    def block(self, block: Block, where: Where) -> None:
        for item in block:
            if isinstance(item, int):
                self.instruction(item)
            elif isinstance(item, Branch):
                self.branch(item, (*where, f"cond {item.at}"))
            else:
                self.loop(item, where)

    def branch(self, item: Branch, here: Where) -> None:
        row = self.method.instructions[item.at]
        assert isinstance(row, Jump)
        self.emit("jump_false", item.at, self.held((row.condition,)), ())
        key = row.condition, self.written[row.condition]
        side = self.decided.setdefault(key, self.taken[here])
        self.said.append(f"{'/'.join(here)}={side}")
        self.inside(item.sides[SIDES.index(side)], (*here, side), here[-1], side)

    def loop(self, item: Loop, where: Where) -> None:
        around = self.suffix, self.last
        for turn in range(TIMES):
            self.suffix, self.last = f"{around[0]}.{turn}", around[1] and turn == TIMES - 1
            self.inside(item.body, (*where, f"loop {item.at}", str(turn)), f"loop {item.at}")
        self.suffix, self.last = around

    def inside(self, block: Block, where: Where, *names: str) -> None:
        around = self.call
        self.call = (*around, *names)
        self.block(block, where)
        self.call = around

    def instruction(self, at: int) -> None:
        row = self.method.instructions[at]
        self.at, self.reads = at, Counter()
        if isinstance(row, Move):
            self.written[row.target] += 1
            self.move(at, row)
        elif isinstance(row, Call):
            self.written.update(row.args[-1:])
            self.kernel(at, row)

    def move(self, at: int, row: Move) -> None:
        tensor = self.method.values[row.source]
        if not isinstance(tensor, PlannedTensor):
            return
        source = self.operand(row.source)
        slot = self.growing.slot_of(source)
        meta = {"value": row.target}
        buffer = self.growing.buffer(f"value {row.target}{self.suffix}", tensor.nbytes, slot, alignment=1, meta=meta)
        self.now[row.target] = self.growing.value(
            f"value {row.target}{self.suffix}", buffer, tensor.dtype, tensor.shape
        )
        self.moved.add(self.now[row.target])
        self.emit("same", at, (source,), (self.now[row.target],))

    def kernel(self, at: int, row: Call) -> None:
        operands, results = self.sides(row)
        read = () if row.kind in READS_SHAPE else self.held(operands)
        if row.kind in HANDS_ON and read and len(results) == 1:
            self.now[results[0]] = self.view(results[0], read[0])
        elif row.kind in RETURNS and results:
            self.fill(at, row.kind, read, results[0])
        elif writes_first(row.kind) and read and self.now.get(operands[0]) == read[0]:
            if self.meant is not None and at in self.meant.values():
                self.before[at] = dict(self.now)
            elif self.meant is None and self.growing.home[read[0]] not in self.states:
                self.unseen.append(f"whether {row.kind} {at}{self.suffix} overwrites a value that is read later")
            over = self.over(operands, read[0], results)
            anew = row.kind == COPY and len(read) > 1 and self.growing.home[over[0]] in self.states
            self.emit(row.kind, at, read[1:] if anew else read, over, in_place=((0, 0),))
        elif read or results:
            made = [self.fresh(index, f"value {index}{self.suffix}") for index in results]
            self.emit(row.kind, at, read, made)
            self.now.update(zip(results, made, strict=True))

    def sides(self, row: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the EValues of a kernel's operands, and of the tensors that the kernel writes."""
        values, args = self.method.values, row.args
        if row.delegate:
            held = [place for place, index in enumerate(args) if index in self.now or not self.unwritten(index)]
            behind = held[-1] + 1 if held else 0
            return args[:behind], tuple(index for index in args[behind:] if isinstance(values[index], PlannedTensor))
        if not args:
            return (), ()
        if row.kind in RETURNS:
            index = args[RETURNS[row.kind] % len(args)]
            results = (index,) if isinstance(values[index], PlannedTensor) else ()
            return tuple(other for other in args if other != index), results
        last = values[args[-1]]
        returned = last.items if isinstance(last, Listed) else (args[-1],)
        charge("listed operand", len(args) + len(returned))
        operands = args[:-1]
        if operands and isinstance(last, Listed) and values[operands[-1]] == last:
            operands = operands[:-1]
        kept = len(operands)
        for index in reversed(returned):
            kept -= kept > 0 and operands[kept - 1] == index
        operands = operands[:kept]
        return operands, tuple(index for index in returned if index >= 0 and isinstance(values[index], PlannedTensor))

    def unwritten(self, index: int) -> bool:
        """Return whether an EValue is a tensor without content that is not a view."""
        tensor = self.method.values[index]
        return isinstance(tensor, PlannedTensor) and not tensor.content and self.base(index) is None

    def held(self, indices: tuple[int, ...]) -> tuple[int, ...]:
        """Return the values of all tensors among EValues, including tensors in lists."""
        found: list[int] = []
        for index in indices:
            row = self.method.values[index]
            inner = row.items if isinstance(row, Listed) else (index,)
            charge("listed operand", len(inner))
            found += [self.operand(i) for i in inner if i >= 0 and isinstance(self.method.values[i], PlannedTensor)]
        return tuple(found)

    def operand(self, index: int) -> int:
        """Return the value that an operand needs: the old value if `meant` has this read."""
        key = self.at, index, self.reads[index]
        self.reads[index] += 1
        then = self.before.get((self.meant or {}).get(key, OUTPUTS))
        if then is None:
            return self.read(index)
        around, self.now = self.now, dict(then)
        found = self.read(index)
        self.now = around
        return found

    def read(self, index: int) -> int:
        """Return a tensor's value: written in this run, a view, or content from before the run."""
        if index not in self.now:
            base, tensor = self.base(index), self.method.values[index]
            if base is not None:
                self.now[index] = self.view(index, base)
            elif index not in self.kept and isinstance(tensor, PlannedTensor) and tensor.slot is not None:
                self.now[index] = self.nowhere(index, tensor)
            else:
                self.now[index] = self.content(index)
        return self.now[index]

    def content(self, index: int) -> int:
        """Add a tensor with content from before the run: a state if its memory is planned."""
        tensor, name = self.method.values[index], f"{self.label}value {index}"
        assert isinstance(tensor, PlannedTensor)
        if tensor.slot is None:
            return self.fresh(index, name, role=Role.PARAMETER, read_only=True)
        arena, start = tensor.slot
        if self.shared:
            place = f"bytes [{start}, {start + tensor.nbytes}) of memory {arena + 1}"
            name = tensor.name or (place if arena == SHARED else name)
        if self.shared and tensor.content:
            self.unseen.append(f"whether {self.method.name} is loaded after a run, which resets {name}")
        return self.fresh(index, name, role=Role.STATE)

    def base(self, index: int) -> int | None:
        """Return the value that an unwritten tensor is a view of, or None if it is no view."""
        tensor = self.method.values[index]
        if not isinstance(tensor, PlannedTensor) or tensor.slot is None or index in self.kept:
            return None
        charge("comparison", len(self.now) + len(self.kept))
        for other in sorted((i for i in self.now.keys() | self.kept.keys() if i < index), reverse=True):
            planned = self.method.values[other]
            if isinstance(planned, PlannedTensor) and _inside(
                tensor.slot, tensor.nbytes, self.believed(other, planned), planned.nbytes
            ):
                return self.read(other)
        return None

    def believed(self, index: int, tensor: PlannedTensor) -> tuple[int, int]:
        """Return the slot that must contain the views of a tensor. This is the planned slot if the
        tensor was moved or has no value yet, and otherwise the slot of its latest value.
        """
        as_planned = index not in self.now or self.now[index] in self.moved
        return (tensor.slot or APART) if as_planned else self.growing.slot_of(self.now[index])

    def view(self, index: int, base: int) -> int:
        """Add a view: the tensor of an EValue in the buffer of the value `base`."""
        tensor = self.method.values[index]
        assert isinstance(tensor, PlannedTensor)
        if base in self.moved and tensor.slot is not None:
            return self.astray(index, base, tensor)
        start = self.growing.slot_of(base)[1]
        offset = tensor.slot[1] - start if tensor.slot is not None and tensor.slot[1] >= start else 0
        made = self.growing.value(
            f"value {index}{self.suffix}", self.growing.home[base], tensor.dtype, tensor.shape, offset=offset
        )
        self.emit(VIEW, None, (base,), (made,))
        return made

    def astray(self, index: int, base: int, tensor: PlannedTensor) -> int:
        """Add a view of a moved tensor. The view has its planned slot if this is the slot of the
        moved bytes; otherwise it has no slot.
        """
        slot = tensor.slot if tensor.slot == self.growing.slot_of(base) else None
        made = self.seen(index, tensor, slot)
        self.emit("same", None, (base,), (made,))
        return made

    def nowhere(self, index: int, tensor: PlannedTensor) -> int:
        """Add a view of a tensor that is not in the file; the view has no slot."""
        made = self.seen(index, tensor, None)
        self.emit(UNKNOWN_VIEW, None, (), (made,))
        return made

    def seen(self, index: int, tensor: PlannedTensor, slot: tuple[int, int] | None) -> int:
        """Add a separate buffer for a view; return the value in the buffer."""
        name = f"value {index}{self.suffix}"
        buffer = self.growing.buffer(name, tensor.nbytes, slot or (UNPLACED, 0), alignment=1, meta={"value": index})
        return self.growing.value(name, buffer, tensor.dtype, tensor.shape)

    def over(self, operands: tuple[int, ...], operand: int, results: tuple[int, ...]) -> tuple[int, ...]:
        """Add the result of a kernel that writes its first operand; return its value. From now on,
        this value is the latest of the operand's EValue and of the kernel's results.
        """
        index = next(i for i in operands if self.now.get(i) == operand)
        tensor = self.method.values[index]
        assert isinstance(tensor, PlannedTensor)
        home = self.growing.home[operand]
        if home not in self.states or self.at in self.before:
            home = self.growing.buffer(
                f"value {index}{self.suffix} anew",
                tensor.nbytes,
                self.growing.slots[home],
                alignment=1,
                meta={"value": index, "over": home},
            )
        made = self.growing.value(f"value {index}{self.suffix} anew", home, tensor.dtype, tensor.shape)
        self.now.update(dict.fromkeys((index, *results), made))
        return (made,)

    def fill(self, at: int, kind: str, read: tuple[int, ...], target: int) -> None:
        """Add the write of one row of a tensor that a loop fills; the last turn writes the rest."""
        tensor = self.method.values[target]
        assert isinstance(tensor, PlannedTensor)
        row = self.rows.get(target, 0)
        if row == 0:
            self.now[target] = self.fresh(target, f"value {target}{self.suffix}")
        count = max(tensor.shape[0], 1) if tensor.shape else 1
        row = min(row, count - 1)
        rest = count - row if self.last else 1
        whole = self.now[target]
        shape = (rest, *tensor.shape[1:]) if tensor.shape else ()
        part = self.growing.value(
            f"rows of value {target}{self.suffix}",
            self.growing.home[whole],
            tensor.dtype,
            shape,
            offset=row * (tensor.nbytes // count),
        )
        self.emit(kind, at, read, (part,))
        self.rows[target] = 0 if self.last else row + 1

    def fresh(self, index: int, name: str, **columns: Any) -> int:
        """Add a buffer for a tensor in its slot; return the value in the buffer."""
        tensor = self.method.values[index]
        assert isinstance(tensor, PlannedTensor)
        width = tensor.nbytes // max(1, prod(tensor.shape)) or 1
        buffer = self.growing.buffer(
            name, tensor.nbytes, tensor.slot or APART, alignment=width, meta={"value": index}, **columns
        )
        if columns.get("role") is Role.STATE:
            self.states.add(buffer)
        return self.growing.value(name, buffer, tensor.dtype, tensor.shape)

    def emit(self, kind: str, at: int | None, read: Any, made: Any, **op: Any) -> None:
        """Add an op, with the current instruction and calls in its `meta`."""
        if at is None:
            self.growing.builder.op(kind, read, made, name=kind, meta=op_meta(self.call), **op)
            return
        name = f"{kind} {at}"
        meta = {"instruction": at, **op_meta(self.call, name if self.suffix else None)}
        self.growing.builder.op(kind, read, made, name=f"{name}{self.suffix}", meta=meta, **op)


def _kept(method: Method) -> dict[int, Slot]:
    """Return the states of a method with their slots. A state is a planned tensor that is not an
    input, that no instruction writes except in place, that is listed before all computed tensors,
    and that is not inside the slot of an earlier tensor. O(values^2) at worst.
    """
    written: set[int] = set()
    for row in method.instructions:
        if isinstance(row, Move):
            written.add(row.target)
        elif isinstance(row, Call) and row.args and (row.delegate or not writes_first(row.kind)):
            written |= set(row.args[-1:]) if row.delegate else _results(method, row)
    rows = [
        (i, row.slot, row.nbytes) for i, row in enumerate(method.values) if isinstance(row, PlannedTensor) and row.slot
    ]
    first = min(written - {-1}, default=len(method.values))
    given = set(method.inputs)
    found: dict[int, Slot] = {}
    for place, (index, slot, nbytes) in enumerate(rows):
        if index >= first or index in given:
            continue
        charge("comparison", place)
        if not any(_inside(slot, nbytes, around, size) for _, around, size in rows[:place]):
            found[index] = slot
    return found


def _results(method: Method, row: Call) -> set[int]:
    """Return the EValues that a kernel writes, including those in lists."""
    index = row.args[RETURNS.get(row.kind, -1) % len(row.args)]
    held = method.values[index]
    return set(held.items) if isinstance(held, Listed) else {index}


def _inside(slot: Slot, nbytes: int, around: Slot, size: int) -> bool:
    """Return whether `nbytes` bytes at `slot` are inside `size` bytes at `around`."""
    return slot[0] == around[0] and around[1] <= slot[1] and slot[1] + nbytes <= around[1] + size


def writes_first(kind: str) -> bool:
    """Return whether a kernel writes its first operand, by torch's naming rule."""
    name = kind.rpartition("::")[2].partition(".")[0]
    return name.endswith("_") and not name.startswith("_")


__all__ = ["HANDS_ON", "OUTPUTS", "READS_SHAPE", "RETURNS", "Reading", "loads", "looks_like", "writes_first"]
