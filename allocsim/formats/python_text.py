"""Python text as a syntax tree, for formats that are written in Python; no code of it is run.

This module does not examine the meaning of the text.
"""

import ast
import warnings
from typing import Final

from allocsim.allowances import charge
from allocsim.errors import DocumentError

WORDS: Final = bytes(code for code in range(256) if code > 127 or chr(code).isalnum() or chr(code) in "_ \t'\"")
"""Bytes that begin no token of their own; a tree has at most two nodes for each other byte."""


def parsed(data: bytes, source: str) -> ast.Module:
    """Return the syntax tree of a text; raise DocumentError where it is no Python. O(size).

    In the tree a token takes up to a kilobyte and a line two; both are charged before parsing.
    """
    charge("token", len(data.translate(None, WORDS)) + data.count(b"\n"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's warnings about the text are no findings
            return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DocumentError(source, "", f"is no Python text: {str(error)[:200]}") from None


def refusal(source: str, row: ast.AST, rule: str) -> DocumentError:
    """Return the error that names the line of a node of the tree and the rule that it breaks."""
    return DocumentError(source, f"line {getattr(row, 'lineno', 0)}", " ".join(rule.split()))
