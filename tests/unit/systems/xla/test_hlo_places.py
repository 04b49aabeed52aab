"""Kernels laid over their operand: what is said of them, against loops that run in place."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_laws import PLANS, causes

from allocsim import systems
from allocsim.allowances import LIMITS, Allowance, reading
from allocsim.errors import DocumentError
from allocsim.judge.fast import check
from allocsim.systems.xla import hlo_in_place
from allocsim.systems.xla.hlo_in_place import pairs
from allocsim.systems.xla.hlo_places import passed, safety
from allocsim.systems.xla.hlo_text import parse_module
from allocsim.systems.xla.hlo_windows import SAFE, UNKNOWN, UNSAFE

LAYOUTS = PLANS / "xla" / "layout"

CALLED = """HloModule m

%same (a: f32[4,4]) -> f32[4,4] {
  %a = f32[4,4]{1,0} parameter(0)
  ROOT %b = f32[4,4]{1,0} negate(%a)
}

%turned (c: f32[4,4]) -> f32[4,4] {
  %c = f32[4,4]{1,0} parameter(0)
  ROOT %d = f32[4,4]{0,1} copy(%c)
}

ENTRY %f (p: f32[4,4]) -> f32[4,4] {
  %p = f32[4,4]{1,0} parameter(0)
  %q = f32[4,4]{1,0} fusion(%p), kind=kLoop, calls=%same
  %r = f32[4,4]{1,0} fusion(%q), kind=kLoop, calls=%same
  ROOT %s = f32[4,4]{0,1} fusion(%r), kind=kLoop, calls=%turned
}
"""


def leaf(dims, order):
    return f"s32[{','.join(map(str, dims))}]{{{','.join(map(str, order))}}}"


def laid(array, order):
    """Return the elements of an array by its index, in the order of a layout from the fastest axis on."""
    return np.ascontiguousarray(array.transpose(order[::-1])).reshape(-1)


@st.composite
def chains(draw):
    """Draw lines of a fusion, from its parameter on, and the index function of its result in numpy."""
    dims = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    order = tuple(draw(st.permutations(range(len(dims)))))
    given_order, meant, lines = (
        order,
        [np.arange(np.prod(dims)).reshape(dims)],
        [f"  %v0 = {leaf(dims, order)} parameter(0)"],
    )
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["copy", "negate", "transpose", "reverse"]))
        more, now = "", meant[-1]
        if kind == "transpose":
            axes = tuple(draw(st.permutations(range(len(dims)))))
            now, more = now.transpose(axes), f", dimensions={{{','.join(map(str, axes))}}}"
        if kind == "reverse":
            axes = tuple(draw(st.sets(st.integers(0, len(dims) - 1))))
            now, more = np.flip(now, axes), f", dimensions={{{','.join(map(str, axes))}}}"
        if kind != "negate":
            order = tuple(draw(st.permutations(range(len(dims)))))
        dims = now.shape
        meant.append(now)
        lines.append(f"  %v{number + 1} = {leaf(dims, order)} {kind}(%v{number}){more}")
    lines[-1] = lines[-1].replace("  %", "  ROOT %", 1)
    first = meant[0]
    return lines, laid(first, given_order), laid(meant[-1], order)


def in_place(sources, read, turns):
    """Return whether a loop over the result in this order, over its operand, gives what it gives apart."""
    memory, apart = sources.copy(), read.copy()
    place = {value: at for at, value in enumerate(sources.tolist())}
    for turn in turns:
        memory[turn] = memory[place[read[turn]]]
    return np.array_equal(memory, apart)


@given(chains())
def test_what_is_said_is_what_a_loop_in_place_does(drawn):
    lines, sources, read = drawn
    text = "HloModule m, is_scheduled=true\n\nENTRY %f (v0: s32[]) -> s32[] {\n" + "\n".join(lines) + "\n}\n"
    rows = parse_module(text, "m").instructions("f")
    places, held = None, rows[0].shape[()]
    for row in rows[1:]:
        places, held = passed(places, row, held), row.shape[()]
    forwards, backwards = (in_place(sources, read, turns) for turns in (range(len(read)), range(len(read))[::-1]))
    assert (safety(places) == SAFE) == np.array_equal(sources, read)
    assert safety(places) != SAFE or (forwards and backwards)
    assert safety(places) != UNSAFE or not forwards
    assert safety(places) != UNKNOWN or forwards


@pytest.mark.parametrize(
    ("kind", "source", "result", "expected"),
    [
        ("copy", "f32[4,4]{1,0}", "f32[4,4]{0,1}", ()),
        ("copy", "f32[4,1]{1,0}", "f32[4,1]{0,1}", ((0, 0, "bytes"),)),
        ("add", "f32[4,4]{0,1}", "f32[4,4]{0,1}", ((0, 0, "bytes"),)),
        ("transpose", "f32[4,4]{1,0}", "f32[4,4]{0,1}", ((0, 0, "bytes"),)),
        ("copy", "f32[4,4]{1,0:T(2,2)}", "f32[4,4]{1,0}", None),
    ],
)
def test_an_op_that_stands_for_itself_is_judged_by_its_layouts(kind, source, result, expected):
    more = ", dimensions={1,0}" if kind == "transpose" else ""
    text = f"HloModule m\n\nENTRY %f (p: f32[]) -> f32[] {{\n  %p = {source} parameter(0)\n  ROOT %r = {result} {kind}(%p){more}\n}}\n"
    module = parse_module(text, "m")
    operand, row = module.instructions("f")
    assert pairs(module, row, [(64, 64)], 1, [operand.shape[()]], fusions={}) == expected


READS = {"no": (), "its own": ("%p{0}",), "turned": ("%t{0}",), "both": ("%p{0}", "%t{0}")}
"""What a result of the fusion below reads of an operand: the element at its own place, at the place of the transposed, or neither."""


def fused(reads):
    """Return a fusion of two operands and two results, each the sum of what it reads, by (result, operand)."""
    lines = [f"  %p{o} = f32[2,2]{{1,0}} parameter({o})" for o in range(2)]
    lines += [f"  %t{o} = f32[2,2]{{1,0}} transpose(%p{o}), dimensions={{1,0}}" for o in range(2)]
    for result in range(2):
        names = [name.format(o) for o in range(2) for name in READS[reads[result, o]]]
        lines.append(
            f"  %s{result}.0 = f32[2,2]{{1,0}} {f'negate({names[0]})' if names else 'iota(), iota_dimension=0'}"
        )
        lines += [
            f"  %s{result}.{n} = f32[2,2]{{1,0}} add(%s{result}.{n - 1}, {name})" for n, name in enumerate(names[1:], 1)
        ]
    sums = ", ".join(
        [line.split()[0] for line in lines if line.startswith(f"  %s{result}.")][-1] for result in range(2)
    )
    both = "(f32[2,2]{1,0}, f32[2,2]{1,0})"
    given = "p: f32[2,2], q: f32[2,2]"
    entry = "\n".join(f"  %{name} = f32[2,2]{{1,0}} parameter({o})" for o, name in enumerate("pq"))
    return (
        f"HloModule m\n\n%inside ({given}) -> {both} {{\n"
        + "\n".join(lines)
        + f"\n  ROOT %r = {both} tuple({sums})\n}}\n\n"
        f"ENTRY %f ({given}) -> {both} {{\n{entry}\n  ROOT %x = {both} fusion(%p, %q), kind=kLoop, calls=%inside\n}}\n"
    )


def looped(reads, over, turns):
    """Return whether one loop over both results gives what it gives apart, where `over` has (operand, result) that lie together."""
    places = {"its own": (0, 1, 2, 3), "turned": (0, 2, 1, 3)}
    words = {
        word: [places[one] for one in (("its own", "turned") if word == "both" else (word,)) if one in places]
        for word in READS
    }
    memory = {("p", o, k): (o, k) for o in range(2) for k in range(4)}
    under = {result: operand for operand, result in over}
    for k in turns:
        made = []
        for result in range(2):
            wanted = [(o, order[k]) for o in range(2) for order in words[reads[result, o]]]
            if [memory["p", o, at] for o, at in wanted] != wanted:
                return False
            made.append((result, k))
        for result, _ in made:
            if result in under:
                memory["p", under[result], k] = ("made", result)
    return True


def test_results_over_operands_that_other_results_read_are_judged_as_a_loop_in_place_does():
    """All fusions of two operands and two results: a pair is declared where no result, of either, is made of other places of the operand."""
    shapes = [(result, operand) for result in range(2) for operand in range(2)]
    for words in itertools.product(READS, repeat=4):
        reads = dict(zip(shapes, words, strict=True))
        module = parse_module(fused(reads), "m")
        row = module.instructions("f")[-1]
        declared = set(pairs(module, row, [(16, 16)] * 2, 2, [None, None], fusions={}))
        for over in ([(0, 0)], [(0, 1)], [(1, 0)], [(1, 1)], [(0, 0), (1, 1)], [(0, 1), (1, 0)]):
            right = all(looped(reads, over, turns) for turns in (range(4), range(4)[::-1]))
            assert right is ({(*pair, "bytes") for pair in over} <= declared), (reads, over)


def test_fusions_of_one_computation_are_looked_at_once(monkeypatch):
    """A loop has them in each turn, and a module may call one computation any number of times, each from a place of its own."""
    numbers = itertools.count()
    text = re.sub(r"(calls=%?\w+)", lambda found: f'{found[1]}, metadata={{op_name="jit/{next(numbers)}"}}', CALLED)
    assert next(numbers) == 3
    looked, module = [], parse_module(text, "m")
    look = hlo_in_place._fusion
    monkeypatch.setattr(hlo_in_place, "_fusion", lambda *asked: looked.append(asked) or look(*asked))
    known = {}
    said = [
        pairs(module, row, [(64, 64)], 1, [row.shape[()]], fusions=known)
        for row in module.instructions("f")
        if row.opcode == "fusion"
    ]
    assert said == [((0, 0, "bytes"),), ((0, 0, "bytes"),), ()]
    assert len(looked) == 2


@pytest.mark.parametrize(
    ("count", "free"),
    [(700, 1 << 20), pytest.param(2500, LIMITS["comparison"].free, marks=pytest.mark.campaign)],
    ids=["a sixteenth of what is allowed", "what is allowed"],
)
def test_the_steps_through_one_fusion_are_counted(count, free, monkeypatch):
    """Each of its parameters is followed through all that comes after it: their square."""
    monkeypatch.setitem(LIMITS, "comparison", Allowance(free, 1))
    lines = ["HloModule m", "", "%c {"]
    lines += [f"  %p.{i} = f32[4]{{0}} parameter({i})" for i in range(count)] + ["  %a.0 = f32[4]{0} add(%p.0, %p.0)"]
    last = count - 1
    lines += [f"  {'ROOT ' if i == last else ''}%a.{i} = f32[4]{{0}} add(%a.{i - 1}, %p.{i})" for i in range(1, count)]
    lines += ["}", "", "ENTRY %f (x: f32[4]) -> f32[4] {", "  %x = f32[4]{0} parameter(0)"]
    lines += [f"  ROOT %r = f32[4]{{0}} fusion({', '.join(['%x'] * count)}), kind=kLoop, calls=%c", "}"]
    module = parse_module("\n".join(lines) + "\n", "m")
    row = next(row for row in module.instructions("f") if row.opcode == "fusion")
    with reading("m", 0), pytest.raises(DocumentError, match="comparisons or more"):
        pairs(module, row, [(16, 16)] * count, 1, [row.shape[()]] * count, fusions={})


def test_a_fusion_that_changes_the_layout_of_what_it_is_laid_over_is_convicted():
    """A planted slot: `copy_copy_fusion` of f32[20,20]{1,0} to {0,1} over its own operand."""
    assert set(causes(LAYOUTS)) == {("C03", "plan")}


def test_the_layout_decides_and_nothing_else(tmp_path):
    """The same dump with the layouts of the copy made equal is clean: no name is on a list."""
    for path in LAYOUTS.iterdir():
        text = path.read_text(encoding="utf-8")
        kept = [line.replace("{0,1}", "{1,0}") if "copy_copy_fusion" in line or "copy.9 =" in line or "copy.10 =" in line else line for line in text.splitlines(keepends=True)]  # fmt: skip
        (tmp_path / path.name).write_text("".join(kept), encoding="utf-8")
    assert causes(tmp_path) == []


def test_a_loop_whose_condition_reads_arrays_is_clean():
    """Fusion off: the root of the condition is laid over what it reads, and the predicate reads the root after it."""
    assert check(systems.load(PLANS / "xla" / "condition")).clean


def test_offsets_that_xla_does_not_align_to_are_misaligned(tmp_path):
    folder = PLANS / "xla" / "condition"
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8")
        (tmp_path / path.name).write_text(
            re.sub(r"(wrapped_not\b.*offset=)(\d+)", lambda found: found[1] + str(int(found[2]) + 1), text),
            encoding="utf-8",
        )
    report = check(systems.load(tmp_path))
    assert {violation.kind for violation in report.violations} >= {"Misaligned"}
