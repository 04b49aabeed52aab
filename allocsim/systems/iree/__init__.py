"""IREE: its stream dialect before and after slices are laid out, read as programs and plans.

`iree_text` parses the text of the dialect; `iree_stream` makes programs and plans of it.

What this package does not see: it runs no compiler.
"""
