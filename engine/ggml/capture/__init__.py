"""A planned ggml graph taken out of a live library: `graph_rows` as plain rows, `graph_document` as an allocsim document."""
