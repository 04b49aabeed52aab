"""The belief of ggml's graph allocator (`ggml_gallocr`): its counting rules, errors included.

How a program is read (format.md, ggml.md 3)
--------------------------------------------
* A buffer's first value is its *root*, the tensor that owns memory. Every other value of the buffer
  is a *view* of the root: the result of an op of kind `view`, the result of an op that writes into
  an existing buffer (`add_inplace`, `cpy`, `opt_step`), or a value that no op makes (an op-NONE
  view).
* Nodes are all ops but `host.write` and `host.read`. A host's read is no reader. What it writes are
  *leafs*, unless the value's `meta.flags` has PARAM: that is an op-NONE node, which stands before
  the first op whose result is listed after it. A root that nothing makes is a leaf.
* A node's sources are its operands by position, or `meta.src` where that is given (values in slot
  order); an op that carries `meta.src` was captured from ggml, where a node is one tensor: its
  first result. Further results are side effects of the kernel, not views.
* `own` buffers were allocated elsewhere: never placed, never freed, never taken. Pinned buffers
  have OUTPUT.

The counting
------------
C.  n_children counts readers slot by slot (`mul(x, x)` counts two), n_views the views that an op makes. A value that no op makes adds
    nothing to n_views though its last reader takes one off: ggml's undercount, kept. INPUT values
    are placed here, after the leafs, in bytes of their own (the original would try to run a
    computed INPUT node in place, by half-made counts; nobody flags one).
D.  Node by node: sources that have no place yet, then the node, then each source gives back its count. A source whose counts are
    both zero is freed, after the node was placed; a view gives back one n_views of its root, which
    is freed when both its counts are zero. A value that is never read is never freed, nor is the
    root of a view that is never read.
In place: a node whose kind is listed may take the place of a source that is the root of its own
buffer, placed, not pinned, of the
    same dtype and layout, with n_children 1 and n_views 0; sources are offered in slot order. A
    view is never taken. Of a kind that ggml does not have (`KINDS`), its list says nothing: there
    the pairs that the op declares stand for it, under the same conditions.

The problem
-----------
`start` is the step at which ggml places a buffer: a leaf at its upload where that comes before all
nodes, else 0 as everything that is placed before the first node. `stop` is one after the step of
the op that frees it, the end of the program if none does. `order` is the order of placing;
`may_share` the eligible (donor, recipient) pairs, by slot. Beyond ggml, which has no such notions:
persistent buffers that are not `own` live throughout and are never taken; an upload into part of a
buffer counts as a view of it; a buffer that nothing touches is not placed, its lifetime is
`[0, 0)`.

O(operands + results) in plain lists. Source: ggml `src/ggml-alloc.c`, 675a08cf to d99724f2; its
kinds and its list: `ggml_kinds`.
"""

from collections.abc import Collection
from itertools import pairwise
from typing import Any, Final

import numpy as np

from allocsim.allocators.constraints import Constraints
from allocsim.allocators.ggml_kinds import IN_PLACE, KINDS
from allocsim.errors import ModelError
from allocsim.model import HOST_READ, HOST_WRITE, Problem, Program

INPUT: Final = 1
OUTPUT: Final = 2
PARAM: Final = 4


def believe(program: Program, constraints: Constraints, *, in_place: Collection[str] = IN_PLACE) -> Problem:
    """Return what ggml believes of `program`.

    `in_place` is the list of its kinds (lower case) it may run in place.

    Raises ModelError where an op's `meta.src` names a value that does not exist.
    """
    counting = _Counting(program, constraints, in_place)
    counting.place_leafs()
    counting.count()
    counting.place_inputs()
    for step in counting.nodes:
        counting.visit(step)
    counting.place_rest()
    return counting.problem()


class _Counting:
    """The counters of one planning pass: `children` by value, the rest by buffer."""

    def __init__(self, program: Program, constraints: Constraints, in_place: Collection[str]) -> None:
        ops, values, count = program.ops, program.values, len(program.buffers)
        self.program, self.constraints, self.steps = program, constraints, len(ops)
        self.sources, self.results, self.captured = _edges(program)
        self.buffer: list[int] = values.buffer.tolist()
        kind = ops.kind.tolist()
        hosts = [name in {HOST_WRITE, HOST_READ} for name in ops.kinds]
        listed = [name.lower() in in_place for name in ops.kinds]
        foreign = [name.lower() not in KINDS and name.lower() not in in_place for name in ops.kinds]
        declares = np.array(foreign, dtype=np.bool_)[ops.kind] & (np.diff(ops.in_place_starts) > 0)
        self.nodes = [step for step in range(self.steps) if not hosts[kind[step]]]
        self.listed = [listed[code] for code in kind]
        self.declaring = set(np.flatnonzero(declares).tolist())
        """Steps of a kind that ggml does not have, with pairs declared."""
        self.root = [-1] * count
        for value in range(len(values) - 1, -1, -1):
            self.root[self.buffer[value]] = value
        self.flags = {value: flags for value, meta in values.meta.items() if type(flags := meta.get("flags")) is int}
        self.own: list[bool] = constraints.own.tolist()
        self.pinned: list[bool] = constraints.pinned.tolist()
        self.held: list[bool] = program.buffers.persistent.tolist()
        self.arena: list[int] = program.buffers.arena.tolist()
        self.nbytes: list[int] = program.buffers.nbytes.tolist()
        self.layout = _Layouts(program)
        self.children = [0] * len(values)
        self.views = [0] * count
        self.placed = list(self.own)
        self.live = [False] * count
        self.start = [0] * count
        self.stop = [-1] * count
        """One after the step that frees it, -1 while none has."""
        self.end = self.steps
        """The `stop` of what is never freed: the end of the program, one more for a node that is
        placed at its end.
        """
        self.order: list[int] = []
        self.pairs: list[tuple[int, int]] = []
        self.late: list[int] = []
        """Roots that are op-NONE nodes, the last first."""

    def place(self, buffer: int, step: int) -> None:
        """Put `buffer` next in the order, born at `step`, unless it is there already or lies
        elsewhere.
        """
        if not self.placed[buffer]:
            self.placed[buffer] = self.live[buffer] = True
            self.start[buffer] = 0 if self.held[buffer] else step
            self.order.append(buffer)

    def place_leafs(self) -> None:
        """Step B: place what is uploaded or made by nobody, in the order of the values.

        Set PARAM values aside as nodes.
        """
        ops, made_by = self.program.ops, self.program.producer.tolist()
        before = self.nodes[0] if self.nodes else self.steps
        uploads = ops.is_kind(HOST_WRITE).tolist()
        uploaded: dict[int, int] = {}
        for step in range(self.steps - 1, -1, -1):
            if uploads[step]:
                uploaded.update(dict.fromkeys((self.buffer[result] for result in self.results[step]), step))
        touched = {self.buffer[value] for edges in (self.sources, self.results) for values in edges for value in values}
        for buffer in sorted(touched, key=self.root.__getitem__):
            root = self.root[buffer]
            if buffer not in uploaded and made_by[root] >= 0:
                continue
            if self.flags.get(root, 0) & PARAM:
                self.late.append(root)
                continue
            step = uploaded.get(buffer, 0)
            self.place(buffer, step if step < before else 0)
        self.late.reverse()

    def count(self) -> None:
        """Step C: count readers slot by slot, and the views that an op makes."""
        for step, results in enumerate(self.results):
            for result in results[:1] if step in self.captured else results:
                buffer = self.buffer[result]
                if self.root[buffer] != result:
                    self.views[buffer] += 1
        for step in self.nodes:
            for source in self.sources[step]:
                self.children[source] += 1

    def place_inputs(self) -> None:
        """Step C: place what has INPUT before the first node, in the order of the nodes and their
        sources.
        """
        if not any(flags & INPUT for flags in self.flags.values()):
            return
        late = list(self.late)
        values: list[int] = []
        for step in self.nodes:
            values += (*_before(late, self.results[step]), *self.results[step], *self.sources[step])
        for value in (*values, *reversed(late)):
            buffer = self.buffer[value]
            if self.flags.get(value, 0) & INPUT and self.root[buffer] == value:
                self.place(buffer, 0)

    def visit(self, step: int) -> None:
        """Step D for one node: its place, then the counts of its sources."""
        sources, results = self.sources[step], self.results[step]
        for value in _before(self.late, results):
            self.place(self.buffer[value], step)
        for source in sources:
            self.place(self.buffer[source], step)
        for result in results:
            buffer = self.buffer[result]
            if self.placed[buffer]:
                continue
            self.place(buffer, step)
            if self.root[buffer] == result and not self.held[buffer]:
                self.offer(step, result)
        for source in sources:
            self.children[source] -= 1
            buffer = self.buffer[source]
            root = self.root[buffer]
            if self.children[source]:
                continue
            if source != root:
                self.views[buffer] -= 1
            if self.views[buffer] == 0 and self.children[root] == 0:
                self.free(buffer, step)

    def place_rest(self) -> None:
        """Step D for op-NONE nodes that no other node follows: nobody frees them, and what the last
        node freed is free.
        """
        after = self.nodes[-1] + 1 if self.nodes else 0
        while self.late:
            buffer = self.buffer[self.late.pop()]
            if not self.placed[buffer]:
                self.place(buffer, after)
                self.end = max(self.end, after + 1)

    def offer(self, step: int, result: int) -> None:
        """Offer every source that ggml would let `result` take.

        It takes the first, which is then no longer there.
        """
        buffer = self.buffer[result]
        if sum(self.buffer[other] == buffer for other in self.results[step]) > 1:
            return
        taken = False
        for source in self.permitted(step, result):
            donor = self.buffer[source]
            if (
                self.root[donor] != source
                or not self.live[donor]
                or self.pinned[donor]
                or self.held[donor]
                or donor == buffer
            ):
                continue
            if self.children[source] != 1 or self.views[donor] or self.layout[source] != self.layout[result]:
                continue
            if self.arena[donor] != self.arena[buffer] or self.nbytes[donor] < self.nbytes[buffer]:
                continue
            self.pairs.append((donor, buffer))
            if not taken:
                self.free(donor, step)
                taken = True

    def permitted(self, step: int, result: int) -> list[int]:
        """Return, in slot order, the sources that the kernel bears `result` over: all of a listed
        kind, those declared of one not ggml's.
        """
        if self.listed[step]:
            return self.sources[step]
        if step not in self.declaring:
            return []
        op, position = self.program.ops[step], self.results[step].index(result)
        declared = {operand for operand, over in op.in_place or () if over == position}
        kept = {value for operand, value in enumerate(op.operands) if operand not in declared}
        return [source for source in self.sources[step] if source in op.operands and source not in kept]

    def free(self, buffer: int, step: int) -> None:
        """End the life of `buffer` after `step`, if it is there to be freed."""
        if self.live[buffer] and not self.pinned[buffer] and not self.held[buffer]:
            self.live[buffer] = False
            self.stop[buffer] = step + 1

    def problem(self) -> Problem:
        """Return what was counted.

        Buffers that lie elsewhere and buffers without a place come last in the order.
        """
        for buffer, placed in enumerate(self.placed):
            if not placed:
                self.stop[buffer] = 0
            if not placed or self.own[buffer]:
                self.order.append(buffer)
        told = self.constraints
        return Problem.of(
            self.program,
            start=self.start,
            stop=[self.end if stop < 0 else stop for stop in self.stop],
            pinned=told.pinned,
            own=told.own,
            fixed=told.fixed,
            order=self.order,
            may_share=self.pairs,
        )


class _Layouts(dict[int, tuple[Any, ...]]):
    """Value -> what two values of one layout have in common: dtype, shape, strides, offset in the
    buffer.

    Strides of dimensions of length 1 count, as in ggml: the copy of a view has the view's.
    """

    def __init__(self, program: Program) -> None:
        super().__init__()
        values = program.values
        self.columns = values.dtype.tolist(), values.offset.tolist()
        self.dims: tuple[list[int], ...] = values.dim_starts.tolist(), values.shape.tolist(), values.strides.tolist()

    def __missing__(self, value: int) -> tuple[Any, ...]:
        starts, shape, strides = self.dims
        dims = slice(starts[value], starts[value + 1])
        self[value] = tuple(column[value] for column in self.columns), tuple(shape[dims]), tuple(strides[dims])
        return self[value]


def _edges(program: Program) -> tuple[list[list[int]], list[list[int]], set[int]]:
    """Return sources and results of each op, and the ops whose sources came from `meta.src`."""
    ops, count = program.ops, len(program.values)
    operands, results = ops.operands.tolist(), ops.results.tolist()
    operand_starts, result_starts = ops.operand_starts.tolist(), ops.result_starts.tolist()
    sources = [operands[a:b] for a, b in pairwise(operand_starts)]
    captured = set()
    for step, meta in ops.meta.items():
        slots = meta.get("src")
        if not isinstance(slots, list | tuple) or any(type(value) is not int for value in slots):
            continue
        for position, value in enumerate(slots):
            if not 0 <= value < count:
                raise ModelError(
                    f"ops[{step}].meta.src[{position}]", f"value {value} does not exist; there are {count}"
                )
        sources[step] = list(slots)
        captured.add(step)
    return sources, [results[a:b] for a, b in pairwise(result_starts)], captured


def _before(late: list[int], results: list[int]) -> list[int]:
    """Take from `late` (the last first) the values listed before the first of `results`."""
    taken = []
    while late and results and late[-1] < results[0]:
        taken.append(late.pop())
    return taken
