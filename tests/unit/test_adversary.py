"""The replay by the worst honest kernels agrees with the judge's twin on which reads a plan breaks."""

from adversary import late_reads
from facts import aliases, apart, ops_of, planned, touched, unsafe
from hypothesis import given
from oracle import replay
from strategies import documents

from allocsim.model import Document
from allocsim.programs.builder import ProgramBuilder, plan_of


def twin(document):
    """Return (run, step) of the ops that the plan breaks, and of those that the program itself breaks."""
    sessions = [[run] for run in document.runs] if document.session is None else [list(document.runs)]
    found, own, number = set(), set(), 0
    for session in sessions:
        for v in replay(document, session, number):
            {"StaleRead": found, "OverwrittenRead": own, "UninitialisedRead": own}.get(v.kind, set()).add(
                (v.run, v.step)
            )
        number += len(session)
    for number, run in enumerate(document.runs):
        for op in ops_of(run.program, run.skip):
            here, there = (
                met(run.program, op, where) for where in (planned(document, run), apart(document, run.program))
            )
            if here - there:
                found.add((number, op.step))
    return found, own


def met(program, op, where):
    """Return (operand position, byte of its buffer) wherever an op meets an alias that breaks the rule."""
    return {
        (alias.operand, byte)
        for alias in aliases(program, op, where)
        if unsafe(op, alias)
        for byte in touched(program, op.operands[alias.operand])
        if where(program.values[op.operands[alias.operand]].buffer, byte) in alias.shared
    }


@given(document=documents())
def test_the_reads_it_finds_are_those_of_the_twin(document):
    found, own = twin(document)
    assert {(run, step) for run, step, _ in late_reads(document)} - own == found - own


def test_bytes_taken_by_a_plan_are_seen_although_the_op_itself_may_destroy_them_too():
    b = ProgramBuilder("clash")
    x, y = (b.tensor(name, "f32", (2,)) for name in "xy")
    over = b.value("x as bytes", 0, "u8", (8,))
    b.op("host.write", (), (x,))
    b.op("compute", (x,), (y,), in_place=((0, 0),))
    b.op("clash", (x,), (over,), in_place=())
    document = Document.of(plan_of(b.build(), {0: 0, 1: 0}))  # y takes the bytes of x before "clash" reads them
    assert late_reads(document) == [(0, 2, 0)]


@given(document=documents(sound=True))
def test_a_sound_plan_changes_no_read(document):
    assert late_reads(document) == []
