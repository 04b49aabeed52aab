"""Recipes that may give a program a defect of its own, for what judges programs; others leave it without (`program_recipes`)."""

from collections.abc import Mapping

from allocsim.fuzzing.program_recipes import Action, in_place_of, mutate
from allocsim.fuzzing.sketch import DTYPES, Sketch
from allocsim.model import HOST_READ, HOST_WRITE


def read_any(sketch: Sketch, i: int, j: int, k: int) -> None:
    """An op reads a value that may be unwritten or overwritten."""
    operand = sketch.rows[-1 - i % len(sketch.rows)] if sketch.rows else sketch.pick(i)[0]
    result = sketch.like(operand)
    sketch.op("read_any", (operand,), (result,), in_place_of((operand,), (result,), k))


def late(sketch: Sketch, i: int, j: int, k: int) -> None:
    """The host reads a value after a mutation of it."""
    (target,) = sketch.pick(i)
    mutate(sketch, i, j, k)
    sketch.op(HOST_READ, (target,), ())


def unwritten(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A value appears in a new buffer that nobody writes."""
    sketch.value(sketch.buffer(8), DTYPES[i % len(DTYPES)], (2,), made=False)


def reborn(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A result lies exactly over an unwritten operand; its buffer can be no recipient."""
    operands = sketch.pick(i)
    seed = sketch.like(operands[0])
    seed.made = False
    sketch.op("reborn", (*operands, seed), (sketch.over(seed),), ((0, 0), (1, 0)))


def stray(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A result reaches outside its buffer."""
    operands = sketch.pick(i)
    result = sketch.value(sketch.buffer(8), "f32", (2,), offset=(4, -4, 8, 2)[j % 4])
    sketch.op("stray", operands, (result,))


def shielded(sketch: Sketch, i: int, j: int, k: int) -> None:
    """An op writes a read-only buffer."""
    operands = sketch.pick(i)
    result = sketch.fresh(operands[0].dtype, operands[0].shape, read_only=True)
    sketch.op("shielded" if k % 3 else HOST_WRITE, operands if k % 3 else (), (result,))


def twice(sketch: Sketch, i: int, j: int, k: int) -> None:
    """An op has results that share bytes of one buffer."""
    operands = sketch.pick(i)
    one = sketch.value(sketch.buffer(12), "f32", (2,), offset=4 * (j % 2))
    other = one if k % 2 else sketch.value(one.buffer, "f32", (2,), offset=4 * (i % 2))
    sketch.op("twice", operands, (one, other))


def clash(sketch: Sketch, i: int, j: int, k: int) -> None:
    """A new value in an operand's buffer, against the in-place rule or declared too often."""
    (target,) = sketch.pick(i)
    flat = sketch.value(target.buffer, "u8", (max(sketch.sizes[target.buffer] - j % 3, 0),), offset=j % 3)
    operands = (target, target)[: 1 + sketch.choices.draw(2)]
    sketch.op("clash", operands, (flat,), ((), ((0, 0),), None)[k % 3])


DEFECTS: Mapping[str, Action] = {
    "read_any": read_any,
    "late": late,
    "unwritten": unwritten,
    "clash": clash,
    "reborn": reborn,
    "stray": stray,
    "shielded": shielded,
    "twice": twice,
}
"""By name."""
