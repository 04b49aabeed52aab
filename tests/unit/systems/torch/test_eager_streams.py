"""Streams of a recorded PyTorch program, on tensors of the CPU: stream numbers are given, events are told by torch's own callbacks."""

from contextlib import contextmanager

import pytest

import allocsim.systems.torch
from allocsim.errors import AllocsimError
from allocsim.judge.fast import check
from allocsim.systems.torch.device_streams import CudaStreams
from allocsim.systems.torch.ledger import HOST
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence

torch = pytest.importorskip("torch", reason="the recorder records torch; the ledger beneath is tested without")
told = pytest.importorskip("torch.cuda._gpu_trace", reason="torch's callbacks for events")
MAIN, SIDE = 11, 12


class Given:
    """Stream numbers that a test gives: tensors of the CPU lie on a device that has streams."""

    def __init__(self):
        self.now, self.freed = MAIN, False

    def current(self, device):
        return self.now if device.type == "cpu" else HOST

    def named(self, stream):
        return stream.stream_id

    def numbered(self, number):
        return number

    def gave_back(self, _device):
        return self.freed

    @contextmanager
    def on(self, number):
        before, self.now = self.now, number
        yield
        self.now = before


def wait(of, by, event=900):
    """What torch tells of `by.wait_stream(of)`."""
    told.EventCreationCallbacks.fire_callbacks(event)
    told.EventRecordCallbacks.fire_callbacks(event, of)
    told.EventWaitCallbacks.fire_callbacks(event, by)
    told.EventDeletionCallbacks.fire_callbacks(event)


@pytest.fixture(scope="module", autouse=True)
def record_stream_of_the_cpu():
    """`record_stream` has a kernel for accelerators alone; this one lets the operator be called."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("record_stream", lambda _tensor, _stream: None, "CPU")
    yield
    library._destroy()


def named(number):
    return torch.Stream(stream_id=number, device_index=0, device_type=1)


def several():
    """Return tensors, and where they lie."""
    made = [torch.ones(1 << 14) for _ in range(16)]
    return made, [(row.data_ptr(), row.data_ptr() + row.nbytes) for row in made]


def taken_again(places):
    """Return tensors, the last of which lies on one of these places; the C library serves what is free before it asks for more."""
    found = []
    while not found or not any(
        low < found[-1].data_ptr() + found[-1].nbytes and found[-1].data_ptr() < high for low, high in places
    ):
        assert len(found) < 5000
        found.append(torch.zeros(1 << 13))
    return found


def used_on_another_stream(between=None):
    """Memory is filled on one stream, read on another, let go of, and its bytes serve the first again."""
    given = Given()
    with allocsim.systems.torch.record(streams=given) as r:
        made, places = several()
        wait(MAIN, SIDE)
        with given.on(SIDE):
            read = [row + 1 for row in made]
        while made:
            row = made.pop()
            if between == "record_stream":
                row.record_stream(named(SIDE))
            del row
        if between in TOLD:
            TOLD[between]()
        given.freed = between == "cudaFree"
        others = taken_again(places)
    assert len(read) + len(others) > 16
    return r.document


TOLD = {
    "event": lambda: wait(SIDE, MAIN),
    "stream synchronised": lambda: told.StreamSynchronizationCallbacks.fire_callbacks(SIDE),
    "device synchronised": told.DeviceSynchronizationCallbacks.fire_callbacks,
}


def causes_of(document):
    return {(cause.class_, cause.party) for cause in judge(Evidence(document=document)).causes}


def test_memory_that_another_stream_still_reads_races_with_its_next_owner():
    document = used_on_another_stream()

    assert {v.kind for v in check(document).violations} == {"Race"}
    assert causes_of(document) == {("C09", "schedule")}


@pytest.mark.parametrize("between", [*TOLD, "record_stream", "cudaFree"])
def test_the_same_program_is_clean_where_something_orders_the_two(between):
    document = used_on_another_stream(between)

    assert check(document).violations == ()
    assert document.programs[0].meta == ({"assumed_returns": 1} if between == "record_stream" else {})


def test_memory_of_one_stream_that_serves_another_with_nothing_between_is_the_plans_fault():
    given = Given()
    with allocsim.systems.torch.record(streams=given) as r:
        made, places = several()
        made.clear()
        with given.on(SIDE):
            _ = taken_again(places)

    assert causes_of(r.document) == {("C09", "plan")}


def test_a_read_with_no_wait_for_what_is_read_is_the_schedules_fault():
    given = Given()
    with allocsim.systems.torch.record(streams=given) as r:
        a = torch.ones(64)
        with given.on(SIDE):
            b = a + 1

    assert causes_of(r.document) == {("C09", "schedule")}
    assert b.sum() == 128


def test_an_event_that_waits_for_too_little_orders_what_came_before_it_alone():
    given = Given()
    with allocsim.systems.torch.record(streams=given) as r:
        told.EventRecordCallbacks.fire_callbacks(900, MAIN)
        a = torch.ones(64)
        told.EventWaitCallbacks.fire_callbacks(900, SIDE)
        with given.on(SIDE):
            _ = a + 1

    assert {v.kind for v in check(r.document).violations} == {"Race"}


def test_what_a_program_looks_at_is_done_and_its_ops_are_on_their_streams():
    given = Given()
    with allocsim.systems.torch.record(streams=given) as r:
        a = torch.empty(64).fill_(2)
        total = float(a.sum())
        with given.on(SIDE):
            _ = a + total
    program = r.document.programs[0]

    assert check(r.document).violations == ()
    assert program.streams == (HOST, str(MAIN), str(SIDE))
    assert {(op.kind, op.stream) for op in program.ops if op.kind != "view"} == {
        ("empty", 1), ("fill_", 1), ("sum", 1), ("host.read", 1), ("add", 2), ("host.read", 0),
    }  # fmt: skip
    assert any("addresses" in line for line in r.lines())


def test_a_backward_pass_on_two_streams_is_clean_where_they_wait_for_each_other():
    given = Given()
    x = torch.randn(16, 16, requires_grad=True)
    with allocsim.systems.torch.record({"x": x}, streams=given) as r:
        y = (x @ x).relu()
        wait(MAIN, SIDE)
        with given.on(SIDE):
            (y * y).sum().backward()
        wait(SIDE, MAIN, event=901)
        x.grad.add_(1)

    assert check(r.document).violations == ()


def test_nothing_is_heard_before_and_after_a_recording():
    lists = [registry.callback_list for registry in vars(told).values() if hasattr(registry, "callback_list")]
    before = [len(heard) for heard in lists]
    with allocsim.systems.torch.record(streams=Given()):
        during = [len(heard) for heard in lists]

    assert [len(heard) for heard in lists] == before
    assert sum(during) == sum(before) + 7


@pytest.mark.parametrize("ordered", [False, True])
def test_what_a_forward_pass_saved_is_not_told_to_the_allocator_by_the_backward_pass(ordered):
    """The memory is let go of after a backward pass on another stream has read it, and serves the first stream again."""
    given = Given()
    weight = torch.ones((), requires_grad=True)
    with allocsim.systems.torch.record({"weight": weight}, streams=given) as r:
        made, places = several()
        loss = sum((row * weight).sum() for row in made)
        wait(MAIN, SIDE)
        with given.on(SIDE):
            loss.backward()
        made.clear()
        del loss
        if ordered:
            wait(SIDE, MAIN, event=901)
        others = taken_again(places)

    assert len(others) > 0
    found = causes_of(r.document)  # C's allocator also hands on what the backward pass made, which is no stream's
    assert found == set() if ordered else ("C09", "schedule") in found


def test_what_is_no_cuda_device_gives_nothing_back_and_has_the_hosts_order():
    streams = CudaStreams()

    assert streams.gave_back(torch.device("cpu")) is False
    assert streams.current(torch.device("cpu")) == HOST


def test_a_torch_that_tells_less_is_refused_and_nothing_is_left_behind(monkeypatch):
    before = list(told.EventCreationCallbacks.callback_list)
    monkeypatch.delattr(told, "DeviceSynchronizationCallbacks")
    with (
        pytest.raises(AllocsimError, match=r"^torch\.cuda\._gpu_trace has no DeviceSynchronizationCallbacks: "),
        allocsim.systems.torch.record(streams=Given()),
    ):
        pass
    assert told.EventCreationCallbacks.callback_list == before
