"""Random graphs through the real planners of ggml.

`graph_generator` draws them, `graph_recipes` stores them, `graph_trials` runs them in a fork, where
`placed_graph` clears most plans, `graph_fuzzing` judges the rest, and `recipe_shrinking` reduces a
failing one.
"""
