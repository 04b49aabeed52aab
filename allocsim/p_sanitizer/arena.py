"""An arena for your own kernels: numpy views by plan, with every access watched.

    arena = allocsim.sanitized(program, plan, content={"w": w})
    with arena.run():
        for op in program.ops:
            with arena.op(op.step) as (operands, results):
                KERNELS[op.kind](*operands, *results)
    print(arena.report())

What the kernels get are views of one block of memory in which each buffer lies where the plan puts
it, so what they do to each other there they do as in your runtime, except that dead bytes hold
poison and red zones lie round each arena (`pools`). For a ctypes kernel pass `view.ctypes.data`.
Packed values (`i4`, `u2`, ...) come as the bytes that hold them, the last dimension in bytes.
The host uploads by writing into the results of a `host.write` op, and reads in the operands of a
`host.read` op, or later with `value` until the next run begins.

Ops are entered in the order of the program, each once a run; `view` ops may be passed over, and a
`host.write` that is passed over, or named in `run(skip=...)`, is an upload left out. dtypes that
numpy has not (`bf16`) come as unsigned integers of their size.

What this module does not see: a kernel that keeps a view and reads it in a later op, unless poison
from there shows in a result.
"""

import mmap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import ModelError
from allocsim.model import OWN, UNPLACED, Plan, Program, Value
from allocsim.model.dtypes import DTYPE_CODES, WIDTHS
from allocsim.model.layout import hull
from allocsim.p_sanitizer import poison
from allocsim.p_sanitizer.guard import Guard
from allocsim.p_sanitizer.incident_words import told
from allocsim.p_sanitizer.incidents import Incident
from allocsim.p_sanitizer.monitor import Monitor
from allocsim.p_sanitizer.pools import ALIGNMENT, Ends, Pool, TrackedBlock
from allocsim.p_sanitizer.program_facts import ELSEWHERE, Facts, Range, needs_pool
from allocsim.p_sanitizer.row_actions import Bytes, Other, Plain, RowExecutor, pattern
from allocsim.p_sanitizer.scope import examined
from allocsim.programs.placed_plans import Slots, placed

Array = NDArray[Any]

NUMPY: Final[dict[str, str]] = {
    "f64": "f8", "f32": "f4", "f16": "f2", "bf16": "u2", "i64": "i8", "i32": "i4", "i16": "i2", "i8": "i1",
    "u64": "u8", "u32": "u4", "u16": "u2", "u8": "u1", "bool": "?", "c64": "c8", "c128": "c16", "f8_e4m3": "u1", "f8_e5m2": "u1",
}  # fmt: skip
"""numpy's dtype for each of a document's."""

Pages = Literal["shared", "end", "begin"]
"""How guard pages lie: under the plan's own slots, or between buffers that end or begin where one
does."""

SMALL: Final = 1_000_000
"""Bytes of memory up to which all of it is compared after each op, unless told otherwise."""


class Sanitized:
    """Memory laid out by a plan, and a monitor over it."""

    def __init__(
        self,
        plan: Plan,
        content: Mapping[str, Array],
        *,
        executor: Callable[[Bytes], RowExecutor],
        every_op: bool | None,
        other: Other | None = None,
        pages: Pages | None = None,
    ) -> None:
        program = plan.program
        self.program, self.plan, self.pages = program, plan, pages
        pool, blocks, origin = lay_out(plan, pages)
        if other is not None:
            _dead(pool.memory, blocks, other)
        self._pool, self._base = pool.memory, int(pool.view.ctypes.data)
        self._facts = Facts(program=program, origin=origin, size=len(pool.memory))
        nbytes = program.buffers.nbytes.tolist()
        self._arrays = [_bind(value, pool.view, origin[value.buffer], nbytes[value.buffer]) for value in program.values]
        self._guard = None if pages is None else Guard(pool.view, self._facts.declared)
        _lay(self._facts, pool.memory, content)
        every = len(pool.memory) <= SMALL if every_op is None else every_op
        self._monitor = Monitor(self._facts, pool.memory, blocks, executor=executor, every_op=every)
        self._next: int | None = None
        self._skip: frozenset[int] = frozenset()
        ops = program.ops
        self._uploads = ops.is_kind("host.write").tolist()
        self._view_ops = ops.is_kind("view").tolist()

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """All that was found so far, in order of run and step."""
        return self._monitor.incidents

    @property
    def clean(self) -> bool:
        """Whether nothing was found so far."""
        return not self._monitor.incidents

    def report(self) -> str:
        """Return all incidents as text, a block of lines each, `clean` where there are none; and
        what was examined.
        """
        return told(self.program, self.incidents, examined(self._facts, pages=self.pages))

    @property
    def size(self) -> int:
        """Bytes of memory, red zones included."""
        return len(self._pool)

    @property
    def base(self) -> int:
        """Address of the first byte of memory, as kernels see it."""
        return self._base

    def nearest(self, position: int, step: int) -> tuple[int, str, int] | None:
        """As `Facts.nearest`."""
        return self._facts.nearest(position, step)

    @property
    def origin(self) -> tuple[int, ...]:
        """For each buffer where in memory it begins, -1 where it needs none."""
        return self._facts.origin

    def image(self, value: int) -> bytes:
        """Return the bytes of a value as they lie in memory, lowest address first."""
        return b"".join(self._pool[low:high].tobytes() for low, high in self._facts.places[value])

    def places(self, value: int) -> tuple[Range, ...]:
        """Return where in memory the bytes of a value lie."""
        return tuple(self._facts.places[value])

    def undeclared(self, step: int, value: int, places: Sequence[Range]) -> None:
        """Report that a result of the op at `step`, which has just run and has not been left,
        depends on dead bytes of some ranges of memory.
        """
        self._monitor.blame.undeclared(step, value, places)

    def value(self, index: int) -> Array:
        """Return the memory of a value: what lies there now, whether or not it is still that
        value.
        """
        value = self.program.values[index]
        return _bind(value, self._pool, self.origin[value.buffer], int(self.program.buffers.nbytes[value.buffer]))

    @contextmanager
    def run(self, skip: Collection[int | str] = ()) -> Iterator["Sanitized"]:
        """Begin a run in which the host leaves out the uploads of `skip` (steps or names of
        `host.write` ops), and end it.

        A run that an exception leaves is given up: its memory is no longer followed, and no other
        run can begin.

        Raises ModelError for an upload that does not exist, or a run within a run, and on leaving,
        for an op that was left out.
        """
        if self._next is not None:
            raise ModelError("", "a run has begun and has not ended")
        self._skip = frozenset(self.steps_of(skip))
        self._monitor.begin(self._skip)
        self._next = 0
        if self._guard is None:
            yield self
        else:
            self._guard.arm()
            try:
                yield self
                self._monitor.blame.touched(self._guard.leave())  # by who had still not ended
            finally:
                self._guard.release()
        self._pass_to(len(self.program.ops))
        self._monitor.end()
        self._next = None

    @contextmanager
    def op(self, step: int) -> Iterator[tuple[tuple[Array, ...], tuple[Array, ...]]]:
        """Give the operands and results of the op at `step` to what runs inside, and look at what
        it did.

        Raises ModelError outside a run, for an op that does not exist or was passed, or that passes
        over one that is no view and not skipped.
        """
        if self._next is None:
            raise ModelError("", "no run has begun: with arena.run(): ...")
        if not 0 <= step < len(self.program.ops):
            raise ModelError(f"ops[{step}]", f"does not exist; there are {len(self.program.ops)}")
        if step < self._next:
            raise ModelError(f"ops[{step}]", f"comes after op {self._next - 1} has run; ops run in order, each once")
        if step in self._skip:
            raise ModelError(f"ops[{step}]", "was named as an upload that is left out")
        self._pass_to(step)
        op, guard = self.program.ops[step], self._guard
        if guard is not None:
            guard.enter(step)
        with np.errstate(all="ignore"):  # poison is made of NaNs; what comes of it is reported, not warned of
            yield tuple(self._arrays[v] for v in op.operands), tuple(self._arrays[v] for v in op.results)
        if guard is not None:
            self._monitor.blame.touched(guard.leave())
        self._leave(step)

    def _pass_to(self, step: int) -> None:
        """Pass over what may be passed over before `step`."""
        for passed in range(self._next or 0, step):
            if not self._view_ops[passed] and passed not in self._skip:
                hint = "; name it in run(skip=...)" if self._uploads[passed] else ""
                raise ModelError(f"ops[{passed}]", f"({self.program.ops.names[passed]}) was left out{hint}")
            self._leave(passed)

    def _leave(self, step: int) -> None:
        self._monitor.between(step)
        self._next = step + 1

    def steps_of(self, skip: Collection[int | str]) -> tuple[int, ...]:
        """Return the steps of the uploads named; raise ModelError for what is none."""
        ops = self.program.ops
        uploads = [step for step, upload in enumerate(self._uploads) if upload]
        found: list[int] = []
        for item in skip:
            steps = [step for step in uploads if item in (step, ops.names[step])]
            if len(steps) != 1:
                rule = f"names {len(steps)} uploads" if steps else "is no upload"
                known = ", ".join(f"{step} ({ops.names[step]})" for step in uploads) or "none"
                raise ModelError("skip", f"{item!r} {rule} of {self.program!r}; there are {known}")
            found += steps
        return tuple(found)


def sanitized(
    program: Program | Any,
    plan: Slots,
    *,
    content: Mapping[str, Array] | None = None,
    every_op: bool | None = None,
    compiled: bool = False,
    other: Other | None = None,
    pages: Pages | None = None,
) -> Sanitized:
    """Lay memory out by a plan for your own kernels, and watch what they do to it.

    Args:
        program: what runs; a networkx DiGraph will do.
        plan: a `Plan`, or an offset for each buffer as `verify_program` takes them; it may be as
            wrong as you like, but every buffer in use needs a slot that begins at 0 or later and
            ends within its arena's capacity.
        content: name -> array of the bytes a parameter or state holds before the first run; zeros
            where none is given.
        every_op: compare all memory after each op with what it was before, so that every change is
            pinned on its op in the first run, to the byte; O(arena) for each op. Unless told, up to
            `SMALL` bytes of memory.
        compiled: look at bytes with numba: quicker from about a thousand ops on, after a
            compilation.
        other: a range of memory in which dead bytes hold another form of poison, and which
            (`p_sanitizer.watched`); never compiled.
        pages: guard pages, so that what an op does not declare is a fault (`p_sanitizer.guard`):
            those of the plan's own layout (`shared`), or for each buffer pages of its own that end
            or begin it (`end`, `begin`), which says nothing of what the plan lays over what.

    Raises:
        ModelError: plan and program do not fit, a buffer in use has no slot or one outside its
            arena, a value reaches outside its buffer, a packed value does not fill its bytes (two
            values may then share one, and bytes are told by who wrote them last), or content of
            another size; no page can be guarded on this system; pages of their own for buffers
            that an op of the program joins (`same`).
    """
    made = placed(program, plan)
    if pages in ("end", "begin") and made.program.same_ops.any():
        raise ModelError("", "an op of the program makes buffers one (`same`): they cannot have pages of their own")
    executor: Callable[[Bytes], RowExecutor] = partial(Plain, other=other)
    if compiled and other is None:
        from allocsim.p_sanitizer.compiled_executor import Compiled  # noqa: PLC0415 - compiles

        executor = Compiled
    return Sanitized(made, content or {}, executor=executor, every_op=every_op, other=other, pages=pages)


def _dead(memory: Bytes, blocks: Sequence[TrackedBlock], other: Other) -> None:
    """Give memory that nobody has written another form of poison in a range."""
    memory[:] = pattern(0, len(memory), poison.ZONE, other)
    for block in blocks:
        memory[block.start : block.start + block.nbytes] = pattern(block.start, block.nbytes, poison.NEVER, other)


def lay_out(plan: Plan, pages: Pages | None = None) -> tuple[Pool, list[TrackedBlock], tuple[int, ...]]:
    """Return a pool with a block for each arena and each buffer outside them, the blocks, and where
    each buffer begins.
    """
    program, needed = plan.program, needs_pool(plan.program)
    sizes, alignments = program.buffers.nbytes.tolist(), program.buffers.alignment.tolist()
    arenas, offsets = plan.arena.tolist(), plan.offset.tolist()
    reach = [0] * len(program.arenas)
    ends: Ends | None = None if pages == "shared" else pages
    for buffer, arena in enumerate(arenas):
        if not needed[buffer]:
            continue
        name = program.buffers.names[buffer]
        if arena == UNPLACED:
            raise ModelError(f"slots[{buffer}]", f"{name!r} is used and has no slot")
        if arena == OWN:
            continue
        capacity, stop = program.arenas[arena].capacity, offsets[buffer] + sizes[buffer]
        if offsets[buffer] < 0 or (capacity is not None and stop > capacity):
            limit = "unbounded" if capacity is None else f"of {capacity} bytes"
            raise ModelError(
                f"slots[{buffer}]", f"{name!r} [{offsets[buffer]}, {stop}) lies outside its arena, which is {limit}"
            )
        reach[arena] = max(reach[arena], stop)
    own = [buffer for buffer, arena in enumerate(arenas) if needed[buffer] and (ends or arena == OWN)]
    reach = [] if ends else reach
    pool = Pool.of([*reach, *(sizes[buffer] for buffer in own)], mapped_twice=pages is not None, ends=ends)
    blocks: list[TrackedBlock] = []

    def taken(nbytes: int, arena: int | None, alignment: int) -> int:
        start = pool.position(pool.take(nbytes, alignment)) or 0
        blocks.append(TrackedBlock(start=start, nbytes=nbytes, arena=arena))
        return start

    starts = [taken(size, number, ALIGNMENT) for number, size in enumerate(reach)]
    origin = [
        starts[arena] + offsets[buffer] if needed[buffer] and arena >= 0 and not ends else ELSEWHERE
        for buffer, arena in enumerate(arenas)
    ]
    for buffer in own:
        origin[buffer] = taken(sizes[buffer], None, min(alignments[buffer], mmap.PAGESIZE))
    return pool, blocks, tuple(origin)


def _lay(facts: Facts, pool: Bytes, content: Mapping[str, Array]) -> None:
    buffers = facts.program.buffers
    names = {name: index for index, name in enumerate(buffers.names) if facts.persistent[index]}
    for name in content:
        if name not in names:
            raise ModelError(f"content[{name!r}]", f"is no parameter or state; there are {', '.join(names) or 'none'}")
    for buffer, persistent in enumerate(facts.persistent):
        start, nbytes = facts.origin[buffer], int(buffers.nbytes[buffer])
        if not persistent or start == ELSEWHERE:
            continue
        data = content.get(buffers.names[buffer])
        if data is not None and data.nbytes != nbytes:
            raise ModelError(f"content[{buffers.names[buffer]!r}]", f"has {data.nbytes} bytes; the buffer has {nbytes}")
        pool[start : start + nbytes] = 0 if data is None else np.ascontiguousarray(data).ravel().view(np.uint8)


def _bind(value: Value, pool: Bytes, start: int, nbytes: int) -> Array:
    shape, strides = _in_bytes(value) if value.dtype not in NUMPY else (value.shape, value.strides)
    dtype = np.dtype(NUMPY.get(value.dtype, "u1"))
    if 0 in shape:
        return np.empty(shape, dtype=dtype)
    low, high = hull(shape, strides, value.offset, value.itemsize)
    if low < 0 or high > nbytes:
        rule = (
            f"{value.name!r} [{low}, {high}) reaches outside its buffer of {nbytes} bytes; no kernel can be given that"
        )
        raise ModelError(f"values[{value.index}]", rule)
    return np.ndarray(shape, dtype, pool.data, start + value.offset, strides)


def _in_bytes(value: Value) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and strides of a packed value as bytes.

    Raise ModelError unless it fills them.
    """
    width = int(WIDTHS[DTYPE_CODES[value.dtype]])
    bits = value.shape[-1] * width if value.shape else width
    if value.bit_offset or bits % 8:
        rule = f"{value.name!r} is {bits} bits a row from bit {value.bit_offset} on, and does not fill its bytes"
        raise ModelError(f"values[{value.index}]", f"{rule}; the sanitizer follows bytes")
    return (*value.shape[:-1], bits // 8), (*value.strides[:-1], 1)
