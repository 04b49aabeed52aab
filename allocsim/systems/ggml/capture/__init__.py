"""Read a planned ggml graph from the memory of a running library.

`graph_rows` returns the graph as plain rows, `graph_document` as an allocsim document.
"""
