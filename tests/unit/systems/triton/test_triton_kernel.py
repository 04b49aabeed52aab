"""Triton's kernels after barriers are set: real ones, barriers and waits left out, and what is refused."""

import re
from dataclasses import replace
from itertools import combinations

import pytest
from plan_laws import PLANS, causes, law_of_damage

from allocsim import check, systems
from allocsim.errors import DocumentError
from allocsim.systems.triton.triton_kernel import loads

FOLDER = PLANS / "triton"
CLEAN = (
    "matmul_sm80", "matmul_8_warps_sm90", "matmul_gfx942", "matmul_sm100", "softmax_sm80", "descriptors_sm90", "specialised_sm100",
)  # fmt: skip
SYNCHRONISING = re.compile(
    r"^\s*(?:%\S+ = )?(?:ttg\.barrier|ttg\.async_wait|ttng\.wait_barrier|ttng\.async_tma_store_wait)\b"
)


def text(name):
    return (FOLDER / f"{name}.ttgir").read_text(encoding="utf-8")


def changed(name, old, new, count=1):
    found = text(name)
    assert found.count(old) == count, (old, found.count(old))
    return found.replace(old, new).encode()


def kinds(data):
    """Return the kinds of violations in a kernel."""
    return {row.kind for row in check(loads(data, "kernel")).violations}


@pytest.mark.parametrize("name", CLEAN)
def test_real_kernels_are_told_by_their_content_and_stay_clean(name):
    document = systems.load(FOLDER / f"{name}.ttgir")

    assert check(document).violations == ()
    assert systems.remarks_on(document) == {}
    (program,) = document.programs
    launches = [number for number, op in enumerate(program.ops) if op.kind == "launch"]
    assert len(launches) >= 3  # no turn, one, and as many as bring everything twice
    order = before(program)
    assert all(order[number] == set(range(number)) for number in launches)  # nothing of one meets another
    assert all(launches[-1] in order[number] for number in range(launches[-1] + 1, len(order)))


def before(program):
    """Return for each op the ops that happen before it, by search along waits and streams."""
    found, last = [], {}
    for number, op in enumerate(program.ops):
        direct = {*op.after, *([last[op.stream]] if op.stream in last else [])}
        found.append(direct.union(*(found[step] for step in direct)))
        last[op.stream] = number
    return found


def places(plan, value):
    """Return arena and bytes of a value as planned, one by one."""
    row, home = plan.program.values[value], int(plan.program.values.buffer[value])
    spans = [int(plan.offset[home]) + int(row.offset)]
    for size, stride in zip(row.shape, row.strides, strict=True):
        spans = [at + int(stride) * index for at in spans for index in range(size)]
    return {(int(plan.arena[home]), at) for at in spans}


def races(document):
    """Return whether two accesses meet that nothing orders: by sets of bytes, every pair of ops."""
    for plan in document.plans:
        order = before(plan.program)
        held = {}
        sides = []
        for op in plan.program.ops:
            rows = [held.setdefault(value, places(plan, value)) for value in (*op.operands, *op.results)]
            writes = rows[len(op.operands) :]
            sides.append((set().union(*rows), set().union(*writes)))
        for one, other in combinations(range(len(sides)), 2):
            meet = sides[one][0] & sides[other][1] or sides[one][1] & sides[other][0]
            if meet and one not in order[other]:
                return True
    return False


@pytest.mark.parametrize("name", ["matmul_gfx942", "softmax_sm80"])
def test_every_barrier_left_out_is_convicted_or_orders_nothing_that_meets(name):
    """What meets is told by sets of bytes and a search along the waits."""
    lines = text(name).splitlines()
    places_of = [number for number, line in enumerate(lines) if SYNCHRONISING.match(line)]
    found = []
    for number in places_of:
        document = loads("\n".join(lines[:number] + lines[number + 1 :]).encode(), "kernel")
        found.append(bool(check(document).violations))
        assert found[-1] == races(document), lines[number]
    assert any(found)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("matmul_sm80", "{num = 2 : i32}", "{num = 4 : i32}"),
        ("descriptors_sm90", "{pendings = 1 : i32}", "{pendings = 2 : i32}"),
        ("descriptors_sm90", "    ttng.wait_barrier %37, %36 :", "    // ttng.wait_barrier %37, %36 :"),
        ("specialised_sm100", "      ttng.wait_barrier %39, %38 :", "      // ttng.wait_barrier %39, %38 :"),
    ],
)
def test_a_wait_for_less_is_convicted(name, old, new):
    found = text(name)
    assert old in found
    assert "Race" in kinds(found.replace(old, new).encode())


def test_an_mbarrier_is_not_invalidated_while_other_warps_may_look_at_it():
    """Thread 0 invalidates it when its own wait has ended; the barrier between is what others wait in."""
    wait = "    ttng.wait_barrier %33, %c0_i32, %true : !ttg.memdesc<1xi64, #shared1, #smem, mutable>\n"
    without = changed("matmul_sm100", wait + "    ttg.barrier local\n", wait)
    assert kinds(without) == {"Race"}


def test_an_allocation_laid_over_another_that_is_needed_is_convicted():
    """Of the plan: two products of one turn share bytes."""
    found = changed("matmul_gfx942", "allocation.offset = 4096", "allocation.offset = 2048")
    assert {"StaleRead", "Overlap"} <= kinds(found)


def test_warp_groups_that_wait_each_for_their_own_products_race():
    """triton#11047: before triton#11056 a `warp_group_dot_wait` was always of its own warp group."""
    name, old = "matmul_8_warps_sm90", "{pendings = 1 : i32} : tensor<128x64xf32"
    local = changed(name, old, old.replace("i32}", "i32, warpGroupLocal}"))
    assert kinds(local) == {"Race"}
    assert kinds(local.replace(b'"ttg.num-warps" = 8', b'"ttg.num-warps" = 4')) == set()


@pytest.mark.parametrize(
    ("name", "old", "new", "rule"),
    [
        ("softmax_sm80", "{allocation.offset = 0 : i32, allocation.size = 16 : i32} ", "", "no plan here"),
        ("matmul_sm80", "{allocation.offset = 0 : i32}", "", "line 46: ttg.local_alloc has no offset"),
        (
            "matmul_gfx942",
            "ttg.local_store",
            "ttg.local_mystery",
            "uses shared memory, but the bytes that it accesses",
        ),
        ("matmul_sm80", "cf.br ^bb1(", "cf.br ^bb9(", "branches to ^bb9"),
        ("softmax_sm80", "%c0_i32 = arith.constant 0", "arith.constant 0", "lacks operands or results"),
        ("softmax_sm80", '"ttg.num-warps" = 4 : i32', '"ttg.num-warps" = "x"', "lacks operands or results"),
        (
            "descriptors_sm90",
            "ttng.init_barrier %15, 1",
            "ttng.init_barrier %15, 2",
            "waits for a phase that no op ends",
        ),
        (
            "specialised_sm100",
            "ttng.init_barrier %15, 1",
            "ttng.init_barrier %15, 2",
            "waits for a phase that no op ends",
        ),
    ],
)
def test_what_is_not_understood_is_refused_in_one_line(name, old, new, rule):
    found = text(name)
    assert old in found
    with pytest.raises(DocumentError, match=re.escape(rule)) as caught:
        loads(found.replace(old, new).encode(), "kernel")
    assert "\n" not in str(caught.value)


def test_damaged_kernels_are_read_or_refused():
    read, refused = law_of_damage((FOLDER / "specialised_sm100.ttgir").read_bytes(), loads, seed=11, times=60)
    assert read
    assert refused


def test_a_reduction_over_blocks_of_a_cluster_meets_in_cluster_barriers():
    lines = text("softmax_cluster_sm90").splitlines()
    assert kinds("\n".join(lines).encode()) == set()
    assert kinds("\n".join(line for line in lines if "ttng.cluster_barrier" not in line).encode()) == {"Race"}


def test_commits_that_nobody_waits_for_race_with_the_end_of_their_mbarriers():
    """What the default group yields is the phase that is waited for behind the groups."""
    document = loads(text("attention_groups_sm100").encode(), "kernel")
    found = {
        tuple(document.programs[row.program].ops[op].name for op in (row.other_op, row.op))
        for row in check(document).violations
    }
    kinds_of = {(first.partition(",")[0], then.partition(",")[0]) for first, then in found}
    assert (len(found), kinds_of) == (3, {("ttng.tc_gen5_commit", "ttng.inval_barrier")})
    assert causes(FOLDER / "attention_groups_sm100.ttgir") == [("C09", "schedule")] * 3  # in four walks each


def test_blocks_of_a_cluster_are_named_as_not_examined():
    document = loads(changed("descriptors_sm90", '"ttg.num-ctas" = 1', '"ttg.num-ctas" = 2'), "kernel")
    (said,) = systems.remarks_on(document)["not examined"]
    assert said.startswith("accesses of other blocks of the cluster")


MULTICAST = b"""#b = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0], CGALayout = [[0, 0]]}>
#s = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16, CGALayout = [[0, 0]]}>
#m = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0], CGALayout = [[1]]}>
#smem = #ttg.shared_memory
module attributes {"ttg.num-ctas" = 2 : i32, "ttg.num-warps" = 4 : i32, ttg.shared = 8200 : i32} {
  tt.func public @reuses(%desc: !tt.tensordesc<64x64xf16, #s>, %x: tensor<64x64xf16, #b>) {
    %zero = arith.constant 0 : i32
    %true = arith.constant true
    %ring = ttg.local_alloc {allocation.offset = 0 : i32} : () -> !ttg.memdesc<1x64x64xf16, #s, #smem, mutable>
    %bar = ttg.local_alloc {allocation.offset = 8192 : i32} : () -> !ttg.memdesc<2xi64, #m, #smem, mutable>
    ttng.init_barrier %bar, 1 : !ttg.memdesc<2xi64, #m, #smem, mutable>
    %view = ttg.memdesc_index %ring[%zero] : !ttg.memdesc<1x64x64xf16, #s, #smem, mutable> -> !ttg.memdesc<64x64xf16, #s, #smem, mutable>
    ttg.local_store %x, %view : tensor<64x64xf16, #b> -> !ttg.memdesc<64x64xf16, #s, #smem, mutable>
    ttg.barrier local
    %y = ttg.local_load %view : !ttg.memdesc<64x64xf16, #s, #smem, mutable> -> tensor<64x64xf16, #b>
    ttng.cluster_barrier
    ttng.barrier_expect %bar, 8192, %true : !ttg.memdesc<2xi64, #m, #smem, mutable>
    ttng.async_tma_copy_global_to_local %desc[%zero, %zero] %view, %bar, %true {multicast} : !tt.tensordesc<64x64xf16, #s>, !ttg.memdesc<2xi64, #m, #smem, mutable> -> !ttg.memdesc<64x64xf16, #s, #smem, mutable>
    ttng.wait_barrier %bar, %zero : !ttg.memdesc<2xi64, #m, #smem, mutable>
    %z = ttg.local_load %view : !ttg.memdesc<64x64xf16, #s, #smem, mutable> -> tensor<64x64xf16, #b>
    tt.return
  }
}
"""


@pytest.mark.parametrize(
    ("barrier", "found"),
    [
        (b"ttng.cluster_barrier", set()),
        (b"ttng.cluster_barrier {relaxed = true}", {"Race"}),
        (b"ttg.barrier local", {"Race"}),
        (b"", {"Race"}),
    ],
)
def test_another_block_copies_into_bytes_that_are_reused(barrier, found):
    """triton#11328, #11411: no cluster barrier was set before a multicast copy into a view."""
    assert kinds(MULTICAST.replace(b"ttng.cluster_barrier", barrier)) == found


def test_blocks_that_tell_each_other_by_mbarriers_are_not_accused_but_named():
    arrival = b"ttng.arrive_barrier %bar, 1, %false : !ttg.memdesc<2xi64, #m, #smem, mutable>\n    tt.return"
    kernel = MULTICAST.replace(
        b"    ttng.cluster_barrier\n", b"    %false = arith.constant false\n    ttg.barrier local\n"
    )
    document = loads(kernel.replace(b"tt.return", arrival), "kernel")
    assert check(document).violations == ()
    assert (
        "the time at which a block may copy to other blocks, if mbarriers order the copy"
        in systems.remarks_on(document)["not examined"]
    )


def test_a_wait_that_other_blocks_may_end_is_refused_by_name():
    with pytest.raises(DocumentError, match="no op of this block ends; other blocks of the cluster may end it"):
        loads(MULTICAST.replace(b"%bar, 1 :", b"%bar, 2 :"), "kernel")


def test_stores_to_another_blocks_memory_are_refused_by_name():
    """What facebookexperimental/triton has for it (#749, #758)."""
    remote = (
        b"%far = ttng.map_to_remote_buffer %view, %zero : !ttg.memdesc<64x64xf16, #s, #smem, mutable>\n    tt.return"
    )
    with pytest.raises(
        DocumentError, match=r"ttng\.map_to_remote_buffer uses shared memory, but the bytes that it accesses"
    ):
        loads(MULTICAST.replace(b"tt.return", remote), "kernel")


SKIPPED = b"""#s = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
#t = #ttng.tensor_memory_encoding<blockM = 128, blockN = 64, colStride = 1>
#l = #ttg.linear<{register = [[0, 1]], lane = [[1, 0]], warp = [[32, 0], [64, 0]], block = []}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.shared = 24576 : i32, ttg.tensor_memory_size = 64 : i32} {
  tt.func public @skips(%x: tensor<128x64xf16, #b>) {
    %false = arith.constant false
    %a = ttg.local_alloc %x {allocation.offset = 0 : i32} : (tensor<128x64xf16, #b>) -> !ttg.memdesc<128x64xf16, #s, #ttg.shared_memory>
    %b = ttg.local_alloc %x {allocation.offset = 16384 : i32} : (tensor<64x64xf16, #b>) -> !ttg.memdesc<64x64xf16, #s, #ttg.shared_memory>
    %sum = ttng.tmem_alloc {tensor_memory_col_offset = 0 : i32, tensor_memory_row_offset = 0 : i32} : () -> !ttg.memdesc<128x64xf32, #t, #ttng.tensor_memory, mutable>
    ttng.tc_gen5_mma %a, %b, %sum, %false, %false : !ttg.memdesc<128x64xf16, #s, #ttg.shared_memory>, !ttg.memdesc<64x64xf16, #s, #ttg.shared_memory>, !ttg.memdesc<128x64xf32, #t, #ttng.tensor_memory, mutable>
    %y = ttng.tmem_load %sum : !ttg.memdesc<128x64xf32, #t, #ttng.tensor_memory, mutable> -> tensor<128x64xf32, #l>
    tt.return
  }
}
"""


def test_what_a_product_without_its_predicate_did_not_make_may_be_loaded():
    """A loop of no turn, its first product taken out: the load stays, and nobody uses what it gives."""
    assert kinds(SKIPPED) == set()
    lines = [line for line in SKIPPED.splitlines() if b"tc_gen5_mma" not in line]
    assert kinds(b"\n".join(lines)) == {"UninitialisedRead"}


GATHER = b"""#b = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#s = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.shared = 512 : i32} {
  tt.func public @gathers(%x: tensor<128xi32, #b>) {
    %a = ttg.local_alloc {allocation.offset = 0 : i32} : () -> !ttg.memdesc<128xi32, #s, #ttg.shared_memory, mutable>
    ttg.local_store %x, %a : tensor<128xi32, #b> -> !ttg.memdesc<128xi32, #s, #ttg.shared_memory, mutable>
    ttg.barrier local
    %y = ttg.local_gather %a[%x] : !ttg.memdesc<128xi32, #s, #ttg.shared_memory, mutable>, tensor<128xi32, #b> -> tensor<128xi32, #b>
    tt.return
  }
}
"""


def test_a_gather_reads_what_other_threads_wrote():
    """It is right behind a barrier, and races without, though the tensor types are alike."""
    assert kinds(GATHER) == set()
    assert kinds(GATHER.replace(b"    ttg.barrier local\n", b"")) == {"Race"}


CAPTURED = b"""#b = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#c = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#s = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.shared = 512 : i32} {
  tt.func public @captures(%x: tensor<128xi32, #b>) {
    %a = ttg.local_alloc {allocation.offset = 0 : i32} : () -> !ttg.memdesc<128xi32, #s, #ttg.shared_memory, mutable>
    ttg.warp_specialize(%a, %x)
    default {
      ttg.warp_yield
    }
    partition0(%v: !ttg.memdesc<128xi32, #s, #ttg.shared_memory, mutable>, %y: tensor<128xi32, #b>) num_warps(4) {
      ttg.local_store %y, %v : tensor<128xi32, #b> -> !ttg.memdesc<128xi32, #s, #ttg.shared_memory, mutable>
      ttg.barrier local
      %z = ttg.local_load %v : !ttg.memdesc<128xi32, #s, #ttg.shared_memory, mutable> -> tensor<128xi32, #c>
      ttg.warp_return
    } : (!ttg.memdesc<128xi32, #s, #ttg.shared_memory, mutable>, tensor<128xi32, #b>) -> ()
    tt.return
  }
}
"""


def test_a_warp_group_needs_a_barrier_of_its_own_for_what_it_captured():
    """triton#6441: what a partition captures was not seen to be shared memory, and no barrier was set in it."""
    assert kinds(CAPTURED) == set()
    assert kinds(CAPTURED.replace(b"      ttg.barrier local\n", b"")) == {"Race"}


TWICE = b"""#s = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.shared = 16 : i32} {
  tt.func public @makes_two() {
    %one = ttg.local_alloc {allocation.offset = 0 : i32} : () -> !ttg.memdesc<1xi64, #s, #ttg.shared_memory, mutable>
    ttng.init_barrier %one, 1 : !ttg.memdesc<1xi64, #s, #ttg.shared_memory, mutable>
    ttng.inval_barrier %one : !ttg.memdesc<1xi64, #s, #ttg.shared_memory, mutable>
    %two = ttg.local_alloc {allocation.offset = 0 : i32} : () -> !ttg.memdesc<1xi64, #s, #ttg.shared_memory, mutable>
    ttng.init_barrier %two, 1 : !ttg.memdesc<1xi64, #s, #ttg.shared_memory, mutable>
    tt.return
  }
}
"""


def test_nothing_is_laid_over_an_mbarrier_that_is_valid(tmp_path):
    """facebookexperimental/triton#462: an mbarrier that nobody uses again has another made over it; triton#3858: the same
    with memory of any other sort, here scratch behind a product."""
    inval = b"    ttng.inval_barrier %one : !ttg.memdesc<1xi64, #s, #ttg.shared_memory, mutable>\n"
    assert kinds(TWICE) == set()
    assert (
        kinds(
            TWICE.replace(inval, b"").replace(
                b"%two = ttg.local_alloc {allocation.offset = 0", b"%two = ttg.local_alloc {allocation.offset = 8"
            )
        )
        == set()
    )
    path = tmp_path / "kernel.ttgir"
    for name, data in (
        ("462", TWICE.replace(inval, b"")),
        ("3858", re.sub(rb".*ttng.inval_barrier.*\n", b"", text("matmul_sm100").encode())),
    ):
        path.write_bytes(data)
        assert causes(path) == [("C02", "plan")], name


def test_what_a_document_says_of_a_kernel_is_no_list_and_is_passed_over():
    document = loads(text("softmax_sm80").encode(), "kernel")
    assert systems.remarks_on(replace(document, meta={"triton": {"unexamined": 5}})) == {}


LOOP = GATHER.replace(b"(%x: tensor<128xi32, #b>)", b"(%x: tensor<128xi32, #b>, %n: i32)").replace(
    b"    ttg.local_store",
    b"""    %zero = arith.constant 0 : i32
    cf.br ^bb1(%zero : i32)
  ^bb1(%i: i32):
    %more = arith.cmpi slt, %i, %n : i32
    cf.cond_br %more, ^bb2, ^bb3
  ^bb2:
"""
    + b"    %d = arith.divsi %i, %i : i32\n" * 8000
    + b"""    %next = arith.addi %i, %i : i32
    cf.br ^bb1(%next : i32)
  ^bb3:
    ttg.local_store""",
)


def test_a_loop_of_which_no_walk_comes_to_its_end_is_named_as_not_examined():
    """The walk without a turn ends, those with turns do not: what they would show was not seen."""
    said = systems.remarks_on(loads(LOOP, "kernel"))["not examined"]
    assert said == ["more iterations of a loop than the walks have"]


BESIDE = GATHER.replace(b"(%x: tensor<128xi32, #b>)", b"(%x: tensor<128xi32, #b>, %n: i32)").replace(
    b"    ttg.local_store",
    b"""    %zero = arith.constant 0 : i32
    %step = arith.constant 16 : i32
    %none = arith.cmpi eq, %n, %zero : i32
    cf.cond_br %none, ^bb1(%zero : i32), ^bb3(%zero : i32)
  ^bb1(%i: i32):
    %once = arith.cmpi slt, %i, %step : i32
    cf.cond_br %once, ^bb2, ^bb5
  ^bb2:
    %after = arith.addi %i, %step : i32
    cf.br ^bb1(%after : i32)
  ^bb3(%j: i32):
    %more = arith.cmpi slt, %j, %n : i32
    cf.cond_br %more, ^bb4, ^bb5
  ^bb4:
    %next = arith.addi %j, %step : i32
    cf.br ^bb3(%next : i32)
  ^bb5:
    ttg.local_store""",
)


def test_a_loop_that_only_an_empty_launch_enters_keeps_no_other_from_its_end():
    """A flattened loop of loops has one of those that are empty beside it."""
    assert systems.remarks_on(loads(BESIDE, "kernel")) == {}
