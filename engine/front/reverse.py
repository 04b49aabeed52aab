"""The backward pass of the front: extend the history to a program, plan it, bind it, run it.

`engine.front.extension` makes the program: the ops that a backward pass adds, alone. The forward
values it reads exist already and are read where they lie. Such a value must still be what it was
when it was recorded; a version that is gone is refused, with the names of the tensor and of the op
that needs it. Forward values that no derivative reads may change freely.

The program is planned by any allocator, judged, and bound to an `engine.tape.Tape`. What was bound
is kept by structure (ops, parameters, layouts, which leaves want gradients, allocator), for
structures of at most `KEPT_NODES` nodes (`engine.front.kept`): a training loop plans once, and only
tells the tape where the forward values lie this time. `kept_bytes` says what memory that holds,
`clear` gives it back. Safe from any number of threads: each pass has a bound program to itself
while it runs, and the same bits whichever it is.

What comes back is data. Where gradients are to be differentiated again, where a hook asks about the
gradient of a result, and under `detect_anomaly`, the same ops are computed one by one
(`engine.front.stepwise`), as the front computes everything, and nothing is planned.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final

import numpy as np

from allocsim.collector import paused
from allocsim.errors import EngineError
from allocsim.model import UNPLACED, Plan
from engine.front.extension import Extension, extend
from engine.front.kept import KeptPrograms
from engine.front.record import Node, constant, history, tracking
from engine.front.stepwise import anomalies, changed, recorded_gradients
from engine.kernels.binding import Array, Call
from engine.runtime.entrance import planned
from engine.runtime.plan_memory import NUMPY_DTYPES, arena_sizes, block, check_placed
from engine.tape import NO_KERNEL, Tape
from engine.tape.loops import addresses

KEPT_NODES: Final = 20_000
"""Nodes of the largest history whose program is kept."""

DEFAULT_ALLOCATOR: Final = "ggml"


class BoundBackward:
    """A backward program bound to memory, of one pass at a time; positions count nodes."""

    def __init__(self, extension: Extension, plan: Plan) -> None:
        self.extension = extension
        program, saved = extension.program, len(extension.saved)
        buffers, values = program.buffers, program.values
        unplaced = np.flatnonzero((plan.arena == UNPLACED) & (buffers.nbytes > 0))
        if unplaced.size:
            raise EngineError(f"buffer {buffers.names[unplaced[0]]!r} has no slot in {plan!r}")
        arenas = [block(size) for size in arena_sizes(plan)]
        inside = plan.arena >= 0
        own = {b: block(int(buffers.nbytes[b])) for b in np.flatnonzero(~inside).tolist() if b >= saved}
        self._memory = arenas, own
        size, self._base = buffers.nbytes.copy(), np.zeros(len(buffers), np.int64)
        for index, arena in enumerate(arenas):
            here = plan.arena == index
            size[here], self._base[here] = len(arena), arena.ctypes.data
        for index, memory in own.items():
            self._base[index] = memory.ctypes.data
        start = np.where(inside, plan.offset, 0)
        check_placed(program, start, size, self._base)
        self._base += start
        self._address = self._base[values.buffer] + values.offset
        self._elsewhere = np.flatnonzero(~inside[:saved])
        self._copied = np.flatnonzero(inside[:saved]).tolist()
        """The saved values that the plan wants in an arena; all others are read where they are."""
        self._tape: Tape | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its arenas, of its blocks and of its tape."""
        arenas, own = self._memory
        return (
            sum(map(len, arenas)) + sum(map(len, own.values())) + (self._tape.nbytes if self._tape is not None else 0)
        )

    def run(self, saved: list[Array]) -> list[Array]:
        """Run over these forward values; return the gradients, which the next run overwrites."""
        program = self.extension.program
        if saved:
            self._base[self._elsewhere] = addresses(saved)[self._elsewhere]
            self._address = self._base[program.values.buffer] + program.values.offset
        for index in self._copied:
            np.copyto(self._array(index), saved[index])
        if self._tape is None:
            self._tape = self._bound()
        elif saved:
            self._tape.move(self._address)
        with np.errstate(all="ignore"):
            for function, arguments in self._tape.calls:
                function(*arguments)
        return [self._array(value) for _, value in self.extension.gradients]

    def _bound(self) -> Tape:
        extension = self.extension
        executed = np.array([action.kernel is not None for action in extension.actions] + [False])
        return Tape(
            extension.program,
            kernels=[(action.kernel, action.params) for action in extension.actions if action.kernel is not None],
            kernel_of=np.where(executed, np.cumsum(executed) - 1, NO_KERNEL)[extension.action_of].astype(np.int32),
            address=self._address,
            call=self._call,
            dtypes=NUMPY_DTYPES,
        )

    def _call(self, step: int) -> Call:
        """Bind one op the ordinary way."""
        op = self.extension.program.ops[step]
        action = self.extension.actions[self.extension.action_of[step]]
        assert action.kernel is not None
        operands, results = (tuple(self._array(value) for value in part) for part in (op.operands, op.results))
        bound: Call = action.kernel.bind(action.params, operands, results)
        return bound

    def _array(self, index: int) -> Array:
        """Return the memory of a value as an array, which lives as long as that memory does."""
        value, holder = self.extension.program.values[index], _Interface()
        dtype = NUMPY_DTYPES[value.dtype]
        if 0 in value.shape:
            return np.empty(value.shape, dtype)
        data = int(self._address[index]), False
        holder.__array_interface__ = {
            "shape": value.shape, "strides": value.strides, "typestr": f"|V{dtype.itemsize}", "data": data, "version": 3
        }  # fmt: skip
        return np.asarray(holder).view(dtype)  # not every dtype has a name in this protocol


class _Interface:
    """What numpy makes an array of, given an address."""

    __array_interface__: dict[str, Any]


_kept: Final[KeptPrograms[BoundBackward]] = KeptPrograms()


def kept_bytes() -> int:
    """Return the bytes of memory that the front keeps for backward passes to come.

    At most `engine.front.kept.KEPT_NBYTES`.
    """
    return _kept.nbytes


def clear() -> None:
    """Forget the backward programs that are kept, with their memory; running passes go on."""
    _kept.clear()


def gradients(end: Node, seed: Array, allocator: str = DEFAULT_ALLOCATOR) -> list[tuple[Node, Array]]:
    """Return (leaf, gradient of sum(end * seed)) for each leaf `end` depends on that needs one.

    Args:
        end: what to differentiate; it needs a gradient.
        seed: shaped like the array of `end`, C-contiguous.
        allocator: plans the memory of the backward pass; a name or `package.module:function`.

    Raises:
        EngineError: a derivative is missing, or a value it needs was changed in place.
    """
    if end.recipe is None:
        return [(end, seed.copy())]
    with paused():  # all that is built here stays; looking through it again takes a fifth of the time
        order = history(end)
        if anomalies.get() or any(node.hooks is not None and node.recipe is not None for node in order):
            token = tracking.set(False)
            try:
                return [(node, found.array) for node, found in recorded_gradients(end, constant(seed))]
            finally:
                tracking.reset(token)
        if len(order) > KEPT_NODES:
            return _run(_planned(order, allocator)(), order, seed)
        with _kept.lent(_structure(order, allocator), partial(_planned, order, allocator)) as program:
            return _run(program, order, seed)


def _run(program: BoundBackward, order: list[Node], seed: Array) -> list[tuple[Node, Array]]:
    extension = program.extension
    saved = [order[position] for position in extension.saved if position < len(order)]
    for node, op in zip(saved, extension.readers, strict=False):
        if node.stale:
            raise EngineError(changed(op, node))
    arrays = [node.array for node in saved] + ([seed] if len(saved) < len(extension.saved) else [])
    found = program.run(arrays)
    return [(order[position], array.copy()) for (position, _), array in zip(extension.gradients, found, strict=True)]


def _structure(order: list[Node], allocator: str) -> Hashable:
    """Return what histories have in common that one program serves."""
    index = {node: position for position, node in enumerate(order)}
    return (
        allocator,
        *(
            (n.recipe, n.leaf_of is not None, *[index[s] for s in n.sources], *[s.needs_grad for s in n.sources])
            if n.recipe is not None
            else (n.laid, n.needs_grad)
            for n in order
        ),
    )


def _planned(order: list[Node], allocator: str) -> Callable[[], BoundBackward]:
    """Return what binds the program of a history to memory of its own, by a plan that is sound."""
    extension = extend(order)
    return partial(BoundBackward, extension, planned(allocator, extension.program))
