"""One defect, one finding: what a mutant does wrong is explained by the mend of its bug, and two bugs stay two."""

from dataclasses import replace

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.errors import CapacityError
from allocsim.fuzzing import Answer, Examiner
from allocsim.fuzzing.bulk import Cut, batches
from allocsim.fuzzing.joining import MENDED, joined, mends_of
from allocsim.fuzzing.mutants import MUTANTS
from allocsim.fuzzing.properties import asked_of

PLANTED = {
    "freed_one_step_early": "step",
    "first_reader_only": "reader",
    "first_operand_only": "operand",
    "view_forgotten": "view",
    "told_pins_forgotten": "pin",
    "input_recycled": "input",
    "alignment_dropped": "offset",
}
"""Mutants whose bug one mend of the table undoes, and that mend."""

PROGRAMS = 50


class InThisProcess:
    """A planner of ours that answers here."""

    def __init__(self, plan):
        self.plan = plan

    def ask(self, cases, *, again=False, until=None):
        return [self.one(case) for case in cases]

    def one(self, case):
        try:
            return Answer(plan=self.plan(case.program, case.constraints))
        except CapacityError as error:
            return Answer(refused=str(error))


def findings_of(plan, *, seed=3, programs=PROGRAMS):
    """What is found of a planner in programs of the bulk source, the first of each cause."""
    wanted = [name for name in asked_of(("sound",)) if name != "capacity"]
    found = {}
    for batch in batches(seed, 0, programs):
        cases = list(Cut(batch))[:programs]
        for finding in Examiner(InThisProcess(plan), properties=wanted).examine(cases):
            found.setdefault(finding.key, finding)
    return sorted(found.values(), key=lambda finding: (finding.ops, finding.key))


@pytest.mark.parametrize("name", list(PLANTED))
def test_the_mend_of_a_planted_bug_explains_whatever_it_does(name):
    found = findings_of(MUTANTS[name].allocator().plan)

    assert found
    assert [finding.cause for finding in found if PLANTED[name] not in mends_of(finding)] == []
    assert len(joined(found)) == 1


def test_two_bugs_are_two_findings():
    broken, sound = MUTANTS["view_forgotten"].allocator(), ALLOCATORS["greedy_by_size"]

    def plan(program, constraints):
        made = broken.plan(program, constraints)
        if len(program.ops) % 2:
            return made
        made = sound.plan(program, constraints)
        return replace(
            made, offset=np.where(made.placed & (made.offset > 0), made.offset + 1, made.offset), problem=None
        )

    found = findings_of(plan, seed=5, programs=2 * PROGRAMS)
    mends = {defect.mend or min(mends_of(defect.smallest), default="") for defect in joined(found)}
    assert {"view", "offset"} <= mends


def test_two_bugs_of_a_planner_that_states_no_belief_stay_two():
    """Without a belief each overlap has the mends of a life that ends early, and "slot" only where it has none."""
    even, odd = MUTANTS["told_pins_forgotten"].allocator(), MUTANTS["view_forgotten"].allocator()

    def plan(program, constraints):
        made = (odd if len(program.ops) % 2 else even).plan(program, constraints)
        return replace(made, problem=None)

    found = findings_of(plan, seed=5, programs=2 * PROGRAMS)
    explained = [mends_of(finding) for finding in found]
    assert any("pin" in mends for mends in explained)
    assert any("view" in mends and "pin" not in mends for mends in explained)
    assert not any("slot" in mends for mends in explained if len(mends) > 1)
    assert len(joined(found)) > 1


def test_what_no_mend_explains_stands_alone():
    def plan(program, constraints):
        made = ALLOCATORS["greedy_by_size"].plan(program, constraints)
        return replace(made, offset=np.zeros_like(made.offset), problem=None) if len(program.buffers) > 9 else made

    for defect in joined(findings_of(plan)):
        assert (defect.mend in MENDED) == (len(defect.symptoms) > 1)
