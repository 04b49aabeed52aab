"""Makes programs from a `.tflite` file of LiteRT or TensorFlow Lite, with its offline plan if it
has one. `allocsim.systems.litert.tflite_file` reads the fields of the file.

Time is the order in which the operators run; called subgraphs are inlined. One `host.write` for
each input comes first, and one `host.read` of the outputs comes last. Most files have no plan,
because the interpreter plans when it loads a file. The document then has only programs. With a
delegate, the interpreter uses the delegate's plan and ignores the plan of the file. XNNPACK is the
default delegate on many platforms.

Programs
    There is one program for each way through the IFs (`allocsim.programs.ways`). The condition and
    body of a WHILE run twice, and then the condition runs once more.
Buffers
    Each write of a tensor by an operator makes a new buffer, in the single arena at the offset of
    the plan. Constants are `parameter`; variables are `state`. Constants, and tensors that the plan
    leaves to the runtime (-1), have separate memory.
Operators
    RESHAPE and the other kinds in `UNMODIFIED` are `same`, in a separate slot or in the slot of
    their operand. Other in-place pairs come from `allocsim.systems.litert.tflite_in_place`. IF and
    WHILE copy tensors one after another; each copy is a `same`. An IF copies its operands to the
    inputs of the called subgraph, and the outputs of the subgraph to its own outputs. A WHILE first
    copies its operands to its outputs. Each turn copies these outputs to the inputs of condition
    and body, and the outputs of the body to the outputs of the WHILE. Microcontrollers, the targets
    of offline plans, do the same. If an interpreter's pointers are given, a turn copies the outputs
    of the last body, at first the operands, to the inputs of condition and body
    (`tensorflow/lite/kernels/while.cc`, step 3-2, for fixed sizes). The last turn copies them to
    the outputs of the WHILE. Every copy needs the content that its source had before the first
    copy. A plan can therefore lose the content of a tensor that is both an output and an input of a
    body.

If the pointers of an interpreter are given (`Pointers`), the tensors of the first subgraph are at
these pointers. Each tensor of another subgraph has a separate slot.

What this module does not see: with an interpreter's pointers, overlaps with tensors of other
subgraphs; scratch buffers of kernels; shapes known only at run time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from allocsim.allowances import charge, metered
from allocsim.errors import DocumentError, ModelError
from allocsim.formats.flatbuffer import identifier
from allocsim.formats.placing import APART, Placing
from allocsim.model import HOST_READ, HOST_WRITE, SAME, Arena, Document, Plan, Role
from allocsim.programs.routines import TIMES, Where, op_meta
from allocsim.programs.ways import ways
from allocsim.systems.litert.tflite_file import IDENTIFIER, Operator, Subgraph, parse
from allocsim.systems.litert.tflite_in_place import UNMODIFIED, pairs

MAX_OPS: Final = 1 << 22
"""The most ops of all programs of one file together."""

MAX_DEPTH: Final = 64
"""The largest depth of nested calls of subgraphs."""

SIDES: Final = ("then", "else")


@dataclass(frozen=True, slots=True)
class Pointers:
    """The offsets at which an interpreter placed the tensors of the first subgraph."""

    source: str
    kinds: list[str]
    """The kinds of the operators in the first subgraph, in order."""
    offsets: Mapping[int, int]


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a TensorFlow Lite model."""
    return identifier(head) == IDENTIFIER


@metered
def loads(data: bytes, source: str = "model", *, pointers: Pointers | None = None) -> Document:
    """Return a program for each way through the first subgraph, and a plan for each if the file has
    an offline plan or `pointers` are given.

    Raises DocumentError, which names place and rule. O(size of the file x ways).
    """
    graphs = parse(data, source)
    if pointers is not None:
        if [op.kind for op in graphs[0].operators] != pointers.kinds:
            raise DocumentError(
                source, graphs[0].name, "is another model: its operators are not those of the recorded pointers"
            )
        graphs = (replace(graphs[0], offsets=pointers.offsets, planned=True), *graphs[1:])
    found: dict[str, Plan] = {}
    total = 0
    try:
        for taken in ways(_choices(graphs, source)):
            plan = _Walk(graphs, taken, source, pointers).plan()
            found[plan.program.path] = plan
            total += len(plan.program.ops)
            if total > MAX_OPS:
                raise DocumentError(
                    source, graphs[0].name, f"the ways through the subgraph have more than {MAX_OPS} ops"
                )
    except ModelError as error:
        if isinstance(error, DocumentError):
            raise
        raise DocumentError(source, error.place, error.rule) from None
    if not any(graph.planned for graph in graphs):
        return Document(programs=tuple(plan.program for plan in found.values()))
    return Document.of(*found.values())


def _choices(graphs: tuple[Subgraph, ...], source: str) -> dict[Where, tuple[str, ...]]:
    """Return call path -> sides for each IF. A path names the turn of each WHILE around the IF."""
    found: dict[Where, tuple[str, ...]] = {}

    def visit(graph: int, where: Where, depth: int) -> None:
        if depth > MAX_DEPTH or len(found) > 1 << 12:
            raise DocumentError(source, f"subgraphs[{graph}]", "calls of subgraphs are too deep or too many")
        # the number of copies multiplies with nested loops
        charge("instruction", len(graphs[graph].operators) + 1)
        for at, op in enumerate(graphs[graph].operators):
            name = f"{op.kind} {at}"
            if op.kind == "if":
                found[*where, name] = SIDES
                for side, called in zip(SIDES, op.called, strict=True):
                    visit(called, (*where, name, side), depth + 1)
            elif op.kind == "while":
                for turn in range(TIMES):
                    for called in op.called:
                        visit(called, (*where, name, str(turn)), depth + 1)
            elif op.kind == "call_once":
                visit(op.called[0], (*where, name, "called"), depth + 1)

    visit(0, (), 0)
    return found


@dataclass(frozen=True, slots=True)
class _Standing:
    """The state of one call of a subgraph."""

    number: int
    now: dict[int, int]
    """Index of a tensor -> its latest value."""
    where: Where = ()
    depth: int = 0


class _Walk:
    """Translates one way through a model into ops, buffers and slots."""

    def __init__(
        self, graphs: tuple[Subgraph, ...], taken: Mapping[Where, str], source: str, pointers: Pointers | None
    ) -> None:
        self.graphs, self.taken, self.source, self.pointers = graphs, taken, source, pointers
        inner = [] if pointers is None else [Arena(name="tensors of subgraphs, each apart", alignment=1)]
        self.growing = Placing(graphs[0].name, (Arena(name="arena", alignment=1), *inner))
        self.apart: dict[tuple[int, int], int] = {}
        """(subgraph, tensor) -> the tensor's offset in the arena of tensors without a pointer."""
        self.used = 0
        """The number of used bytes in the arena of tensors without a pointer."""
        self.kept: dict[tuple[int, int], int] = {}
        """(subgraph, tensor) -> the value of a constant or variable."""
        self.said: list[str] = []
        self.call: tuple[str, ...] = ()
        self.suffix = ""

    def plan(self) -> Plan:
        """Add uploads, operators and the host's read; return the plan."""
        graph, top = self.graphs[0], _Standing(0, {})
        for index in dict.fromkeys(graph.inputs):
            top.now[index] = self.fresh(0, index, role=Role.INPUT)
            self.emit(HOST_WRITE, f"write {graph.tensors[index].name}", (), (top.now[index],))
        self.graph(top)
        self.emit(HOST_READ, "outputs", [self.read(top, index) for index in graph.outputs], ())
        program = replace(self.growing.builder.build(), path=", ".join(self.said))
        return self.growing.plan_for(program, self.pointers.source if self.pointers else "tflite offline plan")

    def graph(self, here: _Standing) -> None:
        """Add the operators of a subgraph; its inputs must have values already."""
        if here.depth > MAX_DEPTH or len(self.growing.slots) > MAX_OPS:
            raise DocumentError(self.source, f"subgraphs[{here.number}]", "calls of subgraphs are too deep or too many")
        for at, op in enumerate(self.graphs[here.number].operators):
            name = f"{op.kind} {at}"
            if op.kind == "if":
                self.choice(here, op, name)
            elif op.kind == "while":
                self.loop(here, op, name)
            elif op.kind == "call_once":
                self.inside(_Standing(op.called[0], {}, (*here.where, name, "called"), here.depth + 1), name)
            else:
                self.kernel(here, op, name)

    def kernel(self, here: _Standing, op: Operator, name: str) -> None:
        read = [self.read(here, index) for index in op.inputs if index >= 0]
        made = []
        for index in op.outputs:
            here.now[index] = self.fresh(here.number, index)
            made.append(here.now[index])
        if (
            op.kind in UNMODIFIED
            and read
            and len(made) == 1
            and self.growing.nbytes_of(read[0]) == self.growing.nbytes_of(made[0])
        ):
            self.emit(SAME, name, read[:1], made)
            return
        tensors = self.graphs[here.number].tensors
        updates = any(index >= 0 and tensors[index].variable for index in op.inputs)
        self.emit(op.kind, name, read, made, in_place=None if updates else pairs(op.kind, len(read)))

    def choice(self, here: _Standing, op: Operator, name: str) -> None:
        where = (*here.where, name)
        side = self.taken[where]
        self.said.append(f"{'/'.join(where)}={side}")
        self.emit("predicate", name, [self.read(here, index) for index in op.inputs[:1] if index >= 0], ())
        inner = _Standing(op.called[SIDES.index(side)], {}, (*where, side), here.depth + 1)
        called = self.graphs[inner.number]
        self.copy(name, (here, op.inputs[1:]), (inner, called.inputs))
        self.inside(inner, name, side)
        self.copy(name, (inner, called.outputs), (here, op.outputs))

    def loop(self, here: _Standing, op: Operator, name: str) -> None:
        around, live = self.suffix, self.pointers is not None
        condition, body = (_Standing(number, {}, here.where, here.depth + 1) for number in op.called)
        asked, answers = self.graphs[condition.number].inputs, self.graphs[condition.number].outputs
        given, made = self.graphs[body.number].inputs, self.graphs[body.number].outputs
        carried = (here, op.inputs)
        """The subgraph call and its tensors that are copied into the next turn."""
        if not live:
            self.copy(name, carried, (here, op.outputs))
            carried = (here, op.outputs)
        for turn in range(TIMES + 1):
            self.suffix = f"{around}.{turn}"
            where = (*here.where, name, str(min(turn, TIMES - 1)))
            self.copy(name, carried, (condition, asked))
            self.inside(replace(condition, where=where), name)
            self.emit("predicate", name, [self.read(condition, index) for index in answers], ())
            if turn < TIMES:
                self.copy(name, carried, (body, given))
                self.inside(replace(body, where=where), name)
                carried = (body, made) if live else carried
            if (turn < TIMES) != live:
                self.copy(name, (body, made), (here, op.outputs))
        self.suffix = around

    def inside(self, called: _Standing, *names: str) -> None:
        around = self.call
        self.call = (*around, *names)
        self.graph(called)
        self.call = around

    def copy(
        self, name: str, given: tuple[_Standing, tuple[int, ...]], into: tuple[_Standing, tuple[int, ...]]
    ) -> None:
        """Add copies of tensors, one after another, to tensors of the same or another subgraph."""
        (source, sources), (target, targets) = given, into
        if len(sources) != len(targets):
            raise DocumentError(self.source, name, f"copies {len(sources)} tensors into {len(targets)}")
        meant = [(self.read(source, index), place) for index, place in zip(sources, targets, strict=True) if index >= 0]
        for value, place in meant:
            made = self.fresh(target.number, place)
            if self.growing.nbytes_of(value) != self.growing.nbytes_of(made):
                raise DocumentError(
                    self.source, name, f"copies {self.growing.nbytes_of(value)} bytes to {self.growing.nbytes_of(made)}"
                )
            self.emit(SAME, name, (value,), (made,))
            target.now[place] = made

    def read(self, here: _Standing, index: int) -> int:
        """Return the latest value of a tensor; add a buffer if the tensor has no value yet.
        Constants and variables keep one value in all calls of a subgraph.
        """
        if index in here.now:
            return here.now[index]
        key = here.number, index
        tensor = self.graphs[here.number].tensors[index]
        if not tensor.constant and not tensor.variable:
            here.now[index] = self.fresh(*key)
            return here.now[index]
        if key not in self.kept:
            role = Role.PARAMETER if tensor.constant else Role.STATE
            self.kept[key] = self.fresh(*key, role=role, read_only=tensor.constant)
        return self.kept[key]

    def fresh(self, number: int, index: int, **columns: Any) -> int:
        """Add a buffer for a tensor in its slot; return the value in the buffer."""
        graph = self.graphs[number]
        tensor = graph.tensors[index]
        slot = APART
        if index in graph.offsets and not tensor.constant:
            slot = 0, graph.offsets[index]
        elif self.pointers is not None and number and not tensor.constant:
            if (number, index) not in self.apart:
                self.apart[number, index], self.used = self.used, self.used + tensor.nbytes
            slot = 1, self.apart[number, index]
        label = f"{tensor.name or f'tensor {index}'}{self.suffix}"
        if columns.get("role") in (Role.PARAMETER, Role.STATE):
            label = f"{label} ({number}.{index})"
        buffer = self.growing.buffer(label, tensor.nbytes, slot, alignment=1, meta={"tensor": index}, **columns)
        return self.growing.value(label, buffer, tensor.dtype, tensor.shape)

    def emit(self, kind: str, name: str, read: Any, made: Any, **op: Any) -> None:
        """Add an op, with the current calls in its `meta`."""
        meta = op_meta(self.call, name if self.suffix else None)
        self.growing.builder.op(kind, read, made, name=f"{name}{self.suffix}", meta=meta, **op)


__all__ = ["MAX_OPS", "loads", "looks_like"]
