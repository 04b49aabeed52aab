"""Text of others on one line: names come from files, and nothing in them breaks a line, steers a
terminal or makes markup.

What this module does not see: where the line goes.
"""


def one_line(text: str) -> str:
    """Return text with whatever does not print spelled out."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


__all__ = ["one_line"]
