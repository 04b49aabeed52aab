"""Random graphs through the real planner of ggml: drawn (`graph_generator`), kept (`graph_recipes`), run (`graph_fuzzing`), made small."""
