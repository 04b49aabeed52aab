"""Random graphs, planned by the real planners of ggml.

`graph_generator` draws graphs and `graph_recipes` stores them. `graph_trials` runs them in a fork,
where `placed_graph` proves most plans sound. `graph_fuzzing` judges the other plans, and
`recipe_shrinking` reduces a failing graph.
"""
