"""What holds of every planner. A failure shows the smallest case that breaks it."""

import json

import pytest

from allocsim.fuzzing import PROPERTIES, BrokenProperty, CampaignResult, Explorer, FuzzCase, Target
from allocsim.fuzzing.broken_property import told_of
from allocsim.fuzzing.pasting import pasted
from allocsim.fuzzing.properties import asked_of
from allocsim.fuzzing.target import Asker
from allocsim.judge.fast import check
from allocsim.model import HOST_READ, HOST_WRITE, Arena, Document, Program
from allocsim.outcomes.description import describe, describe_program
from allocsim.programs.builder import ProgramBuilder


@pytest.mark.parametrize("name", list(PROPERTIES))
def test_property(name: str, result: CampaignResult, asker: Asker) -> None:
    """No program of the campaign breaks the property."""
    if name not in asked_of(asker.guarantees):
        pytest.skip(f"the planner does not promise {PROPERTIES[name].guarantee}")
    if name not in asked_of(asker.guarantees, told=asker.told):
        pytest.skip("the planner takes no constraints and is told of no pins but the program's own reads by the host")
    if name not in asked_of(asker.guarantees, told=asker.told, places=asker.places):
        pytest.skip("the planner places no belief that it is given")
    found = [finding for finding in result.findings if finding.breaks == name]
    if found:
        pytest.fail(
            f"{PROPERTIES[name].claim}: not so\n\n" + "\n\n".join(shown(finding, asker.target) for finding in found),
            pytrace=False,
        )


def test_the_campaign_asked_what_it_was_to_ask(result: CampaignResult, explorer: Explorer) -> None:
    """The properties above would say little if little had been asked."""
    assert result.complete
    assert result.tally.programs == explorer.asked.examples


def test_the_empty_program_has_a_plan(asker: Asker) -> None:
    """Nothing to place is no reason to fail."""
    (answer,) = asker.ask([FuzzCase(program=ProgramBuilder("empty").build())])

    assert answer.plan is not None, answer.failure or answer.refused


@pytest.mark.parametrize("capacity", [0, 1, 64, 127])
def test_too_small_a_capacity_is_refused(asker: Asker, capacity: int) -> None:
    """Two buffers of 64 bytes that live together do not fit into less than 128: only a
    `CapacityError` will do.
    """
    (answer,) = asker.ask([FuzzCase(program=two_alive(capacity))])

    assert answer.refused is not None, answer.failure or "it returned a plan"


def test_a_capacity_that_is_just_enough_is_used(asker: Asker) -> None:
    """128 bytes are enough for two buffers of 64."""
    (answer,) = asker.ask([FuzzCase(program=two_alive(128))])

    assert answer.plan is not None, answer.failure or answer.refused
    assert check(Document.of(answer.plan), plain=True).clean


def two_alive(capacity: int) -> Program:
    """Return a program with two buffers of 64 bytes that live together."""
    builder = ProgramBuilder("two", arenas=(Arena(name="cpu", alignment=64, capacity=capacity),))
    values = [builder.tensor(name, "f32", (16,)) for name in "ab"]
    builder.op(HOST_WRITE, (), values)
    builder.op(HOST_READ, values, ())
    return builder.build()


def shown(finding: BrokenProperty, target: Target) -> str:
    """Return the finding for a person: what is wrong, the ops round it or else all of the case, and
    a test to paste.
    """
    document = finding.document
    report = check(document, limit=1)
    plan = document.plans[0] if document.plans else None
    lines = [
        f"{finding.message}  [{finding.cause}; {finding.ops} ops]",
        describe(document, report.violations[0]) if report.violations else describe_program(finding.case.program, plan),
    ]
    if finding.case.kind != "plain":
        lines.append(f"told {json.dumps(told_of(finding.case))}")
    lines += ["a test to paste:", "", pasted(finding, target, by="allocsim.conformance")]
    lines.append(f"again: --allocator-seed {finding.origin.get('seed')}, chunk {finding.origin.get('chunk')}")
    return "\n".join(lines)
