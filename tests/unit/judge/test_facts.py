"""Facts of a document, as sentences ask for them: those of records are those of columns."""

import json

from oracle2.generate import generate

from allocsim.diagnostics.document_facts import DocumentFacts
from allocsim.diagnostics.plain_facts import PlainFacts
from allocsim.document import loads
from allocsim.judge import plain


def told(facts, document):
    """Return what is asked of sizes, beliefs and slots, at either end of ranges and at none."""
    for number, program in enumerate(document.programs):
        for buffer in range(len(program.buffers)):
            for end in (None, 0, 1):
                yield "nbytes", number, buffer, end, facts.nbytes(facts.program(number), buffer, end)
    for number, problem in enumerate(document.problems):
        yield "stated", number, {"start", "stop", "nbytes", "may_share"} & facts.stated(number)
        for buffer in range(len(problem.program.buffers)):
            for end in (None, 0, 1):
                belief = facts.belief(number, buffer, end)
                gaps = [tuple(gap) for gap in belief.gaps]
                yield belief.start, belief.stop, belief.nbytes, belief.pinned, belief.fixed, gaps
    for number, plan in enumerate(document.plans):
        for program in range(len(document.programs)):
            yield "problem", facts.problem_of(program, number)
        for buffer in range(len(plan.offset)):
            yield "slot", facts.slot(number, buffer)


def test_facts_of_records_are_those_of_columns():
    asked = 0
    for seed in range(100):
        tree = generate(seed)
        document = loads(json.dumps(tree))
        ours, theirs = DocumentFacts(document), PlainFacts(plain.read(tree))
        one, other = list(told(ours, document)), list(told(theirs, document))
        assert one == other, f"seed {seed}"
        asked += sum(row[0] == "problem" and row[1] is not None for row in one)
    assert asked > 0


def test_the_problem_of_a_program_without_ops_is_the_plans_own_or_the_first_about_it():
    programs = [{"buffers": [{"nbytes": 8}], "values": [], "ops": []} for _ in range(2)]
    slots = [{"arena": 0, "offset": 0, "nbytes": 8}]
    tree = {"format": "allocsim", "version": 1, "programs": programs}
    tree["problems"] = [{"program": number, "start": [0], "stop": [1]} for number in (0, 1, 1)]
    tree["plans"] = [{"program": 1, "problem": 2, "slots": slots}, {"program": 0, "slots": slots}]
    for facts in (DocumentFacts(loads(json.dumps(tree))), PlainFacts(plain.read(tree))):
        assert [facts.problem_of(program, plan) for plan in (0, 1) for program in (0, 1)] == [0, 2, 0, 1]
