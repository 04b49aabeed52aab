"""A campaign on a Dask cluster: the same as in one process, also where workers are killed."""

import os
import signal
import threading

import pytest

from allocsim.errors import ClusterError
from allocsim.fuzzing import CampaignSpec, Target, campaign
from allocsim.fuzzing.cluster import go_through
from allocsim.fuzzing.sources import SourceChunk

distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the library's own warnings on shutdown

TARGET = "bad_planners:overlaps"


def asked(**options):
    return CampaignSpec(target=Target(name=TARGET), source="hypothesis", examples=14, reduce_seconds=0, **options)


@pytest.fixture
def cluster():
    """Start two workers. The scheduler reruns no chunk whose worker died: `on_cluster` has to."""
    import dask  # noqa: PLC0415 - there if distributed is

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as started,
    ):
        yield started


def test_workers_killed_in_mid_campaign_lose_nothing_and_repeat_nothing(cluster, chunks_of, tmp_path):
    chunks_of(2)
    killed = []

    def kill_one(programs):
        """After the first chunk, and again after the fifth: kill -9 of a worker."""
        if programs and len(killed) < 2 and advanced.count(1) in {1, 5}:
            with distributed.Client(cluster, set_as_default=False) as client:
                pids = [pid for pid in client.run(os.getpid).values() if pid not in killed]
            killed.append(pids[0])
            os.kill(pids[0], signal.SIGKILL)

    advanced = []

    def advance(programs):
        advanced.append(1 if programs else 0)
        kill_one(programs)

    there = campaign(asked(), corpus=tmp_path / "corpus", scheduler=cluster.scheduler_address, advance=advance)
    here = campaign(asked())

    assert len(killed) == 2
    assert here.findings
    assert there.complete
    assert there.tally.programs == here.tally.programs == 14
    assert there.tally.features == here.tally.features
    assert {f.key for f in there.findings} == {f.key for f in here.findings}
    assert {f.key: f.ops for f in there.findings} == {f.key: f.ops for f in here.findings}
    journal = (tmp_path / "corpus" / "journal.jsonl").read_text().splitlines()
    assert len(journal) == 1 + 7


def test_a_worker_reports_a_fault_in_each_chunk_that_has_it():
    chunk = SourceChunk(seed=0, number=0, count=8, options={"runnable": False})

    (first, whole, found), again = go_through(asked(), chunk, None), go_through(asked(), chunk, None)

    assert found
    assert whole
    assert [finding.key for finding in again[2]] == [finding.key for finding in found]
    assert again[0].programs == first.programs == 8


def test_a_target_that_does_not_exist_is_said_as_it_is_here(cluster):
    nobody = CampaignSpec(target=Target(name="no_such_module:plan"), source="hypothesis", examples=5)

    with pytest.raises(ClusterError, match="no_such_module"):
        campaign(nobody, scheduler=cluster.scheduler_address)


def test_an_unreachable_scheduler_is_one_clear_line(monkeypatch):
    from allocsim.fuzzing import cluster as module  # noqa: PLC0415 - only here

    monkeypatch.setattr(module, "PATIENCE", 1.0)
    before = threading.active_count()
    with pytest.raises(ClusterError, match=r"^the scheduler 'tcp://127.0.0.1:1' cannot be reached: [^\n]+$"):
        campaign(asked(), scheduler="tcp://127.0.0.1:1")
    assert threading.active_count() <= before + 3


def test_an_address_that_is_none_is_one_clear_line():
    with pytest.raises(ClusterError, match="cannot be reached"):
        campaign(asked(), scheduler="nonsense://x")
