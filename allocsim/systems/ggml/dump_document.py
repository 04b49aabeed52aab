"""Import a dumped ggml graph, with the addresses that its allocator chose, as a document. The rows
of the dump are read by `allocsim.systems.ggml.ggml_dump`.

Time: ggml has no live ranges. The nodes of a ggml graph run in list order and are the steps of the
program. Before the nodes there is one `host.write` for each tensor that the host writes. After the
nodes there is one `host.read` for each tensor that is flagged OUTPUT or named in `meta.reads`.
Dimensions are reversed, because `ne` and `nb` have the fastest first. All four dimensions are kept,
so that layouts are compared as in ggml.

Buffers and values
    A root tensor is a buffer and its first value. Each other tensor is a value in its root's buffer.
    Values are in the order of the graph, leafs first, but a leaf that is a view of a node comes after
    the nodes. Flags are in the value's `meta`. External leafs and parameters have the role `parameter`
    and are `own`; they are read-only unless a node writes them. Other external tensors are temporary
    and `own`. A tensor that the host writes has the role `input`.
Ops
    VIEW, RESHAPE, PERMUTE and TRANSPOSE become `view`, and SPLIT_COPY becomes `same`. A view with op
    NONE gets no op, because ggml does not count it. If such a NONE view is a node with sources, an
    op `none` has these sources in `meta.src`, because ggml counts them. A node that ggml left out of
    recorded runs becomes an op `none` too. Any other node is an op with its own name in lower case.
    The operands are the tensors that its kernel reads, so the destination of CPY is no operand. If
    an operand's bytes were overwritten after the operand was made (accumulators, copied roots), the
    op reads the value that is there now: the last written value if its layout is equal, else a
    value that no op makes. `meta.src` has the sources as ggml counts them if they differ from
    the operands. `meta.slots` has the source slot of each operand if it differs from its position
    (`allocsim.programs.slots`): a source was left out or is not read, or an operand is no source. Two
    kinds of results are placed over operands: the momenta that OPT_STEP_ADAMW writes, and the result
    of SET_ROWS, which keeps the rows that the op does not write.
Declared in place
    An op of `meta.inplace_ops` may write over each source of the same type and layout. A result in an
    existing buffer may be written over an operand with exactly the same bytes.
Problem and plan
    The problem comes from `allocsim.allocators.ggml_belief`, with the constraints of the dumped
    planner. OUTPUT roots are pinned, and external buffers are `own`. A flag on a view alone pins
    nothing, as in ggml. The plan has the dump's addresses; each compute buffer is an arena.

A quantised type becomes opaque bytes (`u8`), with the fastest dimension in bytes. The conventions
come from `ggml.h`, `ggml-alloc.c` and `ggml-opt.cpp`.
"""

import re
from typing import Final

import numpy as np

from allocsim.allocators import ggml_belief, ggml_kinds
from allocsim.allocators.constraints import Constraints
from allocsim.allowances import metered
from allocsim.errors import DocumentError, ModelError
from allocsim.model import (
    DTYPE_CODES,
    HOST_READ,
    HOST_WRITE,
    OWN,
    UNPLACED,
    VIEW,
    Arena,
    Document,
    Plan,
    Program,
    Role,
)
from allocsim.model.layout import LIMIT, same_layout
from allocsim.programs.builder import ProgramBuilder
from allocsim.programs.slots import SLOTS
from allocsim.systems.ggml.ggml_dump import NONE, ROOTS_KEPT, SPLIT_COPY, DumpedGraph, Four, Meta, parse

NOT_READ: Final = {"CPY": (1,)}
"""Op -> source slots that ggml counts as sources, but the op's kernel does not read."""

SIDE_EFFECTS: Final = {"OPT_STEP_ADAMW": (2, 3)}
"""Op -> source slots of tensors that the op's kernel writes besides the result."""

KEEPS_DESTINATION: Final = frozenset({"SET_ROWS"})
"""Ops that write only a part of their result, chosen by data, and leave the rest as it was."""

Layout = tuple[str, tuple[int, ...], tuple[int, ...], int]
"""The dtype, shape, strides and offset of a value."""


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` may be a dump: a JSON object with a list of
    leafs or nodes.
    """
    return head.lstrip()[:1] == b"{" and re.search(rb'"(leafs|nodes)"\s*:\s*\[', head) is not None


@metered
def loads(data: bytes, source: str = "dump") -> Document:
    """Return the program, the problem and the plan of a dump, in O(size of the dump).

    Raises DocumentError, with the place and the broken rule, if the data is no dump.
    """
    graph, meta = parse(data, source)
    try:
        program = _Import(graph).program()
        plan = _plan(graph, program)
        return Document(
            programs=(program,), problems=(plan.problem,) if plan.problem else (), plans=(plan,), meta={"ggml": meta}
        )
    except DocumentError:
        raise
    except ModelError as error:
        raise DocumentError(source, f"as a program: {error.place}", error.rule) from None


def _plan(graph: DumpedGraph, program: Program) -> Plan:
    """Return the plan with the dump's addresses, and with the problem of ggml's planner."""
    roots = [index for index in range(len(graph.tensors)) if not graph.is_view(index)]
    tensors = [graph.tensors[index] for index in roots]
    told = Constraints.of(
        program,
        pins=np.array([bool(tensor.flags & ggml_belief.OUTPUT) for tensor in tensors], dtype=np.bool_),
        own=np.array([tensor.external for tensor in tensors], dtype=np.bool_),
    )
    listed = graph.dump.meta.inplace_ops
    kinds = ggml_kinds.IN_PLACE if listed is None else {name.lower() for name in listed}
    arena = np.array([OWN if t.external else UNPLACED if t.off is None else t.buffer for t in tensors], dtype=np.int32)
    return Plan(
        program=program,
        problem=ggml_belief.believe(program, told, in_place=kinds),
        source=f"ggml {graph.dump.meta.version}".strip(),
        arena=arena,
        offset=np.array([t.off or 0 for t in tensors], dtype=np.int64) * (arena >= 0),
        nbytes=np.array([t.nbytes for t in tensors], dtype=np.int64) * (arena >= 0),
        meta={"buffer_size": graph.dump.meta.buffer_size},
    )


class _Import:
    """The state while the nodes are walked: the program so far, and the values that are in each
    buffer at the current node.
    """

    def __init__(self, graph: DumpedGraph) -> None:
        meta = graph.dump.meta
        self.graph = graph
        streams = ("main",) if meta.reads_wait else ("main", "host")
        self.builder = ProgramBuilder("graph", arenas=_arenas(meta), streams=streams)
        self.listed = ggml_kinds.IN_PLACE if meta.inplace_ops is None else {name.lower() for name in meta.inplace_ops}
        self.value: dict[int, int] = {}
        """Tensor -> its value."""
        self.layout: list[Layout] = []
        """The layout of each value."""
        self.fixed: set[int] = set()
        """Values that a `view` op makes or no op makes: a read finds the bytes that are there now.
        """
        self.left_out = graph.left_out() if meta.runs_again else frozenset()
        """Nodes that the executor did not run, if runs were recorded. Without recorded runs all
        nodes are judged as if they ran.
        """
        self.carried: set[int] = set()
        """Values of leafs that the graph writes, if further runs follow."""
        self.buffer: dict[int, int] = {}
        """Root -> its buffer."""
        self.written: dict[int, list[int]] = {}
        """Root -> the values written into its buffer so far, without the root's own value."""
        self.made: dict[int, int] = {}
        """Value -> the number of values that had been written into its buffer when it was made."""
        self.alias: dict[tuple[int, Layout], int] = {}

    def program(self) -> Program:
        """Return the program, made in one walk of the graph: buffers, values, uploads, nodes,
        reads.
        """
        graph = self.graph
        everything = range(len(graph.tensors))
        mutated = {graph.root[i] for i in everything if graph.is_view(i) and self._acts(i)}
        mutated |= {graph.root[graph.src[i][slot]] for i in everything for slot in self._side_effects(i)}
        self._add_buffers(mutated)
        behind = [i for i in range(graph.leafs) if graph.root[i] >= graph.leafs]
        for index in (*(i for i in everything if i not in set(behind)), *behind):
            self._add_value(index)
        if graph.dump.meta.runs_again:
            self.carried = {self.value[root] for root in mutated if graph.tensors[root].op == NONE}
        for index in everything:
            tensor = graph.tensors[index]
            if tensor.op == NONE and not graph.is_view(index) and not tensor.external:
                self.builder.op(HOST_WRITE, (), (self.value[index],), name=f"write {tensor.name}")
        for index in range(graph.leafs, len(graph.tensors)):
            self._add_op(index)
        self._add_reads()
        return self.builder.build()

    def _add_reads(self) -> None:
        """Add the host's reads, on a stream of their own if the host does not wait for the run."""
        graph = self.graph
        flagged = range(len(graph.tensors)) if graph.dump.meta.reads_flagged else ()
        shown = [index for index in flagged if graph.tensors[index].flags & ggml_belief.OUTPUT]
        values = {self._current(index): graph.tensors[index].name for index in shown}
        for root, start, stop in graph.reads():
            tensor, whole = graph.tensors[root], (start, stop) == (0, graph.tensors[root].nbytes)
            value = self._current(root) if whole else self._alias(root, ("u8", (stop - start,), (1,), start))
            values.setdefault(value, tensor.name if whole else f"{tensor.name} [{start}, {stop})")
        stream = 0 if graph.dump.meta.reads_wait else 1
        for value, name in values.items():
            self.builder.op(HOST_READ, (value,), (), name=f"read {name}", stream=stream)

    def _acts(self, index: int) -> bool:
        """Return whether a tensor is the result of a kernel."""
        op = self.graph.tensors[index].op
        return op != NONE and op not in ROOTS_KEPT

    def _side_effects(self, index: int) -> tuple[int, ...]:
        """Return the positions, among a node's sources, of the sources that its op writes."""
        written = SIDE_EFFECTS.get(self.graph.tensors[index].op, ())
        return tuple(place for place, slot in enumerate(self.graph.slots[index]) if slot in written)

    def _add_buffers(self, mutated: set[int]) -> None:
        names: set[str] = set()
        for index, tensor in enumerate(self.graph.tensors):
            if self.graph.is_view(index):
                continue
            given = tensor.op == NONE
            role = Role.TEMPORARY if not given else Role.PARAMETER if tensor.external else Role.INPUT
            name = tensor.name
            if role is Role.PARAMETER and name in names:
                name = f"{name} ({self.graph.place(index)})"
            names.add(name)
            read_only = role is Role.PARAMETER and index not in mutated
            self.buffer[index] = self.builder.buffer(
                name, tensor.nbytes, role=role, read_only=read_only, arena=tensor.buffer
            )

    def _add_value(self, index: int) -> None:
        tensor, root = self.graph.tensors[index], self.graph.root[index]
        dtype, shape, strides = layout_of(tensor.type, tensor.ne, tensor.nb)
        meta = {"flags": tensor.flags} if tensor.flags else None
        offset = tensor.view_offs if self.graph.is_view(index) else 0
        self.value[index] = self._new_value(tensor.name, root, (dtype, shape, strides, offset), meta)
        if not self._acts(index) and (self.graph.is_view(index) or tensor.external):
            self.fixed.add(self.value[index])

    def _new_value(self, name: str, root: int, layout: Layout, meta: dict[str, int] | None = None) -> int:
        dtype, shape, strides, offset = layout
        self.layout.append(layout)
        return self.builder.value(name, self.buffer[root], dtype, shape, strides=strides, offset=offset, meta=meta)

    def _current(self, index: int) -> int:
        """Return the value through which an op at the current node reads the bytes of a tensor."""
        value = self.value[index]
        return value if value in self.fixed else self._lying(self.graph.root[index], value)

    def _lying(self, root: int, value: int) -> int:
        """Return `value`. If its bytes were overwritten since it was made, or a run before may have
        written them, return a value of equal layout for the bytes that are there now.
        """
        written = self.written.get(root, [])
        if len(written) == self.made.get(value, 0):
            return self._alias(root, self.layout[value]) if value in self.carried else value
        layout = self.layout[value]
        return written[-1] if self.layout[written[-1]] == layout else self._alias(root, layout)

    def _alias(self, root: int, layout: Layout) -> int:
        """Return a value of this layout that no op makes: a read finds the bytes there now."""
        if (root, layout) not in self.alias:
            self.alias[root, layout] = self._new_value(f"{self.graph.tensors[root].name} now", root, layout)
        return self.alias[root, layout]

    def _write(self, root: int, value: int) -> None:
        self.written.setdefault(root, []).append(value)
        self.made[value] = len(self.written[root])

    def _add_op(self, index: int) -> None:
        tensor, sources = self.graph.tensors[index], self.graph.src[index]
        counted = [self.value[source] for source in sources]
        if tensor.op in ROOTS_KEPT:
            self._add_view(index)
        elif tensor.op == SPLIT_COPY:
            self._add_copy(index)
        elif tensor.op != NONE and index not in self.left_out:
            self._add_kernel(index)
        elif sources:
            self.builder.op("none", (), (), name=tensor.name, meta={"src": counted})

    def _add_view(self, index: int) -> None:
        sources, root = self.graph.src[index], self.graph.root[index]
        if len(sources) != 1 or self.graph.root[sources[0]] != root or not self.graph.is_view(index):
            raise self.graph.refuse(index, "src", "a view has one source, which has the same root")
        self.builder.op(VIEW, (self.value[sources[0]],), (self.value[index],), name=self.graph.tensors[index].name)

    def _add_copy(self, index: int) -> None:
        source, name = self.graph.src[index][0], self.graph.tensors[index].name
        early = source >= self.graph.leafs and source >= index
        root = self.graph.root[source]
        operand = self._alias(root, self.layout[self.value[source]]) if early else self._current(source)
        self.builder.same([operand], [self.value[index]], name=name, meta={"src": [self.value[source]]})

    def _add_kernel(self, index: int) -> None:
        tensor, sources, root = self.graph.tensors[index], self.graph.src[index], self.graph.root[index]
        result = self.value[index]
        unread = NOT_READ.get(tensor.op, ())
        read = [
            (slot, source) for slot, source in zip(self.graph.slots[index], sources, strict=True) if slot not in unread
        ]
        slots = [slot for slot, _ in read]
        operands = [self._current(source) for _, source in read]
        pairs = {
            (place, 0) for place, (_, source) in enumerate(read) if self._may_share(index, source, operands[place])
        }
        if tensor.op in KEEPS_DESTINATION and self.graph.is_view(index) and not pairs:
            pairs.add((len(operands), 0))
            operands.append(self._destination(root, result))
        results = [result]
        for place in self._side_effects(index):
            source = sources[place]
            beside = self._new_value(
                f"{self.graph.tensors[source].name} after", self.graph.root[source], self.layout[operands[place]]
            )
            pairs.add((place, len(results)))
            results.append(beside)
            self._write(self.graph.root[source], beside)
        counted = [self.value[source] for source in sources]
        meta = {"src": counted} if counted != operands or len(results) > 1 else {}
        meta |= {SLOTS: slots} if slots != list(range(len(operands))) else {}
        self.builder.op(
            tensor.op.lower(), operands, results, name=tensor.name, in_place=sorted(pairs), meta=meta or None
        )
        if self.graph.is_view(index):
            self._write(root, result)

    def _may_share(self, index: int, source: int, operand: int) -> bool:
        """Return whether ggml declares that the op's result may be written over this source."""
        tensor, other = self.graph.tensors[index], self.graph.tensors[source]
        if self.graph.is_view(index) and self.graph.root[source] == self.graph.root[index]:
            return _same_bytes(self.layout[operand], self.layout[self.value[index]])
        return tensor.op.lower() in self.listed and (tensor.type, tensor.ne, tensor.nb) == (
            other.type,
            other.ne,
            other.nb,
        )

    def _destination(self, root: int, result: int) -> int:
        """Return the value through which the bytes under `result` are read before it is written."""
        written = self.written.get(root, [])
        if written and self.layout[written[-1]] == self.layout[result]:
            return written[-1]
        if not written and self.layout[self.value[root]] == self.layout[result]:
            return self.value[root]
        return self._alias(root, self.layout[result])


def _arenas(meta: Meta) -> tuple[Arena, ...]:
    """Return an arena per compute buffer. If buffers have equal names, a number is appended."""
    names = [buffer.name for buffer in meta.buffers]
    several = tuple(
        Arena(name=name if names.count(name) == 1 else f"{name} {number}", alignment=buffer.alignment)
        for number, (name, buffer) in enumerate(zip(names, meta.buffers, strict=True))
    )
    return several or (Arena(name="compute", alignment=meta.alignment),)


def _same_bytes(one: Layout, other: Layout) -> bool:
    """Return whether two layouts in one buffer have the same bytes for each element. The stride of
    a dimension of length 1 has no effect.
    """
    (dtype, shape, strides, offset), (other_dtype, other_shape, other_strides, other_offset) = one, other
    return (dtype, offset) == (other_dtype, other_offset) and same_layout(
        (shape, strides, 1), (other_shape, other_strides, 1)
    )


def layout_of(kind: str, ne: Four, nb: Four) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Return dtype, shape and strides, row-major; a type unknown to the model becomes bytes."""
    if kind in DTYPE_CODES:
        return kind, ne[::-1], nb[::-1]
    row = min(ne[0] * nb[0] // _block(kind), LIMIT)
    return "u8", (*ne[:0:-1], row), (*nb[:0:-1], 1)


def _block(name: str) -> int:
    """Return the number of elements in a block of a quantised type: 256 for names `*_K`, and for
    names `IQ*` and `TQ*` without `NL`. All other quantised types have 32.
    """
    return 256 if name.lower().endswith("_k") or (name.lower()[:2] in {"iq", "tq"} and "nl" not in name.lower()) else 32
