"""Run a lowered graph in the memory a plan gives it.

Contract: all memory is taken and every op is bound at construction, by the executor asked for; `run` allocates nothing but the
copies it hands to the host. Arenas are one block each, aligned to 64 bytes and zeroed; a buffer whose slot is `OWN` has a block of
its own. Memory is kept from run to run: what the host does not write again is what the plan made of it.

Any plan of the program runs, sound or not: bytes are where the plan puts them, overlapping or late, and kernels do what they do
there; infinities and NaN are results like any other, without a warning. Only what cannot be bound is refused: a buffer without
a slot, a value outside its arena, an address that is no multiple of the item size.

Parameters that are read-only are used where they are, without a copy (unless their slot is in an arena); those that training
changes are copied, so that several runtimes can start from the same arrays. States start as zeros. What `resident` names is used where
it is in either case: several runtimes then work on the same weights and states.

Two executors do the same to the bit, under any plan: `calls` is a list of bound functions called from Python, some 0.5 us an op; `tape` plays
all ops in one call of compiled code (`engine.tape`), some 0.02 us an op, and binds alike ops at once. Whoever looks at single
ops (an observer, `execute`, `operands`, `results`) is served by calls bound when first asked for, whatever the executor.

What this module does not see: whether the plan is any good (`allocsim.checks`) and what the ops mean (`engine.kernels`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod
from types import TracebackType
from typing import Any, Final, Self

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError, UnknownNameError
from allocsim.fingerprints import fingerprint
from allocsim.layout import Int64s
from allocsim.model import HOST_READ, HOST_WRITE, UNPLACED, Plan, Program, Role, Value
from engine.kernels.binding import Call, Kernel, Workspace
from engine.lower import Lowered

Array = NDArray[Any]
Observer = Callable[[int, tuple[Array, ...], tuple[Array, ...]], None]
"""Called after each op with (step, operands, results); the arrays are the bound memory itself."""
Allocate = Callable[[int], NDArray[np.uint8]]
"""Returns that many bytes, beginning at a multiple of `BLOCK_ALIGNMENT`."""

BLOCK_ALIGNMENT = 64
"""Bytes; a cache line, and at least what any SIMD load asks for."""

NUMPY_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "i32": np.dtype(np.int32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
"""numpy's dtype for each of the engine's."""


class Runtime:
    """A lowered graph bound to a plan; also a context manager that gives the BLAS threads back."""

    def __init__(
        self,
        lowered: Lowered,
        plan: Plan,
        *,
        parameters: Mapping[str, Array] | None = None,
        resident: Mapping[str, Array] | None = None,
        threads: int | None = 1,
        allocate: Allocate | None = None,
        executor: str = "calls",
    ) -> None:
        """Take memory, lay the parameters and bind every call.

        Args:
            lowered: what to run.
            plan: a plan of `lowered.program`; for a plan made for another program, make one of this program from its slots.
            parameters: name -> array for every parameter of the graph, of its shape and dtype, C-contiguous.
            resident: name -> array for trainable parameters and states that are to lie in the caller's memory: neither copied nor
                zeroed, changed by every run. Their slots must be outside the arenas.
            threads: BLAS threads of this process until `close`; None leaves them alone. With one, kernels that use one thread may
                be bound; with more or None those that BLAS runs (`Kernel.threaded`): last digits depend on it.
            allocate: where memory comes from, once for each arena in order, then for each buffer outside them that is not used where
                it is; zeroed blocks by default. What is written beside a block is no business of the runtime.
            executor: one of `EXECUTORS`: `calls`, or `tape` for very large and very small graphs.

        Raises:
            EngineError: the plan is not of this program or cannot be bound; a parameter is missing, unknown or misshapen.
            UnknownNameError: no such executor.
        """
        if executor not in EXECUTORS:
            raise UnknownNameError("executor", executor, EXECUTORS)
        if plan.program is not lowered.program:
            made, runs = (fingerprint(program) for program in (plan.program, lowered.program))
            raise EngineError(f"{plan!r} is not a plan of {lowered.program!r}: made for {made}, not for {runs}")
        self.lowered = lowered
        self.plan = plan
        self.kernels = _for(lowered.kernels, threads)
        """For each step the kernel that runs it, None where nothing runs."""
        self._allocate = allocate or block
        self.arenas: tuple[NDArray[np.uint8], ...] = tuple(self._allocate(size) for size in arena_sizes(plan))
        """The memory of each arena up to the end of its highest slot."""
        self._limits: Any = None
        blocks = self._place(dict(parameters or {}), dict(resident or {}))
        self.blocks: tuple[tuple[NDArray[np.uint8], int], ...] = tuple(blocks)
        """For each buffer the memory it lies in, and where it begins there."""
        start = np.array([start for _, start in self.blocks], np.int64)
        size = np.array([len(memory) for memory, _ in self.blocks], np.int64)
        base = _addresses([memory for memory, _ in self.blocks])
        check_placed(lowered.program, start, size, base)
        self.addresses: Int64s = (base + start)[lowered.program.values.buffer] + lowered.program.values.offset
        """For each value the address of its element 0."""
        ops = lowered.program.ops
        self._arrays: dict[int, Array] = {}
        self._bound: dict[int, Call] = {}
        self._workspace = Workspace()
        self._watched: list[
            tuple[Call | None, tuple[Array, ...], tuple[Array, ...]]
        ] = []  # made by the first run that is observed
        self._writes = tuple((step, lowered.tensors[step].name) for step in np.flatnonzero(ops.is_kind(HOST_WRITE)).tolist())
        self._reads = tuple((lowered.tensors[step].name, step) for step in np.flatnonzero(ops.is_kind(HOST_READ)).tolist())
        self._names = {name for _, name in self._writes}
        self._calls = EXECUTORS[executor](self)
        self._limit(threads)

    @property
    def program(self) -> Program:
        """The program bound; steps and value indices are its own."""
        return self.lowered.program

    def run(
        self,
        inputs: Mapping[str, Array],
        *,
        skip: Collection[str] = (),
        observer: Observer | None = None,
    ) -> dict[str, Array]:
        """Write the inputs, run every op in order, and return a copy of each tensor the host reads, by name.

        Inputs named in `skip` are not written: the op reads whatever its bytes hold. A state with a reset that gets no array is
        set to zeros.
        """
        self._check_inputs(inputs, skip)
        if observer is not None:
            return self._observed(inputs, skip, observer)
        for step, name in self._writes:
            if name not in skip:
                self._write(step, name, inputs)
        with np.errstate(all="ignore"):
            for function, arguments in self._calls:
                function(*arguments)
        return self.outputs()

    def execute(self, step: int, inputs: Mapping[str, Array] | None = None, skip: Collection[str] = ()) -> None:
        """Do the op of one step: for running two runtimes in lockstep. Views and `host.read` do nothing."""
        if self.kernels[step] is not None:
            function, arguments = self.call(step)
            with np.errstate(all="ignore"):
                function(*arguments)
            return
        name = self.lowered.tensors[step].name
        if step < len(self._writes) and name not in skip:
            self._write(step, name, inputs or {})

    def call(self, step: int) -> Call:
        """Return the bound call of the op of `step`, which has a kernel."""
        bound = self._bound.get(step)
        if bound is None:
            kernel = self.kernels[step]
            assert kernel is not None
            params = self.lowered.tensors[step].params
            bound = self._bound[step] = self._workspace.bind(kernel, params, self.operands(step), self.results(step))
        return bound

    def operands(self, step: int) -> tuple[Array, ...]:
        """Return the memory the op of `step` reads, as arrays."""
        ops = self.program.ops
        return tuple(self.array(v) for v in ops.operands[ops.operand_starts[step] : ops.operand_starts[step + 1]].tolist())

    def results(self, step: int) -> tuple[Array, ...]:
        """Return the memory the op of `step` writes, as arrays."""
        ops = self.program.ops
        return tuple(self.array(v) for v in ops.results[ops.result_starts[step] : ops.result_starts[step + 1]].tolist())

    def array(self, value: int) -> Array:
        """Return the memory of a value as an array: what lies there now, whether or not it is still that value."""
        array = self._arrays.get(value)
        if array is None:
            row = self.program.values[value]
            array = self._arrays[value] = _bind(row, *self.blocks[row.buffer])
        return array

    def outputs(self) -> dict[str, Array]:
        """Return copies of what the host reads, as the memory is now."""
        return {name: self.operands(step)[0].copy() for name, step in self._reads}

    def close(self) -> None:
        """Give the BLAS threads back; the runtime stays usable."""
        if self._limits is not None:
            self._limits.restore_original_limits()
            self._limits = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _limit(self, threads: int | None) -> None:
        if threads is None:
            return
        from threadpoolctl import threadpool_limits  # noqa: PLC0415 - scans the loaded libraries

        self._limits = threadpool_limits(limits=threads, user_api="blas")

    def _observed(self, inputs: Mapping[str, Array], skip: Collection[str], observer: Observer) -> dict[str, Array]:
        if not self._watched:
            self._watched = [
                (None if kernel is None else self.call(step), self.operands(step), self.results(step))
                for step, kernel in enumerate(self.kernels)
            ]
        with np.errstate(all="ignore"):
            for step, (call, operands, results) in enumerate(self._watched):
                if call is not None:
                    function, arguments = call
                    function(*arguments)
                elif step < len(self._writes):
                    self.execute(step, inputs, skip)
                observer(step, operands, results)
        return self.outputs()

    def _write(self, step: int, name: str, inputs: Mapping[str, Array]) -> None:
        target = self.results(step)[0]
        data = inputs.get(name)
        if data is not None:
            np.copyto(target, data)
        elif self.lowered.tensors[step].reset:
            target.fill(0)
        else:
            raise EngineError(f"input {name!r} is not given and not skipped")

    def _check_inputs(self, inputs: Mapping[str, Array], skip: Collection[str]) -> None:
        for name in (*inputs, *skip):
            if name not in self._names:
                raise EngineError(f"{name!r} is no input of {self.lowered.graph!r}; there are {', '.join(sorted(self._names))}")
        for step, name in self._writes:
            if name in skip:
                continue
            target, data = self.results(step)[0], inputs.get(name)
            if data is not None:
                _check_array(name, data, target.shape, target.dtype)
            elif not self.lowered.tensors[step].reset:
                raise EngineError(f"input {name!r} is not given and not skipped")

    def _place(self, parameters: dict[str, Array], resident: dict[str, Array]) -> list[tuple[NDArray[np.uint8], int]]:
        """Return (memory, offset) for each buffer, with persistent content laid in buffer order."""
        buffers, plan = self.lowered.program.buffers, self.plan
        leafs = {tensor.name: tensor for tensor in self.lowered.graph.leafs if tensor.role == Role.PARAMETER}
        for name in parameters:
            if name not in leafs:
                raise EngineError(f"{name!r} is no parameter of {self.lowered.graph!r}")
        shared = {name: _resident(name, array, self.lowered) for name, array in resident.items()}
        blocks: list[tuple[NDArray[np.uint8], int]] = []
        for index, name in enumerate(buffers.names):
            arena, offset, nbytes = int(plan.arena[index]), int(plan.offset[index]), int(buffers.nbytes[index])
            if arena == UNPLACED and nbytes:
                raise EngineError(f"buffer {name!r} has no slot in {plan!r}")
            if name in shared:
                if arena >= 0:
                    raise EngineError(f"{name!r} is resident, but its slot is in an arena of {plan!r}")
                blocks.append((shared[name], 0))
                continue
            data: Array | None = None
            if buffers.role[index] == Role.PARAMETER:
                tensor = leafs[name]
                if name not in parameters:
                    raise EngineError(f"parameter {tensor} is not given")
                data = _check_array(name, parameters[name], tensor.shape, NUMPY_DTYPES[tensor.dtype])
                if not data.flags.c_contiguous:
                    raise EngineError(f"parameter {tensor} is given as an array that is not C-contiguous")
            if arena >= 0:
                blocks.append((self.arenas[arena], offset))
            elif data is not None and buffers.read_only[index]:
                blocks.append((data.reshape(-1).view(np.uint8), 0))
                continue
            else:
                blocks.append((self._allocate(nbytes), 0))
            if buffers.persistent[index] and nbytes:
                self._lay(name, blocks[index], data, nbytes)
        return blocks

    def _lay(self, name: str, block: tuple[NDArray[np.uint8], int], data: Array | None, nbytes: int) -> None:
        memory, offset = block
        if not 0 <= offset <= len(memory) - nbytes:
            raise EngineError(f"buffer {name!r} [{offset}, {offset + nbytes}) lies outside its arena of {len(memory)} bytes")
        memory[offset : offset + nbytes] = 0 if data is None else data.reshape(-1).view(np.uint8)


def arena_sizes(plan: Plan) -> tuple[int, ...]:
    """Return the bytes each arena takes, up to the end of its highest slot; raise EngineError where a slot lies outside its arena."""
    ends = plan.offset + plan.nbytes
    sizes = []
    for index, arena in enumerate(plan.program.arenas):
        here = plan.arena == index
        low = int(plan.offset[here].min(initial=0))
        size = int(ends[here].max(initial=0))
        if low < 0 or (arena.capacity is not None and size > arena.capacity):
            limit = "unbounded" if arena.capacity is None else f"of {arena.capacity} bytes"
            raise EngineError(f"slots reach from {low} to {size}; arena {arena.name!r} starts at 0 and is {limit}")
        sizes.append(size)
    return tuple(sizes)


def block(nbytes: int) -> NDArray[np.uint8]:
    """Return zeroed memory that begins at a multiple of `BLOCK_ALIGNMENT`; raise EngineError where there is none.

    Some bytes before and behind it belong to nobody, so that a kernel under suspicion that misses by a few ruins no one's heap.
    """
    try:
        raw = np.zeros(nbytes + 3 * BLOCK_ALIGNMENT, dtype=np.uint8)
    except (MemoryError, ValueError) as error:
        raise EngineError(f"{nbytes} bytes cannot be allocated") from error
    start = -raw.ctypes.data % BLOCK_ALIGNMENT + BLOCK_ALIGNMENT
    return raw[start : start + nbytes]


def together(shapes: Mapping[str, tuple[int, ...]], dtype: Any) -> dict[str, Array]:
    """Return zeros of one dtype for each name, in one block, each at a multiple of `BLOCK_ALIGNMENT`.

    Where a system gives large pages to large blocks, small weights get them too; products of 64 rows that stream all
    weights were measured 4 to 16 % faster.
    """
    wanted = np.dtype(dtype)
    sizes = [-(-prod(shape) * wanted.itemsize // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT for shape in shapes.values()]
    whole, starts = block(sum(sizes)), accumulate(sizes, initial=0)
    return {
        name: whole[start : start + prod(shape) * wanted.itemsize].view(wanted).reshape(shape)
        for start, (name, shape) in zip(starts, shapes.items(), strict=False)
    }


def check_placed(program: Program, start: Int64s, size: Int64s, base: Int64s) -> None:
    """Raise EngineError for the first value that lies outside its memory or is not aligned to its item size.

    For each buffer: where it begins in its memory, how many bytes that memory has, and the address of the memory.
    """
    values = program.values
    begin, limit = start[values.buffer], size[values.buffer]
    low, high = values.hulls[:, 0] + begin, values.hulls[:, 1] + begin
    outside = (low < 0) | (high > limit)
    skewed = (base[values.buffer] + begin + values.offset) % values.itemsize != 0
    for index in np.flatnonzero((high > low) & (outside | skewed))[:1].tolist():
        value, at = values[index], int(begin[index] + values.offset[index])
        if outside[index]:
            raise EngineError(
                f"value {value.name!r} [{low[index]}, {high[index]}) lies outside its memory of {limit[index]} bytes"
            )
        raise EngineError(f"value {value.name!r} at byte {at} is not aligned to its item size {value.itemsize}")


def _addresses(memories: Sequence[NDArray[np.uint8]]) -> Int64s:
    known = {id(memory): memory for memory in memories}
    address = {key: memory.__array_interface__["data"][0] for key, memory in known.items()}
    return np.array([address[id(memory)] for memory in memories], np.int64)


def _bind(value: Value, memory: NDArray[np.uint8], start: int) -> Array:
    dtype = NUMPY_DTYPES[value.dtype]
    if 0 in value.shape:
        return np.empty(value.shape, dtype=dtype)
    return np.ndarray(value.shape, dtype, memory.data, start + value.offset, value.strides)


def _for(kernels: tuple[Kernel | None, ...], threads: int | None) -> tuple[Kernel | None, ...]:
    """Return the kernels as a run with that many threads wants them; those that were one stay one."""
    if threads == 1:
        return kernels
    known = {id(k): k if k is None or k.threaded is None else replace(k, bind=k.threaded) for k in kernels}
    return tuple(known[id(kernel)] for kernel in kernels)


def _bind_calls(runtime: Runtime) -> tuple[Call, ...]:
    """Bind each op by itself."""
    return tuple(runtime.call(step) for step, kernel in enumerate(runtime.kernels) if kernel is not None)


def _bind_tape(runtime: Runtime) -> tuple[Call, ...]:
    """Bind all ops as a tape."""
    from engine.tape import NO_KERNEL, Tape  # noqa: PLC0415 - numba loads with the first tape, not before

    lowered = runtime.lowered
    known: dict[Any, int] = {}
    kernels: list[tuple[Kernel, Mapping[str, Any]]] = []
    kernel_of = np.full(len(runtime.kernels), NO_KERNEL, np.int32)
    for step, kernel in enumerate(runtime.kernels):
        if kernel is None:
            continue
        params = lowered.tensors[step].params
        kernel_of[step] = known.setdefault((id(kernel), repr(params) if params else ""), len(kernels))
        if kernel_of[step] == len(kernels):
            kernels.append((kernel, params))
    address, call = runtime.addresses, runtime.call
    return Tape(lowered.program, kernels=kernels, kernel_of=kernel_of, address=address, call=call, dtypes=NUMPY_DTYPES).calls


EXECUTORS: Final[Mapping[str, Callable[[Runtime], tuple[Call, ...]]]] = {"calls": _bind_calls, "tape": _bind_tape}
"""Name -> what binds the ops of a runtime and returns what a run calls, in order."""


def _resident(name: str, array: Array, lowered: Lowered) -> NDArray[np.uint8]:
    """Return the bytes of an array that is to be a weight or a state."""
    found = next((leaf for leaf in lowered.graph.leafs if leaf.name == name), None)
    if found is None or not (found.trainable or found.role == Role.STATE):
        raise EngineError(f"{name!r} is neither a trainable parameter nor a state of {lowered.graph!r}")
    data = _check_array(name, array, found.shape, NUMPY_DTYPES[found.dtype])
    if not data.flags.c_contiguous or not data.flags.writeable:
        raise EngineError(f"{found} is resident in an array that is not C-contiguous and writeable")
    return data.reshape(-1).view(np.uint8)


def _check_array(name: str, data: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if not isinstance(data, np.ndarray) or data.shape != shape or data.dtype != dtype:
        found = f"{data.dtype}{list(data.shape)}" if isinstance(data, np.ndarray) else type(data).__name__
        raise EngineError(f"{name!r} is {found}; {dtype}{list(shape)} is needed")
    return data
