"""H against its definition: every pair of accesses tried byte by byte, and every legal order of small programs carried out."""

import numpy as np
import pytest
from facts import apart, bytes_of, planned
from few import ENOUGH
from hypothesis import given
from hypothesis import strategies as st
from oracle import judge_races
from orders import is_legal, legal_orders, observe

from allocsim.judge.fast import check, selector
from allocsim.judge.fast import h_clocks as clocks
from allocsim.judge.fast import h_pairs as races
from allocsim.judge.violations import Violation
from allocsim.model import OWN, UNPLACED, VIEW, Arena, Document, Plan, Program, Run
from allocsim.outcomes.verification import verify_program
from allocsim.programs.builder import ProgramBuilder

ARENAS = (Arena(name="near", alignment=1), Arena(name="far", alignment=1))
SMALL = st.integers(0, 7)

LAYOUTS = (
    ("f32", (1,), None),
    ("u8", (6,), None),
    ("u8", (3,), (2,)),
    ("u8", (3,), (-2,)),
    ("u8", (2, 2), (4, 1)),
    ("u8", (0,), None),
    ("u8", (2,), (3,)),
)
"""dtype, shape, strides: dense, with holes, flipped, in two dimensions, empty."""


@st.composite
def programs(draw, *, most: int, streams: int = 4) -> Program:
    """Draw ops on several streams that read and write overlapping values of few small buffers, with waits at random."""
    builder = ProgramBuilder("p", arenas=ARENAS, streams=[f"s{n}" for n in range(draw(st.integers(1, streams)))])
    sizes = draw(st.lists(st.sampled_from((8, 4, 12, 0)), min_size=1, max_size=3))
    buffers = [builder.buffer(f"b{n}", size, arena=n % 2, alignment=1) for n, size in enumerate(sizes)]
    home: dict[int, int] = {}

    def value(buffer: int) -> int:
        dtype, shape, strides = draw(st.sampled_from(LAYOUTS))
        index = builder.value(f"v{len(home)}", buffer, dtype, shape, strides=strides, offset=draw(st.integers(-1, 5)))
        home[index] = buffer
        return index

    rows = draw(st.lists(st.tuples(SMALL, SMALL, SMALL, SMALL), max_size=most))
    for step, (stream, reads, writes, waits) in enumerate(rows):
        after = [earlier for n, earlier in enumerate((step - 1, step - 2, step - 3)) if waits >> n & 1 and earlier >= 0]
        made = list(home)
        operands = [
            made[draw(SMALL) % len(made)] if made and draw(st.booleans()) else value(buffers[reads % len(buffers)])
            for _ in range((0, 1, 1, 2)[reads % 4])
        ]
        if writes == 7 and operands:
            child = value(home[operands[0]])
            builder.op(VIEW, operands[:1], (child,), stream=stream % len(builder._streams), after=after)
            continue
        results = [value(buffers[(writes + n) % len(buffers)]) for n in range((1, 1, 1, 2, 0)[writes % 5])]
        pairs = [(o, r) for o in range(len(operands)) for r in range(len(results))]
        kind = "host.write" if not operands and writes % 2 else "op"
        builder.op(kind, operands, results, in_place=pairs, stream=stream % len(builder._streams), after=after)
    return builder.build()


@st.composite
def plans(draw, program: Program) -> Plan:
    """Draw slots anywhere: over each other, apart, in memory of their own or nowhere."""
    count = len(program.buffers)
    arena = draw(st.lists(st.sampled_from((0, 0, 0, 0, 1, OWN, UNPLACED)), min_size=count, max_size=count))
    offset = draw(st.lists(st.sampled_from((0, 0, 4, 3, 8, 40, -4)), min_size=count, max_size=count))
    return Plan(
        program=program,
        arena=np.array(arena, dtype=np.int32),
        offset=np.array(offset, dtype=np.int64),
        nbytes=program.buffers.nbytes,
    )


@st.composite
def documents(draw, *, most: int) -> Document:
    """Draw a session of up to three runs, some of which leave uploads out."""
    program = draw(programs(most=most))
    plan = draw(plans(program))
    uploads = np.flatnonzero(program.ops.is_kind("host.write")).tolist()
    skips = draw(
        st.lists(st.lists(st.sampled_from(uploads), unique=True) if uploads else st.just([]), min_size=1, max_size=3)
    )
    return Document.of(*(Run.of(plan, skip=tuple(skip)) for skip in skips))


def facts(record: Violation) -> Violation:
    """Return a record without what only one side words."""
    return Violation(
        **{**{name: getattr(record, name) for name in record.__slots__}, "message": "", "names": {}, "schedule": None}
    )


def found(document: Document, *, limit: int = 10_000) -> list[Violation]:
    """Return the races the judge finds."""
    return [facts(record) for record in check(document, limit=limit).of_kind("Race")]


def expected(document: Document) -> list[Violation]:
    """Return the races there are."""
    return [record for number, run in enumerate(document.runs) for record in judge_races(document, number, run)]


@ENOUGH
@given(documents(most=8))
def test_races_are_exactly_the_unordered_pairs_of_accesses(document):
    assert found(document) == expected(document)


@pytest.mark.slow
@ENOUGH
@given(documents(most=24))
def test_races_of_longer_programs_are_exactly_the_unordered_pairs_of_accesses(document):
    assert found(document) == expected(document)


@ENOUGH
@given(documents(most=8))
def test_every_schedule_is_a_legal_order_that_exchanges_the_two_ops(document):
    for record in check(document).of_kind("Race"):
        ops = range(len(document.runs[record.run].program.ops))
        order = [*ops[: record.other_op], *record.schedule]
        order += [step for step in ops if step not in order]
        assert is_legal(document.runs[record.run].program, order)
        assert record.schedule[-2:] == (record.op, record.other_op)


@ENOUGH
@given(st.data())
def test_a_race_means_that_two_legal_orders_differ(data):
    """A program under a plan has a race exactly if two legal orders differ in what a read finds or in what the same ops leave behind."""
    program = data.draw(programs(most=5, streams=3))
    document = Document.of(data.draw(plans(program)))
    seen = observe(program, placer(document, planned(document, document.runs[0])))
    assert bool(found(document)) == (not (seen.reads_agree and seen.memory_agrees))


@ENOUGH
@given(st.data())
def test_what_reads_race_with_shows_in_what_they_find(data):
    """Of a race in which one side reads, that read finds different tags in two legal orders; a race of two writes may go unseen."""
    program = data.draw(programs(most=5, streams=3))
    document = Document.of(data.draw(plans(program)))
    where = planned(document, document.runs[0])
    seen = observe(program, placer(document, where))
    for record in found(document):
        readers = {"read after write": record.op, "write after read": record.other_op}
        places = [where(record.buffer, byte) for low, high in record.bytes for byte in range(low, high)]
        for hazard in set(record.hazards) & set(readers):
            assert any(len(seen.reads.get((readers[hazard], place), ())) > 1 for place in places)


@ENOUGH
@given(st.data())
def test_a_race_exists_apart_exactly_if_two_legal_orders_differ_with_every_buffer_apart(data):
    program = data.draw(programs(most=5, streams=3))
    document = Document.of(data.draw(plans(program)))
    seen = observe(program, placer(document, apart(document, program)))
    assert any(record.in_apart for record in found(document)) == (not (seen.reads_agree and seen.memory_agrees))


@ENOUGH
@given(documents(most=8))
def test_compiled_or_not_the_records_are_the_same(document):
    plain = check(document)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selector, "LATE_FROM", 0)
        assert check(document) == plain


@ENOUGH
@given(documents(most=12), st.integers(1, 6), st.integers(1, 6))
def test_small_batches_find_the_same(document, rows, pairs):
    """Bounds on memory cut the work into pieces, never the answer."""
    plain = check(document)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(races, "ROWS", 64 * rows)
        patch.setattr(races, "BATCH", pairs)
        assert check(document) == plain


@ENOUGH
@given(documents(most=8), st.integers(0, 3))
def test_the_first_races_are_listed_and_all_are_counted(document, limit):
    everything = found(document)
    report = check(document, limit=limit)
    others = len(check(document).violations) - len(everything)
    assert report.count == len(everything) + others
    assert [facts(record) for record in report.of_kind("Race")] == everything[: len(report.of_kind("Race"))]


@ENOUGH
@given(documents(most=10), st.integers(1, 4))
def test_a_count_that_is_cut_is_a_lower_bound_and_says_so(document, room):
    """Where there are too many, all races of the first ops are listed, some of the last one, and nothing that is no race."""
    everything = expected(Document.of(document.runs[0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clocks, "LATE_LIMIT", room)
        report = check(Document.of(document.runs[0]))
    listed = [facts(record) for record in report.of_kind("Race")]
    last = max((record.op for record in listed), default=0)
    assert [record for record in listed if record.op < last] == [record for record in everything if record.op < last]
    assert [record for record in everything if record in listed] == listed
    assert report.truncated or listed == everything


@ENOUGH
@given(programs(most=8, streams=1))
def test_one_stream_has_no_race(program):
    assert not verify_program(program, dict.fromkeys(range(len(program.buffers)), 0)).of_kind("Race")


def placer(document: Document, where):
    """Return what gives the place of each byte of a value, None for those outside its buffer."""
    program = document.runs[0].program

    def places(value: int):
        buffer = program.values[value].buffer
        size = int(program.buffers.nbytes[buffer])
        return [where(buffer, byte) if 0 <= byte < size else None for byte in bytes_of(program, value)]

    return places


def test_the_orders_of_two_streams_are_their_shuffles():
    builder = ProgramBuilder("p", streams=("a", "b"))
    for number in range(4):
        builder.op("f", (), (), stream=number % 2)
    assert sorted(legal_orders(builder.build())) == [
        [0, 1, 2, 3], [0, 1, 3, 2], [0, 2, 1, 3], [1, 0, 2, 3], [1, 0, 3, 2], [1, 3, 0, 2],
    ]  # fmt: skip
