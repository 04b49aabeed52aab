"""A finding as a test file: one test asserts the violations, one asks the planner again.

The planner is asked with the limits it had when it was found, and judged by the property it broke
alone; for `bits` the engine runs its plan.

What this module does not see: how findings come about, and folders.
"""

from typing import Final

from allocsim.fuzzing.broken_property import BrokenProperty
from allocsim.fuzzing.target import Target
from allocsim.reduction.reproducer import script

ASKED_AGAIN: Final = """

def test_the_planner_does_not_do_it_again():
    from allocsim.fuzzing import FuzzCase, Examiner, Target
{imports}
    with Target(name={name!r}, seconds={seconds!r}, memory={memory!r}).open() as asker:
        examiner = Examiner(asker, {judged})
        case = FuzzCase(program=document().programs[0]{pinned})
        assert examiner.find(case, {breaks!r}) is None
"""


def pasted(finding: BrokenProperty, target: Target, *, by: str) -> str:
    """Return the source of a test file for a finding of a target. O(size of the document)."""
    told = finding.case.pinned
    pins = "" if told is None else f", pinned={told.nonzero()[0].tolist()}).pinned"
    bits = finding.breaks == "bits"
    text = script(finding.as_document(), title=f"Found by {by}: {finding.breaks}, {finding.cause}.")
    return text + ASKED_AGAIN.format(
        imports="    from allocsim.plugins import service\n" if bits else "",
        name=target.name,
        seconds=target.seconds,
        memory=target.memory,
        judged='properties=[], execute=service("execute")' if bits else f"properties=[{finding.breaks!r}]",
        pinned=pins and f", pinned=allocsim.Problem.of(document().programs[0]{pins}",
        breaks=finding.breaks,
    )
