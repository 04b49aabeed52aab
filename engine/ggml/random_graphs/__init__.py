"""Random graphs through the real planners of ggml.

`graph_generator` draws them, `graph_recipes` stores them, `graph_fuzzing` runs and judges them, and
`recipe_shrinking` reduces a failing one.
"""
