"""How programs come to be: row by row, recorded from a run, or from a networkx graph.

What streams they take, and which is which.
"""
