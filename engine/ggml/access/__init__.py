"""The way to a libggml: find and type it, check it, call it in a process that may die, build and run graphs in it.

| file | what it holds |
|---|---|
| `library.py`, `declarations.py`, `structs.py` | the library as one handle, its functions and its structs |
| `child.py` | calls in a process of their own |
| `probe.py` | whether a library may be believed |
| `workspace.py` | graphs built, planned and run |
"""
