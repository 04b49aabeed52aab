"""Small programs, plans, problems, sessions and documents for laws; sound ones and faulty ones, made without any planner of ours.

A program is a list of *recipes*, (action, i, j, k) with small numbers, carried out one after the other by a `Sketch`; numbers
choose by remainder, so every list of recipes is a program: nothing is filtered, and a failing list shrinks by dropping recipes.
A sketch knows who wrote each byte, and as long as no recipe of `DEFECTS` is carried out the program has no defect of its own:
what it reads is initialised and current, and what it writes within one buffer obeys the in-place rule.

A sound plan is made by first fit over lifetimes found by brute force, laying a result exactly over an operand wherever
format.md permits the pair; a faulty one is a sound one with `FAULTS` planted. Buffers are at most a few dozen bytes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st
from oracle import accesses, live_steps, permissible, persistent

from allocsim.builder import ProgramBuilder
from allocsim.layout import contiguous_strides
from allocsim.model import HOST_READ, HOST_WRITE, OWN, UNPLACED, VIEW, Arena, Document, Event, Plan, Problem, Program, Role, Run

Strategy = st.SearchStrategy
Recipe = tuple[str, int, int, int]
Fault = tuple[str, int, int]

DTYPES = (("f32", 4), ("u8", 1), ("f16", 2))
SHAPES: tuple[tuple[int, ...], ...] = ((2,), (2, 2), (), (3,), (4,), (1, 2), (2, 3), (0,), (2, 0))
ALIGNMENTS = (None, 4, 1, 16)
PERSISTENT = (("w", Role.PARAMETER, 8), ("s", Role.STATE, 8), ("v", Role.STATE, 16))


@dataclass(frozen=True, kw_only=True)
class Row:
    """A value as the sketch remembers it."""

    index: int
    buffer: int
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    made: bool
    """Whether an op other than `view` produced it."""
    places: frozenset[int]
    """Bytes of the buffer it touches, outside ones left out."""

    def layout(self) -> dict[str, Any]:
        """Return what a value of equal layout is built from."""
        return {"dtype": self.dtype, "shape": self.shape, "strides": self.strides, "offset": self.offset}

    def lies_as(self, other: "Row") -> bool:
        """Return whether the other value has an equal layout, whatever its place."""
        mine, theirs = (
            (r.shape, r.itemsize, [s for s, n in zip(r.strides, r.shape, strict=True) if n > 1]) for r in (self, other)
        )
        return mine == theirs


@dataclass(kw_only=True)
class Sketch:
    """A program under construction, with who wrote each byte of it last."""

    builder: ProgramBuilder
    arenas: int = 1
    streams: int = 1
    rows: list[Row] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    writer: dict[tuple[int, int], int] = field(default_factory=dict)
    """(buffer, byte) -> value that wrote it last, -1 for content."""
    names: dict[str, int] = field(default_factory=dict)
    """Persistent buffers by name."""
    kinds: list[str] = field(default_factory=list)

    def buffer(self, nbytes: int, choice: int = 0, *, name: str | None = None, **keywords: Any) -> int:
        """Add a buffer; `choice` picks its arena and alignment."""
        keywords.setdefault("alignment", ALIGNMENTS[choice % len(ALIGNMENTS)])
        self.sizes.append(nbytes)
        return self.builder.buffer(name or f"b{len(self.sizes) - 1}", nbytes, arena=choice % self.arenas, **keywords)

    def value(
        self,
        buffer: int,
        dtype: str,
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
        *,
        offset: int = 0,
        made: bool = True,
    ) -> Row:
        """Add a value; the caller adds the op that makes it."""
        itemsize = dict(DTYPES)[dtype]
        steps = tuple(strides) if strides is not None else contiguous_strides(tuple(shape), itemsize)
        elements = (
            offset + sum(i * s for i, s in zip(index, steps, strict=True)) for index in product(*(range(n) for n in shape))
        )
        row = Row(
            index=self.builder.value(f"v{len(self.rows)}", buffer, dtype, shape, strides=steps, offset=offset),
            buffer=buffer,
            dtype=dtype,
            itemsize=itemsize,
            shape=tuple(shape),
            strides=steps,
            offset=offset,
            made=made,
            places=frozenset(
                byte for start in elements for byte in range(start, start + itemsize) if 0 <= byte < self.sizes[buffer]
            ),
        )
        self.rows.append(row)
        return row

    def fresh(self, choice: int, dtype: str, shape: Sequence[int], **buffer: Any) -> Row:
        """Add a contiguous value in a new buffer that fits it."""
        nbytes = dict(DTYPES)[dtype]
        for length in shape:
            nbytes *= length
        return self.value(self.buffer(nbytes, choice, **buffer), dtype, shape)

    def op(
        self,
        kind: str,
        operands: Sequence[Row],
        results: Sequence[Row],
        in_place: Iterable[tuple[int, int]] | None = (),
        choice: int = 0,
    ) -> None:
        """Add an op and write its results."""
        stream = choice % self.streams
        after = range(max(len(self.kinds) - 1, 0), len(self.kinds)) if choice % 3 and self.streams > 1 else ()
        self.builder.op(
            kind, [r.index for r in operands], [r.index for r in results], in_place=in_place, stream=stream, after=after
        )
        self.kinds.append(kind)
        if kind != VIEW:
            self.writer.update({(row.buffer, byte): row.index for row in results for byte in row.places})

    def current(self) -> list[Row]:
        """Return the values that can be read without a defect, newest first."""
        return [
            row
            for row in reversed(self.rows)
            if all(
                (row.buffer, byte) in self.writer and (not row.made or self.writer[row.buffer, byte] == row.index)
                for byte in row.places
            )
        ]

    def pick(self, *choices: int) -> list[Row]:
        """Return current values, 0 being the newest; makes an input where there is none."""
        readable = self.current()
        if not readable:
            upload(self, 0, 0, 0)
            readable = self.current()
        return [readable[choice % len(readable)] for choice in choices]


def clear_of(results: Sequence[Row], operands: Iterable[Row]) -> list[Row]:
    """Return the operands that share no byte with the results or coincide with them exactly."""
    return [
        operand
        for operand in operands
        if all(
            operand.buffer != result.buffer
            or not operand.places & result.places
            or (operand.offset == result.offset and operand.lies_as(result))
            for result in results
        )
    ]


def equal_pairs(operands: Sequence[Row], results: Sequence[Row]) -> list[tuple[int, int]]:
    """Return every (operand position, result position) of equal layout."""
    return [(o, r) for o, operand in enumerate(operands) for r, result in enumerate(results) if operand.lies_as(result)]


# --- recipes without defects ----------------------------------------------------------------------------------------------


def upload(sketch: Sketch, i: int, j: int, k: int) -> None:
    """The host writes an input."""
    dtype, _ = DTYPES[i % len(DTYPES)]
    sketch.op(HOST_WRITE, (), (sketch.fresh(k, dtype, SHAPES[j % len(SHAPES)], role=Role.INPUT),), choice=k)


def persist(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A parameter or state appears, or another value in one that is there."""
    name, role, nbytes = PERSISTENT[i % len(PERSISTENT)]
    if name not in sketch.names:
        sketch.names[name] = sketch.buffer(nbytes, 0, name=name, alignment=4, role=role)
        sketch.writer.update({(sketch.names[name], byte): -1 for byte in range(nbytes)})
    dtype, itemsize = DTYPES[j % len(DTYPES)]
    sketch.value(sketch.names[name], dtype, (4 // itemsize,), offset=k % 2 * 4, made=False)


def compute(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A result in a new buffer, equal in layout to the first operand; pairs declared as `k` says."""
    operands = sketch.pick(i) if k % 2 == 0 else sketch.pick(i, j)
    result = sketch.fresh(j, operands[0].dtype, operands[0].shape)
    sketch.op("compute", operands, (result,), in_place_of(operands, (result,), k), choice=k)


def in_place_of(operands: Sequence[Row], results: Sequence[Row], k: int) -> list[tuple[int, int]] | None:
    """Return a declaration: all pairs of equal layout, the first, none, or nobody knows."""
    pairs = equal_pairs(operands, results)
    return (pairs, pairs, pairs[:1], [], None)[k % 5]


def reduce(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A result of another shape and dtype, declared in place all the same."""
    operands = sketch.pick(i, i + 1)
    result = sketch.fresh(k, DTYPES[k % len(DTYPES)][0], SHAPES[j % len(SHAPES)])
    sketch.op("reduce", operands, (result,), ((0, 0), (1, 0)), choice=j)


def split(sketch: Sketch, i: int, j: int, k: int) -> None:
    """Two results of equal layout, each declared over each operand."""
    operands = sketch.pick(i) if k % 2 else sketch.pick(i, j)
    results = [sketch.fresh(j + n, operands[0].dtype, operands[0].shape) for n in range(2)]
    sketch.op("split", operands, results, in_place_of(operands, results, k), choice=i)


def scratch(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A result and a workspace that nobody reads."""
    operands = sketch.pick(i)
    result = sketch.fresh(j, operands[0].dtype, operands[0].shape)
    workspace = sketch.value(sketch.buffer(4 + 4 * (k % 4), k), "u8", (4,))
    sketch.op("scratch", operands, (result, workspace), ((0, 0),), choice=k)
    sketch.rows.remove(workspace)


def mutate(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A new value exactly over an old one in its own buffer, declared."""
    target, other = sketch.pick(i, j)
    if len(target.places) != _elements(target) * target.itemsize:
        return compute(sketch, i, j, k)  # a broadcast cannot be written
    result = sketch.value(target.buffer, **target.layout())
    operands = clear_of((result,), (target, other) if k % 2 else (target,))
    return sketch.op("mutate", operands, (result,), equal_pairs(operands, (result,)), choice=j)


def column(sketch: Sketch, i: int, j: int, k: int) -> None:
    """One of two interleaved columns of a buffer is filled."""
    shared = [row.buffer for row in sketch.rows if row.strides == (4,) and row.itemsize == 2 and sketch.sizes[row.buffer] == 12]
    buffer = shared[i % len(shared)] if shared and k % 2 else sketch.buffer(12, k)
    readable = sketch.pick(i)
    result = sketch.value(buffer, "f16", (3,), (4,), offset=2 * (j % 2))
    operands = clear_of((result,), readable)
    sketch.op("column", operands, (result,), equal_pairs(operands, (result,)), choice=i)


def whole(sketch: Sketch, i: int, j: int, k: int) -> None:
    """All bytes of a written buffer are seen as one value no op made."""
    (row,) = sketch.pick(i)
    low = min(row.places, default=0)
    high = low
    while (row.buffer, high) in sketch.writer:
        high += 1
    sketch.value(row.buffer, "u8", (high - low,), offset=low, made=False)


def look(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A view: slice, flip, broadcast, transposed, every second element, reshaped to bytes."""
    (parent,) = sketch.pick(i)
    shape, strides, offset, dtype = parent.shape, parent.strides, parent.offset, parent.dtype
    longest = max(range(len(shape)), key=lambda axis: shape[axis], default=None)
    if j % 6 == 2 or longest is None or shape[longest] == 0:
        shape, strides = (k % 3, *shape), (0, *strides)
    elif j % 6 == 1:
        offset += strides[longest] * (shape[longest] - 1)
        strides = tuple(-s if axis == longest else s for axis, s in enumerate(strides))
    elif j % 6 == 3:
        shape, strides = shape[::-1], strides[::-1]
    elif j % 6 == 4:
        shape = tuple((n + 1) // 2 if axis == longest else n for axis, n in enumerate(shape))
        strides = tuple(s * 2 if axis == longest else s for axis, s in enumerate(strides))
    elif j % 6 == 5:
        dtype, shape, strides = "u8", (*shape, parent.itemsize), (*strides, 1)
    else:
        cut = k % shape[longest]
        offset += cut * strides[longest]
        shape = tuple(n - cut if axis == longest else n for axis, n in enumerate(shape))
    child = sketch.value(parent.buffer, dtype, shape, strides, offset=offset, made=False)
    sketch.op(VIEW, (parent,), (child,), choice=k)


def download(sketch: Sketch, i: int, j: int, k: int) -> None:
    """The host reads a value, or two."""
    sketch.op(HOST_READ, sketch.pick(i) if k % 2 == 0 else sketch.pick(i, j), (), choice=k)


def unused(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A buffer no op touches."""
    sketch.buffer(4 * (i % 3), k)


Action = Callable[[Sketch, int, int, int], None]
ACTIONS: Mapping[str, Action] = {
    "compute": compute,
    "upload": upload,
    "mutate": mutate,
    "look": look,
    "download": download,
    "split": split,
    "persist": persist,
    "column": column,
    "scratch": scratch,
    "reduce": reduce,
    "whole": whole,
    "unused": unused,
}
"""Recipes that leave a program without defects, commonest first."""


# --- recipes with a defect of the program ---------------------------------------------------------------------------------


def read_any(sketch: Sketch, i: int, j: int, k: int) -> None:
    """An op reads a value that may be unwritten or overwritten."""
    operand = sketch.rows[-1 - i % len(sketch.rows)] if sketch.rows else sketch.pick(i)[0]
    result = sketch.fresh(j, operand.dtype, operand.shape)
    sketch.op("read_any", (operand,), (result,), in_place_of((operand,), (result,), k), choice=k)


def unwritten(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A value appears in a new buffer that nobody writes."""
    sketch.value(sketch.buffer(8, k), DTYPES[i % len(DTYPES)][0], (2,), made=False)


def stray(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A result reaches outside its buffer."""
    operands = sketch.pick(i)
    result = sketch.value(sketch.buffer(8, k), "f32", (2,), offset=(4, -4, 8, 2)[j % 4])
    sketch.op("stray", operands, (result,), choice=j)


def shielded(sketch: Sketch, i: int, j: int, k: int) -> None:
    """An op writes a read-only buffer."""
    operands = sketch.pick(i)
    result = sketch.fresh(j, operands[0].dtype, operands[0].shape, read_only=True)
    sketch.op("shielded" if k % 3 else HOST_WRITE, operands if k % 3 else (), (result,), choice=k)


def twice(sketch: Sketch, i: int, j: int, k: int) -> None:
    """An op has results that share bytes of one buffer."""
    operands = sketch.pick(i)
    one = sketch.value(sketch.buffer(12, k), "f32", (2,), offset=4 * (j % 2))
    other = one if k % 2 else sketch.value(one.buffer, "f32", (2,), offset=4 * (i % 2))
    sketch.op("twice", operands, (one, other), choice=k)


def clash(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A new value in the buffer of an operand, against the in-place rule or with a declaration too many."""
    (target,) = sketch.pick(i)
    flat = sketch.value(target.buffer, "u8", (max(sketch.sizes[target.buffer] - j % 3, 0),), offset=j % 3)
    sketch.op("clash", (target, target) if k % 2 else (target,), (flat,), ((), ((0, 0),), None)[k % 3], choice=i)


DEFECTS: Mapping[str, Action] = {
    "read_any": read_any,
    "unwritten": unwritten,
    "clash": clash,
    "stray": stray,
    "shielded": shielded,
    "twice": twice,
}
"""Recipes that may give a program a defect of its own."""


def _elements(row: Row) -> int:
    count = 1
    for length in row.shape:
        count *= length
    return count


# --- programs -------------------------------------------------------------------------------------------------------------


def assemble(
    recipes: Sequence[Recipe], *, name: str = "p", arenas: Sequence[Arena] = (), streams: int = 1, pad: int = 0
) -> Program:
    """Carry out recipes; `pad` buffers of 4 bytes that nobody touches are added at the end."""
    spaces = tuple(arenas) or (Arena(name="cpu"),)
    sketch = Sketch(
        builder=ProgramBuilder(name, arenas=spaces, streams=[f"stream{n}" for n in range(streams)]),
        arenas=len(spaces),
        streams=streams,
    )
    for action, i, j, k in recipes:
        (ACTIONS.get(action) or DEFECTS[action])(sketch, i, j, k)
    for _ in range(pad):
        sketch.buffer(4)
    return sketch.builder.build()


SMALL = st.integers(0, 7)


def recipes(*, defects: bool = False, max_size: int = 9) -> Strategy[list[Recipe]]:
    """Draw recipes; a fifth of the drawn actions may be defects where those are asked for."""
    names = [*ACTIONS] * 2 + ["compute"] * 10 + ["download"] * 2 + ([*DEFECTS] if defects else [])
    return st.lists(st.tuples(st.sampled_from(names), SMALL, SMALL, SMALL), min_size=2, max_size=max_size)


def arenas(*, capacities: Sequence[int | None] = (None, 4096)) -> Strategy[list[Arena]]:
    """Draw one or two arenas."""
    arena = st.builds(
        lambda alignment, capacity: Arena(name="a", alignment=alignment, capacity=capacity),
        st.sampled_from((1, 4, 8)),
        st.sampled_from(capacities),
    )
    return st.lists(arena, min_size=1, max_size=2)


@st.composite
def programs(draw: Any, *, defects: bool = False) -> Program:
    """Draw one program, without defects of its own unless asked for."""
    return assemble(draw(recipes(defects=defects)), arenas=draw(arenas()), streams=draw(st.sampled_from((1, 1, 1, 2))))


# --- plans ----------------------------------------------------------------------------------------------------------------


def aligned(offset: int, alignment: int) -> int:
    """Return the next multiple of `alignment`."""
    return -(-offset // alignment) * alignment


def reserved_offset(program: Program, buffer: int) -> int:
    """Return the place of a persistent buffer within the reserved bytes: it depends on the name alone."""
    return 16 * [name for name, _, _ in PERSISTENT].index(program.buffers.names[buffer])


def spread(program: Program, *, reserved: int = 0) -> Plan:
    """Return a plan in which no two buffers share a byte; `reserved` as in `first_fit`."""
    ends = [reserved if arena == 0 else 0 for arena in range(len(program.arenas))]
    offsets = []
    for buffer, nbytes in enumerate(program.buffers.nbytes.tolist()):
        arena = int(program.buffers.arena[buffer])
        if reserved and persistent(program, buffer):
            offsets.append(reserved_offset(program, buffer))
            continue
        offsets.append(aligned(ends[arena], int(program.buffers.alignment[buffer])))
        ends[arena] = offsets[-1] + nbytes
    return plan(program, program.buffers.arena.tolist(), offsets)


def plan(program: Program, where: Sequence[int], offsets: Sequence[int], **columns: Any) -> Plan:
    """Return a plan from the arena and the offset of each buffer."""
    sizes = columns.pop("nbytes", None)
    if sizes is None:
        sizes = [n if a >= 0 else 0 for n, a in zip(program.buffers.nbytes.tolist(), where, strict=True)]
    return Plan(
        program=program,
        arena=np.array(where, dtype=np.int32),
        offset=np.array([o if a >= 0 else 0 for o, a in zip(offsets, where, strict=True)], dtype=np.int64),
        nbytes=np.array(sizes, dtype=np.int64),
        **columns,
    )


def pairs_of(program: Program) -> list[tuple[int, int]]:
    """Return every pair (donor, recipient) that format.md permits, by recipient."""
    count = len(program.buffers)
    return [(d, r) for r in range(count) for d in range(count) if d != r and permissible(program, d, r)]


def first_fit(program: Program, *, kept: Iterable[int] = (), reserved: int = 0, in_place: bool = True) -> Plan:
    """Return a sound plan: in order of first access, over a donor where that is permitted, else at the lowest free offset.

    `kept` buffers lie in memory of their own; persistent ones that are not lie below `reserved` bytes of arena 0, at a place that
    depends on their name alone, so that all programs of a session agree.
    """
    live, pairs = live_steps(program), pairs_of(program) if in_place else []
    count = len(program.buffers)
    where = program.buffers.arena.tolist()
    offsets: dict[int, int] = {}
    for buffer in range(count):
        if buffer in set(kept):
            where[buffer] = OWN
        elif persistent(program, buffer):
            offsets[buffer] = reserved_offset(program, buffer)
    for buffer in sorted(range(count), key=lambda b: min(live[b], default=0)):
        if where[buffer] == OWN or buffer in offsets:
            continue
        size, alignment = int(program.buffers.nbytes[buffer]), int(program.buffers.alignment[buffer])
        donors = [d for d, r in pairs if r == buffer and d in offsets and where[d] == where[buffer]]
        base = reserved if where[buffer] == 0 else 0
        tries = [(offsets[d], d) for d in donors if offsets[d] % alignment == 0 and offsets[d] >= base]
        ends = [offsets[b] + int(program.buffers.nbytes[b]) for b in offsets]
        tries += [(aligned(end, alignment), None) for end in sorted({base, *(e for e in ends if e >= base)})]
        for offset, donor in tries:
            blockers = [
                b
                for b in offsets
                if b != donor
                and where[b] == where[buffer]
                and live[b] & live[buffer]
                and offset < offsets[b] + int(program.buffers.nbytes[b])
                and offsets[b] < offset + size
            ]
            if not blockers:
                offsets[buffer] = offset
                break
    return plan(program, where, [offsets.get(b, 0) for b in range(count)])


def with_events(made: Plan) -> Plan:
    """Return the plan with the events of a planner that frees a donor before, and anything else after, a step's results."""
    done = accesses(made.program)
    donors = {d for d, r in pairs_of(made.program) if done[d] and overlaps(made, d, r)}
    rows = []
    for buffer in (b for b in done if done[b] and made.arena[b] >= 0):
        rows.append((done[buffer][0].step, 1, Event.ALLOC, buffer))
        rows.append((done[buffer][-1].step, 0 if buffer in donors else 2, Event.FREE, buffer))
    return changed(made, events=np.array([(step, event, b) for step, _, event, b in sorted(rows)]).reshape(-1, 3))


def overlaps(made: Plan, one: int, other: int) -> bool:
    """Return whether two slots share a byte."""
    return bool(
        made.arena[one] == made.arena[other] >= 0
        and max(made.offset[one], made.offset[other])
        < min(made.offset[one] + made.nbytes[one], made.offset[other] + made.nbytes[other])
    )


def changed(made: Plan, **columns: Any) -> Plan:
    """Return the plan with some columns replaced."""
    kept = {name: getattr(made, name) for name in ("program", "problem", "source", "arena", "offset", "nbytes", "events")}
    return Plan(**{**kept, **columns})


# --- faults of a plan -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Slots:
    """The columns of a plan while faults are planted, for one buffer `at`."""

    arena: list[int]
    offset: list[int]
    nbytes: list[int]
    arenas: int

    def shift(self, at: int, j: int) -> None:
        """Move a slot by a few bytes."""
        self.offset[at] += (4, 1, -4, 2, 8, -1, 3, 16)[j]

    def onto(self, at: int, j: int) -> None:
        """Put a slot where another one starts."""
        other = j % len(self.arena)
        self.arena[at], self.offset[at] = self.arena[other], self.offset[other]

    def beside(self, at: int, j: int) -> None:
        """Put a slot a little into another one."""
        self.onto(at, j)
        self.offset[at] += 4

    def drop(self, at: int, _: int) -> None:
        """Give a buffer no slot."""
        self.arena[at] = UNPLACED

    def keep(self, at: int, _: int) -> None:
        """Give a buffer memory of its own."""
        self.arena[at] = OWN

    def elsewhere(self, at: int, j: int) -> None:
        """Put a slot into another arena."""
        self.arena[at] = j % self.arenas

    def shrink(self, at: int, j: int) -> None:
        """Give a slot too few bytes."""
        self.nbytes[at] = max(self.nbytes[at] - 1 - j, 0)

    def grow(self, at: int, j: int) -> None:
        """Give a slot more bytes than it needs."""
        self.nbytes[at] += 1 + 8 * j

    def far(self, at: int, j: int) -> None:
        """Put a slot at the end of a capacity of 4096."""
        self.offset[at] = 4096 - 4 * j


FAULTS = ("onto", "onto", "onto", "shift", "beside", "beside", "drop", "keep", "elsewhere", "shrink", "grow", "far")
"""Names of the faults `Slots` can plant, the most telling ones often; some plant nothing on some plans."""


def faulty(made: Plan, faults: Sequence[Fault]) -> Plan:
    """Return the plan with faults (name, buffer, choice) planted."""
    slots = Slots(
        arena=made.arena.tolist(), offset=made.offset.tolist(), nbytes=made.nbytes.tolist(), arenas=len(made.program.arenas)
    )
    for name, at, j in faults:
        if slots.arena:
            getattr(slots, name)(at % len(slots.arena), j)
    return changed(
        made,
        arena=np.array(slots.arena, dtype=np.int32),
        offset=np.array([o if a >= 0 else 0 for o, a in zip(slots.offset, slots.arena, strict=True)], dtype=np.int64),
        nbytes=np.array([n if a >= 0 else 0 for n, a in zip(slots.nbytes, slots.arena, strict=True)], dtype=np.int64),
    )


def faults_of(names: Sequence[str], max_size: int = 2) -> Strategy[list[Fault]]:
    """Draw a few faults."""
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 15), SMALL), max_size=max_size)


# --- beliefs --------------------------------------------------------------------------------------------------------------


def truth(program: Program) -> dict[str, Any]:
    """Return the columns of a belief that is right in everything."""
    live, done = live_steps(program), accesses(program)
    return {
        "start": [min(live[b], default=0) for b in live],
        "stop": [max(live[b], default=-1) + 1 for b in live],
        "nbytes": program.buffers.nbytes.tolist(),
        "pinned": [b for b in done if any(access.kind == HOST_READ for access in done[b])],
        "may_share": pairs_of(program),
        "gaps": {},
        "fixed": {},
    }


def mistake(columns: dict[str, Any], fault: Fault) -> None:
    """Plant one mistake (name, buffer, choice) in the columns of a belief, keeping them well-formed."""
    name, at, j = fault
    count = len(columns["start"])
    if not count:
        return
    at %= count
    start, stop = columns["start"], columns["stop"]
    if name == "born late":
        start[at] = min(start[at] + 1 + j % 2, stop[at])
    elif name == "born early":
        start[at] = max(start[at] - 1 - j, 0)
    elif name == "dies early":
        stop[at] = max(stop[at] - 1 - j, start[at])
    elif name == "dies late":
        stop[at] += 1 + j
    elif name == "small":
        columns["nbytes"][at] = max(columns["nbytes"][at] - 1, 0)
    elif name == "large":
        columns["nbytes"][at] += 1 + j
    elif name == "shares" and j % count != at:
        columns["may_share"].append((at, j % count))
    elif name == "not pinned":
        columns["pinned"] = [b for b in columns["pinned"] if b != at]
    elif name == "pinned":
        columns["pinned"] = sorted({*columns["pinned"], at})
    elif name == "gap":
        columns["gaps"][at] = (*columns["gaps"].get(at, ()), (start[at] + 1, start[at] + 1 + j))
    elif name == "fixed":
        columns["fixed"][at] = 4 * j


MISTAKES = (
    "dies early", "born late", "dies late", "born early", "small", "large", "shares", "not pinned", "pinned", "gap", "fixed",
)  # fmt: skip
"""Names of the mistakes `mistake` can plant."""


def believed(program: Program, mistakes: Sequence[Fault] = ()) -> Problem:
    """Return a right belief with mistakes planted."""
    columns = truth(program)
    for fault in mistakes:
        mistake(columns, fault)
    return Problem.of(program, **columns)


@st.composite
def instances(draw: Any, *, sound: bool = False) -> Document:
    """Draw a program without ops, its belief, and a plan: what a minimalloc file holds."""
    rows = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 3)), max_size=6))
    builder = ProgramBuilder("instance", arenas=draw(arenas()))
    for number, (_, _, size) in enumerate(rows):
        builder.buffer(f"b{number}", 4 * size)
    program = builder.build()
    columns: dict[str, Any] = {
        "start": [start for start, _, _ in rows],
        "stop": [start + length for start, length, _ in rows],
        "nbytes": [4 * size for _, _, size in rows],
        "pinned": [],
        "may_share": [],
        "gaps": {},
        "fixed": {},
    }
    names = ("gap",) if sound else ("shares", "gap", "large", "small", "pinned")
    for fault in draw(faults_of(names, max_size=4)):
        mistake(columns, fault)
    problem = Problem.of(program, own=[], **columns)
    made = changed(spread(program), problem=problem)
    return Document.of(made if sound else faulty(made, draw(faults_of(FAULTS, max_size=5))))


# --- documents ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Recipes:
    """One program of a document and how it is planned."""

    actions: list[Recipe]
    in_place: bool
    apart: bool
    """Whether no two buffers of the plan share a byte."""
    kept: list[int]
    """Inputs, by choice, in memory of their own."""


def scripts(*, defects: bool) -> Strategy[Recipes]:
    """Draw a program and how it is planned."""
    return st.builds(
        Recipes,
        actions=recipes(defects=defects),
        in_place=st.sampled_from((True, True, True, False)),
        apart=st.sampled_from((False, False, False, False, False, True)),
        kept=st.lists(SMALL, max_size=2),
    )


def planned_soundly(program: Program, script: Recipes, *, reserved: int) -> Plan:
    """Return the plan a script asks for; without `reserved` bytes persistent buffers are kept apart."""
    inputs = np.flatnonzero(program.buffers.role == Role.INPUT).tolist()
    kept = {inputs[choice % len(inputs)] for choice in script.kept if inputs}
    if not reserved:
        kept |= set(np.flatnonzero(program.buffers.persistent).tolist())
    if script.apart:
        spaced = spread(program, reserved=reserved)
        return faulty(spaced, [("keep", buffer, 0) for buffer in kept])
    return first_fit(program, kept=kept, reserved=reserved, in_place=script.in_place)


@st.composite
def documents(draw: Any, *, sound: bool = False) -> Document:
    """Draw a document of one or two programs with plans, beliefs, and often a session.

    A sound one has no violation: its programs have no defects, its plans no faults, its beliefs no mistakes, and a run skips
    only uploads whose bytes lie apart since an earlier run of the same plan.
    """
    spaces = draw(arenas() if sound else arenas(capacities=(None, 4096, 4096, 40)))
    streams = draw(st.sampled_from((1, 1, 1, 2)))
    drawn = draw(st.lists(scripts(defects=not sound and draw(st.booleans())), min_size=1, max_size=2))
    reserved = draw(st.sampled_from((0, 48)))
    programs = [assemble(s.actions, name=f"p{n}", arenas=spaces, streams=streams) for n, s in enumerate(drawn)]
    if not sound and draw(st.booleans()):  # buffers nobody touches, so that one plan fits two programs
        most = max(len(program.buffers) for program in programs)
        programs = [
            assemble(s.actions, name=f"p{n}", arenas=spaces, streams=streams, pad=most - len(program.buffers))
            for n, (program, s) in enumerate(zip(programs, drawn, strict=True))
        ]
    problems, plans = [], []
    for program, script in zip(programs, drawn, strict=True):
        made = planned_soundly(program, script, reserved=reserved)
        if draw(st.booleans()):
            problems.append(believed(program, () if sound else draw(faults_of(MISTAKES))))
            made = changed(made, problem=problems[-1])
        if draw(st.sampled_from((False, False, True))):
            made = with_events(made)
            if not sound:
                made = changed(made, events=draw(shuffled_events(made)))
        plans.append(made if sound else faulty(made, draw(faults_of(FAULTS, max_size=3))))
    session = tuple(draw(runs(programs, plans, sound=sound))) if draw(st.sampled_from((True, True, False))) else None
    return Document(programs=tuple(programs), problems=tuple(problems), plans=tuple(plans), session=session)


@st.composite
def shuffled_events(draw: Any, made: Plan) -> Any:
    """Draw the events of a plan with some dropped, doubled or in another place."""
    rows = made.events.tolist()
    for at, to, change in draw(st.lists(st.tuples(SMALL, SMALL, st.sampled_from(("drop", "double", "move"))), max_size=2)):
        if not rows:
            break
        row = rows[at % len(rows)]
        if change != "double":
            rows.remove(row)
        if change != "drop":
            rows.insert(to, row)
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


@st.composite
def runs(draw: Any, programs: Sequence[Program], plans: Sequence[Plan], *, sound: bool) -> list[Run]:
    """Draw the runs of a session: repeats, skipped uploads, and stale plans where they fit and need not be sound."""
    session: list[Run] = []
    for choice, other, leave_out in draw(st.lists(st.tuples(SMALL, SMALL, st.lists(SMALL, max_size=2)), min_size=1, max_size=4)):
        made = plans[choice % len(plans)]
        program = made.program
        stale = programs[other % len(programs)]
        if not sound and other >= 4 and len(stale.buffers) == len(program.buffers):
            program = stale
        uploads = [op.step for op in program.ops if op.kind == HOST_WRITE]
        if sound:
            seen = any(run.program is program for run in session)
            uploads = [step for step in uploads if seen and lasting(program, made, step)]
        skip = tuple(sorted({uploads[n % len(uploads)] for n in leave_out if uploads}))
        session.append(Run.of(made, program=program, skip=skip))
    return session


def lasting(program: Program, made: Plan, step: int) -> bool:
    """Return whether what an upload wrote is still there in the next run, as planned: kept apart and written by nobody else."""
    buffers = {program.values[value].buffer for value in program.ops[step].results}
    others = {program.values[value].buffer for op in program.ops if op.kind != VIEW and op.step != step for value in op.results}
    return all(made.arena[buffer] == OWN for buffer in buffers) and not buffers & others
