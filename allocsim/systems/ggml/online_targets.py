"""Allocators of a real libggml as online targets (`allocsim fuzz --online`).

| target | the allocator that is tested | a block |
|---|---|---|
| `NAME:after.graph` | `ggml_gallocr`, and the `ggml_dyn_tallocr` in it | a node of a graph |
| `NAME:after.tensors` | `ggml_tallocr`, which places tensors one after another in a buffer | a tensor |

NAME is `allocsim.systems.ggml.online_targets`; `before` and `after` are the libraries of
`allocsim.systems.ggml.access`.

A graph allocator plans a whole graph, and frees a node's memory after the last node that reads the
node. So this module keeps a graph of all requests so far: a node without operands for each block,
and for each freed block a node of 0 bytes that reads the block. No planner runs these ops in place.
Each request adds one node to the graph and passes the graph to a fresh `ggml_gallocr`. If a held
block has another address in the longer graph, ValueError is raised. If the new block ends beyond
the capacity, the request fails, and the block's node is removed again.

A tensor allocator frees nothing; once no block is held, this module makes a new allocator over the
same buffer. A tensor allocator aborts the process if a tensor does not fit. So this module first
checks, with the offset in the allocator's struct, that the tensor fits.

Both allocators use the buffer type's alignment (32 bytes on a CPU). For a larger alignment this
module requests more bytes and rounds the address up, as ggml's callers do.

Addresses are bytes from the base of the buffer. A request to a graph allocator is O(calls so far).
What this module does not see: what an allocator promises (`allocsim.online`); several buffers, and
in-place ops (`allocsim.systems.ggml.random_graphs`).
"""

import ctypes
from functools import cached_property
from typing import Any, Final, Self

from allocsim.systems.ggml.access.declarations import InitParams
from allocsim.systems.ggml.access.library import Library, load

LARGEST: Final = 1 << 26
"""Size in bytes of the buffer of a target without a capacity."""

_TENSORS: Final = 256
"""The number of further tensors for which a context has room besides the requested number."""


class _Nodes:
    """A graph allocator that plans one graph after another, each longer by one node."""

    def __init__(self, library: Library, capacity: int) -> None:
        self._library, self._capacity = library, capacity
        self._calls: list[tuple[int, int]] = [(1, -1)]
        """For each node (bytes, the node that it reads or -1); the first node is at offset 0."""
        self._places: dict[int, int] = {0: 0}
        """Held node -> its offset."""

    def placed(self, nbytes: int) -> tuple[int, int] | None:
        """Return a new node and its offset, counted from the end of the first node's bytes.

        None if the node does not fit.
        """
        node = len(self._calls)
        self._calls.append((nbytes, -1))
        first = self._library.ggml_backend_buft_get_alignment(self._library.ggml_backend_cpu_buffer_type())
        found = self._planned()
        for held, place in self._places.items():
            if found[held] != place:
                raise ValueError(f"node {held} moved from {place} to {found[held]} while it was held")
        if found[node] + nbytes > self._capacity + first:
            self._calls.pop()
            return None
        self._places[node] = found[node]
        return node, found[node] - first

    def gone(self, node: int) -> None:
        """Free a node: add the last reader of the node to the graph."""
        self._calls.append((0, node))
        del self._places[node]

    def _planned(self) -> list[int]:
        """Return the offset that a fresh graph allocator gives each node."""
        library = self._library
        with _Context(library, len(self._calls)) as context:
            graph = library.ggml_new_graph_custom(context.at, len(self._calls), False)
            nodes: list[int] = []
            for nbytes, read in self._calls:
                nodes.append(context.node(nbytes, None if read < 0 else nodes[read]))
                library.ggml_build_forward_expand(graph, nodes[-1])
            allocator = library.ggml_gallocr_new(library.ggml_backend_cpu_buffer_type())
            if not library.ggml_gallocr_alloc_graph(allocator, graph):
                raise MemoryError("ggml_gallocr_alloc_graph found no memory")
            places = [library.ggml_get_data(node) for node in nodes]
            library.ggml_gallocr_free(allocator)
        return [(place or 0) - places[0] for place in places]


class _Tensors:
    """A tensor allocator over one buffer, replaced by a new one when no block is held."""

    def __init__(self, library: Library, capacity: int) -> None:
        self._library = library
        self._buffer = library.ggml_backend_buft_alloc_buffer(library.ggml_backend_cpu_buffer_type(), capacity)
        self._size = library.ggml_backend_buffer_get_size(self._buffer)
        self._new = library.ggml_tallocr_new(self._buffer)
        self._held = 0

    def placed(self, nbytes: int) -> tuple[None, int] | None:
        """Return the offset of a new tensor; None if the tensor does not fit."""
        allocator, library = self._new, self._library
        if allocator.offset + -(-nbytes // allocator.alignment) * allocator.alignment > self._size:
            return None
        with _Context(library, 1) as context:
            tensor = context.tensor(nbytes)
            if library.ggml_tallocr_alloc(ctypes.addressof(allocator), tensor):
                raise MemoryError("ggml_tallocr_alloc failed")
            place = library.ggml_get_data(tensor)
        self._held += 1
        return None, place - allocator.base

    def gone(self, _block: None) -> None:
        """Free a block; after the last held block, make a new allocator over the same buffer."""
        self._held -= 1
        if not self._held:
            self._new = self._library.ggml_tallocr_new(self._buffer)

    def __del__(self) -> None:
        self._library.ggml_backend_buffer_free(self._buffer)


class _Context:
    """A ggml context with room for `tensors` tensors and a graph of them."""

    def __init__(self, library: Library, tensors: int) -> None:
        self._library = library
        room = (tensors + _TENSORS) * library.ggml_tensor_overhead()
        size = room + library.ggml_graph_overhead_custom(tensors, False)
        self.at = library.ggml_init(InitParams(size, None, True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.ggml_free(self.at)

    def tensor(self, nbytes: int) -> int:
        """Return a new tensor of `nbytes` bytes."""
        return int(self._library.ggml_new_tensor_1d(self.at, self._library.types["i8"], nbytes))

    def node(self, nbytes: int, read: int | None) -> int:
        """Return a new node of `nbytes` bytes that reads the node `read`, or no node."""
        operands = (ctypes.c_void_p * 1)(read)
        kind, count = self._library.types["i8"], int(read is not None)
        at = ctypes.addressof(operands)
        return int(self._library.ggml_custom_4d(self.at, kind, nbytes, 1, 1, 1, at, count, None, 1, None))


class _Online:
    """An online target with blocks at any alignment, over an allocator with a fixed alignment."""

    def __init__(self, inner: _Nodes | _Tensors, usual: int) -> None:
        self._inner, self._usual = inner, usual
        self._blocks: dict[int, Any] = {}
        """Address -> the block that begins at the address."""

    def alloc(self, nbytes: int, alignment: int, stream: int, tag: str) -> int | None:  # noqa: ARG002 - there are no streams
        """Return the address of a new block; None if the block does not fit."""
        found = self._inner.placed(nbytes + max(alignment - self._usual, 0))
        if found is None:
            return None
        block, low = found
        address = -(-low // alignment) * alignment
        self._blocks[address] = block
        return address

    def free(self, address: int, stream: int) -> None:  # noqa: ARG002 - there are no streams
        """Free the block at an address."""
        self._inner.gone(self._blocks.pop(address))


class Driven:
    """The online targets of one library; `which` is the library's name or path, as for `load`."""

    def __init__(self, which: str) -> None:
        self._which = which

    @cached_property
    def _library(self) -> Library:
        return load(self._which)

    def graph(self, capacity: int | None, _alignment: int, _device: Any) -> _Online:
        """Make a graph allocator."""
        return self._made(_Nodes, capacity)

    def tensors(self, capacity: int | None, _alignment: int, _device: Any) -> _Online:
        """Make a tensor allocator."""
        return self._made(_Tensors, capacity)

    def _made(self, inner: type[_Nodes | _Tensors], capacity: int | None) -> _Online:
        library = self._library
        usual = library.ggml_backend_buft_get_alignment(library.ggml_backend_cpu_buffer_type())
        return _Online(inner(library, LARGEST if capacity is None else capacity), usual)


before, after = Driven("before"), Driven("after")

__all__ = ["LARGEST", "Driven", "after", "before"]
