"""Faults in pictures: parties told apart, numbers as in the text, what is too small enlarged, bytes
summed independently.
"""

import re
from dataclasses import replace
from itertools import pairwise

import hurtful
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from plan_laws import PLANS

from allocsim import systems
from allocsim.judge.fast import check
from allocsim.model import Document, Problem, Run
from allocsim.outcomes import outcome_of
from allocsim.programs.builder import ProgramBuilder, plan_of
from reports import draw
from reports.figures import FIGURES, categories, chain, drawing, interference, judged, live_bytes, memory_map
from reports.figures.conflicts import Conflict, conflicts, faults, numbering, telling_run, told
from reports.figures.live_figure import _overlaps, _stretches
from reports.figures.map_boxes import PARTY_LOOKS
from reports.figures.map_views import LEAST, PIXELS
from reports.figures.scene import LiveCurve, scene


def of(figure: Figure, gid: str, axes: int | None = None) -> list[PolyCollection]:
    """What is drawn under a name, on some axes."""
    places = figure.axes if axes is None else [figure.axes[axes]]
    return [c for place in places for c in place.collections if c.get_gid() == gid]


def words(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(mpl.text.Text))


def two_causes() -> Document:
    """A small fault early and a larger one later: two victims, each of a cause of its own."""
    b = ProgramBuilder("two causes")
    names = ("x", "small", "thief", "use", "big", "robber", "end")
    v = {n: b.tensor(n, "f32", (1024,) if n in {"big", "robber", "end"} else (16,)) for n in names}
    b.op("host.write", (), (v["x"],))
    b.op("f", (v["x"],), (v["small"],))
    b.op("g", (v["x"],), (v["thief"],))
    b.op("h", (v["small"], v["thief"]), (v["use"],))
    b.op("k", (v["use"],), (v["big"],))
    b.op("m", (v["use"],), (v["robber"],))
    b.op("n", (v["big"], v["robber"]), (v["end"],))
    b.op("host.read", (v["end"],), ())
    slots = {0: 0, 1: 64, 2: 64, 3: 128, 4: 4096, 5: 4096, 6: 8192}
    return Document.of(plan_of(b.build(), slots))


def test_victim_taker_and_reader_differ_in_hatching_and_outline(stale_read: Document) -> None:
    looks = [(look["hatch"], look["edgecolor"], str(look["linestyle"])) for look in PARTY_LOOKS.values()]
    assert len(set(looks)) == len(looks)
    assert len({hatch for hatch, _, _ in looks}) == len(looks)  # colour is not needed
    figure = memory_map(stale_read, **judged(stale_read))
    boxes = {role: of(figure, role)[0].get_paths()[0].get_extents().bounds for role in ("victim", "taker", "reader")}
    assert boxes == {"victim": (1, 0, 3, 64), "taker": (2, 0, 2, 64), "reader": (3, 64, 2, 64)}


@pytest.mark.parametrize("kind", FIGURES)
def test_every_kind_of_picture_shows_each_cause_with_its_number(kind: str) -> None:
    document = two_causes()
    found = judged(document)
    causes = faults(document, scene(document, 0), 0, **found)
    assert [each.number for each in causes] == [1, 2]
    said = words(drawing(kind, document, found)())
    assert all(line[:40] in said for line in told(causes))
    assert len(set(re.findall(r"^(?:1|2)\b", said, re.MULTILINE))) == 2


@pytest.mark.parametrize("kind", FIGURES)
def test_what_a_verdict_finds_under_a_legal_plan_is_in_every_kind_of_picture(kind: str) -> None:
    b = ProgramBuilder("kernel")
    v = {n: b.tensor(n, "f32", (16,)) for n in ("x", "y", "z")}
    b.op("host.write", (), (v["x"],))
    b.op("f", (v["x"],), (v["y"],))
    b.op("g", (v["y"],), (v["z"],), in_place=((0, 0),))
    b.op("host.read", (v["z"],), ())
    document = Document.of(plan_of(b.build(), {0: 0, 1: 64, 2: 64}))
    parties = {"victim": {"buffer": 1, "value_name": "y"}, "writer": {"op": 2, "op_name": "g", "buffer": 2}}
    verdict = {"class": "C04", "fault": "kernel", **parties, "reader": {"op": 2, "op_name": "g", "buffer": 2}}
    found = judged(document, verdict)
    assert found["report"].clean
    plain, marked = (words(drawing(kind, document, each)()) for each in (judged(document), found))
    assert "C04" not in plain
    assert "C04" in marked
    assert re.search(r"\b1  (C04|y)", marked)


def test_a_conflict_has_the_number_of_its_cause_in_the_text() -> None:
    document = two_causes()
    outcome = outcome_of("x.json", document)
    numbers = {
        v.value: n for n, cause in enumerate(outcome.causes, 1) for v in cause.violations if v.kind == "StaleRead"
    }
    assert sorted(numbers.values()) == [1, 2]
    found = judged(document)
    drawn, _ = conflicts(scene(document, 0), 0, 0, found["report"], found["causes"])
    names = document.programs[0].values.names
    for conflict in drawn:
        if conflict.kind == "StaleRead":
            assert numbers[names.index(conflict.words.split("victim ")[1].split(",")[0])] == conflict.number
    said = words(memory_map(document, **found))
    assert all(
        any(line.startswith(f"{n}  StaleRead: victim {names[v]}") for line in said.splitlines())
        for v, n in numbers.items()
    )


def test_without_causes_conflicts_are_counted(stale_read: Document) -> None:
    assert "1  StaleRead" in words(memory_map(stale_read, report=check(stale_read)))


def test_the_first_conflict_and_the_peak_of_a_large_map_are_shown_again(broken: Document) -> None:
    report = check(broken)
    figure = memory_map(broken, report=report)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert any(title == "conflict 1, enlarged" for title in titles)
    assert any(title.startswith("the peak (step ") for title in titles)
    enlarged = titles.index("conflict 1, enlarged")
    (victim,) = of(figure, "victim", enlarged)
    axes = figure.axes[enlarged]
    share = axes.get_window_extent().height / (axes.get_ylim()[1] - axes.get_ylim()[0])
    assert victim.get_paths()[0].get_extents().height * share > LEAST
    assert PIXELS[0] > 1000


def test_a_small_map_needs_no_enlargement(stale_read: Document) -> None:
    assert not [
        axes for axes in memory_map(stale_read, **judged(stale_read)).axes if "enlarged" in axes.get_title(loc="left")
    ]


def test_the_overlap_is_the_bytes_that_live_pairs_share() -> None:
    document = two_causes()
    plan = document.plans[0]
    shown = scene(document, 0)
    wanted = 0
    for step in range(shown.steps):
        live = np.flatnonzero((shown.start <= step) & (shown.stop > step))
        ends = sorted((int(plan.offset[b]), int(plan.offset[b] + shown.nbytes[b])) for b in live)
        wanted = max(wanted, sum(max(0, a[1] - b[0]) for a, b in pairwise(ends)))
    figure = live_bytes(document, report=check(document))
    (drawn,) = of(figure, "overlap")
    assert max(path.get_extents().y1 for path in drawn.get_paths()) == wanted == 4096
    assert "Live buffers overlap" in words(figure)
    assert "red: 4 KiB" in words(figure)
    assert not of(live_bytes(document), "overlap")


def test_the_overlap_is_as_high_at_each_step_as_the_bytes_shared_there() -> None:
    curve = LiveCurve(edges=np.array([0, 2, 5, 6, 8, 10]), height=np.array([0, 8, 3, 0, 5]))
    first, second = _stretches(curve, 10, 1.0)
    assert {(step, height) for step, height in first if height} == {(2, 8), (3, 8), (4, 8), (5, 8), (5, 3), (6, 3)}
    assert {(step, height) for step, height in second if height} == {(8, 5), (9, 5), (10, 5)}
    assert first[0] == (2, 0)
    assert first[-1] == (6, 0)


def test_an_overlap_of_one_step_in_many_is_a_column_wide_and_as_high_as_it_is() -> None:
    curve = LiveCurve(edges=np.array([0, 70_000, 70_001, 100_000]), height=np.array([0, 9, 0]))
    (outline,) = _stretches(curve, 100_000, 1.0)
    assert {step for step, _ in outline} == {70_000, 70_250}
    assert max(height for _, height in outline) == 9


def test_of_many_late_reads_those_marked_are_spread_over_all_of_them() -> None:
    axes = Figure().add_subplot()
    late = [
        Conflict(kind="StaleRead", boxes=((0, 1, 0, 1),), buffer=0, words="", read=read) for read in range(0, 9000, 3)
    ]
    _overlaps(axes, LiveCurve(edges=np.array([0, 9000]), height=np.array([0])), late, 9000, 1)
    marked = sorted(float(line.get_xdata()[0]) for line in axes.get_lines())
    assert (len(marked), marked[0], marked[-1]) == (50, 0.5, 8997.5)
    assert np.diff(marked).max() < 190


def test_waste_is_what_is_believed_and_not_needed() -> None:
    program = two_causes().programs[0]
    start, stop = (np.array(part) for part in ([0, 1, 2, 3, 4, 5, 6], [8, 4, 4, 6, 7, 7, 8]))
    problem = Problem.of(program, start=start, stop=stop)
    slots = dict(enumerate(np.cumsum([0, *program.buffers.nbytes.tolist()])[:-1].tolist()))
    document = Document.of(plan_of(program, slots, problem=problem))
    kept = scene(document, 0).wasted_bytes()
    assert kept is not None
    assert dict(zip(kept.edges.tolist(), [*kept.height.tolist(), 0], strict=True)) == {
        0: 0,
        3: 64,
        8: 0,
    }  # x is dead from step 3 on
    assert "kept because lifetimes are believed too long, at most 64 B (step 3)" in words(live_bytes(document))


@pytest.mark.parametrize(("believed", "wasted"), [((0, 2), {0: 64, 2: 0}), ((6, 8), {6: 64, 8: 0})])
def test_a_belief_beside_the_need_wastes_its_own_steps_only(believed, wasted) -> None:
    b = ProgramBuilder("late")
    x, *rest = (b.tensor(name, "f32", (16,)) for name in "xabcyz")
    b.op("host.write", (), (rest[0],))
    for one, other in pairwise(rest[:3]):
        b.op("f", (one,), (other,))
    b.op("host.read", (rest[2],), ())
    b.op("host.write", (), (x,))  # step 4
    b.op("host.read", (x,), ())
    for _ in range(2):
        b.op("host.write", (), (b.tensor("t", "f32", (0,)),))
    program = b.build()
    need = scene(Document.of(program), 0)
    start, stop = need.start.copy(), need.stop.copy()
    assert (start[0], stop[0]) == (4, 6)
    start[0], stop[0] = believed
    problem = Problem.of(program, start=start, stop=stop)
    slots = {buffer: 64 * buffer for buffer in range(len(program.buffers))}
    kept = scene(Document.of(plan_of(program, slots, problem=problem)), 0).wasted_bytes()
    assert kept is not None
    changes = dict(zip(kept.edges.tolist(), [*kept.height.tolist(), 0], strict=True))
    before, steps = 0, {}
    for edge, height in changes.items():
        if height != before:
            steps[edge] = before = height
    assert steps == wasted


def test_bytes_that_three_buffers_share_count_once() -> None:
    b = ProgramBuilder("three on one slot")
    x, *three, end = (b.tensor(name, "f32", (16,)) for name in "xabce")
    b.op("host.write", (), (x,))
    for each in three:
        b.op("f", (x,), (each,))
    b.op("g", three, (end,))
    b.op("host.read", (end,), ())
    document = Document.of(plan_of(b.build(), {0: 64, 1: 0, 2: 0, 3: 0, 4: 128}))
    assert "red: 64 B that live buffers share" in words(draw(document, "live"))


def test_what_is_reported_and_not_drawn_is_counted() -> None:
    document = systems.load(PLANS / "torch" / "mm_out.json")
    for kind in ("interference", "live", "lifetimes"):
        assert "1 violation of the report: not drawn here" in words(draw(document, kind)), kind
    assert "No conflict that could be drawn" in words(draw(document, "interference"))


def test_a_forward_result_that_is_read_through_a_view_is_kept() -> None:
    b = ProgramBuilder("two results, one through a view")
    x, one, two, unread, grad = (b.tensor(name, "f32", (16,)) for name in ("x", "one", "two", "unread", "grad"))
    b.op("host.write", (), (x,))
    b.op("f", (x,), (one, unread), meta={"stage": "forward"})
    b.op("g", (one,), (two,), meta={"stage": "forward"})
    seen = b.view(two, "seen", (4, 4))
    b.op("b", (one, seen), (grad,), meta={"stage": "backward"})
    b.op("host.read", (grad,), ())
    assert "reads 2 forward results again: 128 B in 2 buffers" in words(chain(Document.of(b.build())))


def test_a_session_is_drawn_where_its_first_fault_is(stale_read: Document, legal: Document) -> None:
    both = Document.of(Run.of(legal.plans[0]), Run.of(stale_read.plans[0]))
    assert telling_run(check(both)) == 1
    assert "read late by add" in words(draw(both, "map"))
    assert "run 1; 1 other run not drawn here" in words(draw(both, "map"))
    assert "violations in 5 ops, none with bytes in this map" in words(draw(both, "map", run=0))


def test_too_many_violations_are_not_charged_to_causes(broken: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    report = check(broken)
    monkeypatch.setattr("reports.figures.conflicts.NUMBERED", len(report.violations) - 1)
    assert numbering(broken, report) == ()


def test_the_neighbourhood_is_who_lives_with_the_parties() -> None:
    document = two_causes()
    figure = interference(document, **judged(document))
    said = words(figure)
    assert figure.axes[0].get_title(loc="left").startswith("2 causes")
    assert "1  StaleRead: victim" in said
    shared = [line for line in figure.axes[0].get_lines() if line.get_gid() == "lives shared"]
    assert len(shared) == 2  # one for each cause, of its own two parties
    assert "live together and share bytes" in said


def test_no_line_of_a_neighbourhood_passes_behind_a_node() -> None:
    b = ProgramBuilder("three parties, four neighbours")
    made = [b.tensor(name, "f32", (16,)) for name in "abcdefg"]
    b.op("host.write", (), tuple(made))
    b.op("f", tuple(made[:2]), ())
    b.op("host.read", tuple(made), ())
    program = b.build()
    slots = {0: 0, 1: 0, **{buffer: 64 * buffer for buffer in range(2, 7)}}
    document = Document.of(plan_of(program, slots))
    axes = interference(document, **judged(document)).axes[0]
    nodes = [patch.get_bbox() for patch in axes.patches if patch.get_gid() == "node"]
    lines = [line for line in axes.get_lines() if str(line.get_gid()).startswith("lives")]
    assert len(lines) >= 8
    for line in lines:
        x, y = (np.interp(np.linspace(0, 1, 200), np.linspace(0, 1, len(row)), row) for row in line.get_data())
        assert not any(
            ((x > box.x0 + 0.01) & (x < box.x1 - 0.01) & (y > box.y0 + 0.01) & (y < box.y1 - 0.01)).any()
            for box in nodes
        )


def test_the_parties_have_their_names_on_the_map(stale_read: Document) -> None:
    texts = draw(stale_read, "map").axes[0].texts
    assert {"y", "z", "out"} <= {text.get_text().split("  ")[0] for text in texts if text.get_gid() == "name"}


def test_a_map_of_the_first_violations_alone_says_at_least(broken: Document) -> None:
    report = check(broken)
    cut = replace(report, violations=report.of_kind("StaleRead")[:1])
    assert "At least 1 conflict" in memory_map(broken, report=cut).axes[0].get_title(loc="left")


def test_a_program_that_tells_no_pass_is_drawn_without_passes(stale_read: Document) -> None:
    assert "no op says that it is of a backward pass (meta.stage)" in words(chain(stale_read))
    said = words(categories(stale_read))
    assert "temporaries" in said
    assert "workspace" not in said


def test_no_kind_of_violation_hides_another_from_the_pictures():
    """With 19,900 overlaps before them, and a limit of 10,000, no late read was marked."""
    found = judged(hurtful.CASES["one address"].build(200))
    kinds = {violation.kind for violation in found["report"].violations}
    assert kinds == {"StaleRead", "Overlap"}


def unplanned(count: int) -> Document:
    """A chain of so many ops, each result read by the next one, without a plan; the first is read again at the end."""
    b = ProgramBuilder("unplanned")
    made = [b.tensor("x0", "f32", (4096,))]
    b.op("host.write", (), (made[0],))
    for number in range(1, count):
        made.append(b.tensor(f"x{number}", "f32", (16,)))
        b.op("exp", (made[-2],), (made[-1],))
    b.op("host.read", (made[-1], *made[:20]), ())
    return Document.of(b.build())


def test_what_is_said_of_half_the_lifetimes_is_said_of_all_buffers_and_not_of_the_rows_drawn() -> None:
    assert "Half of 99 buffers live 2 steps or less" in words(draw(unplanned(99), "lifetimes"))


def test_without_a_plan_no_slots_are_spoken_of() -> None:
    text = words(draw(unplanned(4), "interference"))
    assert "No plan here; the largest buffer at the peak, x0, lives together with 3 others" in text
    assert "live together" in text
    assert "slots" not in text
