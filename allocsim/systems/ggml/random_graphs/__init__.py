"""Random graphs, planned by the real planners of ggml.

`graph_generator` draws graphs and `graph_recipes` stores them. `graph_trials` runs them in a fork,
where `placed_graph` finds most plans to be sound. `graph_fuzzing` judges the others, and
`recipe_shrinking` reduces a failing graph.
"""
