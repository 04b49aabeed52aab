"""Ranks by time: when each op begins, who has a lane, and what is alive in that time."""

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from allocsim.model import Arena, Document
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.programs.joined_ranks import joined
from allocsim.programs.rank_meetings import in_meta
from reports import write_report
from reports.figures import streams
from reports.figures.scene import scene
from reports.figures.streams_figure import LANES, MOST, alive, groups_of, in_time
from reports.figures.style import render


def overlapping():
    """w is gathered while f computes; g waits for both, and for f a view is made beside."""
    b = ProgramBuilder("overlap", arenas=(Arena(name="cpu"),), streams=("compute", "comm"))
    v = {name: b.tensor(name, "f32", (16,)) for name in ("x", "part", "w", "y", "z")}
    b.op("host.write", (), (v["x"],))
    b.op("host.write", (), (v["part"],))
    b.op("all_gather", (v["part"],), (v["w"],), stream=1, after=(1,), meta={"collective": "world"})
    b.op("f", (v["x"],), (v["y"],))
    b.view(v["y"], "flat", (4, 4))
    b.op("f", (v["y"],), (v["z"],))
    b.op("g", (v["z"], v["w"]), (b.tensor("out", "f32", (16,)),), after=(2,))
    b.op("host.read", (6,), ())
    return b.build()


def document(program=None):
    program = program or overlapping()
    slots = {buffer: 64 * buffer for buffer in range(len(program.buffers))}
    return Document.of(plan_of(program, slots))


def of_ranks(count):
    """The same program on each rank, meeting in one all_gather."""
    program = overlapping()
    groups = {"world": (tuple(range(count)),)}
    plan = document(replace(program, meta={"ranks": in_meta(count, groups)})).plans[0]
    return joined([plan] * count, groups)


def words(figure):
    return "\n".join(text.get_text() for text in figure.findobj(mpl.text.Text))


def drawn(figure, gid):
    found = [c for c in figure.axes[0].findobj(PolyCollection) if c.get_gid() == gid]
    return [
        tuple(np.concatenate([path.vertices.min(axis=0), path.vertices.max(axis=0)]).tolist())
        for collection in found
        for path in collection.get_paths()
    ]


def test_an_op_begins_when_its_stream_and_what_it_waits_for_are_done():
    timed = in_time(overlapping())
    assert timed.start.tolist() == [0, 1, 2, 2, 3, 3, 4, 5]
    assert timed.stop.tolist() == [1, 2, 3, 3, 3, 4, 5, 6]  # the view takes no time
    assert timed.end == 6


def test_no_op_begins_before_what_it_waits_for_or_before_its_stream_is_free():
    program = of_ranks(3).programs[0]
    timed, ops = in_time(program), program.ops
    for op in ops:
        assert all(timed.stop[before] <= timed.start[op.step] for before in op.after)
    for stream in range(len(program.streams)):
        mine = np.flatnonzero(ops.stream == stream)
        assert (timed.stop[mine[:-1]] <= timed.start[mine[1:]]).all()


def test_each_op_but_a_view_is_a_bar_on_the_lane_of_its_stream():
    figure = streams(document())
    assert drawn(figure, "all_gather") == [(2, 0.6, 3, 1.4)]
    assert [box[:3:2] for box in drawn(figure, "compute")] == [(2, 3), (3, 4), (4, 5)]
    assert [box[:3:2] for box in drawn(figure, "host")] == [(0, 1), (1, 2), (5, 6)]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["compute", "comm"]


def test_a_buffer_is_alive_from_the_first_to_the_last_op_that_touches_it_in_that_time():
    shown = scene(document(), 0)
    timed = in_time(shown.program)
    curve = alive(shown, timed, "")
    assert np.repeat(curve.height, np.diff(curve.edges)).tolist() == [
        64 * held for held in (1, 2, 4, 3, 3, 1)
    ]  # x; x part; x part w y; w y z; w z out; out


@pytest.mark.parametrize("count", [1, 4])
def test_each_rank_has_its_lanes_and_its_live_bytes(count):
    figure = streams(of_ranks(count))
    assert len(figure.axes) == 1 + count
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == [f"rank{rank}  {name}" for rank in range(count) for name in ("compute", "comm")]
    assert len(drawn(figure, "all_gather")) == 2 * count  # given, and got
    assert "drawn" not in words(figure)


def test_of_many_ranks_one_is_drawn_and_all_are_counted():
    said = words(streams(of_ranks(MOST + 1)))
    assert "one of 9 ranks is drawn" in said
    assert "2 streams of 1 rank," in said
    alike = document(replace(overlapping(), meta={"ranks": in_meta(1024, {"world": (tuple(range(1024)),)})}))
    assert "one of 1,024 ranks is drawn" in words(streams(alike))


def test_streams_beyond_the_lanes_are_counted():
    b = ProgramBuilder("many", streams=tuple(f"s{n}" for n in range(LANES + 2)))
    for n in range(LANES + 2):
        b.op("f", (), (b.tensor(f"x{n}", "f32", (4,)),), stream=n)
    figure = streams(Document.of(b.build()))
    assert len(figure.axes[0].get_yticks()) == LANES
    assert f"{LANES} of {LANES + 2} streams are drawn" in words(figure)


def test_streams_are_grouped_by_the_rank_in_their_name():
    assert groups_of(("rank0/a", "rank0/b", "rank10/a", "ranks/a")) == {"rank0": [0, 1], "rank10": [2], "": [3]}


def test_more_collectives_than_colours_have_one_for_the_rest():
    b = ProgramBuilder("many kinds")
    for n in range(9):
        b.op(f"kind{n}", (), (b.tensor(f"x{n}", "f32", (4,)),), meta={"collective": "world"})
    assert "other collectives" in words(streams(Document.of(b.build())))


def test_equal_ranks_give_equal_bytes():
    assert render(streams(of_ranks(2)), ".png") == render(streams(of_ranks(2)), ".png")


def test_a_report_of_several_streams_has_the_picture(record, tmp_path):
    write_report(record, document(), tmp_path / "out")

    assert (tmp_path / "out" / "figures" / "streams.png").is_file()
    assert "Streams by time" in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
