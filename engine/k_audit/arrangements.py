"""The layouts of operands and results that detector K tries, each in several arrangements.

| layout | the result, seen from one operand | a contract permits it |
|---|---|---|
| `apart` | in memory of its own, as every operand | always |
| `duplicate` | in memory of its own; the operand is given for every operand laid out like it, or another one begins an element behind it | always |
| `over` | exactly over it: one address, one layout | where the pair is declared |
| `duplicate over` | exactly over it, and it is given for every operand laid out like it | where all these pairs are declared |
| `shifted` | begins some elements behind or before it: 1, a vector of 32 bytes, a row | never |
| `partial` | over the first or last half of it, or, of another shape, at its start, middle or end | never |
| `views` | over it while another operand is a shifted view of it; or it is another view of the result's buffer: flipped, transposed, every second
element, one row broadcast | never |

"Never" is what a contract can say here and in format.md: a pair shares bytes from one address and
in one layout, or not at all. A kernel that is documented to allow any overlap
(`Kernel.overlap == "any"`, numpy's ufuncs) is held to all of them.

An arrangement gives each array a *block* of memory and the position of its element 0 there, in
bytes; arrays of one block may share bytes. Results are never laid over operands of another dtype,
so that no index is ever overwritten by a number.

What this module does not see: addresses, data and kernels.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from engine.k_audit.audit_cases import AuditCase, AuditLayout

VECTOR: Final = 32
"""Bytes of a vector register."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Where the arrays of one call lie, operands first, then results."""

    words: str
    operands: int
    """How many of the arrays are operands."""
    specs: tuple[AuditLayout, ...]
    blocks: tuple[int, ...]
    at: tuple[int, ...]
    """Bytes from the start of its block to element 0 of each array."""
    over: tuple[tuple[int, int], ...] = ()
    """(operand, result) that are meant to share bytes: proven before the run."""
    twins: tuple[tuple[int, int], ...] = ()
    """Pairs of operands that are meant to share bytes."""


Arrange = Callable[[AuditCase, int, int], Iterator[Arrangement]]


def apart(case: AuditCase) -> Arrangement:
    """Return the arrangement in which nothing shares a byte."""
    specs = (*case.operands, *case.results)
    at = tuple(-spec.hull[0] for spec in specs)
    return Arrangement(words="apart", operands=len(case.operands), specs=specs, blocks=tuple(range(len(specs))), at=at)


def _apart(case: AuditCase, operand: int, result: int) -> Iterator[Arrangement]:  # noqa: ARG001 - one signature
    yield apart(case)


def _over(case: AuditCase, operand: int, result: int) -> Iterator[Arrangement]:
    if case.operands[operand].alike(case.results[result]) and 0 not in case.results[result].shape:
        yield _moved(case, operand, result, 0, f"result over operand {operand}")


def _shifted(case: AuditCase, operand: int, result: int) -> Iterator[Arrangement]:
    spec = case.operands[operand]
    if not spec.alike(case.results[result]):
        return
    low, high = spec.hull
    row = max((abs(stride) for stride, length in zip(spec.strides, spec.shape, strict=True) if length > 1), default=0)
    for shift in dict.fromkeys((spec.itemsize, max(VECTOR, spec.itemsize), row)):
        if 0 < shift < high - low:
            count = shift // spec.itemsize
            many = f"{count} element{'s'[: count != 1]}"
            yield _moved(case, operand, result, shift, f"result {many} behind operand {operand}")
            yield _moved(case, operand, result, -shift, f"result {many} before operand {operand}")


def _partial(case: AuditCase, operand: int, result: int) -> Iterator[Arrangement]:
    a, b = case.operands[operand], case.results[result]
    if a.dtype != b.dtype or 0 in a.shape or 0 in b.shape:
        return
    (low, high), (start, stop) = a.hull, b.hull
    size, length = high - low, stop - start
    if size == length:
        half = size // 2 // a.itemsize * a.itemsize
        places = {"last": half, "first": -half} if half else {}
        for word, shift in places.items():
            yield _moved(
                case, operand, result, low + shift - start, f"result over the {word} half of operand {operand}"
            )
        return
    slack = size - length
    middle = slack // 2 // a.itemsize * a.itemsize
    inside = "within" if slack > 0 else "around"
    for word, shift in {"start": 0, "middle": middle, "end": slack}.items():
        yield _moved(case, operand, result, low + shift - start, f"result {inside} operand {operand}, at its {word}")


def _duplicate(case: AuditCase, operand: int, result: int) -> Iterator[Arrangement]:  # noqa: ARG001 - one signature
    yield from _same(case, operand, apart(case), f"operand {operand} given again")
    spec = case.operands[operand]
    for other in likes(case, operand)[1:]:
        if spec.hull[1] - spec.hull[0] > spec.itemsize:
            yield _viewing(
                apart(case),
                operand,
                other,
                spec.itemsize,
                f"operand {other} begins an element behind operand {operand}",
            )
            break


def _duplicate_over(case: AuditCase, operand: int, result: int) -> Iterator[Arrangement]:
    for lain in _over(case, operand, result):
        yield from _same(case, operand, lain, f"operand {operand} given again, result over it")


def _views(case: AuditCase, operand: int, result: int) -> Iterator[Arrangement]:
    spec, target = case.operands[operand], case.results[result]
    if spec.dtype != target.dtype or prod(target.shape) < 2 or 0 in spec.shape:
        return
    for lain in _over(case, operand, result):
        for other in likes(case, operand)[1:]:
            for shift in (spec.itemsize, -spec.itemsize):
                where = "behind" if shift > 0 else "before"
                words = f"result over operand {operand}, operand {other} one element {where} it"
                yield _viewing(lain, operand, other, shift, words)
    for word, strides in _other_views(spec):
        view = replace(spec, strides=strides)
        seen = replace(case, operands=(*case.operands[:operand], view, *case.operands[operand + 1 :]))
        shift = view.hull[0] - target.hull[0]  # both begin at the lowest byte
        yield _moved(seen, operand, result, shift, f"operand {operand} is the result's buffer {word}")


def _other_views(spec: AuditLayout) -> Iterator[tuple[str, tuple[int, ...]]]:
    shape, strides, item = spec.shape, spec.strides, spec.itemsize
    longest = max(range(len(shape)), key=lambda axis: shape[axis], default=None)
    if longest is None or shape[longest] < 2:
        return

    def along(stride: int) -> tuple[int, ...]:
        return tuple(stride if axis == longest else s for axis, s in enumerate(strides))

    yield "flipped", along(-strides[longest])
    if len(shape) > 1 and min(shape[-2:]) > 1:
        turned = [*strides]
        turned[-2], turned[-1] = item, item * shape[-2]
        yield "transposed", tuple(turned)
    yield "at every second element", tuple(2 * stride for stride in strides)
    yield "broadcast along its longest axis", along(0)


def likes(case: AuditCase, operand: int) -> list[int]:
    """Return the operands laid out like one, that one first; `duplicate` gives them its array."""
    others = [n for n, spec in enumerate(case.operands) if n != operand and spec.alike(case.operands[operand])]
    return [operand, *others]


def _moved(case: AuditCase, operand: int, result: int, shift: int, words: str) -> Arrangement:
    """Lay a result `shift` bytes behind an operand, from element 0 to element 0."""
    base = apart(case)
    index = len(case.operands) + result
    origin = max(0, -(shift + case.results[result].hull[0] + base.at[operand]))
    blocks, at = list(base.blocks), list(base.at)
    blocks[index], at[operand] = operand, base.at[operand] + origin
    at[index] = at[operand] + shift
    return replace(base, words=words, blocks=tuple(blocks), at=tuple(at), over=((operand, result),))


def _same(case: AuditCase, operand: int, base: Arrangement, words: str) -> Iterator[Arrangement]:
    alike = likes(case, operand)
    if len(alike) < 2 or 0 in case.operands[operand].shape:
        return
    blocks, at = list(base.blocks), list(base.at)
    for other in alike[1:]:
        blocks[other], at[other] = blocks[operand], at[operand]
    over = tuple((other, result) for _, result in base.over for other in alike)
    yield replace(
        base, words=words, blocks=tuple(blocks), at=tuple(at), over=over, twins=tuple((operand, n) for n in alike[1:])
    )


def _viewing(base: Arrangement, operand: int, other: int, shift: int, words: str) -> Arrangement:
    """Lay another operand `shift` bytes behind an operand.

    A whole vector is added before the block where it is needed.
    """
    blocks, at = list(base.blocks), list(base.at)
    blocks[other], at[other] = blocks[operand], at[operand] + shift
    if shift < 0:
        at = [place + 64 if block == blocks[operand] else place for place, block in zip(at, blocks, strict=True)]
    return replace(base, words=words, blocks=tuple(blocks), at=tuple(at), twins=((operand, other),))


LAYOUTS: Final[dict[str, Arrange]] = {
    "apart": _apart,
    "duplicate": _duplicate,
    "over": _over,
    "duplicate over": _duplicate_over,
    "shifted": _shifted,
    "partial": _partial,
    "views": _views,
}
"""Layout -> its arrangements for an operand and a result; none where the call has none."""

READING: Final = frozenset({"apart", "duplicate"})
"""Layouts in which no result touches an operand: every contract permits them."""


def sizes(arrangement: Arrangement) -> dict[int, int]:
    """Return the bytes of each block."""
    found: dict[int, int] = {}
    for spec, block, at in zip(arrangement.specs, arrangement.blocks, arrangement.at, strict=True):
        found[block] = max(found.get(block, 0), at + spec.hull[1])
    return found
