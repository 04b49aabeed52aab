"""Text in a cell of a CSV file that a spreadsheet may open.

A spreadsheet runs a cell that begins with `=`, `+`, `-` or `@` as a formula, whoever chose the
name in it; a terminal obeys ESC; marks of direction and of zero width make a name look like another
one. Numbers stay as they are, so that a program reads the same columns as before.

Source: OWASP, CSV Injection.

What this module does not see: commas and quotes; the writer of the file quotes.
"""

import re
import unicodedata
from typing import Final

_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?inf|nan", re.ASCII)
_FORMULA: Final = ("=", "+", "-", "@")


def cell(value: object) -> object:
    """Return what stands for a value in a cell; O(length).

    What is no text is returned as it is, and so is text that spells a number. Of other text each
    character that does not print is written as its escape, and an apostrophe stands before what
    would be a formula, in wide forms of its first character too.
    """
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    text = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in value)
    return f"'{text}" if unicodedata.normalize("NFKC", text.lstrip()[:1]).startswith(_FORMULA) else text


def is_plain(text: str) -> bool:
    """Return whether text may stand in a cell as it is."""
    return cell(text) == text


__all__ = ["cell", "is_plain"]
