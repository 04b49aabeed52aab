"""ExecuTorch: a `.pte` file, its instructions and the memory its planner gave each tensor (what the
file says: `allocsim.systems.executorch.pte_file`).

Time: the file has no lifetimes; instructions run in order and are the steps, after one
`host.write` for each input and before one `host.read` of the outputs.

Programs
    One for each way through a method's branches (`allocsim.programs.ways`); the body of a loop runs
    twice, its last iteration standing for all that follow. Methods are judged apart, each with
    memory of its own, unless they share state.
Shared state
    `share_mutable_buffers` plans the buffers that any method writes into a memory of their own, the
    second, which has one size in all methods; so two methods that keep states there share them
    (`_share`). The runtime then gives all methods one set of arenas: those of the file. A state is
    one buffer in all methods, by its qualified name, else by its place. The session runs each way
    next behind each (`_session`): what one run does to a state, the run behind it may want.
Buffers
    One for each tensor that an instruction writes, each time it does, in the slot of the file. What
    has content and no memory is a `parameter`; what has memory and is listed before all that is
    computed, though it is no input, is a `state`. What has no memory lies apart: its pointer comes
    from outside. The alignment is the width of an element: the file says none.
Instructions
    A kernel's last argument is what it returns, a tensor or a list of tensors (`RETURNS` has those
    that differ); as out-arguments the same come before it and are no operands. Of a delegate, the
    arguments behind the last one that holds something are results. A jump reads its condition. A
    move hands a pointer on: it is a `same` into a buffer that lies where the source lies, since
    that is where the runtime then looks, whatever slot was planned for the target.
Views
    A view of planned memory has no instruction: it is a tensor that nothing writes, inside the slot
    of one that came before it in the list of values. Of several, the last one is its base: values
    are listed in the order of the graph. A state is listed before all that is computed, so it lies
    in nothing, and may be a base before it is read. `executorch_prim::et_view` hands on the
    pointer; any other view has the address that was planned for its base. Of what was moved, that is not where
    the bytes are: the view is a `same` of the moved tensor, which no slot holds. A branch knows its
    operands by tensors of its own, which are not in the file: nothing writes where they were
    planned, and a view of one has no slot either.
In place
    By `torch`'s schemas a kernel whose name ends in `_` writes its first operand: over a state it
    is the user's mutation, over any other tensor a new buffer in the same slot with a declared
    pair. An out-argument may alias nothing: the schemas give each a set of its own. Who reads the
    operand later has the same index in the file, whether the old value is meant or the new one:
    `meant` says so where the graph is known (`planned_program`); else the new one is taken to be,
    and the program's `meta` tells of it (`unseen`).

What this module does not see: whether methods that share no state get arenas of their own
(`unseen` names what would be lost); the planner's lifetimes; a view's base where an earlier reuse
of its slot has the same size; what a delegate does inside.
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
"""Kernel -> the argument it writes, where that is not the last. Source: `kernels/prim_ops`."""

HANDS_ON: Final = frozenset({"executorch_prim::et_view.default"})
"""Kernels whose result is the pointer of their first operand."""

COPY: Final = "aten::copy_"
"""Kernel that writes all of its first operand, and does not read it."""

SHARED: Final = 1
"""Arena in which methods share state. Source: `MemoryPlanningPass.run_multimethod`."""

UNKNOWN_VIEW: Final = "view of an unknown tensor"
"""Kind of the op that makes what no instruction makes and no tensor of the file holds."""

OUTPUTS: Final = -1
"""In place of an instruction: what the method returns."""

Reading = tuple[int, int, int]
"""An instruction, an EValue that it reads, and how often it was read there before."""

READS_SHAPE: Final = frozenset({"aten::sym_size.int", "aten::sym_numel"})
"""Kernels that read no bytes."""


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

    `meant` says of each method what reads a value after it was written over, and which instruction
    did it; None where only the file is known. `shared` says whether all methods run in one set of
    arenas; None: where the file plans for it.

    Raise DocumentError with place and rule. O(size of the file x ways).
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
    """Return whether two methods keep states in the second memory, and it has one size in both."""
    sizes = [one.sizes[SHARED] for one in methods if any(arena == SHARED for arena, _ in _kept(one).values())]
    return len(set(sizes)) < len(sizes)


def _session(plans: Sequence[Plan]) -> Iterator[Run]:
    """Yield plans in an order in which each runs next behind each, itself too: plans^2 + 1 runs,
    the Lyndon words of one and of two letters in order, and the first letter again.
    """
    ends = range(len(plans))
    charge("run", len(plans) ** 2 + 1)
    charge("op of a run", (len(plans) + 1) * sum(len(plan.program.ops) for plan in plans))
    order = [at for first in ends for at in (first, *(at for other in ends[first + 1 :] for at in (first, other)))]
    return (Run.of(plans[at]) for at in (*order, 0))


def _arenas(methods: Sequence[Method], *, shared: bool) -> tuple[Arena, ...]:
    """Return the arenas of the file, each as large as the largest method wants it, or those of all
    methods, those of each behind those of the one before.
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
    """Yield the methods, each with slots in arenas of its own."""
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
    """Return every branch, loops unrolled."""
    charge("op of a run", len(block) + 1)  # loops within loops are a power of turns
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
    """One way through a method while it is written down."""

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
        """The instruction that reads."""
        self.reads: Counter[int] = Counter()
        """EValue -> how often it read it."""
        self.before: dict[int, dict[int, int]] = {}
        """Instruction that wrote over a value that is meant later -> what EValues were before it.
        """
        self.unseen: list[str] = []
        """What the file does not say, and the answer hangs on."""
        self.growing = Placing(method.name, arenas)
        self.label, self.shared = label, shared
        self.said: list[str] = []
        self.decided: dict[tuple[int, int], str] = {}
        """What a condition is, by EValue and by how often it was written."""
        self.written: Counter[int] = Counter()
        """EValue -> how often a kernel or move wrote it."""
        self.now: dict[int, int] = {}
        """EValue -> the value it is now."""
        self.kept = _kept(method)
        self.states: set[int] = set()
        """Buffers that outlive a run."""
        self.moved: set[int] = set()
        """Values that a move handed on: they lie elsewhere than their EValues were planned."""
        self.call: tuple[str, ...] = ()
        self.suffix = ""
        self.last = True
        """Whether this is the last turn of each loop around."""
        self.rows: dict[int, int] = {}
        """EValue that a loop fills -> rows written so far."""

    def plan(self, block: Block) -> Plan:
        """Write uploads, instructions and reads down."""
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
            self.unseen.append(f"whether other methods run in the arenas of {self.method.name}, which keep its state")
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
                self.unseen.append(f"whether {row.kind} {at}{self.suffix} writes over what is read later")
            over = self.over(operands, read[0], results)
            anew = row.kind == COPY and len(read) > 1 and self.growing.home[over[0]] in self.states
            self.emit(row.kind, at, read[1:] if anew else read, over, in_place=((0, 0),))
        elif read or results:
            made = [self.fresh(index, f"value {index}{self.suffix}") for index in results]
            self.emit(row.kind, at, read, made)
            self.now.update(zip(results, made, strict=True))

    def sides(self, row: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what a kernel is given, and the tensors it writes, by EValue."""
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
        """Whether a value is a tensor that nothing gave content to."""
        tensor = self.method.values[index]
        return isinstance(tensor, PlannedTensor) and not tensor.content and self.base(index) is None

    def held(self, indices: tuple[int, ...]) -> tuple[int, ...]:
        """Return the values of the tensors among EValues, lists opened."""
        found: list[int] = []
        for index in indices:
            row = self.method.values[index]
            inner = row.items if isinstance(row, Listed) else (index,)
            charge("listed operand", len(inner))
            found += [self.operand(i) for i in inner if i >= 0 and isinstance(self.method.values[i], PlannedTensor)]
        return tuple(found)

    def operand(self, index: int) -> int:
        """Return the value that is meant: before it was written over, where the graph says so."""
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
        """Return the value of a tensor: as it was written, a view, or content from before."""
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
        """Add what has content before the run: a state where memory is planned for it."""
        tensor, name = self.method.values[index], f"{self.label}value {index}"
        assert isinstance(tensor, PlannedTensor)
        if tensor.slot is None:
            return self.fresh(index, name, role=Role.PARAMETER, read_only=True)
        arena, start = tensor.slot
        if self.shared:
            place = f"bytes [{start}, {start + tensor.nbytes}) of memory {arena + 1}"
            name = tensor.name or (place if arena == SHARED else name)
        if self.shared and tensor.content:
            self.unseen.append(f"whether {self.method.name} is loaded after a run, which lays {name} anew")
        return self.fresh(index, name, role=Role.STATE)

    def base(self, index: int) -> int | None:
        """Return the value that a tensor without a writer is a view of, if there is one."""
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
        """Return where views of a tensor lie: of what was moved, where that was planned."""
        as_planned = index not in self.now or self.now[index] in self.moved
        return (tensor.slot or APART) if as_planned else self.growing.slot_of(self.now[index])

    def view(self, index: int, base: int) -> int:
        """Add a view of a value: the tensor of an EValue in the buffer of the value."""
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
        """Add a view of what was moved: it has the moved bytes only where they lie as planned, and
        no slot otherwise.
        """
        slot = tensor.slot if tensor.slot == self.growing.slot_of(base) else None
        made = self.seen(index, tensor, slot)
        self.emit("same", None, (base,), (made,))
        return made

    def nowhere(self, index: int, tensor: PlannedTensor) -> int:
        """Add a view of a tensor that is not in the file: no slot has its bytes."""
        made = self.seen(index, tensor, None)
        self.emit(UNKNOWN_VIEW, None, (), (made,))
        return made

    def seen(self, index: int, tensor: PlannedTensor, slot: tuple[int, int] | None) -> int:
        """Add a buffer for a view that has one of its own, and the value in it."""
        name = f"value {index}{self.suffix}"
        buffer = self.growing.buffer(name, tensor.nbytes, slot or (UNPLACED, 0), alignment=1, meta={"value": index})
        return self.growing.value(name, buffer, tensor.dtype, tensor.shape)

    def over(self, operands: tuple[int, ...], operand: int, results: tuple[int, ...]) -> tuple[int, ...]:
        """Return the result of a kernel that writes its first operand, and let every name of that
        operand be the result from now on.
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
        """Write a row of what a loop fills; the last turn writes all rows that are left."""
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
        """Add a buffer for a tensor, in its slot, and the value in it."""
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
        """Add an op where the walk stands."""
        if at is None:
            self.growing.builder.op(kind, read, made, name=kind, meta=op_meta(self.call), **op)
            return
        name = f"{kind} {at}"
        meta = {"instruction": at, **op_meta(self.call, name if self.suffix else None)}
        self.growing.builder.op(kind, read, made, name=f"{name}{self.suffix}", meta=meta, **op)


def _kept(method: Method) -> dict[int, Slot]:
    """Return the planned tensors that are there before a run, with their slots: of what nothing but
    a kernel in place writes, and is no input, those that are listed before all that is computed and
    lie in no tensor before them. O(values^2) at worst.
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
    """Return the EValues that a kernel writes, lists opened."""
    index = row.args[RETURNS.get(row.kind, -1) % len(row.args)]
    held = method.values[index]
    return set(held.items) if isinstance(held, Listed) else {index}


def _inside(slot: Slot, nbytes: int, around: Slot, size: int) -> bool:
    """Whether some bytes of an arena lie in others."""
    return slot[0] == around[0] and around[1] <= slot[1] and slot[1] + nbytes <= around[1] + size


def writes_first(kind: str) -> bool:
    """Whether a kernel's name says, by torch's rule, that it writes its first operand."""
    name = kind.rpartition("::")[2].partition(".")[0]
    return name.endswith("_") and not name.startswith("_")


__all__ = ["HANDS_ON", "OUTPUTS", "READS_SHAPE", "RETURNS", "Reading", "loads", "looks_like", "writes_first"]
