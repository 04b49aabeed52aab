"""IREE: its stream dialect before and after slices are laid out, read as programs and plans.

`iree_text` reads the dialect as text, `iree_stream` says what it means.

What this package does not see: a compiler that runs.
"""
