"""Figures from documents: what they show, that they show it at any size, and that equal input gives
equal bytes.
"""

import re
import struct
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from allocsim import liveness, systems
from allocsim.errors import ModelError, UnknownNameError
from allocsim.judge.fast import check
from allocsim.judge.violations import Report, Stats, Violation
from allocsim.model import Document, Run
from reports.figures import FIGURES, categories, chain, interference, lifetimes, live_bytes, memory_map, streams
from reports.figures.scene import scene
from reports.figures.style import RED, render

EDGES = (
    "no program", "no plan", "no plan, a belief", "no buffers", "no ops", "no ops, no belief", "one op", "zero bytes",
    "nothing placed", "five ops", "below zero", "stale", "$names$",
)  # fmt: skip
DRAW = {
    "map": memory_map, "lifetimes": lifetimes, "live": live_bytes, "interference": interference, "chain": chain,
    "categories": categories, "streams": streams,
}  # fmt: skip
LARGEST = 2 << 20


def texts(figure: Figure) -> str:
    """All words of a figure, its legends' included."""
    return "\n".join(text.get_text() for text in figure.findobj(mpl.text.Text))


def shapes(figure: Figure, gid: str) -> list[np.ndarray]:
    """The rectangles drawn under a name, each as (corners, 2)."""
    found = [c for c in figure.findobj(PolyCollection) if c.get_gid() == gid]
    return [path.vertices[:4] for collection in found for path in collection.get_paths()]


def report_of(*violations: Violation) -> Report:
    return Report(
        violations=violations, warnings=(), count=len(violations), truncated=False,
        stats=Stats(ops=0, buffers=0, peak_bytes=0, lower_bound_bytes=0),
    )  # fmt: skip


def test_every_document_figure_has_a_row() -> None:
    assert DRAW.keys() == FIGURES.keys()


@pytest.mark.parametrize("kind", DRAW)
@pytest.mark.parametrize("name", EDGES)
def test_a_figure_is_drawn_of_every_document(edges: dict[str, Document], name: str, kind: str) -> None:
    figure = DRAW[kind](edges[name])
    root = ET.fromstring(render(figure, ".svg"))
    assert root.tag.endswith("svg")
    assert len(figure.axes) >= 1
    assert figure.axes[0].get_title(loc="left")


def test_the_edges_are_all_tried(edges: dict[str, Document]) -> None:
    assert set(edges) == set(EDGES)


@pytest.mark.parametrize("kind", DRAW)
def test_a_large_document_stays_small_as_a_file(large: Document, kind: str) -> None:
    figure = DRAW[kind](large)
    assert len(render(figure, ".svg")) < LARGEST
    assert len(render(figure, ".png")) < LARGEST


def test_a_map_full_of_conflicts_stays_small_as_a_file(broken: Document) -> None:
    assert len(render(memory_map(broken, report=check(broken)), ".svg")) < LARGEST


@pytest.mark.parametrize("kind", DRAW)
@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_equal_documents_give_equal_bytes(stale_read: Document, kind: str, suffix: str) -> None:
    assert render(DRAW[kind](stale_read), suffix) == render(DRAW[kind](stale_read), suffix)


def test_rendering_twice_gives_equal_bytes(large: Document) -> None:
    figure = memory_map(large)
    assert render(figure, ".svg") == render(figure, ".svg")


def test_a_picture_has_no_date_and_no_software_in_it(legal: Document) -> None:
    svg = render(memory_map(legal), ".svg").decode()
    assert "<dc:date>" not in svg
    assert not re.search(r"20\d\d-\d\d", svg)
    png = render(memory_map(legal), ".png")
    assert b"Software" not in png
    width, height = struct.unpack(">II", png[16:24])
    assert (width, height) == (2000, 1152)


def test_the_users_matplotlib_configuration_changes_nothing(legal: Document) -> None:
    plain = render(memory_map(legal), ".svg")
    with mpl.rc_context({"axes.facecolor": "black", "font.size": 30, "svg.hashsalt": "other", "text.usetex": False}):
        assert render(memory_map(legal), ".svg") == plain
        assert mpl.rcParams["font.size"] == 30


def test_drawing_leaves_no_trace_in_pyplot(legal: Document) -> None:
    from matplotlib import _pylab_helpers  # noqa: PLC0415  # where pyplot keeps its figures

    before = len(_pylab_helpers.Gcf.figs)
    memory_map(legal)
    assert len(_pylab_helpers.Gcf.figs) == before


def test_each_buffer_is_a_rectangle_of_its_lifetime_and_slot(legal: Document) -> None:
    drawn = {tuple(map(tuple, corners[[0, 2]])) for corners in shapes(memory_map(legal), "buffers")}
    # x ends at the step where y takes its place
    assert drawn == {((0, 0), (1, 64)), ((1, 0), (4, 64)), ((2, 64), (4, 128)), ((3, 128), (5, 192))}


def test_a_handover_is_marked_where_the_recipient_is_born(legal: Document) -> None:
    (bars,) = [c for c in memory_map(legal).findobj(LineCollection) if c.get_gid() == "handovers"]
    assert [segment.tolist() for segment in bars.get_segments()] == [[[1, 0], [1, 64]]]


def test_a_stale_read_is_a_red_rectangle_from_writer_to_reader(stale_read: Document) -> None:
    figure = memory_map(stale_read, report=check(stale_read))
    boxes = [corners.min(axis=0).tolist() + corners.max(axis=0).tolist() for corners in shapes(figure, "conflicts")]
    assert [2, 0, 4, 64] in boxes
    (collection,) = [c for c in figure.findobj(PolyCollection) if c.get_gid() == "conflicts"]
    assert mpl.colors.to_hex(collection.get_edgecolor()[0]).upper() == RED.upper()


def test_a_conflict_is_said_in_words_with_victim_writer_and_reader(stale_read: Document) -> None:
    said = texts(memory_map(stale_read, report=check(stale_read)))
    assert "StaleRead: victim y, against z, overwritten by exp (op 2), read late by add (op 3)" in said
    assert "2 conflicts in 5 ops" in said


def test_stale_reads_are_labelled_before_overlaps(broken: Document) -> None:
    said = texts(memory_map(broken, report=check(broken)))
    labels = [line for line in said.splitlines() if re.match(r"\d  ", line)]
    assert len(labels) == 6
    assert labels[0].startswith("1  StaleRead")
    assert not any("Overlap" in label for label in labels)


def test_a_clean_report_says_so_and_draws_nothing_red(large: Document) -> None:
    figure = memory_map(large, report=check(large))
    assert "No conflict in 3,764 ops" in texts(figure)
    assert not shapes(figure, "conflicts")


def test_without_a_report_the_map_judges_nothing(stale_read: Document) -> None:
    assert "conflict" not in texts(memory_map(stale_read)).lower()


@pytest.mark.parametrize(
    ("violation", "box"),
    [
        (Violation(kind="Misaligned", plan=0, buffer=3), [3, 64, 5, 128]),
        (Violation(kind="UnsafeInPlace", run=0, op=2, step=2, value=1, buffer=1, bytes=((0, 16),)), [2, 0, 3, 16]),
        (Violation(kind="Overlap", run=0, buffer=1, other_buffer=2), [2, 0, 4, 64]),
        (Violation(kind="StaleRead", run=0, op=3, buffer=1, other_run=None, bytes=((8, 12),)), [0, 8, 4, 12]),
        (Violation(kind="StaleRead", run=0, op=3, buffer=1, other_run=7, other_op=3, bytes=((8, 12),)), [0, 8, 4, 12]),
        (Violation(kind="Race", run=0, op=1, buffer=1, other_op=3, other_run=0, bytes=((0, 4),)), [1, 0, 4, 4]),
    ],
)  # fmt: skip
def test_each_kind_of_witness_has_its_place(stale_read: Document, violation: Violation, box: list[int]) -> None:
    (corners,) = shapes(memory_map(stale_read, report=report_of(violation)), "conflicts")
    assert corners.min(axis=0).tolist() + corners.max(axis=0).tolist() == box


def test_a_victim_in_pieces_is_drawn_in_pieces(stale_read: Document) -> None:
    pieces = Violation(kind="StaleRead", run=0, op=3, buffer=1, other_run=0, other_op=2, bytes=((0, 4), (32, 36)))
    assert len(shapes(memory_map(stale_read, report=report_of(pieces)), "conflicts")) == 2


@pytest.mark.parametrize(
    "violation",
    [
        Violation(kind="StaleRead", run=1, op=3, buffer=1),
        Violation(kind="MissingPin", problem=0, buffer=3),
        Violation(kind="StaleRead", run=0, op=3, buffer=99),
    ],
)
def test_what_cannot_be_drawn_is_counted(stale_read: Document, violation: Violation) -> None:
    figure = memory_map(stale_read, report=report_of(violation))
    assert not shapes(figure, "conflicts")
    assert "1 violation of another run, another arena or a belief" in texts(figure)


def test_a_kernel_fault_is_on_the_map_though_the_plan_is_legal(legal: Document, record: dict) -> None:
    figure = memory_map(legal, report=check(legal), verdict=record["verdict"])
    assert len(shapes(figure, "conflicts")) == 1
    assert "No conflict in 5 ops, and yet a fault of class C04" in texts(figure)


def test_the_lines_are_the_plans_peak_and_the_bound(large: Document) -> None:
    plan = large.plans[0]
    bound = liveness.lower_bound(plan.program, counted=plan.placed)
    levels = sorted({float(line.get_ydata()[0]) for line in memory_map(large).axes[0].get_lines()})
    assert levels == sorted({float(plan.peak_bytes), float(bound)})


def test_live_bytes_over_time_are_those_of_liveness(broken: Document) -> None:
    plan = broken.plans[0]
    curve = scene(broken, 0).live_bytes(plan.placed)
    dense = np.repeat(curve.height, np.diff(curve.edges))
    paired = liveness.live_bytes(plan.program, counted=plan.placed) - dense
    assert (paired >= 0).all()
    assert curve.peak == liveness.lower_bound(plan.program, counted=plan.placed)


def test_the_reach_never_passes_the_plans_peak_and_gets_there(large: Document) -> None:
    assert scene(large, 0).reach().peak == large.plans[0].peak_bytes


def test_two_plans_are_told_apart_by_name_and_size(large: Document, broken: Document) -> None:
    both = Document.of(large.plans[0], broken.plans[0])
    said = texts(live_bytes(both))
    assert "first fit\n" in said
    assert "Plans take" in said


def test_a_plan_that_runs_twice_is_one_line(legal: Document) -> None:
    plan = legal.plans[0]
    assert texts(live_bytes(Document.of(Run.of(plan), Run.of(plan)))).count("exactly the bound") == 2  # title and label


def test_a_victim_is_numbered_once(stale_read: Document) -> None:
    said = texts(memory_map(stale_read, report=check(stale_read)))
    assert [line[:4] for line in said.splitlines() if re.match(r"\d  ", line)] == ["1  S"]
    assert "and 1 more" in said


def test_a_small_buffer_believed_dead_too_early_is_among_the_rows(broken: Document) -> None:
    problem = broken.problems[0]
    stop = liveness.lifetimes(problem.program)[:, 1]
    early = np.flatnonzero((problem.stop < stop) & ~problem.program.buffers.persistent)
    figure = lifetimes(broken, limit=10)
    assert len(shapes(figure, "derived")) == 10
    assert 5 <= len(shapes(figure, "missed")) <= len(early)


def marked(figure: Figure, gid: str) -> list[tuple[float, float]]:
    """Where markers of a kind stand, as (step, row)."""
    return [(line.get_xdata()[0], line.get_ydata()[0]) for line in figure.findobj(Line2D) if line.get_gid() == gid]


def test_late_reads_and_who_took_the_bytes_are_marked_on_their_rows(stale_read: Document) -> None:
    report = check(stale_read)
    late = next(v for v in report.violations if v.kind == "StaleRead")
    figure = lifetimes(stale_read, report=report)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    buffers = stale_read.programs[0].buffers.names

    ((step, row),) = marked(figure, "late read")
    assert (int(step), names[int(row)].split()[:2]) == (late.op, ["1", buffers[late.buffer]])
    ((step, row),) = marked(figure, "taken")
    assert (int(step), names[int(row)].split()[:2]) == (late.other_op, ["1", buffers[late.other_buffer]])
    assert not marked(lifetimes(stale_read), "late read")


def test_the_parties_of_a_conflict_are_among_few_rows_and_so_is_what_is_believed_in_vain(large: Document) -> None:
    """However small they are, and however large all others."""
    planned = large.plans[0]
    program = planned.program
    small = np.flatnonzero(~program.buffers.persistent & (planned.arena == 0))
    small = small[np.argsort(program.buffers.nbytes[small], kind="stable")][:2].tolist()
    violation = Violation(kind="Overlap", run=0, op=1, buffer=small[0], other_buffer=small[1], message="")
    figure = lifetimes(large, limit=10, report=report_of(violation))
    assert sum(label.get_text().startswith("1  ") for label in figure.axes[0].get_yticklabels()) == 2
    assert "2 buffers are in a conflict" in texts(figure) or "believed dead" in texts(figure)


def test_a_bar_of_one_step_among_very_many_can_be_seen(large: Document) -> None:
    figure = lifetimes(large, limit=None)
    widths = [corners[:, 0].max() - corners[:, 0].min() for corners in shapes(figure, "derived")]
    assert min(widths) >= (figure.axes[0].get_xlim()[1] - figure.axes[0].get_xlim()[0]) / 500


def test_a_believed_death_before_the_last_use_is_red_in_the_lifetimes(stale_read: Document) -> None:
    figure = lifetimes(stale_read)
    missed = [corners[:, 0].tolist() for corners in shapes(figure, "missed")]
    assert [3, 3, 4, 4] in missed
    assert "2 of 4 buffers are believed dead while still needed" in texts(figure)


def test_a_belief_longer_than_needed_is_waste_and_not_red(edges: dict[str, Document]) -> None:
    figure = lifetimes(edges["no plan, a belief"])
    assert shapes(figure, "waste")
    assert not shapes(figure, "missed")


def test_all_buffers_of_a_large_document_can_be_shown(large: Document) -> None:
    figure = lifetimes(large, limit=None)
    assert len(shapes(figure, "derived")) == 3603
    assert len(render(figure, ".svg")) < LARGEST


def test_lifetimes_without_ops_are_the_believed_ones(edges: dict[str, Document]) -> None:
    starts = sorted(corners[:, 0].min() for corners in shapes(lifetimes(edges["no ops"]), "derived"))
    assert starts == [0, 1, 2, 5]


def test_a_lifetime_that_ends_beyond_all_numbers_takes_no_memory(edges: dict[str, Document]) -> None:
    from allocsim.model import Problem  # noqa: PLC0415
    from allocsim.programs.builder import plan_of  # noqa: PLC0415

    program = edges["no ops"].programs[0]
    problem = Problem.of(program, start=[0, 0, 0, 1 << 61], stop=[4, 4, 4, 1 << 62])
    document = Document.of(plan_of(program, {0: 0, 1: 64, 2: 96, 3: 192}, problem=problem))
    for draw in DRAW.values():
        assert render(draw(document), ".svg")


def test_a_run_that_does_not_exist_is_refused(legal: Document, edges: dict[str, Document]) -> None:
    for draw in DRAW.values():
        with pytest.raises(ModelError, match="run: 4 does not exist; there are 1"):
            draw(legal, run=4)
        with pytest.raises(ModelError, match="run: 1 does not exist"):
            draw(edges["no plan"], run=1)


def test_an_arena_or_a_colouring_that_does_not_exist_is_refused(legal: Document) -> None:
    with pytest.raises(ModelError, match="arena: 3 does not exist"):
        memory_map(legal, arena=3)
    with pytest.raises(UnknownNameError, match="colouring 'colour' does not exist"):
        memory_map(legal, by="colour")


@pytest.mark.parametrize("by", ["layer", "kind", "role"])
def test_every_colouring_draws(large: Document, by: str) -> None:
    drawn = [c for c in memory_map(large, by=by).axes[0].collections if c.get_gid() == "buffers"]

    assert sum(len(collection.get_paths()) for collection in drawn) == 3603  # an enlarged part draws some again


def test_layers_colour_a_program_whose_names_have_them(large: Document, legal: Document) -> None:
    assert "layer (grey: none)" in [axes.get_ylabel() for axes in memory_map(large).axes]
    assert "made by" in texts(memory_map(legal))


REAL = sorted(Path(__file__).parents[2].glob("data/ggml/*.json"))


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_ggml_plans_are_drawn_without_a_conflict(path: Path) -> None:
    document = systems.load(path)
    figure = memory_map(document, report=check(document))
    assert "No conflict" in texts(figure)
    assert not shapes(figure, "conflicts")
