"""A planned ggml graph, taken out of a running library.

`graph_rows` gives plain rows, `graph_document` an allocsim document.
"""
