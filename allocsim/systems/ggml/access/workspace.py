"""Build, plan and run graphs on a real ggml: a thin typed layer over the C calls.

Contract
--------
* A tensor or graph is represented by its address in ggml (an `int`). A tensor or graph lives as
  long as its `LibraryWorkspace`, which frees all its objects in reverse order. No Python copy of
  ggml's state is kept.
* Shapes given to `Context.tensor` and the op builders are ggml's `ne`, fastest dimension first. The
  shape of a numpy array is in reverse order, fastest dimension last.
* An op builder is called by its name, for example `context.op("mul_mat", a, b)`. The signatures of
  builders are in `allocsim.systems.ggml.access.declarations`.
* A failed assertion of ggml aborts the process. Make calls that may fail in a child process
  (`allocsim.systems.ggml.access.child`).

Time is ggml's node order. This module does not read plans (`allocsim.systems.ggml.capture` does)
and does not judge them (`allocsim.judge` does).
"""

import ctypes
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.declarations import InitParams
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.structs import FLAGS, records

ELEMENTS: Final = {
    "f64": "<f8",
    "f32": "<f4",
    "f16": "<f2",
    "bf16": "<u2",
    "i64": "<i8",
    "i32": "<i4",
    "i16": "<i2",
    "i8": "i1",
}
"""ggml element type -> numpy type. A bf16 element is its 16 bits, which `get` widens to float32."""

WEIGHTS_USAGE: Final = 1
"""The value of `GGML_BACKEND_BUFFER_USAGE_WEIGHTS`."""

STATUS_SUCCESS: Final = 0

MODIFIERS: Final = {"soft_max_add_sinks": ("tensor", "tensor")}
"""Functions that change their first argument, a tensor, and return nothing. The table maps the name
without `ggml_` to the arguments, as words of `TYPES`.
"""


class LibraryWorkspace:
    """The contexts, buffers, planners and the CPU backend of one library, which are freed together.

    Use as a context manager.
    """

    def __init__(self, library: Library, *, threads: int = 1) -> None:
        self.library, self.threads = library, threads
        self._stack = ExitStack()
        self._kept: list[Any] = []
        self.backend = self.own(library.ggml_backend_cpu_init(), library.ggml_backend_free, "CPU backend")
        library.ggml_backend_cpu_set_n_threads(self.backend, threads)
        self.buffer_type: int = library.ggml_backend_cpu_buffer_type()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free all objects of the workspace, the last made first."""
        self._stack.close()
        self._kept.clear()

    def own(self, pointer: int | None, free: Callable[[int], Any], what: str) -> int:
        """Return `pointer`, which `close` frees; raise EngineError if it is NULL."""
        if not pointer:
            raise EngineError(f"ggml {self.library.version} returned no {what}")
        self._stack.callback(free, pointer)
        return pointer

    def keep(self, thing: Any) -> None:
        """Keep a Python object alive until the workspace is closed: the library uses its memory."""
        self._kept.append(thing)

    def context(self, *, tensors: int = 4096, graph_size: int = 0, gradients: bool = False) -> "Context":
        """Return a context with room for `tensors` tensors and one graph of `graph_size` nodes.

        The context has room for structs only, and none for the elements of tensors.
        """
        library = self.library
        size = library.ggml_tensor_overhead() * tensors
        size += library.ggml_graph_overhead_custom(graph_size, gradients) if graph_size else 0
        pointer = library.ggml_init(InitParams(size, None, True))
        return Context(self, self.own(pointer, library.ggml_free, "context"))

    def apart(self, context: "Context", *, weights: bool = False) -> int:
        """Place all tensors of a context that have no memory yet in a new buffer, without overlap,
        and return the buffer (`ggml_backend_alloc_ctx_tensors`). If `weights` is true, the buffer
        gets the usage WEIGHTS.
        """
        library = self.library
        buffer = library.ggml_backend_alloc_ctx_tensors(context.pointer, self.backend)
        self.own(buffer, library.ggml_backend_buffer_free, "buffer for a context's tensors")
        if weights:
            library.ggml_backend_buffer_set_usage(buffer, WEIGHTS_USAGE)
        return int(buffer)

    def memory(self, nbytes: int) -> int:
        """Return a new CPU buffer of `nbytes` bytes. The caller places tensors in this buffer
        (`ggml_backend_tensor_alloc`).
        """
        buffer = self.library.ggml_backend_buft_alloc_buffer(self.buffer_type, nbytes)
        return self.own(buffer, self.library.ggml_backend_buffer_free, f"buffer of {nbytes} bytes")

    def planner(self) -> int:
        """Return a new gallocr over the CPU buffer type."""
        return self.own(
            self.library.ggml_gallocr_new(self.buffer_type), self.library.ggml_gallocr_free, "graph allocator"
        )

    def allocate(self, planner: int, graph: int) -> None:
        """Plan a graph and give its tensors their addresses (`ggml_gallocr_alloc_graph`).

        Raises EngineError if ggml could not allocate the graph.
        """
        if not self.library.ggml_gallocr_alloc_graph(planner, graph):
            raise EngineError(f"ggml {self.library.version} could not allocate the graph")

    def scheduler(self, *, graph_size: int, before: tuple[int, int] | None = None, pipelined: bool = False) -> int:
        """Return a new backend scheduler over the CPU backend and, if given, the backend `before`.

        `before` is a backend and its buffer type. The scheduler prefers this backend to the CPU. A
        `pipelined` scheduler keeps several copies of each tensor that goes from one backend to
        another.
        """
        pairs = [*([before] if before else []), (self.backend, self.buffer_type)]
        backends, types = ((ctypes.c_void_p * len(pairs))(*column) for column in zip(*pairs, strict=True))
        pointer = self.library.ggml_backend_sched_new(
            ctypes.addressof(backends), ctypes.addressof(types), len(pairs), graph_size, pipelined, False
        )
        return self.own(pointer, self.library.ggml_backend_sched_free, "scheduler")

    def schedule(self, scheduler: int, graph: int) -> None:
        """Plan a graph through a scheduler and give its tensors their addresses.

        Raises EngineError if ggml could not schedule the graph.
        """
        if not self.library.ggml_backend_sched_alloc_graph(scheduler, graph):
            raise EngineError(f"ggml {self.library.version} could not schedule the graph")

    def compute_scheduled(self, scheduler: int, graph: int) -> None:
        """Run a scheduled graph; raise EngineError if the status is not success."""
        self._succeeded(self.library.ggml_backend_sched_graph_compute(scheduler, graph))

    def compute(self, graph: int) -> None:
        """Run an allocated graph on the CPU backend.

        Raises EngineError if the status is not success.
        """
        self._succeeded(self.library.ggml_backend_graph_compute(self.backend, graph))

    def compute_node(self, single: int, tensor: int) -> None:
        """Run the kernel of one tensor by making it the only node of the graph `single`."""
        ctypes.c_uint64.from_address(self.library.ggml_graph_nodes(single)).value = tensor
        self.compute(single)

    def _succeeded(self, status: int) -> None:
        if status != STATUS_SUCCESS:
            raise EngineError(f"ggml {self.library.version} computed the graph with status {status}")

    def put(self, tensor: int, array: NDArray[Any]) -> None:
        """Copy an array into a contiguous tensor; raise EngineError if their byte counts differ."""
        array = np.ascontiguousarray(array)
        nbytes = self.library.ggml_nbytes(tensor)
        if array.nbytes != nbytes:
            raise EngineError(f"tensor {self.name(tensor)!r} holds {nbytes} bytes; the array has {array.nbytes}")
        self.library.ggml_backend_tensor_set(tensor, array.ctypes.data, 0, nbytes)

    def get(self, tensor: int) -> NDArray[Any]:
        """Return a copy of a tensor's elements in numpy's order of dimensions, the reverse of
        ggml's.

        The tensor may have any strides. Raises EngineError if `ELEMENTS` lacks the tensor's type.
        """
        record = records([tensor])[0]
        nbytes = self.library.ggml_nbytes(tensor)
        raw = np.empty(nbytes, dtype=np.uint8)
        self.library.ggml_backend_tensor_get(tensor, raw.ctypes.data, 0, nbytes)
        kind = bytes(self.library.ggml_type_name(int(record["type"]))).decode()
        if kind not in ELEMENTS:
            raise EngineError(f"elements of type {kind} are not read back; the bridge knows {', '.join(ELEMENTS)}")
        dtype = np.dtype(ELEMENTS[kind])
        shape = tuple(int(n) for n in record["ne"][::-1])
        strides = tuple(int(n) for n in record["nb"][::-1])
        elements = np.ndarray(shape, dtype=dtype, buffer=raw.data, strides=strides).copy()
        return (elements.astype(np.uint32) << 16).view(np.float32) if kind == "bf16" else elements

    def name(self, tensor: int) -> str:
        """Return the name that ggml stores in a tensor."""
        return bytes(self.library.ggml_get_name(tensor)).decode(errors="replace")

    def nodes(self, graph: int) -> list[int]:
        """Return the nodes of a graph in execution order."""
        library = self.library
        return [library.ggml_graph_node(graph, index) for index in range(library.ggml_graph_n_nodes(graph))]

    def pin(self, tensors: Iterable[int]) -> None:
        """Flag tensors as OUTPUT: the planner never frees them or reuses their bytes in place."""
        for tensor in tensors:
            self.library.ggml_set_output(tensor)


class Context:
    """A ggml context: it holds the structs of tensors and graphs, but no elements."""

    def __init__(self, workspace: LibraryWorkspace, pointer: int) -> None:
        self.workspace = workspace
        self.pointer = pointer
        self._library = workspace.library

    def tensor(self, dtype: str, *ne: int, name: str = "", flag: str = "") -> int:
        """Make a tensor of ggml type `dtype` and dimensions `ne`.

        `flag` has the names of flags, separated by spaces: input, output, param or loss.
        """
        library = self._library
        dims = (ctypes.c_int64 * len(ne))(*ne)
        pointer = library.ggml_new_tensor(self.pointer, library.type_number(dtype), len(ne), ctypes.addressof(dims))
        return self._made(pointer, "new_tensor", name, flag)

    def op(self, builder: str, *arguments: Any, name: str = "", flag: str = "") -> int:
        """Call `ggml_<builder>(context, *arguments)` and return the tensor that the call made.

        A tuple or list of integers is passed as a C array. A builder of `MODIFIERS` takes no
        context and makes no tensor; the call returns the tensor that it changed.
        """
        arrays = [(ctypes.c_int * len(a))(*a) if isinstance(a, tuple | list) else None for a in arguments]
        passed = [a if array is None else ctypes.addressof(array) for a, array in zip(arguments, arrays, strict=True)]
        if builder in MODIFIERS:
            getattr(self._library, f"ggml_{builder}")(*passed)
            return int(arguments[0])
        pointer = getattr(self._library, f"ggml_{builder}")(self.pointer, *passed)
        return self._made(pointer, builder, name, flag)

    def graph(self, *tensors: int, size: int, gradients: bool = False) -> int:
        """Make a graph that computes these tensors, with room for `size` nodes and leafs."""
        graph = self._made(self._library.ggml_new_graph_custom(self.pointer, size, gradients), "graph", "", "")
        for tensor in tensors:
            self._library.ggml_build_forward_expand(graph, tensor)
        return graph

    def checked(self, pointer: int | None) -> int:
        """Return the address of a tensor that a call made in this context.

        Raises EngineError if the address is NULL.
        """
        return self._made(pointer, "tensor", "", "")

    def _made(self, pointer: int | None, what: str, name: str, flag: str) -> int:
        if not pointer:
            raise EngineError(f"ggml {self._library.version} made no {what}: the context is full")
        if name:
            self._library.ggml_set_name(pointer, name.encode())
        for word in flag.split():
            self.flag(pointer, word)
        return pointer

    def saved(self) -> bytes:
        """Return a copy of the structs of all tensors and graphs in the context, for `restore`."""
        return ctypes.string_at(
            self._library.ggml_get_mem_buffer(self.pointer), self._library.ggml_used_mem(self.pointer)
        )

    def restore(self, structs: bytes) -> None:
        """Copy the structs that `saved` returned back into the context: a graph that was planned
        since is unplanned. Tensors made since are lost; elements do not change.
        """
        ctypes.memmove(self._library.ggml_get_mem_buffer(self.pointer), structs, len(structs))

    def flag(self, tensor: int, flag: str) -> None:
        """Set one flag of a tensor through ggml's setter; raise EngineError for an unknown flag."""
        if flag not in FLAGS or flag == "compute":
            raise EngineError(f"flag {flag!r} is none of input, output, param, loss")
        getattr(self._library, f"ggml_set_{flag}")(tensor)
