"""Judging all ranks by one, at the size of a real cluster, and where they are not alike."""

from dataclasses import replace

import numpy as np
import pytest

from allocsim.allocators import find
from allocsim.allocators.over_streams import over_streams
from allocsim.diagnostics import check
from allocsim.errors import ModelError
from allocsim.model import Document, Event
from allocsim.programs.builder import ProgramBuilder, plan_of
from engine.sharding import judge_ranks


def chain(length, kind="all_reduce", *, waits=True):
    """A program of `length` rounds: compute, then a collective on what was made."""
    b = ProgramBuilder("p", streams=("compute", "comm"))
    last = b.tensor("x", "u8", (64,))
    at = b.op("host.write", (), (last,))
    for number in range(length):
        made = b.tensor(f"g{number}", "u8", (64,))
        at = b.op("f", (last,), (made,), after=[at] if waits and number else [])
        last = b.tensor(f"s{number}", "u8", (64,))
        at = b.op(kind, (made,), (last,), stream=1, after=[at], meta={"collective": "world"})
    b.op("host.read", (last,), (), after=[at])
    return b.build()


def planned(program):
    return find("best_fit").place(over_streams(find("best_fit").believe(program)))


@pytest.mark.parametrize("waits", [True, False])
def test_a_thousand_ranks_that_are_alike_are_judged_by_one(waits):
    """Objects of their own for each rank, told alike by content."""
    program = chain(20)
    plan = planned(program)
    if not waits:
        plan = replace(plan, program=chain(20, waits=False), problem=None)
    report = judge_ranks([replace(plan) for _ in range(1024)], {"world": [tuple(range(1024))]})
    assert report.judged == 1
    assert report.clean == waits


def test_ranks_that_are_not_alike_are_judged_together():
    """Another plan for one rank: all are joined. Another program: it does not match."""
    program = chain(3)
    plan = planned(program)
    apart = plan_of(program, {n: 64 * n for n in range(len(program.buffers))})
    report = judge_ranks([plan, apart], {"world": [(0, 1)]})
    assert (report.judged, report.clean) == (2, True)
    other = planned(chain(3, "all_gather"))
    (fault,) = judge_ranks([plan, other], {"world": [(0, 1)]}).faults
    assert fault.kind == "CollectiveMismatch"


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_ranks_of_which_one_tells_other_events_are_not_taken_for_alike(odd):
    """Whichever rank it is."""
    plan = planned(chain(3))
    twice = np.array([[0, int(Event.FREE), 0], [0, int(Event.FREE), 0]])
    plans = [replace(plan, events=twice) if rank == odd else plan for rank in range(3)]
    assert judge_ranks(plans, {"world": [(0, 1, 2)]}).judged == 3


def test_ranks_with_messages_are_judged_together_though_all_have_one_program():
    """Of two that both bring to the second, the second would bring to itself; one judged alone is clean."""
    b = ProgramBuilder("p")
    value = b.tensor("v", "u8", (64,))
    b.op("host.write", (), (value,))
    b.op("send", (value,), (), meta={"collective": "world", "to": 1})
    plan = planned(b.build())
    assert check(Document.of(plan)).clean
    with pytest.raises(ModelError, match="1 is no other of 2 ranks"):
        judge_ranks([plan, plan], {"world": [(0, 1)]})


def test_ranks_that_do_not_all_meet_are_not_judged_by_one():
    """A group that leaves out a rank which names it is refused, alike or not."""
    plan = planned(chain(2))
    with pytest.raises(Exception, match="rank 2 is in no part of group 'world'"):
        judge_ranks([plan] * 3, {"world": [(0, 1)]})
    assert np.array_equal(plan.arena, np.zeros(len(plan.arena)))
