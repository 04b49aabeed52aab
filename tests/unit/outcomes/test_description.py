"""What `describe` says of each party, word for word."""

import numpy as np

import allocsim
from allocsim.model import Document, Event, Problem, Run
from allocsim.outcomes.description import describe
from allocsim.programs.builder import plan_of
from allocsim.verdict.attribution import charges
from repro.small.words import belief, plan, program


def described(document, kind, **options):
    cause = next(c for c in charges(document)[1] if c.violation.kind == kind)
    return describe(document, cause.violation, cause=cause, **options).splitlines()


def test_a_late_read_shows_three_parties_their_places_and_lives():
    made = program("x = host.write; a = f x; b = g x; c = h a b; host.read c")
    problem = Problem.of(made, start=[0, 1, 2, 3], stop=[3, 2, 4, 5])
    document = Document.of(plan_of(made, [0, 64, 64, 128], problem=problem, source="mine"))
    head, class_, where, *lines = described(document, "StaleRead")
    assert head.startswith("StaleRead: op 3 'h' reads bytes [0, 32) of buffer 1 'a'")
    assert class_.startswith("  C01, fault of the plan: ")
    assert where == "  run 0 of program 0 'p', plan 0 of 'mine'"
    assert lines == [
        "         0  host.write -> x",
        "         1  f (x) -> a     <- made it: 'a' in cpu[64, 128)",
        "         2  g (x) -> b     <- took its bytes: 'b' in cpu[64, 128)",
        "  >      3  h (a, b) -> c  <- reads it late: bytes [0, 32)",
        "         4  host.read (c)",
        "  'a' (buffer 1): 64 bytes in cpu[64, 128), accessed in steps [1, 4), believed to live [1, 2)",
        "  'b' (buffer 2): 64 bytes in cpu[64, 128), accessed in steps [2, 4), believed to live [2, 4)",
    ]


def test_an_op_of_an_inlined_call_or_branch_says_which():
    made = program("x = host.write; @1/then a = f x; @2 b = g x; c = h a b; host.read c")
    document = Document.of(plan(made, "a=64 b=64", belief(made, a=(1, 2))))
    assert [line.partition(" <- ")[0].rstrip() for line in described(document, "StaleRead")[4:7]] == [
        "         1  f (x) -> a in '1/then'",
        "         2  g (x) -> b in '2'",
        "  >      3  h (a, b) -> c",
    ]


def test_parties_of_several_runs_stand_under_their_runs():
    made = program("x = host.write; a = f x; b = g a; host.read b")
    placed = plan(made, "x=0 a=64 b=0")
    lines = described(Document.of(Run.of(placed), Run.of(placed, skip=(0,))), "StaleRead", context=0)
    headings = [line for line in lines if line.startswith("  run ")]
    assert headings == ["  run 0 of program 0 'p', plan 0", "  run 1 of program 0 'p', plan 0"]
    assert lines[lines.index(headings[1]) + 1].startswith("  >      1  f (x) -> a")


def test_what_lies_between_is_counted_and_many_operands_too():
    middle = "; ".join(f"t{n} = k x" for n in range(9))
    made = program(f"x = host.write; {middle}; b = g x; c = h x t0 t1 t2 t3 t4; host.read c")
    slots = " ".join(f"t{n}={64 * (n + 2)}" for n in range(9))
    lines = described(Document.of(plan(made, f"x=0 {slots} b=0 c=64")), "StaleRead", context=1)
    assert "          ... 7 more" in lines
    assert any("h (x, t0, t1, t2, and 2 more) -> c" in line for line in lines)


def test_a_violation_without_an_op_shows_its_buffer():
    made = program("x = host.write; host.read x")
    lines = described(Document.of(plan(made, "x=7")), "Misaligned")
    assert lines[-1] == "  'x' (buffer 0): 64 bytes in cpu[7, 71), accessed in steps [0, 2)"


def test_names_cannot_break_a_line():
    b = allocsim.ProgramBuilder("p\n")
    x = b.tensor("x\n\x1b[31m", "f32", (8,))
    b.op("k\n", (x,), (), name="o\r")
    made = b.build()
    lines = described(Document.of(plan_of(made, [0])), "UninitialisedRead")
    assert all(line.isprintable() for line in lines)


def test_a_race_says_who_writes_and_who_may_still_be_reading():
    made = program("x = host.write; b = g x ~1 ^0; a = f! x; y = h a b ^1; host.read y")
    lines = described(Document.of(plan(made, "x=0 a=0 b=64 y=128")), "Race", context=0)
    assert [line.split("<- ")[1] for line in lines if "<- " in line] == [
        "may still be reading them",
        "writes bytes [0, 32)",
    ]


def test_an_event_of_the_planner_stands_at_its_step():
    made = program("x = host.write; a = f x; host.read a")
    events = np.array([(0, Event.ALLOC, 0), (1, Event.FREE, 0), (1, Event.FREE, 0)])
    lines = described(Document.of(plan(made, "x=0 a=64", events=events)), "DoubleFree")
    assert "  >      1  f (x) -> a  <- freed again here: 'x' in cpu[0, 64)" in lines


def test_of_a_bad_pair_the_two_accesses_that_cross_are_shown():
    made = program("x = host.write; a = f x; y = g! a; z = k y a; host.read z")
    lines = described(Document.of(plan(made, "", belief(made, share="a>y"))), "BadShare", context=0)
    assert [line.split("<- ")[1] for line in lines if "<- " in line] == [
        "accesses the recipient for the first time",
        "accesses the donor for the last time",
    ]
