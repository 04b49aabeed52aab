"""Chunks of a campaign on a Dask cluster: `campaign(asked, scheduler="tcp://host:8786")`.

Workers explore chunks; findings and tallies come back to the campaign, which alone keeps the
corpus, so all of it lies in one place. What a chunk finds depends on the chunk only, so where a
worker dies its chunks are done again elsewhere, from their start, and each is counted when its one
result arrives: nothing is lost and nothing is counted twice. A chunk whose workers died `LIVES`
times is given up with a ClusterError; the corpus has everything up to then.

Workers need the package, in the same version, and the target's module; the target runs in a process
of its own under each worker, as it does here. Needs `dask.distributed`
(`pip install allocsim[cluster]`).

What this module does not see: how a cluster is started, and what chunks are about.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from time import time
from typing import Any, Final

from allocsim.errors import AllocsimError, ClusterError
from allocsim.fuzzing.broken_property import BrokenProperty
from allocsim.fuzzing.explorer import CampaignSpec, Explored, Explorer
from allocsim.fuzzing.sources import SourceChunk
from allocsim.fuzzing.tally import Tally

WAITING: Final = 2
"""Chunks that are under way for each thread of the cluster."""

PATIENCE: Final = 10.0
"""Seconds a scheduler may take to answer."""

LIVES: Final = 5
"""How often workers may die of a chunk, besides the scheduler's retries, until given up."""


def on_cluster(
    asked: CampaignSpec,
    wanted: Iterator[SourceChunk],
    until: float | None,
    keep: Callable[[BrokenProperty], object],
    *,
    scheduler: str,
) -> Iterator[tuple[SourceChunk, Tally, bool]]:
    """Explore the chunks on the workers of a cluster, a few ahead of what is done.

    Raises ClusterError where there is no scheduler or no fit worker, or no such target there.
    """
    try:
        from distributed import as_completed  # noqa: PLC0415 - an optional package
        from distributed.scheduler import KilledWorker  # noqa: PLC0415 - as above
    except ImportError:
        raise ClusterError("a cluster needs dask.distributed: pip install 'allocsim[cluster]'") from None
    with _connected(scheduler) as client:
        lanes = sum(client.nthreads().values())
        if not lanes:
            raise ClusterError(f"the scheduler {scheduler!r} has no workers")
        results: Any = as_completed(loop=client.loop)  # type: ignore[no-untyped-call]
        under_way: dict[str, tuple[SourceChunk, int]] = {}

        def submit(chunk: SourceChunk, deaths: int) -> None:
            future = client.submit(go_through, asked, chunk, until, pure=False)
            under_way[future.key] = chunk, deaths
            results.add(future)

        def refill() -> None:
            while len(under_way) < WAITING * lanes and (until is None or time() < until):
                chunk = next(wanted, None)
                if chunk is None:
                    return
                submit(chunk, 0)

        refill()
        while under_way:
            future = next(results)
            chunk, deaths = under_way.pop(future.key)
            error = _error_of(future)
            if isinstance(error, KilledWorker) and deaths < LIVES:
                submit(chunk, deaths + 1)
                continue
            if error is not None:
                raise _told(error, scheduler, chunk)
            tally, whole, found = future.result()
            for finding in found:
                keep(finding)
            yield chunk, tally, whole
            refill()


def go_through(asked: CampaignSpec, chunk: SourceChunk, until: float | None) -> Explored:
    """Explore one chunk by the explorer that this thread has for what is asked: a worker's job."""
    try:
        explorer = _explorer(asked)
    except AllocsimError as error:
        raise ClusterError(str(error)) from None  # not every error of ours survives the journey
    explorer.known.clear()  # what a chunk finds must not depend on what was done here before
    return explorer.explored(chunk, until=until)


_here = threading.local()
"""What each thread of a worker keeps from chunk to chunk: (what is asked, its explorer)."""


def _explorer(asked: CampaignSpec) -> Explorer:
    identity, explorer = getattr(_here, "held", (None, None))
    mine = {**asked.identity, "limits": (asked.target, asked.reduce_seconds)}
    if explorer is None or identity != mine:
        if explorer is not None:
            _here.held = None, None  # the next target may not start
            explorer.close()
        explorer = Explorer(asked)
        _here.held = mine, explorer
    return explorer


def _connected(scheduler: str) -> Any:
    import logging  # noqa: PLC0415 - only here

    import distributed  # noqa: PLC0415 - an optional package

    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters comes back as an error
    try:
        return distributed.Client(scheduler, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        words = " ".join(str(error).split())[:160]
        raise ClusterError(f"the scheduler {scheduler!r} cannot be reached: {words or type(error).__name__}") from None


def _error_of(future: Any) -> BaseException | None:
    """Return what a future failed with, None for none; waits where its worker was lost."""
    try:
        error: BaseException | None = future.exception()
    except (concurrent.futures.CancelledError, asyncio.CancelledError) as lost:
        return lost
    return error


def _told(error: BaseException, scheduler: str, chunk: SourceChunk) -> BaseException:
    if isinstance(error, AllocsimError):
        return error
    words = " ".join(str(error).split())[:160]
    return ClusterError(f"the workers of {scheduler!r} failed on chunk {chunk.number}: {type(error).__name__}: {words}")
