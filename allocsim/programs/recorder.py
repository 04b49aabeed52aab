"""Turns a run of your own numpy runtime into a program and a plan: tell the recorder each call with
its arrays.

    recorder = allocsim.Recorder("step", pools={"scratch": memory})
    recorder.upload(x)
    recorder.call("exp", reads=[x], writes=[h])
    recorder.download(h)
    program, plan = recorder.finish()
    allocsim.verify_program(program, plan)

What memory says, and what it cannot say
----------------------------------------
Addresses, shapes and strides come from the arrays. Memory does not say *which tensor a call means*:
if `y` has overwritten `h` at one address, the bytes there are `y`'s, also for a call that means
`h`. So the first of these rules that applies decides which tensor an array is:

1. it is given with a name, `("h", array)`: the tensor of that name (at another address: another
   tensor of that name);
2. it is the same array object as in an earlier call: the same tensor;
3. it lies in a pool (memory your runtime hands out in pieces): written, it is a new tensor; read,
   it is a view of the tensor last written there;
4. elsewhere it lies in the tensor of its whole allocation (the array at the end of `.base`).

So in a pool keep one array object for each tensor, or give names. With a new object at every call,
a late reader of `h` looks like a reader of `y`.

A call that writes all of a tensor without reading it begins a new buffer there, so that a loop does
not keep its temporaries alive. A call that writes a part of a tensor, or also reads it, makes a new
value in the same buffer. Memory with several buffers is an arena of the program, with slots in the
plan; a buffer alone in its allocation has memory of its own. An array whose dtype a document does
not have is recorded as its bytes.

The recorder keeps every array it is given alive. O(tensors) for rule 3, O(1) for the others.

What this module does not see: calls that were not recorded, and data.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import ModelError
from allocsim.model import DTYPE_CODES, HOST_READ, HOST_WRITE, ITEMSIZES, VIEW, Arena, Plan, Program, Role
from allocsim.model.layout import byte_runs, hull
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.programs.dtype_names import dtype_of

Array = NDArray[Any]
Item = Array | tuple[str, Array]
"""An array, or (name of its tensor, array)."""

Layout = tuple[str, tuple[int, ...], tuple[int, ...], int]
"""dtype, shape, strides in bytes, address of element 0."""


@dataclass(slots=True, eq=False)
class _Memory:
    """An allocation, or a pool."""

    low: int
    high: int
    pool: str | None


@dataclass(slots=True, eq=False)
class _Buffer:
    """One life of a tensor, from a full overwrite to the next."""

    name: str
    memory: _Memory
    low: int
    high: int
    role: Role
    read_only: bool
    latest: int | None = None
    """The value last written or read in the buffer."""


@dataclass(slots=True, eq=False)
class _Tensor:
    """The tensor that a name or an array object stands for, with its current buffer."""

    buffer: _Buffer
    written: int = -1
    """Number of the call that wrote the tensor last."""


class Recorder:
    """Collects calls; `finish` turns them into a program and a plan."""

    def __init__(self, name: str = "recorded", *, pools: Mapping[str, Array] | None = None) -> None:
        """Begin.

        `pools` are the arrays from which your runtime cuts its tensors, by the name of the arena.
        """
        self._name = name
        self._pools = [_Memory(*_bounds(array), pool=pool) for pool, array in (pools or {}).items()]
        self._kept: list[Any] = list((pools or {}).values())
        self._roots: dict[int, _Memory] = {}
        self._starts: list[int] = []
        self._named: dict[str, _Tensor] = {}
        self._objects: dict[int, _Tensor] = {}
        self._whole: dict[int, _Tensor] = {}
        self._tensors: list[_Tensor] = []
        self._buffers: list[_Buffer] = []
        self._values: list[tuple[str, _Buffer, Layout]] = []
        self._ops: list[tuple[str, list[int], list[int], tuple[tuple[int, int], ...] | None, str]] = []
        self._number = 0

    def keep(self, item: Item, name: str, *, role: Role = Role.PARAMETER, read_only: bool | None = None) -> None:
        """Declare memory that holds its content before the run: a parameter (read-only unless said
        otherwise) or a state.

        Raises ModelError for a role that is not persistent, or memory that was recorded already.
        """
        if not role.persistent:
            raise ModelError(name, f"{role.name.lower()} is no role of memory that is kept; PARAMETER and STATE are")
        (item,) = _items("keep", (item,))
        array = item[1] if isinstance(item, tuple) else item
        if name in self._named or id(array) in self._objects:
            raise ModelError(name, "was recorded already")
        tensor = self._tensor(
            array, name, role=role, read_only=role == Role.PARAMETER if read_only is None else read_only
        )
        self._named[name] = self._objects[id(array)] = tensor
        self._whole.setdefault(tensor.buffer.memory.low, tensor)

    def upload(self, *items: Item) -> None:
        """Record that the host writes these arrays, one upload each."""
        for item in items:
            self.call(HOST_WRITE, writes=[item], name=item[0] if isinstance(item, tuple) else None)

    def download(self, *items: Item) -> None:
        """Record that the host reads these arrays, one read each."""
        for item in items:
            self.call(HOST_READ, reads=[item], name=item[0] if isinstance(item, tuple) else None)

    def view(self, parent: Item, child: Item) -> None:
        """Declare that an array in a pool is a view of another array's tensor; otherwise it might
        count as a tensor by itself.

        Raises ModelError if the parent was never recorded, or does not hold all of the child.
        """
        parent, child = _items("view", (parent, child))
        array = self._keep(child)
        tensor = self._find(parent)
        if tensor is None:
            raise ModelError("view", "the parent was in no call before")
        _inside(tensor.buffer, array)
        if isinstance(child, tuple):
            self._named[child[0]] = tensor
        self._objects[id(array)] = tensor

    def call(
        self,
        kind: str,
        reads: Iterable[Item] = (),
        writes: Iterable[Item] = (),
        *,
        in_place: Sequence[tuple[int, int]] | None = None,
        name: str | None = None,
    ) -> None:
        """Record a call, after or before it is made.

        Args:
            kind: the name of the kernel.
            reads: the arrays that it reads, by position.
            writes: the arrays that it writes, by position.
            in_place: pairs (position in reads, position in writes) that the kernel promises to be
                safe at one address; None if the promise is unknown: the judge then only warns of
                an exact alias.
            name: of the call, for people; the kind by default.

        Raises:
            ModelError: an argument is no array, or an array lies only partly in the tensor that the
                rules give, or only partly in a pool, or it shares bytes with another array and no
                array is the base of both.
        """
        reads, writes = _items("reads", reads), _items("writes", writes)
        read = [(self._of(item, write=False), self._keep(item)) for item in reads]
        operands = [self._read(tensor, array) for tensor, array in read]
        touched = {tensor.buffer for tensor, _ in read}
        wrote = [(self._of(item, write=True), self._keep(item)) for item in writes]
        results = [self._write(tensor, array, again=tensor.buffer in touched) for tensor, array in wrote]
        for tensor, _ in wrote:
            tensor.written = self._number
        pairs = None if in_place is None else tuple(in_place)
        self._ops.append((kind, operands, results, () if kind in (HOST_READ, HOST_WRITE) else pairs, name or kind))
        self._number += 1

    def finish(self) -> tuple[Program, Plan]:
        """Return the recorded program and its plan; the recorder can go on afterwards."""
        inside = Counter(buffer.memory.low for buffer in self._buffers)
        shared = [
            memory
            for memory in (*self._pools, *self._roots.values())
            if memory.pool is not None or inside[memory.low] > 1
        ]
        names = [memory.pool or f"memory {number}" for number, memory in enumerate(shared)]
        arenas = [Arena(name=n, capacity=m.high - m.low) for n, m in zip(names, shared, strict=True)]
        builder = ProgramBuilder(self._name, arenas=arenas or [Arena(name="cpu")])
        number = {memory.low: index for index, memory in enumerate(shared)}
        for buffer in self._buffers:
            builder.buffer(
                buffer.name,
                buffer.high - buffer.low,
                role=buffer.role,
                arena=number.get(buffer.memory.low, 0),
                alignment=1,
                read_only=buffer.read_only,
            )
        index = {id(buffer): place for place, buffer in enumerate(self._buffers)}
        for name, buffer, (dtype, shape, strides, address) in self._values:
            builder.value(name, index[id(buffer)], dtype, shape, strides=strides, offset=address - buffer.low)
        for kind, operands, results, pairs, name in self._ops:
            builder.op(kind, operands, results, name=name, in_place=pairs)
        program = builder.build()
        slots = [b.low - b.memory.low if b.memory.low in number else "own" for b in self._buffers]
        return program, plan_of(program, slots, source="recorded")

    # --- which tensor

    def _keep(self, item: Item) -> Array:
        array = item[1] if isinstance(item, tuple) else item
        self._kept.append(array)
        return array

    def _find(self, item: Item) -> _Tensor | None:
        """Return the tensor by rules 1 and 2."""
        name, array = item if isinstance(item, tuple) else (None, item)
        if name is None:
            return self._objects.get(id(array))
        tensor = self._named.get(name)
        if tensor is None:
            return None
        low, high = _bounds(array)
        apart = high <= tensor.buffer.low or tensor.buffer.high <= low
        return None if apart else tensor

    def _of(self, item: Item, *, write: bool) -> _Tensor:
        """Return the tensor by rules 1 and 2, else by 3 and 4."""
        tensor = self._find(item)
        if tensor is not None:
            return tensor
        name, array = item if isinstance(item, tuple) else (None, item)
        memory = self._memory(array)
        if name is None and memory.pool is None:
            tensor = self._whole.get(memory.low)
            if tensor is None:
                tensor = self._whole[memory.low] = self._tensor(array, f"t{len(self._buffers)}", whole=True)
        elif name is None and not write:
            low, high = _bounds(array)
            holders = [t for t in self._tensors if t.buffer.low < high and low < t.buffer.high and t.written >= 0]
            tensor = max(holders, key=lambda t: t.written, default=None)
            if tensor is not None:
                _inside(tensor.buffer, array)
        if tensor is None:
            tensor = self._tensor(array, name or f"t{len(self._buffers)}")
        if name is not None:
            self._named[name] = tensor
        self._objects[id(array)] = tensor
        return tensor

    def _tensor(
        self, array: Array, name: str, *, whole: bool = False, role: Role = Role.TEMPORARY, read_only: bool = False
    ) -> _Tensor:
        memory = self._memory(array)
        low, high = (memory.low, memory.high) if whole else _bounds(array)
        buffer = _Buffer(name=name, memory=memory, low=low, high=high, role=role, read_only=read_only)
        self._kept.append(array)
        self._buffers.append(buffer)
        self._tensors.append(_Tensor(buffer))
        return self._tensors[-1]

    def _memory(self, array: Array) -> _Memory:
        low, high = _bounds(array)
        for pool in self._pools:
            if pool.low <= low and high <= pool.high:
                return pool
            if pool.low < high and low < pool.high:
                raise ModelError("", f"an array of {high - low} bytes lies partly in pool {pool.pool!r}")
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        start, stop = _bounds(root)
        memory = self._roots.get(start)
        if memory is None or stop > memory.high:
            memory = self._grown(memory, start, stop)
        return memory

    def _grown(self, memory: _Memory | None, start: int, stop: int) -> _Memory:
        """Return the memory that begins at `start`, extended to `stop`.

        Raise ModelError if other memory has some of these bytes, for no array owns both.
        """
        if memory is None:
            memory = self._roots[start] = _Memory(start, stop, pool=None)
            insort(self._starts, start)
        memory.high = stop
        place = bisect_left(self._starts, start)
        before = self._roots[self._starts[place - 1]] if place else None
        after = self._starts[place + 1] if place + 1 < len(self._starts) else stop
        if (before is not None and before.high > start < stop) or after < stop:
            raise ModelError("", "two arrays share bytes of memory that no array owns; give that memory as a pool")
        return memory

    # --- which value

    def _read(self, tensor: _Tensor, array: Array) -> int:
        layout = _layout(array)
        _inside(tensor.buffer, array)
        latest = tensor.buffer.latest
        if latest is not None and self._values[latest][2] == layout:
            return latest
        value = self._value(tensor.buffer, layout)
        if latest is None:
            tensor.buffer.latest = value  # initial content or unwritten bytes: the judge decides
        else:
            self._ops.append((VIEW, [latest], [value], (), VIEW))
        return value

    def _write(self, tensor: _Tensor, array: Array, *, again: bool) -> int:
        buffer, layout = tensor.buffer, _layout(array)
        _inside(buffer, array)
        whole = _bounds(array) == (buffer.low, buffer.high) and _dense(layout, buffer.high - buffer.low)
        if whole and not again and buffer.latest is not None and not buffer.role.persistent:
            fresh = _Buffer(buffer.name, buffer.memory, buffer.low, buffer.high, buffer.role, buffer.read_only)
            self._buffers.append(fresh)
            tensor.buffer = fresh
        value = self._value(tensor.buffer, layout)
        tensor.buffer.latest = value
        return value

    def _value(self, buffer: _Buffer, layout: Layout) -> int:
        self._values.append((buffer.name, buffer, layout))
        return len(self._values) - 1


def _items(place: str, given: Iterable[Item]) -> list[Item]:
    """Return arrays, with or without names, as a list; raise ModelError for anything else."""
    if isinstance(given, np.ndarray | str) or not isinstance(given, Iterable):
        raise ModelError(place, f"is {type(given).__name__}; a list of arrays is needed")
    found = list(given)
    for index, item in enumerate(found):
        named = isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
        if not isinstance(item[1] if named else item, np.ndarray):
            raise ModelError(f"{place}[{index}]", f"{type(item).__name__} is neither an array nor (name, array)")
    return found


def _layout(array: Array) -> Layout:
    address = int(array.__array_interface__["data"][0])
    dtype = dtype_of(array.dtype)
    if dtype is not None:
        return dtype, array.shape, array.strides, address
    return "u8", (*array.shape, array.dtype.itemsize), (*array.strides, 1), address


def _bounds(array: Array) -> tuple[int, int]:
    _, shape, strides, address = _layout(array)
    itemsize = 1 if len(shape) > array.ndim else array.dtype.itemsize
    return hull(shape, strides, address, itemsize)


def _dense(layout: Layout, nbytes: int) -> bool:
    """Return whether a layout that spans `nbytes` bytes touches all of them."""
    dtype, shape, strides, _ = layout
    itemsize = int(ITEMSIZES[DTYPE_CODES[dtype]])
    low, _ = hull(shape, strides, 0, itemsize)
    runs = byte_runs(shape, strides, -low, itemsize)
    return len(runs) == 1 and int(runs[0, 1]) == nbytes


def _inside(buffer: _Buffer, array: Array) -> None:
    low, high = _bounds(array)
    if low == high:
        return
    if low < buffer.low or high > buffer.high:
        rule = (
            f"bytes [{low - buffer.low}, {high - buffer.low}) are not within its {buffer.high - buffer.low}; name "
            "the tensors"
        )
        raise ModelError(buffer.name, rule)
