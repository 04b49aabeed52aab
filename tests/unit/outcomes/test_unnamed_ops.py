"""An op without a name is told by its kind."""

import allocsim
from allocsim.outcomes.telling import first_place
from allocsim.programs.builder import ProgramBuilder, plan_of


def test_place_and_cure_of_an_op_without_a_name_say_its_kind(tmp_path):
    b = ProgramBuilder("unnamed")
    x, y = (b.tensor(name, "f32", (16,)) for name in "xy")
    for kind, reads, writes in (("load", (), (x,)), ("make", (), (y,)), ("use", (x, y), ())):
        b.op(kind, reads, writes, name="")
    path = tmp_path / "plan.json"
    allocsim.write(allocsim.Document.of(plan_of(b.build(), {0: 0, 1: 0})), str(path))
    outcome = allocsim.judge_file(path, cures=True)
    (cause,) = outcome.causes
    assert first_place(outcome, cause) == "at op 2 'use'"
    assert cause.mend == "keep x until op 2 (use) has run"
