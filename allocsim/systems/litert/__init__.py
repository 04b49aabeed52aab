"""LiteRT and TensorFlow Lite: models with their offline plans, pointers of a live interpreter, and
its planner, asked.

| module | what it holds |
|---|---|
| `tflite`, `tflite_file` | a `.tflite` model as programs, and its fields |
| `litert_pointers` | the pointers that a live interpreter gave its tensors |
| `record_litert` | writes those down, in the interpreter that has it |
| `tflite_in_place` | which kernels write over an operand |
| `ask_litert` | the interpreter's planner, asked in the interpreter that has it |

What this package does not see: numbers.
"""
