"""Sizes that only the run decides: one report of both ends, each record with the ends at which it was found."""

import pytest

from allocsim import check
from allocsim.model import Document, Problem
from allocsim.programs.builder import ProgramBuilder, plan_of


def document(offset, *, size=(4, 16), x=0, z=None, up=True):
    """Two buffers that live at once, the second of them at `offset` and of 4 to 16 bytes, and a third far away that lies on it too where it is 16."""
    slots = [x, offset, offset + 8 if z is None else z]
    b = ProgramBuilder("ranged")
    x, y = (
        b.tensor("x", "u8", (8,), alignment=1),
        b.value("y", b.buffer("y", 8, nbytes_range=size, alignment=1), "u8", (4,)),
    )
    z = b.tensor("z", "u8", (8,), alignment=1)
    b.op("host.write", (), (x,))
    for kind, result in (("f", y), ("g", z))[:: 1 if up else -1]:
        b.op(kind, (x,), (result,))
    b.op("host.read", (x, y, z), ())
    made = b.build()
    return Document.of(plan_of(made, slots))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (document(8), {("y", "z"): ("high",)}),
        (document(4), {("x", "y"): ("low", "high"), ("y", "z"): ("high",)}),
        (document(0, x=10, z=2, up=False), {("x", "y"): ("high",), ("y", "z"): ("low", "high")}),
    ],
    ids=["large only", "the one at both, the other large only", "the one large only, the other at both"],
)
def test_a_record_says_at_which_ends_it_was_found(made, expected):
    report = check(made)
    names = made.programs[0].buffers.names
    found = [v for v in report.violations if v.kind == "Overlap"]
    assert {tuple(sorted((names[v.buffer], names[v.other_buffer]))): v.ends for v in found} == expected
    for v in found:
        assert v.message.endswith(f"(at the {' and the '.join(v.ends)} end of the sizes)")
    assert report.counts["Overlap"] == len(expected)
    assert report.count == len(report.violations)
    assert not report.truncated


def test_what_is_clean_at_both_ends_is_clean_and_the_larger_sizes_are_said():
    report = check(document(8, size=(4, 8)))
    assert report.clean
    assert (report.stats.peak_bytes, report.stats.lower_bound_bytes) == (24, 24)
    large = check(document(8, size=(4, 16)))
    assert large.stats.lower_bound_bytes == 32


def test_a_list_that_is_cut_keeps_its_count():
    """The count is then the larger of the two ends'."""
    whole = check(document(4))
    for limit in range(len(whole.violations) + 1):
        report = check(document(4), limit=limit)
        assert len(report.violations) == limit
        assert report.truncated is (limit < len(whole.violations))
        assert report.count == max(len(whole.violations), limit)
        assert report.counts["Overlap"] == whole.counts["Overlap"]


@pytest.mark.parametrize(("stated", "needed"), [(None, 16), (12, 12)])
def test_a_size_that_a_belief_states_has_no_ends(stated, needed):
    """Without ops the belief is all there is: it needs the bytes it states, or those of the end that it leaves open."""
    b = ProgramBuilder("no ops")
    b.buffer("y", 8, nbytes_range=(4, 16), alignment=1)
    made = b.build()
    told = Problem.of(made, start=[0], stop=[1], **({} if stated is None else {"nbytes": [stated]}))
    (found,) = (v for v in check(Document.of(plan_of(made, [0], problem=told))).violations if v.kind == "Undersized")
    assert found.message.startswith(f"buffer 0 'y' needs {needed} bytes; its slot has 8")


def test_a_sentence_names_the_slots_of_its_own_plan():
    made = document(8, size=(4, 8)).programs[0]
    told = check(Document.of(plan_of(made, [0, 8, 16]), plan_of(made, [32, 36, 64]))).violations
    (found,) = (v.message for v in told if v.kind == "Overlap")
    assert "cpu[32, 40)" in found


def test_what_is_lost_of_a_size_believed_too_small_is_told():
    b = ProgramBuilder("p")
    b.op("host.write", (), (b.tensor("x", "u8", (8,)),))
    made = b.build()
    told = Problem.of(made, start=[0], stop=[1], nbytes=[5])
    (found,) = (v for v in check(Document.of(plan_of(made, [0], problem=told))).violations if "believed" in v.message)
    assert found.message == "buffer 0 'x' is believed to have 5 bytes; it has 8: 3 are missing"
