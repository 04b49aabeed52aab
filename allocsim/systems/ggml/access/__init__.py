"""Access to a libggml: find the library file, declare its functions, probe it, and call it in a
child process.

| file | what it holds |
|---|---|
| `library.py`, `declarations.py`, `structs.py` | the library as one handle, its functions and its structs |
| `child.py` | calls that run in a child process |
| `probe.py` | the check that a library has the structs and rules that the bridge assumes |
| `workspace.py` | graphs built, planned and run |
| `call_slots.py`, `llama_model.py` | interception of a program's calls, and llama.cpp inside a library |
"""
