"""Numbers of bytes as people write them.

What this module does not see: how they are printed (`allocsim.cli.output`).
"""

import re
from fractions import Fraction

from allocsim.errors import AllocsimError


def bytes_of(text: str) -> int:
    """Return the bytes a user means by `4096`, `64KiB`, `1.5 MiB` or `2G`; units are powers of 1024, what they leave of a byte is cut off.

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
