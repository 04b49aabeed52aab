"""Sound programs with their plans, beliefs and sessions, by the thousand, from a seed and without any planner.

The generator plays the machine: it keeps the bytes of every arena and who holds them. An op reads values that are still intact and writes where nobody
it means to read again has bytes, or exactly over an operand that it then gives up. So what comes out is sound by construction: places come
first, and what is read follows from what survived. No lifetime is analysed and no fit is searched; a place is drawn, and drawn again if somebody lives there.

A `Lot` is one document of many programs: they stand in one list of ops, one after the other in the same memory, and none reads what another has
made (but states, which last). `lot(seed, count=1)` is one program by itself. Lots differ by seed in what all of their programs have in common: streams,
runs, arenas, whether a belief is known.

What is sound here: no violation of any kind, believed lifetimes exact, and no order of the streams that differs. Warnings may come: an upload left out of a
later run is history, a foreign kernel in place is assumed safe.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from random import Random

import numpy as np

from allocsim.model import HOST_READ, HOST_WRITE, OWN, VIEW, Arena, Document, Plan, Problem, Role, Run
from allocsim.programs.builder import ProgramBuilder

GRAIN = 4
"""Bytes; buffers begin at multiples of it."""

ROOM = 64
"""Grains of an arena in which places are drawn before one is taken behind all others."""

STATES = (("w", Role.PARAMETER, 4), ("s", Role.STATE, 6))
"""Name, role and grains of what lasts; it lies at the beginning of the first arena."""

DTYPES = (("f32", 4), ("f16", 2), ("u8", 1))

STREAMS = (1, 1, 2, 1, 1, 3, 1, 1, 1, 1)
RUNS = (1, 2, 1, 3, 1, 1, 2, 1, 1, 2)
"""By seed: how many streams, and how many runs."""


@dataclass(frozen=True, slots=True)
class Held:
    """A value that can be read."""

    value: int
    buffer: int
    dtype: int
    shape: tuple[int, ...]
    offset: int
    """Of element 0 in the buffer."""
    whole: bool
    """Whether it is dense and begins its buffer, so that another value can lie exactly over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lot:
    """A sound document and what is in it."""

    document: Document
    programs: int
    in_place: int
    """Programs in which some buffer lies over another one by a legal pair."""
    sessions: int
    streams: int


@dataclass(slots=True)
class Machine:
    """The document under construction."""

    rng: Random
    streams: int
    arenas: int
    builder: ProgramBuilder
    holder: list[list[int]]
    """For each arena the buffer that has each grain, -1 where none had it yet."""
    place: list[tuple[int, int, int]] = field(default_factory=list)
    """For each buffer its arena (`OWN`), its first grain and how many."""
    alive: list[Held] = field(default_factory=list)
    lasting: list[Held] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    read_by_host: set[int] = field(default_factory=set)
    pairs: list[tuple[int, int]] = field(default_factory=list)
    repeatable: list[int] = field(default_factory=list)
    """Uploads that may be left out of later runs."""
    written: dict[tuple[int, int], int] = field(default_factory=dict)
    """(arena, grain) or (OWN, buffer) -> the last op that wrote there."""
    readers: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    steps: int = 0
    values: int = 0

    # --- buffers and places

    def buffer(self, nbytes: int, home: tuple[int, int], role: Role = Role.TEMPORARY, name: str = "") -> int:
        """Add a buffer at (arena, first grain) and take its grains."""
        index = len(self.place)
        arena, start = home
        grains = -(-nbytes // GRAIN)
        self.builder.buffer(name or f"b{index}", nbytes, arena=max(arena, 0), alignment=GRAIN, role=role)
        self.place.append((arena, start, grains))
        self.first.append(-1)
        self.last.append(-1)
        if arena != OWN:
            self.holder[arena][start : start + grains] = [index] * grains
        return index

    def free(self, nbytes: int) -> tuple[int, int]:
        """Draw a place where no buffer lies that is still to be read."""
        rng, grains = self.rng, -(-nbytes // GRAIN)
        if rng.random() < 0.06:
            return OWN, 0
        arena = rng.randrange(self.arenas)
        row = self.holder[arena]
        living = {held.buffer for held in self.alive} | {held.buffer for held in self.lasting}
        for _ in range(8):
            start = rng.randrange(ROOM)
            if living.isdisjoint(row[start : start + grains]):
                break
        else:
            start = len(row)
            while start and row[start - 1] not in living:
                start -= 1
        row.extend([-1] * (start + grains - len(row)))
        return arena, start

    def value(
        self, buffer: int, dtype: int, shape: tuple[int, ...], *, strides=None, offset: int = 0, whole: bool = True
    ) -> Held:
        """Add a value."""
        name, _ = DTYPES[dtype]
        index = self.builder.value(f"v{self.values}", buffer, name, shape, strides=strides, offset=offset)
        self.values += 1
        return Held(index, buffer, dtype, shape, offset, whole)

    def fresh(self, dtype: int, shape: tuple[int, ...], *, role: Role = Role.TEMPORARY, spare: int = 0) -> Held:
        """Add a value in a new buffer."""
        nbytes = DTYPES[dtype][1] * prod(shape) + spare
        return self.value(self.buffer(nbytes, self.free(nbytes), role), dtype, shape)

    # --- ops

    def op(self, kind: str, reads: list[Held], writes: list[Held], in_place=()) -> int:
        """Add an op, with the waits that order it after everything it meets."""
        step = self.steps
        self.steps += 1
        stream, after = 0, ()
        if self.streams > 1:
            stream = self.rng.randrange(self.streams)
            after = sorted(self.waits(kind, reads, writes, step))
        self.builder.op(
            kind,
            [held.value for held in reads],
            [held.value for held in writes],
            in_place=in_place,
            stream=stream,
            after=after,
        )
        if kind != VIEW:
            for held in (*reads, *writes):
                self.last[held.buffer] = step
                if self.first[held.buffer] < 0:
                    self.first[held.buffer] = step
        return step

    def waits(self, kind: str, reads: list[Held], writes: list[Held], step: int) -> set[int]:
        """Return the earlier ops that touched the same bytes, one of the two writing."""
        if kind == VIEW:
            return set()
        found: set[int] = set()
        for held in reads:
            for grain in self.grains(held.buffer):
                if grain in self.written:
                    found.add(self.written[grain])
        for held in writes:
            for grain in self.grains(held.buffer):
                found.update(self.readers.get(grain, ()))
                if grain in self.written:
                    found.add(self.written[grain])
        for held in writes:
            for grain in self.grains(held.buffer):
                self.written[grain], self.readers[grain] = step, []
        for held in reads:
            for grain in self.grains(held.buffer):
                self.readers.setdefault(grain, []).append(step)
        return found - {step}

    def grains(self, buffer: int) -> Iterator[tuple[int, int]]:
        arena, start, count = self.place[buffer]
        return iter([(OWN, buffer)]) if arena == OWN else ((arena, grain) for grain in range(start, start + count))

    def pick(self) -> Held:
        """Return something that can be read."""
        if self.lasting and self.rng.random() < 0.12:
            return self.rng.choice(self.lasting)
        if not self.alive:
            upload(self)
        return self.rng.choice(self.alive)

    def drop(self, *buffers: int) -> None:
        """Give up every value of these buffers."""
        self.alive = [held for held in self.alive if held.buffer not in buffers]


def upload(m: Machine) -> None:
    """The host writes an input."""
    held = m.fresh(m.rng.choice((0, 0, 1, 2)), m.rng.choice(((2,), (3,), (2, 2), (4,), (1,))), role=Role.INPUT)
    step = m.op(HOST_WRITE, [], [held])
    if m.place[held.buffer][0] == OWN:
        m.repeatable.append(step)
    m.alive.append(held)


def compute(m: Machine) -> None:
    """A result in a place nobody needs; kernels offer to run in place and are not asked to."""
    reads = [m.pick() for _ in range(m.rng.choice((1, 1, 2, 3)))]
    held = m.fresh(reads[0].dtype, reads[0].shape, spare=m.rng.choice((0, 0, 0, 5)))
    m.op("compute", reads, [held], m.rng.choice(((), ((0, 0),), None)))
    m.alive.append(held)


def over(m: Machine) -> None:
    """A result exactly over an operand that is given up."""
    donors = [held for held in m.alive if held.whole and m.place[held.buffer][0] != OWN]
    if not donors:
        return compute(m)
    donor = m.rng.choice(donors)
    others = [held for held in m.alive if held.buffer != donor.buffer]
    reads = [donor, *([m.rng.choice(others)] if others and m.rng.random() < 0.4 else [])]
    if m.rng.random() < 0.2:
        reads.append(donor)
    arena, start, _ = m.place[donor.buffer]
    nbytes = DTYPES[donor.dtype][1] * prod(donor.shape)
    held = m.value(m.buffer(nbytes, (arena, start)), donor.dtype, donor.shape)
    m.op(
        "over", reads, [held], tuple((position, 0) for position, one in enumerate(reads) if one.buffer == donor.buffer)
    )
    m.pairs.append((donor.buffer, held.buffer))
    m.drop(donor.buffer)
    m.alive.append(held)
    return None


def mutate(m: Machine) -> None:
    """A new value over an old one in its own buffer."""
    choices = [held for held in (*m.alive, *(one for one in m.lasting if one.buffer == 1)) if held.whole]
    if not choices:
        return compute(m)
    old = m.rng.choice(choices)
    new = m.value(old.buffer, old.dtype, old.shape)
    m.op("mutate", [old], [new], ((0, 0),))
    m.repeatable = [step for step in m.repeatable if step != m.first[old.buffer]]
    if old in m.lasting:
        return None
    m.drop(old.buffer)
    m.alive.append(new)
    return None


def look(m: Machine) -> None:
    """A view: a slice, flipped, or every second element; of one axis."""
    parents = [held for held in m.alive if len(held.shape) == 1 and held.whole]
    if not parents:
        return compute(m)
    parent = m.rng.choice(parents)
    size, count = DTYPES[parent.dtype][1], parent.shape[0]
    shape, stride, offset = m.rng.choice(
        (
            ((count,), -size, size * (count - 1)),
            ((-(-count // 2),), 2 * size, 0),
            ((1,), size, size * (count - 1)),
            ((2, count), 0, 0),
        )
    )
    strides = (stride, size) if len(shape) == 2 else (stride,)
    view = m.value(parent.buffer, parent.dtype, shape, strides=strides, offset=parent.offset + offset, whole=False)
    m.op(VIEW, [parent], [view])
    m.alive.append(view)
    return None


def several(m: Machine) -> None:
    """Two results, one of which nobody may ever read."""
    source = m.pick()
    one = m.fresh(source.dtype, source.shape)
    m.alive.append(one)
    other = m.fresh(2, (m.rng.randrange(1, 9),))
    m.op("several", [source], [one, other])
    m.alive += [other] * m.rng.randrange(2)


def download(m: Machine) -> None:
    """The host reads something."""
    held = m.pick()
    m.op(HOST_READ, [held], [])
    m.read_by_host.add(held.buffer)


ACTIONS = (*[compute] * 6, *[over] * 4, upload, upload, mutate, look, several, download)


def lot(seed: int, *, count: int = 1, ops: int = 8) -> Lot:
    """Return a sound document of `count` programs of about `ops` ops each."""
    rng = Random(seed)
    streams, runs = STREAMS[seed % len(STREAMS)], RUNS[(seed // 10 + 3 * seed) % len(RUNS)]
    arenas = rng.choice((1, 1, 2))
    spaces = tuple(Arena(name=f"m{n}", alignment=1) for n in range(arenas))
    machine = Machine(
        rng=rng,
        streams=streams,
        arenas=arenas,
        builder=ProgramBuilder("lot", arenas=spaces, streams=[f"s{n}" for n in range(streams)]),
        holder=[[-1] * ROOM for _ in range(arenas)],
    )
    at = 0
    for name, role, grains in STATES:
        buffer = machine.buffer(grains * GRAIN, (0, at), role, name)
        machine.lasting.append(machine.value(buffer, 0, (grains,)))
        at += grains
    in_place = 0
    for _ in range(count):
        before = len(machine.pairs)
        for _ in range(rng.randrange(ops - 3, ops + 4)):
            rng.choice(ACTIONS)(machine)
            while len(machine.alive) > 5 or (machine.alive and rng.random() < 0.15):
                machine.drop(rng.choice(machine.alive).buffer)
        download(machine)
        machine.alive.clear()
        in_place += len(machine.pairs) > before
    document = _document(machine, runs)
    return Lot(
        document=document, programs=count, in_place=in_place, sessions=count * (runs > 1), streams=count * (streams > 1)
    )


def _document(m: Machine, runs: int) -> Document:
    program = m.builder.build()
    where = np.array([arena for arena, _, _ in m.place], dtype=np.int32)
    problem = None
    if m.rng.random() < 0.6:
        lasts = [
            m.steps if read else end + 1 for end, read in zip(m.last, program.buffers.persistent.tolist(), strict=True)
        ]
        problem = Problem.of(
            program,
            start=[
                max(step, 0) * (not kept)
                for step, kept in zip(m.first, program.buffers.persistent.tolist(), strict=True)
            ],
            stop=lasts,
            pinned=(),  # the lives cover what the host reads; some of it is given away after that
            own=where == OWN,
            may_share=m.pairs,
        )
    plans = [
        Plan(
            program=program,
            problem=problem,
            arena=where,
            offset=np.where(where < 0, 0, _moved(m, shift)),
            nbytes=np.where(where < 0, 0, program.buffers.nbytes),
        )
        for shift in (0, m.rng.choice((0, 8)))
    ]

    def left_out() -> tuple[int, ...]:
        return tuple(step for step in m.repeatable if m.rng.random() < 0.5)

    return Document.of(*(Run.of(plans[n % 2], skip=left_out() if n else ()) for n in range(runs)))


def _moved(m: Machine, shift: int) -> np.ndarray:
    """Return the offsets with all but what lasts moved by as many grains."""
    return np.array(
        [GRAIN * (start + shift * (index >= len(STATES))) for index, (_, start, _) in enumerate(m.place)],
        dtype=np.int64,
    )
