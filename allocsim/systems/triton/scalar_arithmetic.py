"""Computes the results of integer ops of the dialect `arith`.

    computed("arith.addi", [3, 4], ": i32")     # 7
    computed("arith.cmpi", [3, None], "slt, ...")   # None: unknown

A number is stored as a signed integer of its width; an `i1` is stored as 0 or 1.

What this module does not see: tensors and floating-point numbers.
"""

import operator
import re
from collections.abc import Callable, Sequence
from typing import Final

WIDTH: Final = re.compile(r"(?:i(\d{1,3})|index)$")
SOURCE: Final = re.compile(r" : i(\d{1,3}) to ")


def _quotient(one: int, other: int) -> int:
    """Return a quotient rounded towards zero, as processors divide; 0 for a division by zero."""
    return 0 if not other else (abs(one) // abs(other)) * (1 if (one < 0) == (other < 0) else -1)


def _remainder(one: int, other: int) -> int:
    return one - _quotient(one, other) * other


def _ceiling(one: int, other: int) -> int:
    return -(-one // other) if other else 0


def _floor(one: int, other: int) -> int:
    return one // other if other else 0


SIGNED: Final[dict[str, Callable[..., int]]] = {
    "addi": operator.add, "subi": operator.sub, "muli": operator.mul, "divsi": _quotient, "remsi": _remainder,
    "ceildivsi": _ceiling, "floordivsi": _floor, "andi": operator.and_, "ori": operator.or_, "xori": operator.xor,
    "minsi": min, "maxsi": max, "shli": lambda one, other: one << min(other & 127, 64), "shrsi": lambda one, other: one >> min(other & 127, 64),
    "extsi": int, "trunci": int, "index_cast": int,
}  # fmt: skip

UNSIGNED: Final[dict[str, Callable[..., int]]] = {
    "divui": _floor, "remui": lambda one, other: one % other if other else 0, "ceildivui": _ceiling,
    "minui": min, "maxui": max, "shrui": lambda one, other: one >> min(other, 64), "extui": int, "index_castui": int,
}  # fmt: skip

COMPARED: Final[dict[str, Callable[[int, int], bool]]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def computed(name: str, given: Sequence[int | None], text: str) -> int | None:
    """Return the result of an op, or None if unknown. `text` is the op's text after its name."""
    what = name.partition(".")[2]
    if what == "select":
        return _selected(given)
    if what in {"andi", "muli"} and 0 in given:
        return 0
    known = [number for number in given if number is not None]
    found = WIDTH.search(text)
    if len(known) != len(given) or found is None:
        return None
    width = int(found[1] or 64)
    if what == "cmpi":
        return _compared(text.split(",", maxsplit=1)[0].strip(), known, width)
    source = SOURCE.search(text)
    before = int(source[1]) if source else width
    if what in UNSIGNED:
        known = [number & ((1 << before) - 1) for number in known]
    elif what == "extsi" and before == 1:
        known = [-known[0]]
    compute = SIGNED.get(what) or UNSIGNED.get(what)
    if compute is None or len(known) != (1 if compute is int else 2):
        return None
    return _wrapped(compute(*known), width)


def _wrapped(number: int, width: int) -> int:
    low = number & ((1 << width) - 1)
    return low if width == 1 or low < 1 << (width - 1) else low - (1 << width)


def _compared(how: str, known: list[int], width: int) -> int | None:
    unsigned = how.startswith("u")
    sides = [number & ((1 << width) - 1) if unsigned else number for number in known]
    if width == 1 and how.startswith("s"):
        sides = [-number for number in sides]
    compare = COMPARED.get(how[1:] if how not in COMPARED else how)
    return None if compare is None or len(sides) != 2 else int(compare(*sides))


def _selected(given: Sequence[int | None]) -> int | None:
    if len(given) != 3:
        return None
    if given[0] is None:
        return given[1] if given[1] == given[2] else None
    return given[1] if given[0] else given[2]


__all__ = ["computed"]
