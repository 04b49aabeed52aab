"""What is said of an outcome: never more than was examined, and an exit status that keeps to it."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.errors import AllocsimError
from allocsim.judge.violations import Violation
from allocsim.model import Document, Problem, Role, Run
from allocsim.outcomes import Outcome, judge_file, outcome_of
from allocsim.outcomes.examined import CLEAN, DETECTORS, FOUND, NOT_RUN
from allocsim.outcomes.telling import WIDTH, headline, lines_of, wrapped
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.verdict.evidence import Evidence, KernelRow

DATA = Path(__file__).parents[2] / "data"


def program(*, in_place=((0, 0),)):
    """x -> y in place -> read by the host."""
    b = ProgramBuilder("step")
    x, y = (b.tensor(name, "f32", (16,)) for name in "xy")
    b.op("host.write", (), (x,))
    b.op("relu", (x,), (y,), in_place=in_place)
    b.op("host.read", (y,), ())
    return b.build()


def states(outcome):
    return {letter: row.state for letter, row in outcome.examined.items()}


def test_every_detector_is_listed_with_what_it_looked_at_or_why_not():
    outcome = outcome_of("x", Document.of(ALLOCATORS["greedy_by_size"].plan(program())))

    assert "".join(outcome.examined) == DETECTORS
    assert states(outcome) == {
        "S": CLEAN,
        "L": CLEAN,
        "H": NOT_RUN,
        "P": NOT_RUN,
        "D": NOT_RUN,
        "K": NOT_RUN,
        "R": NOT_RUN,
    }
    assert all(bool(row.why) is (row.state == NOT_RUN) is not bool(row.of) for row in outcome.examined.values())
    assert outcome.examined["S"].of == "3 ops"


def test_an_audit_of_some_kinds_says_nothing_of_the_others():
    b = ProgramBuilder("step")
    x, y, z, apart = (b.tensor(name, "f32", (16,)) for name in ("x", "y", "z", "apart"))
    b.op("host.write", (), (x,))
    b.op("relu", (x,), (y,), in_place=[(0, 0)])
    b.op("exp", (y,), (z,), in_place=[(0, 0)])
    b.op("neg", (z,), (apart,), in_place=[])
    b.op("host.read", (apart,), ())
    document = Document.of(plan_of(b.build(), {"x": 0, "y": 0, "z": 0, "apart": 64}))
    row = KernelRow(kind="relu", operand=0, result=0, declared=True, measured="safe", max_error=0.0, cases=1)
    some, all_ = (
        outcome_of("x", Evidence(document=document, audit=rows))
        for rows in ((row,), (row, msgspec.structs.replace(row, kind="exp")))
    )

    assert (some.examined["K"].of, all_.examined["K"].of) == ("1 of 2 kinds of kernels", "2 kinds of kernels")
    assert headline(some) == "S and K clean; 1 kind of kernels not examined"
    assert headline(all_) == "S and K clean"


@pytest.mark.parametrize("path", sorted((DATA / "ggml").glob("*.json")), ids=lambda path: path.stem)
def test_a_captured_graph_is_never_called_clean_without_a_word_of_what_was_not_examined(path):
    outcome = judge_file(path)
    line = headline(outcome)

    assert outcome.status == 0
    assert re.match(r"S and L clean; kernels not examined", line)
    assert not re.search(r"(^|: )clean", line)


def test_pairs_that_nobody_vouches_for_stand_in_the_first_line():
    made = program(in_place=None)
    plan = plan_of(made, [0, 0])

    assert headline(outcome_of("x", Document.of(plan))) == (
        "S clean; kernels not examined; an in-place pair that nobody vouches for"
    )
    assert "vouches" not in headline(outcome_of("x", Document.of(plan_of(made, [0, 64]))))


def test_a_plan_that_keeps_bytes_outside_all_arenas_says_so():
    lines = list(lines_of(outcome_of("x", Document.of(plan_of(program(), ["own", 0])))))

    assert "  1 buffer of 64 B in no arena and in no peak" in lines


def test_nothing_to_judge_is_not_clean():
    """A program alone, or a problem of one without ops: there is no plan."""
    b = ProgramBuilder("instance")
    b.buffer("x", 4)
    bare = outcome_of("x", Document(programs=(program(),)))
    instance = Problem.of(b.build(), start=[0], stop=[1])

    assert (bare.status, headline(bare)) == (2, "no plan here")
    assert [*lines_of(bare)][-1] == "  `allocsim plan FILE --allocator greedy_by_size -o planned.json` makes one"
    assert headline(outcome_of("x", Document.of(instance))) == "no plan here; L clean"


def test_of_buffers_whose_lives_nobody_tells_slots_alone_are_judged():
    b = ProgramBuilder("instance")
    b.buffer("x", 4)
    slots = plan_of(b.build(), [0])
    assert "  S clean: 1 buffer, of which nothing says when they live" in [
        *lines_of(outcome_of("x", Document.of(slots)))
    ]
    told = replace(slots, problem=Problem.of(slots.program, start=[0], stop=[1]))
    assert "  S clean: 1 buffer; L clean: 1 believed buffer" in [*lines_of(outcome_of("x", Document.of(told)))]


def test_what_was_not_examined_changes_the_status_only_where_it_is_required():
    plan = ALLOCATORS["greedy_by_size"].plan(program())

    assert outcome_of("x", Document.of(plan)).status == 0
    assert outcome_of("x", Document.of(plan), required="SL").status == 0
    lacking = outcome_of("x", Document.of(plan), required="SKD")
    assert lacking.status == 2
    assert headline(lacking).endswith("; K and D required and not run")


@pytest.mark.parametrize(
    ("runs", "found", "of"),
    [
        ([{}, {"after": ()}], "H", "2 runs at once"),
        ([{}, {"after": (0,)}], "", ""),
        ([{"read_after": 1}, {}], "SR", ""),
    ],
    ids=["two at once", "one after the other", "a late look"],
)
def test_runs_at_once_are_asked_of_h_and_a_late_look_of_r(runs, found, of):
    plan = plan_of(program(), [0, 64])
    document = Document.of(*(Run(program=plan.program, plan=plan, **run) for run in runs))
    outcome = outcome_of("x", document, required="H")

    assert {letter for letter, row in outcome.examined.items() if row.state == FOUND} >= set(found)
    assert (outcome.examined["H"].state == NOT_RUN, outcome.examined["H"].of) == (not of, of)
    assert outcome.unexamined == (() if of else ("H",))


def test_returns_that_are_assumed_stand_in_the_first_line():
    b = ProgramBuilder("step", meta={"assumed_returns": 2})
    b.op("f", (), (b.tensor("x", "f32", (4,)),))

    assert headline(outcome_of("x", Document.of(plan_of(b.build(), [0])))).startswith("S clean; 2 returns assumed")


def test_what_was_found_is_status_1_whatever_is_required():
    wrong = Document.of(plan_of(program(in_place=()), [0, 0]))

    assert outcome_of("x", wrong).status == outcome_of("x", wrong, required="K").status == 1


def test_evidence_of_kernels_is_told_and_is_no_violation():
    outcome = judge_file(DATA / "cases" / "plan-and-kernel-K")
    (kernel,) = outcome.measured

    assert (kernel.class_, kernel.party, outcome.status) == ("C04", "kernel", 1)
    assert states(outcome)["K"] == FOUND
    assert not outcome.passes
    assert not judge_file(DATA / "cases" / "plan-and-kernel-K", causes_too=False).passes


def test_what_a_detector_that_ran_saw_little_of_stands_beside_what_it_said():
    evidence = Evidence(document=Document.of(ALLOCATORS["greedy_by_size"].plan(program())), origins=())
    outcome = outcome_of("x", evidence, whys={"D": "2 results are not finite"})
    silent = outcome_of("x", evidence)

    assert states(outcome) == states(silent)
    assert states(outcome)["D"] == CLEAN
    assert "  D: 2 results are not finite" in lines_of(outcome)
    assert not any(line.startswith("  D: ") for line in lines_of(silent))


def test_a_file_that_cannot_be_read_cannot_be_judged(tmp_path):
    outcome = judge_file(tmp_path / "no.json")

    assert (outcome.status, list(lines_of(outcome))) == (2, [f"{tmp_path / 'no.json'}: {outcome.error}"])
    assert Outcome(file="x").status == 2


def test_names_from_files_break_no_line():
    b = ProgramBuilder("p")
    x = b.tensor("a\nb\x1b[31m", "f32", (4,), role=Role.INPUT)
    b.op("f\n", (x,), (b.tensor("y", "f32", (4,)),))
    lines = list(lines_of(outcome_of("x\ny", Document.of(plan_of(b.build(), [0, 32])), cures=True)))

    assert all(line.isprintable() for line in lines)
    assert lines[0].startswith("x\\ny: 1 cause in 1 violation")


def test_a_size_is_not_parted_from_its_unit():
    text = "word " * 15 + "12 MiB"

    assert wrapped(text) == ["word " * 14 + "word", "12 MiB"]
    assert len(wrapped("x" * 200)) == 1
    assert all(len(line) <= WIDTH for line in wrapped(text * 9))


def test_letters_of_detectors_are_checked():
    from allocsim.cli.check import letters_of  # noqa: PLC0415 - the command's

    assert letters_of(" s, L,K,") == "SLK"
    for wrong in ("X", "SL"):
        with pytest.raises(AllocsimError, match=f"'{wrong}' is no detector"):
            letters_of(wrong)


def test_warnings_of_programs_that_are_alike_are_told_once():
    """A host that makes its graph anew has a program for each."""
    outcome = outcome_of("x", Document.of(plan_of(program(), [0, 64])))
    assert outcome.report is not None
    warning = Violation(kind="LifetimeTooLong", message="buffer 1 'y' is believed too long", program=0)
    report = replace(outcome.report, warnings=(warning, replace(warning, program=1), replace(warning, message="z")))
    lines = list(lines_of(replace(outcome, report=report)))

    assert "   LifetimeTooLong (warning, 2 times): buffer 1 'y' is believed too long" in lines
    assert "   LifetimeTooLong (warning): z" in lines
