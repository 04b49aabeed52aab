"""What is said of an incident, where it lies, and the words of poison and the pool they are laid into."""

from types import SimpleNamespace

import numpy as np
import pytest

from allocsim.errors import ModelError
from allocsim.p_sanitizer import poison
from allocsim.p_sanitizer.incident_words import SHOWN, describe, suspects_words, tell
from allocsim.p_sanitizer.incidents import Incident
from allocsim.p_sanitizer.pools import ALIGNMENT, GUARD_BYTES, ZONE_BYTES, Pool
from allocsim.p_sanitizer.program_facts import ELSEWHERE, Facts
from allocsim.p_sanitizer.row_actions import pattern
from repro.small.words import program

MADE = program("x = host.write; a = f x; b = g a; c = f b; d = g c; e = f d; host.read e")
FACTS = SimpleNamespace(program=MADE)
TOLD = {"run": 0, "op": 2, "value": 1, "buffer": 1, "bytes": ((0, 4),), "arena": 0, "address": 64}
HELD = {"held_run": 0, "held_op": 1, "held_value": 1}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"kind": "UninitialisedRead", **HELD}, "op 2 (g) reads bytes [0, 4) of a, which nobody wrote"),
        (
            {"kind": "StaleRead", **HELD, "want_run": 0, "want_op": None},
            ("op 2 (g) reads bytes [0, 4) of a; they are another's by now: op 1 (f) wrote a there; "
            "wanted is what the content laid before the first run wrote"),
        ),
        (
            {"kind": "Overrun", "run": 3, **HELD, "held_run": 2, "released_op": 0},
            ("op 2 (g) of run 3 writes bytes [0, 4) of a, outside its results: a was there, written by op 1 (f) in run 2, "
            "released after op 0 (host.write)"),
        ),
        ({"kind": "OperandWritten", **HELD}, "op 2 (g) writes bytes [0, 4) of a, its operand: a is there, written by op 1 (f)"),
        ({"kind": "ResultUnwritten", "buffer": None}, "op 2 (g) leaves bytes [0, 4) of arena cpu, held by nobody unwritten"),
        (
            {"kind": "Overrun", "buffer": None, "arena": None},
            "op 2 (g) writes bytes [0, 4) of the red zone of a buffer outside the arenas, outside its results",
        ),
        ({"kind": "Crash", "bytes": (), "message": "the process ended"}, "the process ended"),
        (
            {"kind": "Changed", "op": None, "suspects": (1, 3)},
            "bytes [0, 4) of a changed; one of: op 1 (f), op 2 (g)",
        ),
        (
            {"kind": "Changed", "op": None, "run": 1, "suspects": (0, 5)},
            "bytes [0, 4) of a changed of run 1; one of: op 0 (host.write), op 1 (f), op 2 (g), op 3 (f) and 1 more",
        ),
        (
            {"kind": "PoisonRead", "bytes": tuple((8 * n, 8 * n + 4) for n in range(SHOWN))},
            "op 2 (g) has poison in bytes [0, 4), [8, 12), [16, 20), [24, 28) of a and in no operand",
        ),
        (
            {"kind": "PoisonRead", "bytes": tuple((8 * n, 8 * n + 4) for n in range(SHOWN + 1))},
            "op 2 (g) has poison in bytes [0, 4), [8, 12), [16, 20), [24, 28) and 1 more of a and in no operand",
        ),
        (
            {"kind": "PoisonRead", "bytes": tuple((8 * n, 8 * n + 4) for n in range(SHOWN + 2))},
            "op 2 (g) has poison in bytes [0, 4), [8, 12), [16, 20), [24, 28) and 2 more of a and in no operand",
        ),
    ],
)  # fmt: skip
def test_an_incident_is_said_in_a_line(told, said):
    assert tell(FACTS, Incident(**{**TOLD, **told})).message == said


def test_an_incident_is_described_in_lines():
    incident = Incident(**TOLD, **HELD, kind="StaleRead", want_run=1, want_op=0, released_op=3, suspects=(3, 3))
    assert describe(MADE, incident).splitlines()[1:] == [
        "  op 2 (g) reads bytes [0, 4) of a; they are another's by now",
        "  bytes [0, 4) of a at address 64 of arena 0",
        "  wanted: what op 0 (host.write) in run 1 wrote",
        "  there was: a, written by op 1 (f)",
        "  released after op 3 (f), the last to use it",
        "  one of: no op; the host, between two runs",
    ]
    bare = Incident(**{**TOLD, "arena": None}, kind="Overrun")
    assert describe(MADE, bare).splitlines()[2:] == ["  bytes [0, 4) of a"]
    assert len(describe(MADE, Incident(kind="Crash", run=0, op=1, message="it ended")).splitlines()) == 2


def test_no_suspects_are_the_host():
    assert suspects_words(MADE, Incident(kind="Changed", run=0)) == "no op; the host, between two runs"
    assert suspects_words(MADE, Incident(kind="Changed", run=0, suspects=(4, 5))) == "op 4 (g)"


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (128, (1, "byte 0 of a")),
        (191, (1, "byte 63 of a")),
        (192, (1, "0 bytes behind the end of a")),
        (223, (1, "31 bytes behind the end of a")),
        (224, (2, "32 bytes before b")),
        (255, (2, "1 bytes before b")),
        (300, (2, "byte 44 of b")),
        (4096 - 1, (4, "1 bytes before d")),
        (128 - 2 * GUARD_BYTES, (1, f"{2 * GUARD_BYTES} bytes before a")),
        (127 - 2 * GUARD_BYTES, None),
        (4159 + 2 * GUARD_BYTES, (4, f"{2 * GUARD_BYTES - 1} bytes behind the end of d")),
        (4160 + 2 * GUARD_BYTES, None),
    ],
)
def test_an_address_is_told_from_the_nearest_buffer(position, expected):
    facts = Facts(program=MADE, origin=(ELSEWHERE, 128, 256, ELSEWHERE, 4096, ELSEWHERE), size=1 << 13)
    buffer, where, away = facts.nearest(position, 2)
    assert ((buffer, where) if away <= 2 * GUARD_BYTES else None) == expected


def test_of_buffers_equally_near_the_ops_own_is_named():
    """Op 2 reads a and makes b: c, which comes first, and b lie at one place."""
    for step, named in ((2, 2), (0, 1), (3, 2), (4, 3)):
        facts = Facts(program=MADE, origin=(ELSEWHERE, 64, 64, 64, ELSEWHERE, ELSEWHERE), size=256)
        own = {2: {1, 2}, 0: {0}, 3: {2, 3}, 4: {3, 4}}[step]
        expected = min(({1, 2, 3} & own) or {1, 2, 3})
        assert facts.nearest(80, step)[0] == expected, named
    assert Facts(program=MADE, origin=(ELSEWHERE,) * 6, size=0).nearest(80, 2) is None


@pytest.mark.parametrize("sizes", [(), (1,), (64, 65, 0), (5000, 3), (4096 - ZONE_BYTES,)])
def test_blocks_of_a_pool_lie_apart_in_red_zones(sizes):
    made = Pool.of(sizes)
    zone = pattern(0, len(made.memory), poison.ZONE)
    assert bytes(made.memory) == bytes(zone)
    blocks = [made.take(size) for size in sizes]
    expected, at = zone.copy(), ZONE_BYTES
    for size, block in zip(sizes, blocks, strict=True):
        assert block.nbytes == size
        assert not size or made.position(block) == at
        expected[at : at + size] = pattern(at, size, poison.NEVER)
        at += -(-size // ALIGNMENT) * ALIGNMENT + ZONE_BYTES
    assert bytes(made.memory) == bytes(expected)
    assert at <= len(made.memory)
    with pytest.raises(ModelError, match="no room for another block"):
        made.take(len(made.memory) - at - ZONE_BYTES + 1)


def test_memory_elsewhere_has_no_position_in_a_pool():
    made = Pool.of((64,))
    assert made.position(np.zeros(64, np.uint8)) is None
    assert made.position(made.memory[:0]) == 0
    assert made.position(made.memory[1:]) == 1


def test_words_are_told_apart():
    """Of 16,384 words each means one thing: a buffer, nobody, a red zone, or a run that is awaited."""
    words = [poison.released(buffer) for buffer in range(poison.INDICES)] + [poison.NEVER, poison.ZONE]
    words += [poison.AWAITED + run for run in range(poison.AWAITING)]
    assert len(set(words)) == len(words) == 1 << 14
    assert poison.released(poison.INDICES) == poison.released(0)
    assert {word & poison.MASK for word in words} == {poison.BASE & poison.MASK}
    awaited = [poison.awaited(run) for run in range(poison.AWAITING)]
    assert len(set(awaited)) == poison.AWAITING
    assert poison.awaited(poison.AWAITING) == awaited[0]
    assert awaited[1] - awaited[0] not in (1, -1)


def test_drawn_words_are_the_same_at_one_place_and_others_elsewhere():
    """A range is filled in pieces, and must hold what it would hold in one; half of the answers to a fair question differ."""
    word = poison.released(3)
    one, other = (pattern(8, 8000, word, (0, 1 << 20, form)) for form in (3, 5))
    assert np.array_equal(one[400:777], pattern(408, 377, word, (0, 1 << 20, 3)))
    for bit in range(8):
        assert 0.45 < np.mean((one >> bit & 1) != (other >> bit & 1)) < 0.55, bit
    above, flags, below = (pattern(8, 8000, word, (0, 1 << 20, form)) for form in (1, 2, 4))
    assert above.view("f4").min() >= 32
    assert below.view("f4").max() <= -32
    assert set(flags.tolist()) == {0, 1}
    assert not pattern(8, 64, word, (0, 1 << 20, poison.AS_IT_LAY)).any()
