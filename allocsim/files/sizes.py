"""Numbers of bytes as people write them.

What this module does not see: what has so many bytes.
"""

import re
from fractions import Fraction
from typing import Final

from allocsim.errors import AllocsimError

UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_of(text: str) -> int:
    """Return the bytes a user means by `4096`, `64KiB`, `1.5 MiB` or `2G`.

    Units are powers of 1024, what they leave of a byte is cut off.

    AllocsimError for anything else.
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:([KMGTP])(?:i?B)?|B)?\s*", text, re.ASCII | re.IGNORECASE)
    if found is None or len(text) > 40:
        raise AllocsimError(f"{text[:40]!r} is no number of bytes; write 4096, 64KiB or 2GiB")
    count = Fraction(found[1]) * 1024 ** "BKMGTP".index((found[2] or "B").upper())
    if found[2] is None and count.denominator != 1:
        raise AllocsimError(f"{text!r} is no whole number of bytes")
    if count > 1 << 62:
        raise AllocsimError(f"{text!r} exceeds 2^62 bytes")
    return int(count)


def in_bytes(count: int) -> str:
    """Return a size as people read it, `12.3 MiB`, exact below 1 KiB."""
    size = float(count)
    for unit in UNITS:
        if abs(size) < 1024 or unit == UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{size:.4g} {unit}"
        size /= 1024
    raise AssertionError


def in_growth(count: int) -> str:
    """Return by how much a size grows, as people read it: `+12.3 MiB`, `-64 B`, `+0 B`."""
    return f"{'+' if count >= 0 else '-'}{in_bytes(abs(count))}"
