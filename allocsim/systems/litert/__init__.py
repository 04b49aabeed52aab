"""LiteRT and TensorFlow Lite support: readers of models with offline plans and of an interpreter's
tensor pointers, and a live call of the interpreter's planner.

| module | what it holds |
|---|---|
| `tflite`, `tflite_file` | make programs from a `.tflite` model, and read its fields |
| `litert_pointers` | reads the pointers that a LiteRT interpreter gave its tensors |
| `record_litert` | a script that records these pointers; run it with a Python that has LiteRT |
| `tflite_in_place` | lists the kernels that may write their result over an operand |
| `ask_litert` | calls the interpreter's planner, in a Python that has LiteRT |

What this package does not see: the numbers that a model computes.
"""
