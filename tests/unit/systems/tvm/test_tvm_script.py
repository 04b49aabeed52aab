"""TVM's planned modules: a real one, the laws, a wrong reuse, and what is refused."""

import pytest
from plan_laws import DAMAGED, PLANS, causes, law_of_damage

from allocsim import systems
from allocsim.errors import DocumentError
from allocsim.judge.fast import check
from allocsim.systems.tvm.tvm_script import loads

PATH = PLANS / "tvm" / "layer.txt"


def changed(old, new, count=1):
    found = PATH.read_text(encoding="utf-8")
    assert found.count(old) == count, old
    return found.replace(old, new).encode()


def test_a_real_module_is_told_by_its_content_and_stays_clean():
    document = systems.load(PATH)
    report = check(document)
    program = document.programs[0]

    assert report.violations == ()
    assert report.warnings == ()
    assert (len(program.ops), report.stats.peak_bytes) == (14, 8192 + 65536 + 32768)
    assert [op.kind for op in program.ops][:3] == ["host.write", "layer_norm", "transpose"]


def test_a_storage_that_serves_while_its_tensor_is_still_read_convicts_the_plan(tmp_path):
    path = tmp_path / "planned.py"
    line = 'R.memory.alloc_tensor(storage1, 0, R.shape([32, 256]), R.dtype("float32"), 0)\n        cls.add(matmul'
    path.write_bytes(changed(line, line.replace("storage1", "storage2")))

    assert {party for _, party in causes(path)} == {"plan"}  # `add` over what it reads, and `gelu` over `add`


@pytest.mark.parametrize(
    ("old", "new", "count", "rule"),
    [
        ("R.memory.alloc_storage", "R.memory.other", 3, "no plan here"),
        ("R.shape([8192])", "R.shape([n])", 1, "a size known only at run time"),
        ("R.shape([8192])", "R.shape([8191])", 1, "ends at byte 8192; its storage has 8191 bytes"),
        ("R.shape([8192])", "R.shape([32, 64])", 1, "has 2 numbers; one is needed"),
        ("R.shape([8192])", "R.shape([])", 1, "has 0 numbers; one is needed"),
        ("cls.gelu(", "cls.mystery(", 1, "matches no kernel of this module"),
        ("cls.layer_norm(x,", "cls.layer_norm(q,", 1, "is not a known tensor"),
        ("        cls.gelu(add, alloc4)", "        while x: cls.gelu(add, alloc4)", 1, "not a supported statement"),
        ("        cls.gelu(add, alloc4)", '        y = R.call_packed("vm.other", x)', 1, "not a supported statement"),
    ],
)
def test_what_is_not_known_is_refused_with_its_line(old, new, count, rule):
    with pytest.raises(DocumentError, match=rule) as error:
        loads(changed(old, new, count))
    assert "\n" not in str(error.value)


MODULE = """
@I.ir_module
class Module:
    @T.prim_func
    def fill(p: T.handle, q: T.handle):
        A = T.match_buffer(p, (64,), "float32")
        B = T.match_buffer(q, (64,), "float32")
        for i in range(64):
            with T.sblock("fill"):
                T.reads(A[i])
                T.writes(B[i])
                B[i] = A[i]

    @T.prim_func
    def step(A: T.Buffer((64,), "float32")):
        for i in range(64):
            {step}

    @R.function
    def main(x: R.Tensor((64,), dtype="float32")):
        s = R.memory.alloc_storage(R.shape([256]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([64]), R.dtype("float32"))
        {first}cls.fill(x, a)
        cls.step(a)
        return a
"""


@pytest.mark.parametrize(
    ("step", "reads"),
    [("A[i] = A[i] + 1", 1), ("A[i] += 1", 1), ("A[i] = 1.0", 0), ("A[i] = 0.0; A[i] = A[i] + 2.0", 0)],
)
def test_what_a_kernel_loads_before_it_stores_is_read(step, reads):
    sound = loads(MODULE.format(step=step, first="").encode())
    unwritten = loads(MODULE.format(step=step, first="# ").encode())

    assert check(sound).violations == ()
    assert [len(op.operands) for op in sound.programs[0].ops if op.kind == "step"] == [reads]
    assert [v.kind for v in check(unwritten).violations] == ["UninitialisedRead"] * reads


def test_a_kernel_that_is_not_seen_to_store_is_refused():
    with pytest.raises(DocumentError, match="no store to a parameter was found in kernel 'step'"):
        loads(MODULE.format(step='T.evaluate(T.call_extern("f", A.data))', first="").encode())


@DAMAGED
def test_damaged_modules_end_in_one_line(times):
    read, refused = law_of_damage(PATH.read_bytes(), loads, seed=3, times=times)

    assert refused > 0
    assert read + refused == times


PLANNED = """
@I.ir_module
class Module:
    @T.prim_func
    def plus(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(64):
            B[i] = A[i] + 1.0

    @T.prim_func
    def sum(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        for i in range(64):
            C[i] = A[i] + B[i]

    @R.function
    def main(x: R.Tensor((64,), dtype="float32"), c: R.Tensor((), dtype="bool")):
        s = R.memory.alloc_storage(R.shape([256]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        t = R.memory.alloc_storage(R.shape([256]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        out = R.builtin.alloc_tensor(R.shape([64]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([64]), R.dtype("float32"))
        cls.plus(x, a)
{rest}
        return out
"""
TENSOR = "R.memory.alloc_tensor({}, R.prim_value(0), R.shape([64]), R.dtype('float32'))"


def planned(*rows):
    return loads(PLANNED.replace("{rest}", "\n".join(f"        {row}" for row in rows)).encode())


@pytest.mark.parametrize(
    "other",
    [
        "R.match_cast(a, R.Tensor((64,), dtype='float32'))",
        "R.call_packed('vm.builtin.reshape', a, R.shape([64]), sinfo_args=(R.Tensor((64,), dtype='float32'),))",
        "R.reshape(a, R.shape([64]))",
    ],
)
def test_another_name_keeps_its_storage_alive(other):
    """tvm#20190, #20207 and #20134: the planner lost the storage of `a` behind such a name, and gave it to `b`."""

    def module(storage):
        return planned(f"v = {other}", f"b = {TENSOR.format(storage)}", "cls.plus(x, b)", "cls.sum(v, b, out)")

    assert check(module("t")).clean
    assert {row.kind for row in check(module("s")).violations} >= {"Overlap", "StaleRead"}


def test_a_storage_that_another_branch_allocates_is_no_place():
    """tvm#20191: the branch not taken allocates; the module crashes there."""

    def module(declared):
        return planned(
            "if c:",
            f"    u = {PLANNED.split('s = ')[1].splitlines()[0]}",
            f"    b = {TENSOR.format('u')}",
            "    cls.plus(a, b)",
            "    cls.plus(b, out)",
            "else:",
            f"    {declared}",
            f"    b = {TENSOR.format('u')}",
            "    cls.plus(a, b)",
            "    cls.plus(b, out)",
        )

    own = module(f"u = {PLANNED.split('s = ')[1].splitlines()[0]}")
    assert sorted(program.path for program in own.programs) == ["if 21=else", "if 21=then"]
    assert check(own).clean
    report = check(module("u: R.Object"))
    assert {row.kind for row in report.violations} == {"Unplaced"}
    assert {report.violations[0].program} == {next(n for n, row in enumerate(own.programs) if "else" in row.path)}


def test_a_branch_that_takes_the_storage_of_what_is_read_behind_it_is_convicted():
    rows = ["if c:", f"    b = {TENSOR.format('s')}", "    cls.plus(x, b)", "else:", "    b = x", "cls.sum(a, b, out)"]

    assert "StaleRead" in {row.kind for row in check(planned(*rows)).violations}
