"""TorchInductor's wrappers: real ones, the laws, a wrong reuse, and what is refused."""

import pytest
from plan_laws import DAMAGED, PLANS, causes, law_of_damage

from allocsim import systems
from allocsim.errors import DocumentError
from allocsim.judge.fast import check
from allocsim.model.tables import STRENGTHS
from allocsim.systems.torch.inductor import loads

FOLDER = PLANS / "inductor"
CLEAN = {
    "forward": (23, 23),
    "backward": (35, 40),
    "lora_forward": (103, 75),
    "pooled": (7, 9),
    "written_inputs": (6, 8),
    "sorted": (5, 5),
    "convolved": (9, 11),
    "scattered": (7, 5),
}
"""Wrapper -> ops and buffers."""


def text(name):
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_wrapper_stays_clean(name):
    document = systems.load(FOLDER / f"{name}.txt")
    program = document.programs[0]
    report = check(document)

    assert report.violations == ()
    assert report.warnings == ()
    assert (len(program.ops), len(program.buffers)) == CLEAN[name]


def changed(name, *pairs):
    found = text(name)
    for old, new in pairs:
        assert found.count(old) == 1, old
        found = found.replace(old, new)
    return found.encode()


def test_sizes_that_are_asserted_together_touch_nothing():
    """PyTorch 2.14 asserts those of several inputs in one call."""
    alone = "assert_size_stride(primals_3, (8, 16), (16, 1), 'input')"
    grouped = "assert_size_stride_grouped((primals_3, primals_1), ((8, 16), (16, )), ((16, 1), (1, )), 'input')"

    assert len(loads(changed("forward", (alone, grouped)), "x").programs[0].ops) == CLEAN["forward"][0]


def test_tensors_of_a_pool_lie_where_it_says():
    (plan,) = systems.load(FOLDER / "pooled.txt").plans
    at = dict(zip(plan.program.buffers.names, plan.offset.tolist(), strict=True))
    first = at["buf2"]

    assert [at[name] - first for name in ("buf3", "buf4", "buf5", "buf6")] == [576, 1152, 1728, 1792]


def test_a_tensor_of_a_pool_over_one_that_is_still_read_is_convicted(tmp_path):
    path = tmp_path / "wrapper.py"
    path.write_bytes(changed("pooled", ("buf4 = alloc_from_pool(pool1, 1152,", "buf4 = alloc_from_pool(pool1, 64,")))

    assert {party for _, party in causes(path)} == {"plan"}


@pytest.mark.parametrize(
    ("new", "rule"),
    [
        ("alloc_from_pool(pool1, 576)", "is not a tensor in a known pool"),
        ("alloc_from_pool(pool9, 576, torch.float32, (12, 12), (12, 1))", "is not a tensor in a known pool"),
        ("alloc_from_pool(pool1, (5, 6), torch.float32, (12, 12), (12, 1))", "is not a tensor in a known pool"),
        ("alloc_from_pool(pool1, n, torch.float32, (12, 12), (12, 1))", "is a size known only at run time"),
        ("alloc_from_pool(pool1, 576, float32, (12, 12), (12, 1))", "does not state shape, strides and dtype"),
        ("alloc_from_pool(buf2, 576, torch.float32, (12, 12), (12, 1))", "buf2 is a tensor, not a pool"),
    ],
)
def test_what_is_no_tensor_of_a_pool_is_refused_in_one_line(new, rule):
    old = "alloc_from_pool(pool1, 576, torch.float32, (12, 12), (12, 1))"
    with pytest.raises(DocumentError, match=rule):
        loads(changed("pooled", (old, new)), "x.py")


def test_a_view_read_after_its_memory_was_taken_is_convicted(tmp_path):
    """The old name is gone, a view of it is not: what it shows is what the new owner wrote."""
    path = tmp_path / "wrapper.py"
    path.write_bytes(
        changed(
            "backward",
            (
                "buf5 = buf2; del buf2  # reuse",
                "kept = reinterpret_tensor(buf2, (32, 8), (1, 32), 0)\n        buf5 = buf2; del buf2  # reuse",
            ),
            (
                "extern_kernels.mm(reinterpret_tensor(buf5, (32, 8), (1, 32), 0), add_5, out=buf7)",
                "extern_kernels.mm(kept, add_5, out=buf7)",
            ),
        )
    )

    assert {party for _, party in causes(path)} == {"plan"}


def test_a_reuse_before_the_last_read_is_convicted(tmp_path):
    """An input's memory is taken by a kernel while a later one still reads the input."""
    path = tmp_path / "wrapper.py"
    path.write_bytes(
        changed(
            "backward",
            (
                "buf1 = div; del div  # reuse",
                "kept = reinterpret_tensor(div, (8, 16), (16, 1), 0)\n        buf1 = div; del div  # reuse",
            ),
            ("extern_kernels.mm(buf1, primals_6, out=buf2)", "extern_kernels.mm(kept, primals_6, out=buf2)"),
        )
    )

    assert {party for _, party in causes(path)} == {"plan"}


TWICE_REUSED = """
from torch._inductor.async_compile import AsyncCompile
fused = async_compile.cpp_pybinding([], 'void kernel(float* in_out_ptr0)')
def call(self, args):
    x, = args
    b = reinterpret_tensor(x, {shape}, {strides}, 0); del x  # reuse
    c = b; del b  # reuse
    fused(c)
    return (c, )
def get_args():
    x = rand_strided((8, 4), (4, 1), device='cpu', dtype=torch.float32)
"""


WRITTEN = """
from torch._inductor.async_compile import AsyncCompile
fused = async_compile.cpp_pybinding([], 'void kernel(const float* in_ptr0, float* out_ptr0, float* out_ptr2)')
def call(self, args):
    x, w = args
    y = empty_strided_cpu((4, 4), (4, 1), torch.float32)
    {call}
    return (y, )
def get_args():
    x = rand_strided((4, 4), (4, 1), device='cpu', dtype=torch.float32)
    w = rand_strided((4, 4), (4, 1), device='cpu', dtype=torch.float32)
"""


@pytest.mark.parametrize(
    ("call", "kinds"),
    [("fused(x, y, x)", []), ("fused(w, y, x)", []), ("extern_kernels.mm(x, w, out=x)", ["UnsafeInPlace"])],
)
def test_what_a_program_writes_to_its_inputs_is_read_before_by_the_same_kernel_but_not_by_a_library(call, kinds):
    """`y = x * 2; x.add_(1)` is one kernel that is given `x` twice."""
    report = check(loads(WRITTEN.format(call=call).encode(), "x"))

    assert [row.kind for row in report.violations if row.kind == "UnsafeInPlace"] == kinds


def test_what_a_library_reads_after_its_memory_was_taken_is_convicted(tmp_path):
    """Both operands of the first convolution in one place, handed out twice."""
    path, made = tmp_path / "wrapper.py", "buf1 = empty_strided_cpu((4, 3, 3, 3), (27, 1, 9, 3), torch.float32)"
    over = "buf1 = reinterpret_tensor(buf0, (4, 3, 3, 3), (27, 1, 9, 3), 0); del buf0  # reuse"
    path.write_bytes(changed("convolved", (made, over)))
    assert set(causes(path)) == {("C11", "plan")}


def test_results_that_lie_over_what_is_still_read_are_convicted(tmp_path):
    """The values of the sort are changed in place, and returned as well."""
    path = tmp_path / "wrapper.py"
    path.write_bytes(changed("sorted", ("return (buf4, buf3, )", "return (buf4, buf3, buf2, )")))
    assert set(causes(path)) == {("C05", "plan")}


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("torch.ops.aten.sort.stable(buf0,", "torch.ops.aten.view.dtype(buf0,", "is not a supported statement"),
        ("torch.ops.aten.sort.stable(buf0,", "torch.ops.aten.native_batch_norm(buf0,", "is not a supported statement"),
        ("torch.ops.aten.sort.stable(buf0,", "torch.ops.aten.sort_(buf0,", "is not a supported statement"),
        ("torch.ops.aten.sort.stable(buf0,", "torch.ops.aten.unsafe_split(buf0,", "is not a supported statement"),
        ("torch.ops.aten.sort.stable(buf0,", "torch.ops.aten.fill__Scalar(buf0,", "is not a supported statement"),
        ("torch.ops.aten.sort.stable(buf0,", "torch.ops.aten.sort(buf0, out=buf0,", "is not a supported statement"),
        ("buf3 = buf1[1]", "buf3 = buf1[1]; buf5 = buf1[0]", "'buf2' is not a known tensor|not a supported statement"),
        ("torch.ops.aten.sort.stable(buf0,", "torch.ops.mine.sort(buf0,", "is not a supported statement"),
        ("torch.ops.aten.sort.stable(buf0,", "torch.ops.aten.sort(f(buf0),", "'f.buf0.' is not a known tensor"),
        ("torch.ops.aten.sort.stable(buf0,", "torch.ops.aten.sort([other],", "'other' is not a known tensor"),
        ("torch.ops.aten.sort.stable(buf0,", "torch.ops.aten.sort(", "the size of the result of sort is"),
        ("buf2 = buf1[0]", "buf2 = buf5[0]", "is not a supported statement"),
        ("assert_size_stride(buf2, (8, 6)", "assert_size_stride(buf2, (s0, 6)", "is a size known only at run time"),
    ],
)
def test_what_may_be_no_memory_of_its_own_is_refused(old, new, rule):
    with pytest.raises(DocumentError, match=rule):
        loads(changed("sorted", (old, new)), "x.py")


@pytest.mark.parametrize(
    "call",
    [
        "aten.set_.source_Tensor(buf0, arg1_1)",  # buf0 is the other's memory from here on
        "aten.resize_(buf0, [3])",
        "aten.transpose_(buf0, 0, 1)",
        "aten._foreach_add_([buf0, arg1_1], [arg2_1, arg2_1])",
        "aten._fused_adam_([buf0], [arg1_1], [arg2_1])",
        "aten._amp_update_scale_(buf0, arg1_1, arg2_1)",
        "aten.fill_(self=buf0)",
    ],
)
def test_an_operator_that_changes_more_than_what_its_first_operand_holds_is_refused(call):
    old = "aten.scatter_reduce_.two(buf0,0,arg1_1,arg2_1, reduce='prod', include_self=True)"
    with pytest.raises(DocumentError, match="is not a call of a known kernel"):
        loads(changed("scattered", (old, call)), "x.py")


def test_what_is_changed_through_a_view_is_read_as_it_is_then():
    old = "aten.scatter_reduce_.two(buf0,0"
    document = loads(
        changed("scattered", (old, "aten.scatter_reduce_.two(reinterpret_tensor(buf0, (3, 4), (4, 1), 0),0")), "x.py"
    )
    assert check(document).clean


@pytest.mark.parametrize("kind", ["at::BFloat16", "at::Half", "int64_t", "c10::complex<float>"])
def test_what_a_kernel_touches_is_told_whatever_its_elements_are(kind):
    """A type with colons in its name is one as any other."""
    program = loads(WRITTEN.replace("float*", f"{kind}*").format(call="fused(x, y, w)").encode(), "x").programs[0]

    assert [(len(op.operands), len(op.results)) for op in program.ops if op.kind == "fused"] == [(1, 2)]


def test_a_kernel_that_writes_nothing_is_refused():
    with pytest.raises(DocumentError, match=r"line 7.* the text does not say what fused writes"):
        loads(WRITTEN.replace("out_ptr", "gone").format(call="fused(x, y, w)").encode(), "x")


@pytest.mark.parametrize(
    "call", ["fused(w, y, x)", "fused(x, y, x, w)", "fused(reinterpret_tensor(w, (4, 4), (4, 1), 0), y, x)"]
)
def test_a_kernel_that_is_given_a_tensor_by_an_unknown_parameter_is_refused(call):
    """A template reads `W`, and an argument without a parameter may be anything: neither is left out of what is read."""
    given = WRITTEN if "x, w" in call else WRITTEN.replace("in_ptr0", "W")
    with pytest.raises(DocumentError, match=r"line 7.* the text does not say what fused does with an argument"):
        loads(given.format(call=call).encode(), "x")


@pytest.mark.parametrize(
    ("shape", "strides", "says"),
    [((8, 4), (4, 1), "exact"), ((4, 8), (8, 1), "bytes"), ((4, 8), (1, 4), "bytes"), ((4, 4), (4, 1), None)],
)
def test_what_two_reuses_in_a_row_leave_in_place_is_said_as_far_as_it_is_known(shape, strides, says):
    document = loads(TWICE_REUSED.format(shape=shape, strides=strides).encode())
    (op,) = (op for op in document.programs[0].ops if op.kind == "fused")

    assert [STRENGTHS[word] for word in op.strengths] == ([says] if says else [])
    assert (check(document).violations == ()) == (says is not None)


JOINED = """
from torch._inductor.async_compile import AsyncCompile
first = async_compile.cpp_pybinding([], 'void kernel(const float* in_ptr0, float* out_ptr0)')
second = async_compile.cpp_pybinding([], 'void kernel(const float* in_ptr0, const float* in_ptr1, float* out_ptr0, float* out_ptr1)')
def call(self, args):
    x, = args
    whole = empty_strided_cpu((8, 4), (4, 1), torch.float32)
    upper = reinterpret_tensor(whole, (4, 4), (4, 1), 0)  # alias
    lower = reinterpret_tensor(whole, (4, 4), (4, 1), {lower})  # alias
    z = empty_strided_cpu((4, 4), (4, 1), torch.float32)
    {calls}
    return (whole, z, )
def get_args():
    x = rand_strided((4, 4), (4, 1), device='cpu', dtype=torch.float32)
"""
BOTH = "first(x, upper)\n    second(x, whole, lower, z)"


def test_a_concatenation_is_written_in_parts_and_read_as_a_whole():
    """The second kernel makes the lower part and reads the whole: so it reads the upper one, which was made before."""
    document = loads(JOINED.format(lower=16, calls=BOTH).encode())
    program = document.programs[0]

    assert check(document).violations == ()
    assert len(program.buffers) == 3  # input, whole, z: the parts lie in the whole
    assert [program.values[v].name for v in program.ops[2].operands] == ["x", "upper"]


@pytest.mark.parametrize(
    ("lower", "calls", "kinds"),
    [
        (16, "first(x, upper)\n    first(x, z)", {"UninitialisedRead"}),  # the lower part is never made
        (16, "first(x, lower)\n    first(whole, z)", {"UninitialisedRead"}),  # nor is the upper, and a kernel reads it
        (12, BOTH, {"UninitialisedRead"}),  # the parts meet, and leave the last row
    ],
)
def test_a_part_that_is_missing_from_a_concatenation_is_missed(lower, calls, kinds):
    found = check(loads(JOINED.format(lower=lower, calls=calls).encode())).violations

    assert kinds <= {row.kind for row in found}


SHARING = """
from torch._inductor.async_compile import AsyncCompile
fused = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
extern "C" void kernel(const float* in_ptr0, float* {param})
''')
def call(self, args):
    x, y = args
    args.clear()
    z = empty_strided_cpu((4, 4), (4, 1), torch.float32)
    {body}
    return (z, )
def get_args():
    _shared_storage_0 = rand_strided((48,), (1,), device='cpu', dtype=torch.float32)
    x = torch.as_strided(_shared_storage_0, {shape}, (4, 1))
    y = torch.as_strided(_shared_storage_0, (4, 4), (4, 1))
"""
BOTH_READ = {"param": "out_ptr0", "shape": (4, 4), "body": "extern_kernels.mm(x, y, out=z)"}


def test_inputs_that_share_a_storage_have_the_size_that_the_text_says():
    document = loads(SHARING.format(**BOTH_READ).encode())
    program = document.programs[0]

    assert check(document).violations == ()
    assert dict(zip(program.buffers.names, program.buffers.nbytes.tolist(), strict=True)) == {"x": 64, "y": 64, "z": 64}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        (
            {"body": "w = x; del x  # reuse\n    fused(y, w)"},
            "line 10: writes over x, but the offset of that input in its",
        ),
        ({"body": "w = reinterpret_tensor(x, (16,), (1,), 0); del x  # reuse"}, "writes over x, but the offset"),
        ({"body": "fused(y, x)"}, "writes over x, but the offset"),
        ({"body": "fused(y, reinterpret_tensor(x, (16,), (1,), 0))"}, "writes over x's view 3, but the offset"),
        ({"shape": "(4, 4), (4, 1)"}, "is not a known input"),
        ({"shape": "(4,)"}, "2 strides for 1 dimensions"),
    ],
)
def test_what_lies_nobody_knows_where_in_a_storage_is_read_and_not_written(changes, rule):
    with pytest.raises(DocumentError, match=rule):
        loads(SHARING.format(**BOTH_READ | changes).encode())


def test_nothing_in_the_text_is_run(tmp_path):
    mark = tmp_path / "ran"
    loads(text("forward").encode() + f"\nopen({str(mark)!r}, 'w')\n".encode())

    assert not mark.exists()


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        (
            "buf0 = empty_strided_cpu((8, 1), (1, 8), torch.float32)",
            "buf0 = empty_strided_cpu((s0, 1), (1, 8), torch.float32)",
            "is a size known only at run time",
        ),
        (
            "buf0 = empty_strided_cpu((8, 1), (1, 8), torch.float32)",
            "buf0 = torch.ops.aten.sort(primals_3)",
            "the size of the result of sort is not stated",
        ),
        (
            "buf0 = empty_strided_cpu((8, 1), (1, 8), torch.float32)",
            "buf0 = empty_strided_cpu((8, 1), (1,), torch.float32)",
            "1 strides for 2 dimensions",
        ),
        ("cpp_fused_gelu_1(buf5, buf6)", "cpp_unknown(buf5, buf6)", "is not a call of a known kernel"),
        ("cpp_fused_gelu_1(buf5, buf6)", "cpp_fused_gelu_1(buf5, nothing)", "'nothing' is not a known tensor"),
        ("primals_7 = rand_strided(", "other = rand_strided(", "the size of input primals_7 is not stated"),
        ("def call(self, args):", "def other(self, args):", "has no function `call`"),
    ],
)
def test_what_is_not_known_is_refused_with_its_line(old, new, rule):
    with pytest.raises(DocumentError, match=rule):
        loads(changed("forward", (old, new)), "x.py")


@DAMAGED
def test_damaged_wrappers_end_in_one_line(times):
    for name in ("backward", "convolved"):
        _, refused = law_of_damage(text(name).encode(), loads, seed=3, times=times)

        assert refused > 0


def test_what_is_no_python_is_refused():
    with pytest.raises(DocumentError, match="is not Python text"):
        loads(b"(" * 5000, "x.py")
