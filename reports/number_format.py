"""Numbers and names for readers: binary units, three figures, names on one line."""

from typing import Final

UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
"""Bytes in each unit, largest first; KiB is 1024 bytes."""


def nbytes(number: float) -> str:
    """Return a size for people: `56.5 KiB`, `1.20 GiB`, `312 B`."""
    for unit, name in UNITS:
        if abs(number) >= unit:
            return f"{number / unit:.3g} {name}" if abs(number) < 1000 * unit else f"{number / unit:,.0f} {name}"
    return f"{number:.0f} B"


def over(size: int, bound: int) -> str:
    """Return how a size compares with a bound: `exactly the bound`, `2.0 % above the bound`."""
    if bound <= 0:
        return "with nothing alive"
    if size == bound:
        return "exactly the bound"
    if size < bound:
        return f"{(1 - size / bound) * 100:.1f} % below the bound"
    return (
        f"{(size / bound - 1) * 100:.1f} % above the bound"
        if size < 3 * bound
        else f"{figures(size / bound)} times the bound"
    )


def count(number: int, noun: str, many: str = "") -> str:
    """Return `1 conflict`, `3 conflicts`, `1,024 ops`."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def figures(number: float) -> str:
    """Return a number for people with three significant figures: `12,800`, `0.0133`, `1.2e+09`."""
    if number and abs(number) < 1e6 and abs(number) >= 1e-4:
        words = f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
    else:
        words = f"{number:.3g}"
    return words


def short(name: str, limit: int = 32) -> str:
    """Return a name on one line and of at most `limit` characters.

    The middle is left out; `?` stands for what no font shows.
    """
    clean = "".join(c if c.isprintable() and ord(c) < 0x2C00 else "?" for c in name)
    if len(clean) <= limit:
        return clean
    head = (limit - 1) // 2
    return f"{clean[:head]}…{clean[len(clean) - (limit - 1 - head) :]}"
