"""Python text as a syntax tree, for formats that are written in Python; nothing of it is run.

What this module does not see: what the text says.
"""

import ast
import warnings
from typing import Final

from allocsim.allowances import charge
from allocsim.errors import DocumentError

WORDS: Final = bytes(code for code in range(256) if code > 127 or chr(code).isalnum() or chr(code) in "_ \t'\"")
"""Bytes that begin no token of their own: a tree has no more parts than twice the others."""


def parsed(data: bytes, source: str) -> ast.Module:
    """Return the tree of a text; raises DocumentError for what is none. O(size of the text).

    A token takes up to a kilobyte as a tree, a line two: both are charged before they are made.
    """
    charge("token", len(data.translate(None, WORDS)) + data.count(b"\n"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of the text is no finding
            return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DocumentError(source, "", f"is no Python text: {str(error)[:200]}") from None


def refusal(source: str, row: ast.AST, rule: str) -> DocumentError:
    """Return the error that names the line of a part of the tree and the rule that it breaks."""
    return DocumentError(source, f"line {getattr(row, 'lineno', 0)}", " ".join(rule.split()))
