"""IREE's stream dialect: real dumps, what is told of concurrency and packs, wrong slots, and what is refused."""

import pytest
from plan_laws import DAMAGED, PLANS, causes, law_of_damage

from allocsim import check, systems
from allocsim.errors import DocumentError
from allocsim.outcomes import JudgeRules, judge_file
from allocsim.systems.iree.iree_stream import loads

FOLDER = PLANS / "iree"


def changed(name, old, new, count=1):
    found = (FOLDER / name).read_text(encoding="utf-8")
    assert found.count(old) == count, old
    return found.replace(old, new).encode()


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("layers.txt", 1),
        ("loop.txt", 6),
        ("emplaced.txt", 1),
        ("donated.txt", 3),
        ("carried.txt", 2),
        ("unknown.txt", 2),
    ],
)
def test_real_dumps_are_told_by_their_content_and_stay_clean(name, runs):
    document = systems.load(FOLDER / name)
    report = check(document)

    assert report.violations == ()
    assert len(document.plans) == runs
    long = {"LifetimeTooLong"} if name == "carried.txt" else set()  # a slice is kept for a statement without a command
    assert {row.kind for row in report.warnings} <= {"AssumedInPlace"} | long


def test_what_is_packed_is_the_belief_and_an_allocation_an_arena():
    document = systems.load(FOLDER / "layers.txt")
    (program,), (problem,), (plan,) = document.programs, document.problems, document.plans
    lives = {name: (int(problem.start[row]), int(problem.stop[row])) for row, name in enumerate(program.buffers.names)}

    assert [arena.capacity for arena in program.arenas] == [49152, 8192]
    assert lives["%3#2"] == (4, 9)  # [1, 5] of the statements; three uploads come before them
    assert plan.offset[program.buffers.names.index("%3#4")] == 40960
    assert [op.kind for op in program.ops][:3] == ["host.write"] * 3


def test_statements_that_move_no_bytes_are_not_counted():
    """`flush` stands between the copy of one slice and the dispatch that fills the next."""
    report = check(loads(changed("donated.txt", "[3, 4] = %c4", "[3, 3] = %c4")))

    assert [(violation.kind, violation.names["buffer_name"]) for violation in report.violations] == [
        ("LifetimeTooShort", "%10#2")
    ]


def test_statements_that_became_no_command_are_where_the_packs_ask_for_them():
    """A scan joins arrays: slices are packed for six statements, of which one became no command."""
    report = check(loads(changed("carried.txt", "[4, 5] = %c32", "[5, 5] = %c32")))

    assert [(violation.kind, violation.names["buffer_name"]) for violation in report.violations] == [
        ("LifetimeTooShort", "%18#3")
    ]


def test_sizes_that_only_the_run_knows_are_judged_with_two_that_are_named(tmp_path):
    path = tmp_path / "over.txt"
    names = [program.name for program in systems.load(FOLDER / "unknown.txt").programs]
    assert names == ["main, execute 0 with %0 = 39", "main, execute 0 with %0 = 40"]

    path.write_bytes(changed("unknown.txt", "arg6[%1 for", "arg6[%c0_7 for", 2))  # the second slice onto the first
    assert set(causes(path)) == {("C12", "plan")}
    path.write_bytes(changed("unknown.txt", "%8 = arith.addi %1, %1", "%8 = arith.addi %1, %c64"))
    assert set(causes(path)) == {("C12", "plan")}  # an allocation that is too small for any size but one


def test_what_no_run_does_is_guessed_otherwise_or_refused():
    """An access behind the end of its resource before the pass is of no run with these numbers."""
    with pytest.raises(DocumentError, match="the text contradicts each guess, such as 37"):
        loads(changed("unknown.txt", "ro %arg2[%c0 for %1]", "ro %arg2[%c64 for %1]", 2))


def test_a_dispatch_that_may_read_what_it_binds_fills_what_nothing_was_written_to():
    """`rw` in place of `wo` over a fresh slice: clean; over one that was written, an operand in place."""
    text = (FOLDER / "layers.txt").read_text(encoding="utf-8").replace("        wo %", "        rw %")
    document = loads(text.encode())

    assert not check(document).violations
    assert not any(op.in_place for op in document.programs[0].ops)


def test_commands_that_are_concurrent_run_on_streams_and_what_follows_waits():
    document = systems.load(FOLDER / "loop.txt")
    laned = [program for program in document.programs if any(op.stream for op in program.ops)]
    assert laned
    for program in laned:
        for op in program.ops:
            if op.stream == 0 and op.step and program.ops[op.step - 1].stream:
                assert op.step - 1 in op.after
    assert not check(document).violations


def test_a_slice_that_is_laid_over_one_that_is_read_later_convicts_the_plan(tmp_path):
    """Every access of the slice at 40,960 moves onto the one at 32,768, which a later dispatch reads."""
    path = tmp_path / "moved.txt"
    path.write_bytes(changed("layers.txt", "[%c40960_4 for", "[%c32768_3 for", 2))

    assert causes(path) == [("C12", "plan")]


def test_an_argument_that_is_returned_and_written_over_convicts_the_plan(tmp_path):
    """iree-org/iree#16168: the sum is laid over the accumulator, and the function returns both."""
    assert causes(FOLDER / "returned.txt") == [("C11", "plan")]
    (plan,) = systems.load(FOLDER / "returned.txt").plans
    given, over = plan.problem.may_share[0].tolist()
    assert (plan.program.buffers.names[given], plan.program.buffers.names[over]) == ("%2", "%2 as written")

    path = tmp_path / "other.txt"
    part = changed("returned.txt", "rw %arg5[%c0 for %c1024]", "rw %arg5[%c0 for %c16]", 2).decode()
    path.write_text(part.replace("ro %arg3", "ro %arg5"), encoding="utf-8")
    assert causes(path) == [("C11", "plan")]  # a part of it changes, and a value takes the place of that part

    path.write_bytes(changed("returned.txt", "util.return %5, %arg2", "util.return %5, %arg1", 2))
    with pytest.raises(DocumentError, match="no plan here"):
        systems.load(path)  # what is read alone may be returned


def test_an_argument_is_the_same_memory_after_it_was_waited_for(tmp_path):
    text = changed("returned.txt", "with(%0 as %arg3", "with(%9 as %arg3", 2).decode()
    at = "  %c0_0 = arith.constant 0 : index\n"
    awaited = "  %9 = stream.timepoint.await %8 => %0 : !stream.resource<external>{%c1024}\n"
    text = (
        text.replace(at, at + awaited).replace("ro %arg3", "rw %arg3").replace("return %5, %arg2", "return %5, %arg0")
    )
    path = tmp_path / "awaited.txt"
    path.write_text(text, encoding="utf-8")

    assert causes(path) == [("C11", "plan")]


def test_a_slice_packed_for_too_few_statements_is_a_belief_that_ends_early():
    report = check(loads(changed("layers.txt", "[1, 5] = %c8192", "[1, 4] = %c8192")))
    assert {row.kind for row in report.violations} == {"LifetimeTooShort"}


def test_what_is_written_through_one_binding_and_read_through_another_is_nobodys_promise():
    """IREE 3.13.0 lays the transposed half over the matrix it is read from; 16 of 256 elements come out wrong."""
    document = systems.load(FOLDER / "emplaced.txt")
    assert [row.kind for row in check(document).warnings] == ["AssumedInPlace"]
    assert [row.kind for row in check(document, strict=True).violations] == ["AssumedInPlace"]
    charged = judge_file(FOLDER / "emplaced.txt", rules=JudgeRules(strict=True), cures=False).causes
    assert [(cause.class_, cause.party) for cause in charged] == [("C03", "plan")]


@pytest.mark.parametrize(
    ("name", "old", "new", "count", "rule"),
    [
        ("layers.txt", "IR Dump Before", "IR Dump Again", 2, "no plan here: give what `iree-compile"),
        (
            "layers.txt",
            "stream.resource.alloca",
            "stream.resource.other",
            4,
            "no execute has memory that the pass placed",
        ),
        ("layers.txt", "%c40960_4 = arith.constant", "%x = arith.constant", 1, "%c40960_4 is known only at run time"),
        ("layers.txt", "[3, 4] = %c8192", "[3, 2] = %c8192", 1, r"ends before it begins: \[3, 2\]"),
        ("layers.txt", "wo %arg7[%c40960_4", "wo %arg7[%c0_1", 1, "a slice has another offset here"),
        ("layers.txt", "wo %arg6[%c0_0 for", "of %arg6[%c0_0 for", 2, "is not a supported access of a dispatch"),
        ("loop.txt", "stream.cmd.copy", "stream.cmd.collective", None, "'stream.cmd.collective' is not a supported"),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(name, old, new, count, rule):
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert old in text
    assert count is None or text.count(old) == count
    with pytest.raises(DocumentError, match=rule) as error:
        loads(text.replace(old, new).encode())
    assert "\n" not in str(error.value)


REGION = """// -----// IR Dump {when} LayoutSlicesPass: iree-stream-layout-slices //----- //
util.func public @main(%arg0: !hal.buffer_view) {{
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
{pack}  %result, %t = stream.resource.alloca uninitialized : !stream.resource<transient>{{{size}}} => !stream.timepoint
  %5 = stream.cmd.execute await(%t) => with(%result as %arg1: !stream.resource<transient>{{{size}}}) {{
    stream.cmd.fill %z, %arg1[{a} for %c64] : i8 -> !stream.resource<transient>{{{size}}}
    stream.cmd.copy %arg1[{a}], %arg1[{b}], %c64 : !stream.resource<transient>{{{size}}}
    stream.cmd.dispatch @d::@use {{
      ro %arg1[{b} for %c64] : !stream.resource<transient>{{{size}}}
    }}
  }} => !stream.timepoint
}}
"""
PACK = "  %3:3 = stream.resource.pack slices({\n    [0, 1] = %c64,\n    [1, 2] = %c64\n  }) : index\n"


@pytest.mark.parametrize("where", ["%c64", "%c0"])
def test_a_copy_is_a_same_and_may_stay_where_it_is(where):
    before = REGION.format(when="Before", pack=PACK, size="%3#0", a="%3#1", b="%3#2")
    after = REGION.format(when="After", pack="", size="%c128", a="%c0", b=where)
    document = loads((before + after).encode())

    assert [op.kind for op in document.programs[0].ops] == ["fill", "same", "use"]
    assert check(document).violations == ()


def test_functions_that_are_printed_in_turns_are_paired_by_name_and_a_fill_has_any_constant():
    """An initializer has no name, and a constant's name may have a sign: `%c-1_i32`."""
    before = REGION.format(when="Before", pack=PACK, size="%3#0", a="%3#1", b="%3#2").replace("%z", "%c-1_i32")
    after = REGION.format(when="After", pack="", size="%c128", a="%c0", b="%c64").replace("%z", "%c-1_i32")
    head = "util.func public @main(%arg0: !hal.buffer_view) {"
    texts = [before.replace(head, "util.initializer {"), before, after.replace(head, "util.initializer {"), after]
    document = loads("".join(texts).encode())

    assert [program.name for program in document.programs] == ["initializer, execute 0", "main, execute 0"]
    assert check(document).clean
    with pytest.raises(DocumentError, match="a text before or after the pass is missing"):
        loads("".join(texts[:3]).encode())


HURTFUL = {
    "a sum of itself": ("  %c128 = arith", "  %c64 = arith.addi %c64, %c0 : index\n  %c128 = arith", "known only at"),
    "a round of sums": (
        "  %c128 = arith",
        "  %x = arith.addi %y, %c0 : index\n  %y = arith.addi %x, %c0 : index\n  %c128 = arith",
        None,
    ),
    "sums of sums": (
        "  %c128 = arith",
        "".join(f"  %s{n + 1} = arith.addi %s{n}, %s{n} : index\n" for n in range(60)) + "  %c128 = arith",
        None,
    ),
    "a constant of many digits": ("constant 64 :", f"constant {'9' * 5000} :", "known only at"),
    "a slice of many digits": ("[0, 1]", f"[0, {'1' * 5000}]", "known only at"),
    "many results": ("%3:3", "%3:60000000", "known only at"),
    "a resource in itself": (
        "  %5 = stream",
        "  %result = stream.resource.subview %result[%c0] : x\n  %5 = stream",
        "a subview with more than 1000 offsets, or of itself",
    ),
}


@pytest.mark.parametrize("words", list(HURTFUL))
def test_texts_made_to_hurt_end_at_once(words):
    old, new, rule = HURTFUL[words]
    before = REGION.format(when="Before", pack=PACK, size="%3#0", a="%3#1", b="%3#2").replace(old, new)
    after = REGION.format(when="After", pack="", size="%c128", a="%c0", b="%c64")
    if rule is None:
        assert check(loads((before + after).encode())).clean
        before = before.replace("for %c64]", f"for {'%x' if '%x' in new else '%s60'}]")
        rule = "is a sum of more than 1000 terms, or of itself"
    with pytest.raises(DocumentError, match=rule) as error:
        loads((before + after).encode())
    assert "\n" not in str(error.value)


def test_a_statement_without_commands_is_counted_and_ends_nothing():
    empty = "    stream.cmd.concurrent {{\n    }}\n    stream.cmd.fill"
    region = REGION.replace("    stream.cmd.fill", empty)
    pack = PACK.replace("[1, 2]", "[2, 3]").replace("[0, 1]", "[0, 2]")  # the first begins at the empty one
    before = region.format(when="Before", pack=pack, size="%3#0", a="%3#1", b="%3#2")
    document = loads((before + region.format(when="After", pack="", size="%c128", a="%c0", b="%c64")).encode())

    assert check(document).violations == ()
    assert document.problems[0].start.tolist() == [0, 1]


def test_an_allocation_may_be_as_large_as_a_sum_says():
    before = REGION.format(when="Before", pack=PACK, size="%3#0", a="%3#1", b="%3#2")
    total = "  %total = arith.addi %c64, %c64 : index\n"
    document = loads((before + REGION.format(when="After", pack=total, size="%total", a="%c0", b="%c64")).encode())

    assert document.programs[0].arenas[0].capacity == 128
    assert check(document).clean


def test_names_may_come_again_once_their_region_has_ended():
    """Before the pass `%3` is a pack in one function and a sum in the next."""
    before = REGION.format(when="Before", pack=PACK, size="%3#0", a="%3#1", b="%3#2")
    after = REGION.format(when="After", pack="", size="%c128", a="%c0", b="%c64")
    other = REGION.replace("@main", "@other").replace("{pack}", "  %3 = arith.addi %c0, %c64 : index\n")
    other = other.format(when="{when}", pack="", size="%c128", a="%c0", b="%3").replace("{when}", "Before")
    document = loads((before + after + other + other.replace("Before", "After")).encode())

    assert [program.name for program in document.programs] == ["main, execute 0", "other, execute 0"]
    assert document.plans[1].offset.tolist() == [0]


@DAMAGED
def test_damaged_dumps_end_in_one_line(times):
    read, refused = law_of_damage((FOLDER / "layers.txt").read_bytes(), loads, seed=5, times=times)

    assert refused > 0
    assert read + refused == times
