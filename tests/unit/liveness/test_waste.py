"""What lifetimes that are too long cost: counted by hand on a chain, and by every planner's own belief."""

import json
from dataclasses import replace

import numpy as np
import pytest

from allocsim import ProgramBuilder
from allocsim import document as native
from allocsim.allocators import find
from allocsim.cli import main
from allocsim.liveness.waste import waste
from allocsim.model import Document


@pytest.fixture
def chain():
    """x -> a -> b -> c, 64 bytes each; as it is, two of them live at a time."""
    b = ProgramBuilder("chain")
    x, *rest = (b.tensor(name, "f32", (16,)) for name in "xabc")
    b.op("host.write", (), (x,))
    for operand, result in zip((x, *rest), rest, strict=False):
        b.op("exp", (operand,), (result,))
    b.op("host.read", (rest[-1],), ())
    return b.build()


def test_a_belief_that_is_right_wastes_nothing(chain):
    found = waste(find("greedy_by_size").believe(chain), find("greedy_by_size"))

    assert (found.buffers, found.wasted) == ((), 0)
    assert found.live == found.live_believed == 128
    assert found.peak == found.peak_believed == 128


def test_what_is_kept_too_long_is_counted_in_bytes_and_steps(chain):
    """x and a kept to the end: 3 and 2 steps of 64 bytes too many, four buffers at once instead of two."""
    right = find("greedy_by_size").believe(chain)
    late = right.stop.copy()
    late[[0, 1]] = len(chain.ops)
    found = waste(replace(right, stop=late), find("greedy_by_size"))

    assert [(row.name, row.believed, row.derived, row.wasted) for row in found.buffers] == [
        ("x", (0, 5), (0, 2), 3 * 64), ("a", (1, 5), (1, 3), 2 * 64),
    ]  # fmt: skip
    assert (found.wasted, found.live_believed, found.live) == (5 * 64, 256, 128)
    assert (found.allocator, found.peak_believed, found.peak) == ("greedy_by_size", 256, 128)


def test_pins_and_lifetimes_that_are_too_short_are_no_waste(chain):
    right = find("greedy_by_size").believe(chain)
    short = replace(right, stop=np.maximum(np.minimum(right.stop, 2), right.start))
    pinned = replace(right, stop=np.full_like(right.stop, len(chain.ops)), pinned=np.ones_like(right.pinned))

    assert waste(short).wasted == waste(pinned).wasted == 0
    assert waste(short).peak is None
    assert waste(short).short == 2  # of three whose lives are cut, one is pinned
    assert waste(right).short == waste(pinned).short == 0


def test_lifetimes_that_are_too_short_are_told_beside_the_waste(chain, tmp_path, capsys):
    right = find("greedy_by_size").believe(chain)
    short = replace(right, stop=np.maximum(np.minimum(right.stop, 2), right.start))
    native.write(Document.of(short), tmp_path / "believed.json")

    assert main(["explain", str(tmp_path / "believed.json")]) == 0
    told = capsys.readouterr().out
    assert f"{waste(short).short} buffers are believed to live too short, so more may be needed" in told


def test_live_bytes_beyond_64_bits_do_not_wrap():
    b = ProgramBuilder("huge")
    values = [b.tensor(f"x{n}", "u8", (1 << 62,)) for n in range(4)]
    for value in values:
        b.op("host.write", (), (value,))
    b.op("sum", values, (b.tensor("y", "u8", (1,)),))
    right = find("greedy_by_size").believe(b.build())

    assert waste(right).live == waste(right).live_believed == 4 * (1 << 62) + 1


def test_explain_without_a_buffer_tells_what_is_wasted(chain, tmp_path, capsys):
    right = find("greedy_by_size").believe(chain)
    late = right.stop.copy()
    late[0] = len(chain.ops)
    native.write(Document.of(find("greedy_by_size").place(replace(right, stop=late))), tmp_path / "plan.json")

    assert main(["explain", str(tmp_path / "plan.json")]) == 0
    assert "1 buffer is believed to live too long: 192 bytes times steps wasted" in capsys.readouterr().out
    assert main(["explain", str(tmp_path / "plan.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["buffers"][0]["wasted"] == 192


def test_what_a_planner_believes_of_a_file_without_beliefs_can_be_measured(chain, tmp_path, capsys):
    """ggml never frees what is never read: a third output beside the chain lives to its end, 4 steps of 64 bytes too long."""
    b = ProgramBuilder("unread")
    x, y, z = (b.tensor(name, "f32", (16,)) for name in "xyz")
    b.op("host.write", (), (x,))
    b.op("exp", (x,), (y,))
    for _ in range(3):
        b.op("neg", (x,), (b.tensor("n", "f32", (16,)),))
    b.op("exp", (x,), (z,))
    b.op("host.read", (z,), ())
    native.write(Document.of(b.build()), tmp_path / "program.json")
    file = str(tmp_path / "program.json")

    assert main(["explain", file]) == 2
    assert (
        "the file has no problem for this program, so there are no believed lifetimes to measure; name a buffer, or a planner with --belief"
        in capsys.readouterr().err
    )
    assert main(["explain", file, "--belief", "ggml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["believed"], row["derived"]) for row in found["buffers"]] == [
        ("y", [1, 7], [1, 2]), ("n", [2, 7], [2, 3]), ("n", [3, 7], [3, 4]), ("n", [4, 7], [4, 5]),
    ]  # fmt: skip
    assert found["wasted"] == 64 * (5 + 4 + 3 + 2)
    assert main(["explain", file, "--belief", "exact"]) == 0
    assert "0 buffers are believed to live too long: 0 bytes times steps wasted" in capsys.readouterr().out
    assert main(["explain", file, "--belief", "nobody"]) == 2
    assert capsys.readouterr().err.startswith("allocsim: allocator 'nobody' does not exist")


def test_without_ops_nothing_tells_how_long_a_buffer_needs_to_live(tmp_path, capsys):
    (tmp_path / "problem.csv").write_text("id,lower,upper,size\na,0,2,8\nb,1,3,8\n")

    assert main(["explain", str(tmp_path / "problem.csv")]) == 2
    assert capsys.readouterr().err.endswith("the program has no ops, so the liveness of its buffers is not known\n")
