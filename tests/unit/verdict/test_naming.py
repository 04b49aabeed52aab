"""Each row of the table of names has a tiny document that it names: class, party, witnesses, and the belief that failed."""

import json
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from encodings_2 import case, exchanged, permuted

from allocsim import loads
from allocsim.judge.fast import Violation
from allocsim.model import Document, Event, Problem, Role, Run
from allocsim.programs.allocator_trace import trace
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.verdict import NAMES, judge
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.evidence import Evidence
from allocsim.verdict.naming import at_one_end, in_two_calls
from repro.small.words import belief, plan, program

LATE = "x = host.write; a = f x; b = g x; c = h b a; host.read c"
"""`a` is read by `h` after `g` has made `b`."""

VIEWED = "x = host.write; a = f x; v:a = view a; b = g x; c = h b v; host.read c"
OUTPUT = "x = host.write; a = f x; b = g x; host.read a; host.read b"
BRANCHES = "x = host.write; @1 r = f x; @2 t = g x; @2 s = h t; y = add r s; host.read y"
"""`r` is handed out of a first branch; the second one makes `t`."""

INDEX = "i = host.write; a = rows i; b = g a; c = back b i; host.read c"


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A document, the row it triggers, and what the finding says."""

    row: str
    """The row's evidence."""
    document: Document
    class_: str
    fault: str
    victim: str | None = None
    writer: str | None = None
    reader: str | None = None
    """Names: of the victim's buffer, of the op that wrote over it, of the op that reads too late."""
    belief: str | None = None
    also: tuple[tuple[str, str], ...] = ()


def late(slots="a=0 b=0", text=LATE, **beliefs):
    made = program(text)
    return Document.of(Run.of(plan(made, slots, belief(made, **beliefs))))


def causes(document):
    """Return the (class, party) of every finding of the document alone."""
    return judge(Evidence(document=document)).classes


def stale():
    """A plan for n3 = n2 + n1 runs n3 = n2 + n0."""
    one, other = (
        program(f"n0 = host.write; n1 = f n0; n2 = g n1; n3 = add n2 {last}; host.read n3", name=last)
        for last in ("n1", "n0")
    )
    made = plan(one, "n0=0 n1=64 n2=0 n3=128", belief(one))
    return Document.of(Run.of(made), Run.of(made, program=other))


def accumulated():
    """An accumulator that the host zeroes before the first run only."""
    made = program("g = host.write; x = host.write; s:g = add! g x; host.read s")
    one = plan(made, "g=own x=0", belief(made, own=[0]))
    return Document.of(Run.of(one), Run.of(one, skip=(0,)))


def two_states():
    made = program("y = f p q; host.read y", roles={"p": Role.STATE, "q": Role.STATE})
    return Document.of(Run.of(plan(made, "p=0 q=0 y=64")))


def state_taken():
    made = program("x = host.write; a = f x; b = g a s; host.read b", roles={"s": Role.STATE})
    return Document.of(Run.of(plan(made, "s=0 a=0 x=64 b=128", belief(made))))


def upload_left_out():
    made = program("x = host.write; y = f x; z = g y; host.read z")
    planned = plan(made, "x=0 y=64 z=0", belief(made))
    return Document.of(Run.of(planned), Run.of(planned, skip=(0,)))


def copies():
    """Two copies of an input; each run writes another one, and both read the first."""
    made = program("m = host.write; n = host.write; t = copy m; y = f t; o = back y; host.read o", gpu="t y")
    planned = plan(made, "m=0 n=64 t=0 y=64 o=0", belief(made))
    return Document.of(Run.of(planned, skip=(1,)), Run.of(planned, skip=(0,)))


def carried(*, skip, t):
    """An op reads, by a value nobody makes, what a later op of the run before has left in the same buffer."""
    b = ProgramBuilder("p")
    e = b.buffer("e", 64)
    before, first, after = (b.value(name, e, "f32", (8,)) for name in ("before", "first", "after"))
    y, z = b.tensor("y", "f32", (16,)), b.tensor("t", "f32", (16,))
    if skip:
        b.op("host.write", (), (first,))
    b.op("f", (before,), (y,))
    b.op("g", (y,), (after,))
    b.op("h", (y,), (z,))
    b.op("host.read", (z,), ())
    planned = plan_of(b.build(), [0, 64, t])
    return Document.of(Run.of(planned), Run.of(planned, skip=(0,) if skip else ()))


def events():
    made = program(LATE)
    rows = [(0, Event.ALLOC, 0), (2, Event.FREE, 0), (3, Event.FREE, 0)]
    return Document.of(Run.of(plan(made, "x=0", events=np.array(rows))))


def promised(slots="", **told):
    """A plan that is right for the program, and not what its problem told."""
    made = program("x = host.write; a = f x; b = g a; c = h b; host.read c")
    return Document.of(plan(made, slots, replace(belief(made), **told)))


def at_once():
    """Two threads that call one session."""
    made = program("x = host.write; y = f x; host.read y")
    planned = plan(made, "x=0 y=64")
    return Document.of(Run.of(planned), replace(Run.of(planned), after=()))


def replayed():
    """A captured graph is replayed before the host has looked at its output."""
    planned = at_once().plans[0]
    return Document.of(replace(Run.of(planned), read_after=1), Run.of(planned))


def planned_over():
    """Two programs in one memory by turns; the second run of the first has no upload."""
    one, other = (program(f"{n} = host.write; y = f {n}; host.read y", name=n) for n in ("x", "w"))
    first, second = plan(one, "x=0 y=64"), plan(other, "w=0 y=64")
    return Document.of(Run.of(first), Run.of(second), Run.of(first, skip=(0,)))


def grown():
    """A buffer that may be larger than its slot."""
    b = ProgramBuilder("p")
    b.buffer("x", 64, nbytes_range=(32, 128))
    x, y = b.value("x", "x", "u8", (16,)), b.tensor("y", "u8", (16,))
    b.op("host.write", (), (x,))
    b.op("f", (x,), (y,))
    b.op("host.read", (y,), ())
    return Document.of(Run.of(plan_of(b.build(), [0, 64])))


def apart(text, **beliefs):
    """A plan that does no harm, with a belief that could."""
    made = program(text)
    return Document.of(plan(made, "", belief(made, **beliefs)))


def given_back():
    """A block that a copy still reads on another stream was freed, and taken on its own."""
    events = [
        {"event": "alloc", "block": "a", "address": 0, "nbytes": 64},
        {"event": "use", "kind": "host.write", "writes": ["a"]},
        {"event": "record", "mark": 1},
        {"event": "wait", "mark": 1, "stream": 1},
        {"event": "use", "kind": "copy", "reads": ["a"], "stream": 1},
        {"event": "free", "block": "a"},
        {"event": "alloc", "block": "b", "address": 0, "nbytes": 64},
        {"event": "use", "kind": "fill", "writes": ["b"]},
        {"event": "use", "kind": "host.read", "reads": ["b"]},
    ]
    return trace(events)


GONE = "the planner believes that a lives in steps [1, 2), but op {} ({}) accesses it"

CASES = (
    Planted(
        row="two accesses race: the bytes were freed in the order of one stream, and another stream still used them",
        document=given_back(),
        class_="C09",
        fault="schedule",
        victim="a",
        writer="fill",
        reader="copy",
    ),
    Planted(
        row="two accesses race because the planner gave both buffers the same bytes",
        document=late("a=0 b=0", "x = host.write; a = f x; c = copy a ~1 ^1; b = g x; o = h c b ^2; host.read o"),
        class_="C09",
        fault="plan",
    ),
    Planted(
        row="two accesses race, and they would also race if no two buffers shared bytes",
        document=late("", "x = host.write; a = f x; c = copy a ~1; b = g x; o = h c b ^2; host.read o"),
        class_="C09",
        fault="schedule",
    ),
    Planted(
        row="the run executes another program than the one that the plan was made for",
        document=stale(),
        class_="C08",
        fault="plan",
        victim="n0",
        writer="g",
        reader="add",
    ),
    Planted(
        row="the program makes an op overwrite its operand within one buffer, beyond what its kernel declares",
        document=Document.of(plan(program("x = host.write; y:x = f x; host.read y"), "")),
        class_="C03",
        fault="caller",
        victim="x",
        writer="f",
    ),
    Planted(
        row="the planner placed buffers of different inlined calls or branches over each other",
        document=late("a=0 y=0", "x = host.write; @1 a = f x; @2 y = copy a; host.read y"),
        class_="C15",
        fault="plan",
        victim="a",
        writer="copy",
    ),
    Planted(
        row="the planned lifetime of a buffer leaves out an access",
        document=late("x=0 y=0", "x = host.write; y = f x; host.read y", x=(0, 1)),
        class_="C01",
        fault="plan",
        victim="x",
        writer="f",
        belief="the planner believes that x lives in steps [0, 1), but op 1 (f) accesses it",
    ),
    Planted(
        row="the slot does not fit its buffer, or is at an address where it may not be",
        document=late("x=0 y=0", "x = host.write; y = f x; host.read y"),
        class_="C12",
        fault="plan",
        victim="x",
        writer="f",
    ),
    Planted(
        row="the planner let a buffer take the bytes of another in place where that is not permitted",
        document=late("x=0 y=0", "x = host.write; y = f x; host.read y", share="x>y"),
        class_="C03",
        fault="plan",
        victim="x",
        writer="f",
        belief="the planner believes that op 1 is safe in place, but its kernel does not promise that",
    ),
    Planted(
        row="the host reads the buffer, but the problem given to the planner does not pin it",
        document=late(
            "a=0 b=0 c=64",
            "x = host.write; a = f x; b = g! a; c = h b; host.read a; host.read c",
            share="a>b",
            a=(1, 3),
            pinned="c",
        ),
        class_="C05",
        fault="caller",
        victim="a",
        writer="g",
        reader="host.read",
    ),
    Planted(
        row="the planner placed an output over a donated input that is still needed",
        document=late(
            "s=0 o=0",
            "s = host.write; v = host.write; o = sub! v v; p = copy s; host.read o; host.read p",
            share="s>o",
        ),
        class_="C11",
        fault="plan",
        victim="s",
        writer="sub",
        reader="copy",
    ),
    Planted(
        row="the planner gave one slot to two buffers that are both filled from outside the program",
        document=two_states(),
        class_="C11",
        fault="plan",
        victim="p",
        reader="f",
    ),
    Planted(
        row="the planner let a buffer take the bytes of another in place where that is not permitted",
        document=late("a=0 y=0", "x = host.write; a = f x; y = g! a; z = k y a; host.read z", share="a>y"),
        class_="C03",
        fault="plan",
        victim="a",
        writer="g",
        reader="k",
        belief="the planner believes that another buffer may take the bytes of a, which is not permitted",
    ),
    Planted(
        row="the planned lifetime of a buffer leaves out an access",
        document=late("a=0 b=0", "x = host.write; a b = f x; host.read a", b=(1, 1)),
        class_="C01",
        fault="plan",
    ),
    Planted(
        row="a copy between arenas reads one instance of an input, but in this run the host wrote another instance, "
        "and no op reads that one",
        document=copies(),
        class_="C10",
        fault="schedule",
        victim="m",
        writer="back",
        reader="copy",
    ),
    Planted(
        row="the planned lifetime of a buffer leaves out an access",
        document=late(b=(4, 5)),
        class_="C01",
        fault="plan",
        victim="a",
        writer="g",
        reader="h",
        belief="the planner believes that b lives in steps [4, 5), but op 2 (g) writes it",
    ),
    Planted(
        row="a value of the program reaches outside its buffer",
        document=late("", "x[16] = host.write; v:x[8@48] = view x; y = f v; host.read y"),
        class_="C12",
        fault="caller",
        victim="x",
    ),
    Planted(
        row="the plan does not keep a parameter or state at one address in bytes of its own",
        document=state_taken(),
        class_="C07",
        fault="plan",
        victim="s",
        writer="f",
        reader="g",
    ),
    Planted(
        row="the host left out an upload, and the value of an earlier run is not where this run reads it",
        document=upload_left_out(),
        class_="C06",
        fault="caller",
        victim="x",
        writer="g",
        reader="f",
        belief="the planner believes that x is free from step 2 of each run on, but a later run needs it",
    ),
    Planted(
        row="the program reads a value that an op made in an earlier run, and nothing keeps that value between runs",
        document=carried(skip=True, t=0),
        class_="C07",
        fault="caller",
        victim="e",
        writer="h",
        reader="f",
    ),
    Planted(
        row="the planned lifetime of a buffer leaves out an access, and its bytes are shared by a buffer of another inlined call or branch",
        document=late("r=0 t=0 s=64", BRANCHES, r=(1, 2)),
        class_="C15",
        fault="plan",
        victim="r",
        writer="g",
        reader="add",
    ),
    Planted(
        row="the slot does not fit its buffer, or is at an address where it may not be",
        document=late(text=OUTPUT),
        class_="C12",
        fault="plan",
        victim="a",
        writer="g",
        reader="host.read",
    ),
    Planted(
        row="the host reads the buffer, but the problem given to the planner does not pin it",
        document=late(text=OUTPUT, a=(1, 2), pinned="b"),
        class_="C05",
        fault="caller",
        victim="a",
        writer="g",
        reader="host.read",
        belief=GONE.format(3, "host.read"),
    ),
    Planted(
        row="the planned lifetime of an input that the host writes in this run leaves out an access",
        document=late("i=0 b=0", INDEX, i=(0, 2)),
        class_="C06",
        fault="plan",
        victim="i",
        writer="g",
        reader="back",
        belief="the planner believes that i lives in steps [0, 2), but op 3 (back) accesses it",
    ),
    Planted(
        row="the planned lifetime of a buffer leaves out a use through a view",
        document=late(text=VIEWED, a=(1, 2)),
        class_="C02",
        fault="plan",
        victim="a",
        writer="g",
        reader="h",
        belief=GONE.format(4, "h"),
    ),
    Planted(
        row="the planned lifetime of a buffer leaves out an access",
        document=late(a=(1, 2)),
        class_="C01",
        fault="plan",
        victim="a",
        writer="g",
        reader="h",
        belief=GONE.format(3, "h"),
    ),
    Planted(
        row="the slot does not fit its buffer, or is at an address where it may not be",
        document=late(),
        class_="C12",
        fault="plan",
        victim="a",
        writer="g",
        reader="h",
    ),
    Planted(
        row="the planned lifetime of a buffer leaves out a read by the host",
        document=late("a=0 b=32", OUTPUT, a=(1, 2)),
        class_="C05",
        fault="plan",
    ),
    Planted(
        row="the host reads the buffer, but the problem given to the planner does not pin it",
        document=late("a=0 b=32", OUTPUT, a=(1, 2), pinned="b"),
        class_="C05",
        fault="caller",
    ),
    Planted(
        row="the planner placed buffers of different inlined calls or branches over each other",
        document=late("r=0 t=32 s=128", BRANCHES),
        class_="C15",
        fault="plan",
    ),
    Planted(
        row="the planned lifetime of a buffer leaves out a use through a view",
        document=late("a=0 b=32", VIEWED, a=(1, 2)),
        class_="C02",
        fault="plan",
    ),
    Planted(
        row="the planned lifetime of a buffer leaves out an access",
        document=late("a=0 b=32", a=(1, 2)),
        class_="C01",
        fault="plan",
    ),
    Planted(
        row="the slot does not fit its buffer, or is at an address where it may not be",
        document=late("a=0 b=32"),
        class_="C12",
        fault="plan",
    ),
    Planted(
        row="the planner gave one slot to two results of one op",
        document=late("a=0 b=0", "x = host.write; a b = f x; host.read x"),
        class_="C11",
        fault="plan",
    ),
    Planted(
        row="an op writes into a read-only buffer",
        document=Document.of(plan(program("x = host.write; y = f x; host.read y", read_only="y"), "")),
        class_="C11",
        fault="caller",
    ),
    Planted(
        row="the slot does not fit its buffer, or is at an address where it may not be",
        document=late("a=none", "x = host.write; @else a = f x; @else y = g a; host.read y"),
        class_="C12",
        fault="plan",
        victim="a",
    ),
    Planted(
        row="the slot does not fit its buffer, or is at an address where it may not be",
        document=late("a=4"),
        class_="C12",
        fault="plan",
        victim="a",
    ),
    Planted(
        row="the program gives two results of one op the same bytes of one buffer",
        document=Document.of(plan(program("x = host.write; a b:a[4] = split x; host.read b"), "")),
        class_="program",
        fault="caller",
    ),
    Planted(
        row="the planner's own events contradict each other, or the believed lifetime",
        document=events(),
        class_="C13",
        fault="plan",
        victim="x",
    ),
    Planted(
        row="an op reads bytes that nobody wrote",
        document=Document.of(plan(program("y = f x; host.read y"), "")),
        class_="C14",
        fault="caller",
        reader="f",
    ),
    Planted(
        row="an op reads bytes that nobody wrote",
        document=carried(skip=False, t=128),
        class_="C14",
        fault="caller",
        reader="f",
    ),
    Planted(
        row="one of several values that are moved one after the other (a loop's carries, a branch's phis) was overwritten before its move",
        document=late("a=0 b=64 c=64 d=0", "a b = host.write; c = same a; d = same b; host.read c d"),
        class_="C15",
        fault="plan",
        victim="b",
        reader="same",
    ),
    Planted(
        row="one turn of a loop passes several buffers to the next, and the planner placed these over each other, or in each other's arenas",
        document=loads(json.dumps(permuted()).encode()),
        class_="C15",
        fault="plan",
    ),
    Planted(
        row="one turn of a loop passes several buffers to the next, and the planner placed these over each other, or in each other's arenas",
        document=late(
            "x=0 y=64 t=64 u=64",
            "x = host.write; y = host.write; @w t = f x; @w u = f y; @w z = f t; host.read u; host.read z",
        ),
        class_="C15",
        fault="plan",
        victim="y",
        writer="f",
        reader="f",
    ),
    Planted(
        row="one turn of a loop passes several buffers to the next, and the planner placed these over each other, or in each other's arenas",
        document=loads(json.dumps(exchanged(case("loop-swap"), 13, 14)).encode()),
        class_="C15",
        fault="plan",
    ),
    Planted(
        row="two runs that do not wait for each other access the same memory",
        document=at_once(),
        class_="C09",
        fault="schedule",
    ),
    Planted(
        row="the host reads an output after its memory has been reused",
        document=replayed(),
        class_="C05",
        fault="caller",
        victim="y",
        reader="host.read",
    ),
    Planted(
        row="a run of another program overwrote the bytes before they were read",
        document=planned_over(),
        class_="C07",
        fault="caller",
        victim="x",
        reader="f",
    ),
    Planted(
        row="the fault exists at one end of the ranges of sizes only",
        document=grown(),
        class_="C08",
        fault="plan",
    ),
    Planted(
        row="the host left out an upload that a read needs",
        document=accumulated(),
        class_="C14",
        fault="caller",
        victim="g",
        writer="add",
        reader="add",
    ),
    Planted(
        row="the program reads a value after the program has overwritten it, and no plan can mend that",
        document=Document.of(plan(program("x = host.write; y:x = f! x; z = g x; host.read z; host.read y"), "")),
        class_="program",
        fault="caller",
        reader="g",
        writer="f",
    ),
    Planted(
        row="the planned lifetime of a buffer leaves out a read by the host",
        document=apart(OUTPUT, a=(1, 2)),
        class_="C05",
        fault="plan",
        belief=GONE.format(3, "host.read"),
    ),
    Planted(
        row="the host reads the buffer, but the problem given to the planner does not pin it",
        document=apart(OUTPUT, a=(1, 2), pinned="b"),
        class_="C05",
        fault="caller",
    ),
    Planted(
        row="the planned lifetime of a buffer leaves out a use through a view",
        document=apart(VIEWED, a=(1, 2)),
        class_="C02",
        fault="plan",
    ),
    Planted(
        row="the planned lifetime of a buffer leaves out an access",
        document=apart(LATE, a=(1, 2)),
        class_="C01",
        fault="plan",
        belief=GONE.format(3, "h"),
    ),
    Planted(
        row="the planner believed the buffer to be smaller than it is",
        document=apart(LATE, nbytes=[64, 60, 64, 64]),
        class_="C12",
        fault="plan",
        victim="a",
    ),
    Planted(
        row="the planner let a buffer take the bytes of another in place where that is not permitted",
        document=apart(LATE, share="a>b"),
        class_="C03",
        fault="plan",
        victim="a",
    ),
)


def causes_in(planted):
    return judge(Evidence(document=planted.document)).causes


def triggered(planted):
    """Return the causes that the row in question names."""
    return [cause for cause in causes_in(planted) if cause.evidence == planted.row]


def name(planted):
    kind = "belief" if not planted.document.session else "plan"
    return f"{planted.class_}-{planted.fault}-{kind}: {planted.row}"


@pytest.mark.parametrize("planted", CASES, ids=name)
def test_a_tiny_document_is_named_by_each_row_and_by_no_other(planted):
    (cause, *_), every = triggered(planted), causes_in(planted)
    assert (cause.class_, cause.party) == (planted.class_, planted.fault)
    assert {(c.class_, c.party) for c in every} == {(planted.class_, planted.fault), *planted.also}
    row = re.escape(planted.row)
    ends = "|.+: the planner (ended|began) the life of . too (early|late)" if cause.change.kind == "lifetime" else ""
    assert re.fullmatch(rf"{row}: .+|.+: {row}(; .+)?{ends}", cause.text)


@pytest.mark.parametrize("planted", [p for p in CASES if p.victim or p.writer or p.reader], ids=name)
def test_each_row_names_victim_writer_and_reader(planted):
    cause = triggered(planted)[0]
    for role, field_ in (("victim", "buffer_name"), ("writer", "op_name"), ("reader", "op_name")):
        wanted = getattr(planted, role)
        assert wanted is None or getattr(getattr(cause, role), field_) == wanted, role


@pytest.mark.parametrize("planted", [p for p in CASES if p.belief], ids=name)
def test_the_belief_that_failed_is_said_in_words(planted):
    assert triggered(planted)[0].belief == planted.belief


@pytest.mark.parametrize(("stop", "said"), [(2, True), (4, False)])
def test_a_belief_failed_only_if_the_problem_lets_the_buffer_end_before_its_run_does(stop, said):
    """A run of another program takes the bytes of x between two runs, of which the second has no upload."""
    made, between = program("x = host.write; y = f x; z = g y; host.read z"), program("q = host.write; host.read q")
    told = Problem.of(made, start=[0, 1, 2], stop=[stop, 3, 4], pinned=[2])
    planned = plan(made, "x=0 y=64 z=128", told)
    document = Document.of(Run.of(planned), Run.of(plan(between, "q=0")), Run.of(planned, skip=(0,)))

    (cause,) = judge(Evidence(document=document)).causes

    assert cause.change.kind == "upload"
    assert ("x is free from step" in (cause.belief or "")) is said


def test_every_row_has_a_document():
    assert {row.evidence for row in NAMES} == {cause.evidence for planted in CASES for cause in causes_in(planted)}


MISSED = {
    "what is lost within one branch is no matter of branches": (
        "x = host.write; @1 a = f x; @1 b = g x; @1 c = h b a; host.read c",
        (1, 2),
        "C01",
    ),
    "a branch that is a late reader was missed as a reader": (
        "x = host.write; a = f x; b = g x; @1 c = h b a; host.read c",
        (1, 2),
        "C01",
    ),
    "a buffer that a branch and its surroundings write is not the branch's own": (
        "x = host.write; a = f x; @1 u:a = k! a; b = g x; c = h b u; host.read c",
        (1, 3),
        "C01",
    ),
    "a reader of the own value is a lost view where the last use missed is a view's": (
        "x = host.write; a = f x; v:a = view a; b = g x; c = h b a; d = k c v; host.read d",
        (1, 2),
        "C02",
    ),
    "a value that no op makes in a buffer that ops write is a view": (
        "x = host.write; a = f x; b = g x; c = h b w:a; host.read c",
        (1, 2),
        "C02",
    ),
    "an op that reads a buffer both ways was missed as a reader": (
        "x = host.write; a = f x; v:a = view a; b = g x; c = h b a v; host.read c",
        (1, 2),
        "C01",
    ),
}
"""Claim -> a program, the lifetime believed of `a`, over which `b` is laid, and the class; the plan is at fault."""


@pytest.mark.parametrize(("text", "believed", "class_"), MISSED.values(), ids=MISSED)
def test_what_a_short_lifetime_missed(text, believed, class_):
    assert causes(late(text=text, a=believed)) == {(class_, "plan")}


@pytest.mark.parametrize("path", [["x"], ["y", 3], [0]], ids=str)
def test_paths_of_calls_are_compared_and_never_read(path):
    """Other labels, other depth: the same verdict, and none of it if both ops carry the same path, or one lies inside the other."""
    document = late("r=0 t=0 s=64", BRANCHES, r=(1, 2))
    other = relabelled(document, {("1",): [*path, "one"], ("2",): [*path, "other"]})
    assert causes(other) == {("C15", "plan")}
    for inner in (path, [*path, "inner"]):
        assert causes(relabelled(document, {("1",): path, ("2",): inner})) == {("C01", "plan")}
        assert causes(relabelled(document, {("1",): inner, ("2",): path})) == {("C01", "plan")}


@pytest.mark.parametrize("path", ["then", [], [1.5], [None], {"a": 1}, [["x"]], 7, [True]], ids=str)
def test_what_is_no_path_is_not_looked_at(path):
    document = relabelled(late("r=0 t=0 s=64", BRANCHES, r=(1, 2)), {("1",): path, ("2",): path})
    assert causes(document) == {("C01", "plan")}


def relabelled(document, labels):
    """Return the document of one run with the paths of its ops replaced."""
    (run,) = document.runs
    program = run.program
    meta = {
        step: {"call": labels[tuple(one["call"])]} if "call" in one else one for step, one in program.ops.meta.items()
    }
    program = replace(program, ops=replace(program.ops, meta=meta))
    problem = replace(run.plan.problem, program=program)
    return Document.of(Run.of(replace(run.plan, program=program, problem=problem)))


def test_a_view_that_reads_after_a_belief_that_covers_a_view_is_no_lost_view():
    text = "x = host.write; a = f x; v:a = view a; b = g x; c = h b v; d = k c a; host.read d"
    first, *_ = judge(Evidence(document=late(text=text, a=(1, 5)))).joint
    assert (first.class_, first.party) == (
        "C12",
        "plan",
    )  # the belief covers h: what it misses is k, which is spoiled too


def test_a_life_believed_to_begin_too_late_missed_no_view():
    """Of the ops before op 4 the last reads a view of a; but what is wrong is where a is born."""
    text = "x = host.write; a = f x; v:a = view a; b = g v; c = k b a; host.read c"
    assert causes(apart(text, a=(4, 5))) == {("C01", "plan")}
    assert causes(apart(text, a=(1, 4))) == {("C01", "plan")}
    viewed = text.replace("k b a", "k b v")
    assert causes(apart(viewed, a=(1, 4))) == causes(apart(viewed, a=(2, 4))) == {("C02", "plan")}


def test_without_a_belief_an_output_whose_bytes_are_taken_was_not_pinned():
    assert causes(Document.of(Run.of(plan(program(OUTPUT), "a=0 b=0")))) == {("C05", "plan")}
    assert causes(Document.of(Run.of(plan(program(LATE), "a=0 b=0")))) == {("C01", "plan")}
    both_ways = VIEWED.replace("h b v", "h b a v")
    assert causes(Document.of(Run.of(plan(program(both_ways), "a=0 b=0")))) == {("C01", "plan")}
    assert causes(Document.of(Run.of(plan(program(VIEWED), "a=0 b=0")))) == {("C02", "plan")}


def test_two_buffers_are_of_two_calls_only_if_all_that_is_explained_is():
    """r and u are made in one branch, t in the other; of what is of one buffer nothing is said."""
    made = program("x = host.write; @1 r = f x; @2 t = g x; @2 s = h t; @1 u = k r; y = add r s u; host.read y")
    dossier = Dossier(Evidence(document=Document.of(plan(made, ""))))
    r, t, u, alone = (None if one is None else list(made.buffers.names).index(one) for one in ("r", "t", "u", None))
    over = {other: Violation(kind="Overlap", program=0, run=0, buffer=r, other_buffer=other) for other in (t, u, alone)}
    assert in_two_calls(dossier, None, [over[t]])
    assert in_two_calls(dossier, None, [over[t], over[alone]])
    assert not in_two_calls(dossier, None, [over[t], over[u]])
    assert not in_two_calls(dossier, None, [over[alone]])


def test_what_a_gap_misses_may_be_a_view():
    assert causes(late(text=VIEWED, gaps={1: ((3, 5),)})) == {("C02", "plan")}


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([("low",)], True),
        ([("high",), ("high",)], True),
        ([("low",), ("high",)], False),
        ([("low", "high")], False),
        ([None], False),
        ([("low",), None], False),
    ],
)
def test_a_plan_holds_at_one_end_where_all_is_found_at_the_other(ends, said):
    assert at_one_end(None, None, [Violation(kind="Overlap", ends=one) for one in ends]) is said


def test_a_gap_in_the_belief_is_a_use_missed():
    (finding,) = judge(Evidence(document=late(gaps={1: ((2, 4),)}))).joint
    assert (finding.class_, finding.party) == ("C01", "plan")
    assert (
        finding.belief == "the planner believes that a need not survive a gap in its life, but op 3 (h) still reads it"
    )


def test_two_steps_in_place_of_which_one_is_bad_are_told_from_a_missed_reader():
    text = "x = host.write; a = f x; y = g! a; z = k! y; w = m z a; host.read w"
    assert causes(late("a=0 y=0 z=0", text, share="a>y y>z")) == {("C03", "plan")}
    # a pair believed and not used convicts nobody
    text = LATE.replace("b = g x", "y = g! a; b = k x")
    assert causes(late("a=0 y=64 b=0", text, a=(1, 3), share="a>y")) == {("C01", "plan")}


def test_a_slot_too_small_for_the_program_that_runs_is_a_stale_plan():
    one = program("x = host.write; y = f x; host.read y")
    b = ProgramBuilder("large", arenas=one.arenas)
    x, y = b.tensor("x", "f32", (64,), role=Role.INPUT), b.tensor("y", "f32", (8,))
    b.op("host.write", (), (x,))
    b.op("f", (x,), (y,))
    b.op("host.read", (y,), ())
    made = plan(one, "x=0 y=512")
    assert causes(Document.of(Run.of(made), Run.of(made, program=b.build()))) == {("C08", "plan")}


def test_two_faults_are_both_named_and_counted():
    made = program("x = host.write; a = f x; b = g x; c = h b a; d = k! c; host.read c; host.read d; host.read a")
    planned = plan(made, "x=0 a=64 b=64 c=128 d=128", belief(made, a=(1, 2), pinned="d", c=(3, 5)))
    verdict = judge(Evidence(document=Document.of(Run.of(planned))))
    assert verdict.classes == {("C01", "plan"), ("C05", "caller")}
    assert [(f.class_, f.places) for f in verdict.joint] == [("C01", 4), ("C05", 3)]


def test_content_laid_through_a_buffer_of_another_program_does_not_break_the_verdict():
    one = program("y = f p; host.read y", roles={"p": Role.STATE}, name="one")
    roles = {"pad": Role.PARAMETER, "pad2": Role.PARAMETER, "q": Role.STATE}
    other = program("u = host.write; z = f u q; host.read z", roles=roles, name="other")
    document = Document.of(Run.of(plan(one, "p=0 y=64")), Run.of(plan(other, "u=128 q=0 z=192")))
    first = judge(Evidence(document=document)).joint[0]
    assert (first.class_, first.party, first.writer, first.victim.buffer_name) == ("C07", "plan", None, "p")


def test_a_second_pair_of_one_op_that_is_unsafe_in_place_is_no_fault_of_its_own():
    """There is one record of an op unsafe in place, and an overlap for each pair of buffers: one fault, not one of another class beside it."""
    made = program("s = host.write; t = host.write; u v = step s t; host.read u; host.read v")
    document = Document.of(plan(made, "s=0 t=64 u=0 v=64", belief(made, share="s>u t>v")))
    verdict = judge(Evidence(document=document))
    assert sorted(v.kind for v in verdict.report.violations if v.plan is not None) == [
        "Overlap",
        "Overlap",
        "UnsafeInPlace",
    ]
    assert verdict.classes == {("C03", "plan")}


def test_a_weight_taken_in_an_earlier_run_by_the_program_that_the_plan_is_for_is_the_stale_plans():
    """Within its own run nothing meets it: what took it is the other program's input, in the same slot."""
    one = program("x = host.write; y = f x; host.read y")
    other = program("o = g w; host.read o", name="q", roles={"w": Role.PARAMETER})
    made = plan(one, "x=0 y=64", belief(one))
    (cause,) = judge(Evidence(document=Document.of(Run.of(made), Run.of(made, program=other)))).causes
    assert (cause.class_, cause.party, cause.change.kind, cause.change.program) == ("C08", "plan", "stale", 1)


def test_of_late_reads_that_nobody_stated_a_belief_of_the_last_says_what_was_missed():
    """The last reads a view, one before it y itself: who ended y before both knew no more of its own reads than of its views'."""
    made = program("x = host.write; y = f x; v:y = view y; z = g x; w = h y z; u = k v w; host.read u")
    document = Document.of(Run.of(plan(made, "x=0 y=64 z=64 w=128 u=192")))
    assert judge(Evidence(document=document)).classes == {("C02", "plan")}


def test_who_missed_a_buffer_is_asked_of_its_own_late_reads_alone():
    """y, in b's buffer, is read by the host alone; that an op reads late what y lay over, t, is no late read of y."""
    made = program(
        "x = host.write; b = f x; t = g x; y:b = h x; r = k t; t2:t = g x; host.read y; host.read t2; host.read r"
    )
    (cause, other) = judge(Evidence(document=Document.of(plan(made, "x=64 b=0 t=0 r=128")))).causes
    said = {made.buffers.names[c.change.buffer]: (c.class_, c.party) for c in (cause, other)}
    assert said == {"b": ("C05", "plan"), "t": ("C01", "plan")}
