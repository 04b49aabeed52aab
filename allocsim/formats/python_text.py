"""Parse Python text to a syntax tree, for formats written in Python; the text is not executed.

This module does not examine the meaning of the text.
"""

import ast
import warnings
from typing import Final

from allocsim.allowances import charge
from allocsim.errors import DocumentError

WORDS: Final = bytes(code for code in range(256) if code > 127 or chr(code).isalnum() or chr(code) in "_ \t'\"")
"""The bytes that do not count as tokens; a tree has at most two nodes for each other byte."""


def parsed(data: bytes, source: str) -> ast.Module:
    """Return the syntax tree of a text; raise DocumentError if the text is not Python. O(size).

    A token takes up to one kilobyte in the tree, and a line up to two; both are charged before
    parsing.
    """
    charge("token", len(data.translate(None, WORDS)) + data.count(b"\n"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's warnings about the text are not reported
            return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DocumentError(source, "", f"is not Python text: {str(error)[:200]}") from None


def refusal(source: str, row: ast.AST, rule: str) -> DocumentError:
    """Return an error that names the line of a node of the tree and the rule broken there."""
    return DocumentError(source, f"line {getattr(row, 'lineno', 0)}", " ".join(rule.split()))
