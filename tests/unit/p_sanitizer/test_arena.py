"""The arena for a user's kernels: its views, its misuse, and what its words say."""

import ctypes

import numpy as np
import pytest

import allocsim
from allocsim.errors import ModelError
from allocsim.model import Role
from allocsim.p_sanitizer import describe, poison
from allocsim.p_sanitizer.program_facts import Facts


def program(dtype="f32", *, role=Role.TEMPORARY):
    b = allocsim.ProgramBuilder("step")
    x, h, y, z = (b.tensor(name, dtype, (16,), role=role if name == "x" else Role.TEMPORARY) for name in "xhyz")
    if not role.persistent:
        b.op("host.write", (), (x,), name="x")
    b.op("copy", (x,), (h,), meta={"layer": 3})
    b.op("neg", (h,), (y,))
    b.op("add", (y, x), (z,))
    b.op("host.read", (z,), ())
    return b.build()


HONEST = {"copy": lambda x, out: np.copyto(out, x), "neg": np.negative, "add": np.add}


def run(arena, kernels=HONEST, *, runs=1, skip=()):
    for _ in range(runs):
        with arena.run(skip=skip):
            for op in arena.program.ops:
                if op.step in skip:
                    continue
                with arena.op(op.step) as (operands, results):
                    if op.kind == "host.write":
                        results[0][...] = 1
                    elif op.kind in kernels:
                        kernels[op.kind](*operands, *results)
    return arena


def spaced(made, step=128):
    return [index * step for index, _ in enumerate(made.buffers.names)]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_reading_beyond_an_operand_into_dead_bytes_shows(dtype):
    made = program(dtype)

    def beyond(x, out):
        np.negative(np.lib.stride_tricks.as_strided(x, (17,))[1:], out)

    plan = {0: 0, 1: 512, 2: 1024, 3: 1536}  # behind h nothing was ever written
    (found,) = run(allocsim.sanitized(made, plan), {**HONEST, "neg": beyond}).incidents
    assert (found.kind, found.op, found.value) == ("PoisonRead", 2, 2)
    assert found.message == "op 2 (neg) has poison in bytes [{}, {}) of y and in no operand".format(
        *((60, 64) if dtype == "f32" else (120, 128))
    )


def test_poison_that_comes_in_by_a_wrong_read_is_not_told_twice():
    b = allocsim.ProgramBuilder("late")
    x, y, z = (b.tensor(name, "f32", (16,)) for name in "xyz")
    b.op("copy", (x,), (y,))
    b.op("copy", (y,), (z,))
    b.op("host.read", (z,), ())
    arena = run(allocsim.sanitized(b.build(), [0, 64, 128]), runs=2)
    assert [(i.kind, i.op, i.run) for i in arena.incidents][:1] == [("UninitialisedRead", 0, 0)]
    assert {i.kind for i in arena.incidents} == {"UninitialisedRead"}


def test_poison_passes_unseen_through_dtypes_that_are_not_searched():
    b = allocsim.ProgramBuilder("bytes")
    x = b.tensor("x", "f32", (16,))
    raw = b.tensor("raw", "u8", (64,))
    y = b.tensor("y", "f32", (16,))
    b.op("pack", (x,), (raw,))
    b.op("unpack", (raw,), (y,))
    b.op("host.read", (y,), ())
    kernels = {
        "pack": lambda a, out: np.copyto(out, a.view(np.uint8)),
        "unpack": lambda a, out: np.copyto(out, a.view(np.float32)),
    }
    assert {i.kind for i in run(allocsim.sanitized(b.build(), [0, 64, 128]), kernels).incidents} == {
        "UninitialisedRead"
    }


def test_a_c_kernel_that_overruns_is_named_with_its_layer():
    made = program()

    def copy(x, out):
        ctypes.memmove(out.ctypes.data, x.ctypes.data, 64)
        ctypes.memset(out.ctypes.data - 8, 0, 8)

    arena = run(allocsim.sanitized(made, spaced(made)), {**HONEST, "copy": copy})
    (found,) = arena.incidents
    assert describe(made, found).splitlines() == [
        "Overrun: a kernel wrote outside its results",
        "  op 1 (copy) of layer 3 writes bytes [120, 128) of arena cpu, held by nobody, outside its results",
        "  bytes [120, 128) of arena cpu, held by nobody at address 120 of arena 0",
    ]


def test_two_kernels_at_fault_are_both_named():
    made = program()
    wide = lambda kernel: lambda *arrays: (kernel(*arrays), ctypes.memset(arrays[-1].ctypes.data + 64, 0, 4))  # noqa: E731
    kernels = {"copy": wide(HONEST["copy"]), "neg": wide(np.negative), "add": np.add}
    assert [(i.kind, i.op) for i in run(allocsim.sanitized(made, spaced(made)), kernels).incidents] == [
        ("Overrun", 1),
        ("Overrun", 2),
    ]


def test_holes_of_a_strided_result_are_guarded():
    b = allocsim.ProgramBuilder("columns")
    x = b.tensor("x", "f32", (8,))
    home = b.buffer("table", 64)
    left = b.value("left", home, "f32", (8,), strides=(8,))
    b.op("host.write", (), (x,))
    b.op("scatter", (x,), (left,))
    b.op("host.read", (left,), ())

    def scatter(source, out):
        np.lib.stride_tricks.as_strided(out, (16,), (4,))[3] = 1
        out[...] = source

    arena = run(allocsim.sanitized(b.build(), [0, 128]), {"scatter": scatter})
    assert [(i.kind, i.op, i.bytes) for i in arena.incidents] == [("Overrun", 1, ((140, 144),))]


def test_content_of_parameters_is_laid_and_guarded():
    made = program(role=Role.PARAMETER)
    content = {"x": np.arange(16, dtype=np.float32)}
    arena = run(allocsim.sanitized(made, ["own", 0, 64, 128], content=content), runs=2)
    assert arena.clean
    assert np.array_equal(arena.value(3), np.zeros(16))
    spoil = lambda x, out: (np.copyto(out, x), ctypes.memset(x.ctypes.data, 7, 1))  # noqa: E731
    arena = run(
        allocsim.sanitized(made, ["own", 0, 64, 128], content=content, every_op=True), {**HONEST, "copy": spoil}
    )
    assert [(i.kind, i.op, i.arena) for i in arena.incidents] == [("OperandWritten", 1 - 1, None)]


def test_an_upload_left_out_finds_what_is_still_there_or_says_who_took_it():
    made = program()
    assert run(run(allocsim.sanitized(made, spaced(made))), skip=(0,)).clean
    taken = run(run(allocsim.sanitized(made, {0: 0, 1: 128, 2: 256, 3: 0})), skip=(0,))
    assert [(i.kind, i.run, i.op, i.held_op, i.held_run) for i in taken.incidents] == [
        ("StaleRead", 1, 1, 3, 0),
        ("StaleRead", 1, 3, 3, 0),
    ]


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda a: a.op(0).__enter__(), "no run has begun: with arena.run"),
        (lambda a: begun(a).op(9).__enter__(), r"ops\[9\]: does not exist; there are 5"),
        (lambda a: begun(a).op(2).__enter__(), r"ops\[0\]: \(x\) was left out; name it in run\(skip=...\)"),
        (
            lambda a: (done(begun(a), 0), a.op(0).__enter__()),
            r"ops\[0\]: comes after op 0 has run; ops run in order, each once",
        ),
        (lambda a: begun(begun(a)), "a run has begun and has not ended"),
        (lambda a: a.run(skip=["q"]).__enter__(), r"skip: 'q' is no upload of .*; there are 0 \(x\)"),
        (lambda a: begun(a, skip=["x"]).op(0).__enter__(), r"ops\[0\]: was named as an upload that is left out"),
    ],
)
def test_misuse_of_a_run_is_one_clear_line(misuse, message):
    made = program()
    with pytest.raises(ModelError, match=message):
        misuse(allocsim.sanitized(made, spaced(made)))


def begun(arena, **options):
    context = arena.run(**options)
    context.__enter__()
    arena.kept = [*getattr(arena, "kept", []), context]
    return arena


def done(arena, step):
    with arena.op(step):
        pass


def test_a_run_that_ends_early_says_what_was_left_out():
    made = program()
    arena = allocsim.sanitized(made, spaced(made))
    with pytest.raises(ModelError, match=r"ops\[1\]: \(copy\) was left out"), arena.run():
        done(arena, 0)


@pytest.mark.parametrize(
    ("slots", "options", "message"),
    [
        ([0, None, 64, 128], {}, r"slots\[1\]: 'h' is used and has no slot"),
        ([0, -64, 64, 128], {}, r"slots\[1\]: 'h' \[-64, 0\) lies outside its arena, which is unbounded"),
        (
            [0, 64, 128, 192],
            {"content": {"x": np.zeros(4)}},
            r"content\['x'\]: is no parameter or state; there are none",
        ),
        ([0, 64, 1 << 61, 192], {}, "bytes cannot be allocated"),
    ],
)
def test_what_cannot_be_laid_out_is_refused(slots, options, message):
    with pytest.raises(ModelError, match=message):
        allocsim.sanitized(program(), slots, **options)


def test_content_of_another_size_is_refused():
    with pytest.raises(ModelError, match=r"content\['x'\]: has 32 bytes; the buffer has 64"):
        allocsim.sanitized(program(role=Role.STATE), ["own", 0, 64, 128], content={"x": np.zeros(4)})


@pytest.mark.parametrize(("slots", "kinds"), [([0, 0], []), ([0, 16], [("StaleRead", 0, ((16, 32),))]), ([0, 32], [])])
def test_a_same_keeps_its_writer_where_it_stays_and_writes_where_it_moves(slots, kinds):
    """Over each other but not at one address, the later side has taken bytes of the earlier one."""
    b = allocsim.ProgramBuilder("p")
    x, y = b.tensor("x", "f32", (8,)), b.tensor("y", "f32", (8,))
    b.op("host.write", (), (x,))
    b.same((x,), (y,), name="carry")
    b.op("host.read", (x, y), ())
    program = b.build()
    arena = allocsim.sanitized(program, slots)
    for _ in range(2):
        with arena.run():
            for op in program.ops:
                with arena.op(op.step) as (operands, results):
                    if results:
                        results[0][:] = operands[0] if operands else 1
    assert [(i.kind, i.value, i.bytes) for i in arena.incidents] == 2 * kinds


def test_bytes_that_a_same_shares_are_live_until_both_sides_are_done():
    b = allocsim.ProgramBuilder("p")
    x, y, z = (b.tensor(name, "f32", (8,)) for name in "xyz")
    b.op("fill", (), (x,))
    b.same((x,), (y,), name="carry")
    b.op("fill", (), (z,))
    b.op("host.read", (y, z), ())
    program = b.build()

    def incidents(slots):
        arena = allocsim.sanitized(program, slots)
        with arena.run():
            for op in program.ops:
                with arena.op(op.step) as (_, results):
                    if op.kind == "fill":
                        results[0][:] = op.step
        return [(i.kind, i.value) for i in arena.incidents]

    assert incidents([0, 0, 32]) == []
    assert incidents([0, 0, 16]) == [("StaleRead", 1)]


def test_packed_values_that_fill_their_bytes_are_followed_and_others_refused():
    b = allocsim.ProgramBuilder("p")
    w, x = b.tensor("w", "i4", (2, 6)), b.tensor("x", "u2", (8,))
    b.op("pack", (), (w,))
    b.op("pack", (), (x,))
    b.op("host.read", (w, x), ())
    program = b.build()

    def incidents(slots, nbytes):
        arena = allocsim.sanitized(program, slots)
        with arena.run():
            for op in program.ops:
                with arena.op(op.step) as (operands, results):
                    assert [view.shape for view in (operands if op.kind == "host.read" else ())] == (
                        [(2, 3), (2,)] if op.kind == "host.read" else []
                    )
                    for result in results:
                        result[...].reshape(-1)[:nbytes] = 7
        return [(i.kind, i.op, i.bytes) for i in arena.incidents]

    assert incidents([0, 8], 6) == []
    assert incidents([0, 4], 6) == [("StaleRead", 2, ((4, 6),))]
    b = allocsim.ProgramBuilder("p")
    odd = b.tensor("odd", "i4", (3,))
    b.op("pack", (), (odd,))
    with pytest.raises(
        ModelError, match=r"values\[0\]: 'odd' is 12 bits a row from bit 0 on, and does not fill its bytes"
    ):
        allocsim.sanitized(b.build(), [0])


def test_what_was_not_written_is_named_to_the_byte_and_so_is_poison_that_was_read():
    """Both in one result: the second element was left, the fourth computed from dead bytes."""
    made = program()

    def broken(x, out):
        out[:] = x
        out.view(np.uint32)[1] = np.uint32(poison.AWAITED)
        out[3:4] = np.lib.stride_tricks.as_strided(x, (32,))[20:21] * 2

    arena = run(allocsim.sanitized(made, {0: 0, 1: 512, 2: 1024, 3: 1536}), {**HONEST, "copy": broken})
    assert [(i.kind, i.op, i.bytes) for i in arena.incidents] == [
        ("PoisonRead", 1, ((12, 16),)),
        ("ResultUnwritten", 1, ((4, 8),)),
    ]


@pytest.mark.parametrize("dtype", ["i32", "i16", "u8", "i64", "f16"])
def test_a_result_left_unwritten_is_found_in_every_dtype(dtype):
    made = program(dtype)
    size = made.values[1].itemsize

    def half(x, out):
        out[:8] = x[:8]

    kernels = {**HONEST, "copy": half, "neg": lambda x, out: np.copyto(out, x)}
    arena = run(allocsim.sanitized(made, spaced(made, 256)), kernels, runs=2)
    assert [(i.kind, i.op, i.bytes) for i in arena.incidents][:1] == [("ResultUnwritten", 1, ((8 * size, 16 * size),))]


def test_bands_of_the_next_op_are_copied_again_after_a_repair():
    """The first op writes into both bands of the second, whose copies were made before the dead bytes got their word
    back: the second is not accused of what is then found there.
    """
    b = allocsim.ProgramBuilder("two sides")
    left, right, y = (b.tensor(name, "f32", (16,)) for name in ("left", "right", "y"))
    b.op("fill", (), (left, right))
    b.op("add", (left, right), (y,))
    b.op("host.read", (y,), ())

    def fill(one, two):
        one[:], two[:] = 1, 2
        np.lib.stride_tricks.as_strided(one, (17,))[16] = 9
        ctypes.memset(two.ctypes.data - 4, 9, 4)

    arena = allocsim.sanitized(b.build(), [128, 384, 256], every_op=False)
    run(arena, {"fill": fill, "add": np.add})
    assert [(i.kind, i.op, i.bytes) for i in arena.incidents] == [
        ("Overrun", 0, ((192, 196),)),
        ("Overrun", 0, ((380, 384),)),
    ]


def test_two_weights_that_no_op_touches_are_followed_from_run_to_run():
    b = allocsim.ProgramBuilder("idle")
    b.buffer("v", 64, role=Role.PARAMETER)
    b.buffer("w", 64, role=Role.PARAMETER)
    content = {"v": np.ones(16, np.float32), "w": np.arange(16, dtype=np.float32)}
    arena = allocsim.sanitized(b.build(), [0, 128], content=content)
    assert run(arena, runs=3).clean, arena.report()


def test_a_buffer_that_is_written_in_part_before_it_is_read_is_carried():
    b = allocsim.ProgramBuilder("half")
    home = b.buffer("home", 64)
    half, whole = b.value("half", home, "f32", (8,)), b.value("whole", home, "f32", (16,))
    b.op("fill", (), (half,))
    b.op("host.read", (whole,), ())
    facts = Facts(program=b.build(), origin=(0,), size=64)
    assert facts.carried == {home}


def test_dead_bytes_that_a_result_depends_on_are_told_beside_those_of_it_that_were_left():
    """Two elements of h wait still, a third place lies behind it: each is told once, as what it is."""
    made = program()

    def gaps(x, out):
        for element in {*range(16)} - {2, 6}:
            out[element] = x[element]

    arena = allocsim.sanitized(made, spaced(made), every_op=False)
    with arena.run():
        for op in made.ops:
            with arena.op(op.step) as (operands, results):
                if op.kind == "host.write":
                    results[0][...] = 1
                elif op.step == 1:
                    gaps(*operands, *results)
                    ((low, high),) = arena.places(1)
                    arena.undeclared(1, 1, [(low + 8, low + 12), (low + 24, low + 28), (high + 4, high + 8)])
                    told = arena.incidents
                elif op.kind in HONEST:
                    HONEST[op.kind](*operands, *results)
    assert [(i.kind, i.op, i.bytes) for i in told] == [
        ("UndeclaredRead", 1, ((196, 200),)),
        ("ResultUnwritten", 1, ((8, 12), (24, 28))),
    ]
