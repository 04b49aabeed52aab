"""`ctypes_host.py LIBRARY wrong|right named|bound`: a graph is run again after a larger one was planned in its memory,
which was replaced, by ctypes' own handles. `bound`: what the library calls of itself goes by no name.
"""

import ctypes
import os
import sys

N = 64
Pointer, Size = ctypes.c_void_p, ctypes.c_size_t


class Params(ctypes.Structure):
    """`ggml_init_params`."""

    _fields_ = (("mem_size", Size), ("mem_buffer", Pointer), ("no_alloc", ctypes.c_bool))


library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | (os.RTLD_DEEPBIND if sys.argv[3] == "bound" else 0))
wrong = sys.argv[2] == "wrong"


def call(name, result, *arguments):
    """Call a function of ggml."""
    function = getattr(library, name)
    function.restype, function.argtypes = result, [kind for kind, _ in arguments]
    return function(*(value for _, value in arguments))


def chain(count):
    """Make a graph whose input is read first, and its memory taken."""
    room = call("ggml_init", Pointer, (Params, Params(1 << 20, None, True)))
    x = last = call("ggml_new_tensor_1d", Pointer, (Pointer, room), (ctypes.c_int, 0), (ctypes.c_int64, count))
    call("ggml_set_input", None, (Pointer, x))
    for name in ("ggml_sqr", "ggml_cont") * 4:
        last = call(name, Pointer, (Pointer, room), (Pointer, last))
    call("ggml_set_output", None, (Pointer, last))
    graph = call("ggml_new_graph", Pointer, (Pointer, room))
    call("ggml_build_forward_expand", None, (Pointer, graph), (Pointer, last))
    return x, last, graph


def planner():
    """Make a planner of its own."""
    return call("ggml_gallocr_new", Pointer, (Pointer, call("ggml_backend_cpu_buffer_type", Pointer)))


def plan(by, graph):
    """Plan a graph."""
    call("ggml_gallocr_alloc_graph", ctypes.c_bool, (Pointer, by), (Pointer, graph))


def upload(x, count):
    """Fill an input."""
    data = (ctypes.c_float * count)(*[1.25] * count)
    place = (Pointer, x), (Pointer, ctypes.addressof(data)), (Size, 0), (Size, 4 * count)
    call("ggml_backend_tensor_set", None, *place)


def run(graph, out):
    """Compute a graph and read from it."""
    found = (ctypes.c_float * N)()
    call("ggml_backend_graph_compute", ctypes.c_int, (Pointer, cpu), (Pointer, graph))
    place = (Pointer, out), (Pointer, ctypes.addressof(found)), (Size, 0), (Size, 4 * N)
    call("ggml_backend_tensor_get", None, *place)


cpu = call("ggml_backend_cpu_init", Pointer)
(x, out, graph), (wide, wide_out, larger) = chain(N), chain(4 * N)
first = planner()
plan(first, graph)
upload(x, N)
run(graph, out)
plan(first if wrong else planner(), larger)
upload(wide, 4 * N)
run(larger, wide_out)
if not wrong:
    upload(x, N)
run(graph, out)
