"""The report: order, limit, counts and sizes; and what the judge stands on."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import allocsim.judge.fast
from allocsim import check
from allocsim.document import dumps
from allocsim.errors import ModelError
from allocsim.judge import plain
from allocsim.judge.fast import CHECKS, KINDS, Report, Stats, Violation, defects, s_tags
from allocsim.model import Document, Problem, Role, Run
from allocsim.programs.builder import plan_of
from repro.small.words import plan, program


@pytest.fixture
def messy(tiny):
    """Several defects of several kinds at several steps."""
    b = tiny()
    never = b.temp("never")
    x = b.uploaded("x")
    y = b.run((x, never), "y")
    b.op("late", (x, y), (b.temp("z"),))
    program = b.build()
    problem = Problem.of(program, start=[0] * 4, stop=[1] * 4, nbytes=[1] * 4)
    plan = plan_of(program, [3, 0, 0, "own"], problem=problem)
    return Document.of(Run.of(plan), Run.of(plan))


def place(v):
    return (-1 if v.run is None else v.run, -1 if v.step is None else v.step, list(KINDS).index(v.kind))


def test_records_come_in_order_of_run_step_and_kind_nulls_first(messy):
    report = check(messy)
    assert [place(v) for v in report.violations] == sorted(place(v) for v in report.violations)
    assert {v.run for v in report.violations} == {None, 0, 1}
    assert len({v.kind for v in report.violations}) >= 5


@pytest.mark.parametrize("limit", range(12))
def test_the_limit_cuts_the_list_and_not_the_count(messy, limit):
    whole, cut = check(messy), check(messy, limit=limit)
    assert cut.violations == whole.violations[:limit]
    assert cut.warnings == whole.warnings[:limit]
    assert (cut.count, cut.truncated, cut.clean) == (whole.count, False, False)
    assert whole.count == len(whole.violations)


def test_a_negative_limit_is_misuse(messy):
    with pytest.raises(ModelError, match="limit: -1 is negative"):
        check(messy, limit=-1)


def test_warnings_do_not_make_a_document_unclean(tiny):
    b = tiny()
    b.run((b.uploaded("x"),), "y", in_place=None)
    report = b.judge([0, 0])
    assert (report.clean, report.count, len(report.warnings)) == (True, 0, 1)


def test_the_judge_makes_no_sentence(messy):
    report = allocsim.judge.fast.check(messy)
    assert {(v.message, *v.names) for v in (*report.violations, *report.warnings)} == {("",)}


def test_every_record_has_a_message_of_one_line_and_names_for_its_indices(messy):
    report = check(messy)
    for v in (*report.violations, *report.warnings):
        assert v.message
        assert "\n" not in v.message
        for key in ("op", "value", "buffer", "other_op", "other_buffer", "want_op"):
            assert (getattr(v, key) is not None) == (f"{key}_name" in v.names), (v.kind, key)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("limit", [0, 2, 100])
def test_defects_are_those_of_the_report_with_warnings_counted_alone(messy, plain, limit):
    report, found = check(messy, limit=limit), defects(messy, limit=limit, plain=plain)
    assert {KINDS[kind][0] for kind in report.counts} == {"violation", "warning"}
    assert (found.violations, found.count, found.truncated) == (report.violations, report.count, report.truncated)
    assert (found.warnings, found.counts) == ((), report.counts)


def test_an_empty_document_is_clean():
    report = check(Document(programs=()))
    assert report == Report(
        violations=(),
        warnings=(),
        count=0,
        truncated=False,
        stats=Stats(ops=0, buffers=0, peak_bytes=0, lower_bound_bytes=0),
    )


def test_the_vocabulary_can_be_had_from_the_package():
    assert Violation(kind="StaleRead").severity == "violation"
    assert set(CHECKS) == {"slots", "promises", "beliefs", "events", "dataflow", "writes", "overlap", "order"}


def test_a_layout_of_too_many_runs_is_named(tiny):
    b = tiny()
    buffer = b.buffer("x", 1 << 40)
    wide = b.value("wide", buffer, "u8", (1 << 23,), strides=(2,))
    b.op("k", (wide,), (b.temp("y"),))
    with pytest.raises(ModelError, match=r"values\[0\]: the layout has 8388608 byte runs"):
        b.judge([0, 1 << 41])


# sizes -----------------------------------------------------------------------------------------------------------------------


def test_peak_is_the_highest_end_summed_over_arenas_of_the_largest_plan(tiny):
    b = tiny(arenas=2)
    b.uploaded("x")
    b.upload(b.temp("y", arena=1))
    program = b.build()
    assert check(Document.of(plan_of(program, [8, 0]), plan_of(program, [0, 100]))).stats.peak_bytes == 116


def bound(b, slots, **plan):
    return b.judge(slots, **plan).stats.lower_bound_bytes


def test_the_bound_counts_live_buffers_with_a_slot(tiny):
    b = tiny()
    x, y = b.uploaded("x"), b.temp("w", 8, role=Role.PARAMETER)
    b.run((x, y), "z", 4)
    assert bound(b, [0, 64, 128]) == 8 + 32 + 16
    assert bound(b, [0, "own", 128]) == 8 + 16


def test_buffers_that_could_be_handed_over_count_once_as_the_larger(tiny):
    b = tiny()
    x = b.uploaded("x", 4)
    y = b.temp("y", 2)
    small = b.value("small", 0, "f32", (2,))
    b.op("k", (small,), (y,), in_place=((0, 0),))
    b.download(y)
    del x
    assert bound(b, [0, 64]) == 16


def test_a_class_of_buffers_that_might_share_counts_once_as_its_largest(tiny):
    """Classes are closed: two buffers that might share with a third are of one class, for what may lie over both is no larger than it."""

    def program(pairs):
        b = tiny()
        big, mid = b.uploaded("big", 4), b.uploaded("mid", 3)
        one, two = b.temp("one", 4), b.temp("two", 3)
        seen = {}
        for buffer, name in ((0, "big"), (1, "mid"), (2, "one"), (3, "two")):
            seen[name] = b.value(f"{name}.low", buffer, "f32", (2,))
        del big, mid, one, two
        b.op("k", (seen["big"], seen["mid"]), (seen["one"], seen["two"]), in_place=pairs)
        return bound(b, [0, 16, 32, 48])

    everything = 4 * (4 + 3 + 4 + 3)
    assert program(()) == everything
    assert program(((0, 0),)) == everything - 16
    assert program(((0, 0), (1, 0))) == everything - 16 - 12
    assert program(((0, 0), (1, 1))) == everything - 16 - 12
    assert program(((0, 1), (1, 0))) == everything - 12 - 12
    before = 4 * (4 + 3)  # big and mid live together before the op; at the op all four are one class
    assert program(((0, 0), (0, 1), (1, 0))) == before
    assert program(((0, 0), (0, 1), (1, 0), (1, 1))) == before


def sizes(document):
    """Return peak and bound, on which both judges agree."""
    one, other = check(document).stats, plain.judge(plain.read(json.loads(dumps(document)))).stats
    assert (one.peak_bytes, one.lower_bound_bytes) == (other.peak_bytes, other.lower_bound_bytes)
    return one.peak_bytes, one.lower_bound_bytes


def test_who_writes_part_of_a_state_takes_over_no_bytes_for_it():
    made = program("x = host.write; y = host.write; p:s[4@0] = f! x; q:s = g y; host.read q", roles={"s": Role.STATE})
    assert sizes(Document.of(plan(made, "s=0 x=64 y=128"))) == (192, 192)


def test_of_several_runs_the_bound_is_the_largest_and_without_a_plan_there_is_no_peak():
    small, large = program("x = host.write; host.read x"), program("x = host.write; y = f x; host.read y")
    for first, second in ((small, large), (large, small)):
        runs = Document.of(*(Run.of(plan(made, "x=0" + " y=64" * (made is large))) for made in (first, second)))
        assert sizes(runs) == (128, 128)
    assert sizes(Document(programs=(large,))) == (0, 0)


@pytest.mark.parametrize("compared", [0, 1])
def test_beyond_what_is_compared_what_once_held_the_same_counts_once_throughout(monkeypatch, compared):
    """The bound may be lower then, never higher: s and its copy v hold the same until f writes v."""

    def bytes_needed():
        made = program("v = same s; w:v = f! v; host.read w", roles={"s": Role.STATE})
        return check(Document.of(plan(made, "s=0 v=64"))).stats.lower_bound_bytes

    assert bytes_needed() == 128
    monkeypatch.setattr(s_tags, "PAIRS", compared)
    assert bytes_needed() == 64


def test_sums_of_sizes_do_not_wrap(tiny):
    b = tiny()
    huge = [b.value(f"v{i}", b.buffer(f"b{i}", 1 << 62), "u8", (1,)) for i in range(5)]
    b.upload(*huge)
    assert bound(b, [0] * 5) == 5 << 62


def test_without_ops_the_bound_is_of_the_belief(tiny):
    b = tiny()
    b.temp("a")
    b.temp("b")
    problem = Problem.of(b.build(), start=[0, 3], stop=[4, 9], nbytes=[8, 16], may_share=[(0, 1)])
    document = Document.of(plan_of(problem.program, [0, 0], problem=problem))
    for judged in (check(document), plain.judge(plain.read(json.loads(dumps(document))))):
        assert judged.stats.lower_bound_bytes == 16


# what it stands on -----------------------------------------------------------------------------------------------------------

ALLOWED = {
    "allocsim.judge.violations",
    "allocsim.model",
    "allocsim.model.layout",
    "allocsim.errors",
    "numpy",
    "numpy.typing",
}


def test_the_judge_imports_numpy_the_model_and_itself_alone():
    for path in Path(allocsim.judge.fast.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in getattr(node, "names", ())]
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            for name in names:
                fine = (
                    name in ALLOWED
                    or name.startswith("allocsim.judge.fast")
                    or name.split(".")[0] in sys.stdlib_module_names
                )
                assert fine, f"{path.name} imports {name}"


def test_the_judge_alone_names_the_screens():
    """What speeds the checks up is handed to them from above; none of them names it."""
    naming = {
        path.name
        for path in Path(allocsim.judge.fast.__file__).parent.glob("*.py")
        if "allocsim.judge.fast.screens" in path.read_text()
    }
    assert naming == {"__init__.py"}


def test_who_judges_says_whether_screens_are_asked():
    """No function has screens by default: one that forgot to hand on `plain` asked one all the same."""
    folder = Path(allocsim.judge.fast.__file__).parent
    assert {path.name for path in folder.glob("*.py") if "SCREENED" in path.read_text()} == {"__init__.py"}


def test_a_plain_judgement_loads_no_screen(tmp_path):
    """Not even a document that every screen would be asked about."""
    code = """
import sys
sys.path[:0] = [%r, %r]
sys.modules["numba"] = None
import hurtful
from allocsim import check
from allocsim.judge.fast import selector
selector.RECTANGLES_FROM = selector.LATE_FROM = 0
from allocsim.allocators import ALLOCATORS
from allocsim.model import Document
names = [name for name in hurtful.CASES]
believed = Document.of(ALLOCATORS["reference"].plan(hurtful.CASES["far away"].build(300).programs[0]))
for document in [believed, *(hurtful.CASES[name].build(300) for name in names)]:
    check(document, plain=True)
assert not [module for module in sys.modules if module.startswith("allocsim.judge.fast.screens.")]
for name in names:
    check(hurtful.CASES[name].build(300))  # without numba there is no screen, and no failure
"""
    tests = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code % (str(tests.parent), str(tests))], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_judging_compiles_nothing():
    code = "import sys, allocsim.judge.fast; sys.exit('numba' in sys.modules or 'networkx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
