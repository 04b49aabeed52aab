"""Access to a libggml: find it, type it, check it, call it in a process of its own.

| file | what it holds |
|---|---|
| `library.py`, `declarations.py`, `structs.py` | the library as one handle, its functions and its structs |
| `child.py` | calls in a process of their own |
| `probe.py` | whether a library may be believed |
| `workspace.py` | graphs built, planned and run |
| `call_slots.py`, `llama_model.py` | calls seen from outside, and llama.cpp inside a library |
"""
