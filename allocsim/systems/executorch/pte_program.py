"""ExecuTorch: a `.pte` file as programs and plans, from its instructions and the memory planned for
each tensor (`allocsim.systems.executorch.pte_file` has the fields of the file).

Time: the file has no lifetimes; instructions run in order and are the steps, after one
`host.write` for each input and before one `host.read` of the outputs.

Programs
    One for each way through a method's branches (`allocsim.programs.ways`). The body of a loop runs
    twice; the second turn stands for all later ones. Methods are judged apart, each with memory of
    its own, unless they share state.
Shared state
    `share_mutable_buffers` plans the buffers that any method writes into a memory of their own, the
    second, which has one size in all methods. So two methods that keep states there share them
    (`_share`). The runtime then gives all methods one set of arenas, those of the file. A state is
    one buffer in all methods, found by its qualified name, or else by its slot. The session has
    each way run directly after each (`_session`), since a run may need the state of the run before.
Buffers
    One for each tensor that an instruction writes, each time it does, in the slot of the file. A
    tensor with content and without memory is a `parameter`. A tensor with memory that is no input,
    and is listed before all computed tensors, is a `state`. A tensor without memory lies apart: its
    pointer comes from outside. The alignment is the width of an element, as the file has none.
Instructions
    A kernel's last argument is its result, a tensor or a list of tensors (`RETURNS` has the
    exceptions). The same tensors stand before it as out-arguments, which are no operands. The
    results of a delegate are the arguments behind the last one that has content. A jump reads its
    condition. A move passes a pointer on: it is a `same` into a buffer in the slot of the source,
    since the runtime then reads there, whatever slot was planned for the target.
Views
    A view of planned memory has no instruction: it is a tensor that no instruction writes, inside
    the slot of an earlier tensor in the list of values. Of several such tensors the last one is its
    base, since values are listed in the order of the graph. A state is listed before all computed
    tensors, so it is no view, and may be a base before it is read. `executorch_prim::et_view`
    passes the pointer on; any other view has the address that was planned for its base. A moved
    tensor's bytes are elsewhere: its view is a `same` without a slot. A branch reads its operands
    by tensors of its own, which are not in the file. No instruction writes to their planned memory,
    so a view of one has no slot either.
In place
    By torch's schemas a kernel whose name ends in `_` writes its first operand. On a state this is
    the user's mutation, on any other tensor a new buffer in the same slot with a declared pair. An
    out-argument may alias no operand, as the schemas give each an alias set of its own. A later
    reader has the same index in the file, whether it needs the old value or the new one. `meant`
    says which, where the graph is known (`planned_program`); otherwise the new value is assumed,
    and `unseen` in the program's `meta` names the assumption.

What this module does not see: whether methods that share no state get arenas of their own
(`unseen` names the states that they could lose); the planner's lifetimes; a view's base where an
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
"""Kernel -> the argument it writes, if not the last one. Source: `kernels/prim_ops`."""

HANDS_ON: Final = frozenset({"executorch_prim::et_view.default"})
"""Kernels whose result gets the pointer of their first operand."""

COPY: Final = "aten::copy_"
"""The kernel that overwrites all of its first operand and does not read it."""

SHARED: Final = 1
"""The arena in which methods share state. Source: `MemoryPlanningPass.run_multimethod`."""

UNKNOWN_VIEW: Final = "view of an unknown tensor"
"""Kind of the op that makes a view whose base is no tensor of the file."""

OUTPUTS: Final = -1
"""Stands for an instruction where the method's outputs are read."""

Reading = tuple[int, int, int]
"""An instruction, an EValue among its operands, and how many times the EValue came before there."""

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

    `meant` has, for each method, the readings of overwritten values and the instructions that
    overwrote them; None if only the file is known. `shared` says whether all methods run in one set
    of arenas; None: if the file was planned for it.

    Raises DocumentError with place and rule. O(size of the file x ways).
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
    """Return whether two methods keep states in the second memory, of one size in both."""
    sizes = [one.sizes[SHARED] for one in methods if any(arena == SHARED for arena, _ in _kept(one).values())]
    return len(set(sizes)) < len(sizes)


def _session(plans: Sequence[Plan]) -> Iterator[Run]:
    """Yield plans^2 + 1 runs in which each plan runs directly after each plan, itself included: the
    Lyndon words of one and two letters in order, and the first letter again.
    """
    ends = range(len(plans))
    charge("run", len(plans) ** 2 + 1)
    charge("op of a run", (len(plans) + 1) * sum(len(plan.program.ops) for plan in plans))
    order = [at for first in ends for at in (first, *(at for other in ends[first + 1 :] for at in (first, other)))]
    return (Run.of(plans[at]) for at in (*order, 0))


def _arenas(methods: Sequence[Method], *, shared: bool) -> tuple[Arena, ...]:
    """Return, if the methods share, the arenas of the file, each as large as the largest method
    needs it; otherwise the arenas of all methods, one method after another.
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
    """Return the sides of each branch, by where it stands once loops are unrolled."""
    charge("op of a run", len(block) + 1)  # the copies of nested loops multiply
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
    """The state of writing down one way through a method."""

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
        """The instruction being written down."""
        self.reads: Counter[int] = Counter()
        """EValue -> how often that instruction has read it so far."""
        self.before: dict[int, dict[int, int]] = {}
        """Instruction that overwrites a value still needed -> `now` as it was before it."""
        self.unseen: list[str] = []
        """Facts that the file does not state and the verdict depends on."""
        self.growing = Placing(method.name, arenas)
        self.label, self.shared = label, shared
        self.said: list[str] = []
        self.decided: dict[tuple[int, int], str] = {}
        """(EValue of a condition, how often it was written) -> the side that it selects."""
        self.written: Counter[int] = Counter()
        """EValue -> how often a kernel or move wrote it."""
        self.now: dict[int, int] = {}
        """EValue -> its latest value."""
        self.kept = _kept(method)
        self.states: set[int] = set()
        """Buffers that outlive a run."""
        self.moved: set[int] = set()
        """Results of moves: they do not lie in the slots planned for their EValues."""
        self.call: tuple[str, ...] = ()
        self.suffix = ""
        self.last = True
        """Whether this is the last turn of each loop around."""
        self.rows: dict[int, int] = {}
        """EValue that a loop fills -> rows written so far."""

    def plan(self, block: Block) -> Plan:
        """Write uploads, instructions and the host's read down; return the plan."""
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
        """Return the EValues of a kernel's operands, and of the tensors that it writes."""
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
        """Return whether an EValue is a tensor without content."""
        tensor = self.method.values[index]
        return isinstance(tensor, PlannedTensor) and not tensor.content and self.base(index) is None

    def held(self, indices: tuple[int, ...]) -> tuple[int, ...]:
        """Return the values of the tensors among EValues and in lists among them."""
        found: list[int] = []
        for index in indices:
            row = self.method.values[index]
            inner = row.items if isinstance(row, Listed) else (index,)
            charge("listed operand", len(inner))
            found += [self.operand(i) for i in inner if i >= 0 and isinstance(self.method.values[i], PlannedTensor)]
        return tuple(found)

    def operand(self, index: int) -> int:
        """Return the value that an operand needs: the overwritten one, if `meant` says so."""
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
        """Return the value of a tensor: written in this run, a view, or there before the run."""
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
        """Add a tensor with content before the run: with planned memory it is a state."""
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
        """Return the value that an unwritten tensor is a view of, None where there is none."""
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
        """Return the slot of a tensor's views; for a moved tensor, the slot planned for it."""
        as_planned = index not in self.now or self.now[index] in self.moved
        return (tensor.slot or APART) if as_planned else self.growing.slot_of(self.now[index])

    def view(self, index: int, base: int) -> int:
        """Add a view: the tensor of an EValue, in the buffer of the value `base`."""
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
        """Add a view of a moved tensor, in its planned slot if the moved bytes lie there, and
        without a slot otherwise.
        """
        slot = tensor.slot if tensor.slot == self.growing.slot_of(base) else None
        made = self.seen(index, tensor, slot)
        self.emit("same", None, (base,), (made,))
        return made

    def nowhere(self, index: int, tensor: PlannedTensor) -> int:
        """Add a view, without a slot, of a tensor that is not in the file."""
        made = self.seen(index, tensor, None)
        self.emit(UNKNOWN_VIEW, None, (), (made,))
        return made

    def seen(self, index: int, tensor: PlannedTensor, slot: tuple[int, int] | None) -> int:
        """Add a buffer for a view, which shares none with its base, and the value in it."""
        name = f"value {index}{self.suffix}"
        buffer = self.growing.buffer(name, tensor.nbytes, slot or (UNPLACED, 0), alignment=1, meta={"value": index})
        return self.growing.value(name, buffer, tensor.dtype, tensor.shape)

    def over(self, operands: tuple[int, ...], operand: int, results: tuple[int, ...]) -> tuple[int, ...]:
        """Return the result of a kernel that writes its first operand. From now on the result is
        the value of the operand's EValue and of the kernel's results.
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
        """Write one row of a tensor that a loop fills; the last turn writes all remaining rows."""
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
    """Return the states of a method with their slots: planned tensors that are no input, that no
    kernel writes except in place, that are listed before all computed tensors, and that lie in no
    earlier tensor. O(values^2) at worst.
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
    """Return the EValues that a kernel writes, those in lists too."""
    index = row.args[RETURNS.get(row.kind, -1) % len(row.args)]
    held = method.values[index]
    return set(held.items) if isinstance(held, Listed) else {index}


def _inside(slot: Slot, nbytes: int, around: Slot, size: int) -> bool:
    """Return whether `nbytes` from `slot` on lie within `size` bytes from `around` on."""
    return slot[0] == around[0] and around[1] <= slot[1] and slot[1] + nbytes <= around[1] + size


def writes_first(kind: str) -> bool:
    """Return whether a kernel writes its first operand, by torch's rule for names."""
    name = kind.rpartition("::")[2].partition(".")[0]
    return name.endswith("_") and not name.startswith("_")


__all__ = ["HANDS_ON", "OUTPUTS", "READS_SHAPE", "RETURNS", "Reading", "loads", "looks_like", "writes_first"]
