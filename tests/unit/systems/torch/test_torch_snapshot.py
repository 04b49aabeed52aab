"""PyTorch's memory snapshots: blocks, their lives and their addresses, and pickles that are more than containers."""

import os
import pickle
import random
import struct

import pytest
from plan_laws import DAMAGED, law_of_damage

from allocsim import systems
from allocsim.errors import DocumentError
from allocsim.judge.fast import check
from allocsim.systems.torch.torch_snapshot import loads, looks_like

BASE = 0x7F0000000000


def event(action, address, size, time, **more):
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": [], **more}


def snapshot(*events, segments=(), devices=1):
    return {
        "segments": list(segments),
        "device_traces": [list(events)] + [[] for _ in range(devices - 1)],
        "allocator_settings": {},
    }


def first_fit(steps, seed):
    """A snapshot of an allocator that gives the first free block, over one segment."""
    rng, free, live = random.Random(seed), [(BASE, 1 << 30)], []
    found = [event("segment_alloc", BASE, 1 << 30, 0)]
    for time in range(1, steps):
        if live and rng.random() < 0.45:
            address, size = live.pop(rng.randrange(len(live)))
            found += [event("free_requested", address, size, time), event("free_completed", address, size, time)]
            free = sorted([*free, (address, size)])
        else:
            size = 512 * rng.randint(1, 9)
            at = next(at for at, (_, room) in enumerate(free) if room >= size)
            address, room = free[at]
            free[at : at + 1] = [(address + size, room - size)] if room > size else []
            live.append((address, size))
            found.append(event("alloc", address, size, time))
    return snapshot(*found)


def dumped(whole, protocol=4):
    return pickle.dumps(whole, protocol=protocol)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_clean_snapshot_stays_clean(protocol):
    document = loads(dumped(first_fit(300, 1), protocol))
    report = check(document)

    assert report.violations == ()
    assert report.stats.lower_bound_bytes <= report.stats.peak_bytes


def test_the_bound_is_what_the_lives_need_and_the_peak_what_the_blocks_reach():
    whole = snapshot(
        event("segment_alloc", BASE, 4096, 0),
        event("alloc", BASE, 1024, 1),
        event("alloc", BASE + 1024, 512, 2),
        event("free_requested", BASE, 1024, 3),
        event("free_completed", BASE, 1024, 4),
        event("alloc", BASE + 1536, 2048, 5),
    )
    report = check(loads(dumped(whole)))

    assert (report.stats.peak_bytes, report.stats.lower_bound_bytes) == (3584, 2560)


@pytest.mark.parametrize("seed", range(5))
def test_a_block_shifted_onto_a_live_neighbour_is_found(seed):
    whole = first_fit(200, seed)
    events = whole["device_traces"][0]
    live = {}
    for row in events:
        if row["action"] == "alloc":
            live[row["addr"]] = row
        elif row["action"] == "free_completed":
            live.pop(row["addr"])
    one, other = random.Random(seed).sample(sorted(live), 2)
    live[other]["addr"] = one + 256

    assert {v.kind for v in check(loads(dumped(whole))).violations} >= {"Overlap"}


def test_a_block_freed_too_early_is_found():
    """`free_completed` before its time: the next owner is clean. Without it, two live blocks share bytes."""
    events = [event("alloc", BASE, 512, 1), event("free_completed", BASE, 512, 2), event("alloc", BASE, 512, 3)]

    assert check(loads(dumped(snapshot(*events)))).clean
    assert not check(loads(dumped(snapshot(events[0], events[2])))).clean


def test_free_requested_does_not_end_a_life():
    events = [event("alloc", BASE, 512, 1), event("free_requested", BASE, 512, 2), event("alloc", BASE, 512, 3)]

    assert not check(loads(dumped(snapshot(*events)))).clean


def test_blocks_from_before_the_trace_live_from_its_start():
    blocks = [
        {"address": BASE, "size": 512, "state": "active_allocated"},
        {"address": BASE + 512, "size": 512, "state": "inactive"},
    ]
    segment = {"device": 0, "address": BASE, "total_size": 1024, "stream": 0, "blocks": blocks}
    over = snapshot(event("alloc", BASE, 512, 1), event("free_completed", BASE, 512, 2), segments=[segment])
    problem = loads(dumped(over)).problems[0]

    assert (problem.start.tolist(), problem.stop.tolist()) == ([0, 0], [1, 2])
    assert not check(loads(dumped(over))).clean


def test_devices_are_arenas_and_addresses_are_laid_together():
    whole = snapshot(event("alloc", BASE, 512, 1), event("alloc", BASE + (1 << 40), 512, 2), devices=2)
    whole["device_traces"][1].append(event("alloc", BASE, 1024, 1))
    document = loads(dumped(whole))

    assert [arena.capacity for arena in document.programs[0].arenas] == [1024, 1024]
    assert check(document).stats.peak_bytes == 2048


def test_the_format_is_told_by_the_content(tmp_path):
    path = tmp_path / "anything"
    path.write_bytes(dumped(first_fit(50, 0)))

    assert looks_like(path.read_bytes())
    assert systems.load(path).plans[0].source == "torch memory snapshot"


class Evil:
    def __reduce__(self):
        return os.getpid, ()


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_runs_code_is_refused(protocol):
    with pytest.raises(DocumentError, match="is not a pickle of plain containers"):
        loads(pickle.dumps({"segments": [Evil()], "device_traces": []}, protocol=protocol), "x.pickle")


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"\x80\x02}r" + struct.pack("<I", 1 << 30) + b".", "names a memo entry above"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b".", "ends at byte"),
        (b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".", "ends at byte"),
        (b"\x80\x04\x8c", "the pickle has no stop op|ends at byte"),
        (b"\x80\x04}", "the pickle has no stop op"),
        (b"", "the pickle has no stop op"),
        (dumped([]), "device_traces: is not a list"),
        (dumped({"device_traces": [3]}), r"device_traces\[0\]: is not a list"),
        (dumped({"device_traces": [[3]]}), r"device_traces\[0\]\[0\]: is not an event"),
        (dumped(snapshot()), "no plan here"),
        (dumped(snapshot(event("alloc", -1, 4, 0))), "addr is '-1', not from 0 to 2"),
        (dumped(snapshot(event("alloc", 1, 1 << 63, 0))), "size is '9223372036854775808'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(data, rule):
    with pytest.raises(DocumentError, match=rule):
        loads(data, "x.pickle")


@DAMAGED
def test_damaged_snapshots_end_in_one_line(times):
    read, refused = law_of_damage(dumped(first_fit(40, 3)), loads, seed=3, times=times)

    assert read > 0
    assert refused > 0
