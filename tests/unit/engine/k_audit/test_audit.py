"""Detector K finds the planted defects, and only them; and it cannot be fooled by data that hides aliasing."""

import dataclasses

import numpy as np
import pytest

from allocsim.errors import EngineError, UnknownNameError
from engine.k_audit import (
    LAYOUTS,
    AuditCase,
    AuditLayout,
    AuditRow,
    arranged_memory,
    audit_ops,
    default_cases,
    measuring,
)
from engine.k_audit import audit as measured
from engine.k_audit.standing_cases import CASES
from engine.kernels import KERNELS, Kernel


def audit(**options) -> tuple[AuditRow, ...]:
    return tuple(measured(**options))


@pytest.fixture(scope="module")
def rows() -> tuple[AuditRow, ...]:
    return audit()


def only(rows, **fields) -> AuditRow:
    (row,) = (r for r in rows if all(getattr(r, name) == value for name, value in fields.items()))
    return row


def dense(dtype: str, *shape: int) -> AuditLayout:
    size = {"f32": 4, "f64": 8, "i32": 4}[dtype]
    strides = np.empty(shape, f"V{size}").strides
    return AuditLayout(dtype=dtype, shape=shape, strides=strides)


def test_the_two_planted_kernels_are_the_only_broken_ones(rows):
    """A declared pair measured unsafe: rms_norm_back over dy, soft_max_back over y, in their old form."""
    assert {(r.kind, r.variant, r.operand) for r in rows if r.broken} == {
        ("rms_norm_back", "two_pass", 0),
        ("soft_max_back", "two_pass", 1),
    }


def test_the_other_operand_of_a_planted_kernel_is_safe(rows):
    """Where ggml's old kernels were right, so are ours."""
    assert only(rows, kind="rms_norm_back", variant="two_pass", operand=1).measured == "safe"
    assert only(rows, kind="soft_max_back", variant="two_pass", operand=0).measured == "safe"


def test_every_declared_pair_is_measured_in_both_dtypes(rows):
    """No declaration goes untested."""
    for kind, variants in KERNELS.items():
        for variant, kernel in variants.items():
            for operand, result in kernel.in_place:
                row = only(rows, kind=kind, variant=variant, operand=operand, result=result)
                assert row.declared
                assert row.measured != "not applicable"
                assert row.dtypes == ("f32", "f64")
                assert row.cases >= 14


def test_undeclared_pairs_are_measured_and_are_no_defect(rows):
    """get_rows over its table is unsafe, which nobody promised otherwise; an index operand cannot be tried."""
    table = only(rows, kind="get_rows", operand=0)
    assert (table.declared, table.measured, table.broken) == (False, "unsafe", False)
    assert only(rows, kind="get_rows", operand=1).measured == "not applicable"
    assert all(only(rows, kind="mul_mat", variant=variant, operand=1).cases > 0 for variant in ("tiles", "blas"))


def test_a_failing_case_is_reported_with_its_size_and_error(rows):
    """The witness is the smallest shape that fails, and it fails again."""
    row = only(rows, kind="soft_max_back", variant="two_pass", operand=1)
    assert row.smallest is not None
    assert row.smallest.results[0].shape == (1, 1)
    assert row.max_error > 0.1

    (again,) = (r for r in audit_ops([row.smallest]) if r.operand == 1)
    assert again.measured == "unsafe"


def test_the_same_seed_gives_the_same_rows_and_another_seed_the_same_findings(rows):
    """A measurement can be repeated, and does not hang on its data."""
    kernels = {kind: KERNELS[kind] for kind in ("rms_norm_back", "soft_max_back")}
    first = audit(kernels=kernels)
    other = audit(kernels=kernels, seed=7)

    assert audit(kernels=kernels) == first == tuple(r for r in rows if r.kind in kernels)
    assert [r.measured for r in other] == [r.measured for r in first]


def test_every_layout_is_measured_on_request():
    """What no contract permits is told for information; scalars cannot lie partly over each other."""
    rows = audit(kernels={kind: KERNELS[kind] for kind in ("silu", "soft_max_back", "sum")}, layouts=tuple(LAYOUTS))

    assert only(rows, kind="silu", layout="shifted").measured == "unsafe"
    assert not any(r.broken for r in rows if r.layout in {"shifted", "partial", "views"})
    assert only(rows, kind="sum", layout="shifted").measured == "not applicable"
    assert only(rows, kind="sum", layout="partial").measured == "safe"  # all is read before the one number is written
    assert all(r.measured == "safe" and r.declared for r in rows if r.layout == "apart")
    assert {(r.variant, r.operand) for r in rows if r.broken} == {("two_pass", 0), ("two_pass", 1)}
    assert only(rows, kind="soft_max_back", variant="two_pass", operand=0, layout="over").measured == "safe"
    assert only(rows, kind="soft_max_back", variant="two_pass", operand=0, layout="duplicate over").broken


def bind_copy_then_add(params, operands, results):
    """out = x; out += y; the planted defect in its plainest form: wrong over y."""

    def run(x, y, out):
        out[...] = x
        out += y

    return run, (*operands, *results)


def test_every_layout_of_every_kernel_comes_to_the_test():
    """Arrays can lie so, empty ones too, and the canary is caught: an audit of everything ends with rows."""
    small = [case for case in default_cases(KERNELS) if case.elements <= 8]
    assert any(0 in spec.shape for case in small for spec in case.operands)
    rows = list(audit(cases=small, layouts=tuple(LAYOUTS)))
    assert {row.kind for row in rows} == set(KERNELS) - {"full", "recv"}  # which have no operand
    assert {row.layout for row in rows if row.measured in {"safe", "unsafe"}} == set(LAYOUTS)


def test_whole_numbers_drawn_never_are_what_a_result_is_filled_with_before():
    """Else a canary over the last of them is not caught: an operand of 16411 draws holds every number drawn."""
    (row,) = (r for r in audit(kernels={"count_equal": KERNELS["count_equal"]}, layouts=("partial",)) if r.operand == 0)
    assert row.cases > 0
    drawn = arranged_memory.draw(row.sample, 0, np.random.default_rng(0), "distinct")
    for which in range(2):
        result = np.empty(1, drawn.dtype)
        arranged_memory.redden(result, which)
        assert result[0] not in drawn
        assert not 0 <= result[0] < 100


def test_of_a_kernel_that_bears_any_overlap_rounding_otherwise_is_no_fault_and_anything_else_is():
    """numpy copies what it would write over, and its loop of vectors begins elsewhere; a kernel that only says so is convicted."""

    def loop(x, out):
        for n in range(out.size):
            out.flat[n] = np.exp(x.flat[n])

    def bound(function):
        return Kernel(bind=lambda _params, operands, results: (function, (*operands, *results)), overlap="any")

    cases = [AuditCase(kind="exp", params={}, operands=(dense("f64", n),), results=(dense("f64", n),)) for n in (33, 7)]
    rows = list(
        audit(
            kernels={"exp": {"numpy": bound(np.exp), "loop": bound(loop)}},
            cases=cases,
            layouts=("shifted", "partial", "views"),
        )
    )
    assert {row.measured for row in rows if row.variant == "numpy"} == {"safe"}
    assert {row.measured for row in rows if row.variant == "loop"} == {"unsafe"}


def test_a_stranger_s_kernel_is_measured_like_our_own():
    """The table is the only thing known of a kernel; its kind need not be one of ours."""
    table = {"plus": {"theirs": Kernel(bind=bind_copy_then_add, in_place=((0, 0), (1, 0)))}}
    case = AuditCase(kind="plus", operands=(dense("f64", 5), dense("f64", 5)), results=(dense("f64", 5),))
    rows = audit(kernels=table, cases=[case])

    assert [(r.operand, r.declared, r.measured) for r in rows] == [(0, True, "safe"), (1, True, "unsafe")]
    with pytest.raises(UnknownNameError, match="plus"):
        audit(kernels=table)


def test_equal_operands_would_hide_what_independent_ones_show():
    """Every operand is drawn for itself: copy-then-add over its second operand looks right while both are equal."""
    table = {"plus": {"theirs": Kernel(bind=bind_copy_then_add, in_place=((0, 0), (1, 0)))}}
    case = AuditCase(kind="plus", operands=(dense("f32", 5), dense("f32", 5)), results=(dense("f32", 5),))

    def equal(*_):
        return np.arange(5, dtype="f4")

    rows = measured(kernels=table, cases=[case], draws={"plus": equal})
    assert [r.measured for r in rows] == ["not reached", "not reached"]  # it says that these data could show nothing

    assert [r.measured for r in audit_ops([case], kernels=table)] == ["safe", "unsafe"]


def test_an_alias_that_does_not_happen_is_an_error_not_a_pass(monkeypatch):
    """`safe` may only be said of memory that was really shared."""
    real = arranged_memory.strided
    monkeypatch.setattr(arranged_memory, "strided", lambda *args: real(*args).copy())
    case = AuditCase(kind="silu", operands=(dense("f32", 8),), results=(dense("f32", 8),))
    with pytest.raises(EngineError, match="did not happen"):
        audit(kernels={"silu": KERNELS["silu"]}, cases=[case])


def test_a_canary_that_is_not_caught_is_an_error(monkeypatch):
    """Data in which a cleared operand looks as it did before can show nothing."""
    case = AuditCase(kind="plus", operands=(dense("f32", 5), dense("f32", 5)), results=(dense("f32", 5),))
    table = {"plus": {"theirs": Kernel(bind=bind_copy_then_add, in_place=((0, 0),))}}
    with pytest.raises(EngineError, match="is not caught"):
        list(measured(kernels=table, cases=[case], draws={"plus": lambda *_: np.full(5, 1234.5, "f4")}))


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout not in {"apart", "duplicate"}])
@pytest.mark.parametrize("shape", [(7,), (3, 33)])
def test_the_canary_is_found_out_in_every_layout(layout, shape):
    """A kernel that clears its result before it reads is unsafe wherever the result lies on an operand."""
    case = AuditCase(kind="bird", operands=(dense("f32", *shape),) * 2, results=(dense("f32", *shape),))
    for operand in (0, 1):
        table = {"bird": {"": dataclasses.replace(arranged_memory.canary(operand), in_place=((0, 0), (1, 0)))}}
        row = only(measured(kernels=table, cases=[case], layouts=(layout,)), operand=operand)
        assert (row.measured, row.unsafe) == ("unsafe", row.runs)
        assert row.broken is (layout in {"over", "duplicate over"})


def writes_its_operand(params, operands, results):
    def run(x, out):
        out[...] = x
        x += 1

    return run, (*operands, *results)


def leaves_the_last(params, operands, results):
    return (lambda x, out: np.copyto(out[:-1], x[:-1])), (*operands, *results)


@pytest.mark.parametrize(
    ("bind", "words"),
    [(writes_its_operand, "writes operand 0"), (leaves_the_last, "depends on what was in its memory before")],
)
def test_apart_every_kernel_keeps_its_operands_and_writes_all_of_its_result(bind, words):
    case = AuditCase(kind="k", operands=(dense("f32", 5),), results=(dense("f32", 5),))
    (row,) = measured(kernels={"k": {"": Kernel(bind=bind)}}, cases=[case], layouts=("apart",))

    assert row.broken
    assert words in row.words


def test_a_kernel_that_ignores_its_operand_was_lucky():
    """Nothing could go wrong, and nothing was shown."""
    copy = Kernel(
        bind=lambda _, operands, results: ((lambda x, y, out: np.copyto(out, x)), (*operands, *results)),
        in_place=((1, 0),),
    )
    case = AuditCase(kind="k", operands=(dense("f32", 1), dense("f32", 1)), results=(dense("f32", 1),))
    row = only(measured(kernels={"k": {"": copy}}, cases=[case]), operand=1)

    assert (row.measured, row.broken) == ("not reached", False)


def from_nine_on(params, operands, results):
    """Right in its scalar loop, wrong in its body: eight elements at a time, of which the first is read again."""

    def run(x, out):
        if x.size < 9:
            out[...] = x + 1
            return
        out[...] = x + 1
        out[-1] = x[0]

    return run, (*operands, *results)


def test_sizes_and_data_are_told_apart():
    """A fault that begins with the ninth element is told so."""
    cases = [AuditCase(kind="k", operands=(dense("f32", n),), results=(dense("f32", n),)) for n in (1, 7, 33)]
    (row,) = measured(kernels={"k": {"": Kernel(bind=from_nine_on, in_place=((0, 0),))}}, cases=cases)

    assert row.by_size == ((1, 2, 0), (7, 2, 0), (33, 2, 2))
    assert row.by_data == (("distinct", 3, 1), ("special", 3, 1))
    assert row.smallest is not None
    assert row.smallest.results[0].shape == (33,)


def test_rounding_otherwise_with_one_operand_twice_is_no_fault():
    """numpy multiplies `x @ x.T` by another routine than `x @ y`."""
    assert measuring.ROUNDING < 1000
    rows = audit(kernels={"mul_mat": KERNELS["mul_mat"]}, layouts=("duplicate",))
    assert {r.measured for r in rows} == {"safe"}


def test_a_program_s_calls_are_measured_once_each_at_their_own_shapes():
    """Sixty layers make one case; the variant is the op's, or the default."""
    back = AuditCase(
        kind="rms_norm_back",
        variant="two_pass",
        params={"eps": 1e-5},
        operands=(dense("f32", 4, 36),) * 2,
        results=(dense("f32", 4, 36),),
    )
    norm = AuditCase(
        kind="rms_norm", params={"eps": 1e-5}, operands=(dense("f32", 4, 36),), results=(dense("f32", 4, 36),)
    )
    rows = audit_ops([back, norm] * 60)

    assert [(r.kind, r.variant, r.operand, r.measured, r.cases) for r in rows] == [
        ("rms_norm_back", "two_pass", 0, "unsafe", 1),
        ("rms_norm_back", "two_pass", 1, "safe", 1),
        ("rms_norm", "one_pass", 0, "safe", 1),
    ]


def test_what_was_measured_is_not_measured_again_and_another_seed_or_kernel_is():
    """Runs of one model share nearly all of their rows; a kernel is known by what it is, not by its name."""
    ran = []

    def counted(params, operands, results):
        ran.append(params)
        return np.copyto, (results[0], operands[0])

    def clears(params, operands, results):
        return arranged_memory.canary(0).bind(params, operands, results)

    case = AuditCase(kind="copied", operands=(dense("f32", 5),), results=(dense("f32", 5),))
    table = {"copied": {"": Kernel(bind=counted)}}
    (first,) = audit_ops([case], kernels=table)
    once = len(ran)
    assert audit_ops([case], kernels=table) == (first,)
    assert len(ran) == once > 0
    audit_ops([case], kernels=table, seed=1)
    assert len(ran) == 2 * once
    (other,) = audit_ops([case], kernels={"copied": {"": Kernel(bind=clears)}})
    assert (first.measured, other.measured) == ("safe", "unsafe")


def test_strided_calls_keep_their_strides():
    """A transposed operand has another layout than a dense result; two equally transposed ones have the same."""
    transposed = AuditLayout(dtype="f32", shape=(6, 4), strides=(4, 24))
    mixed, same = audit_ops(
        [
            AuditCase(kind="scale", params={"s": 2.0}, operands=(transposed,), results=(dense("f32", 6, 4),)),
            AuditCase(kind="cont", operands=(transposed,), results=(transposed,)),
        ]
    )

    assert mixed.measured == "not applicable"
    assert same.measured == "safe"


def test_large_calls_are_cut_to_leading_rows_and_still_convicted():
    """A loss over a whole vocabulary needs few of its rows; kernels that cannot be cut run whole."""
    big = (dense("f32", 64, 4096),) * 2
    rows = audit_ops(
        [
            AuditCase(kind="rms_norm_back", variant="two_pass", params={"eps": 1e-5}, operands=big, results=big[:1]),
            AuditCase(
                kind="mul_mat", operands=(dense("f32", 96, 96), dense("f32", 96, 96)), results=(dense("f32", 96, 96),)
            ),
        ],
        max_elements=8192,
    )

    convicted = only(rows, kind="rms_norm_back", operand=0)
    assert convicted.smallest is not None
    assert convicted.smallest.results[0].shape == (2, 4096)
    assert only(rows, kind="mul_mat", operand=1).cases == 1


def test_a_call_that_cannot_be_bound_says_which():
    """A malformed case is misuse, not a finding."""
    case = AuditCase(kind="add", operands=(dense("f32", 4), dense("f32", 3)), results=(dense("f32", 4),))
    with pytest.raises(EngineError, match="audit of add/numpy"):
        audit_ops([case])
    with pytest.raises(UnknownNameError, match="variant of add"):
        audit_ops([dataclasses.replace(case, variant="none")])


def test_every_kernel_has_standing_cases_in_both_dtypes():
    """A new kernel comes with a line in the table of cases."""
    assert set(CASES) == set(KERNELS)
    for kind in KERNELS:
        dtypes = {x.dtype for case in default_cases({kind: KERNELS[kind]}) for x in (*case.operands, *case.results)}
        assert dtypes >= {"f32", "f64"} or kind == "count_equal"
