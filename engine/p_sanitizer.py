"""Detector P for the engine: a lowered graph run in guarded memory, with every op watched.

    with Sanitizer(lowered, plan, parameters=weights) as sanitizer:
        sanitizer.run(inputs)                                # as Runtime.run; twice, so that what is vague after one run is pinned on its op
        sanitizer.run(inputs, skip=("seed",))
        sanitizer.finish()
    sanitizer.incidents                                      # allocsim.p_sanitizer.Incident, in order of run and step

A `Runtime` is made whose blocks come from a pool with red zones (`allocsim.p_sanitizer.pools`),
and is observed after each op. A plain runtime is not touched: without a sanitizer nothing of this
exists. Under a sound plan and honest kernels the results are bit for bit those of the plain
runtime; reads that are wrong find poison or what took their place.

Read-only parameters are used where they are (`Runtime`), outside the pool: they have a checksum but
no red zone, and since reading half a gigabyte of weights takes as long as a good part of a step,
each run verifies only the next `SHARE` bytes of them in turn, at most `COUNT` and at least one
parameter; `finish` verifies all. A parameter that changed is watched from then on after each op
that reads it.

With `strict` every tensor has pages of its own that end at a guard page, read-only parameters (a
copy) too, and each op rights on those it declares (`allocsim.p_sanitizer.guard`): what it does not
declare is a fault, with instruction and thread. The plan's slots are not laid then: kernels are
examined, not what the plan lays over what (`examined` says it).

What this module does not see: which scenario runs, and whether the plan is meant to be sound.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from allocsim.model import HOST_WRITE, OWN, Plan, Program, Role
from allocsim.p_sanitizer.compiled_executor import Compiled
from allocsim.p_sanitizer.guard import Guard, why_not
from allocsim.p_sanitizer.incident_words import crash, op_words
from allocsim.p_sanitizer.incidents import BY_KERNEL, Incident
from allocsim.p_sanitizer.kernel_child import KernelChild, in_child
from allocsim.p_sanitizer.monitor import Monitor
from allocsim.p_sanitizer.pools import Pool, TrackedBlock
from allocsim.p_sanitizer.program_facts import ELSEWHERE, Facts
from allocsim.p_sanitizer.scope import examined
from engine.graph.lowering import Lowered
from engine.runtime import Observer, Runtime
from engine.runtime.plan_memory import arena_sizes

Array = NDArray[Any]
At = Callable[[int, int], None]

SHARE: Final = 1 << 25
COUNT: Final = 32
"""Bytes and number of read-only parameters verified after each run, at least one."""
SECONDS: Final = 60.0
MEMORY: Final = 1 << 32
"""What a child with kernels of the user's may take, unless told otherwise."""
OWN_KERNEL: Final = "own"
"""The variant of kernels of the user's (`engine.front.custom_ops`)."""


class Sanitizer:
    """A runtime in guarded memory, with the monitor that observes it; a context manager too."""

    def __init__(
        self,
        lowered: Lowered,
        plan: Plan,
        *,
        parameters: Mapping[str, Array] | None = None,
        threads: int | None = 1,
        every_op: bool = False,
        strict: bool = False,
    ) -> None:
        """Take guarded memory and bind the graph there.

        Arguments and errors are those of `Runtime`; with `strict` ModelError where the system
        guards no pages.

        `every_op` compares all memory after each op with what it was before, so that every change
        is pinned on its op in the first run, at O(pool) for each op.
        """
        program = lowered.program
        buffers = program.buffers
        given = dict(parameters or {})
        outside = (buffers.role == Role.PARAMETER) & buffers.read_only
        copied = {buffers.names[b]: b for b in np.flatnonzero(outside).tolist() if strict and buffers.names[b] in given}
        plan = _apart(program) if strict else plan
        own = buffers.nbytes[(plan.arena == OWN) & ~outside].tolist()
        sizes = [*arena_sizes(plan), *own, *(given[name].nbytes for name in copied)]
        self._pool = Pool.of(sizes, ends="end" if strict else None)
        for name in copied:
            memory = self._pool.take(given[name].nbytes)
            memory[:] = given[name].reshape(-1).view(np.uint8)
            given[name] = memory.view(given[name].dtype).reshape(given[name].shape)
        self.runtime = Runtime(lowered, plan, parameters=given, threads=threads, allocate=self._pool.take, suspect=True)
        origin = tuple(_origin(self._pool, *block) for block in self.runtime.blocks)
        memory = self._pool.memory
        facts = Facts(program=program, origin=origin, size=len(memory))
        self._facts = facts
        self._outside = {
            b: block[0] for b, block in enumerate(self.runtime.blocks) if origin[b] == ELSEWHERE and len(block[0])
        }
        self._monitor = Monitor(
            facts, memory, self._blocks(), executor=Compiled, outside=self._outside, every_op=every_op
        )
        self._guard = Guard(self._pool.view, facts.declared) if strict else None
        for step, kernel in enumerate(self.runtime.kernels):
            if strict and kernel is not None:
                self.runtime.call(step)  # whatever binding reads is read before rights are taken
        self._turn = 0
        self._digests = {buffer: self._monitor.digest(array) for buffer, array in self._outside.items()}
        self._readers: dict[int, list[int]] = {}
        for step, operands in enumerate(facts.operands):
            for value in operands:
                if facts.owner[value] in self._outside:
                    self._readers.setdefault(facts.owner[value], []).append(step)
        self._watched: dict[int, list[int]] = {}
        self._verified = dict.fromkeys(self._outside, (0, 0))

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """All that was found so far, in order of run and step."""
        return self._monitor.incidents

    @property
    def facts(self) -> Facts:
        """The program as it is laid."""
        return self._facts

    @property
    def base(self) -> int:
        """Address of the first byte of memory, as kernels see it."""
        return int(self._pool.view.ctypes.data)

    @property
    def monitor(self) -> Monitor:
        """The monitor, for its counts."""
        return self._monitor

    def run(self, inputs: Mapping[str, Array], *, skip: Collection[str] = (), at: At | None = None) -> dict[str, Array]:
        """Run as `Runtime.run` does, watched; `at` hears run and step before each op."""
        writes = np.flatnonzero(self.runtime.program.ops.is_kind(HOST_WRITE)).tolist()
        names = {self.runtime.lowered.tensors[step].name: step for step in writes}
        monitor, watched = self._monitor, self._watched
        monitor.begin([names[name] for name in skip if name in names])
        observe = monitor.observer()

        def observe_outside(step: int, operands: tuple[Array, ...], results: tuple[Array, ...]) -> None:
            observe(step, operands, results)
            if step in watched:
                self._verify(watched[step], step)

        observer = observe_outside if watched else observe
        if at is not None:
            observer = _telling(at, monitor.runs - 1, observer)
        outputs = (
            self.runtime.run(inputs, skip=skip, observer=observer)
            if self._guard is None
            else self._guarded(self._guard, inputs, skip, observer)
        )
        self._verify(self._share(), len(self._facts.operands) - 1)
        monitor.end()
        return outputs

    def _guarded(
        self, guard: Guard, inputs: Mapping[str, Array], skip: Collection[str], observer: Observer
    ) -> dict[str, Array]:
        """Run with rights on what each op declares alone; the host reads after the last."""
        last = len(self._facts.operands) - 1

        def observe(step: int, operands: tuple[Array, ...], results: tuple[Array, ...]) -> None:
            self._monitor.blame.touched(guard.leave())
            observer(step, operands, results)
            if step == last:
                guard.release()
            else:
                guard.enter(step + 1)

        guard.arm()
        try:
            guard.enter(0)
            return self.runtime.run(inputs, skip=skip, observer=observe)
        finally:
            guard.release()

    @property
    def examined(self) -> tuple[str, ...]:
        """Lines that say what was examined, and what was not."""
        return tuple(examined(self._facts, pages=None if self._guard is None else "end"))

    def finish(self) -> None:
        """Verify what the last run left unverified: all read-only parameters."""
        self._verify(list(self._outside), len(self._facts.operands) - 1)

    def close(self) -> None:
        """Close the runtime."""
        self.runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _blocks(self) -> list[TrackedBlock]:
        arenas = [(array, number) for number, array in enumerate(self.runtime.arenas)]
        own = [
            (array, None)
            for (array, _), arena in zip(self.runtime.blocks, self.runtime.plan.arena, strict=True)
            if arena == OWN
        ]
        placed = ((self._pool.position(array), array.nbytes, arena) for array, arena in (*arenas, *own))
        blocks = [
            TrackedBlock(start=start, nbytes=nbytes, arena=arena)
            for start, nbytes, arena in placed
            if start is not None
        ]
        return sorted(blocks, key=lambda block: block.start)

    def _share(self) -> list[int]:
        """Return the next buffers outside the pool in turn, and those already found changed."""
        buffers, nbytes = list(self._outside), 0
        chosen: list[int] = []
        while len(chosen) < min(len(buffers), COUNT) and nbytes < SHARE:
            buffer = buffers[self._turn % len(buffers)]
            self._turn += 1
            chosen.append(buffer)
            nbytes += self._outside[buffer].nbytes
        suspected = {buffer for group in self._watched.values() for buffer in group}
        return list(dict.fromkeys([*chosen, *suspected]))

    def _verify(self, buffers: list[int], step: int) -> None:
        """Verify buffers outside the pool after the op of `step`.

        One that changed is reported once and watched from then on.
        """
        for buffer in buffers:
            now = self._monitor.digest(self._outside[buffer])
            run, since = self._verified[buffer]
            self._verified[buffer] = (self._monitor.runs - 1, step + 1)
            if now == self._digests[buffer]:
                continue
            self._digests[buffer] = now
            first = since if run == self._monitor.runs - 1 else 0
            self._monitor.blame.outside_changed(buffer, (first, step + 1))
            if not any(buffer in group for group in self._watched.values()):
                for reader in self._readers.get(buffer, ()):
                    for at in {max(reader - 1, 0), reader}:
                        self._watched.setdefault(at, []).append(buffer)


def _apart(program: Program) -> Plan:
    """Return the plan that gives each buffer memory of its own, outside the arenas."""
    count = len(program.buffers)
    return Plan(
        program=program,
        arena=np.full(count, OWN, np.int32),
        offset=np.zeros(count, np.int64),
        nbytes=program.buffers.nbytes,
    )


def _telling(at: At, run: int, observer: Observer) -> Observer:
    """Return an observer that says which op is next, and say that the first is."""
    at(run, 0)

    def observe(step: int, operands: tuple[Array, ...], results: tuple[Array, ...]) -> None:
        observer(step, operands, results)
        at(run, step + 1)

    return observe


def foreign(
    lowered: Lowered,
    plan: Plan,
    inputs: Mapping[str, Array],
    *,
    parameters: Mapping[str, Array] | None = None,
    seconds: float = SECONDS,
    memory: int = MEMORY,
) -> tuple[Incident, ...]:
    """Return what the kernels of the user's in a program do against what they declare, a crash, a
    hang and an exception among it; nothing where the program has none of them.

    One run in a child (`allocsim.p_sanitizer.kernel_child`), in the strict mode where the system
    guards pages: none of these kernels has touched memory of this process.

    Args:
        lowered: the program; its kernels of variant `OWN_KERNEL` are the user's.
        plan: where tensors lie where no page can be guarded.
        inputs: as `Runtime.run` takes them.
        parameters: as `Runtime` takes them.
        seconds: the child may take.
        memory: bytes that it may take beyond those it begins with.
    """
    kinds = {kind for kind, variant in lowered.variants.items() if variant == OWN_KERNEL}
    program = lowered.program
    mine = {op.step for op in program.ops if op.kind in kinds} if kinds else set()
    if not mine:
        return ()
    with Sanitizer(lowered, plan, parameters=parameters, strict=not why_not()) as sanitizer:

        def task(child: KernelChild) -> None:
            try:
                sanitizer.run(inputs, at=child.at)
                sanitizer.finish()
            finally:
                child.say(sanitizer.incidents)

        told = in_child(task, seconds=seconds, memory=memory)
        found = [i for message in told.messages for i in message if i.op in mine and i.kind in BY_KERNEL]
        if told.how and told.place[1] in mine:
            found.append(crash(sanitizer.facts.nearest, sanitizer.base, program, told))
    if told.raised and told.place[1] in mine:
        run, step = told.place
        message = f"{op_words(program, step, run)} raised {told.raised}"
        found.append(Incident(kind="Crash", run=run, op=step, message=message))
    return tuple(found)


def _origin(pool: Pool, memory: NDArray[np.uint8], offset: int) -> int:
    start = pool.position(memory)
    return ELSEWHERE if start is None or not len(memory) else start + offset
