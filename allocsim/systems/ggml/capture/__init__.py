"""A planned ggml graph, read from the memory of a running library.

`graph_rows` returns it as plain rows, `graph_document` as an allocsim document.
"""
