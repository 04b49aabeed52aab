"""Sequences of calls, drawn from a seed: the shapes of real use, and noise.

| shape | what it is like |
|---|---|
| `training` | a step: activations given out forward and freed backward, a side stream that reads some |
| `serving` | sequences arrive, grow by a page or a few bytes, share a prefix, are preempted, roll back, slide; two steps in flight |
| `growth` | blocks that are grown and cut again |
| `pressure` | more is asked for than there is, and again after some was freed |
| `noise` | any call at any time |

What a target cannot do is never drawn for it. Sizes are drawn as reality has them: many small ones,
some pages, few large; just below and above powers of two.

Seeds: sequence i of a campaign of seed s is `drawn(s, i, abilities)`, on any machine. O(calls).
What this module does not see: answers. A call may come for memory that was refused; the driver
leaves it out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from allocsim.online.driver import Call
from allocsim.online.protocol import OPTIONAL, Abilities

STREAMS: Final = 3
THREADS: Final = 1 / 8, 1 / 128
"""Of sequences of a target that takes it, those whose calls come from several threads: of the first
`EARLY`, and of those behind.
"""
FORKS: Final = 1 / 16, 1 / 256
"""Those with a fork. It takes as long as twenty sequences, and threads as long as five: in bulk
both are rarer.
"""
EARLY: Final = 128
ALIGNMENTS: Final = (1, 8, 16, 64, 64, 256, 512, 4096)
CAPACITIES: Final = (1 << 12, 1 << 14, 1 << 16, 1 << 20, 3 << 14, 40_000, 1 << 25)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """What a fresh target is made with, and the calls that it then gets."""

    shape: str
    capacity: int | None
    alignment: int
    streams: int
    calls: tuple[Call, ...]


class _Draw:
    """Calls that are being drawn, with the handles that they hold."""

    def __init__(
        self, random: Random, abilities: Abilities, *, capacity: int | None, alignment: int, streams: int
    ) -> None:
        self.random = random
        self.can = abilities.calls
        self.page = abilities.page
        self.capacity = capacity
        self.alignment = alignment
        self.streams = streams
        self.owners = streams if abilities.streams else 1
        """Streams that memory is given out for."""
        self.calls: list[Call] = []
        self.held: list[int] = []
        self.made = 0
        self.steps: list[int] = []

    def size(self) -> int:
        """Draw the bytes of a request: one unit, a power of two give or take one, or anything."""
        draw, room = self.random.random(), self.capacity or 1 << 20
        unit = self.page or 64
        if draw < 0.4:
            return unit * self.random.randint(1, 4)
        if draw < 0.7:
            return max(
                1, (1 << self.random.randint(0, max(room.bit_length() - 3, 1))) + self.random.choice((-1, 0, 0, 1))
            )
        if draw < 0.95:
            return self.random.randint(1, max(room // 8, 1))
        return self.random.randint(1, room + room // 8)

    def alloc(self, nbytes: int | None = None, stream: int | None = None) -> int:
        """Ask for memory; return its handle."""
        handle, self.made = self.made, self.made + 1
        alignment = self.alignment if self.random.random() < 0.8 else self.random.choice(ALIGNMENTS)
        chosen = self.random.randrange(self.owners) if stream is None else stream
        self.calls.append(("alloc", handle, nbytes or self.size(), min(alignment, self.alignment), chosen))
        self.held.append(handle)
        return handle

    def free(self, handle: int) -> None:
        """Give memory back."""
        self.held.remove(handle)
        self.calls.append(("free", handle, self.random.random() < 0.7))

    def use(self, *handles: int, stream: int | None = None) -> None:
        """Use memory on a stream."""
        chosen = self.random.randrange(self.owners) if stream is None else stream
        self.calls.append(("use", chosen, handles, self.random.random() < 0.4))

    def reserve(self, nbytes: int) -> None:
        """Have room reserved, and mostly ask for it."""
        stream = self.random.randrange(self.owners)
        self.calls.append(("reserve", nbytes, stream))
        if self.random.random() < 0.8:
            self.alloc(nbytes - self.random.choice((0, 0, nbytes // 3)), stream=stream)

    def some(self) -> int | None:
        """Draw a handle that is held; None where there is none."""
        return self.random.choice(self.held) if self.held else None


def drawn(seed: int, index: int, abilities: Abilities) -> Sequence:
    """Return sequence `index` of a seed for a target of these abilities."""
    random = Random(f"{seed}/{index}")  # noqa: S311 - nothing secret
    shape = random.choice(list(SHAPES))
    streams = random.randint(1, STREAMS) if abilities.streams or "begin" in abilities.calls else 1
    alignment = random.choice(ALIGNMENTS)
    capacity = None if random.random() < 0.15 else random.choice(CAPACITIES)
    if abilities.page:
        capacity = abilities.page * random.choice((2, 3, 5, 8, 13, 32, 200))
    draw = _Draw(random, abilities, capacity=capacity, alignment=alignment, streams=streams)
    SHAPES[shape](draw, random.choice((4, 6, 8, 12, 12, 40)))
    missing = {*OPTIONAL} - abilities.calls - {"begin"}  # a step is a use, whoever is told of it
    calls = tuple(call for call in draw.calls if call[0] not in missing and (abilities.page or call[0] != "part"))
    late = index >= EARLY
    if abilities.threads and random.random() < THREADS[late]:
        calls = tuple(("thread", random.randint(1, 2), call) if random.random() < 0.5 else call for call in calls)
    if abilities.forks and random.random() < FORKS[late]:
        at = random.randint(0, len(calls))
        calls = (*calls[:at], ("fork",), *calls[at:])
    return Sequence(shape=shape, capacity=capacity, alignment=alignment, streams=streams, calls=calls)


def _training(draw: _Draw, length: int) -> None:
    layers, main = max(2, length // 4), 0
    for _ in range(draw.random.randint(1, 2)):
        kept = []
        for _ in range(layers):
            activation, scratch = draw.alloc(stream=main), draw.alloc(stream=main)
            draw.use(activation, scratch, stream=main)
            for side in range(1, draw.owners):
                if draw.random.random() < 0.4:
                    draw.use(activation, stream=side)
            draw.free(scratch)
            kept.append(activation)
        for activation in reversed(kept):
            gradient = draw.alloc(stream=draw.random.choice((main, draw.owners - 1)))
            draw.use(activation, gradient, stream=main)
            draw.free(activation)
            if draw.random.random() < 0.3:
                draw.calls.append(("synchronize" if draw.random.random() < 0.5 else "advance", draw.streams - 1))
            draw.free(gradient)


def _serving(draw: _Draw, length: int) -> None:
    sequences: dict[int, list[int]] = {}
    unit = draw.page or 64
    for step in range(length):
        choice = draw.random.random()
        if choice < 0.4 or not sequences:
            first = draw.alloc(unit * draw.random.randint(1, 3), stream=0)
            sequences[first] = [first]
        name = draw.random.choice(list(sequences))
        held = sequences[name]
        if 0.4 <= choice < 0.6:
            held.append(draw.alloc(unit, stream=0))
        elif choice < 0.7 and "share" in draw.can:
            shared, draw.made = draw.made, draw.made + 1
            draw.calls.append(("share", shared, held[0], draw.random.randint(0, 2)))
            draw.held.append(shared)
            sequences[shared] = [shared]
        elif choice < 0.8 and draw.page:
            first = draw.random.choice((0, 1))
            draw.calls.append(("part", held[0], first, 1))
        if "write" in draw.can and draw.random.random() < 0.5:
            draw.calls.append(("write", held[-1]))
        batch = draw.random.sample(list(sequences.values()), min(len(sequences), draw.random.randint(1, 3)))
        draw.calls.append(
            ("begin", step, draw.random.randrange(draw.streams), tuple(h for each in batch for h in each))
        )
        draw.steps.append(step)
        if "count" in draw.can and draw.random.random() < 0.3:
            draw.calls.append(("count", held[0]))
        while sequences and draw.random.random() < 0.4:  # some end together
            for handle in sequences.pop(draw.random.choice(list(sequences))):
                draw.free(handle)
        if len(draw.steps) > 2 or draw.random.random() < 0.2:
            draw.calls.append(("end", draw.steps.pop(0)))


def _growth(draw: _Draw, length: int) -> None:
    for _ in range(length):
        handle = draw.some()
        if handle is None or draw.random.random() < 0.35:
            draw.use(draw.alloc())
        elif "realloc" in draw.can and draw.random.random() < 0.7:
            draw.calls.append(("realloc", handle, draw.size()))
        elif draw.random.random() < 0.5:
            draw.use(handle)
        else:
            draw.free(handle)


def _pressure(draw: _Draw, length: int) -> None:
    room = draw.capacity or 1 << 20
    for _ in range(length):
        if len(draw.held) > 1 and draw.random.random() < 0.4:
            draw.free(draw.random.choice(draw.held))
        else:
            if "reserve" in draw.can and draw.random.random() < 0.4:
                draw.reserve(max(1, room // draw.random.choice((1, 2, 3, 4))))
            draw.use(draw.alloc(max(1, room // draw.random.choice((1, 2, 3, 4, 4, 8)) - draw.random.choice((0, 0, 1)))))
        if draw.random.random() < 0.15:
            draw.calls.append(draw.random.choice((("trim",), ("evict", room // 4), ("synchronize", 0))))


def _noise(draw: _Draw, length: int) -> None:
    steps = ("alloc", "alloc", "use", "use", "free", "free", "realloc", "share", "write", "part", "sync", "step")
    for index in range(length):
        word, handle = draw.random.choice(steps), draw.some()
        if word == "alloc" or handle is None:
            draw.alloc()
        elif word == "use":
            other = draw.some()
            draw.use(*{handle, handle if other is None else other})
        elif word == "free":
            draw.free(handle)
        elif word == "realloc":
            draw.calls.append(("realloc", handle, draw.size()))
        elif word == "share":
            shared, draw.made = draw.made, draw.made + 1
            draw.calls.append(("share", shared, handle, draw.random.randint(0, 2)))
            draw.held.append(shared)
        elif word == "write":
            draw.calls.append(("write", handle))
        elif word == "part":
            draw.calls.append(("part", handle, draw.random.randint(0, 2), draw.random.randint(1, 2)))
        elif word == "sync":
            stream = draw.random.randrange(draw.streams)
            draw.calls.append(
                draw.random.choice((("synchronize", stream), ("advance", stream), ("trim",), ("count", handle)))
            )
        else:
            draw.calls.append(("begin", index, draw.random.randrange(draw.streams), (handle,)))
            if draw.random.random() < 0.5:
                draw.calls.append(("end", draw.random.randint(0, index)))


SHAPES: Final[dict[str, Callable[[_Draw, int], None]]] = {
    "training": _training,
    "serving": _serving,
    "growth": _growth,
    "pressure": _pressure,
    "noise": _noise,
}
