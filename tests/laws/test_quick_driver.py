"""The quick driver asks a target what the plain one asks, and suspects all that it convicts."""

from collections import defaultdict
from dataclasses import replace

import pytest
from online_allocators import BROKEN, SOUND, FirstFit, Pages

from allocsim.online import SHELF, Judge, drawn, find
from allocsim.online.campaign import AGAIN
from allocsim.online.protocol import OPTIONAL
from allocsim.online.quick_driver import CALLS, QuickDriver

ASKED = ("alloc", "free", "end", *OPTIONAL)


class Everything:
    """A target that can do all there is: each answer is memory that nobody had, or a refusal."""

    streams = True

    def __init__(self, capacity, alignment, device, page):
        self.page, self.top, self.device, self.calls = page, 0, device, 0

    def alloc(self, nbytes, alignment, stream, tag):
        self.calls += 1
        if not self.calls % 7:
            return None
        low, self.top = self.top, self.top + (1 << 26)
        return list(range(low, low + -(-nbytes // self.page))) if self.page else low

    def realloc(self, address, nbytes):
        return address if not self.calls % 3 else self.moved(address, self.alloc(nbytes, 4096, 0, ""))

    def write(self, memory):
        return self.moved(memory, self.alloc(self.page or 1 << 26, 4096, 0, ""))

    def moved(self, old, new):
        if new is not None:
            low, to = (old[0] * self.page, new[0] * self.page) if self.page else (old, new)
            self.device.copy(low, to, 1 << 40)
        return new

    def nothing(self, *_):
        return None

    free = record_stream = begin = end = share = evict = trim = nothing


class Heard:
    """A target that writes down what it is asked, with its answers."""

    def __init__(self, inner, heard):
        self.inner, self.heard = inner, heard

    def __getattr__(self, name):
        found = getattr(self.inner, name)
        if name not in ASKED or not callable(found):
            return found

        def asked(*arguments):
            told = repr(arguments)
            answer = found(*arguments)
            self.heard.append((name, told, repr(answer)))
            return answer

        return asked


def taken(sequence):
    """Whether the quick driver takes all calls of a sequence."""
    return all(call[0] in CALLS for call in sequence.calls)


def heard_by(name, sequence, driver):
    """What a target hears of a driver that makes the calls of a sequence and frees all."""
    heard = []
    if name.startswith("everything"):
        sequence = replace(sequence, capacity=None)
    done = driver(lambda *given: Heard(TARGETS[name](*given), heard), sequence)
    done.run(sequence.calls)
    done.finish()
    return heard, done.book.top, done.book.most


def plain(make, sequence):
    return Judge(make=make).driver(sequence)


TARGETS = {
    **SOUND,
    **{name: find(name) for name in SHELF},
    **{f"everything.{page}": lambda *given, page=page: Everything(None, *given[1:], page) for page in (0, 64)},
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_is_asked_the_same_by_both(name):
    abilities = Judge(make=TARGETS[name]).abilities()
    words = set()

    def quick(made, sequence):
        return QuickDriver(made, capacity=sequence.capacity, alignment=sequence.alignment, streams=sequence.streams)

    for index in range(160):
        sequence = drawn(11, index, abilities)
        if taken(sequence):
            told = heard_by(name, sequence, plain)
            assert heard_by(name, sequence, quick) == told, index
            words |= {word for word, _, _ in told[0]}
    assert words >= abilities.calls - ({"realloc"} if abilities.page else set())


class CarelessBytes(FirstFit):
    """Gives bytes to any stream, and lets blocks grow."""

    streams = True


class CarelessPages(Pages):
    """Gives pages to any stream, shared and copied ones too."""

    streams = True


class ToldAtTimes(FirstFit):
    """Is told of other streams where there are some, and does not listen."""

    streams = True
    realloc = None

    def __init__(self, capacity, alignment, device):
        super().__init__(capacity, alignment, device)
        self.owner, self.pool = {}, defaultdict(list)
        if device.streams > 1:
            self.record_stream = lambda address, stream: None

    def alloc(self, nbytes, alignment, stream, tag):
        fits = (low for low in self.pool[stream] if self.sizes[low] >= nbytes and low % alignment == 0)
        low = next(fits, None)
        if low is not None:
            self.pool[stream].remove(low)
            return low
        low = super().alloc(nbytes, alignment, stream, tag)
        self.owner[low] = stream
        return low

    def free(self, address, stream):
        self.pool[self.owner[address]].append(address)


class TrimsAtTimes(FirstFit):
    """Can be trimmed where it is large, and loses memory by it."""

    realloc = None

    def __init__(self, capacity, alignment, device):
        super().__init__(capacity, alignment, device)
        if capacity is not None and capacity > 1 << 16:
            self.trim = lambda: self.free_list.clear()  # noqa: PLW0108 - of the list of then


CARELESS = {
    "bytes": (CarelessBytes, "ordered"),
    "pages": (CarelessPages, "ordered"),
    "told at times": (ToldAtTimes, "ordered"),
    "trims at times": (TrimsAtTimes, "returned"),
}
WRONG = {**BROKEN, **CARELESS}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_what_the_plain_driver_convicts_the_quick_one_suspects(name):
    make, promise = WRONG[name]
    judge = Judge(make=make, deterministic=promise == "deterministic", waste=3.0 if promise == "waste" else None)
    abilities, found = judge.abilities(), set()
    for index in range(160):
        sequence, again = drawn(12, index, abilities), index % AGAIN == 0
        broken = judge.judge(sequence, again=again) if taken(sequence) else None
        if broken is not None:
            found.add(broken.property)
            assert judge.suspects(sequence, again=again), index
    assert promise in found or name not in CARELESS


@pytest.mark.parametrize("name", [*SOUND, *SHELF])
def test_the_quick_driver_suspects_no_sound_target(name):
    judge = Judge(make=SOUND.get(name) or find(name), deterministic=True)
    abilities = judge.abilities()
    for index in range(100):
        sequence = drawn(13, index, abilities)
        suspected = judge.suspects(sequence, again=index % AGAIN == 0)
        assert suspected != taken(sequence), index
