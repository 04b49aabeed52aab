"""TorchInductor's wrappers in C++: what each line becomes, a real one alone and in a package, a wrong place, and what is refused."""

import re
import zipfile
from io import BytesIO

import pytest
from plan_laws import PLANS, causes, law_of_damage

from allocsim import systems
from allocsim.cli import main
from allocsim.document import dumps
from allocsim.errors import DocumentError
from allocsim.files.gate import INFLATED
from allocsim.judge.fast import check
from allocsim.systems.torch.cpp_wrapper import _Rewritten, loads

POOLED = (PLANS / "inductor" / "pooled_cpp.txt").read_text(encoding="utf-8")


def becomes(*lines):
    """Return the statements in Python that these of a `run_impl` become, without the last return."""
    text = ["", "void AOTInductorModel::run_impl(", ") {", *(f"    {line}" for line in lines), "}"]
    rows = _Rewritten(text, "x").text().splitlines()
    assert rows[-1].startswith(" return (")
    return [row.strip() for row in rows[3:-1]]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            (
                "static constexpr int64_t int_array_0[] = {4L, 32L};",
                "static constexpr int64_t int_array_1[] = {32L, };",
                "AtenTensorHandle buf0_handle;",
                (
                    "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_0, int_array_1, "
                    "cached_torch_dtype_float32, cached_torch_device_type_cpu, this->device_idx_, &buf0_handle));"
                ),
                "RAIIAtenTensorHandle buf0(buf0_handle);",
            ),
            "buf0 = empty_strided((4, 32, ), (32, ), torch.float32)",
        ),
        (
            (
                "const int64_t *int_array_1=nullptr;",
                (
                    "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch__alloc_from_pool(pool0, 64L, cached_torch_dtype_int64, 0, "
                    "int_array_1, int_array_1, &tmp_tensor_handle_0));"
                ),
                "auto buf14 = RAIIAtenTensorHandle(tmp_tensor_handle_0);",
            ),
            "buf14 = alloc_from_pool(pool0, 64, torch.int64, (), ())",
        ),
        (("auto buf1 = std::move(buf0);  // reuse",), "buf1 = buf0; del buf0"),
        (
            ("AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_topk(buf0, 3L, -1L, 1, 1, &buf2_handle, &buf3_handle));",),
            "made_4 = torch.ops.aten.topk(buf0, 3, -1, 1, 1)",
        ),
        (
            (
                'aoti_torch_cpu_scatter_reduce_two_out(buf0, buf0, 0L, w, std::array<int64_t, 2>{1L, 1L}.cbegin(), "sum", 1);',
            ),
            "aten.scatter_reduce_two_(buf0, 0, w, [1, 1], None, 1)",
        ),
        (("aoti_torch_cpu_mm_out(buf0, buf0, buf1);",), "extern_kernels.mm(buf0, buf1, out=buf0)"),
        (
            (
                "const int64_t int_array_1[] = {4L, };",
                (
                    "auto buf2 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf3, 1, int_array_1, "
                    "int_array_1, 16L)); buf3.reset();  // reuse"
                ),
            ),
            "buf2 = reinterpret_tensor(buf3, (4, ), (4, ), 16); del buf3",
        ),
        (
            ("cpp_fused_0((const float*)(buf3.data_ptr()), (int64_t*)(buf4.data_ptr()), 4L);",),
            "cpp_fused_0(buf3, buf4, 4)",
        ),
        (
            ("AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(buf0, bias, x, w, 1L, 0.5));",),
            "extern_kernels.addmm(bias, x, w, 1, 0.5, out=buf0)",
        ),
        (("// a comment", "pool5.reset(); buf0.reset();"), "del pool5; del buf0"),
        (('if (_check_aoti_runtime_check_inputs_env()) { assert_size_stride(x, {4L}, {1L}, "input"); }',), ""),
    ],
    ids=[
        "allocation",
        "pool",
        "reuse",
        "results",
        "over its operand",
        "product over one",
        "view in its place",
        "kernel",
        "library",
        "given back",
        "checked",
    ],
)
def test_a_line_becomes_one_of_the_wrapper_in_python(lines, expected):
    *before, last = becomes(*lines)
    assert not any(before)
    assert last == expected


def test_a_real_wrapper_is_read_and_clean():
    document = loads(POOLED.encode())
    (program,) = document.programs
    report = check(document)

    assert (report.violations, report.warnings) == ((), ())
    assert (len(program.ops), len(program.buffers)) == (16, 18)
    assert [kind for kind in program.ops.kinds if not kind.startswith(("cpp_fused", "host", "view"))] == [
        "addmm", "bmm", "mm",
    ]  # fmt: skip
    (plan,) = document.plans
    at = dict(zip(program.buffers.names, plan.offset.tolist(), strict=True))
    assert at["buf11"] - at["buf8"] == 512
    assert at["buf5"] == at["buf8"]


def test_the_wrapper_that_python_holds_is_read():
    """It says what the wrapper in Python of the same model says, byte for byte."""
    document, python = (systems.load(PLANS / "inductor" / f"{name}.txt") for name in ("wrapper_cpp", "wrapper"))

    assert check(document).clean
    assert len(document.programs[0].ops) == 17
    assert dumps(document) == dumps(python)


@pytest.mark.parametrize("name", ["sorted", "convolved"])
def test_kernels_of_a_library_that_allocate_are_read_as_in_python(name):
    """The same program and plan, but for what the sort is called."""
    document, python = (systems.load(PLANS / "inductor" / f"{one}.txt") for one in (f"{name}_cpp", name))

    assert check(document).clean
    assert dumps(document).replace(b"sort_stable", b"sort") == dumps(python)


def test_a_package_is_read_by_the_text_in_it(tmp_path):
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data/aotinductor/model/a.wrapper.cpp", POOLED)
        archive.writestr("m/data/aotinductor/model/a.kernel.cpp", "")

    assert dumps(systems.load(path)) == dumps(loads(POOLED.encode(), str(path)))


def test_a_tensor_of_a_pool_over_one_that_is_still_read_is_convicted(tmp_path):
    path = tmp_path / "wrapper.cpp"
    path.write_text(POOLED.replace("alloc_from_pool(pool4, 512L,", "alloc_from_pool(pool4, 0L,"), encoding="utf-8")

    assert set(causes(path)) == {("C03", "plan")}


def changed(old, new):
    assert POOLED.count(old) == 1, old
    return POOLED.replace(old, new).encode()


def packed(method, text=POOLED):
    data = BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        archive.writestr("m/data/aotinductor/model/a.wrapper.cpp", text)
    return data.getvalue()


@pytest.mark.parametrize(
    ("data", "place", "rule"),
    [
        (b"", "", "no plan here"),
        (b"void AOTInductorModel::run_impl(\n) {\n", "", "no complete function"),
        (changed("arg5_1.reset();", "if (s0 > 4L) {"), "line 399", "is not a supported statement"),
        (changed("arg5_1.reset();", "f" + "(" * 201 + ")" * 201 + ";"), "line 399", "is not a supported statement"),
        (changed("arg5_1.reset();", "aoti_torch_empty_strided(1);"), "line 399", "is not a supported statement"),
        (changed("arg5_1.reset();", "AtenTensorHandle var_0 = buf4;"), "line 399", "is not a supported statement"),
        (changed("arg5_1.reset();", "aoti_torch_cpu_convolution(buf4, &buf99_handle);"), "line 399", "the size of the result"),
        (changed("arg5_1.reset();", "cpp_fused_mean_0(reinterpret_tensor_wrapper(buf4), arg5_1);"), "line 399", "is not a known tensor"),
        (changed("arg5_1.reset();", "cpp_none(arg5_1);"), "line 399", "is not a call of a known kernel"),
        (changed("assert_size_stride(arg5_1, {4L, 16L}", "assert_size_stride(arg5_1, {s0, 16L}"), "line", "known only at run time"),
        (changed("arg5_1_expected_dtype = aoti", "arg5_1_expected = aoti"), "line", "the size of input arg5_1"),
        (b"\xff", "", "is not text in UTF-8"),
        (b"PK\x03\x04 and no more", "", "cannot be read"),
        (packed(zipfile.ZIP_LZMA), "", "by an unsupported method"),
        (packed(zipfile.ZIP_DEFLATED, b" " * (INFLATED + 1)), "", "larger than 64 MiB"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_with_its_line(data, place, rule):
    with pytest.raises(DocumentError) as refused:
        loads(data)
    line = next((n for n, row in enumerate(POOLED.splitlines(), 1) if row.strip() == "arg5_1.reset();"), 0)
    assert rule in str(refused.value)
    assert place.replace("399", str(line)) in str(refused.value)


@pytest.mark.parametrize(
    "begun", ["a", "assert_size_stride(a, {", 'extern "C" void f(', " a = rand_strided(", "constants_info_[0].name = "]
)
def test_what_begins_and_does_not_end_is_passed_over_in_one_pass(begun):
    """With a pass for each beginning these are billions of steps."""
    text = f"torch/csrc/inductor/aoti_include/\n{begun * 60_000}\nvoid inductor_entry_impl(\n) {{\n}}\n"
    assert len(loads(text.encode()).programs) == 1


def test_a_package_without_a_wrapper_is_told(tmp_path, capsys):
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data/aotinductor/model/a.kernel.cpp", "")
    assert main(["check", str(path)]) == 2
    assert re.search(r"0 files \*\.wrapper\.cpp", capsys.readouterr().err)


def test_damaged_text_is_refused_in_one_line():
    _, refused = law_of_damage(POOLED.encode(), loads, seed=5, times=300)
    assert refused > 0
