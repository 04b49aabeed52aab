"""IREE: readers of its stream dialect before and after slices are placed, as programs and plans.

`iree_text` parses the text of the dialect; `iree_stream` makes programs and plans of the commands.

What this package does not see: IREE's own decisions, because it runs no compiler.
"""
