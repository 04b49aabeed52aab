"""Python text as a syntax tree, for formats that are written in Python; nothing of it is run.

What this module does not see: what the text says.
"""

import ast
import warnings

from allocsim.errors import DocumentError


def parsed(data: bytes, source: str) -> ast.Module:
    """Return the tree of a text; raises DocumentError for what is none. O(size of the text)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of the text is no finding
            return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DocumentError(source, "", f"is no Python text: {str(error)[:200]}") from None


def refusal(source: str, row: ast.AST, rule: str) -> DocumentError:
    """Return the error that names the line of a part of the tree and the rule that it breaks."""
    return DocumentError(source, f"line {getattr(row, 'lineno', 0)}", " ".join(rule.split()))
