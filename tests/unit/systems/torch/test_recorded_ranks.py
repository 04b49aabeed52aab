"""Recordings of `torch.distributed`: what a collective reads and writes, where ranks meet, and all ranks as one."""

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="recordings need torch")
dist = pytest.importorskip("torch.distributed", reason="ranks need torch.distributed")
fake_pg = pytest.importorskip("torch.testing._internal.distributed.fake_pg", reason="one process for four ranks")

from allocsim import Role, systems  # noqa: E402 - as below
from allocsim.cli import main  # noqa: E402 - what is optional comes first
from allocsim.diagnostics import check  # noqa: E402
from allocsim.programs.rank_meetings import collectives  # noqa: E402
from allocsim.systems.torch import record  # noqa: E402

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
