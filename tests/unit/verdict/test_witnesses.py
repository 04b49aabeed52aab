"""What a dossier looks up: a party to a fault, the waits that races of reuse need, and loops of which only some are looked at."""

from dataclasses import replace

import pytest

from allocsim.model import Document, Run
from allocsim.verdict import carries, saying
from allocsim.verdict.causes import causes_of
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.evidence import Evidence
from allocsim.verdict.records import Witness
from repro.small.words import belief, plan, program

MADE = program("x = host.write; a = f x; v:a = view a; b = g v; host.read b")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, {}),
        ({"value": 2}, {"value": 2, "value_name": "v", "buffer": 1, "buffer_name": "a", "address": 64}),
        ({"buffer": 2}, {"buffer": 2, "buffer_name": "b", "address": None}),
        ({"buffer": 0}, {"buffer": 0, "buffer_name": "x", "address": 0}),
        ({"value": 1, "buffer": 0}, {"value": 1, "value_name": "a", "buffer": 0, "buffer_name": "x", "address": 0}),
    ],
    ids=["of no bytes", "of a value, in its buffer", "of a buffer outside the arena", "of a buffer", "of both as told"],
)
def test_a_witness_is_of_the_bytes_that_are_told(told, said):
    dossier = Dossier(Evidence(document=Document.of(plan(MADE, "x=0 a=64 b=own"))))
    of_op = {"run": 0, "op": 1, "op_name": "f", "kind": "f"}
    assert dossier.witness(0, 1, program=MADE, **told) == Witness(**of_op, **said)


def test_what_belongs_to_no_run_has_no_address():
    dossier = Dossier(Evidence(document=Document.of(plan(MADE, ""))))
    assert dossier.witness(None, None, buffer=0, program=MADE) == Witness(buffer=0, buffer_name="x")


def waited_for(text, slots):
    found = causes_of(Document.of(Run.of(plan(program(text), slots))))
    return {(one.party, one.change.op, one.change.after) for one in found}


def test_a_wait_reaches_as_far_as_reuse_needs_on_its_own_op_and_no_further():
    """On stream 1 op 1 makes a, and op 2 reads x; op 3 reads a, and so waits for op 1, unless it takes x's bytes."""
    text = "x = host.write; a = f x ~1 ^0; b = g x ~1; c = h a; d = k c; host.read d; host.read b ^2"
    assert waited_for(text, "x=0 a=64 b=128 c=192 d=256") == {("schedule", 3, 1)}
    assert waited_for(text, "x=0 a=64 b=128 c=0 d=256") == {("schedule", 3, 2)}
    assert waited_for(text, "x=0 a=64 b=128 c=192 d=0") == {("schedule", 3, 1), ("plan", 4, 2)}


def test_of_too_many_loops_those_of_the_most_ops_are_looked_at(monkeypatch):
    made = program(
        "x = host.write; y = host.write; @s a = f x; @s b = f a;"
        " @l p = g y; @l q = g p; @l r = g q; z = h b r; host.read z"
    )
    short, long = ({made.buffers.names.index(n) for n in names} for names in ("xab", "ypqr"))
    assert {loop.carries for loop in carries.loops(made)} == {frozenset(short), frozenset(long)}
    monkeypatch.setattr(carries, "MAX_LOOPS", 1)
    (loop,) = carries.loops(made)
    assert loop.carries == long


@pytest.mark.parametrize(
    ("reads", "written", "said"), [(1, 0, "op 3 of run 1"), (1, 1, "op 3)"), (0, 0, "op 3)"), (0, 1, "op 3 of run 0)")]
)
def test_the_run_of_a_late_reader_is_said_where_it_is_another_one_than_the_victims(reads, written, said):
    reader, victim = Witness(run=reads, op=3, kind="f"), Witness(run=written, op=1, kind="g", buffer_name="x")
    assert said in saying._late_read(reader, None, victim, overwritten=False)


COPIED = program("x = host.write; a = f x; c[8@32] = w x; d = same c; e = h a d; host.read e")
LATE = program("x = host.write; y = f x; host.read y; z = g x; host.read z")
SHORT = program("x = host.write; a = f x; b = g x; c = h b a; host.read c")


def looked_at_late():
    """The host reads y after the second run; z, which y's own run writes later, has taken its bytes by then."""
    placed = plan(LATE, "x=64 y=0 z=0", belief(LATE, y=(1, 3)))
    return Document.of(replace(Run.of(placed), read_after=1), Run.of(placed))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            Document.of(plan(SHORT, "x=0 a=64 b=64 c=128", belief(SHORT, a=(1, 2)))),
            "a was overwritten by g (op 2) before h (op 3) read it: the planner ended the life of a too early",
        ),
        (
            Document.of(plan(SHORT, "x=0 a=64 b=64 c=128", belief(SHORT, b=(4, 5)))),
            "a was overwritten by g (op 2) before h (op 3) read it: the planner began the life of b too late",
        ),
        (
            Document.of(plan(COPIED, "x=256 a=0 c=32 d=0 e=512")),
            "h (op 4) reads a, and finds what w (op 2) wrote: ",
        ),
        (looked_at_late(), "host.read (op 2 of run 0) reads y, and finds what g (op 3 of run 1) wrote: "),
    ],
    ids=["ends early", "begins late", "copied there", "read after its run"],
)
def test_a_value_is_called_overwritten_where_the_writer_wrote_its_bytes_between_its_op_and_the_read(document, said):
    assert any(cause.text.startswith(said) for cause in causes_of(document)), [c.text for c in causes_of(document)]


def test_a_race_of_runs_names_the_op_and_the_buffer_of_either_run_and_no_order_that_a_plan_assumed():
    """The earlier run's program has more ops and buffers than that of the later one."""
    small = program("x = host.write; y = f x; host.read y")
    large = program("p = host.write; q = ff p; r = k q; s = k r; t = l s; host.read t")
    first, second = plan(large, "p=512 q=1024 r=320 s=384 t=64"), plan(small, "x=0 y=64")
    (cause,) = causes_of(Document.of(Run.of(first), replace(Run.of(second), after=())))
    assert cause.change.kind == "runs"
    assert {cause.victim.run, cause.writer.run} == {0, 1}
    assert {cause.victim.op_name, cause.writer.op_name} <= {"l", "f", "host.read"}
    assert cause.belief is None
