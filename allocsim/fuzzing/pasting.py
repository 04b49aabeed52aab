"""A finding as a test file: one test asserts the violations, one asks the planner again.

The planner is asked with the limits it had when it was found, and judged by the property it broke
alone; for `bits` the engine runs its plan.

What this module does not see: how findings come about, and folders.
"""

from typing import Final

from allocsim.fuzzing.broken_property import BrokenProperty, told_of
from allocsim.fuzzing.target import Target
from allocsim.reduction.reproducer import script

ASKED_AGAIN: Final = """

def test_the_planner_does_not_do_it_again():
    from allocsim.fuzzing import Examiner, Target
    from allocsim.fuzzing.broken_property import case_of
{imports}
    with Target(name={name!r}, seconds={seconds!r}, memory={memory!r}).open() as asker:
        examiner = Examiner(asker, {judged})
        case = case_of(document().programs[0], {told})
        assert examiner.find(case, {breaks!r}) is None
"""


def pasted(finding: BrokenProperty, target: Target, *, by: str) -> str:
    """Return the source of a test file for a finding of a target. O(size of the document)."""
    bits = finding.breaks == "bits"
    text = script(finding.as_document(), title=f"Found by {by}: {finding.breaks}, {finding.cause}.")
    return text + ASKED_AGAIN.format(
        imports="    from allocsim.plugins import service\n" if bits else "",
        name=target.name,
        seconds=target.seconds,
        memory=target.memory,
        judged='properties=[], execute=service("execute")' if bits else f"properties=[{finding.breaks!r}]",
        told=None if finding.case.kind == "plain" else told_of(finding.case),
        breaks=finding.breaks,
    )
