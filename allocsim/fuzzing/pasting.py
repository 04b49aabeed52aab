"""A finding as a test file: one test asserts the violations, one asks the planner again.

The planner is asked with the limits it had when it was found, and judged by the property it broke
alone; for `bits` the engine runs its plan.

What this module does not see: how findings come about, and folders.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from allocsim.document import dumps
from allocsim.fuzzing.broken_property import BrokenProperty, told_of
from allocsim.fuzzing.history import CHANGED, FOLDER, HASHES
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


IN_SEQUENCE: Final = """

BEFORE = {before!r}


def test_the_planner_answers_as_if_nothing_had_been_asked_before():
    import json

    from allocsim.document import loads
    from allocsim.fuzzing import FuzzCase, Target
    from allocsim.fuzzing.broken_property import case_of
    from allocsim.fuzzing.history import after, alike, alone
    with Target(name={name!r}, seconds={seconds!r}, memory={memory!r}, hash_seed={hash_seed!r}).open() as asker:
        case = case_of(document().programs[0], {told})
        before = [(FuzzCase.of(loads(json.dumps(record).encode())), False) for record in BEFORE]
        assert alike(alone(asker, case), after(asker, before, case))
"""


BETWEEN_PROCESSES: Final = """

def test_two_fresh_processes_answer_alike():
    from allocsim.fuzzing import Target
    from allocsim.fuzzing.broken_property import case_of
    from allocsim.fuzzing.history import alike, alone
    case = case_of(document().programs[0], {told})
    answers = []
    for changed in {changes}:
        with Target(name={name!r}, seconds={seconds!r}, memory={memory!r}, **changed).open() as asker:
            answers.append(alone(asker, case))
    assert all(alike(answers[0], answer) for answer in answers)
"""


CHANGES: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    FOLDER: ({}, {}),
    HASHES: tuple({"hash_seed": seed} for seed in range(8)),
}
"""Cause -> what the processes of the pasted test have otherwise, where that is not `CHANGED` alone.

Each process works in a folder of its own.
"""


def pasted(finding: BrokenProperty, target: Target, *, by: str) -> str:
    """Return the source of a test file for a finding of a target. O(size of the document)."""
    bits = finding.breaks == "bits"
    text = script(finding.as_document(), title=f"Found by {by}: {finding.breaks}, {finding.cause}.")
    if finding.before or finding.cause in CHANGED:
        return text + (IN_SEQUENCE if finding.before else BETWEEN_PROCESSES).format(
            before=[json.loads(dumps(case.document())) for case in finding.before],
            name=target.name,
            seconds=target.seconds,
            memory=target.memory,
            hash_seed=target.hash_seed,
            changes=CHANGES.get(finding.cause) or ({}, CHANGED.get(finding.cause, {})),
            told=None if finding.case.kind == "plain" else told_of(finding.case),
        )
    return text + ASKED_AGAIN.format(
        imports="    from allocsim.plugins import service\n" if bits else "",
        name=target.name,
        seconds=target.seconds,
        memory=target.memory,
        judged='properties=[], execute=service("execute")' if bits else f"properties=[{finding.breaks!r}]",
        told=None if finding.case.kind == "plain" else told_of(finding.case),
        breaks=finding.breaks,
    )
