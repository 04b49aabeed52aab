"""Programs from recipes: every list of small numbers makes a program.

A program is a list of *recipes*, (action, i, j, k, into, how) with small numbers, carried out one
after the other on a `Sketch`, which keeps values by register: `into` is the register of what a
recipe makes (a second value goes into the next one), and i and j are the registers it reads, or the
next ones that hold something that can be read. `how` has every further choice, one after the other
(`sketch.Choices`): how many operands, which arena and alignment, which stream, whether it waits. No
number decides two things. So every list of recipes is a program: nothing is filtered. And what a
recipe reads stays the same when others are taken out, but for those that made it: a failing list
shrinks by dropping recipes.

The program has no defect of its own: what it reads is initialised and current, and what it writes
within one buffer obeys the in-place rule.

What this module does not see: planners, and what is drawn how often (`strategies`).
"""

from collections.abc import Callable, Mapping, Sequence

from allocsim.fuzzing.batch import trusted
from allocsim.fuzzing.sketch import DTYPES, ITEMSIZES, REGISTERS, SHAPES, Choices, Sketch, SketchedValue
from allocsim.model import HOST_READ, HOST_WRITE, SAME, VIEW, Arena, Program, Role
from allocsim.model.tables import freeze
from allocsim.programs.builder import ProgramBuilder

Recipe = tuple[str, int, int, int, int, int]
"""Action, i, j, k, into, how."""

PERSISTENT = (("w", Role.PARAMETER, 8), ("s", Role.STATE, 8), ("v", Role.STATE, 16))


# --- recipes without defects ----------------------------------------------------------------------


def upload(sketch: Sketch, i: int, j: int, k: int) -> None:  # noqa: ARG001 - the seam's signature
    """The host writes an input."""
    sketch.given(DTYPES[i % len(DTYPES)], SHAPES[j % len(SHAPES)])


def persist(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A parameter or state appears, or another value in one that is there."""
    name, role, nbytes = PERSISTENT[i % len(PERSISTENT)]
    if name not in sketch.names:
        sketch.names[name] = sketch.buffer(nbytes, name=name, alignment=4, arena=0, role=role)
        sketch.written[-1] = (1 << nbytes) - 1
    dtype = DTYPES[j % len(DTYPES)]
    sketch.value(sketch.names[name], dtype, (4 // ITEMSIZES[dtype],), offset=k % 2 * 4, made=False)


def compute(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A result in a new buffer, laid out as the first operand; pairs declared as `k` says."""
    operands = one_or_two(sketch, i, j)
    result = sketch.like(operands[0])
    sketch.op("compute", operands, (result,), in_place_of(operands, (result,), k))


def one_or_two(sketch: Sketch, i: int, j: int) -> list[SketchedValue]:
    """Return the first value that can be read, or the first and the second."""
    return sketch.pick(*(i, j)[: 1 + sketch.choices.draw(2)])


def in_place_of(
    operands: Sequence[SketchedValue], results: Sequence[SketchedValue], k: int = 0
) -> list[tuple[int, int]] | None:
    """Return a declaration: all pairs of equal layout, some, none, or nobody knows."""
    pairs = [(o, r) for o, operand in enumerate(operands) for r, result in enumerate(results) if operand.alike(result)]
    return (pairs, pairs, pairs[:1], pairs[:-1], [], None, pairs, pairs[1:])[k]


def reduce(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A result of another shape and dtype, declared in place all the same."""
    operands = sketch.pick(i, i + 1)
    result = sketch.fresh(DTYPES[k % len(DTYPES)], SHAPES[j % len(SHAPES)])
    sketch.op("reduce", operands, (result,), ((0, 0), (1, 0)))


def split(sketch: Sketch, i: int, j: int, k: int) -> None:
    """Two results of equal layout, each declared over each operand."""
    operands = one_or_two(sketch, i, j)
    results = [sketch.like(operands[0]) for _ in range(2)]
    sketch.op("split", operands, results, in_place_of(operands, results, k))


def scratch(sketch: Sketch, i: int, j: int, k: int) -> None:  # noqa: ARG001 - the seam's signature
    """A result and a workspace that nobody reads."""
    operands = sketch.pick(i)
    result = sketch.like(operands[0])
    workspace = sketch.value(sketch.buffer(4 + 4 * (k % 4)), "u8", (4,))
    sketch.op("scratch", operands, (result, workspace), ((0, 0),))
    sketch.rows.remove(workspace)


def mutate(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A new value exactly over an old one in its own buffer, declared."""
    target, other = sketch.pick(i, j)
    if target.covers.bit_count() != target.nbytes:
        return compute(sketch, i, j, k)  # a broadcast cannot be written
    return update(sketch, "mutate", sketch.over(target), (target, other)[: 1 + sketch.choices.draw(2)])


def update(sketch: Sketch, kind: str, result: SketchedValue, operands: Sequence[SketchedValue]) -> None:
    """An op of those operands that share no byte with its result, or coincide with it exactly."""
    kept = [
        row
        for row in operands
        if row.buffer != result.buffer
        or not row.covers & result.covers
        or (row.offset == result.offset and row.alike(result))
    ]
    sketch.op(kind, kept, (result,), in_place_of(kept, (result,)))


def both(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A mutation and a fresh result of one op: its operand's buffer is no donor, for all that the
    pair is declared.
    """
    (target,) = sketch.pick(i)
    if target.covers.bit_count() != target.nbytes:
        return split(sketch, i, j, k)
    results = (sketch.over(target), sketch.like(target))
    return sketch.op("both", (target,), results, ((0, 0), (0, 1)))


def load(sketch: Sketch, i: int, j: int, k: int) -> None:
    """The host writes a parameter or state."""
    persist(sketch, i, j, k)
    buffer = sketch.rows[-1].buffer
    sketch.op(HOST_WRITE, (), (sketch.value(buffer, "u8", (sketch.sizes[buffer] - 4 * sketch.choices.draw(2),)),))


def column(sketch: Sketch, i: int, j: int, k: int) -> None:
    """One of two interleaved columns of a buffer is filled."""
    columns = (row for row in sketch.rows if row.strides == (4,) and row.dtype == "f16")
    shared = [row.buffer for row in columns if sketch.sizes[row.buffer] == 12]
    buffer = shared[k // 2 % len(shared)] if shared and k % 2 else sketch.buffer(12)
    operands = sketch.pick(i)
    update(sketch, "column", sketch.value(buffer, "f16", (3,), (4,), offset=2 * (j % 2)), operands)


def whole(sketch: Sketch, i: int, j: int, k: int) -> None:  # noqa: ARG001 - the seam's signature
    """All bytes of a written buffer are seen as one value no op made."""
    (row,) = sketch.pick(i)
    low = max((row.covers & -row.covers).bit_length() - 1, 0)
    written = sketch.written[row.buffer] >> low
    sketch.value(row.buffer, "u8", ((written + 1 & ~written).bit_length() - 1,), offset=low, made=False)


BROADCAST = (2, 2, 3, 0, 2, 1, 2, 3)


def look(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A view; or three, each of the one before it."""
    (parent,) = sketch.pick(i)
    for turn in range((1, 1, 1, 3)[sketch.choices.draw(4)]):
        parent = look_at(sketch, parent, j + turn, k)


def look_at(sketch: Sketch, parent: SketchedValue, j: int, k: int) -> SketchedValue:
    """Slice, flip, broadcast, transposed, every second element, reshaped to bytes."""
    shape, strides, offset, dtype = [*parent.shape], [*parent.strides], parent.offset, parent.dtype
    longest = shape.index(max(shape)) if shape else 0
    if j % 6 == 2 or not any(shape):
        shape, strides = [BROADCAST[k % len(BROADCAST)], *shape], [0, *strides]
    elif j % 6 == 1:
        offset += strides[longest] * (shape[longest] - 1)
        strides[longest] *= -1
    elif j % 6 == 3:
        shape, strides = shape[::-1], strides[::-1]
    elif j % 6 == 4:
        shape[longest], strides[longest] = (shape[longest] + 1) // 2, strides[longest] * 2
    elif j % 6 == 5:
        shape, strides, dtype = [*shape, ITEMSIZES[dtype]], [*strides, 1], "u8"
    else:
        cut = k % shape[longest]
        offset += cut * strides[longest]
        shape[longest] -= cut
    child = sketch.value(parent.buffer, dtype, tuple(shape), tuple(strides), offset=offset, made=False)
    sketch.op(VIEW, (parent,), (child,))
    return child


def download(sketch: Sketch, i: int, j: int, k: int) -> None:  # noqa: ARG001 - the seam's signature
    """The host reads a value, or two."""
    sketch.op(HOST_READ, one_or_two(sketch, i, j), ())


def unused(sketch: Sketch, i: int, j: int, k: int) -> None:  # noqa: ARG001 - the seam's signature
    """A buffer no op touches."""
    sketch.buffer(4 * (i % 3))


Action = Callable[[Sketch, int, int, int], None]
ACTIONS: Mapping[str, Action] = {
    "compute": compute,
    "upload": upload,
    "mutate": mutate,
    "look": look,
    "download": download,
    "split": split,
    "persist": persist,
    "load": load,
    "both": both,
    "column": column,
    "scratch": scratch,
    "reduce": reduce,
    "whole": whole,
    "unused": unused,
}
"""Recipes that leave a program without defects, commonest first."""


# --- recipes of rarer ops -------------------------------------------------------------------------

OPERANDS = (3, 4, 0, 5, 6, 8, 7, 12, 9, 10, 3, 11)
"""How many operands a `gather` may have."""


def gather(sketch: Sketch, i: int, j: int, k: int) -> None:
    """An op of none or three to twelve operands and of one to eight results.

    Results equal in layout to the first operand where there is one. Registers have eight values:
    each operand beyond that is an input of its own, else it would be one that is read twice.
    """
    many = OPERANDS[sketch.choices.draw(len(OPERANDS))]
    operands = sketch.pick(*(i + n for n in range(min(many, REGISTERS))))
    operands += [sketch.given(DTYPES[0], SHAPES[j % len(SHAPES)]) for _ in range(many - REGISTERS)]
    dtype, shape = (operands[0].dtype, operands[0].shape) if operands else (DTYPES[0], SHAPES[j % len(SHAPES)])
    more = j if sketch.choices.draw(2) else 0
    results = [sketch.fresh(dtype, shape) for _ in range(1 + more)]
    sketch.op("gather", operands, results, in_place_of(operands, results, k))


def hand_on(sketch: Sketch, i: int, j: int, k: int) -> None:  # noqa: ARG001 - the seam's signature
    """One to three values are the same elsewhere; the kernel moves nothing where they lie alike."""
    operands = sketch.pick(*(i + n for n in range(1 + sketch.choices.draw(3))))
    results = [sketch.like(operand) for operand in operands]
    pairs = [(n, n) for n in range(len(operands)) if operands[n].alike(results[n])]
    sketch.op(SAME, operands, results, pairs if k % 4 == 3 else ())


def lend(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A result of other shape and dtype may begin where an operand does (`bytes`: fewer bytes, or
    more than there are, which no planner may take), or lie anywhere over it (`whole`).
    """
    operands = one_or_two(sketch, i, j)
    strength = "bytes" if sketch.choices.draw(3) else "whole"
    nbytes = operands[0].nbytes
    result = sketch.fresh("u8", ((nbytes, nbytes // 2, nbytes + 4, max(nbytes - 1, 0))[k // 2],))
    sketch.op("lend", operands, (result,), [(0, 0, strength)])


WIDE: Mapping[str, Action] = {"gather": gather, "hand_on": hand_on, "lend": lend}
"""Recipes of ops that few programs have: many operands and results, `same`, other strengths of the
alias contract.
"""

EVERY: Mapping[str, Action] = {**ACTIONS, **WIDE}


# --- programs -------------------------------------------------------------------------------------


def assemble(
    recipes: Sequence[Recipe],
    *,
    name: str = "p",
    arenas: Sequence[Arena] = (),
    streams: int = 1,
    pad: int = 0,
    actions: Mapping[str, Action] = EVERY,
    after: Callable[[Sketch], object] = lambda _: None,
) -> Program:
    """Carry out recipes; `pad` buffers of 4 bytes that nobody touches are added at the end.

    The newest value that a recipe makes is kept in its own register, those before in the next ones;
    `after` is shown the sketch then. Well-formed as it is made, the program is not checked alone: a
    batch of many is.
    """
    spaces = tuple(arenas) or (Arena(name="cpu"),)
    sketch = Sketch(
        builder=ProgramBuilder(name, arenas=spaces, streams=[f"stream{n}" for n in range(streams)]),
        arenas=len(spaces),
        streams=streams,
    )
    for action, i, j, k, into, how in recipes:
        before, sketch.choices = len(sketch.rows), Choices(how)
        actions[action](sketch, i, j, k)
        for place, row in enumerate(reversed(sketch.rows[before:]), into):
            sketch.registers[place % REGISTERS] = row
        after(sketch)
    for _ in range(pad):
        sketch.buffer(4)
    columns = sketch.builder.columns()
    for table in ("buffers", "values", "ops"):
        freeze(columns[table])
    return trusted(Program, **columns)
