"""LiteRT and TensorFlow Lite: models with their offline plans, the tensor pointers of a running
interpreter, and its planner, asked live.

| module | what it holds |
|---|---|
| `tflite`, `tflite_file` | a `.tflite` model as programs, and its fields |
| `litert_pointers` | the pointers that a LiteRT interpreter gave its tensors |
| `record_litert` | a script that records these pointers, run by the Python that has LiteRT |
| `tflite_in_place` | the kernels that may write their result over an operand |
| `ask_litert` | the interpreter's planner, run by the Python that has LiteRT |

What this package does not see: the numbers that a model computes.
"""
