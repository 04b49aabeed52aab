"""Run a lowered graph in the memory a plan gives it.

Contract: all memory is taken and every op is bound at construction, by the executor asked for;
`run` allocates nothing but the copies it hands to the host. Arenas are one block each, aligned to
64 bytes and zeroed; a buffer whose slot is `OWN` has a block of its own. Memory is kept from run to
run: what the host does not write again is what the plan made of it.

A plan is judged before it is bound (`engine.runtime.entrance`), and one that is not sound is
refused. With `suspect` any plan of the program runs, sound or not: bytes are where the plan puts
them, overlapping or late, and kernels do what they do there. Then only what cannot be bound is
refused: a buffer without a slot, a value outside its arena, an address that is no multiple of the
item size. Infinities and NaN are results like any other, without a warning.

Parameters that are read-only are used where they are, without a copy (unless their slot is in an
arena); those that training changes are copied, so that several runtimes can start from the same
arrays. States start as zeros. What `resident` names is used where it is in either case: several
runtimes then work on the same weights and states.

Two executors do the same to the bit, under any plan: `calls` is a list of bound functions called
from Python, some 0.5 us an op; `tape` plays all ops in one call of compiled code (`engine.tape`),
some 0.02 us an op, and binds alike ops at once. Whoever looks at single ops (an observer,
`execute`, `operands`, `results`) is served by calls bound when first asked for, whatever the
executor.

What this module does not see: what makes a plan sound (`allocsim.judge`) and what the ops mean
(`engine.kernels`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Self
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError, UnknownNameError
from allocsim.model import HOST_READ, HOST_WRITE, UNPLACED, Plan, Program, Role
from allocsim.programs.fingerprints import fingerprint
from engine.graph import Tensor
from engine.graph.lowering import Lowered
from engine.kernels.binding import Call, Kernel, Workspace
from engine.kernels.threads import allowed, limit
from engine.runtime.entrance import admit
from engine.runtime.plan_memory import (
    NUMPY_DTYPES,
    Allocate,
    addresses,
    arena_sizes,
    block,
    check_array,
    check_placed,
    laid,
)

Array = NDArray[Any]
Observer = Callable[[int, tuple[Array, ...], tuple[Array, ...]], None]
"""Called after each op with (step, operands, results); the arrays are the bound memory itself."""


class Runtime:
    """A lowered graph bound to a plan; also a context manager that gives the threads back."""

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
        suspect: bool = False,
        order: Sequence[int] | None = None,
    ) -> None:
        """Take memory, lay the parameters and bind every call.

        Args:
            lowered: what to run.
            plan: a plan of `lowered.program`; for a plan made for another program, make one of this
                program from its slots.
            parameters: name -> array for every parameter of the graph, of its shape and dtype,
                C-contiguous; and for states that do not start as zeros.
            resident: name -> array for trainable parameters and states that are to lie in the
                caller's memory: neither copied nor zeroed, changed by every run. Their slots must
                be outside the arenas.
            threads: threads that calls of this process use until `close`, while BLAS has one
                (`engine.kernels.threads`); None for as many as numpy's BLAS may use now. Where BLAS
                multiplies, last digits may depend on it; all other kernels have the same bits.
            allocate: where memory comes from, once for each arena in order, then for each buffer
                outside them that is not used where it is; zeroed blocks by default. The runtime
                does not check what is written outside a block.
            executor: one of `EXECUTORS`: `calls`, or `tape` for very large and very small graphs.
            suspect: run the plan unjudged, sound or not: for those who look at what it does.
            order: every step, in the order in which a run does them one by one; the list's by default.

        Raises:
            EngineError: the plan is not of this program or cannot be bound; a parameter is missing,
                unknown or misshapen.
            PlannerError: the plan is not sound.
            UnknownNameError: no such executor.
        """
        if executor not in EXECUTORS:
            raise UnknownNameError("executor", executor, EXECUTORS)
        if plan.program is not lowered.program:
            made, runs = (fingerprint(program) for program in (plan.program, lowered.program))
            raise EngineError(f"{plan!r} is not a plan of {lowered.program!r}: made for {made}, not for {runs}")
        self.lowered = lowered
        self.plan = plan if suspect else admit(plan)
        self.kernels = lowered.kernels
        """For each step the kernel that runs it, None where nothing runs."""
        self._allocate = allocate or block
        self.arenas: tuple[NDArray[np.uint8], ...] = tuple(self._allocate(size) for size in arena_sizes(plan))
        """The memory of each arena up to the end of its highest slot."""
        blocks = self._place(dict(parameters or {}), dict(resident or {}))
        self.blocks: tuple[tuple[NDArray[np.uint8], int], ...] = tuple(blocks)
        """For each buffer the memory it lies in, and where it begins there."""
        start = np.array([start for _, start in self.blocks], np.int64)
        size = np.array([len(memory) for memory, _ in self.blocks], np.int64)
        base = addresses([memory for memory, _ in self.blocks])
        check_placed(lowered.program, start, size, base)
        self.addresses = (base + start)[lowered.program.values.buffer] + lowered.program.values.offset
        """For each value the address of its element 0."""
        ops = lowered.program.ops
        self._arrays: dict[int, Array] = {}
        self._bound: dict[int, Call] = {}
        self._workspace = Workspace()
        self._watched: list[
            tuple[Call | None, tuple[Array, ...], tuple[Array, ...]]
        ] = []  # made by the first run that is observed
        self._writes = tuple(
            (step, lowered.tensors[step].name) for step in np.flatnonzero(ops.is_kind(HOST_WRITE)).tolist()
        )
        self._reads = tuple(
            (lowered.tensors[step].name, step) for step in np.flatnonzero(ops.is_kind(HOST_READ)).tolist()
        )
        self._names = {name for _, name in self._writes}
        self._order = order
        # before calls are bound, each for as many threads as it may use; who forgets to close gives
        # them back when it is let go
        self._give_back = finalize(self, limit(allowed() if threads is None else threads))
        self._give_back.atexit = False
        try:
            self._calls = EXECUTORS[executor](self)
        except BaseException:
            self.close()
            raise

    @property
    def program(self) -> Program:
        """The program bound; steps and value indices are its own."""
        return self.lowered.program

    def run(
        self, inputs: Mapping[str, Array], *, skip: Collection[str] = (), observer: Observer | None = None
    ) -> dict[str, Array]:
        """Write the inputs, run every op in order, and return a copy of each tensor the host reads,
        by name. With an order of one's own, inputs are written where it has them.

        Inputs named in `skip` are not written: the op reads whatever its bytes hold. A state with a
        reset that gets no array is set to zeros.
        """
        self._check_inputs(inputs, skip)
        if observer is not None or self._order is not None:
            return self._one_by_one(inputs, skip, observer)
        for step, name in self._writes:
            if name not in skip:
                self._write(step, name, inputs)
        with np.errstate(all="ignore"):
            for function, arguments in self._calls:
                function(*arguments)
        return self.outputs()

    def execute(self, step: int, inputs: Mapping[str, Array] | None = None, skip: Collection[str] = ()) -> None:
        """Do the op of one step, as in runtimes in lockstep; views and `host.read` do nothing."""
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
            bound = self._workspace.bind(kernel, params, self.operands(step), self.results(step))
            if allowed() > 1:
                from engine.tape.team import shared  # noqa: PLC0415 - numba loads with the first call in parts

                bound = shared(bound)
            self._bound[step] = bound
        return bound

    def operands(self, step: int) -> tuple[Array, ...]:
        """Return the memory the op of `step` reads, as arrays."""
        ops = self.program.ops
        return tuple(
            self.array(v) for v in ops.operands[ops.operand_starts[step] : ops.operand_starts[step + 1]].tolist()
        )

    def results(self, step: int) -> tuple[Array, ...]:
        """Return the memory the op of `step` writes, as arrays."""
        ops = self.program.ops
        return tuple(self.array(v) for v in ops.results[ops.result_starts[step] : ops.result_starts[step + 1]].tolist())

    def array(self, value: int) -> Array:
        """Return the memory of a value as an array: what lies there now, that value or not."""
        array = self._arrays.get(value)
        if array is None:
            row = self.program.values[value]
            array = self._arrays[value] = laid(row, *self.blocks[row.buffer])
        return array

    def outputs(self) -> dict[str, Array]:
        """Return copies of what the host reads, as the memory is now."""
        return {name: self.operands(step)[0].copy() for name, step in self._reads}

    def close(self) -> None:
        """Give the threads back as they were; the runtime stays usable."""
        self._give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _one_by_one(
        self, inputs: Mapping[str, Array], skip: Collection[str], observer: Observer | None
    ) -> dict[str, Array]:
        if not self._watched:
            self._watched = [
                (None if kernel is None else self.call(step), self.operands(step), self.results(step))
                for step, kernel in enumerate(self.kernels)
            ]
        with np.errstate(all="ignore"):
            for step in range(len(self._watched)) if self._order is None else self._order:
                call, operands, results = self._watched[step]
                if call is not None:
                    function, arguments = call
                    function(*arguments)
                elif step < len(self._writes):
                    self.execute(step, inputs, skip)
                if observer is not None:
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
                raise EngineError(
                    f"{name!r} is no input of {self.lowered.graph!r}; there are {', '.join(sorted(self._names))}"
                )
        for step, name in self._writes:
            if name in skip:
                continue
            target, data = self.results(step)[0], inputs.get(name)
            if data is not None:
                check_array(name, data, target.shape, target.dtype)
            elif not self.lowered.tensors[step].reset:
                raise EngineError(f"input {name!r} is not given and not skipped")

    def _place(self, parameters: dict[str, Array], resident: dict[str, Array]) -> list[tuple[NDArray[np.uint8], int]]:
        """Return (memory, offset) for each buffer, with persistent content laid in buffer order."""
        buffers, plan = self.lowered.program.buffers, self.plan
        leafs = {leaf.name: leaf for leaf in self.lowered.graph.leafs if leaf.role in (Role.PARAMETER, Role.STATE)}
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
            given = buffers.role[index] == Role.PARAMETER or name in parameters
            data = _content(leafs[name], parameters) if given else None
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
            raise EngineError(
                f"buffer {name!r} [{offset}, {offset + nbytes}) lies outside its arena of {len(memory)} bytes"
            )
        memory[offset : offset + nbytes] = 0 if data is None else data.reshape(-1).view(np.uint8)


def _content(leaf: Tensor, parameters: Mapping[str, Array]) -> Array:
    """Return the array that a parameter starts from; raise EngineError for none that fits."""
    if leaf.name not in parameters:
        raise EngineError(f"parameter {leaf} is not given")
    data = check_array(leaf.name, parameters[leaf.name], leaf.shape, NUMPY_DTYPES[leaf.dtype])
    if not data.flags.c_contiguous:
        raise EngineError(f"parameter {leaf} is given as an array that is not C-contiguous")
    return data


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
    return Tape(
        lowered.program, kernels=kernels, kernel_of=kernel_of, address=address, call=call, dtypes=NUMPY_DTYPES
    ).calls


EXECUTORS: Final[Mapping[str, Callable[[Runtime], tuple[Call, ...]]]] = {"calls": _bind_calls, "tape": _bind_tape}
"""Name -> what binds the ops of a runtime and returns what a run calls, in order."""


def _resident(name: str, array: Array, lowered: Lowered) -> NDArray[np.uint8]:
    """Return the bytes of an array that is to be a weight or a state."""
    found = next((leaf for leaf in lowered.graph.leafs if leaf.name == name), None)
    if found is None or not (found.trainable or found.role == Role.STATE):
        raise EngineError(f"{name!r} is neither a trainable parameter nor a state of {lowered.graph!r}")
    data = check_array(name, array, found.shape, NUMPY_DTYPES[found.dtype])
    if not data.flags.c_contiguous or not data.flags.writeable:
        raise EngineError(f"{found} is resident in an array that is not C-contiguous and writeable")
    return data.reshape(-1).view(np.uint8)


__all__ = ["EXECUTORS", "Observer", "Runtime"]
