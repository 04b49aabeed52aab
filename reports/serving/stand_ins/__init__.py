"""What of numpy and msgspec the verdict and the explorer ask for, in plain Python.

A browser's Python finds these in the place of the packages; nothing else does.
"""
