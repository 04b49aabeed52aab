"""Recordings of `torch.distributed`: what a collective reads and writes, where ranks meet, and all ranks as one."""

import subprocess
import sys
from pathlib import Path
from threading import Thread, get_ident

import pytest

torch = pytest.importorskip("torch", reason="recordings need torch")
dist = pytest.importorskip("torch.distributed", reason="ranks need torch.distributed")
fake_pg = pytest.importorskip("torch.testing._internal.distributed.fake_pg", reason="one process for four ranks")

from allocsim import Role, systems  # noqa: E402 - as below
from allocsim.cli import main  # noqa: E402 - what is optional comes first
from allocsim.diagnostics import check  # noqa: E402
from allocsim.programs.rank_meetings import collectives  # noqa: E402
from allocsim.systems.torch import record  # noqa: E402
from allocsim.systems.torch.ledger import Ledger  # noqa: E402
from allocsim.verdict import judge  # noqa: E402
from allocsim.verdict.evidence import Evidence  # noqa: E402
from tests.unit.systems.torch.test_eager_streams import MAIN, SIDE, Given  # noqa: E402

ROOT = Path(__file__).parents[4]
STEP = Path(__file__).with_name("ranked_step.py")
GROUP = "ranks 0, 1, 2, 3"
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")  # torch's names change


@pytest.fixture
def rank():
    """This process as rank 1 of 4 whose collectives move nothing."""
    dist.init_process_group("fake", rank=1, world_size=4, store=fake_pg.FakeStore())
    yield 1
    dist.destroy_process_group()


def kinds(violations):
    return [violation.kind for violation in violations]


def causes(document):
    return [(cause.class_, cause.party) for cause in judge(Evidence(document=document)).causes]


def recorded(step):
    with record() as recording:
        kept = step()
    assert kept is not None
    return recording.document


def summed():
    x = torch.ones(8)
    dist.all_reduce(x)
    return x + 1


def gathered():
    found = torch.empty(32)
    dist.all_gather_into_tensor(found, torch.ones(8))
    return found + 1


def gathered_in_place():
    found = torch.empty(32)
    mine = found[8:16]
    mine.fill_(1)
    dist.all_gather_into_tensor(found, mine)
    return found + 1


def gathered_in_place_of_another():
    found = torch.empty(32)
    mine = found[16:24]
    mine.fill_(1)
    dist.all_gather_into_tensor(found, mine)
    return found + 1


def scattered():
    mine = torch.empty(8)
    dist.reduce_scatter_tensor(mine, torch.ones(32))
    return mine + 1


def scattered_in_place():
    all_of_it = torch.ones(32)
    dist.reduce_scatter_tensor(all_of_it[8:16], all_of_it)
    return all_of_it[8:16] + 1


def listed():
    found = [torch.empty(8) for _ in range(4)]
    dist.all_gather(found, torch.ones(8))
    return found[3] + 1


def sent_to_all():
    x = torch.ones(8)
    dist.broadcast(x, src=0)
    return x + 1


def functional():
    from torch.distributed import _functional_collectives as functional  # noqa: PLC0415 - optional

    return functional.all_gather_tensor(torch.ones(8), 0, dist.group.WORLD) + 1


RIGHT = (summed, gathered, gathered_in_place, scattered, scattered_in_place, listed, sent_to_all, functional)


@pytest.mark.parametrize("step", RIGHT, ids=lambda step: step.__name__)
def test_a_collective_writes_what_its_schema_does_not_say(step, rank):
    document = recorded(step)
    assert check(document).clean
    (program,) = document.programs
    assert [group for _, group in collectives(program)] == [GROUP]
    assert program.meta["ranks"] == {"count": 4, "groups": {GROUP: [[0, 1, 2, 3]]}}


def test_what_is_gathered_may_lie_in_its_own_place_alone(rank):
    report = check(recorded(gathered_in_place_of_another))
    assert kinds(report.violations) == ["UnsafeInPlace"]


def test_what_nobody_wrote_is_told_before_a_collective_brings_it(rank):
    def step():
        found = torch.empty(32)
        dist.all_gather_into_tensor(found, torch.empty(8))
        return found + 1

    assert kinds(check(recorded(step)).violations) == ["UninitialisedRead"]


def test_ranks_that_bring_different_sizes_are_not_joined(rank, tmp_path, capsys):
    def step():
        found = torch.empty(8)
        dist.all_to_all_single(found, torch.ones(8), [1, 2, 3, 2], [2, 2, 2, 2])
        return found + 1

    from allocsim import document  # noqa: PLC0415 - beside the fixture of that meaning

    document.write(recorded(step), tmp_path / "rank.json")
    assert main(["join", str(tmp_path / "rank.json"), "--out", str(tmp_path / "out.json")]) == 2
    assert "says neither how many ranks there are" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fill", "found"),
    [(lambda x: x.numpy().__setitem__(slice(None), 1.0), []), (lambda _: None, ["UninitialisedRead"])],
    ids=["filled by the host", "filled by nobody"],
)
@pytest.mark.parametrize("length", [1, 3000])
def test_memory_that_the_host_fills_by_itself_is_no_unwritten_memory(fill, found, length):
    def step():
        x = torch.empty(length)
        fill(x)
        return x + 1

    assert kinds(check(recorded(step)).violations) == found


@pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")
@pytest.mark.parametrize("how", ["fsdp", "ddp"])
def test_what_every_rank_of_a_real_step_recorded_is_joined_and_clean(how, tmp_path):
    """FSDP2 and DDP on the CPU, two processes that meet by gloo."""
    begun = [
        subprocess.Popen(
            [sys.executable, str(STEP), how, str(tmp_path), str(rank)],
            env={"PYTHONPATH": f"{ROOT}:{':'.join(sys.path)}", "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    ended = [(process.communicate(timeout=300)[1], process.returncode) for process in begun]
    assert [code for _, code in ended] == [0, 0], ended
    files = [str(tmp_path / f"{rank}.json") for rank in range(2)]
    assert [main(["check", path]) for path in files] == [0, 0]
    for path in files:  # what DTensor does to its parts is seen: moments and weights are written
        (program,) = systems.load(path).programs
        assert {"addcdiv_", "addcmul_"} <= set(program.ops.kinds)
        assert (program.buffers.role == Role.STATE).sum() >= 18
    assert main(["join", *files, "--out", str(tmp_path / "ranks.json")]) == 0
    assert main(["check", str(tmp_path / "ranks.json")]) == 0


@pytest.fixture
def alone():
    """This process as the only rank of a group of gloo, whose threads run what is not waited for."""
    if not dist.is_gloo_available():
        pytest.skip("needs gloo")
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


def begun(of, **options):
    return dist.all_reduce(of, async_op=True, **options)


def waited():
    x = torch.ones(8)
    begun(x).wait()
    return x + 1


def polled():
    x = torch.ones(8)
    work = begun(x)
    while not work.is_completed():
        pass
    return x + 1


def told_by_a_future():
    x = torch.ones(8)
    begun(x).get_future().wait()
    return x + 1


def read_meanwhile():
    x, found = torch.ones(8), torch.empty(8)
    work = dist.all_gather_into_tensor(found, x, async_op=True)
    doubled = x * 2
    work.wait()
    return found + doubled


def the_second_waited_for_first():
    x, y = torch.ones(8), torch.ones(8)
    works = begun(x), begun(y)
    works[1].wait()
    doubled = y * 2
    works[0].wait()
    return x + doubled


def given_back_meanwhile():
    x = torch.ones(1 << 12)
    work = begun(x)
    del x
    work.wait()
    del work
    return torch.zeros(1 << 12) + 1


def let_go_of():
    begun(torch.ones(1 << 12))
    return [torch.zeros(1 << 12) + 1 for _ in range(4)]


ORDERED = (
    waited, polled, told_by_a_future, read_meanwhile, the_second_waited_for_first, given_back_meanwhile, let_go_of,
    functional, summed,
)  # fmt: skip


@pytest.mark.parametrize("step", ORDERED, ids=lambda step: step.__name__)
def test_a_collective_that_is_waited_for_before_its_memory_is_touched_is_clean(step, alone):
    assert causes(recorded(step)) == []


@pytest.mark.parametrize(
    ("step", "streams"),
    [
        (summed, ("main",)),
        (waited, ("host", "collectives of ranks 0")),
        (the_second_waited_for_first, ("host", "collectives of ranks 0", "collectives of ranks 0 (2)")),
    ],
)
def test_each_collective_that_may_run_beside_others_has_a_stream(step, streams, alone):
    assert recorded(step).programs[0].streams == streams


def read_before_it_is_waited_for():
    x = torch.ones(8)
    work = begun(x)
    y = x + 1
    work.wait()
    return y


def overwritten_before_it_is_waited_for():
    x, found = torch.ones(8), torch.empty(8)
    work = dist.all_gather_into_tensor(found, x, async_op=True)
    x.mul_(2)
    work.wait()
    return found + x


def two_at_once():
    x = torch.ones(8)
    for work in [begun(x), begun(x)]:
        work.wait()
    return x + 1


def the_other_waited_for():
    x, y = torch.ones(8), torch.ones(8)
    work, other = begun(x), begun(y)
    other.wait()
    z = x + y
    work.wait()
    return z


def never_waited_for():
    x = torch.ones(8)
    begun(x)
    return x + 1


def let_go_of_twice():
    x = torch.ones(8)
    begun(x)
    begun(x)
    return x


def synchronized_alone():
    """On the CPU that returns before the other ranks have come."""
    x = torch.ones(8)
    work = begun(x)
    work.synchronize()
    y = x + 1
    work.wait()
    return y


def asked_for_by_a_number():
    x = torch.ones(8)
    work = dist.all_reduce(x, async_op=1)
    y = x + 1
    work.wait()
    return y


def in_two_groups_of_the_same_ranks():
    x = torch.ones(8)
    for work in [dist.all_reduce(x, group=group, async_op=True) for group in (dist.group.WORLD, dist.new_group([0]))]:
        work.wait()
    return x + 1


def functional_and_read_at_once():
    made = torch.ops._c10d_functional.all_reduce(torch.ones(8), "sum", dist.group.WORLD.group_name)
    read = made + 1
    torch.ops._c10d_functional.wait_tensor(made)
    return read


UNORDERED = (
    read_before_it_is_waited_for, overwritten_before_it_is_waited_for, two_at_once, the_other_waited_for,
    never_waited_for, functional_and_read_at_once, let_go_of_twice, synchronized_alone,
    asked_for_by_a_number, in_two_groups_of_the_same_ranks,
)  # fmt: skip


@pytest.mark.parametrize("step", UNORDERED, ids=lambda step: step.__name__)
def test_what_is_touched_while_a_collective_may_run_is_the_schedules_fault(step, alone):
    assert causes(recorded(step)) == [("C09", "schedule")]


@pytest.mark.parametrize("backend", [None, "cpu:gloo,cuda:gloo"], ids=["unsaid", "by device"])
def test_the_library_is_that_of_the_tensors_device(backend):
    """`dist.get_backend` says "undefined" where a program names none, and all of them where it names several."""
    dist.init_process_group(backend, rank=0, world_size=1, store=dist.HashStore())
    try:
        assert causes(recorded(two_at_once)) == [("C09", "schedule")]
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("behind", [False, True])
def test_nobody_reads_the_memory_by_which_a_barrier_tells_its_device(behind, alone):
    def step():
        work = dist.barrier(async_op=behind)
        if behind:
            work.wait()
        return torch.ones(2) + 1

    assert causes(recorded(step)) == []


def test_what_another_thread_gives_back_is_written_down_by_the_one_that_records(monkeypatch):
    """Threads of gloo have the last hold of the tensors of a collective that was let go of."""
    threads, free = [], Ledger.free
    monkeypatch.setattr(Ledger, "free", lambda ledger, key: (threads.append(get_ident()), free(ledger, key)))

    def step():
        held = [torch.ones(1 << 12)]
        thread = Thread(target=held.clear)
        thread.start()
        thread.join()
        return torch.zeros(1 << 12) + 1

    assert causes(recorded(step)) == []
    assert threads
    assert set(threads) == {get_ident()}


def test_a_library_that_keeps_the_order_of_calls_needs_one_wait_for_two(rank):
    """NCCL has one stream a group; the group that moves nothing stands for it."""

    def step():
        x = torch.ones(8)
        first, last = begun(x), begun(x)
        last.wait()
        assert first is not last
        return x + 1

    assert causes(recorded(step)) == []


@pytest.mark.parametrize(("early", "found"), [(False, []), (True, [("C09", "schedule")])], ids=["waited", "early"])
def test_a_message_has_come_where_it_is_waited_for(early, found, rank):
    def step():
        brought, taken = torch.ones(8), torch.empty(8)
        works = dist.isend(brought, 0), dist.irecv(taken, 0)
        for work in works[: 1 if early else 2]:
            work.wait()
        read = taken + 1
        for work in works:
            work.wait()
        return read

    assert causes(recorded(step)) == found


def test_works_are_left_as_they_were(alone):
    before = dict(vars(dist.Work))
    recorded(waited)
    assert dict(vars(dist.Work)) == before


def test_what_waits_on_a_device_orders_the_stream_that_waits_alone(rank):
    """Tensors of the CPU on given streams: a collective comes after its caller's stream, and before the one that waits."""
    given = Given()

    def step(waiting, reading):
        with record(streams=given) as recording:
            x = torch.ones(8)
            work = begun(x)
            with given.on(waiting):
                work.wait()
            with given.on(reading):
                kept = x + 1
        assert kept is not None
        return causes(recording.document)

    assert step(MAIN, MAIN) == []
    assert step(SIDE, SIDE) == []
    assert step(SIDE, MAIN) == [("C09", "schedule")]
