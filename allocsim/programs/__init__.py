"""Makes programs: row by row, from a recorded run, from a trace, or from a networkx graph.

It also spreads programs over streams, joins those of several ranks, and fingerprints them.
"""
