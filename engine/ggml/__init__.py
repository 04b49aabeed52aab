"""A bridge to real ggml: load a libggml, run its graphs, capture its plans, audit its kernels.

Contract: the only door to ggml is ctypes; nothing is compiled. A library is probed in a child
process before anything of it is believed (`probe`), calls that may abort run in a child (`child`),
and public functions are preferred to struct fields wherever one exists. Offsets are bytes from the
base of the backend buffer; steps are positions in ggml's node list.
"""
