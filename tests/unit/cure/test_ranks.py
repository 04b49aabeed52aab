"""An order of buffers by first access: of a plan, also by the programs that it was not made for."""

from dataclasses import replace

from allocsim.cure.ranks import ranks, ranks_of
from allocsim.cure.room import programs_under
from allocsim.model import Document, Run
from allocsim.programs.builder import ProgramBuilder, plan_of


def touching(*order):
    """Return a program of three buffers, some of which ops write, in this order."""
    b = ProgramBuilder("ordered")
    buffers = [b.buffer(f"b{number}", 4) for number in range(3)]
    values = [b.value(f"v{number}", buffer, "u8", (4,)) for number, buffer in enumerate(buffers)]
    for number in order:
        b.op("fill", [], [values[number]])
    return b.build()


def test_the_first_accessed_comes_first_and_those_never_accessed_last():
    first = ranks(touching(2, 0))
    assert first[2] < first[0] < first[1]


def test_those_that_a_plan_s_own_program_never_accesses_are_ordered_by_the_others_that_run_under_it():
    own, other = touching(1), touching(2, 0)
    plan = plan_of(own, [0, 4, 8])
    alone = ranks_of(own, programs_under(Document.of(plan))[0])
    assert alone[0] == alone[2]
    both = replace(Document.of(plan), programs=(own, other), session=(Run(plan=plan, program=other),))
    found = ranks_of(own, programs_under(both)[0])
    assert found[1] < found[2] < found[0]
