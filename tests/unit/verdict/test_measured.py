"""K and D: what they add to the verdict, alone and together, and what is said where they find what nothing explains."""

import pytest

from allocsim.model import Document, Run
from allocsim.p_sanitizer.incidents import Incident
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.verdict import judge
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.evidence import CureRecord, Evidence, KernelRow, Origin
from allocsim.verdict.measured import explains, sanitizer_causes
from repro.small.words import belief, plan, program

TEXT = "x = host.write; a = f x; b = norm! a; c = norm! b; host.read c"


def evidence(text=TEXT, slots="a=0 b=0 c=64", *, runs=1, share="a>b", **measured):
    made = program(text)
    planned = plan(made, slots, belief(made, share=share))
    return Evidence(document=Document.of(*[Run.of(planned)] * runs), **measured)


def row(**changed):
    default = {
        "kind": "norm",
        "operand": 0,
        "result": 0,
        "declared": True,
        "measured": "unsafe",
        "max_error": 0.5,
        "cases": 3,
    }
    return KernelRow(**{**default, **changed})


def origin(op=2, what="result", **changed):
    return Origin(**{"run": 0, "op": op, "what": what, "position": 0, "value": 2, "max_error": 0.5, **changed})


def causes(**measured):
    return judge(evidence(**measured)).classes


def test_declared_unsafe_used_and_wrong_there_is_the_kernels_fault():
    verdict = judge(evidence(audit=(row(),), origins=(origin(),), diverges=True))
    (finding,) = verdict.joint
    assert (finding.class_, finding.party) == ("C04", "kernel")
    assert (finding.victim.value_name, finding.writer.value_name, finding.first.step) == ("a", "b", 2)
    assert finding.victim.address == finding.writer.address == 0
    assert finding.belief == "the plan relies on what norm declares: result 0 may lie over operand 0"
    assert verdict.detectors["S"]["status"] == "clean"
    assert verdict.text == (
        "the plan is legal (0 conflicts in 5 ops); C04, fault of the kernel: the kernel of norm is not safe with its result over "
        "operand 0 (error up to 0.5 in 3 cases), although it declares that it is; first wrong tensor: b at op 2 (norm); "
        "cure: forbid the in-place pair of norm (result 0 over operand 0), +0 B, against +0 B for pinning everything"
    )


def test_a_pair_the_plan_does_not_use_convicts_nobody():
    verdict = judge(evidence(slots="a=0 b=64 c=128", audit=(row(),), origins=(), diverges=False))
    assert verdict.sound
    assert verdict.detectors["K"] == {
        "status": "violations",
        "count": 1,
        "rows": 1,
        "unsafe": ["norm: result 0 over operand 0"],
    }


def test_k_without_d_is_said_to_be_unconfirmed():
    (finding,) = judge(evidence(audit=(row(),))).joint
    assert (finding.class_, finding.party) == ("C04", "kernel")
    assert finding.text.endswith("(not confirmed: no differential run)")


def test_k_with_a_d_that_found_nothing_is_believed_and_that_is_said():
    """More evidence never finds less: the values a run met may not show what the audit did."""
    (finding,) = judge(evidence(audit=(row(),), origins=(), diverges=False)).joint
    assert (finding.class_, finding.party) == ("C04", "kernel")
    assert finding.text.endswith("(the differential run saw no wrong result from right operands there)")


def test_of_a_mutation_k_alone_is_believed():
    """The result lies on its operand in the reference as well: D cannot see what is wrong there."""
    text, slots = "x = host.write; a = f x; n:a = norm! a; host.read n", "a=0"
    made = program(text)
    document = Document.of(plan(made, slots, belief(made)))
    (finding,) = judge(Evidence(document=document, audit=(row(),), origins=(), diverges=False)).joint
    assert (finding.class_, finding.party, finding.first.step) == ("C04", "kernel", 2)
    assert "wrong under every plan" in finding.text


def test_a_kernel_handed_bytes_outside_a_buffer_is_not_to_blame():
    made = program("x[16] = host.write; v:x[8@48] = view x; y = f v; host.read y")
    document = Document.of(plan(made, "x=0 y=64"))
    overrun = Incident(kind="Overrun", run=0, op=2, value=2, buffer=1, message="m")
    assert judge(Evidence(document=document, sanitizer=(overrun,))).classes == {("C12", "caller")}


def test_a_safe_measure_of_a_used_pair_is_clean():
    assert causes(audit=(row(measured="safe", max_error=0.0),), origins=(), diverges=False) == frozenset()


@pytest.mark.parametrize(
    "declared", [True, False], ids=["the audit calls it declared", "the audit calls it undeclared"]
)
def test_a_pair_the_op_does_not_declare_is_the_plans_fault_whatever_k_says(declared):
    text = TEXT.replace("b = norm!", "b = norm")
    assert causes(text=text, audit=(row(declared=declared),), origins=(origin(),), diverges=True) == {("C03", "plan")}


def test_a_pair_of_which_nobody_knows_and_that_is_measured_unsafe_was_assumed_by_the_plan():
    text = TEXT.replace("b = norm!", "b = norm?")
    assert causes(text=text, audit=(row(declared=False),), origins=(origin(),), diverges=True) == {("C03", "plan")}
    assert causes(text=text, audit=(row(declared=True),), origins=(origin(),), diverges=True) == {("C04", "kernel")}
    assert causes(text=text, audit=(row(declared=False, measured="safe"),), origins=(), diverges=False) == frozenset()


@pytest.mark.parametrize(
    ("audit", "what", "said"),
    [
        (None, "result", "b at op 2 (norm): its operands are right, but K has not measured this kernel"),
        ((), "result", "b at op 2 (norm): its operands are right, but S and K find nothing that explains this"),
        (
            (),
            "operand",
            "b at op 2 (norm): its bytes changed between write and read, but S and K find nothing that explains this",
        ),
    ],
    ids=["no K", "K clean", "taken"],
)
def test_an_origin_nothing_accounts_for_is_unknown(audit, what, said):
    (finding,) = judge(evidence(audit=audit, origins=(origin(what=what),), diverges=True)).joint
    assert (finding.class_, finding.party, finding.text) == ("unknown", "unknown", said)


def test_an_unexplained_origin_is_not_dropped_beside_another_fault():
    found = causes(audit=(row(),), origins=(origin(), origin(op=3)), diverges=True)
    assert found == {("C04", "kernel"), ("unknown", "unknown")}


def test_an_origin_at_a_stale_read_is_accounted_for():
    text, slots = "x = host.write; a = f x; b = g x; c = h b a; host.read c", "a=0 b=0"
    assert causes(text=text, slots=slots, audit=(), origins=(origin(op=3, what="operand"),), diverges=True) == {
        ("C03", "plan")
    }


def test_a_difference_without_an_origin_is_unknown_and_said():
    verdict = judge(evidence(origins=(), diverges=True))
    assert (verdict.detectors["D"]["status"], verdict.detectors["D"]["count"]) == ("violations", 1)
    (finding,) = verdict.joint
    assert finding.text == "the default run differs from the reference, but no op was found that makes the difference"


def test_each_use_of_an_unsafe_pair_counts_once_and_the_first_is_the_verdict():
    verdict = judge(evidence(runs=2, audit=(row(),), origins=(origin(), origin(run=1)), diverges=True))
    assert [(f.first.run, f.first.step, f.places) for f in verdict.joint] == [(0, 2, 2)]


def test_an_error_without_bounds_is_said_in_words():
    (finding,) = judge(evidence(audit=(row(max_error=None, cases=1),), origins=(origin(),), diverges=True)).joint
    assert "(error beyond all bounds in 1 case)" in finding.text


def test_a_document_alone_says_what_was_not_run():
    verdict = judge(Evidence(document=Document.of(plan(program(TEXT), ""))))
    assert verdict.sound
    assert {name: says["status"] for name, says in verdict.detectors.items()} == {
        "S": "clean", "H": "not run", "P": "not run", "D": "not run", "K": "not run", "R": "not run", "L": "not run",
    }  # fmt: skip
    assert verdict.text == "the plan is legal (0 conflicts in 5 ops); nothing wrong was found"


def test_the_cure_is_told_with_its_price():
    cure = CureRecord(elements=("pin a", "pin b"), nbytes=1 << 20, pin_all_bytes=None, minimal=True, trials=4)
    verdict = judge(evidence(audit=(row(),), origins=(origin(),), diverges=True, cure=cure))
    assert verdict.text.endswith("; cure: pin a; pin b, +1 MiB")
    assert (verdict.as_json()["cure"], verdict.as_json()["cure_bytes"]) == ("pin a; pin b", 1 << 20)


def test_an_evidence_without_runs_has_a_verdict():
    assert (
        judge(Evidence(document=Document(programs=()))).text
        == "the plan is legal (0 conflicts in 0 ops); nothing wrong was found"
    )


TWICE = "x = host.write; a = f x; b = norm a a; c = norm b x; host.read c"


def test_a_kernel_that_does_not_bear_one_buffer_twice_is_convicted_where_it_is_given_one():
    """By K alone: no differential run can show it. The second call of the kernel has two buffers, and nothing to do with it."""
    found = row(layout="duplicate", max_error=0.25)
    verdict = judge(evidence(TWICE, "x=256 a=0 b=64 c=128", share="", audit=(found,), origins=(), diverges=False))
    (finding,) = verdict.joint
    assert (finding.class_, finding.party, finding.first.step, finding.places) == ("C04", "kernel", 2, 1)
    assert finding.victim.buffer_name == "a"
    assert finding.text == (
        "the kernel of norm is wrong if operand 0 and another operand are one buffer (error up to 0.25 in 3 cases), which every "
        "kernel must allow, and op 2 passes a twice (a differential run cannot show this: the reference run passes the buffer "
        "twice as well)"
    )
    assert verdict.detectors["K"]["unsafe"] == ["norm: operand 0 given twice"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = host.write; a = f x; b = norm a x; c = norm b x; host.read c", row(layout="duplicate")),  # never twice
        (TWICE, row(layout="duplicate", measured="safe")),
        (TWICE, row(layout="duplicate", kind="other")),
        (TWICE, row(layout="duplicate", operand=2)),
        (TWICE, row(layout="over")),  # in place, which this plan is nowhere
        (
            "x = host.write; a[16] = f x; v:a[8] = view a; w:a[8@32] = view a; b = norm v w; host.read b",
            row(layout="duplicate"),
        ),
    ],
    ids=["never twice", "safe", "another kernel", "another operand", "in place only", "halves of one buffer"],
)
def test_it_takes_an_unsafe_kernel_and_one_buffer_for_that_operand(text, found):
    slots = "x=256 a=0 b=64" + (" c=128" if "c =" in text else "")
    verdict = judge(evidence(text, slots, share="", audit=(found,), origins=(), diverges=False))
    assert verdict.sound


def test_operands_that_overlap_in_part_are_one_buffer_twice():
    text = "x = host.write; a[16] = f x; v:a[8] = view a; w:a[8@16] = view a; b = norm v w; host.read b"
    assert not judge(
        evidence(text, "x=256 a=0 b=64", share="", audit=(row(layout="duplicate"),), origins=(), diverges=False)
    ).sound


def test_columns_of_one_buffer_that_share_no_byte_are_not_one_buffer_twice():
    """Query and key of one projection interleave: their hulls meet, and nothing else of them."""
    b = ProgramBuilder("projections")
    both = b.value("both", b.buffer("both", 128), "f32", (8, 4))
    b.op("host.write", (), (both,))
    query, key = (b.view(both, name, (8, 2), strides=(16, 4), offset=at) for name, at in (("query", 0), ("key", 8)))
    scores = b.tensor("scores", "f32", (8, 2))
    b.op("norm", (query, key), (scores,))
    b.op("host.read", (scores,), ())
    found = row(layout="duplicate")
    document = Document.of(plan_of(b.build(), {0: 0, 1: 128}))

    assert judge(Evidence(document=document, audit=(found,), origins=(), diverges=False)).sound


def soft_max(meta, **measured):
    """A soft_max whose result lies over its second operand, which `meta` says is source 2."""
    builder = ProgramBuilder("step")
    scores, sinks, out = (builder.tensor(name, "f32", (4,)) for name in ("scores", "sinks", "out"))
    builder.op("host.write", (), (scores,))
    builder.op("host.write", (), (sinks,))
    builder.op("soft_max", (scores, sinks), (out,), in_place=((0, 0), (1, 0)), meta=meta)
    builder.op("host.read", (out,), ())
    planned = plan_of(builder.build(), {0: 0, 1: 64, 2: 64})
    return Evidence(document=Document.of(planned), **measured)


def test_a_row_of_k_names_source_slots_and_is_joined_by_them():
    unsafe = row(kind="soft_max", operand=2)
    (cause,) = judge(soft_max({"slots": [0, 2]}, audit=(unsafe,))).causes

    assert (cause.class_, cause.party, cause.first.op) == ("C04", "kernel", 2)
    assert "with its result over operand 1 (source 2)" in cause.text
    assert cause.victim.value_name == "sinks"
    assert judge(soft_max({}, audit=(unsafe,))).sound


def test_a_row_of_another_slot_at_the_same_position_convicts_nobody():
    mask = row(kind="soft_max", operand=1)

    assert judge(soft_max({"slots": [0, 2]}, audit=(mask,))).sound
    assert not judge(soft_max({}, audit=(mask,))).sound


def test_a_row_measured_at_one_op_says_nothing_of_another():
    safe_there = row(kind="soft_max", operand=2, steps=(7,))

    assert judge(soft_max({"slots": [0, 2]}, audit=(safe_there,))).sound
    assert not judge(soft_max({"slots": [0, 2]}, audit=(row(kind="soft_max", operand=2, steps=(2,)),))).sound


def test_a_row_measured_in_one_program_says_nothing_of_another():
    one, other = (soft_max({"slots": [0, 2]}).document.plans[0] for _ in range(2))
    both = Document.of(Run.of(one), Run.of(other))

    def first_and_count(**measured):
        rows = (row(kind="soft_max", operand=2, steps=(2,), **measured),)
        (cause,) = judge(Evidence(document=both, audit=rows, origins=(), diverges=False)).causes
        return cause.first.run, cause.places

    assert first_and_count(program=1) == (1, 1)
    assert first_and_count() == (0, 2)


def test_a_race_is_said_with_the_fewest_threads_that_show_it():
    (cause,) = judge(soft_max({"slots": [0, 2]}, audit=(row(kind="soft_max", operand=2, threads=2),))).causes

    assert "in 3 cases at 2 threads" in cause.text


@pytest.mark.parametrize(
    ("found", "first"),
    [
        ({}, "d"),
        ({"origins": (origin(op=3, what="operand"),)}, "a"),
        ({"origins": (origin(op=6, what="operand", value=5),)}, "d"),
        ({"origins": (origin(op=3, what="result"),)}, "b"),
    ],
    ids=[
        "without D the most bytes",
        "the small read",
        "the large read",
        "a result, which no late read explains, itself",
    ],
)
def test_the_headline_is_what_explains_the_first_wrong_number(found, first):
    text = "x = host.write; a = f x; b = g x; c = h b a; d[32] = f x; e[32] = g x; r[32] = h e d c; host.read r"
    measured = {"audit": (), "diverges": True, **found} if found else {}
    planned = plan(program(text), "a=0 b=0 d=512 e=512")
    (finding, *_) = judge(Evidence(document=Document.of(planned), **measured)).joint
    assert finding.victim.buffer_name == first


@pytest.mark.parametrize(("what", "op", "right"), [("operand", 3, True), ("result", 3, False), ("result", 2, True)])
def test_what_a_kernel_did_explains_any_wrong_operand_and_the_wrong_results_of_its_op(what, op, right):
    overrun = Incident(kind="Overrun", run=0, op=2, value=2, buffer=1, message="m")
    dossier = Dossier(evidence(sanitizer=(overrun,)))
    (cause,) = sanitizer_causes(dossier)

    assert explains(dossier, cause, origin(op, what)) is right
